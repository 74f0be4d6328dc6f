"""A user's program on devices that are not there: `irscope simulate` and `irscope.simulate`."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import platform
import runpy
import signal
import sys
import sysconfig
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np

from irscope.devices import Target, target_of
from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import LoadError, UsageError
from irscope.memory.caching import CachingAllocator
from irscope.memory.caching.allocator import PendingFrees
from irscope.memory.kernels import workspace_policy
from irscope.memory.moments import RESIDENT
from irscope.memory.tape import Origin, Replayed, Span, Tape
from irscope.passes.lifetimes.timeline import limits_of, shown_steps
from irscope.passkit.settings import Settings
from irscope.report import table as tables
from irscope.report.report import Document, ModelInfo, Report, diagnostic_json
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind, humanise
from irscope.session import check_target

if TYPE_CHECKING:
    from irscope.frontends.simulation.process import Process
    from irscope.frontends.simulation.watch import Answer, Mark, Step, Watch
    from irscope.frontends.simulation.world import Traffic

SCHEMA: Final = "irscope.simulation/1"
COUNTERS: Final = ("requested", "allocated", "active", "reserved")
_OUTCOMES: Final = {
    "finished": "the program ran to its end",
    "steps": "stopped after the steps, or the time, that were asked for",
    "oom": "out of memory",
    "needs_value": "the program waits for a value that is not computed",
    "error": "the program failed",
}
INTERRUPTED: Final = "interrupted"
"""What ended a program that Ctrl-C ended."""
_BOUNDLESS: Final = 1 << 44
"""Memory of a device that never has too little: sixteen TiB, below the addresses that the simulated device's start from."""
_LIBRARY: Final = sysconfig.get_path("stdlib")
_STATES: Final = {"active_allocated": "allocated", "active_pending_free": "freed, still used by another stream"}
_WORTH: Final = 0.1
"""Of the activations, what a class of modules at least holds to be worth checkpointing."""
_FRAGMENT: Final = "free parts of segments in use"
_CACHED: Final = "free segments in the cache"


@dataclass(frozen=True)
class Options:
    """What a program runs on, and for how long."""

    device: str = ""
    torch: str = ""
    alloc_conf: str = ""
    world: int = 1
    rank: int = 0
    local: int = 0
    """Ranks on one machine; 0 for all of the world, eight at most."""
    steps: int = 0
    """After how many steps to stop; 0 for never."""
    seconds: float = 0
    answer: float | None = None
    """What device values that the program reads are taken to be; None for zero."""
    pending_frees: PendingFrees = "next_malloc"
    link: float = 0
    """Bytes a second that a device can send to others, and at the same time receive; 0 where that is unknown."""
    settings: tuple[str, ...] = ()
    """NAME=VALUE that hold instead of what the program says."""
    boundless: bool = False
    """Whether the device gives as much memory as is asked for."""
    told: Callable[[int, int | None, str], None] | None = field(default=None, compare=False)
    """Is told how far the run is: how many of how many, and of what."""

    def __post_init__(self) -> None:
        if self.world < 1 or not 0 <= self.rank < self.world:
            raise UsageError(
                f"there is no rank {self.rank} in a world of {self.world}", code="IRS643", hint=f"0 to {max(self.world, 1) - 1}"
            )


def memory_of(target: Target, options: Options) -> int | None:
    """What the allocator can ask the device for; None where nobody told."""
    return _BOUNDLESS if options.boundless else target.device.memory_bytes


