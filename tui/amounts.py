"""Columns of numbers, formulas and unknowns, and sizes that are put in for symbols."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.amounts import read_size
from irscope.errors import UsageError
from irscope.ir.dims import Dim, SymDim, bind

# ----------------------------------------------------------------------------------------------------
# Interned columns of numbers, formulas and unknowns: compact, and fast to bind.

Amount: TypeAlias = "Dim | float"
Codes: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]


class Amounts:
    """A sequence of numbers, formulas and unknowns (None)."""

    def __init__(self, codes: Codes, distinct: Sequence[Amount | None]) -> None:
        self.codes = codes
        self.distinct = distinct

    @classmethod
    def of(cls, values: Iterable[Amount | None]) -> Amounts:
        """The sequence of these values."""
        places: dict[Amount | None, int] = {}
        codes = [places.setdefault(value, len(places)) for value in values]
        return cls(np.array(codes, dtype=np.int32), list(places))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> Amount | None:
        return self.distinct[int(self.codes[row])]

    def __iter__(self) -> Iterator[Amount | None]:
        distinct = self.distinct
        return (distinct[code] for code in self.codes.tolist())

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Amounts | list | tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # compared by what is in it, like a list

    @cached_property
    def formulas(self) -> int:
        """How many distinct formulas there are."""
        return sum(1 for value in self.distinct if isinstance(value, SymDim))

    @cached_property
    def numbers(self) -> Floats:
        """Every value as a number; NaN for formulas and what is unknown."""
        return np.array([_number(value) for value in self.distinct] or [math.nan], dtype=np.float64)[self.codes]

    def bound(self, binding: Binding) -> Amounts:
        """The same with symbols bound; time is linear in the distinct formulas."""
        if not binding.env or not self.formulas:
            return self
        return Amounts(self.codes, [binding.of(value) if isinstance(value, SymDim) else value for value in self.distinct])


def _number(value: Amount | None) -> float:
    if value is None or isinstance(value, SymDim):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


# ----------------------------------------------------------------------------------------------------
# Bindings of symbols for display only: the model keeps its formulas.

_HINT = "for example batch=8 length=128"


class Binding:
    """Binds symbols; each distinct formula is evaluated once."""

    def __init__(self, env: Mapping[str, int] | None = None) -> None:
        self.env = dict(env or {})
        self._done: dict[SymDim, Dim | None] = {}

    def of(self, value: Dim | None) -> Dim | None:
        """The value under the binding; None where it has none."""
        if not self.env or not isinstance(value, SymDim):
            return value
        if value not in self._done:
            try:
                self._done[value] = bind(value, self.env)
            except UsageError:
                self._done[value] = None
        return self._done[value]

    @property
    def text(self) -> str:
        """The binding as text, as it is typed."""
        return " ".join(f"{name}={size}" for name, size in self.env.items())


def parse_binding(text: str, symbols: Mapping[str, SymDim]) -> Binding:
    """The sizes a text such as `batch=8 length=128` names; raises UsageError with one clear line."""
    env: dict[str, int] = {}
    for part in text.replace(",", " ").split():
        name, equals, number = part.partition("=")
        size = read_size(number)
        if not equals or size is None:
            raise UsageError(f"{part!r} is not of the form NAME=N", hint=_HINT)
        if name not in symbols:
            raise UsageError(f"there is no symbol {name!r}", hint=f"symbols: {', '.join(symbols) or 'none'}")
        env[name] = size
        bind(symbols[name], {name: env[name]})
    return Binding(env)


def example(symbols: Mapping[str, SymDim], binding: Binding) -> tuple[Binding, str]:
    """A complete binding for a chart: unbound symbols get the smallest useful size; with its text."""
    assumed = {name: max(1, size.lo or 1) for name, size in symbols.items() if name not in binding.env}
    return Binding({**assumed, **binding.env}), ", ".join(f"{name}={size}" for name, size in assumed.items())
