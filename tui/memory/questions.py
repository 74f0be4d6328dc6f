"""What the Memory screen asks of a model: passes answer in the worker's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from irscope.errors import IrscopeError, PassError
from irscope.report.table import Table
from irscope.tui.analyses import analysis_of, report_of, result_of
from irscope.tui.charts import Floats, Stack
from irscope.tui.compiled import beside_eager, buffers_of
from irscope.tui.memory.lives import Lives, Measured, Occupants, measured, occupants_of
from irscope.tui.memory.model import Found, Memory
from irscope.tui.memory.views import Counters, Drawing, allocated, counters_of, order_text, orders, planned, step_drawing
from irscope.tui.memory.whatif import OF_TRAINING, SOURCES, Base, Source, WhatIf
from irscope.tui.rows import ReportTable
from irscope.tui.session import NOW, Session

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
        asked, question, env = memory.counted_for, memory.context.liveness, dict(self.session.browse.results.complete.env)
        steps = memory.found.live.steps

        def answer() -> tuple[Counters | None, Measured | None]:
            manager = session.model_for(env).manager
            found = manager.run_one(analysis_of(manager, question))
            return counters_of(found.report()), measured(found.value, steps)

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

        session.ask(f"memory.times.{asked}", answer, take, lambda error: self._say(error.message), urgency=NOW)

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
        """The buffers of the generated code, for the list below eager and compiled."""
        memory, session = self.memory, self.session
        if memory.drawings.view != "eager" or memory.plan is not None:
            return

        def take(found: Table | None) -> None:
            memory.plan = None if found is None else ReportTable(found, self.memory.symbols)

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