@dataclass
class Simulation:
    """What a program did on a simulated device."""

    script: str
    target: Target
    options: Options
    outcome: str = "finished"
    error: str = ""
    """Why it ended, if not by itself."""
    line: str = ""
    """Where."""
    steps: Sequence[Step] = ()
    marks: Sequence[Mark] = ()
    answers: Sequence[Answer] = ()
    collectives: Sequence[Traffic] = ()
    uses: Mapping[str, Any] = field(default_factory=dict)
    """Settings that decide about memory, as the program has them."""
    classes: Mapping[str, str] = field(default_factory=dict)
    """Of modules, by path."""
    applied: Mapping[str, int] = field(default_factory=dict)
    """How often each of the settings was used instead of the program's own."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Operators of whose kernels only the results are counted, with the number of calls."""
    now: Mapping[str, int] = field(default_factory=dict)
    """Counters at the end, and their peaks since the program reset them."""
    pinned_peak: int = 0
    tape: Tape[Origin] = field(default_factory=Tape)
    """All that was asked of the allocator, with a span for each step; `replay` makes the requests again."""
    fullest: tuple[int, int] = (0, 0)
    """Numbers of requests and actions of the tape when most was reserved, or when memory was refused and the program ended of it."""
    result: Any = None
    """What the function returned."""

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What is to be said about the figures."""
        return [Diagnostic(Severity.WARNING, code, text) for code, text in _remarks(self)]

    def peak(self, key: str) -> int:
        """The most that a counter was."""
        return max([self.now.get(f"{key}_peak", 0), *(step.peak[key] for step in self.steps)])

    def replay(self, tape: Tape[Origin] | None = None, watch: Collection[str] | Literal["all"] = ()) -> Replayed:
        """Ask the same of an allocator like the one that the program had, or a part of it: `tape`."""
        tape = self.tape if tape is None else tape
        return tape.replay(self._allocator(), tape.numbers("central"), watch, addresses=True)

    def _allocator(self) -> CachingAllocator:
        return CachingAllocator.of(self.target, memory_of(self.target, self.options), self.options.pending_frees)

    @functools.cached_property
    def _at_fullest(self) -> tuple[Replayed, CachingAllocator]:
        gpu = self._allocator()
        tape = self.tape.until(self.fullest)
        return tape.replay(gpu, tape.numbers("central"), addresses=True), gpu

    def missing(self) -> int | None:
        """By how much the device is too small for the request that was refused, once the cache is given back; None where none was."""
        refused = next((one.what for one in reversed(self.tape.actions) if one.verb == "refused"), None)
        return None if refused is None else max(refused - self._at_fullest[1].device_free, 1)

    def alive_at_refusal(self) -> tuple[dict[str, int], list[tuple[str, str, str, int, int]]]:
        """Bytes by category, which add up to what was allocated, and what was alive by category, module and line."""
        tape = self.tape
        totals: dict[str, int] = {}
        groups: dict[tuple[str, str, str], list[int]] = {}
        rounding = 0
        for slot, block in self._at_fullest[0].held.items():
            origin = tape.owners.get(slot, Origin("", ""))
            row = groups.setdefault((tape.kinds[slot], *origin), [0, 0])
            row[0] += block.requested
            row[1] += 1
            totals[tape.kinds[slot]] = totals.get(tape.kinds[slot], 0) + block.requested
            rounding += block.size - block.requested
        rows = sorted(groups.items(), key=lambda row: -row[1][0])
        return totals | {"rounding": rounding}, [(*who, size, number) for who, (size, number) in rows]

    def reserved_for(self) -> list[tuple[str, int, int, int]]:
        """When most was reserved: what for, on which stream, in how many blocks, and the bytes, which add up to what was reserved."""
        found: dict[tuple[str, int], list[int]] = {}
        for segment in self._at_fullest[0].segments:
            used = any(block.state != "inactive" for block in segment.blocks)
            for block in segment.blocks:
                why = _STATES[block.state] if block.state != "inactive" else _FRAGMENT if used else _CACHED
                row = found.setdefault((why, segment.stream), [0, 0])
                row[0] += block.size
                row[1] += 1
        order = [*_STATES.values(), _FRAGMENT, _CACHED]
        return [
            (what, stream, number, size)
            for (what, stream), (size, number) in sorted(found.items(), key=lambda row: (order.index(row[0][0]), row[0][1]))
        ]

    def to_json(self) -> dict[str, Any]:
        """The document of `--format json`."""
        options = self.options
        return {
            "schema": SCHEMA,
            "script": self.script,
            "device": options.device or self.target.device.name,
            "world": options.world,
            "rank": options.rank,
            "torch": "{}.{}".format(*self.target.torch),
            "outcome": self.outcome,
            "error": self.error,
            "line": self.line,
            "steps": [
                {**{key: {"peak": step.peak[key], "after": step.after[key]} for key in COUNTERS}, "by_category": dict(step.by_category)}
                for step in self.steps
            ],
            "marks": [
                {"name": mark.name, "line": mark.line, **{key: {"peak": mark.peak[key], "after": mark.after[key]} for key in COUNTERS}}
                for mark in self.marks
            ],
            "peak": {key: self.peak(key) for key in COUNTERS},
            "collectives": [
                {"op": one.op, "group": one.group, "ranks": ranks_text(one.members), "calls": one.calls, "bytes": one.bytes}
                for one in self.collectives
            ],
            "answers": [{"line": one.line, "count": one.count, "value": one.value} for one in self.answers],
            "pinned_peak_bytes": self.pinned_peak,
            "uses": dict(self.uses),
            "blocks": self.blocks(),
            "settings": [{"setting": one, "applied": count} for one, count in self.applied.items()],
            "diagnostics": [diagnostic_json(one) for one in self.diagnostics],
        }

    def blocks(self) -> list[dict[str, Any]]:
        """Classes of modules that hold activations at the peak: the one that holds most, and the one that does so within its modules."""
        alive = max(self.steps, key=lambda step: step.peak["allocated"]).alive if self.steps else self.alive_at_refusal()[1]
        return blocks_of(alive, self.classes)

    @property
    def _outcome_text(self) -> str:
        if self.error == INTERRUPTED:
            return "the program was interrupted"
        return _OUTCOMES[self.outcome] + (f": {_short(self.error)}" if self.error else "")

    def report(self) -> Report:
        """Tables of the same."""
        reserved = self.peak("reserved")
        total = self.target.device.room_bytes
        summary: dict[str, Any] = {
            "verdict": _verdict(self, reserved, total),
            "program": f"{self.script} on {self.target.text}",
            "outcome": self._outcome_text,
            "reserved_peak_bytes": reserved,
            "device_bytes": total or 0,
            "rank": f"{self.options.rank} of {self.options.world}",
            "steps_count": len(self.steps),
        }
        if self.line:
            summary["line"] = self.line
        if self.pinned_peak:
            summary["pinned_host_bytes"] = self.pinned_peak
        return Report(
            "simulate", summary=summary, tables=tuple(_tables(self)), diagnostics=tuple(self.diagnostics), pictures=lambda: _over_time(self)
        )

    def document(self) -> Document:
        """The report alone: there is no model file that it is about."""
        return Document("", ModelInfo("", ""), (self.report(),))


def blocks_of(alive: Sequence[tuple[str, str, str, int, int]], classes: Mapping[str, str]) -> list[dict[str, Any]]:
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
    """A path and those of the modules that it is in."""
    yield path
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks in short: "0-3,8", and with a step "0-56:8"."""
    parts = []
    at = 0
    while at < len(ranks):
        end = at + 1
        step = ranks[end] - ranks[at] if end < len(ranks) else 1
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if step != 1 and end - at == 2:  # two that are apart are no stretch
            end = at + 1
        parts.append(str(ranks[at]) if end == at + 1 else f"{ranks[at]}-{ranks[end - 1]}" + (f":{step}" if step != 1 else ""))
        at = end
    return ",".join(parts)


