"""The Parameters screen: weights by size, grouped by module, and what their values say once they were read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from irscope.errors import IrscopeError, UsageError
from irscope.ir.graph import Node
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.report.units import Kind, humanise
from irscope.report.values import bare, plain
from irscope.tui.actions import Action, bindings
from irscope.tui.amounts import number_of
from irscope.tui.analyses import report_of
from irscope.tui.browse.filter import parse_filter
from irscope.tui.browse.model import Browse
from irscope.tui.charts import Bin, bars, size_bins, upright
from irscope.tui.command import run_command
from irscope.tui.rows import TableColumn, TableModel
from irscope.tui.screen import ModelScreen
from irscope.tui.session import NOW, Session
from irscope.tui.text import Line, Span, cut_line, failure_lines, filled, note_lines
from irscope.tui.widgets.paint import Drawn
from irscope.tui.widgets.table import RowsPane, VirtualTable

# ----------------------------------------------------------------------------------------------------
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
        self._octaves: Mapping[str, list[Bin]] = {}
        self._oddities: list[Oddity] = []
        """Of the tensors, in the table's order; empty until the values were read."""
        self.models: dict[str, TableModel] = {name: self._nothing() for name in ("tensors", "modules")}

    def _nothing(self) -> TableModel:
        return TableModel((), 0, self.symbols, empty=self.symbols.waiting)

    # -- results -----------------------------------------------------------------------------------------------

    @property
    def table(self) -> TableModel:
        """The rows that are shown: tensors or modules."""
        return self.models[self.group]

    @property
    def has_values(self) -> bool:
        """Whether the values were read."""
        return "mean" in (column.key for column in self._tables["parameters"].columns) if "parameters" in self._tables else False

    def take(self, report: Report) -> None:
        """Show a report of params."""
        before = self.models["tensors"]
        self.report, self.error, self.values_error = report, None, None
        self._tables = {table.title: table for table in report.tables}
        self._octaves = _octaves(self._tables.get("histogram"), self._tables.get("parameters"))
        self._oddities = _oddities(self._tables.get("parameters"))
        self.models["tensors"] = self._tensors(self._tables.get("parameters"))
        self.models["modules"] = self._modules(self._tables.get("modules"))
        if before.sorted_by is not None:
            self.models["tensors"].sort(None if before.sorted_by >= 6 else before.sorted_by, reverse=before.reversed)
        if before.sorted_by is None or (before.sorted_by == _BYTES and before.reversed):
            # The default order: first anomalies, then by size.
            self.models["tensors"].sort(_ODD if any(self._oddities) else _BYTES, reverse=True)
        self.models["tensors"].move_to(0)
        if before.selected is not None and before.count == self.models["tensors"].count:
            self.models["tensors"].select(before.selected)
        if self.filter_text:
            self.set_filter(self.filter_text)

    def fail(self, error: IrscopeError) -> None:
        """The computation failed."""
        self.error = error

    def fail_values(self, error: IrscopeError) -> None:
        """The values were not read; the sizes stay."""
        self.is_reading = False
        self.values_error = error

    def take_values(self, report: Report) -> None:
        """The values were read."""
        self.is_reading = False
        self.take(report)

    # -- tables ------------------------------------------------------------------------------------------------

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
        if any(self._oddities):
            keys = [odd.severity * 2.0**60 + (size or 0) for odd, size in zip(self._oddities, sizes, strict=True)]
            columns.append(TableColumn("values", 12, lambda row: self._oddities[row].text, lambda: keys, right=True, role="error"))
        for place, key in enumerate(_STATISTICS):
            if key in data:
                columns.append(self._column(key, data[key], _KINDS.get(key, Kind.NUMBER), 10, rank=6 + place))
        # Once the values were read, their mean and spread say more than who shares a tensor.
        columns.append(self._column("tied_to", data["tied_to"], Kind.TEXT, 14, rank=8 if "mean" in data else 4))
        return TableModel(columns, len(table), self.symbols, empty="This model has no parameters.")

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
                hit = [term.text in name for name in names]
            kept &= np.array(hit, dtype=np.bool_) ^ term.negated
        self.models["tensors"].filter(kept)
        return ""

    # -- selection ---------------------------------------------------------------------------------------------

    def toggle_group(self) -> None:
        """Show modules in place of tensors, or tensors again."""
        self.group = "modules" if self.group == "tensors" else "tensors"

    @property
    def selected_name(self) -> str:
        """The tensor or module under the cursor."""
        row, key = self.table.selected, "name" if self.group == "tensors" else "module"
        table = self._tables.get("parameters" if self.group == "tensors" else "modules")
        return "" if row is None or table is None else str(bare(table.cells(key)[row]))

    def open_module(self) -> bool:
        """Show the tensors of the selected module."""
        name = self.selected_name
        if self.group != "modules" or not name:
            return False
        self.group = "tensors"
        self.set_filter("" if name == "(model)" else name)
        return True

    def user_row(self) -> int | None:
        """The row of the first node that reads the selected tensor."""
        name = self.selected_name
        for value in self.browse.program.graph.weights:
            if value.name == name:
                for user in value.users or ():
                    row = self.browse.outline.row_of.get(user) if isinstance(user, Node) else None
                    if row is not None:
                        return row
        return None

    def export(self) -> Table | None:
        """The table that is shown, all rows of it."""
        return self._tables.get("parameters" if self.group == "tensors" else "modules")

    # -- text --------------------------------------------------------------------------------------------------

    def title(self) -> str:
        """What stands above the table."""
        if self.report is None:
            return "Parameters"
        separator, summary = self.symbols.glyphs.separator, self.report.summary
        count = humanise(plain(summary.get("count")), Kind.COUNT, self.symbols.unknown)
        size = humanise(plain(summary.get("bytes")), Kind.BYTES, self.symbols.unknown)
        parts = ["Parameters" if self.group == "tensors" else "Parameters by module", f"{count} in {size}"]
        if self.filter_text and self.group == "tensors":
            parts.append(f"filter {self.symbols.clean(self.filter_text)}: {len(self.table):,} of {self.table.count:,}")
        if self.is_reading:
            parts.append("reading values, ctrl-x stops")
        elif not self.has_values:
            parts.append("V reads values")
        return self.symbols.clean(separator.join(parts))

    def odd_lines(self, width: int, height: int) -> list[Line]:
        """How many tensors hold what no weight should; empty until the values were read."""
        if not self.has_values:
            return filled([], height)
        odd = self._oddities
        counts = [
            ("with NaN", sum(one.nan > 0 for one in odd)),
            ("with Inf", sum(one.inf > 0 for one in odd)),
            ("all zero", sum(one.is_zero for one in odd)),
            ("not read", sum(one.is_unread for one in odd)),
        ]
        spans = [Span(f" {len(self._oddities):,} tensors:", "faint")]
        for at, (words, count) in enumerate(counts):
            spans.append(Span(f"{',' if at else ''} {count:,} {words}", "error" if count else "faint"))
        return filled([cut_line(spans, width, self.symbols)], height)

    def size_lines(self, width: int, height: int) -> list[Line]:
        """How many tensors there are of which size."""
        if self.error is not None:
            return failure_lines(self.error, width, height, self.symbols)
        table = self._tables.get("parameters")
        if table is None:
            return note_lines(self.symbols.waiting, height)
        sizes = [size for size in (number_of(cell) for cell in table.cells("bytes")) if size is not None]
        return filled(bars(size_bins(sizes, height), width, self.symbols), height)

    def value_title(self) -> str:
        """What stands above the histogram of values."""
        name = self.selected_name if self.group == "tensors" else ""
        return f"Values of {self.symbols.clean(name)}" if name else "Values"

    def value_lines(self, width: int, height: int) -> list[Line]:
        """The histogram of the selected tensor's values."""
        if self.values_error is not None:
            return failure_lines(self.values_error, width, height, self.symbols)
        if self.group != "tensors":
            return note_lines("o shows tensors, each with its values", height)
        if self.is_reading:
            return note_lines(f"reading all values {self.symbols.waiting}", height)
        if not self.has_values:
            return note_lines("The values have not been read yet: V reads them all, once.", height)
        row = self.models["tensors"].selected
        if row is None or self._oddities[row].is_unread:
            return filled([(Span(f"{self.symbols.unknown} the values of this tensor are not known", "unknown"),)], height)
        odd = self._oddities[row]
        if odd.is_zero:
            return filled([(Span(f"all {odd.count:,} values are zero", "error"),)], height)
        said: list[Line] = [(Span(f"{odd.text} of {odd.count:,}", "error"),)] if odd else []
        octaves = self._octaves.get(self.selected_name, [])
        return filled([*said, *upright(octaves, width, height - len(said), self.symbols, odd.zeros)], height)


