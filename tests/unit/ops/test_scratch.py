"""What rules for memory say: of calls without a rule, of sizes that are formulas, of backward kernels as PyTorch 2.13 asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from irscope.devices import Target, find_device
from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr
from irscope.ir.types import TensorType, tensor
from irscope.ops.gradients import efficient_buffer
from irscope.ops.registry import find_op
from irscope.ops.scratch.sdpa import Attention, Kernel, refused
from irscope.ops.spec import Drop, Gemm, MemoryEvent, OpCall, Result, Take, Unknown, memory_events

# What rules for memory say of calls without a rule, with formulas for sizes, and of choices that a target makes.

H200 = Target(find_device("h200"))


def events(
    name: str, operands: list[TensorType | None], results: list[TensorType], source: str, target: Target = H200, **attrs: Attr
) -> tuple[MemoryEvent, ...]:
    spec = find_op(name)
    assert spec is not None
    return memory_events(OpCall(spec, operands, attrs, (), results, source=source), target)


def f32(*shape: object) -> TensorType:
    return tensor(DType.F32, shape)  # type: ignore[arg-type]  # sizes


def f16(*shape: object) -> TensorType:
    return tensor(DType.F16, shape)  # type: ignore[arg-type]  # sizes


def test_without_a_rule_there_are_only_results() -> None:
    assert events("nn.relu", [f32(4)], [f32(4)], "aten::relu") == (Result(0),)


def test_rules_are_pytorchs() -> None:
    """The same operator from another framework's file takes nothing besides."""
    x = f32(1, 8, 4, 4)
    window: dict[str, Attr] = {"kernel_shape": (2, 2), "strides": (2, 2)}
    made = [f32(1, 8, 2, 2)]
    assert events("nn.max_pool", [x], made, "MaxPool", **window) == (Result(0),)
    positions = "positions of maxima"
    assert events("nn.max_pool", [x], made, "aten::max_pool2d", **window) == (Result(0), Take(positions, 256), Drop(positions))


def test_formulas_pass_through_where_no_choice_depends_on_them() -> None:
    n = symbol("n")
    found = events("nn.layer_norm", [f32(n, 8), None, None], [f32(n, 8)], "aten::layer_norm", axis=-1)
    assert found == (Result(0), Take("mean", n * 4), Take("deviation", n * 4), Drop("mean"), Drop("deviation"))


def test_a_choice_that_depends_on_a_formula_is_unknown() -> None:
    n = symbol("n")
    found = events("reduce.sum", [f32(n, n)], [f32()], "aten::sum")
    assert found[0] == Result(0)
    assert isinstance(found[1], Unknown) and "bind it" in found[1].reason


def test_linear_says_which_library_multiplies() -> None:
    x, w, b = f32(2, 3, 8), f32(16, 8), f32(16)
    assert events("nn.linear", [x, w, b], [f32(2, 3, 16)], "aten::linear") == (Result(0), Gemm("lt"))
    assert events("nn.linear", [x, w, None], [f32(2, 3, 16)], "aten::linear") == (Result(0), Gemm("cublas"))


def test_a_padded_result_keeps_its_padding() -> None:
    q = f16(2, 16, 300, 36)
    found = events("nn.sdpa", [q, q, q, None], [q], "aten::scaled_dot_product_attention")
    assert Result(0, 2 * 16 * 300 * 40 * 2) in found


@pytest.mark.parametrize(("device", "parts"), [("h200", 3), ("a100", 1)])
def test_flash_attention_is_split_by_the_size_of_the_device(device: str, parts: int) -> None:
    q = f16(2, 16, 300, 80)
    found = events("nn.sdpa", [q, q, q, None], [q], "aten::scaled_dot_product_attention", Target(find_device(device)))
    sizes = [event.size for event in found if isinstance(event, Take) and event.label == "partial logsumexp"]
    assert sizes == ([2 * 16 * 300 * 4 * parts] if parts > 1 else [])


@pytest.mark.parametrize(
    ("batch", "heads", "kernel", "starts"),
    [
        (65_535, 4, "flash", True),
        (65_536, 4, "flash", False),  # davit_base of timm at 1,024 images: 64 windows each
        (2, 65_536, "flash", False),
        (65_536, 4, "efficient", True),
        (2, 65_536, "efficient", False),
        (65_536, 65_536, "math", True),
    ],
)
def test_a_grid_has_limits(batch: int, heads: int, kernel: Kernel, starts: bool) -> None:
    q = f16(batch, heads, 49, 32)
    error = refused(Attention(q, q, q, None, is_causal=False, dropout=False, shared_heads=False), kernel)
    assert starts is not error.startswith("CUDA error: invalid configuration argument")


