"""Attributes of ONNX nodes as Python values."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeAlias

import onnx

AttrValue: TypeAlias = (
    "int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | onnx.TensorProto | onnx.GraphProto"
    " | onnx.SparseTensorProto | onnx.TypeProto | tuple[onnx.TensorProto, ...] | tuple[onnx.GraphProto, ...] | None"
)

_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS, _TENSORS, _GRAPHS, _SPARSE = range(1, 12)
_FIELDS_BY_GUESS = ("ints", "floats", "strings", "t", "g", "s", "f")
_TYPES_BY_FIELD = {"ints": _INTS, "floats": _FLOATS, "strings": _STRINGS, "t": _TENSOR, "g": _GRAPH, "s": _STRING, "f": _FLOAT}
_MOST_ROUNDED = 64


def decode(attribute: onnx.AttributeProto) -> AttrValue:
    """The value of an attribute; None for kinds that no operator here uses."""
    kind = attribute.type or _guess(attribute)
    if kind == _INT:
        return int(attribute.i)
    if kind == _INTS:
        return tuple(attribute.ints)
    reader = _READERS.get(kind)
    return reader(attribute) if reader is not None else None


def floats(values: Iterable[float]) -> tuple[float, ...]:
    """Single-precision numbers, with few digits where there are few of them."""
    found = tuple(values)
    return tuple([short_float(value) for value in found]) if len(found) <= _MOST_ROUNDED else found


@lru_cache(maxsize=4096)
def short_float(value: float) -> float:
    """The number with the fewest digits that is this one in single precision: 0.1 rather than 0.10000000149011612."""
    if value.is_integer():
        return value
    for digits in range(6, 9):
        try:
            shorter = float(f"{value:.{digits}g}")
            if struct.unpack("f", struct.pack("f", shorter))[0] == value:
                return shorter
        except OverflowError:
            return value
    return value


_READERS: dict[int, Callable[[onnx.AttributeProto], AttrValue]] = {
    _FLOAT: lambda attribute: short_float(attribute.f),
    _STRING: lambda attribute: attribute.s.decode("utf-8", "replace"),
    _TENSOR: lambda attribute: attribute.t,
    _GRAPH: lambda attribute: attribute.g,
    _FLOATS: lambda attribute: floats(attribute.floats),
    _STRINGS: lambda attribute: tuple([text.decode("utf-8", "replace") for text in attribute.strings]),
    _TENSORS: lambda attribute: tuple(attribute.tensors),
    _GRAPHS: lambda attribute: tuple(attribute.graphs),
    _SPARSE: lambda attribute: attribute.sparse_tensor,
    13: lambda attribute: attribute.tp,
}


def _guess(attribute: onnx.AttributeProto) -> int:
    """The kind of an attribute of a model older than IR version 2, which does not say it."""
    for field in _FIELDS_BY_GUESS:
        value = getattr(attribute, field)
        if field in ("t", "g", "s", "f"):
            if attribute.HasField(field):
                return _TYPES_BY_FIELD[field]
        elif len(value):
            return _TYPES_BY_FIELD[field]
    return _INT
