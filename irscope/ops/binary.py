"""Functions of the elements of two tensors, comparisons among them, and differences of neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from irscope.ir.dims import Dim, SymDim, dim_max, dim_min
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr
from irscope.ir.types import TensorType, Type
from irscope.ops import layouts, reals
from irscope.ops.cost import Cost
from irscope.ops.elementwise import (
    both,
    either,
    float_truth,
    floor_div,
    floor_mod,
    is_equal,
    is_less,
    is_less_equal,
    is_not_equal,
    power,
    result_element,
    select,
    trunc_div,
    trunc_mod,
)
from irscope.ops.facts import OpRole
from irscope.ops.ort import in_place, takes, takes_selections
from irscope.ops.reals import PRECISION, Real, not_known, real_of
from irscope.ops.rules import broadcast_type, dtype_attr, fixed, operands, per_element, promote_types, result_dtype, to_float, with_dtype
from irscope.ops.scratch.ordering import diff_rule, where_rule
from irscope.ops.scratch.reductions import power_rule
from irscope.ops.spec import Facts, Family, Known, OpCall, OpSpec, RuleError, numel, op
from irscope.ops.values import Array, OnReals, apply, as_objects, has_reals, is_symbolic, numpy_dtype, objects, settle

# Functions of two tensors, or of a tensor and a number, whose sizes broadcast.

OnArrays = Callable[[Any, Any], Any]
OnDims = Callable[[OpCall, Dim, Dim], Dim]
DTypeRule = Callable[[OpCall, DType], DType]


def numbers(call: OpCall, *names: str) -> list[Attr]:
    """Plain numbers given as attributes."""
    return [value for name in names if (value := call.attrs.get(name)) is not None]


def broadcast_result(call: OpCall, rule: DTypeRule | None = None) -> Type:
    """Return the type of a function of all operands and the number `value`; `rule` changes the promoted element type."""
    types = operands(call)
    if not types:
        raise RuleError(f"{call.spec.name} has no operands")
    dtype = result_dtype(types, numbers(call, "value"))
    return broadcast_type(call, types, dtype_attr(call, rule(call, dtype) if rule is not None else dtype))


def number_array(value: Attr) -> Array:
    """Return a plain number, perhaps symbolic, as an array without axes."""
    return objects([value], ()) if isinstance(value, SymDim) else np.asarray(value)


def pair(call: OpCall) -> tuple[Array, Array] | None:
    """Return values of both sides; a number stands for an absent second operand."""
    x = call.values[0]
    y = call.values[1] if len(call.types) > 1 and call.types[1] is not None else number_array(call.attr("value"))
    if x is None or y is None:
        return None
    return (y, x) if call.attr("reverse") else (x, y)


def _working_dtype(call: OpCall, sides: tuple[Array, Array]) -> np.dtype[Any] | None:
    """Numbers are computed in the result's element type, whole numbers of which a fraction is asked as doubles."""
    dtype = result_element(call)
    if any(side.dtype == object for side in sides) or dtype in (DType.STR, DType.BOOL, DType.UNKNOWN):
        return None
    held = numpy_dtype(dtype)
    return np.dtype(np.float64) if held.kind in "iu" and any(side.dtype.kind == "f" for side in sides) else held


def evaluate_pair(
    on_arrays: Callable[[OpCall, Array, Array], Any], on_dims: OnDims | None, on_reals: OnReals | None = None
) -> Callable[[OpCall], Known | None]:
    """Evaluate rule of a function of two tensors."""

    def evaluate(call: OpCall) -> Known | None:
        sides = pair(call)
        if sides is None:
            return None
        working = _working_dtype(call, sides)
        with np.errstate(all="ignore"):
            arrays = sides if working is None else tuple(side.astype(working) for side in sides)
        dims = None if on_dims is None or not _is_whole(sides) else lambda a, b: on_dims(call, a, b)
        return apply(arrays, lambda a, b: on_arrays(call, a, b), dims, result_element(call), on_reals)

    return evaluate