def _remarks(simulation: Simulation) -> Iterator[tuple[str, str]]:
    """Codes with what is to be said."""
    if simulation.unknown:
        names = sorted(simulation.unknown, key=lambda name: -simulation.unknown[name])
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield "IRS645", f"what the kernels of {shown} take besides their results is not known, and not counted"
    for setting, count in simulation.applied.items():
        if not count:
            yield "IRS648", f"{setting} changed nothing: the program has nothing that it is about"
    if simulation.answers:
        lines = ", ".join(one.line for one in simulation.answers[:3])
        yield "IRS646", f"values of device tensors were read and taken to be {simulation.answers[0].value}: {lines}"


def _verdict(simulation: Simulation, reserved: int, total: int | None) -> str:
    device = simulation.target.device.title
    if simulation.outcome == "oom":
        missing = simulation.missing()
        return f"does not fit on {device}" + ("" if missing is None else f" by {_text(missing)} or more")
    if total is None:
        return f"unknown: nobody told how much memory {device} has"
    if reserved > total:
        return f"does not fit on {device} by {_text(reserved - total)}"
    whole = "fits" if simulation.outcome == "finished" else "fits so far"
    return f"{whole} on {device}: {_text(total - reserved)} of {_text(total)} left"


def _short(error: str) -> str:
    """The first two sentences of torch's message at most: "CUDA out of memory. Tried to allocate 1.00 GiB." """
    return ". ".join(error.split(". ")[:2]).removeprefix("CUDA out of memory. ")


