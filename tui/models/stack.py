"""Bytes over program order by category, stacked: every column shows its largest step, so that no peak vanishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from irscope.report.printable import display_width, pad
from irscope.report.units import Kind, humanise
from irscope.tui.models.spans import PARTS, Line, Span, cut_end, cut_line
from irscope.tui.models.symbols import Symbols

Floats = NDArray[np.float64]
_LEAST_COLUMNS = 8


class Stack:
    """Categories by step, the lowest first, and a window of steps that is looked at."""

    def __init__(self, parts: Mapping[str, Floats], *, kind: Kind = Kind.BYTES, places: Sequence[str] | None = None) -> None:
        self.parts = dict(parts)
        self.places = places
        """What people call each place of the axis; steps by their number without it."""
        self.kind = kind
        self.count = len(next(iter(self.parts.values()))) if self.parts else 0
        self.total: Floats = np.sum(list(self.parts.values()), axis=0) if self.parts else np.zeros(0, dtype=np.float64)
        self.peak: int | None = int(np.argmax(self.total)) if self.count else None
        self.start, self.stop = 0, self.count

    def __len__(self) -> int:
        return self.count

    def text_at(self, step: int) -> str:
        """The total at a step with its unit."""
        return humanise(int(self.total[step]), self.kind)

    def place(self, step: int) -> str:
        """What people call a place of the axis."""
        return f"step {step:,}" if self.places is None else self.places[step]

    # -- peaks -------------------------------------------------------------------------------------------------

    def hills(self) -> NDArray[np.int64]:
        """The first step of every highest place: higher than what is before and after it."""
        if not self.count:
            return np.zeros(0, dtype=np.int64)
        starts = np.concatenate(([0], np.flatnonzero(np.diff(self.total)) + 1))
        levels = self.total[starts]
        before, after = np.concatenate(([-np.inf], levels[:-1])), np.concatenate((levels[1:], [-np.inf]))
        found: NDArray[np.int64] = starts[(levels > before) & (levels > after)].astype(np.int64)
        return found

    def next_hill(self, step: int, by: int) -> int | None:
        """The next highest place after a step, or the one before it; None where there is none."""
        hills = self.hills()
        beyond = hills[hills > step] if by > 0 else hills[hills < step][::-1]
        return int(beyond[0]) if len(beyond) else None

    # -- window ------------------------------------------------------------------------------------------------

    def zoom(self, here: int, factor: float) -> None:
        """Look at fewer steps around one, or at more."""
        span = min(max(round((self.stop - self.start) * factor), _LEAST_COLUMNS), self.count)
        start = here - round((here - self.start) * span / max(self.stop - self.start, 1))
        self.start = min(max(start, 0), self.count - span)
        self.stop = self.start + span

    def fit(self) -> None:
        """Look at all steps."""
        self.start, self.stop = 0, self.count

    def follow(self, here: int) -> None:
        """Move the window so that a step is in it."""
        span = self.stop - self.start
        if here < self.start:
            self.start = here
        elif here >= self.stop:
            self.start = here - span + 1
        self.stop = self.start + span

    def column_of(self, step: int, width: int) -> int:
        """The chart column in which a step is drawn; outside of the chart for steps outside of the window."""
        return (step - self.start) * width // max(self.stop - self.start, 1)

    def step_of(self, column: int, width: int) -> int:
        """The step that a column shows."""
        return int(self.chosen(width)[min(max(column, 0), width - 1)])

    def chosen(self, width: int) -> NDArray[np.int64]:
        """For each column the step that it shows: the one with the largest total of those that fall into it."""
        span = self.stop - self.start
        if span <= width:
            columns = np.arange(width, dtype=np.int64)
            return self.start + np.searchsorted(np.arange(span) * width // span, columns, side="right") - 1
        starts = -(-np.arange(width, dtype=np.int64) * span // width)
        ends = np.append(starts[1:], span)
        window = self.total[self.start : self.stop]
        # The largest of each piece, then the first step that has it: no loop over steps.
        largest = np.maximum.reduceat(window, starts)
        hits = np.flatnonzero(window == np.repeat(largest, ends - starts))
        return self.start + hits[np.searchsorted(hits, starts)]

    # -- drawing -----------------------------------------------------------------------------------------------

    def margin(self) -> int:
        """Columns left of the chart, taken by labels and the axis."""
        return max(display_width(self._top_text()), 3) + 2

    def _top_text(self) -> str:
        return self.text_at(self.peak) if self.peak is not None else humanise(0, self.kind)

    def lines(self, width: int, height: int, here: int | None, symbols: Symbols, mark: int | None = None) -> list[Line]:
        """The chart in exactly `height` lines: marks, bars, axis. `mark` is the other end of a range that is looked at."""
        margin = self.margin()
        count = width - margin
        if count < _LEAST_COLUMNS or height < 1 or not self.count:
            return [()] * max(height, 0)
        above = [self._mark_line(margin, count, symbols)] if height >= 3 else []
        below = [self._axis_line(margin, count, here, mark, symbols)] if height >= 2 else []
        if height >= 7:
            below.append(self._text_line(margin, count, symbols))
        bars = self._bar_lines(margin, count, height - len(above) - len(below), symbols)
        return [cut_line(line, width, symbols) for line in (*above, *bars, *below)]

    def _mark_line(self, margin: int, count: int, symbols: Symbols) -> Line:
        assert self.peak is not None
        at = self.column_of(self.peak, count)
        label = f"peak {self.text_at(self.peak)} at {self.place(self.peak)}"
        if not 0 <= at < count:
            return (Span(f"{' ' * margin}{cut_end(f'{label}, outside of what is shown', count, symbols)}", "faint"),)
        before, behind = at - 1, count - at - 2
        if len(label) <= behind or behind >= before:
            return (Span(" " * (margin + at)), Span(symbols.glyphs.mark, "mark"), Span(f" {cut_end(label, behind, symbols)}"))
        label = cut_end(label, before, symbols)
        return (Span(f"{' ' * (margin + before - len(label))}{label} "), Span(symbols.glyphs.mark, "mark"))

    def _bar_lines(self, margin: int, count: int, rows: int, symbols: Symbols) -> list[Line]:
        steps = self.chosen(count)
        top = float(self.total.max(initial=0.0))
        tops = np.cumsum([part[steps] for part in self.parts.values()], axis=0) * (rows / top if top > 0 else 0.0)
        total = tops[-1]
        # Non-zero values get at least the smallest bar.
        filled = np.where(total > 0, np.maximum(np.ceil(total - 1e-9), 1), 0)
        lines: list[Line] = []
        for row in range(rows):
            level = rows - row - 1
            # A cell shows the category in its middle; the uppermost shows what is on top.
            middle = np.minimum(level + 0.5, np.maximum(total - 1e-9, 0))
            part = np.minimum((tops <= middle).sum(axis=0), len(tops) - 1)
            cells = np.where(level < filled, part, -1)
            label = self._top_text() if row == 0 else ""
            lines.append((Span(f"{pad(label, margin - 2, right=True)} {symbols.glyphs.axis}", "faint"), *_runs(cells, symbols)))
        return lines

    def _axis_line(self, margin: int, count: int, here: int | None, mark: int | None, symbols: Symbols) -> Line:
        signs = [symbols.glyphs.rule] * count
        for step, sign in ((mark, "A"), (here, symbols.here)):
            at = -1 if step is None else self.column_of(step, count)
            if 0 <= at < count:
                signs[at] = sign
        zero = Span(f"{pad(humanise(0, self.kind), margin - 2, right=True)} {symbols.glyphs.corner}", "faint")
        pieces = [Span(sign, "faint" if sign == symbols.glyphs.rule else "mark") for sign in signs]
        return (zero, *pieces)

    def _text_line(self, margin: int, count: int, symbols: Symbols) -> Line:
        if self.places is not None:
            return (Span(f"{' ' * margin}{self.places[self.start]} to {self.places[self.stop - 1]}", "faint"),)
        part = "" if self.stop - self.start == self.count else f" of {self.count:,}"
        return (Span(f"{' ' * margin}steps {self.start:,} to {self.stop - 1:,}{part} in program order, which is not time", "faint"),)

    def legend(self, symbols: Symbols) -> Line:
        """The legend of the fills."""
        spans: list[Span] = []
        for number, name in enumerate(self.parts):
            spans += [Span(fill_of(number, symbols), PARTS[number % len(PARTS)]), Span(f" {name}  ")]
        return tuple(spans)

    def legend_rows(self, width: int, symbols: Symbols) -> list[Line]:
        """The legend in lines of a width."""
        return [cut_line(self.legend(symbols), width, symbols)]


def fill_of(part: int, symbols: Symbols) -> str:
    """The fill of a category."""
    return symbols.fills[part % len(symbols.fills)]


def _runs(cells: NDArray[np.int64], symbols: Symbols) -> list[Span]:
    """Cells of one category next to one another as one span."""
    edges = np.concatenate(([0], np.flatnonzero(np.diff(cells)) + 1, [len(cells)]))
    spans: list[Span] = []
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = int(cells[start])
        spans.append(Span(" " * (stop - start)) if part < 0 else Span(fill_of(part, symbols) * (stop - start), PARTS[part % len(PARTS)]))
    return spans
