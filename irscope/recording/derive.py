"""What follows from a recording's events: bytes alive over the run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from irscope.recording.records import WARM, Counters, Level, MemoryEvent, Recording

WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest point of a run."""

    bytes: int
    """Beyond what was there before."""
    event: int
    """Number of the event that reaches it, among those of the run; -1 without events."""
    op: int | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The four figures of a run, in bytes. None where the executor does not tell."""

    baseline: int | None
    """In use before: the model and its inputs."""
    peak: int | None
    """The most in use at one time, the baseline included."""
    delta: int | None
    """What the run added: peak without the baseline."""
    reserved: int | None
    """What the allocator held at its highest."""


def alive_curve(events: Sequence[MemoryEvent]) -> list[int]:
    """Bytes alive after each event, beyond those that were there before."""
    return list(itertools.accumulate(event.bytes for event in events))


def without_workspaces(events: Sequence[MemoryEvent]) -> list[MemoryEvent]:
    """The events without memory that kernels took only for themselves."""
    return [event for event in events if event.category != WORKSPACE]


def peak_of(events: Sequence[MemoryEvent]) -> Peak:
    """The highest point of these events."""
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