def _text(size: int) -> str:
    return humanise(size, Kind.BYTES)


_ALIVE: Final = ("category", "module", "line", "bytes", "blocks:count")
_MOST_COLUMNS: Final = 3
"""Stretches of steps beside each other in a terminal of 80 columns."""


def _tables(simulation: Simulation) -> Iterator[Table]:
    if simulation.steps:
        columns = ["steps", *(f"{key}:bytes" for key in COUNTERS)]
        for title, when in (("peak of each step", "peak"), ("after each step", "after")):
            yield Table.of(_alike(simulation.steps, functools.partial(_counted, when)), columns, title)
        yield _made_of(simulation.steps)
        worst = max(simulation.steps, key=lambda step: step.peak["allocated"])
        yield Table.of(worst.alive, _ALIVE, "alive at the peak", whole="bytes")
    if simulation.outcome == "oom":
        totals, alive_then = simulation.alive_at_refusal()
        yield Table.of(
            [*totals.items(), ("allocated, the sum", sum(totals.values()))], ["category", "bytes"], "allocated where memory was refused"
        )
        yield Table.of(alive_then, _ALIVE, "alive where memory was refused", whole="bytes")
    if simulation.tape.events:
        rows = simulation.reserved_for()
        title = "what reserved is made of " + ("where memory was refused" if simulation.outcome == "oom" else "at its peak")
        yield Table.of(rows, ["what", "stream:index", "blocks:count", "bytes"], title, whole="bytes")
    if simulation.collectives:
        sent = [
            (one.op, one.group, one.ranks, one.calls, one.bytes, least_seconds(one.op, one.ranks, one.bytes, simulation.options.link))
            for one in simulation.collectives
        ]
        columns = ["collective", "group", "ranks:count", "calls:count", "bytes", "least time:seconds"]
        yield Table.of(sent, columns, "collectives" + ("" if simulation.options.link else ": --link 450GB/s gives times"))
    if simulation.steps:
        hosts = _alike(simulation.steps, lambda step: step.pinned or (None, None))
        columns = ["steps", "pinned peak:bytes", "pinned after:bytes", "pageable:bytes"]
        yield Table.of([(*row, None) for row in hosts], columns, "host memory")
    if simulation.answers:
        yield Table.of([(one.line, one.count, str(one.value)) for one in simulation.answers], ["line", "count", "value"], "values answered")


_MOST_STEPS_MARKED: Final = 8


