"""Layers of networks against PyTorch: attention, normalization, recurrence, losses, quantization, linear algebra."""

from __future__ import annotations

import random

import numpy as np
import pytest

from irscope.ir.dims import SymDim, symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor
from irscope.ops.quantization import stretched
from irscope.ops.spec import RuleError
from tests.tables import every
from tests.unit.ops.calling import agrees_with_symbols, cost, evaluate, f32, i64, infer, shape_of, spec_of

# Attention: sizes against PyTorch, and rules for caches and packed heads.


@pytest.mark.torch
@pytest.mark.parametrize(
    ("q", "k", "v", "shared"),
    [
        ((5, 8), (6, 8), (6, 4), False),
        ((2, 3, 5, 8), (2, 3, 6, 8), (2, 3, 6, 4), False),
        ((2, 1, 5, 8), (1, 3, 6, 8), (2, 3, 6, 8), False),
        ((2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 9), True),
    ],
)
def test_products_are_those_of_torch(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], shared: bool) -> None:
    import torch

    expected = torch.nn.functional.scaled_dot_product_attention(*(torch.zeros(s) for s in (q, k, v)), enable_gqa=shared)
    assert shape_of("nn.sdpa", f32(*q), f32(*k), f32(*v), enable_gqa=shared) == tuple(expected.shape)
    agrees_with_symbols("nn.sdpa", f32(*q), f32(*k), f32(*v), enable_gqa=shared)


@pytest.mark.torch
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_multi_head_is_that_of_torch(batch_first: bool, batched: bool, average: bool) -> None:
    import torch

    layer = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first)
    q = torch.zeros((3, 5, 8) if batched and batch_first else (5, 3, 8) if batched else (5, 8))
    k = torch.zeros((3, 6, 8) if batched and batch_first else (6, 3, 8) if batched else (6, 8))
    expected = layer(q, k, k, average_attn_weights=average)
    keys = f32(*k.shape)
    attrs = {"num_heads": 2, "batch_first": batch_first, "average_weights": average}
    found = infer("nn.multi_head_attention", f32(*q.shape), keys, keys, f32(24, 8), None, f32(8, 8), results=2, **attrs)
    assert [str(type_) for type_ in found] == [str(f32(*t.shape)) for t in expected]


def test_packed_heads_stay_packed() -> None:
    hidden, length = symbol("H"), symbol("S")
    x = f32(2, length, hidden)
    found = infer("nn.attention", x, x, x, q_num_heads=4, kv_num_heads=4)[0]
    assert found.shape == (2, length, hidden)
    shared = shape_of("nn.attention", f32(2, 5, 32), f32(2, 6, 16), f32(2, 6, 24), q_num_heads=4, kv_num_heads=2)
    assert shared == (2, 5, 48)
    with pytest.raises(RuleError, match="number of heads"):
        shape_of("nn.attention", f32(2, 5, 32), f32(2, 6, 16), f32(2, 6, 24))
    with pytest.raises(RuleError, match="divided"):
        shape_of("nn.attention", f32(2, 5, 32), f32(2, 6, 16), f32(2, 6, 24), q_num_heads=5, kv_num_heads=5)


def test_a_cache_grows_by_what_is_new() -> None:
    past = symbol("P", 0)
    q = f32(1, 4, 1, 8)
    old = f32(1, 4, past, 8)
    found = infer("nn.attention", q, q, q, None, old, old, results=4)
    assert [str(type_) for type_ in found] == [str(f32(1, 4, size, 8)) for size in (1, past + 1, past + 1)] + [str(f32(1, 4, 1, past + 1))]
    work = cost("nn.attention", q, q, q, None, old, old)
    assert work.macs == (past + 1) * 4 * 16


def test_the_length_of_a_shared_cache_needs_a_value() -> None:
    lengths = tensor(DType.I32, (2,))
    types = (f32(2, 1, 32), f32(2, 1, 16), f32(2, 1, 16), f32(2, 2, 4, 8), f32(2, 2, 4, 8), lengths, tensor(DType.I32, ()))
    attrs = {"num_heads": 4, "kv_num_heads": 2}
    known = infer("nn.group_query_attention", *types, values=(*(None,) * 6, np.asarray(9)), results=3, **attrs)
    assert str(known[1]) == "f32[2,2,9,8]"
    unknown = infer("nn.group_query_attention", *types, results=3, **attrs)[1]
    assert isinstance(unknown.shape[2], SymDim)


