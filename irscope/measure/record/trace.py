"""A profiler's data on runs, as plain data, and the lines of a recording that are assembled from it."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from irscope.immutable import immutable
from irscope.recording.records import MemoryEvent, OpRecord, Problem, Times


def times_of(microseconds: Sequence[float]) -> Times | None:
    """Minimum, median and 95th percentile; None without measurements."""
    if not microseconds:
        return None
    ordered = sorted(microseconds)
    return Times(
        len(ordered), _microseconds(ordered[0]), _microseconds(statistics.median(ordered)), _microseconds(ordered[_rank(len(ordered))])
    )


def _rank(count: int) -> int:
    """Position of the smallest measurement that 95 % of them do not exceed."""
    return max(0, -(-95 * count // 100) - 1)


def _microseconds(value: float) -> float:
    """Nanoseconds are below what a clock can tell."""
    return round(value, 3)


# What a profiler saw of a run, as plain data: operators in order, and memory that came and went.

RUN = "irscope::run"
NODE = "irscope::node"
SCOPE = "irscope::scope"
OUT = "irscope::out"
"""Markers that the recorder puts around what it runs; a space and a name follow."""


@dataclass(slots=True)
class Operator:
    """One operator as it was called, with what it called in turn."""

    name: str
    start: int
    end: int
    source: str = ""
    scope: str = ""
    inputs: tuple[str, ...] = ()
    kernels: list[str] = field(default_factory=list)
    seconds: int = 0
    """Nanoseconds spent in it."""
    outs: list[int] = field(default_factory=list)
    """Numbers of the calls that a dispatch mode saw inside."""


@dataclass(slots=True)
class Allocation:
    """A block that came (positive) or went."""

    time: int
    bytes: int
    block: int
    op: int | None = None
    inside: bool = False
    kernel: int = -1
    """Number of the kernel's call; -1 outside of any."""
    kernel_name: str = ""
    scope: str = ""
    device: str = "cpu"
    address: int = 0


@dataclass(slots=True)
class Trace:
    """One run."""

    start: int = 0
    end: int = 0
    operators: list[Operator] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    results: frozenset[int] = frozenset()
    """Addresses of what the run returned."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return a key that is equal for two runs of the same operators."""
        return tuple(f"{operator.source}:{operator.name}" for operator in self.operators)

    def settle(self) -> None:
        """Put allocations in order and give those outside of operators to the one that ran last."""
        self.allocations.sort(key=lambda allocation: allocation.time)
        starts = [operator.start for operator in self.operators]
        for allocation in self.allocations:
            if allocation.op is None:
                last = bisect_right(starts, allocation.time) - 1
                if last >= 0:
                    allocation.op = last
                    allocation.inside = allocation.time <= self.operators[last].end


@immutable
class Categorised:
    """An allocation with what became of its block."""

    allocation: Allocation
    category: str


def categorise(allocations: Iterable[Allocation], results: frozenset[int]) -> list[Categorised]:
    """Classify blocks by when they are freed: in the kernel that requested them, in its operator, after it, or after the run."""
    listed = list(allocations)
    ends = {entry.block: entry for entry in listed if entry.bytes < 0}
    births = {entry.block: entry for entry in listed if entry.bytes >= 0}
    return [Categorised(entry, _category(births.get(entry.block), ends.get(entry.block), results)) for entry in listed]


def _category(birth: Allocation | None, end: Allocation | None, results: frozenset[int]) -> str:
    if birth is None:
        return "activation"
    if end is None:  # libraries keep the workspace of their first call
        return "output" if birth.address in results else "workspace"
    if birth.inside and end.inside and birth.op == end.op:
        return "workspace" if birth.kernel >= 0 and birth.kernel == end.kernel else "temporary"
    return "activation"


# Assembles the lines of a recording from several runs.

_OUTLIVES = ("activation", "output")


@dataclass
class Material:
    """Runs of one model; `warm` decides which operators there are."""

    cold: Trace
    warm: Trace
    timed: Sequence[Trace] = ()
    times: Mapping[int, Times] = field(default_factory=dict)
    """By operator, where something better than the profiler timed them."""
    outputs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    results: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Types that nodes of a graph returned."""
    scopes: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the results of nodes that have several."""
    place: str = "cpu"


def op_records(material: Material) -> list[OpRecord]:
    """Return a line for each operator of the warm run."""
    durations = _durations(material)
    usage = _usage(material.warm, material.place)
    records: list[OpRecord] = []
    for index, operator in enumerate(material.warm.operators):
        made, workspace, alive = usage[index]
        source = operator.source
        sources = material.names.get(source) or ((source,) if source else ())
        records.append(
            OpRecord(
                index,
                operator.name,
                operator.scope or next((material.scopes[name] for name in sources if name in material.scopes), ""),
                sources,
                tuple(operator.kernels),
                material.place,
                operator.inputs,
                material.results.get(source) or material.outputs.get(index, ()),
                material.times.get(index) or times_of(durations[index]),
                made,
                workspace,
                alive,
            )
        )
    return records


