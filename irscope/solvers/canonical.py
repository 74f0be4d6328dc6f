"""Search for a placement below a given height, from the bottom up.

Every placement can be pushed down until each buffer stands on the floor or on another one, and be told in the order of its offsets.
So it is enough to place, again and again, one of the buffers that could now stand lowest; what stands must leave, at every
moment, enough room for all that is still to come. (The idea is that of MiniMalloc, Moffitt, ASPLOS 2023.)
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.immutable import immutable

Numbers: TypeAlias = NDArray[np.int64]


@immutable(slots=False)
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


def max_live(lower: Numbers, upper: Numbers, size: Numbers) -> int:
    """Most bytes alive at once."""
    times = np.concatenate([upper, lower])
    changes = np.concatenate([-size, size])
    # What ends at a time makes room before what starts at it.
    order = np.lexsort((changes > 0, times))
    return int(np.cumsum(changes[order]).max(initial=0))


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


_PLACED = np.int64(1 << 60)
"""Stands for the lowest possible offset of a buffer that needs no place any more."""


Attempt: TypeAlias = Generator["Attempt", bool, bool]
"""Part of a search; it may hand over to another part and is told whether that succeeded. There can be more levels than calls may nest."""


class OutOfSteps(Exception):
    """The search was stopped before it knew."""


class Floors:
    """What of a problem stays the same from search to search."""

    def __init__(self, problem: Problem) -> None:
        count, moments = len(problem), len(problem.moments)
        self.problem = problem
        self.members = np.concatenate(problem.moments)
        self.starts = np.cumsum([0, *map(len, problem.moments)])
        self.first = np.full(count, moments, dtype=np.int64)
        self.last = np.zeros(count, dtype=np.int64)
        for moment, alive in enumerate(problem.moments):
            self.first[alive] = np.minimum(self.first[alive], moment)
            self.last[alive] = moment
        together = (problem.lower[:, None] < problem.upper) & (problem.upper[:, None] > problem.lower)
        np.fill_diagonal(together, False)
        self.together: NDArray[np.bool_] = together
        self.neighbours = [np.flatnonzero(row) for row in together]
        ends = np.zeros(moments + 1, dtype=np.int64)
        np.add.at(ends, self.first, 1)
        np.add.at(ends, self.last, -1)
        self.crossing = np.cumsum(ends)[: moments - 1]
        """Buffers that live across the border after each moment but the last."""


class PlainSearch:
    """The search with numpy alone; the order is one of preference among buffers that could stand equally low."""

    def __init__(self, floors: Floors) -> None:
        self._floors = floors
        self._size = floors.problem.size
        self._sizes = self._size.tolist()
        self._first, self._last = floors.first.tolist(), floors.last.tolist()

    def run(self, capacity: int, order: Numbers, steps: int) -> Numbers | None:
        """Offsets below the capacity, or None where there are none. Raises OutOfSteps."""
        problem = self._floors.problem
        if problem.max_live > capacity:
            return None
        self._capacity = capacity
        self._rank = np.empty(len(order), dtype=np.int64)
        self._rank[order] = np.arange(len(order))
        self._steps_left = steps
        self._offsets = np.zeros(len(order), dtype=np.int64)
        lowest = np.zeros(len(problem), dtype=np.int64)
        found = _run(self._fill(0, len(problem.moments), lowest, problem.loads, self._floors.crossing, 0, -1))
        return self._offsets if found else None

    def _fill(self, begin: int, end: int, lowest: Numbers, loads: Numbers, crossing: Numbers, level: int, previous: int) -> Attempt:
        """Place all buffers of the moments from `begin` to `end` that still need a place, none of them below `level`."""
        for buffer in self._candidates(lowest):
            offset = int(lowest[buffer])
            # Two that stand equally high and side by side are told in one order only.
            if offset == level and self._comes_before(buffer, previous):
                continue
            if self._steps_left == 0:
                raise OutOfSteps
            self._steps_left -= 1
            raised, left = self._after(buffer, offset, lowest, loads)
            if not self._has_room(begin, end, raised, left):
                continue
            self._offsets[buffer] = offset
            if (yield self._fill_parts(buffer, begin, end, raised, left, crossing, offset)):
                return True
        return False

    def _comes_before(self, buffer: int, previous: int) -> bool:
        """Whether it could have been placed before the previous one, and would have been preferred."""
        return previous >= 0 and bool(self._rank[buffer] < self._rank[previous] and not self._floors.together[buffer, previous])

    def _candidates(self, lowest: Numbers) -> list[int]:
        """Buffers that could be next, lowest first: below the lowest top, else another one would fit underneath."""
        found = np.flatnonzero(lowest < (lowest + self._size).min())
        if len(found) > 1:
            found = found[np.lexsort((self._rank[found], lowest[found]))]
        order: list[int] = found.tolist()
        return order

    def _after(self, buffer: int, offset: int, lowest: Numbers, loads: Numbers) -> tuple[Numbers, Numbers]:
        """Lowest offsets, and bytes to come at each moment, once a buffer is placed."""
        raised = np.maximum(lowest, offset)
        raised[buffer] = _PLACED
        neighbours = self._floors.neighbours[buffer]
        raised[neighbours] = np.maximum(raised[neighbours], offset + self._sizes[buffer])
        left = loads.copy()
        left[self._first[buffer] : self._last[buffer] + 1] -= self._sizes[buffer]
        return raised, left

    def _has_room(self, begin: int, end: int, lowest: Numbers, loads: Numbers) -> bool:
        """Whether at every moment what is to come fits between the lowest place for any of it and the top."""
        starts = self._floors.starts
        members = self._floors.members[starts[begin] : starts[end]]
        floors = np.minimum.reduceat(lowest[members], starts[begin:end] - starts[begin])
        to_come = loads[begin:end]
        return not bool(((floors + to_come > self._capacity) & (to_come > 0)).any())

    def _fill_parts(self, buffer: int, begin: int, end: int, lowest: Numbers, loads: Numbers, crossing: Numbers, level: int) -> Attempt:
        """Go on, apart for each stretch of time that no waiting buffer connects with another one."""
        first, last = self._first[buffer], self._last[buffer]
        if last > first:
            crossing = crossing.copy()
            crossing[first:last] -= 1
        borders = (np.flatnonzero(crossing[begin : end - 1] == 0) + begin + 1).tolist()
        cuts = [begin, *borders, end]
        parts = [(low, high) for low, high in pairwise(cuts) if loads[low:high].any()]
        if len(parts) == 1:
            return (yield self._fill(*parts[0], lowest, loads, crossing, level, buffer))
        # Short stretches first: where there is no way at all, that is known soonest.
        for low, high in sorted(parts, key=lambda part: part[1] - part[0]):
            inside = (self._floors.first >= low) & (self._floors.last < high)
            if not (yield self._fill(low, high, np.where(inside, lowest, _PLACED), loads, crossing, level, -1)):
                return False
        return True


def _run(attempt: Attempt) -> bool:
    """The answer of an attempt and of all that it hands over to."""
    waiting = [attempt]
    answer: bool | None = None
    while waiting:
        try:
            waiting.append(next(waiting[-1]) if answer is None else waiting[-1].send(answer))
            answer = None
        except StopIteration as done:
            waiting.pop()
            answer = bool(done.value)
    return bool(answer)


class CompiledSearch:
    """The same search as machine code: some hundred times as many steps a second. Only where `can_compile` says so."""

    def __init__(self, floors: Floors) -> None:
        from irscope.solvers.fill import Fixed, fill, new_state

        self._floors, self._fill, self._new_state = floors, fill, new_state
        self._order = np.argsort(floors.first, kind="stable")
        place = np.empty(len(self._order), dtype=np.int64)
        place[self._order] = np.arange(len(place))
        first = floors.first[self._order].astype(np.int64)
        near = [place[floors.neighbours[buffer]] for buffer in self._order]
        self._fixed = Fixed(
            size=floors.problem.size[self._order],
            first=first,
            last=floors.last[self._order].astype(np.int64),
            born=np.searchsorted(first, np.arange(len(floors.problem.moments) + 1)).astype(np.int64),
            near_at=np.cumsum([0, *map(len, near)]).astype(np.int64),
            near=np.concatenate(near).astype(np.int64),
            member_at=floors.starts.astype(np.int64),
            member=place[floors.members].astype(np.int64),
        )

    def run(self, capacity: int, order: Numbers, steps: int) -> Numbers | None:
        """Offsets below the capacity, or None where there are none. Raises OutOfSteps."""
        floors = self._floors
        if floors.problem.max_live > capacity:
            return None
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        state = self._new_state(self._fixed, rank[self._order], floors.problem.loads, floors.crossing)
        answer, _ = self._fill(self._fixed, state, capacity, steps)
        if answer < 0:
            raise OutOfSteps
        if answer == 0:
            return None
        offsets = np.empty_like(state.offset)
        offsets[self._order] = state.offset
        return offsets
