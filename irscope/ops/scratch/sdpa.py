"""What attention takes besides its results: scaled dot products, and the fused layers of transformers."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from irscope.immutable import immutable
from irscope.ir.dims import Dim, product, round_up
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor
from irscope.ops.scratch.gemm import linear, matmul
from irscope.ops.scratch.recorder import (
    Scratch,
    count,
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
    transposed,
    width,
)
from irscope.ops.scratch.reductions import layer_norm, reduce_in
from irscope.ops.spec import NeedsNumbers

if TYPE_CHECKING:
    from irscope.devices.catalogue import Target

# Into how many parts flash attention cuts the keys where queries alone do not keep the device busy.

_ROWS_OF_BLOCK = 64
_MOST_PARTS = 128
_BUSY = 0.8
_GOOD = 0.85


def splits(target: Target, shape: tuple[Dim, Dim, Dim, Dim], shared: Dim, head: int, is_causal: bool) -> int:
    """Return the parts for (batch, heads, queries, keys), with `shared` heads of keys of that many elements."""
    batch, heads, queries, keys = numbers(shape)
    if queries == 1 and not same(heads, shared) and not is_causal:
        # Queries that share keys are taken together.
        queries, heads = heads // numbers((shared,))[0], numbers((shared,))[0]
    columns = 256 if head <= 64 else 128 if head <= 128 else 64
    blocks = batch * heads * -(-queries // _ROWS_OF_BLOCK)
    return parts(blocks, 2 * (target.device.multiprocessors or 1), -(-keys // columns))


def parts(blocks: int, processors: int, columns: int) -> int:
    """Return the fewest parts that use the processors nearly as well as any number does."""
    if blocks >= _single(_single(_BUSY) * processors):
        return 1
    candidates: list[tuple[int, float]] = []
    for split in range(1, min(_MOST_PARTS, processors, columns) + 1):
        if split == 1 or -(-columns // split) != -(-columns // (split - 1)):
            waves = _single(blocks * split / processors)
            candidates.append((split, _single(waves / math.ceil(waves))))
    best = max((use for _, use in candidates), default=0.0)
    return next((number for number, use in candidates if use >= _GOOD * best), 1)


def _single(value: float) -> float:
    """Return a number in the single precision in which the original computes."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


# Scaled dot product attention: which kernels run, and what each of them takes.

Kernel = Literal["flash", "efficient", "math", "cudnn"]
KERNELS: Final[tuple[Kernel, ...]] = ("flash", "efficient", "math", "cudnn")
_MASK_ALIGNMENT = 8
_FLASH_STATE = 6
"""The first of the results of the flash kernel that hold the state of the random generator."""
_EFFICIENT_SEEDS = (2, 3)
"""The results of the efficient kernel that are seed and offset of the random generator: from 2.14 on on the device, without dropout."""
_SINGLE_PASS_HEAD = 128
"""Largest head whose values the efficient kernel goes through at once."""


@immutable(slots=False)
class Attention:
    """Operands of one call."""

    q: TensorType
    k: TensorType
    v: TensorType
    mask: TensorType | None
    is_causal: bool
    dropout: bool
    shared_heads: bool
    """Fewer heads of keys than of queries, as the call allows."""

    @property
    def dtype(self) -> DType:
        return self.q.dtype


@rule
def sdpa_rule(scratch: Scratch) -> None:
    call = scratch.call
    made = Attention(
        call.tensor("q"),
        call.tensor("k"),
        call.tensor("v"),
        call.maybe("mask"),
        bool(call.attr("is_causal")),
        bool(call.attr("dropout_p")),
        bool(call.attr("enable_gqa")),
    )
    attend(scratch, made, _stated(scratch.source))


def _stated(source: str) -> Kernel | None:
    """Return the kernel that a decomposed model names."""
    if source == "_scaled_dot_product_flash_attention":
        return "flash"
    return "efficient" if source == "_scaled_dot_product_efficient_attention" else None


