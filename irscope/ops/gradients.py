"""Backward operators and optimizers, with what their kernels take."""

from __future__ import annotations

from typing import Unpack

from irscope.ir.dims import Dim, product, round_up
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.rules import like, products
from irscope.ops.scratch.folding import nll_gradient_rule, spatial_nll_gradient_rule
from irscope.ops.scratch.images import as_image, is_depthwise
from irscope.ops.scratch.ordering import FEW_SCANNED, cub_sort_pairs
from irscope.ops.scratch.recorder import (
    Requests,
    Scratch,
    count,
    is_channels_last,
    is_contiguous,
    is_half,
    nbytes,
    number,
    numbers,
    relaid,
    rule,
    same,
    sizes,
    strides,
    width,
)
from irscope.ops.scratch.reductions import accumulator, reduce_in
from irscope.ops.spec import CostRule, Facts, Family, OpCall, OpSpec, UnknownCost, numel, op
from irscope.ops.spec import sizes as sizes_for_cost

# What backward kernels take besides their results.

_SINGLE = 4
_WARP = 32
_MANY_ROWS = 64 * 1024
_MOST_BLOCKS = 32 * 1024
_FLASH_ROWS = 128
_FLASH_HEAD = 128
_LOCK = 4  # elements before each tile, which say who may write
_FEW_POSITIONS = 3072
_ROWS_OF_A_PIECE = 10
"""Rows of a segment that are added up in one piece (NROWS_PER_THREAD in EmbeddingBackwardKernel.cu)."""
_NARROW_ROW = 32


def _wanted(scratch: Scratch, index: int) -> TensorType | None:
    """Return the type of a gradient that is asked for."""
    found = scratch.call.results[index] if index < len(scratch.call.results) else None
    return found if isinstance(found, TensorType) and found.shape is not None else None


def _in_format(type_: TensorType, last: bool) -> bool:
    return is_contiguous(type_, "channels_last") if last and len(sizes(type_)) == 4 else is_contiguous(type_)


@rule
def softmax_gradient_rule(scratch: Scratch) -> None:
    """The result; the product of gradient and probabilities, which softmax has and its logarithm has not; a copy that lies row by row."""
    dy, y = scratch.call.tensor("dy"), scratch.call.tensor("y")
    scratch.result()
    # The product lies as its operands do, in the order of their steps; what is expanded has none.
    steps = [number(step) for step, size in zip(strides(dy), sizes(dy), strict=True) if not same(size, 1) and not same(step, 0)]
    as_they_lie = "log" not in scratch.source and steps == sorted(steps, reverse=True)
    tidy = is_contiguous(y) and (is_contiguous(dy) or as_they_lie)
    weighted = "" if "log" in scratch.source else scratch.take("gradient times probabilities", nbytes(dy))
    copy = "" if tidy else scratch.take("contiguous gradient", nbytes(dy))
    scratch.drop(copy, weighted)


@rule
def pool_gradient_rule(scratch: Scratch) -> None:
    """The result; gradient and positions in the memory format of the input."""
    dy, x, indices = scratch.call.tensor("dy"), scratch.call.tensor("x"), scratch.call.maybe("indices")
    scratch.result()
    last = is_channels_last(x)
    if last and "adaptive_avg" in scratch.source:
        return
    copies = [
        "" if one is None or _in_format(one, last) else scratch.take(f"{what} in the layout of the input", nbytes(one))
        for one, what in ((dy, "gradient"), (indices, "positions"))
    ]
    scratch.drop(*copies[::-1])


@rule
def resize_gradient_rule(scratch: Scratch) -> None:
    """Kernels that only know rows get a copy, and where channels come last a result to copy from."""
    dy, dx = scratch.call.tensor("dy"), _wanted(scratch, 0)
    scratch.result()
    last = is_channels_last(dy) and not is_contiguous(dy)
    if last and "nearest" in scratch.source:
        return
    own = scratch.take("result by rows", nbytes(dx)) if last and dx is not None else ""
    copy = scratch.copy_unless_contiguous(dy, "contiguous gradient")
    scratch.drop(copy, own)