def _over_time(simulation: Simulation) -> tuple[Series, ...]:
    """Bytes that the program has asked for, by category, after each of its requests; what is alive there, by the line that asked for it."""
    tape = simulation.tape
    events = np.array(tape.events, dtype=np.int64)
    slots = np.where(events >= 0, events, ~events)
    sizes = np.array(tape.numbers("central"), dtype=np.int64)
    if not len(events) or not sizes[slots].any():
        return ()
    signs = np.where(events >= 0, 1, -1)
    changes = sizes[slots] * signs
    kinds = np.array(tape.kinds, dtype=object)
    places = shown_steps(np.cumsum(changes).tolist())
    order = sorted({*tape.kinds}, key=lambda kind: (kind not in RESIDENT, kind))
    data: dict[str, Sequence[object]] = {"request": places}
    for kind in order:
        data[kind] = np.cumsum(np.where(kinds[slots] == kind, changes, 0))[places].tolist()
    begins, ends = (np.full(len(sizes), len(events), dtype=np.int64) for _ in range(2))
    begins[slots[signs > 0]] = np.flatnonzero(signs > 0)
    ends[slots[signs < 0]] = np.flatnonzero(signs < 0)

    def who(slot: int) -> tuple[str, str]:
        origin = tape.owners.get(slot, Origin("", ""))
        return origin.module, origin.line

    def alive(place: int, top: int) -> Table:
        at = places[place]
        rows: dict[tuple[str, str, str, str], list[int]] = {}
        for slot in np.flatnonzero((begins <= at) & (ends > at)).tolist():
            row = rows.setdefault((tape.labels[slot], tape.kinds[slot], *who(slot)), [0, 0])
            row[0] += int(sizes[slot])
            row[1] += 1
        found = [(*key, size, count) for key, (size, count) in rows.items() if size]
        found.sort(key=lambda row: -row[4])
        columns = ["made_by:text", "category:text", "module:text", "line:text", "size:bytes", "blocks:count"]
        return Table.of(found, columns, f"alive after request {at:,}", whole="size").first(top)

    names = [" at ".join(filter(None, (tape.labels[slot], who(slot)[1]))) for slot in slots[places].tolist()]
    spans = [span for span in tape.spans if span.counted and span.first < len(tape.starts)]
    marks = tuple(tables.Mark(tape.starts[span.first], span.name) for span in spans[:_MOST_STEPS_MARKED])
    columns = tuple(Column(kind, Kind.BYTES) for kind in order)
    x, limits = Column("request", Kind.COUNT), limits_of(simulation.target.device)
    return (Series("memory asked for, by category", x, columns, data, marks, limits=limits, names=names, parts=alive),)


def _made_of(steps: Sequence[Step]) -> Table:
    """Categories of the peak of allocated, which is their sum; of many different steps the first, the worst and the last."""
    kinds = [one for one in steps[0].by_category if any(step.by_category[one] for step in steps)]
    found = _alike(steps, lambda step: (step.peak["allocated"], *(step.by_category[one] for one in kinds)))
    if len(found) > _MOST_COLUMNS:
        worst = max(found[1:-1], key=lambda row: cast("int", row[1]))
        found = [found[0], worst, found[-1]]
    rows = list(zip((*("allocated, the sum", *kinds),), *(row[1:] for row in found), strict=True))
    columns = ["category", *(f"step{'s' if ' ' in str(row[0]) else ''} {row[0]}:bytes" for row in found)]
    return Table.of([*rows[1:], rows[0]], columns, "what the peak of allocated is made of")


_SHARES: Final[Mapping[str, Callable[[int], float]]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"), lambda ranks: (ranks - 1) / ranks),
    **dict.fromkeys(("broadcast", "reduce", "send", "recv"), lambda ranks: float(ranks > 1)),
}
"""Of a collective's bytes, those that a rank at least sends or receives where the network reduces nothing by itself."""


def least_seconds(op: str, ranks: int, size: int, link: float) -> float | None:
    """What a device at least needs for its part of a collective; None where that is not known."""
    share = _SHARES.get(op)
    return None if share is None or not link else share(ranks) * size / link


def _counted(when: str, step: Step) -> tuple[int, ...]:
    return tuple(getattr(step, when)[key] for key in COUNTERS)