_BYTES, _ODD = 4, 6
"""The columns of bytes and of what is odd in the table of tensors."""


@dataclass(frozen=True, slots=True)
class Oddity:
    """What is odd about the values of a tensor; false where nothing is."""

    nan: int
    inf: int
    zeros: int
    count: int
    is_unread: bool

    @property
    def is_zero(self) -> bool:
        return bool(self.count) and self.zeros == self.count

    @property
    def severity(self) -> int:
        """What matters more has the larger number; 0 where nothing is odd."""
        return 4 if self.nan else 3 if self.inf else 2 if self.is_zero else 1 if self.is_unread else 0

    @property
    def text(self) -> str:
        parts = [f"{count:,} {name}" for count, name in ((self.nan, "NaN"), (self.inf, "Inf")) if count]
        return " ".join(parts) if parts else "all zero" if self.is_zero else "not read" if self.is_unread else ""

    def __bool__(self) -> bool:
        return bool(self.severity)


def _oddities(table: Table | None) -> list[Oddity]:
    if table is None or "nan" not in (column.key for column in table.columns):
        return []
    cells = [[bare(cell) for cell in table.cells(key)] for key in ("nan", "inf", "zeros", "shape")]
    return [
        Oddity(_count_cell(nan), _count_cell(inf), _count_cell(zeros), int(_element_count(shape) or 0), nan is None)
        for nan, inf, zeros, shape in zip(*cells, strict=True)
    ]


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


