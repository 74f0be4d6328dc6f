"""The memory screen: what is alive at each step, what it is made of, and why each tensor is alive there."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from irscope.report.table import Table
from irscope.tui.actions import Action, bindings
from irscope.tui.command import run_command
from irscope.tui.compiled import NOT_COMPILED
from irscope.tui.memory.model import Memory
from irscope.tui.memory.questions import Questions
from irscope.tui.memory.view import MemoryView
from irscope.tui.memory.views import VIEWS, View
from irscope.tui.memory.whatif import MOST_NODES
from irscope.tui.screen import ModelScreen
from irscope.tui.session import Session
from irscope.tui.widgets.charts import StackPane
from irscope.tui.widgets.table import RowsPane, VirtualTable


class MemoryScreen(ModelScreen):
    """Memory over the steps of a model or of runs, and what is alive at one of them."""

    NAME = "memory"
    FIRST = "#stack"
    FILTER_HINT = "parts of a name, of why it is alive or of who made it; !not"
    DECIDES: ClassVar[tuple[str, ...]] = ("sizes", "device", "what_if", "largest")
    PANES: ClassVar[dict[str, str]] = {"memory": "On this screen", "stack": "Live bytes"}
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        *StackPane.ACTIONS,
        Action("memory", "peak", ("p",), "Peak", "Go to the step at which most bytes are alive.", footer=True),
        Action("memory", "hill(1)", ("n",), "Next peak", "Go to the next local peak.", footer=True),
        Action("memory", "hill(-1)", ("N",), "Peak before", "Go to the local peak before."),
        Action("memory", "grouping", ("o",), "By", "Stack by category, by module, or by tensor: the largest by name.", footer=True),
        Action(
            "memory", "what_if", ("W",), "Lower it", "List what would lower the peak; enter on one draws the chart with it.", footer=True
        ),
        Action("memory", "axis", ("a",), "Axis", "Make each step as wide as it takes at least on the device, or equally wide again."),
        Action(
            "memory",
            "base",
            ("r",),
            "Broken axis",
            "Begin the axis at what never changes, such as weights and inputs, or show all to scale again.",
        ),
        Action("memory", "grow(1)", ("greater_than_sign",), "Size up", "Make the first symbol larger by one, as batch=2 after batch=1."),
        Action("memory", "grow(-1)", ("less_than_sign",), "Size down", "Make the first symbol smaller by one."),
        Action("memory", "scale(2)", ("right_curly_bracket",), "Double", "Make the first symbol twice as large."),
        Action("memory", "scale(0.5)", ("left_curly_bracket",), "Halve", "Make the first symbol half as large."),
        Action("memory", "view", ("v",), "View", "Choose what is drawn: live bytes, peak by size, addresses, a better order.", footer=True),
        Action("memory", "eager", ("E",), "Eager", "Show eager beside what torch.compile made of it over one axis, or the steps again."),
        Action("memory", "by_size", ("x",), "By size", "Show the peak over sizes of the first symbol, or the steps again."),
        Action(
            "memory", "largest", ("X",), "Largest", "Look for the largest size that fits on the device, such as the batch; ctrl-x stops it."
        ),
        Action("memory", "zoom_steps(0.5)", ("plus", "equals_sign"), "Closer", "Show fewer steps, around the cursor."),
        Action("memory", "zoom_steps(2)", ("minus",), "Farther", "Show more steps."),
        Action("memory", "fit", ("0",), "All steps", "Show all steps."),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("memory", ACTIONS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._at = 0
        """Which of the runs the rows are about."""
        self.model: Memory | None = None if session.runs else session.keep(self.NAME, lambda: Memory(session.browse))
        """The memory of the model; None where runs are shown."""
        self.questions = None if self.model is None else Questions(session, self.model, self.show, self.say)

    @property
    def memories(self) -> list[MemoryView]:
        """Return what stands side by side."""
        return [self.model] if self.model is not None else [*self.session.runs]

    @property
    def memory(self) -> MemoryView:
        """Return what the rows are about."""
        return self.memories[self._at]

    def panes(self) -> ComposeResult:
        with Container(id="memory-panes"):
            with Container(id="stacks"):
                for number, memory in enumerate(self.memories):
                    yield _pane(memory, number)
            with RowsPane(id="alive"):
                yield VirtualTable(self.memory.listed, id="living")
                yield from self.prompts()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """List what the run holds whose chart has the focus."""
        panes = list(self.query(StackPane))
        if event.widget in panes and panes.index(event.widget) != self._at:
            self._at = panes.index(event.widget)
            self._show_step()

    def asked(self) -> None:
        if self.questions is not None:
            self.questions.ask_lives()

    # -- what is shown -----------------------------------------------------------------------------------------

    def show(self) -> None:
        memory = self.model
        if memory is not None and self.questions is not None:
            if memory.is_stale:
                memory.update()
            here = memory.step_of_selected
            if memory.stack is not None and here is not None and here != memory.step:
                memory.go_to(here)
            memory.draw_limit()
            self.questions.ask_all()
        self._show_step()

    def _show_step(self) -> None:
        self._redraw()
        self.query_one("#living", VirtualTable).set_model(self.memory.listed)
        self._show_titles()

    def _redraw(self) -> None:
        for pane in self.query(StackPane):
            pane.redraw()

    def _show_titles(self) -> None:
        for number, memory in enumerate(self.memories):
            beside = "" if self.model is not None or len(self.memories) == 1 else f"{self.session.runs[number].run.name}: "
            self.title_of(_id_of(number), f"{beside}{memory.chart_title()}", progress=True)
        self.title_of("alive", self.memory.table_title())

    def show_progress(self) -> None:
        self._show_titles()

    def on_chart_pane_moved(self) -> None:
        self.session.moved(self.NAME)
        self._show_step()

    def on_chart_pane_opened(self) -> None:
        if not self.browse.is_empty:
            self.open_node(self.browse.selected)
        elif self.model is None:
            self.say("A run has no graph to go to.")

    def go_to(self, text: str) -> str:
        if self.model is not None:
            return super().go_to(text)
        run = self.session.runs[self._at]
        place = run.place_named(text)
        if place is None:
            return f"there is no moment {text.strip()!r}"
        run.go_to(place)
        return ""

    def on_rows_view_selected(self) -> None:
        # The selected tensor is marked in a map of addresses.
        if self.model is not None and self.model.drawings.view in ("plan", "allocator"):
            self._redraw()

    def on_rows_view_opened(self, message: VirtualTable.Opened) -> None:
        memory = self.model
        if memory is None:
            self.say("A run has no graph to go to.")
            return
        if memory.lists_whatifs and memory.whatifs is not None:
            memory.try_whatif(memory.whatifs.chosen())
            self._show_step()
            return
        if memory.buffers is not None:
            self.say("n, N, p and v go on; E shows what is alive at a step.")
            return
        row = memory.row_of_selected()
        if row is not None:
            self.open_node(row)

    # -- what the base asks for --------------------------------------------------------------------------------

    @property
    def filter_text(self) -> str:
        return self.memory.filter_text

    def set_filter(self, text: str) -> str:
        return self.memory.set_filter(text)

    def commands(self) -> list[tuple[str, str]]:
        if self.model is None:
            command = self.session.runs[self._at].run.command
            return [("The tables of this run:", command)] if command else []
        return [("The numbers on the screen:", run_command(self.browse.complete_source, self.model.context.liveness))]

    def selected_text(self) -> list[tuple[str, str]]:
        table, name = self.memory.listed, self.memory.selected_name()
        if table.selected is None:
            return []
        return [("The row:", table.text(table.selected)), *([("Its name:", name)] if name else [])]

    def table(self) -> Table | None:
        return self.memory.export()

    # -- what keys ask for -------------------------------------------------------------------------------------

    def _went(self, found: bool, otherwise: str) -> None:
        if found:
            self.session.jump(self.NAME, self.browse.selected)
            self._show_step()
        else:
            self.say(otherwise)

    def action_peak(self) -> None:
        self._went(self.memory.go_to_peak(), "The peak is not known yet.")

    def action_hill(self, by: int) -> None:
        self._went(self.memory.go_to_hill(by), "There is no other local peak in this direction.")

    def _of_model(self) -> Memory | None:
        """Return the memory of the model; None, with a word on why, where a run is shown."""
        if self.model is None:
            self.say(self.session.runs[self._at].run.fixed)
        return self.model

    def action_grouping(self) -> None:
        self.memory.next_grouping()
        self.show()

    def action_what_if(self) -> None:
        if self.model is None or self.questions is None:
            if not self.session.runs[self._at].show_settings():
                self.say("No settings were tried: irscope simulate --try -o writes a recording that says what each saves.")
            self._show_step()
        elif self.browse.node_count > MOST_NODES:
            self.say(f"Changes are tried for models of up to {MOST_NODES:,} nodes.")
        elif not self.questions.ask_whatifs():
            self.say("The peak is not known yet.")
        else:
            self.query_one("#living").focus()
            self.show()

    def action_back(self) -> None:
        memory = self.model
        if memory is not None and memory.after is not None:
            memory.try_whatif(None)
        elif memory is not None and memory.lists_whatifs and self.maximized is None:
            memory.lists_whatifs = False
            memory.set_filter("")
            self.focus_first()
        else:
            super().action_back()
            return
        self.show()

    def action_axis(self) -> None:
        problem = self.memory.toggle_axis()
        if problem:
            self.say(problem)
        self.show()

    def action_base(self) -> None:
        self.memory.toggle_base()
        self._show_step()

    def action_grow(self, by: int) -> None:
        self._scale(plus=by)

    def action_scale(self, times: float) -> None:
        self._scale(times=times)

    def _scale(self, times: float = 1, plus: int = 0) -> None:
        memory = self._of_model()
        problem = "" if memory is None else memory.scale_symbol(times, plus)
        if problem:
            self.say(problem)
        else:
            self.show_all()

    def action_by_size(self) -> None:
        memory = self._sized_model()
        if memory is not None:
            self._view("steps" if memory.shows_sizes else "sizes")

    def action_largest(self) -> None:
        if self._sized_model() is not None and self.questions is not None:
            self._view("sizes")
            self.questions.ask_largest()

    def _sized_model(self) -> Memory | None:
        """Return the memory of a model with open sizes; None, with a word on why, where no size can be changed."""
        memory = self._of_model()
        if memory is not None and not memory.sizes_question:
            self.say("Every size is fixed in the file.")
            return None
        return memory

    def _view(self, view: View) -> None:
        self.memory.show_view(view)
        self.show()

    def action_eager(self) -> None:
        if self.model is None or not self.model.drawings.is_compiled:
            self.say(NOT_COMPILED)
            return
        self._view("steps" if self.model.drawings.view == "eager" else "eager")

    def action_view(self) -> None:
        self.choose("What is drawn", self.memory.views, VIEWS.__getitem__, self._view)

    def action_zoom_steps(self, factor: float) -> None:
        shown = self.memory.shown
        if shown is not None and len(shown):
            shown.zoom(min(self.memory.step, len(shown) - 1), factor)
            self._redraw()

    def action_fit(self) -> None:
        if self.memory.shown is not None:
            self.memory.shown.fit()
            self._redraw()


def _id_of(number: int) -> str:
    """Return the name of the pane of the chart with this number."""
    return f"stack{number or ''}"


def _pane(memory: MemoryView, number: int) -> StackPane:
    """Return the pane of a chart."""
    pane = StackPane(memory.chart_lines, lambda: memory.shown, lambda: memory.step, memory.go_to, id=_id_of(number))
    pane.mark = memory.toggle_mark
    return pane
