"""A small chart of a series in text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from irscope.report.bins import axis, bin_of, drawable, highest, totals
from irscope.report.celltext import signed
from irscope.report.options import Glyphs
from irscope.report.printable import display_width, pad, printable
from irscope.report.table import Column, Mark, Series
from irscope.report.units import humanise
from irscope.report.values import Number, Quantity

_HEIGHT = 8
_NARROWEST = 20
_DEFAULT_WIDTH = 100


def chart_lines(series: Series, width: int | None, glyphs: Glyphs, encoding: str) -> Iterator[str]:
    """The chart, one for each column unless they are parts of a whole; nothing where no number can be drawn."""
    columns = [drawable(series.cells(column.key)) for column in series.y]
    curves = [(series.y[0], totals(columns))] if series.stacked and columns else list(zip(series.y, columns, strict=True))
    for column, heights in curves:
        if any(heights):
            name = "" if len(curves) == 1 else printable(column.heading, encoding)
            shown = series.y if series.stacked else (column,)
            yield from _draw(series, shown, heights, min(width or _DEFAULT_WIDTH, _DEFAULT_WIDTH), glyphs, encoding, name)


def _draw(
    series: Series,
    columns: Sequence[Column],
    heights: Sequence[Number | None],
    width: int,
    glyphs: Glyphs,
    encoding: str,
    name: str,
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
    for row in range(_HEIGHT):
        cells = "".join(_block(bar, base, top, _HEIGHT - 1 - row, glyphs.blocks) for bar in bars)
        yield f"{pad(labels.get(row, ''), margin, right=True)} {glyphs.axis}{cells}".rstrip()
    yield f"{pad(labels[_HEIGHT], margin, right=True)} {glyphs.corner}{glyphs.rule * count}"
    ends = series.cells(series.x.key)
    span = f"{series.x.heading} {humanise(ends[0], series.x.kind)} {glyphs.ellipsis} {humanise(ends[-1], series.x.kind)}"
    yield " " * (margin + 2) + printable(span, encoding)


def _block(bar: Number | None, base: Number, top: Number, row: int, blocks: str) -> str:
    """One character of a bar, `row` counted from the bottom; what is above the base by anything at all shows."""
    if bar is None:
        return "?" if row == 0 else blocks[0]
    steps = len(blocks) - 1
    filled = int((bar - base) * steps * _HEIGHT // (top - base))
    if bar > base:
        filled = max(1, filled)
    return blocks[max(0, min(steps, filled - row * steps))]


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
