"""Tables of any length: columns that make the text of a cell when it is shown, and rows that are sorted and filtered as numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from irscope.immutable import immutable
from irscope.ir.graph import Node
from irscope.report.celltext import CellWriter
from irscope.report.names import cut_names
from irscope.report.options import RenderOptions
from irscope.report.printable import ColumnRoom, column_widths, display_width
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Cell, bare
from irscope.tui.browse.outline import Ints, Mask
from irscope.tui.text import Line, Role, Span, Symbols, cut_end, fit

_LEAST_GROWING = 10
_LEAST_TEXT = 14
"""Width that a text column of a report may be cut to."""
_WIDEST = 44
_NARROW = 100
"""In a terminal of fewer columns the column that leads stands first."""
_MEASURED = 300
"""Columns of texts are as wide as what is in them in tables of so many rows; of longer ones they take what room there is."""
_NOTHING = ColumnRoom(0, 0)
_NUMBERS = re.compile("([0-9]+)")
_TOGETHER = 64
"""Rows whose names are cut together with those before and after them: as many as stand on a screen."""
_MOST_BLOCKS = 64
"""Names of so many blocks are kept: those that were looked at last."""
_LOOKED_AT = 2_000
"""A column is taken for blank when nothing stands in so many rows, and there are no more."""


@immutable(slots=False)
class TableColumn:
    """One column. `text` makes a cell; `keys` gives what rows are sorted by, None for a column that has no order."""

    title: str
    width: int
    text: Callable[[int], str]
    keys: Callable[[], Sequence[object] | NDArray[Any]] | None = None
    right: bool = False
    """True where cells are aligned to the right, as numbers are; those sort from the largest first."""
    grows: bool = False
    """True where the column takes the room that is left."""
    role: Role | Callable[[int], Role] = "plain"
    rank: int = 0
    """Columns with the highest rank go first where the room is short; rank 0 always stays."""
    least: int = 0
    """Least width that it may be cut to before it goes; 0 for a column that is never narrower than its width."""
    share: float = 1.0
    """The part of the whole width that it takes at most."""
    is_sentence: bool = False
    """True where a text is cut at its end, not in the middle as a name is."""
    cell: Callable[[int, int], Line] | None = None
    """Draws a cell of several parts in exactly so many columns of the screen, in place of `text`."""

    def room(self, width: int, needs: int) -> ColumnRoom:
        """Return the room that it wants of a table of this width; its cells need so much, where that is not 0."""
        least = self.least or (max(self.width, _LEAST_GROWING) if self.grows else self.width)
        whole = self.width if self.grows else max(least, min(self.width, int(width * self.share)))
        if needs:
            least = min(least, needs)
            whole = whole if self.grows else min(max(needs, least), _WIDEST if self.share == 1 else whole)
        return ColumnRoom(whole, least, self.rank, self.grows, needs)

    def line(self, row: int, room: int, symbols: Symbols, cut: Callable[[str], str] = str) -> Line:
        """Return the cell of a row in exactly so many columns of the screen; `cut` shortens a name that has no room for all of it."""
        if self.cell is not None:
            return self.cell(row, room)
        text = self.text(row)
        role = self.role if isinstance(self.role, str) else self.role(row)
        if self.is_sentence:
            text = cut_end(text, room, symbols)
        shown = cut(text) if not self.right and display_width(text) > room else text
        return (Span(fit(shown, room, symbols, right=self.right), "unknown" if text == symbols.unknown else role),)


class Rows:
    """Rows with columns and a cursor: what the widgets for tables and trees draw. Nothing is made for rows that are not shown."""

    columns: Sequence[TableColumn]
    symbols: Symbols
    empty: str
    """Text in place of rows where there are none."""
    index: int
    """Where the cursor is among the rows that are shown."""
    version: int = 0
    """Changes whenever rows may look different, so that what was drawn of them is dropped."""
    shown: Ints
    """The rows that are shown, in order."""
    leads: int | None = None
    """The column that stands first where there is little room."""
    gaps_lead: ClassVar[bool] = False
    """True where the blank between two cells has the look of the later one."""

    _fitted: tuple[int, Sequence[TableColumn], list[int]] | None = None
    """Widths of the columns in the width that was drawn last."""

    def __len__(self) -> int:
        return len(self.shown)

    @property
    def selected(self) -> int | None:
        """Return the row under the cursor."""
        return int(self.shown[self.index]) if 0 <= self.index < len(self.shown) else None

    def move_to(self, index: int) -> None:
        """Put the cursor at a place among the rows that are shown."""
        self.index = min(max(index, 0), max(len(self.shown) - 1, 0))

    def title(self, number: int) -> str:
        """Return the title of a column."""
        return self.columns[number].title

    def widths(self, width: int) -> list[int]:
        """Return the width of each column; 0 leaves one out. The sign of the cursor stands before the first."""
        columns = self.columns
        if self._fitted is None or self._fitted[0] != width or self._fitted[1] is not columns:
            rooms = [_NOTHING if self.is_blank(number) else column.room(width, self.needs(number)) for number, column in enumerate(columns)]
            self._fitted = (width, columns, column_widths(rooms, width - 1, 1))
        return self._fitted[2]

    def refit(self) -> None:
        """Find the widths of the columns anew: what stands in them has changed."""
        self._fitted = None

    def is_blank(self, number: int) -> bool:
        """Return whether a column is empty, and then takes no room."""
        return False

    def needs(self, number: int) -> int:
        """Return the width of the longest text in a column; 0 where that takes long, and for numbers, whose column keeps its width."""
        return 0

    def order(self, width: int) -> Sequence[int]:
        """Return the columns from left to right: where there is little room, what is read first leads."""
        numbers = range(len(self.columns))
        return numbers if self.leads is None or width >= _NARROW else [self.leads, *(one for one in numbers if one != self.leads)]

    def heading(self, width: int) -> Line:
        """Return the titles."""
        widths = self.widths(width)
        shown = [number for number in self.order(width) if widths[number]]
        titles = [fit(self.title(number), widths[number], self.symbols, right=self.columns[number].right) for number in shown]
        return (Span(" "), *(Span(f"{title} ", "heading") for title in titles))

    def line(self, index: int, width: int, *, selected: bool) -> Line:
        """Return the row at a place."""
        return self.row_line(int(self.shown[index]), width, selected=selected, index=index)

    def row_line(self, row: int, width: int, *, selected: bool = False, index: int | None = None) -> Line:
        """Return a row in so many columns of the screen; the one under the cursor has a sign, so that it shows without colour."""
        spans = [Span(self.symbols.cursor if selected else " ", "mark")]
        widths = self.widths(width)
        for column, room in ((self.columns[number], widths[number]) for number in self.order(width)):
            if room:
                cut = str if index is None else partial(self.cut, column, index, room)
                cell = [*column.line(row, room, self.symbols, cut)]
                if not self.gaps_lead:
                    cell[-1] = Span(f"{cell[-1].text} ", cell[-1].role)
                elif len(spans) > 1:
                    cell[0] = Span(f" {cell[0].text}", cell[0].role)
                spans += cell
        return tuple(spans)

    def cut(self, column: TableColumn, index: int, room: int, text: str) -> str:
        """Return the name in a cell within so many columns of the screen, different from the other names around it."""
        block = index // _TOGETHER
        if len(self._cut) > _MOST_BLOCKS:
            self._cut.clear()
        cut = self._cut.setdefault((id(column), room, block), {})
        if text not in cut:
            rows = self.shown[max(block - 1, 0) * _TOGETHER : (block + 2) * _TOGETHER].tolist()
            texts = [text, *map(column.text, rows)]
            cut.clear()
            cut.update(zip(texts, cut_names(texts, room, self.symbols.glyphs.ellipsis), strict=True))
        return cut[text]

    @cached_property
    def _cut(self) -> dict[tuple[int, int, int], dict[str, str]]:
        """Names as they were cut, by column, width and the place of the rows that were looked at together."""
        return {}

    def text(self, row: int) -> str:
        """Return a row as text, its cells apart by two blanks."""
        return "  ".join(text for column in self.columns if (text := column.text(row)))


class TableModel(Rows):
    """Rows with an order and a filter."""

    def __init__(
        self,
        columns: Sequence[TableColumn],
        count: int,
        symbols: Symbols,
        *,
        empty: str = "There is nothing to show.",
        names: Sequence[object] | None = None,
    ) -> None:
        """`names` order the rows where nothing else does; without them rows keep their own order."""
        self.columns = tuple(columns)
        self.count = count
        self.symbols = symbols
        self.empty = empty
        self.sorted_by: int | None = None
        self.reversed = False
        self.index = 0
        self.version = 0
        self._own: Ints = np.arange(count, dtype=np.int64) if names is None else np.argsort(ranks_of(names), kind="stable").astype(np.int64)
        self._order = self._own
        self._kept: Mask | None = None
        self._ranks: dict[int, NDArray[np.float64]] = {}
        self.shown = self._order

    def title(self, number: int) -> str:
        """Return the title of a column; that of the sorted column has a sign."""
        sign = (self.symbols.descending if self.reversed else self.symbols.ascending) if number == self.sorted_by else ""
        return sign + self.columns[number].title

    @property
    def sortable(self) -> list[int]:
        """Columns that have an order."""
        return [number for number, column in enumerate(self.columns) if column.keys is not None]

    def sort(self, column: int | None, *, reverse: bool = False) -> None:
        """Put the rows in the order of a column, None for their own order. What is unknown comes last either way."""
        selected = self.selected
        self.sorted_by, self.reversed = column, reverse
        if column is None:
            self._order = self._own
        else:
            ranks = self._ranks_of(column)[self._own]
            self._order = self._own[np.argsort(-ranks if reverse else ranks, kind="stable")]
        self._update(selected)

    def arrange(self, keys: Sequence[object] | NDArray[Any]) -> None:
        """Put the rows in the order of these keys, the largest first: an order that no column has. What is unknown comes last."""
        selected = self.selected
        self.sorted_by, self.reversed = None, False
        self._order = self._own[np.argsort(-ranks_of(keys)[self._own], kind="stable")]
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

    def filter_words(self, text: str, hits: Callable[[str], Mask]) -> None:
        """Show only the rows in which every word is found; a word after `!` must not be."""
        words = text.lower().split()
        kept = np.ones(self.count, dtype=np.bool_)
        for word in words:
            negated = word[:1] == "!" and len(word) > 1
            hit = hits(word[1:] if negated else word)
            kept &= ~hit if negated else hit
        self.filter(kept if words else None)

    def filter(self, kept: Mask | None) -> None:
        """Show only these rows; None shows all."""
        selected = self.selected
        self._kept = kept
        self._update(selected)

    def is_blank(self, number: int) -> bool:
        column = self.columns[number]
        if number == self.sorted_by or not 0 < self.count <= _LOOKED_AT or column.cell is not None:
            return False
        return not any(column.text(row).strip() for row in range(self.count))

    def needs(self, number: int) -> int:
        column = self.columns[number]
        if column.right or column.cell is not None or self.count > _MEASURED:
            return 0
        longest = max((display_width(column.text(row)) for row in range(self.count)), default=0)
        return max(longest, display_width(column.title) + 1)  # with the sign of its order

    def _update(self, selected: int | None) -> None:
        self.shown = self._order if self._kept is None else self._order[self._kept[self._order]]
        self.version += 1
        self.index = 0
        self._cut.clear()
        if selected is not None:
            self.select(selected)

    def _ranks_of(self, column: int) -> NDArray[np.float64]:
        if column not in self._ranks:
            keys = self.columns[column].keys
            self._ranks[column] = ranks_of(keys() if keys is not None else ())
        return self._ranks[column]

    def select(self, row: int) -> bool:
        """Put the cursor on a row; False where it is not shown."""
        found = np.flatnonzero(self.shown == row)
        if not len(found):
            return False
        self.index = int(found[0])
        return True


def ranks_of(keys: Sequence[object] | NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers that order as the keys do; NaN, which sorts last, for what is unknown."""
    if isinstance(keys, np.ndarray):
        return keys.astype(np.float64)
    if all(key is None or isinstance(key, int | float) for key in keys):
        return np.array([np.nan if key is None else key for key in keys], dtype=np.float64)
    places = {key: place for place, key in enumerate(sorted({str(key) for key in keys if key is not None}, key=_counted))}
    return np.array([np.nan if key is None else places[str(key)] for key in keys], dtype=np.float64)


