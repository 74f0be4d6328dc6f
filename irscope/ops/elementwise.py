"""Functions of one tensor, element by element, and sums and extremes of many tensors of one shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, Literal, Unpack

import numpy as np

from irscope.ir.dims import Dim, dim_max, dim_min
from irscope.ir.dtypes import DType
from irscope.ir.types import ScalarType, TensorType, Type
from irscope.ops import layouts
from irscope.ops.cost import Cost
from irscope.ops.dimrules import absolute, negate, sign
from irscope.ops.ort import in_place
from irscope.ops.promotion import result_dtype, to_float
from irscope.ops.rules import broadcast_type, dtype_attr, free, operands, per_element, with_dtype
from irscope.ops.scratch.pointwise import is_finite_rule, is_inf_rule
from irscope.ops.spec import Facts, Family, Infer, Known, OpCall, OpRole, OpSpec, RuleError, Temporaries, numel, op
from irscope.ops.values import Array, apply, objects

Kind = Literal["same", "float", "bool", "real", "real float"]
OnArray = Callable[[Array], Any]
OnDim = Callable[[OpCall, Dim], Dim]

_REAL = {DType.C64: DType.F32, DType.C128: DType.F64}


def result_type_of(kind: Kind) -> Infer:
    """Infer rule of a function of one tensor: `float` turns integers into the default float, `real` drops the imaginary part."""

    def infer(call: OpCall) -> Type:
        first = call.types[0]
        if not isinstance(first, TensorType | ScalarType):
            raise RuleError(f"operand of {call.spec.name} is {'absent' if first is None else first}, not a tensor")
        dtype = first.dtype
        if kind == "bool":
            dtype = DType.BOOL
        if kind in ("real", "real float"):
            dtype = _REAL.get(dtype, dtype)
        if kind in ("float", "real float"):
            dtype = to_float(dtype)
        return with_dtype(first, dtype_attr(call, dtype))

    return infer


def result_element(call: OpCall) -> DType:
    """Element type of the first result."""
    return call.results[0].dtype


def on_first(on_array: Callable[[Array, OpCall], Any], on_dim: OnDim | None = None) -> Callable[[OpCall], Known | None]:
    """Evaluate rule: a function of the first operand's elements; attributes come from the call."""

    def evaluate(call: OpCall) -> Known | None:
        x = call.values[0]
        if x is None:
            return None
        dtype = result_element(call)
        if dtype.is_float and x.dtype.kind in "iub":
            x = x.astype(np.float64)
        dims = None if on_dim is None else lambda dim: on_dim(call, dim)
        return apply([x], lambda array: on_array(array, call), dims, dtype)

    return evaluate


def each(function: Callable[[float], float]) -> OnArray:
    """A function of Python floats, applied to each element."""
    return lambda array: objects(map(function, array.reshape(-1).tolist()), array.shape).astype(np.float64)


def unary(
    name: str,
    kind: Kind,
    costs: tuple[int, int],
    on_array: OnArray | None,
    summary: str,
    on_dim: OnDim | None = None,
    attrs: str = "",
    temporaries: Temporaries | None = None,
    **facts: Unpack[Facts],
) -> OpSpec:
    """A record of a function of one tensor; `costs` are elementwise and transcendental operations an element."""
    return op(
        f"{name}(Tensor x, *, {attrs}dtype? dtype) -> Tensor",
        Family.ELEMENTWISE,
        infer=result_type_of(kind),
        cost=per_element(*costs),
        evaluate=None if on_array is None else on_first(lambda array, _: on_array(array), on_dim),
        temporaries=temporaries,
        summary=summary,
        **facts,
    )


def _keep(call: OpCall, dim: Dim) -> Dim:
    return dim


def _lgamma(value: float) -> float:
    return math.inf if value <= 0 and value == int(value) else math.lgamma(value)


def _invert(array: Array) -> Any:
    return np.invert(array)


def _round(array: Array, call: OpCall) -> Any:
    return np.round(array, call.int_attr("decimals"))


def _is_inf(array: Array, call: OpCall) -> Any:
    if array.dtype.kind not in "fc":
        return np.zeros(array.shape, dtype=np.bool_)
    return (np.isposinf(array) & bool(call.attr("detect_positive"))) | (np.isneginf(array) & bool(call.attr("detect_negative")))


