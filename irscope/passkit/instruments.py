"""Instruments that come with irscope: timing, dumps of the graph when it changed, statistics, progress."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from shutil import get_terminal_size
from time import perf_counter
from typing import Literal, TextIO

from irscope.files import make_folder, write_text
from irscope.immutable import immutable, mutable
from irscope.ir.printer import print_program
from irscope.ir.program import Program
from irscope.passkit.base import Pass
from irscope.report.printable import one_line
from irscope.report.table import Table

# What instruments are told about a run, and the hooks they may have.

Kind = Literal["analysis", "transform"]


@immutable
class PassEvent:
    """One pass that starts, ends or fails. `depth` is how many passes wait for it."""

    subject: Pass
    kind: Kind
    program: Program
    depth: int
    number: int
    """Position among everything that was run, from 0."""


class Instrument:
    """Watches a run. Override what you need; on the way out instruments are told in reverse order."""

    def before(self, event: PassEvent) -> None:
        """The pass is about to run."""

    def after(self, event: PassEvent, changed: bool) -> None:
        """The pass has run; `changed` says whether a transform changed the graph."""

    def failed(self, event: PassEvent, error: BaseException) -> None:
        """The pass raised."""

    def progress(self, event: PassEvent | None, done: int, total: int | None, what: str) -> None:
        """Long work has come this far; raise Cancelled to stop it."""

    def ended(self) -> None:
        """Long work that is not a pass is over."""

    def should_run(self, subject: Pass) -> bool:
        """False skips a transform of the pipeline, which is how one bisects."""
        return True


# Instruments that come with irscope: timing, dumps of the graph when it changed, statistics, progress.


@mutable
class _Timed:
    """One run of one pass."""

    text: str
    kind: str
    depth: int
    number: int
    seconds: float = 0.0
    inner: float = 0.0


@mutable
class Timing(Instrument):
    """Wall time of every pass, inner passes indented under the one that asked; a pass computed again is counted."""

    finished: list[_Timed] = field(default_factory=list)
    _open: list[tuple[_Timed, float]] = field(default_factory=list)

    def before(self, event: PassEvent) -> None:
        self._open.append((_Timed(event.subject.text, event.kind, event.depth, event.number), perf_counter()))

    def after(self, event: PassEvent, changed: bool) -> None:
        self._close()

    def failed(self, event: PassEvent, error: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        timed, started = self._open.pop()
        timed.seconds = perf_counter() - started
        if self._open:
            self._open[-1][0].inner += timed.seconds
        self.finished.append(timed)

    def table(self) -> Table:
        """Passes in the order they started, with their own and their total time."""
        runs: dict[str, int] = {}
        rows = []
        for timed in sorted(self.finished, key=lambda one: one.number):
            runs[timed.text] = runs.get(timed.text, 0) + 1
            mark = " (A)" if timed.kind == "analysis" else ""
            rows.append(("  " * timed.depth + timed.text + mark, timed.seconds - timed.inner, timed.seconds, runs[timed.text]))
        return Table.of(rows, columns=["pass:text", "own:seconds", "total:seconds", "run:count"], title="Time by pass")


@mutable
class DumpOnChange(Instrument):
    """Writes the graph into a folder, once at the start and after each transform that changed it: 000_start.irs, 001_dce.irs."""

    folder: Path
    written: int = 0

    def before(self, event: PassEvent) -> None:
        if event.kind == "transform" and not self.written:
            self._write("start", event)

    def after(self, event: PassEvent, changed: bool) -> None:
        if event.kind == "transform" and changed:
            self._write(event.subject.name, event)

    def _write(self, name: str, event: PassEvent) -> None:
        make_folder(self.folder)
        write_text(self.folder / f"{self.written:03}_{name}.irs", [print_program(event.program)])
        self.written += 1


@mutable
class Progress(Instrument):
    """Progress of long work, for people: a line that is written over on a terminal, else a plain line every few seconds.

    Quick work shows nothing. Passes tell it by `ctx.tick`; commands that go through several models say with `part` which one it is.
    """

    stream: TextIO
    in_place: bool
    """True where the stream is a terminal on which nothing else is written meanwhile."""
    around: str = ""
    """Which part of the whole the work is about, such as "model 2 of 9"."""
    _last: float = field(default_factory=perf_counter)
    _waits: float = field(init=False)
    _shown: bool = False

    def __post_init__(self) -> None:
        self._waits = _FIRST if self.in_place else _EVERY

    def part(self, done: int, total: int, what: str) -> None:
        """Begin the next of several parts; `done` are behind."""
        self.around = f"{what} ({done + 1:,} of {total:,})"
        self._show(_bar(done, total) if self.in_place else "")

    def progress(self, event: PassEvent | None, done: int, total: int | None, what: str) -> None:
        self._show(f"{f'{event.subject.name}: ' if event is not None else ''}{what} {self._share(done, total)}".rstrip())

    def _share(self, done: int, total: int | None) -> str:
        if not total:
            return f"{done:,}" if done else ""
        count = f"{done:,} of {total:,}" if total <= _FEW else f"{done / total:.0%}"
        return f"{_bar(done, total)} {count}" if self.in_place else count

    def _show(self, text: str) -> None:
        now = perf_counter()
        if now - self._last < self._waits:
            return
        self._last, self._waits = now, _AGAIN if self.in_place else _EVERY
        line = one_line(": ".join(filter(None, (self.around, text))))
        if self.in_place:
            # A line that wraps could not be written over.
            room = get_terminal_size((80, 24)).columns - 1
            line = line if len(line) <= room else f"{line[: max(room - 1, 0)]}…"
        self.stream.write(f"\r\x1b[K{line}" if self.in_place else f"irscope: {line}\n")
        self.stream.flush()
        self._shown = self.in_place

    def after(self, event: PassEvent, changed: bool) -> None:
        self.ended()

    def failed(self, event: PassEvent, error: BaseException) -> None:
        self.ended()

    def ended(self) -> None:
        if self._shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self._shown = False


_FIRST, _AGAIN, _EVERY = 0.5, 0.1, 5.0
"""Seconds before a terminal shows something, between two of its lines, and between two plain lines."""
_FEW = 1000
"""So many things are counted; of more, which may be bytes, a share is shown."""
_CELLS = 20


def _bar(done: int, total: int) -> str:
    filled = min(done * _CELLS // max(total, 1), _CELLS)
    return f"[{'#' * filled}{'-' * (_CELLS - filled)}]"


@mutable
class SkipPasses(Instrument):
    """Leaves out transforms by name, to find the one at fault."""

    names: frozenset[str]

    def should_run(self, subject: Pass) -> bool:
        return subject.name not in self.names
