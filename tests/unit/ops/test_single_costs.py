"""Multiply-adds of single operators against formulas derived by hand."""

from __future__ import annotations

import pytest

from irscope.ir.dims import SymDim, symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr
from irscope.ir.types import TensorType, tensor
from tests.unit.ops.calls import cost, f32, infer, spec_of

Case = tuple[str, tuple[TensorType | None, ...], dict[str, Attr], int]

I8 = DType.I8
BF16 = DType.BF16

CASES: dict[str, Case] = {
    "linear 2D": ("nn.linear", (f32(8, 64), f32(32, 64), f32(32)), {}, 8 * 64 * 32),
    "linear 3D": ("nn.linear", (f32(2, 16, 64), f32(32, 64), f32(32)), {}, 32 * 64 * 32),
    "x @ w": ("math.matmul", (f32(8, 64), f32(64, 32)), {}, 8 * 64 * 32),
    "x @ w batched": ("math.matmul", (f32(2, 3, 8, 64), f32(2, 3, 64, 16)), {}, 6 * 8 * 64 * 16),
    "matrix times vector": ("math.matmul", (f32(32, 64), f32(64)), {}, 32 * 64),
    "dot": ("math.matmul", (f32(64), f32(64)), {}, 64),
    "outer": ("math.outer", (f32(64), f32(32)), {}, 64 * 32),
    "einsum": ("math.einsum", (f32(2, 3, 8, 64), f32(2, 3, 9, 64)), {"equation": "bhqd,bhkd->bhqk"}, 6 * 8 * 9 * 64),
    "einsum of three": (
        "math.einsum",
        (f32(8, 16), f32(16, 32), f32(32, 64)),
        {"equation": "ij,jk,kl->il"},
        8 * 16 * 32 + 8 * 32 * 64,
    ),
    "addmm": ("math.addmm", (f32(32), f32(8, 64), f32(64, 32)), {}, 8 * 64 * 32),
    "baddbmm": ("math.baddbmm", (f32(2, 8, 16), f32(2, 8, 64), f32(2, 64, 16)), {}, 2 * 8 * 64 * 16),
    "bilinear": ("nn.bilinear", (f32(4, 16), f32(4, 16), f32(8, 16, 16), f32(8)), {}, 4 * 8 * 16 * 16 + 4 * 8 * 16),
    "conv1d": ("nn.conv", (f32(2, 8, 32), f32(16, 8, 3), f32(16)), {}, 2 * 16 * 30 * 8 * 3),
    "conv2d": ("nn.conv", (f32(2, 8, 16, 16), f32(16, 8, 3, 3), f32(16)), {}, 2 * 16 * 14 * 14 * 8 * 9),
    "conv3d": ("nn.conv", (f32(1, 4, 8, 8, 8), f32(8, 4, 3, 3, 3), f32(8)), {}, 8 * 216 * 4 * 27),
    "conv2d in 4 groups": ("nn.conv", (f32(2, 8, 16, 16), f32(16, 2, 3, 3), f32(16)), {"groups": 4}, 2 * 16 * 14 * 14 * 2 * 9),
    "conv2d depthwise": ("nn.conv", (f32(2, 8, 16, 16), f32(8, 1, 3, 3), f32(8)), {"groups": 8}, 2 * 8 * 14 * 14 * 9),
    "conv2d same, dilated": (
        "nn.conv",
        (f32(2, 8, 16, 16), f32(16, 8, 3, 3), f32(16)),
        {"auto_pad": "SAME_UPPER", "dilations": (2, 2)},
        2 * 16 * 16 * 16 * 8 * 9,
    ),
    "conv_transpose2d": (
        "nn.conv_transpose",
        (f32(2, 8, 16, 16), f32(8, 16, 4, 4), f32(16)),
        {"strides": (2, 2)},
        2 * 8 * 16 * 16 * 16 * 16,
    ),
    "conv_transpose2d in groups": (
        "nn.conv_transpose",
        (f32(2, 8, 16, 16), f32(8, 4, 4, 4), f32(16)),
        {"strides": (2, 2), "groups": 4},
        2 * 8 * 16 * 16 * 4 * 16,
    ),
    "sdpa": ("nn.sdpa", (f32(2, 4, 64, 16),) * 3, {}, 2 * 2 * 4 * 64 * 64 * 16),
    "sdpa causal": ("nn.sdpa", (f32(2, 4, 64, 16),) * 3, {"is_causal": True}, 2 * 2 * 4 * 64 * 64 * 16),
    "sdpa with shared keys": (
        "nn.sdpa",
        (f32(2, 4, 64, 16), f32(2, 2, 64, 16), f32(2, 2, 64, 16)),
        {"enable_gqa": True},
        2 * 2 * 4 * 64 * 64 * 16,
    ),
    "multi-head attention": (
        "nn.multi_head_attention",
        (f32(2, 64, 64),) * 3 + (f32(192, 64), f32(192), f32(64, 64), f32(64)),
        {"num_heads": 4},
        4 * 2 * 64 * 64 * 64 + 2 * 2 * 64 * 64 * 64,
    ),
    "transformer encoder layer": (
        "nn.transformer_encoder_layer",
        (f32(2, 64, 64), f32(192, 64), f32(192), f32(64, 64), f32(64), *(f32(64),) * 4, f32(128, 64), f32(128), f32(64, 128), f32(64)),
        {"num_heads": 4},
        4 * 2 * 64 * 64 * 64 + 2 * 2 * 64 * 64 * 64 + 2 * 2 * 64 * 64 * 128,
    ),
    "lstm": ("rnn.lstm_stack", (f32(2, 10, 32),), {"hidden_size": 64, "batch_first": True}, 2 * 10 * 4 * 64 * (32 + 64)),
    "gru": ("rnn.gru_stack", (f32(2, 10, 32),), {"hidden_size": 64, "batch_first": True}, 2 * 10 * 3 * 64 * (32 + 64)),
    "lstm layer": ("rnn.lstm", (f32(10, 2, 32), f32(1, 256, 32), f32(1, 256, 64)), {}, 2 * 10 * 4 * 64 * (32 + 64)),
    "lstm cell": ("rnn.lstm_cell", (f32(2, 32), f32(2, 64), f32(2, 64), f32(256, 32), f32(256, 64)), {}, 2 * 4 * 64 * (32 + 64)),
    "lstm of two layers": ("rnn.lstm_stack", (f32(128, 1, 512),), {"hidden_size": 512, "num_layers": 2}, 2 * 128 * 4 * 512 * 1024),
    "grouped_mm": (
        "math.grouped_matmul",
        (tensor(BF16, (32, 64)), tensor(BF16, (4, 64, 32)), tensor(DType.I32, (4,))),
        {},
        32 * 64 * 32,
    ),
    "8-bit integers": ("math.matmul_integer", (tensor(I8, (32, 64)), tensor(I8, (64, 32))), {}, 32 * 64 * 32),
    "dynamically quantized": ("quant.dynamic_quantize_matmul", (f32(8, 64), tensor(I8, (64, 32)), f32()), {}, 8 * 64 * 32),
    "few bits": (
        "quant.matmul_nbits",
        (f32(2, 7, 128), tensor(DType.U8, (48, 4, 16)), f32(48, 4)),
        {"k": 128, "n": 48},
        2 * 7 * 128 * 48,
    ),
    "cdist by matrix product": ("linalg.cdist", (f32(32, 16), f32(40, 16)), {"compute_mode": "use_mm_for_euclid_dist"}, 32 * 40 * 18),
    "rfft": ("fft.transform", (f32(1, 1024),), {"axes": (1,), "kind": "r2c"}, int(1.25 * 1024 * 10)),
    "solve": ("linalg.solve", (f32(32, 32), f32(32, 32)), {"vectors": False}, int(32**3 / 3 + 32**3)),
    "deformable": (
        "nn.deform_conv",
        (f32(2, 8, 16, 16), f32(16, 8, 3, 3), f32(2, 18, 14, 14)),
        {},
        2 * 16 * 14 * 14 * 8 * 9,
    ),
    "experts": (
        "nn.moe",
        (f32(10, 32), f32(10, 4), f32(4, 32, 64), None, f32(4, 64, 32)),
        {"k": 2},
        10 * 2 * (32 * 64 + 64 * 32),
    ),
    "onnx attention with a cache": (
        "nn.attention",
        (f32(2, 3, 4, 8), f32(2, 3, 6, 8), f32(2, 3, 6, 10), None, f32(2, 3, 12, 8), f32(2, 3, 12, 10)),
        {},
        2 * 3 * 4 * 18 * (8 + 10),
    ),
    "batch_norm": ("nn.batch_norm", (f32(2, 8, 16, 16), f32(8), f32(8), f32(8), f32(8)), {}, 0),
    "layer_norm": ("nn.layer_norm", (f32(8, 64), f32(64), f32(64)), {}, 0),
    "avg_pool2d": ("nn.avg_pool", (f32(2, 8, 16, 16),), {"kernel_shape": (2, 2), "strides": (2, 2)}, 0),
    "max_pool2d": ("nn.max_pool", (f32(2, 8, 16, 16),), {"kernel_shape": (2, 2), "strides": (2, 2)}, 0),
    "bilinear interpolation": (
        "vision.resize",
        (f32(2, 8, 16, 16),),
        {"axes": (2, 3), "scale_factors": (2.0, 2.0), "mode": "bilinear"},
        0,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_multiply_adds(case: Case) -> None:
    name, types, attrs, macs = case
    found = cost(name, *types, **attrs)
    assert found is not None
    assert found.macs == macs
    matmul = found.matmul
    assert not isinstance(matmul, SymDim)
    assert matmul in (2 * macs, 2 * macs + 1)


def test_normalizations_count_their_elements() -> None:
    batch = cost("nn.batch_norm", f32(2, 8, 16, 16), f32(8), f32(8), f32(8), f32(8))
    assert batch is not None
    assert (batch.elementwise, batch.reduction, batch.transcendental) == (2 * 4096, 0, 8)
    layer = cost("nn.layer_norm", f32(8, 64), f32(64), f32(64))
    assert layer is not None
    assert (layer.elementwise, layer.reduction, layer.transcendental) == (5 * 512, 2 * 512, 8)
    rms = cost("nn.rms_norm", f32(8, 64), f32(64))
    assert rms is not None
    assert (rms.elementwise, rms.reduction, rms.transcendental) == (3 * 512, 512, 8)


def test_pooling_counts_the_elements_of_its_windows() -> None:
    found = cost("nn.max_pool", f32(1, 2, 8, 8), kernel_shape=(2, 2), strides=(2, 2))
    assert found is not None
    assert found.reduction == 2 * 8 * 8
    adaptive = cost("nn.adaptive_avg_pool", f32(1, 1, 10), output_size=(4,))
    assert adaptive is not None
    assert adaptive.reduction == 3 + 3 + 3 + 3


def test_costs_are_formulas_of_symbols() -> None:
    batch, length = symbol("B"), symbol("S")
    q = f32(batch, 12, length, 64)
    found = cost("nn.sdpa", q, q, q)
    assert found is not None
    assert found.macs == batch * 12 * length * length * 128


def test_bytes_are_those_of_operands_and_results() -> None:
    found = cost("math.matmul", f32(2, 3), f32(3, 5))
    assert found is not None
    assert (found.read, found.written) == ((6 + 15) * 4, 10 * 4)


@pytest.mark.parametrize("name", ["text.tfidf", "learn.tree_ensemble", "linalg.svd", "vision.roi_pool", "nn.paged_attention"])
def test_what_depends_on_values_has_no_cost(name: str) -> None:
    from irscope.ops.spec import Absent

    assert spec_of(name).cost is Absent.UNKNOWN


def test_unknown_ranks_give_no_cost() -> None:
    unknown: TensorType = tensor(DType.F32, None)
    types: list[tuple[str, tuple[TensorType, ...], dict[str, Attr]]] = [
        ("math.matmul", (unknown, unknown), {}),
        ("nn.conv", (unknown, f32(8, 4, 3, 3)), {}),
        ("nn.max_pool", (unknown,), {"kernel_shape": (2, 2)}),
        ("nn.layer_norm", (unknown, f32(8)), {}),
        ("nn.sdpa", (unknown, unknown, unknown), {}),
        ("nn.attention", (unknown, unknown, unknown), {}),
        ("rnn.lstm", (unknown, unknown, unknown), {}),
        ("vision.resize", (unknown,), {"sizes": (3, 4)}),
        ("quant.quantize", (unknown, f32()), {}),
        ("loss.nll", (unknown, unknown), {}),
    ]
    for name, operands, attrs in types:
        result = infer(name, *operands, **attrs)[0]
        assert isinstance(result, TensorType)
        assert result.shape is None or result.shape == (), name
        assert cost(name, *operands, **attrs) is None, name
