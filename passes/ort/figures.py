"""Two runs of a session through the arena: bytes after each kernel, and the peaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from irscope.memory.bfc import BfcArena, Chunk, Strategy
from irscope.passes.ort.pattern import pattern_bytes
from irscope.passes.ort.plan import Buffers


@dataclass(frozen=True, slots=True)
class OrtUsage:
    """Bytes as ONNX Runtime's profile counts them."""

    requested: int
    """In use, as asked for: mem_bytes_requested_in_use. As a peak, the most after any kernel."""
    allocated: int
    """In use, as chunks of the arena: mem_bytes_in_use. As a peak, mem_in_use_peak, which includes temporary memory of kernels."""
    reserved: int
    """Held by the arena: mem_arena_held."""


@dataclass(frozen=True, slots=True)
class OrtRun:
    """One run."""

    peak: OrtUsage
    requested: list[int] = field(repr=False)
    """mem_bytes_requested_in_use after each kernel."""
    allocated: list[int] = field(repr=False)
    """mem_bytes_in_use after each kernel."""
    peak_step: int
    """The step after which most bytes are in use, as asked for."""
    highest: list[int] = field(repr=False)
    """Peak bytes in use while each kernel runs, as chunks of the arena, its temporary memory included."""


@dataclass(frozen=True, slots=True)
class OrtFigures:
    """Memory of a session before it runs, and in its first and second run."""

    before: OrtUsage
    cold: OrtRun
    warm: OrtRun
    pattern: int
    """Bytes of the memory-pattern block of the second run, for all values but the outputs; 0 without a pattern."""
    takes: Sequence[int] = field(default=(), repr=False)
    """Temporary memory of each kernel, in bytes."""


@dataclass(frozen=True, slots=True)
class Session:
    """Memory of a session besides its buffers."""

    packed: Sequence[int]
    """Bytes of weights that are packed or copied before the first run."""
    takes: Sequence[int]
    """Temporary memory of each kernel, in bytes."""
    strategy: Strategy
    pattern: bool


def simulate(buffers: Buffers, sizes: Sequence[int], traced: Sequence[bool], session: Session) -> OrtFigures:
    """Pack weights, then run twice. `sizes` are bytes of values; those that `traced` marks have an offset in the second run's block."""
    arena = BfcArena(session.strategy)
    for size in session.packed:
        arena.reserve(size)
    before = _usage(arena)
    all_alone = [True] * len(sizes)
    cold = _run(arena, buffers, sizes, session.takes, all_alone)
    block = pattern_bytes(buffers, sizes, traced) if session.pattern else 0
    if not block:
        return OrtFigures(before, cold, _run(arena, buffers, sizes, session.takes, all_alone), 0, session.takes)
    chunk = arena.malloc(block)
    alone = [is_output or not in_block for is_output, in_block in zip(buffers.is_output, traced, strict=True)]
    warm = _run(arena, buffers, sizes, session.takes, alone)
    arena.free(chunk)
    return OrtFigures(before, cold, warm, block, session.takes)


def _run(arena: BfcArena, buffers: Buffers, sizes: Sequence[int], takes: Sequence[int], alone: Sequence[bool]) -> OrtRun:
    """One run; only values that `alone` marks take memory from the arena."""
    arena.reset_peaks()
    chunks: dict[int, Chunk | None] = {}
    requested: list[int] = []
    allocated: list[int] = []
    highest: list[int] = []
    malloc, free = arena.malloc, arena.free
    for step, taken in enumerate(buffers.taken):
        for value in taken:
            if alone[value]:
                chunks[value] = malloc(sizes[value])
        own = malloc(takes[step]) if takes[step] else None
        highest.append(arena.in_use)
        free(own)
        requested.append(arena.requested)
        allocated.append(arena.in_use)
        for value in buffers.dropped[step]:
            free(chunks.pop(value, None))
    counters = arena.counters()
    for chunk in chunks.values():
        free(chunk)
    most = max(requested, default=arena.requested)
    peak = OrtUsage(most, counters.in_use_peak, counters.held_peak)
    return OrtRun(peak, requested, allocated, requested.index(most) if requested else 0, highest)


def _usage(arena: BfcArena) -> OrtUsage:
    return OrtUsage(arena.requested, arena.in_use, arena.held)
