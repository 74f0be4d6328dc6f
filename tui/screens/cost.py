"""The cost screen: least times on a device by module, operator kind or node, and where they stand under its roof."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical

from irscope.devices import device_names
from irscope.report.table import Table
from irscope.tui.actions import Action, bindings
from irscope.tui.analyses import analysis_of
from irscope.tui.models.command import run_command
from irscope.tui.models.cost import Cost, Timed, views_of
from irscope.tui.models.costgroups import NodeTimes
from irscope.tui.queue import NOW
from irscope.tui.screens.base import ModelScreen
from irscope.tui.screens.dialog import ChoiceDialog
from irscope.tui.session import Session
from irscope.tui.widgets.drawn import Drawn
from irscope.tui.widgets.table import VirtualTable


class _Costs(Vertical):
    """The table with the lines to type into below it."""

    ALLOW_MAXIMIZE = True


class CostScreen(ModelScreen):
    """Which part of the model takes the time, and what binds it."""

    NAME = "cost"
    FIRST = "#costs"
    FILTER_HINT = "parts of a name, or what binds: memory, compute; !not"
    PANES: ClassVar[dict[str, str]] = {"cost": "On this screen"}
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("cost", "group", ("o",), "By module", "Show modules, operator kinds or nodes.", footer=True),
        Action("cost", "device", ("D",), "Device", "Choose the device that the times are for.", footer=True),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("cost", ACTIONS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.cost: Cost = session.keep(self.NAME, lambda: Cost(session.browse))

    def panes(self) -> ComposeResult:
        with Container(id="cost-panes"):
            with _Costs(id="costs-pane", classes="frame"):
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
        element = f"roofline{{device={device} top=0}}" if device else "roofline{top=0}"

        def answer() -> Timed:
            manager = session.model_for(env).manager
            subject = analysis_of(manager, element)
            times = NodeTimes(manager.get(subject), session.browse.outline)
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
        progress = f"{self.symbols.glyphs.separator}{self.session.progress}" if self.session.progress else ""
        self.title_of("costs-pane", f"{self.cost.title()}{progress}")

    def on_virtual_table_selected(self) -> None:
        self._show_row()

    def on_virtual_table_opened(self) -> None:
        row = self.cost.node_row()
        if row is not None:
            self.open_node(row)

    # -- what the base asks for --------------------------------------------------------------------------------

    @property
    def filter_text(self) -> str:
        return self.cost.filter_text

    def set_filter(self, text: str) -> str:
        return self.cost.set_filter(text)

    def commands(self) -> list[tuple[str, str]]:
        source = self.browse.source
        bound = replace(source, bind={**source.bind, **self.browse.results.binding.env})
        element = f"roofline{{device={self.cost.device} top=0}}" if self.cost.device else "roofline{top=0}"
        return [("The numbers on the screen:", run_command(bound, element))]

    def selected_text(self) -> list[tuple[str, str]]:
        row, group = self.cost.table.selected, self.cost.group
        return [] if row is None or group is None else [("The row:", self.cost.table.text(row)), ("Its name:", group.name)]

    def table(self) -> Table | None:
        return self.cost.export()

    # -- what keys ask for -------------------------------------------------------------------------------------

    def action_group(self) -> None:
        self.cost.next_grouping()
        self.show()

    def action_device(self) -> None:
        names = device_names()

        def choose(index: int | None) -> None:
            if index is not None:
                self.cost.device = names[index]
                self.show()

        self.app.push_screen(ChoiceDialog("Device", names), choose)
