"""The parameters screen: weights by size, grouped by module, and histograms of sizes and values."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical

from irscope.report.table import Table
from irscope.tui.actions import Action, bindings
from irscope.tui.analyses import report_of
from irscope.tui.models.command import run_command
from irscope.tui.models.params import PASS, VALUES, Params
from irscope.tui.queue import NOW
from irscope.tui.screens.base import ModelScreen
from irscope.tui.session import Session
from irscope.tui.widgets.drawn import Drawn
from irscope.tui.widgets.table import VirtualTable


class _Weights(Vertical):
    """The table with the lines to type into below it."""

    ALLOW_MAXIMIZE = True


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
            with _Weights(id="weights-pane", classes="frame"):
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
        progress = f"{self.symbols.glyphs.separator}{self.session.progress}" if self.session.progress else ""
        self.title_of("weights-pane", f"{self.params.title()}{progress}")

    def on_virtual_table_selected(self) -> None:
        self._show_row()

    def on_virtual_table_opened(self) -> None:
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
