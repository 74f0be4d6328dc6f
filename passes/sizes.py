"""Numbers that may be formulas: how reports hold them, how they are sorted, which of them is the largest."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.ir.dims import Dim, SymDim, bounds, dim_max, less_equal, unknown
from irscope.ir.dimsample import evaluate

CONVENTION = "a multiply-add is 2 FLOPs; MiB = 2^20 bytes"
_TYPICAL = 64
_MOST_CANDIDATES = 12


def plain(number: Dim | None) -> int | str | None:
    """A number as reports hold it: formulas as text, None for what depends on sizes that nobody can know."""
    if isinstance(number, SymDim):
        return None if number.is_unknown else str(number)
    return number


def largest(sizes: Sequence[Dim]) -> tuple[Dim, int]:
    """The largest size and the first place that has it. Where sizes cross as symbols grow, all that may be the largest count.

    Where too many cross to be told apart in reasonable time, the answer is an unknown size.
    """
    places: dict[Dim, int] = {}
    for place, size in enumerate(sizes):
        places.setdefault(size, place)
    # From the largest down: nearly all others are at most the first, which one comparison each shows.
    best: list[Dim] = []
    for size in sorted(places, key=scale, reverse=True):
        if any(less_equal(size, other) for other in best):
            continue
        best = [other for other in best if not less_equal(other, size)]
        best.append(size)
        if len(best) > _MOST_CANDIDATES:
            return unknown("largest", max((bounds(one)[0] or 0 for one in best), default=0)), places[best[0]]
    if not best:
        return 0, 0
    return dim_max(*best), places[max(best, key=scale)]


def scale(size: Dim) -> int:
    """A number to sort sizes by: the size itself, or the formula with every symbol at a typical size that it may have."""
    if isinstance(size, int):
        return size
    if size.is_unknown:
        return 0
    point = {leaf: _typical(leaf.lo, leaf.hi) for leaf in size.leaves}
    try:
        return evaluate([(mono.atoms, coeff) for mono, coeff in size.terms], point)
    except ZeroDivisionError:
        return 0


def typical(symbol: SymDim) -> int:
    """A size that a symbol may well have."""
    return _typical(*bounds(symbol))


def _typical(low: int | None, high: int | None) -> int:
    size = _TYPICAL if high is None else min(_TYPICAL, high)
    return size if low is None else max(size, low)