def test_cudnn_attention_has_a_workspace_that_nobody_knows() -> None:
    q = f16(2, 16, 300, 64)
    found = events("nn.sdpa", [q, q, q, None], [q], "aten::scaled_dot_product_attention", replace(H200, cudnn_attention=True))
    assert [type(event) for event in found] == [Result, Unknown]


def test_operands_that_contradict_the_operator_are_no_error() -> None:
    found = events("nn.linear", [f32(4, 8), f32(), None], [f32(4, 16)], "aten::linear")
    assert found[0] == Result(0) and isinstance(found[-1], Unknown)


# What backward kernels take, against what PyTorch 2.13 asked its allocator for on capability 9.0 with 132 multiprocessors.

TARGET = Target(find_device("h200"))
F32, BF16, I64 = DType.F32, DType.BF16, DType.I64


def _asked(op: str, source: str, operands: Sequence[TensorType | None], results: Sequence[TensorType], **attrs: object) -> list[int]:
    """Signed sizes in order."""
    spec = find_op(op)
    assert spec is not None
    call = OpCall(spec, operands, attrs, (), results, source=source)  # type: ignore[arg-type]
    found: list[int] = []
    sizes: dict[str, int] = {}
    for event in memory_events(call, TARGET):
        if isinstance(event, Result) and event.index < len(results):
            found.append(int(str(results[event.index].nbytes)))
        elif isinstance(event, Take):
            sizes[event.label] = int(str(event.size))
            found.append(sizes[event.label])
        elif isinstance(event, Drop):
            found.append(-sizes[event.label])
    return found


@pytest.mark.parametrize(
    ("half", "sizes", "recorded"),
    [
        (False, (64, 64, 32, 32), 98400),
        (False, (128, 128, 64, 64), 196800),
        (False, (197, 197, 64, 64), 393600),
        (False, (128, 128, 96, 96), 393408),
        (False, (200, 300, 128, 128), 786816),
        (False, (128, 128, 160, 160), 590112),
        (False, (128, 128, 64, 128), 196704),
        (False, (100, 100, 40, 40), 196800),
        (True, (64, 64, 32, 32), 98400),
        (True, (128, 128, 64, 64), 196800),
        (True, (200, 300, 128, 128), 786624),
        (True, (128, 128, 64, 128), 393312),
        (True, (128, 128, 160, 160), 2162976),
    ],
)
def test_buffer_of_efficient_attention(half: bool, sizes: tuple[int, int, int, int], recorded: int) -> None:
    queries, keys, head, values = sizes
    assert efficient_buffer(half, 6, queries, keys, head, values) == recorded


def _heads(batch: int, heads: int, length: int, size: int, dtype: DType) -> TensorType:
    """The heads of one position lie side by side."""
    return tensor(dtype, (batch, heads, length, size), "", (length * heads * size, size, heads * size, 1))


@pytest.mark.parametrize(
    ("shape", "recorded"),
    [
        ((2, 4, 4, 197, 197, 64), [201728] * 3 + [8192, 524288, -524288, -8192]),
        ((2, 4, 2, 128, 128, 64), [131072, 65536, 65536, 4096, 262144, 131072, 131072, -131072, -131072, -262144, -4096]),
        ((2, 4, 4, 100, 200, 96), [153600, 307200, 307200, 4096, 393216, -393216, -4096]),
        ((2, 3, 3, 64, 64, 160), [122880] * 3 + [3072, 589824, -589824, -3072]),
    ],
)
def test_flash_attention(shape: tuple[int, ...], recorded: list[int]) -> None:
    batch, heads, shared, queries, keys, size = shape
    q, k = _heads(batch, heads, queries, size, BF16), _heads(batch, shared, keys, size, BF16)
    lse = tensor(F32, (batch, heads, queries))
    source = "aten::_scaled_dot_product_flash_attention_backward"
    assert _asked("grad.sdpa", source, [q, q, k, k, None, q, lse], [q, k, k], is_causal=False) == recorded
    merged = tensor(BF16, (batch, heads, queries, size))
    size_ = batch * heads * queries * size * 2
    assert _asked("grad.sdpa", source, [q, q, k, k, None, merged, lse], [q, k, k], is_causal=False) == [size_, *recorded, -size_]


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "recorded"),
    [
        (F32, 4096, 1024, [16777216, 4096, 4096]),
        (F32, 65536, 64, [16777216, 256, 256]),
        (F32, 65537, 64, [16777472, 256, 256, 524544, 524544, *[256, 278528, 4, -4, -278528, -256] * 2, -524544, -524544]),
        (F32, 100000, 1024, [409600000, 4096, 4096, 4194304, 4194304, *[4096, 8388608, 32, -32, -8388608, -4096] * 2, -4194304, -4194304]),
        (F32, 100000, 2112, [844800000, 8448, 8448]),
        (BF16, 100000, 96, [19200000, 192, 192, 600000, 600000, *[192, 614400, 8, -8, -614400, -192] * 2, -600000, -600000]),
    ],
)
def test_layer_norm(dtype: DType, rows: int, columns: int, recorded: list[int]) -> None:
    x, scale, mean = tensor(dtype, (rows, columns)), tensor(dtype, (columns,)), tensor(F32, (rows, 1))
    source = "aten::native_layer_norm_backward"
    assert _asked("grad.layer_norm", source, [x, x, mean, mean, scale, scale], [x, scale, scale], axes=1) == recorded


