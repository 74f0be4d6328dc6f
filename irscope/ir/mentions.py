"""Which tensor types and symbols a program mentions."""

from __future__ import annotations

from dataclasses import dataclass

from irscope.ir.dims import SymDim
from irscope.ir.graph import Attr
from irscope.ir.program import Program
from irscope.ir.types import MapType, OptionalType, SequenceType, TensorType, TupleType, Type

PLAIN = frozenset({bool, int, float, complex, str, type(None)})
"""Types of attribute values that hold nothing else; most attributes are of these."""


@dataclass(frozen=True, slots=True)
class Mentions:
    """What occurs in the types and attributes of a program, each once, in the order in which it first occurs."""

    tensors: list[TensorType]
    symbols: list[SymDim]


def mentions(program: Program) -> Mentions:
    """The tensor types and symbols in a program, also those inside other types and inside attributes."""
    tensors: dict[TensorType, None] = {}
    dims: dict[SymDim, None] = {}
    for item in _types_and_sizes(program):
        if isinstance(item, SymDim):
            dims[item] = None
            continue
        for tensor in _tensors(item):
            tensors[tensor] = None
            strides = tensor.layout if isinstance(tensor.layout, tuple) else ()
            dims.update([(size, None) for size in (*(tensor.shape or ()), *strides) if isinstance(size, SymDim)])
    return Mentions(list(tensors), list(dict.fromkeys(symbol for dim in dims for symbol in dim.symbols())))


def _types_and_sizes(program: Program) -> list[Type | SymDim]:
    """Types of values, and types and sizes in attributes."""
    found: dict[Type | SymDim, None] = {}
    for body in program.bodies():
        found.update([(value.type, None) for value in body.inputs])
        found.update([(value.type, None) for value in body.weights])
        for node in body:
            for value in node.outputs:
                found[value.type] = None
            if node.attrs:
                for attr in node.attrs.values():
                    if type(attr) not in PLAIN:
                        found.update(dict.fromkeys(_parts(attr)))
    return list(found)


def _parts(attr: Attr) -> list[Type | SymDim]:
    """The types and sizes in an attribute, however nested."""
    found: list[Type | SymDim] = []
    todo: list[Attr] = [attr]
    while todo:
        item = todo.pop()
        if isinstance(item, tuple | list):
            todo.extend([part for part in item if type(part) not in PLAIN])
        elif isinstance(item, SymDim | Type):
            found.append(item)
    return found


def _tensors(type_: Type) -> list[TensorType]:
    """The tensor types that a type consists of."""
    found: list[TensorType] = []
    todo = [type_]
    while todo:
        item = todo.pop()
        if isinstance(item, TensorType):
            found.append(item)
        elif isinstance(item, SequenceType | OptionalType):
            todo.append(item.element)
        elif isinstance(item, TupleType):
            todo.extend(item.elements)
        elif isinstance(item, MapType):
            todo.append(item.value)
    return found
