"""Formulas of peaks are those of the sizes that are alive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from irscope.memory.formulas import Polynomial, peak_formula

FACTORS = st.fixed_dictionaries({(i, j): st.integers(0, 10**6) for i in range(2) for j in range(3)})


def _counted(moments: list[Polynomial], places: list[tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
    return {place: [moment(*place) for moment in moments] for place in places}


@given(st.lists(FACTORS, min_size=1, max_size=4), st.integers(1, 9), st.integers(1, 5000))
def test_a_formula_gives_the_highest_moment(factors: list[dict[tuple[int, int], int]], batch: int, length: int) -> None:
    moments = [Polynomial({power: factor for power, factor in one.items() if factor}) for one in factors]
    used = _counted(moments, [(many, number * length) for many in (batch, 2 * batch) for number in (1, 2, 3)])
    against = _counted(moments, [(3 * batch, 5 * length)])
    found = peak_formula(used, against, 2, "prompt")
    assert found is not None
    for (many, long), counted in {**used, **against}.items():
        assert found(many, long) == max(counted) == eval(str(found), {"batch": many, "prompt": long, "max": max})
    assert (found.first, found.last) == (length, 5 * length)


def test_what_is_no_polynomial_has_no_formula() -> None:
    def counted(batch: int, length: int) -> list[int]:
        return [batch * min(length, 25)]

    used = {(batch, length): counted(batch, length) for batch in (1, 2) for length in (10, 20)}
    assert peak_formula(used, {(3, 40): counted(3, 40)}, 1, "prompt") is None
    assert peak_formula(used, {(3, 25): counted(3, 25)}, 1, "prompt") is not None
    assert peak_formula(used, {(3, 25): [1, 2]}, 1, "prompt") is None


def test_a_formula_reads_as_python() -> None:
    one = Polynomial({(1, 1): 16, (1, 0): 8, (0, 0): 500})
    assert one.text("prompt + new") == "batch*(16*(prompt + new) + 8) + 500"
    assert Polynomial({}).text("prompt") == "0"