_UNARY = (
    unary("math.neg", "same", (1, 0), np.negative, "Changes the sign.", lambda call, dim: dim * -1, roles=frozenset({OpRole.NEGATE})),
    unary("math.abs", "real", (1, 0), np.abs, "Absolute value.", absolute, roles=frozenset({OpRole.ABSOLUTE})),
    unary("math.sign", "same", (1, 0), np.sign, "-1, 0 or 1 by the sign.", sign),
    unary("math.floor", "same", (1, 0), np.floor, "Rounds down.", _keep),
    unary("math.ceil", "same", (1, 0), np.ceil, "Rounds up.", _keep),
    unary("math.trunc", "same", (1, 0), np.trunc, "Rounds toward zero.", _keep),
    unary("math.frac", "same", (1, 0), lambda x: x - np.trunc(x), "The part behind the decimal point."),
    unary("math.square", "same", (1, 0), np.square, "Multiplies by itself.", lambda call, dim: dim * dim, roles=frozenset({OpRole.POWER})),
    unary("math.reciprocal", "float", (1, 0), lambda x: 1 / x, "One divided by each element."),
    unary("math.sqrt", "float", (0, 1), np.sqrt, "Square root.", roles=frozenset({OpRole.ROOT})),
    unary("math.rsqrt", "float", (0, 1), lambda x: 1 / np.sqrt(x), "One divided by the square root.", roles=frozenset({OpRole.ROOT})),
    unary("math.exp", "float", (0, 1), np.exp, "e to the power of each element.", roles=frozenset({OpRole.EXPONENTIAL})),
    unary("math.exp2", "float", (0, 1), np.exp2, "2 to the power of each element."),
    unary("math.expm1", "float", (0, 1), np.expm1, "e to the power of each element, minus one."),
    unary("math.log", "float", (0, 1), np.log, "Natural logarithm."),
    unary("math.log2", "float", (0, 1), np.log2, "Logarithm to base 2."),
    unary("math.log10", "float", (0, 1), np.log10, "Logarithm to base 10."),
    unary("math.log1p", "float", (0, 1), np.log1p, "Natural logarithm of one plus each element."),
    unary("math.logit", "float", (2, 1), lambda x: np.log(x / (1 - x)), "Logarithm of x / (1 - x).", attrs="float? eps, "),
    unary("math.sin", "float", (0, 1), np.sin, "Sine."),
    unary("math.cos", "float", (0, 1), np.cos, "Cosine."),
    unary("math.tan", "float", (0, 1), np.tan, "Tangent."),
    unary("math.asin", "float", (0, 1), np.arcsin, "Inverse sine."),
    unary("math.acos", "float", (0, 1), np.arccos, "Inverse cosine."),
    unary("math.atan", "float", (0, 1), np.arctan, "Inverse tangent."),
    unary("math.sinh", "float", (0, 1), np.sinh, "Hyperbolic sine."),
    unary("math.cosh", "float", (0, 1), np.cosh, "Hyperbolic cosine."),
    unary("math.tanh", "float", (0, 1), np.tanh, "Hyperbolic tangent.", ort=in_place("Tanh"), roles=frozenset({OpRole.LIMIT})),
    unary("math.asinh", "float", (0, 1), np.arcsinh, "Inverse hyperbolic sine."),
    unary("math.acosh", "float", (0, 1), np.arccosh, "Inverse hyperbolic cosine."),
    unary("math.atanh", "float", (0, 1), np.arctanh, "Inverse hyperbolic tangent."),
    unary("math.erf", "float", (0, 1), each(math.erf), "Error function."),
    unary("math.erfc", "float", (0, 1), each(math.erfc), "One minus the error function."),
    unary("math.erfinv", "float", (0, 1), None, "Inverse of the error function."),
    unary("math.lgamma", "float", (0, 1), each(_lgamma), "Logarithm of the gamma function's absolute value."),
    unary("math.digamma", "float", (0, 1), None, "Derivative of the gamma function's logarithm."),
    unary("math.sinc", "float", (1, 1), np.sinc, "sin(pi x) / (pi x)."),
    unary("math.nan_to_num", "same", (1, 0), None, "Replaces what is not a finite number.", attrs="any? nan, any? posinf, any? neginf, "),
    unary("math.not", "bool", (1, 0), lambda x: ~x.astype(np.bool_), "Logical not.", negate),
    unary("math.bitwise_not", "same", (1, 0), _invert, "Inverts every bit.", lambda call, dim: dim * -1 - 1),
    unary("math.signbit", "bool", (1, 0), np.signbit, "Whether the sign bit is set."),
    unary("math.isnan", "bool", (1, 0), np.isnan, "Whether an element is not a number.", lambda call, dim: 0),
    unary(
        "math.isfinite",
        "bool",
        (1, 0),
        np.isfinite,
        "Whether an element is a finite number.",
        lambda call, dim: 1,
        temporaries=is_finite_rule,
    ),
    op(
        "math.isinf(Tensor x, *, bool detect_positive=True, bool detect_negative=True) -> Tensor",
        Family.ELEMENTWISE,
        infer=result_type_of("bool"),
        cost=per_element(1),
        evaluate=on_first(_is_inf, lambda call, dim: 0),
        temporaries=is_inf_rule,
        summary="Whether an element is infinite.",
    ),
    op(
        "math.round(Tensor x, *, int decimals=0) -> Tensor",
        Family.ELEMENTWISE,
        infer=result_type_of("same"),
        cost=per_element(1),
        evaluate=on_first(_round, _keep),
        summary="Rounds to the nearest number, halves to the even one.",
    ),
    unary("math.angle", "real float", (0, 1), np.angle, "Angle of a complex number."),
)


