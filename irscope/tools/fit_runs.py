"""The largest size at which a training fits: steps that are captured, or a program that is simulated, at one size after the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from irscope.devices import Target
from irscope.errors import ExitCode, UsageError
from irscope.immutable import immutable
from irscope.passes.training.memory import StepMemory
from irscope.report.report import Document, ModelInfo, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity
from irscope.session import Model
from irscope.tools.fit import SCHEMA, room_of
from irscope.tools.fit_generation import last_below
from irscope.tools.simulate_ranks import Children, Program, how_it_ended, most_reserved, peak_of
from irscope.tools.simulation import Options, target_for
from irscope.tools.train import MOST, Captures, search_batches

Outcome = Literal["fits", "perhaps", "oom", "fails"]


@immutable(slots=False)
class Tried:
    """A size that was captured or run."""

    size: int
    outcome: Outcome
    needed: Quantity | None = None
    """The most that it takes of the device; None where memory was refused before anybody knew."""
    why: str = ""
    """Place where most is in use or memory was refused, or the reason why the program fails."""
    exit_code: int = 0


@immutable(slots=False)
class RunFit:
    """The largest size of a training that fits, and all that were tried."""

    subject: str
    """Memory or program that has to fit, in words."""
    model: str
    free: str
    memory: int
    target: Target
    tried: Sequence[Tried]
    """In the order of their sizes."""
    most: int
    """Upper end of the search: no larger size was asked for."""
    counter: str = "reserved"
    """Counter of the allocator that has to fit."""
    looked_at: str = ""
    """Part of a program that each run covers."""
    interrupted: bool = False

    @property
    def at(self) -> Tried | None:
        """Return the largest that fits."""
        return next((one for one in reversed(self.tried) if one.outcome == "fits"), None)

    @property
    def following(self) -> Tried | None:
        """Return the smallest above it that does not."""
        return next((one for one in self.tried if one.size > self.largest and one.outcome != "fits"), None)

    @property
    def largest(self) -> int:
        """0 where not even the smallest fits."""
        return 0 if self.at is None else self.at.size

    @property
    def limit(self) -> str:
        """Return what stops larger sizes: "memory", "range" of the sizes that were asked about, or "program", which fails at them."""
        if self.following is None:
            return "range"
        return "program" if self.following.outcome == "fails" else "memory"

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        failing = self.following
        return ExitCode.OK if self.largest else ExitCode.FINDINGS if failing is None else failing.exit_code or ExitCode.FINDINGS

    @property
    def answer(self) -> str:
        """Return the same in a line."""
        memory, at, over = humanise(self.memory, Kind.BYTES), self.at, self.following
        if at is None:
            said = (
                ""
                if over is None
                else f"{self.free} {over.size:,} "
                + (f"fails: {over.why}" if over.outcome == "fails" else f"needs {_needed(over)}, there are {memory}")
            )
            if over is not None and over.outcome != "oom":
                return said if over.outcome == "fails" else f"may not fit: {said}"
            return f"does not fit: {said}"
        modelled = at.needed is not None and at.needed.provenance is not Provenance.EXACT
        fits = f"fits {memory}{' as modelled' if modelled else ''}"
        if self.limit == "range":
            return f"{self.free} {self.largest:,}, the largest that was asked about, {fits}"
        if self.limit == "program" and over is not None:
            return f"{self.free} {self.largest:,} is the largest that runs and {fits}; {over.size:,} fails: {over.why}"
        return f"{self.free} {self.largest:,} is the largest that {'surely ' * (over is not None and over.outcome == 'perhaps')}{fits}"

    def report(self) -> Report:
        """Return the same for people."""
        at, over = self.at, self.following
        summary: dict[str, object] = {"counted": f"{self.subject}: the most that is {self.counter}"}
        if at is not None and at.needed is not None:
            assert isinstance(at.needed.value, int)
            left = f"at {at.size:,}, {humanise(self.memory - at.needed.value, Kind.BYTES)} left"
            summary["needed"] = Quantity(at.needed.value, at.needed.provenance, None, left, *(at.needed.interval or ()))
        if over is not None:
            summary["does_not_fit"] = f"{over.size:,}: {_needed(over)}"
        summary["for"] = self.target.text
        runs = f"{len(self.tried)} {'sizes' if len(self.tried) != 1 else 'size'} of it"
        summary["looked_at"] = f"{runs}{', ' + self.looked_at if self.looked_at else ''}; what is {self.counter} may fall where sizes grow"
        context = self.target.device.context_bytes
        if context is not None:
            low, high = (humanise(one, Kind.BYTES) for one in context)
            summary["besides"] = f"the CUDA context takes {low}" + (f" to {high}" if high != low else "")
        columns = (Column(self.free, Kind.COUNT), Column("fits"), Column(self.counter, Kind.BYTES), Column("where"))
        rows = [(one.size, _SAID[one.outcome], one.needed, one.why) for one in self.tried]
        table = Table.of(rows, columns, f"{self.free}: sizes that were tried")
        return Report("fit", headline=(self.answer,), summary=summary, units={"needed": Kind.BYTES}, tables=(table,))

    def document(self, model: ModelInfo | None = None) -> Document:
        """Return the report alone; its JSON is of the schema irscope.fit/1."""
        return Document(model=model or ModelInfo("", ""), reports=(self.report(),), own_json=lambda _: self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the document that `--format json` prints."""
        at, over = self.at, self.following
        modelled = [
            one for one in (at, over) if one is not None and one.needed is not None and one.needed.provenance is not Provenance.EXACT
        ]
        return {
            "schema": SCHEMA,
            "of": self.subject,
            "model": self.model,
            "free": self.free,
            "largest": self.largest,
            "peak_bytes": _needed_bytes(at),
            "limited_by": "" if over is None else over.why,
            "limit": self.limit,
            "formula": None,
            "memory_bytes": self.memory,
            "counter": self.counter,
            "does_not_fit": None if over is None else {"size": over.size, "peak_bytes": _needed_bytes(over), "why": over.why},
            "target": self.target.text,
            "tried": [{"size": one.size, "outcome": one.outcome, "peak_bytes": _needed_bytes(one), "why": one.why} for one in self.tried],
            "provenance": dict.fromkeys(("largest", "peak_bytes"), Provenance.MODELLED.value) if modelled else {},
        }


