"""Orders that keep some operators together."""

from __future__ import annotations

import random

import pytest

from irscope.memory.ordering.problem import OrderProblem, Storage, make_problem
from irscope.memory.ordering.sorting import sorted_by
from irscope.tools.reorder import Groups, contracted, group_order


def random_problem(chance: random.Random, count: int) -> OrderProblem:
    before = [chance.sample(range(op), min(op, chance.randrange(3))) for op in range(count)]
    storages = []
    for op in range(count):
        readers = [other for other in range(op + 1, count) if op in before[other]]
        storages.append(Storage(chance.randrange(1, 50), (op, *readers), is_output=not readers and chance.random() < 0.5))
    return make_problem(before, storages, [chance.choice((0, 0, 7)) for _ in range(count)])


def random_groups(chance: random.Random, count: int) -> Groups:
    """Neighbours, as a file's nodes become several operators."""
    members: list[list[int]] = []
    for op in range(count):
        if members and chance.random() < 0.4:
            members[-1].append(op)
        else:
            members.append([op])
    return Groups(members)


@pytest.mark.parametrize("seed", range(40))
def test_orders_of_groups_are_valid_and_never_worse(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randrange(3, 14)
    problem, groups = random_problem(chance, count), random_groups(chance, count)
    wanted = sorted(range(count), key=lambda _: chance.random())
    order = group_order(problem, groups, wanted, seconds=0.2, seed=0)
    operators = groups.expanded(order)
    assert problem.is_valid(operators)
    whole = contracted(problem, groups)
    assert whole.is_valid(order)
    # What a group needs by itself is never less than what its operators need one after the other.
    assert whole.peak(order) >= problem.peak(operators)
    as_written = list(range(len(groups.members)))
    if not groups.are_single and whole.peak(as_written) == problem.peak(range(count)):
        assert problem.peak(operators) <= problem.peak(range(count))


def test_groups_of_one_change_nothing() -> None:
    chance = random.Random(1)
    problem = random_problem(chance, 9)
    groups = Groups([[op] for op in range(9)])
    assert groups.are_single
    assert contracted(problem, groups) == problem


def test_the_least_key_comes_first_where_it_may() -> None:
    assert sorted_by([3, 2, 1], [(), (), ()]) == [2, 1, 0]
    assert sorted_by([3, 2, 1], [(), (), (0,)]) == [1, 0, 2]
