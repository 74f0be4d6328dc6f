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
    """In use, as chunks of the arena: mem_bytes_in_use. As a peak, mem_in_use_peak, which also sees what kernels take while they run."""
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
    """The most bytes in use while each kernel runs, as chunks of the arena, with what it takes for itself."""


@dataclass(frozen=True, slots=True)
class OrtFigures:
    """What a session holds before it runs, and what its first and second run add."""

    before: OrtUsage
    cold: OrtRun
    warm: OrtRun
    pattern: int
    """Bytes of the block that the second run takes for all that it does not return; 0 without a memory pattern."""
    takes: Sequence[int] = field(default=(), repr=False)
    """Bytes that each kernel takes while it runs."""


@dataclass(frozen=True, slots=True)
class Session:
    """What a session has besides its buffers."""

    packed: Sequence[int]
    """Bytes of weights that it packs or copies before it runs."""
    takes: Sequence[int]
    """Bytes that each kernel takes while it runs."""
    strategy: Strategy
    pattern: bool


def simulate(buffers: Buffers, sizes: Sequence[int], traced: Sequence[bool], session: Session) -> OrtFigures:
    """Pack weights, then run twice. `sizes` are bytes of values; those that `traced` marks have a place in the second run's block."""
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