def _counted(text: str) -> tuple[str | tuple[int, str], ...]:
    """Return what orders texts by the numbers in them: h.2 before h.10."""
    parts = _NUMBERS.split(text)
    # By length and digits, as Python refuses to make a number of very many digits.
    return tuple((len(part.lstrip("0")), part.lstrip("0")) if place % 2 else part for place, part in enumerate(parts))


# The names of all rows as one text: little memory, and a word is found in it at once however many rows there are.


@lru_cache(maxsize=64)
def word_pattern(word: str) -> re.Pattern[str]:
    """Return a word of a filter; paths of modules are written with dots and with slashes, and either finds both."""
    return re.compile(re.sub(r"/|\\\.", "[./]", re.escape(word)))


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
        """Return the rows whose text contains a word."""
        found = np.zeros(len(self), dtype=np.bool_)
        if not word:
            found[:] = True
            return found
        if "\n" in word or not len(self):
            return found
        places = [match.start() for match in word_pattern(word).finditer(self._text)]
        if places:
            found[np.searchsorted(self._starts, np.array(places, dtype=np.int64), side="right") - 1] = True
        return found

    def matching(self, pattern: re.Pattern[str]) -> Mask:
        """Return the rows in whose text a regular expression is found."""
        lines = self._text.split("\n")[: self._count]
        return np.array([pattern.search(text) is not None for text in lines], dtype=np.bool_)