def _alike(steps: Sequence[Step], figures: Callable[[Step], tuple[int | None, ...]]) -> list[tuple[object, ...]]:
    """A row for each stretch of steps with the same figures."""
    rows: list[tuple[object, ...]] = []
    numbered = list(enumerate(steps, 1))
    for found, several in itertools.groupby(numbered, key=lambda one: figures(one[1])):
        numbers = [number for number, _ in several]
        rows.append((str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}", *found))
    return rows


# -- running ---------------------------------------------------------------------------------------------------------------


_process: Process | None = None


def check_script(script: str, is_module: bool) -> None:
    """Whether there is such a program."""
    if not is_module and not Path(script).is_file():
        raise LoadError("there is no such file", code="IRS385", where=script)


def simulate_script(script: str, arguments: Sequence[str] = (), options: Options | None = None, *, is_module: bool = False) -> Simulation:
    """Run a script as `python SCRIPT ARGUMENTS` would, on a simulated device, in this process."""
    chosen = options or Options()
    check_script(script, is_module)

    def program() -> None:
        before, path = sys.argv, list(sys.path)
        sys.argv = [script, *arguments]
        try:
            if is_module:
                sys.path.insert(0, os.getcwd())
                runpy.run_module(script, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(script).resolve().parent))
                runpy.run_path(script, run_name="__main__")
        finally:
            sys.argv, sys.path[:] = before, path

    return _run(program, script, chosen)


def simulate(
    function: Callable[..., Any],
    *args: Any,
    device: str = "",
    world: int = 1,
    rank: int = 0,
    torch: str = "",
    alloc_conf: str = "",
    steps: int = 0,
    seconds: float = 0,
    answer: float | None = None,
    link: float = 0,
    **kwargs: Any,
) -> Simulation:
    """Call a function on a simulated CUDA device: what it puts there takes no memory and computes nothing.

    For the rest of this process `torch.cuda` is the simulated device's; memory that was allocated by an earlier call is forgotten by its
    counters. `world` and `rank` are what torchrun would set. The result has `steps`, `marks`, `tape` and `to_json()`.
    """
    options = Options(device, torch, alloc_conf, world, rank, steps=steps, seconds=seconds, answer=answer, link=link)
    return _run(lambda: function(*args, **kwargs), getattr(function, "__name__", "function"), options)


def _run(program: Callable[[], Any], name: str, options: Options) -> Simulation:
    target = target_of(settings := Settings(device=options.device, torch=options.torch, alloc_conf=options.alloc_conf))
    check_target(settings)
    process = _prepared(target, options)
    from irscope.frontends.simulation.settings import Changes
    from irscope.frontends.simulation.watch import NeedsValue, StopProgram

    told = options.told
    stepped = None if told is None else lambda done: told(done, options.steps or None, "steps of the optimizer:")
    changes = Changes(options.settings)
    watch = process.start(options.steps, (__file__,), stepped)
    changes.install()
    found = Simulation(name, target, options, applied=changes.applied)
    try:
        with _environment(options), _time_limit(options.seconds, StopProgram):
            found.result = program()
    except StopProgram:
        found.outcome = "steps"
    except NeedsValue as error:
        found.outcome, found.line = "needs_value", str(error)
        found.error = f"{error} reads values over and over"
    except SystemExit as stop:
        if stop.code not in (None, 0):
            found.outcome, found.error = "error", f"it exits with {stop.code}"
    except KeyboardInterrupt:
        found.outcome, found.error = "error", INTERRUPTED
        changes.close()
        _finish(found, process, watch)
        raise Interrupted(found) from None
    except BaseException as error:
        _failed(found, error, watch)
    changes.close()
    _finish(found, process, watch)
    return found