def _is_whole(sides: tuple[Array, Array]) -> bool:
    return all(side.dtype == object or side.dtype.kind in "iub" for side in sides)


def binary(
    name: str,
    summary: str,
    on_arrays: OnArrays | None,
    on_dims: OnDims | None = None,
    *,
    costs: tuple[int, int] = (1, 0),
    rule: DTypeRule | None = None,
    on_reals: OnReals | None = None,
    **facts: Unpack[Facts],
) -> OpSpec:
    """Return a record of a function of two tensors that broadcast, or of a tensor and the number `value`."""
    return op(
        f"{name}(Tensor x, Tensor? y, *, any? value, bool reverse=False, dtype? dtype) -> Tensor",
        Family.ELEMENTWISE,
        infer=lambda call: broadcast_result(call, rule),
        cost=per_element(*costs),
        evaluate=None if on_arrays is None else evaluate_pair(lambda _, a, b: on_arrays(a, b), on_dims, on_reals),
        summary=summary,
        **facts,
    )


def _float_result(call: OpCall, dtype: DType) -> DType:
    return to_float(dtype)


def _as_bool(call: OpCall, dtype: DType) -> DType:
    return DType.BOOL


def _times_alpha(call: OpCall, other: Any) -> Any:
    alpha = call.attr("alpha")
    return other if alpha == 1 else other * alpha


def _sum_like(
    name: str,
    summary: str,
    on_arrays: Callable[[OpCall, Array, Array], Any],
    on_dims: OnDims,
    on_reals: Callable[[Real, Real, int], Real],
    **facts: Unpack[Facts],
) -> OpSpec:
    def evaluate(call: OpCall) -> Known | None:
        return evaluate_pair(on_arrays, on_dims, on_reals if call.attr("alpha") == 1 else None)(call)

    return op(
        f"math.{name}(Tensor x, Tensor? y, *, any? value, any alpha=1, bool reverse=False, dtype? dtype) -> Tensor",
        Family.ELEMENTWISE,
        infer=broadcast_result,
        cost=lambda call: per_element(1 if call.attr("alpha") == 1 else 2)(call),
        evaluate=evaluate,
        summary=summary,
        **facts,
    )


def _power_dtype(call: OpCall, dtype: DType) -> DType:
    first = call.types[0]
    return first.dtype if call.attr("keep_dtype") and isinstance(first, TensorType) else dtype


def _divide(call: OpCall, a: Array, b: Array) -> Any:
    mode = call.attr("rounding_mode")
    if mode == "floor":
        return np.floor_divide(a, b)
    if a.dtype.kind not in "iu":
        return np.trunc(a / b) if mode == "trunc" else a / b
    return (a - np.fmod(a, b)) // np.where(b == 0, 1, b)


def _divide_dims(call: OpCall, a: Dim, b: Dim) -> Dim:
    return floor_div(call, a, b) if call.attr("rounding_mode") == "floor" else trunc_div(call, a, b)


def _evaluate_division(call: OpCall) -> Known | None:
    mode = str(call.attr("rounding_mode"))
    if mode in _ROUNDED_QUOTIENTS or result_element(call).is_integer:
        return evaluate_pair(_divide, _divide_dims, _ROUNDED_QUOTIENTS.get(mode))(call)
    return evaluate_pair(_divide, None, reals.divide)(call)


_ROUNDED_QUOTIENTS: dict[str, OnReals] = {
    "floor": lambda a, b, bits: reals.floor(reals.divide(a, b, bits), bits),
    "trunc": lambda a, b, bits: reals.trunc(reals.divide(a, b, bits)),
}


def _remainder(call: OpCall, a: Array, b: Array) -> Any:
    return np.fmod(a, b) if call.attr("fmod") else np.mod(a, b)


def _power(a: Array, b: Array) -> Any:
    if a.dtype.kind in "iu" and (b.dtype.kind == "f" or (b < 0).any()):
        return np.power(a.astype(np.float64), b.astype(np.float64))
    return np.power(a, b)


