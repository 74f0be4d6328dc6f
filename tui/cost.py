"""The Cost screen: least times on a device by module, operator kind or node, and where they stand under its roof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from irscope.devices import DeviceProfile
from irscope.errors import IrscopeError
from irscope.immutable import immutable
from irscope.ir.graph import Node
from irscope.ir.places import Scope
from irscope.report.names import fold_paths
from irscope.report.table import Table
from irscope.report.units import Kind, humanise
from irscope.tui.actions import Action, bindings
from irscope.tui.amounts import Floats
from irscope.tui.analyses import analysis_of, result_of
from irscope.tui.browse.model import Browse
from irscope.tui.browse.outline import Ints, Mask, Outline, Rows
from irscope.tui.charts import Roof, Scatter
from irscope.tui.command import run_command
from irscope.tui.rows import RowTexts, TableColumn, TableModel
from irscope.tui.screen import ModelScreen
from irscope.tui.session import NOW, Session
from irscope.tui.text import Line, Span, Symbols, cut_line, failure_lines, note_lines
from irscope.tui.widgets.paint import Drawn
from irscope.tui.widgets.table import RowsPane, VirtualTable

if TYPE_CHECKING:
    from irscope.passes.cost.bounds import Bounds
    from irscope.session import Model


# Least times of nodes summed up by node, operator kind or module, as arrays: large models have as many rows as nodes.

By = Literal["layer", "module", "kind", "node"]
GROUPINGS: tuple[By, ...] = ("layer", "module", "kind", "node")
"""Layers, kinds and nodes have every node once, so that their rows add up to the total; a module has what is inside of it, too."""
_LARGE = 1 / 3
"""A module with a larger share of the least time is shown as the layers in it."""
_OWN = "nodes of its own"
UNKNOWN = "unknown"


@immutable(slots=False)
class Timings:
    """The least time of each node as arrays, which may come from another process."""

    device: DeviceProfile
    total: float
    seconds: Floats
    flops: Floats
    bytes: Floats
    bound: Ints
    bounds: Sequence[str]
    dtypes: Sequence[str]
    """Element types, those that most arithmetic is done in first."""
    names: Sequence[tuple[str, str]]
    """The name and the operator of each node."""
    nodes: Sequence[Node] = ()
    """The nodes; nothing where they are those of another process."""


def timings_of(times: Bounds) -> Timings:
    """Return the arrays of an answer of the roofline pass."""
    nodes, kind = times.nodes, times.device.kind
    numbers: dict[str, int] = {UNKNOWN: 0}
    bound: Ints = np.array([numbers.setdefault(node.binding, len(numbers)) for node in nodes], dtype=np.int64)
    flops: Floats = np.array([float(node.flops * node.runs) for node in nodes], dtype=np.float64)
    work: dict[str, float] = {}
    for node, amount in zip(nodes, flops.tolist(), strict=True):
        if amount:
            work[node.dtype] = work.get(node.dtype, 0.0) + amount
    return Timings(
        times.device,
        times.seconds,
        np.array([node.seconds(kind) for node in nodes], dtype=np.float64),
        flops,
        np.array([float(node.bytes * node.runs) for node in nodes], dtype=np.float64),
        bound,
        list(numbers),
        sorted(work, key=lambda name: -work[name]),
        [(node.node.name, node.node.op) for node in nodes],
        [node.node for node in nodes],
    )


def timed_alone(model: Model) -> Timings:
    """Return the least times of a model's nodes without the nodes: for a process of its own."""
    return replace(timings_of(result_of(model.manager, _PASS)), nodes=())


class NodeTimes:
    """The least time of each node with where the node stands in the outline; holds nothing of the model that was timed."""

    def __init__(self, times: Timings, outline: Outline) -> None:
        self.device, self.total, self.dtypes = times.device, times.total, times.dtypes
        self.seconds, self.flops, self.bytes = times.seconds, times.flops, times.bytes
        self.bound, self.bounds = times.bound, times.bounds
        """The bound as a code; 0 is unknown."""
        self.rows: Rows = np.array(list(_outline_rows(times, outline)), dtype=np.int32)
        """Rows of the outline, -1 where a node is not there."""
        if not times.nodes and (self.rows < 0).any():
            raise KeyError("nodes of another process that are not in the outline")
        # References are to the model's own nodes, so that the timed copy can be freed.
        own: Sequence[Node | None] = times.nodes or [None] * len(self.rows)
        self.nodes = [_own(outline, row, node) for row, node in zip(self.rows.tolist(), own, strict=True)]
        kinds: dict[str, int] = {}
        self.kind: Rows = np.array([kinds.setdefault(node.op, len(kinds)) for node in self.nodes], dtype=np.int32)
        self.kinds = list(kinds)
        scopes: dict[Scope, int] = {}
        for node in self.nodes:
            _note(node.scope, scopes)
        self.scope: Ints = np.array([scopes[node.scope] for node in self.nodes], dtype=np.int64)
        self.scopes = list(scopes)
        self.outer: Rows = np.array([-1 if scope.parent is None else scopes[scope.parent] for scope in scopes], dtype=np.int32)
        """For each module call the one around it, which has a smaller number."""

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def is_unknown(self) -> Mask:
        """Return which nodes have no least time."""
        mask: Mask = self.bound == 0
        return mask


