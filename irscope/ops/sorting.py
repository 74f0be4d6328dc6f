"""Sorting, searching and running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from irscope.ir.dims import Dim, bounds
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops import layouts
from irscope.ops.facts import OpRole
from irscope.ops.indexing import plain
from irscope.ops.reduction import axis_result, with_index, without_axes
from irscope.ops.rules import as_size, axis_attr, dtype_attr, per_element, per_input, replaced
from irscope.ops.scratch.folding import pair_rule
from irscope.ops.scratch.ordering import argsort_rule, histogram_rule, scan_rule, sort_rule, topk_rule, unique_rule
from irscope.ops.spec import SIZES, CostRule, Facts, Family, Known, OpCall, OpSpec, op
from irscope.ops.values import Array, settle, static_shape


def _order(x: Array, axis: int, descending: bool) -> Array:
    """Return positions in sorted order; equal elements keep theirs, not-a-numbers count as the largest."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    backward = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return np.asarray(x.shape[axis] - 1 - backward)


def _infer_sort(call: OpCall) -> Sequence[TensorType]:
    x = call.tensor("x")
    return x.with_shape(x.shape), tensor(DType.I64, x.shape, x.device)


def _sorted(call: OpCall) -> tuple[Array, Array] | None:
    x = plain(call, "x")
    if x is None:
        return None
    axis = axis_attr(call, x.ndim)
    wide = x if x.ndim else x.reshape(1)
    order = _order(wide, axis, bool(call.attr("descending")))
    return np.take_along_axis(wide, order, axis).reshape(x.shape), order.reshape(x.shape)


def _evaluate_argsort(call: OpCall) -> Known | None:
    found = _sorted(call)
    return None if found is None else found[1]


def _infer_argsort(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(DType.I64, x.shape, x.device)


def _infer_topk(call: OpCall) -> Sequence[TensorType]:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None), tensor(DType.I64, None, x.device)
    count = call.dim("k")
    axis = axis_attr(call, len(x.shape))
    limit = x.shape[axis] if x.shape else 1
    size: Dim = call.unknown("the value of 'k' is not known", "k", 0, limit) if count is None else as_size(call, count, "k")
    shape = replaced(x.shape, axis, size) if x.shape else ()
    return x.with_shape(shape), tensor(DType.I64, shape, x.device)


def _evaluate_topk(call: OpCall) -> list[Known] | None:
    x, count = plain(call, "x"), call.ints("k")
    if x is None or count is None or not x.ndim:
        return None
    axis = axis_attr(call, x.ndim)
    order = np.take(_order(x, axis, bool(call.attr("largest"))), range(count[0]), axis=axis)
    return [np.take_along_axis(x, order, axis), order]


def _infer_unique(call: OpCall) -> Sequence[TensorType]:
    x = call.tensor("x")
    axis = call.attr("axis")
    place = None if axis is None or x.shape is None else axis_attr(call, len(x.shape))
    total: Dim | None = x.numel if axis is None else x.shape[place] if x.shape is not None and place is not None else None
    known = _unique(call)
    if known is not None:
        count: Dim = known[3].shape[0]
    else:
        has_some = total is not None and (bounds(total)[0] or 0) > 0
        reason = "the number of different elements of the input depends on its values"
        count = call.unknown(reason, "x", 1 if has_some else 0, total)
    shape = (count,) if axis is None else None if x.shape is None or place is None else replaced(x.shape, place, count)
    inverse = x.shape if call.attr("inverse_like_input") and axis is None else None if total is None else (total,)
    indices = tensor(DType.I64, (count,), x.device)
    inverse_rank_known = inverse if inverse is not None or axis is None else (call.unknown("the input's shape is not known", SIZES),)
    return (x.with_shape(shape), indices, tensor(DType.I64, inverse_rank_known, x.device), indices)[: len(call.results) or 4]


def _unique(call: OpCall) -> list[Known] | None:
    x = plain(call, "x")
    if x is None or call.attr("consecutive") or (call.attr("axis") is None and not x.size):
        return None
    axis = call.attr("axis")
    found, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    if not call.attr("sorted"):
        order = np.argsort(first, kind="stable")
        found = found[order] if axis is None else np.take(found, order, axis=axis)
        first, counts, inverse = first[order], counts[order], np.argsort(order, kind="stable")[inverse]
    shape = x.shape if call.attr("inverse_like_input") and axis is None else (-1,)
    return [found, first, inverse.reshape(shape), counts]


