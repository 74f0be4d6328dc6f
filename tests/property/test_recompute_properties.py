"""Recomputing: every reader still finds what it reads, alive from its maker on, and the peak is that of the order that is shown."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from irscope.solvers.order.problem import OrderProblem, Storage, make_problem
from irscope.solvers.order.recompute import Recipe, Repeated, lower, start


def network(seed: int, count: int) -> tuple[OrderProblem, Recipe]:
    """Operators that each make a result or look at another one's; some must not run twice."""
    chance = random.Random(seed)
    reads: list[tuple[int, ...]] = []
    makes: list[int] = []
    touches: list[list[int]] = []
    for op in range(count):
        reads.append(tuple(sorted(chance.sample(range(op), min(op, chance.randint(0, 2))))))
        is_view = bool(reads[op]) and chance.random() < 0.2
        if is_view:
            makes.append(makes[reads[op][0]])
        else:
            makes.append(len(touches))
            touches.append([])
        for one in {makes[one] for one in reads[op]} | {makes[op]}:
            touches[one].append(op)
    read = {one for earlier in reads for one in earlier}
    kept = {makes[op] for op in range(count) if op not in read}
    storages = [Storage(chance.randint(1, 50), tuple(users), is_output=number in kept) for number, users in enumerate(touches)]
    cost = [None if chance.random() < 0.1 else chance.randint(0, 9) for _ in range(count)]
    return make_problem(reads, storages, [chance.choice((0, 5)) for _ in range(count)]), Recipe(reads, makes, cost)


def check(first: Repeated, found: Repeated, most: int) -> None:
    """Everything that has to hold of an order with repetitions."""
    problem, recipe = found.problem, found.recipe
    assert problem.is_valid(range(len(problem))) and found.peak <= first.peak
    assert found.spent == sum(recipe.cost[op] or 0 for op, again in enumerate(found.again) if again) <= most
    assert sorted(op for op, again in zip(found.source, found.again, strict=True) if not again) == list(range(len(first.problem)))
    original = {source: op for op, source in enumerate(first.source)}
    for op, earlier in enumerate(recipe.reads):
        assert not (found.again[op] and recipe.cost[op] is None)
        # The same operands, made by whichever run of their makers.
        same = [found.source[one] for one in earlier]
        assert same == [first.source[one] for one in first.recipe.reads[original[found.source[op]]]]
        for one in earlier:
            assert one < op
            assert one in problem.storages[recipe.makes[one]].touches and op in problem.storages[recipe.makes[one]].touches
        assert op in problem.storages[recipe.makes[op]].touches


@given(st.integers(0, 10_000), st.integers(2, 25), st.sampled_from([0, 5, 1_000]))
def test_every_reader_finds_its_operands(seed: int, count: int, most: int) -> None:
    problem, recipe = network(seed, count)
    first = start(problem, recipe, list(range(count)))
    found = lower(first, most, lambda: False)
    check(first, found, most)
    again = lower(found.reordered(list(range(len(found.problem)))), most, lambda: False)
    check(first, again, most)


def test_a_broadcast_is_made_again_rather_than_kept() -> None:
    """A large result of next to nothing is read at once and at the end; in between something large passes by."""
    reads = [(), (0,), (1,), (2,), (3,), (0, 4)]
    sizes = [100, 1, 100, 100, 1, 1]
    touches: list[list[int]] = [[op] for op in range(6)]
    for op, earlier in enumerate(reads):
        for one in earlier:
            touches[one].append(op)
    storages = [Storage(size, tuple(users), is_output=op == 5) for op, (size, users) in enumerate(zip(sizes, touches, strict=True))]
    problem = make_problem(reads, storages)
    assert problem.peak(range(6)) == 300
    recipe = Recipe(reads, list(range(6)), [7] * 6)
    assert lower(start(problem, recipe, range(6)), 6, lambda: False).peak == 300
    found = lower(start(problem, recipe, range(6)), 7, lambda: False)
    assert (found.peak, found.spent) == (200, 7)
    assert [op for op, again in zip(found.source, found.again, strict=True) if again] == [0]