def _xlogy(a: Array, b: Array) -> Any:
    return np.where((a == 0) & ~np.isnan(b), 0, a * np.log(b))


_ARITHMETIC = (
    _sum_like(
        "add",
        "Sum, with `alpha` times the second side.",
        lambda call, a, b: a + _times_alpha(call, b),
        lambda call, a, b: a + int(call.attr("alpha")) * b,
        reals.add,
        roles=frozenset({OpRole.ADD, OpRole.COMMUTES}),
    ),
    _sum_like(
        "sub",
        "Difference, with `alpha` times the second side.",
        lambda call, a, b: a - _times_alpha(call, b),
        lambda call, a, b: a - int(call.attr("alpha")) * b,
        reals.subtract,
        roles=frozenset({OpRole.SUBTRACT}),
    ),
    binary(
        "math.mul",
        "Product, element by element.",
        np.multiply,
        lambda call, a, b: a * b,
        on_reals=reals.multiply,
        roles=frozenset({OpRole.MULTIPLY, OpRole.COMMUTES}),
    ),
    op(
        "math.div(Tensor x, Tensor? y, *, any? value, str rounding_mode='', bool reverse=False, dtype? dtype) -> Tensor",
        Family.ELEMENTWISE,
        infer=lambda call: broadcast_result(call, lambda call, dtype: dtype if call.attr("rounding_mode") else to_float(dtype)),
        cost=per_element(1),
        evaluate=_evaluate_division,
        summary="Quotient: integers become floats, or are rounded by `rounding_mode` 'trunc' or 'floor'; 'c' truncates integers only.",
        roles=frozenset({OpRole.DIVIDE}),
    ),
    binary("math.floordiv", "Quotient rounded down.", np.floor_divide, floor_div),
    op(
        "math.mod(Tensor x, Tensor? y, *, any? value, bool fmod=False, bool reverse=False, dtype? dtype) -> Tensor",
        Family.ELEMENTWISE,
        infer=broadcast_result,
        cost=per_element(1),
        evaluate=evaluate_pair(_remainder, lambda call, a, b: trunc_mod(call, a, b) if call.attr("fmod") else floor_mod(call, a, b)),
        summary="Remainder with the sign of the divisor, or with `fmod` of the dividend.",
    ),
    op(
        "math.pow(Tensor x, Tensor? y, *, any? value, bool reverse=False, bool keep_dtype=False, dtype? dtype) -> Tensor",
        Family.ELEMENTWISE,
        infer=lambda call: broadcast_result(call, _power_dtype),
        cost=per_element(0, 1),
        evaluate=evaluate_pair(lambda _, a, b: _power(a, b), power, reals.power),
        temporaries=power_rule,
        summary="The first side to the power of the second; with `keep_dtype` the result has the first side's type.",
        roles=frozenset({OpRole.POWER}),
    ),
    binary(
        "math.maximum",
        "The larger of two.",
        np.maximum,
        lambda call, a, b: dim_max(a, b),
        on_reals=reals.largest,
        roles=frozenset({OpRole.LIMIT, OpRole.COMMUTES}),
    ),
    binary(
        "math.minimum",
        "The smaller of two.",
        np.minimum,
        lambda call, a, b: dim_min(a, b),
        on_reals=reals.smallest,
        roles=frozenset({OpRole.COMMUTES}),
    ),
    binary("math.atan2", "Angle of the point (y, x).", np.arctan2, costs=(0, 1), rule=_float_result),
    binary("math.hypot", "Length of the hypotenuse.", np.hypot, costs=(3, 1)),
    binary("math.logaddexp", "Logarithm of the sum of two exponentials.", np.logaddexp, costs=(2, 2)),
    binary(
        "math.xlogy", "The first side times the logarithm of the second, zero where the first is.", _xlogy, costs=(1, 1), rule=_float_result
    ),
    binary("math.heaviside", "0 where negative, 1 where positive, and the second side at zero.", np.heaviside),
    binary("math.copysign", "The first side's size with the second side's sign.", lambda a, b: np.copysign(a, b), rule=_float_result),
)

