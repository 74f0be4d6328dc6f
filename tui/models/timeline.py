"""Bytes over program order as a small chart: every column shows its largest step, so that no peak vanishes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.report.printable import display_width, pad
from irscope.report.units import Kind, humanise
from irscope.tui.models.spans import Line, Span, cut_end, cut_line
from irscope.tui.models.symbols import Symbols

Heights: TypeAlias = NDArray[np.float64]
_LEAST_COLUMNS = 8


class Timeline:
    """Totals by step. Steps whose total is unknown have no height and are drawn as `?`."""

    def __init__(self, values: Sequence[int | None] | Heights, kind: Kind) -> None:
        self.kind = kind
        if not isinstance(values, np.ndarray):
            values = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        self._heights: Heights = values
        known = np.flatnonzero(~np.isnan(self._heights))
        self.peak: int | None = int(known[np.argmax(self._heights[known])]) if len(known) else None
        """The first step with the largest total."""

    def __len__(self) -> int:
        return len(self._heights)

    @property
    def values(self) -> list[int | None]:
        """The totals."""
        return [None if value != value else int(value) for value in self._heights.tolist()]

    @property
    def has_unknown(self) -> bool:
        """Whether the total of some step is unknown."""
        return bool(np.isnan(self._heights).any())

    def text_at(self, step: int, symbols: Symbols) -> str:
        """The total at a step with its unit."""
        value = float(self._heights[step]) if 0 <= step < len(self) else np.nan
        return symbols.unknown if np.isnan(value) else humanise(int(value), self.kind)

    def column_of(self, step: int, count: int) -> int:
        """The chart column, of `count`, in which a step is drawn."""
        return min(max(step * count // max(len(self), 1), 0), count - 1)

    def step_of(self, column: int, count: int) -> int:
        """The first step that is drawn in a column, or the one whose bar reaches over it where steps are wider than columns."""
        step = column * len(self) // max(count, 1) if len(self) <= count else -(-column * len(self) // max(count, 1))
        if len(self) <= count:
            # A step's bar begins where column_of() puts it, which rounding may move by one.
            step += int(step + 1 < len(self) and self.column_of(step + 1, count) <= column)
        return min(max(step, 0), max(len(self) - 1, 0))

    def heights(self, count: int) -> Heights:
        """The largest total of each of `count` columns; a step wider than a column is repeated."""
        if not len(self):
            return np.zeros(0, dtype=np.float64)
        if len(self) <= count:
            # A step's columns begin where column_of() puts it.
            first = np.searchsorted(np.arange(len(self), dtype=np.int64) * count // len(self), np.arange(count), side="right") - 1
            return self._heights[first]
        # Rounded up, so that every step is in the column that column_of() names.
        starts = -(-np.arange(count, dtype=np.int64) * len(self) // count)
        return np.fmax.reduceat(self._heights, starts)

    # -- drawing -----------------------------------------------------------------------------------------------

    def margin(self, symbols: Symbols) -> int:
        """Columns left of the chart, taken by labels and the axis."""
        top = self.text_at(self.peak, symbols) if self.peak is not None else symbols.unknown
        return max(display_width(top), 3) + 2

    def lines(self, width: int, height: int, here: int | None, symbols: Symbols) -> list[Line]:
        """The chart in exactly `height` lines: marks, bars, axis."""
        margin = self.margin(symbols)
        count = width - margin
        if count < _LEAST_COLUMNS or height < 1 or not len(self):
            return [()] * max(height, 0)
        above = [self._mark_line(margin, count, symbols)] if height >= 3 else []
        below = [self._axis_line(margin, count, here, symbols)] if height >= 2 else []
        if height >= 6:
            below.append(self._text_line(margin, symbols))
        bars = self._bar_lines(margin, count, height - len(above) - len(below), symbols)
        return [cut_line(line, width, symbols) for line in (*above, *bars, *below)]

    def _mark_line(self, margin: int, count: int, symbols: Symbols) -> Line:
        if self.peak is None:
            return ()
        at = self.column_of(self.peak, count)
        mark, label = symbols.glyphs.mark, f"peak {self.text_at(self.peak, symbols)} at step {self.peak:,}"
        before, behind = at - 1, count - at - 2
        if len(label) <= behind or behind >= before:
            return (Span(" " * (margin + at)), Span(mark, "mark"), Span(f" {cut_end(label, behind, symbols)}"))
        label = cut_end(label, before, symbols)
        return (Span(f"{' ' * (margin + before - len(label))}{label} "), Span(mark, "mark"))

    def _bar_lines(self, margin: int, count: int, rows: int, symbols: Symbols) -> list[Line]:
        heights = self.heights(count)
        top = float(np.nanmax(heights, initial=0.0)) if self.peak is not None else 0.0
        blocks = symbols.glyphs.blocks
        steps = len(blocks) - 1
        unknown = np.isnan(heights)
        scaled = np.nan_to_num(heights) * (steps * rows / top if top > 0 else 0.0)
        # Non-zero values get at least the smallest bar.
        filled = np.where(heights > 0, np.maximum(1, np.floor(scaled + 1e-9)), 0).astype(np.int64)
        lines: list[Line] = []
        for row in range(rows):
            level = np.clip(filled - (rows - 1 - row) * steps, 0, steps)
            cells = "".join(
                symbols.unknown if blank and row == rows - 1 else blocks[step]
                for step, blank in zip(level.tolist(), unknown.tolist(), strict=True)
            )
            label = self.text_at(self.peak, symbols) if row == 0 and self.peak is not None else ""
            lines.append((Span(f"{pad(label, margin - 2, right=True)} {symbols.glyphs.axis}", "faint"), Span(cells, "bar")))
        return lines

    def _axis_line(self, margin: int, count: int, here: int | None, symbols: Symbols) -> Line:
        rule = symbols.glyphs.rule
        zero = Span(f"{pad(humanise(0, self.kind), margin - 2, right=True)} {symbols.glyphs.corner}", "faint")
        if here is None or not 0 <= here < len(self):
            return (zero, Span(rule * count, "faint"))
        at = self.column_of(here, count)
        return (zero, Span(rule * at, "faint"), Span(symbols.here, "mark"), Span(rule * (count - at - 1), "faint"))

    def _text_line(self, margin: int, symbols: Symbols) -> Line:
        return (Span(f"{' ' * margin}steps 0 to {len(self) - 1:,} in program order, which is not time", "faint"),)
