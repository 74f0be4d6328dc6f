"""Activation functions. Costs count the operations of each formula, exp and its like as transcendental."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from irscope.ir.dims import Dim, dim_max, floordiv, mod
from irscope.ir.types import TensorType, Type
from irscope.ops import slicing
from irscope.ops.elementwise import each, on_first, result_type_of
from irscope.ops.ort import halves, in_place
from irscope.ops.promotion import result_dtype
from irscope.ops.rules import broadcast_type, operands, per_element
from irscope.ops.sizes import replaced
from irscope.ops.spec import Facts, Family, Known, OpCall, OpSpec, op
from irscope.ops.values import Array, apply


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
    """A record of an activation function; `costs` are elementwise and transcendental operations an element."""
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
        ort=halves("Swish"),
        gated_unit="swiglu",
    ),
    activation("mish", "", (1, 2), lambda x, call: x * np.tanh(np.logaddexp(0, x)), "x tanh(softplus(x)).", ort=halves("Mish")),
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
    activation(
        "hardswish", "", (5, 0), lambda x, call: x * np.clip(x / 6 + 0.5, 0, 1), "x hardsigmoid(x) with slope 1/6.", ort=halves("HardSwish")
    ),
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
        slices=slicing.prelu,
    ),
    op(
        "nn.glu(Tensor x, *, int axis=-1) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_glu,
        cost=per_element(1, 1),
        summary="The first half of an axis times the sigmoid of the second.",
        slices=slicing.needs_all,
    ),
    op(
        "nn.swiglu(Tensor x, Tensor gate, *, float alpha=1.0) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer_gated,
        cost=per_element(3, 1),
        summary="swish(x) times a gate.",
        slices=slicing.needs_all,
    ),
)

OPS = (*_SIMPLE, *_GATED)
