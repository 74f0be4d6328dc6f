"""A small chart of a series in text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from irscope.report.celltext import signed
from irscope.report.options import Glyphs
from irscope.report.printable import can_encode, display_width, pad, printable
from irscope.report.table import Column, Mark, Series
from irscope.report.units import humanise
from irscope.report.values import Cell, Number, Quantity, bare

# Fits the points of a series into the columns of a chart: each column takes its highest point, so no peak vanishes.

_LARGEST = 1e100
"""Beyond this floats overflow while they are scaled; such values, infinities and NaN are not drawn."""


def drawable(cells: Sequence[Cell]) -> list[Number | None]:
    """Return the numbers that can be drawn; None for what is unknown, symbolic or not finite."""
    return [_drawable(bare(cell)) for cell in cells]


def _drawable(value: object) -> Number | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _LARGEST else None


def axis(series: Series) -> tuple[list[Number], tuple[Mark, ...]]:
    """Return the place of each point, and the marks: x, or the point's index (then without marks) where x is not numbers in order."""
    places = [place for place in drawable(series.cells(series.x.key)) if place is not None]
    if len(places) == len(series) and all(before <= after for before, after in pairwise(places)):
        return places, series.marks
    return list(range(len(series))), ()


def totals(columns: Sequence[Sequence[Number | None]]) -> list[Number | None]:
    """Return the sum of the columns at each point; None where a part is unknown."""
    return [None if None in point else sum(value for value in point if value is not None) for point in zip(*columns, strict=True)]


