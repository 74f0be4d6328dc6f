"""The Parameters screen: weights by size, grouped by module, and what their values say once they were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar, Literal

import numpy as np
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from irscope.errors import IrscopeError, UsageError
from irscope.immutable import immutable
from irscope.ir.graph import Node
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Quantity, bare, plain
from irscope.tui.actions import Action, bindings
from irscope.tui.amounts import number_of
from irscope.tui.analyses import report_of
from irscope.tui.browse.filter import parse_filter
from irscope.tui.browse.model import Browse
from irscope.tui.charts import bars, even_histogram, octave_histogram, size_bins, upright
from irscope.tui.command import run_command
from irscope.tui.rows import TableColumn, TableModel, word_pattern
from irscope.tui.screen import ModelScreen
from irscope.tui.session import NOW, Place, Session
from irscope.tui.text import Line, Span, cut_line, failure_lines, filled, note_lines
from irscope.tui.widgets.paint import Drawn, Prompt
from irscope.tui.widgets.table import RowsPane, VirtualTable

# The state of the parameters screen: weights with their sizes, grouped or not, and what their values say once they were read.

PASS, VALUES = "params", "params{values=true}"
_STATISTICS = ("mean", "std", "absmax", "zeros", "nan", "inf", "entropy")
_TITLES = {"absmax": "largest", "nan": "NaN", "multiple_of": "mult. of"}
_KINDS = {"zeros": Kind.COUNT, "nan": Kind.COUNT, "inf": Kind.COUNT}


class Params:
    """All logic of the parameters screen."""

    def __init__(self, browse: Browse) -> None:
        self.browse = browse
        self.symbols = browse.symbols
        self.report: Report | None = None
        self.error: IrscopeError | None = None
        self.values_error: IrscopeError | None = None
        self.is_reading = False
        self.group: Literal["tensors", "modules"] = "tensors"
        self.filter_text = ""
        self._tables: dict[str, Table] = {}
        self.axis: Literal["linear", "logarithmic"] = "linear"
        """Of the histogram of values."""
        self._values = Values()
        self.models: dict[str, TableModel] = {name: self._nothing() for name in ("tensors", "modules")}

    def _nothing(self) -> TableModel:
        return TableModel((), 0, self.symbols, empty=self.symbols.waiting)

    @property
    def table(self) -> TableModel:
        """Return the rows that are shown: tensors or modules."""
        return self.models[self.group]

    @property
    def has_values(self) -> bool:
        """Return whether the values were read."""
        return "mean" in (column.key for column in self._tables["parameters"].columns) if "parameters" in self._tables else False

    @property
    def _alerts(self) -> Sequence[Alert]:
        """Return the alerts of the tensors, in the table's order; empty until the values were read."""
        return self._values.alerts

    def take(self, report: Report, values: Values | None = None) -> None:
        """Show a report of params; `values` is what `values_of` made of it, beside the UI's thread."""
        before = self.models["tensors"]
        self.report, self.error, self.values_error = report, None, None
        self._tables = {table.title: table for table in report.tables}
        self._values = values_of(report) if values is None else values
        self.models["tensors"] = self._tensors(self._tables.get("parameters"))
        self.models["modules"] = self._modules(self._tables.get("modules"))
        if before.sorted_by is not None:
            self.models["tensors"].sort(None if before.sorted_by >= 6 else before.sorted_by, reverse=before.reversed)
        if before.sorted_by is None or (before.sorted_by == _BYTES and before.reversed):
            # The default order: alerts first, then by size.
            self.models["tensors"].sort(_ALERT if any(self._alerts) else _BYTES, reverse=True)
        self.models["tensors"].move_to(0)
        # The cursor stays where the user put it; where nobody moved it, it is on what comes first now.
        if before.index and before.selected is not None and before.count == self.models["tensors"].count:
            self.models["tensors"].select(before.selected)
        if self.filter_text:
            self.set_filter(self.filter_text)

    def fail(self, error: IrscopeError) -> None:
        """Note that the computation failed."""
        self.error = error

    def fail_values(self, error: IrscopeError) -> None:
        """Note that the values were not read; the sizes stay."""
        self.is_reading = False
        self.values_error = error

    def take_values(self, report: Report, values: Values | None = None) -> None:
        """Take the values that were read."""
        self.is_reading = False
        self.take(report, values)

    def _tensors(self, table: Table | None) -> TableModel:
        if table is None:
            return self._nothing()
        data = {column.key: table.cells(column.key) for column in table.columns}
        sizes = [number_of(size) for size in data["bytes"]]
        total = sum(size for size in sizes if size is not None)
        columns = [
            self._column("name", data["name"], Kind.VALUE, 26, grows=True),
            self._column("role", data["role"], Kind.TEXT, 8, rank=5),
            self._column("dtype", data["dtype"], Kind.DTYPE, 6, rank=3),
            self._column("shape", data["shape"], Kind.SHAPE, 16, rank=1),
            self._column("bytes", data["bytes"], Kind.BYTES, 12),
            TableColumn("share", 6, lambda row: self._share(sizes[row], total), lambda: sizes, right=True, rank=2),
        ]
        if any(self._alerts):
            keys = [alert.severity * 2.0**60 + (size or 0) for alert, size in zip(self._alerts, sizes, strict=True)]
            wide = min(max(len(alert.text) for alert in self._alerts), _WIDEST_ALERT)
            columns.append(TableColumn("alerts", wide, lambda row: self._alerts[row].text, lambda: keys, right=True, role="error"))
        for place, key in enumerate(_STATISTICS):
            if key in data:
                columns.append(self._column(key, data[key], _KINDS.get(key, Kind.NUMBER), 10, rank=6 + place))
        # Once the values were read, their mean and spread say more than who shares a tensor.
        columns.append(self._column("tied_to", data["tied_to"], Kind.TEXT, 14, rank=8 if "mean" in data else 4))
        # A file of weights alone has the order of its writer, often that of the alphabet: h.1, h.10, h.2.
        names = None if self.browse.program.has_graph else data["name"]
        return TableModel(columns, len(table), self.symbols, empty="This model has no parameters.", names=names)

    def _modules(self, table: Table | None) -> TableModel:
        if table is None:
            return self._nothing()
        columns = [
            self._column(
                column.key, table.cells(column.key), column.kind, 20 if column.key == "module" else 11, grows=column.key == "module"
            )
            for column in table.columns
        ]
        return TableModel(columns, len(table), self.symbols, empty="This model has no parameters.")

    def _column(self, key: str, cells: Sequence[object], kind: Kind, width: int, *, grows: bool = False, rank: int = 0) -> TableColumn:
        clean, unknown = self.symbols.clean, self.symbols.unknown

        def text(row: int) -> str:
            cell = bare(cells[row])  # type: ignore[arg-type]  # cells of a table are plain
            if isinstance(cell, float) and kind is Kind.NUMBER:
                return f"{cell:.4g}"
            return clean(humanise(cell, kind, unknown))

        def keys() -> Sequence[object]:
            if kind is Kind.SHAPE:
                return [_element_count(cell) for cell in cells]
            return [number_of(cell) for cell in cells] if kind.is_number else list(cells)

        title = _TITLES.get(key, key.replace("_", " "))
        return TableColumn(title, width, text, keys, right=kind.is_number, grows=grows, rank=rank, role="name" if grows else "plain")

    def _share(self, size: float | None, total: float) -> str:
        return self.symbols.unknown if size is None or not total else f"{size / total:.1%}"

    def set_filter(self, text: str) -> str:
        """Show only rows whose name, role, type or shape contain all words; `bytes>1MiB` compares. Returns what is wrong, if anything."""
        try:
            terms = parse_filter(text)
        except UsageError as error:
            return str(error)
        self.filter_text = text.strip()
        table = self._tables.get("parameters")
        if table is None or not terms:
            self.models["tensors"].filter(None)
            return ""
        kept = np.ones(len(table), dtype=np.bool_)
        names = [
            f"{name} {role} {dtype}".lower()
            for name, role, dtype in zip(*(table.cells(key) for key in ("name", "role", "dtype")), strict=True)
        ]
        sizes = [number_of(size) for size in table.cells("bytes")]
        for term in terms:
            if term.field == "mem":
                above = term.text == ">"
                hit = [size is not None and (size > term.limit if above else size < term.limit) for size in sizes]
            elif term.field == "unknown":
                hit = [size is None for size in sizes]
            elif term.field == "flops":
                return "weights have no FLOPs; mem>1MiB compares their bytes"
            else:
                pattern = word_pattern(term.text)
                hit = [pattern.search(name) is not None for name in names]
            kept &= np.array(hit, dtype=np.bool_) ^ term.negated
        self.models["tensors"].filter(kept)
        return ""

    def toggle_group(self) -> None:
        """Show modules in place of tensors, or tensors again."""
        self.group = "modules" if self.group == "tensors" else "tensors"

    @property
    def selected_name(self) -> str:
        """Return the tensor or module under the cursor."""
        row, key = self.table.selected, "name" if self.group == "tensors" else "module"
        table = self._tables.get("parameters" if self.group == "tensors" else "modules")
        return "" if row is None or table is None else str(bare(table.cells(key)[row]) or "")

    def open_module(self) -> bool:
        """Show the tensors of the selected module."""
        name = self.selected_name
        if self.group != "modules" or not name:
            return False
        self.group = "tensors"
        self.set_filter("" if name == "(model)" else name)
        return True

    def user_row(self) -> int | None:
        """Return the row of the first node that reads the selected tensor."""
        name = self.selected_name
        for value in self.browse.program.graph.weights:
            if value.name == name:
                for user in value.users or ():
                    row = self.browse.outline.row_of.get(user) if isinstance(user, Node) else None
                    if row is not None:
                        return row
        return None

    def export(self) -> Table | None:
        """Return the table that is shown, all rows of it."""
        return self._tables.get("parameters" if self.group == "tensors" else "modules")

    def title(self) -> str:
        """Return the title of the table; the number of tensors with an alert comes first, so that it is there at every width."""
        if self.report is None:
            return "Parameters"
        separator, summary = self.symbols.glyphs.separator, self.report.summary
        parts = ["Parameters" if self.group == "tensors" else "Parameters by module"]
        if self.is_reading:
            parts.append("reading values, ctrl-x stops")
        elif self.has_values:
            count = sum(map(bool, self._alerts))
            parts.append(
                f"{count:,} of {len(self._alerts):,} tensors with alerts" if count else f"no alerts in {len(self._alerts):,} tensors"
            )
        else:
            parts.append("alerts unknown, V reads values")
        if self.filter_text and self.group == "tensors":
            parts.append(f"filter {self.symbols.clean(self.filter_text)}: {len(self.table):,} of {self.table.count:,}")
        number, size = plain(summary.get("count")), plain(summary.get("bytes"))
        if not isinstance(size, Quantity) or size.shown is not None:  # it is unknown where parameters are among the inputs
            unknown = self.symbols.unknown
            parts.append(f"{humanise(number, Kind.COUNT, unknown)} in {humanise(size, Kind.BYTES, unknown)}")
        return self.symbols.clean(separator.join(parts))

    def alert_lines(self, width: int, height: int) -> list[Line]:
        """Return the number of tensors with each alert, worst first, then the alerts of no tensor; unknown before the values were read."""
        if not self.has_values:
            return filled([], height)
        counts = {kind: sum(kind in alert.kinds for alert in self._alerts) for kind in ALERTS}
        spans: list[Span] = []
        for kind, count in counts.items():
            if count:
                spans.append(Span(f"{',' if spans else ''} {count:,} {ALERTS[kind]}", "unknown" if kind == "unread" else "error"))
        none = [ALERTS[kind] for kind, count in counts.items() if not count and kind != "unread"]
        if none:
            spans.append(Span(f"{'; none' if spans else ' none'}: {', '.join(none)}", "faint"))
        return filled([cut_line(spans, width, self.symbols)], height)

    def size_lines(self, width: int, height: int) -> list[Line]:
        """Return the number of tensors of each size."""
        if self.error is not None:
            return failure_lines(self.error, width, height, self.symbols)
        table = self._tables.get("parameters")
        if table is None:
            return note_lines(self.symbols.waiting, height)
        sizes = [size for size in (number_of(cell) for cell in table.cells("bytes")) if size is not None]
        return filled(bars(size_bins(sizes, height), width, self.symbols), height)

    def value_title(self) -> str:
        """Return the title of the histogram of values."""
        name = self.selected_name if self.group == "tensors" else ""
        return f"Values of {self.symbols.clean(name)}" if name else "Values"

    def value_lines(self, width: int, height: int) -> list[Line]:
        """Return the histogram of the selected tensor's values."""
        if self.values_error is not None:
            return failure_lines(self.values_error, width, height, self.symbols)
        if self.group != "tensors":
            return note_lines("v shows tensors, each with its values", height)
        if self.is_reading:
            return note_lines(f"reading all values {self.symbols.waiting}", height)
        if not self.has_values:
            return note_lines("The values have not been read yet: V reads them all, once.", height)
        row = self.models["tensors"].selected
        if row is None or "unread" in self._alerts[row].kinds:
            return filled([(Span(f"{self.symbols.unknown} the values of this tensor are not known", "unknown"),)], height)
        alert = self._alerts[row]
        if alert.is_zero:
            return filled([(Span(f"all {alert.count:,} values are zero", "error" if alert else "plain"),)], height)
        said: list[Line] = [(Span(f"{alert.text} of {alert.count:,}", "error"),)] if alert.nan or alert.inf else []
        return filled([*said, *self._histogram(alert, width, height - len(said))], height)

    def _histogram(self, alert: Alert, width: int, height: int) -> list[Line]:
        name = self.selected_name
        if self.axis == "linear":
            even = self._values.even.get(name)
            histogram = None if even is None else even_histogram(*even, alert.count - alert.nan - alert.inf - sum(even[2]), width)
        else:
            histogram = octave_histogram(self._values.octaves.get(name, ()), alert.zeros, width)
        return [] if histogram is None else upright(histogram, width, height, self.symbols)

    def toggle_axis(self) -> None:
        """Change between the linear and the logarithmic histogram."""
        self.axis = "logarithmic" if self.axis == "linear" else "linear"


