"""The columns that can stand at the end of the tree of Browse. To add one, add a record to COLUMNS: nothing else has to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import numpy as np

from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.dims import Dim
from irscope.ir.graph import Node
from irscope.passkit.manager import Manager
from irscope.plugins import Plugin, plugins
from irscope.report.table import Table
from irscope.report.units import Kind
from irscope.report.values import bare
from irscope.session import Model
from irscope.tui.amounts import Amount, Column, sum_up
from irscope.tui.browse.outline import Mask, Outline, build_outline
from irscope.tui.results import Results


@immutable(slots=False)
class ColumnSource:
    """Source of a column's cells, in the worker's thread."""

    outline: Outline
    results: Results
    manager: Callable[[], Manager]
    """The passes of the model with the sizes that were put in; reads it again where there are any."""

    @classmethod
    def of(cls, model: Model) -> ColumnSource:
        """Return the source for a model before anything was analysed, for tests of a column."""
        return cls(build_outline(model.program), Results(model.program.symbols), lambda: model.manager)

    def sum_up(self, title: str, kind: Kind, value_of: Callable[[Node], Amount | None]) -> Column:
        """Return a column with a number for each node, None where it is unknown; modules have the sum where numbers of this kind have
        one."""
        return sum_up(self.outline, title, kind, value_of)


@immutable(slots=False)
class BrowseColumn:
    """A column to choose."""

    about: str
    """Description of the column, for the list to choose from."""
    make: Callable[[ColumnSource], Column | None]
    """The column, made anew when other sizes are put in; None for the bytes of the results."""


def _result_bytes(source: ColumnSource) -> None:
    """Return no column: this one stands there unless another one is chosen."""


def _live_at_peak(source: ColumnSource) -> Column:
    """Return for each node the bytes of what it made that are alive at the peak."""
    lives, timeline = source.results.lives, source.results.timeline
    if lives is None or timeline is None or timeline.peak is None:
        raise UsageError("the peak is not known yet")
    found: dict[Node, Dim] = {}
    for number in lives.alive(timeline.peak).tolist():
        one = lives.ranges[number]
        node = one.at(timeline.peak).value.node
        if node is not None:
            found[node] = found.get(node, 0) + one.size
    return source.sum_up("live at peak", Kind.BYTES, lambda node: found.get(node, 0))


def _least_times(source: ColumnSource) -> Column:
    """Return for each node its least time, by its name: the model may have been read again."""
    from irscope.passes.cost.bounds import UNKNOWN
    from irscope.passes.cost.roofline import Roofline

    times = source.manager().get(Roofline(top=0))
    seconds = {node.node.name: times.seconds_of(node) for node in times.nodes if node.binding != UNKNOWN}
    return source.sum_up("least time", Kind.SECONDS, lambda node: seconds.get(node.name))


def _unknown_nodes(source: ColumnSource) -> Column:
    """Return for each row how many of its nodes lack a number; regions count for themselves."""
    outline = source.outline
    lacking = _lacking(source).tolist()
    return source.sum_up("unknown nodes", Kind.COUNT, lambda node: int(lacking[outline.row_of[node]]))


def _coverage(source: ColumnSource) -> Column:
    """Return for each row the share of its nodes of which everything is known, those inside regions included."""
    outline = source.outline
    is_node = outline.operators[0] >= 0
    below = np.concatenate(([0], np.cumsum(is_node)))
    short = np.concatenate(([0], np.cumsum(is_node & _lacking(source))))
    nodes, missing = below[outline.end] - below[:-1], short[outline.end] - short[:-1]
    shares = [None if not count else float(count - lost) / count for count, lost in zip(nodes.tolist(), missing.tolist(), strict=True)]
    return Column.of("known", Kind.RATIO, shares, [0] * len(outline), nodes == 0)


def _lacking(source: ColumnSource) -> Mask:
    """Return the rows that lack a number: FLOPs, or bytes of the results."""
    mask = np.zeros(len(source.outline), dtype=np.bool_)
    for column in (source.results.flops, source.results.sizes):
        if column is not None:
            mask |= np.array([value is None for value in column.values.distinct] or [False], dtype=np.bool_)[column.values.codes]
    return mask


def _shares(source: ColumnSource) -> Column | None:
    """Return for each row its share of the FLOPs of the whole model, as far as they are numbers."""
    flops = source.results.flops
    if flops is None:
        raise UsageError("FLOPs are not known yet")
    numbers = flops.values.numbers
    total = float(np.nansum(numbers[source.outline.parent < 0]))
    values = [None if value != value or not total else value / total for value in numbers.tolist()]
    return Column.of("of FLOPs", Kind.RATIO, values, flops.missing)


COLUMNS: tuple[BrowseColumn, ...] = (
    BrowseColumn("bytes of the results", _result_bytes),
    BrowseColumn("live at the peak", _live_at_peak),
    BrowseColumn("least time on the device", _least_times),
    BrowseColumn("unknown nodes", _unknown_nodes),
    BrowseColumn("coverage: the share of nodes whose cost and sizes are known", _coverage),
    BrowseColumn("share of all FLOPs", _shares),
)
"""Columns that can be chosen, in the order of the list; Reports adds columns of tables that are about nodes."""


def column_choices() -> list[BrowseColumn]:
    """Return the columns of irscope, then those of installed packages: entry points of the group `irscope.columns`, each a function of a
    ColumnSource.

    Nothing of a package is imported before its column is chosen.
    """
    return [
        *COLUMNS,
        *(BrowseColumn(f"{plugin.name}, of {plugin.owner}", partial(_of_package, plugin)) for plugin in plugins("irscope.columns")),
    ]


def _of_package(plugin: Plugin, source: ColumnSource) -> Column:
    made = cast("Callable[[ColumnSource], Column]", plugin.load())(source)
    if not isinstance(made, Column):
        raise UsageError(f"column {plugin.name!r} of {plugin.owner} is not a Column", hint="ColumnSource.sum_up makes one")
    return made


def column_of_table(outline: Outline, table: Table, key: str) -> Column | None:
    """Return a column of a report on the rows that its table is about; None where it is about no nodes, or the column holds no numbers."""
    column = next((column for column in table.columns if column.key == key), None)
    rows = None if column is None or not column.kind.is_number else node_rows(outline, table)
    if column is None or not rows:
        return None
    cells = table.cells(key)
    own: dict[int, Amount | None] = {}
    for place, row in rows.items():
        value = bare(cells[place])
        own[row] = value if isinstance(value, int | float) else None
    return sum_up(outline, column.heading, column.kind, lambda node: own[outline.row_of[node]], about=own)


def node_rows(outline: Outline, table: Table) -> Mapping[int, int]:
    """Return the row of the outline for each row of a table that names a node; a node that is named twice counts once."""
    keys = table.keys
    if keys is None:
        named = next((column for column in table.columns if column.kind in (Kind.NODE, Kind.VALUE)), None)
        if named is None:
            return {}
        keys = [bare(cell) for cell in table.cells(named.key)]
    names = rows_by_name(outline) if any(not isinstance(key, Node) or key not in outline.row_of for key in keys) else {}
    found: dict[int, int] = {}
    taken: set[int] = set()
    for place, key in enumerate(keys):
        at = outline.row_of.get(key) if isinstance(key, Node) else None
        if at is None:
            # A model that was read again for other sizes has nodes of its own, under the same names.
            at = names.get(key.name if isinstance(key, Node) else str(key).removeprefix("%"))
        if at is not None and at not in taken:
            taken.add(at)
            found[place] = at
    return found


def rows_by_name(outline: Outline) -> Mapping[str, int]:
    """Return the row of each node, by its name and those of its results."""
    names: dict[str, int] = {}
    for node, row in outline.row_of.items():
        for name in (node.name, *(output.name for output in node.outputs)):
            if name is not None and name:
                names.setdefault(name, row)
    return names