def attend(scratch: Scratch, made: Attention, kernel: Kernel | None = None, make: str | None = None) -> str:
    """Return all of one attention. `make` names its output where it is not the call's result."""
    if scratch.release.widens_attention:
        made = _with_four_axes(made)
    converted = ""
    if made.mask is not None and made.mask.dtype is DType.BOOL:
        made, converted = _as_numbers(scratch, made)
    chosen = kernel or choose(scratch, made)
    if chosen == "flash":
        output = _flash(scratch, made, make)
    elif chosen == "efficient":
        return _efficient(scratch, made, make, converted)
    elif chosen == "cudnn":
        output = _output(scratch, make, product((*sizes(made.q)[:-1], sizes(made.v)[-1])) * width(made.dtype))
        scratch.unknown("attention workspace", "cuDNN's attention reports the size of its workspace only on the device")
    else:
        output = math_attention(scratch, made, make)
    scratch.drop(converted)
    return output


def choose(scratch: Scratch, made: Attention, enabled: Collection[Kernel] = KERNELS) -> Kernel:
    """PyTorch's choice among the kernels that a program leaves enabled, in its order; "math" where no other one can or may."""
    return next((one for one in _fused(scratch, made) if one in enabled), "math")


def _fused(scratch: Scratch, made: Attention) -> Iterator[Kernel]:
    """Yield the fused kernels that can do it, the preferred one first."""
    capability = scratch.target.device.capability or (0, 0)
    four = all(len(sizes(one)) == 4 for one in (made.q, made.k, made.v))
    if not four or not _dense_heads(made) or made.dtype not in (DType.F32, DType.F16, DType.BF16):
        return
    q, k, v = sizes(made.q), sizes(made.k), sizes(made.v)
    fewer = made.shared_heads and not same(q[1], k[1])
    if not (same(q[0], k[0]) and same(q[0], v[0]) and (fewer or (same(q[1], k[1]) and same(q[1], v[1])))):
        return
    if any(isinstance(size, int) and size == 0 for size in (*q, *k)):
        return
    half = is_half(made.dtype)
    square = not made.is_causal or same(q[2], k[2])
    heads = (number(q[3]), number(k[3]), number(v[3]))
    if half and capability >= (8, 0) and made.mask is None and heads[0] == heads[1] == heads[2] <= 256 and square:
        if scratch.target.cudnn_attention and capability >= (9, 0) and heads[0] % 8 == 0 and heads[0] <= 128:
            yield "cudnn"
        yield "flash"
    alignment = 8 if half and capability >= (7, 0) else 4 if capability >= (8, 0) else 1
    fits = heads[0] == heads[1] and heads[0] % alignment == 0 and heads[2] % alignment == 0 and heads[0] > 0 and heads[2] > 0
    if not fits or (fewer and not scratch.release.widens_attention) or (made.mask is not None and made.is_causal):
        return
    if made.dtype is not DType.BF16 or capability >= (8, 0):
        yield "efficient"


_MOST_BLOCKS: Final = 65_535
"""Blocks along the second and the third axis of a grid: CUDA C++ Programming Guide, technical specifications per compute capability."""


def refused(made: Attention, kernel: Kernel) -> str:
    """Return the error with which a device refuses to start a kernel whose grid is too large; empty where it starts.

    Flash attention has batch and heads as axes of its grid. The efficient kernel does large batches in parts since torch 2.8 (pull
    request 154029), and has heads as an axis still.
    """
    first = {"flash": 0, "efficient": 1}.get(kernel)
    most = 0 if first is None else max(numbers(sizes(made.q)[first:2]), default=0)
    if most <= _MOST_BLOCKS:
        return ""
    return f"CUDA error: invalid configuration argument ({kernel} attention: {most} blocks along an axis of {_MOST_BLOCKS} at most)"


def _dense_heads(made: Attention) -> bool:
    """Fused kernels read heads whose elements lie side by side."""
    operands = (made.q, made.k, made.v, *((made.mask,) if made.mask is not None else ()))
    return all(arg.layout is None or same(strides(arg)[-1], 1) or (arg is not made.mask and same(sizes(arg)[-1], 1)) for arg in operands)


def _with_four_axes(made: Attention) -> Attention:
    """Since torch 2.14, operands with three axes get one for the batch."""
    if not all(len(sizes(one)) == 3 for one in (made.q, made.k, made.v)):
        return made
    q, k, v = (relaid(one, (1, *sizes(one)), (count(one), *strides(one))) for one in (made.q, made.k, made.v))
    return replace(made, q=q, k=k, v=v)