@pytest.mark.parametrize(
    ("shape", "groups", "recorded"),
    [
        ((2, 32, 8, 8), 8, [16384, 128, 128, 256, 256, 64, 64, 256, -64, -64, -256, -256, -256]),
        ((2, 32, 1, 1), 8, [256, 128, 128, 256, 256, 64, 64, -64, -64, -256, -256]),
    ],
)
def test_group_norm(shape: tuple[int, ...], groups: int, recorded: list[int]) -> None:
    x, scale, mean = tensor(F32, shape), tensor(F32, shape[1:2]), tensor(F32, (shape[0], groups))
    source = "aten::native_group_norm_backward"
    assert _asked("grad.group_norm", source, [x, x, mean, mean, scale], [x, scale, scale], num_groups=groups) == recorded


@pytest.mark.parametrize(
    ("positions", "rows", "width", "first"),
    [
        (3072, 50257, 768, [154389504]),
        (4096, 30522, 768, [32768, 32768, 32768, 71167, -71167, -32768, 93763584, 32768, 8, 32768, 1279, -1279, -32768]),
        (8192, 32000, 1024, [65536, 65536, 65536, 137727, -137727, -65536, 131072000, 65536, 8, 65536, 1279, -1279, -65536]),
        # 17 bits are three passes of eight: two copies, states of a tile, three tables of digits, counters, room to align.
        (4096, 128256, 64, [32768, 32768, 32768, (s := 2 * 32768 + 1024 + 3 * 2048 + 256 + 255), -s, -32768, 32833536]),
    ],
)
def test_embedding(positions: int, rows: int, width: int, first: list[int]) -> None:
    dy, indices, table = tensor(F32, (positions, width)), tensor(I64, (positions,)), tensor(F32, (rows, width))
    found = _asked("grad.embedding", "aten::embedding_dense_backward", [dy, indices], [table], rows=rows)
    assert found[: len(first)] == first
    assert sum(found) == rows * width * 4


def test_tables_that_are_looked_up_often_are_summed_in_pieces() -> None:
    dy, indices, table = tensor(F32, (4096, 768)), tensor(I64, (4096,)), tensor(F32, (30522, 768))
    found = _asked("grad.embedding", "aten::embedding_dense_backward", [dy, indices], [table], rows=30522)
    assert found[13:21] == [32768, 32768, 1279, -1279, 8, 36040, 13839360, -13839360]


def test_softmax_multiplies_first_and_its_logarithm_does_not() -> None:
    x = tensor(F32, (64, 100))
    assert _asked("grad.softmax", "aten::_softmax_backward_data", [x, x], [x], axis=-1) == [25600, 25600, -25600]
    assert _asked("grad.log_softmax", "aten::_log_softmax_backward_data", [x, x], [x], axis=-1) == [25600]


# Operands that lie otherwise than a library wants them.


def test_products_of_lists_copy_what_has_a_step_of_zero() -> None:
    """Also where the axis has one element, so that nothing else would tell: cuBLAS wants a leading dimension."""
    left, made = f32(256, 4, 64), [f32(256, 4, 1)]
    whole, flat = (tensor(DType.F32, (256, 64, 1), "", (64, 1, step)) for step in (1, 0))
    assert events("math.matmul", [left, whole], made, "aten::bmm") == (Result(0), Gemm("cublas"))
    copy = "copy of the right matrices"
    assert events("math.matmul", [left, flat], made, "aten::bmm") == (Result(0), Take(copy, 256 * 64 * 4), Gemm("cublas"), Drop(copy))


def _takes(dy: TensorType, x: TensorType, w: TensorType, groups: int = 1) -> list[str]:
    made = [tensor(x.dtype, x.shape), tensor(w.dtype, w.shape)]
    found = events("grad.conv", [dy, x, w], made, "aten::convolution_backward", groups=groups, transposed=False)
    return [
        f"{type(one).__name__} {getattr(one, 'index', getattr(one, 'label', ''))}" for one in found if isinstance(one, Take | Drop | Result)
    ]


