"""Aligning sequences: pairs are equal and rise, and nothing that is easy is missed."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from irscope.tools.compare.matching import align, common_axis, rising

SEQUENCES = st.lists(st.integers(0, 6), max_size=40)


def longest(a: list[int], b: list[int]) -> int:
    """Length of the longest common subsequence, the slow way."""
    row = [0] * (len(b) + 1)
    for left in a:
        before = row
        row = [0]
        for place, right in enumerate(b):
            row.append(before[place] + 1 if left == right else max(row[-1], before[place + 1]))
    return row[-1]


@given(SEQUENCES, SEQUENCES)
def test_pairs_are_equal_and_rise(a: list[int], b: list[int]) -> None:
    found = align(a, b)
    assert all(a[x] == b[y] for x, y in found)
    assert all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(found))
    assert len(found) <= longest(a, b)


@given(SEQUENCES, st.data())
def test_what_was_only_taken_out_is_found_again(a: list[int], data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(a), max_size=len(a)))
    b = [key for key, keep in zip(a, kept, strict=True) if keep]
    # Keys that occur once on both sides split the range first, which may cost a pair or two, never the most of them.
    assert len(align(a, b)) >= len(b) * 2 // 3


def test_equal_sequences_match_entirely() -> None:
    a = [place % 7 for place in range(50_000)]
    assert align(a, a) == [(place, place) for place in range(50_000)]


def test_many_edits_in_a_long_sequence() -> None:
    chance = random.Random(5)
    a = [chance.randrange(20) for _ in range(20_000)]
    b = list(a)
    for _ in range(1_000):
        b[chance.randrange(len(b))] = chance.randrange(20)
    assert len(align(a, b)) > 18_500


def test_nothing_in_common() -> None:
    assert align([1, 2, 3], [4, 5]) == []
    assert align([], [1]) == []


@given(st.lists(st.integers(0, 30), unique=True, max_size=30))
def test_the_longest_rising_part(places: list[int]) -> None:
    pairs = list(enumerate(places))
    found = rising(pairs)
    assert all(one[1] < other[1] for one, other in pairwise(found))
    assert len(found) == longest(places, sorted(places))


def test_the_axis_shows_every_place_of_both() -> None:
    axis = common_axis([(1, 0), (3, 4)], 6, 5)
    assert {a for a, _ in axis if a >= 0} == set(range(6))
    assert {b for _, b in axis if b >= 0} == set(range(5))
    assert (1, 0) in axis and (3, 4) in axis
    assert axis == sorted(axis)
    assert common_axis([], 0, 0) == []
    assert common_axis([], 2, 0) == [(0, -1), (1, -1)]