def _as_numbers(scratch: Scratch, made: Attention) -> tuple[Attention, str]:
    """A mask of truth values becomes one of numbers, chosen between two of them."""
    assert made.mask is not None
    size = width(made.dtype)
    yes, no = scratch.take("number of a mask", size), scratch.take("number of a mask", size)
    mask = tensor(made.dtype, made.mask.shape, made.mask.device)
    converted = scratch.take("mask as numbers", nbytes(mask))
    scratch.drop(yes, no)
    return replace(made, mask=mask), converted


def _output(scratch: Scratch, make: str | None, size: Dim) -> str:
    if make is None:
        scratch.result(0, size)
        return ""
    return scratch.take(make, size)


# -- flash -------------------------------------------------------------------------------------------------------------


def _flash(scratch: Scratch, made: Attention, make: str | None) -> str:
    batch, heads, queries, head = sizes(made.q)
    shared, keys = sizes(made.k)[1], sizes(made.k)[2]
    size = width(made.dtype)
    head_size = number(head)
    padded = round_up(head_size, 8)
    copies: list[str] = []
    if padded != head_size:
        copies = [scratch.take(f"padded {name}", product((*sizes(one)[:-1], padded)) * size) for name, one in _named(made)]
    output = _output(scratch, make, product((batch, heads, queries, padded)) * size)
    saved = make is None and len(scratch.call.results) > _FLASH_STATE
    lse = "" if saved else scratch.take("logsumexp", product((batch, heads, queries)) * 4)
    scratch.result(1)
    parts: list[str] = []
    count_ = 1 if made.dropout else splits(scratch.target, (batch, heads, queries, keys), shared, padded, made.is_causal)
    if count_ > 1:
        rows = product((batch, heads, queries)) * count_ * 4
        rounded = round_up(padded, 32) if padded <= 128 else round_up(padded, 64)
        parts = [scratch.take("partial logsumexp", rows), scratch.take("partial output", rows * rounded)]

    def kept(index: int, label: str, size: int) -> str:
        if saved:
            scratch.result(index)
        return "" if saved else scratch.take(label, size)

    # With dropout a second state takes the place of the first, once that and the unused seed are there.
    first = scratch.take("random state", 16) if made.dropout else ""
    state = "" if made.dropout else kept(_FLASH_STATE, "random state", 16)
    unused = kept(_FLASH_STATE + 1, "unused seed", 8)
    if made.dropout:
        state = kept(_FLASH_STATE, "random state", 16)
    scratch.drop(first, *parts, lse, state, unused, *reversed(copies))
    return output


def _named(made: Attention) -> tuple[tuple[str, TensorType], ...]:
    return ("queries", made.q), ("keys", made.k), ("values", made.v)


# -- efficient ---------------------------------------------------------------------------------------------------------


def _efficient(scratch: Scratch, made: Attention, make: str | None, converted: str) -> str:
    mask = converted
    if made.mask is not None and not _is_aligned(made.mask):
        shape = sizes(made.mask)
        last = round_up(number(shape[-1]), _MASK_ALIGNMENT) if number(shape[-1]) % _MASK_ALIGNMENT else number(shape[-1]) + _MASK_ALIGNMENT
        mask = scratch.take("padded mask", product((*shape[:-1], last)) * width(made.mask.dtype))
        scratch.drop(converted)
    on_device = scratch.release.seeds_on_device and not made.dropout
    saved = make is None and len(scratch.call.results) > _EFFICIENT_SEEDS[-1]
    seeds = (scratch.take("seed", 8), scratch.take("seed", 8)) if on_device and not saved else ()
    for seed in _EFFICIENT_SEEDS if on_device and saved else ():
        scratch.result(seed)
    rows = product(sizes(made.q)[:-1])
    values = sizes(made.v)[-1]
    output = _output(scratch, make, rows * values * width(made.dtype))
    scratch.result(1)
    if not scratch.release.seeds_on_device:
        for seed in _EFFICIENT_SEEDS:
            scratch.result(seed, 0)  # in the host's memory
    wide = is_half(made.dtype) and number(values) > _SINGLE_PASS_HEAD
    sums = scratch.take("output in single precision", rows * values * 4) if wide else ""
    scratch.drop(sums, *seeds, mask)
    return output