def test_the_gradient_of_a_convolution_is_copied_for_each_of_its_kernels_where_it_has_gaps() -> None:
    x, w = f32(8, 16, 12, 12), f32(8, 16, 3, 3)
    gaps = tensor(DType.F32, (8, 8, 12, 12), "", (5760, 144, 12, 1))
    kept = [one for one in _takes(gaps, x, w) if "workspace" not in one]
    label = "gradient without gaps"
    second = f"{label} (2)"
    assert kept == ["Result 0", f"Take {label}", f"Drop {label}", f"Take {second}", "Result 1", f"Drop {second}"]


def test_a_gradient_whose_strides_suggest_another_format_is_copied_once() -> None:
    """Of one pixel both formats have the same elements in the same places; PyTorch compares strides."""
    x = tensor(DType.BF16, (8, 8, 1, 1), "", (8, 1, 8, 8))
    dy = tensor(DType.BF16, (8, 128, 1, 1), "", (128, 1, 1, 1))
    w = tensor(DType.BF16, (128, 8, 1, 1), "", (8, 1, 8, 8))
    assert _takes(dy, x, w)[0] == "Take gradient in the kernel's layout"


@pytest.mark.parametrize(("dtype", "first"), [(DType.F32, 1), (DType.BF16, 1), (DType.F64, 1), (DType.F16, 0)])
def test_one_filter_a_channel_has_kernels_of_its_own_in_all_types_but_those_for_the_library(dtype: DType, first: int) -> None:
    x, w = tensor(dtype, (4, 64, 16, 16)), tensor(dtype, (64, 1, 3, 3))
    assert next(one for one in _takes(x, x, w, 64) if one.startswith("Result")) == f"Result {first}"
    row, filters = tensor(DType.F32, (4, 64, 16)), tensor(DType.F32, (64, 1, 3))
    assert _takes(row, row, filters, 64) == ["Result 1", "Result 0"]


POSITIONS = tensor(DType.I64, (100,))


@pytest.mark.parametrize(
    ("x", "places", "values", "accumulate", "recorded"),
    [
        (f32(64, 128), [POSITIONS, POSITIONS], f32(100), True, [800, 800, -800, 800, 800, -800, -800, *[800] * 3, 1, -1, *[-800] * 4]),
        (f32(64, 128), [tensor(DType.I32, (100,))], f32(100, 128), True, [*[800] * 3, -800, -800, *[800] * 3, 1, -1, *[-800] * 4]),
        (f32(64, 128, 10), [None, POSITIONS], f32(64, 100, 10), True, [800, 800, -800, *[800] * 3, 1, -1, *[-800] * 4]),
        (
            f32(8192, 16),
            [tensor(DType.I64, (3000,))],
            f32(3000, 16),
            True,
            [24000, 24000, -24000, *[24000] * 3, 53759, -53759, *[-24000] * 4],
        ),
        (f32(64, 128), [POSITIONS], f32(1), True, [800, 800, -800, 51200, *[800] * 3, 1, -1, *[-800] * 3, -51200, -800]),
        (
            f32(64, 128),
            [tensor(DType.I64, (30, 1)), tensor(DType.I64, (20,))],
            f32(30, 20),
            True,
            [4800, 4800, -4800, 4800, 4800, -4800, -4800, *[4800] * 3, 1, -1, *[-4800] * 4],
        ),
        (
            f32(64, 128, 10),
            [POSITIONS, None, POSITIONS],
            f32(100, 128),
            True,
            [800, 800, -800, 800, 800, -800, -800, 327680, *[800] * 3, 1, -1, *[-800] * 3, -327680, -800],
        ),
        (
            tensor(DType.F32, (64, 128), layout=(1, 64)),
            [POSITIONS],
            f32(100, 128),
            True,
            [32768, 800, 800, -800, *[800] * 3, 1, -1, *[-800] * 4, -32768],
        ),
        (f32(64, 128), [tensor(DType.I64, (30, 1)), tensor(DType.I64, (30, 20))], f32(30, 20), False, [4800, -4800]),
        (f32(64, 128), [tensor(DType.I32, (100,))], f32(100, 128), False, [800, -800]),
    ],
)
def test_positions_that_are_written(
    x: TensorType, places: list[TensorType | None], values: TensorType, accumulate: bool, recorded: list[int]
) -> None:
    """As the CUDA build of torch 2.13 asks for it: sums sort their positions, which are those of every element."""
    found = _asked("tensor.index_put", "aten::_index_put_impl_", [x, values, *places], [], accumulate=accumulate, unsafe=True)
    assert found == recorded
