"""Training steps through the simulated allocator, and the bytes alive in the steady step by category."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irscope.devices import Target
from irscope.memory.caching import Block, CachingAllocator, OutOfMemory
from irscope.passes.cuda.replay import Bytes
from irscope.passes.training.stream import StepStream, step_stream
from irscope.training.trace import CATEGORIES, PHASES, Category, Phase, Trace

_BOUNDLESS = 1 << 60


@dataclass(frozen=True)
class StepBytes:
    """What torch.cuda.memory_stats() says of one step: the peak within it, and what is there after it."""

    name: str
    peak: Bytes
    after: Bytes


@dataclass
class StepMemory:
    """The memory of a captured training on a device."""

    trace: Trace
    target: Target
    stream: StepStream
    before: Bytes
    """Once parameters, buffers and inputs are on the device."""
    steps: list[StepBytes]
    alive: dict[Category, NDArray[np.int64]]
    """For each operator of the steady step, bytes by category at its highest moment."""
    allocated: NDArray[np.int64]
    """For each operator of the steady step, what the allocator has handed out at that moment, rounded to its blocks."""
    remaining: NDArray[np.int64]
    """For each operator of the steady step, bytes alive once it is done."""
    fits: bool

    @property
    def steady(self) -> StepBytes:
        """The step that stands for all later ones."""
        return self.steps[-1]

    @property
    def total(self) -> NDArray[np.int64]:
        """For each operator of the steady step, the most bytes alive."""
        parts = list(self.alive.values())
        return np.sum(parts, axis=0) if parts else np.zeros(0, dtype=np.int64)

    @property
    def peak_step(self) -> int:
        """The operator of the steady step at which most is alive, counted from the step's first."""
        return int(np.argmax(self.total)) if len(self.total) else 0

    def at_peak(self) -> dict[Category, int]:
        """Bytes by category at the peak; they add up to it."""
        return {category: int(column[self.peak_step]) if len(column) else 0 for category, column in self.alive.items()}

    def phase_peaks(self) -> dict[Phase, int]:
        """The most bytes alive in each phase of the steady step."""
        phases = [op.phase for op in self.trace.in_step(self.trace.steady)]
        total = self.total
        return {phase: max((int(total[at]) for at, one in enumerate(phases) if one == phase), default=0) for phase in PHASES}


def replay_steps(trace: Trace, target: Target) -> StepMemory:
    """Run the steps through the allocator; on a boundless device where they do not fit."""
    stream = step_stream(trace, target)
    try:
        return _replay(trace, target, stream, target.device.room_bytes, fits=True)
    except OutOfMemory:
        return _replay(trace, target, stream, _BOUNDLESS, fits=False)


def _replay(trace: Trace, target: Target, stream: StepStream, room: int | None, *, fits: bool) -> StepMemory:
    gpu = CachingAllocator("{}.{}".format(*target.torch), target.alloc_conf, room)
    blocks: list[Block | None] = [None] * len(stream.sizes)
    for slot in stream.resident:
        blocks[slot] = gpu.malloc(stream.sizes[slot]) if stream.sizes[slot] else None
    counted = gpu.counters()
    before = Bytes(counted.requested, counted.allocated, counted.reserved)
    steps: list[StepBytes] = []
    changes: list[int] = []
    at = 0
    for span in trace.steps:
        first, end = stream.starts[span.first], stream.starts[span.end]
        _run(gpu, stream, blocks, range(at, first), [])
        gpu.reset_peaks()
        base = gpu.counters().allocated
        changes = []
        _run(gpu, stream, blocks, range(first, end), changes)
        at = end
        counted = gpu.counters()
        steps.append(
            StepBytes(
                span.name,
                Bytes(counted.requested_peak, counted.allocated_peak, counted.reserved_peak),
                Bytes(counted.requested, counted.allocated, counted.reserved),
            )
        )
    alive, allocated, remaining = _alive(trace, stream, base, changes)
    return StepMemory(trace, target, stream, before, steps, alive, allocated, remaining, fits)


def _run(gpu: CachingAllocator, stream: StepStream, blocks: list[Block | None], which: range, changes: list[int]) -> None:
    events, sizes = stream.events, stream.sizes
    for place in which:
        event = events[place]
        if event >= 0:
            block = blocks[event] = gpu.malloc(sizes[event]) if sizes[event] else None
            changes.append(block.size if block is not None else 0)
        else:
            taken = blocks[~event]
            changes.append(0 if taken is None else -taken.size)
            if taken is not None:
                gpu.free(taken)
                blocks[~event] = None


def _alive(
    trace: Trace, stream: StepStream, base: int, blocks: list[int]
) -> tuple[dict[Category, NDArray[np.int64]], NDArray[np.int64], NDArray[np.int64]]:
    """Bytes by category at the highest moment of each operator of the last step."""
    span = trace.steady
    first = stream.starts[span.first]
    kinds = np.array([CATEGORIES.index(kind) for kind in stream.kinds], dtype=np.int64)
    sizes = np.array(stream.sizes, dtype=np.int64)
    events = np.array(stream.events[: stream.starts[span.end]], dtype=np.int64)
    slots = np.where(events >= 0, events, ~events)
    changes = sizes[slots] * np.where(events >= 0, 1, -1)
    resident = np.array(stream.resident, dtype=np.int64)
    starts = np.array([stream.starts[number] - first for number in range(span.first, span.end + 1)], dtype=np.int64)
    by_kind: list[NDArray[np.int64]] = []
    for number in range(len(CATEGORIES)):
        held = int(sizes[resident[kinds[resident] == number]].sum()) if len(resident) else 0
        own = np.where(kinds[slots] == number, changes, 0)
        begins = held + int(own[:first].sum())
        by_kind.append(begins + np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(own[first:]))))
    total = np.sum(by_kind, axis=0)
    places = np.array([_highest(total, starts[number], starts[number + 1]) for number in range(len(starts) - 1)], dtype=np.int64)
    taken = base + np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.array(blocks, dtype=np.int64))))
    return {category: column[places] for category, column in zip(CATEGORIES, by_kind, strict=True)}, taken[places], total[starts[1:]]


def _highest(total: NDArray[np.int64], first: int, end: int) -> int:
    """The moment of most bytes while an operator runs."""
    return int(first) + int(np.argmax(total[first : end + 1]))
