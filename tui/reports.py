"""The Reports screen: any report of any pass, its numbers, tables and series; a pass of a user's own needs no code for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical

from irscope.diagnostics import Severity
from irscope.errors import IrscopeError, UsageError
from irscope.passkit.base import Analysis
from irscope.passkit.pipeline import parse_pipeline
from irscope.passkit.registry import PassRegistry
from irscope.report.celltext import CellWriter
from irscope.report.chart import chart_lines
from irscope.report.options import RenderOptions
from irscope.report.report import Report
from irscope.report.table import Column, Series, Table
from irscope.report.text import summary_lines
from irscope.report.values import bare
from irscope.tui.actions import Action, bindings
from irscope.tui.analyses import report_of
from irscope.tui.browse.columns import BrowseColumn, column_of_table, node_rows
from irscope.tui.command import Source, compare_eager_command, run_command
from irscope.tui.compiled import ITEM as COMPILED
from irscope.tui.compiled import is_compiled
from irscope.tui.compiled import report_of as compiled_report
from irscope.tui.passes.chooser import PassRows, PickDialog, in_order, question_of
from irscope.tui.rows import ReportTable, TableModel
from irscope.tui.screen import ModelScreen
from irscope.tui.session import NOW, Session
from irscope.tui.text import Line, Role, Span, Symbols, error_lines
from irscope.tui.widgets.paint import DetailPane
from irscope.tui.widgets.table import VirtualTable

if TYPE_CHECKING:
    from irscope.tui.memory.run import RunMemory

# Reports of passes for the screen: any pass has one, so a pass of a user's own needs no code to be shown.

Part: TypeAlias = Table | Series
_MOST_REMARKS = 200
_ROLES: dict[Severity, Role] = {Severity.ERROR: "error", Severity.WARNING: "unknown", Severity.NOTE: "faint"}


@dataclass(eq=False)
class Item:
    """One pass of the list, and its report where it has run."""

    text: str
    """The element of a pipeline."""
    about: str
    report: Report | None = None
    error: IrscopeError | None = None
    is_running: bool = False
    part: int = 0
    """The table or series that is shown."""
    question: str = ""
    """The question that it answers, where it is not a pass."""

    @property
    def state(self) -> str:
        """Return its state, in a word."""
        if self.is_running:
            return "running"
        if self.error is not None:
            return "failed"
        return "" if self.report is None else "ready"

    @property
    def parts(self) -> Sequence[Part]:
        """Tables and series in the order of the report."""
        return () if self.report is None else (*self.report.tables, *self.report.series)


class Reports:
    """The list of passes, the selected one, and the table of its report that is shown."""

    def __init__(self, registry: PassRegistry, source: Source, symbols: Symbols) -> None:
        self.registry = registry
        self.made_for: tuple[Mapping[str, int], str] = ({}, source.settings.device)
        """The sizes and the device that the reports are for."""
        self.symbols = symbols
        self.items: list[Item] = []
        self._listed = self._list_rows()
        self.list_filter = ""
        self.filter_text = ""
        self._tables: dict[tuple[int, int], ReportTable] = {}

    def known(self) -> list[Item]:
        """Return all analyses. Imports them: to be called in the worker's thread."""
        found: list[Item] = []
        for name in (*sorted(self.registry.entries), *sorted(self.registry.plugins())):
            cls = self.registry.find(name)
            if issubclass(cls, Analysis):
                found.append(Item(name, cls.summary()))
        return [found[place] for place in in_order([item.text for item in found])]

    def set_items(self, items: Sequence[Item]) -> None:
        """Show these passes, besides those that were asked for already."""
        texts = {item.text for item in self.items}
        self.items = [*self.items, *(item for item in items if item.text not in texts)]
        self._list_changed()

    def make_for(self, sizes: Mapping[str, int], device: str) -> bool:
        """Return whether reports for other sizes or another device are wanted now, and drop the existing ones then."""
        if self.made_for == (sizes, device):
            return False
        self.made_for = (sizes, device)
        for item in self.items:
            item.report = item.error = None
        self._list_changed()
        return True

    def ask_for(self, text: str) -> Item:
        """Put a pass on the list, such as `./my_pass.py:Mine{threshold=1}`; raises IrscopeError where it has no report to show."""
        passes = parse_pipeline(text, self.registry)
        if len(passes) != 1:
            raise UsageError("one pass at a time has its report here", hint="the Passes screen (5) runs a whole pipeline")
        subject = passes[0]
        if not isinstance(subject, Analysis):
            raise UsageError(f"{subject.name!r} changes the graph", hint="run it on the Passes screen (5), which works on a copy")
        for item in self.items:
            if item.text == subject.text:
                self.select(item)
                return item
        item = Item(subject.text, type(subject).summary())
        self.items.insert(0, item)
        self._list_changed()
        self.select(item)
        return item

    def _list_changed(self) -> None:
        selected = self.item
        self._listed = self._list_rows()
        self._listed.filter(self.list_filter)
        self._listed.to_pass()
        self._tables.clear()
        if selected is not None:
            self.select(selected)

    def _list_rows(self) -> PassRows:
        passes = [(item.text, item.about) for item in self.items]
        return PassRows(
            passes,
            self.symbols,
            empty=self.symbols.waiting,
            state=lambda place: self.items[place].state,
            questions=[item.question for item in self.items],
        )

    @property
    def pass_list(self) -> TableModel:
        """Return the passes by question."""
        return self._listed.model

    def filter_list(self, text: str) -> None:
        """Show only passes in whose name, line or question every word occurs."""
        self.list_filter = text.strip()
        self._listed.filter(self.list_filter)
        self.pass_list.empty = "No pass is about that." if self.list_filter else self.symbols.waiting

    @property
    def item(self) -> Item | None:
        """Return the selected pass; None on a question."""
        place = self._listed.selected
        return None if place is None or place >= len(self.items) else self.items[place]

    @property
    def question(self) -> str:
        """Return the question under the cursor, or that of the selected pass."""
        return self._listed.question

    def select(self, item: Item) -> None:
        """Select a pass of the list."""
        if not self.pass_list.select(self._listed.row_of(self.items.index(item))):
            self.filter_list("")
            self.pass_list.select(self._listed.row_of(self.items.index(item)))

    def start(self, item: Item) -> None:
        """Note that the pass is about to run."""
        item.report = item.error = None
        item.is_running = True
        self._item_changed(item)

    def take(self, item: Item, report: Report) -> None:
        """Keep a report."""
        item.report, item.error, item.is_running = report, None, False
        self._item_changed(item)

    def fail(self, item: Item, error: IrscopeError) -> None:
        """Keep why there is no report."""
        item.report, item.error, item.is_running = None, error, False
        self._item_changed(item)

    def _item_changed(self, item: Item) -> None:
        item.part = 0
        self.pass_list.version += 1
        self._tables = {key: model for key, model in self._tables.items() if key[0] != id(item)}

    @property
    def part(self) -> Part | None:
        """Return the table or series that is shown."""
        item = self.item
        return item.parts[item.part] if item is not None and item.parts else None

    def next_part(self, by: int = 1) -> None:
        """Show the next table or series of the report; after the last comes the first."""
        item = self.item
        if item is not None and item.parts:
            item.part = (item.part + by) % len(item.parts)

    @property
    def rows(self) -> ReportTable | None:
        """Return the rows of the part that is shown; None where the report has none."""
        item, part = self.item, self.part
        if item is None or part is None:
            return None
        key = (id(item), item.part)
        if key not in self._tables:
            self._tables[key] = ReportTable(part if isinstance(part, Table) else part.table(), self.symbols)
        return self._tables[key]

    def set_filter(self, text: str) -> None:
        """Show only the rows of the table in which every word occurs."""
        self.filter_text = text.strip()
        rows = self.rows
        if rows is not None:
            rows.filter(self.filter_text)

    def table(self) -> Table | None:
        """Return the shown table, for the export."""
        part = self.part
        return part.table() if isinstance(part, Series) else part

    def title(self) -> str:
        """Return the title of the report."""
        item = self.item
        return self.question or "Report" if item is None else self.symbols.clean(f"{item.text}: {self.question}")

    def part_title(self) -> str:
        """Return the title of the table."""
        item, part, rows = self.item, self.part, self.rows
        if item is None or part is None or rows is None:
            return "Table"
        parts = [self.symbols.clean(part.title or "Table")]
        count = rows.model.count
        word = "row" if count == 1 else "rows"
        parts.append(f"{len(rows.model):,} of {count:,} {word}" if self.filter_text else f"{count:,} {word}")
        if len(item.parts) > 1:
            parts.append(f"{item.part + 1} of {len(item.parts)}, n shows the next")
        return self.symbols.glyphs.separator.join(parts)

    def lines(self, width: int) -> list[Line]:
        """Summary, conventions, coverage and remarks of the report; before it has run, what the pass is for."""
        item = self.item
        if item is None:
            return self._question_lines()
        if item.report is None:
            lines: list[Line] = [(Span(self.symbols.clean(item.about)),)]
            if item.error is not None:
                return lines + error_lines(item.error, self.symbols)
            return [*lines, (), (Span("It is running." if item.is_running else "Press enter to run it.", "faint"),)]
        return list(self._report_lines(item.report, width))

    def _question_lines(self) -> list[Line]:
        """Return the passes that answer the question under the cursor, each with a line."""
        if not self.question:
            return [(Span("There is no pass to show.", "faint"),)]
        lines: list[Line] = [(Span(self.question, "heading"),), ()]
        for item in self.items:
            if question_of(item.text) == self.question:
                lines += [(Span(self.symbols.clean(item.text), "operator"),), (Span(f"  {self.symbols.clean(item.about)}"),)]
        return lines

    def _report_lines(self, report: Report, width: int) -> Iterator[Line]:
        clean = self.symbols.clean
        options = RenderOptions(width=width, encoding=self.symbols.encoding)
        writer = CellWriter(options)
        part = self.part
        if isinstance(part, Series):
            yield (Span(clean(part.title), "heading"),)
            yield from ((Span(line, "bar"),) for line in chart_lines(part, width, self.symbols.glyphs, self.symbols.encoding))
            yield ()
        yield from ((Span(line),) for line in summary_lines(report.entries(), writer, options))
        legend = writer.legend()
        if legend:
            yield (Span(legend, "faint"),)
        coverage = report.coverage
        if coverage is not None and coverage.total:
            role: Role = "unknown" if coverage.known < coverage.total else "faint"
            names = clean(", ".join(coverage.unknown))
            yield (Span(f"known: {coverage.known:,} of {coverage.total:,}{f'; unknown: {names}' if names else ''}", role),)
        yield from ((Span(clean(f"note: {note}"), "faint"),) for note in report.notes)
        for diagnostic in report.diagnostics[:_MOST_REMARKS]:
            yield (Span(clean(str(diagnostic)), _ROLES[diagnostic.severity]),)

    def command(self, source: Source) -> str:
        """Return the command line that prints the selected report."""
        if self.item is not None and self.item.text == COMPILED:
            return compare_eager_command(source)
        return run_command(source, "default" if self.item is None else self.item.text)


