"""Columns of numbers, formulas and unknowns, and sizes that are put in for symbols."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.amounts import read_size
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim, bind, total_of
from irscope.ir.graph import Node, Value
from irscope.ir.types import ScalarType, TensorType, Type
from irscope.report.cardtext import formula_text
from irscope.report.celltext import SIGNS
from irscope.report.printable import display_width
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, bare, plain
from irscope.tui.browse.outline import Group, Mask, Outline, Rows
from irscope.tui.text import Symbols

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
        """Return the sequence of these values."""
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
        """Return the number of distinct formulas."""
        return sum(1 for value in self.distinct if isinstance(value, SymDim))

    @cached_property
    def numbers(self) -> Floats:
        """Return every value as a number; NaN for formulas and what is unknown."""
        return np.array([_sort_key(value) for value in self.distinct] or [math.nan], dtype=np.float64)[self.codes]

    def bound(self, binding: Binding) -> Amounts:
        """Return the same with symbols bound; time is linear in the distinct formulas."""
        if not binding.env or not self.formulas:
            return self
        return Amounts(self.codes, [binding.of(value) if isinstance(value, SymDim) else value for value in self.distinct])


def _sort_key(value: Amount | None) -> float:
    if value is None or isinstance(value, SymDim):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


# Bindings of symbols for display only: the model keeps its formulas.

_HINT = "for example batch=8 length=128"


class Binding:
    """Binds symbols; each distinct formula is evaluated once."""

    def __init__(self, env: Mapping[str, int] | None = None) -> None:
        self.env = dict(env or {})
        self._done: dict[SymDim, Dim | None] = {}

    def of(self, value: Dim | None) -> Dim | None:
        """Return the value under the binding; None where it has none."""
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
        """Return the binding as text, as it is typed."""
        return " ".join(f"{name}={size}" for name, size in self.env.items())


def parse_sizes(text: str) -> dict[str, int]:
    """Return the sizes a text such as `batch=8 length=128` names, or as an advice gives it, `--bind flag=1`; raises UsageError."""
    env: dict[str, int] = {}
    for part in text.replace("--bind", " ").replace(",", " ").split():
        name, equals, number = part.partition("=")
        size = read_size(number)
        if not equals or size is None:
            raise UsageError(f"{part!r} is not of the form NAME=N", hint=_HINT)
        env[name] = size
    return env


def parse_binding(text: str, symbols: Mapping[str, SymDim]) -> Binding:
    """Return the sizes that a text names for symbols; raises UsageError with one clear line."""
    env = parse_sizes(text)
    for name, size in env.items():
        if name not in symbols:
            raise UsageError(f"there is no symbol {name!r}", hint=f"symbols: {', '.join(symbols) or 'none'}")
        bind(symbols[name], {name: size})
    return Binding(env)


# Numbers by row of the tree: a node's own, and for modules and functions the sum of their nodes.

_ADDS = frozenset({Kind.BYTES, Kind.FLOPS, Kind.SECONDS, Kind.COUNT})
"""Kinds of which a module has the sum of its nodes; of others, such as a share, it has none."""


@immutable
class Column:
    """One number per row: the sum of what is known, None where nothing is, and how many nodes are not in it."""

    title: str
    kind: Kind
    values: Amounts
    missing: Rows
    blank: Mask | None = None
    """Rows about which the column says nothing at all."""

    @classmethod
    def of(cls, title: str, kind: Kind, values: Iterable[Amount | None], missing: Iterable[int], blank: Mask | None = None) -> Column:
        """Return a column of these numbers."""
        return cls(title, kind, Amounts.of(values), np.array([*missing], dtype=np.int32), blank)

    @property
    def is_symbolic(self) -> bool:
        """Return whether some of the numbers are formulas."""
        return bool(self.values.formulas)

    def text(self, row: int, symbols: Symbols, alike: Sequence[int] = (), *, stated: Binding | None = None) -> str:
        """Return the number for a reader: `?` for what is unknown, and a sign before a sum that leaves something out.

        `alike` are rows that stand together with this one, which have one sum. Where sizes are `stated`, the number at them stands in place
        of a formula, with the sign of what is assumed.
        """
        if self.blank is not None and self.blank[row]:
            return ""
        rows = self._together(row, alike)
        value = self._sum(rows)
        if value is None:
            return symbols.unknown
        number = stated.of(value) if stated is not None and isinstance(value, SymDim) else None
        if number is not None and not isinstance(number, SymDim):
            shown = f"{SIGNS[Provenance.ASSUMED]}{self._short(humanise(number, self.kind))}"
        else:
            shown = self._short(_formula(value, self.kind) if isinstance(value, SymDim) else humanise(value, self.kind))
        return f"{symbols.at_least if any(self.missing[row] for row in rows) else ''}{symbols.clean(shown)}"

    def has_room(self, room: int, symbols: Symbols, runs: Iterable[Sequence[int]] = ()) -> bool:
        """Return True where each formula of the column, and of the sums of these `runs` of rows, can be read in so many columns."""
        sign = display_width(symbols.at_least) if self.missing.any() else 0
        sums = (self._sum(self._together(run[0], run)) for run in runs)
        formulas = (value for value in (*self.values.distinct, *sums) if isinstance(value, SymDim))
        return all(display_width(self._short(_formula(value, self.kind))) + sign <= room for value in formulas)

    def _together(self, row: int, alike: Sequence[int]) -> Sequence[int]:
        """Return the rows whose sum stands in a row."""
        return alike if alike and self.kind in _ADDS else (row,)

    def _sum(self, rows: Sequence[int]) -> Amount | None:
        value: Amount | None = None
        for row in rows:
            value = added(value, self.values[row])
        return value

    def _short(self, text: str) -> str:
        """Without a unit that the title has."""
        is_said = self.kind is Kind.FLOPS and self.title == "FLOPs"
        return text.replace(" FLOPs", "").replace("FLOPs", "").rstrip() if is_said else text

    def bound(self, binding: Binding) -> Column:
        """Return the same column with sizes put in for symbols."""
        return replace(self, values=self.values.bound(binding)) if binding.env else self


def added(total: Amount | None, value: Amount | None) -> Amount | None:
    """Return a sum in which what is unknown is left out."""
    if total is None or value is None:
        return value if total is None else total
    if isinstance(total, SymDim) or isinstance(value, SymDim):
        # A formula and a fraction have no sum that could be written.
        return None if isinstance(total, float) or isinstance(value, float) else total + value
    return total + value


def sum_up(
    outline: Outline,
    title: str,
    kind: Kind,
    value_of: Callable[[Node], Amount | None],
    *,
    about: Container[int] | None = None,
    includes_regions: bool = False,
) -> Column:
    """Return a column with a number for each node, or for those in the rows that it is `about`. What is inside a region is added to no
    other node.

    `includes_regions` says that a node's value covers its regions, so that what is unknown there is missing in it too.
    """
    count = len(outline)
    values: list[Amount | None] = [None] * count
    missing, covered = [0] * count, [False] * count
    parents, adds = outline.parent.tolist(), kind in _ADDS
    for row in range(count - 1, -1, -1):
        item = outline.items[row]
        if not isinstance(item, Group) and (about is None or row in about):
            values[row] = value_of(item)
            missing[row] += int(values[row] is None)
            covered[row] = True
        above = parents[row]
        if above < 0 or not adds:
            continue
        if isinstance(outline.items[above], Group):
            missing[above] += missing[row]
            values[above] = added(values[above], values[row])
            covered[above] |= covered[row]
        elif includes_regions:
            missing[above] += missing[row]
    blank = None if about is None and adds else ~np.array(covered, dtype=np.bool_)
    return Column.of(title, kind, values, missing, blank)


def amount(value: Dim | None, kind: Kind, symbols: Symbols) -> str:
    """Return a number with its unit, a formula as it is."""
    if value is None:
        return symbols.unknown
    return symbols.clean(_formula(value, kind) if isinstance(value, SymDim) else humanise(value, kind))


def _formula(value: SymDim, kind: Kind) -> str:
    """`416.14 MFLOPs x batch`; a longer formula as it is."""
    text = str(value)
    return formula_text(text, kind) or humanise(text, kind)


class ByteSizes:
    """Sizes of values by their types, each type looked at once."""

    def __init__(self) -> None:
        self._known: dict[Type, Dim | None] = {}

    def of(self, value: Value) -> Dim | None:
        """Return the bytes of one value; None where its size is unknown."""
        type_ = value.type
        if type_ not in self._known:
            self._known[type_] = type_bytes(type_)
        return self._known[type_]

    def of_results(self, node: Node) -> Dim | None:
        """Return the bytes of all results of a node; None where the size of one is unknown."""
        return total_of(map(self.of, node.outputs))


def type_bytes(type_: Type) -> Dim | None:
    """Return the bytes of a tensor. A plain number needs no storage of its own."""
    if isinstance(type_, TensorType):
        return known(type_.nbytes)
    return 0 if isinstance(type_, ScalarType) else None


def known(value: Dim | None) -> Dim | None:
    """Return the number, or None where it is data-dependent."""
    return None if isinstance(value, SymDim) and value.is_unknown else value


def number_of(cell: object) -> float | None:
    """Return the number in a cell of a report; None for formulas, texts and what is unknown."""
    value = bare(plain(cell))
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def numbers_of(cells: Iterable[object]) -> Floats:
    """Return the numbers in a column of a report for a chart, which draws nothing where there is none."""
    return np.array([float(number_of(cell) or 0) for cell in cells], dtype=np.float64)
