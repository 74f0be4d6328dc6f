"""The state of the cost screen: least times by node, operator kind or module, and where each stands under the device's roof."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from irscope.errors import IrscopeError
from irscope.ir.graph import Node
from irscope.ir.places import Scope
from irscope.report.table import Table
from irscope.report.units import Kind, humanise
from irscope.tui.models.browse import Browse
from irscope.tui.models.results import NodeTime, Times
from irscope.tui.models.rows import TableColumn, TableModel
from irscope.tui.models.scatter import Roof, Scatter
from irscope.tui.models.spans import Line, Span, cut_line, filled
from irscope.tui.models.symbols import Symbols

By = Literal["module", "kind", "node"]
GROUPINGS: tuple[By, ...] = ("module", "kind", "node")
_UNKNOWN = "unknown"
_SECONDS = 5
"""The column of times."""


@dataclass(frozen=True)
class Timed:
    """The answer to one question: least times on a device, for sizes of symbols."""

    device: str
    env: Mapping[str, int]
    times: Times
    views: Mapping[By, View]
    """What is shown by module, kind and node: made with the answer, as that takes a while for large models."""


@dataclass
class Group:
    """Nodes that stand in one row."""

    name: str
    nodes: list[int] = field(default_factory=list)
    """Places in the list of times."""
    flops: int = 0
    bytes: int = 0
    seconds: float = 0.0
    unknown: int = 0
    by_binding: dict[str, float] = field(default_factory=dict)

    @property
    def intensity(self) -> float | None:
        return self.flops / self.bytes if self.bytes and self.flops else None

    @property
    def binding(self) -> str:
        """What takes most of the time."""
        return max(self.by_binding, key=lambda one: self.by_binding[one]) if self.by_binding else _UNKNOWN

    @property
    def is_unknown(self) -> bool:
        return self.unknown >= len(self.nodes)


class Cost:
    """All logic of the cost screen."""

    def __init__(self, browse: Browse) -> None:
        self.browse = browse
        self.symbols = browse.symbols
        self.device = browse.source.settings.device
        self.by: By = "module"
        self.found: Timed | None = None
        self.error: IrscopeError | None = None
        self.filter_text = ""
        self.groups: Sequence[Group] = ()
        self.scatter: Scatter | None = None
        self._points: Mapping[int, int] = {}
        self.table = TableModel((), 0, self.symbols, empty=self.symbols.waiting)
        self._asked: tuple[str, dict[str, int]] | None = None

    # -- results -----------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> tuple[str, dict[str, int]]:
        """The device and the sizes of symbols that are chosen."""
        return self.device, dict(self.browse.results.binding.env)

    @property
    def is_waiting(self) -> bool:
        """Whether what is shown does not answer what is chosen, and nobody has tried to answer it yet."""
        return self._asked != self.wanted

    def ask(self) -> tuple[str, dict[str, int]]:
        """The question, which is then no more waiting to be asked."""
        self._asked, self.error = self.wanted, None
        return self._asked

    def take(self, found: Timed) -> None:
        """Show an answer, unless something else has been chosen meanwhile."""
        if (found.device, dict(found.env)) == self._asked:
            self.found, self.error = found, None
            self.rebuild()

    def fail(self, error: IrscopeError) -> None:
        """There is no answer."""
        self.error = error

    def group_by(self, by: By) -> None:
        """Show other rows."""
        self.by = by
        self.rebuild()

    def next_grouping(self) -> None:
        """Show modules, operator kinds, nodes in turn."""
        self.group_by(GROUPINGS[(GROUPINGS.index(self.by) + 1) % len(GROUPINGS)])

    def rebuild(self) -> None:
        """Show the rows of the chosen grouping."""
        if self.found is None:
            return
        before, view = self.table, self.found.views[self.by]
        self.groups, self.table, self.scatter, self._points = view.groups, view.table, view.scatter, view.points
        by, reverse = (before.sorted_by, before.reversed) if before.sorted_by is not None else (_SECONDS, True)
        if (by, reverse) != (self.table.sorted_by, self.table.reversed):
            self.table.sort(by, reverse=reverse)
        self.table.move_to(0)
        self.set_filter(self.filter_text)

    # -- rows --------------------------------------------------------------------------------------------------

    def set_filter(self, text: str) -> str:
        """Show only rows whose name or bound contains all words."""
        self.filter_text = text.strip()
        words = self.filter_text.lower().split()
        if not words:
            self.table.filter(None)
            return ""
        names = [f"{group.name} {group.binding}".lower() for group in self.groups]
        kept = np.array(
            [all((word[1:] not in name) if word[:1] == "!" else word in name for word in words) for name in names], dtype=np.bool_
        )
        self.table.filter(kept)
        return ""

    @property
    def group(self) -> Group | None:
        """The row under the cursor."""
        return None if self.table.selected is None else self.groups[self.table.selected]

    def node_row(self) -> int | None:
        """The row of the outline of the dearest node of the group under the cursor."""
        if self.found is None or self.group is None:
            return None
        times = self.found.times
        place = max(self.group.nodes, key=lambda one: times.nodes[one].seconds(times.device.kind))
        return self.row_of(times.nodes[place].node)

    def row_of(self, node: Node) -> int | None:
        """The row of a node, which may be one of the same model read again with other sizes."""
        outline = self.browse.outline
        row = outline.row_of.get(node)
        if row is None:
            row = next((place for own, place in outline.row_of.items() if own.name == node.name and own.op == node.op), None)
        return row

    def export(self) -> Table:
        """The rows that are shown."""
        rows = [
            (
                one.name,
                len(one.nodes),
                *((None,) * 4 if one.is_unknown else (one.flops, one.bytes, one.intensity, one.seconds)),
                one.binding,
                one.unknown,
            )
            for one in (self.groups[row] for row in self.table.shown.tolist())
        ]
        columns = [self.by, "nodes:count", "flops:flops", "bytes:bytes", "intensity:number", "least:seconds", "bound", "unknown:count"]
        return Table.of(rows, [f"{columns[0]}:text", *columns[1:]], "costs")

    # -- text --------------------------------------------------------------------------------------------------

    def title(self) -> str:
        """What stands above the table."""
        parts = [f"Cost by {self.by}"]
        if self.found is not None:
            times = self.found.times
            unknown = sum(1 for one in times.nodes if one.binding == _UNKNOWN)
            sign = self.symbols.at_least if unknown else ""
            total = self.symbols.unknown if unknown and unknown == len(times.nodes) else f"{sign}{humanise(times.seconds, Kind.SECONDS)}"
            parts += [times.device.title, f"least time {total}"]
            if unknown:
                parts.append(f"{unknown:,} nodes unknown{self._hint(times)}")
        if self.browse.results.binding.env:
            parts.append(f"for {self.browse.results.binding.text}")
        if self.filter_text:
            parts.append(f"filter {self.filter_text}: {len(self.table):,}")
        if self.error is None and (self.found is None or (self.found.device, dict(self.found.env)) != self.wanted):
            parts.append("computing")
        return self.symbols.clean(self.symbols.glyphs.separator.join(parts))

    def _hint(self, times: Times) -> str:
        free = [name for name in self.browse.program.symbols if name not in self.browse.results.binding.env]
        return f", c puts in {', '.join(free[:3])}" if free else ""

    def chart_title(self) -> str:
        """What stands above the scatter."""
        roof = None if self.scatter is None else self.scatter.roof
        return f"Roofline{self.symbols.glyphs.separator}{roof.name}" if roof is not None else "Roofline"

    def chart_lines(self, width: int, height: int) -> list[Line]:
        """The scatter, or a word on why there is none."""
        if self.error is not None:
            lines: list[Line] = [(Span(self.symbols.clean(self.error.message), "error"),)]
            lines += [(Span(self.symbols.clean(self.error.hint), "faint"),)] if self.error.hint else []
            return filled([cut_line(line, width, self.symbols) for line in lines], height)
        if self.scatter is None:
            return filled([(Span(self.symbols.waiting, "faint"),)], height)
        selected = self.table.selected
        point = None if selected is None else self._points.get(selected)
        foot = self._foot(point)
        drawn = self.scatter.lines(width, height - 1, point, self.symbols)
        return [*drawn, cut_line(foot, width, self.symbols)][:height]

    def _foot(self, point: int | None) -> Line:
        group = self.group
        if group is None:
            return ()
        name = self.symbols.clean(group.name)
        if point is None:
            why = "its time is unknown" if group.is_unknown else "it does no arithmetic, or moves no bytes"
            return (Span(f"{name} is not drawn: {why}", "faint"),)
        rate = humanise(group.flops / group.seconds, Kind.FLOPS_PER_SECOND)
        return (Span(f"{self.symbols.point} ", "mark"), Span(f"{name}: at most {rate}, bound by {group.binding}"))


@dataclass(frozen=True)
class View:
    """Rows of one grouping with their points."""

    groups: Sequence[Group]
    table: TableModel
    scatter: Scatter
    points: Mapping[int, int]
    """Which point is whose row's."""


