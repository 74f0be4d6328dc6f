"""Aligned columns of text that fit a terminal: long names are cut in the middle, and a column that has no room is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from irscope.report.options import Glyphs
from irscope.report.printable import cut_middle, display_width, pad

GAP = "  "
_LEAST = 10
"""Names are not cut shorter than this."""
LEAST_FIRST = 18
"""The first column tells the rows apart, so it keeps more."""


@dataclass(frozen=True, slots=True)
class GridColumn:
    """A column of finished texts. Only a `cuttable` one may lose characters; a number never does."""

    heading: str
    cells: Sequence[str]
    right: bool = False
    cuttable: bool = True
    least: int = _LEAST

    @property
    def natural_width(self) -> int:
        return max(display_width(self.heading), max(map(display_width, self.cells), default=0))

    @property
    def least_width(self) -> int:
        return min(self.natural_width, self.least) if self.cuttable else self.natural_width


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns with the widths they got, and those that found no room."""

    columns: tuple[GridColumn, ...]
    widths: tuple[int, ...]
    hidden: tuple[GridColumn, ...]

    def lines(self, glyphs: Glyphs) -> Iterator[str]:
        """The rows."""
        texts = [
            [pad(cut_middle(cell, width, glyphs.ellipsis), width, right=column.right) for cell in column.cells]
            for column, width in zip(self.columns, self.widths, strict=True)
        ]
        return (GAP.join(row).rstrip() for row in zip(*texts, strict=True))

    def head(self, glyphs: Glyphs) -> str:
        """The headings, aligned as their columns are."""
        parts = [
            pad(cut_middle(column.heading, width, glyphs.ellipsis), width, right=column.right)
            for column, width in zip(self.columns, self.widths, strict=True)
        ]
        return GAP.join(parts).rstrip()

    def rule(self, glyphs: Glyphs) -> str:
        """The thin line below the headings."""
        return GAP.join(glyphs.rule * width for width in self.widths)


def fit(columns: Sequence[GridColumn], width: int | None) -> Grid:
    """Columns within a width: names are shortened first, then the last columns are dropped."""
    shown = list(columns)
    while width is not None and len(shown) > 1 and _total([column.least_width for column in shown]) > width:
        shown.pop()
    natural = [column.natural_width for column in shown]
    widths = natural
    if width is not None and _total(natural) > width:
        widths = _narrowed(shown, natural, width)
    return Grid(tuple(shown), tuple(widths), tuple(columns[len(shown) :]))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrowed(columns: Sequence[GridColumn], natural: Sequence[int], width: int) -> list[int]:
    """Widths in which no cuttable column is wider than the widest limit that fits."""

    def limited(limit: int) -> list[int]:
        return [
            max(column.least_width, min(size, limit)) if column.cuttable else size for column, size in zip(columns, natural, strict=True)
        ]

    low, high = 0, max(natural)
    while low < high:
        middle = (low + high + 1) // 2
        if _total(limited(middle)) <= width:
            low = middle
        else:
            high = middle - 1
    return limited(low)
