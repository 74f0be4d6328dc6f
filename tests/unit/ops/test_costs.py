"""Costs and storage of single operators against formulas derived by hand."""

from __future__ import annotations

import itertools

import pytest

from irscope.ir.dims import SymDim, symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr
from irscope.ir.parser import parse_program
from irscope.ir.types import TensorType, tensor
from irscope.ops.spec import AliasRule
from irscope.passes.cost.flops import Flops
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.tables import every
from tests.unit.ops.calling import Operand, cost, f32, infer, make_call, spec_of

# Multiply-adds of single operators against formulas derived by hand.

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
    "einsum of three": ("math.einsum", (f32(8, 16), f32(16, 32), f32(32, 64)), {"equation": "ij,jk,kl->il"}, 8 * 16 * 32 + 8 * 32 * 64),
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
    "grouped_mm": ("math.grouped_matmul", (tensor(BF16, (32, 64)), tensor(BF16, (4, 64, 32)), tensor(DType.I32, (4,))), {}, 32 * 64 * 32),
    "8-bit integers": ("math.matmul_integer", (tensor(I8, (32, 64)), tensor(I8, (64, 32))), {}, 32 * 64 * 32),
    "dynamically quantized": ("quant.dynamic_quantize_matmul", (f32(8, 64), tensor(I8, (64, 32)), f32()), {}, 8 * 64 * 32),
    "few bits": ("quant.matmul_nbits", (f32(2, 7, 128), tensor(DType.U8, (48, 4, 16)), f32(48, 4)), {"k": 128, "n": 48}, 2 * 7 * 128 * 48),
    "cdist by matrix product": ("linalg.cdist", (f32(32, 16), f32(40, 16)), {"compute_mode": "use_mm_for_euclid_dist"}, 32 * 40 * 18),
    "rfft": ("fft.transform", (f32(1, 1024),), {"axes": (1,), "kind": "r2c"}, int(1.25 * 1024 * 10)),
    "solve": ("linalg.solve", (f32(32, 32), f32(32, 32)), {"vectors": False}, int(32**3 / 3 + 32**3)),
    "deformable": ("nn.deform_conv", (f32(2, 8, 16, 16), f32(16, 8, 3, 3), f32(2, 18, 14, 14)), {}, 2 * 16 * 14 * 14 * 8 * 9),
    "experts": ("nn.moe", (f32(10, 32), f32(10, 4), f32(4, 32, 64), None, f32(4, 64, 32)), {"k": 2}, 10 * 2 * (32 * 64 + 64 * 32)),
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
    "bilinear interpolation": ("vision.resize", (f32(2, 8, 16, 16),), {"axes": (2, 3), "scale_factors": (2.0, 2.0), "mode": "bilinear"}, 0),
}


@every("case", CASES.values(), ids=CASES)
def test_multiply_adds(case: Case) -> None:
    name, types, attrs, macs = case
    found = cost(name, *types, **attrs)
    assert found.macs == macs
    matmul = found.matmul
    assert not isinstance(matmul, SymDim)
    assert matmul in (2 * macs, 2 * macs + 1)


def test_normalizations_count_their_elements() -> None:
    batch = cost("nn.batch_norm", f32(2, 8, 16, 16), f32(8), f32(8), f32(8), f32(8))
    assert (batch.elementwise, batch.reduction, batch.transcendental) == (2 * 4096, 0, 8)
    layer = cost("nn.layer_norm", f32(8, 64), f32(64), f32(64))
    assert (layer.elementwise, layer.reduction, layer.transcendental) == (5 * 512, 2 * 512, 8)
    rms = cost("nn.rms_norm", f32(8, 64), f32(64))
    assert (rms.elementwise, rms.reduction, rms.transcendental) == (3 * 512, 512, 8)


def test_pooling_counts_the_elements_of_its_windows() -> None:
    found = cost("nn.max_pool", f32(1, 2, 8, 8), kernel_shape=(2, 2), strides=(2, 2))
    assert found.reduction == 2 * 8 * 8
    adaptive = cost("nn.adaptive_avg_pool", f32(1, 1, 10), output_size=(4,))
    assert adaptive.reduction == 3 + 3 + 3 + 3