def test_linear_attention_costs_its_recurrence() -> None:
    packed = f32(2, 10, 32)
    attrs = {"q_num_heads": 4, "kv_num_heads": 4}
    for rule, products in (("linear", 2), ("gated", 2), ("delta", 3), ("gated_delta", 3)):
        found = cost("nn.linear_attention", packed, packed, packed, update_rule=rule, **attrs)
        assert found.macs == 2 * 10 * 4 * 8 * 8 * products


def test_rotation_costs_only_what_it_rotates() -> None:
    whole = cost("nn.rotary_embedding", f32(2, 4, 5, 16), f32(9, 8), f32(9, 8))
    half = cost("nn.rotary_embedding", f32(2, 5, 64), f32(9, 4), f32(9, 4), num_heads=4, rotary_dim=8)
    assert (whole.elementwise, half.elementwise) == (640 * 3, 640 // 2 * 3)


# Normalizations: results and statistics against PyTorch.


def texts(*args: object, **kwargs: object) -> list[str]:
    return [str(type_) for type_ in infer(*args, **kwargs)]  # type: ignore[arg-type]


@pytest.mark.torch
def test_statistics_are_those_of_torch() -> None:
    import torch

    x, scale = torch.randn(4, 6, 5, 5), torch.randn(6)
    layer = torch.native_layer_norm(x, [5, 5], None, None, 1e-5)
    assert texts("nn.layer_norm", f32(4, 6, 5, 5), axis=2, results=3) == [str(f32(*t.shape)) for t in layer]
    group = torch.native_group_norm(x, scale, scale, 4, 6, 25, 3, 1e-5)
    assert texts("nn.group_norm", f32(4, 6, 5, 5), f32(6), f32(6), num_groups=3, results=3) == [str(f32(*t.shape)) for t in group]
    running = torch.zeros(6), torch.ones(6)
    for training in (True, False):
        batch = torch.native_batch_norm(x, scale, scale, *running, training, 0.1, 1e-5)
        statistics = "full" if training else "empty"
        types = (f32(4, 6, 5, 5), *(f32(6),) * 4)
        assert texts("nn.batch_norm", *types, statistics=statistics, results=3) == [str(f32(*t.shape)) for t in batch]


def test_training_writes_running_statistics() -> None:
    spec = spec_of("nn.batch_norm_training")
    assert [spec.schema.operands[index].name for index in spec.writes] == ["mean", "var"]
    assert spec_of("nn.batch_norm").writes == ()


def test_parameters_must_fit_the_channels() -> None:
    with pytest.raises(RuleError, match="one element a channel"):
        infer("nn.batch_norm", f32(2, 8, 4, 4), f32(6), f32(6), f32(6), f32(6))


def test_statistics_of_half_precision_are_kept_in_single() -> None:
    x = tensor(DType.F16, (2, 3, 8))
    assert texts("nn.layer_norm", x, stash_dtype=DType.F32, results=3) == ["f16[2,3,8]", "f32[2,3,1]", "f32[2,3,1]"]
    assert texts("nn.batch_norm", x, training=True, results=3) == ["f16[2,3,8]", "f32[3]", "f32[3]"]


def test_sizes_may_be_symbols() -> None:
    agrees_with_symbols("nn.layer_norm", f32(2, 3, 5), f32(5), axis=1, results=3)
    agrees_with_symbols("nn.skip_layer_norm", f32(2, 3, 5), f32(1, 3, 5), f32(5), results=4)
    agrees_with_symbols("nn.rms_norm", f32(2, 3, 5), f32(5), results=2)
    batch = symbol("B")
    found = cost("nn.layer_norm", f32(batch, 64), f32(64), f32(64))
    assert (found.elementwise, found.transcendental) == (batch * 320, batch)


def test_embedding_reads_only_the_rows_it_needs() -> None:
    ids = tensor(DType.I32, (2, 5))
    found = cost("nn.embed_layer_norm", ids, None, f32(30000, 8), f32(512, 8), None, f32(8), f32(8))
    assert found.read == 2 * 10 * 8 * 4 + 10 * 4


# Recurrent networks: sizes against PyTorch, and the settings ONNX has besides.


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@every("seed", range(30))
def test_stacks_are_those_of_torch(seed: int) -> None:
    import torch

    chance = random.Random(seed)
    cell = chance.choice(("lstm", "gru", "rnn"))
    settings = {"num_layers": chance.randint(1, 3), "bidirectional": chance.random() < 0.5, "batch_first": chance.random() < 0.5}
    projected = chance.choice((0, 3)) if cell == "lstm" else 0
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[cell]
    layer = module(4, 5, **settings, **({"proj_size": projected} if cell == "lstm" else {}))
    shape = (7, 4) if chance.random() < 0.3 else (2, 7, 4)
    output, state = layer(torch.zeros(shape))
    expected = [output, *(state if isinstance(state, tuple) else [state])]
    attrs = {"hidden_size": 5, "proj_size": projected, **settings}
    found = infer(f"rnn.{cell}_stack", f32(*shape), results=len(expected), **attrs)
    assert [str(type_) for type_ in found] == [str(f32(*t.shape)) for t in expected]


@pytest.mark.torch
def test_cells_are_those_of_torch() -> None:
    import torch

    for batch in ((), (3,)):
        h, c = torch.nn.LSTMCell(4, 5)(torch.zeros(*batch, 4))
        state = f32(*batch, 5)
        assert infer("rnn.lstm_cell", f32(*batch, 4), state, state, f32(20, 4), f32(20, 5), results=2) == (f32(*h.shape), f32(*c.shape))
        expected = torch.nn.GRUCell(4, 5)(torch.zeros(*batch, 4))
        assert infer("rnn.gru_cell", f32(*batch, 4), state, f32(15, 4), f32(15, 5)) == (f32(*expected.shape),)


def test_layers_have_a_direction_and_a_layout() -> None:
    weights = (f32(2, 20, 4), f32(2, 20, 5))
    found = infer("rnn.lstm", f32(7, 3, 4), *weights, direction="bidirectional", results=3)
    assert [str(type_) for type_ in found] == ["f32[7,2,3,5]", "f32[2,3,5]", "f32[2,3,5]"]
    other = infer("rnn.lstm", f32(3, 7, 4), *weights, direction="bidirectional", batch_first=True, results=3)
    assert [str(type_) for type_ in other] == ["f32[3,7,2,5]", "f32[3,2,5]", "f32[3,2,5]"]
    agrees_with_symbols("rnn.gru", f32(7, 3, 4), f32(1, 15, 4), f32(1, 15, 5), results=2)
    with pytest.raises(RuleError, match="direction"):
        infer("rnn.lstm", f32(7, 3, 4), *weights)


def test_costs_are_formulas_of_length_and_batch() -> None:
    steps, batch = symbol("T"), symbol("B")
    found = cost("rnn.lstm", f32(steps, batch, 32), f32(1, 256, 32), f32(1, 256, 64), f32(1, 512))
    assert found.macs == steps * batch * 4 * 64 * 96
    assert found.transcendental == steps * batch * 64 * 5
    projected = cost("rnn.lstm_stack", f32(10, 2, 32), hidden_size=64, proj_size=16)
    assert projected.macs == 20 * (4 * 64 * (32 + 16) + 64 * 16)


# Losses: sizes against PyTorch.


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_are_those_of_torch(reduction: str) -> None:
    import torch
    import torch.nn.functional as f

    for shape in ((5, 7), (5, 7, 2, 3), (7,)):
        x = torch.zeros(shape)
        labels = torch.zeros((shape[0], *shape[2:]) if len(shape) > 1 else (), dtype=torch.int64)
        expected = tuple(f.nll_loss(x, labels, reduction=reduction).shape)
        assert shape_of("loss.nll", f32(*shape), i64(*labels.shape), reduction=reduction) == expected
        assert shape_of("loss.cross_entropy", f32(*shape), i64(*labels.shape), reduction=reduction) == expected
        soft = tuple(f.cross_entropy(x, x, reduction=reduction).shape)
        assert shape_of("loss.cross_entropy", f32(*shape), f32(*shape), reduction=reduction) == soft
    x, y = torch.zeros(4, 3), torch.zeros(4, 3)
    functions = {
        "mse": f.mse_loss,
        "l1": f.l1_loss,
        "smooth_l1": f.smooth_l1_loss,
        "huber": f.huber_loss,
        "bce": f.binary_cross_entropy,
        "bce_with_logits": f.binary_cross_entropy_with_logits,
        "kl_div": f.kl_div,
        "soft_margin": f.soft_margin_loss,
        "poisson_nll": f.poisson_nll_loss,
    }
    for name, function in functions.items():
        expected = tuple(function(x, y, reduction=reduction).shape)
        assert shape_of(f"loss.{name}", f32(4, 3), f32(4, 3), reduction=reduction) == expected, name
    lengths = torch.tensor([4, 4])
    probabilities = torch.zeros(6, 2, 5).log_softmax(-1)
    loss = f.ctc_loss(probabilities, torch.ones(2, 4, dtype=torch.int64), torch.tensor([6, 6]), lengths, reduction=reduction)
    assert shape_of("loss.ctc", f32(6, 2, 5), i64(2, 4), i64(2), i64(2), reduction=reduction) == tuple(loss.shape)


def test_optional_results() -> None:
    batch = symbol("B")
    found = infer("loss.cross_entropy", f32(batch, 5, 3), i64(batch, 3), reduction="none", results=2)
    assert [str(type_) for type_ in found] == ["f32[B,3]", "f32[B,5,3]"]
    assert [str(type_) for type_ in infer("loss.nll", f32(batch, 5), i64(batch), results=2)] == ["f32[]", "f32[]"]


def test_labels_must_fit() -> None:
    with pytest.raises(RuleError, match="one label"):
        shape_of("loss.nll", f32(4, 5), i64(3), reduction="none")


# Quantization: values against PyTorch and by hand.

X = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:torch.quantize_per:UserWarning")
@pytest.mark.parametrize("axis", [0, 1])
def test_values_along_an_axis_are_those_of_torch(axis: int) -> None:
    import torch

    scale = np.linspace(0.01, 0.05, X.shape[axis], dtype=np.float32)
    zero = np.arange(X.shape[axis], dtype=np.int8)
    expected = torch.quantize_per_channel(torch.from_numpy(X), torch.from_numpy(scale), torch.from_numpy(zero), axis, torch.qint8)
    types = (f32(4, 6), f32(*scale.shape), tensor(DType.I8, zero.shape))
    found = evaluate("quant.quantize", *types, values=(X, scale, zero), axis=axis)
    np.testing.assert_array_equal(np.asarray(found), expected.int_repr().numpy())
    back = evaluate("quant.dequantize", tensor(DType.I8, (4, 6)), *types[1:], values=(np.asarray(found), scale, zero), axis=axis)
    np.testing.assert_allclose(np.asarray(back), expected.dequantize().numpy(), rtol=1e-6)


def test_blocks_share_a_scale() -> None:
    scale = np.asarray([[1, 2, 3], [4, 5, 6]], dtype=np.float32)
    wide = stretched(scale, (2, 5), 1, 2)
    assert wide is not None
    np.testing.assert_array_equal(wide, [[1, 1, 2, 2, 3], [4, 4, 5, 5, 6]])


def test_element_types_come_from_attribute_zero_point_or_scale() -> None:
    x, scale = f32(2), tensor(DType.F16, ())
    assert str(infer("quant.quantize", x, scale)[0]) == "u8[2]"
    assert str(infer("quant.quantize", x, scale, tensor(DType.I4, ()))[0]) == "i4[2]"
    assert str(infer("quant.quantize", x, scale, dtype=DType.F8E4M3FN)[0]) == "f8e4m3fn[2]"
    assert str(infer("quant.dequantize", tensor(DType.U8, (2,)), scale)[0]) == "f16[2]"
    assert str(infer("quant.dequantize", tensor(DType.U8, (2,)), scale_value=0.5)[0]) == "f32[2]"


def test_small_integers_saturate() -> None:
    found = evaluate("quant.quantize", f32(3), scale_value=1.0, values=(np.asarray([-20, 0.5, 20], dtype=np.float32),), dtype=DType.I4)
    np.testing.assert_array_equal(np.asarray(found), [-8, 0, 7])


def test_integer_products_subtract_zero_points_of_rows_and_columns() -> None:
    chance = np.random.default_rng(0)
    a, b = chance.integers(0, 255, (3, 4), dtype=np.uint8), chance.integers(-100, 100, (4, 2), dtype=np.int8)
    rows, columns = np.asarray([1, 2, 3], dtype=np.uint8), np.asarray([4, 5], dtype=np.int8)
    types = (tensor(DType.U8, (3, 4)), tensor(DType.I8, (4, 2)), tensor(DType.U8, (3,)), tensor(DType.I8, (2,)))
    found = evaluate("math.matmul_integer", *types, values=(a, b, rows, columns))
    np.testing.assert_array_equal(np.asarray(found), (a.astype(int) - rows[:, None]) @ (b.astype(int) - columns))


def test_packed_tables_unpack() -> None:
    data, indices, scales = tensor(DType.U8, (100, 64)), tensor(DType.I64, (2, 7)), tensor(DType.F16, (100, 1))
    assert str(infer("quant.gather_block_quantized", data, indices, scales, bits=4)[0]) == "f16[2,7,128]"
    assert str(infer("quant.gather_block_quantized", tensor(DType.U4, (100, 64)), indices, scales, bits=4)[0]) == "f16[2,7,64]"


# Matrix products, Einstein sums and linear algebra: sizes and values against numpy and PyTorch.

PAIRS = [
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (7, 3, 4)),
    ((0, 3), (3, 0)),
    ((1, 2, 0), (6, 0, 2)),
]


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_products_are_those_of_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    chance = np.random.default_rng(0)
    a, b = chance.integers(-5, 5, left), chance.integers(-5, 5, right)
    types = tensor(DType.I64, left), tensor(DType.I64, right)
    found = evaluate("math.matmul", *types, values=(a, b))
    np.testing.assert_array_equal(found, a @ b)
    assert shape_of("math.matmul", *types) == (a @ b).shape
    agrees_with_symbols("math.matmul", f32(*left), f32(*right))


