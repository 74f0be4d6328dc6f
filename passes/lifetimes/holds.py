"""References that keep storages alive after their last use, and def-use information about storages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from irscope.ir.graph import Node, Value
from irscope.passes.alias import Aliases


@dataclass(frozen=True, slots=True)
class Hold:
    """A reference that keeps a storage alive after its last use."""

    until: int
    """The last step at whose end it is still held."""
    kind: str
    """call or local."""
    by: str
    """The path of the module that is called, or the variable with its place, in words."""


@dataclass
class Facts:
    """Def-use information about storages, before Python frames are considered."""

    steps: Sequence[Node]
    aliases: Aliases
    born: Mapping[Value, int]
    """The step that makes each storage."""
    last_read: Mapping[Value, int]
    """The last step that reads each value; the number of steps for what the model returns."""
    uses: Mapping[Value, Sequence[tuple[int, Value]]]
    """Steps that read each storage, each with the value that is read."""

    def last_use(self, storage: Value) -> int:
        """The last use of a storage; its definition where it has no use."""
        uses = self.uses[storage]
        return uses[-1][0] if uses else self.born[storage]


class Holds:
    """The longest-lived reference to each storage."""

    def __init__(self) -> None:
        self.found: dict[Value, Hold] = {}

    def add(self, storage: Value, until: int, kind: str, by: str) -> None:
        known = self.found.get(storage)
        if known is None or known.until < until:
            self.found[storage] = Hold(until, kind, by)
