"""Runs the steps of a pipeline over a copy of a program, in the worker's thread: the program on the screen stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

from irscope.ir.parser import parse_program
from irscope.ir.printer import print_program
from irscope.passkit.base import Pass, Transform
from irscope.passkit.instruments import Instrument, PassEvent
from irscope.passkit.manager import Manager
from irscope.tui.models.diff import compare, take_snapshot
from irscope.tui.models.pipeline import Computed, Outcome


@dataclass
class _Open:
    """A pass that is running."""

    event: PassEvent
    started: float
    inner: float = 0.0


@dataclass
class Recorder(Instrument):
    """Notes every pass that runs, with its times and whether it had run before."""

    seen: set[str] = field(default_factory=set)
    finished: list[tuple[int, Computed]] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)

    def before(self, event: PassEvent) -> None:
        self._open.append(_Open(event, perf_counter()))

    def after(self, event: PassEvent, changed: bool) -> None:
        one = self._open.pop()
        total = perf_counter() - one.started
        if self._open:
            self._open[-1].inner += total
        text = event.subject.text
        again = event.kind == "analysis" and text in self.seen
        self.seen.add(text)
        self.finished.append((event.number, Computed(text, event.depth, max(0.0, total - one.inner), total, again)))

    def failed(self, event: PassEvent, error: BaseException) -> None:
        self._open.pop()

    def taken(self) -> list[Computed]:
        """What has run since this was last asked, in the order in which it started."""
        found = [one for _, one in sorted(self.finished, key=lambda pair: pair[0])]
        self.finished.clear()
        return found


@dataclass(frozen=True)
class _State:
    """A program as text, and which passes had run before it came about."""

    text: str
    seen: frozenset[str]


class Runner:
    """Holds the copy with the state it has before the next step, and texts to go back to earlier states."""

    def __init__(self, manager: Manager) -> None:
        self._original = manager
        self._states: dict[tuple[Pass, ...], _State] = {}
        """What the program was after these steps."""
        self._recorder = Recorder()
        self._copy: Manager | None = None
        self._done: tuple[Pass, ...] = ()
        """The steps that the copy has behind it."""

    def run(self, done: tuple[Pass, ...], subject: Pass) -> Outcome:
        """Run a step after others. These must have run before, one after another; they are not run again."""
        if self._copy is None or self._done != done:
            self._go_to(done)
        copy = self._copy
        assert copy is not None
        # Should the step fail half-way, the copy is worth nothing.
        self._copy = None
        before = take_snapshot(copy.program) if isinstance(subject, Transform) else None
        started = perf_counter()
        result = copy.run_one(subject)
        spent = perf_counter() - started
        computed = self._recorder.taken()
        diff = None
        text = self._states[done].text
        if before is not None and result.value:
            diff = compare(before, take_snapshot(copy.program, before.names))
            text = print_program(copy.program)
        self._copy, self._done = copy, (*done, subject)
        self._states[self._done] = _State(text, frozenset(self._recorder.seen))
        return Outcome(spent, computed, result.report(), bool(result.value) if before is not None else None, diff)

    def _go_to(self, done: tuple[Pass, ...]) -> None:
        """Bring back the state after these steps; only what lies on the way to it is kept."""
        if not self._states:
            self._states[()] = _State(print_program(self._original.program), frozenset())
        self._states = {steps: state for steps, state in self._states.items() if steps == done[: len(steps)]}
        state = self._states[done]
        original = self._original
        program = parse_program(state.text, path=original.program.path or "<model>")
        program.path = original.program.path
        self._recorder = Recorder(set(state.seen))
        self._copy = Manager(
            program,
            settings=original.settings,
            instruments=[*original.instruments, self._recorder],
            registry=original.registry,
            annotate=original.annotate,
        )
        self._copy.cancelled = original.cancelled
