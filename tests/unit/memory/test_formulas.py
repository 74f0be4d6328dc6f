"""Formulas of peaks are those of the sizes that are alive."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.memory.formulas import (
    BY_BOTH,
    BY_PROMPT,
    PeakFormula,
    Piece,
    Polynomial,
    Sizes,
    Window,
    joined,
    moments_formula,
    polynomial_through,
)
from irscope.memory.run import highest_by_origin
from irscope.memory.tape import Origin, Tape

FACTORS = st.fixed_dictionaries({power: st.integers(0, 10**6) for power in BY_PROMPT})
PLACES = [Sizes(batch, prompt, new) for batch, prompt, new in itertools.product((1, 2), (40, 48, 56), (3, 5))]


@given(st.lists(FACTORS, min_size=1, max_size=4), st.integers(1, 9), st.integers(1, 5000))
def test_a_formula_gives_the_highest_moment(factors: list[dict[tuple[int, int, int], int]], batch: int, length: int) -> None:
    moments = [Polynomial({power: factor for power, factor in factor.items() if factor}) for factor in factors]
    used = [Sizes(many, number * length, 3) for many in (batch, 2 * batch) for number in (1, 2, 3)]
    places = [*used, Sizes(3 * batch, 5 * length, 3)]
    counted = {place: {number: moment(place) for number, moment in enumerate(moments)} for place in places}
    peak_formula = PeakFormula((Piece(moments_formula(counted, len(used), BY_PROMPT, range(len(moments))), length, 5 * length),), "prompt")
    for at, sizes in counted.items():
        names = {"batch": at.batch, "prompt": at.prompt, "new": at.new, "max": max}
        assert peak_formula(*at) == max(sizes.values()) == eval(str(peak_formula), names)
    assert peak_formula.held == ((length, 5 * length),)


def test_what_is_no_polynomial_has_no_formula() -> None:
    def counted(at: Sizes) -> dict[int, int]:
        return {0: at.batch * min(at.prompt, 50)}

    known = {at: counted(at) for at in PLACES}
    assert not moments_formula(known, len(known), BY_BOTH, [0])
    known = {at: {0: at.batch * at.prompt} for at in PLACES}
    assert moments_formula(known, len(known), BY_BOTH, [0]) == {0: Polynomial({(1, 1, 0): 1})}
    assert not moments_formula({**known, Sizes(3, 100, 3): {0: 299}}, len(known), BY_BOTH, [0])


def test_several_polynomials_are_none() -> None:
    assert polynomial_through({at: 7 for at in PLACES if at.new == 3}, BY_BOTH) is None
    assert polynomial_through({at: at.prompt // 3 for at in PLACES}, BY_BOTH) is None


@pytest.mark.parametrize("of", ["prompt", "prompt + new"])
def test_a_window_that_fills_is_one_formula(of: str) -> None:
    """Below it what is kept grows, above it does not: both were found apart."""
    whole = Polynomial({(1, 1, 0): 24, (0, 0, 0): 7}, (Window(16, 1023, of),))
    pieces = []
    for lengths, until in (((96, 104, 112), 1024), ((2048, 2056, 2064), None)):
        made = polynomial_through({Sizes(b, p, n): whole(Sizes(b, p, n)) for b in (1, 2) for p in lengths for n in (3, 5)}, BY_BOTH)
        assert made is not None
        pieces.append(Piece({0: made}, lengths[0], lengths[-1], until=until))
    (one,) = joined(pieces)
    assert (one.first, one.last, one.until) == (96, 2064, None)
    assert str(one) == f"batch*(16*min({of}, 1023) + 24*prompt) + 7"
    assert PeakFormula((one,), of)(3, 1000, 20) == whole(Sizes(3, 1000, 20))


def test_pieces_that_differ_otherwise_stay_pieces() -> None:
    short, long = Polynomial({(1, 1, 0): 4}), Polynomial({(1, 2, 0): 1})
    pieces = (Piece({0: short}, 8, 90, 0, 100), Piece({1: long}, 110, 500, 101))
    peak_formula = PeakFormula(joined(pieces), "prompt")
    assert str(peak_formula) == "batch*4*prompt if prompt <= 100 else batch*prompt**2"
    assert (peak_formula(2, 100, 1), peak_formula(2, 101, 1), peak_formula.held) == (800, 2 * 101**2, ((8, 90), (110, 500)))
    assert PeakFormula(pieces[1:], "prompt").gives(2, 100, 1) is None


def test_a_formula_reads_as_python() -> None:
    polynomial = Polynomial({(1, 1, 0): 40, (1, 0, 1): 16, (1, 0, 0): 8, (0, 0, 0): 500})
    assert str(polynomial) == "batch*(16*(prompt + new) + 24*prompt + 8) + 500"
    assert str(Polynomial({(1, 2, 0): 1})) == "batch*prompt**2"
    assert str(Polynomial({})) == "0"


def test_moments_are_the_same_in_whatever_order_blocks_were_asked_for() -> None:
    found = []
    for order in (("a", "b", "c"), ("b", "c", "a")):
        tape: Tape[Origin] = Tape()
        for name in order:
            slot = tape.slot({"a": 10, "b": 20, "c": 5}[name], "activation", "")
            tape.owners[slot] = Origin(name, "line")
            tape.events.append(slot)
            if name == "c":
                tape.events.append(~slot)
        found.append(highest_by_origin(tape, 0, len(tape.events)))
    assert [size for _, size in {*found[0].items()} & {*found[1].items()}] == [30]
