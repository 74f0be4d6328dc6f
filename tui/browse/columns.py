"""Numbers by row of the tree: a node's own, and for modules and functions the sum of their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Node, Value
from irscope.ir.types import ScalarType, TensorType, Type
from irscope.report.printable import printable
from irscope.report.table import Table
from irscope.report.units import Kind, humanise
from irscope.report.values import bare
from irscope.tui.amounts import Amount, Amounts, Binding
from irscope.tui.browse.outline import Group, Mask, Outline, Rows
from irscope.tui.text import Symbols

if TYPE_CHECKING:
    from irscope.passes.lifetimes.lives import LiveRange


# ----------------------------------------------------------------------------------------------------
# Numbers by row: a node's own, and for modules and functions the sum of their nodes.


@dataclass(frozen=True, slots=True)
class Column:
    """One number per row: the sum of what is known, None where nothing is, and how many nodes are not in it."""

    kind: Kind
    values: Amounts
    missing: Rows

    @property
    def is_symbolic(self) -> bool:
        """Whether some of the numbers are formulas."""
        return bool(self.values.formulas)

    def text(self, row: int, symbols: Symbols, alike: Sequence[int] = ()) -> str:
        """The number for a reader: `?` for what is unknown, and a sign before a sum that leaves something out.

        `alike` are rows that stand together with this one, which have one sum.
        """
        value, missing = joined(self.values, self.missing, alike or (row,))
        if value is None:
            return symbols.unknown
        return f"{symbols.at_least if missing else ''}{short_amount(value, self.kind, symbols)}"

    def bound(self, binding: Binding) -> Column:
        """The same column with sizes put in for symbols."""
        return Column(self.kind, self.values.bound(binding), self.missing) if binding.env else self


def column_of(kind: Kind, values: Sequence[Dim | None], missing: Sequence[int]) -> Column:
    """A column of these numbers."""
    return Column(kind, Amounts.of(values), np.array(missing, dtype=np.int32))


def joined(values: Amounts, missing: Rows, rows: Sequence[int]) -> tuple[Amount | None, int]:
    """The sum of some rows, None where none of them is known, and how many nodes are not in it."""
    total: Amount | None = None
    for row in rows:
        total = added(total, values[row])
    return total, sum(int(missing[row]) for row in rows)


def added(total: Amount | None, value: Amount | None) -> Amount | None:
    """A sum in which what is unknown is left out."""
    if total is None or value is None:
        return value if total is None else total
    if isinstance(total, SymDim) or isinstance(value, SymDim):
        # A formula and a fraction have no sum that could be written.
        return None if isinstance(total, float) or isinstance(value, float) else total + value
    return total + value


def sum_up(outline: Outline, kind: Kind, value_of: Callable[[Node], Dim | None], *, includes_regions: bool = False) -> Column:
    """A column of a node's values. What is inside a region is added to no other node.

    `includes_regions` says that a node's value covers its regions, so that what is unknown there is missing in it too.
    """
    count = len(outline)
    values: list[Dim | None] = [None] * count
    missing = [0] * count
    parents = outline.parent.tolist()
    for row in range(count - 1, -1, -1):
        item = outline.items[row]
        if not isinstance(item, Group):
            values[row] = value_of(item)
            missing[row] += int(values[row] is None)
        above = parents[row]
        if above < 0:
            continue
        if isinstance(outline.items[above], Group):
            missing[above] += missing[row]
            values[above] = _added(values[above], values[row])
        elif includes_regions:
            missing[above] += missing[row]
    return column_of(kind, values, missing)


def _added(total: Dim | None, value: Dim | None) -> Dim | None:
    if value is None:
        return total
    return value if total is None else total + value


def amount(value: Dim | None, kind: Kind, symbols: Symbols) -> str:
    """A number with its unit, a formula as it is."""
    if value is None:
        return symbols.unknown
    text = str(value) if isinstance(value, SymDim) else value
    return symbols.clean(humanise(text, kind))


def short_amount(value: Amount, kind: Kind, symbols: Symbols) -> str:
    """A number for a column whose heading says what it counts."""
    if isinstance(value, SymDim):
        return symbols.clean(str(value))
    text = humanise(value, kind)
    return text.removesuffix("FLOPs").rstrip() if kind is Kind.FLOPS else text


class ByteSizes:
    """Sizes of values by their types, each type looked at once."""

    def __init__(self) -> None:
        self._known: dict[Type, Dim | None] = {}

    def of(self, value: Value) -> Dim | None:
        """Bytes of one value; None where its size is unknown."""
        type_ = value.type
        if type_ not in self._known:
            self._known[type_] = type_bytes(type_)
        return self._known[type_]

    def of_results(self, node: Node) -> Dim | None:
        """Bytes of all results of a node; None where the size of one is unknown."""
        total: Dim = 0
        for output in node.outputs:
            size = self.of(output)
            if size is None:
                return None
            total = total + size
        return total


def type_bytes(type_: Type) -> Dim | None:
    """Bytes of a tensor. A plain number needs no storage of its own."""
    if isinstance(type_, TensorType):
        return known(type_.nbytes)
    return 0 if isinstance(type_, ScalarType) else None


def known(value: Dim | None) -> Dim | None:
    """The number, or None where it is data-dependent."""
    return None if isinstance(value, SymDim) and value.is_unknown else value


# ----------------------------------------------------------------------------------------------------
# Another column for the tree: one number for each node, and for modules the sum, whatever pass it comes from.

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