_SAID: Final = {"fits": "yes", "perhaps": "perhaps", "oom": "no", "fails": "fails"}


def _needed_bytes(tried: Tried | None) -> object:
    return None if tried is None or tried.needed is None else tried.needed.value


def _needed(tried: Tried) -> str:
    if tried.needed is None or not isinstance(tried.needed.value, int):
        return f"more, as is refused at {tried.why}" if tried.why else "more"
    sign = "~" if tried.needed.provenance is not Provenance.EXACT else ""
    least = f"{humanise(tried.needed.lo, Kind.BYTES)} to " if tried.outcome == "perhaps" else ""
    return f"{sign}{least}{humanise(tried.needed.value, Kind.BYTES)} ({tried.needed.value:,} bytes)"


# -- captured steps --------------------------------------------------------------------------------------------------------


def fit_training(capture: Callable[[int], Model], memory: int, start: int = 4) -> tuple[RunFit, ModelInfo]:
    """Return the largest batch of a training step, which `capture` captures at a size; and the model as its header says it."""
    captures = Captures(capture)
    for batch in (start, 2 * start):
        captures.needs(batch)
    search_batches(memory, captures.needs, captures.known())
    first = captures.memory(start)
    tried = [_step_tried(batch, one, memory) for batch, one in sorted(captures.found.items())]
    subject = f"a training step (forward, backward, {first.trace.optimizer or 'no optimizer'})"
    assert captures.info is not None
    return RunFit(subject, captures.info.path, "batch", memory, first.target, tried, MOST, first.taken), captures.info


def _step_tried(batch: int, memory: StepMemory, room: int) -> Tried:
    needed = memory.worst(memory.taken)
    assert isinstance(needed.value, int)
    peak = memory.trace.in_step(memory.trace.steady)[memory.peak_step]
    return Tried(batch, "fits" if needed.value <= room else "oom", needed, peak.name)


# -- programs --------------------------------------------------------------------------------------------------------------


@immutable(slots=False)
class Range:
    """Sizes of a program's own option, from `--fit batch=1..512`."""

    name: str
    low: int = 1
    high: int = MOST

    @classmethod
    def parse(cls, text: str) -> Range:
        """Return the sizes that the text of --fit names."""
        match = re.fullmatch(r"(?P<name>[A-Za-z_][\w-]*)(?:=(?P<low>\d+)(?:\.\.(?P<high>\d+)))?", text)
        if match is None:
            raise UsageError(f"--fit {text!r} is not of the form NAME=LOW..HIGH", code="IRS643", hint="`--fit batch=1..512`")
        made = cls(match["name"], int(match["low"] or 1), int(match["high"] or MOST))
        if not 1 <= made.low <= made.high:
            raise UsageError(f"--fit {text}: there is no size from {made.low} to {made.high}", code="IRS643", hint="`--fit batch=1..512`")
        return made


def fit_program(program: Program, options: Options, sizes: Range) -> RunFit:
    """Return the largest size with which a program ends on the device; each size is a run of it, stopped after `options.steps` steps."""
    program.check_place("--fit", sizes.name, f"{sizes.low}..{sizes.high}", "where the size goes")
    target = target_for(options)
    room = room_of(None, target)
    found: dict[int, Tried] = {}
    with Children(program, options.told) as children:

        def needs(size: int) -> int | None:
            [document] = children.run([options], f"{sizes.name} {size:,}", [program.with_values({sizes.name: str(size)})])
            if children.interrupted:
                raise KeyboardInterrupt
            found[size] = _run_tried(size, document, room)
            if found[size].needed is None:
                return None
            return most_reserved(document) if found[size].outcome == "perhaps" else min(most_reserved(document), room)

        try:
            last_below(needs, room, sizes.low, sizes.high, 4 * sizes.low)
        except KeyboardInterrupt:
            children.interrupted = True
    looked = f"the first {options.steps} steps of each run (--steps N, 0 for the whole program)" if options.steps else "whole runs"
    tried = [found[size] for size in sorted(found)]
    name = " ".join((program.script, *program.arguments))
    return RunFit("the program", name, sizes.name, room, target, tried, sizes.high, "reserved", looked, children.interrupted)


def _run_tried(size: int, document: dict[str, Any], room: int) -> Tried:
    outcome, why, code = how_it_ended(document)
    if outcome != "fits":
        return Tried(size, outcome, None, why, code)
    least, most = peak_of(document, "reserved"), most_reserved(document)
    if least == most:  # a run that ended fits, whatever it reserved
        return Tried(size, outcome, Quantity(least))
    surely: Outcome = "fits" if most <= room else "perhaps"
    return Tried(size, surely, Quantity(most, lo=least, hi=most), "work on other streams, or NCCL's watchdog, is late", ExitCode.FINDINGS)