def _evaluate_unique(call: OpCall) -> list[Known] | None:
    found = _unique(call)
    return None if found is None else [part.astype(np.int64) if place else part for place, part in enumerate(found)][: len(call.results)]


def _infer_arg(call: OpCall) -> Type:
    x = call.tensor("x")
    if call.attr("axis") is not None:
        return tensor(DType.I64, axis_result(call, x), x.device)
    if not call.attr("keepdims"):
        return tensor(DType.I64, (), x.device)
    return tensor(DType.I64, None if x.shape is None else without_axes(x.shape, range(len(x.shape)), True), x.device)


def _evaluate_arg(function: Callable[..., Any]) -> Callable[[OpCall], Known | None]:
    def evaluate(call: OpCall) -> Known | None:
        x, shape = plain(call, "x"), static_shape(call.results[0])
        if x is None or shape is None or not x.size:
            return None
        axis = 0 if call.attr("axis") is None else axis_attr(call, x.ndim)
        wide = x.reshape(-1) if call.attr("axis") is None or not x.ndim else x
        if not call.attr("select_last_index"):
            return np.asarray(function(wide, axis=axis)).astype(np.int64).reshape(shape)
        found = wide.shape[axis] - 1 - np.asarray(function(np.flip(wide, axis), axis=axis))
        return found.astype(np.int64).reshape(shape)

    return evaluate


def _arg_reduction(name: str, function: Callable[..., Any], summary: str, **facts: Unpack[Facts]) -> OpSpec:
    facts.setdefault("temporaries", pair_rule)
    return op(
        f"reduce.{name}(Tensor x, *, int? axis, bool keepdims=False, bool select_last_index=False) -> Tensor",
        Family.SORTING,
        infer=_infer_arg,
        cost=per_input(reduction=1),
        evaluate=_evaluate_arg(function),
        summary=summary,
        **facts,
    )


