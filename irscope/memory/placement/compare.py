"""What other planners would do with the same buffers, and whether a plan holds."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from irscope.memory.bfc import BfcArena
from irscope.memory.caching import BOUNDLESS, CachingAllocator
from irscope.memory.placement.problem import make_problem, place_in_order

T = TypeVar("T")


def while_running(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], alignment: int) -> int:
    """Arena bytes where each buffer gets the tightest gap open at its birth, as ONNX Runtime does when it traces its first run."""
    problem = make_problem(lower, upper, size, alignment)
    used: list[tuple[int, int, int]] = []
    height = 0
    order = sorted(range(len(size)), key=lambda buffer: lower[buffer])
    sizes = problem.size.tolist()
    for buffer in order:
        if not sizes[buffer] or upper[buffer] == lower[buffer]:
            continue
        used = [one for one in used if one[2] > lower[buffer]]
        offset = _tightest(used, sizes[buffer])
        used.append((offset, offset + sizes[buffer], upper[buffer]))
        used.sort()
        height = max(height, offset + sizes[buffer])
    return height


def _tightest(used: list[tuple[int, int, int]], size: int) -> int:
    floor, best, best_room = 0, -1, 0
    for bottom, top, _ in used:
        room = bottom - floor
        if room >= size and (best < 0 or room < best_room):
            best, best_room = floor, room
        floor = max(floor, top)
    return best if best >= 0 else floor


def greedy_by_size(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], alignment: int) -> int:
    """Arena bytes where the largest buffers come first and each gets the tightest gap, as TensorFlow Lite plans."""
    problem = make_problem(lower, upper, size, alignment)
    matters = np.flatnonzero((problem.size > 0) & (problem.upper > problem.lower))
    part = problem.part(matters)
    order = np.lexsort((part.lower, -part.size))
    return part.height(place_in_order(part, order, tightest=True))


def held_by_arena(lower: Sequence[int], upper: Sequence[int], size: Sequence[int]) -> int:
    """Bytes that ONNX Runtime's arena takes from the device where each buffer is asked for when it is made."""
    arena = BfcArena()
    for alive in _replay(lower, upper, size, arena.malloc):
        arena.free(alive)
    return arena.counters().held_peak


def reserved_by_torch(lower: Sequence[int], upper: Sequence[int], size: Sequence[int]) -> int:
    """Bytes that PyTorch's CUDA allocator reserves where each buffer is asked for when it is made."""
    allocator = CachingAllocator(total_memory=BOUNDLESS)
    for block in _replay(lower, upper, size, allocator.malloc):
        allocator.free(block)
    return allocator.counters().reserved_peak


def _replay(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], take: Callable[[int], T]) -> Iterator[T]:
    """Ask for buffers in the order of their starts; yields what is to be let go of, before what starts at its end is asked for."""
    alive: list[tuple[int, int]] = []
    taken: dict[int, T] = {}
    for buffer in sorted(range(len(size)), key=lambda one: lower[one]):
        if not size[buffer] or upper[buffer] == lower[buffer]:
            continue
        while alive and alive[0][0] <= lower[buffer]:
            yield taken.pop(heapq.heappop(alive)[1])
        taken[buffer] = take(size[buffer])
        heapq.heappush(alive, (upper[buffer], buffer))


def overlap(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], offsets: Sequence[int]) -> tuple[int, int] | None:
    """Two buffers that are alive together and share a byte; None where there are none."""
    # A sweep over offsets per moment would do more work: at each birth only those alive can be in the way.
    alive: list[int] = []
    for buffer in sorted(range(len(size)), key=lambda one: lower[one]):
        if not size[buffer] or upper[buffer] == lower[buffer]:
            continue
        alive = [one for one in alive if upper[one] > lower[buffer]]
        start, end = offsets[buffer], offsets[buffer] + size[buffer]
        for one in alive:
            if offsets[one] < end and start < offsets[one] + size[one]:
                return one, buffer
        alive.append(buffer)
    return None
