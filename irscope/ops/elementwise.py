"""Functions of each element of one tensor, activation functions among them, and the same of sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, Final, Literal, Unpack

import numpy as np

from irscope.ir.dims import Dim, SymDim, bounds, ceildiv, dim_max, dim_min, equal, exact_div, floordiv, less, less_equal, mod, total_of
from irscope.ir.dtypes import DType
from irscope.ir.types import ScalarType, TensorType, Type
from irscope.ops import layouts, reals
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.ort import in_place, takes, takes_running_result
from irscope.ops.reals import Real
from irscope.ops.rules import broadcast_type, dtype_attr, free, operands, per_element, replaced, result_dtype, to_float, with_dtype
from irscope.ops.scratch.reductions import is_finite_rule, is_inf_rule
from irscope.ops.spec import SIZES, Facts, Family, Infer, Known, OpCall, OpSpec, RuleError, UnknownCost, numel, op
from irscope.ops.values import Array, OnReals, apply, objects

# Integer functions of sizes that may be symbolic. What cannot be decided becomes an unknown with the bounds it has.


def truth(call: OpCall, verdict: bool | None, what: str) -> Dim:
    """1, 0, or an unknown of the two."""
    if verdict is not None:
        return int(verdict)
    return call.unknown(f"whether {what} depends on sizes that are not bound", SIZES, 0, 1)


def float_truth(call: OpCall, verdict: Callable[[Real, Real], bool | None], left: Real, right: Real) -> Dim:
    """1, 0, or an unknown of the two, for floats made of sizes."""
    found = verdict(left, right)
    if found is not None:
        call.note_limits(left, right)
        return int(found)
    sizes = ", ".join(map(str, (*left.sizes, *right.sizes)))
    return call.unknown(f"a comparison of floats depends on {sizes or 'data'}", SIZES, 0, 1)


def is_equal(call: OpCall, left: Dim, right: Dim) -> Dim:
    return truth(call, equal(left, right), f"{left} = {right}")


def is_not_equal(call: OpCall, left: Dim, right: Dim) -> Dim:
    verdict = equal(left, right)
    return truth(call, None if verdict is None else not verdict, f"{left} differs from {right}")


def is_less(call: OpCall, left: Dim, right: Dim) -> Dim:
    return truth(call, less(left, right), f"{left} < {right}")


def is_less_equal(call: OpCall, left: Dim, right: Dim) -> Dim:
    return truth(call, less_equal(left, right), f"{left} <= {right}")


def negate(call: OpCall, value: Dim) -> Dim:
    """Logical not of 0, 1 or a symbol of the two."""
    return 1 - value


def both(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Logical and."""
    return left * right


