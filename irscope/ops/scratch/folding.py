"""Reductions, softmax and losses: buffers of split reductions, converted and full-size copies."""

from __future__ import annotations

from collections.abc import Callable

from irscope.ir.dims import Dim
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor
from irscope.ops.scratch.recorder import Scratch, count, is_contiguous, is_half, nbytes, rule, sizes, width
from irscope.ops.scratch.reductions import accumulator, reduce_in
from irscope.ops.scratch.sdpa import safe_softmax
from irscope.ops.spec import NeedsNumbers, Temporaries

_PAIR = 16
"""A value with its position, or the state of a running variance."""


def reduced_axes(scratch: Scratch, x: TensorType) -> set[int]:
    """Return axes that go, counted from the front."""
    call, rank = scratch.call, len(sizes(x))
    if "axes" in call.spec.operand_index:
        axes = call.ints("axes")
        if axes is None and call.given("axes"):
            raise NeedsNumbers("the axes of the reduction are not known")
    else:
        axis = call.attr("axis")
        axes = (axis,) if isinstance(axis, int) else None
    return {axis % rank for axis in axes} if axes and rank else set(range(rank))


@rule
def sum_rule(scratch: Scratch) -> None:
    """Sums, products and means; integers are summed as 64-bit ones, of which a copy is made."""
    x = scratch.call.tensor("x")
    made = scratch.call.made()
    scratch.result()
    wanted = made.dtype
    converted = ""
    if wanted is not x.dtype and not (is_half(x.dtype) and wanted is DType.F32):
        x = tensor(wanted, x.shape, x.device)
        converted = scratch.take("converted input", nbytes(x))
    reduce_in(scratch, x, reduced_axes(scratch, x), accumulator(x.dtype))
    scratch.drop(converted)


def reduction_rule(state: Callable[[Scratch, DType], int], results: int = 1) -> Temporaries:
    """Return a rule of reductions that keep so many bytes for each result while they run."""

    @rule
    def write(scratch: Scratch) -> None:
        x = scratch.call.tensor("x")
        for index in range(results):
            scratch.result(index)
        reduce_in(scratch, x, reduced_axes(scratch, x), state(scratch, x.dtype))

    return write


extreme_rule = reduction_rule(lambda scratch, dtype: width(dtype))
truth_rule = reduction_rule(lambda scratch, dtype: 1 if scratch.release.truths_in_bytes else width(dtype))
norm_rule = reduction_rule(lambda scratch, dtype: accumulator(dtype))
pair_rule = reduction_rule(lambda scratch, dtype: _PAIR, results=2)
"""Positions of extremes, variances and deviations, with or without the other result."""


@rule
def extremes_rule(scratch: Scratch) -> None:
    """Smallest and largest at once."""
    x = scratch.call.tensor("x")
    scratch.result()
    scratch.result(1)
    if scratch.call.ints("axes") is None:
        reduce_in(scratch, x, reduced_axes(scratch, x), 2 * width(x.dtype))


@rule
def count_nonzero_rule(scratch: Scratch) -> None:
    x = scratch.call.tensor("x")
    truths = tensor(DType.BOOL, x.shape, x.device)
    integers = tensor(DType.I64, x.shape, x.device)
    differs = scratch.take("comparison", nbytes(truths))
    scratch.result()
    converted = scratch.take("converted input", nbytes(integers))
    reduce_in(scratch, integers, reduced_axes(scratch, x), 8)
    scratch.drop(converted, differs)


@rule
def log_sum_exp_rule(scratch: Scratch) -> None:
    """The maxima, a check for infinities, all exponentials, their sum."""
    x = scratch.call.tensor("x")
    made = scratch.call.made()
    axes = reduced_axes(scratch, x)
    maxima = scratch.take("maxima", nbytes(made))
    reduce_in(scratch, x, axes, width(x.dtype))
    sizes_ = scratch.take("magnitudes of maxima", nbytes(made))
    infinite = scratch.take("infinite maxima", count(made))
    scratch.drop(infinite, sizes_)
    exponentials = scratch.take("exponentials", nbytes(x))
    scratch.result()
    reduce_in(scratch, x, axes, accumulator(x.dtype))
    scratch.drop(exponentials, maxima)


