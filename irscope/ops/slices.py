"""Slices of weights and of what is computed from them: one row, column or channel each.

What rules of operators are given and answer; the rules are in `irscope.ops.slicing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from irscope.immutable import immutable
from irscope.ir.graph import Node, Value
from irscope.ir.types import Shape, TensorType

Ids: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@immutable
class Slices:
    """A tensor by axis: its slices where they can be told apart, and the number that each slice holds everywhere (NaN: several)."""

    ids: tuple[Ids | None, ...]
    held: tuple[Floats | None, ...]
    whole: float = math.nan
    """The number in a tensor of one element, where it is known."""

    @classmethod
    def unknown(cls, rank: int) -> Slices:
        return cls((None,) * rank, (None,) * rank)

    @property
    def rank(self) -> int:
        return len(self.ids)


class Channels(Protocol):
    """Sets of slices."""

    def fresh(self, size: int) -> Ids | None:
        """New slices, each a set of its own; None for more than are worth telling apart."""
        ...

    def unite(self, one: Ids, other: Ids) -> None:
        """Slices that must go together, pair by pair."""
        ...

    def block(self, ids: Ids | None, why: str) -> None:
        """Slices that must stay."""
        ...


class Flow(Protocol):
    """Input of a rule: slices of all values before its node."""

    @property
    def channels(self) -> Channels:
        """Return the sets that slices belong to."""
        ...

    def type(self, value: Value | None) -> TensorType | None:
        """Return the type of a tensor whose number of axes is known."""
        ...

    def shape(self, value: Value | None) -> Shape:
        """Sizes of a value; None where the number of axes is unknown, or there are none."""
        ...

    def known(self, value: Value) -> npt.NDArray[Any] | None:
        """Values of a small tensor, where they are known."""
        ...

    def of(self, value: Value | None) -> Slices | None:
        """Slices of an operand; None where it is absent or its number of axes unknown."""
        ...

    def sizes(self, value: Value | None) -> tuple[object, ...]:
        """Sizes of a tensor, symbols included."""
        ...

    def together(self, ids: Sequence[Ids | None], node: Node) -> Ids | None:
        """Axes that must have one size. One that cannot shrink keeps the others from it."""
        ...

    def contract(self, one: tuple[Ids | None, Floats | None], other: tuple[Ids | None, Floats | None], node: Node, folds: bool) -> None:
        """Products over an axis of two operands are summed; `folds` says whether a constant slice adds the same to every element."""
        ...

    def block(self, value: Value, why: str) -> None:
        """All slices of a value must stay."""
        ...


SliceRule: TypeAlias = Callable[[Flow, Node], Slices | Sequence[Slices] | None]
"""Slices of the results (of the first, or of all); None where the operator cannot do with smaller operands."""