@rule
def conv_gradient_rule(scratch: Scratch) -> None:
    """Operands in one memory format, then each gradient with the library's workspace; the bias's is a sum over all but the channels."""
    call = scratch.call
    dy, x, w = call.tensor("dy"), call.tensor("x"), call.tensor("w")
    last = len(sizes(w)) == 4 and (is_channels_last(x) or is_channels_last(w))
    as_images = (as_image(x), as_image(w)) if len(sizes(x)) == len(sizes(w)) == 3 else (x, w)
    if not call.attr("transposed") and len(sizes(x)) < 5 and is_depthwise(scratch, *as_images) and not last:
        # As conv_depthwise2d_backward_cuda_out: only the gradient of the filters needs the input.
        rows = scratch.copy_unless_contiguous(dy, "contiguous gradient")
        if _wanted(scratch, 1) is not None:
            given = scratch.copy_unless_contiguous(x, "contiguous input")
            scratch.result(1)
            scratch.drop(given)
        if _wanted(scratch, 0) is not None:
            scratch.result(0)
        scratch.drop(rows)
    else:
        moved = "" if _in_format(x, last) else scratch.take("input in the kernel's layout", nbytes(x))
        gradient_last = is_channels_last(x) if moved == "" else last
        # As ConvShared.cpp: where its strides suggest another format it is copied once; where it has gaps, for each gradient by itself.
        suits = is_channels_last(dy) == gradient_last if len(sizes(dy)) == 4 else is_contiguous(dy)
        relaid = "" if suits else scratch.take("gradient in the kernel's layout", nbytes(dy))
        gaps = suits and not _in_format(dy, gradient_last)
        if _wanted(scratch, 0) is not None:
            scratch.result(0)
            weight = "" if _in_format(w, last or gradient_last) else scratch.take("weights in the kernel's layout", nbytes(w))
            whole = scratch.take("gradient without gaps", nbytes(dy)) if gaps else ""
            if call.attr("transposed"):
                scratch.convolve("forward", dy, w, call.results[0])
            else:
                scratch.convolve("input", x, w, dy)
            scratch.drop(whole, weight)
        wanted = _wanted(scratch, 1) is not None
        whole = scratch.take("gradient without gaps", nbytes(dy)) if gaps and wanted else ""
        scratch.result(1)
        if wanted:
            scratch.convolve("filters", x, w, dy)
        scratch.drop(whole, relaid, moved)
    if _wanted(scratch, 2) is not None:
        scratch.result(2)
        axes = set(range(len(sizes(dy)))) - {1}
        reduce_in(scratch, dy, axes, accumulator(dy.dtype))


@rule
def batch_norm_gradient_rule(scratch: Scratch) -> None:
    """By the library: the gradient in the layout of the input. By PyTorch with channels last: means of the gradient for each channel."""
    call = scratch.call
    dy, x = call.tensor("dy"), call.tensor("x")
    # As batch_norm_choose_impl in ATen/native/cuda/Normalization.cu.
    last = is_channels_last(x) or (is_contiguous(x) and same(strides(x)[1], 1))
    if "cudnn" in scratch.source:
        copy = "" if _in_format(dy, last) else scratch.take("gradient in the layout of the input", nbytes(dy))
        for index in range(3):
            scratch.result(index)
        scratch.unknown("workspace", "cuDNN reports the size only on the device")
        scratch.drop(copy)
        return
    order = (1, 2, 0) if last else (0, 1, 2)
    for index in order[:2]:
        scratch.result(index)
    means = [scratch.take(f"mean of {what}", sizes(x)[1] * _SINGLE) for what in ("gradients", "products")] if last else []
    scratch.result(order[2])
    scratch.drop(*means)


@rule
def layer_norm_gradient_rule(scratch: Scratch) -> None:
    """Contiguous operands and the gradients; those of the factors by way of sums over blocks of rows where there are many rows."""
    call = scratch.call
    dy, x = call.tensor("dy"), call.tensor("x")
    input_copy = scratch.copy_unless_contiguous(x, "contiguous input")
    for index in range(3):
        scratch.result(index)
    copy = scratch.copy_unless_contiguous(dy, "contiguous gradient")
    _factor_sums(scratch, x, [one for one in (_wanted(scratch, 1), _wanted(scratch, 2)) if one is not None])
    scratch.drop(copy, input_copy)


