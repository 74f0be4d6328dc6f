"""Steps through a graph past nodes that only view, convert or scale, and masks of triangles that they lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from irscope.ir.graph import Node, Role, Value
from irscope.ir.places import Literal, Payload
from irscope.ir.types import TensorType
from irscope.ops.facts import OpRole
from irscope.ops.registry import factors_of, find_op, plays
from irscope.ops.spec import Family, OpSpec
from irscope.ops.values import from_bytes, numpy_dtype, static_shape
from irscope.weights.source import Unreadable, WeightFiles

_FAR = 4096
_COPIES = frozenset({OpRole.COPY})
_PASSED = frozenset({OpRole.COPY, OpRole.RECODES, OpRole.SPREAD})
"""What a value's source lies behind, besides views."""


def chosen(nodes: Iterable[Node], wanted: Callable[[OpSpec], bool]) -> Iterator[Node]:
    """The nodes whose operators are wanted; each operator's record is asked once."""
    told: dict[str, bool] = {}
    for node in nodes:
        is_wanted = told.get(node.op)
        if is_wanted is None:
            spec = find_op(node.op)
            is_wanted = told[node.op] = spec is not None and wanted(spec)
        if is_wanted:
            yield node


def family(node: Node) -> Family | None:
    """Return what kind of work a node does; None where irscope has no record."""
    spec = find_op(node.op)
    return None if spec is None else spec.family


def is_product(node: Node) -> bool:
    """Return whether a node multiplies matrices."""
    return factors_of(node) is not None


def is_filter(node: Node) -> bool:
    """Return whether a node slides filters over windows, in floats or in integers."""
    return family(node) is Family.CONVOLUTION or plays(node, OpRole.FILTERS)


def weights_of(node: Node) -> list[Value]:
    """The constant matrices that a product multiplies by: a plain factor, or one that is stored as codes."""
    spec = find_op(node.op)
    if spec is None or not (is_product(node) or OpRole.CODED_PRODUCT in spec.roles):
        return []
    operands = node.inputs if spec.codes is None else node.inputs[spec.codes.weight : spec.codes.weight + 1]
    return [operand for operand in operands if operand is not None and is_constant(operand)]


def is_view(node: Node) -> bool:
    """Return whether a node only shows, copies or converts its first operand."""
    spec = find_op(node.op)
    return spec is not None and (spec.family is Family.VIEW or not spec.roles.isdisjoint(_COPIES))


def is_passed(node: Node) -> bool:
    """Return whether a node leaves its first operand what it is: a view, a copy, or the same elements as codes."""
    return is_view(node) or plays(node, OpRole.RECODES)


def source(value: Value | None) -> Value | None:
    """The value that views, copies and conversions come from."""
    for _ in range(_FAR):
        node = None if value is None else value.node
        spec = None if node is None else find_op(node.op)
        if node is None or spec is None or not (spec.family is Family.VIEW or not spec.roles.isdisjoint(_PASSED)) or not node.inputs:
            break
        value = node.inputs[0]
    return value


def producer(value: Value | None) -> Node | None:
    """The node that computes a value, past views."""
    found = source(value)
    return None if found is None else found.node


def back(value: Value | None, until: Callable[[Node], bool], passing: Callable[[Node], bool]) -> tuple[Node | None, list[Node]]:
    """Backwards through nodes that may be passed, to the nearest one that is looked for.

    Gives that node, or None, and the nodes on the way. Constants and conditions are not followed.
    """
    pending: list[tuple[Value | None, tuple[Node, ...]]] = [(value, ())]
    for _ in range(_FAR):
        if not pending:
            break
        at, way = pending.pop(0)
        node = None if at is None else at.node
        if node is None:
            continue
        if until(node):
            return node, list(way)
        if is_passed(node) or passing(node):
            pending += [(operand, (*way, node)) for operand in _carried(node)]
    return None, []


def _carried(node: Node) -> list[Value]:
    """Operands whose values may come through: not a condition, not what a view is told, no constants."""
    operands = node.inputs[1:] if plays(node, OpRole.SELECT) else node.inputs[:1] if is_passed(node) else node.inputs
    return [operand for operand in operands if operand is not None and not is_constant(operand)]


def is_constant(value: Value) -> bool:
    """Return whether a value is a weight, or made from weights and nothing else by views and conversions."""
    found = source(value)
    if found is None:
        return False
    if found.role in (Role.PARAMETER, Role.BUFFER, Role.CONSTANT):
        return True
    node = found.node
    return node is not None and family(node) is Family.CREATION and not any(node.inputs)


def users(values: Iterable[Value]) -> list[Node]:
    """Nodes that read any of the values, each once."""
    found: dict[Node, None] = {}
    for value in values:
        for user in value.users or ():
            if isinstance(user, Node):
                found[user] = None
    return list(found)


def escapes(value: Value) -> bool:
    """Return whether a graph returns the value."""
    return any(not isinstance(user, Node) for user in value.users or ())


def ancestors(value: Value | None, limit: int, through: Callable[[Node], bool] = lambda node: True) -> list[Node]:
    """Nodes that a value depends on, nearest first, at most so many; what lies behind a node that may not be passed is left out."""
    found: dict[Node, None] = {}
    pending = [value]
    while pending and len(found) < limit:
        node = None if (one := pending.pop(0)) is None else one.node
        if node is None or node in found:
            continue
        found[node] = None
        if through(node):
            pending.extend(node.inputs)
    return list(found)


# ----------------------------------------------------------------------------------------------------
# Whether a small constant is a causal mask: everything above its diagonal says one thing, nothing else says it.

Array: TypeAlias = "np.ndarray[Any, Any]"
MAX_BYTES = 1 << 20
"""Larger constants are not read; a mask for 1,024 places has so many bytes."""


class Triangles:
    """Tells which constants are triangles, each once; files are those that weights may be read from."""

    def __init__(self, files: WeightFiles | None = None) -> None:
        self._files = files
        self._known: dict[Value, bool] = {}

    def __call__(self, value: Value) -> bool:
        """Return whether the value is a square constant that separates later from earlier positions. Parameters are never read."""
        if value.role not in (Role.BUFFER, Role.CONSTANT):
            return False
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._is_triangle(value)
        return found

    def _is_triangle(self, value: Value) -> bool:
        type_, owner = value.type, value.graph
        if not isinstance(type_, TensorType) or owner is None or self._files is None:
            return False
        shape = static_shape(type_)
        if shape is None or len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
            return False
        array = self._array(owner.data.get(value), type_, shape)
        if array is None or not array.size:
            return False
        square = array.reshape(-1, shape[-1], shape[-1])[0]
        return bool(np.array_equal(square == square[0, -1], np.triu(np.ones(square.shape, bool), 1)))

    def _array(self, data: Payload | None, type_: TensorType, shape: tuple[int, ...]) -> Array | None:
        if isinstance(data, Literal):
            return np.array(data.values, numpy_dtype(type_.dtype)).reshape(shape)
        if self._files is None:
            return None
        try:
            place = self._files.find(data)
            if place.length > MAX_BYTES:
                return None
            content = bytearray(place.length)
            self._files.read_into(place, 0, memoryview(content))
        except Unreadable:
            return None
        return from_bytes(bytes(content), type_)
