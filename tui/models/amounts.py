"""Interned columns of numbers, formulas and unknowns: compact, and fast to bind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.ir.dims import Dim, SymDim
from irscope.tui.models.binding import Binding

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
