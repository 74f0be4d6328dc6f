"""Which symbols a program mentions in its types and attributes."""

from __future__ import annotations

from irscope.ir.dims import SymDim
from irscope.ir.graph import Attr
from irscope.ir.program import Program
from irscope.ir.types import MapType, OptionalType, SequenceType, TensorType, TupleType, Type

PLAIN = frozenset({bool, int, float, complex, str, type(None)})
"""Types of attribute values that hold nothing else; most attributes are of these."""


def mentioned_symbols(program: Program) -> list[SymDim]:
    """Symbols in types and attributes, in the order in which they first occur."""
    types: dict[Type, None] = {}
    attrs: dict[SymDim | Type, None] = {}
    for root in (program.graph, *program.functions.values()):
        for body in root.graphs():
            types.update([(value.type, None) for value in body.inputs])
            types.update([(value.type, None) for value in body.weights])
        for node in root.walk():
            for value in node.outputs:
                types[value.type] = None
            if node.attrs:
                for attr in node.attrs.values():
                    if type(attr) not in PLAIN:
                        attrs.update(dict.fromkeys(_parts(attr)))
    dims: dict[SymDim, None] = {}
    for item in (*types, *attrs):
        if isinstance(item, SymDim):
            dims[item] = None
        else:
            dims.update(dict.fromkeys(_sizes(item)))
    return list(dict.fromkeys(symbol for dim in dims for symbol in dim.symbols()))


def _parts(attr: Attr) -> list[SymDim | Type]:
    """The types and sizes in an attribute, however nested."""
    found: list[SymDim | Type] = []
    todo: list[Attr] = [attr]
    while todo:
        item = todo.pop()
        if isinstance(item, tuple | list):
            todo.extend([part for part in item if type(part) not in PLAIN])
        elif isinstance(item, SymDim | Type):
            found.append(item)
    return found


def _sizes(type_: Type) -> list[SymDim]:
    """The symbolic sizes and strides in a type."""
    found: list[SymDim] = []
    todo = [type_]
    while todo:
        item = todo.pop()
        if isinstance(item, TensorType):
            strides = item.layout if isinstance(item.layout, tuple) else ()
            found.extend([size for size in (*(item.shape or ()), *strides) if isinstance(size, SymDim)])
        elif isinstance(item, SequenceType | OptionalType):
            todo.append(item.element)
        elif isinstance(item, TupleType):
            todo.extend(item.elements)
        elif isinstance(item, MapType):
            todo.append(item.value)
    return found
