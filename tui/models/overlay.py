"""Another column for the tree: one number for each node, and for modules the sum, whatever pass it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Node, Value
from irscope.report.printable import printable
from irscope.report.table import Table
from irscope.report.units import Kind, humanise
from irscope.report.values import bare
from irscope.tui.models.binding import Binding
from irscope.tui.models.columns import Column
from irscope.tui.models.outline import Group, Outline
from irscope.tui.models.symbols import Symbols

Amount: TypeAlias = "Dim | float"
_ADDS = frozenset({Kind.BYTES, Kind.FLOPS, Kind.SECONDS, Kind.COUNT})
"""Kinds of which a module has the sum of its nodes; of others, such as a share, it has none."""


class Life(Protocol):
    """When a storage lives, as the liveness pass found it."""

    @property
    def value(self) -> Value: ...
    @property
    def size(self) -> Dim: ...
    @property
    def born(self) -> int: ...
    @property
    def dies(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Overlay:
    """One number per row: None where it is unknown, and how many nodes are not in a sum."""

    title: str
    kind: Kind
    values: Sequence[Amount | None]
    missing: Sequence[int]
    blank: frozenset[int] = frozenset()
    """Rows about which the column says nothing at all."""

    def text(self, row: int, symbols: Symbols) -> str:
        """The number for a reader: `?` for what is unknown, and a sign before a sum that leaves something out."""
        if row in self.blank:
            return ""
        value = self.values[row]
        if value is None:
            return symbols.unknown
        shown = humanise(str(value) if isinstance(value, SymDim) else value, self.kind)
        return f"{symbols.at_least if self.missing[row] else ''}{printable(shown, symbols.encoding)}"

    def bound(self, binding: Binding) -> Overlay:
        """The same column with sizes put in for symbols."""
        values = [binding.of(value) if isinstance(value, SymDim) else value for value in self.values]
        return Overlay(self.title, self.kind, values, self.missing, self.blank)


def overlay_of(outline: Outline, title: str, kind: Kind, value_of: Callable[[Node], Amount | None]) -> Overlay:
    """A column with a number for every node. What is inside a region is added to no other node."""
    values: list[Amount | None] = [None] * len(outline)
    missing = [0] * len(outline)
    for row in range(len(outline) - 1, -1, -1):
        item = outline.items[row]
        if isinstance(item, Node):
            values[row] = value_of(item)
            missing[row] = int(values[row] is None)
        above = outline.parent[row]
        if above >= 0 and isinstance(outline.items[above], Group):
            missing[above] += missing[row]
            values[above] = _added(values[above], values[row])
    return Overlay(title, kind, values, missing)


def _added(total: Amount | None, value: Amount | None) -> Amount | None:
    if total is None or value is None:
        return value if total is None else total
    if isinstance(total, SymDim) or isinstance(value, SymDim):
        # A formula and a fraction have no sum that could be written.
        return None if isinstance(total, float) or isinstance(value, float) else total + value
    return total + value


def overlay_of_table(outline: Outline, table: Table, key: str) -> Overlay | None:
    """A column of a report on the rows that its table is about; None where it is about no nodes, or the column holds no numbers."""
    column = next((one for one in table.columns if one.key == key), None)
    rows = None if column is None or not column.kind.is_number else node_rows(outline, table)
    if column is None or not rows:
        return None
    cells = table.cells(key)
    own: dict[int, Amount | None] = {}
    for place, row in rows.items():
        value = bare(cells[place])
        own[row] = value if isinstance(value, int | float) else None
    values: list[Amount | None] = [None] * len(outline)
    missing = [0] * len(outline)
    covered = [False] * len(outline)
    for row in range(len(outline) - 1, -1, -1):
        if row in own:
            values[row], missing[row], covered[row] = own[row], int(own[row] is None), True
        above = outline.parent[row]
        if covered[row] and above >= 0 and isinstance(outline.items[above], Group) and above not in own and column.kind in _ADDS:
            covered[above] = True
            missing[above] += missing[row]
            values[above] = _added(values[above], values[row])
    return Overlay(column.heading, column.kind, values, missing, frozenset(row for row, one in enumerate(covered) if not one))


def node_rows(outline: Outline, table: Table) -> Mapping[int, int]:
    """The row of the outline for each row of a table that names a node; a node that is named twice counts once."""
    keys = table.keys
    if keys is None:
        named = next((column for column in table.columns if column.kind in (Kind.NODE, Kind.VALUE)), None)
        if named is None:
            return {}
        keys = [bare(cell) for cell in table.cells(named.key)]
    names = _rows_by_name(outline) if any(isinstance(key, str) for key in keys) else {}
    found: dict[int, int] = {}
    taken: set[int] = set()
    for place, key in enumerate(keys):
        at = outline.row_of.get(key) if isinstance(key, Node) else names.get(str(key).removeprefix("%"))
        if at is not None and at not in taken:
            taken.add(at)
            found[place] = at
    return found


def _rows_by_name(outline: Outline) -> Mapping[str, int]:
    names: dict[str, int] = {}
    for node, row in outline.row_of.items():
        for name in (node.name, *(output.name for output in node.outputs)):
            if name is not None and name:
                names.setdefault(name, row)
    return names


def live_at_peak(outline: Outline, ranges: Sequence[Life], peak: int) -> Overlay:
    """For each node the bytes of what it made that are alive at a step."""
    alive: dict[Node, Dim] = {}
    for one in ranges:
        if one.born <= peak <= one.dies and one.value.node is not None:
            alive[one.value.node] = alive.get(one.value.node, 0) + one.size
    return overlay_of(outline, "live at peak", Kind.BYTES, lambda node: alive.get(node, 0))


def least_times(outline: Outline, seconds: Mapping[str, float]) -> Overlay:
    """For each node its least time, by the node's name."""
    return overlay_of(outline, "least time", Kind.SECONDS, lambda node: seconds.get(node.name, 0.0))


def unknown_nodes(outline: Outline, columns: Sequence[Column]) -> Overlay:
    """For each row how many of its nodes lack a number in one of these columns; regions count for themselves."""
    lacking = [any(isinstance(item, Node) and column.values[row] is None for column in columns) for row, item in enumerate(outline.items)]
    return overlay_of(outline, "unknown nodes", Kind.COUNT, lambda node: int(lacking[outline.row_of[node]]))
