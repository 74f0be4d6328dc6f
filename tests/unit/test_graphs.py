"""Algorithms on plain graphs: each order by hand, cycles, and disjoint sets against a plain search."""

from __future__ import annotations

import random

from irscope.solvers.graphs import DisjointSets, in_order, sorted_by, turned, waiting_for_one_another

DIAMOND = [[], [0], [0], [1, 2], []]
LOOP = [[], [0, 3], [1], [2], [3]]
"""1, 2 and 3 wait for one another, and 4 for them."""


def test_nodes_come_as_they_become_ready() -> None:
    assert in_order(DIAMOND) == [0, 4, 1, 2, 3]
    assert in_order([[1], [], [0, 0]]) == [1, 0, 2], "a node that is named twice counts twice on both sides"


def test_of_the_ready_nodes_the_one_with_the_least_key_comes_first() -> None:
    assert sorted_by([0, 9, 1, 0, 5], DIAMOND) == [0, 2, 4, 1, 3]
    assert sorted_by([0.5, 0.25, 0.0], [[], [], [0, 0]]) == [1, 0, 2]


def test_nodes_of_a_cycle_are_told_from_those_behind_it() -> None:
    assert in_order(LOOP) == sorted_by(range(5), LOOP) == [0]
    assert waiting_for_one_another(LOOP) == [1, 2, 3]
    assert waiting_for_one_another(DIAMOND) == []
    assert waiting_for_one_another([[0]]) == [0]


def test_turning_the_edges_twice_changes_nothing() -> None:
    assert turned(turned(DIAMOND)) == DIAMOND


def test_disjoint_sets_are_what_can_be_reached_over_the_joins() -> None:
    rng = random.Random(7)
    for _ in range(50):
        count = rng.randint(1, 12)
        joins = [(rng.randrange(count), rng.randrange(count)) for _ in range(rng.randint(0, count))]
        sets = DisjointSets(range(count))
        for member, other in joins:
            sets.join(member, other)
        reached = {member: {member} for member in range(count)}
        for _ in range(count):
            for a, b in joins:
                reached[a] |= reached[b]
                reached[b] |= reached[a]
        expected = {tuple(sorted(members)) for members in reached.values()}
        groups = sets.groups()
        assert {tuple(members) for members in groups} == expected
        assert [members[0] for members in groups] == sorted(members[0] for members in groups), "by their first member"
        assert sets.groups([count - 1]) == [[count - 1]]