def _part(name: str, on_array: OnArray, kind: Kind, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(
        f"{name}(Tensor(a) x) -> Tensor(a)",
        Family.VIEW,
        infer=result_type_of(kind),
        cost=free,
        evaluate=on_first(lambda array, _: on_array(array)),
        summary=summary,
        **facts,
    )


_COMPLEX = (
    _part("math.real", np.real, "real", "Real parts, as a view.", strides=layouts.halves_of_complex),
    _part("math.imag", np.imag, "real", "Imaginary parts, as a view.", strides=layouts.halves_of_complex),
    _part("math.conj", np.conj, "same", "Complex conjugate, as a view whose sign is applied when it is read.", strides=layouts.as_operand),
)


def _infer_many(call: OpCall) -> Type:
    types = operands(call)
    if not types:
        raise RuleError(f"{call.spec.name} has no operands")
    return broadcast_type(call, types, result_dtype(types))


def _infer_mean(call: OpCall) -> Type:
    types = operands(call)
    return with_dtype(_infer_many(call), to_float(result_dtype(types)))


def _cost_many(call: OpCall) -> Cost:
    return Cost(elementwise=numel(call.results[0]) * (len(call.types) - 1))


def _many(function: Callable[[Any, Any], Any], on_dims: Callable[[Dim, Dim], Dim]) -> Callable[[OpCall], Known | None]:
    def evaluate(call: OpCall) -> Known | None:
        arrays = [value for value in call.values if value is not None]
        if len(arrays) < len(call.types):
            return None
        return apply(arrays, lambda *parts: reduce(function, parts), lambda *parts: reduce(on_dims, parts), result_element(call))

    return evaluate


def _evaluate_mean(call: OpCall) -> Known | None:
    arrays = [value for value in call.values if value is not None]
    if len(arrays) < len(call.types):
        return None
    return apply(arrays, lambda *parts: reduce(np.add, parts) / len(parts), None, result_element(call))


_VARIADIC = (
    op(
        "math.sum_of(Tensor[] xs) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_many,
        cost=_cost_many,
        evaluate=_many(np.add, lambda a, b: a + b),
        summary="Sum of any number of tensors that broadcast.",
    ),
    op(
        "math.max_of(Tensor[] xs) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_many,
        cost=_cost_many,
        evaluate=_many(np.maximum, dim_max),
        summary="Largest of any number of tensors that broadcast.",
    ),
    op(
        "math.min_of(Tensor[] xs) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_many,
        cost=_cost_many,
        evaluate=_many(np.minimum, dim_min),
        summary="Smallest of any number of tensors that broadcast.",
    ),
    op(
        "math.mean_of(Tensor[] xs) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_mean,
        cost=lambda call: Cost(elementwise=numel(call.results[0]) * len(call.types)),
        evaluate=_evaluate_mean,
        summary="Mean of any number of tensors that broadcast.",
    ),
)

OPS = (*_UNARY, *_COMPLEX, *_VARIADIC)
