"""Exact search and minimum cuts against every order there is, on random graphs whose operators share storages."""

from __future__ import annotations

import random

import pytest

from irscope.solvers.order import bounds as exact
from irscope.solvers.order.bounds import Necessary, least_while_running
from irscope.solvers.order.problem import OrderProblem, Storage, make_problem
from irscope.solvers.order.solve import best_order

_GRAPHS = 500


def aliased(seed: int) -> OrderProblem:
    """Up to 9 operators; views and writes in place make several of them touch one storage."""
    chance = random.Random(seed)
    count = chance.randint(2, 9)
    before = [{one for one in range(op) if chance.random() < 0.25} for op in range(count)]
    storages = []
    for _ in range(chance.randint(1, count + 3)):
        touches = chance.sample(range(count), chance.randint(1, min(4, count)))
        size = chance.choice((0, 1, 3, 8, chance.randint(1, 100)))
        storages.append(Storage(size, tuple(touches), chance.random() < 0.15, chance.random() < 0.2))
    return make_problem(before, storages, [chance.choice((0, 0, 7)) for _ in range(count)])


def by_trying_all(problem: OrderProblem) -> tuple[int, dict[int, int]]:
    """The least peak, and the least need of each operator, over all orders: sets of operators that have run, one larger than the last."""
    count = len(problem)
    peaks = {0: problem.at_start}
    least: dict[int, int] = {}
    for _ in range(count):
        longer: dict[int, int] = {}
        for done, peak in peaks.items():
            for op in range(count):
                if done >> op & 1 or any(not done >> one & 1 for one in problem.before[op]):
                    continue
                need = needs(problem, done, op)
                least[op] = min(need, least.get(op, need))
                reached = done | 1 << op
                longer[reached] = min(longer.get(reached, 1 << 60), max(peak, need))
        peaks = longer
    return max(problem.at_end, *peaks.values()), least


def needs(problem: OrderProblem, done: int, op: int) -> int:
    """Bytes alive while an operator runs after exactly these: told from the definition of a storage's life."""
    total = problem.base + problem.workspace[op]
    for storage in problem.storages:
        begun = storage.is_input or any(one == op or done >> one & 1 for one in storage.touches)
        over = not storage.is_output and all(done >> one & 1 for one in storage.touches)
        total += storage.size if begun and not over else 0
    return total


@pytest.fixture(scope="module")
def answers() -> list[tuple[OrderProblem, int, dict[int, int]]]:
    """Random graphs, with what trying all orders says of them."""
    problems = [aliased(seed) for seed in range(_GRAPHS)]
    return [(problem, *by_trying_all(problem)) for problem in problems]


def test_a_cut_is_the_least_of_all_orders(answers: list[tuple[OrderProblem, int, dict[int, int]]]) -> None:
    for problem, _, least in answers:
        assert {op: least_while_running(problem, op).bytes for op in least} == least


@pytest.mark.parametrize("patience", [1, 4_000])
def test_exact_search_finds_the_best_of_all_orders(
    patience: int, answers: list[tuple[OrderProblem, int, dict[int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little patience the search has to find out what is necessary."""
    monkeypatch.setattr(exact, "_FIRST_PATIENCE", patience)
    monkeypatch.setattr(exact, "_STATES_A_TURN", patience)
    for problem, peak, _ in answers:
        for one in (problem, problem.reverse):
            search = exact.ExactSearch(one, range(len(one)))
            search.run(lambda: False)
            assert one.is_valid(search.order) and one.peak(search.order) == search.bound == peak


def test_the_whole_search_proves_the_best_of_all_orders(answers: list[tuple[OrderProblem, int, dict[int, int]]]) -> None:
    for problem, peak, _ in answers:
        found = best_order(problem)
        assert problem.is_valid(found.order) and found.proven and found.peak == problem.peak(found.order) == peak
        necessary = Necessary(problem, peak)
        necessary.run(lambda: False)
        assert not necessary.impossible and necessary.strengthened().is_valid(found.order)
