"""A scatter of points under a roof, both axes logarithmic, drawn with braille dots: eight to a character."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irscope.report.printable import display_width, pad
from irscope.report.units import Kind, humanise
from irscope.tui.models.spans import Line, Role, Span, cut_line
from irscope.tui.models.symbols import Symbols

_BITS = np.array(((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80)), dtype=np.int64)
"""Bits of a braille character by row and column."""
_LEAST_COLUMNS, _LEAST_ROWS = 12, 3
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Roof:
    """What a device can do at most: bytes a second, and operations a second."""

    bandwidth: float
    peak: float
    name: str

    def at(self, intensity: float) -> float:
        """The most operations a second at so many of them for each byte."""
        return min(self.peak, intensity * self.bandwidth)


class Scatter:
    """Points with a roof over them."""

    def __init__(self, xs: Sequence[float] | Floats, ys: Sequence[float] | Floats, roof: Roof | None) -> None:
        self.xs: Floats = np.log10(np.array(xs, dtype=np.float64))
        self.ys: Floats = np.log10(np.array(ys, dtype=np.float64))
        self.roof = roof
        low, high = float(self.xs.min(initial=math.inf)), float(self.xs.max(initial=-math.inf))
        if roof is not None:
            ridge = math.log10(roof.peak / roof.bandwidth)
            low, high = min(low, ridge - 1), max(high, ridge + 1)
        elif not len(self.xs):
            low, high = 0.0, 1.0
        self.left, self.right = math.floor(low), max(math.ceil(high), math.floor(low) + 1)
        tops = [float(self.ys.max(initial=-math.inf))] + ([math.log10(roof.peak)] if roof is not None else [])
        bottoms = [float(self.ys.min(initial=math.inf))] + ([math.log10(roof.at(10**self.left))] if roof is not None else [])
        top, bottom = max(tops), min(bottoms)
        if not math.isfinite(top) or not math.isfinite(bottom):
            top, bottom = 1.0, 0.0
        self.top, self.bottom = math.ceil(top + 0.1), min(math.floor(bottom), math.ceil(top + 0.1) - 1)

    def lines(self, width: int, height: int, selected: int | None, symbols: Symbols) -> list[Line]:
        """The chart in exactly `height` lines."""
        labels = [_rate(10**self.top), _rate(10**self.bottom)]
        margin = max(map(display_width, labels)) + 2
        across, up = width - margin, height - 2
        if across < _LEAST_COLUMNS or up < _LEAST_ROWS:
            return [()] * max(height, 0)
        roof, points = np.zeros((up, across), dtype=np.int64), np.zeros((up, across), dtype=np.int64)
        self._draw_roof(roof)
        self._draw_points(points)
        here = self._cell(selected, across, up)
        lines: list[Line] = []
        for row in range(up):
            label = labels[0] if row == 0 else labels[1] if row == up - 1 else ""
            spans = [Span(f"{pad(label, margin - 2, right=True)} {symbols.glyphs.axis}", "faint")]
            spans.extend(self._row(roof[row], points[row], here[0] if here is not None and here[1] == row else None, symbols))
            lines.append(cut_line(spans, width, symbols))
        lines.append((Span(f"{' ' * (margin - 2)} {symbols.glyphs.corner}{symbols.glyphs.rule * across}", "faint"),))
        lines.append(cut_line((Span(self._axis_text(margin, across), "faint"),), width, symbols))
        return lines

    def _axis_text(self, margin: int, across: int) -> str:
        left, right = _plain(10**self.left), _plain(10**self.right)
        middle = " FLOPs for each byte "
        room = across - len(left) - len(right)
        return f"{' ' * margin}{left}{middle.center(room, ' ') if room >= len(middle) else ' ' * max(room, 1)}{right}"

    def _row(self, roof: NDArray[np.int64], points: NDArray[np.int64], here: int | None, symbols: Symbols) -> list[Span]:
        cells: list[tuple[str, Role]] = []
        for column, (behind, front) in enumerate(zip(roof.tolist(), points.tolist(), strict=True)):
            if column == here:
                cells.append((symbols.point, "mark"))
            elif front:
                cells.append((symbols.braille(front), "part1"))
            elif behind:
                cells.append((symbols.braille(behind, "-"), "part3"))
            else:
                cells.append((" ", "plain"))
        spans: list[Span] = []
        for text, role in cells:
            if spans and spans[-1].role == role:
                spans[-1] = Span(spans[-1].text + text, role)
            else:
                spans.append(Span(text, role))
        return spans

    def _places(self, xs: Floats, ys: Floats, across: int, up: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        x = np.clip((xs - self.left) / (self.right - self.left) * (across * 2 - 1), 0, across * 2 - 1)
        y = np.clip((self.top - ys) / (self.top - self.bottom) * (up * 4 - 1), 0, up * 4 - 1)
        return np.round(x).astype(np.int64), np.round(y).astype(np.int64)

    def _draw(self, into: NDArray[np.int64], xs: Floats, ys: Floats) -> None:
        up, across = into.shape
        x, y = self._places(xs, ys, across, up)
        np.bitwise_or.at(into, (y // 4, x // 2), _BITS[y % 4, x % 2])

    def _draw_points(self, into: NDArray[np.int64]) -> None:
        """A point is two dots high and wide, as one dot is hard to see."""
        up, across = into.shape
        x, y = self._places(self.xs, self.ys, across, up)
        for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
            right, down = np.minimum(x + dx, across * 2 - 1), np.minimum(y + dy, up * 4 - 1)
            np.bitwise_or.at(into, (down // 4, right // 2), _BITS[down % 4, right % 2])

    def _draw_roof(self, into: NDArray[np.int64]) -> None:
        if self.roof is None:
            return
        xs = np.linspace(self.left, self.right, into.shape[1] * 4)
        ys = np.minimum(math.log10(self.roof.peak), xs + math.log10(self.roof.bandwidth))
        self._draw(into, xs, ys)

    def _cell(self, selected: int | None, across: int, up: int) -> tuple[int, int] | None:
        if selected is None or not 0 <= selected < len(self.xs):
            return None
        x, y = self._places(self.xs[selected : selected + 1], self.ys[selected : selected + 1], across, up)
        return int(x[0]) // 2, int(y[0]) // 4


def _rate(value: float) -> str:
    return humanise(float(value), Kind.FLOPS_PER_SECOND).replace(".00", "")


def _plain(value: float) -> str:
    return f"{value:g}"
