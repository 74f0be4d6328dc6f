"""The memory screen: what is alive at each step, what it is made of, and why each tensor is alive there."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
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
from irscope.tui.memory.views import (
    VIEWS,
    Counters,
    Drawing,
    View,
    allocated,
    counters_of,
    order_text,
    orders,
    planned,
    step_drawing,
)
from irscope.tui.memory.whatif import MOST_NODES, OF_TRAINING, SOURCES, Base, Source, WhatIf
from irscope.tui.reports import ReportTable
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


class MemoryScreen(ModelScreen):
    """Live bytes over the steps, and the tensors alive at one of them."""

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
        self._asked_sizes = ""
        self._opened: Model | None = None
        self.memory: Memory = session.keep(self.NAME, lambda: Memory(session.browse))

    def panes(self) -> ComposeResult:
        with Container(id="memory-panes"):
            memory = self.memory
            stack = StackPane(memory.chart_lines, lambda: memory.shown, lambda: memory.step, memory.go_to, id="stack")
            stack.mark = memory.toggle_mark
            yield stack
            with RowsPane(id="alive"):
                yield VirtualTable(self.memory.table, id="living")
                yield from self.prompts()

    # -- questions ---------------------------------------------------------------------------------------------

    def asked(self) -> None:
        memory, manager = self.memory, self.session.manager
        if not memory.is_waiting:
            return
        target, question, outline = memory.context.target, memory.context.liveness, self.browse.outline
        results = self.browse.results

        def answer() -> Found:
            found = manager.run_one(analysis_of(manager, question))
            shared = results.lives
            lives = shared if shared is not None and shared.live is found.value else Lives(found.value, outline)
            return Found(target, lives, counters_of(found.report()), measured(found.value))

        memory.error = None
        self.session.ask(f"memory.{target}", answer, memory.take, memory.fail, urgency=NOW)

    def _ask_counters(self) -> None:
        """What an allocator counts needs a number for every symbol: the model is read again with the sizes that were put in."""
        memory, session = self.memory, self.session
        if not memory.lacks_counters or memory.found is None:
            return
        asked, question, env = memory.counted_for, memory.context.liveness, dict(self.browse.results.complete.env)
        steps = memory.found.live.steps

        def answer() -> tuple[Counters | None, Measured | None]:
            manager = session.model_for(env).manager
            found = manager.run_one(analysis_of(manager, question))
            return counters_of(found.report()), measured(found.value, steps)

        def take(found: tuple[Counters | None, Measured | None]) -> None:
            memory.take_counters(asked, *found)
            self.show()

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
        """What each step takes at least, as the Cost screen has it."""
        memory, session = self.memory, self.session
        if memory.found is None or not memory.lacks_times:
            return
        asked, env, names = memory.counted_for, dict(memory.wanted.env), [node.name for node in memory.found.live.steps]
        memory.take_times(asked, None, "")

        def answer() -> tuple[Floats, str]:
            times: Bounds = result_of(session.model_for(env).manager, "roofline")
            seconds: dict[str, float] = {one.node.name: times.seconds_of(one) for one in times.nodes}
            unknown = len(times.unknown)
            what = f"the least time on {times.device.name} by roofline" + (f"; {unknown:,} of unknown time are not wide" if unknown else "")
            return np.array([seconds.get(name, 0.0) for name in names], dtype=np.float64), what

        def take(found: tuple[Floats, str]) -> None:
            memory.take_times(asked, *found)

        session.ask(f"memory.times.{asked}", answer, take, lambda error: self.say(error.message), urgency=NOW)

    def _open_model(self) -> Model:
        """The model with its sizes open, read again where it was opened with numbers for them. For the worker's thread."""
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

    def _ask_largest(self) -> None:
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
            self.show()

        self.session.ask(f"memory.fit.{asked}", answer, take, take, urgency=NOW)

    def _ask_drawing(self) -> None:
        memory, session = self.memory, self.session
        wanted = memory.wanted
        if not memory.drawings.ask(wanted):
            return
        env = dict(wanted.env)
        steps, question = len(self.browse.outline.program_order), memory.context.liveness

        def answer() -> Drawing:
            # A captured step cannot be read again with other sizes.
            manager = session.manager if wanted.view == "training" else session.model_for(env).manager
            if wanted.view == "training":
                return step_drawing(result_of(manager, "training"))
            if wanted.view == "eager":
                beside = beside_eager(session, question)
                return Drawing(beside, beside.said, f"{beside.title}{self.symbols.glyphs.separator}E shows the steps again")
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
        """The buffers of the generated code, for the list below eager and compiled."""
        memory, session = self.memory, self.session
        if memory.drawings.view != "eager" or memory.plan is not None:
            return

        def take(found: Table | None) -> None:
            memory.plan = None if found is None else ReportTable(found, self.symbols)

        session.ask("memory.buffers", lambda: buffers_of(session), take, lambda error: None, urgency=NOW)

    # -- what is shown -----------------------------------------------------------------------------------------

    def show(self) -> None:
        memory = self.memory
        if memory.is_stale:
            memory.update()
        here = memory.step_of_selected
        if memory.stack is not None and here is not None and here != memory.step:
            memory.go_to(here)
        memory.draw_limit()
        self._ask_counters()
        self._ask_occupants()
        self._ask_times()
        if memory.shows_sizes:
            self._ask_sizes()
        elif memory.drawings.view != "steps":
            self._ask_drawing()
            self._ask_plan()
        self._show_step()

    def _show_step(self) -> None:
        self.query_one(StackPane).redraw()
        memory = self.memory
        listed = memory.whatifs.table if memory.lists_whatifs and memory.whatifs is not None else memory.table
        if memory.buffers is not None and not memory.lists_whatifs:
            listed = memory.buffers.model
        self.query_one("#living", VirtualTable).set_model(listed)
        self._show_titles()

    def _show_titles(self) -> None:
        self.title_of("stack", self.memory.chart_title(), progress=True)
        self.title_of("alive", self.memory.table_title())

    def show_progress(self) -> None:
        self._show_titles()

    def on_chart_pane_moved(self) -> None:
        self.session.moved(self.NAME)
        self._show_step()

    def on_chart_pane_opened(self) -> None:
        if not self.browse.is_empty:
            self.open_node(self.browse.selected)

    def on_rows_view_selected(self) -> None:
        # The selected tensor is marked in a map of addresses.
        if self.memory.drawings.view in ("plan", "allocator"):
            self.query_one(StackPane).redraw()

    def on_rows_view_opened(self, message: VirtualTable.Opened) -> None:
        if self.memory.lists_whatifs and self.memory.whatifs is not None:
            self.memory.try_whatif(self.memory.whatifs.chosen())
            self._show_step()
            return
        if self.memory.buffers is not None:
            self.say("n, N, p and v go on; E shows what is alive at a step.")
            return
        row = self.memory.row_of_selected()
        if row is not None:
            self.open_node(row)

    # -- what the base asks for --------------------------------------------------------------------------------

    @property
    def filter_text(self) -> str:
        return self.memory.filter_text

    def set_filter(self, text: str) -> str:
        return self.memory.set_filter(text)

    def commands(self) -> list[tuple[str, str]]:
        return [("The numbers on the screen:", run_command(self.browse.complete_source, self.memory.context.liveness))]

    def selected_text(self) -> list[tuple[str, str]]:
        table = self.memory.table
        if table.selected is None:
            return []
        return [("The row:", table.text(table.selected)), ("Its name:", self.memory.selected_name())]

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

    def action_grouping(self) -> None:
        self.memory.next_grouping()
        self.show()

    def action_what_if(self) -> None:
        """List what would lower the peak, each pass by itself as it answers."""
        memory, session = self.memory, self.session
        if self.browse.node_count > MOST_NODES:
            self.say(f"Changes are tried for models of up to {MOST_NODES:,} nodes.")
            return
        sources = OF_TRAINING if self.session.program.training is not None else SOURCES
        before = memory.whatifs
        listed = memory.list_whatifs(list(sources))
        if listed is None:
            self.say("The peak is not known yet.")
            return
        self.query_one("#living").focus()
        self.show()
        if listed is before or memory.found is None or memory.stack is None:
            return
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
                self.show()

            session.ask(f"memory.whatif.{name}.{memory.counted_for}", answer, take, take, urgency=NOW)

        for name, source in sources.items():
            ask(name, source)

    def action_back(self) -> None:
        memory = self.memory
        if memory.after is not None:
            memory.try_whatif(None)
        elif memory.lists_whatifs and self.maximized is None:
            memory.lists_whatifs = False
            memory.set_filter("")
            self.focus_first()
        else:
            super().action_back()
            return
        self.show()

    def action_axis(self) -> None:
        self.memory.toggle_axis()
        self.show()

    def action_base(self) -> None:
        self.memory.toggle_base()
        self._show_step()

    def action_grow(self, by: int) -> None:
        self._sized(self.memory.scale_symbol(plus=by))

    def action_scale(self, times: float) -> None:
        self._sized(self.memory.scale_symbol(times=times))

    def _sized(self, problem: str) -> None:
        if problem:
            self.say(problem)
        else:
            self.show_all()

    def action_by_size(self) -> None:
        if not self.memory.sizes_question:
            self.say("Every size is fixed in the file.")
            return
        self._view("steps" if self.memory.shows_sizes else "sizes")

    def action_largest(self) -> None:
        if not self.memory.sizes_question:
            self.say("Every size is fixed in the file.")
            return
        self._view("sizes")
        self._ask_largest()

    def _view(self, view: View) -> None:
        self.memory.drawings.view = view
        self.show()

    def action_eager(self) -> None:
        if not self.memory.drawings.is_compiled:
            self.say(NOT_COMPILED)
            return
        self._view("steps" if self.memory.drawings.view == "eager" else "eager")

    def action_view(self) -> None:
        views = self.memory.drawings.offered(has_sizes=bool(self.memory.sizes_question))
        self.choose("What is drawn", views, VIEWS.__getitem__, self._view)

    def action_zoom_steps(self, factor: float) -> None:
        shown = self.memory.shown
        if shown is not None and len(shown):
            shown.zoom(min(self.memory.step, len(shown) - 1), factor)
            self.query_one(StackPane).redraw()

    def action_fit(self) -> None:
        if self.memory.shown is not None:
            self.memory.shown.fit()
            self.query_one(StackPane).redraw()
