"""What a recording of a real run holds, one dataclass a kind of line, and what follows from its events. See docs/recording.md."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from irscope.immutable import immutable

SCHEMA = "irscope.recording/1"
COLD = "cold"
WARM = "warm"

Setting: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Input:
    """An input as the model was run with it."""

    name: str
    type: str
    """As irscope writes types: f32[1,3,224,224]."""


@immutable
class ModelRecord:
    """The model that was run."""

    name: str
    format: str = ""
    """onnx, pt2, torchscript, module or another name of a format."""
    path: str = ""
    sha256: str = ""
    """Of the model's file; empty where there is none."""
    inputs: tuple[Input, ...] = ()
    bind: Mapping[str, int] = field(default_factory=dict)
    """Sizes that were chosen for the model's symbols."""
    assumed: tuple[str, ...] = ()
    """Assumptions: what was not specified, and the value that was assumed: sizes and types of inputs."""


@immutable
class DeviceRecord:
    """The device that it ran on."""

    kind: str
    """cpu or cuda."""
    name: str
    memory: int | None = None
    threads: int | None = None
    capability: str = ""
    driver: str = ""


@immutable
class Header:
    """The first line: what was run, with what, and how."""

    line: ClassVar[str] = "header"

    executor: str
    """torch-cpu, torch-cuda, ort-cpu or ort-cuda."""
    model: ModelRecord
    device: DeviceRecord
    tool: str = ""
    created: str = ""
    """Date and time in UTC, as ISO 8601 writes it."""
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    warmup: int = 0
    repeats: int = 0
    schema: str = SCHEMA


@immutable
class Times:
    """Durations of something over `n` runs, in microseconds."""

    n: int
    min_us: float
    median_us: float
    p95_us: float


@immutable
class OpRecord:
    """One operator of a run, in the order in which they ran."""

    line: ClassVar[str] = "op"

    index: int
    op: str
    """As the executor calls it: aten::conv2d, Conv, com.microsoft::FusedConv."""
    scope: str = ""
    """Path of the module call, as in blocks/0/conv1; a second call of the same module has #1."""
    sources: tuple[str, ...] = ()
    """Nodes of the model's file that it carries out, by the name of their first result; none where the executor does not know."""
    kernels: tuple[str, ...] = ()
    """Operators it called in turn, innermost ones."""
    place: str = ""
    """Where it ran: cpu, cuda, or an execution provider of ONNX Runtime."""
    inputs: tuple[str, ...] = ()
    """Types of tensors it read."""
    outputs: tuple[str, ...] = ()
    time: Times | None = None
    made: int | None = None
    """Bytes it asked for that outlive it, in the warm run."""
    workspace: int | None = None
    """Bytes it asked for and gave back before it ended, the most at one time."""
    alive: int | None = None
    """Bytes alive when it ended, beyond those that were there before the run."""
    phase: str = ""
    """Of a training step: data, forward, backward or optimizer."""
    code: str = ""
    """The line of the program that called it, or whose result it differentiates: train.py:21."""


@immutable
class MemoryEvent:
    """Memory that was asked for or given back."""

    line: ClassVar[str] = "event"

    run: str
    """cold or warm."""
    bytes: int
    """Requested bytes; negative when they were given back."""
    op: int | None = None
    """The operator that ran, or had run last; nothing before the first one."""
    inside: bool = True
    """True where the operator was still running."""
    block: int | None = None
    """The same number stands at a block's birth and at its end."""
    category: str = "activation"
    """activation (outlives its operator), temporary (ends in it, between two kernels), workspace (ends in its kernel), output, or net:
    not one block but what an operator changed in sum."""
    kernel: str = ""
    scope: str = ""
    time_us: float | None = None
    """Since the run began."""
    source: str = ""
    """The line of the program that asked for it, where that is known: train.py:21."""
    phase: str = ""
    """Of the step: forward, backward, optimizer, where that is told."""
    stream: int = 0
    """On which it is; 0 is the default one."""


@immutable
class Level:
    """A counter of an allocator."""

    current: int
    peak: int


@immutable
class Held:
    """A block that is there when the warm run begins, where that is told: what a program keeps from step to step."""

    line: ClassVar[str] = "held"

    bytes: int
    block: int | None = None
    """The number that stands at its end, where that is in the run."""
    category: str = "activation"
    kernel: str = ""
    scope: str = ""
    source: str = ""
    """The line of the program that asked for it."""
    stream: int = 0


