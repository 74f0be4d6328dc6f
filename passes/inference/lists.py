"""Lists whose elements are known one by one: the types of all of them, not only what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from irscope.ir.graph import Node
from irscope.ir.types import Type, sequence
from irscope.ops.spec import Item, OpCall
from irscope.passes.inference.engine import Fact, Inference
from irscope.passes.inference.join import join, renewed

MOST_ITEMS = 256
"""Longer lists are known only by what their elements have in common."""


class KnownLists:
    """What an operator's rule for lists asks and says, for one node (`irscope.ops.spec.Lists`)."""

    def __init__(self, engine: Inference, node: Node, call: OpCall, inferred: list[Type]) -> None:
        call.results = inferred
        self.call = call
        self._engine = engine
        self._node = node
        self._inferred = inferred

    @property
    def items(self) -> tuple[Item, ...] | None:
        """Elements of the first operand; None where they are not known one by one."""
        first = self._node.inputs[0] if self._node.inputs else None
        return None if first is None else self._engine.found.lists.get(first)

    def operand(self, index: int) -> Item | None:
        """An operand as the element of a list; None where it is absent."""
        value = self._node.inputs[index] if index < len(self._node.inputs) else None
        return None if value is None else Item(self._engine.found.type_of(value), self._engine.found.values.get(value))

    def join(self, types: Sequence[Type]) -> Type:
        """What the types of several elements have in common."""
        return reduce(lambda a, b: join(self._engine, a, b, "elements of the list differ"), types)

    def is_list(self, items: tuple[Item, ...]) -> None:
        """Let the first result be the list of these elements."""
        if len(items) > MOST_ITEMS:
            return
        self._engine.learn(self._node.outputs[0], Fact(items=items))
        if items:
            self._inferred[0] = sequence(self.join([item.type for item in items]))

    def is_operand(self) -> None:
        """Let the first result be the list that the first operand is."""
        if self.items is not None:
            self._engine.learn(self._node.outputs[0], Fact(items=self.items))

    def is_item(self, index: int, item: Item) -> None:
        """Let a result be that element."""
        self._inferred[index] = item.type
        self._engine.learn(self._node.outputs[index], Fact(item.known))

    def is_any(self, index: int) -> None:
        """Let a result be one element of which nobody knows which: its unknown sizes are its own."""
        self._inferred[index : index + 1] = renewed(self._engine, self._inferred[index : index + 1])
