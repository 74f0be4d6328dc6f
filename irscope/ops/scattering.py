"""Writing elements to positions that other tensors name, and masked replacement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from irscope.ir.types import TensorType, Type
from irscope.ops.binary import number_array
from irscope.ops.cost import Cost
from irscope.ops.indexing import numpy_index, plain
from irscope.ops.move import alike
from irscope.ops.ort import in_place
from irscope.ops.rules import broadcast_shapes, like_first, moved
from irscope.ops.scratch.picking import index_put_rule, masked_scatter_rule
from irscope.ops.sizes import axis_attr
from irscope.ops.spec import CostRule, Facts, Family, Known, OpCall, OpRole, OpSpec, RuleError, Temporaries, numel, op
from irscope.ops.values import Array, settle
from irscope.ops.views import slices

_REDUCTIONS: dict[str, Any] = {
    "add": np.add,
    "sum": np.add,
    "mul": np.multiply,
    "multiply": np.multiply,
    "prod": np.multiply,
    "max": np.maximum,
    "amax": np.maximum,
    "min": np.minimum,
    "amin": np.minimum,
}


def _written(x: Array, places: tuple[Any, ...], updates: Array, reduction: str) -> Known | None:
    """A copy with elements replaced, or combined with what is there; an index may occur more than once."""
    x, updates = alike([x, updates])
    made = x.copy()
    if reduction in ("none", ""):
        made[places] = updates
    elif reduction in _REDUCTIONS and made.dtype != object:
        _REDUCTIONS[reduction].at(made, places, updates)
    else:
        return None
    return made


def _updates(call: OpCall) -> Known | None:
    value = call.attrs.get("value")
    return number_array(value) if value is not None else call.value("updates")


def _infer_scatter_elements(call: OpCall) -> Type:
    x, indices = call.tensor("x"), call.tensor("indices")
    if x.shape is not None and indices.shape is not None and max(len(x.shape), 1) != max(len(indices.shape), 1):
        raise RuleError(f"{call.spec.name}: {len(indices.shape)} axes of indices for {len(x.shape)} axes")
    return like_first(call)


def _evaluate_scatter_elements(call: OpCall) -> Known | None:
    x, indices, updates = call.value("x"), plain(call, "indices"), _updates(call)
    if x is None or indices is None or updates is None or not x.ndim:
        return None
    if updates.ndim:
        updates = updates[tuple(slice(size) for size in indices.shape)]
    places: list[Any] = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    places[axis_attr(call, x.ndim)] = indices.astype(np.int64)
    return _written(x, tuple(places), updates, call.attr("reduction"))


def _evaluate_scatter_nd(call: OpCall) -> Known | None:
    x, indices, updates = call.value("x"), plain(call, "indices"), call.value("updates")
    if x is None or indices is None or updates is None:
        return None
    return _written(x, tuple(np.moveaxis(indices.astype(np.int64), -1, 0)), updates, call.attr("reduction"))


def _evaluate_index_put(call: OpCall) -> Known | None:
    x, values = call.values[0], call.values[1]
    parts = numpy_index(call.values[2:], call.types[2:])
    if x is None or values is None or parts is None:
        return None
    return _written(x, parts, values, "add" if call.attr("accumulate") else "none")


def _along_axis(call: OpCall, x: Array, indices: Array) -> tuple[Any, ...]:
    return (*(slice(None),) * axis_attr(call, x.ndim), indices.reshape(-1).astype(np.int64))


def _evaluate_index_copy(call: OpCall) -> Known | None:
    x, indices, source = call.value("x"), plain(call, "indices"), call.value("source")
    if x is None or indices is None or source is None or not x.ndim:
        return None
    return _written(x, _along_axis(call, x, indices), source, "none")


def _evaluate_index_add(call: OpCall) -> Known | None:
    x, indices, source = call.value("x"), plain(call, "indices"), plain(call, "source")
    if x is None or indices is None or source is None or not x.ndim:
        return None
    alpha = call.attr("alpha")
    return _written(x, _along_axis(call, x, indices), source if alpha == 1 else source * alpha, "add")


def _evaluate_index_fill(call: OpCall) -> Known | None:
    x, indices = call.value("x"), plain(call, "indices")
    fill = number_array(call.attrs["fill"]) if call.given("fill") else call.value("value")
    if x is None or indices is None or fill is None or not x.ndim:
        return None
    return _written(x, _along_axis(call, x, indices), fill, "none")


def _infer_masked(call: OpCall) -> TensorType:
    x, mask = call.tensor("x"), call.tensor("mask")
    return x.with_shape(broadcast_shapes(call, [x.shape, mask.shape]))


def _evaluate_masked_fill(call: OpCall) -> Known | None:
    x, mask = call.value("x"), plain(call, "mask")
    fill = number_array(call.attrs["fill"]) if call.given("fill") else call.value("value")
    if x is None or mask is None or fill is None:
        return None
    kept, filled = alike([x, fill])
    return settle(np.where(mask.astype(np.bool_), filled, kept), call.dtype("x"))


def _evaluate_slice_scatter(call: OpCall) -> Known | None:
    x, source = call.value("x"), call.value("source")
    parts = None if x is None else slices(call, x.shape)
    if x is None or source is None or parts is None:
        return None
    return _written(x, parts, source, "none")


def _evaluate_select_scatter(call: OpCall) -> Known | None:
    x, source, index = call.value("x"), call.value("source"), call.ints("index")
    if x is None or source is None or index is None:
        return None
    return _written(x, (*(slice(None),) * axis_attr(call, x.ndim), index[0]), source, "none")


def _cost_scatter(call: OpCall) -> Cost:
    """One operation an element that is combined with another; a plain write computes nothing."""
    if call.attr("reduction") in (None, "none", "") or call.maybe("updates") is None:
        return Cost()
    return Cost(elementwise=numel(call.tensor("updates")))


def _cost_index_put(call: OpCall) -> Cost:
    return Cost(elementwise=numel(call.tensor("values"))) if call.attr("accumulate") else Cost()


def _write(
    schema: str,
    evaluate: Callable[[OpCall], Any] | None,
    summary: str,
    infer: Any = like_first,
    cost: CostRule = moved,
    temporaries: Temporaries | None = None,
    **facts: Unpack[Facts],
) -> OpSpec:
    return op(schema, Family.INDEXING, infer=infer, cost=cost, evaluate=evaluate, temporaries=temporaries, summary=summary, **facts)


OPS = (
    _write(
        "tensor.scatter_elements(Tensor x, Tensor indices, Tensor? updates, *, int axis=0, str reduction='none', any? value) -> Tensor",
        _evaluate_scatter_elements,
        "A copy with single elements replaced or combined: an index says the position along one axis.",
        _infer_scatter_elements,
        _cost_scatter,
        ort=in_place("ScatterElements", "Scatter"),
    ),
    _write(
        "tensor.scatter_nd(Tensor x, Tensor indices, Tensor updates, *, str reduction='none') -> Tensor",
        _evaluate_scatter_nd,
        "A copy with slices replaced or combined at positions given by rows of indices.",
        cost=_cost_scatter,
    ),
    _write(
        "tensor.index_put(Tensor x, Tensor values, Tensor[] indices, *, bool accumulate=False) -> Tensor",
        _evaluate_index_put,
        "A copy in which x[i, j, ...] is replaced or, with `accumulate`, added to.",
        cost=_cost_index_put,
        temporaries=index_put_rule,
        roles=frozenset({OpRole.WRITE_PART}),
    ),
    _write(
        "tensor.index_copy(Tensor x, Tensor indices, Tensor source, *, int axis) -> Tensor",
        _evaluate_index_copy,
        "A copy with whole slices of an axis replaced.",
        roles=frozenset({OpRole.WRITE_PART}),
    ),
    _write(
        "tensor.index_add(Tensor x, Tensor indices, Tensor source, *, int axis, any alpha=1) -> Tensor",
        _evaluate_index_add,
        "A copy with whole slices of an axis added to.",
        cost=lambda call: Cost(elementwise=numel(call.tensor("source"))),
    ),
    _write(
        "tensor.index_fill(Tensor x, Tensor indices, Tensor? value, *, int axis, any? fill) -> Tensor",
        _evaluate_index_fill,
        "A copy with whole slices of an axis filled with one value.",
    ),
    _write(
        "tensor.masked_fill(Tensor x, Tensor mask, Tensor? value, *, any? fill) -> Tensor",
        _evaluate_masked_fill,
        "A copy with one value wherever a mask holds.",
        _infer_masked,
        roles=frozenset({OpRole.FILL}),
    ),
    _write(
        "tensor.masked_scatter(Tensor x, Tensor mask, Tensor source) -> Tensor",
        None,
        "A copy with elements of another tensor, in order, wherever a mask holds.",
        _infer_masked,
        temporaries=masked_scatter_rule,
    ),
    _write(
        "tensor.slice_scatter(Tensor x, Tensor source, Dims starts, Dims ends, Dims? axes, Dims? steps) -> Tensor",
        _evaluate_slice_scatter,
        "A copy with a slice replaced.",
        roles=frozenset({OpRole.WRITE_PART}),
    ),
    _write(
        "tensor.select_scatter(Tensor x, Tensor source, Dim index, *, int axis) -> Tensor",
        _evaluate_select_scatter,
        "A copy with one position of an axis replaced.",
    ),
    _write(
        "tensor.diagonal_scatter(Tensor x, Tensor source, *, int offset=0, int axis0=0, int axis1=1) -> Tensor",
        None,
        "A copy with a diagonal replaced.",
    ),
    _write(
        "tensor.tensor_scatter(Tensor past_cache, Tensor update, Tensor? write_indices, *, int axis=-2, str mode='linear') -> Tensor",
        None,
        "A copy of a cache with new entries written along an axis.",
        ort=in_place("TensorScatter"),
    ),
)