def _is_aligned(mask: TensorType) -> bool:
    steps = numbers(strides(mask))
    return steps[-1] == 1 and all(step % _MASK_ALIGNMENT == 0 for step in steps[:-1])


# -- math --------------------------------------------------------------------------------------------------------------


def math_attention(scratch: Scratch, made: Attention, make: str | None) -> str:
    """Attention from plain operators: scaled copies, scores, a softmax that minds rows without any key."""
    wanted, q, k, v = made.dtype, made.q, made.k, made.v
    upcast: list[str] = []
    if is_half(wanted):
        upcast = [scratch.take(f"{name} in single precision", count(one) * 4) for name, one in _named(made)]
        q, k, v = (_like(one, DType.F32) for one in (q, k, v))
    scaled = scratch.take("scaled queries", nbytes(q))
    mask = _causal_mask(scratch, q, k) if made.is_causal else ""
    repeated: list[str] = []
    if made.shared_heads and not same(sizes(q)[-3], sizes(k)[-3]):
        heads = sizes(q)[-3]
        k, v = (tensor(one.dtype, (*sizes(one)[:-3], heads, *sizes(one)[-2:]), one.device) for one in (k, v))
        repeated = [scratch.take("keys for all heads", nbytes(k)), scratch.take("values for all heads", nbytes(v))]
    scaled_keys = scratch.take("scaled keys", nbytes(k))
    scores_name = matmul(scratch, _like(q, q.dtype), transposed(_like(k, k.dtype)), make="scores")
    scratch.drop(scaled_keys)
    batch = tuple(b if same(a, 1) else a for a, b in zip(sizes(q)[:-2], sizes(k)[:-2], strict=True))
    scores = tensor(q.dtype, (*batch, sizes(q)[-2], sizes(k)[-2]), q.device)
    weights = scratch.take("attention weights", nbytes(scores))
    safe_softmax(scratch, scores)
    scratch.drop(scores_name)
    return _weighted(scratch, made, wanted, scores, v, make, weights, [*reversed(repeated), scaled, mask, *reversed(upcast)])


def _weighted(
    scratch: Scratch, made: Attention, wanted: DType, scores: TensorType, v: TensorType, make: str | None, weights: str, rest: list[str]
) -> str:
    """Return the values' weighted sum; where it was made in single precision, it and the weights are rounded at the end."""
    if not is_half(wanted):
        output = matmul(scratch, scores, v, make=make)
        scratch.drop(*rest, weights)
        return output
    rounded = scratch.take("rounded weights", count(scores) * width(wanted))
    wide = matmul(scratch, scores, v, make="output in single precision")
    output = _output(scratch, make, product((*sizes(scores)[:-1], sizes(v)[-1])) * width(wanted))
    scratch.drop(wide, weights, *rest, rounded)
    return output


def _like(type_: TensorType, dtype: DType) -> TensorType:
    """Return a pointwise result of a tensor: dense, its axes in the same order."""
    if is_contiguous(type_):
        return tensor(dtype, type_.shape, type_.device)
    shape, steps = numbers(sizes(type_)), numbers(strides(type_))
    dense: list[Dim] = [0] * len(shape)
    step = 1
    for axis in sorted(range(len(shape)), key=lambda axis: (steps[axis], -axis)):
        dense[axis] = step
        step *= shape[axis]
    return tensor(dtype, shape, type_.device, tuple(dense))


def _causal_mask(scratch: Scratch, q: TensorType, k: TensorType) -> str:
    cells = sizes(q)[-2] * sizes(k)[-2]
    ones = scratch.take("ones", cells)
    lower = scratch.take("lower triangle", cells)
    scratch.drop(ones)
    size = width(q.dtype)
    yes, no = scratch.take("number of a mask", size), scratch.take("number of a mask", size)
    mask = scratch.take("causal mask", cells * size)
    scratch.drop(yes, no, lower)
    return mask


