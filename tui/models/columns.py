"""Numbers by row: a node's own, and for modules and functions the sum of their nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Node, Value
from irscope.ir.types import ScalarType, TensorType, Type
from irscope.report.units import Kind, humanise
from irscope.tui.models.amounts import Amount, Amounts
from irscope.tui.models.binding import Binding
from irscope.tui.models.outline import Group, Outline, Rows
from irscope.tui.models.symbols import Symbols


@dataclass(frozen=True, slots=True)
class Column:
    """One number per row: the sum of what is known, None where nothing is, and how many nodes are not in it."""

    kind: Kind
    values: Amounts
    missing: Rows

    @property
    def is_symbolic(self) -> bool:
        """Whether some of the numbers are formulas."""
        return bool(self.values.formulas)

    def text(self, row: int, symbols: Symbols, alike: Sequence[int] = ()) -> str:
        """The number for a reader: `?` for what is unknown, and a sign before a sum that leaves something out.

        `alike` are rows that stand together with this one, which have one sum.
        """
        value, missing = joined(self.values, self.missing, alike or (row,))
        if value is None:
            return symbols.unknown
        return f"{symbols.at_least if missing else ''}{short_amount(value, self.kind, symbols)}"

    def bound(self, binding: Binding) -> Column:
        """The same column with sizes put in for symbols."""
        return Column(self.kind, self.values.bound(binding), self.missing) if binding.env else self


def column_of(kind: Kind, values: Sequence[Dim | None], missing: Sequence[int]) -> Column:
    """A column of these numbers."""
    return Column(kind, Amounts.of(values), np.array(missing, dtype=np.int32))


def joined(values: Amounts, missing: Rows, rows: Sequence[int]) -> tuple[Amount | None, int]:
    """The sum of some rows, None where none of them is known, and how many nodes are not in it."""
    total: Amount | None = None
    for row in rows:
        total = added(total, values[row])
    return total, sum(int(missing[row]) for row in rows)


def added(total: Amount | None, value: Amount | None) -> Amount | None:
    """A sum in which what is unknown is left out."""
    if total is None or value is None:
        return value if total is None else total
    if isinstance(total, SymDim) or isinstance(value, SymDim):
        # A formula and a fraction have no sum that could be written.
        return None if isinstance(total, float) or isinstance(value, float) else total + value
    return total + value


def sum_up(outline: Outline, kind: Kind, value_of: Callable[[Node], Dim | None], *, includes_regions: bool = False) -> Column:
    """A column of a node's values. What is inside a region is added to no other node.

    `includes_regions` says that a node's value covers its regions, so that what is unknown there is missing in it too.
    """
    count = len(outline)
    values: list[Dim | None] = [None] * count
    missing = [0] * count
    parents = outline.parent.tolist()
    for row in range(count - 1, -1, -1):
        item = outline.items[row]
        if not isinstance(item, Group):
            values[row] = value_of(item)
            missing[row] += int(values[row] is None)
        above = parents[row]
        if above < 0:
            continue
        if isinstance(outline.items[above], Group):
            missing[above] += missing[row]
            values[above] = _added(values[above], values[row])
        elif includes_regions:
            missing[above] += missing[row]
    return column_of(kind, values, missing)


def _added(total: Dim | None, value: Dim | None) -> Dim | None:
    if value is None:
        return total
    return value if total is None else total + value


def amount(value: Dim | None, kind: Kind, symbols: Symbols) -> str:
    """A number with its unit, a formula as it is."""
    if value is None:
        return symbols.unknown
    text = str(value) if isinstance(value, SymDim) else value
    return symbols.clean(humanise(text, kind))


def short_amount(value: Amount, kind: Kind, symbols: Symbols) -> str:
    """A number for a column whose heading says what it counts."""
    if isinstance(value, SymDim):
        return symbols.clean(str(value))
    text = humanise(value, kind)
    return text.removesuffix("FLOPs").rstrip() if kind is Kind.FLOPS else text


class ByteSizes:
    """Sizes of values by their types, each type looked at once."""

    def __init__(self) -> None:
        self._known: dict[Type, Dim | None] = {}

    def of(self, value: Value) -> Dim | None:
        """Bytes of one value; None where its size is unknown."""
        type_ = value.type
        if type_ not in self._known:
            self._known[type_] = type_bytes(type_)
        return self._known[type_]

    def of_results(self, node: Node) -> Dim | None:
        """Bytes of all results of a node; None where the size of one is unknown."""
        total: Dim = 0
        for output in node.outputs:
            size = self.of(output)
            if size is None:
                return None
            total = total + size
        return total


def type_bytes(type_: Type) -> Dim | None:
    """Bytes of a tensor. A plain number needs no storage of its own."""
    if isinstance(type_, TensorType):
        return known(type_.nbytes)
    return 0 if isinstance(type_, ScalarType) else None


def known(value: Dim | None) -> Dim | None:
    """The number, or None where it is data-dependent."""
    return None if isinstance(value, SymDim) and value.is_unknown else value
