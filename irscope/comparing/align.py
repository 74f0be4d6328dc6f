"""Order-preserving matching of two sequences, in nearly linear time."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

_MOST_EDITS = 64
"""After this many consecutive differences the furthest-reaching path found so far is taken (Myers' heuristic)."""
_ROUNDS = 3
"""Recursion limit of splitting at keys that occur once on both sides (patience diff)."""


def align(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    """Index pairs with equal keys, increasing on both sides: a longest common subsequence, approximate where much differs."""
    in_a, in_b = set(a), set(b)
    places_a = [place for place, key in enumerate(a) if key in in_b]
    places_b = [place for place, key in enumerate(b) if key in in_a]
    keys_a = [a[place] for place in places_a]
    keys_b = [b[place] for place in places_b]
    found = _split(keys_a, keys_b)
    return [(places_a[left], places_b[right]) for left, right in found]


def rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest increasing subsequence of index pairs."""
    tails: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        at = bisect_left(tails, place)
        before.append(last[at - 1] if at else -1)
        if at == len(tails):
            tails.append(place)
            last.append(number)
        else:
            tails[at], last[at] = place, number
    found: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]


def _split(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    """Match equal ends, then split at keys that occur once on both sides, then search a shortest edit path between."""
    found: list[tuple[int, int]] = []
    pending = [(0, len(a), 0, len(b), 0)]
    while pending:
        start_a, stop_a, start_b, stop_b, depth = pending.pop()
        while start_a < stop_a and start_b < stop_b and a[start_a] == b[start_b]:
            found.append((start_a, start_b))
            start_a, start_b = start_a + 1, start_b + 1
        while start_a < stop_a and start_b < stop_b and a[stop_a - 1] == b[stop_b - 1]:
            stop_a, stop_b = stop_a - 1, stop_b - 1
            found.append((stop_a, stop_b))
        if start_a == stop_a or start_b == stop_b:
            continue
        anchors = _anchors(a, b, start_a, stop_a, start_b, stop_b) if depth < _ROUNDS else []
        if not anchors:
            found.extend((start_a + x, start_b + y) for x, y in _shortest(a[start_a:stop_a], b[start_b:stop_b]))
            continue
        found.extend(anchors)
        edges = [(start_a - 1, start_b - 1), *anchors, (stop_a, stop_b)]
        for (left_a, left_b), (right_a, right_b) in pairwise(edges):
            if left_a + 1 < right_a and left_b + 1 < right_b:
                pending.append((left_a + 1, right_a, left_b + 1, right_b, depth + 1))
    found.sort()
    return found


def _anchors(a: Sequence[int], b: Sequence[int], start_a: int, stop_a: int, start_b: int, stop_b: int) -> list[tuple[int, int]]:
    """Keys that occur once in both ranges, as far as their order agrees."""
    count_a, count_b = Counter(a[start_a:stop_a]), Counter(b[start_b:stop_b])
    place_b = {b[place]: place for place in range(start_b, stop_b)}
    pairs = [(place, place_b[key]) for place in range(start_a, stop_a) if count_a[key := a[place]] == 1 and count_b.get(key) == 1]
    return rising(pairs)


def _shortest(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Matches on a shortest edit path (Myers); where it is long, found in pieces."""
    at_a = at_b = 0
    while at_a < len(a) and at_b < len(b):
        kept, moved_a, moved_b = _stretch(a, b, at_a, at_b)
        yield from kept
        at_a, at_b = moved_a, moved_b


def _stretch(a: Sequence[int], b: Sequence[int], from_a: int, from_b: int) -> tuple[list[tuple[int, int]], int, int]:
    """A shortest edit path from here of bounded length: its matches, and where it ends."""
    length_a, length_b = len(a) - from_a, len(b) - from_b
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(_MOST_EDITS + 1):
        history.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1))
            x = reach.get(diagonal + 1, 0) if down else reach.get(diagonal - 1, -1) + 1
            y = x - diagonal
            while x < length_a and y < length_b and a[from_a + x] == b[from_b + y]:
                x, y = x + 1, y + 1
            reach[diagonal] = x
            if x >= length_a and y >= length_b:
                return _way_back(history, diagonal, x, from_a, from_b), from_a + x, from_b + y
    ends = [
        diagonal
        for diagonal in range(-_MOST_EDITS, _MOST_EDITS + 1, 2)
        if reach[diagonal] <= length_a and 0 <= reach[diagonal] - diagonal <= length_b
    ]
    furthest = max(ends, key=lambda diagonal: 2 * reach[diagonal] - diagonal, default=None)
    if furthest is None:
        return [], len(a), len(b)
    x = reach[furthest]
    return _way_back(history, furthest, x, from_a, from_b), from_a + x, from_b + x - furthest


def _way_back(history: Sequence[dict[int, int]], diagonal: int, x: int, from_a: int, from_b: int) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        reach = history[edits]
        down = diagonal == -edits or (diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1))
        before = diagonal + 1 if down else diagonal - 1
        start = reach.get(before, 0) if down else reach.get(before, -1) + 1
        while x > start:
            x -= 1
            kept.append((from_a + x, from_b + x - diagonal))
        diagonal, x = before, reach.get(before, 0)
    kept.reverse()
    return kept
