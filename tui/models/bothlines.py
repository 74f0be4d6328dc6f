"""Two timelines over one axis: common bytes, bytes of one side only, and both peaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irscope.report.printable import display_width, pad
from irscope.report.units import Kind, humanise
from irscope.tui.models.spans import Line, Role, Span, cut_end
from irscope.tui.models.symbols import Symbols

Floats = NDArray[np.float64]
_LEAST_COLUMNS = 8
LEAST_BARS = 3
_BOTH, _FIRST, _SECOND = 0, 1, 3
"""Fills and styles of common bytes, and of those of one side only."""
_LOOKS: dict[int, Role] = {_BOTH: "part0", _FIRST: "part1", _SECOND: "part3"}


@dataclass(frozen=True)
class BothLines:
    """Bytes alive on both sides along one axis."""

    names: tuple[str, str]
    heights: tuple[Floats, Floats]
    labels: Sequence[str]
    """What stands at each place."""

    def __len__(self) -> int:
        return len(self.labels)

    def peak(self, side: int) -> int:
        """The first place at which a side is highest."""
        return int(np.argmax(self.heights[side]))

    def chosen(self, width: int) -> NDArray[np.int64]:
        """For each column the position that it shows: that with the highest bytes of either side."""
        count = len(self)
        higher = np.maximum(*self.heights)
        if count <= width:
            return np.minimum(np.arange(width, dtype=np.int64) * count // width, count - 1)
        starts = np.arange(width, dtype=np.int64) * count // width
        ends = np.append(starts[1:], count)
        largest = np.maximum.reduceat(higher, starts)
        hits = np.flatnonzero(higher == np.repeat(largest, ends - starts))
        found: NDArray[np.int64] = hits[np.searchsorted(hits, starts)]
        return found

    # -- drawing -----------------------------------------------------------------------------------------------

    @property
    def top(self) -> float:
        """The highest of both."""
        return float(max(side.max() for side in self.heights))

    def margin(self) -> int:
        """Columns left of the chart, taken by labels and the axis."""
        return display_width(humanise(int(self.top), Kind.BYTES)) + 2

    def place_of(self, column: int, count: int) -> int:
        """The place that a column of a chart of so many columns shows."""
        return int(self.chosen(count)[min(max(column, 0), count - 1)]) if count > 0 else 0

    def legend(self, symbols: Symbols) -> Line:
        """The legend of the fills."""
        first, second = self.names
        texts = {_BOTH: "both", _FIRST: f"only {first}", _SECOND: f"only {second}"}
        return tuple(span for part, text in texts.items() for span in (Span(symbols.fills[part], _LOOKS[part]), Span(f" {text}  ")))

    def lines(self, width: int, height: int, here: int, symbols: Symbols) -> list[Line]:
        """The chart: marks of the peaks, bars, and the axis with the cursor; nothing where there is no room."""
        margin, top = self.margin(), self.top
        count = width - margin
        if count < _LEAST_COLUMNS or height < 2:
            return []
        marks = self._marks(margin, count, symbols) if height >= LEAST_BARS + 2 else []
        rows = height - len(marks) - 1
        places = self.chosen(count)
        # Non-zero values get at least the smallest bar.
        first, second = (np.ceil(side[places] * (rows / top if top > 0 else 0.0) - 1e-9) for side in self.heights)
        drawn: list[Line] = []
        for row in range(rows):
            level = rows - row - 1
            cells = np.where(level < first, np.where(level < second, _BOTH, _FIRST), np.where(level < second, _SECOND, -1))
            label = humanise(int(top), Kind.BYTES) if row == 0 else ""
            drawn.append((Span(f"{pad(label, margin - 2, right=True)} {symbols.glyphs.axis}", "faint"), *_runs(cells, symbols)))
        return [*marks, *drawn, self._axis(margin, count, here, symbols)]

    def _column(self, place: int, count: int) -> int:
        return min(place * count // len(self), count - 1)

    def _marks(self, margin: int, count: int, symbols: Symbols) -> list[Line]:
        """Where each side is highest; one line for both where it is the same place."""
        peaks = [self.peak(side) for side in (0, 1)]
        if peaks[0] == peaks[1]:
            return [self._mark(peaks[0], "both peaks", margin, count, symbols)]
        texts = [
            f"{name} peak {humanise(int(side[at]), Kind.BYTES)}" for name, side, at in zip(self.names, self.heights, peaks, strict=True)
        ]
        return [self._mark(at, text, margin, count, symbols) for at, text in zip(peaks, texts, strict=True)]

    def _mark(self, place: int, text: str, margin: int, count: int, symbols: Symbols) -> Line:
        at, mark = self._column(place, count), Span(symbols.glyphs.mark, "mark")
        if at + 2 + len(text) <= count or at < len(text) + 1:
            return (Span(" " * (margin + at)), mark, Span(f" {cut_end(text, max(count - at - 2, 0), symbols)}"))
        return (Span(f"{' ' * (margin + at - len(text) - 1)}{text} "), mark)

    def _axis(self, margin: int, count: int, here: int, symbols: Symbols) -> Line:
        signs = [symbols.glyphs.rule] * count
        signs[self._column(here, count)] = symbols.here
        zero = Span(f"{pad(humanise(0, Kind.BYTES), margin - 2, right=True)} {symbols.glyphs.corner}", "faint")
        return (zero, *(Span(sign, "faint" if sign == symbols.glyphs.rule else "mark") for sign in signs))


def _runs(cells: NDArray[np.int64], symbols: Symbols) -> list[Span]:
    """Cells of one kind next to one another as one span."""
    edges = np.concatenate(([0], np.flatnonzero(np.diff(cells)) + 1, [len(cells)]))
    spans: list[Span] = []
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = int(cells[start])
        spans.append(Span(" " * (stop - start)) if part < 0 else Span(symbols.fills[part] * (stop - start), _LOOKS[part]))
    return spans
