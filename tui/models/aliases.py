"""Which values share a storage: views, and what writes into it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from irscope.ir.graph import Node, Value
from irscope.tui.models.outline import Outline

if TYPE_CHECKING:
    from irscope.passes.alias import Aliases


class AliasSets:
    """The values of each storage that more than one value has."""

    def __init__(self, outline: Outline, found: Aliases) -> None:
        self._outline = outline
        self._found = found
        self._members: dict[Value, list[Value]] = {}
        for value in list(found.parents):
            self._members.setdefault(found.storage(value), []).append(value)

    def storage(self, value: Value) -> Value:
        """The value that defines a value's storage."""
        return self._found.storage(value)

    def others(self, value: Value) -> Sequence[Value]:
        """Other values of the same storage, its definition first."""
        storage = self._found.storage(value)
        members = self._members.get(storage, ())
        return [one for one in (storage, *members) if one is not value] if members else ()

    def rows_of(self, values: Iterable[Value]) -> list[int]:
        """The rows of the nodes whose results share a storage with one of these values."""
        row_of = self._outline.row_of
        rows = {row_of[one.node] for value in values for one in (value, *self.others(value)) if one.node is not None}
        return sorted(rows)


def writes_in_place(node: Node) -> bool:
    """Whether a node writes into one of its inputs."""
    return "inplace" in node.attrs
