"""A series as an SVG picture inside a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from irscope.report.bins import axis, bin_of, drawable, highest, totals
from irscope.report.celltext import SIGNS, signed
from irscope.report.printable import printable
from irscope.report.table import Column, Series
from irscope.report.units import humanise
from irscope.report.values import Number, Quantity

_WIDTH, _HEIGHT, _TOP, _LEFT, _BOTTOM = 880, 180, 22, 90, 22
_BINS = 440
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#777777")
"""Okabe and Ito's, told apart by most eyes; the legend also gives the order from bottom to top."""


def chart(series: Series) -> Iterator[str]:
    """The picture, one for each column unless they are parts of a whole; nothing where no number can be drawn."""
    groups = [series.y] if series.stacked else [(column,) for column in series.y]
    for columns in groups:
        layers = [drawable(series.cells(column.key)) for column in columns]
        heights = totals(layers)
        if any(heights) and min(height for height in heights if height is not None) >= 0:
            yield from _picture(series, columns, layers, heights)


def _picture(
    series: Series, columns: Sequence[Column], layers: Sequence[Sequence[Number | None]], heights: Sequence[Number | None]
) -> Iterator[str]:
    places, marks = axis(series)
    chosen = highest(places, heights, _BINS)
    top = max(height for height in heights if height is not None)
    most = signed(Quantity(top, series.provenance_of_top(columns)), columns[0].kind)
    label = text(f"{series.title}: at most {most}")
    yield f'<svg viewBox="0 0 {_LEFT + _WIDTH + 10} {_TOP + _HEIGHT + _BOTTOM}" role="img" aria-label="{label}">\n'
    floor = [0.0] * _BINS
    for number, (column, layer) in enumerate(zip(columns, layers, strict=True)):
        ceiling = [low + float((0 if at is None else layer[at] or 0) / top) for low, at in zip(floor, chosen, strict=True)]
        yield f'<path fill="{_COLOURS[number % len(_COLOURS)]}" d="{_band(floor, ceiling)}"><title>{text(column.heading)}</title></path>\n'
        floor = ceiling
    for mark in marks:
        x = _x(bin_of(mark.x, places, _BINS) + 0.5)
        anchor = "end" if x > _LEFT + _WIDTH / 2 else "start"
        yield f'<path class="mark" d="M{x:.1f} {_TOP - 4}V{_TOP + _HEIGHT}"/>'
        yield f'<text x="{x:.1f}" y="{_TOP - 8}" text-anchor="{anchor}">▼ {text(mark.label)}</text>\n'
    yield from _frame(series, columns[0], top, most)
    yield "</svg>\n"
    if len(columns) > 1:
        yield _legend(series, columns)


def _frame(series: Series, column: Column, top: Number, most: str) -> Iterator[str]:
    ends = series.cells(series.x.key)
    yield f'<path class="axis" d="M{_LEFT} {_TOP}V{_TOP + _HEIGHT}H{_LEFT + _WIDTH}"/>\n'
    for label, place in ((most, _TOP), (humanise(top / 2, column.kind), _TOP + _HEIGHT / 2), (humanise(0, column.kind), _TOP + _HEIGHT)):
        yield f'<text x="{_LEFT - 6}" y="{place + 4}" text-anchor="end">{text(label)}</text>\n'
    below = _TOP + _HEIGHT + 16
    first, last = (text(humanise(end, series.x.kind)) for end in (ends[0], ends[-1]))
    yield f'<text x="{_LEFT}" y="{below}">{text(series.x.heading)} {first}</text>'
    yield f'<text x="{_LEFT + _WIDTH}" y="{below}" text-anchor="end">{last}</text>\n'


def _legend(series: Series, columns: Sequence[Column]) -> str:
    signs = [SIGNS.get(series.provenance(column), "") for column in columns]
    entries = "".join(
        f'<span><i style="background:{_COLOURS[number % len(_COLOURS)]}"></i>{signs[number]}{text(column.heading)}</span>'
        for number, column in enumerate(columns)
    )
    return f'<p class="legend">from bottom to top: {entries}</p>\n'


def _band(floor: Sequence[float], ceiling: Sequence[float]) -> str:
    """The outline of the area between two step curves, given as shares of the height."""
    upper = [f"L{_x(at + side):.1f} {_y(share):.1f}" for at, share in enumerate(ceiling) for side in (0, 1)]
    lower = [f"L{_x(at + side):.1f} {_y(floor[at]):.1f}" for at in reversed(range(len(floor))) for side in (1, 0)]
    return f"M{_x(0):.1f} {_y(floor[0]):.1f}{''.join(upper)}{''.join(lower)}Z"


def _x(at: float) -> float:
    return _LEFT + _WIDTH * at / _BINS


def _y(share: float) -> float:
    return _TOP + _HEIGHT * (1 - share)


def text(raw: str) -> str:
    """Any string as content or attribute of an element."""
    return escape(printable(raw))