def _own(outline: Outline, row: int, timed: Node | None) -> Node:
    """Return the node of a row; the one that was timed where the outline has none."""
    item = outline.items[row] if row >= 0 else None
    node = item if isinstance(item, Node) else timed
    assert node is not None
    return node


def _note(scope: Scope, scopes: dict[Scope, int]) -> None:
    """Give numbers to a module call and those around it, outer ones first."""
    missing: list[Scope] = []
    one: Scope | None = scope
    while one is not None and one not in scopes:
        missing.append(one)
        one = one.parent
    for found in reversed(missing):
        scopes[found] = len(scopes)


def _outline_rows(times: Timings, outline: Outline) -> Iterator[int]:
    """Yield the row of each node, which may be one of the same model read again with other sizes."""
    names: dict[tuple[str, str], int] = {}
    nodes: Sequence[Node | None] = times.nodes or [None] * len(times.names)
    for node, key in zip(nodes, times.names, strict=True):
        row = None if node is None else outline.row_of.get(node)
        if row is None:
            if not names:
                names = {(one.name, one.op): place for one, place in reversed(outline.row_of.items())}
            row = names.get(key, -1)
        yield row


@immutable(slots=False)
class Group:
    """Nodes that stand in one row."""

    name: str
    count: int
    flops: int
    bytes: int
    seconds: float
    unknown: int
    binding: str
    """Resource that takes most of the time."""

    @property
    def intensity(self) -> float | None:
        """FLOPs for each byte; None where there are none of either."""
        return self.flops / self.bytes if self.bytes and self.flops else None

    @property
    def is_unknown(self) -> bool:
        """Return whether nothing is known of it."""
        return self.unknown >= self.count


class Groups(Sequence[Group]):
    """The rows of one grouping; each is made when it is looked at."""

    def __init__(self, times: NodeTimes, by: By) -> None:
        self._times = times
        self.by = by
        self._layers, self._layer = _layers(times) if by == "layer" else ([], times.scope)
        count = {"layer": len(self._layers), "module": len(times.scopes), "kind": len(times.kinds), "node": len(times)}[by]
        known = ~times.is_unknown
        self.counts = self._summed(np.ones(len(times), dtype=np.float64), count)
        self.unknown = self._summed((~known).astype(np.float64), count)
        self.flops, self.bytes, self.seconds = (
            self._summed(np.where(known, amounts, 0.0), count) for amounts in (times.flops, times.bytes, times.seconds)
        )
        bounds = range(1, len(times.bounds))
        shares = [self._summed(np.where(times.bound == bound, times.seconds, 0.0), count) for bound in bounds]
        hits = [self._summed((times.bound == bound).astype(np.float64), count) for bound in bounds]
        # What takes most of the time binds; where nothing takes any, what is there at all.
        self.bound: Ints = np.zeros(count, dtype=np.int64)
        if shares:
            weights = np.stack(shares) * 1e9 + np.stack(hits) * 1e-9
            self.bound = np.where(weights.max(axis=0) > 0, weights.argmax(axis=0) + 1, 0)

    def _summed(self, amounts: Floats, count: int) -> Floats:
        times = self._times
        if self.by == "node":
            return amounts
        if self.by == "kind":
            return np.bincount(times.kind, amounts, minlength=count).astype(np.float64)
        if self.by == "layer":
            return np.bincount(self._layer[times.scope], amounts, minlength=count).astype(np.float64)
        return _with_inner(times, amounts)

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, number: int) -> Group:  # type: ignore[override]  # slices are not used
        return Group(
            self.name(number),
            int(self.counts[number]),
            int(self.flops[number]),
            int(self.bytes[number]),
            float(self.seconds[number]),
            int(self.unknown[number]),
            self._times.bounds[int(self.bound[number])],
        )

    def name(self, number: int) -> str:
        """Return the first column."""
        times = self._times
        if self.by == "layer":
            return self._layers[number]
        if self.by == "module":
            return times.scopes[number].path or "(model)"
        return times.kinds[number] if self.by == "kind" else times.nodes[number].name or times.nodes[number].op

    @cached_property
    def texts(self) -> RowTexts:
        """Return the searchable texts of rows: the name and the binding resource."""
        return RowTexts(f"{group.name} {group.binding}" for group in self)

    @property
    def names(self) -> list[str]:
        """Return all names in order."""
        return [self.name(number) for number in range(len(self))]

    @property
    def is_unknown(self) -> Mask:
        """Rows without any known time."""
        mask: Mask = self.unknown >= self.counts
        return mask

    @property
    def intensity(self) -> Floats:
        """FLOPs for each byte; NaN where there are none of either."""
        with np.errstate(divide="ignore", invalid="ignore"):
            floats: Floats = np.where((self.bytes > 0) & (self.flops > 0), self.flops / self.bytes, np.nan)
        return floats

    def nodes(self, number: int) -> Ints:
        """Return the places of the nodes of a row in the times."""
        times = self._times
        if self.by == "node":
            return np.array([number], dtype=np.int64)
        if self.by == "kind":
            return np.flatnonzero(times.kind == number).astype(np.int64)
        if self.by == "layer":
            return np.flatnonzero(self._layer[times.scope] == number).astype(np.int64)
        inside = np.zeros(len(times.scopes), dtype=np.bool_)
        inside[number] = True
        for index in range(number + 1, len(times.scopes)):
            inside[index] = times.outer[index] >= 0 and inside[times.outer[index]]
        return np.flatnonzero(inside[times.scope]).astype(np.int64)

    def keys(self, amounts: Callable[[], Floats]) -> Callable[[], Floats]:
        """Return a function that computes the sort keys of rows; NaN, which comes last, where nothing is known."""
        return lambda: np.where(self.is_unknown, np.nan, amounts())


