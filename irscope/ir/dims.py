"""Sizes that may be symbolic: everything passes and frontends do with a `Dim`.

A `Dim` is an int or a `SymDim`. Comparisons are three-valued: None means undecidable until the symbols are bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from irscope.errors import UsageError
from irscope.ir.dimatoms import symbol, unknown
from irscope.ir.dimbounds import Interval, interval_of
from irscope.ir.dimcompare import broadcast, dim_max, dim_min, equal, less, less_equal
from irscope.ir.dimdiv import ceildiv, exact_div, floordiv, mod, substitute
from irscope.ir.dimpoly import Atom, Dim, SymDim, as_dim, atom_dim
from irscope.ir.dimtext import parse_dim

__all__ = [
    "Dim",
    "SymDim",
    "bind",
    "bounds",
    "broadcast",
    "ceildiv",
    "dim_max",
    "dim_min",
    "equal",
    "exact_div",
    "floordiv",
    "less",
    "less_equal",
    "mod",
    "parse_dim",
    "product",
    "ratio",
    "symbol",
    "unknown",
]


def bounds(d: Dim) -> Interval:
    """The smallest and largest possible size, both included; None where there is no limit."""
    return interval_of(as_dim(d))


def product(dims: Iterable[Dim]) -> Dim:
    """All sizes multiplied: the number of elements of a shape."""
    number = 1
    formula: Dim = 1
    for dim in dims:
        if isinstance(dim, SymDim):
            formula = dim * formula
        else:
            number *= dim
    return formula * as_dim(number)


def ratio(a: Dim, b: Dim) -> Fraction | None:
    """What a divided by b is, where that is one number at every binding; None where it depends on one, or b may be nothing."""
    if a == b and b != 0:
        return Fraction(1)
    if isinstance(b, int):
        if isinstance(a, SymDim) or b == 0:
            return None
        return Fraction(a, b)
    if not isinstance(a, SymDim):
        return Fraction(0) if a == 0 else None
    over, under = dict(a.terms), dict(b.terms)
    if over.keys() != under.keys():
        return None
    shares = {Fraction(number, under[factors]) for factors, number in over.items()}
    return shares.pop() if len(shares) == 1 else None


def bind(d: Dim, env: Mapping[str, Dim]) -> Dim:
    """The size with symbols replaced by name, unknown ones with their question mark; names it does not mention are ignored."""
    d = as_dim(d)
    if isinstance(d, int) or d.names.isdisjoint(env):
        return d
    return _Binding(env).dim(d)


class _Binding:
    """One replacement of symbols; what occurs more than once is computed once."""

    def __init__(self, env: Mapping[str, Dim]) -> None:
        self._env = env
        self._done: dict[Atom, Dim] = {}

    def dim(self, d: Dim) -> Dim:
        return substitute(d, self._atom)

    def _atom(self, atom: Atom) -> Dim:
        value = self._done.get(atom)
        if value is None:
            value = self._done[atom] = self._operation(atom) if atom.args else self._symbol(atom)
        return value

    def _symbol(self, atom: Atom) -> Dim:
        if atom.text not in self._env:
            return atom_dim(atom)
        value = as_dim(self._env[atom.text])
        low, high = interval_of(value)
        if (atom.lo is not None and high is not None and high < atom.lo) or (atom.hi is not None and low is not None and low > atom.hi):
            raise UsageError(f"the dimension {atom.text} cannot be {value}: {_limits(atom)}", code="IRS620")
        return value

    def _operation(self, atom: Atom) -> Dim:
        if atom.names.isdisjoint(self._env):
            return atom_dim(atom)
        args = [self.dim(arg) for arg in atom.args]
        if atom.kind == "max":
            return dim_max(*args)
        if atom.kind == "min":
            return dim_min(*args)
        over, under = args
        if isinstance(under, int) and under == 0:
            bound = ", ".join(f"{name} = {self._env[name]}" for name in sorted(atom.names & self._env.keys()))
            raise UsageError(f"{atom.text} is divided by zero where {bound}", code="IRS622")
        return floordiv(over, under) if atom.kind == "floordiv" else mod(over, under)


def _limits(atom: Atom) -> str:
    if atom.lo is None or atom.hi is None:
        return f"it is at most {atom.hi}" if atom.lo is None else f"it is at least {atom.lo}"
    return f"it is from {atom.lo} to {atom.hi}"
