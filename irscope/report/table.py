"""Tables, series and summaries: cells with a kind each. Rows exist only where a renderer writes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from operator import add
from typing import Any, Final, TypeGuard, cast, overload

from irscope.errors import PassError, UsageError
from irscope.immutable import immutable
from irscope.report.options import shown_alone
from irscope.report.units import Kind, humanise
from irscope.report.values import Cell, Provenance, Quantity, as_assumed, assumed_from, bare, largest, least_sure, plain, quantity

_PART: Final = 4096
"""Elements of an array that become Python's numbers at a time."""


@immutable
class Column:
    """One column; `provenance` holds for every cell that does not say otherwise."""

    key: str
    kind: Kind = Kind.TEXT
    title: str = ""
    help: str = ""
    provenance: Provenance = Provenance.EXACT
    detail: bool = False
    """True where text, which has least room, leaves the column out."""

    @property
    def heading(self) -> str:
        """Return what a reader sees above the column."""
        return self.title or self.key.replace("_", " ")

    def assumed(self) -> Column:
        """Return the column, with numbers that depend on a guess."""
        return replace(self, provenance=assumed_from(self.provenance)) if self.kind.can_be_assumed else self

    @classmethod
    def parse(cls, text: str) -> Column:
        """Return a column from `key:kind`, or from `key` alone: a key named like a kind has that kind, any other is text."""
        key, colon, kind = text.partition(":")
        try:
            return cls(key, Kind(kind if colon else key))
        except ValueError:
            if not colon:
                return cls(key)
        known = ", ".join(kind.value for kind in Kind)
        raise PassError(f"column {text!r} has no such kind: {kind!r}", code="IRS510", hint=f"kinds are {known}")


class Cells(Sequence[object]):
    """A column whose cells are made when somebody looks at them: of a large table that is only those that are printed."""

    __slots__ = ("_items", "_make")

    def __init__(self, items: Sequence[Any], make: Callable[[Any], object]) -> None:
        self._items, self._make = items, make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> object: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[object]: ...
    def __getitem__(self, place: int | slice) -> object:
        return Cells(self._items[place], self._make) if isinstance(place, slice) else self._make(self._items[place])

    def __iter__(self) -> Iterator[object]:
        return map(self._make, self._items)

    def told(self, change: Callable[[object], object]) -> Cells:
        """Return the column with something done to every cell."""
        make = self._make
        return Cells(self._items, lambda item: change(make(item)))