def test_costs_are_formulas_of_symbols() -> None:
    batch, length = symbol("B"), symbol("S")
    q = f32(batch, 12, length, 64)
    found = cost("nn.sdpa", q, q, q)
    assert found.macs == batch * 12 * length * length * 128


def test_bytes_are_those_of_operands_and_results() -> None:
    found = cost("math.matmul", f32(2, 3), f32(3, 5))
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
        assert result.shape is None or result.shape == (), name
        assert cost(name, *operands, **attrs) is None, name


# Costs and storage of operators that compute little: what is free, what is moved, what is counted.

N = symbol("n")


@pytest.mark.parametrize(
    ("name", "operands", "attrs"),
    [
        ("view.reshape", ["f32[4,6]"], {"shape": (24,)}),
        ("view.permute", ["f32[4,6]"], {}),
        ("view.slice", ["f32[4,6]"], {"starts": (1,), "ends": (3,)}),
        ("view.expand", ["f32[1,6]"], {"shape": (4, 6)}),
        ("view.split", ["f32[4,6]"], {"size": 2}),
        ("tensor.shape", ["f32[4,6]"], {}),
        ("nn.dropout", ["f32[4,6]"], {}),
    ],
)
def test_views_cost_nothing(name: str, operands: list[Operand], attrs: dict[str, object]) -> None:
    spec = spec_of(name)
    types = infer(name, *operands, **attrs)[: 1 if name == "nn.dropout" else None]
    found = spec.cost_of(make_call(name, operands, attrs, types))
    assert (found.flops, found.read, found.written) == (0, 0, 0)


def test_bytes_of_plain_operators() -> None:
    add = cost("math.add", "f32[n,4]", "f32[4]")
    assert (add.elementwise, add.read, add.written) == (N * 4, N * 16 + 16, N * 16)
    cast = cost("tensor.cast", "f32[8]", to=DType.F16)
    assert (cast.flops, cast.read, cast.written) == (0, 32, 16)
    exp = cost("math.exp", "f16[8]")
    assert (exp.transcendental, exp.elementwise, exp.read) == (8, 0, 16)


def test_lookups_read_only_what_they_take() -> None:
    found = cost("nn.embedding", "f32[1000,8]", "i64[5]")
    assert (found.flops, found.read, found.written) == (0, 5 * 8 * 4 + 5 * 8, 5 * 8 * 4)
    found = cost("tensor.gather", "f16[1000,8]", "i32[5]", axis=0)
    assert found.read == 5 * 8 * 2 + 5 * 4


def test_reductions_count_their_input() -> None:
    found = cost("reduce.sum", "f32[n,8]", axes=(1,))
    assert (found.reduction, found.elementwise, found.written) == (N * 8, 0, N * 4)
    assert cost("reduce.mean", "f32[n,8]", axes=(1,)).elementwise == N
    softmax = cost("nn.softmax", "f32[n,8]")
    assert (softmax.elementwise, softmax.transcendental, softmax.reduction) == (N * 16, N * 8, N * 16)


def test_cost_is_unknown_without_a_shape() -> None:
    spec = spec_of("math.exp")
    assert spec.cost_of(make_call("math.exp", ["f32[*]"], {}, [tensor(DType.F32, None)])) is None


def _shares(name: str, *operands: Operand, **attrs: object) -> bool | None:
    rule = spec_of(name).shares
    return rule(make_call(name, operands, attrs, infer(name, *operands, **attrs)))


def test_reshape_shares_where_runs_are_dense() -> None:
    assert _shares("view.reshape", "f32[2,3,4]", shape=(6, 4)) is True
    turned = tensor(DType.F32, (4, 3, 2), layout=(1, 4, 12))
    assert _shares("view.reshape", turned, shape=(24,)) is False
    assert _shares("view.reshape", turned, shape=(4, 3, 2, 1)) is True
    heads = tensor(DType.F32, (2, 3, 5, 4), layout=(60, 4, 12, 1))
    assert _shares("view.reshape", heads, shape=(2, 3, 20)) is False
    assert _shares("view.reshape", heads, shape=(2, 3, 5, 2, 2)) is True
    assert _shares("view.reshape", tensor(DType.F32, (N, 3), layout=(3, 1)), shape=(-1,)) is None


