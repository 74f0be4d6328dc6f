"""The compare screen: two models, or a model and a recording of a real run, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.message import Message

from irscope.report.table import Table
from irscope.tools.compare import compare_with
from irscope.tui.actions import Action, bindings
from irscope.tui.models.compare import Compare, Shown, shown
from irscope.tui.queue import NOW
from irscope.tui.screens.base import ModelScreen
from irscope.tui.session import Session
from irscope.tui.widgets.drawn import Drawn
from irscope.tui.widgets.prompt import Prompt
from irscope.tui.widgets.table import VirtualTable


class BothPane(Drawn, can_focus=True):
    """Draws both timelines and moves the cursor along them."""

    PANE = "both"
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("both", "step(-1)", ("left", "h"), "Step back", "Go to the place before."),
        Action("both", "step(1)", ("right", "l"), "Step", "Go to the next place.", footer=True),
        Action("both", "step(-10)", ("shift+left", "H"), "10 back", "Go back by ten places."),
        Action("both", "step(10)", ("shift+right", "L"), "10 on", "Go on by ten places."),
        Action("both", "first", ("home",), "First place", "Go to the first place."),
        Action("both", "last", ("end",), "Last place", "Go to the last place."),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("both", ACTIONS)

    class Moved(Message):
        """The cursor is at another place."""

    def __init__(self, compare: Compare, *, id: str | None = None) -> None:
        super().__init__(compare.chart_lines, id=id)
        self.compare = compare

    def _go_to(self, place: int) -> None:
        self.compare.go_to(place)
        self.post_message(self.Moved())

    def action_step(self, by: int) -> None:
        self._go_to(self.compare.place + by)

    def action_first(self) -> None:
        self._go_to(0)

    def action_last(self) -> None:
        found = self.compare.found
        self._go_to(len(found.lines) - 1 if found is not None and found.lines is not None else 0)

    def on_click(self, event: events.Click) -> None:
        found, offset = self.compare.found, event.get_content_offset(self)
        lines = None if found is None else found.lines
        if lines is not None and offset is not None and offset.x >= lines.margin():
            self._go_to(lines.place_of(offset.x - lines.margin(), self.size.width - lines.margin()))


class _Differences(Vertical):
    """The table with the lines to type into below it."""

    ALLOW_MAXIMIZE = True


class CompareScreen(ModelScreen):
    """What differs, and how far a prediction is from what was measured."""

    NAME = "compare"
    FIRST = "#differences"
    FILTER_HINT = "words that occur in a row; !word: must not"
    DEFAULT_CSS = """
    CompareScreen #compare-panes { height: 1fr; layout: vertical; }
    CompareScreen #both { height: 1fr; min-height: 8; }
    CompareScreen #differences-pane { height: 1fr; }
    CompareScreen.-tiny #both { display: none; }
    """
    PANES: ClassVar[dict[str, str]] = {"compare": "On this screen", "both": "Both timelines", "differences": "Differences"}
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        *BothPane.ACTIONS,
        Action("compare", "other", ("o",), "Other", "Choose another model or a recording to compare with.", footer=True),
        Action(
            "compare",
            "view(1)",
            ("v",),
            "Next table",
            "Show the next table: modules, weights, what is not matched.",
            footer=True,
        ),
        Action("compare", "view(-1)", ("V",), "Table before", "Show the table before."),
        Action("compare", "everything", ("f",), "Equal too", "List nodes that are equal too, or only those that differ."),
        Action("compare", "peak(0)", ("p",), "Peak", "Go to the peak of the first side.", footer=True),
        Action("compare", "peak(1)", ("P",), "Other peak", "Go to the peak of the other side."),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("compare", ACTIONS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.compare: Compare = session.keep(self.NAME, lambda: Compare(session.browse))
        if session.compare_with:
            self.compare.choose(session.compare_with)

    def panes(self) -> ComposeResult:
        with Container(id="compare-panes"):
            both = BothPane(self.compare, id="both")
            both.add_class("frame")
            yield both
            with _Differences(id="differences-pane", classes="frame"):
                yield VirtualTable(self.compare.table, id="differences")
                yield from self.prompts()
                yield Prompt("the path of a model or a recording", id="other")

    # -- questions ---------------------------------------------------------------------------------------------

    def asked(self) -> None:
        compare, session = self.compare, self.session
        if not compare.is_waiting:
            return
        asked, symbols = compare.asks_for, self.symbols
        path, everything = asked
        env = dict(session.results.binding.env)

        def answer() -> Shown:
            return shown(compare_with(session.model_for(env), Path(path)), symbols, everything=everything)

        session.ask(f"compare.{asked}.{env}", answer, lambda found: compare.take(asked, found), compare.fail, urgency=NOW)

    def set_sizes(self, text: str) -> str:
        problem = super().set_sizes(text)
        if not problem and self.compare.other:
            self.compare.choose(self.compare.other)
        return problem

    # -- what is shown -----------------------------------------------------------------------------------------

    def show(self) -> None:
        self.asked()
        self.query_one("#differences", VirtualTable).set_model(self.compare.table)
        self._show_place()

    def _show_place(self) -> None:
        self.query_one("#both", BothPane).redraw()
        self.query_one("#differences", VirtualTable).redraw()
        self.title_of("both", self.symbols.clean(self.compare.chart_title()))
        self.show_progress()

    def show_progress(self) -> None:
        progress = f"{self.symbols.glyphs.separator}{self.symbols.clean(self.session.progress)}" if self.session.progress else ""
        self.title_of("differences-pane", f"{self.symbols.clean(self.compare.table_title())}{progress}")

    def on_both_pane_moved(self) -> None:
        self._show_place()

    def on_virtual_table_selected(self) -> None:
        self.compare.follow_row()
        self._show_place()

    def on_virtual_table_opened(self, message: VirtualTable.Opened) -> None:
        rows = self.compare.rows
        place = None if rows is None else rows.place(message.row, self.session.find, self.browse.outline.row_of.get)
        if place is None:
            self.say("This row is about no node of the model on the other screens.")
        else:
            self.open_node(place)

    # -- what the base asks for --------------------------------------------------------------------------------

    @property
    def filter_text(self) -> str:
        return self.compare.filter_text

    def set_filter(self, text: str) -> str:
        return self.compare.set_filter(text)

    def on_prompt_closed(self, message: Prompt.Closed) -> None:
        prompt = message.prompt
        if prompt.id != "other":
            return
        # The handler of the base, which would come next, knows nothing of this prompt.
        message.prevent_default()
        problem = self.compare.choose(prompt.value) if message.keep else ""
        prompt.mark(wrong=bool(problem))
        if problem:
            self.show_problem(problem)
            return
        prompt.display = False
        self.focus_first()
        self.show()

    def commands(self) -> list[tuple[str, str]]:
        source = self.compare.bound(dict(self.browse.results.binding.env))
        return [("This comparison:", self.compare.command(source))]

    def selected_text(self) -> list[tuple[str, str]]:
        row = self.compare.table.selected
        return [] if row is None else [("The row:", self.compare.table.text(row))]

    def table(self) -> Table | None:
        return self.compare.export()

    # -- what keys ask for -------------------------------------------------------------------------------------

    def action_other(self) -> None:
        self.query_one("#other", Prompt).open(self.compare.other)

    def action_view(self, by: int) -> None:
        self.compare.next_view(by)
        self.show()

    def action_everything(self) -> None:
        self.compare.toggle_everything()
        self.show()

    def action_peak(self, side: int) -> None:
        if not self.compare.go_to_peak(side):
            self.say("There are no timelines to look at.")
        self._show_place()