_LOGIC = (
    binary("math.and", "Logical and.", np.logical_and, both, rule=_as_bool),
    binary("math.or", "Logical or.", np.logical_or, either, rule=_as_bool),
    binary("math.xor", "Logical exclusive or.", np.logical_xor, rule=_as_bool),
    binary("math.bitwise_and", "And of every bit.", np.bitwise_and, roles=frozenset({OpRole.COMMUTES})),
    binary("math.bitwise_or", "Or of every bit.", np.bitwise_or, roles=frozenset({OpRole.COMMUTES})),
    binary("math.bitwise_xor", "Exclusive or of every bit.", np.bitwise_xor, roles=frozenset({OpRole.COMMUTES})),
    binary("math.shift_left", "Bits shifted up.", np.left_shift),
    binary("math.shift_right", "Bits shifted down.", np.right_shift),
)


def _infer_where(call: OpCall) -> Type:
    chosen = [type_ for type_ in call.types[1:3] if type_ is not None]
    dtype = result_dtype(chosen, numbers(call, "x_value", "y_value"))
    return broadcast_type(call, [call.tensor("condition"), *chosen], dtype_attr(call, dtype))


def _evaluate_where(call: OpCall) -> Known | None:
    condition, x, y = call.value("condition"), _side(call, "x"), _side(call, "y")
    if condition is None or x is None or y is None:
        return None
    dims = (lambda c, a, b: select(call, c, a, b)) if _is_whole((x, y)) and result_element(call) is not DType.STR else None
    if result_element(call).is_float and (is_symbolic(condition) or has_reals(x) or has_reals(y)):
        return _chosen_reals(condition, x, y, result_element(call))
    return apply([condition, x, y], lambda c, a, b: np.where(c.astype(np.bool_), a, b), dims, result_element(call))


def _chosen_reals(condition: Array, x: Array, y: Array, dtype: DType) -> Known | None:
    """Floats by a condition, of which some depend on sizes."""
    bits = PRECISION.get(dtype)
    if bits is None:
        return None
    wide = np.broadcast_arrays(as_objects(condition), as_objects(x), as_objects(y))
    chosen: list[object] = []
    for holds, one, other in zip(*(part.flat for part in wide), strict=True):
        if not isinstance(holds, SymDim):
            chosen.append(one if holds else other)
        else:
            chosen.append(not_known(Real(holds), real_of(one, bits), real_of(other, bits)))
    return settle(objects(chosen, wide[0].shape), dtype)


def _side(call: OpCall, name: str) -> Array | None:
    value = call.attrs.get(f"{name}_value")
    return number_array(value) if value is not None else call.value(name)


def _infer_all(call: OpCall) -> Type:
    types = operands(call)
    return broadcast_type(call, types, dtype_attr(call, result_dtype(types)))


def _infer_clamp(call: OpCall) -> Type:
    types = operands(call)
    dtype = result_dtype(types, numbers(call, "min_value", "max_value"))
    return broadcast_type(call, types, dtype_attr(call, dtype))


def _limit(call: OpCall, name: str) -> tuple[bool, Array | None]:
    """Return whether a limit is given, and its values."""
    value = call.attrs.get(f"{name}_value")
    if value is not None:
        return True, number_array(value)
    return call.given(name), call.value(name)


def _evaluate_clamp(call: OpCall) -> Known | None:
    found = call.value("x")
    for name, on_arrays, on_dims, on_reals in (("min", np.maximum, dim_max, reals.largest), ("max", np.minimum, dim_min, reals.smallest)):
        given, limit = _limit(call, name)
        if found is None or (given and limit is None):
            return None
        if limit is not None:
            found = apply([found, limit], on_arrays, on_dims if _is_whole((found, limit)) else None, result_element(call), on_reals)
    return found


