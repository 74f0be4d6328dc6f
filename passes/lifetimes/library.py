"""Kernels that XLA's CPU compiler hands to its library (YNNPACK) whole: a reduction or a convolution with what is around it.

Rules are those of LibraryRewriter and ynn_support of XLA: from the last operator to the first, a sum, an extreme or a convolution takes in
what it reads where nothing else reads that, and what reads it where that is one operator, as long as the library has the operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from irscope.ir.graph import Node, Value
from irscope.ir.types import TensorType
from irscope.ops.facts import OpRole
from irscope.ops.general import LIBRARY_OPERATORS, LIBRARY_REDUCTIONS, LIBRARY_WINDOWS
from irscope.ops.registry import find_op
from irscope.ops.spec import Family

_LEAST: Final = 4096
"""Elements of the result or of an operand below which the library is not used (kMinElements)."""
_LEAST_AXIS: Final = 8
"""The size that an axis of a product has at least."""
_LEAST_CHANNELS: Final = 16
"""More channels than these a convolution has."""
_AXES: Final = 4
"""Axes of an image with channels."""
_MOST: Final = 64
"""Operators of one kernel."""


@dataclass(frozen=True, slots=True)
class Library:
    """Finds the kernels of one graph. `users`, `root` and `is_copied` say what reads a value, where it lies, and which operands of products
    are brought into another order."""

    place: dict[Node, int]
    users: dict[Value, list[Node | None]]
    root: Callable[[Value], Value]
    type_of: Callable[[Value], object]
    is_copied: Callable[[Node, int], bool]

    def kernels(self) -> dict[Node, Node]:
        """Return the operators that are in a kernel, with the one that makes its result."""
        found: dict[Node, Node] = {}
        for start in reversed(self.place):
            if start in found or not self._starts(start):
                continue
            members, last = [start], start
            while len(members) < _MOST:
                added = self._above(members, found)
                if added is None:
                    added = self._below(last, members, found)
                    last = added or last
                if added is None:
                    break
                members.append(added)
            found.update(dict.fromkeys(members, last))
        return found

    def _starts(self, node: Node) -> bool:
        return (node.op in LIBRARY_REDUCTIONS or node.op == LIBRARY_WINDOWS) and self._has(node)

    def _above(self, members: list[Node], found: dict[Node, Node]) -> Node | None:
        """Return an operator that members alone read."""
        for node in members:
            for place, value in enumerate(node.inputs):
                if value is None or self.is_copied(node, place):
                    continue
                root = self.root(value)
                made = root.node
                if made is None or made not in self.place or made in found or made in members:
                    continue
                if all(user in members for user in self.users.get(root, [])) and self._has(made):
                    return made
        return None

    def _below(self, last: Node, members: list[Node], found: dict[Node, Node]) -> Node | None:
        """Return the one operator that reads the result."""
        users = self.users.get(self.root(last.outputs[0]), [])
        user = users[0] if len(users) == 1 else None
        if user is None or user in found or user in members or not self._has(user):
            return None
        if self._divides(user, self.root(last.outputs[0])):
            return None  # a division by what is repeated multiplies by its reciprocal
        copied = any(
            value is not None and self.root(value) is self.root(last.outputs[0]) and self.is_copied(user, place)
            for place, value in enumerate(user.inputs)
        )
        return None if copied else user

    def _divides(self, user: Node, value: Value) -> bool:
        """Return whether a value that is too small for the library is repeated to be divided by."""
        own = self.type_of(value)
        if isinstance(own, TensorType) and _count(own) >= _LEAST:
            return False
        while OpRole.SPREAD in _roles(user):
            value = self.root(user.outputs[0])
            users = self.users.get(value, [])
            if len(users) != 1 or users[0] is None:
                return False
            user = users[0]
            if OpRole.DIVIDE in _roles(user):
                return user.inputs[1] is not None and self.root(user.inputs[1]) is value
        return False

    def _has(self, node: Node) -> bool:
        """Return whether the library has an operator, for these sizes and element types."""
        spec, types = find_op(node.op), [self.type_of(value) for value in (*node.inputs, *node.outputs) if value is not None]
        if spec is None or node.regions or len(node.outputs) != 1 or not all(_is_float(type_) for type_ in types):
            return False
        if OpRole.SPREAD in spec.roles:
            axes = node.attrs.get("axes")
            return isinstance(axes, tuple) and list(axes) == sorted(axes)
        if spec.family is Family.CONTRACTION:
            return self._has_product(node)
        if _is_convolution(node):
            return self._has_convolution(node)
        if node.op == LIBRARY_WINDOWS and not _is_tiled(node):
            return False
        is_there = node.op in LIBRARY_OPERATORS or node.op in LIBRARY_REDUCTIONS or node.op == LIBRARY_WINDOWS
        return is_there and any(isinstance(type_, TensorType) and _count(type_) >= _LEAST for type_ in types)

    def _has_product(self, node: Node) -> bool:
        first, second, made = (
            _shape(self.type_of(value)) for value in (node.inputs[0], node.inputs[1], node.outputs[0]) if value is not None
        )
        if len(made) < 2 or len(first) < 2 or len(second) < 2:
            return False
        return made[-1] != 1 and made[-2] != 1 and max(first[-1], *made[-2:]) >= _LEAST_AXIS

    def _has_convolution(self, node: Node) -> bool:
        x, kernel, made = (_shape(self.type_of(value)) for value in (node.inputs[0], node.inputs[1], node.outputs[0]) if value is not None)
        of_x, of_w, of_y = (_numbers(node, name) for name in ("axes_x", "axes_w", "axes_y"))
        if not len(x) == len(of_x) == len(of_w) == len(of_y) == _AXES or node.attrs.get("batch_groups", 1) != 1 or _is_stretched(node):
            return False
        if max(x[of_x[1]], made[of_y[1]]) <= _LEAST_CHANNELS:
            return False
        return all(made[y] <= x[at] and kernel[w] <= x[at] for at, w, y in zip(of_x[2:], of_w[2:], of_y[2:], strict=True))


def _roles(node: Node) -> frozenset[OpRole]:
    spec = find_op(node.op)
    return frozenset() if spec is None else frozenset(spec.roles)


def _is_convolution(node: Node) -> bool:
    spec = find_op(node.op)
    return spec is not None and spec.family is Family.CONVOLUTION


def _is_tiled(node: Node) -> bool:
    """Return whether windows lie side by side."""
    kernel = _numbers(node, "kernel")
    return kernel == (_numbers(node, "strides") or (1,) * len(kernel)) and not any(_numbers(node, "pads")) and not _is_stretched(node)


def _is_stretched(node: Node) -> bool:
    """Return whether elements of a window, or of what it goes over, stand apart."""
    return any(size > 1 for name in ("dilations", "spread") for size in _numbers(node, name))


def _numbers(node: Node, name: str) -> tuple[int, ...]:
    """Return a list among the attributes, empty where it is not there."""
    held = node.attrs.get(name)
    return tuple(number for number in held if isinstance(number, int)) if isinstance(held, tuple) else ()


def _is_float(type_: object) -> bool:
    return isinstance(type_, TensorType) and type_.dtype.is_float and type_.dtype.bits in (32, 64)


def _count(type_: TensorType) -> int:
    return type_.numel if isinstance(type_.numel, int) else 0


def _shape(type_: object) -> tuple[int, ...]:
    shape = type_.shape if isinstance(type_, TensorType) else None
    return tuple(size if isinstance(size, int) else _LEAST for size in shape or ())
