"""The state of the cost screen: least times by node, operator kind or module, and the roofline plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from irscope.devices import DeviceProfile
from irscope.errors import IrscopeError
from irscope.report.table import Table
from irscope.report.units import Kind, humanise
from irscope.tui.models.browse import Browse
from irscope.tui.models.costgroups import GROUPINGS, By, Group, Groups, NodeTimes
from irscope.tui.models.names import RowTexts
from irscope.tui.models.outline import Ints
from irscope.tui.models.rows import TableColumn, TableModel
from irscope.tui.models.scatter import Roof, Scatter
from irscope.tui.models.spans import Line, Span, cut_line, filled
from irscope.tui.models.symbols import Symbols

_SECONDS = 5
"""The column of times."""


@dataclass(frozen=True)
class Timed:
    """Least times on a device, for a binding of symbols."""

    device: str
    env: Mapping[str, int]
    times: NodeTimes
    views: Views
    """What is shown by module, kind or node."""


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
        self.groups: Groups | None = None
        self.scatter: Scatter | None = None
        self._points: Ints = np.zeros(0, dtype=np.int64)
        self.table = TableModel((), 0, self.symbols, empty=self.symbols.waiting)
        self._asked: tuple[str, dict[str, int]] | None = None
        self._texts: tuple[Groups | None, RowTexts] | None = None

    # -- results -----------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> tuple[str, dict[str, int]]:
        """The device and the sizes of symbols that are chosen."""
        return self.device, dict(self.browse.results.binding.env)

    @property
    def is_waiting(self) -> bool:
        """Whether the shown results are outdated, and no computation of the chosen ones was started."""
        return self._asked != self.wanted

    def ask(self) -> tuple[str, dict[str, int]]:
        """The chosen device and binding, taken for computation."""
        self._asked, self.error = self.wanted, None
        return self._asked

    def take(self, found: Timed) -> None:
        """Show a result, unless something else has been chosen meanwhile."""
        if (found.device, dict(found.env)) == self._asked:
            self.found, self.error = found, None
            self.rebuild()

    def fail(self, error: IrscopeError) -> None:
        """The computation failed."""
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
        if self._texts is None or self._texts[0] is not self.groups:
            self._texts = (self.groups, RowTexts(f"{group.name} {group.binding}" for group in self.groups or ()))
        kept = np.ones(self.table.count, dtype=np.bool_)
        for word in words:
            negated = word[:1] == "!" and len(word) > 1
            hit = self._texts[1].containing(word[1:] if negated else word)
            kept &= ~hit if negated else hit
        self.table.filter(kept)
        return ""

    @property
    def group(self) -> Group | None:
        """The row under the cursor."""
        return None if self.table.selected is None or self.groups is None else self.groups[self.table.selected]

    def node_row(self) -> int | None:
        """The outline row of the slowest node of the group under the cursor."""
        if self.found is None or self.groups is None or self.table.selected is None:
            return None
        times, places = self.found.times, self.groups.nodes(self.table.selected)
        row = int(times.rows[places[np.argmax(times.seconds[places])]]) if len(places) else -1
        return row if row >= 0 else None

    def export(self) -> Table:
        """The rows that are shown."""
        rows = [
            (
                one.name,
                one.count,
                *((None,) * 4 if one.is_unknown else (one.flops, one.bytes, one.intensity, one.seconds)),
                one.binding,
                one.unknown,
            )
            for one in (self.groups[row] for row in self.table.shown.tolist() if self.groups is not None)
        ]
        columns = [self.by, "nodes:count", "flops:flops", "bytes:bytes", "intensity:number", "least:seconds", "bound", "unknown:count"]
        return Table.of(rows, [f"{columns[0]}:text", *columns[1:]], "costs")

    # -- text --------------------------------------------------------------------------------------------------

    def title(self) -> str:
        """What stands above the table."""
        parts = [f"Cost by {self.by}"]
        if self.found is not None:
            times = self.found.times
            unknown = int(times.is_unknown.sum())
            sign = self.symbols.at_least if unknown else ""
            is_unknown = unknown == len(times) and (unknown or not self.browse.program.has_graph)
            total = self.symbols.unknown if is_unknown else f"{sign}{humanise(times.total, Kind.SECONDS)}"
            parts += [times.device.title, f"least time {total}"]
            if unknown:
                parts.append(f"{unknown:,} nodes unknown{self._hint()}")
        if self.browse.results.binding.env:
            parts.append(f"for {self.browse.results.binding.text}")
        if self.filter_text:
            parts.append(f"filter {self.filter_text}: {len(self.table):,}")
        if self.error is None and (self.found is None or (self.found.device, dict(self.found.env)) != self.wanted):
            parts.append("computing")
        return self.symbols.clean(self.symbols.glyphs.separator.join(parts))

    def _hint(self) -> str:
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
        point = None if selected is None or self._points[selected] < 0 else int(self._points[selected])
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

    groups: Groups
    table: TableModel
    scatter: Scatter
    points: Ints
    """For each row its point in the scatter, -1 for one that has none."""


class Views:
    """The groupings of least times, slowest first; only the one that was looked at last is kept."""

    def __init__(self, times: NodeTimes, symbols: Symbols) -> None:
        self._times = times
        self._symbols = symbols
        self._kept: tuple[By, View] | None = None

    def __getitem__(self, by: By) -> View:
        if self._kept is None or self._kept[0] != by:
            self._kept = (by, _view(self._times, by, self._symbols))
        return self._kept[1]


def views_of(times: NodeTimes, symbols: Symbols, first: By = "module") -> Views:
    """All groupings, the first of them made at once; may run in any thread."""
    views = Views(times, symbols)
    assert views[first] is not None
    return views


def _view(times: NodeTimes, by: By, symbols: Symbols) -> View:
    groups = Groups(times, by)
    table = _table(groups, by, times.total, symbols)
    table.sort(_SECONDS, reverse=True)
    intensity = groups.intensity
    drawn = ~np.isnan(intensity) & (groups.seconds > 0) & ~groups.is_unknown
    points = np.full(len(groups), -1, dtype=np.int64)
    points[drawn] = np.arange(int(drawn.sum()))
    scatter = Scatter(intensity[drawn], groups.flops[drawn] / groups.seconds[drawn], _roof(times.device, times.dtypes))
    return View(groups, table, scatter, points)


def _table(groups: Groups, by: By, total: float, symbols: Symbols) -> TableModel:
    clean = symbols.clean

    def amount(read: Callable[[Group], float], kind: Kind) -> Callable[[int], str]:
        def text(row: int) -> str:
            group = groups[row]
            if group.is_unknown:
                return symbols.unknown
            sign = symbols.at_least if group.unknown else ""
            return f"{sign}{humanise(read(group), kind)}"

        return text

    def intensity(row: int) -> str:
        found = groups[row].intensity
        return f"{found:.3g}" if found is not None else "" if not groups[row].is_unknown else symbols.unknown

    def share(row: int) -> str:
        return symbols.unknown if groups[row].is_unknown or not total else f"{groups[row].seconds / total:.1%}"

    def bounds() -> Sequence[str]:
        return [groups[row].binding for row in range(len(groups))]

    keys = groups.keys
    columns = (
        TableColumn(by, 20, lambda row: clean(groups.name(row)), lambda: groups.names, grows=True, role="name"),
        TableColumn("nodes", 7, lambda row: f"{groups[row].count:,}", lambda: groups.counts, True, rank=4),
        TableColumn("FLOPs", 14, amount(lambda one: one.flops, Kind.FLOPS), keys(lambda: groups.flops), True, rank=2),
        TableColumn("bytes", 11, amount(lambda one: one.bytes, Kind.BYTES), keys(lambda: groups.bytes), True, rank=3),
        TableColumn("FLOPs/byte", 10, intensity, keys(lambda: groups.intensity), True, rank=5),
        TableColumn("least time", 11, amount(lambda one: one.seconds, Kind.SECONDS), keys(lambda: groups.seconds), True),
        TableColumn("share", 6, share, keys(lambda: groups.seconds), True, rank=1),
        TableColumn("bound by", 9, lambda row: groups[row].binding, bounds, rank=1),
    )
    return TableModel(columns, len(groups), symbols, empty="There is no node to time.")


def _roof(device: DeviceProfile, dtypes: Sequence[str]) -> Roof | None:
    """The roof for the element type that does most of the arithmetic."""
    bandwidth = _high(device.bandwidth)
    for dtype in dtypes:
        for rates in (device.matrix, device.vector):
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
