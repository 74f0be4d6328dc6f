"""Orders against all orders: on small problems every one can be tried."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irscope.errors import UsageError
from irscope.solvers.order.bounds import Attempt, ExactSearch, Necessary, least_while_running
from irscope.solvers.order.problem import OrderProblem, Storage, make_problem
from irscope.solvers.order.solve import Layout, best_order, by_need, simple_orders, waists


@st.composite
def problems(draw: st.DrawFn, most: int = 6) -> OrderProblem:
    """Operators with storages that several of them touch, some there from the start, some kept to the end."""
    count = draw(st.integers(1, most))
    before = [draw(st.sets(st.integers(0, op - 1), max_size=2)) if op else set() for op in range(count)]
    touches = st.sets(st.integers(0, count - 1), min_size=1, max_size=4)
    storages = draw(st.lists(st.builds(_storage, st.integers(0, 20), touches, st.booleans(), st.booleans()), max_size=8))
    return make_problem(before, storages, [draw(st.integers(0, 5)) for _ in range(count)])


def _storage(size: int, touches: set[int], is_input: bool, is_output: bool) -> Storage:
    return Storage(size, tuple(touches), is_input, is_output)


def all_orders(problem: OrderProblem) -> Iterator[list[int]]:
    """Every valid order."""

    def longer(order: list[int]) -> Iterator[list[int]]:
        if len(order) == len(problem):
            yield list(order)
        for op in range(len(problem)):
            if op not in order and all(one in order for one in problem.before[op]):
                yield from longer([*order, op])

    return longer([])


@given(problems())
def test_a_cut_is_the_least_of_all_orders(problem: OrderProblem) -> None:
    least: dict[int, int] = {}
    for order in all_orders(problem):
        for op, needed in zip(order, problem.needs(order), strict=True):
            least[op] = min(needed, least.get(op, needed))
    for op, expected in least.items():
        cut = least_while_running(problem, op)
        assert cut.bytes == expected
        first = [*(one for one in range(len(problem)) if one in cut.done), op]
        rest = [one for one in range(len(problem)) if one not in first]
        assert problem.is_valid([*first, *rest])
        assert problem.needs([*first, *rest])[len(cut.done)] == expected


@given(problems())
def test_exact_search_finds_the_best_of_all_orders(problem: OrderProblem) -> None:
    expected = min(map(problem.peak, all_orders(problem)))
    search = ExactSearch(problem, range(len(problem)))
    search.run(lambda: False)
    assert problem.is_valid(search.order)
    assert problem.peak(search.order) == search.bound == search.peak == expected


@given(problems(), st.integers(0, 60))
def test_an_attempt_knows_whether_there_is_an_order_within_a_limit(problem: OrderProblem, limit: int) -> None:
    peaks = [max(problem.needs(order)) for order in all_orders(problem)]
    for backwards in (False, True):
        attempt = Attempt(problem.reverse if backwards else problem, limit)
        attempt.run(1_000_000)
        assert attempt.is_over and (attempt.order is not None) == (min(peaks) <= limit)
        if attempt.order is None:
            assert limit < attempt.least_beyond <= min(peaks)
        else:
            order = problem.reversed_order(attempt.order) if backwards else attempt.order
            assert problem.is_valid(order) and max(problem.needs(order)) <= limit


@given(problems(), st.integers(0, 60))
def test_what_is_necessary_holds_in_every_order_within_the_limit(problem: OrderProblem, limit: int) -> None:
    orders = list(all_orders(problem))
    necessary = Necessary(problem, limit)
    necessary.run(lambda: False)
    within = [order for order in orders if max(problem.needs(order)) <= limit]
    for order in within:
        assert not necessary.impossible and necessary.strengthened().is_valid(order)
    if necessary.impossible:
        assert limit < necessary.least_beyond <= min(max(problem.needs(order)) for order in orders)
    else:
        lower = Necessary(problem, limit - 1, necessary)
        lower.run(lambda: False)
        for order in orders:
            assert max(problem.needs(order)) > limit - 1 or (not lower.impossible and lower.strengthened().is_valid(order))


@given(problems())
def test_time_runs_backwards_as_well(problem: OrderProblem) -> None:
    order = list(range(len(problem)))
    assert problem.reverse.needs(problem.reversed_order(order)) == problem.needs(order)[::-1]


@given(problems(most=25))
@settings(max_examples=40)
def test_bound_peak_and_order_as_written_stand_in_this_order(problem: OrderProblem) -> None:
    found = best_order(problem, seconds=1)
    assert problem.is_valid(found.order)
    assert found.bound <= found.peak == problem.peak(found.order) <= found.as_written


@given(problems(most=20))
def test_simple_orders_are_valid(problem: OrderProblem) -> None:
    for name, order in simple_orders(problem):
        assert problem.is_valid(order), name


@given(problems(most=20), st.data())
def test_a_stretch_needs_what_it_needs_in_the_whole(problem: OrderProblem, data: st.DataObject) -> None:
    layout = Layout(problem, range(len(problem)))
    for _ in range(3):
        begin = data.draw(st.integers(0, len(problem)))
        end = data.draw(st.integers(begin, len(problem)))
        part = layout.window(begin, end)
        assert part.needs(range(len(part))) == layout.needs[begin:end]
        layout.put(begin, part, by_need(part))
        assert problem.is_valid(layout.order)
        assert (layout.needs, layout.standing) == problem.levels(layout.order)
        assert layout.peak == problem.peak(layout.order)


@given(problems(most=20))
def test_waists_cut_an_order_into_all_its_operators(problem: OrderProblem) -> None:
    stretches = waists(problem, list(range(len(problem))))
    assert [op for begin, end in stretches for op in range(begin, end)] == list(range(len(problem)))


def test_a_chain_with_a_branch_that_can_wait() -> None:
    """Two branches from one source: the one that shrinks its input goes first."""
    storages = [Storage(10, (0, 1, 3)), Storage(100, (1, 2)), Storage(1, (2, 5)), Storage(100, (3, 4)), Storage(1, (4, 5))]
    problem = make_problem([(), (0,), (1,), (0,), (3,), (2, 4)], storages)
    found = best_order(problem)
    assert found.proven and found.peak == problem.peak(found.order) == 111


@pytest.mark.parametrize("seconds", [0.0])
def test_no_time_gives_a_valid_order(seconds: float) -> None:
    problem = make_problem([(), (0,), (0,), (1, 2)], [Storage(5, (0, 1, 2)), Storage(7, (1, 3)), Storage(9, (2, 3))])
    assert problem.is_valid(best_order(problem, seconds=seconds).order)


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ([(), (2,), (1,), (2,)], "operators 1, 2 form a cycle"),
        ([(0,)], "operators 0 form a cycle"),
        ([(1,), ()], "numbered"),
    ],
)
def test_what_has_no_order_is_refused(before: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        make_problem(before, [])
    assert refused.value.code == "IRS366"
