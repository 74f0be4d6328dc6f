"""Numbers that may be formulas: how reports hold them, how they are sorted, which of them is the largest."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.ir.dim_poly import evaluate
from irscope.ir.dims import Dim, SymDim, bounds, dim_max, less_equal, unknown
from irscope.report.values import Provenance, Quantity

CONVENTION = "a multiply-add is 2 FLOPs; MiB = 2^20 bytes"
_TYPICAL = 64
_MOST_CANDIDATES = 12


def dim_cell(number: Dim | None) -> int | str | None:
    """Return a number as reports hold it: formulas as text, None for what depends on unknown sizes."""
    if isinstance(number, SymDim):
        return None if number.is_unknown else str(number)
    return number


def at_least(number: Dim | float | None, complete: bool, provenance: Provenance = Provenance.EXACT) -> object:
    """Return a sum or a count: a lower bound where something unknown belongs to it, and unknown where that is all there is."""
    shown = number if isinstance(number, float) else dim_cell(number)
    if complete or shown is None:
        return shown if provenance is Provenance.EXACT else Quantity(shown, provenance)
    return Quantity(shown or None, provenance, lo=shown)


def size_cell(size: Dim) -> Quantity:
    """Return a size as reports hold it; an unknown one with its bounds."""
    if not isinstance(size, SymDim) or not size.is_unknown:
        return Quantity(dim_cell(size))
    low, high = bounds(size)
    return Quantity(None, Provenance.UNKNOWN, lo=low, hi=high)


def within(number: int, unknown_count: int) -> object:
    """Return a count to which so many others may belong."""
    return number if not unknown_count else Quantity(number or None, lo=number, hi=number + unknown_count)


def known_share(part: float | None, complete: bool, provenance: Provenance = Provenance.EXACT, note: str = "") -> object:
    """Return a share of what is known: of the whole it is anything from none to all where a part of that is unknown."""
    if complete or part is None:
        return part if provenance is Provenance.EXACT else Quantity(part, provenance, note=note)
    return Quantity(part or None, provenance, note=note, lo=0.0, hi=1.0)


def share_of(part: Dim | None, whole: Dim | None) -> float | None:
    """Return a part of the whole; None where either is unknown, where it depends on sizes, and of nothing."""
    if isinstance(part, int) and isinstance(whole, int):
        return part / whole if whole else None
    return 1.0 if part is not None and part == whole else None


def largest_size(sizes: Sequence[Dim]) -> tuple[Dim, int]:
    """Return the largest size and the first place that has it. Where sizes cross as symbols grow, all that may be the largest count.

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
            return unknown("largest", max((bounds(dim)[0] or 0 for dim in best), default=0)), places[best[0]]
    if not best:
        return 0, 0
    return dim_max(*best), places[max(best, key=scale)]


def scale(size: Dim) -> int:
    """Return a number to sort sizes by: the size itself, or the formula with every symbol at a typical size that it may have."""
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
    """Return a size that a symbol may well have."""
    return _typical(*bounds(symbol))


def _typical(low: int | None, high: int | None) -> int:
    size = _TYPICAL if high is None else min(_TYPICAL, high)
    return size if low is None else max(size, low)