@dataclass(frozen=True, repr=False)
class Table:
    """Columns of equal length; numpy arrays or sequences. `keys` names the node or value of each row, so that a reader can jump there."""

    title: str
    columns: tuple[Column, ...]
    data: Mapping[str, Sequence[object]]
    keys: Sequence[object] | None = None
    whole: str = ""
    """The column whose cells add up to something that is stated elsewhere, so that no row may be left out without being counted."""
    rest: int = 0
    """Number of rows that the last row stands for; 0 where it stands for itself."""
    rest_by: str = ""
    """The pass that gives the rows which the last one stands for, such as liveness{top=0}."""
    depth: str = ""
    """The column that says how deep each row stands in a tree, where the rows are one: a row is the whole of those below it."""

    def __post_init__(self) -> None:
        check_columns(self.title, self.columns, self.data)
        if self.keys is not None and len(self.keys) != len(self):
            raise PassError(f"table {self.title!r} has {len(self)} rows and {len(self.keys)} keys", code="IRS510")

    def __len__(self) -> int:
        return len(self.data[self.columns[0].key]) if self.columns else 0

    @classmethod
    def of(
        cls,
        rows: Iterable[Sequence[object]],
        columns: Iterable[str | Column],
        title: str = "",
        keys: Sequence[object] | None = None,
        whole: str = "",
    ) -> Table:
        """Return a table from row tuples and columns such as `["node", "channels:count", "flops:flops"]`."""
        parsed = tuple(column if isinstance(column, Column) else Column.parse(column) for column in columns)
        cells: list[list[object]] = [[] for _ in parsed]
        for number, row in enumerate(rows):
            if len(row) != len(parsed):
                raise PassError(f"table {title!r}: row {number} has {len(row)} cells for {len(parsed)} columns", code="IRS510")
            for into, cell in zip(cells, row, strict=True):
                into.append(plain(cell))
        return cls(title, parsed, {column.key: into for column, into in zip(parsed, cells, strict=True)}, keys, whole)

    def without_details(self) -> Table:
        """Return the table without columns of details."""
        kept = tuple(column for column in self.columns if not column.detail)
        return self if len(kept) == len(self.columns) else replace(self, columns=kept, data={one.key: self.data[one.key] for one in kept})

    def cells(self, key: str) -> list[Cell]:
        """Return one column as plain cells."""
        return column_cells(self.data[key])

    def assumed(self) -> Table:
        """Return the table, with numbers that depend on a guess."""
        return replace(self, columns=tuple(column.assumed() for column in self.columns), data=_assumed_data(self.data, self.columns))

    def rows(self) -> Iterator[tuple[Cell, ...]]:
        """Return the rows in order, each made when it is asked for."""
        return zip(*(each_cell(self.data[column.key]) for column in self.columns), strict=True)

    def to_dicts(self) -> list[dict[str, object]]:
        """Return the rows as dictionaries by column key: bare numbers, a formula as its text, None for what is unknown.

        `rows()` has the cells as they are, with intervals and where each number comes from.
        """
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, map(bare, row), strict=True)) for row in self.rows()]

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame; unknown cells are missing."""
        try:
            from pandas import DataFrame  # type: ignore[import-untyped]  # irscope does without its stubs
        except ImportError:
            raise UsageError("pandas is not installed", code="IRS452", hint="pip install pandas; or take .to_dicts()") from None
        return DataFrame({column.key: [bare(cell) for cell in self.cells(column.key)] for column in self.columns})

    def __repr__(self) -> str:
        """Return a line: the title, how many rows, and the columns."""
        return f"<Table {self.title!r}: {len(self):,} rows of {', '.join(column.key for column in self.columns)}>"

    def __str__(self) -> str:
        """Return the table as `irscope run` prints it."""
        return shown_alone(self, "text")

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return shown_alone(self, "html")

    def first(self, limit: int | None) -> Table:
        """Return at most so many rows, all for 0 or None. Where rows add up to a whole, the last one stands for all that are left out."""
        if not limit or len(self) <= limit:
            return self
        kept = limit - 1 if self.whole else limit
        data: dict[str, Sequence[object]] = {column.key: self.data[column.key][:kept] for column in self.columns}
        keys = None if self.keys is None else self.keys[:kept]
        if not self.whole:
            return replace(self, data=data, keys=keys)
        left = len(self) - kept + max(self.rest - 1, 0)
        for number, column in enumerate(self.columns):
            cells = column_cells(self.data[column.key][kept:])
            same = cells[0] if all(cell == cells[0] for cell in cells) else ""
            cell = f"{left:,} more" if not number else total(cells) if column.key == self.whole else same
            data[column.key] = [*column_cells(data[column.key]), cell]
        return replace(self, data=data, keys=None if keys is None else [*keys, ""], rest=left)

    def left_out(self, shown: Table, all_rows: str) -> str:
        """Return what a reader is told of rows that are not shown, and what shows them; empty where all are there."""
        parts = [f"--passes '{self.rest_by}' lists all"] if self.rest and self.rest_by else []
        if len(shown) < len(self) or shown.rest != self.rest:
            parts.append(all_rows if self.whole else f"{len(self) - len(shown):,} more rows; {all_rows}")
        return "; ".join(parts)


@immutable
class Mark:
    """A place on a series' x axis with a label, such as the peak."""

    x: int | float
    label: str


@immutable
class Limit:
    """A height that a series is not to pass, such as the memory of a device."""

    y: int | float
    label: str
    kind: Kind = Kind.BYTES
    """Of the columns that it holds for."""

    @property
    def text(self) -> str:
        """Return what it is, and how high."""
        return f"{self.label}: {humanise(self.y, self.kind)}"