def test_contiguous_and_to_share_where_nothing_changes() -> None:
    assert _shares("view.contiguous", "f32[2,3]") is True
    assert _shares("view.contiguous", tensor(DType.F32, (2, 3), layout=(1, 2))) is False
    assert _shares("view.contiguous", "f32[1,3,2,2]", memory_format="channels_last") is False
    last = tensor(DType.F32, (1, 3, 2, 2), layout=(12, 1, 6, 3))
    assert _shares("view.contiguous", last, memory_format="channels_last") is True
    assert _shares("tensor.to", "f32[2]", dtype=DType.F32) is True
    assert _shares("tensor.to", "f32[2]", dtype=DType.F16) is False
    assert _shares("tensor.to", "f32[2]", device="cuda:0") is False
    assert _shares("tensor.to", "f32[2]", copy=True) is False


def test_dropout_shares_in_evaluation() -> None:
    assert _shares("nn.dropout", "f32[2]") is True
    assert _shares("nn.dropout", "f32[2]", training=True) is False
    assert _shares("nn.dropout", "f32[2]", training=True, p=0.0) is True
    assert _shares("nn.dropout", "f32[2]", None, "bool[]") is None


def test_marks_of_views() -> None:
    assert spec_of("view.permute").aliases == (AliasRule(0, 0),)
    assert spec_of("view.reshape").aliases == (AliasRule(0, 0, may=True),)
    assert spec_of("tensor.copy").aliases == ()


# Costs and shapes of less common products, against multiply-adds by hand.


def macs_and_shape(body: str, *inputs: str) -> tuple[object, str]:
    declared = "\n".join(f"  input %{name}: f32[{shape}]" for name, shape in zip("abcd", inputs, strict=False))
    program = parse_program(f"irscope 1\ngraph @main {{\n{declared}\n  %y: f32[*] = {body}\n  return %y\n}}\n")
    manager = Manager(program)
    return manager.get(Flops()).total.macs, str(manager.get(Shapes()).type_of(program.graph.outputs[0]))


@pytest.mark.parametrize(
    ("body", "inputs", "macs", "shape"),
    [
        ("math.inner(%a, %b)", ("3,5", "4,2,5"), 3 * 4 * 2 * 5, "f32[3,4,2]"),
        ("math.inner(%a, %b)", ("", "4"), 0, "f32[4]"),
        ("math.vecdot(%a, %b)", ("3,5", "2,1,5"), 2 * 3 * 5, "f32[2,3]"),
        ("math.vecdot(%a, %b) {axis=0}", ("3,5", "3,5"), 15, "f32[5]"),
        ("math.addr(%a, %b, %c)", ("3,4", "3", "4"), 12, "f32[3,4]"),
        ("linalg.matrix_power(%a) {exponent=5}", ("2,6,6",), 2 * 3 * 216, "f32[2,6,6]"),
        ("linalg.matrix_power(%a) {exponent=1}", ("6,6",), 0, "f32[6,6]"),
        ("linalg.pdist(%a)", ("6,5",), 0, "f32[15]"),
        ("math.chain_matmul(%a, %b)", ("5", "5,7"), 35, "f32[7]"),
        ("math.chain_matmul(%a, %b)", ("n,5", "5,7"), "35*n", "f32[n,7]"),
    ],
)
def test_products(body: str, inputs: tuple[str, ...], macs: object, shape: str) -> None:
    found, type_ = macs_and_shape(body, *inputs)
    assert (found if isinstance(found, int) else str(found), type_) == (macs, shape)


def cheapest(ends: tuple[int, ...]) -> int:
    """Every order tried."""
    if len(ends) <= 2:
        return 0
    return min(cheapest(ends[: cut + 1]) + cheapest(ends[cut:]) + ends[0] * ends[cut] * ends[-1] for cut in range(1, len(ends) - 1))


@pytest.mark.parametrize("ends", list(itertools.permutations((2, 3, 10, 50, 7)))[::7])
def test_a_chain_takes_the_cheapest_order(ends: tuple[int, ...]) -> None:
    found, _ = macs_and_shape("math.chain_matmul(%a, %b, %c, %d)", *(f"{left},{right}" for left, right in itertools.pairwise(ends)))
    assert found == cheapest(ends)