def _reports_of(runs: Sequence[RunMemory], symbols: Symbols) -> Reports:
    """Return what is said of runs, and their tables, as a list; of several the first table has them side by side."""
    reports = Reports(PassRegistry({}, {}), Source(runs[0].run.path), symbols)
    items: list[Item] = []
    for number, memory in enumerate(runs):
        run, several = memory.run, len(runs) > 1
        question, label = (run.name, f"{run.name}: ") if several else ("The run", "")
        verdict = {} if memory.verdict is None else {"verdict": memory.verdict.text}
        said = Report("run", summary={**verdict, **run.summary, **verdict}, notes=tuple(run.notes))
        tables = [*([_beside(runs)] if several and not number else []), *([] if run.first is None else [run.first]), *run.tables]
        listed = [(f"{label}summary", said), *((f"{label}{table.title}", Report("run", tables=(table,))) for table in tables)]
        items += [Item(text, "", report, question=question) for text, report in listed]
    reports.set_items(items)
    return reports


def _beside(runs: Sequence[RunMemory]) -> Table:
    """Return runs beside one another: what each takes, and whether it fits."""
    rows = [
        (
            one.run.name,
            int(one.stack.highest) if one.stack is not None else None,
            "" if one.stack is None or one.stack.peak is None else one.stack.place(one.stack.peak),
            bare(one.run.summary.get("reserved_peak_bytes")),  # type: ignore[arg-type]  # a number
            str(bare(one.run.summary.get("verdict", "")) or bare(one.run.summary.get("outcome", "")) or ""),  # type: ignore[arg-type]  # a text
        )
        for one in runs
    ]
    return Table.of(rows, ["run", "requested peak:bytes", "at", "reserved peak:bytes", "verdict"], f"the runs side by side{_apart(runs)}")


