"""Differences of two matched nodes: shapes, element types, attributes, weights, FLOPs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from irscope.comparing.side import Side, weights_of
from irscope.ir.graph import Attr, Node, Value
from irscope.ir.spelling import attr_text
from irscope.ir.types import TensorType, Type
from irscope.ops.registry import find_op

ASPECTS = ("operator", "shape", "dtype", "attributes", "weights", "module", "flops")
"""Kinds of difference, in the order in which they are listed."""
_ARROW = " -> "
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two matched nodes."""

    aspect: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """The difference in words."""
        return f"{_short(self.before)}{_ARROW}{_short(self.after)}"


def changes(a: Side, b: Side, one: Node, other: Node) -> list[Change]:
    """Every difference between two matched nodes except their module."""
    found = [*_types(one, other), *_attributes(one, other), *_weights(one, other)]
    flops = a.flops(one), b.flops(other)
    if flops[0] != flops[1]:
        found.append(Change("flops", _number(flops[0]), _number(flops[1])))
    return found


def does_the_same(one: Node, other: Node) -> bool:
    """Whether two matched nodes have the same attributes and weights, apart from sizes."""
    return not any(_attributes(one, other)) and [_weight_key(value) for value in weights_of(one)] == [
        _weight_key(value) for value in weights_of(other)
    ]


def _types(one: Node, other: Node) -> Iterator[Change]:
    for left, right in zip(one.outputs, other.outputs, strict=False):
        if left.type is right.type:
            continue
        first, second = left.type, right.type
        if isinstance(first, TensorType) and isinstance(second, TensorType):
            if first.shape != second.shape:
                yield Change("shape", _shape(first), _shape(second))
            if first.dtype is not second.dtype:
                yield Change("dtype", first.dtype.text, second.dtype.text)
        elif first.text != second.text:
            yield Change("dtype", first.text, second.text)


def _attributes(one: Node, other: Node) -> Iterator[Change]:
    if one.attrs == other.attrs:
        return
    for key in dict.fromkeys((*one.attrs, *other.attrs)):
        left, right = one.attrs.get(key, _MISSING), other.attrs.get(key, _MISSING)
        before, after = _attr_text(one, key, left), _attr_text(other, key, right)
        if before != after:
            yield Change("attributes", f"{key} {before or 'unset'}", after or "unset")


_MISSING = object()


def _attr_text(node: Node, key: str, value: Attr) -> str:
    """The text of an attribute; empty where it is not set, or has its default."""
    if value is _MISSING or value is None:
        return ""
    if isinstance(value, tuple) and value and (all(one == _IDLE.get(key) for one in value) or _follows(node, key, value)):
        return ""
    return "" if value == _default(node.op, key) else attr_text(value)


def _follows(node: Node, key: str, value: Attr) -> bool:
    """Whether an attribute is redundant with the shape of the weight."""
    weight = node.inputs[1] if key == "kernel_shape" and len(node.inputs) > 1 else None
    return weight is not None and isinstance(weight.type, TensorType) and weight.type.shape is not None and weight.type.shape[2:] == value


_IDLE = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
"""Default of every entry of such an attribute."""


def _default(op: str, key: str) -> object:
    spec = find_op(op)
    found = () if spec is None else (parameter.default for parameter in spec.schema.attrs if parameter.name == key)
    default = next(iter(found), None)
    return tuple(default) if isinstance(default, list) else default


def _weights(one: Node, other: Node) -> Iterator[Change]:
    left, right = weights_of(one), weights_of(other)
    if [_weight_key(value) for value in left] == [_weight_key(value) for value in right]:
        return
    names_left, names_right = {value.name: value for value in left}, {value.name: value for value in right}
    for name, value in names_left.items():
        twin = names_right.get(name)
        if twin is not None and _weight_key(twin) != _weight_key(value):
            yield Change("weights", f"{name} {value.type}", str(twin.type))
    gone = [value for name, value in names_left.items() if name not in names_right]
    new = [value for name, value in names_right.items() if name not in names_left]
    for place in range(max(len(gone), len(new))):
        before = gone[place] if place < len(gone) else None
        after = new[place] if place < len(new) else None
        if before is not None and after is not None and before.type is after.type:
            continue  # only the name is another one
        yield Change("weights", _weight(before), _weight(after))


def _weight(value: Value | None) -> str:
    return "none" if value is None else f"{value.name or 'unnamed'} {value.type}"


def _weight_key(value: Value) -> tuple[str | None, Type]:
    return value.name, value.type


def _shape(type_: TensorType) -> str:
    return "[*]" if type_.shape is None else f"[{','.join(map(str, type_.shape))}]"


def _number(value: object) -> str:
    return "unknown" if value is None else str(value)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