@immutable(slots=False)
class Series:
    """Columns over an x axis: a timeline or a histogram. `stacked` columns are parts of a whole; each holds until the next x
    unless the series is `sampled`."""

    title: str
    x: Column
    y: tuple[Column, ...]
    data: Mapping[str, Sequence[object]]
    marks: tuple[Mark, ...] = ()
    stacked: bool = True
    sampled: bool = False
    """True where the places are samples, such as sizes: then values between two of them lie between theirs."""
    limits: tuple[Limit, ...] = ()
    names: Sequence[str] = ()
    """Name at each place, such as the node that runs there; may be empty."""
    parts: Callable[[int, int], Table] | None = field(default=None, repr=False, compare=False)
    """Parts of the heights at a place, counted from 0, in at most so many rows; computed when they are shown."""

    def __post_init__(self) -> None:
        check_columns(self.title, self.columns, self.data)
        if not all(abs(mark.x) < math.inf for mark in self.marks):
            raise PassError(f"series {self.title!r} has a mark at no place", code="IRS510")
        if not all(0 < limit.y < math.inf for limit in self.limits):
            raise PassError(f"series {self.title!r} has a limit at no height", code="IRS510")
        if self.names and len(self.names) != len(self):
            raise PassError(f"series {self.title!r} has {len(self)} places and {len(self.names)} names", code="IRS510")

    def __len__(self) -> int:
        return len(self.data[self.x.key])

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.x, *self.y)

    def cells(self, key: str) -> list[Cell]:
        """Return one column as plain cells."""
        return column_cells(self.data[key])

    def assumed(self) -> Series:
        """Return the series, with numbers that depend on a guess."""
        y = tuple(column.assumed() for column in self.y)
        return replace(self, y=y, data=_assumed_data(self.data, self.y))

    def provenance(self, column: Column) -> Provenance:
        """Return the provenance of a column's numbers as a whole."""
        own = (cell.provenance for cell in each_cell(self.data[column.key]) if isinstance(cell, Quantity) and cell.shown is not None)
        return least_sure((column.provenance, *own))

    def provenance_of_top(self, columns: Sequence[Column]) -> Provenance:
        """Return where the highest point of a curve comes from that shows these columns or adds them up."""
        if all(self.provenance(column) is Provenance.EXACT for column in columns):
            return Provenance.EXACT
        return largest(total for total in self.totals(columns) if total.value is not None).provenance

    def totals(self, columns: Sequence[Column]) -> list[Quantity]:
        """Return these columns added up at each point."""
        cells = [[_cell_of(cell, column) for cell in self.cells(column.key)] for column in columns]
        return [sum(point, Quantity(0)) for point in zip(*cells, strict=True)]

    def table(self) -> Table:
        """Return the same numbers as a table."""
        return Table(self.title, self.columns, self.data)

    def to_pandas(self) -> Any:
        """Return the same numbers as a pandas DataFrame."""
        return self.table().to_pandas()


def _assumed_data(data: Mapping[str, Sequence[object]], columns: Iterable[Column]) -> dict[str, Sequence[object]]:
    """Cells that say themselves where they come from are told; for others their column says it."""
    kinds = {column.key: column.kind for column in columns}

    def told(key: str, cells: Sequence[object]) -> Sequence[object]:
        if key not in kinds or not kinds[key].can_be_assumed or hasattr(cells, "tolist"):
            return cells

        def as_told(cell: object) -> object:
            return as_assumed(cell) if isinstance(cell, Quantity) else cell

        return cells.told(as_told) if isinstance(cells, Cells) else [as_told(cell) for cell in cells]

    return {key: told(key, cells) for key, cells in data.items()}


def _cell_of(cell: Cell, column: Column) -> Quantity:
    if isinstance(cell, Quantity):
        return cell
    return Quantity(cell if isinstance(cell, int | float) else None, column.provenance)


def total(cells: Sequence[Cell]) -> Cell:
    """Return what cells add up to: a formula where one of them is, and as sure as the least sure of them."""
    if all(type(cell) is int for cell in cells):
        return sum(cells)  # type: ignore[arg-type]  # integers, as asked
    if any(isinstance(cell, str) for cell in cells):
        return " + ".join(str(bare(cell)) for cell in cells if bare(cell) != 0)
    numbers = [cell if isinstance(cell, Quantity | int | float) else None for cell in cells]
    found = reduce(add, map(quantity, numbers), Quantity(0))
    return found.value if found == Quantity(found.value) else found


def column_cells(data: Sequence[object]) -> list[Cell]:
    """Plain cells of a list or a numpy array."""
    return list(each_cell(data))


def each_cell(data: Sequence[object]) -> Iterator[Cell]:
    """Return the same one after the other, so that nothing holds all of them."""
    if not hasattr(data, "tolist"):
        return map(plain, data)
    parts = (data[start : start + _PART] for start in range(0, len(data), _PART))
    return (plain(cell) for part in parts for cell in cast(Any, part).tolist())