def _apart(runs: Sequence[RunMemory]) -> str:
    """Return by how much the peak of the second of two differs, such as of a compiled program beside eager."""
    highest = [0.0 if run.stack is None else run.stack.highest for run in runs]
    if len(runs) != 2 or not highest[0]:
        return ""
    share = highest[1] / highest[0] - 1
    more = f"needs {abs(share):.1%} {'less' if share < 0 else 'more'} than" if round(abs(share), 3) else "needs as much as"
    return f": {runs[1].run.name} {more} {runs[0].run.name}"


# The reports screen: any report of any pass, its numbers, tables and series.


class ReportsScreen(ModelScreen):
    """The passes with their reports."""

    NAME = "reports"
    FIRST = "#report_list"
    FILTER_HINT = "words that occur in a row; !word: must not"
    PANES: ClassVar[dict[str, str]] = {
        "reports": "On this screen",
        "report_list": "Passes",
        "report_text": "Report",
        "report_rows": "Table",
    }
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("reports", "next_part(1)", ("n",), "Next table", "Show the next table or series of the report.", footer=True),
        Action("reports", "next_part(-1)", ("N",), "Table before", "Show the table or series before."),
        Action("reports", "ask_for", ("a",), "Add", "Run a pass with options, or one of your own: ./file.py:Name{option=1}.", footer=True),
        Action("reports", "on_browse", ("o",), "On Browse", "Show a column of this table in the tree of the Browse screen."),
        Action("reports", "rerun", ("r",), "Run", "Run the selected pass, also where it has run.", footer=True),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("reports", ACTIONS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.reports = self._kept()
        self._no_rows = TableModel((), 0, session.symbols, empty="This report has no table.")
        self._filters_rows = False
        """True where typed text filters the rows of the table, false where it filters the passes."""

    def _kept(self) -> Reports:
        """Return the reports of the model, or what is said of the runs."""
        session = self.session
        if session.runs:
            return cast("Reports", session.keep(self.NAME, lambda: _reports_of(session.runs, session.symbols)))
        made = session.keep(self.NAME, lambda: Reports(session.manager.registry, session.browse.source, session.symbols))
        return cast("Reports", made)

    def panes(self) -> ComposeResult:
        with Container(classes="panes"):
            with Vertical(classes="pane left", id="list_pane"):
                yield VirtualTable(self.reports.pass_list, id="report_list")
            with Vertical(classes="right"):
                yield DetailPane(id="report_text", classes="pane")
                with Vertical(classes="pane", id="rows_pane"):
                    yield VirtualTable(self._no_rows, id="report_rows")
        yield from self.prompts()

    def asked(self) -> None:
        if self.session.runs:
            self.reports = self._kept()
            self.show()
        elif not self.reports.items:
            self.session.ask("reports.list", self.reports.known, self._listed, lambda error: self.say(str(error)), urgency=NOW)
        elif self.reports.make_for(dict(self.browse.results.binding.env), self.session.context.device) and self.reports.item is not None:
            self.run(self.reports.item)

    def _listed(self, items: list[Item]) -> None:
        compiled = [Item(COMPILED, "what the compiler did: kernels, buffers, what is saved, where compiling stops")]
        self.reports.set_items([*(compiled if is_compiled(self.session.program) else []), *items])
        self.reports.make_for(dict(self.browse.results.binding.env), self.session.context.device)
        first = self.reports.item
        if first is not None and not first.state:
            self.run(first)

    def run(self, item: Item) -> None:
        """Have the report of a pass made."""
        made_for = self.reports.made_for
        self.reports.start(item)
        session = self.session
        self.session.ask(
            f"reports.{item.text}.{made_for}",
            lambda: compiled_report(session) if item.text == COMPILED else report_of(session.model_for(made_for[0]).manager, item.text),
            lambda report: self.reports.take(item, report),
            lambda error: self.reports.fail(item, error),
            urgency=NOW,
        )
        self.show()

    def show(self) -> None:
        self.query_one("#report_list", VirtualTable).set_model(self.reports.pass_list)
        self._show_report()

    def _show_report(self, *, top: bool = False) -> None:
        text, rows = self.query_one("#report_text", DetailPane), self.reports.rows
        lines = self.reports.lines(max(text.size.width, 20))
        text.show(lines, top=top)
        text.display = bool(lines)
        self.query_one("#rows_pane").display = rows is not None
        text.styles.max_height = "100%" if rows is None else None
        self.query_one("#report_rows", VirtualTable).set_model(self._no_rows if rows is None else rows.model)
        told = f" about {self.symbols.clean(self.reports.list_filter)}" if self.reports.list_filter else ""
        self.title_of("list_pane", f"{'Tables' if self.session.runs else 'Passes'}{told}", progress=True)
        self.title_of("report_text", self.reports.title())
        self.title_of("rows_pane", self.reports.part_title())

    def show_progress(self) -> None:
        self._show_report()

    def on_rows_view_selected(self, message: VirtualTable.Selected) -> None:
        if message.table.id == "report_list":
            self.reports.set_filter("")
            self._filters_rows = False
            self._show_report(top=True)

    def on_rows_view_opened(self, message: VirtualTable.Opened) -> None:
        item, rows = self.reports.item, self.reports.rows
        if message.table.id == "report_list":
            if item is not None and item.state == "ready" and rows is not None:
                self._filters_rows = True
                self.query_one("#report_rows").focus()
            elif item is not None and not item.is_running:
                self.run(item)
        elif rows is not None:
            place = rows.place(message.row, self.session.find, self.browse.outline.row_of.get)
            if place is None:
                self.say("This row is about no node of the model.")
            else:
                self.open_node(place)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_report)

    @property
    def filter_text(self) -> str:
        return self.reports.filter_text if self._filters_rows else self.reports.list_filter

    def set_filter(self, text: str) -> str:
        if self._filters_rows:
            self.reports.set_filter(text)
        else:
            self.reports.filter_list(text)
        return ""

    def action_filter(self) -> None:
        # What has the focus is filtered; while typing, the prompt has it.
        self._filters_rows = self.focused is not None and self.focused.id == "report_rows"
        super().action_filter()

    def focus_first(self) -> None:
        rows = self.query_one("#report_rows", VirtualTable)
        (rows if self._filters_rows and self.reports.rows is not None else self.query_one(self.FIRST)).focus()

    def commands(self) -> list[tuple[str, str]]:
        if self.session.runs:
            command = self.session.runs[0].run.command
            return [("The tables of this run:", command)] if command else []
        return [("This report:", self.reports.command(self.browse.bound_source))]

    def selected_text(self) -> list[tuple[str, str]]:
        rows = self.reports.rows
        row = None if rows is None else rows.model.selected
        return [] if rows is None or row is None else [("The row:", rows.model.text(row))]

    def table(self) -> Table | None:
        return self.reports.table()

    def show_row(self, row: int) -> None:
        self.open_node(row)

    def action_next_part(self, by: int) -> None:
        self.reports.set_filter("")
        self.reports.next_part(by)
        self._show_report(top=True)

    def action_ask_for(self) -> None:
        if self.session.runs:
            self.say("Passes run over a model; `irscope tui MODEL` opens one.")
            return
        passes = [(item.text, item.about) for item in self.reports.items]
        self.app.push_screen(PickDialog(passes, self.symbols, "Run a pass"), self._picked)

    def _picked(self, text: str | None) -> None:
        if text is None:
            return
        try:
            item = self.reports.ask_for(text)
        except IrscopeError as error:
            self.say(str(error))
            return
        if item.report is None and not item.is_running:
            self.run(item)
        self.focus_first()
        self.show()

    def action_rerun(self) -> None:
        item = self.reports.item
        if item is not None and not item.is_running and not self.session.runs:
            self.run(item)

    def action_on_browse(self) -> None:
        rows = self.reports.rows
        columns = [] if rows is None else [column for column in rows.table.columns if column.kind.is_number]
        if rows is None or not columns or not node_rows(self.browse.outline, rows.table):
            self.say("This table has no numbers about nodes.")
            return
        table = rows.table

        def show(shown: Column) -> None:
            about = f"{table.title}: {shown.heading}"
            column = BrowseColumn(about, lambda source: column_of_table(source.outline, table, shown.key))
            self.session.report_columns = [*(one for one in self.session.report_columns if one.about != about), column]
            self.session.show_column(column)
            self.open_node(self.browse.selected)

        self.choose("Show on Browse", columns, lambda column: column.heading, show)
