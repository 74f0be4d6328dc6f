"""A line through points, drawn with braille dots: eight to a character."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from irscope.report.bins import drawable
from irscope.report.celltext import signed
from irscope.report.printable import can_encode, display_width, pad
from irscope.report.table import Series
from irscope.report.units import humanise
from irscope.report.values import Quantity

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character by row and column."""
_EMPTY = 0x2800
_BLANKS = f" {chr(_EMPTY)}"
_WIDTH, _HEIGHT = 60, 6


def line_chart(series: Series, encoding: str = "utf-8", width: int = _WIDTH, height: int = _HEIGHT) -> Iterator[str]:
    """The first column over x, both axes linear and from zero upwards; nothing where there is nothing to draw."""
    column = series.y[0]
    xs, ys = series.cells(series.x.key), series.cells(column.key)
    pairs = zip(drawable(xs), drawable(ys), strict=True)
    points = [(x, y) for x, y in pairs if x is not None and y is not None]
    if len(points) < 2 or max(y for _, y in points) <= 0 or points[0][0] == points[-1][0]:
        return
    dots = _line(points, width * 2, height * 4)
    rows = [[0] * width for _ in range(height)]
    for across, up in dots:
        down = height * 4 - 1 - up
        rows[down // 4][across // 2] |= _DOTS[down % 4][across % 2]
    most = max(y for _, y in points)
    top, middle = (
        signed(Quantity(most, series.provenance_of_top((column,))), column.kind),
        humanise(most / 2, column.kind),
    )
    margin = max(display_width(label) for label in (top, middle, "0"))
    labels = {0: top, height // 2: middle, height - 1: "0"}
    plain = not can_encode(chr(_EMPTY), encoding)
    yield f"{' ' * (margin + 2)}{column.heading}"
    for number, cells in enumerate(rows):
        drawn = "".join(("*" if bits else " ") if plain else chr(_EMPTY | bits) for bits in cells)
        yield f"{pad(labels.get(number, ''), margin, right=True)} |{drawn.rstrip(_BLANKS)}".rstrip()
    first, last = humanise(xs[0], series.x.kind), humanise(xs[-1], series.x.kind)
    ends = f"{series.x.heading} {first}"
    yield f"{' ' * (margin + 2)}{ends}{last.rjust(max(1, width - display_width(ends)))}"


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
