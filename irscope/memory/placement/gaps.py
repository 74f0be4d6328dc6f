"""Placing buffers one after the other, each into a gap that those already placed leave open."""

from __future__ import annotations

import numpy as np

from irscope.memory.placement.problem import Numbers, Problem


class Gaps:
    """Buffers placed so far, sorted by offset, so that those that overlap in time are found in that order, too."""

    def __init__(self, problem: Problem) -> None:
        count = len(problem)
        self._lower = np.empty(count, dtype=np.int64)
        self._upper = np.empty(count, dtype=np.int64)
        self._bottom = np.empty(count, dtype=np.int64)
        self._top = np.empty(count, dtype=np.int64)
        self._placed = 0

    def find(self, lower: int, upper: int, size: int, *, tightest: bool) -> int:
        """The lowest offset where it fits, or the one in the smallest gap it fits into."""
        placed = self._placed
        together = np.flatnonzero((self._lower[:placed] < upper) & (self._upper[:placed] > lower))
        if not len(together):
            return 0
        ceilings = np.maximum.accumulate(self._top[together])
        floors = np.concatenate(([0], ceilings[:-1]))
        rooms = self._bottom[together] - floors
        fitting = np.flatnonzero(rooms >= size)
        if not len(fitting):
            return int(ceilings[-1])
        chosen = fitting[np.argmin(rooms[fitting])] if tightest else fitting[0]
        return int(floors[chosen])

    def put(self, lower: int, upper: int, size: int, offset: int) -> None:
        """Place a buffer."""
        placed = self._placed
        at = int(np.searchsorted(self._bottom[:placed], offset))
        for column, number in (
            (self._lower, lower),
            (self._upper, upper),
            (self._bottom, offset),
            (self._top, offset + size),
        ):
            column[at + 1 : placed + 1] = column[at:placed]
            column[at] = number
        self._placed += 1


def place_in_order(problem: Problem, order: Numbers, *, tightest: bool) -> Numbers:
    """Offsets when buffers are placed in this order."""
    gaps = Gaps(problem)
    offsets = np.zeros(len(problem), dtype=np.int64)
    lower, upper, size = problem.lower.tolist(), problem.upper.tolist(), problem.size.tolist()
    for buffer in order.tolist():
        offset = gaps.find(lower[buffer], upper[buffer], size[buffer], tightest=tightest)
        gaps.put(lower[buffer], upper[buffer], size[buffer], offset)
        offsets[buffer] = offset
    return offsets
