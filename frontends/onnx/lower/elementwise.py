"""Functions of elements: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call, Mismatch, Operand
from irscope.frontends.onnx.elements import DTYPES_BY_NAME
from irscope.frontends.onnx.lower.rules import Lower, Table, direct, element_type, flag, integer, number, read, text
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr

_NUMPY_BROADCASTING = 7
"""From this operator set on, operands broadcast as in numpy; before, an attribute said where the second one lies."""


def sides(call: Call) -> list[Operand]:
    """Both operands of a binary operator, the second with axes added where an old model says on which it lies."""
    if call.version < _NUMPY_BROADCASTING and call.has("axis") and call.flag("broadcast"):
        axis = call.integer("axis")
        aligned = call.value("view.align", [call.needed(1), call.needed(0)], {"axis": axis})
        return [call.operand(0), aligned]
    return call.inputs


def binary(op: str, **fixed: Attr) -> Lower:
    """A function of two tensors that broadcast."""

    def lower(call: Call) -> None:
        call.emit(op, sides(call), fixed)

    return lower


def many(op: str) -> Lower:
    """A function of any number of tensors; of one it is that tensor."""

    def lower(call: Call) -> None:
        if len(call.inputs) == 1:
            call.emit("view.alias", call.inputs)
        else:
            call.emit(op, call.inputs)

    return lower


def _div(call: Call) -> None:
    # Integers are divided as C does it, floats exactly; which of the two is known only with the types.
    call.emit("math.div", sides(call), {"rounding_mode": "integer"})


def _pow(call: Call) -> None:
    base, exponent = sides(call)[:2] if len(call.inputs) >= 2 else (call.needed(0), call.needed(1))
    power = call.value("math.pow", [base, exponent])
    call.last("tensor.cast_like", [power, base])


def _shift(call: Call) -> None:
    direction = call.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise Mismatch(f"the direction {direction!r} is neither LEFT nor RIGHT")
    call.emit("math.shift_left" if direction == "LEFT" else "math.shift_right", call.inputs)


def _clip(call: Call) -> None:
    if call.version >= 11:
        call.emit("math.clamp", call.inputs)
    else:
        call.emit("math.clamp", call.inputs[:1], read(call, number("min", to="min_value"), number("max", to="max_value")))


def _cast(call: Call) -> None:
    to = call.attrs.get("to")
    if isinstance(to, str):
        dtype = DTYPES_BY_NAME.get(to.upper())
        if dtype is None:
            raise Mismatch(f"there is no element type {to!r}")
        call.emit("tensor.cast", call.inputs, {"to": dtype})
        return
    dtype = call.dtype("to")
    if dtype is None:
        raise Mismatch("attribute to is absent")
    call.emit("tensor.cast", call.inputs, read(call, flag("saturate"), text("round_mode"), to=dtype))


def _bitcast(call: Call) -> None:
    dtype = call.dtype("to")
    if dtype is None:
        raise Mismatch("attribute to is absent")
    call.emit("tensor.bitcast", call.inputs, {"to": dtype})


def _dropout(call: Call) -> None:
    attrs: dict[str, Attr] = {"p": 0.5, "training": False}
    if call.version >= 12:
        call.emit("nn.dropout", call.inputs, {"training": False} if call.operand(1) is not None else attrs)
        return
    attrs["p"] = call.number("ratio", 0.5)
    if call.version < 7:
        attrs["training"] = not call.flag("is_test")
    call.emit("nn.dropout", call.inputs[:1], attrs)


def _prelu(call: Call) -> None:
    call.emit("nn.prelu", call.inputs, {"per_channel": True} if call.version < _NUMPY_BROADCASTING else None)


def _random(op: str, **defaults: float) -> Lower:
    rules = [number(name, default) for name, default in defaults.items()]
    return direct(op, *rules, element_type("dtype"))


def _random_of_shape(op: str, **defaults: float) -> Lower:
    rules = [number(name, default) for name, default in defaults.items()]

    def lower(call: Call) -> None:
        shape = call.integers("shape")
        if shape is None:
            raise Mismatch("attribute shape is absent")
        call.emit(op, (), read(call, *rules, element_type("dtype", DType.F32), shape=shape))

    return lower


TABLE: Table = {
    **{
        name: direct(op)
        for name, op in {
            "Abs": "math.abs",
            "Acos": "math.acos",
            "Acosh": "math.acosh",
            "Asin": "math.asin",
            "Asinh": "math.asinh",
            "Atan": "math.atan",
            "Atanh": "math.atanh",
            "BitwiseNot": "math.bitwise_not",
            "Ceil": "math.ceil",
            "Cos": "math.cos",
            "Cosh": "math.cosh",
            "Erf": "math.erf",
            "Exp": "math.exp",
            "Floor": "math.floor",
            "HardSwish": "nn.hardswish",
            "IsNaN": "math.isnan",
            "Log": "math.log",
            "Mish": "nn.mish",
            "Neg": "math.neg",
            "Not": "math.not",
            "Reciprocal": "math.reciprocal",
            "Relu": "nn.relu",
            "Round": "math.round",
            "Sigmoid": "nn.sigmoid",
            "Sign": "math.sign",
            "Sin": "math.sin",
            "Sinh": "math.sinh",
            "Softplus": "nn.softplus",
            "Softsign": "nn.softsign",
            "Sqrt": "math.sqrt",
            "Tan": "math.tan",
            "Tanh": "math.tanh",
            "Where": "math.where",
            "Identity": "view.alias",
        }.items()
    },
    **{
        name: binary(op)
        for name, op in {
            "Add": "math.add",
            "And": "math.and",
            "BitwiseAnd": "math.bitwise_and",
            "BitwiseOr": "math.bitwise_or",
            "BitwiseXor": "math.bitwise_xor",
            "Equal": "compare.equal",
            "Greater": "compare.greater",
            "GreaterOrEqual": "compare.greater_equal",
            "Less": "compare.less",
            "LessOrEqual": "compare.less_equal",
            "Mul": "math.mul",
            "Or": "math.or",
            "Sub": "math.sub",
            "Xor": "math.xor",
        }.items()
    },
    "Div": _div,
    "Pow": _pow,
    "Mod": direct("math.mod", flag("fmod", False)),
    "BitShift": _shift,
    "Max": many("math.max_of"),
    "Min": many("math.min_of"),
    "Sum": many("math.sum_of"),
    "Mean": many("math.mean_of"),
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": direct("tensor.cast_like", flag("saturate"), text("round_mode")),
    "BitCast": _bitcast,
    "Dropout": _dropout,
    "PRelu": _prelu,
    "Celu": direct("nn.celu", number("alpha", 1.0)),
    "Elu": direct("nn.elu", number("alpha", 1.0)),
    "Gelu": direct("nn.gelu", text("approximate", "none")),
    "HardSigmoid": direct("nn.hardsigmoid", number("alpha", 0.2), number("beta", 0.5)),
    "IsInf": direct("math.isinf", flag("detect_negative", True), flag("detect_positive", True)),
    "LeakyRelu": direct("nn.leaky_relu", number("alpha", 0.01)),
    "Selu": direct("nn.selu", number("alpha", 1.6732632), number("gamma", 1.050701)),
    "Shrink": direct("nn.shrink", number("bias", 0.0), number("lambd", 0.5)),
    "SwiGLU": direct("nn.swiglu", number("alpha", 1.0)),
    "Swish": direct("nn.swish", number("alpha", 1.0)),
    "ThresholdedRelu": direct("nn.thresholded_relu", number("alpha", 1.0)),
    "Bernoulli": direct("random.bernoulli", element_type("dtype")),
    "Multinomial": direct("random.multinomial", integer("sample_size", 1, to="samples"), element_type("dtype")),
    "RandomNormal": _random_of_shape("random.normal", mean=0.0, scale=1.0),
    "RandomUniform": _random_of_shape("random.uniform", low=0.0, high=1.0),
    "RandomNormalLike": _random("random.normal_like", mean=0.0, scale=1.0),
    "RandomUniformLike": _random("random.uniform_like", low=0.0, high=1.0),
}
