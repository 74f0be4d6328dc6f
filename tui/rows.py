"""Tables of any length: columns that make the text of a cell when it is shown, and rows that are sorted and filtered as numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irscope.ir.dims import Dim, SymDim
from irscope.tui.browse.outline import Ints, Mask
from irscope.tui.text import Line, Role, Span, Symbols, fit

_LEAST_GROWING = 10


@dataclass(frozen=True)
class TableColumn:
    """One column. `text` makes a cell; `keys` gives what rows are sorted by, None for a column that has no order."""

    title: str
    width: int
    text: Callable[[int], str]
    keys: Callable[[], Sequence[object] | NDArray[Any]] | None = None
    right: bool = False
    """Whether cells stand at the right, as numbers do; those sort from the largest first."""
    grows: bool = False
    """Whether the column takes the room that is left."""
    role: Role = "plain"
    rank: int = 0
    """Columns with the highest rank go first where the room is short; rank 0 always stays."""


class TableModel:
    """Rows with an order, a filter and a cursor. Nothing is made for rows that are not shown."""

    def __init__(self, columns: Sequence[TableColumn], count: int, symbols: Symbols, *, empty: str = "There is nothing to show.") -> None:
        self.columns = tuple(columns)
        self.count = count
        self.symbols = symbols
        self.empty = empty
        """What stands in the place of rows where there are none."""
        self.sorted_by: int | None = None
        self.reversed = False
        self.index = 0
        """Where the cursor is among the rows that are shown."""
        self.version = 0
        """Changes whenever rows may look different, so that what was drawn of them is dropped."""
        self._order: Ints = np.arange(count, dtype=np.int64)
        self._kept: Mask | None = None
        self._ranks: dict[int, NDArray[np.float64]] = {}
        self.shown: Ints = self._order
        """The rows that are shown, in order."""

    def __len__(self) -> int:
        return len(self.shown)

    @property
    def selected(self) -> int | None:
        """The row under the cursor."""
        return int(self.shown[self.index]) if 0 <= self.index < len(self.shown) else None

    # -- order and filter --------------------------------------------------------------------------------------

    @property
    def sortable(self) -> list[int]:
        """Columns that have an order."""
        return [number for number, column in enumerate(self.columns) if column.keys is not None]

    def sort(self, column: int | None, *, reverse: bool = False) -> None:
        """Put the rows in the order of a column, None for their own order. What is unknown comes last either way."""
        selected = self.selected
        self.sorted_by, self.reversed = column, reverse
        if column is None:
            self._order = np.arange(self.count, dtype=np.int64)
        else:
            ranks = self._ranks_of(column)
            self._order = np.argsort(-ranks if reverse else ranks, kind="stable").astype(np.int64)
        self._update(selected)

    def sort_next(self, by: int = 1) -> None:
        """Sort by the next column that has an order, after the last by none."""
        stops: list[int | None] = [None, *self.sortable]
        column = stops[(stops.index(self.sorted_by) + by) % len(stops)] if self.sorted_by in stops else None
        self.sort(column, reverse=column is not None and self.columns[column].right)

    def turn(self) -> None:
        """Turn the order round."""
        if self.sorted_by is not None:
            self.sort(self.sorted_by, reverse=not self.reversed)

    def filter(self, kept: Mask | None) -> None:
        """Show only these rows; None shows all."""
        selected = self.selected
        self._kept = kept
        self._update(selected)

    def _update(self, selected: int | None) -> None:
        self.shown = self._order if self._kept is None else self._order[self._kept[self._order]]
        self.version += 1
        self.index = 0
        if selected is not None:
            self.select(selected)

    def _ranks_of(self, column: int) -> NDArray[np.float64]:
        if column not in self._ranks:
            keys = self.columns[column].keys
            self._ranks[column] = ranks_of(keys() if keys is not None else ())
        return self._ranks[column]

    # -- cursor ------------------------------------------------------------------------------------------------

    def select(self, row: int) -> bool:
        """Put the cursor on a row; False where it is not shown."""
        found = np.flatnonzero(self.shown == row)
        if not len(found):
            return False
        self.index = int(found[0])
        return True

    def move_to(self, index: int) -> None:
        """Put the cursor at a place among the rows that are shown."""
        self.index = min(max(index, 0), max(len(self.shown) - 1, 0))

    # -- text --------------------------------------------------------------------------------------------------

    def widths(self, width: int) -> list[int]:
        """What each column takes; 0 leaves one out."""
        used = [column.width for column in self.columns]
        least = [max(column.width, _LEAST_GROWING) if column.grows else column.width for column in self.columns]
        while sum(least) + len([one for one in least if one]) > width and any(
            least[number] and column.rank for number, column in enumerate(self.columns)
        ):
            worst = max((number for number, one in enumerate(least) if one), key=lambda number: (self.columns[number].rank, number))
            used[worst] = least[worst] = 0
        growing = [number for number, column in enumerate(self.columns) if column.grows and used[number]]
        fixed = sum(one for number, one in enumerate(used) if number not in growing)
        left = max(width - fixed - sum(1 for one in used if one), 0)
        wanted = sum(self.columns[number].width for number in growing)
        begun = 0
        for number in growing:
            end = begun + self.columns[number].width
            used[number] = max(left * end // wanted - left * begun // wanted, 0)
            begun = end
        return used

    def heading(self, width: int) -> Line:
        """The titles; the sorted column has a sign."""
        spans = [Span(" ")]
        for number, (column, room) in enumerate(zip(self.columns, self.widths(width), strict=True)):
            if room:
                sign = (self.symbols.descending if self.reversed else self.symbols.ascending) if number == self.sorted_by else ""
                spans.append(Span(f"{fit(sign + column.title, room, self.symbols, right=column.right)} ", "heading"))
        return tuple(spans)

    def line(self, index: int, width: int, *, selected: bool) -> Line:
        """The row at a place; the one under the cursor has a sign, so that it shows without colour."""
        row = int(self.shown[index])
        symbols = self.symbols
        spans = [Span(symbols.cursor if selected else " ", "mark")]
        for column, room in zip(self.columns, self.widths(width), strict=True):
            if room:
                text = column.text(row)
                role: Role = "unknown" if text == symbols.unknown else column.role
                spans.append(Span(f"{fit(text, room, symbols, right=column.right)} ", role))
        return tuple(spans)

    def text(self, row: int) -> str:
        """A row as text, its cells apart by two blanks."""
        return "  ".join(text for column in self.columns if (text := column.text(row)))


def ranks_of(keys: Sequence[object] | NDArray[Any]) -> NDArray[np.float64]:
    """Numbers that order as the keys do; NaN, which sorts last, for what is unknown."""
    if isinstance(keys, np.ndarray):
        return keys.astype(np.float64)
    if all(key is None or isinstance(key, int | float) for key in keys):
        return np.array([np.nan if key is None else key for key in keys], dtype=np.float64)
    places = {key: place for place, key in enumerate(sorted({str(key) for key in keys if key is not None}))}
    return np.array([np.nan if key is None else places[str(key)] for key in keys], dtype=np.float64)


def number(value: Dim | None) -> float | None:
    """A number to sort by; None for formulas and what is unknown."""
    return None if value is None or isinstance(value, SymDim) else float(value)


# ----------------------------------------------------------------------------------------------------
# The names of all rows as one text: little memory, and a word is found in it at once however many rows there are.


class RowTexts:
    """A lower-case text for each row."""

    def __init__(self, texts: Iterable[str]) -> None:
        lines = [text.replace("\n", " ") if "\n" in text else text for text in texts]
        self._count = len(lines)
        self._text = "\n".join(lines).lower()

    @cached_property
    def _starts(self) -> Ints:
        breaks = [match.start() for match in re.finditer("\n", self._text)]
        starts: Ints = np.array([-1, *breaks], dtype=np.int64)[: self._count] + 1
        return starts

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> str:
        end = self._text.find("\n", int(self._starts[row]))
        return self._text[int(self._starts[row]) : end if end >= 0 else len(self._text)]

    def containing(self, word: str) -> Mask:
        """The rows whose text contains a word."""
        found = np.zeros(len(self), dtype=np.bool_)
        if not word:
            found[:] = True
            return found
        if "\n" in word or not len(self):
            return found
        places = [match.start() for match in re.finditer(re.escape(word), self._text)]
        if places:
            found[np.searchsorted(self._starts, np.array(places, dtype=np.int64), side="right") - 1] = True
        return found

    def matching(self, pattern: re.Pattern[str]) -> Mask:
        """The rows in whose text a regular expression is found."""
        lines = self._text.split("\n")[: self._count]
        return np.array([pattern.search(text) is not None for text in lines], dtype=np.bool_)