def bin_of(place: Number, places: Sequence[Number], count: int) -> int:
    """Return the part of the x axis, of `count` equal ones, in which a place lies."""
    span = (places[-1] - places[0]) * len(places)  # the last point is as wide as the others are on average
    if not span:
        return 0
    at = int((place - places[0]) * (len(places) - 1) * count // span)
    return max(0, min(count - 1, at))


def highest(places: Sequence[Number], heights: Sequence[Number | None], count: int) -> list[int | None]:
    """Return for each of `count` equal parts of the x axis the index of its highest point; None where nothing is known.

    A part without a point repeats the point before it: a value holds until the next one.
    """
    members: list[list[int]] = [[] for _ in range(count)]
    for index, place in enumerate(places):
        members[bin_of(place, places, count)].append(index)
    chosen: list[int | None] = []
    held: list[int] = []
    for inside in members:
        known = [(height, -index) for index in inside or held if (height := heights[index]) is not None]
        chosen.append(-max(known)[1] if known else None)
        held = inside[-1:] or held
    return chosen


_HEIGHT = 8
_NARROWEST = 20
_DEFAULT_WIDTH = 100
_MARGIN = 14
"""Room for the labels beside a line."""
_LINE_WIDTH, _LINE_HEIGHT = 60, 6


def chart_lines(series: Series, width: int | None, glyphs: Glyphs, encoding: str) -> Iterator[str]:
    """Yield the chart, one for each column unless they are parts of a whole; nothing where no number can be drawn.

    Columns of bars for what holds from one place to the next, lines for what was computed at some places.
    """
    if series.sampled and not series.stacked:
        lines = line_chart(series, encoding, min(_LINE_WIDTH, max(_NARROWEST, (width or _DEFAULT_WIDTH) - _MARGIN)))
        # The title above the chart need not be said twice.
        yield from islice(lines, 1 if [column.heading for column in series.y] == [series.title] else 0, None)
        return
    columns = [drawable(series.cells(column.key)) for column in series.y]
    curves = [(series.y[0], totals(columns))] if series.stacked and columns else list(zip(series.y, columns, strict=True))
    for column, heights in curves:
        if any(heights):
            name = "" if len(curves) == 1 else printable(column.heading, encoding)
            shown = series.y if series.stacked else (column,)
            yield from _draw(series, shown, heights, min(width or _DEFAULT_WIDTH, _DEFAULT_WIDTH), glyphs, encoding, name)


def _draw(
    series: Series, columns: Sequence[Column], heights: Sequence[Number | None], width: int, glyphs: Glyphs, encoding: str, name: str
) -> Iterator[str]:
    places, marks = axis(series)
    known = [height for height in heights if height is not None]
    base, top = min(0, *known), max(0, *known)
    kind, where = columns[0].kind, series.provenance_of_top(columns)
    labels = {0: signed(Quantity(top, where), kind), _HEIGHT // 2: humanise((base + top) / 2, kind), _HEIGHT: humanise(base, kind)}
    margin = max(map(display_width, labels.values()))
    count = max(_NARROWEST, width - margin - 3)
    bars = [None if index is None else heights[index] for index in highest(places, heights, count)]
    if name:
        yield name
    for line in _mark_lines(marks, places, count, glyphs, encoding):
        yield " " * (margin + 2) + line
    columns_up = zip(*(bar_column(bar, base, top, _HEIGHT, glyphs.blocks) for bar in bars), strict=True)
    for row, cells in enumerate(reversed(["".join(characters) for characters in columns_up])):
        yield f"{pad(labels.get(row, ''), margin, right=True)} {glyphs.axis}{cells}".rstrip()
    yield f"{pad(labels[_HEIGHT], margin, right=True)} {glyphs.corner}{glyphs.rule * count}"
    ends = series.cells(series.x.key)
    span = f"{series.x.heading} {humanise(ends[0], series.x.kind)} {glyphs.ellipsis} {humanise(ends[-1], series.x.kind)}"
    yield " " * (margin + 2) + printable(span, encoding)


def bar_column(bar: Number | None, base: Number, top: Number, rows: int, blocks: str) -> str:
    """Return the characters of a bar from the bottom up; what is above the base by anything at all shows."""
    if bar is None:
        return f"?{blocks[0] * rows}"[:rows]
    steps = len(blocks) - 1
    filled = int((bar - base) * steps * rows // (top - base)) if top > base else 0
    full, part = divmod(max(filled, 1 if bar > base else 0), steps)
    return f"{blocks[-1] * full}{blocks[part]}{blocks[0] * rows}"[:rows]


def _mark_lines(marks: Sequence[Mark], places: Sequence[Number], count: int, glyphs: Glyphs, encoding: str) -> list[str]:
    """Labels above their place; one that would run over another begins a new line."""
    lines: list[str] = []
    for mark in sorted(marks, key=lambda mark: mark.x):
        at = bin_of(mark.x, places, count)
        text = f"{glyphs.mark} {printable(mark.label, encoding)}"
        if at + display_width(text) > count and at + 1 >= display_width(text):
            text = f"{printable(mark.label, encoding)} {glyphs.mark}"
            at += 1 - display_width(text)
        if not lines or display_width(lines[-1]) >= at:
            lines.append("")
        lines[-1] = pad(lines[-1], at) + text
    return lines


# A line through points, drawn with dots.


def line_chart(series: Series, encoding: str = "utf-8", width: int = _LINE_WIDTH, height: int = _LINE_HEIGHT) -> Iterator[str]:
    """Yield each column over x, both axes linear and from zero upwards; nothing where there is nothing to draw."""
    xs = drawable(series.cells(series.x.key))
    for number, column in enumerate(series.y):
        points = [(x, y) for x, y in zip(xs, drawable(series.cells(column.key)), strict=True) if x is not None and y is not None]
        if len(points) < 2 or max(y for _, y in points) <= 0 or points[0][0] == points[-1][0]:
            continue
        most = max(y for _, y in points)
        labels = {0: signed(Quantity(most, series.provenance_of_top((column,))), column.kind), height // 2: humanise(most / 2, column.kind)}
        labels[height - 1] = "0"
        margin = max(map(display_width, labels.values()))
        canvas = Canvas(width, height, encoding)
        for dot in _line(points, *canvas.dots):
            canvas.set(*dot)
        if number:
            yield ""
        yield f"{' ' * (margin + 2)}{printable(column.heading, encoding)}"
        for row, drawn in enumerate(canvas.rows()):
            yield f"{pad(labels.get(row, ''), margin, right=True)} |{drawn}".rstrip()
        ends = [humanise(cell, series.x.kind) for cell in (points[0][0], points[-1][0])]
        start = f"{printable(series.x.heading, encoding)} {ends[0]}"
        yield f"{' ' * (margin + 2)}{start}{ends[1].rjust(max(1, width - display_width(start)))}"


_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character by row and column."""
_EMPTY = 0x2800


class Canvas:
    """A rectangle of characters in which dots are set: braille, eight to a character, or one sign where the encoding has no braille."""

    def __init__(self, width: int, height: int, encoding: str = "utf-8") -> None:
        self._bits = [[0] * width for _ in range(height)]
        self._has_braille = can_encode(chr(_EMPTY), encoding)

    @property
    def dots(self) -> tuple[int, int]:
        """Return how many there are across and up."""
        return 2 * len(self._bits[0]), 4 * len(self._bits)

    def set(self, across: int, up: int) -> None:
        """A dot, counted from the lower left corner."""
        down = 4 * len(self._bits) - 1 - up
        self._bits[down // 4][across // 2] |= _DOTS[down % 4][across % 2]

    def cells(self, sign: str = "*") -> list[list[str]]:
        """Return the characters of each line from the top; a blank where there is no dot."""
        return [[(chr(_EMPTY | bits) if self._has_braille else sign) if bits else " " for bits in row] for row in self._bits]

    def rows(self) -> Iterator[str]:
        """Return the lines of text, from the top."""
        return ("".join(row).rstrip() for row in self.cells())


def _line(points: Sequence[tuple[float, float]], across: int, up: int) -> Iterator[tuple[int, int]]:
    """Dots along the straight pieces between neighbouring points."""
    ordered = sorted(points)
    left, right = ordered[0][0], ordered[-1][0]
    top = max(y for _, y in ordered)
    place = 0
    for dot in range(across):
        x = left + (right - left) * dot / (across - 1)
        while place + 2 < len(ordered) and ordered[place + 1][0] < x:
            place += 1
        (x0, y0), (x1, y1) = ordered[place], ordered[place + 1]
        y = y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        yield dot, max(0, min(up - 1, round(y / top * (up - 1))))
