"""The reports screen: any report of any pass, its numbers, tables and series."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical

from irscope.errors import IrscopeError
from irscope.report.table import Table
from irscope.tui.actions import Action, bindings
from irscope.tui.analyses import report_of
from irscope.tui.models.overlay import node_rows, overlay_of_table
from irscope.tui.models.reports import Item, Reports
from irscope.tui.models.rows import TableModel
from irscope.tui.queue import NOW
from irscope.tui.screens.base import ModelScreen
from irscope.tui.screens.dialog import ChoiceDialog
from irscope.tui.session import Session
from irscope.tui.widgets.lines import DetailPane
from irscope.tui.widgets.prompt import Prompt
from irscope.tui.widgets.table import VirtualTable


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
        self.reports: Reports = session.keep(self.NAME, lambda: Reports(session.manager.registry, session.browse.source, session.symbols))
        self._no_rows = TableModel((), 0, session.symbols, empty="This report has no table.")

    def panes(self) -> ComposeResult:
        with Container(classes="panes"):
            with Vertical(classes="pane left", id="list_pane"):
                yield VirtualTable(self.reports.list, id="report_list")
            with Vertical(classes="right"):
                yield DetailPane(id="report_text", classes="pane")
                with Vertical(classes="pane", id="rows_pane"):
                    yield VirtualTable(self._no_rows, id="report_rows")
        yield from self.prompts()
        yield Prompt("a pass, such as liveness{model=ssa} or ./file.py:Name", id="ask_for")

    # -- running -----------------------------------------------------------------------------------------------

    def asked(self) -> None:
        if not self.reports.items:
            self.session.ask("reports.list", self.reports.known, self._listed, lambda error: self.say(str(error)), urgency=NOW)

    def _listed(self, items: list[Item]) -> None:
        self.reports.set_items(items)
        first = self.reports.item
        if first is not None and not first.state:
            self.run(first)

    def run(self, item: Item) -> None:
        """Have the report of a pass made."""
        self.reports.start(item)
        self.session.ask(
            f"reports.{item.text}",
            lambda: report_of(self.session.manager, item.text),
            lambda report: self.reports.take(item, report),
            lambda error: self.reports.fail(item, error),
            urgency=NOW,
        )
        self.show()

    # -- what is shown -----------------------------------------------------------------------------------------

    def show(self) -> None:
        self.query_one("#report_list", VirtualTable).set_model(self.reports.list)
        self._show_report()

    def _show_report(self, *, top: bool = False) -> None:
        text, rows = self.query_one("#report_text", DetailPane), self.reports.rows
        text.show(self.reports.lines(max(text.size.width, 20)), top=top)
        self.query_one("#rows_pane").display = rows is not None
        self.query_one("#report_rows", VirtualTable).set_model(self._no_rows if rows is None else rows.model)
        progress = f"{self.symbols.glyphs.separator}{self.symbols.clean(self.session.progress)}" if self.session.progress else ""
        self.title_of("list_pane", f"Passes{progress}")
        self.title_of("report_text", self.reports.title())
        self.title_of("rows_pane", self.reports.part_title())

    def show_progress(self) -> None:
        self._show_report()

    def on_virtual_table_selected(self, message: VirtualTable.Selected) -> None:
        if message.table.id == "report_list":
            self.reports.set_filter("")
            self._show_report(top=True)

    def on_virtual_table_opened(self, message: VirtualTable.Opened) -> None:
        item, rows = self.reports.item, self.reports.rows
        if message.table.id == "report_list":
            if item is not None and item.state == "ready" and rows is not None:
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

    # -- what the base asks for --------------------------------------------------------------------------------

    @property
    def filter_text(self) -> str:
        return self.reports.filter_text

    def set_filter(self, text: str) -> str:
        self.reports.set_filter(text)
        return ""

    def on_prompt_closed(self, message: Prompt.Closed) -> None:
        prompt = message.prompt
        if prompt.id != "ask_for":
            return
        # The handler of the base, which would come next, knows nothing of this prompt.
        message.prevent_default()
        if message.keep and prompt.value.strip():
            try:
                item = self.reports.ask_for(prompt.value)
            except IrscopeError as error:
                prompt.mark(wrong=True)
                self.say(str(error))
                return
            if item.report is None and not item.is_running:
                self.run(item)
        prompt.mark(wrong=False)
        prompt.display = False
        self.focus_first()
        self.show()

    def commands(self) -> list[tuple[str, str]]:
        return [("This report:", self.reports.command())]

    def selected_text(self) -> list[tuple[str, str]]:
        rows = self.reports.rows
        row = None if rows is None else rows.model.selected
        return [] if rows is None or row is None else [("The row:", rows.model.text(row))]

    def table(self) -> Table | None:
        return self.reports.table()

    def go_to(self, text: str) -> str:
        row = self.session.find(text)
        if row is None:
            return super().go_to(text)
        self.open_node(row)
        return ""

    # -- what keys ask for -------------------------------------------------------------------------------------

    def action_next_part(self, by: int) -> None:
        self.reports.set_filter("")
        self.reports.next_part(by)
        self._show_report(top=True)

    def action_ask_for(self) -> None:
        self.query_one("#ask_for", Prompt).open("")

    def action_rerun(self) -> None:
        item = self.reports.item
        if item is not None and not item.is_running:
            self.run(item)

    def action_on_browse(self) -> None:
        rows = self.reports.rows
        columns = [] if rows is None else [column for column in rows.table.columns if column.kind.is_number]
        if rows is None or not columns or not node_rows(self.browse.outline, rows.table):
            self.say("This table has no numbers about nodes.")
            return
        table = rows.table

        def chosen(index: int | None) -> None:
            if index is not None:
                overlay = overlay_of_table(self.browse.outline, table, columns[index].key)
                if overlay is not None:
                    self.session.columns[f"{table.title}: {overlay.title}"] = overlay
                self.browse.results.set_overlay(overlay)
                self.open_node(self.browse.selected)

        self.app.push_screen(ChoiceDialog("Show on Browse", [column.heading for column in columns]), chosen)
