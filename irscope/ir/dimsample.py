"""Values of formulas at a few bindings of their symbols: cheap evidence that a proof is not worth looking for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from irscope.ir.dimpoly import Atom, Dim

Point: TypeAlias = "dict[Atom, int]"
Factored: TypeAlias = "Iterable[tuple[tuple[Atom, ...], int]]"

COMPUTE: dict[str, Callable[..., int]] = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}

NEAR, FAR = 1_000, 1_000_000
STEEP = 100_000
MAX_SYMBOLS = 6


def sample_points(symbols: Iterable[Atom]) -> list[Point]:
    """One corner of what is possible, then pairs of a near and a far point: all symbols together, and one by one."""
    ordered = sorted(symbols, key=_rank)
    groups = [ordered, *([symbol] for symbol in ordered[:MAX_SYMBOLS] if len(ordered) > 1)]
    points = [_point(ordered, [], 0)]
    for group in groups:
        points += [_point(ordered, group, NEAR), _point(ordered, group, FAR)]
    return points


def _rank(atom: Atom) -> tuple[str, int]:
    return atom.rank


def _point(symbols: Sequence[Atom], moved: Sequence[Atom], distance: int) -> Point:
    return {symbol: _inside(symbol, distance if symbol in moved else 0) for symbol in symbols}


def _inside(symbol: Atom, distance: int) -> int:
    if symbol.lo is None:
        return (symbol.hi or 0) - distance
    return symbol.lo + distance if symbol.hi is None else min(symbol.lo + distance, symbol.hi)


def sample(terms: Factored, points: Iterable[Point]) -> tuple[int, ...] | None:
    """The values at some points; None where one of them divides by zero."""
    try:
        return tuple([evaluate(terms, point) for point in points])
    except ZeroDivisionError:
        return None


def evaluate(terms: Factored, point: Point) -> int:
    """The value at a binding of all symbols, which also remembers the operations met on the way."""
    total = 0
    for atoms, coeff in terms:
        for atom in atoms:
            value = point.get(atom)
            if value is None:
                value = point[atom] = COMPUTE[atom.kind](*[_evaluated(arg, point) for arg in atom.args])
            coeff *= value
        total += coeff
    return total


def _evaluated(dim: Dim, point: Point) -> int:
    return dim if isinstance(dim, int) else evaluate([(mono.atoms, coeff) for mono, coeff in dim.terms], point)


def falls(values: Sequence[int]) -> bool:
    """Whether sampled values drop without end on the way to one of the far points."""
    return any(far < near - STEEP for near, far in zip(values[1::2], values[2::2], strict=True))
