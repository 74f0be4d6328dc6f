"""Values of many formulas at many bindings of their symbols at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.errors import UsageError
from irscope.ir.bind import bind_option, typed
from irscope.ir.dim_poly import Atom, Dim, Monomial, SymDim, atom_dim

Numbers: TypeAlias = "NDArray[Any]"
"""One number for each binding: int64 where that cannot overflow, else Python integers."""

_SAFE = 2**62


class Evaluator:
    """Evaluates formulas at fixed bindings; what occurs in several formulas is computed once.

    `bindings` has for each symbol its sizes, one for each binding, under the symbol's name.
    """

    def __init__(self, bindings: Mapping[str, Sequence[int]]) -> None:
        self._bindings = {name: [int(size) for size in sizes] for name, sizes in bindings.items()}
        lengths = {len(sizes) for sizes in self._bindings.values()}
        if len(lengths) > 1:
            raise ValueError("every symbol needs as many sizes as the others")
        self.count = lengths.pop() if lengths else 1
        self._atoms: dict[Atom, tuple[Numbers, int]] = {}
        self._monomials: dict[Monomial, tuple[Numbers, int]] = {}
        self._formulas: dict[SymDim, tuple[Numbers, int]] = {}

    def at(self, dim: Dim) -> Numbers:
        """Return the size at each binding. Raises UsageError where a symbol has no size or something is divided by zero."""
        return self._dim(dim)[0]

    def rows(self, dims: Iterable[Dim]) -> Numbers:
        """Return one row for each size, one column for each binding."""
        found = [self.at(dim) for dim in dims]
        exact = any(row.dtype == object for row in found)
        return np.array(found, dtype=object if exact else np.int64).reshape(len(found), self.count)

    def _dim(self, dim: Dim) -> tuple[Numbers, int]:
        """Return the numbers, and one that none of them exceeds in size, which also holds for all steps on the way."""
        if not isinstance(dim, SymDim):
            return _full(int(dim), self.count), abs(int(dim))
        known = self._formulas.get(dim)
        if known is None:
            known = self._formulas[dim] = self._sum(dim)
        return known

    def _sum(self, dim: SymDim) -> tuple[Numbers, int]:
        parts = [(self._monomial(mono), coeff) for mono, coeff in dim.terms]
        limit = sum(part_limit * abs(coeff) for (_, part_limit), coeff in parts)
        total = _full(0, self.count, limit)
        for (numbers, _), coeff in parts:
            total = total + _fitting(numbers, limit) * coeff
        return total, limit

    def _monomial(self, mono: Monomial) -> tuple[Numbers, int]:
        known = self._monomials.get(mono)
        if known is None:
            factors = [self._atom(atom) for atom in mono.atoms]
            limit = 1
            for _, factor_limit in factors:
                limit *= max(factor_limit, 1)
            numbers = _full(1, self.count, limit)
            for factor, _ in factors:
                numbers = numbers * _fitting(factor, limit)
            known = self._monomials[mono] = numbers, limit
        return known

    def _atom(self, atom: Atom) -> tuple[Numbers, int]:
        known = self._atoms.get(atom)
        if known is None:
            known = self._atoms[atom] = self._operation(atom) if atom.args else self._symbol(atom)
        return known

    def _symbol(self, atom: Atom) -> tuple[Numbers, int]:
        sizes = self._bindings.get(atom.text)
        if sizes is None:
            raise UsageError(f"{atom.text} has no size", code="IRS330", hint=f"give it one: {typed(bind_option([atom_dim(atom)]))}")
        limit = max(map(abs, sizes), default=0)
        return np.array(sizes, dtype=object if limit >= _SAFE else np.int64), limit

    def _operation(self, atom: Atom) -> tuple[Numbers, int]:
        parts = [self._dim(arg) for arg in atom.args]
        limit = max(part_limit for _, part_limit in parts)
        first, *others = (_fitting(numbers, limit) for numbers, _ in parts)
        if atom.kind in ("max", "min"):
            choose = np.maximum if atom.kind == "max" else np.minimum
            for other in others:
                first = choose(first, other)
            return first, limit
        (under,) = others
        if not np.all(under != 0):
            raise UsageError(f"{atom.text} is divided by zero at one of the sizes", code="IRS622")
        # A quotient rounds away from zero below it, which may add one to its size.
        return (first // under if atom.kind == "floordiv" else first % under), limit + 1


def _full(number: int, count: int, limit: int = 0) -> Numbers:
    return np.full(count, number, dtype=object if max(abs(number), limit) >= _SAFE else np.int64)


def _fitting(numbers: Numbers, limit: int) -> Numbers:
    return numbers.astype(object) if limit >= _SAFE and numbers.dtype != object else numbers