def _octaves(table: Table | None, parameters: Table | None) -> dict[str, list[Bin]]:
    """Bins by tensor: negative magnitudes from the largest down, then positive ones from the smallest up, within the tensor's ends."""
    if table is None or parameters is None:
        return {}
    keys = (parameters.cells(key) for key in ("name", "min", "max"))
    ends = {str(bare(name)): (number_of(least), number_of(most)) for name, least, most in zip(*keys, strict=True)}
    found: dict[str, list[tuple[float, int, int]]] = {}
    for name, low, negative, positive in table.rows():
        if isinstance(low, int | float) and isinstance(negative, int) and isinstance(positive, int):
            found.setdefault(str(bare(name)), []).append((float(low), negative, positive))
    return {name: [*_bins(rows, *ends.get(name, (None, None)))] for name, rows in found.items()}


def _bins(rows: Iterable[tuple[float, int, int]], least: float | None, most: float | None) -> Iterator[Bin]:
    ordered = sorted(rows)
    for low, negative, _ in reversed(ordered):
        if negative:
            yield Bin(-2 * low if least is None else max(-2 * low, least), -low, negative)
    for low, _, positive in ordered:
        if positive:
            yield Bin(low, 2 * low if most is None else min(2 * low, most), positive)


# ----------------------------------------------------------------------------------------------------
# The parameters screen: weights by size, grouped by module, and histograms of sizes and values.


class ParamsScreen(ModelScreen):
    """Weights with their sizes, and on request what their values are."""

    NAME = "params"
    FIRST = "#weights"
    FILTER_HINT = "parts of a name, a role or a type; mem>1MiB, !not"
    PANES: ClassVar[dict[str, str]] = {"params": "On this screen"}
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("params", "group", ("o",), "By module", "Show modules in place of tensors, or tensors again.", footer=True),
        Action("params", "values", ("V",), "Values", "Read all values once, for statistics and histograms.", footer=True),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("params", ACTIONS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.params: Params = session.keep(self.NAME, lambda: Params(session.browse))

    def panes(self) -> ComposeResult:
        with Container(id="params-panes"):
            with RowsPane(id="weights-pane", classes="frame"):
                yield Drawn(self.params.odd_lines, id="weights-odd")
                yield VirtualTable(self.params.table, id="weights")
                yield from self.prompts()
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
        for name in ("weights-odd", "sizes-chart", "values-chart"):
            self.query_one(f"#{name}", Drawn).redraw()
        self.query_one("#weights-odd", Drawn).display = self.params.has_values
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

    # -- what the base asks for --------------------------------------------------------------------------------

    @property
    def filter_text(self) -> str:
        return self.params.filter_text

    def set_filter(self, text: str) -> str:
        return self.params.set_filter(text)

    def show_problem(self, problem: str) -> None:
        self.title_of("weights-pane", self.symbols.clean(problem))

    def commands(self) -> list[tuple[str, str]]:
        return [("The numbers on the screen:", run_command(self.browse.source, VALUES if self.params.has_values else PASS))]

    def selected_text(self) -> list[tuple[str, str]]:
        row = self.params.table.selected
        return [] if row is None else [("The row:", self.params.table.text(row)), ("Its name:", self.params.selected_name)]

    def table(self) -> Table | None:
        return self.params.export()

    # -- what keys ask for -------------------------------------------------------------------------------------

    def action_group(self) -> None:
        self.params.toggle_group()
        self.show()

    def action_values(self) -> None:
        params, manager = self.params, self.session.manager
        if params.has_values or params.is_reading:
            self.say("The values were read already." if params.has_values else "The values are being read.")
            return
        params.is_reading, params.values_error = True, None
        self.session.ask("params.values", lambda: report_of(manager, VALUES), params.take_values, params.fail_values, urgency=NOW)
        self.show()

    def action_stop_work(self) -> None:
        self.params.is_reading = False
        super().action_stop_work()
        self.show()