def either(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Logical or."""
    return dim_max(left, right)


def select(call: OpCall, condition: Dim, chosen: Dim, other: Dim) -> Dim:
    """Return the second where the condition holds, else the third."""
    if not isinstance(condition, SymDim):
        return chosen if condition else other
    if equal(chosen, other) is True:
        return chosen
    low, high = bounds(dim_min(chosen, other))[0], bounds(dim_max(chosen, other))[1]
    return call.unknown(f"it is {chosen} or {other}, by a condition that depends on sizes", SIZES, low, high)


def absolute(call: OpCall, value: Dim) -> Dim:
    return dim_max(value, value * -1)


def sign(call: OpCall, value: Dim) -> Dim:
    return dim_max(dim_min(value, 1), -1)


def floor_div(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Division rounded down."""
    if _is_zero_possible(right):
        return call.unknown(f"{left} is divided by {right}, which may be 0", SIZES, None)
    return floordiv(left, right)


def trunc_div(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Division rounded toward zero, as ONNX and C divide integers."""
    if _is_zero_possible(right):
        exact = exact_div(left, right)
        return call.unknown(f"{left} is divided by {right}, which may be 0", SIZES, None) if exact is None else exact
    if less(right, 0) is True:
        left, right = -left, -right
    # One of the two is 0, by the sign of the dividend.
    return dim_max(floordiv(left, right), 0) + dim_min(ceildiv(left, right), 0)


def floor_mod(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Remainder with the divisor's sign."""
    if _is_zero_possible(right):
        return call.unknown(f"{left} is divided by {right}, which may be 0", SIZES, None)
    return mod(left, right)


def trunc_mod(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Remainder with the dividend's sign."""
    return left - trunc_div(call, left, right) * right


def power(call: OpCall, base: Dim, exponent: Dim) -> Dim:
    if isinstance(exponent, SymDim) or not 0 <= exponent <= 8:
        return call.unknown(f"{base} to the power {exponent} is not a polynomial", SIZES, None)
    result: Dim = 1
    for _ in range(exponent):
        result = result * base
    return result


def _is_zero_possible(value: Dim) -> bool:
    low, high = bounds(value)
    return (low is None or low <= 0) and (high is None or high >= 0)


# Functions of one tensor, element by element, and sums and extremes of many tensors of one shape.

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


def on_first(
    on_array: Callable[[Array, OpCall], Any], on_dim: OnDim | None = None, on_reals: OnReals | None = None
) -> Callable[[OpCall], Known | None]:
    """Evaluate rule: a function of the first operand's elements; attributes come from the call."""

    def evaluate(call: OpCall) -> Known | None:
        x = call.values[0]
        if x is None:
            return None
        dtype = result_element(call)
        if dtype.is_float and x.dtype.kind in "iub":
            x = x.astype(np.float64)
        dims = None if on_dim is None else lambda dim: on_dim(call, dim)
        return apply([x], lambda array: on_array(array, call), dims, dtype, on_reals)

    return evaluate


def each(function: Callable[[float], float]) -> OnArray:
    """Return a function of Python floats, applied to each element."""
    return lambda array: objects(map(function, array.reshape(-1).tolist()), array.shape).astype(np.float64)


def unary(
    name: str,
    kind: Kind,
    costs: tuple[int, int],
    on_array: OnArray | None,
    summary: str,
    on_dim: OnDim | None = None,
    attrs: str = "",
    on_reals: OnReals | None = None,
    **facts: Unpack[Facts],
) -> OpSpec:
    """Return a record of a function of one tensor; `costs` are elementwise and transcendental operations an element."""
    return op(
        f"{name}(Tensor x, *, {attrs}dtype? dtype) -> Tensor",
        Family.ELEMENTWISE,
        infer=result_type_of(kind),
        cost=per_element(*costs),
        evaluate=None if on_array is None else on_first(lambda array, _: on_array(array), on_dim, on_reals),
        summary=summary,
        **facts,
    )


def _keep(call: OpCall, dim: Dim) -> Dim:
    return dim


def _lgamma(value: float) -> float:
    return math.inf if value <= 0 and value == int(value) else math.lgamma(value)


def _round(array: Array, call: OpCall) -> Any:
    return np.round(array, call.int_attr("decimals"))


def _is_inf(array: Array, call: OpCall) -> Any:
    if array.dtype.kind not in "fc":
        return np.zeros(array.shape, dtype=np.bool_)
    return (np.isposinf(array) & bool(call.attr("detect_positive"))) | (np.isneginf(array) & bool(call.attr("detect_negative")))


_UNARY = (
    unary(
        "math.neg",
        "same",
        (1, 0),
        np.negative,
        "Changes the sign.",
        lambda call, dim: dim * -1,
        on_reals=reals.negative,
        roles=frozenset({OpRole.NEGATE}),
    ),
    unary("math.abs", "real", (1, 0), np.abs, "Absolute value.", absolute, on_reals=reals.absolute, roles=frozenset({OpRole.ABSOLUTE})),
    unary("math.sign", "same", (1, 0), np.sign, "-1, 0 or 1 by the sign.", sign),
    unary("math.floor", "same", (1, 0), np.floor, "Rounds down.", _keep, on_reals=reals.floor),
    unary("math.ceil", "same", (1, 0), np.ceil, "Rounds up.", _keep, on_reals=reals.ceil),
    unary("math.trunc", "same", (1, 0), np.trunc, "Rounds toward zero.", _keep, on_reals=reals.trunc),
    unary("math.frac", "same", (1, 0), lambda x: x - np.trunc(x), "The part after the decimal point."),
    unary(
        "math.square",
        "same",
        (1, 0),
        np.square,
        "Multiplies by itself.",
        lambda call, dim: dim * dim,
        on_reals=lambda x, bits: reals.multiply(x, x, bits),
        roles=frozenset({OpRole.POWER}),
    ),
    unary(
        "math.reciprocal",
        "float",
        (1, 0),
        lambda x: 1 / x,
        "One divided by each element.",
        on_reals=lambda x, bits: reals.divide(Real(1), x, bits),
    ),
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
    unary("math.bitwise_not", "same", (1, 0), lambda array: np.invert(array), "Inverts every bit.", lambda call, dim: dim * -1 - 1),
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
        evaluate=lambda call: on_first(_round, _keep, None if call.int_attr("decimals") else reals.nearest)(call),
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


def _many(
    function: Callable[[Any, Any], Any], on_dims: Callable[[Dim, Dim], Dim], on_reals: Callable[[Real, Real, int], Real]
) -> Callable[[OpCall], Known | None]:
    def evaluate(call: OpCall) -> Known | None:
        arrays = [value for value in call.values if value is not None]
        if len(arrays) < len(call.types):
            return None
        return apply(
            arrays,
            lambda *parts: reduce(function, parts),
            lambda *parts: reduce(on_dims, parts),
            result_element(call),
            lambda *parts: reduce(lambda a, b: on_reals(a, b, parts[-1]), parts[:-1]),
        )

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
        evaluate=_many(np.add, lambda a, b: a + b, reals.add),
        summary="Sum of any number of tensors that broadcast.",
        ort=takes(takes_running_result, "Sum"),
    ),
    op(
        "math.max_of(Tensor[] xs) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_many,
        cost=_cost_many,
        evaluate=_many(np.maximum, dim_max, reals.largest),
        summary="Largest of any number of tensors that broadcast.",
        ort=takes(takes_running_result, "Max"),
    ),
    op(
        "math.min_of(Tensor[] xs) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_many,
        cost=_cost_many,
        evaluate=_many(np.minimum, dim_min, reals.smallest),
        summary="Smallest of any number of tensors that broadcast.",
        ort=takes(takes_running_result, "Min"),
    ),
    op(
        "math.mean_of(Tensor[] xs) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_mean,
        cost=lambda call: Cost(elementwise=numel(call.results[0]) * len(call.types)),
        evaluate=_evaluate_mean,
        summary="Mean of any number of tensors that broadcast.",
        ort=takes(takes_running_result, "Mean"),
    ),
)

_ELEMENTWISE = (*_UNARY, *_COMPLEX, *_VARIADIC)


# Activation functions. Costs count the operations of each formula, exp and its like as transcendental.


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Any, beta: float, threshold: float | None) -> Any:
    return np.where(x * beta > (np.inf if threshold is None else threshold), x, np.logaddexp(0, x * beta) / beta)


def _gelu(x: Array, call: OpCall) -> Any:
    if call.attr("approximate") == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + each(math.erf)(x / math.sqrt(2)))