def _with_inner(times: NodeTimes, amounts: Floats) -> Floats:
    """Return the sums by module call, inner ones included."""
    sums = np.bincount(times.scope, amounts, minlength=len(times.scopes)).tolist()
    # Inner calls have larger numbers than those around them.
    outer = times.outer.tolist()
    for number in range(len(sums) - 1, 0, -1):
        if outer[number] >= 0:
            sums[outer[number]] += sums[number]
    return np.array(sums, dtype=np.float64)


def _layers(times: NodeTimes) -> tuple[list[str], Ints]:
    """Return the model as layers: the name of each, equal ones under one, and the layer of each module call.

    A call is opened where it takes a large share of the time and there are calls in it, or where it is the model; each node is in one.
    """
    seconds = _with_inner(times, np.where(times.is_unknown, 0.0, times.seconds))
    outer = times.outer.tolist()
    holds = set(outer)
    limit = _LARGE * float(times.total) if times.total else math.inf
    opened: list[bool] = []
    call: list[int] = []
    """The call of the layer that each call belongs to."""
    for number, parent in enumerate(outer):
        is_inner = parent >= 0 and not opened[parent]
        opened.append(not is_inner and number in holds and (parent < 0 or seconds[number] > limit))
        call.append(call[parent] if is_inner else number)
    layer: Ints = np.array(call, dtype=np.int64)
    used = np.unique(layer[times.scope]).tolist() if len(times) else []
    amounts = [np.bincount(layer[times.scope], one, minlength=len(call)) for one in (np.ones(len(times)), times.flops, times.bytes)]
    paths = {scope: times.scopes[scope].path or "(model)" for scope in used}
    folded = fold_paths({path: tuple(float(amount[scope]) for amount in amounts) for scope, path in paths.items() if not opened[scope]})
    numbers: dict[str, int] = {}
    place = np.zeros(len(call), dtype=np.int64)
    for scope, path in paths.items():
        name = f"{path}, {_OWN}" if opened[scope] else folded[path]
        place[scope] = numbers.setdefault(name, len(numbers))
    return list(numbers), place[layer] if call else place


# The state of the cost screen: least times by node, operator kind or module, and the roofline plot.

_PASS = "roofline{top=0}"
_MOST_CEILINGS = 3
"""Element types whose rates are drawn; a model that computes in more has their names in the report."""
"""Pass that computes the answer."""
_SECONDS = 5
"""The column of times."""


@immutable(slots=False)
class Timed:
    """Least times on a device, for a binding of symbols."""

    device: str
    env: Mapping[str, int]
    times: NodeTimes
    views: Views
    """Views by module, kind and node."""