def views_of(times: Times, symbols: Symbols) -> dict[By, View]:
    """All groupings of least times, slowest first; may run in any thread."""
    return {by: _view(times, by, symbols) for by in GROUPINGS}


def _view(times: Times, by: By, symbols: Symbols) -> View:
    groups = _groups(times, by)
    table = _table(groups, by, times.seconds, symbols)
    table.sort(_SECONDS, reverse=True)
    shown = [
        (row, intensity, group.flops / group.seconds)
        for row, group in enumerate(groups)
        if (intensity := group.intensity) is not None and group.seconds > 0
    ]
    scatter = Scatter([x for _, x, _ in shown], [y for _, _, y in shown], _roof(times.device, times.nodes))
    return View(groups, table, scatter, {row: place for place, (row, _, _) in enumerate(shown)})


def _groups(times: Times, by: By) -> list[Group]:
    kind = times.device.kind
    groups: dict[object, Group] = {}
    for place, one in enumerate(times.nodes):
        seconds = one.seconds(kind)
        for key, name in _KEYS[by](one.node):
            group = groups.get(key)
            if group is None:
                group = groups[key] = Group(name)
            group.nodes.append(place)
            if one.binding == _UNKNOWN:
                group.unknown += 1
                continue
            group.flops += one.flops * one.runs
            group.bytes += one.bytes * one.runs
            group.seconds += seconds
            group.by_binding[one.binding] = group.by_binding.get(one.binding, 0.0) + seconds
    return list(groups.values())