def _shrink(x: Array, call: OpCall) -> Any:
    limit, bias = call.attr("lambd"), call.attr("bias")
    return np.where(x < -limit, x + bias, np.where(x > limit, x - bias, 0))


def _celu(x: Array, alpha: float) -> Any:
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0)


def activation(
    name: str,
    attrs: str,
    costs: tuple[int, int],
    function: Callable[[Array, OpCall], Any],
    summary: str,
    on_dim: Callable[[OpCall, Dim], Dim] | None = None,
    **facts: Unpack[Facts],
) -> OpSpec:
    """Return a record of an activation function; `costs` are elementwise and transcendental operations an element."""
    return op(
        f"nn.{name}(Tensor x{', *, ' + attrs if attrs else ''}) -> Tensor",
        Family.ELEMENTWISE,
        infer=result_type_of("same" if on_dim is not None else "float"),
        cost=per_element(*costs),
        evaluate=on_first(function, on_dim),
        summary=summary,
        **facts,
    )


_SIMPLE = (
    activation(
        "relu",
        "",
        (1, 0),
        lambda x, call: np.maximum(x, 0),
        "max(x, 0).",
        lambda call, dim: dim_max(dim, 0),
        ort=in_place("Relu"),
        gated_unit="reglu",
    ),
    activation("relu6", "", (2, 0), lambda x, call: np.clip(x, 0, 6), "x limited to 0 ... 6."),
    activation(
        "leaky_relu",
        "float alpha=0.01",
        (2, 0),
        lambda x, call: np.where(x < 0, x * call.attr("alpha"), x),
        "x, scaled by alpha where negative.",
        ort=in_place("LeakyRelu"),
    ),
    activation(
        "thresholded_relu",
        "float alpha=1.0, float value=0.0",
        (1, 0),
        lambda x, call: np.where(x > call.attr("alpha"), x, call.attr("value")),
        "x where it is above alpha, else a fixed value.",
        ort=in_place("ThresholdedRelu"),
    ),
    activation(
        "elu",
        "float alpha=1.0, float scale=1.0, float input_scale=1.0",
        (3, 1),
        lambda x, call: call.attr("scale") * np.where(x < 0, call.attr("alpha") * np.expm1(np.minimum(x, 0) * call.attr("input_scale")), x),
        "x, alpha (exp(x) - 1) where negative.",
        ort=in_place("Elu"),
    ),
    activation(
        "selu",
        "float alpha=1.6732632423543772, float gamma=1.0507009873554805",
        (4, 1),
        lambda x, call: call.attr("gamma") * np.where(x < 0, call.attr("alpha") * np.expm1(np.minimum(x, 0)), x),
        "ELU with the alpha and scale that keep mean and variance.",
        ort=in_place("Selu"),
    ),
    activation(
        "celu",
        "float alpha=1.0",
        (4, 1),
        lambda x, call: _celu(x, call.attr("alpha")),
        "ELU that is smooth for every alpha.",
        ort=in_place("Celu"),
    ),
    activation(
        "gelu",
        "str approximate='none'",
        (4, 1),
        _gelu,
        "x times the normal distribution function, exact or with approximate='tanh'.",
        gated_unit="geglu",
    ),
    activation(
        "quick_gelu",
        "float alpha=1.702",
        (2, 1),
        lambda x, call: x * _sigmoid(x * call.attr("alpha")),
        "x sigmoid(alpha x).",
        gated_unit="geglu",
    ),
    activation("silu", "", (1, 1), lambda x, call: x * _sigmoid(x), "x sigmoid(x).", gated_unit="swiglu"),
    activation(
        "swish",
        "float alpha=1.0",
        (2, 1),
        lambda x, call: x * _sigmoid(x * call.attr("alpha")),
        "x sigmoid(alpha x).",
        gated_unit="swiglu",
    ),
    activation("mish", "", (1, 2), lambda x, call: x * np.tanh(np.logaddexp(0, x)), "x tanh(softplus(x))."),
    activation("sigmoid", "", (0, 1), lambda x, call: _sigmoid(x), "1 / (1 + exp(-x)).", ort=in_place("Sigmoid"), gated_unit="glu"),
    activation("logsigmoid", "", (0, 1), lambda x, call: -np.logaddexp(0, -x), "Logarithm of the sigmoid."),
    activation(
        "hardsigmoid",
        "float alpha=0.2, float beta=0.5",
        (4, 0),
        lambda x, call: np.clip(x * call.attr("alpha") + call.attr("beta"), 0, 1),
        "alpha x + beta limited to 0 ... 1.",
        ort=in_place("HardSigmoid"),
    ),
    activation("hardswish", "", (5, 0), lambda x, call: x * np.clip(x / 6 + 0.5, 0, 1), "x hardsigmoid(x) with slope 1/6."),
    activation(
        "hardtanh",
        "float min_value=-1.0, float max_value=1.0",
        (2, 0),
        lambda x, call: np.clip(x, call.attr("min_value"), call.attr("max_value")),
        "x limited to a range.",
    ),
    activation(
        "softplus",
        "float beta=1.0, float? threshold",
        (1, 1),
        lambda x, call: _softplus(x, call.attr("beta"), call.attr("threshold")),
        "log(1 + exp(x)).",
        ort=in_place("Softplus"),
    ),
    activation("softsign", "", (3, 0), lambda x, call: x / (1 + np.abs(x)), "x / (1 + |x|).", ort=in_place("Softsign")),
    activation(
        "hardshrink", "float lambd=0.5", (1, 0), lambda x, call: np.where(np.abs(x) > call.attr("lambd"), x, 0), "x, zero near zero."
    ),
    activation(
        "softshrink",
        "float lambd=0.5",
        (2, 0),
        lambda x, call: np.sign(x) * np.maximum(np.abs(x) - call.attr("lambd"), 0),
        "x moved toward zero by lambd.",
    ),
    activation(
        "shrink", "float lambd=0.5, float bias=0.0", (2, 0), _shrink, "x moved toward zero by bias, zero near zero.", ort=in_place("Shrink")
    ),
    activation("tanhshrink", "", (1, 1), lambda x, call: x - np.tanh(x), "x - tanh(x)."),
)


