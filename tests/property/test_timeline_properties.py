"""What is alive when, and formulas at many bindings, against the plain way to compute them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from irscope.ir.dim_arrays import Evaluator
from irscope.ir.dims import bind
from irscope.ir.graph import Graph
from irscope.ir.program import Program
from irscope.ir.types import UNKNOWN_TENSOR
from irscope.passes.lifetimes.lives import LiveRange
from irscope.passes.lifetimes.windows import windows
from irscope.passes.liveness import Liveness
from irscope.passkit.manager import Manager
from tests.property.symbolic_models import symbolic_models

STEPS = 40


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[LiveRange], int]:
    """Ranges in order of birth over some steps; some last beyond the end, as outputs do."""
    steps = draw(st.integers(1, STEPS))
    spans = draw(st.lists(st.tuples(st.integers(0, steps - 1), st.integers(0, steps)), max_size=60))
    value = Graph().add_input(UNKNOWN_TENSOR, "x")
    ordered = sorted((min(a, b), max(a, b)) for a, b in spans)
    return [LiveRange(value, 1, born, dies, "", born) for born, dies in ordered], steps


@given(lives())
def test_the_living_are_those_whose_range_holds_the_step(found: tuple[list[LiveRange], int]) -> None:
    ranges, steps = found
    index = windows(ranges, steps)
    for step in range(-1, steps):
        living = [one for one in ranges if one.born <= step <= one.dies]
        assert [id(one) for one in index.living(step)] == [id(one) for one in living]


@given(lives())
def test_a_search_looks_at_little_more_than_it_finds_and_little_is_kept(found: tuple[list[LiveRange], int]) -> None:
    ranges, steps = found
    index = windows(ranges, steps)
    ends = [*index.starts[1:], steps]
    for start, end, members in zip(index.starts, ends, index.members, strict=True):
        for step in range(start, end):
            assert len(members) <= 2 * max(1, sum(one.born <= step <= one.dies for one in ranges))
    assert sum(map(len, index.members)) <= 4 * len(ranges)


@given(symbolic_models(), st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=6))
def test_formulas_have_the_same_values_one_by_one_and_all_at_once(program: Program, points: list[tuple[int, int]]) -> None:
    timeline = Manager(program).get(Liveness(model="ssa"))
    sizes = [*timeline.alive, timeline.peak, *(one.size for one in timeline.ranges)]
    rows = Evaluator({"batch": [point[0] for point in points], "length": [point[1] for point in points]}).rows(sizes)
    for size, row in zip(sizes, rows.tolist(), strict=True):
        assert row == [bind(size, {"batch": batch, "length": length}) for batch, length in points]


@given(st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=4), st.integers(-(2**40), 2**40))
def test_numbers_of_any_size_stay_exact(sizes: list[int], factor: int) -> None:
    from irscope.ir.dims import dim_max, floordiv, mod, symbol

    n = symbol("n", None)
    formulas = [n * n * factor + n, dim_max(n * 3, -n), floordiv(n * factor, 7) + mod(n, 1000)]
    rows = Evaluator({"n": sizes}).rows(formulas)
    for formula, row in zip(formulas, rows.tolist(), strict=True):
        assert row == [bind(formula, {"n": size}) for size in sizes]