def safe_softmax(scratch: Scratch, scores: TensorType) -> None:
    """Request the memory that the softmax takes beside its result to set rows without any key to zero."""
    hidden = tensor(DType.BOOL, scores.shape, scores.device)
    masked = scratch.take("masked scores", count(hidden))
    rows = scratch.take("rows without keys", product(sizes(hidden)[:-1]))
    reduce_in(scratch, hidden, {len(sizes(hidden)) - 1}, 1)
    zero = scratch.take("zero", width(scores.dtype))
    scratch.drop(zero, rows, masked)


# The fused attention and encoder layers that nn.MultiheadAttention and nn.TransformerEncoder run in inference.


@rule
def multi_head_rule(scratch: Scratch) -> None:
    call = scratch.call
    if call.types[0] is not call.types[1] or call.types[0] is not call.types[2]:
        raise NeedsNumbers("the fused attention of different queries and keys is not modelled")
    self_attention(scratch, call.tensor("q"), call.given("mask"), len(call.results) > 1, bool(call.attr("average_weights")))


def self_attention(scratch: Scratch, x: TensorType, masked: bool, weights: bool, average: bool, make: str | None = None) -> str:
    """Packed projection, attention of all heads, projection of the result."""
    call = scratch.call
    batch, length, embed = sizes(x)
    heads = call.int_attr("num_heads")
    head = number(embed) // heads
    part = tensor(x.dtype, (batch, heads, length, head), x.device, (length * embed * 3, head, embed * 3, 1))
    attention = Attention(part, part, part, None, False, False, False)
    bias = call.maybe("b_qkv")
    if not weights and not masked and choose(scratch, attention) != "math":
        packed = linear(scratch, x, call.tensor("w_qkv"), bias, False, "packed projection")
        context = attend(scratch, attention, make="heads' output")
        output = linear(scratch, x, call.tensor("w_out"), call.maybe("b_out"), False, make)
        if make is None:
            _ = output
        scratch.drop(context, packed)
        return output
    size = width(x.dtype)
    packed = linear(scratch, x, call.tensor("w_qkv"), None, False, "packed projection")
    split = scratch.take("queries, keys and values", product((batch, length, embed)) * (3 * size))
    scratch.drop(packed)
    scores = scratch.take("attention weights", product((batch, heads, length, length)) * size)
    scratch.gemm()
    scratch.gemm()
    context = scratch.take("heads' output", nbytes(x))
    output = linear(scratch, x, call.tensor("w_out"), call.maybe("b_out"), False, make)
    scratch.drop(context)
    if weights:
        scratch.result(1)
    if not weights or average:
        scratch.drop(scores)
    scratch.drop(split)
    return output


@rule
def encoder_layer_rule(scratch: Scratch) -> None:
    call = scratch.call
    x = call.tensor("x")
    first = bool(call.attr("norm_first"))
    normed = layer_norm(scratch, x, 1, "first normalization") if first else ""
    attended = self_attention(scratch, x, call.given("mask"), False, False, "attention")
    if first:
        scratch.drop(normed)
        second = layer_norm(scratch, x, 1, "second normalization")
        hidden = _feed_forward(scratch, x)
        scratch.result()
        scratch.gemm("lt")
        scratch.drop(hidden, second, attended)
        return
    normed = layer_norm(scratch, x, 1, "first normalization")
    scratch.drop(attended)
    hidden = _feed_forward(scratch, x)
    output = linear(scratch, _wide(call.tensor("w_1"), x), call.tensor("w_2"), call.tensor("b_2"), False, "feed-forward output")
    scratch.drop(hidden)
    layer_norm(scratch, x, 1)
    scratch.drop(output, normed)


def _feed_forward(scratch: Scratch, x: TensorType) -> str:
    """Return the first of the two layers, its activation fused into the product."""
    call = scratch.call
    return linear(scratch, tensor(x.dtype, x.shape, x.device), call.tensor("w_1"), call.tensor("b_1"), False, "feed-forward hidden")


def _wide(w: TensorType, x: TensorType) -> TensorType:
    hidden: Dim = sizes(w)[0]
    return tensor(x.dtype, (*sizes(x)[:-1], hidden), x.device)