@rule
def softmax_rule(scratch: Scratch) -> None:
    """A converted copy (single precision from float16 needs none), the result, a contiguous copy."""
    x = scratch.call.tensor("x")
    made = scratch.call.made()
    converted = ""
    if made.dtype is not x.dtype and not (x.dtype is DType.F16 and made.dtype is DType.F32):
        x = tensor(made.dtype, x.shape, x.device, x.layout)
        converted = scratch.take("converted input", nbytes(x))
    scratch.result()
    scratch.drop(scratch.copy_unless_contiguous(x, "contiguous input"), converted)
    if scratch.source == "_safe_softmax":
        safe_softmax(scratch, scratch.call.tensor("x"))


# -- losses ------------------------------------------------------------------------------------------------------------


def _is_reduced(scratch: Scratch) -> bool:
    return scratch.call.attr("reduction") in ("mean", "sum")


def _reduce_all(scratch: Scratch, x: TensorType) -> None:
    reduce_in(scratch, x, set(range(len(sizes(x)))), accumulator(x.dtype))


@rule
def element_loss_rule(scratch: Scratch) -> None:
    """A loss for each element; the reduced result keeps the storage that was made for all of them."""
    x = scratch.call.tensor("x")
    if not _is_reduced(scratch):
        scratch.result()
        return
    scratch.result(0, nbytes(x))
    losses = scratch.take("loss of each element", nbytes(x))
    _reduce_all(scratch, _dense(x))
    scratch.drop(losses)


def composed_loss_rule(steps: int) -> Temporaries:
    """Return a rule of losses made of so many plain operators, each with a full-size result."""

    @rule
    def write(scratch: Scratch) -> None:
        x = scratch.call.tensor("x")
        reduced = _is_reduced(scratch)
        names = [scratch.take("step of the loss", nbytes(x)) for _ in range(steps if reduced else steps - 1)]
        if steps == 3:
            scratch.drop(*names[:2])
            names = names[2:]
        scratch.result()
        if reduced:
            _reduce_all(scratch, _dense(x))
        scratch.drop(*reversed(names))

    return write


@rule
def bce_rule(scratch: Scratch) -> None:
    x = scratch.call.tensor("x")
    if not _is_reduced(scratch):
        scratch.result()
        return
    scratch.result(0, nbytes(x))
    reduced = scratch.take("reduced loss", width(x.dtype))
    _reduce_all(scratch, _dense(x))
    scratch.drop(reduced)


@rule
def nll_rule(scratch: Scratch) -> None:
    _nll(scratch, scratch.call.tensor("x"), has_weight=len(scratch.call.results) > 1)


@rule
def nll_gradient_rule(scratch: Scratch) -> None:
    scratch.result()
    _gather(scratch, *map(scratch.call.tensor, ("target", "x", "dy")))


@rule
def spatial_nll_gradient_rule(scratch: Scratch) -> None:
    scratch.result()
    if not sizes(scratch.call.tensor("dy")):
        _gather(scratch, scratch.call.tensor("target"))


def _gather(scratch: Scratch, *operands: TensorType) -> None:
    scratch.drop(*reversed([scratch.copy_unless_contiguous(operand, "contiguous input") for operand in operands]))


def _nll(scratch: Scratch, x: TensorType, has_weight: bool) -> None:
    # The kernel for positions (nll_loss2d) sizes the sum of the weights before the losses, the other one after them.
    spatial = len(sizes(x)) > 2
    if not spatial:
        scratch.result()
    total = "" if has_weight else scratch.take("total weight", width(x.dtype))
    if has_weight:
        scratch.result(1)
    if spatial:
        scratch.result()
    made = scratch.call.results[0]
    if not spatial or (isinstance(made, TensorType) and not made.shape):
        _gather(scratch, x, scratch.call.tensor("target"))
    scratch.drop(total)


@rule
def cross_entropy_rule(scratch: Scratch) -> None:
    call = scratch.call
    x = call.tensor("x")
    logs: Dim = nbytes(x)
    if call.attr("label_smoothing") or not call.tensor("target").dtype.is_integer:
        raise NeedsNumbers("cross entropy with probabilities or smoothed labels is not modelled")
    saved = scratch.take("logarithms of probabilities", logs)
    if not is_contiguous(x):
        scratch.passing("contiguous input", logs)
    _nll(scratch, _dense(x), has_weight=False)
    scratch.drop(saved)


def _dense(x: TensorType) -> TensorType:
    return tensor(x.dtype, x.shape, x.device)
