"""Search for a placement below a given height, from the bottom up.

Every placement can be pushed down until each buffer stands on the floor or on another one, and be told in the order of its offsets.
So it is enough to place, again and again, one of the buffers that could now stand lowest; what stands must leave, at every
moment, enough room for all that is still to come. (The idea is that of MiniMalloc, Moffitt, ASPLOS 2023.)
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.immutable import immutable

if TYPE_CHECKING:
    from irscope.solvers.fill import Fixed

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

    @cached_property
    def degrees(self) -> Numbers:
        """For each buffer, how many are alive at some time of its life, itself included."""
        began = np.searchsorted(np.sort(self.lower), self.upper, side="left")
        ended = np.searchsorted(np.sort(self.upper), self.lower, side="right")
        return began - ended

    def part(self, buffers: Numbers) -> Problem:
        """Only these buffers."""
        return Problem(self.lower[buffers], self.upper[buffers], self.size[buffers])

    def height(self, offsets: Numbers) -> int:
        """Return the height of an arena with these offsets."""
        return int((offsets + self.size).max(initial=0))


def max_live(lower: Numbers, upper: Numbers, size: Numbers) -> int:
    """Most bytes alive at once."""
    times = np.concatenate([upper, lower])
    changes = np.concatenate([-size, size])
    # What ends at a time makes room before what starts at it.
    order = np.lexsort((changes > 0, times))
    return int(np.cumsum(changes[order]).max(initial=0))


def _moments(lower: Numbers, upper: Numbers) -> list[Numbers]:
    """Return the largest sets alive together: the moments just before an end that follows a start."""
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
    """Parts of a problem that stay the same from search to search."""

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

    def ties(self, capacity: int) -> Numbers:
        """Return, for buffers x and y, by how much the offset of y exceeds that of x at least, in every placement below the capacity.

        At a moment whose load is the capacity, everything is filled. Of it, what is no longer alive at another moment leaves room for
        what is alive only then: where no part of the one could hold a part of the other, and the rest the rest, that room is one
        block, and whatever is of it lies within its height.
        """
        problem, count = self.problem, len(self.problem)
        size = problem.size
        far = -(capacity - size)[:, None]
        least = np.repeat(far, count, axis=1)
        np.fill_diagonal(least, 0)
        full = np.flatnonzero(problem.loads == capacity)
        if not len(full) or count > _MOST_TIED:
            return least
        alive = np.zeros((len(problem.moments), count), dtype=np.bool_)
        for moment, members in enumerate(problem.moments):
            alive[moment, members] = True
        common = alive[full].astype(np.float32) @ alive.T.astype(np.float32)
        held = alive.sum(axis=1)
        go, come = held[full][:, None] - common, held[None, :] - common
        pairs = np.argwhere((go >= 1) & (come >= 1) & (go + come <= _MOST_OF_BLOCK))
        for one, other in pairs[:_MOST_PAIRS].tolist():
            first, second = alive[full[one]], alive[other]
            goes, comes = np.flatnonzero(first & ~second), np.flatnonzero(second & ~first)
            if _is_block(size[goes], size[comes]):
                both = np.concatenate([goes, comes])
                square = np.ix_(both, both)
                least[square] = np.maximum(least[square], (size[both] - size[goes].sum())[:, None])
        np.fill_diagonal(least, 0)
        return self._closed(least, far)

    def _closed(self, least: Numbers, far: Numbers) -> Numbers:
        """Return the same with what follows: distances add up, and of two alive together one lies above the other."""
        tied = np.flatnonzero(((least > far) & ~np.eye(len(least), dtype=np.bool_)).any(axis=1))
        square = np.ix_(tied, tied)
        some, together, size = least[square], self.together[square], self.problem.size[tied]
        for _ in range(_MOST_ROUNDS):
            before = some.copy()
            for middle in range(len(tied)):
                np.maximum(some, some[:, middle, None] + some[middle], out=some)
            some = np.where(together & (some > -size), np.maximum(some, size[:, None]), some)
            if np.array_equal(some, before):
                break
        least[square] = some
        return least


_MOST_TIED = 800
_MOST_PAIRS = 4_000
_MOST_OF_BLOCK = 10
_MOST_ROUNDS = 3
"""Looking for ties takes a fraction of a second within these limits: buffers, pairs of moments, buffers of a pair, repetitions."""


def _is_block(goes: Numbers, comes: Numbers) -> bool:
    """Return whether buffers that fill a room share it with those that come later in one way only: as a whole."""
    if len(goes) == 1:
        return True
    parts, others = _sums(goes)[1:-1], np.sort(_sums(comes))
    low = np.searchsorted(others, int(comes.sum()) - int(goes.sum()) + parts, "left")
    return not bool((np.searchsorted(others, parts, "right") > low).any())


def _sums(sizes: Numbers) -> Numbers:
    """Return the sums of all subsets, the empty one first and the whole one last."""
    numbers = np.zeros(1, np.int64)
    for size in sizes.tolist():
        numbers = np.concatenate([numbers, numbers + size])
    return numbers


class PlainSearch:
    """The search with numpy alone; the order is one of preference among buffers that could stand equally low."""

    def __init__(self, floors: Floors) -> None:
        self._floors = floors
        self.blame = np.zeros(len(floors.problem))
        """Number of recent failures to place each buffer; not counted here."""
        self.most = 0
        """Most buffers that the last run had placed at one time; not counted here."""
        self._size = floors.problem.size
        self._sizes = self._size.tolist()
        self._first, self._last = floors.first.tolist(), floors.last.tolist()

    def run(self, capacity: int, order: Numbers, steps: int) -> Numbers | None:
        """Return offsets below the capacity, or None where there are none. Raises OutOfSteps."""
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
        """Return whether it could have been placed before the previous one, and would have been preferred."""
        return previous >= 0 and bool(self._rank[buffer] < self._rank[previous] and not self._floors.together[buffer, previous])

    def _candidates(self, lowest: Numbers) -> list[int]:
        """Return the buffers that could be next, lowest first: below the lowest top, else another one would fit underneath."""
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
        """Return whether at every moment what is to come fits between the lowest place for any of it and the top."""
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
    """Return the answer of an attempt and of all that it hands over to."""
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


_FORGETS = 0.95
"""Factor by which blame decays with each further attempt."""


class CompiledSearch:
    """The same search as machine code: some hundred times as many steps a second, with ties. Only where `can_compile` says so."""

    def __init__(self, floors: Floors) -> None:
        from irscope.solvers.fill import Fixed, fill, new_state

        self.blame = np.zeros(len(floors.problem))
        """Number of recent failures to place each buffer."""
        self.most = 0
        """Most buffers that the last run had placed at one time."""
        self._floors, self._fill, self._new_state = floors, fill, new_state
        self._order = np.argsort(floors.first, kind="stable")
        place = np.empty(len(self._order), dtype=np.int64)
        place[self._order] = np.arange(len(place))
        first = floors.first[self._order].astype(np.int64)
        size = floors.problem.size
        near = [place[some[np.argsort(size[some], kind="stable")]] for some in (floors.neighbours[buffer] for buffer in self._order)]
        self._fixed = Fixed(
            size=size[self._order],
            first=first,
            last=floors.last[self._order].astype(np.int64),
            born=np.searchsorted(first, np.arange(len(floors.problem.moments) + 1)).astype(np.int64),
            near_at=np.cumsum([0, *map(len, near)]).astype(np.int64),
            near=np.concatenate(near).astype(np.int64),
            member_at=floors.starts.astype(np.int64),
            member=place[floors.members].astype(np.int64),
            tie_at=np.zeros(len(first) + 1, np.int64),
            tie=np.zeros(0, np.int64),
            tie_low=np.zeros(0, np.int64),
            tie_high=np.zeros(0, np.int64),
        )
        self._tied = self._fixed, -1

    def _at(self, capacity: int) -> Fixed:
        """Return what stays the same while this is the capacity."""
        if capacity != self._floors.problem.max_live:
            return self._fixed
        if self._tied[1] != capacity:
            least = self._floors.ties(capacity)[np.ix_(self._order, self._order)]
            is_tied = least > (self._fixed.size - capacity)[:, None]
            np.fill_diagonal(is_tied, False)
            one, other = np.nonzero(is_tied | is_tied.T)
            ends = np.searchsorted(one, np.arange(len(least) + 1)).astype(np.int64)
            low, high = least[one, other], -least[other, one]
            self._tied = self._fixed._replace(tie_at=ends, tie=other.astype(np.int64), tie_low=low, tie_high=high), capacity
        return self._tied[0]

    def run(self, capacity: int, order: Numbers, steps: int) -> Numbers | None:
        """Return offsets below the capacity, or None where there are none. Raises OutOfSteps."""
        floors = self._floors
        if floors.problem.max_live > capacity:
            return None
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        fixed = self._at(capacity)
        state = self._new_state(fixed, rank[self._order], floors.problem.loads, floors.crossing, capacity)
        answer, self.most = self._fill(fixed, state, capacity, steps)
        self.blame *= _FORGETS
        self.blame[self._order] += state.blame / max(int(state.blame.sum()), 1)
        if answer < 0:
            raise OutOfSteps
        if answer == 0:
            return None
        offsets = np.empty_like(state.offset)
        offsets[self._order] = state.offset
        return offsets