class Interrupted(KeyboardInterrupt):
    """Ctrl-C; what was simulated so far is kept."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self.simulation = simulation


def _failed(found: Simulation, error: BaseException, watch: Watch) -> None:
    import torch
    from torch._subclasses.fake_tensor import UnsupportedOperatorException

    found.outcome = "oom" if isinstance(error, torch.OutOfMemoryError) else "error"
    text = str(error).partition("\n")[0]
    # The modules are there only as long as the error holds the program's frames.
    watch.classify()
    watch.name_modules()
    watch.note_uses()
    found.error = text if found.outcome == "oom" else f"{type(error).__name__}: {text}"[:300]
    if isinstance(error, UnsupportedOperatorException):
        found.error = (
            f"operator {text} has no rule for what it makes (torch.library.register_fake gives it one), and its kernels do not run here"
        )
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__) if watch.shows(frame.f_code)]
    # Where a library of Python's own raises, the program's line is the one that called it.
    places = [place for place in places if not place[0].startswith(_LIBRARY)] or places
    if places:
        found.line = f"{places[-1][0]}:{places[-1][1]}"


def _finish(found: Simulation, process: Process, watch: Watch) -> None:
    watch.close()
    found.steps, found.marks, found.answers = watch.steps, watch.marks, list(watch.answers.values())
    found.collectives = list(process.world.traffic.values())
    found.uses, found.classes = watch.uses, watch.classes
    found.unknown = dict(process.kernels.unknown)
    found.now = dict(process.machine.counters())
    found.pinned_peak = process.pinned.peak
    gpu = process.machine.gpu
    found.tape = _tape_of(process.machine.tape(), watch)
    found.fullest = gpu.refused if found.outcome == "oom" and gpu.refused is not None else gpu.fullest


def _tape_of(tape: Tape[Any], watch: Watch) -> Tape[Origin]:
    """A copy of what was written so far, with names in place of objects, and a span for each step."""
    from irscope.frontends.simulation.watch import line_text

    end = tape.cut()
    names = {origin: Origin(watch.name_of(origin[0]), line_text(origin[1])) for origin in set(tape.owners.values())}
    places = [0, watch.begins, *(step.end for step in watch.steps), end]
    spans = [
        Span("before", 0, 1, counted=False),
        *(Span(f"step {number}", number, number + 1) for number in range(1, len(watch.steps) + 1)),
    ]
    return replace(
        tape,
        events=list(tape.events),
        sizes=list(tape.sizes),
        kinds=list(tape.kinds),
        labels=list(tape.labels),
        owners={slot: names[origin] for slot, origin in tape.owners.items()},
        streams=dict(tape.streams),
        actions=list(tape.actions),
        starts=places,
        spans=[*spans, Span("rest", len(places) - 2, len(places) - 1)],
    )


def check_machine() -> None:
    """Whether programs can be simulated here."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        here = f"{sys.platform} on {platform.machine()}"
        raise UsageError(f"programs are simulated on Linux on x86-64, not on {here}", code="IRS644", hint="a container will do")
    if importlib.util.find_spec("torch") is None:
        raise UsageError("torch is not installed", code="IRS192", hint="a program that is simulated needs it: pip install torch")


def _prepared(target: Target, options: Options) -> Process:
    """This process with its device; the first target holds for all of its life."""
    global _process
    check_machine()
    from irscope.frontends.simulation.process import Process

    if _process is None:
        with _environment(options):
            _process = Process(target, workspace_policy(target).buffers, options.pending_frees, memory_of(target, options))
    elif _process.machine.target != target:
        raise UsageError("one process simulates one device", code="IRS644", hint="start another process for another one")
    _process.answer_with = options.answer
    return _process


@contextlib.contextmanager
def _environment(options: Options) -> Iterator[None]:
    """What torchrun sets."""
    from irscope.frontends.simulation.world import environment

    local = options.local or min(options.world, 8)
    made = environment(options.rank, options.world, local)
    before = {key: os.environ.get(key) for key in made}
    os.environ.update(made)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextlib.contextmanager
def _time_limit(seconds: float, stop: type[BaseException]) -> Iterator[None]:
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: Any) -> None:
        raise stop

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