@immutable
class Counters:
    """Counters of the allocator after a run, its peak being that of this run; before: when the model and its inputs are there."""

    line: ClassVar[str] = "counters"

    run: str
    """before, cold or warm."""
    requested: Level | None = None
    allocated: Level | None = None
    active: Level | None = None
    reserved: Level | None = None


@immutable
class Latency:
    """Durations of whole runs."""

    line: ClassVar[str] = "latency"

    how: str
    """plain: nothing was measured inside; profiled: while operators were timed."""
    time: Times


@immutable
class Energy:
    """Energy of the device over plain runs."""

    line: ClassVar[str] = "energy"

    joules_per_run: float
    runs: int
    seconds: float
    sampling: str
    """Method of reading it."""


@immutable
class Machine:
    """The machine while it was recorded: what could be read of it, and what could not."""

    line: ClassVar[str] = "machine"

    cores: int | None = None
    """Processors that the process may use."""
    others: float | None = None
    """The share of them that others took while it was recorded, the hypervisor's included: 0 to 1."""
    slowed: float | None = None
    """The clock as a share of the fastest that was seen or is allowed; below 1 where it was throttled."""
    throttled: tuple[str, ...] = ()
    """Why the clock was lowered, as the driver or the kernel says: thermal, power cap."""
    joules: Mapping[str, float] = field(default_factory=dict)
    """Energy over the whole recording by counter: package, dram, gpu."""
    seconds: float | None = None
    """Over which it was read."""
    interval: float | None = None
    """Seconds between two samples."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Quantities that could not be read, with the reason."""


@immutable
class Sample:
    """The machine at one moment; what is not told could not be read."""

    line: ClassVar[str] = "sample"

    time_us: float
    """Since the recording began."""
    stage: str = ""
    """Stage that was recorded then: warm-up, memory, latency, operators."""
    cpu: float | None = None
    """Share of the processors that were busy, and of those that this process took: 0 to 1."""
    own: float | None = None
    mhz: float | None = None
    celsius: float | None = None
    watts: float | None = None
    """Of the processor's package."""
    host_bytes: int | None = None
    """Main memory in use, and that of this process."""
    process_bytes: int | None = None
    read_rate: float | None = None
    """Bytes a second that this process read from and wrote to disks."""
    write_rate: float | None = None
    gpu: float | None = None
    gpu_mhz: float | None = None
    gpu_celsius: float | None = None
    gpu_watts: float | None = None
    gpu_bytes: int | None = None
    throttle: str = ""
    """Why the clock is lowered just now."""


@immutable
class Alive:
    """Memory that was in use when there was no more."""

    bytes: int
    op: int | None = None
    name: str = ""
    scope: str = ""


@immutable
class Problem:
    """Something a reader must know before believing the numbers."""

    line: ClassVar[str] = "problem"

    kind: str
    """out_of_memory, failed, crashed, timeout, cpu_fallback, no_cupti, unmapped, unstable, copies or another short name."""
    text: str
    op: int | None = None
    op_name: str = ""
    scope: str = ""
    requested: int | None = None
    """Bytes that could not be had."""
    alive: tuple[Alive, ...] = ()
    """The largest first."""
    alive_bytes: int | None = None


@immutable
class NodeMapping:
    """Mapping from the nodes of the file to the operators that ran, where the executor changes the graph."""

    line: ClassVar[str] = "mapping"

    nodes: int
    """Nodes of the file's main graph."""
    mapped: int
    """Those that are among the sources of an operator."""
    folded: tuple[str, ...] = ()
    """Those that were computed or removed before the first run."""
    unmapped: tuple[str, ...] = ()


@immutable
class Said:
    """The tool's findings about all that ran, of which the events are a part: the verdict of `irscope simulate`, the outcome."""

    line: ClassVar[str] = "said"

    summary: Mapping[str, Setting] = field(default_factory=dict)
    """Numbers under names that end in _bytes or _count, and texts."""
    notes: tuple[str, ...] = ()


@immutable
class SaidTable:
    """A table of the same: peaks of each step, categories, what was alive at the peak, collectives."""

    line: ClassVar[str] = "table"

    title: str
    columns: tuple[str, ...]
    """Headings, each with its kind behind a colon: bytes:bytes, blocks:count, line:text."""
    rows: tuple[tuple[str | int | float | None, ...], ...] = ()
    """A cell for each column; null for what is unknown."""


@immutable
class End:
    """The last line: a file without it was cut short."""

    line: ClassVar[str] = "end"

    lines: int
    """Lines before this one."""
    complete: bool = True
    """False when the run failed; what was recorded before stands."""