def _table(groups: Sequence[Group], by: By, total: float, symbols: Symbols) -> TableModel:
    clean = symbols.clean

    def amount(read: Callable[[Group], float], kind: Kind) -> Callable[[int], str]:
        def text(row: int) -> str:
            group = groups[row]
            if group.is_unknown:
                return symbols.unknown
            sign = symbols.at_least if group.unknown else ""
            return f"{sign}{humanise(read(group), kind)}"

        return text

    def keys(read: Callable[[Group], float | None]) -> Callable[[], Sequence[object]]:
        return lambda: [None if group.is_unknown else read(group) for group in groups]

    def intensity(row: int) -> str:
        found = groups[row].intensity
        return f"{found:.3g}" if found is not None else "" if not groups[row].is_unknown else symbols.unknown

    def share(row: int) -> str:
        return symbols.unknown if groups[row].is_unknown or not total else f"{groups[row].seconds / total:.1%}"

    columns = (
        TableColumn(by, 20, lambda row: clean(groups[row].name), lambda: [one.name for one in groups], grows=True, role="name"),
        TableColumn("nodes", 7, lambda row: f"{len(groups[row].nodes):,}", lambda: [len(one.nodes) for one in groups], True, rank=4),
        TableColumn("FLOPs", 14, amount(lambda one: one.flops, Kind.FLOPS), keys(lambda one: one.flops), True, rank=2),
        TableColumn("bytes", 11, amount(lambda one: one.bytes, Kind.BYTES), keys(lambda one: one.bytes), True, rank=3),
        TableColumn("FLOPs/byte", 10, intensity, keys(lambda one: one.intensity), True, rank=5),
        TableColumn("least time", 11, amount(lambda one: one.seconds, Kind.SECONDS), keys(lambda one: one.seconds), True),
        TableColumn("share", 6, share, keys(lambda one: one.seconds), True, rank=1),
        TableColumn("bound by", 9, lambda row: groups[row].binding, lambda: [one.binding for one in groups], rank=1),
    )
    return TableModel(columns, len(groups), symbols, empty="There is no node to time.")


def _by_module(node: Node) -> list[tuple[object, str]]:
    found: list[tuple[object, str]] = []
    scope: Scope | None = node.scope
    while scope is not None:
        found.append((scope, scope.path or "(model)"))
        scope = scope.parent
    return found


_KEYS: dict[str, Callable[[Node], list[tuple[object, str]]]] = {
    "module": _by_module,
    "kind": lambda node: [(node.op, node.op)],
    "node": lambda node: [(node, node.name or node.op)],
}


def _roof(device: object, nodes: Sequence[NodeTime]) -> Roof | None:
    """The roof for the element type that does most of the arithmetic."""
    work: dict[str, int] = {}
    for one in nodes:
        work[one.dtype] = work.get(one.dtype, 0) + one.flops * one.runs
    bandwidth = _high(getattr(device, "bandwidth", None))
    for dtype in sorted(work, key=lambda name: -work[name]):
        for rates in (getattr(device, "matrix", {}), getattr(device, "vector", {})):
            peak = _high(rates.get(dtype))
            if peak and bandwidth:
                return Roof(
                    bandwidth,
                    peak,
                    f"{dtype} {humanise(float(peak), Kind.FLOPS_PER_SECOND)}, {humanise(float(bandwidth), Kind.BYTES_PER_SECOND)}",
                )
    return None


def _high(figure: object) -> float | None:
    value = getattr(figure, "hi", None)
    return float(value) if isinstance(value, int | float) and value > 0 else None
