"""The memory screen: what is alive at each step, what it is made of, and why each tensor is alive there; and what it asks of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from irscope.errors import IrscopeError, PassError
from irscope.report.table import Table
from irscope.tui.actions import Action, bindings
from irscope.tui.analyses import analysis_of, report_of, result_of
from irscope.tui.charts import Floats, Stack
from irscope.tui.command import run_command
from irscope.tui.compiled import NOT_COMPILED, beside_eager, buffers_of
from irscope.tui.memory.lives import Lives, Measured, Occupants, measured, occupants_of
from irscope.tui.memory.model import Found, Memory
from irscope.tui.memory.view import MemoryView
from irscope.tui.memory.views import VIEWS, Counters, Drawing, View, allocated, counters_of, order_text, orders, planned, step_drawing
from irscope.tui.memory.whatif import MOST_NODES, OF_TRAINING, SOURCES, Base, Source, WhatIf
from irscope.tui.rows import ReportTable
from irscope.tui.screen import ModelScreen
from irscope.tui.session import NOW, Session
from irscope.tui.widgets.charts import StackPane
from irscope.tui.widgets.table import RowsPane, VirtualTable

if TYPE_CHECKING:
    from irscope.passes.cost.bounds import Bounds
    from irscope.session import Model
    from irscope.tools.fit import Fit

_SEARCH = 5
"""Seconds that the search for a better order may take."""


class Questions:
    """Asks what the memory of a model lacks for what is chosen."""

    def __init__(self, session: Session, memory: Memory, show: Callable[[], None], say: Callable[[str], None]) -> None:
        """`show` refreshes the screen, `say` says a word to the user."""
        self.session = session
        self.memory = memory
        self._show = show
        self._say = say
        self._asked_sizes = ""
        self._opened: Model | None = None

    def ask_all(self) -> None:
        """Ask for what is drawn."""
        memory = self.memory
        self._ask_counters()
        self._ask_occupants()
        self._ask_times()
        if memory.shows_sizes:
            self._ask_sizes()
        elif memory.drawings.view != "steps":
            self._ask_drawing()
            self._ask_plan()

    def ask_lives(self) -> None:
        """Ask what is alive when."""
        memory, manager = self.memory, self.session.manager
        if not memory.is_waiting:
            return
        target, question, outline = memory.context.target, memory.context.liveness, self.session.browse.outline
        results = self.session.browse.results

        def answer() -> Found:
            result = manager.run_one(analysis_of(manager, question))
            shared = results.lives
            lives = shared if shared is not None and shared.live is result.value else Lives(result.value, outline)
            return Found(target, lives, counters_of(result.report()), measured(result.value))

        memory.error = None
        self.session.ask(f"memory.{target}", answer, memory.take, memory.fail, urgency=NOW)

    def _ask_counters(self) -> None:
        """Ask for an allocator's counters, which need a number for every symbol: the model is read again with the sizes that were put
        in."""
        memory, session = self.memory, self.session
        if not memory.lacks_counters or memory.found is None:
            return
        asked, question, env = memory.counted_for, memory.context.liveness, dict(self.session.browse.results.complete.env)
        steps = memory.found.live.steps

        def answer() -> tuple[Counters | None, Measured | None]:
            manager = session.model_for(env).manager
            result = manager.run_one(analysis_of(manager, question))
            return counters_of(result.report()), measured(result.value, steps)

        def take(found: tuple[Counters | None, Measured | None]) -> None:
            memory.take_counters(asked, *found)
            self._show()

        session.ask("memory.counters", answer, take, lambda error: memory.take_counters(asked, error))

    def _ask_occupants(self) -> None:
        memory = self.memory
        if memory.found is None or not memory.lacks_occupants:
            return
        asked, found, summed, binding = memory.counted_for, memory.found, memory.measured, memory.shown_for

        def answer() -> Occupants:
            return occupants_of(found.live, summed, found.lives, binding)

        self.session.ask(
            f"memory.occupants.{asked}.{summed is None}",
            answer,
            lambda made: memory.take_occupants(asked, made),
            lambda error: None,
            urgency=NOW,
        )

    def _ask_times(self) -> None:
        """Ask for the least time of each step, as the Cost screen has it."""
        memory, session = self.memory, self.session
        if memory.found is None or not memory.lacks_times:
            return
        asked, env, names = memory.counted_for, dict(memory.wanted.env), [node.name for node in memory.found.live.steps]
        memory.take_times(asked, None, "")

        def answer() -> tuple[Floats, str]:
            times: Bounds = result_of(session.model_for(env).manager, "roofline")
            seconds: dict[str, float] = {node.node.name: times.seconds_of(node) for node in times.nodes}
            unknown = len(times.unknown)
            what = f"the least time on {times.device.name} by roofline" + (f"; {unknown:,} of unknown time are not wide" if unknown else "")
            return np.array([seconds.get(name, 0.0) for name in names], dtype=np.float64), what

        def take(found: tuple[Floats, str]) -> None:
            memory.take_times(asked, *found)

        session.ask(f"memory.times.{asked}", answer, take, lambda error: self._say(error.message), urgency=NOW)

    def _open_model(self) -> Model:
        """Return the model with its sizes open, read again where it was opened with numbers for them. For the worker's thread."""
        model = self.session.model
        if model.program.symbols or not model.options.bind:
            return model
        if self._opened is None:
            self._opened = model.bound_to({})
            self._opened.manager.cancelled = self.session.manager.cancelled
        self._opened.manager.settings = self.session.manager.settings
        self._opened.manager.instruments[:] = self.session.manager.instruments
        return self._opened

    def _ask_sizes(self) -> None:
        memory, question = self.memory, self.memory.sizes_question
        asked = f"{question} {memory.context.target}"
        if asked != self._asked_sizes:
            self._asked_sizes, memory.by_size = asked, None
            self.session.ask(
                f"memory.sizes.{asked}",
                lambda: report_of(self._open_model().manager, question),
                memory.take_sizes,
                memory.fail,
                urgency=NOW,
            )

    def ask_largest(self) -> None:
        """Look for the largest size that fits; ctrl-x stops it."""
        memory = self.memory
        if not memory.lacks_fit:
            return
        asked, name, others = memory.fit_for, memory.size_name, memory.other_sizes

        def answer() -> Fit:
            from irscope.tools.fit import Search

            search = Search(self._open_model())
            return search.largest(search.budget(None), name, others)

        def take(found: Fit | IrscopeError) -> None:
            memory.take_largest(asked, found)
            self._show()

        self.session.ask(f"memory.fit.{asked}", answer, take, take, urgency=NOW)

    def _ask_drawing(self) -> None:
        memory, session = self.memory, self.session
        wanted = memory.wanted
        if not memory.drawings.ask(wanted):
            return
        env = dict(wanted.env)
        steps, question = len(self.session.browse.outline.program_order), memory.context.liveness

        def answer() -> Drawing:
            # A captured step cannot be read again with other sizes.
            manager = session.manager if wanted.view == "training" else session.model_for(env).manager
            if wanted.view == "training":
                return step_drawing(result_of(manager, "training"))
            if wanted.view == "eager":
                beside = beside_eager(session, question)
                return Drawing(beside, beside.said, f"{beside.title}{self.memory.symbols.glyphs.separator}E shows the steps again")
            if wanted.view == "plan":
                return Drawing(planned(report_of(manager, "plan"), steps))
            if wanted.view == "orders":
                report = report_of(manager, f"schedule{{seconds={_SEARCH}}}")
                return Drawing(orders(report) or Stack({}), order_text(report))
            found = result_of(manager, "cuda-memory{model=eager}")
            if found.reason or found.sizes is None:
                raise PassError(f"there are no addresses: {found.reason}", hint=found.fix)
            return Drawing(allocated(found))

        def take(found: Drawing | IrscopeError) -> None:
            memory.drawings.take(wanted, found)

        session.ask(wanted.key, answer, take, take, urgency=NOW)

    def _ask_plan(self) -> None:
        """Ask for the buffers of the generated code, for the list below eager and compiled."""
        memory, session = self.memory, self.session
        if memory.drawings.view != "eager" or memory.plan is not None:
            return

        def take(table: Table | None) -> None:
            memory.plan = None if table is None else ReportTable(table, self.memory.symbols)

        session.ask("memory.buffers", lambda: buffers_of(session), take, lambda error: None, urgency=NOW)

    def ask_whatifs(self) -> bool:
        """List what would lower the peak, each pass by itself as it answers; False where the peak is not known."""
        memory, session = self.memory, self.session
        sources = OF_TRAINING if session.program.training is not None else SOURCES
        before = memory.whatifs
        listed = memory.list_whatifs(list(sources))
        if listed is None:
            return False
        if listed is before or memory.found is None or memory.stack is None:
            return True
        env, lifetime = dict(memory.wanted.env), memory.context.lifetime
        steps, heights = memory.found.live.steps, memory.whole
        is_modelled = any(mask.any() for mask in memory.stack.modelled.values())
        of_training = sources is OF_TRAINING

        def ask(name: str, source: Source) -> None:
            def answer() -> list[WhatIf]:
                # A captured step cannot be read again with other sizes.
                manager = session.manager if of_training else session.model_for(env).manager
                base = Base(manager, lifetime, steps, heights, is_modelled)
                return [one for one in source(base) if one is not None]

            def take(found: list[WhatIf] | IrscopeError) -> None:
                listed.take(name, found)
                self._show()

            session.ask(f"memory.whatif.{name}.{memory.counted_for}", answer, take, take, urgency=NOW)

        for name, source in sources.items():
            ask(name, source)
        return True


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