def _infer_prelu(call: OpCall) -> Type:
    x, slope = call.tensor("x"), call.tensor("slope")
    if not call.attr("per_channel"):
        return broadcast_type(call, [x, slope], x.dtype)
    return x.with_shape(x.shape)


def _evaluate_prelu(call: OpCall) -> Known | None:
    x, slope = call.value("x"), call.value("slope")
    if x is None or slope is None:
        return None
    if call.attr("per_channel") and x.ndim > 1:
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return apply([x, slope], lambda a, b: np.where(a < 0, a * b, a), None, call.dtype("x"))


def _infer_glu(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    axis = call.axis(call.int_attr("axis"), len(x.shape))
    call.same(mod(x.shape[axis], 2), 0, "the axis that is halved has an even size")
    return x.with_shape(replaced(x.shape, axis, floordiv(x.shape[axis], 2)))


def _infer_gated(call: OpCall) -> Type:
    types = operands(call)
    return broadcast_type(call, types, result_dtype(types))


_GATED = (
    op(
        "nn.prelu(Tensor x, Tensor slope, *, bool per_channel=False) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_prelu,
        cost=per_element(2),
        evaluate=_evaluate_prelu,
        summary="x, scaled where negative by a slope that broadcasts, or with `per_channel` belongs to axis 1.",
    ),
    op(
        "nn.glu(Tensor x, *, int axis=-1) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_glu,
        cost=per_element(1, 1),
        summary="The first half of an axis times the sigmoid of the second.",
    ),
    op(
        "nn.swiglu(Tensor x, Tensor gate, *, float alpha=1.0) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_gated,
        cost=per_element(3, 1),
        summary="swish(x) times a gate.",
    ),
)

_ACTIVATION = (*_SIMPLE, *_GATED)

# Kernels that a compiler generated of several operators: it says what they compute and move.

_COUNTED: Final = ("matmul", "elementwise", "transcendental", "reduction")


def _dim(call: OpCall, name: str) -> Dim:
    found = call.attrs[name]
    if not isinstance(found, int | SymDim):
        raise UnknownCost
    return found


def _cost_generated(call: OpCall) -> Cost:
    """Return what the generated loops compute, and the bytes that the compiler says they read and write."""
    if any(call.attrs.get(name) is None for name in _COUNTED):
        raise UnknownCost
    matmul, elementwise, transcendental, reduction = [_dim(call, name) for name in _COUNTED]
    touched = call.attrs.get("bytes")
    written = total_of(result.tensor_bytes for result in call.results)
    if not isinstance(touched, int | SymDim) or written is None:
        return Cost(matmul, elementwise, transcendental, reduction, macs=matmul // 2)
    if isinstance(touched, int) and isinstance(written, int):
        written = min(written, touched)
    return Cost(matmul, elementwise, transcendental, reduction, macs=matmul // 2, read=touched - written, written=written)


_GENERATED = (
    op(
        "compiled.kernel(Tensor[] operands, *, str kernel='', str[] operators=[], str[] lines=[], int? bytes, int? matmul, "
        "int? elementwise, int? transcendental, int? reduction) -> (Tensor y, Tensor[] more)",
        Family.ELEMENTWISE,
        infer=lambda call: list(call.results),
        cost=_cost_generated,
        summary="A kernel that a compiler generated: several operators in one pass over memory.",
        roles=frozenset({OpRole.GENERATED}),
    ),
)


OPS = (*_ELEMENTWISE, *_ACTIVATION, *_GENERATED)
