"""Buffers to be placed: when each is alive, how large it is, and which are alive together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.errors import UsageError

Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """Buffers by index; each is alive from `lower` up to, not including, `upper`."""

    lower: Numbers
    upper: Numbers
    size: Numbers

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def moments(self) -> list[Numbers]:
        """Buffers alive together, for each moment that no other one includes."""
        return _moments(self.lower, self.upper)

    @cached_property
    def loads(self) -> Numbers:
        """Bytes alive at each of the moments."""
        return np.array([self.size[alive].sum() for alive in self.moments], dtype=np.int64)

    @cached_property
    def max_live(self) -> int:
        """Most bytes alive at once: no arena can be lower."""
        return max_live(self.lower, self.upper, self.size)

    def part(self, buffers: Numbers) -> Problem:
        """Only these buffers."""
        return Problem(self.lower[buffers], self.upper[buffers], self.size[buffers])

    def height(self, offsets: Numbers) -> int:
        """The height of an arena with these offsets."""
        return int((offsets + self.size).max(initial=0))


def make_problem(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], alignment: int) -> Problem:
    """Checked buffers with sizes rounded up, so that offsets that only add sizes stay aligned."""
    if not len(lower) == len(upper) == len(size):
        raise UsageError(
            f"buffers need as many starts as ends and sizes: {len(lower)}, {len(upper)} and {len(size)} were given", code="IRS350"
        )
    if alignment < 1:
        raise UsageError(f"an alignment of {alignment} bytes is not possible: it must be at least 1", code="IRS351")
    starts, ends, sizes = (np.asarray(numbers, dtype=np.int64).reshape(-1) for numbers in (lower, upper, size))
    for index in np.flatnonzero((ends < starts) | (sizes < 0))[:1].tolist():
        raise UsageError(
            f"buffer {index} lives from {starts[index]} to {ends[index]} and has {sizes[index]} bytes: it must not end before it starts, "
            "nor have less than 0 bytes",
            code="IRS350",
        )
    return Problem(starts, ends, -(-sizes // alignment) * alignment)


def max_live(lower: Numbers, upper: Numbers, size: Numbers) -> int:
    """Most bytes alive at once."""
    times = np.concatenate([upper, lower])
    changes = np.concatenate([-size, size])
    # What ends at a time makes room before what starts at it.
    order = np.lexsort((changes > 0, times))
    return int(np.cumsum(changes[order]).max(initial=0))


def apart(problem: Problem) -> list[Numbers]:
    """Groups of buffers that share no moment with one another, each in the order of its starts."""
    order = np.argsort(problem.lower, kind="stable")
    ends = np.maximum.accumulate(problem.upper[order])
    cuts = np.flatnonzero(problem.lower[order][1:] >= ends[:-1]) + 1
    return np.split(order, cuts)


def _moments(lower: Numbers, upper: Numbers) -> list[Numbers]:
    """The largest sets alive together: the moments just before an end that follows a start."""
    count = len(lower)
    times = np.concatenate([upper, lower])
    is_start = np.repeat([False, True], count)
    alive: dict[int, None] = {}
    found: list[Numbers] = []
    grew = False
    for event in np.lexsort((is_start, times)).tolist():
        if event >= count:
            alive[event - count] = None
            grew = True
            continue
        if grew:
            found.append(np.fromiter(alive, dtype=np.int64, count=len(alive)))
            grew = False
        del alive[event]
    return found


# ----------------------------------------------------------------------------------------------------
# Placing buffers one after the other, each into a gap that those already placed leave open.


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
