"""The room that buffers placed so far leave to the next one: what of them overlaps it in time, by offset.

What overlaps few others looks at each of them. What overlaps many looks at unions of them, which are the fewer spans the better buffers
are packed. Where they are packed so badly that unions do not pay, it looks through a table of all. The answers are the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np

from irscope.solvers.canonical import Numbers, Problem

_FEW = 128
"""Overlaps up to which each one is looked at rather than unions."""
_LOOKED_UP = 5_000
_PER_MEETING = 128
"""To find one buffer by time takes about as long as to compare so many in the table, and to use the table as long as to compare 5,000."""
_FEW_SPANS = 128
_PER_SPAN = 32
"""To look at one span of a union takes about as long as to compare so many in the table, and to use the table as long as to look at 128."""


class Gaps:
    """Buffers placed so far, so that the gaps between those that overlap in time are found."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._size, self._meets = problem.size.tolist(), problem.degrees.tolist()
        first, last, moments = _spells(problem)
        self._first, self._last = first.tolist(), last.tolist()
        self._offset = [0] * len(problem)
        self._by_time: dict[int, dict[int, list[int]]] = {}
        """By the length of lives, a power of two, and the part of that length in which a life begins."""
        self._placed: list[int] = []
        self._unions: _Unions | None = _Unions(moments)
        """None as soon as they have not paid."""
        self._spans = 0
        """Number of spans of unions that were examined beyond what would have paid."""
        self._table = _Table(problem)
        self._known = 0
        """Number of placed buffers that are in the unions, or in the table where there are no unions."""

    def find(self, buffer: int, *, tightest: bool) -> int:
        """Return the lowest offset where it fits, or the one in the smallest gap it fits into."""
        placed = len(self._placed)
        if self._unions is None:
            if self._meets[buffer] * _PER_MEETING < placed + _LOOKED_UP:
                return self._find(buffer, *self._overlapping(buffer), tightest=tightest)
            self._table.add(self._placed[self._known :], self._offset)
            self._known = placed
            return self._table.find(buffer, tightest=tightest)
        if self._meets[buffer] <= _FEW:
            return self._find(buffer, *self._overlapping(buffer), tightest=tightest)
        for other in self._placed[self._known :]:
            bottom = self._offset[other]
            self._unions.add(self._first[other], self._last[other], bottom, bottom + self._size[other])
        self._known = placed
        bottoms, tops = self._unions.overlapping(self._first[buffer], self._last[buffer])
        self._spans = max(0, self._spans + len(tops) - _FEW_SPANS - placed // _PER_SPAN)
        if self._spans > placed:
            self._unions, self._known = None, 0
        return self._find(buffer, bottoms, tops, tightest=tightest)

    def put(self, buffer: int, offset: int) -> None:
        """Place a buffer."""
        first = self._first[buffer]
        level = (self._last[buffer] - first).bit_length()
        self._by_time.setdefault(level, {}).setdefault(first >> level, []).append(buffer)
        self._offset[buffer] = offset
        self._placed.append(buffer)

    def _overlapping(self, buffer: int) -> tuple[list[int], list[int]]:
        """Bottoms and tops of all that overlap it."""
        first, last = self._first[buffer], self._last[buffer]
        bottoms: list[int] = []
        tops: list[int] = []
        for level, parts in self._by_time.items():
            # A life of this level is shorter than a part, so that it begins in the part before at most.
            for part in range((first >> level) - 1, ((last - 1) >> level) + 1):
                for other in parts.get(part, ()):
                    if self._first[other] < last and self._last[other] > first:
                        offset = self._offset[other]
                        bottoms.append(offset)
                        tops.append(offset + self._size[other])
        return bottoms, tops

    def _find(self, buffer: int, bottoms: list[int], tops: list[int], *, tightest: bool) -> int:
        bottoms.sort()
        tops.sort()
        size, floor, best, best_room = self._size[buffer], 0, -1, 0
        # Where one more bottom would come before as many tops, a gap ends that the last of these tops began.
        for bottom, top in zip(bottoms, tops, strict=True):
            room = bottom - floor
            if room >= size and (best < 0 or room < best_room):
                best, best_room = floor, room
                if not tightest:
                    break
            floor = top
        return best if best >= 0 else floor


def _spells(problem: Problem) -> tuple[Numbers, Numbers, int]:
    """Return the first moment of each life, the one after its last, and their number: starts with no end between them are one moment."""
    ended = np.searchsorted(np.sort(problem.upper), problem.lower, side="right")
    order = np.argsort(problem.lower, kind="stable")
    starts = problem.lower[order][np.flatnonzero(np.diff(ended[order], prepend=-1))]
    return np.searchsorted(starts, problem.lower, "right") - 1, np.searchsorted(starts, problem.upper, "left"), len(starts)


class _Unions:
    """Unions of the spans of buffers, by nodes of a tree over the moments: 1 is the root, the children of a node are twice it and one more.

    What overlaps a buffer is alive at its first moment or begins later in its life. The former is in one union for each level of the
    tree, the latter in two; a buffer is added to as many.
    """

    def __init__(self, moments: int) -> None:
        self._leaves = 1 << (moments - 1).bit_length()
        self._through: dict[int, list[int]] = {}
        """Buffers live at all moments of a node, and not at all of its parent's: bottom and top of each span, in turn."""
        self._beginning: dict[int, list[int]] = {}
        """Buffers whose live range begins at one of the moments of a node."""

    def add(self, first: int, last: int, bottom: int, top: int) -> None:
        """Add a buffer, alive from the first moment up to, not including, the last."""
        for node in _nodes(first + self._leaves, last + self._leaves):
            _add(self._through.setdefault(node, []), bottom, top)
        node = first + self._leaves
        # What a union has, those of the nodes above have, too.
        while node and _add(self._beginning.setdefault(node, []), bottom, top):
            node >>= 1

    def overlapping(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """Bottoms and tops of spans that together hold all that is alive then."""
        bottoms: list[int] = []
        tops: list[int] = []
        node = first + self._leaves
        while node:
            if (spans := self._through.get(node)) is not None:
                bottoms += spans[::2]
                tops += spans[1::2]
            node >>= 1
        for node in _nodes(first + 1 + self._leaves, last + self._leaves):
            if (spans := self._beginning.get(node)) is not None:
                bottoms += spans[::2]
                tops += spans[1::2]
        return bottoms, tops


def _nodes(begin: int, end: int) -> Iterator[int]:
    """Yield the fewest nodes of a tree that together have the leaves from `begin` up to, not including, `end`."""
    while begin < end:
        if begin & 1:
            yield begin
            begin += 1
        if end & 1:
            end -= 1
            yield end
        begin >>= 1
        end >>= 1


def _add(spans: list[int], bottom: int, top: int) -> bool:
    """Add a span to a union, told as bottoms and tops in turn; False where the union has it already."""
    # An odd number of edges lies before what is within a span. Spans that touch become one.
    begin, end = bisect_left(spans, bottom), bisect_right(spans, top)
    edges = [edge for edge, before in ((bottom, begin), (top, end)) if not before & 1]
    if spans[begin:end] == edges:
        return False
    spans[begin:end] = edges
    return True


class _Table:
    """All buffers that are placed, sorted by offset: each time all of them are compared."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._rows = np.empty((4, 0), dtype=np.int64)
        """Starts, ends, offsets and tops."""
        self._count = 0

    def add(self, buffers: list[int], offsets: list[int]) -> None:
        """Add buffers that were placed."""
        if not self._count:
            self._rows = np.empty((4, len(self._problem)), dtype=np.int64)
        end, rows = self._count, self._rows
        self._count += len(buffers)
        if len(buffers) == 1:
            at = int(np.searchsorted(rows[2, :end], offsets[buffers[0]]))
            rows[:, at + 1 : end + 1] = rows[:, at:end]
            rows[:, at] = self._row(buffers[0], offsets)
        elif buffers:
            rows[:, end : self._count] = np.transpose([self._row(buffer, offsets) for buffer in buffers])
            rows[:, : self._count] = rows[:, np.argsort(rows[2, : self._count], kind="stable")]

    def find(self, buffer: int, *, tightest: bool) -> int:
        """Return the offset of the lowest or of the smallest gap."""
        problem, (lower, upper, bottom, top) = self._problem, self._rows[:, : self._count]
        together = np.flatnonzero((lower < problem.upper[buffer]) & (upper > problem.lower[buffer]))
        if not len(together):
            return 0
        ceilings = np.maximum.accumulate(top[together])
        floors = np.concatenate(([0], ceilings[:-1]))
        rooms = bottom[together] - floors
        fitting = np.flatnonzero(rooms >= problem.size[buffer])
        if not len(fitting):
            return int(ceilings[-1])
        chosen = fitting[np.argmin(rooms[fitting])] if tightest else fitting[0]
        return int(floors[chosen])

    def _row(self, buffer: int, offsets: list[int]) -> tuple[int, int, int, int]:
        offset = offsets[buffer]
        return int(self._problem.lower[buffer]), int(self._problem.upper[buffer]), offset, offset + int(self._problem.size[buffer])