_SAMPLE = 100


class ReportTable:
    """One table of a report as rows of the screen. Cells become text when they are shown."""

    def __init__(self, table: Table, symbols: Symbols) -> None:
        self.table = table
        self.symbols = symbols
        self._writer = CellWriter(RenderOptions(encoding=symbols.encoding))
        self._cells: dict[str, list[Cell]] = {}
        widths = [self._width(column) for column in table.columns]
        grows = next((number for number, column in enumerate(table.columns) if not column.kind.is_number), 0)
        self._amounts = next((number for number, column in enumerate(table.columns) if column.kind.is_number), grows)
        """The first column of numbers, which stays at every width: names beside it go before."""
        self.model = TableModel(
            [
                self._column(column, width, number, number == grows)
                for number, (column, width) in enumerate(zip(table.columns, widths, strict=True))
            ],
            len(table),
            symbols,
            empty="This table has no rows.",
        )
        self.model.leads = self._amounts if table.title.lower().startswith("alive") else None

    def cells(self, key: str) -> list[Cell]:
        """Return a column, taken out of the report when it is first looked at."""
        if key not in self._cells:
            self._cells[key] = self.table.cells(key)
        return self._cells[key]

    def _column(self, column: Column, width: int, number: int, grows: bool) -> TableColumn:
        def text(row: int) -> str:
            return self._writer.write(self.cells(column.key)[row], column.kind, column.provenance)

        def keys() -> Sequence[object]:
            return [_sort_key(cell, column.kind) for cell in self.cells(column.key)]

        rank, is_number = 0 if grows or number == self._amounts else number + 1, column.kind.is_number
        least = 0 if grows or is_number else min(width, _LEAST_TEXT)
        return TableColumn(self.symbols.clean(column.heading), width, text, keys, is_number, grows, rank=rank, least=least)

    def _width(self, column: Column) -> int:
        """Room for the heading and for what a sample of the rows needs."""
        cells, count = self.cells(column.key), len(self.table)
        sample = [*range(min(count, _SAMPLE)), *range(_SAMPLE, count, max(1, count // _SAMPLE))]
        longest = max((display_width(self._writer.write(cells[row], column.kind, column.provenance)) for row in sample), default=0)
        return min(_WIDEST, max(display_width(column.heading) + 1, longest))

    @cached_property
    def _texts(self) -> RowTexts:
        columns = [self.cells(column.key) for column in self.table.columns]
        return RowTexts(" ".join(str(bare(cell)) for cell in row if cell is not None) for row in zip(*columns, strict=True))

    def filter(self, text: str) -> None:
        """Show only the rows in which every word occurs; a word after `!` must not."""
        self.model.filter_words(text, self._texts.containing)

    def place(self, row: int, find: Callable[[str], int | None], row_of: Callable[[Node], int | None]) -> int | None:
        """Return the row of the outline that a row of the table is about; None where it names none."""
        named = self._key(row)
        if isinstance(named, Node):
            return row_of(named)
        return find(named) if isinstance(named, str) and named else None

    def _key(self, row: int) -> object:
        if self.table.keys is not None:
            return self.table.keys[row]
        for kind in (Kind.NODE, Kind.VALUE):
            for column in self.table.columns:
                if column.kind is kind:
                    return bare(self.cells(column.key)[row])
        return None


def _sort_key(cell: Cell, kind: Kind) -> object:
    value = bare(cell)
    if kind.is_number:
        return value if isinstance(value, int | float) else None
    return None if value is None else str(value)