_MORE = (
    op(
        "math.where(Tensor condition, Tensor? x, Tensor? y, *, any? x_value, any? y_value, dtype? dtype) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_where,
        cost=per_element(1),
        evaluate=_evaluate_where,
        temporaries=where_rule,
        ort=takes(takes_selections, "Where", first=True),
        summary="Takes `x` where the condition holds and `y` elsewhere.",
        strides=layouts.POINTWISE,
        roles=frozenset({OpRole.SELECT}),
    ),
    op(
        "math.clamp(Tensor x, Tensor? min, Tensor? max, *, any? min_value, any? max_value, dtype? dtype) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_clamp,
        cost=per_element(2),
        evaluate=_evaluate_clamp,
        summary="Limits each element to a range.",
        ort=in_place("Clip"),
        roles=frozenset({OpRole.LIMIT}),
    ),
    op(
        "math.lerp(Tensor x, Tensor y, Tensor? weight, *, any? value) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_all,
        cost=per_element(3),
        summary="Goes from `x` to `y` by a weight.",
    ),
    op(
        "math.addcmul(Tensor x, Tensor a, Tensor b, *, any value=1, dtype? dtype) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_all,
        cost=lambda call: per_element(2 if call.attr("value") == 1 else 3)(call),
        summary="x + value * a * b.",
        roles=frozenset({OpRole.ADD_PRODUCT}),
    ),
    op(
        "math.addcdiv(Tensor x, Tensor a, Tensor b, *, any value=1, dtype? dtype) -> Tensor",
        Family.ELEMENTWISE,
        infer=lambda call: broadcast_type(call, operands(call), dtype_attr(call, to_float(result_dtype(operands(call))))),
        cost=lambda call: per_element(2 if call.attr("value") == 1 else 3)(call),
        summary="x + value * a / b.",
    ),
    op(
        "math.complex(Tensor real, Tensor imag) -> Tensor",
        Family.ELEMENTWISE,
        infer=lambda call: broadcast_type(call, operands(call), promote_types(result_dtype(operands(call)), DType.C64)),
        cost=per_element(0),
        summary="Puts real and imaginary parts together.",
    ),
)

_BINARY = (*_ARITHMETIC, *_LOGIC, *_MORE)


# Comparisons: two tensors, or a tensor and a number, give truth values.


def _infer(call: OpCall) -> Type:
    return broadcast_type(call, operands(call), DType.BOOL)


def _compare(
    name: str, summary: str, on_arrays: OnArrays, on_dims: OnDims, verdict: Callable[[Real, Real], bool | None], **facts: Unpack[Facts]
) -> OpSpec:
    def evaluate(call: OpCall) -> Known | None:
        sides = pair(call)
        if sides is not None and any(map(has_reals, sides)):
            working = result_dtype(operands(call), numbers(call, "value"))
            return apply(sides, on_arrays, None, DType.BOOL, lambda a, b, _: float_truth(call, verdict, a, b), working)
        if sides is None or (any(map(is_symbolic, sides)) and any(side.dtype.kind not in "iubO" for side in sides)):
            return None
        common = result_dtype(operands(call), numbers(call, "value"))
        if common not in (DType.UNKNOWN, DType.STR) and not any(map(is_symbolic, sides)):
            sides = settle(sides[0], common), settle(sides[1], common)
        return apply(sides, on_arrays, lambda a, b: on_dims(call, a, b), DType.BOOL)

    return op(
        f"compare.{name}(Tensor x, Tensor? y, *, any? value) -> Tensor",
        Family.COMPARISON,
        infer=_infer,
        cost=per_element(1),
        evaluate=evaluate,
        summary=summary,
        **facts,
    )


def _evaluate_all_equal(call: OpCall) -> Known | None:
    x, y = call.values[0], call.values[1]
    if x is None or y is None or is_symbolic(x) or is_symbolic(y):
        return None
    return np.asarray(np.array_equal(x, y))


def _evaluate_isin(call: OpCall) -> Known | None:
    x, elements = call.values[0], call.values[1]
    if x is None or elements is None or is_symbolic(x) or is_symbolic(elements):
        return None
    return np.isin(x, elements, invert=bool(call.attr("invert")))


