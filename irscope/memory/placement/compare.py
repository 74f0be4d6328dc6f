"""What other planners would do with the same buffers, and whether a plan holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irscope.memory.placement.gaps import place_in_order
from irscope.memory.placement.problem import make_problem


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