def memory_events(material: Material) -> list[MemoryEvent]:
    """Events of the cold run, then those of the warm one."""
    cold = _events("cold", material.cold, material.warm, material.place)
    return [*cold, *_events("warm", material.warm, material.warm, material.place)]


def unstable(material: Material) -> Problem | None:
    """Return a problem where the runs did not call the same operators."""
    names = material.warm.names
    runs = [("the cold run", material.cold), *((f"timed run {number}", trace) for number, trace in enumerate(material.timed))]
    odd = [title for title, trace in runs if trace.names != names]
    if not odd:
        return None
    text = (
        f"{odd[0]} called other operators than the warm run ({len(odd)} of {len(runs)} runs differ); times and events of these are left out"
    )
    return Problem("unstable", text)


def _events(run: str, trace: Trace, warm: Trace, place: str) -> list[MemoryEvent]:
    same = trace.names == warm.names
    numbers: dict[int, int] = {}
    return [_event(run, trace, block, same, numbers) for block in categorise(_on(trace, place), trace.results)]


def _event(run: str, trace: Trace, one: Categorised, same: bool, numbers: dict[int, int]) -> MemoryEvent:
    allocation = one.allocation
    block = numbers.setdefault(allocation.block, len(numbers))
    microseconds = round((allocation.time - trace.start) / 1000, 3)
    op = allocation.op if same else None
    return MemoryEvent(
        run, allocation.bytes, op, allocation.inside, block, one.category, allocation.kernel_name, allocation.scope, microseconds
    )


def _on(trace: Trace, place: str) -> list[Allocation]:
    """Return the blocks on the device that is recorded: a model on a GPU also takes some main memory."""
    return [allocation for allocation in trace.allocations if allocation.device == place and allocation.bytes]


def _usage(trace: Trace, place: str) -> list[tuple[int, int, int]]:
    """Return for each operator the bytes that outlive it, the peak of its temporary memory, and the bytes alive when it ends."""
    made, workspace, taken = ([0] * len(trace.operators) for _ in range(3))
    alive_after = [0] * len(trace.operators)
    alive, reached = 0, 0
    for block in categorise(_on(trace, place), trace.results):
        op = block.allocation.op
        if op is not None and not block.allocation.inside:
            _fill(alive_after, reached, op + 1, alive)
            reached = max(reached, op + 1)
        elif op is not None:
            _fill(alive_after, reached, op, alive)
            reached = max(reached, op)
            if block.category not in _OUTLIVES:
                taken[op] += block.allocation.bytes
                workspace[op] = max(workspace[op], taken[op])
            elif block.allocation.bytes > 0:
                made[op] += block.allocation.bytes
        alive += block.allocation.bytes
    _fill(alive_after, reached, len(alive_after), alive)
    return list(zip(made, workspace, alive_after, strict=True))


def _fill(values: list[int], start: int, end: int, value: int) -> None:
    for index in range(start, end):
        values[index] = value


def _durations(material: Material) -> list[list[float]]:
    names = material.warm.names
    durations: list[list[float]] = [[] for _ in names]
    for trace in material.timed:
        if trace.names == names:
            for taken, operator in zip(durations, trace.operators, strict=True):
                taken.append(operator.seconds / 1000)
    return durations


def times_by_node(trace: Trace, names: Sequence[str], per_call: Sequence[Sequence[float]]) -> dict[int, Times]:
    """Times of operators from those of the calls below them; nothing where the run called other operators."""
    if list(trace.names) != list(names):
        return {}
    found = {index: _summed(operator.outs, per_call) for index, operator in enumerate(trace.operators) if operator.outs}
    return {index: times for index, times in found.items() if times is not None}


def _summed(calls: Iterable[int], per_call: Sequence[Sequence[float]]) -> Times | None:
    columns = [per_call[call] for call in calls]
    return times_of([sum(parts) for parts in zip(*columns, strict=True)])


def output_types(
    trace: Trace, types: Sequence[tuple[str, ...]], names: Sequence[str], results: Callable[[str], int]
) -> dict[int, tuple[str, ...]]:
    """Return the types of what operators returned: those of the last call below each, of which an operator may keep some to itself."""
    if list(trace.names) != list(names):
        return {}
    called = ((index, operator) for index, operator in enumerate(trace.operators) if operator.outs)
    return {index: types[operator.outs[-1]][: results(operator.name)] for index, operator in called}
