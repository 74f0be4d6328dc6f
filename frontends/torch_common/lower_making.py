"""Tensors made from nothing, and random ones."""

from __future__ import annotations

from irscope.frontends.torch_common.lowering import AtenCall, CannotLower, Lowered, Rule
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Value
from irscope.ir.types import TensorType

TEMPLATES: dict[str, str] = {
    "zeros_like": "tensor.full_like self ; fill:0 dtype device",
    "ones_like": "tensor.full_like self ; fill:1 dtype device",
    "full_like": "tensor.full_like self ; fill=fill_value dtype device",
    "empty_like": "tensor.empty_like self ; dtype device",
    "zero": "tensor.full_like self ; fill:0",
    "rand_like": "random.uniform_like self ; dtype device",
    "randn_like": "random.normal_like self ; dtype device",
    "eye": "tensor.eye ; rows=n dtype device",
    "eye.m": "tensor.eye ; rows=n columns=m dtype device",
    "hann_window": "tensor.window ; size=window_length kind:hann periodic dtype device",
    "hamming_window": "tensor.window ; size=window_length kind:hamming periodic dtype device",
    "one_hot": "tensor.one_hot self ; depth=num_classes",
    "bernoulli": "random.bernoulli self",
    "bernoulli.p": "random.bernoulli self ; p",
    "multinomial": "random.multinomial self ; samples=num_samples replacement",
    "item": "tensor.item self",
    "_local_scalar_dense": "tensor.item self",
    "is_nonzero": "tensor.item self",
}

_DEFAULT = DType.F32


def _number_dtype(*numbers: object) -> DType:
    """The element type that PyTorch gives to numbers."""
    if any(isinstance(number, complex) for number in numbers):
        return DType.C64
    if any(isinstance(number, float) for number in numbers):
        return _DEFAULT
    return DType.BOOL if all(isinstance(number, bool) for number in numbers) else DType.I64


def _options(call: AtenCall, default: DType) -> dict[str, Attr]:
    dtype = call["dtype"]
    attrs: dict[str, Attr] = {"dtype": dtype if isinstance(dtype, DType) else default}
    if call.has("device"):
        attrs["device"] = call["device"]
    return attrs


def _filled(fill: int | None) -> Rule:
    """zeros, ones, empty and their `new_` forms, which take the element type of a tensor."""

    def rule(call: AtenCall) -> Lowered:
        value: object = fill
        default = _DEFAULT
        if call.has("fill_value"):
            value = call["fill_value"]
            default = _number_dtype(value)
        source = call["self"]
        if isinstance(source, Value):
            if not isinstance(source.type, TensorType):
                raise CannotLower("the element type is unknown")
            default = source.type.dtype
        attrs: dict[str, Attr] = {"shape": call.dims("size"), **_options(call, default)}
        # Nothing of `source` is read, but it lives until then.
        like = (source,) if isinstance(source, Value) else ()
        if value is None:
            return Lowered("tensor.empty", (None, *like) if like else (), attrs)
        if isinstance(value, Value):
            return Lowered("tensor.full", (None, value, *like), attrs)
        return Lowered("tensor.full", (None, None, *like) if like else (), {**attrs, "fill": value})

    return rule


def _arange(call: AtenCall) -> Lowered:
    """Bounds are numbers, or tensors that hold one."""
    bounds = {
        "start": 0 if call["start"] is None else call["start"],
        "limit": call["end"],
        "delta": 1 if call["step"] is None else call["step"],
    }
    inputs = [bound if isinstance(bound, Value) else None for bound in bounds.values()]
    attrs: dict[str, Attr] = {}
    numbers: list[object] = []
    for name, bound in bounds.items():
        if isinstance(bound, Value):
            numbers.append(0.0 if bound.type.dtype.is_float else 0)
        elif isinstance(bound, int | float | SymDim):
            attrs[name] = bound
            numbers.append(bound)
        else:
            raise CannotLower("bounds are no numbers")
    return Lowered("tensor.arange", inputs, {**attrs, **_options(call, _number_dtype(*numbers))})


def _scalar_tensor(call: AtenCall) -> Lowered:
    value = next((call[name] for name in ("s", "t", "data") if call.has(name)), None)
    if isinstance(value, Value):
        return Lowered("tensor.from_scalar", (value,), {"dtype": call["dtype"]} if call.has("dtype") else {})
    if not isinstance(value, bool | int | float | SymDim):
        raise CannotLower("no number")
    default = _DEFAULT if call.signature.name == "scalar_tensor" else _number_dtype(value)
    return Lowered("tensor.full", (), {"shape": (), "fill": value, **_options(call, default)})


def _linspace(call: AtenCall) -> Lowered:
    attrs = {"start": call["start"], "limit": call["end"], "steps": call["steps"], **_options(call, _DEFAULT)}
    if any(isinstance(value, Value) for value in attrs.values()):
        raise CannotLower("bounds are tensors")
    return Lowered("tensor.linspace", (), attrs)


def _random(op: str, default: DType) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        attrs: dict[str, Attr] = {"shape": call.dims("size"), **_options(call, default)}
        for name in ("low", "high"):
            if call.has(name):
                attrs[name] = call[name]
        return Lowered(op, (), attrs)

    return rule


def _fill(call: AtenCall) -> Lowered:
    value = call["value"]
    if isinstance(value, Value):
        return Lowered("tensor.full_like", (call.tensor("self"), value), {})
    return Lowered("tensor.full_like", (call.tensor("self"),), {"fill": value})


def _permutation(call: AtenCall) -> Lowered:
    count = call["n"]
    if not isinstance(count, int | SymDim):
        raise CannotLower("the count is no number")
    return Lowered("random.randperm", (), {"count": count, **_options(call, DType.I64)})


def _in_place_random(op: str) -> Rule:
    return lambda call: Lowered(op, (call.tensor("self"),), {})


def _dropout(call: AtenCall) -> Lowered:
    """The in-place form calls its tensor `self`."""
    x = call.maybe("input") or call.tensor("self")
    return Lowered("nn.dropout", (x,), {"p": call["p"], "training": call.flag("train")})


RULES: dict[str, Rule] = {
    "dropout": _dropout,
    "feature_dropout": _dropout,
    "alpha_dropout": _dropout,
    "native_dropout": _dropout,
    "zeros": _filled(0),
    "ones": _filled(1),
    "full": _filled(0),
    "empty": _filled(None),
    "empty_permuted": _filled(None),
    "empty_strided": _filled(None),
    "new_zeros": _filled(0),
    "new_ones": _filled(1),
    "new_full": _filled(0),
    "new_empty": _filled(None),
    "arange": _arange,
    "scalar_tensor": _scalar_tensor,
    "tensor": _scalar_tensor,
    "linspace": _linspace,
    "rand": _random("random.uniform", _DEFAULT),
    "randn": _random("random.normal", _DEFAULT),
    "randint": _random("random.randint", DType.I64),
    "randperm": _permutation,
    "fill": _fill,
    "uniform": _in_place_random("random.uniform_like"),
    "normal": _in_place_random("random.normal_like"),
}