def _infer_search(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(dtype_attr(call, DType.I64), x.shape, x.device)


def _evaluate_search(call: OpCall) -> Known | None:
    limits, x = plain(call, "boundaries"), plain(call, "x")
    if limits is None or x is None or limits.ndim != 1:
        return None
    found = np.searchsorted(limits, x, side="right" if call.attr("right") else "left")
    return settle(np.asarray(found), call.made().dtype)


def _infer_median(call: OpCall) -> Sequence[TensorType]:
    x = call.tensor("x")
    if call.attr("axis") is None:
        return (x.with_shape(()), tensor(DType.I64, (), x.device))[: len(call.results) or 1]
    return with_index(call)


def _infer_running(call: OpCall) -> TensorType:
    x = call.tensor("x")
    dtype = DType.I64 if call.attr("promote") and (x.dtype.is_integer or x.dtype is DType.BOOL) else x.dtype
    return tensor(dtype_attr(call, dtype), x.shape, x.device)


def _evaluate_running(function: Callable[..., Any], neutral: int) -> Callable[[OpCall], Known | None]:
    def evaluate(call: OpCall) -> Known | None:
        x, axes, result = call.value("x"), call.ints("axis"), call.results[0]
        if x is None or axes is None or not isinstance(result, TensorType) or (x.dtype == object and function is not np.cumsum):
            return None
        if not x.ndim:
            return settle(np.asarray(neutral) if call.attr("exclusive") else x, result.dtype)
        axis = call.axis(axes[0], x.ndim)
        turned = np.flip(x, axis) if call.attr("reverse") else x
        total = np.asarray(function(turned, axis=axis))
        if call.attr("exclusive") and total.shape[axis]:
            total = np.roll(total, 1, axis)
            total[(slice(None),) * axis + (0,)] = neutral
        return settle(np.flip(total, axis) if call.attr("reverse") else total, result.dtype)

    return evaluate


def _running(name: str, function: Callable[..., Any], neutral: int, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    facts.setdefault("temporaries", scan_rule)
    return op(
        f"tensor.{name}(Tensor x, Dim axis, *, bool exclusive=False, bool reverse=False, bool promote=False, dtype? dtype) -> Tensor",
        Family.REDUCTION,
        infer=_infer_running,
        cost=per_input(reduction=1),
        evaluate=_evaluate_running(function, neutral),
        summary=summary,
        **facts,
    )


def _infer_histogram(call: OpCall) -> Type:
    x = call.tensor("x")
    return x.with_shape((call.attr("bins"),))


def _sorting(
    schema: str,
    infer: Callable[[OpCall], Type | Sequence[Type]],
    evaluate: Any,
    summary: str,
    cost: CostRule | None = None,
    **facts: Unpack[Facts],
) -> OpSpec:
    return op(schema, Family.SORTING, infer=infer, cost=cost or per_input(reduction=1), evaluate=evaluate, summary=summary, **facts)


def _evaluate_sort(call: OpCall) -> list[Known] | None:
    found = _sorted(call)
    return None if found is None else list(found)


_SORTING = (
    _sorting(
        "tensor.sort(Tensor x, *, int axis=-1, bool descending=False, bool stable=False) -> (Tensor, Tensor)",
        _infer_sort,
        _evaluate_sort,
        "Elements of an axis in order, and where they stood.",
        temporaries=sort_rule,
        strides=layouts.LIKE_FIRST,
    ),
    _sorting(
        "tensor.argsort(Tensor x, *, int axis=-1, bool descending=False, bool stable=False) -> Tensor",
        _infer_argsort,
        _evaluate_argsort,
        "Where the elements of an axis stand when they are put in order.",
        temporaries=argsort_rule,
    ),
    _sorting(
        "tensor.topk(Tensor x, Dim k, *, int axis=-1, bool largest=True, bool sorted=True) -> (Tensor, Tensor)",
        _infer_topk,
        _evaluate_topk,
        "The k largest or smallest elements of an axis, and where they stood.",
        temporaries=topk_rule,
        roles=frozenset({OpRole.BEST}),
    ),
    _sorting(
        "tensor.unique(Tensor x, *, int? axis, bool sorted=True, bool consecutive=False, bool inverse_like_input=False)"
        " -> (Tensor, Tensor?, Tensor?, Tensor?)",
        _infer_unique,
        _evaluate_unique,
        "Different elements (or with `consecutive` runs); where each first stood, which one each element is, how often each occurs.",
        temporaries=unique_rule,
    ),
    _sorting(
        "tensor.searchsorted(Tensor boundaries, Tensor x, *, bool right=False, dtype? dtype) -> Tensor",
        _infer_search,
        _evaluate_search,
        "Where elements would be inserted into sorted boundaries.",
        per_element(1),
    ),
    _sorting(
        "tensor.kthvalue(Tensor x, *, int k, int axis=-1, bool keepdims=False) -> (Tensor, Tensor)",
        with_index,
        None,
        "The k-th smallest element of an axis and its position.",
    ),
    _sorting(
        "tensor.median(Tensor x, *, int? axis, bool keepdims=False) -> (Tensor, Tensor?)",
        _infer_median,
        None,
        "The middle element of an axis, or of all elements, and its position.",
    ),
    _sorting(
        "tensor.mode(Tensor x, *, int axis=-1, bool keepdims=False) -> (Tensor, Tensor)",
        with_index,
        None,
        "The most frequent element of an axis and a position of it.",
    ),
    _sorting(
        "tensor.histc(Tensor x, *, int bins=100, float min=0.0, float max=0.0) -> Tensor",
        _infer_histogram,
        None,
        "How many elements fall into each of equal intervals.",
        temporaries=histogram_rule,
        roles=frozenset({OpRole.ROUTE}),
    ),
    _arg_reduction("argmax", np.argmax, "Position of the largest element of an axis, or of all elements."),
    _arg_reduction("argmin", np.argmin, "Position of the smallest element of an axis, or of all elements."),
)

_RUNNING = (
    _running("cumsum", np.cumsum, 0, "Running sums along an axis.", roles=frozenset({OpRole.RUNNING_SUM})),
    _running("cumprod", np.cumprod, 1, "Running products along an axis."),
    op(
        "tensor.cummax(Tensor x, *, int axis) -> (Tensor, Tensor)",
        Family.REDUCTION,
        infer=_infer_sort,
        cost=per_input(reduction=1),
        summary="Running maxima along an axis and their positions.",
    ),
    op(
        "tensor.cummin(Tensor x, *, int axis) -> (Tensor, Tensor)",
        Family.REDUCTION,
        infer=_infer_sort,
        cost=per_input(reduction=1),
        summary="Running minima along an axis and their positions.",
    ),
    op(
        "tensor.logcumsumexp(Tensor x, *, int axis) -> Tensor",
        Family.REDUCTION,
        infer=lambda call: call.tensor("x").with_shape(call.shape("x")),
        cost=per_input(elementwise=2, transcendental=2, reduction=1),
        summary="Logarithms of running sums of exponentials along an axis.",
        roles=frozenset({OpRole.STATE_SCAN}),
    ),
)

OPS = (*_SORTING, *_RUNNING)
