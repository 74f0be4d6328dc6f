"""Which combinations of a grid are worth it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from irscope.devices import Target, find_device
from irscope.tools.simulate_many import Axis, Combination, Grid

RUNS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from(["fits", "perhaps", "oom"])), min_size=1, max_size=8)


def grid(*runs: Combination, price: float = 0.0) -> Grid:
    return Grid("train.py", Target(find_device("h100")), 100, [Axis("batch", ("1",))], runs, price)


@given(RUNS)
def test_the_front_is_what_no_other_beats(drawn: list[tuple[int, int, str]]) -> None:
    runs = [Combination({"x": str(number)}, outcome, most, most, float(step)) for number, (most, step, outcome) in enumerate(drawn)]
    found = grid(*runs)
    fitting = [one for one in runs if one.outcome == "fits"]
    for one in fitting:
        better = [other for other in fitting if other.most <= one.most and (other.seconds or 0) <= (one.seconds or 0)]
        strictly = [other for other in better if (other.most, other.seconds) != (one.most, one.seconds)]
        assert (one in found.front) is not bool(strictly)
    assert found.fastest is None or found.fastest.seconds == min(one.seconds or 0 for one in fitting)
    assert bool(found.fastest) is bool(fitting)


def test_what_nobody_knows_the_time_of_is_not_the_fastest() -> None:
    known, unknown = Combination({"batch": "1"}, "fits", 9, 9, 1.0), Combination({"batch": "2"}, "fits", 1, 1, None)
    found = grid(unknown, known)
    assert found.fastest == known and found.front == [known] and unknown.throughput is None and unknown.price(2.0) is None


def test_samples_are_those_of_all_ranks() -> None:
    one = Combination({"batch_size": "8"}, "fits", 9, 9, 0.5, ranks=4)
    assert one.throughput == 64 and one.price(3.6) == 1e6 / 64 * 4 * 3.6 / 3600
    assert Combination({"depth": "8"}, "fits", 9, 9, 0.5, ranks=4).throughput == 2
