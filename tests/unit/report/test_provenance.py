"""What is computed from a number comes from where that number comes from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from irscope.report.celltext import signed
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity, derived, largest, quantity

EXACT, MEASURED, MODELLED, UNKNOWN = Provenance.EXACT, Provenance.MEASURED, Provenance.MODELLED, Provenance.UNKNOWN
GUESS = Quantity(50, MODELLED, note="a model", lo=20, hi=80)
VAGUE = Quantity(50, MODELLED)
OPEN = Quantity(50, MODELLED, lo=50)

sizes = st.integers(0, 1000)


@st.composite
def quantities(draw: st.DrawFn) -> Quantity:
    """Exact numbers, and modelled ones with an interval that may be open above."""
    low, value, high = sorted(draw(st.lists(sizes, min_size=3, max_size=3)))
    if draw(st.booleans()):
        return Quantity(value)
    return Quantity(value, MODELLED, lo=low, hi=draw(st.sampled_from([high, None])))


def inside(one: Quantity, draw: st.DataObject) -> int:
    """Some number that the quantity may turn out to be."""
    low, high = one.ends
    assert isinstance(low, int)
    found: int = draw.draw(st.integers(low, high if isinstance(high, int) else low + 2000))
    return found


def may_be(one: Quantity, number: int) -> bool:
    low, high = one.ends
    return (low is None or low <= number) and (high is None or number <= high)


@given(st.lists(quantities(), min_size=1, max_size=4), st.data())
def test_sums_and_maxima_contain_what_is_possible(parts: list[Quantity], data: st.DataObject) -> None:
    really = [inside(part, data) for part in parts]
    assert may_be(sum(parts, Quantity(0)), sum(really))
    assert may_be(largest(parts), max(really))
    assert may_be(parts[0] - parts[-1], really[0] - really[-1]) or len(parts) == 1
    assert sum(parts, Quantity(0)).value == sum(int(str(part.value)) for part in parts)
    assert largest(parts).value == max(int(str(part.value)) for part in parts)


@given(st.lists(quantities(), min_size=1, max_size=4), st.data())
def test_what_is_called_exact_cannot_be_another_number(parts: list[Quantity], data: st.DataObject) -> None:
    really = [inside(part, data) for part in parts]
    if largest(parts).provenance is EXACT:
        assert largest(parts).value == max(really)
    if sum(parts, Quantity(0)).provenance is EXACT:
        assert sum(parts, Quantity(0)).value == sum(really)


def test_a_sum_is_as_sure_as_its_least_sure_part() -> None:
    assert Quantity(150, MODELLED, note="a model", lo=120, hi=180) == 100 + GUESS
    assert Quantity(50, MODELLED, note="a model", lo=20, hi=80) == 100 - GUESS
    assert Quantity(150, MODELLED) == 100 + VAGUE
    assert (GUESS + OPEN).interval == (70, None)
    assert (Quantity(1, MEASURED) + Quantity(2)).provenance is MEASURED
    assert (Quantity(1, MEASURED) + VAGUE).provenance is MODELLED
    assert (GUESS + Quantity(None, UNKNOWN, note="why")).provenance is UNKNOWN


def test_what_is_surely_lower_has_no_part_in_a_peak() -> None:
    assert largest([100, GUESS]) == Quantity(100)
    assert largest([60, GUESS]) == Quantity(60, MODELLED, note="a model", lo=60, hi=80)
    assert largest([80, GUESS]) == Quantity(80)
    # Without an interval it may be anything, and so may the peak.
    assert largest([100, VAGUE]).provenance is MODELLED
    assert largest([100, OPEN]).interval == (100, None)
    assert largest([100, Quantity(None)]).value is None
    assert largest([]) == Quantity(0)


def test_what_follows_in_another_way_is_as_sure_as_its_sources() -> None:
    assert derived(0.5, GUESS, 100) == Quantity(0.5, MODELLED)
    assert derived(True, 1, 2) == Quantity(True)
    assert derived("conv1", quantity(5), Quantity(1, MEASURED)).provenance is MEASURED


def test_sentences_carry_the_sign() -> None:
    assert signed(Quantity(2048, MODELLED), Kind.BYTES) == "~2.00 KiB"
    assert signed(2048, Kind.BYTES) == "2.00 KiB"