class Cost:
    """All logic of the cost screen."""

    def __init__(self, browse: Browse) -> None:
        self.browse = browse
        self.symbols = browse.symbols
        self.by: By = "layer"
        self.found: Timed | None = None
        self.error: IrscopeError | None = None
        self.filter_text = ""
        self.groups: Groups | None = None
        self.scatter: Scatter | None = None
        self._points: Ints = np.zeros(0, dtype=np.int64)
        self.table = TableModel((), 0, self.symbols, empty=self.symbols.waiting)
        self._asked: tuple[str, dict[str, int]] | None = None

    @property
    def wanted(self) -> tuple[str, dict[str, int]]:
        """Return the device and the sizes of symbols that are chosen."""
        return self.browse.context.device, dict(self.browse.results.complete.env)

    @property
    def is_waiting(self) -> bool:
        """Return whether the shown results are outdated, and no computation of the chosen ones was started."""
        return self._asked != self.wanted

    def ask(self) -> tuple[str, dict[str, int]]:
        """Return the chosen device and binding, taken for computation."""
        self._asked, self.error = self.wanted, None
        return self._asked

    def take(self, timed: Timed) -> None:
        """Show a result, unless something else has been chosen meanwhile."""
        if (timed.device, dict(timed.env)) == self._asked:
            self.found, self.error = timed, None
            self.rebuild()

    def fail(self, error: IrscopeError) -> None:
        """Note that the computation failed."""
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

    def set_filter(self, text: str) -> str:
        """Show only rows whose name or bound contains all words."""
        self.filter_text = text.strip()
        if self.groups is not None:
            self.table.filter_words(text, self.groups.texts.containing)
        return ""

    @property
    def group(self) -> Group | None:
        """Return the row under the cursor."""
        return None if self.table.selected is None or self.groups is None else self.groups[self.table.selected]

    def node_row(self) -> int | None:
        """Return the outline row of the slowest node of the group under the cursor."""
        if self.found is None or self.groups is None or self.table.selected is None:
            return None
        times, places = self.found.times, self.groups.nodes(self.table.selected)
        row = int(times.rows[places[np.argmax(times.seconds[places])]]) if len(places) else -1
        return row if row >= 0 else None

    def export(self) -> Table:
        """Return the rows that are shown."""
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

    def title(self) -> str:
        """Return the title of the table."""
        parts = [f"Cost by {self.by}"]
        if self.found is not None:
            times = self.found.times
            unknown = int(times.is_unknown.sum())
            sign = self.symbols.at_least if unknown else ""
            is_unknown = unknown == len(times) and (unknown or not self.browse.program.has_graph)
            total = self.symbols.unknown if is_unknown else f"{sign}{humanise(times.total, Kind.SECONDS)}"
            adds = "" if self.by == "module" else f", the sum of {len(self.groups or ()):,} rows"
            parts += [f"roofline time {total}{adds}", times.device.title]
            if self.browse.context.assumed:
                parts.append(f"at {self.browse.context.assumed}")
            if unknown:
                parts.append(f"{unknown:,} nodes unknown")
        if self.filter_text:
            parts.append(f"filter {self.filter_text}: {len(self.table):,}")
        if self.error is None and (self.found is None or (self.found.device, dict(self.found.env)) != self.wanted):
            parts.append("computing")
        return self.symbols.clean(self.symbols.glyphs.separator.join(parts))

    def chart_title(self) -> str:
        """Return the title of the scatter plot."""
        roof = None if self.scatter is None else self.scatter.roof
        return f"Roofline{self.symbols.glyphs.separator}{roof.name}" if roof is not None else "Roofline"

    def chart_lines(self, width: int, height: int) -> list[Line]:
        """Return the scatter, or a word on why there is none."""
        if self.error is not None:
            return failure_lines(self.error, width, height, self.symbols)
        if self.scatter is None:
            return note_lines(self.symbols.waiting, height)
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


@immutable(slots=False)
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


def views_of(times: NodeTimes, symbols: Symbols, first: By = "layer") -> Views:
    """Return all groupings, the first of them made at once; may run in any thread."""
    views = Views(times, symbols)
    assert views[first] is not None
    return views


def _view(times: NodeTimes, by: By, symbols: Symbols) -> View:
    groups = Groups(times, by)
    table = _groups_model(groups, by, times.total, symbols)
    table.sort(_SECONDS, reverse=True)
    intensity = groups.intensity
    drawn = ~np.isnan(intensity) & (groups.seconds > 0) & ~groups.is_unknown
    points = np.full(len(groups), -1, dtype=np.int64)
    points[drawn] = np.arange(int(drawn.sum()))
    scatter = Scatter(intensity[drawn], groups.flops[drawn] / groups.seconds[drawn], _roof(times))
    return View(groups, table, scatter, points)


