"""Comparing symbolic dimensions: three-valued answers, maxima, minima and broadcasting."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Literal, TypeAlias

from irscope.ir.dimatoms import lone_atom, operation
from irscope.ir.dimbounds import Interval, interval_of, max_interval, min_interval, raw
from irscope.ir.dimdiv import expand_mods, has_mods
from irscope.ir.dimpoly import ONE, Dim, SymDim, as_dim, collapsed
from irscope.ir.dimsample import sample, sample_points

MAX_ARGUMENTS = 64
FEW_ARGUMENTS = 8

Extreme: TypeAlias = Literal["max", "min"]


def equal(a: Dim, b: Dim) -> bool | None:
    """Whether two sizes are the same; None where that depends on the symbols or cannot be proven."""
    if type(a) is int and type(b) is int:
        return a == b
    if a is b:
        return True
    difference = as_dim(a) - as_dim(b)
    lo, hi = _tightest(difference)
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return False
    if lo == 0 and hi == 0:
        return True
    return False if isinstance(difference, SymDim) and _never_zero(difference) else None


def less(a: Dim, b: Dim) -> bool | None:
    """Whether a < b; None where that depends on the symbols or cannot be proven."""
    if type(a) is int and type(b) is int:
        return a < b
    return _at_least(as_dim(b) - as_dim(a), 1)


def less_equal(a: Dim, b: Dim) -> bool | None:
    """Whether a <= b; None where that depends on the symbols or cannot be proven."""
    if type(a) is int and type(b) is int:
        return a <= b
    return _at_least(as_dim(b) - as_dim(a), 0)


def _at_least(difference: Dim, limit: int) -> bool | None:
    lo, hi = _tightest(difference)
    if lo is not None and lo >= limit:
        return True
    return False if hi is not None and hi < limit else None


def _tightest(dim: Dim) -> Interval:
    """Bounds with and without remainders written as divisions, whichever are tighter."""
    lo, hi = interval_of(dim)
    if has_mods(dim):
        low, high = interval_of(expand_mods(dim))
        lo = low if lo is None else lo if low is None else max(lo, low)
        hi = high if hi is None else hi if high is None else min(hi, high)
    return lo, hi


def _never_zero(dim: SymDim) -> bool:
    """Whether the constant is no multiple of what divides all other terms."""
    mono, constant = dim.terms[-1]
    return mono is ONE and constant % math.gcd(*(coeff for _, coeff in dim.terms[:-1])) != 0


def dim_max(*dims: Dim) -> Dim:
    """The largest of some sizes; arguments that provably never win are left out."""
    return _extreme("max", dims)


def dim_min(*dims: Dim) -> Dim:
    """The smallest of some sizes; arguments that provably never win are left out."""
    return _extreme("min", dims)


def broadcast(a: Dim, b: Dim) -> Dim:
    """The size that two sizes broadcast to, for every pair of values that may be broadcast."""
    a, b = as_dim(a), as_dim(b)
    if a is b or b == 1:
        return a
    if a == 1:
        return b
    for size in (a, b):
        if isinstance(size, int):
            return size
    return dim_max(a, b) * dim_min(1, a, b)


def _extreme(kind: Extreme, dims: tuple[Dim, ...]) -> Dim:
    if not dims:
        raise TypeError(f"dim_{kind} needs at least one size")
    numbers: list[int] = []
    formulas: dict[SymDim, None] = {}
    for dim in _flattened(kind, dims):
        if isinstance(dim, int):
            numbers.append(dim)
        else:
            formulas[dim] = None
    arguments: list[Dim] = []
    if numbers:
        arguments.append(max(numbers) if kind == "max" else min(numbers))
    # In one fixed order, so that the same arguments always make the same object.
    ordered = sorted(formulas, key=_order)
    samples = _samples([*arguments, *ordered]) if len(formulas) > FEW_ARGUMENTS else {}
    for formula in ordered:
        arguments = _with_argument(kind, arguments, formula, samples)
        if len(arguments) > MAX_ARGUMENTS:
            return _too_many(kind, numbers, list(formulas))
    if len(arguments) == 1:
        return arguments[0]
    if isinstance(arguments[0], int):
        arguments.append(arguments.pop(0))
    return operation(kind, tuple(arguments))


def _too_many(kind: Extreme, numbers: list[int], formulas: list[SymDim]) -> Dim:
    dims: list[Dim] = [*numbers, *formulas]
    intervals = [interval_of(dim) for dim in dims]
    bounds = max_interval(intervals) if kind == "max" else min_interval(intervals)
    return collapsed(kind, sorted([*map(hex, numbers), *map(str, formulas)]), bounds)


def _flattened(kind: Extreme, dims: tuple[Dim, ...]) -> list[Dim]:
    flat: list[Dim] = []
    for dim in map(as_dim, dims):
        atom = lone_atom(dim)
        if atom is not None and atom.kind == kind:
            flat.extend(atom.args)
        else:
            flat.append(dim)
    return flat


def _with_argument(kind: Extreme, kept: list[Dim], new: Dim, samples: Mapping[Dim, tuple[int, ...] | None]) -> list[Dim]:
    rest: list[Dim] = []
    beaten = False
    for old in kept:
        if _undecided(samples.get(old), samples.get(new)):
            rest.append(old)
            continue
        lo, hi = _tightest(old - new if kind == "max" else new - old)
        if not beaten and lo is not None and lo >= 0:
            beaten = True
        elif hi is not None and hi <= 0:
            # An argument that is beaten itself still beats others, which its winner then beats too.
            continue
        rest.append(old)
    return rest if beaten else [*rest, new]


def _samples(dims: list[Dim]) -> dict[Dim, tuple[int, ...] | None]:
    """Values at a few bindings, with which most pairs need no proof: each is larger somewhere."""
    points = sample_points({leaf for dim in dims if isinstance(dim, SymDim) for leaf in dim.leaves})
    return {dim: sample(raw(dim).items(), points) for dim in dims}


def _undecided(a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> bool:
    return a is not None and b is not None and any(map(operator.lt, a, b)) and any(map(operator.gt, a, b))


def _order(dim: SymDim) -> tuple[object, ...]:
    return tuple((mono.order, coeff) for mono, coeff in dim.terms)
