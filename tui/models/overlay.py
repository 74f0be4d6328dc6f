"""Another column for the tree: one number for each node, and for modules the sum, whatever pass it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Node
from irscope.report.printable import printable
from irscope.report.table import Table
from irscope.report.units import Kind, humanise
from irscope.report.values import bare
from irscope.tui.models.amounts import Amount, Amounts
from irscope.tui.models.binding import Binding
from irscope.tui.models.columns import Column, added, joined
from irscope.tui.models.outline import Group, Outline, Rows
from irscope.tui.models.symbols import Symbols
from irscope.tui.models.tree import Mask

if TYPE_CHECKING:
    from irscope.passes.lifetimes.lives import LiveRange

_ADDS = frozenset({Kind.BYTES, Kind.FLOPS, Kind.SECONDS, Kind.COUNT})
"""Kinds of which a module has the sum of its nodes; of others, such as a share, it has none."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """One number per row: None where it is unknown, and how many nodes are not in a sum."""

    title: str
    kind: Kind
    values: Amounts
    missing: Rows
    blank: Mask | None = None
    """Rows about which the column says nothing at all."""

    def text(self, row: int, symbols: Symbols, alike: Sequence[int] = ()) -> str:
        """The number for a reader: `?` for what is unknown, and a sign before a sum that leaves something out."""
        if self.blank is not None and self.blank[row]:
            return ""
        value, missing = joined(self.values, self.missing, alike if self.kind in _ADDS and alike else (row,))
        if value is None:
            return symbols.unknown
        shown = humanise(str(value) if isinstance(value, SymDim) else value, self.kind)
        return f"{symbols.at_least if missing else ''}{printable(shown, symbols.encoding)}"

    def bound(self, binding: Binding) -> Overlay:
        """The same column with sizes put in for symbols."""
        return Overlay(self.title, self.kind, self.values.bound(binding), self.missing, self.blank)


def overlay_of(outline: Outline, title: str, kind: Kind, value_of: Callable[[Node], Amount | None]) -> Overlay:
    """A column with a number for every node. What is inside a region is added to no other node."""
    values: list[Amount | None] = [None] * len(outline)
    missing = [0] * len(outline)
    parents = outline.parent.tolist()
    for row in range(len(outline) - 1, -1, -1):
        item = outline.items[row]
        if isinstance(item, Node):
            values[row] = value_of(item)
            missing[row] = int(values[row] is None)
        above = parents[row]
        if above >= 0 and isinstance(outline.items[above], Group):
            missing[above] += missing[row]
            values[above] = added(values[above], values[row])
    return Overlay(title, kind, Amounts.of(values), np.array(missing, dtype=np.int32))


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
    parents = outline.parent.tolist()
    for row in range(len(outline) - 1, -1, -1):
        if row in own:
            values[row], missing[row], covered[row] = own[row], int(own[row] is None), True
        above = parents[row]
        if covered[row] and above >= 0 and isinstance(outline.items[above], Group) and above not in own and column.kind in _ADDS:
            covered[above] = True
            missing[above] += missing[row]
            values[above] = added(values[above], values[row])
    blank = ~np.array(covered, dtype=np.bool_)
    return Overlay(column.heading, column.kind, Amounts.of(values), np.array(missing, dtype=np.int32), blank)


def node_rows(outline: Outline, table: Table) -> Mapping[int, int]:
    """The row of the outline for each row of a table that names a node; a node that is named twice counts once."""
    keys = table.keys
    if keys is None:
        named = next((column for column in table.columns if column.kind in (Kind.NODE, Kind.VALUE)), None)
        if named is None:
            return {}
        keys = [bare(cell) for cell in table.cells(named.key)]
    names = rows_by_name(outline) if any(isinstance(key, str) for key in keys) else {}
    found: dict[int, int] = {}
    taken: set[int] = set()
    for place, key in enumerate(keys):
        at = outline.row_of.get(key) if isinstance(key, Node) else names.get(str(key).removeprefix("%"))
        if at is not None and at not in taken:
            taken.add(at)
            found[place] = at
    return found


def rows_by_name(outline: Outline) -> Mapping[str, int]:
    """The row of each node, by its name and those of its results."""
    names: dict[str, int] = {}
    for node, row in outline.row_of.items():
        for name in (node.name, *(output.name for output in node.outputs)):
            if name is not None and name:
                names.setdefault(name, row)
    return names


def live_at_peak(outline: Outline, alive: Iterable[LiveRange], step: int) -> Overlay:
    """For each node the bytes of what it made that are alive at the peak, which is at a step."""
    found: dict[Node, Dim] = {}
    for one in alive:
        node = one.at(step).value.node
        if node is not None:
            found[node] = found.get(node, 0) + one.size
    return overlay_of(outline, "live at peak", Kind.BYTES, lambda node: found.get(node, 0))


def least_times(outline: Outline, seconds: Mapping[str, float]) -> Overlay:
    """For each node its least time, by the node's name."""
    return overlay_of(outline, "least time", Kind.SECONDS, lambda node: seconds.get(node.name, 0.0))


def shares(outline: Outline, flops: Column | None) -> Overlay | None:
    """For each row its share of the FLOPs of the whole model, as far as they are numbers."""
    if flops is None:
        return None
    numbers = flops.values.numbers
    total = float(np.nansum(numbers[outline.parent < 0]))
    values = [None if value != value or not total else value / total for value in numbers.tolist()]
    return Overlay("of FLOPs", Kind.RATIO, Amounts.of(values), flops.missing)


def unknown_nodes(outline: Outline, columns: Sequence[Column]) -> Overlay:
    """For each row how many of its nodes lack a number in one of these columns; regions count for themselves."""
    lacking = _lacking(columns, len(outline)).tolist()
    return overlay_of(outline, "unknown nodes", Kind.COUNT, lambda node: int(lacking[outline.row_of[node]]))


def coverage(outline: Outline, columns: Sequence[Column]) -> Overlay:
    """For each row the share of its nodes of which everything is known, those inside regions included."""
    lacking = _lacking(columns, len(outline))
    is_node = outline.operators[0] >= 0
    below = np.concatenate(([0], np.cumsum(is_node)))
    short = np.concatenate(([0], np.cumsum(is_node & lacking)))
    nodes, missing = below[outline.end] - below[:-1], short[outline.end] - short[:-1]
    shares = [None if not count else float(count - lost) / count for count, lost in zip(nodes.tolist(), missing.tolist(), strict=True)]
    return Overlay("known", Kind.RATIO, Amounts.of(shares), np.zeros(len(outline), dtype=np.int32), nodes == 0)


def _lacking(columns: Sequence[Column], count: int) -> Mask:
    """The rows that have no number in one of these columns."""
    found = np.zeros(count, dtype=np.bool_)
    for column in columns:
        found |= np.array([value is None for value in column.values.distinct] or [False], dtype=np.bool_)[column.values.codes]
    return found
