"""Results of a simulated program: its steps, its memory, its tape; as a document and as a report."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from irscope.devices import Target, target_of
from irscope.diagnostics import Diagnostic, Severity, few
from irscope.errors import UsageError
from irscope.memory.caching import PLENTY, CachingAllocator, OutOfMemory
from irscope.memory.caching.allocator import PendingFrees
from irscope.memory.run import RESIDENT, ROUNDING, Lives, Row, rows_of, summed, totals_of
from irscope.memory.tape import COUNTERS, Bytes, Origin, Replayed, Tape, counters_json
from irscope.passes.lifetimes.timeline import limits_of, shown_steps
from irscope.passkit.settings import Settings
from irscope.report import table as tables
from irscope.report.names import common_name, ranks_text
from irscope.report.printable import one_line
from irscope.report.report import Report, Reported, diagnostic_json
from irscope.report.steps import CountedStep, alike, counter_tables, parts_tables
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind, bytes_text
from irscope.report.values import Provenance, Quantity
from irscope.session import check_target
from irscope.tools.simulation_clock import BEFORE, Clocked, ClockedStep, clocked, times_tables

if TYPE_CHECKING:
    from irscope.frontends.simulation.compilations import Buffer, Compilations, Kernel
    from irscope.frontends.simulation.known import Routing
    from irscope.frontends.simulation.overlay import Written
    from irscope.frontends.simulation.watch import Answer, Mark, Step
    from irscope.frontends.simulation.world import Look, Traffic

SCHEMA: Final = "irscope.simulation/1"
_OUTCOMES: Final = {
    "finished": "the program ran to its end",
    "steps": "stopped after the steps, or the time, that were requested",
    "oom": "out of memory",
    "needs_value": "the program waits for a value that is not computed",
    "error": "the program failed",
}
INTERRUPTED: Final = "interrupted"
"""Outcome of a program that Ctrl-C ended."""
_LONGEST: Final = 10**8
"""Seconds, three years: as long as a timer of the system at least takes."""
_STATES: Final = {"active_allocated": "allocated", "active_pending_free": "freed, still used by another stream"}
_WORTH: Final = 0.1
"""Of the activations, what a class of modules at least holds to be worth checkpointing."""
_LATE_STREAMS: Final = "work on other streams is done only when the host waits for it"
_LATE_WATCHDOG: Final = "NCCL's watchdog sees a step's collectives done only a step later"
_DECIDING: Final = 4
"""Categories of the peak that the short report names."""
_FRAGMENT: Final = "free parts of segments in use"
_CACHED: Final = "free segments in the cache"
_IN_PLACE: Final = "in place"
_FINITE: Final = "finite"
"""As `frontends.simulation.known` says it."""


@dataclass(frozen=True)
class Options:
    """Target and limits of a program's run."""

    device: str = ""
    torch: str = ""
    alloc_conf: str = ""
    world: int = 0
    """Ranks of the job that torchrun starts; 0 where python starts the program."""
    rank: int = 0
    local: int = 0
    """Ranks on one machine; 0 for all of the world, eight at most."""
    steps: int = 0
    """After how many steps to stop; 0 for never."""
    seconds: float = 0
    answer: float | None = None
    """Assumed value of device values that the program reads; None for zero."""
    allow_unknown: bool = False
    """True where operators whose kernels do not run here are counted by their fake implementations."""
    pending_frees: PendingFrees = "next_malloc"
    routing: Routing | None = None
    """Assumption on the experts that tokens go to where that is not computed or, without it or with an answer, on their number: all to
    each.
    """
    both_ends: bool = True
    """True where reports also show memory under the assumption that work on other streams is done only when the host waits for it."""
    link: float = 0
    """Bytes a second that a device can send to others, and at the same time receive; 0 where that is unknown."""
    settings: tuple[str, ...] = ()
    """NAME=VALUE that hold instead of what the program says."""
    keep_files: bool = False
    """True where files that the program writes stay, but for those that were there before."""
    boundless: bool = False
    """True where the device gives as much memory as is asked for."""
    told: Callable[[int, int | None, str], None] | None = field(default=None, compare=False)
    """Is told how far the run is: how many of how many, and of what."""

    def __post_init__(self) -> None:
        if self.steps < 0 or self.local < 0 or not 0 <= self.seconds <= _LONGEST:
            raise UsageError(
                "steps, seconds and ranks of a machine are not negative, and seconds have an end", code="IRS643", hint="0 is no limit"
            )
        if not 0 <= self.rank < self.ranks:
            hint = f"0 to {self.ranks - 1}" if self.world else "--world N says how many there are"
            raise UsageError(f"there is no rank {self.rank} in a world of {self.ranks}", code="IRS643", hint=hint)

    @property
    def ranks(self) -> int:
        """Processes of the job."""
        return self.world or 1

    @property
    def a_machine(self) -> int:
        """Ranks of one machine."""
        return self.local or min(self.ranks, 8)

    @property
    def launcher(self) -> str:
        """Return who starts the program."""
        if not self.world:
            return "python"
        machines = -(-self.world // self.a_machine)
        return "torchrun" + (f" --nnodes {machines}" if machines > 1 else "") + f" --nproc-per-node {self.a_machine}"


def world_of(given: int | None) -> int:
    """Return the ranks that torchrun starts, 0 where nobody asked for any. Raises UsageError for a world without ranks."""
    if given is not None and given < 1:
        raise UsageError(f"a world of {given} ranks has none", code="IRS643", hint="`--world 1` is one rank that torchrun starts")
    return given or 0


def target_for(options: Options) -> Target:
    """Return what a program is simulated on. Raises UsageError unless that is a CUDA device: `torch.cuda` would count nothing."""
    settings = Settings(device=options.device, torch=options.torch, alloc_conf=options.alloc_conf)
    check_target(settings)
    target = target_of(settings)
    if target.device.lacks_cuda:
        hint = "`--device h200`; `irscope run` and `irscope train-plan` add up tensors on other devices"
        raise UsageError(f"programs are simulated on a CUDA device: {target.device.lacks_cuda}", code="IRS427", hint=hint)
    return target


def memory_of(target: Target, options: Options) -> int | None:
    """Return what the allocator can ask the device for; None where nobody told."""
    return PLENTY if options.boundless else target.device.memory_bytes


def allocator_of(target: Target, options: Options) -> CachingAllocator:
    """Return an allocator like the one that a simulated program has: with what the CUDA context leaves of the device."""
    return CachingAllocator.of(target, memory_of(target, options), options.pending_frees, target.device.context_most)


@dataclass
class Simulation(Reported):
    """Results of a program on a simulated device."""

    script: str
    target: Target
    options: Options
    outcome: str = "finished"
    error: str = ""
    """Reason for its end, if not by itself."""
    line: str = ""
    """Line at which it ended."""
    traceback: str = ""
    """Python's message about the error that ended it, without irscope's functions."""
    whole_traceback: str = ""
    """The same with them."""
    made_up: Answer | None = None
    """A value that nobody computes, which the line that failed read, or one before it in the same function."""
    steps: Sequence[Step] = ()
    rest: Step | None = None
    """Work after the last step; all of a program without steps."""
    marks: Sequence[Mark] = ()
    answers: Sequence[Answer] = ()
    files: Sequence[Written] = ()
    """Files that the program wrote, apart from those that were there."""
    fewest: Mapping[str, Any] | None = None
    """The document of the same program where no element of a mask holds whose values nobody computes; None where that is not known."""
    skewed: Mapping[str, Any] | None = None
    """The document of the same program where all tokens go to the same experts; None where that is not known."""
    looks: Sequence[Look] = ()
    """Moments at which NCCL's watchdog let go of what the program sent."""
    collectives: Sequence[Traffic] = ()
    uses: Mapping[str, Any] = field(default_factory=dict)
    """Settings that decide about memory, as the program has them."""
    classes: Mapping[str, str] = field(default_factory=dict)
    """Of modules, by path."""
    applied: Mapping[str, int] = field(default_factory=dict)
    """Number of times that each of the settings was used instead of the program's own."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Operators of whose kernels only the results are counted, with the number of calls."""
    started: Sequence[str] = ()
    """Ranks that the program starts itself: which of them was played."""
    not_modelled: Sequence[str] = ()
    """Options of NCCL that the program sets."""
    compiled: Compilations | None = None
    """Work of torch.compile on the program; None where it compiles nothing."""
    now: Mapping[str, int] = field(default_factory=dict)
    """Counters at the end, and their peaks since the program reset them."""
    pinned_peak: int = 0
    beside_peak: int = 0
    """Bytes of the device past the caching allocator: symmetric memory."""
    tape: Tape[Origin] = field(default_factory=Tape)
    """All that was asked of the allocator, with a span for each step; `replay` makes the requests again."""
    fullest: tuple[int, int] = (0, 0)
    """Numbers of requests and actions of the tape when most was reserved, or when memory was refused and the program ended of it."""
    result: Any = None
    """Result of the function."""

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Return what is to be said about the figures."""
        return [Diagnostic(Severity.WARNING, code, text) for code, text in _remarks(self)]

    @property
    def counts_all(self) -> list[Answer]:
        """Return the answers where all elements of a mask were taken to hold, as nobody computes how many do."""
        return [one for one in self.answers if one.is_most]

    @property
    def routes(self) -> list[Answer]:
        """Return the answers that follow from an assumption on which experts tokens go to, or which classes are predicted; none where all
        to the same take the same memory."""
        if self.options.routing is None or (
            self.skewed is not None and all(self.skewed["peak"][key] == self.peak(key) for key in COUNTERS)
        ):
            return []
        return [one for one in self.answers if one.value == self.options.routing]

    @property
    def launched_as(self) -> str:
        """Return who started the program, and which rank of those that it starts itself is told of."""
        return "; ".join((self.options.launcher, *self.started))

    def peak(self, key: str) -> int:
        """Return the most that a counter was."""
        return max([self.now.get(f"{key}_peak", 0), *(step.peak[key] for _, step in self.parts)])

    @property
    def parts(self) -> list[tuple[str, Step]]:
        """Return every step by its number, and what came after the last one where that was higher; all of a program without steps."""
        found = [(str(number), step) for number, step in enumerate(self.steps, 1)]
        rest = self.rest
        if (
            rest is not None
            and rest.peak != Bytes()
            and not all(any(step.peak[key] >= rest.peak[key] for step in self.steps) for key in COUNTERS)
        ):
            found.append(("then" if found else "all", rest))
        return found

    @functools.cached_property
    def lazy(self) -> Replayed | None:
        """Return the same requests where work on other streams is done only when the host waits for it; None where that changes nothing."""
        shared = any(one.verb == "record" for one in self.tape.actions)
        if not shared or not self.options.both_ends or self.options.pending_frees != "next_malloc" or self.outcome == "oom":
            return None
        return self._otherwise(self.tape, replace(self.options, pending_frees="synchronize"))

    @functools.cached_property
    def in_flight(self) -> Replayed | None:
        """Return the same requests where NCCL's watchdog sees a step's works only a step later; None where that changes nothing.

        It looks ten times a second, and only at what the device has finished: what a step's collectives hold may still be there in the
        next one, where the program itself lets go of it.
        """
        if not self.options.both_ends or self.options.pending_frees != "next_malloc" or self.outcome == "oom":
            return None
        ends = self.tape.given_back()
        moves = []
        ats = [*(one.at for one in self.looks), len(self.tape.events)]
        for one, until in zip(self.looks, ats[1:], strict=True):
            frees = (ends.get(slot, -1) for slot in one.held) if not one.is_sure else ()
            moves += [(at, at + 1, until) for at in frees if one.at <= at < until]
        return self._otherwise(self.tape.with_later(moves), self.options) if moves else None

    def _otherwise(self, tape: Tape[Origin], options: Options) -> Replayed | None:
        """Ask an allocator for other requests, or in another way; None where its counters are what they are."""
        sizes = tape.numbers("central")
        for chosen in (options, replace(options, boundless=True)):
            with contextlib.suppress(OutOfMemory):
                found = tape.replay(allocator_of(self.target, chosen), sizes)
                steps = [*self.steps, *([self.rest] if self.rest is not None else [])]
                alike = all((one.peak, one.after) == (step.peak, step.after) for one, step in zip(found.outcomes, steps, strict=True))
                return None if alike else found
        return None

    def shared(self) -> list[Row]:
        """Memory that streams besides its own use: category, module, line, the bytes of all of it, and how often."""
        tape = self.tape
        return rows_of(tape, (one.what for one in tape.actions if one.verb == "record"))

    def replay(self, tape: Tape[Origin] | None = None, watch: Collection[str] | Literal["all"] = ()) -> Replayed:
        """Ask the same of an allocator like the one that the program had, or a part of it: `tape`."""
        tape = self.tape if tape is None else tape
        return tape.replay(self.allocator(), tape.numbers("central"), watch, addresses=True)

    def allocator(self) -> CachingAllocator:
        """Return an allocator like the program's."""
        return allocator_of(self.target, self.options)

    @functools.cached_property
    def _at_fullest(self) -> tuple[Replayed, CachingAllocator]:
        gpu = self.allocator()
        tape = self.tape.until(self.fullest)
        return tape.replay(gpu, tape.numbers("central"), addresses=True), gpu

    def missing(self) -> int | None:
        """Return by how much the device is too small for the request that was refused, once the cache is given back; None where none
        was.
        """
        refused = next((one.what for one in reversed(self.tape.actions) if one.verb == "refused"), None)
        return None if refused is None else max(refused - self.left_at_refusal(), 1)

    def left_at_refusal(self) -> int:
        """Return what the device had left when a request was refused and the program ended of it."""
        return self._at_fullest[1].device_free

    def alive_at_refusal(self) -> tuple[dict[str, int], list[Row]]:
        """Return the bytes by category, which add up to what was allocated, and what was alive by category, module and line."""
        held = self._at_fullest[0].held
        rows = rows_of(self.tape, held)
        return totals_of(rows) | {ROUNDING: sum(block.size - block.requested for block in held.values())}, rows

    def reserved_for(self) -> list[tuple[str, int, int, int]]:
        """Return the use of what is reserved at its highest moment: purpose, stream, number of blocks, and bytes, which add up to what was
        reserved.
        """
        found: list[tuple[tuple[str, int], int]] = []
        for segment in self._at_fullest[0].segments:
            used = any(block.state != "inactive" for block in segment.blocks)
            for block in segment.blocks:
                why = _STATES[block.state] if block.state != "inactive" else _FRAGMENT if used else _CACHED
                found.append(((why, segment.stream), block.size))
        order = [*_STATES.values(), _FRAGMENT, _CACHED]
        rows = [(what, stream, number, size) for what, stream, size, number in summed(found)]
        return sorted(rows, key=lambda row: (order.index(row[0]), row[1]))

    def to_json(self) -> dict[str, Any]:
        """Return the document of `--format json`."""
        options = self.options
        return {
            "schema": SCHEMA,
            "script": self.script,
            **self.target.to_json(),
            "device": options.device or self.target.device.name,
            "world": options.ranks,
            "rank": options.rank,
            "launched_as": self.launched_as,
            "outcome": self.outcome,
            "error": self.error,
            "line": self.line,
            "traceback": self.traceback,
            "steps": [{**_step_json(step), **_times_json(time)} for step, time in zip(self.steps, self._step_times, strict=True)],
            "exposed_communication_seconds": self.clock.exposed,
            "phases": [dict(step.phases) for step in self.steps],
            "rest": None if self.rest is None else _step_json(self.rest),
            "marks": [{"name": mark.name, "line": mark.line, **counters_json(mark.peak, mark.after)} for mark in self.marks],
            "peak": {key: self.peak(key) for key in COUNTERS},
            "lazy": self._other_json(self.lazy),
            "in_flight": self._other_json(self.in_flight),
            "fewest": None if self.fewest is None else {key: self.fewest[key] for key in ("steps", "peak")},
            "skewed": None if self.skewed is None else {key: self.skewed[key] for key in ("steps", "peak")},
            "missing_bytes": self.missing() if self.outcome == "oom" else None,
            "collectives": [
                {"op": one.op, "group": one.group, "ranks": ranks_text(one.members), "calls": one.calls, "bytes": one.bytes}
                for one in self.collectives
            ],
            "answers": [{"line": one.line, "count": one.count, "value": one.value} for one in self.answers],
            "pinned_peak_bytes": self.pinned_peak,
            "beside_peak_bytes": self.beside_peak,
            "files": [
                {"path": file.path, "bytes": file.bytes, "line": file.line, "was_there": file.was_there, "kept": self._keeps(file)}
                for file in self.files
            ],
            "uses": dict(self.uses),
            "blocks": self.blocks(),
            "settings": [{"setting": one, "applied": count} for one, count in self.applied.items()],
            "diagnostics": [diagnostic_json(one) for one in self.diagnostics],
            **({} if self.compiled is None else {"compiled": self.compiled.to_json()}),
        }

    def _keeps(self, file: Written) -> bool:
        return self.options.keep_files and not file.was_there

    def _other_json(self, found: Replayed | None) -> dict[str, Any] | None:
        if found is None:
            return None
        steps = [counters_json(one.peak, one.after) for one in found.outcomes[: len(self.steps)]]
        return {"steps": steps, "peak": {key: found.worst(key) for key in COUNTERS}}

    @functools.cached_property
    def clock(self) -> Clocked:
        """Return the times of everything that ran, as far as the device and its link are known."""
        device = self.target.device
        ends = [(str(number), step.end) for number, step in enumerate(self.steps, 1)]
        if self.rest is not None and not ends:
            ends = [("all", len(self.tape.events))]
        if not ends:
            return Clocked(device)
        begins = self.tape.starts[1] if ends[0][0] == "1" and len(self.tape.starts) > 1 else 0
        link = self.options.link or (device.link.hi if device.link is not None else 0.0)
        return clocked(cast("Tape[object]", self.tape), device, [(BEFORE, begins), *ends], link)

    @property
    def _step_times(self) -> list[ClockedStep | None]:
        """Return the times of the steps, without that of what was before them."""
        found = self.clock.steps
        return [*found[-len(self.steps) :]] if self.steps and found else [None] * len(self.steps)

    def blocks(self) -> list[dict[str, Any]]:
        """Classes of modules that hold activations at the peak: the one that holds most, and the one that does so within its modules."""
        alive = max((step for _, step in self.parts), key=lambda step: step.peak["allocated"]).alive if self.parts else []
        return blocks_of(alive, self.classes)

    @property
    def _outcome_text(self) -> str:
        if self.error == INTERRUPTED:
            return "the program was interrupted"
        return _OUTCOMES[self.outcome] + (f": {_short(error_line(self.error))}" if self.error else "")

    def report(self) -> Report:
        """Return the same as tables."""
        summary: dict[str, Any] = {
            "verdict": verdict_of(self.to_json(), self.target),
            "program": f"{self.script} on {self.target.text}",
            "outcome": self._outcome_text,
            "reserved_peak_bytes": self.peak("reserved"),
            "device_bytes": self.target.device.room_bytes or 0,
            "rank": f"{self.options.rank} of {self.options.ranks}",
            "launched_as": self.launched_as,
            "steps_count": len(self.steps),
            "pinned_host_bytes": self.pinned_peak,
        }
        if self.beside_peak:
            summary["symmetric_memory_bytes"] = self.beside_peak
        if self.line:
            summary["line"] = self.line
        notes = () if self.outcome != "oom" else ("--no-limit shows how much it needs, --try what would lower that",)
        return Report(
            "simulate",
            summary=summary,
            tables=tuple(_tables(self)),
            diagnostics=tuple(self.diagnostics),
            notes=notes,
            pictures=lambda: _over_time(self),
        )

    def brief(self) -> Report:
        """Return the verdict and the lines that decide it; the rest is in `report`."""
        whole = self.report()
        summary: dict[str, Any] = {"verdict": whole.summary["verdict"], "ran": self._ran()}
        if self.outcome not in ("finished", "steps"):
            summary["outcome"] = self._outcome_text
        summary |= dict(self._deciding())
        if (step := next(reversed(self._step_times), None)) is not None:
            high = None if math.isinf(step.high) else step.high
            summary["step"] = Quantity(step.seconds, Provenance.MODELLED, lo=step.low, hi=high)
        hints = ["--all: the whole report, step by step, with what is alive at the peak, times and collectives"]
        if self.outcome not in ("error", "needs_value") and not self.options.settings:
            hints.append("--try: settings that would lower the peak, each simulated; -o run.pickle: a snapshot for PyTorch's memory_viz")
        if self.options.world > 1:
            hints.append("--rank all: every kind of rank of this world")
        return replace(whole, summary=summary, units={"step": Kind.SECONDS}, tables=(), notes=(*whole.notes, *hints))

    def _ran(self) -> str:
        """Return the program in a line: for how long, as which rank, on what."""
        steps = len(self.steps)
        what = f"{self.script}, {steps} step{'' if steps == 1 else 's'}" if steps else self.script
        rank = f", rank {self.options.rank} of {self.options.ranks}" if self.options.world else ""
        return f"{what}{rank}, as {self.launched_as}, {self.target.rules}"

    def _deciding(self) -> Iterator[tuple[str, str]]:
        """Yield the highest step, what it is made of, and what of it is the most."""
        parts = self.parts
        if not parts:
            return
        if self.outcome == "oom":
            totals, alive = self.alive_at_refusal()
            allocated = sum(totals.values())
            yield "peak", f"{bytes_text(allocated)} were allocated where memory was refused, at {self.line or 'a line that is not known'}"
        else:
            name, step = max(parts, key=lambda part: part[1].peak["reserved"])
            when = (
                f"step {name} of {len(self.steps)}" if name.isdecimal() else "the whole program" if name == "all" else "after the last step"
            )
            yield "peak", f"{bytes_text(step.peak['reserved'])} reserved, {bytes_text(step.peak['allocated'])} of it allocated, in {when}"
            _, step = max(parts, key=lambda part: part[1].peak["allocated"])
            totals, alive, allocated = step.by_category, step.alive, step.peak["allocated"]
        largest = sorted(((size, name) for name, size in totals.items() if size), reverse=True)
        if largest:
            yield "made of", few([f"{name} {bytes_text(size)}" for size, name in largest], _DECIDING, "--all")
        late = [when for when, found in ((_LATE_STREAMS, self.lazy), (_LATE_WATCHDOG, self.in_flight)) if found is not None]
        if late:
            yield "the range", f"more is reserved where {' or '.join(late)}"
        if self.skewed is not None and self.routes:
            most = bytes_text(self.skewed["peak"]["reserved"])
            yield "assumed", f"experts get equally many tokens, see IRS646; where all tokens go to the same {most} are reserved"
        if self.fewest is not None:
            least = bytes_text(self.fewest["peak"]["reserved"])
            yield (
                "at most",
                "all elements of masks that are not computed hold here, and counted numbers differ, see IRS646; "
                f"where none does {least} are reserved",
            )
        rows = grouped(alive, self.classes)
        if rows:
            category, module, line, size, blocks = rows[0]
            where = (f" in module {module}" if module else "") + (f" at {line}" if line else "")
            yield "the most", f"{category} {bytes_text(size)} in {blocks} block{'' if blocks == 1 else 's'}{where}"


def blocks_of(alive: Sequence[Row], classes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Classes of which there are several modules that hold others, with the activations below them: what may be checkpointed."""
    held: Counter[str] = Counter()
    total = 0
    by_class: dict[str, set[str]] = {}
    for path in {above for one in classes for above in itertools.islice(_above(one), 1, None)}:
        by_class.setdefault(classes.get(path, ""), set()).add(path)
    for category, module, _, size, _ in alive:
        if category != "activation":
            continue
        total += size
        held.update(dict.fromkeys({classes.get(path, "") for path in _above(module)}, size))
    found = []
    for name, paths in by_class.items():
        outer = [path for path in paths if not any(other in paths for other in itertools.islice(_above(path), 1, None))]
        if name and not name.startswith("torch.nn.modules.container.") and len(outer) > 1 and held[name] > _WORTH * total:
            found.append((held[name], len(outer), name, set(outer)))
    found.sort(key=lambda one: (-one[0], one[1], one[2]))
    within = [
        one
        for one in found[1:]
        if one[0] < (1 - _WORTH) * found[0][0] and all(any(up in found[0][3] for up in _above(path)) for path in one[3])
    ]
    return [{"class": name, "count": count, "bytes": size} for size, count, name, _ in (*found[:1], *within[:1])]


def _above(path: str) -> Iterator[str]:
    """Yield a path and those of the modules that it is in."""
    yield path
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _remarks(simulation: Simulation) -> Iterator[tuple[str, str]]:
    """Codes with what is to be said."""
    if simulation.unknown:
        names = sorted(simulation.unknown, key=lambda name: -simulation.unknown[name])
        yield "IRS645", f"the temporary memory of the kernels of {', '.join(names)} is not known, and not counted"
    if simulation.compiled is not None and simulation.compiled.not_compared:
        version = simulation.compiled.not_compared
        yield "IRS652", f"torch.compile is that of torch {version}, which was not compared with a CUDA build; that of 2.13 was"
    own = (
        sorted({one.backend for one in simulation.compiled.graphs if not one.is_followed} - {*_COUNTED})
        if simulation.compiled is not None
        else []
    )
    if own:
        yield "IRS645", f"requests of backend {', '.join(own)} to PyTorch are counted; the memory of its own libraries is not known"
    if simulation.not_modelled:
        options = ", ".join(simulation.not_modelled)
        yield "IRS649", f"options of NCCL are not modelled: {options}; they change nothing that PyTorch's allocator gives"
    for setting, count in simulation.applied.items():
        if not count:
            yield "IRS648", f"{setting} changed nothing: the program has nothing that it is about"
    if simulation.files:
        yield "IRS653", _files_text(simulation.files, simulation.options.keep_files)
    made_up = simulation.made_up
    if made_up is not None and not made_up.is_most:
        yield (
            "IRS646",
            f"{made_up.line} read a value of the device, which is not computed, and got {made_up.value}; the program failed at "
            f"{simulation.line}, perhaps of that: --answer 1 gives another value",
        )
    elif read := [
        one for one in simulation.answers if not one.is_most and one.value not in (_IN_PLACE, _FINITE, simulation.options.routing)
    ]:
        yield "IRS646", f"values of device tensors were read and taken to be {read[0].value}: {_lines(read)}"
    yield from _assumptions(simulation)
    if simulation.counts_all:
        failed = f"; the program failed at {simulation.line}, perhaps of that" if made_up is not None and made_up.is_most else ""
        yield (
            "IRS646",
            "masks that are not computed were assumed to hold all elements, and counted numbers to differ, the most: "
            f"{_lines(simulation.counts_all)}{failed}; --answer N takes N",
        )


def _assumptions(simulation: Simulation) -> Iterator[tuple[str, str]]:
    if ordered := [one for one in simulation.answers if one.value == _IN_PLACE]:
        yield "IRS646", f"an order that is not computed was assumed to be the present one: {_lines(ordered)}"
    if finite := [one for one in simulation.answers if one.value == _FINITE]:
        yield "IRS646", f"numbers that are not computed were assumed to be neither infinite nor NaN: {_lines(finite)}"
    if simulation.routes:
        how = "spread evenly" if simulation.options.routing == "balanced" else "the same for all rows"
        yield (
            "IRS646",
            "choices that are not computed, as experts of tokens and predicted classes, were assumed to be "
            f"{how}: {_lines(simulation.routes)}; --routing chooses the other",
        )


def _lines(answers: Sequence[Answer]) -> str:
    return few([one.line for one in answers], 3, "--all --rows 0")


def _files_text(files: Sequence[Written], keeps: bool) -> str:
    """Return what became of the files that the program wrote."""
    count = "the file" if len(files) == 1 else f"{len(files)} files"
    what = f"{count} that the program wrote ({bytes_text(sum(file.bytes for file in files))})"
    if not keeps:
        were = "was" if len(files) == 1 else "were"
        return f"{what} {were} deleted when it ended, as simulated tensors have no values; --keep-files keeps new files"
    before = sum(file.was_there for file in files)
    return f"{what} stayed" + (f", except {before} that existed before, which are unchanged" if before else "")


def verdict_of(document: Mapping[str, Any], target: Target, where: str = "") -> str:
    """Return whether what a document tells of fits, and by how much; `where` it does so."""
    device, room = target.device.title, target.device.room_bytes
    room = None if room is None else room - document.get("beside_peak_bytes", 0)
    if document["outcome"] == "oom":
        missing = document.get("missing_bytes")
        least = ((document.get("fewest") or {}).get("peak") or {}).get("reserved")
        if least is not None and room is not None and least <= room:
            return (
                f"depends on how many elements of masks hold: {bytes_text(room - least)} of {bytes_text(room)} left "
                f"on {device} where none does, "
                f"{'short' if missing is None else f'{bytes_text(missing)} or more short'} where all do" + where
            )
        return f"does not fit on {device}" + ("" if missing is None else f" by {bytes_text(missing)} or more") + where
    peak = document.get("peak", {}).get("reserved", 0)
    ends = ("lazy", "in_flight", "fewest", "skewed")
    lazy, in_flight, none, skewed = ((document.get(end) or document).get("peak", {}).get("reserved", 0) for end in ends)
    late = max((lazy, in_flight), key=lambda size: (size != peak, size))
    if room is None:
        return f"unknown: the memory of {device} is not known; {bytes_text(max(peak, late))} are reserved"
    few, *_, many = sorted((peak, late, none, skewed))
    if document["outcome"] not in ("finished", "steps") and many <= room:
        why = "interrupted" if document["error"] == INTERRUPTED else "the program did not end by itself"
        return f"unknown: {why}; until then {bytes_text(many)} of {bytes_text(room)} are reserved on {device}" + where
    if few > room:
        return (
            f"does not fit on {device} by {bytes_text(few - room)}"
            + (f" to {bytes_text(many - room)}" if bytes_text(many - few) != bytes_text(0) else "")
            + where
        )
    if none <= room < peak:
        return (
            f"depends on how many elements of masks hold: {bytes_text(room - none)} of {bytes_text(room)} left "
            f"on {device} where none does, "
            f"{bytes_text(many - room)} short where all do" + where
        )
    if max(peak, late) <= room < skewed:
        return (
            f"depends on which experts tokens go to: {bytes_text(room - max(peak, late))} of {bytes_text(room)} left "
            f"on {device} where they go to all alike, {bytes_text(many - room)} short where all go to the same" + where
        )
    if many > room and late == in_flight and late != lazy:
        return (
            f"depends on when NCCL's watchdog sees collectives done: {bytes_text(room - few)} of {bytes_text(room)} left "
            f"on {device} where that is before the next step's peak, {bytes_text(many - room)} short where it is a step later" + where
        )
    if many > room:
        return (
            f"depends on when work on other streams is done: {bytes_text(room - few)} of {bytes_text(room)} left "
            f"on {device} where that is at once, "
            f"{bytes_text(many - room)} short where it is only when the host waits for it" + where
        )
    whole = "fits" if document["outcome"] == "finished" else "fits so far"
    left = bytes_text(room - few) if few == many else f"{bytes_text(room - many)} to {bytes_text(room - few)}"
    return f"{whole} on {device}: {left} of {bytes_text(room)} left" + where


def error_line(error: str) -> str:
    """Return a message in one line."""
    return one_line(" ".join(error.split()))


def _short(error: str) -> str:
    """Return the first two sentences of torch's message at most: "CUDA out of memory. Tried to allocate 1.00 GiB." """
    return ". ".join(error.split(". ")[:2]).removeprefix("CUDA out of memory. ")


_ALIVE: Final = ("category", "module", "line", "bytes", "blocks:count")


def _tables(simulation: Simulation) -> Iterator[Table]:
    parts = simulation.parts
    if parts:
        counted = [CountedStep(name, step.peak, step.after, step.by_category, step.phases) for name, step in parts]
        yield from counter_tables(counted)
    yield from _other_ends(simulation)
    if parts:
        yield from parts_tables(counted)
    if simulation.outcome == "oom":
        totals, alive_then = simulation.alive_at_refusal()
        yield Table.of(
            [*totals.items(), ("allocated, the sum", sum(totals.values()))], ["category", "bytes"], "allocated where memory was refused"
        )
        yield _alive_table(simulation, alive_then, "alive where memory was refused")
    elif parts:
        yield _alive_table(simulation, max((step for _, step in parts), key=lambda step: step.peak["allocated"]).alive, "alive at the peak")
    if simulation.tape.events:
        rows = simulation.reserved_for()
        title = "what reserved is made of " + ("where memory was refused" if simulation.outcome == "oom" else "at its peak")
        yield Table.of(rows, ["what", "stream:index", "blocks:count", "bytes"], title, whole="bytes")
    yield from times_tables(simulation.clock)
    if simulation.collectives:
        link = simulation.options.link
        sent = [
            (one.op, one.group, one.ranks, one.calls, one.bytes, *([least_seconds(one.op, one.ranks, one.bytes, link)] if link else []))
            for one in simulation.collectives
        ]
        columns = ["collective", "group", "ranks:count", "calls:count", "bytes", *(["least time:seconds"] if link else [])]
        yield Table.of(sent, columns, "collectives" + ("" if link else ": --link 450GB/s gives times"))
    if simulation.pinned_peak:
        columns = ["steps", "pinned peak:bytes", "pinned after:bytes", "pageable:bytes"]
        hosts = alike([name for name, _ in parts], [step.pinned or (None, None) for _, step in parts])
        yield Table.of([(*row, None) for row in hosts], columns, "host memory")
    if simulation.compiled is not None:
        yield from compiled_tables(simulation.compiled, simulation.target)
    if simulation.files:
        rows_of_files = [
            (file.path, file.bytes, file.line, "as it was" if file.was_there else "kept" if simulation.options.keep_files else "gone")
            for file in simulation.files
        ]
        yield Table.of(rows_of_files, ["file", "bytes", "line", "afterwards"], "files that the program wrote")
    if simulation.answers:
        yield Table.of([(one.line, one.count, str(one.value)) for one in simulation.answers], ["line", "count", "value"], "values answered")


def compiled_tables(compiled: Compilations, target: Target) -> Iterator[Table]:
    """Yield what the compiler did: graphs, kernels, what is saved and what computed anew, buffers, and where compiling stops."""
    followed = [(number, graph) for number, graph in enumerate(compiled.graphs) if graph.is_followed]
    graphs = [
        (
            number,
            graph.part,
            graph.line,
            sum(one.generated for one in graph.kernels),
            sum(not one.generated for one in graph.kernels),
            sum(len(one.operators) for one in graph.kernels),
            whole(one.bytes for one in graph.kernels),
            whole(_kernel_seconds(one, target) for one in graph.kernels),
            graph.buffers,
            graph.reused,
            whole(one.bytes for one in graph.saved),
        )
        for number, graph in followed
    ]
    columns = ["graph", "part", "line", "kernels:count", "calls:count", "operators:count", "moved:bytes", "least:seconds"]
    if graphs:
        title = "what was compiled: kernels that were generated, calls of libraries, least time by roofline"
        yield Table.of(graphs, [*columns, "buffers:count", "reused:count", "saved:bytes"], title)
    others = [
        (number, graph.backend, graph.line, graph.operators, _COUNTED.get(graph.backend, _BY_PYTORCH))
        for number, graph in enumerate(compiled.graphs)
        if not graph.is_followed
    ]
    if others:
        columns = ["graph", "backend", "line", "operators:count", "what is counted"]
        yield Table.of(others, columns, "compiled by other backends: their kernels are not known here")
    kernels: Counter[tuple[str, int, int | None, float | None, str, str]] = Counter(
        (one.name, number, one.bytes, _kernel_seconds(one, target), ", ".join(one.operators), ", ".join(one.lines))
        for number, graph in enumerate(compiled.graphs)
        for one in graph.kernels
    )
    if kernels:
        ordered = sorted(kernels.items(), key=lambda item: -(item[0][2] or 0) * item[1])
        made = [(*key[:2], count, *key[2:]) for key, count in ordered]
        columns = ["kernel", "graph", "count", "each moves:bytes", "least:seconds", "operators", "lines"]
        yield Table.of(made, columns, "kernels, those that move most first")
    saved: dict[tuple[object, ...], list[int | None]] = {}
    again: dict[tuple[object, ...], list[int | None]] = {}
    for number, graph in enumerate(compiled.graphs):
        for one in graph.saved:
            saved.setdefault((number, one.operator, one.line, one.why), []).append(one.bytes)
        for other in graph.recomputed:
            again.setdefault((number, other.operator, other.line, other.why, ", ".join(other.kernels)), []).append(other.bytes)
    if saved:
        columns = ["graph", "operator", "line", "why not recomputed", "tensors:count", "bytes"]
        yield Table.of(_largest(saved), columns, "saved for the backward besides inputs and parameters", whole="bytes")
    if again:
        columns = ["graph", "operator", "line", "why", "in kernels", "tensors:count", "bytes"]
        yield Table.of(_largest(again), columns, "recomputed in the backward instead of being saved", whole="bytes")
    plan = [
        (number, one.name, one.bytes, _MADE[one.made] + (f" of {one.instead}" if one.instead else ""), one.kernel, _ends(one))
        for number, graph in enumerate(compiled.graphs)
        for one in graph.plan
    ]
    if plan:
        plan.sort(key=lambda row: -(row[2] or 0))
        columns = ["graph", "buffer", "bytes", "made", "for kernel", "ends"]
        yield Table.of(plan, columns, "buffers of the generated code, the largest first")
    if compiled.events:
        # Of what is no break nothing is handed across: that is not unknown.
        across = ["" if one.across is None else bytes_text(one.across) for one in compiled.events]
        events = [(one.what, one.line, one.count, size, one.cause) for one, size in zip(compiled.events, across, strict=True)]
        columns = ["what", "line", "count", "handed across", "cause"]
        yield Table.of(events, columns, "where compilation stops or restarts")


_COUNTED: Final = {
    "eager": "all: it runs each operator as without torch.compile",
    "aot_eager": "all: it runs each operator of the forward and backward graph",
    "cudagraphs": "all: it captures each operator of the graphs in a CUDA graph",
}
_BY_PYTORCH: Final = "its requests to PyTorch; not the memory of its own libraries"

_MADE: Final = {"allocated": "allocated", "reuse": "in place", "library": "by the library"}


def _ends(buffer: Buffer) -> str:
    if buffer.heir:
        return f"its place goes to {buffer.heir}"
    return f"freed after {buffer.freed}" if buffer.freed else "returned"


Number = TypeVar("Number", int, float)


def _largest(rows: Mapping[tuple[object, ...], Sequence[int | None]]) -> list[tuple[object, ...]]:
    """Return each with the number of tensors and their bytes, those of which nobody knows the bytes last."""
    sums = {key: whole(sizes) for key, sizes in rows.items()}
    return [(*key, len(rows[key]), sums[key]) for key in sorted(rows, key=lambda key: (sums[key] is None, -(sums[key] or 0)))]


def whole(parts: Iterable[Number | None]) -> Number | None:
    """Return a sum, which is not known where a part of it is not."""
    known = list(parts)
    return None if None in known else cast("Number", sum(one for one in known if one is not None))


def _kernel_seconds(kernel: Kernel, target: Target) -> float | None:
    """Return the least time by the device's bandwidth and rate; None where one of them is not known."""
    device = target.device
    if kernel.bytes is None or device.bandwidth is None:
        return None
    rate = device.matrix.get(kernel.dtype)
    return max(kernel.bytes / device.bandwidth.hi, (kernel.flops or 0) / rate.hi if rate is not None else 0.0)


_MOST_STEPS_MARKED: Final = 8


def _over_time(simulation: Simulation) -> tuple[Series, ...]:
    """Return the bytes that the program has asked for, by category, after each of its requests; what is alive there, by the line that asked
    for it.
    """
    tape, lives = simulation.tape, Lives.of(simulation.tape)
    if not lives.total.any():
        return ()
    places = shown_steps(lives.total[1:].tolist())
    order = sorted({*tape.kinds}, key=lambda kind: (kind not in RESIDENT, kind))
    data: dict[str, Sequence[object]] = {"request": places}
    data |= {kind: heights[1:][places].tolist() for kind, heights in lives.heights(tape.kinds)}

    def alive(place: int, top: int) -> Table:
        at, sizes = places[place], lives.sizes
        found = summed(
            ((tape.labels[slot], tape.kinds[slot], *tape.origin(slot)), int(sizes[slot])) for slot in lives.alive(at + 1).tolist()
        )
        columns = ["made_by:text", "category:text", "module:text", "line:text", "size:bytes", "blocks:count"]
        return Table.of(found, columns, f"alive after request {at:,}", whole="size").first(top)

    asked = [slot for _, slot, _ in tape.requests()]
    names = [" at ".join(filter(None, (tape.labels[slot], tape.origin(slot).line))) for slot in map(asked.__getitem__, places)]
    spans = [span for span in tape.spans if span.counted and span.first < len(tape.starts)]
    marks = tuple(tables.Mark(tape.starts[span.first], span.name) for span in spans[:_MOST_STEPS_MARKED])
    columns = tuple(Column(kind, Kind.BYTES) for kind in order)
    x, limits = Column("request", Kind.COUNT), limits_of(simulation.target.device)
    return (Series("memory requested, by category", x, columns, data, marks, limits=limits, names=names, parts=alive),)


def _other_ends(simulation: Simulation) -> Iterator[Table]:
    if simulation.lazy is not None:
        yield _two_ends(simulation, simulation.lazy, "where work on other streams is done at once, and late: only when the host waits")
        yield _shared(simulation)
    if simulation.in_flight is not None:
        yield _two_ends(simulation, simulation.in_flight, "where NCCL's watchdog sees collectives done at once, and late: a step later")
    if simulation.fewest is not None and simulation.steps:
        yield _beside(
            simulation, simulation.fewest, "peaks if all elements of masks that are not computed hold, and if none does", "all, none"
        )
    if simulation.skewed is not None and simulation.routes and simulation.steps:
        yield _beside(
            simulation, simulation.skewed, "peaks where tokens go to all experts alike, and where all go to the same", "alike, same"
        )


def _beside(simulation: Simulation, other: Mapping[str, Any], title: str, ways: str) -> Table:
    """Steps beside those of another run."""
    pairs = list(zip(simulation.steps, other["steps"], strict=False))
    figures = [(step.peak[key], one[key]["peak"]) for key in ("active", "reserved") for step, one in pairs]
    count = len(pairs)
    rows = alike([str(number) for number in range(1, count + 1)], [figures[at] + figures[at + count] for at in range(count)])
    columns = [f"{key}, {way}:bytes" for key in ("active", "reserved") for way in ways.split(", ")]
    return Table.of(rows, ["steps", *columns], title)


def _two_ends(simulation: Simulation, late: Replayed, when: str) -> Table:
    """Return the two ends between which a real device lies, where it matters when work is done."""
    numbered = [(str(number), one) for number, one in enumerate(simulation.steps, 1)]
    both = numbered if simulation.rest is None else [*numbered, ("then" if numbered else "all", simulation.rest)]
    found = {id(step): one for (_, step), one in zip(both, late.outcomes, strict=True)}
    figures = [tuple(size for key in ("active", "reserved") for size in (step.peak[key], found[id(step)].peak[key])) for _, step in both]
    rows = alike([name for name, _ in both], figures)
    columns = ["steps", "active, at once:bytes", "active, late:bytes", "reserved, at once:bytes", "reserved, late:bytes"]
    return Table.of(rows, columns, f"peaks {when}")


def _shared(simulation: Simulation) -> Table:
    rows = [
        (category, module, line, count, size) for category, module, line, size, count in grouped(simulation.shared(), simulation.classes)
    ]
    columns = ["category", "module", "line", "times:count", "bytes in all:bytes"]
    return Table.of(rows, columns, "where it matters: memory that another stream uses too (record_stream)")


def _alive_table(simulation: Simulation, rows: Sequence[Row], title: str) -> Table:
    return Table.of(grouped(rows, simulation.classes), _ALIVE, title, whole="bytes")


def grouped(rows: Sequence[Row], classes: Mapping[str, str]) -> list[Row]:
    """Category, module, line, bytes and number. Blocks of one class that differ in their number alone, and what is in them, are one row."""
    blocks = {above for path in classes for above in itertools.islice(_above(path), 1, None)}
    groups: dict[tuple[object, ...], tuple[list[str], list[int]]] = {}
    for category, module, line, size, number in rows:
        prefixes = list(_above(module))[::-1]
        key = [
            (classes.get(path), "" if path in blocks and path.rpartition(".")[2].isdecimal() else path.rpartition(".")[2])
            for path in prefixes
        ]
        names, sums = groups.setdefault((category, line, *key), ([], [0, 0]))
        names.append(module)
        sums[0] += size
        sums[1] += number
    made = [(str(category), common_name(names), str(line), sums[0], sums[1]) for (category, line, *_), (names, sums) in groups.items()]
    return sorted(made, key=lambda row: -row[3])


_SHARES: Final[Mapping[str, Callable[[int], float]]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"), lambda ranks: (ranks - 1) / ranks),
    **dict.fromkeys(("broadcast", "reduce", "send", "recv"), lambda ranks: float(ranks > 1)),
}
"""Of a collective's bytes, those that a rank at least sends or receives where the network reduces nothing by itself."""


def least_seconds(op: str, ranks: int, size: int, link: float) -> float | None:
    """Return what a device at least needs for its part of a collective; None where that is not known."""
    share = _SHARES.get(op)
    return None if share is None or not link else share(ranks) * size / link


def _times_json(time: ClockedStep | None) -> dict[str, Any]:
    """Return the times of a step; null where they are not known, as the upper end is where an operator is not."""
    if time is None:
        return {"seconds": None, "seconds_interval": None}
    return {"seconds": time.seconds, "seconds_interval": [time.low, None if math.isinf(time.high) else time.high]}


def _step_json(step: Step) -> dict[str, Any]:
    return {**counters_json(step.peak, step.after), "by_category": dict(step.by_category)}