@immutable
class Recording:
    """Everything a file says."""

    header: Header
    ops: tuple[OpRecord, ...] = ()
    events: tuple[MemoryEvent, ...] = ()
    counters: tuple[Counters, ...] = ()
    latency: tuple[Latency, ...] = ()
    energy: Energy | None = None
    problems: tuple[Problem, ...] = ()
    mapping: NodeMapping | None = None
    complete: bool = True
    """False when the file was cut short or the run failed."""
    notes: tuple[str, ...] = ()
    """Parts that the reader had to leave out, for people."""
    path: str = ""
    said: Said | None = None
    tables: tuple[SaidTable, ...] = ()
    held: tuple[Held, ...] = ()
    machine: Machine | None = None
    samples: tuple[Sample, ...] = ()

    @property
    def is_step(self) -> bool:
        """Return whether the run is a training step, recorded or simulated, not a forward."""
        return bool(self.header.settings.get("step"))

    def counter(self, run: str) -> Counters | None:
        """Return counters of one of before, cold and warm."""
        return next((counter for counter in self.counters if counter.run == run), None)

    def times(self, how: str) -> Times | None:
        """Latency of plain or profiled runs."""
        return next((one.time for one in self.latency if one.how == how), None)

    def run(self, name: str) -> tuple[MemoryEvent, ...]:
        """Events of the cold or the warm run."""
        return tuple(event for event in self.events if event.run == name)


Line: TypeAlias = (
    Header | OpRecord | MemoryEvent | Counters | Latency | Energy | Problem | NodeMapping | Said | SaidTable | Held | Machine | Sample | End
)
LINES: Mapping[str, type[Line]] = {
    kind.line: kind
    for kind in (
        *(Header, OpRecord, MemoryEvent, Counters, Latency, Energy, Problem, NodeMapping),
        *(Said, SaidTable, Held, Machine, Sample, End),
    )
}


# What follows from a recording's events: bytes alive over the run.

WORKSPACE = "workspace"


@immutable
class Peak:
    """The highest point of a run."""

    bytes: int
    """Beyond what was there before."""
    event: int
    """Number of the event that reaches it, among those of the run; -1 without events."""
    op: int | None


@immutable
class Figures:
    """The four figures of a run, in bytes. None where the executor does not tell."""

    baseline: int | None
    """In use before: the model and its inputs."""
    peak: int | None
    """The most in use at one time, the baseline included."""
    delta: int | None
    """Bytes that the run added: peak without the baseline."""
    reserved: int | None
    """Peak of the allocator's reserved bytes."""


def alive_curve(events: Sequence[MemoryEvent]) -> list[int]:
    """Return bytes alive after each event, beyond those that were there before."""
    return list(itertools.accumulate(event.bytes for event in events))


def without_workspaces(events: Sequence[MemoryEvent]) -> list[MemoryEvent]:
    """Return the events without memory that kernels took only for themselves."""
    return [event for event in events if event.category != WORKSPACE]


def peak_of(events: Sequence[MemoryEvent]) -> Peak:
    """Return the highest point of these events."""
    curve = alive_curve(events)
    if not curve or max(curve) <= 0:
        return Peak(0, -1, None)
    highest = max(curve)
    at = curve.index(highest)
    return Peak(highest, at, events[at].op)


def alive_at(events: Sequence[MemoryEvent], last: int) -> list[MemoryEvent]:
    """Births of the blocks that are alive after event number `last`, the largest first."""
    births: dict[int, MemoryEvent] = {}
    for event in events[: last + 1]:
        if event.block is None:
            continue
        if event.bytes >= 0:
            births[event.block] = event
        else:
            births.pop(event.block, None)
    return sorted(births.values(), key=lambda event: -event.bytes)


def figures(recording: Recording, run: str = WARM, counter: str = "allocated") -> Figures:
    """Baseline, peak, delta and reserved of a run, by one of the counters allocated, requested and active."""
    before, after = recording.counter("before"), recording.counter(run)
    start, reached = _level(before, counter), _level(after, counter)
    baseline = start.current if start is not None else None
    peak = reached.peak if reached is not None else None
    held = after.reserved.peak if after is not None and after.reserved is not None else None
    return Figures(baseline, peak, peak - baseline if peak is not None and baseline is not None else None, held)


def _level(counters: Counters | None, name: str) -> Level | None:
    if counters is None:
        return None
    return {"requested": counters.requested, "allocated": counters.allocated, "active": counters.active}[name]