@rule
def rms_norm_gradient_rule(scratch: Scratch) -> None:
    call = scratch.call
    dy, x = call.tensor("dy"), call.tensor("x")
    input_copy = scratch.copy_unless_contiguous(x, "contiguous input")
    scratch.result(0)
    scratch.result(1)
    copy = scratch.copy_unless_contiguous(dy, "contiguous gradient")
    _factor_sums(scratch, x, [one for one in (_wanted(scratch, 1),) if one is not None])
    scratch.drop(copy, input_copy)


def _factor_sums(scratch: Scratch, x: TensorType, factors: list[TensorType]) -> None:
    """With many more rows than columns, blocks of rows are summed first, then their sums."""
    if not factors:
        return
    columns = number(count(factors[0]))
    rows = number(count(x)) // max(columns, 1)
    processors = scratch.target.device.multiprocessors or 1
    if rows <= _MANY_ROWS or columns // _WARP >= processors // 2:
        return
    blocks = min(-(-rows // _WARP), _MOST_BLOCKS // -(-columns // _WARP))
    names = [scratch.take("sums of blocks of rows", blocks * columns * width(tensor_type.dtype)) for tensor_type in factors]
    for tensor_type in factors:
        total = scratch.take("sums", columns * width(tensor_type.dtype))
        reduce_in(scratch, tensor(tensor_type.dtype, (blocks, columns)), {0}, accumulator(tensor_type.dtype))
        scratch.drop(total)
    scratch.drop(*names)


@rule
def group_norm_gradient_rule(scratch: Scratch) -> None:
    """Sums for each channel of each sample, and what is made of them for each group."""
    call = scratch.call
    dy, x = call.tensor("dy"), call.tensor("x")
    copies = [scratch.copy_unless_contiguous(one, f"contiguous {what}") for one, what in ((x, "input"), (dy, "gradient"))]
    for index in range(3):
        scratch.result(index)
    shape = sizes(x)
    channels, groups = shape[0] * shape[1] * _SINGLE, shape[0] * call.int_attr("num_groups") * _SINGLE
    sums = [scratch.take(f"sums of {what}", channels) for what in ("products", "gradients")]
    shares = [scratch.take(f"share of {what}", groups) for what in ("deviation", "mean")]
    factors = "" if same(product(shape[2:]), 1) else scratch.take("factors of channels", channels)
    scratch.drop(*shares, factors, *sums, *copies[::-1])


@rule
def attention_gradient_rule(scratch: Scratch) -> None:
    if "flash" in scratch.source:
        _flash(scratch)
    elif "efficient" in scratch.source:
        _efficient(scratch)
    else:
        for index in range(4):
            scratch.result(index)
        scratch.unknown("attention workspace", "cuDNN's attention reports the size of its workspace only on the device")


def _heads_last_copy(scratch: Scratch, tensor_type: TensorType, what: str = "gradient") -> str:
    """Return kernels want the heads of one position side by side."""
    shape, steps = sizes(tensor_type), strides(tensor_type)
    seen = relaid(tensor_type, [shape[axis] for axis in (0, 2, 1, 3)], [steps[axis] for axis in (0, 2, 1, 3)])
    return "" if is_contiguous(seen) else scratch.take(f"contiguous {what}", nbytes(tensor_type))


def _flash(scratch: Scratch) -> None:
    """Sums of products for each row; the gradient of queries in single precision; keys and values for each head of the queries."""
    call = scratch.call
    dy, q, k = call.tensor("dy"), call.tensor("q"), call.tensor("k")
    # The forward's own result lies so already; one that was put together from several, as in ring attention, does not.
    copies = [_heads_last_copy(scratch, dy), _heads_last_copy(scratch, call.tensor("y"), "result")]
    for index in range(3):
        scratch.result(index)
    batch, heads, length, head = sizes(q)
    rows = round_up(number(length), _FLASH_ROWS)
    rounded = round_up(number(head), 32) if number(head) <= _FLASH_HEAD else round_up(number(head), 64)
    sums = scratch.take("sums of products", batch * heads * rows * _SINGLE)
    queries = scratch.take("gradient of queries in single precision", batch * heads * rows * rounded * _SINGLE)
    shared: list[str] = []
    if not same(sizes(k)[1], heads):
        size = product((batch, sizes(k)[2], heads, head)) * width(k.dtype)
        shared = [scratch.take(f"{what} of every head", size) for what in ("keys", "values")]
    scratch.drop(*shared[::-1], queries, sums, *copies[::-1])


def _efficient(scratch: Scratch) -> None:
    """Sums of products for each row, outside of the kernel for single precision; then its own buffer."""
    call = scratch.call
    dy, q, k, v = (call.tensor(name) for name in ("dy", "q", "k", "v"))
    copy = _heads_last_copy(scratch, dy)
    for index in range(4):
        scratch.result(index)
    batch, heads, queries, head = numbers(sizes(q))
    keys, values = number(sizes(k)[2]), number(sizes(v)[3])
    rows = batch * heads * queries * _SINGLE
    if is_half(q.dtype):
        sums = scratch.take("sums of products", rows)
    else:
        products = scratch.take("products of gradient and result", rows * values)
        sums = scratch.take("sums of products", rows)
        if heads > 1:
            turned = scratch.take("sums of products, heads first", rows)
            scratch.drop(sums)
            sums = turned
        scratch.drop(products)
    buffer = scratch.take("buffer of the kernel", efficient_buffer(is_half(q.dtype), batch * heads, queries, keys, head, values))
    scratch.drop(sums, buffer, copy)


def efficient_buffer(half: bool, heads: int, queries: int, keys: int, head: int, values: int) -> int:
    """Bytes in which the kernel adds up gradients: those of queries tile by tile, each with a lock; those of keys and values where they do
    not fit its registers."""
    widest = max(head, values)
    tile_rows = 64 if widest <= 64 else 128
    tile_columns = 128 if half and 64 < widest <= 128 else 64
    tiles = -(-queries // tile_rows) * -(-head // tile_columns)
    elements = tiles * (_LOCK + tile_rows * tile_columns)
    if half and widest > 128:
        splits = -(-keys // 128)
        if heads >= 256 and keys <= 2 * 128:
            splits = 1
        splits = max(min(splits, 200 // heads), 1)
        elements += splits * 128 * (round_up(head, 128) + round_up(values, 128))
    return heads * round_up(elements, 4) * _SINGLE


@rule
def embedding_gradient_rule(scratch: Scratch) -> None:
    """Few positions go straight to their rows. Many are sorted first, and rows are summed piece by piece."""
    call = scratch.call
    dy = call.tensor("dy")
    indices = call.tensor("indices")
    copies = [scratch.copy_unless_contiguous(one, f"contiguous {what}") for one, what in ((dy, "gradient"), (indices, "positions"))]
    positions, rows = number(count(indices)), call.int_attr("rows")
    if positions <= _FEW_POSITIONS and not call.attr("scaled"):
        scratch.result()
        scratch.drop(*copies[::-1])
        return
    width_ = number(sizes(dy)[-1])
    narrow = width_ <= _NARROW_ROW
    sort = cub_sort_pairs(positions, 8, 8, rows.bit_length())
    table = rows * width_ * _SINGLE if narrow and is_half(dy.dtype) else 0
    sum_sorted_rows(scratch, positions, rows, 8, sort, 8 if narrow else width_ * _SINGLE, scaled=bool(call.attr("scaled")), table=table)
    scratch.drop(*copies[::-1])


def sum_sorted_rows(scratch: Requests, positions: int, rows: int, item: int, sort: int, row: int, *, scaled: bool, table: int = 0) -> None:
    """Sort positions of `item` bytes, and sum the rows of each piece by piece (EmbeddingBackwardKernel.cu).

    `sort` are the bytes of the buffer of the sort, `row` those of a piece's sum, `table` those of a result in single precision.
    """
    size = positions * item
    ordered, origins, numbered = (scratch.take(label, size) for label in ("sorted positions", "origins", "numbers"))
    scratch.passing("buffer of the sort", sort)
    scratch.drop(numbered)
    counts = scratch.take("counts", size) if scaled else ""
    scratch.result()
    firsts, found, marks = scratch.take("first of each row", size), scratch.take("rows found", 8), scratch.take("marks", size)
    scratch.passing("buffer of the count", FEW_SCANNED)
    scratch.drop(marks)
    segments = min(positions, rows)
    pieces = segments + positions // _ROWS_OF_A_PIECE
    offsets, sizes_ = scratch.take("starts of segments", segments * item), scratch.take("pieces of segments", segments * item)
    scratch.passing("buffer of the sum", FEW_SCANNED)
    total = scratch.take("pieces", 8)
    starts = scratch.take("starts of pieces", pieces * item)
    sums = scratch.take("sums of pieces", pieces * row)
    wide = scratch.take("table in single precision", table)
    scratch.drop(wide, sums, starts, total, sizes_, offsets, found, firsts, counts, origins, ordered)


@rule
def lstm_cell_gradient_rule(scratch: Scratch) -> None:
    """The bias's gradient is a sum over the batch."""
    for index in range(3):
        scratch.result(index)
    gates = _wanted(scratch, 0)
    if gates is not None and _wanted(scratch, 2) is not None:
        reduce_in(scratch, gates, {0}, accumulator(gates.dtype))


@rule
def lstm_gates_rule(scratch: Scratch) -> None:
    """The gates come first."""
    for index in (2, 0, 1):
        scratch.result(index)


@rule
def gru_gates_rule(scratch: Scratch) -> None:
    """The workspace comes first."""
    for index in (1, 0):
        scratch.result(index)


@rule
def gru_cell_gradient_rule(scratch: Scratch) -> None:
    """Each bias's gradient is a sum over the batch."""
    for index in range(3):
        scratch.result(index)
    for gates, bias in ((0, 3), (1, 4)):
        type_ = _wanted(scratch, gates)
        if type_ is not None and _wanted(scratch, bias) is not None:
            scratch.result(bias)
            reduce_in(scratch, type_, {0}, accumulator(type_.dtype))


_CHUNK = 65536
"""Elements that a block of a kernel over many tensors works on (kChunkSize in MultiTensorApply.cuh)."""


@rule
def many_rule(scratch: Scratch) -> None:
    """One kernel over many tensors needs nothing but its results; norms come as sums of pieces of each tensor first."""
    tensors = [one for one in scratch.call.types if isinstance(one, TensorType)]
    pieces = ""
    function = scratch.call.attr("function")
    if function == "max":
        for index in range(len(scratch.call.results)):
            scratch.result(index)
    if function in ("norm", "max") and tensors:
        # ForeachReduceOp.cu: as many numbers for each tensor as the longest needs, in the type that sums are computed in.
        made = scratch.call.results[0]
        dtype = made.dtype if isinstance(made, TensorType) else tensors[0].dtype
        item = accumulator(dtype) if function == "norm" else width(dtype)
        most = max(number(count(tensor)) for tensor in tensors)
        pieces = scratch.take("reduced pieces", len(tensors) * max(1, -(-most // _CHUNK)) * item)
    for index in range(len(scratch.call.results)):
        scratch.result(index)
    if pieces:
        scratch.drop(pieces)


def _results(call: OpCall) -> tuple[Type, ...]:
    """Return the results as they were observed: which gradients are wanted is said by a mask."""
    return tuple(call.results)


def _asked_type(call: OpCall, index: int) -> bool:
    """Return whether a gradient is asked for."""
    return index < len(call.results) and call.results[index].shape is not None


# -- functions of single elements --------------------------------------------------------------------------------------


def _each(elementwise: int, transcendental: int = 0) -> CostRule:
    def cost(call: OpCall) -> Cost:
        count = numel(call.types[0])
        return Cost(elementwise=count * elementwise, transcendental=count * transcendental)

    return cost


def _pointwise(name: str, elementwise: int, transcendental: int = 0, **facts: Unpack[Facts]) -> OpSpec:
    """Return the gradient of a function of single elements; costs are operations an element."""
    return op(
        f"grad.{name}(Tensor dy, Tensor? x, Tensor? other) -> Tensor",
        Family.ELEMENTWISE,
        infer=like("dy"),
        cost=_each(elementwise, transcendental),
        summary=f"Gradient of {name}.",
        **facts,
    )


_POINTWISE = {
    "threshold": (1, 0),
    "gelu": (12, 2),
    "tanh": (3, 0),
    "sigmoid": (3, 0),
    "silu": (5, 1),
    "mish": (8, 3),
    "hardswish": (4, 0),
    "hardsigmoid": (2, 0),
    "hardtanh": (2, 0),
    "leaky_relu": (2, 0),
    "elu": (3, 1),
    "softplus": (4, 1),
    "logsigmoid": (5, 1),
    "logit": (4, 0),
    "dropout": (2, 0),
}


# -- losses, softmax -----------------------------------------------------------------------------------------------------


def _cost_softmax(call: OpCall) -> Cost:
    count = numel(call.types[0])
    return Cost(elementwise=count * 3, reduction=count)


def _cost_log_softmax(call: OpCall) -> Cost:
    count = numel(call.types[0])
    return Cost(elementwise=count * 3, reduction=count, transcendental=count)


def _like_scores(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(x.dtype, x.shape, x.device)


def _loss(name: str, elementwise: int, transcendental: int = 0, **facts: Unpack[Facts]) -> OpSpec:
    def cost(call: OpCall) -> Cost:
        count = numel(call.types[1])
        return Cost(elementwise=count * elementwise, transcendental=count * transcendental)

    return op(
        f"grad.{name}(Tensor dy, Tensor x, Tensor target, Tensor? weight, Tensor? total_weight) -> Tensor",
        Family.ELEMENTWISE,
        infer=_like_scores,
        cost=cost,
        summary=f"Gradient of the loss {name}.",
        **facts,
    )


# -- convolutions, pooling -----------------------------------------------------------------------------------------------


def _cost_conv(call: OpCall) -> Cost:
    """As many multiply-adds as in the forward for each of the two gradients, whatever the groups; the bias's is a sum."""
    weights = sizes_for_cost(call.types[2])
    # The operand that the filter slides over has as many windows as the other has elements.
    slides = call.types[1] if call.attr("transposed") else call.types[0]
    macs = numel(slides) * product(weights[1:])
    gradients = int(_asked_type(call, 0)) + int(_asked_type(call, 1))
    return products(macs * gradients) + Cost(reduction=numel(call.types[0]) if _asked_type(call, 2) else 0)


def _spread(call: OpCall) -> Cost:
    return Cost(elementwise=numel(call.types[0]))


# -- attention -----------------------------------------------------------------------------------------------------------


def _cost_attention(call: OpCall) -> Cost:
    """Scores are computed again; then the gradients of probabilities, values, queries and keys."""
    q, k, v = (sizes_for_cost(call.types[index]) for index in (1, 2, 3))
    scores = product((*q[:-1], k[-2]))
    macs = scores * (3 * q[-1] + 2 * v[-1])
    return products(macs) + Cost(elementwise=scores * 5, transcendental=scores, reduction=scores)


# -- normalizations ------------------------------------------------------------------------------------------------------


def _cost_norm(call: OpCall) -> Cost:
    count = numel(call.types[0])
    return Cost(elementwise=count * 8, reduction=count * 4)


# -- recurrent cells, embeddings -----------------------------------------------------------------------------------------


_GRU_STEP = 13
"""Additions and products for an element of the state: 3 for each of the two gates, 4 for the candidate, 3 for the mean of both states."""


def _cost_cell(call: OpCall) -> Cost:
    gates = call.results[0] if call.results else None
    return Cost(elementwise=numel(gates) * 6, transcendental=numel(gates))


def _cost_embedding(call: OpCall) -> Cost:
    return Cost(reduction=numel(call.types[0]))


# -- many tensors at once --------------------------------------------------------------------------------------------------


def _cost_many(call: OpCall) -> Cost:
    """Operations an element of the first list."""
    lists, total = call.int_attr("lists"), _zero()
    tensors = [type_ if isinstance(type_, TensorType) else None for type_ in call.types]
    first = tensors[: max(len(tensors) // max(lists, 1), 1)] if tensors else []
    for one in first:
        total = total + numel(one)
    function = str(call.attr("function"))
    each, hard = _WORK.get(function, (None, 0))
    if each is None:
        raise UnknownCost
    return Cost(elementwise=total * each, transcendental=total * hard)


def _zero() -> Dim:
    return 0


_WORK: dict[str, tuple[int, int]] = {
    **dict.fromkeys(
        [
            "add",
            "sub",
            "mul",
            "div",
            "neg",
            "abs",
            "maximum",
            "minimum",
            "clamp_min",
            "clamp_max",
            "sign",
            "round",
            "floor",
            "ceil",
            "trunc",
            "frac",
        ],
        (1, 0),
    ),
    **dict.fromkeys(["addcmul", "addcdiv", "lerp"], (3, 0)),
    **dict.fromkeys(
        [
            "sqrt",
            "rsqrt",
            "exp",
            "log",
            "reciprocal",
            "pow",
            "tanh",
            "sin",
            "cos",
            "erf",
            "sigmoid",
            "expm1",
            "log1p",
            "log2",
            "log10",
            "tan",
            "lgamma",
        ],
        (0, 1),
    ),
    **dict.fromkeys(["copy", "zero", "clone"], (0, 0)),
    **dict.fromkeys(["norm", "max"], (2, 0)),
    "sgd": (6, 0),
    "adagrad": (6, 1),
    "adam": (14, 1),
    "adamw": (14, 1),
}
FUNCTIONS = frozenset(_WORK)
"""Functions that process a list of tensors in one call."""

OPS = (
    *(_pointwise(name, *costs) for name, costs in _POINTWISE.items()),
    op(
        "grad.glu(Tensor dy, Tensor x, *, int axis=-1) -> Tensor",
        Family.ELEMENTWISE,
        infer=_like_scores,
        cost=_each(6, 1),
        summary="Gradient of glu.",
    ),
    op(
        "grad.softmax(Tensor dy, Tensor y, *, int axis=-1, dtype? dtype) -> Tensor",
        Family.SOFTMAX,
        infer=lambda call: _as_input(call),
        cost=_cost_softmax,
        temporaries=softmax_gradient_rule,
        summary="Gradient of softmax from its result.",
    ),
    op(
        "grad.log_softmax(Tensor dy, Tensor y, *, int axis=-1, dtype? dtype) -> Tensor",
        Family.SOFTMAX,
        infer=lambda call: _as_input(call),
        cost=_cost_log_softmax,
        temporaries=softmax_gradient_rule,
        summary="Gradient of log_softmax from its result.",
    ),
    _loss("nll", 1, temporaries=nll_gradient_rule),
    _loss("nll_spatial", 1, temporaries=spatial_nll_gradient_rule),
    _loss("mse", 3),
    _loss("smooth_l1", 4),
    _loss("huber", 4),
    _loss("bce", 6),
    op(
        "grad.conv(Tensor dy, Tensor x, Tensor w, *, int[]? strides, int[]? pads, int[]? dilations, bool transposed=False, "
        "int[]? output_padding, int groups=1) -> (Tensor? dx, Tensor? dw, Tensor? db)",
        Family.CONTRACTION,
        infer=_results,
        cost=_cost_conv,
        temporaries=conv_gradient_rule,
        summary="Gradients of a convolution for its input, its filters and its bias.",
        roles=frozenset({OpRole.CONVOLUTION}),
    ),
    op(
        "grad.pool(Tensor dy, Tensor x, Tensor? indices) -> Tensor",
        Family.POOLING,
        infer=_like_scores,
        cost=_spread,
        temporaries=pool_gradient_rule,
        summary="Gradient of a pooling: goes to the maxima, or is spread over the windows.",
    ),
    op(
        "grad.resize(Tensor dy, *, int[]? size) -> Tensor",
        Family.POOLING,
        infer=lambda call: call.results[0],
        cost=_spread,
        temporaries=resize_gradient_rule,
        summary="Gradient of a change of an image's size.",
    ),
    op(
        "grad.place(Tensor dy) -> Tensor",
        Family.MOVE,
        infer=lambda call: call.results[0],
        cost=lambda call: Cost(),
        summary="Gradient of a slice: zeros with the slice's gradient in their middle.",
    ),
    op(
        "grad.sdpa(Tensor dy, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor y, Tensor lse, *, bool is_causal=False, "
        "float dropout_p=0.0) -> (Tensor? dq, Tensor? dk, Tensor? dv, Tensor? dmask)",
        Family.ATTENTION,
        infer=_results,
        cost=_cost_attention,
        temporaries=attention_gradient_rule,
        summary="Gradients of an attention, whose scores are computed again.",
    ),
    op(
        "grad.batch_norm(Tensor dy, Tensor x, Tensor? scale, Tensor? mean, Tensor? deviation) -> "
        "(Tensor? dx, Tensor? dscale, Tensor? dbias)",
        Family.NORMALIZATION,
        infer=_results,
        cost=_cost_norm,
        temporaries=batch_norm_gradient_rule,
        summary="Gradients of a batch normalization.",
    ),
    op(
        "grad.layer_norm(Tensor dy, Tensor x, Tensor mean, Tensor deviation, Tensor? scale, Tensor? bias, *, int axes=1) -> "
        "(Tensor? dx, Tensor? dscale, Tensor? dbias)",
        Family.NORMALIZATION,
        infer=_results,
        cost=_cost_norm,
        temporaries=layer_norm_gradient_rule,
        summary="Gradients of a layer normalization.",
    ),
    op(
        "grad.rms_norm(Tensor dy, Tensor x, Tensor deviation, Tensor? scale, *, int axes=1) -> (Tensor? dx, Tensor? dscale)",
        Family.NORMALIZATION,
        infer=_results,
        cost=_cost_norm,
        temporaries=rms_norm_gradient_rule,
        summary="Gradients of a normalization by the root of mean squares.",
    ),
    op(
        "grad.group_norm(Tensor dy, Tensor x, Tensor mean, Tensor deviation, Tensor? scale, *, int num_groups=1) -> "
        "(Tensor? dx, Tensor? dscale, Tensor? dbias)",
        Family.NORMALIZATION,
        infer=_results,
        cost=_cost_norm,
        temporaries=group_norm_gradient_rule,
        summary="Gradients of a group normalization.",
    ),
    op(
        "grad.embedding(Tensor dy, Tensor indices, *, int rows, int padding=-1, bool scaled=False) -> Tensor",
        Family.INDEXING,
        infer=lambda call: call.results[0],
        cost=_cost_embedding,
        temporaries=embedding_gradient_rule,
        summary="Gradient of an embedding: rows of the table that were looked up get the sum of what came of them.",
    ),
    op(
        "rnn.lstm_gates(Tensor input_gates, Tensor hidden_gates, Tensor c, Tensor? input_bias, Tensor? hidden_bias) -> "
        "(Tensor h, Tensor c, Tensor gates)",
        Family.RECURRENT,
        infer=_results,
        cost=lambda call: Cost(elementwise=numel(call.types[0]) * 3, transcendental=numel(call.types[0]) + numel(call.types[2])),
        temporaries=lstm_gates_rule,
        summary="What follows the matrix products in one step of an LSTM; the gates are kept for the backward.",
    ),
    op(
        "grad.lstm_cell(Tensor? dh, Tensor? dc, Tensor c, Tensor c_new, Tensor gates, *, bool has_bias=False) -> "
        "(Tensor dgates, Tensor? dc, Tensor? dbias)",
        Family.RECURRENT,
        infer=_results,
        cost=_cost_cell,
        temporaries=lstm_cell_gradient_rule,
        summary="Gradients of one step of an LSTM.",
    ),
    op(
        "rnn.gru_gates(Tensor input_gates, Tensor hidden_gates, Tensor h, Tensor? input_bias, Tensor? hidden_bias) -> "
        "(Tensor h, Tensor workspace)",
        Family.RECURRENT,
        infer=_results,
        cost=lambda call: Cost(elementwise=numel(call.types[2]) * _GRU_STEP, transcendental=numel(call.types[0])),
        temporaries=gru_gates_rule,
        summary="What follows the matrix products in one step of a GRU; the workspace is kept for the backward.",
    ),
    op(
        "grad.gru_cell(Tensor dh, Tensor workspace, *, bool has_bias=False) -> "
        "(Tensor dinput_gates, Tensor dhidden_gates, Tensor dh, Tensor? dinput_bias, Tensor? dhidden_bias)",
        Family.RECURRENT,
        infer=_results,
        cost=_cost_cell,
        temporaries=gru_cell_gradient_rule,
        summary="Gradients of one step of a GRU.",
    ),
    op(
        "train.many(Tensor[] tensors, *, str function, int lists=1) -> Tensor[]",
        Family.LEARNING,
        infer=_results,
        cost=_cost_many,
        temporaries=many_rule,
        summary="One function over lists of tensors, such as the steps of an optimizer over all parameters.",
    ),
)


def _as_input(call: OpCall) -> Type:
    """Like the result of the forward, in the type of its operand."""
    y = call.tensor("y")
    wanted = call.attr("dtype")
    return tensor(wanted if isinstance(wanted, DType) else y.dtype, y.shape, y.device)
