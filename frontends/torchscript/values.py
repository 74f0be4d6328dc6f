"""What the interpreter computes with besides tensors of the graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from irscope.frontends.torchscript.source import Function, ScriptClass
from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.places import Loc
from irscope.ir.types import ScalarType, TensorType

Item: TypeAlias = object
"""A Value, number (whole ones may be symbolic), string, None, list, tuple, dict, ScriptObject or KnownTensor."""


@dataclass(eq=False)
class ScriptObject:
    """An instance of a class of the archive: a module, or a plain object."""

    cls: ScriptClass
    attrs: dict[str, Item] = field(default_factory=dict)
    path: str = ""
    """Dotted path of a module in the model."""


@dataclass(eq=False)
class KnownTensor:
    """A tensor of one element whose value is known: a size that traced code carries as a tensor."""

    number: Dim | float | bool
    dtype: DType
    value: Value | None = None
    """The value in the graph, once an operation needed it."""


@dataclass(eq=False)
class TensorList:
    """A list of tensors whose length is only known when the model runs: a sequence in the graph."""

    value: Value


@immutable
class Uninitialized:
    """What a variable holds in a branch that never reads it."""


@dataclass
class Frame:
    """One running function."""

    function: Function
    module: ScriptObject | None
    """The module whose method this is, or whose code called it."""
    env: dict[str, Item] = field(default_factory=dict)
    caller: Loc | None = None
    outer: Frame | None = None
    """The function that called this one."""


@immutable(slots=False)
class Returned:
    """Control flow left the function."""

    item: Item


class ScriptRaise(Exception):
    """The model raises an exception."""


def contains_value(item: Item, depth: int = 4) -> bool:
    """Return whether something is, or holds, a tensor of the graph."""
    if isinstance(item, Value | KnownTensor):
        return True
    if depth and isinstance(item, list | tuple):
        return any(contains_value(part, depth - 1) for part in item)
    return False


def is_condition(item: Item) -> bool:
    """Return whether something is a truth value of the graph, which a tensor with axes is not."""
    if not isinstance(item, Value) or not isinstance(item.type, ScalarType | TensorType) or item.type.dtype is not DType.BOOL:
        return False
    return isinstance(item.type, ScalarType) or item.type.shape == ()


def is_integer(item: Item) -> bool:
    """Return whether something is a whole number, perhaps symbolic, and no truth value."""
    return isinstance(item, SymDim) or (isinstance(item, int) and not isinstance(item, bool))


def is_number(item: Item) -> bool:
    """Return whether something is a number or truth value."""
    return isinstance(item, bool | int | float | complex | SymDim)