_BYTES, _ALERT = 4, 6
"""The columns of bytes and of alerts in the table of tensors."""
_WIDEST_ALERT = 24
ALERTS = {
    "nan": "NaN",
    "inf": "Inf",
    "zero": "all zero",
    "dead": "with dead channels",
    "constant": "constant",
    "outliers": "with outliers",
    "unread": "not read",
}
"""Anomalies of a weight's values, worst first, with their names."""
_KINDS_OF_ALERTS = tuple(ALERTS)


@immutable
class Alert:
    """Anomalies of the values of a tensor; false where there are none."""

    count: int
    is_vector: bool = False
    """True for one dimension at most, as biases and weights of norms have: those of a fresh model are all zero, or one."""
    nan: int = 0
    inf: int = 0
    zeros: int = 0
    dead: int = 0
    """Slices along the first or second axis that hold nothing but zeros."""
    is_constant: bool = False
    outliers: int = 0
    is_unread: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the alerts, worst first."""
        if self.is_unread:
            return ("unread",)
        is_zero = self.is_zero
        is_odd = is_zero and not self.is_vector, self.dead and not is_zero, self.is_constant and not is_zero and not self.is_vector
        hits = (self.nan, self.inf, *is_odd, self.outliers, False)
        return tuple(kind for kind, hit in zip(_KINDS_OF_ALERTS, hits, strict=True) if hit)

    @property
    def is_zero(self) -> bool:
        """Return True for a tensor of zeros alone."""
        return bool(self.count) and self.zeros == self.count

    @property
    def severity(self) -> int:
        """Return the severity: larger is worse; 0 where nothing is odd."""
        kinds = self.kinds
        return len(ALERTS) - _KINDS_OF_ALERTS.index(kinds[0]) if kinds else 0

    @property
    def text(self) -> str:
        """Return the alerts with their numbers."""
        numbers = {
            "nan": f"{self.nan:,} NaN",
            "inf": f"{self.inf:,} Inf",
            "dead": f"{self.dead:,} dead channel{'s' * (self.dead > 1)}",
            "outliers": f"{self.outliers:,} outlier{'s' * (self.outliers > 1)}",
        }
        return " ".join(numbers.get(kind, ALERTS[kind]) for kind in self.kinds)

    def __bool__(self) -> bool:
        return bool(self.kinds)


@immutable(slots=False)
class Values:
    """Results of reading the values: alerts by row of the table of tensors, histograms by name."""

    alerts: Sequence[Alert] = ()
    even: Mapping[str, tuple[float, int, Sequence[int]]] = field(default_factory=dict)
    """The width of a bin, the first bin in widths, and counts."""
    octaves: Mapping[str, Sequence[tuple[float, int, int]]] = field(default_factory=dict)
    """From which magnitude on, negative and positive ones up to twice that."""


def values_of(report: Report) -> Values:
    """Prepared for the screen; may run in any thread."""
    tables = {table.title: table for table in report.tables}
    even: dict[str, tuple[float, int, list[int]]] = {}
    octaves: dict[str, list[tuple[float, int, int]]] = {}
    if "histogram of equal widths" in tables:
        for name, low, width, count in tables["histogram of equal widths"].rows():
            if isinstance(low, int | float) and isinstance(width, int | float) and isinstance(count, int):
                even.setdefault(str(bare(name)), (float(width), round(low / width), []))[2].append(count)
    if "histogram" in tables:
        for name, low, negative, positive in tables["histogram"].rows():
            if isinstance(low, int | float) and isinstance(negative, int) and isinstance(positive, int):
                octaves.setdefault(str(bare(name)), []).append((float(low), negative, positive))
    return Values(_alerts(tables.get("parameters")), even, octaves)


_MEASURES = ("nan", "inf", "zeros", "dead_rows", "dead_columns", "outliers", "min", "max", "shape")


def _alerts(table: Table | None) -> list[Alert]:
    if table is None or "nan" not in (column.key for column in table.columns):
        return []
    alerts: list[Alert] = []
    for nan, inf, zeros, rows, columns, outliers, low, high, shape in zip(
        *([bare(cell) for cell in table.cells(key)] for key in _MEASURES), strict=True
    ):
        count = int(_element_count(shape) or 0)
        nans, infs, nulls, far = map(_count_cell, (nan, inf, zeros, outliers))
        is_constant = count > 1 and not nans and not infs and low is not None and low == high
        is_vector = isinstance(shape, tuple | list) and len(shape) <= 1
        alerts.append(Alert(count, is_vector, nans, infs, nulls, _count_cell(rows) + _count_cell(columns), is_constant, far, nan is None))
    return alerts


def _element_count(shape: object) -> float | None:
    if not isinstance(shape, tuple | list):
        return None
    total = 1
    for size in shape:
        if not isinstance(size, int):
            return None
        total *= size
    return total


def _count_cell(cell: object) -> int:
    return cell if isinstance(cell, int) else 0


# The parameters screen: weights by size, grouped by module, and histograms of sizes and values.


class ParamsScreen(ModelScreen):
    """Weights with their sizes, and on request what their values are."""

    NAME = "params"
    FIRST = "#weights"
    FILTER_HINT = "parts of a name, a role or a type; mem>1MiB, !not"
    PANES: ClassVar[dict[str, str]] = {"params": "On this screen"}
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("params", "values", ("V",), "Values", "Read all values once, for alerts, statistics and histograms.", footer=True),
        Action("params", "other", ("o",), "Other", "Choose another checkpoint, to see which weights changed.", footer=True),
        Action("params", "group", ("v",), "By module", "Show modules in place of tensors, or tensors again.", footer=True),
        Action("params", "axis", ("x",), "Axis", "Change between the linear and the logarithmic histogram of values."),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("params", ACTIONS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.params: Params = session.keep(self.NAME, lambda: Params(session.browse))

    def panes(self) -> ComposeResult:
        with Container(id="params-panes"):
            with RowsPane(id="weights-pane", classes="frame"):
                yield Drawn(self.params.alert_lines, id="weights-alerts")
                yield VirtualTable(self.params.table, id="weights")
                yield from self.prompts()
                yield Prompt("Compare with", "the path of another checkpoint or model", id="other")
            with Container(id="params-charts"):
                yield Drawn(self.params.size_lines, id="sizes-chart")
                yield Drawn(self.params.value_lines, id="values-chart")

    def on_mount(self) -> None:
        for name in ("sizes-chart", "values-chart"):
            self.query_one(f"#{name}").add_class("frame")
        super().on_mount()

    def asked(self) -> None:
        if self.params.report is None and self.params.error is None:
            manager = self.session.manager
            self.session.ask("params.table", lambda: report_of(manager, PASS), self.params.take, self.params.fail, urgency=NOW)

    def show(self) -> None:
        self.query_one("#weights", VirtualTable).set_model(self.params.table)
        self._show_row()

    def _show_row(self) -> None:
        for name in ("weights-alerts", "sizes-chart", "values-chart"):
            self.query_one(f"#{name}", Drawn).redraw()
        self.query_one("#weights-alerts", Drawn).display = self.params.has_values
        self.title_of("sizes-chart", "Tensors by size")
        self.title_of("values-chart", self.params.value_title())
        self.show_progress()

    def show_progress(self) -> None:
        self.title_of("weights-pane", self.params.title(), progress=True)

    def on_rows_view_selected(self) -> None:
        self._show_row()

    def on_rows_view_opened(self) -> None:
        if self.params.open_module():
            self.show()
            return
        row = self.params.user_row()
        if row is None:
            self.say("No node of the model reads this tensor.")
        else:
            self.open_node(row)

    @property
    def filter_text(self) -> str:
        return self.params.filter_text

    def set_filter(self, text: str) -> str:
        return self.params.set_filter(text)

    def commands(self) -> list[tuple[str, str]]:
        return [("The numbers on the screen:", run_command(self.browse.source, VALUES if self.params.has_values else PASS))]

    def selected_text(self) -> list[tuple[str, str]]:
        row = self.params.table.selected
        return [] if row is None else [("The row:", self.params.table.text(row)), ("Its name:", self.params.selected_name)]

    def table(self) -> Table | None:
        return self.params.export()

    def action_group(self) -> None:
        self.params.toggle_group()
        self.show()

    def action_axis(self) -> None:
        self.params.toggle_axis()
        self._show_row()

    def action_other(self) -> None:
        self.query_one("#other", Prompt).open("")

    def on_prompt_closed(self, message: Prompt.Closed) -> None:
        prompt = message.prompt
        if prompt.id != "other":
            return
        # The handler of the base, which would come next, knows nothing of this prompt.
        message.prevent_default()
        prompt.display = False
        self.focus_first()
        if message.keep and prompt.value.strip():
            from irscope.tui.compare import Compare

            compare: Compare = self.session.keep("compare", lambda: Compare(self.session.browse))
            compare.choose(prompt.value, weights=True)
            self.session.open_place(Place("compare", self.browse.selected), jump=True)

    def action_values(self) -> None:
        params, manager = self.params, self.session.manager
        if params.has_values or params.is_reading:
            self.say("The values were read already." if params.has_values else "The values are being read.")
            return
        params.is_reading, params.values_error = True, None

        def answer() -> tuple[Report, Values]:
            report = report_of(manager, VALUES)
            return report, values_of(report)

        self.session.ask("params.values", answer, lambda found: params.take_values(*found), params.fail_values, urgency=NOW)
        self.show()

    def action_stop_work(self) -> None:
        self.params.is_reading = False
        super().action_stop_work()
        self.show()
