"""Tensors made from nothing, of numbers and at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from irscope.ir.dims import Dim, SymDim, bounds, ceildiv, dim_max, floordiv
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr
from irscope.ir.types import ScalarType, TensorType, Type, scalar, tensor
from irscope.ops import layouts, reals
from irscope.ops.binary import number_array
from irscope.ops.cost import FREE, Cost
from irscope.ops.elementwise import result_element
from irscope.ops.facts import OpRole
from irscope.ops.reals import PRECISION, Real, real_of
from irscope.ops.rules import (
    DEFAULT_FLOAT,
    as_size,
    axis_attr,
    device_of,
    dtype_attr,
    free,
    given_shape,
    like_first,
    moved,
    per_element,
    result_dtype,
    scalar_dtype,
    written_only,
)
from irscope.ops.scratch.ordering import dropout_rule, multinomial_rule, randperm_rule
from irscope.ops.spec import SIZES, Facts, Family, Known, OpCall, OpSpec, RuleError, numel, op
from irscope.ops.values import dims_array, is_symbolic, numpy_dtype, objects, settle, static_shape

# Tensors made from sizes and numbers, and numbers made from tensors.


def device_attr(call: OpCall, default: str = "") -> str:
    """Return a device given as an attribute, else the default."""
    found = call.attr("device")
    return found if isinstance(found, str) else default


def _fill_dtype(call: OpCall, default: DType) -> DType:
    value = call.maybe("value")
    if value is not None:
        default = value.dtype
    elif call.attrs.get("fill") is not None:
        default = scalar_dtype(call.attrs["fill"])
    return dtype_attr(call, default)


def _infer_full_like(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(dtype_attr(call, x.dtype), x.shape, device_attr(call, x.device))


def _evaluate_full(call: OpCall) -> Known | None:
    shape = static_shape(call.results[0])
    fill = call.attrs.get("fill")
    value = number_array(fill) if fill is not None else call.value("value")
    if value is None and not call.given("value"):
        value = np.asarray(0)
    if shape is None or value is None or value.size != 1:
        return None
    return settle(np.broadcast_to(value.reshape(()), shape), result_element(call)).copy()


def _infer_empty(call: OpCall) -> Type:
    return tensor(dtype_attr(call, DEFAULT_FLOAT), given_shape(call), device_attr(call))


_FILLED = (
    op(
        "tensor.full(Dims shape, Tensor? value, Tensor? like, *, any? fill, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=lambda call: tensor(_fill_dtype(call, DEFAULT_FLOAT), given_shape(call), device_attr(call)),
        cost=written_only,
        evaluate=_evaluate_full,
        needs_values=False,
        summary="A tensor in which every element is one value, zero where none is given; `like` gives element type and device.",
    ),
    op(
        "tensor.full_like(Tensor x, Tensor? value, *, any? fill, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=_infer_full_like,
        cost=written_only,
        evaluate=_evaluate_full,
        needs_values=False,
        summary="A tensor of another one's shape in which every element is one value.",
        strides=layouts.LIKE_FIRST,
    ),
    op(
        "tensor.empty(Dims shape, Tensor? like, *, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=_infer_empty,
        cost=free,
        summary="A tensor whose elements are whatever the memory held; `like` is only asked for its element type and device.",
    ),
    op(
        "tensor.empty_like(Tensor x, *, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=_infer_full_like,
        cost=free,
        summary="A tensor of another one's shape whose elements are whatever the memory held.",
        strides=layouts.LIKE_FIRST,
    ),
)


def _given_number(call: OpCall, name: str, default: int | None = None) -> Attr:
    """Return a single number, whole or not, from an attribute or an operand; None where it is not known."""
    given = call.attrs.get(name)
    if given is not None:
        return given
    if call.given(name):
        known = call.value(name)
        return None if known is None or known.size != 1 else known.reshape(-1).tolist()[0]
    return default


def _range(call: OpCall) -> tuple[Attr, Attr, Attr]:
    return _given_number(call, "start", 0), _given_number(call, "limit"), _given_number(call, "delta", 1)


def _infer_arange(call: OpCall) -> Type:
    start, limit, delta = _range(call)
    types = [type_ for type_ in call.types if type_ is not None]
    given = [call.attrs[name] for name in ("start", "limit", "delta") if call.attrs.get(name) is not None]
    dtype = dtype_attr(call, result_dtype(types, given))
    return tensor(dtype, (_range_length(call, start, limit, delta),), device_attr(call, device_of(call.types)))


def _range_length(call: OpCall, start: Attr, limit: Attr, delta: Attr) -> Dim:
    if start is None or limit is None or delta is None:
        return call.unknown("the length of a range depends on its start, limit and step", "start,limit,delta,step")
    if isinstance(delta, int | float) and delta == 0:
        raise RuleError(f"{call.spec.name}: the step is 0")
    if any(isinstance(number, Real) for number in (start, limit, delta)):
        return _length_of_reals(call, start, limit, delta)
    if any(isinstance(number, float) for number in (start, limit, delta)):
        if any(isinstance(number, SymDim) for number in (start, limit, delta)):
            return call.unknown("the length of a range with fractions depends on sizes that are not bound", SIZES)
        return max(0, _ceil((limit - start) / delta))
    if isinstance(delta, SymDim) and not (bounds(delta)[0] or 0) > 0:
        return call.unknown(f"the step {delta} of a range may be negative", SIZES)
    return dim_max(ceildiv(limit - start, delta), 0)


def _length_of_reals(call: OpCall, *numbers: Attr) -> Dim:
    """Runtimes subtract in the type of the range, divide in double precision and round up."""
    bits = PRECISION.get(next((type_.dtype for type_ in call.types if type_ is not None), DType.UNKNOWN), 0)
    start, limit, delta = (real_of(number, bits) for number in numbers)
    count = reals.ceil(reals.divide(reals.subtract(limit, start, bits), delta, PRECISION[DType.F64]), 0)
    if not count.is_known:
        return call.unknown("the length of a range of floats that are rounded depends on sizes", SIZES)
    call.note_limits(count)
    return dim_max(count.over, 0)


def _ceil(value: float) -> int:
    return math.ceil(value)


def _evaluate_arange(call: OpCall) -> Known | None:
    start, limit, delta = _range(call)
    count = static_shape(call.results[0])
    if start is None or limit is None or delta is None or count is None:
        return None
    dtype = result_element(call)
    if any(isinstance(number, Real) for number in (start, delta)):
        return None
    if any(isinstance(number, SymDim) for number in (start, delta)):
        return objects([start + index * delta for index in range(count[0])], count)
    return settle(np.asarray(start) + np.arange(count[0]) * np.asarray(delta), dtype)


def _infer_steps(call: OpCall) -> Type:
    steps = call.dim("steps")
    size = call.unknown("the number of steps is not known", "steps") if steps is None else as_size(call, steps, "steps")
    return tensor(dtype_attr(call, DEFAULT_FLOAT), (size,), device_attr(call))


def _evaluate_linspace(call: OpCall) -> Known | None:
    start, limit = _given_number(call, "start"), _given_number(call, "limit")
    count = static_shape(call.results[0])
    if count is None or not isinstance(start, int | float) or not isinstance(limit, int | float):
        return None
    return settle(np.linspace(start, limit, count[0]), result_element(call))


def _given_size(call: OpCall, name: str) -> Dim:
    dim = call.dim(name)
    return call.unknown(f"the value of {name!r} is not known", name) if dim is None else as_size(call, dim, name)


def _infer_eye(call: OpCall) -> Type:
    rows = _given_size(call, "rows")
    columns = _given_size(call, "columns") if call.given("columns") else rows
    return tensor(dtype_attr(call, DEFAULT_FLOAT), (rows, columns), device_attr(call))


def _evaluate_eye(call: OpCall) -> Known | None:
    shape = static_shape(call.results[0])
    if shape is None or len(shape) != 2:
        return None
    return np.eye(*shape, k=call.int_attr("k"), dtype=numpy_dtype(result_element(call)))


def _evaluate_tri(call: OpCall) -> Known | None:
    shape = static_shape(call.results[0])
    if shape is None or len(shape) != 2:
        return None
    return np.tri(shape[0], shape[1], k=call.int_attr("k"), dtype=numpy_dtype(result_element(call)))


def _tri_indices(call: OpCall) -> Known:
    shape = (call.int_attr("rows"), call.int_attr("columns"))
    below = np.tri(*shape, k=call.int_attr("offset") - (1 if call.attr("upper") else 0), dtype=np.bool_)
    return np.argwhere(~below if call.attr("upper") else below).T


def _infer_tri_indices(call: OpCall) -> Type:
    rows, columns, offset = call.int_attr("rows"), call.int_attr("columns"), call.int_attr("offset")
    below = offset if call.attr("upper") else offset + 1
    count = sum(min(max(row + below, 0), columns) for row in range(rows))
    return tensor(dtype_attr(call, DType.I64), (2, rows * columns - count if call.attr("upper") else count), device_attr(call))


def _infer_one_hot(call: OpCall) -> Type:
    indices, values = call.tensor("indices"), call.maybe("values")
    dtype = dtype_attr(call, values.dtype if values is not None else DType.I64)
    if indices.shape is None:
        return tensor(dtype, None, indices.device)
    rank = len(indices.shape) + 1
    axis = call.axis(call.int_attr("axis"), rank)
    return tensor(dtype, (*indices.shape[:axis], _given_size(call, "depth"), *indices.shape[axis:]), indices.device)


def _evaluate_one_hot(call: OpCall) -> Known | None:
    indices, shape = call.value("indices"), static_shape(call.results[0])
    values = call.value("values") if call.given("values") else np.array([0, 1])
    if indices is None or values is None or shape is None or is_symbolic(indices) or is_symbolic(values):
        return None
    axis = call.axis(call.int_attr("axis"), len(shape))
    depth = shape[axis]
    wanted = np.where(indices < 0, indices + depth, indices)
    hot = np.expand_dims(wanted, axis) == np.arange(depth).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return settle(np.where(hot, values[1], values[0]), result_element(call))


def _evaluate_window(call: OpCall) -> Known | None:
    shape = static_shape(call.results[0])
    coefficients = {"hann": (0.5, 0.5, 0.0), "hamming": (25 / 46, 21 / 46, 0.0), "blackman": (0.42, 0.5, 0.08)}.get(call.attr("kind"))
    if shape is None or coefficients is None:
        return None
    span = shape[0] if call.attr("periodic") else shape[0] - 1
    angle = 2 * np.pi * np.arange(shape[0]) / max(span, 1)
    constant, first, second = coefficients
    return settle(constant - first * np.cos(angle) + second * np.cos(2 * angle), result_element(call))


def _infer_mel(call: OpCall) -> Type:
    bins = floordiv(_given_size(call, "dft_length"), 2) + 1
    return tensor(dtype_attr(call, DEFAULT_FLOAT), (bins, _given_size(call, "num_mel_bins")))


_RANGES = (
    op(
        "tensor.arange(Dim? start, Dim limit, Dim? delta, *, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=_infer_arange,
        cost=written_only,
        evaluate=_evaluate_arange,
        summary="Numbers from `start` up to but without `limit`, in steps of `delta`.",
        roles=frozenset({OpRole.RANGE}),
    ),
    op(
        "tensor.linspace(Dim start, Dim limit, Dim steps, *, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=_infer_steps,
        cost=written_only,
        evaluate=_evaluate_linspace,
        summary="A number of evenly spaced numbers with both ends.",
    ),
    op(
        "tensor.logspace(Dim start, Dim limit, Dim steps, *, float base=10.0, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=_infer_steps,
        cost=per_element(0, 1),
        summary="Powers of a base whose exponents are evenly spaced.",
    ),
    op(
        "tensor.eye(Dim rows, Dim? columns, *, int k=0, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=_infer_eye,
        cost=written_only,
        evaluate=_evaluate_eye,
        needs_values=False,
        summary="Ones on a diagonal, zeros elsewhere.",
    ),
    op(
        "tensor.eye_like(Tensor x, *, int k=0, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=_infer_full_like,
        cost=written_only,
        evaluate=_evaluate_eye,
        needs_values=False,
        summary="Ones on a diagonal of a tensor with another one's shape.",
    ),
    op(
        "tensor.tri(Dim rows, Dim? columns, *, int k=0, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=_infer_eye,
        cost=written_only,
        evaluate=_evaluate_tri,
        needs_values=False,
        summary="Ones on and below a diagonal, zeros above.",
        roles=frozenset({OpRole.TRIANGLE}),
    ),
    op(
        "tensor.tri_indices(*, int rows, int columns, int offset=0, bool upper=False, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=_infer_tri_indices,
        cost=written_only,
        evaluate=lambda call: settle(_tri_indices(call), result_element(call)),
        needs_values=False,
        summary="Rows and columns of the elements on one side of a diagonal.",
        roles=frozenset({OpRole.TRIANGLE}),
    ),
    op(
        "tensor.one_hot(Tensor indices, Dim depth, Tensor? values, *, int axis=-1, dtype? dtype) -> Tensor",
        Family.CREATION,
        infer=_infer_one_hot,
        cost=written_only,
        evaluate=_evaluate_one_hot,
        summary="A new axis that holds the second value where its position is the index, else the first.",
        roles=frozenset({OpRole.ROUTE}),
    ),
    op(
        "tensor.window(Dim size, *, str kind, bool periodic=True, dtype? dtype, str? device) -> Tensor",
        Family.CREATION,
        infer=lambda call: tensor(dtype_attr(call, DEFAULT_FLOAT), (_given_size(call, "size"),), device_attr(call)),
        cost=per_element(3, 2),
        evaluate=_evaluate_window,
        needs_values=False,
        summary="A window function: `kind` is hann, hamming or blackman.",
    ),
    op(
        "tensor.mel_weight_matrix(Dim num_mel_bins, Dim dft_length, Dim sample_rate, Dim lower_edge_hertz, Dim upper_edge_hertz, *,"
        " dtype? dtype) -> Tensor",
        Family.CREATION,
        infer=_infer_mel,
        cost=written_only,
        summary="The matrix that turns a spectrum into mel bands.",
    ),
)


def shape_part(call: OpCall) -> tuple[Dim, ...] | None:
    """Sizes of the first operand from `start` to `end`, both of which may count from the back."""
    shape = call.shape("x")
    return None if shape is None else shape[call.attr("start") : call.attr("end")]


def _infer_shape(call: OpCall) -> Type:
    part = shape_part(call)
    if part is None:
        return tensor(DType.I64, (call.unknown("the number of axes of the input is not known", SIZES),))
    return tensor(DType.I64, (len(part),))


def _evaluate_shape(call: OpCall) -> Known | None:
    part = shape_part(call)
    return None if part is None else dims_array(part)


def _one(dim: Dim | None) -> Known | None:
    return None if dim is None else settle(objects([dim], ()), DType.I64)


def _evaluate_dim(call: OpCall) -> Known | None:
    shape = call.shape("x")
    return None if shape is None else _one(shape[axis_attr(call, len(shape))])


def _infer_item(call: OpCall) -> Type:
    return scalar(call.dtype("x"))


def _evaluate_item(call: OpCall) -> Known | None:
    x = call.value("x")
    return None if x is None or x.size != 1 else x.reshape(())


def _infer_from_scalar(call: OpCall) -> Type:
    first = call.types[0]
    if not isinstance(first, ScalarType | TensorType):
        raise RuleError(f"operand of {call.spec.name} is not a number")
    dtype = DEFAULT_FLOAT if first.dtype is DType.F64 else first.dtype
    return tensor(dtype_attr(call, dtype), (), device_attr(call))


def _evaluate_from_scalar(call: OpCall) -> Known | None:
    x: Any = call.values[0]
    return None if x is None else settle(x.reshape(()), result_element(call))


def _query(schema: str, infer: Any, evaluate: Any, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(schema, Family.CREATION, infer=infer, cost=free, evaluate=evaluate, needs_values=False, summary=summary, **facts)


_QUERIES = (
    _query("tensor.shape(Tensor x, *, int start=0, int? end) -> Tensor", _infer_shape, _evaluate_shape, "Sizes of the axes as a tensor."),
    _query(
        "tensor.numel(Tensor x, *, bool as_number=False) -> Tensor",
        lambda call: scalar(DType.I64) if call.attr("as_number") else tensor(DType.I64, ()),
        lambda call: _one(call.tensor("x").numel),
        "Number of elements.",
    ),
    _query(
        "tensor.dim(Tensor x, *, int axis) -> Tensor", lambda call: scalar(DType.I64), _evaluate_dim, "Size of one axis as a plain number."
    ),
    _query("tensor.item(Tensor x) -> Tensor", _infer_item, _evaluate_item, "The only element of a tensor as a plain number."),
    _query(
        "tensor.from_scalar(Tensor x, *, dtype? dtype, str? device) -> Tensor",
        _infer_from_scalar,
        _evaluate_from_scalar,
        "A plain number as a tensor without axes.",
    ),
)

_CREATION = (*_FILLED, *_RANGES, *_QUERIES)


def _shaped(name: str, attrs: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    schema = f"random.{name}(Dims shape, *, {attrs}, dtype? dtype, str? device) -> Tensor"
    return op(schema, Family.RANDOM, infer=_infer_empty, cost=written_only, random=True, summary=summary, **facts)


def _like(name: str, attrs: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    schema = f"random.{name}_like(Tensor x, *, {attrs}, dtype? dtype, str? device) -> Tensor"
    return op(schema, Family.RANDOM, infer=_infer_full_like, cost=written_only, random=True, summary=summary, **facts)


def _infer_randperm(call: OpCall) -> Type:
    count = call.dim("count")
    size: Dim = call.unknown("the number of elements is not known", "count") if count is None else as_size(call, count, "count")
    return tensor(dtype_attr(call, DType.I64), (size,), device_attr(call))


def _infer_multinomial(call: OpCall) -> Type:
    x = call.tensor("x")
    shape = None if x.shape is None else (*x.shape[:-1], call.attr("samples"))
    return tensor(dtype_attr(call, DType.I64), shape, x.device)


def _is_training(call: OpCall) -> bool | None:
    """Return whether elements are dropped; None where that depends on a value that is not known."""
    if call.given("training_mode"):
        mode = call.value("training_mode")
        if mode is None or is_symbolic(mode):
            return None
        training = bool(mode.reshape(-1)[0])
    else:
        training = bool(call.attr("training"))
    if not training:
        return False
    if not call.given("ratio"):
        return bool(call.attr("p") != 0)
    ratio = call.value("ratio")
    return None if ratio is None or is_symbolic(ratio) else float(ratio.reshape(-1)[0]) != 0


def _infer_dropout(call: OpCall) -> Sequence[TensorType]:
    x = call.tensor("x")
    mask = x.with_shape(x.shape).with_dtype(dtype_attr(call, DType.BOOL, "mask_dtype"))
    same = x if _is_training(call) is False else x.with_shape(x.shape)
    return (same, mask)[: len(call.results) or 2]


def _shares_dropout(call: OpCall) -> bool | None:
    training = _is_training(call)
    return None if training is None else not training


def _evaluate_dropout(call: OpCall) -> list[Known | None] | None:
    x = call.value("x")
    if x is None or _is_training(call) is not False:
        return None
    values: list[Known | None] = [x, np.ones(x.shape, dtype=np.bool_)]
    return values[: len(call.results)]


def _cost_dropout(call: OpCall) -> Cost:
    if _is_training(call) is False and len(call.results) < 2:
        return FREE
    return Cost(elementwise=numel(call.results[0]) * 2)


_RANDOM = (
    _shaped("uniform", "float low=0.0, float high=1.0, float? seed", "Numbers spread evenly between two limits."),
    _shaped("normal", "float mean=0.0, float scale=1.0, float? seed", "Numbers of a normal distribution."),
    _like("uniform", "float low=0.0, float high=1.0, float? seed", "Evenly spread numbers in a tensor of another one's shape."),
    _like("normal", "float mean=0.0, float scale=1.0, float? seed", "Normally distributed numbers in a tensor of another one's shape."),
    _like("exponential", "float rate=1.0", "Exponentially distributed numbers in a tensor of another one's shape."),
    _like("randint", "int low=0, int high=2", "Whole numbers in a tensor of another one's shape."),
    op(
        "random.bernoulli(Tensor x, *, float? p, float? seed, dtype? dtype) -> Tensor",
        Family.RANDOM,
        infer=_infer_full_like,
        cost=moved,
        random=True,
        summary="One with the probability that each element, or `p`, says, else zero.",
    ),
    op(
        "random.poisson(Tensor x) -> Tensor",
        Family.RANDOM,
        infer=like_first,
        cost=moved,
        random=True,
        summary="Numbers of Poisson distributions with the given rates.",
    ),
    op(
        "random.multinomial(Tensor x, *, Dim samples=1, bool replacement=False, float? seed, dtype? dtype) -> Tensor",
        Family.RANDOM,
        infer=_infer_multinomial,
        cost=moved,
        random=True,
        temporaries=multinomial_rule,
        summary="Positions drawn with the probabilities of each row.",
    ),
    op(
        "random.randint(Dims shape, *, int low=0, int high=2, dtype? dtype, str? device) -> Tensor",
        Family.RANDOM,
        infer=lambda call: tensor(dtype_attr(call, DType.I64), given_shape(call), device_attr(call)),
        cost=written_only,
        random=True,
        summary="Whole numbers spread evenly.",
    ),
    op(
        "random.randperm(Dim count, *, dtype? dtype, str? device) -> Tensor",
        Family.RANDOM,
        infer=_infer_randperm,
        cost=written_only,
        random=True,
        temporaries=randperm_rule,
        summary="The numbers from zero on in random order.",
    ),
    op(
        "nn.dropout(Tensor(a?) x, Tensor? ratio, Tensor? training_mode, *, float p=0.5, bool training=False, dtype? mask_dtype)"
        " -> (Tensor(a?), Tensor?)",
        Family.RANDOM,
        infer=_infer_dropout,
        cost=_cost_dropout,
        evaluate=_evaluate_dropout,
        shares=_shares_dropout,
        random=True,
        temporaries=dropout_rule,
        summary="Zeroes random elements in training and scales the others; else the tensor itself.",
        strides=layouts.as_operand,
        roles=frozenset({OpRole.COPY, OpRole.RETURNS_OPERAND, OpRole.DROPOUT}),
    ),
)


OPS = (*_CREATION, *_RANDOM)
