"""Requests that repeat, layer after layer, and how a replay steps over repetitions that leave the allocator as it was.

What an allocator does follows from what it holds and from what it is asked for. Where it holds the same after a period as after an earlier
one, with the like tensors of both at the same places, it goes through the same states again and again: the peaks were all seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from irscope.memory.caching import Block, CachingAllocator

_LEAST_PERIODS: Final = 4
"""Some are made in any case: the allocator settles, and is seen to have settled."""
_LEAST_PERIOD: Final = 16
"""Requests: to look at the allocator takes as long as some."""
_MOST_LOOKS: Final = 24
"""After so many periods after which it never stood as before nobody looks any more."""
_LEAST_EVENTS: Final = 64
"""To be stepped over, so that looking pays."""
_WINDOW: Final = 8
"""Requests by which places are recognised."""
_CANDIDATES: Final = 3
_LARGEST_DISTANCE: Final = 1 << 40


class Repeat(NamedTuple):
    """Requests of which each is like the one a period before it: it takes as much, or gives back what was taken as many requests before."""

    begin: int
    end: int
    period: int
    reach: int
    """Number of requests between a request that gives back and the one that took."""
    takes: list[int]
    """The slots that are taken, in order."""
    per_period: int
    """Number of slots taken in a period."""


def repeats_in(events: Sequence[int], marks: Sequence[object]) -> list[Repeat]:
    """Return where events repeat. `marks` are equal for slots that take equally much at all sizes."""
    taken: dict[int, int] = {}
    codes: list[int] = []
    numbers: dict[object, int] = {}
    for place, event in enumerate(events):
        if event >= 0:
            if event in taken:
                return []
            taken[event] = place
            codes.append(numbers.setdefault(marks[event], len(numbers)))
        else:
            at = taken.get(~event)
            codes.append(-_LARGEST_DISTANCE - place if at is None else at - place)
    repeats: list[Repeat] = []
    todo = [(0, len(codes))]
    while todo:
        first, last = todo.pop()
        begin, end, period = _longest(codes, first, last)
        if period:
            takes = [event for event in islice(events, begin, end) if event >= 0]
            reach = -min((code for code in islice(codes, begin, end) if code > -_LARGEST_DISTANCE), default=0)
            per_period = sum(event >= 0 for event in islice(events, begin, begin + period))
            repeats.append(Repeat(begin, end, period, max(reach, 0), takes, per_period))
            todo += [(first, begin), (end, last)]
    return sorted(repeats)


def _longest(codes: Sequence[int], first: int, last: int) -> tuple[int, int, int]:
    """Begin, end and period of the repetition over which most can be stepped; a period of 0 where there is none."""
    latest: dict[tuple[int, ...], int] = {}
    distances: Counter[int] = Counter()
    for place in range(first, last - _WINDOW + 1):
        window = tuple(codes[place : place + _WINDOW])
        if window in latest:
            distances[place - latest[window]] += 1
        latest[window] = place
    best, gain = (first, first, 0), _LEAST_EVENTS - 1
    for distance, _ in distances.most_common(_CANDIDATES):
        period = distance * -(-_LEAST_PERIOD // distance)
        begin = first
        for place in range(first + period, last + 1):
            if place == last or codes[place] != codes[place - period]:
                whole = (place - begin) // period
                saved = (whole - _LEAST_PERIODS + 1) * period
                if whole >= _LEAST_PERIODS and saved > gain:
                    best, gain = (begin, begin + whole * period, period), saved
                begin = place - period + 1
    return best


def step_over(
    repeat: Repeat, at: int, before: dict[object, int], gpu: CachingAllocator, events: Sequence[int], blocks: dict[int, Block]
) -> int:
    """Go on from the end of a period: where to. `before` has what stood at the ends of others, and where these are.

    Where the same stood before, `blocks` get what the slots would hold at the end of the last cycle.
    """
    if len(before) > _MOST_LOOKS:
        return at
    now = _standing(repeat, at, gpu, events, blocks)
    earlier = before.setdefault(now, at)
    cycle = at - earlier
    skipped = (repeat.end - at) // cycle * cycle if cycle and now is not None else 0
    if skipped:
        moved = {place: blocks.pop(events[place]) for place in _alive(repeat, at, events, blocks)}
        for place, block in moved.items():
            blocks[events[place + skipped]] = block
    return at + skipped


def _alive(repeat: Repeat, at: int, events: Sequence[int], blocks: dict[int, Block]) -> list[int]:
    """Return the places of requests within reach whose blocks are still taken."""
    return [place for place in range(max(at - repeat.reach, 0), at) if events[place] >= 0 and events[place] in blocks]


def _standing(repeat: Repeat, at: int, gpu: CachingAllocator, events: Sequence[int], blocks: dict[int, Block]) -> Hashable:
    """Return what decides all that the allocator does in the next periods; None where something has to be settled first."""
    free = gpu.standing()
    alive = _alive(repeat, at, events, blocks)
    if free is None or (alive and alive[0] < repeat.begin):
        return None
    return free, tuple([(at - place, blocks[events[place]].address, blocks[events[place]].size) for place in alive])