EQUATIONS = [
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("ij,jk", ((2, 3), (3, 4))),
    ("ba,ac", ((2, 3), (3, 4))),
    ("ii->i", ((3, 3),)),
    ("ii", ((3, 3),)),
    ("...ij,...jk->...ik", ((5, 1, 2, 3), (4, 3, 6))),
    ("...ij,jk", ((5, 2, 3), (3, 4))),
    ("i...->...", ((5, 2, 3),)),
    ("i,i->", ((4,), (4,))),
    (" i , j -> i j ", ((4,), (5,))),
    ("ij->ji", ((4, 5),)),
    ("ij,kj,lj->ikl", ((2, 5), (3, 5), (4, 5))),
    ("Aij,A->iAj", ((2, 3, 4), (2,))),
    ("ij,ij->i", ((3, 1), (3, 6))),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einstein_sums_are_those_of_numpy(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    chance = np.random.default_rng(1)
    arrays = [chance.random(shape) for shape in shapes]
    expected = np.einsum(equation.replace(" ", ""), *arrays)
    types = [tensor(DType.F64, shape) for shape in shapes]
    assert shape_of("math.einsum", *types, equation=equation) == expected.shape
    np.testing.assert_allclose(np.asarray(evaluate("math.einsum", *types, values=arrays, equation=equation)), expected)


def test_wrong_equations_are_errors() -> None:
    for equation, shapes in (("ij->i", ((2,),)), ("i,j->ij", ((2,),)), ("i->k", ((2,),)), ("ij,jk->ik", ((2, 3), (4, 5)))):
        with pytest.raises(RuleError):
            shape_of("math.einsum", *(f32(*shape) for shape in shapes), equation=equation)


def test_gemm_transposes_and_adds() -> None:
    chance = np.random.default_rng(2)
    a, b, c = (chance.random(shape).astype(np.float32) for shape in ((3, 2), (4, 3), (4,)))
    attrs = {"trans_a": True, "trans_b": True, "alpha": 0.5, "beta": 2.0}
    found = evaluate("math.gemm", f32(3, 2), f32(4, 3), f32(4), values=(a, b, c), **attrs)
    np.testing.assert_allclose(np.asarray(found), 0.5 * a.T @ b.T + 2 * c, rtol=1e-6)
    batch = symbol("B")
    assert shape_of("math.gemm", f32(batch, 3), f32(3, 5)) == (batch, 5)
    assert shape_of("math.gemm", f32(batch, 3), tensor(DType.F32, None), trans_a=True) is not None


def test_linear_keeps_leading_axes() -> None:
    batch = symbol("B")
    assert shape_of("nn.linear", f32(batch, 7, 3), f32(5, 3), f32(5)) == (batch, 7, 5)
    assert shape_of("nn.linear", f32(3), f32(5, 3)) == (5,)
    assert shape_of("nn.linear", f32(2, 3), f32(3)) == (2,)
    with pytest.raises(RuleError, match="input size"):
        shape_of("nn.linear", f32(2, 4), f32(5, 3))


def test_transposes_are_folded_in() -> None:
    assert shape_of("math.fused_matmul", f32(2, 4, 3), f32(2, 4, 5), trans_a=True) == (2, 3, 5)
    assert shape_of("math.fused_matmul", f32(4, 2, 3), f32(2, 3, 5), trans_batch_a=True) == (2, 4, 5)


def test_groups_of_products() -> None:
    offsets = tensor(DType.I32, (4,))
    assert shape_of("math.grouped_matmul", f32(32, 64), f32(4, 64, 16), offsets) == (32, 16)
    assert shape_of("math.grouped_matmul", f32(8, 32), f32(32, 16), offsets) == (4, 8, 16)
    assert shape_of("math.grouped_matmul", f32(4, 8, 32), f32(4, 32, 16)) == (4, 8, 16)


def test_batches_are_added_up() -> None:
    assert shape_of("math.baddbmm", f32(2, 4), f32(5, 2, 3), f32(5, 3, 4), sum_batch=True) == (2, 4)
    assert shape_of("math.addmv", f32(2), f32(2, 3), f32(3)) == (2,)
    assert shape_of("math.tensordot", f32(2, 3, 4), f32(4, 3, 5), axes_a=(1, 2), axes_b=(1, 0)) == (2, 5)


@pytest.mark.torch
@every("seed", range(20))
def test_linear_algebra_is_that_of_torch(seed: int) -> None:
    import torch

    chance = random.Random(seed)
    lead = tuple(chance.randint(1, 3) for _ in range(chance.randint(0, 2)))
    rows, columns = chance.randint(2, 5), chance.randint(2, 5)
    x = torch.randn(*lead, rows, columns)
    square = torch.randn(*lead, rows, rows) + 5 * torch.eye(rows)

    def same(name: str, expected: object, *types: TensorType, **attrs: object) -> None:
        wanted = [expected] if isinstance(expected, torch.Tensor) else list(expected)  # type: ignore[call-overload]
        found = infer(name, *types, results=len(wanted), **attrs)
        assert [str(type_) for type_ in found] == [text(result) for result in wanted], name

    def text(result: torch.Tensor) -> str:
        kinds = {torch.float32: DType.F32, torch.complex64: DType.C64}
        return str(tensor(kinds[result.dtype], result.shape))

    a, s = f32(*x.shape), f32(*square.shape)
    for full in (False, True):
        same("linalg.svd", torch.linalg.svd(x, full_matrices=full), a, full_matrices=full)
    for mode in ("reduced", "complete", "r"):
        same("linalg.qr", torch.linalg.qr(x, mode=mode), a, mode=mode)
    same("linalg.svdvals", torch.linalg.svdvals(x), a)
    same("linalg.pinv", torch.linalg.pinv(x), a)
    same("linalg.det", torch.linalg.det(square), s)
    same("linalg.slogdet", torch.linalg.slogdet(square), s)
    same("linalg.inverse", torch.linalg.inv(square), s)
    same("linalg.eig", torch.linalg.eig(square), s)
    same("linalg.eigh", torch.linalg.eigh(square), s)
    same("linalg.solve", torch.linalg.solve(square, x), s, a, vectors=False)
    same("linalg.solve", torch.linalg.solve(square, square[..., 0]), s, f32(*square.shape[:-1]))
    same("linalg.lstsq", torch.linalg.lstsq(square, x).solution, s, a)
    same("linalg.cdist", torch.cdist(x, torch.randn(*lead, 6, columns)), a, f32(*lead, 6, columns))
    same("linalg.kron", torch.kron(x, torch.randn(2, 3)), a, f32(2, 3))
    same("linalg.cross", torch.linalg.cross(torch.randn(4, 1, 3), torch.randn(1, 5, 3)), f32(4, 1, 3), f32(1, 5, 3))