def _groups_model(groups: Groups, by: By, total: float, symbols: Symbols) -> TableModel:
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
        intensity = groups[row].intensity
        return f"{intensity:.3g}" if intensity is not None else "" if not groups[row].is_unknown else symbols.unknown

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


def _roof(times: NodeTimes) -> Roof | None:
    """Return the roof with a ceiling for each element type that arithmetic is done in, those that most is done in first."""
    bandwidth, device = _high(times.device.bandwidth), times.device
    ceilings = {dtype: peak for dtype in times.dtypes if (peak := _high(device.matrix.get(dtype)) or _high(device.vector.get(dtype)))}
    if not ceilings or not bandwidth:
        return None
    shown = dict([*ceilings.items()][:_MOST_CEILINGS])
    texts = [f"{dtype} {humanise(peak, Kind.FLOPS_PER_SECOND)}" for dtype, peak in shown.items()]
    return Roof(bandwidth, tuple(shown.values()), ", ".join([*texts, humanise(bandwidth, Kind.BYTES_PER_SECOND)]))


def _high(figure: object) -> float | None:
    value = getattr(figure, "hi", None)
    return float(value) if isinstance(value, int | float) and value > 0 else None


# The cost screen: least times on a device by module, operator kind or node, and where they stand under its roof.


class CostScreen(ModelScreen):
    """Time by part of the model, and what binds it."""

    NAME = "cost"
    FIRST = "#costs"
    FILTER_HINT = "parts of a name, or what binds: memory, compute; !not"
    PANES: ClassVar[dict[str, str]] = {"cost": "On this screen"}
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("cost", "group", ("o",), "By module", "Show layers, modules, operator kinds or nodes.", footer=True),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("cost", ACTIONS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.cost: Cost = session.keep(self.NAME, lambda: Cost(session.browse))

    def panes(self) -> ComposeResult:
        with Container(id="cost-panes"):
            with RowsPane(id="costs-pane", classes="frame"):
                yield VirtualTable(self.cost.table, id="costs")
                yield from self.prompts()
            chart = Drawn(self.cost.chart_lines, id="roofline")
            chart.add_class("frame")
            yield chart

    def asked(self) -> None:
        if not self.cost.is_waiting:
            return
        session = self.session
        device, env = self.cost.ask()
        by = self.cost.by

        def apart() -> NodeTimes | None:
            try:
                return NodeTimes(session.apart(timed_alone, env), session.browse.outline)
            except KeyError:
                return None

        def answer() -> Timed:
            times = apart() if session.reads_apart(env) else None
            if times is None:
                manager = session.model_for(env).manager
                subject = analysis_of(manager, _PASS)
                times = NodeTimes(timings_of(manager.get(subject)), session.browse.outline)
                # What is shown has been taken out of it, in less room.
                manager.forget(subject)
            return Timed(device, env, times, views_of(times, session.symbols, by))

        sizes = ",".join(f"{name}={size}" for name, size in env.items())
        session.ask(f"cost.{device}.{sizes}", answer, self.cost.take, self.cost.fail, urgency=NOW)

    def show(self) -> None:
        self.asked()
        self.query_one("#costs", VirtualTable).set_model(self.cost.table)
        self._show_row()

    def _show_row(self) -> None:
        self.query_one("#roofline", Drawn).redraw()
        self.title_of("roofline", self.symbols.clean(self.cost.chart_title()))
        self.show_progress()

    def show_progress(self) -> None:
        self.title_of("costs-pane", self.cost.title(), progress=True)

    def on_rows_view_selected(self) -> None:
        self._show_row()

    def on_rows_view_opened(self) -> None:
        row = self.cost.node_row()
        if row is not None:
            self.open_node(row)

    @property
    def filter_text(self) -> str:
        return self.cost.filter_text

    def set_filter(self, text: str) -> str:
        return self.cost.set_filter(text)

    def commands(self) -> list[tuple[str, str]]:
        return [("The numbers on the screen:", run_command(self.browse.complete_source, _PASS))]

    def selected_text(self) -> list[tuple[str, str]]:
        row, group = self.cost.table.selected, self.cost.group
        return [] if row is None or group is None else [("The row:", self.cost.table.text(row)), ("Its name:", group.name)]

    def table(self) -> Table | None:
        return self.cost.export()

    def action_group(self) -> None:
        self.cost.next_grouping()
        self.show()
