"""Training steps through the simulated allocator, and the bytes alive in the steady step by category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.devices import Target
from irscope.memory.caching import BOUNDLESS, Block, CachingAllocator, OutOfMemory
from irscope.passes.cuda.moments import ROUNDING, Moments, Stretch, moments
from irscope.passes.cuda.replay import Bytes
from irscope.passes.cuda.result import Counter, bracketed, fitting
from irscope.passes.training.stream import StepStream, step_stream
from irscope.report.values import Quantity, largest, quantity
from irscope.training.trace import CATEGORIES, PHASES, Phase, Trace

When: TypeAlias = Literal["peak", "after"]


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
    sizes: list[int]
    """Bytes of each slot, as predicted."""
    before: Bytes
    """Once parameters, buffers and inputs are on the device."""
    steps: list[StepBytes]
    moments: Moments
    """The steady step operator by operator."""
    fits: bool
    low: list[StepBytes] | None = None
    """The least that is possible in each step, where sizes are not known or modelled; None where everything is exact."""
    high: list[StepBytes] | None = None
    """The most; None where nothing bounds it."""

    @property
    def steady(self) -> StepBytes:
        """The step that stands for all later ones."""
        return self.steps[-1]

    @property
    def alive(self) -> dict[str, NDArray[np.int64]]:
        """For each operator of the steady step, bytes by category at its highest moment: they add up to what is allocated."""
        columns = self.moments.columns()
        return {category: np.array([quantity(cell).value for cell in column], dtype=np.int64) for category, column in columns.items()}

    @property
    def total(self) -> NDArray[np.int64]:
        """For each operator of the steady step, the most that is allocated."""
        return np.array(self.moments.allocated, dtype=np.int64)

    @property
    def peak_step(self) -> int:
        """The operator of the steady step at which most is allocated, counted from the step's first."""
        return self.moments.peak_step

    def counter(self, counter: Counter, step: int = -1, when: When = "peak") -> Quantity:
        """What one of the allocator's counters says of a step, with the interval it lies in; the last step stands for all later ones."""

        def read(steps: Sequence[StepBytes]) -> int:
            found: int = getattr(getattr(steps[step], when), counter)
            return found

        if self.low is None or (when == "after" and counter == "requested" and self.stream.is_passing):
            return Quantity(read(self.steps))
        return bracketed(counter, read(self.steps), (read(self.low), None if self.high is None else read(self.high)), self._why_open())

    def worst(self, counter: Counter) -> Quantity:
        """The most of all steps."""
        return largest(self.counter(counter, step) for step in range(len(self.steps)))

    @property
    def verdict(self) -> Quantity:
        """Whether the steps fit; modelled where it may be otherwise within what is possible."""
        low, high = (None if ends is None else _reserved(ends) for ends in (self.low, self.high))
        return fitting(self.fits, self.target, low, high, self.worst("reserved"))

    def at_peak(self) -> dict[str, Quantity]:
        """Bytes by category at the peak, the rounding of blocks too; they add up to it."""
        return {category: self.moments.at_peak(category) for category in (*CATEGORIES, ROUNDING)}

    def phase_peaks(self) -> dict[Phase, Quantity]:
        """The most that is allocated in each phase of the steady step."""
        phases = [op.phase for op in self.trace.in_step(self.trace.steady)]
        total = self.moments.counted(self.moments.allocated)
        return {phase: largest(total[at] for at, one in enumerate(phases) if one == phase) for phase in PHASES}

    def _why_open(self) -> str:
        spreads = list(self.stream.spreads.values())
        return next((spread.reason for spread in spreads if self.high is None and spread.high is None), spreads[0].reason)


def _reserved(steps: Sequence[StepBytes]) -> int:
    return max(step.peak.reserved for step in steps)


def replay_steps(trace: Trace, target: Target) -> StepMemory:
    """Run the steps through the allocator; on a boundless device where they do not fit."""
    stream = step_stream(trace, target)
    sizes, room = stream.numbers("central"), target.device.room_bytes
    try:
        found, fits = _replay(trace, target, stream, sizes, room), True
    except OutOfMemory:
        found, fits = _replay(trace, target, stream, sizes, BOUNDLESS), False
    if stream.is_exact:
        return StepMemory(
            trace, target, stream, sizes, found.before, found.steps, _moments(trace, stream, found, sizes, sizes, sizes), fits
        )
    least, most = stream.numbers("low"), stream.most()
    low, high = (None if ends is None else _replay(trace, target, stream, ends, BOUNDLESS).steps for ends in (least, most))
    return StepMemory(
        trace, target, stream, sizes, found.before, found.steps, _moments(trace, stream, found, sizes, least, most), fits, low, high
    )


@dataclass
class _Replayed:
    before: Bytes
    steps: list[StepBytes]
    base: int = 0
    """Allocated when the steady step begins."""
    blocks: list[int] = field(default_factory=list)
    """For each event of the steady step, by how many bytes `allocated` changed."""


def _replay(trace: Trace, target: Target, stream: StepStream, sizes: Sequence[int], room: int | None) -> _Replayed:
    gpu = CachingAllocator("{}.{}".format(*target.torch), target.alloc_conf, room)
    blocks: list[Block | None] = [None] * len(sizes)
    for slot in stream.resident:
        blocks[slot] = gpu.malloc(sizes[slot]) if sizes[slot] else None
    counted = gpu.counters()
    found = _Replayed(Bytes(counted.requested, counted.allocated, counted.reserved), [])
    at = 0
    for span in trace.steps:
        first, end = stream.starts[span.first], stream.starts[span.end]
        _run(gpu, stream, sizes, blocks, range(at, first), [])
        gpu.reset_peaks()
        found.base, found.blocks = gpu.counters().allocated, []
        _run(gpu, stream, sizes, blocks, range(first, end), found.blocks)
        at = end
        counted = gpu.counters()
        found.steps.append(
            StepBytes(
                span.name,
                Bytes(counted.requested_peak, counted.allocated_peak, counted.reserved_peak),
                Bytes(counted.requested, counted.allocated, counted.reserved),
            )
        )
    return found


def _run(
    gpu: CachingAllocator, stream: StepStream, sizes: Sequence[int], blocks: list[Block | None], which: range, changes: list[int]
) -> None:
    events = stream.events
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


def _moments(
    trace: Trace, stream: StepStream, found: _Replayed, sizes: Sequence[int], low: Sequence[int], high: Sequence[int] | None
) -> Moments:
    """Bytes by category at the highest moment of each operator of the last step."""
    span = trace.steady
    first, end = stream.starts[span.first], stream.starts[span.end]
    before = set(stream.resident)
    for event in stream.events[:first]:
        if event >= 0:
            before.add(event)
        else:
            before.discard(~event)
    held: dict[str, int] = dict.fromkeys(CATEGORIES, 0)
    for slot in before:
        held[stream.kinds[slot]] += sizes[slot]
    starts = [start - first for start in stream.starts[span.first : span.end + 1]]
    reserved = [(0, found.steps[-1].peak.reserved)]
    stretch = Stretch(stream.events[first:end], starts, found.blocks, found.base, reserved, held, before, follows=len(trace.steps) > 1)
    return moments(stream, stretch, CATEGORIES, sizes, low, high)
