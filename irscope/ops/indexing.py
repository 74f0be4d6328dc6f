"""Reading and writing where indices say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim, dim_max, dim_min, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops.binary import number_array
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.move import alike
from irscope.ops.ort import in_place
from irscope.ops.rules import axis_attr, broadcast_shapes, like_first, moved, per_input, picked, python_slices, replaced, total_bytes
from irscope.ops.scratch.ordering import (
    bincount_rule,
    embedding_rule,
    index_put_rule,
    index_rule,
    masked_scatter_rule,
    masked_select_rule,
    nonzero_parts_rule,
    nonzero_rule,
)
from irscope.ops.spec import SIZES, CostRule, Facts, Family, Known, OpCall, OpSpec, RuleError, numel, op, sizes
from irscope.ops.values import Array, is_symbolic, settle, static_shape

# Reading elements at positions that other tensors name.


def plain(call: OpCall, name: str) -> Known | None:
    """Return values of an operand, None where one of them is symbolic."""
    found = call.value(name)
    return None if found is None or is_symbolic(found) else found


def _infer_gather(call: OpCall) -> TensorType:
    x, indices = call.tensor("x"), call.tensor("indices")
    if x.shape is None or indices.shape is None:
        return x.with_shape(None)
    axis = axis_attr(call, len(x.shape))
    return x.with_shape(replaced(x.shape, axis, *indices.shape) if x.shape else ())


def _evaluate_gather(call: OpCall) -> Known | None:
    x, indices = call.value("x"), plain(call, "indices")
    if x is None or indices is None:
        return None
    axis = axis_attr(call, x.ndim)
    limit = x.shape[axis] if x.ndim else 1
    if not _in_range(indices, limit):
        raise RuleError(f"{call.spec.name}: an index lies outside an axis of size {limit}")
    return np.asarray(np.take(x, indices.astype(np.int64), axis=axis if x.ndim else None), dtype=x.dtype)


def _in_range(indices: Known, limit: int) -> bool:
    return bool(((indices >= -limit) & (indices < limit)).all())


def _infer_take_along(call: OpCall) -> TensorType:
    x, indices = call.tensor("x"), call.tensor("indices")
    if x.shape is not None and indices.shape is not None and len(x.shape) != len(indices.shape) and x.shape and indices.shape:
        raise RuleError(f"{call.spec.name}: {len(indices.shape)} axes of indices for {len(x.shape)} axes")
    if call.attr("broadcast") and x.shape and indices.shape:
        axis = axis_attr(call, len(x.shape))
        return x.with_shape(broadcast_shapes(call, [replaced(x.shape, axis, 1), indices.shape]))
    return x.with_shape(indices.shape)


def _evaluate_take_along(call: OpCall) -> Known | None:
    x, indices = call.value("x"), plain(call, "indices")
    if x is None or indices is None or x.ndim != indices.ndim or call.attr("broadcast"):
        return None
    if not x.ndim:
        return x
    axis = axis_attr(call, x.ndim)
    if not _in_range(indices, x.shape[axis]):
        raise RuleError(f"{call.spec.name}: an index lies outside an axis of size {x.shape[axis]}")
    places: list[Any] = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    places[axis] = indices.astype(np.int64)
    return np.asarray(x[tuple(places)])


def _infer_gather_nd(call: OpCall) -> TensorType:
    x, indices = call.tensor("x"), call.tensor("indices")
    batch = call.int_attr("batch_dims")
    if x.shape is None or indices.shape is None or not indices.shape or isinstance(indices.shape[-1], SymDim):
        call.context.explain("the last axis of the indices says how many axes are indexed", SIZES)
        return x.with_shape(None)
    depth = indices.shape[-1]
    if batch + depth > len(x.shape):
        raise RuleError(f"{call.spec.name}: {batch + depth} axes are indexed, the input has {len(x.shape)}")
    for a, b in zip(x.shape[:batch], indices.shape[:batch], strict=True):
        call.same(a, b, "size of a batch axis")
    return x.with_shape((*indices.shape[:-1], *x.shape[batch + depth :]))


def _evaluate_gather_nd(call: OpCall) -> Known | None:
    x, indices = call.value("x"), plain(call, "indices")
    shape = static_shape(call.results[0])
    if x is None or indices is None or shape is None:
        return None
    batch = call.int_attr("batch_dims")
    count = int(np.prod(x.shape[:batch], dtype=np.int64))
    rows = x.reshape(count, *x.shape[batch:])
    wanted = indices.astype(np.int64).reshape(count, -1, indices.shape[-1]) if count else indices.reshape(0, 1, indices.shape[-1])
    parts = [row[tuple(np.moveaxis(places, -1, 0))] for row, places in zip(rows, wanted, strict=True)]
    return np.stack(parts).reshape(shape) if parts else np.zeros(shape, dtype=x.dtype)


@immutable
class _Index:
    """One entry of an advanced index: how many axes it takes, and the shape that it brings."""

    axes: int
    shape: Shape


def _indices(call: OpCall, first: int) -> list[_Index | None]:
    """Return the entries of the index from an operand on; None takes a whole axis."""
    found: list[_Index | None] = []
    for place, type_ in enumerate(call.types[first:], first):
        if type_ is None:
            found.append(None)
        elif not isinstance(type_, TensorType):
            raise RuleError(f"{call.spec.name}: an index is {type_}, not a tensor")
        elif type_.dtype in (DType.BOOL, DType.U8):
            rank = 0 if type_.shape is None else len(type_.shape)
            found.append(_Index(rank if type_.shape is not None else -1, (true_count(call, call.values[place], type_),)))
        else:
            found.append(_Index(1, type_.shape))
    return found


def true_count(call: OpCall, mask: Known | None, type_: TensorType) -> Dim:
    """Return how many elements of a mask hold."""
    if mask is not None and not is_symbolic(mask):
        return int(np.count_nonzero(mask))
    return call.unknown("it is the number of elements for which a mask holds", "indices,mask", 0, type_.numel)


def _infer_index(call: OpCall) -> TensorType:
    x = call.tensor("x")
    entries = _indices(call, 1)
    if x.shape is None or any(entry is not None and (entry.axes < 0 or entry.shape is None) for entry in entries):
        return x.with_shape(None)
    return x.with_shape(indexed_shape(call, x.shape, entries))


def indexed_shape(call: OpCall, shape: Sequence[Dim], entries: Sequence[_Index | None]) -> list[Dim]:
    """Return sizes of `x[entries]`: the axes of the indices stand where they were if they were neighbours, else in front."""
    kept: list[Dim] = []
    axis = 0
    blocks: list[int] = []
    for entry in entries:
        if entry is None:
            kept.append(shape[axis])
            axis += 1
        else:
            blocks.append(len(kept))
            axis += entry.axes
        if axis > len(shape):
            raise RuleError(f"{call.spec.name}: more indices than the {len(shape)} axes of the input")
    kept.extend(shape[axis:])
    if not blocks:
        return kept
    place = blocks[0] if len(set(blocks)) == 1 else 0
    common = broadcast_shapes(call, [entry.shape for entry in entries if entry is not None]) or ()
    return [*kept[:place], *common, *kept[place:]]


def numpy_index(values: Sequence[Known | None], types: Sequence[Type | None]) -> tuple[Any, ...] | None:
    """Return the index as numpy takes it; None where a value is not known."""
    parts: list[Any] = []
    for value, type_ in zip(values, types, strict=True):
        if type_ is None:
            parts.append(slice(None))
        elif value is None or is_symbolic(value):
            return None
        else:
            is_mask = type_.dtype in (DType.BOOL, DType.U8)
            parts.append(value.astype(np.bool_ if is_mask else np.int64))
    return tuple(parts)


def _evaluate_index(call: OpCall) -> Known | None:
    x = call.values[0]
    parts = numpy_index(call.values[1:], call.types[1:])
    return None if x is None or parts is None else np.asarray(x[parts], dtype=x.dtype)


def _infer_masked_select(call: OpCall) -> TensorType:
    x, mask = call.tensor("x"), call.tensor("mask")
    shape = broadcast_shapes(call, [x.shape, mask.shape])
    known = plain(call, "mask")
    count = None if shape is None else static_shape(x.with_shape(shape))
    if known is not None and count is not None:
        return x.with_shape((int(np.count_nonzero(np.broadcast_to(known, count))),))
    most = None if shape is None else product(shape)
    return x.with_shape((call.unknown("it is the number of elements for which the mask holds", "mask", 0, most),))


def _evaluate_masked_select(call: OpCall) -> Known | None:
    x, mask = call.value("x"), plain(call, "mask")
    if x is None or mask is None:
        return None
    elements, chosen = np.broadcast_arrays(x, mask.astype(np.bool_))
    return np.asarray(elements[chosen])


def _infer_compress(call: OpCall) -> TensorType:
    x, condition = call.tensor("x"), call.tensor("condition")
    axis = call.attr("axis")
    if x.shape is None:
        return x.with_shape(None if axis is not None else (call.unknown("it depends on the condition's values", "condition"),))
    place = None if axis is None else axis_attr(call, len(x.shape))
    whole = product(x.shape) if place is None else x.shape[place]
    known = plain(call, "condition")
    if known is None:
        limit = whole if condition.numel is None else dim_min(whole, condition.numel)
        count: Dim = call.unknown("it is the number of conditions that hold", "condition", 0, limit)
    else:
        count = int(np.count_nonzero(known))
    return x.with_shape((count,) if place is None else replaced(x.shape, place, count))


def _evaluate_compress(call: OpCall) -> Known | None:
    x, condition = call.value("x"), plain(call, "condition")
    if x is None or condition is None:
        return None
    axis = call.attr("axis")
    whole = x.size if axis is None else x.shape[axis]
    return np.compress(condition[:whole].astype(np.bool_), x, axis=axis)


def _infer_nonzero(call: OpCall) -> TensorType:
    x = call.tensor("x")
    known = plain(call, "x")
    if known is not None:
        count: Dim = int(np.count_nonzero(known))
    else:
        reason = "the number of non-zero elements of the input depends on its values"
        count = call.unknown(reason, "x", 0, x.numel)
    rank: Dim = call.unknown("the number of axes of the input is not known", SIZES) if x.shape is None else len(x.shape)
    return tensor(DType.I64, (rank, count) if call.attr("by_axis") else (count, rank), x.device)


def _evaluate_nonzero(call: OpCall) -> Known | None:
    x = plain(call, "x")
    if x is None:
        return None
    found = np.argwhere(x).astype(np.int64)
    return found.T if call.attr("by_axis") else found


def _infer_nonzero_parts(call: OpCall) -> list[TensorType]:
    """A tensor without axes counts as one with a single element."""
    x = call.tensor("x")
    rank = len(call.results) if x.shape is None else max(len(x.shape), 1)
    return [tensor(DType.I64, _infer_nonzero(call).shape[:1], x.device)] * rank  # type: ignore[index]  # always two axes


def _evaluate_nonzero_parts(call: OpCall) -> list[Known] | None:
    x = plain(call, "x")
    return None if x is None else [part.astype(np.int64) for part in np.nonzero(np.atleast_1d(x))]


def _infer_embedding(call: OpCall) -> TensorType:
    weight, indices = call.tensor("weight"), call.tensor("indices")
    if weight.shape is None or indices.shape is None:
        return tensor(weight.dtype, None, weight.device)
    return tensor(weight.dtype, (*indices.shape, *weight.shape[1:]), weight.device)


def _evaluate_embedding(call: OpCall) -> Known | None:
    weight, indices = call.value("weight"), plain(call, "indices")
    return None if weight is None or indices is None else np.asarray(weight[indices.astype(np.int64)], dtype=weight.dtype)


def _infer_bag(call: OpCall) -> Sequence[TensorType]:
    weight, indices, offsets = call.tensor("weight"), call.tensor("indices"), call.maybe("offsets")
    bags: Dim | None = None
    if indices.shape is not None and len(indices.shape) == 2:
        bags = indices.shape[0]
    elif offsets is not None and offsets.shape:
        bags = offsets.shape[0] - (1 if call.attr("include_last_offset") else 0)
    shape = None if bags is None or weight.shape is None else (bags, *weight.shape[1:])
    rest = [tensor(indices.dtype, None, weight.device)] * max(0, len(call.results) - 1)
    return [tensor(weight.dtype, shape, weight.device), *rest]


def _cost_bag(call: OpCall) -> Cost:
    """Return every row that an index names is read and added up; the other results are a few integers a bag."""
    weight, indices = call.tensor("weight"), call.tensor("indices")
    count, width = numel(indices), sizes(weight)[1]
    rows = tensor(weight.dtype, (count, width))
    return Cost(reduction=count * width, read=total_bytes([rows, *call.types[1:]]), written=total_bytes(call.results[:1]))


def _infer_bincount(call: OpCall) -> TensorType:
    x, weights = call.tensor("x"), call.maybe("weights")
    least = call.int_attr("minlength")
    known = plain(call, "x")
    if known is not None:
        size: Dim = max(least, int(known.max()) + 1 if known.size else 0)
    else:
        size = dim_max(call.unknown("it is one more than the largest element", "x"), least)
    dtype = DType.I64 if weights is None else DType.F32 if weights.dtype is DType.F32 else DType.F64
    return tensor(dtype, (size,), x.device)


def _evaluate_bincount(call: OpCall) -> Known | None:
    x = plain(call, "x")
    weights = plain(call, "weights") if call.given("weights") else None
    if x is None or (call.given("weights") and weights is None):
        return None
    found = np.bincount(x.astype(np.int64), weights, call.int_attr("minlength"))
    return settle(found, call.made().dtype)


def _evaluate_take(call: OpCall) -> Known | None:
    x, indices = call.value("x"), plain(call, "indices")
    return None if x is None or indices is None else np.asarray(np.take(x.reshape(-1), indices.astype(np.int64)), dtype=x.dtype)


def read(
    schema: str, infer: Any, evaluate: Callable[[OpCall], Any] | None, summary: str, cost: CostRule = picked, **facts: Unpack[Facts]
) -> OpSpec:
    """Return a record of an operator that reads where indices say."""
    return op(schema, Family.INDEXING, infer=infer, cost=cost, evaluate=evaluate, summary=summary, **facts)


_INDEXING = (
    read(
        "tensor.gather(Tensor x, Tensor indices, *, int axis=0) -> Tensor",
        _infer_gather,
        _evaluate_gather,
        "Takes whole slices of an axis; the axes of the indices replace it.",
        roles=frozenset({OpRole.LOOKUP}),
    ),
    read(
        "tensor.take_along(Tensor x, Tensor indices, *, int axis=0, bool broadcast=False) -> Tensor",
        _infer_take_along,
        _evaluate_take_along,
        "Takes single elements: an index replaces the position along one axis; with `broadcast` the other axes stretch.",
    ),
    read(
        "tensor.gather_nd(Tensor x, Tensor indices, *, int batch_dims=0) -> Tensor",
        _infer_gather_nd,
        _evaluate_gather_nd,
        "Takes slices at positions given by rows of several indices.",
    ),
    read(
        "tensor.take(Tensor x, Tensor indices) -> Tensor",
        lambda call: call.tensor("x").with_shape(call.shape("indices")),
        _evaluate_take,
        "Takes elements by their position in row-major order.",
    ),
    read(
        "tensor.index(Tensor x, Tensor[] indices) -> Tensor",
        _infer_index,
        _evaluate_index,
        "x[i, j, ...] with tensors, masks and absent (whole) axes.",
        temporaries=index_rule,
        roles=frozenset({OpRole.LOOKUP}),
    ),
    read(
        "tensor.masked_select(Tensor x, Tensor mask) -> Tensor",
        _infer_masked_select,
        _evaluate_masked_select,
        "The elements for which a mask holds, in a row.",
        temporaries=masked_select_rule,
    ),
    read(
        "tensor.compress(Tensor x, Tensor condition, *, int? axis) -> Tensor",
        _infer_compress,
        _evaluate_compress,
        "The positions of an axis, or of the flattened tensor, for which a condition holds.",
    ),
    read(
        "tensor.nonzero(Tensor x, *, bool by_axis=False) -> Tensor",
        _infer_nonzero,
        _evaluate_nonzero,
        "Positions of elements that are not zero: one row each, or with `by_axis` one column each.",
        per_input(elementwise=1),
        temporaries=nonzero_rule,
        roles=frozenset({OpRole.ROUTE}),
    ),
    read(
        "tensor.nonzero_parts(Tensor x) -> Tensor[]",
        _infer_nonzero_parts,
        _evaluate_nonzero_parts,
        "Positions of elements that are not zero: one list for each axis.",
        per_input(elementwise=1),
        temporaries=nonzero_parts_rule,
    ),
    read(
        "nn.embedding(Tensor weight, Tensor indices, *, int? padding_idx) -> Tensor",
        _infer_embedding,
        _evaluate_embedding,
        "Rows of a table; reads only these rows.",
        temporaries=embedding_rule,
        roles=frozenset({OpRole.LOOKUP}),
    ),
    read(
        "nn.embedding_bag(Tensor weight, Tensor indices, Tensor? offsets, Tensor? per_sample_weights, *, str mode='mean',"
        " bool include_last_offset=False, int? padding_idx) -> (Tensor, Tensor?, Tensor?, Tensor?)",
        _infer_bag,
        None,
        "Sums, means or maxima of bags of rows of a table.",
        _cost_bag,
        roles=frozenset({OpRole.LOOKUP}),
    ),
    read(
        "tensor.bincount(Tensor x, Tensor? weights, *, int minlength=0) -> Tensor",
        _infer_bincount,
        _evaluate_bincount,
        "How often each number occurs.",
        per_input(reduction=1),
        temporaries=bincount_rule,
        roles=frozenset({OpRole.ROUTE}),
    ),
)


# Writing elements to positions that other tensors name, and masked replacement.

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
    """Return a copy with elements replaced, or combined with what is there; an index may occur more than once."""
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
    parts = None if x is None else python_slices(call, x.shape)
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


def _write(
    schema: str,
    evaluate: Callable[[OpCall], Any] | None,
    summary: str,
    infer: Any = like_first,
    cost: CostRule = moved,
    **facts: Unpack[Facts],
) -> OpSpec:
    return op(schema, Family.INDEXING, infer=infer, cost=cost, evaluate=evaluate, summary=summary, **facts)


_SCATTERING = (
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
        "tensor.index_put(Tensor x, Tensor values, Tensor[] indices, *, bool accumulate=False, bool unsafe=False) -> Tensor",
        _evaluate_index_put,
        "A copy in which x[i, j, ...] is replaced or, with `accumulate`, added to.",
        cost=lambda call: Cost(elementwise=numel(call.tensor("values"))) if call.attr("accumulate") else Cost(),
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


OPS = (*_INDEXING, *_SCATTERING)