def check_columns(title: str, columns: Sequence[Column], data: Mapping[str, Sequence[object]]) -> None:
    """Raise PassError unless every column has data of one length, and no data is without a column."""
    keys = [column.key for column in columns]
    if len(set(keys)) != len(keys) or set(keys) != set(data):
        raise PassError(f"table {title!r} has columns {', '.join(keys)} and data for {', '.join(data)}", code="IRS510")
    lengths = {key: len(data[key]) for key in keys}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise PassError(f"the columns of table {title!r} have different lengths: {sizes}", code="IRS510")


# A report's summary as a flat list: each value with its path and its kind.

_SUFFIXES = {"bytes": Kind.BYTES, "flops": Kind.FLOPS, "seconds": Kind.SECONDS, "ratio": Kind.RATIO, "count": Kind.COUNT}


@immutable
class Entry:
    """One value of a summary."""

    path: tuple[str, ...]
    cell: Cell
    kind: Kind

    @property
    def key(self) -> str:
        """Return the path with dots, as JSON and CSV name it."""
        return ".".join(self.path)

    def assumed(self) -> Entry:
        """Return the entry, with a number that depends on a guess."""
        return replace(self, cell=as_assumed(self.cell)) if self.kind.can_be_assumed else self


def entries(summary: Mapping[str, object], units: Mapping[str, Kind]) -> Iterator[Entry]:
    """Yield every value of a nested summary in order. A group's kind holds for all it contains."""
    stack: list[tuple[tuple[str, ...], object]] = [((key,), value) for key, value in reversed(list(summary.items()))]
    while stack:
        path, value = stack.pop()
        stated = stated_kind(path, units)
        if is_group(value, stated):
            stack.extend(((*path, str(key)), item) for key, item in reversed(list(value.items())))
            continue
        cell = plain(value)
        yield Entry(path, cell, stated or _guess(path, cell))


@immutable
class Group:
    """Values of a summary next to one another below one parent."""

    parent: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the names of the values within the group."""
        return tuple(entry.path[-1] for entry in self.entries)

    def is_like(self, other: Group) -> bool:
        """Return whether both are rows of one small table."""
        return bool(self.parent) and self.parent[:-1] == other.parent[:-1] and len(self.entries) > 1 and self.leaves == other.leaves


def grouped(entries: Sequence[Entry]) -> list[list[Group]]:
    """Return a summary's values in order, by their groups; several in one list are rows of one small table."""
    runs: list[list[Group]] = []
    for parent, members in groupby(entries, lambda entry: entry.path[:-1]):
        group = Group(parent, tuple(members))
        if runs and runs[-1][0].is_like(group):
            runs[-1].append(group)
        else:
            runs.append([group])
    return runs


def unknown_summary(
    summary: Mapping[str, object], units: Mapping[str, Kind], known: Collection[str], path: tuple[str, ...] = ()
) -> dict[str, object]:
    """Return the summary with everything unknown but what lies under these keys."""
    found: dict[str, object] = {}
    for key, value in summary.items():
        inner = (*path, str(key))
        if ".".join(inner) in known:
            found[str(key)] = value
        elif is_group(value, stated_kind(inner, units)):
            found[str(key)] = unknown_summary(value, units, known, inner)
        else:
            found[str(key)] = Quantity(None, Provenance.UNKNOWN)
    return found


def is_group(value: object, stated: Kind | None) -> TypeGuard[Mapping[str, object]]:
    """Return whether a mapping holds further values; one that is called a shape is a nested type, which is a value itself."""
    return isinstance(value, Mapping) and stated is not Kind.SHAPE


def stated_kind(path: tuple[str, ...], units: Mapping[str, Kind]) -> Kind | None:
    """Return the kind the units give this path, or the nearest group around it."""
    for length in range(len(path), 0, -1):
        kind = units.get(".".join(path[:length]))
        if kind is not None:
            return kind
    return None


def _guess(path: tuple[str, ...], cell: Cell) -> Kind:
    """Return the kind that a key such as `activation_peak_bytes` names, else the one its value suggests."""
    for part in reversed(path):
        kind = _SUFFIXES.get(part.rpartition("_")[2])
        if kind is not None:
            return kind
    value = cell.shown if isinstance(cell, Quantity) else cell
    if isinstance(value, bool):
        return Kind.BOOL
    if isinstance(value, int):
        return Kind.COUNT
    return Kind.NUMBER if isinstance(value, float) else Kind.TEXT