def _negated(verdict: bool | None) -> bool | None:
    return None if verdict is None else not verdict


def _as_text(x: Any, y: Any, equal: bool) -> Any:
    found = np.equal(x, y)
    return found.astype(np.bool_) if equal else ~found.astype(np.bool_)


_COMPARISON = (
    _compare(
        "equal",
        "Whether both sides are equal.",
        lambda a, b: _as_text(a, b, True),
        is_equal,
        reals.is_equal,
        roles=frozenset({OpRole.COMMUTES, OpRole.EQUAL}),
    ),
    _compare(
        "not_equal",
        "Whether the sides differ.",
        lambda a, b: _as_text(a, b, False),
        is_not_equal,
        lambda a, b: _negated(reals.is_equal(a, b)),
        roles=frozenset({OpRole.COMMUTES}),
    ),
    _compare("less", "Whether the first side is smaller.", np.less, is_less, reals.is_less, roles=frozenset({OpRole.ORDER})),
    _compare(
        "less_equal",
        "Whether the first side is smaller or equal.",
        np.less_equal,
        is_less_equal,
        reals.is_less_equal,
        roles=frozenset({OpRole.ORDER}),
    ),
    _compare(
        "greater",
        "Whether the first side is larger.",
        np.greater,
        lambda call, a, b: is_less(call, b, a),
        lambda a, b: reals.is_less(b, a),
        roles=frozenset({OpRole.ORDER}),
    ),
    _compare(
        "greater_equal",
        "Whether the first side is larger or equal.",
        np.greater_equal,
        lambda call, a, b: is_less_equal(call, b, a),
        lambda a, b: reals.is_less_equal(b, a),
        roles=frozenset({OpRole.ORDER}),
    ),
    op(
        "compare.isclose(Tensor x, Tensor y, *, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
        Family.COMPARISON,
        infer=_infer,
        cost=per_element(4),
        summary="Whether both sides are equal up to a tolerance.",
    ),
    op(
        "compare.isin(Tensor x, Tensor elements, *, bool invert=False) -> Tensor",
        Family.COMPARISON,
        infer=lambda call: with_dtype(call.tensor("x"), DType.BOOL),
        cost=per_element(1),
        evaluate=_evaluate_isin,
        summary="Whether each element is among some others.",
    ),
    op(
        "compare.all_equal(Tensor x, Tensor y) -> Tensor",
        Family.COMPARISON,
        infer=fixed(DType.BOOL),
        cost=per_element(1),
        evaluate=_evaluate_all_equal,
        summary="Whether two tensors have the same shape and elements.",
    ),
)


# Differences of neighbours along an axis.


def _infer_difference(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    axis = call.axis(call.int_attr("axis"), len(x.shape))
    size = x.shape[axis]
    for name in ("prepend", "append"):
        other = call.maybe(name)
        if other is not None:
            if other.shape is None:
                return x.with_shape(None)
            size = size + other.shape[axis]
    left = dim_max(size - call.int_attr("n"), 0)
    return x.with_shape((*x.shape[:axis], left, *x.shape[axis + 1 :]))


def _cost(call: OpCall) -> Cost:
    return Cost(elementwise=numel(call.results[0]) * call.int_attr("n"))


def _evaluate(call: OpCall) -> Known | None:
    x = call.value("x")
    if x is None or is_symbolic(x) or call.given("prepend") or call.given("append"):
        return None
    if call.dtype("x") is DType.BOOL:
        return np.diff(x, call.int_attr("n"), call.int_attr("axis"))
    return np.diff(x, call.int_attr("n"), call.int_attr("axis")).astype(x.dtype)


_DIFFERENCE = (
    op(
        "math.diff(Tensor x, Tensor? prepend, Tensor? append, *, int n=1, int axis=-1) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_difference,
        cost=_cost,
        evaluate=_evaluate,
        temporaries=diff_rule,
        summary="Differences of neighbours along an axis, taken `n` times.",
    ),
)


OPS = (*_BINARY, *_COMPARISON, *_DIFFERENCE)
