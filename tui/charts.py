"""Charts of a terminal: bytes over steps, stacked or of two sides, histograms, and points under a roof."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.report.printable import display_width, pad
from irscope.report.units import Kind, humanise
from irscope.tui.text import PARTS, Line, Role, Span, Symbols, cut_end, cut_line

# ----------------------------------------------------------------------------------------------------
# Bytes over program order by category, stacked: every column shows its largest step, so that no peak vanishes.

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


# ----------------------------------------------------------------------------------------------------
# Bytes over program order as a small chart: every column shows its largest step, so that no peak vanishes.

Heights: TypeAlias = NDArray[np.float64]


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


# ----------------------------------------------------------------------------------------------------
# Two timelines over one axis: common bytes, bytes of one side only, and both peaks.

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
            drawn.append((Span(f"{pad(label, margin - 2, right=True)} {symbols.glyphs.axis}", "faint"), *_side_runs(cells, symbols)))
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


def _side_runs(cells: NDArray[np.int64], symbols: Symbols) -> list[Span]:
    """Cells of one kind next to one another as one span."""
    edges = np.concatenate(([0], np.flatnonzero(np.diff(cells)) + 1, [len(cells)]))
    spans: list[Span] = []
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = int(cells[start])
        spans.append(Span(" " * (stop - start)) if part < 0 else Span(symbols.fills[part] * (stop - start), _LOOKS[part]))
    return spans


# ----------------------------------------------------------------------------------------------------
# Histograms: sizes as bars across, values as bars upright.

_LEAST_BAR = 4
_FAR = 1000
"""One in so many values at most is further out than the axis goes."""
_NARROW = 1e-9
"""Of a column: a bin that is not wider holds a single value."""


@dataclass(frozen=True, slots=True)
class Bin:
    """What lies from `low` up to `high`: how many, and what they weigh together."""

    low: float
    high: float
    count: int
    weight: float = 0


def size_bins(sizes: Sequence[float], most: int) -> list[Bin]:
    """Sizes in bins of equal width on a logarithmic scale, at most `most` of them; the largest sizes come first."""
    if not sizes or most < 1:
        return []
    exponents = [max(int(size), 1).bit_length() - 1 for size in sizes]
    first, last = min(exponents), max(exponents)
    step = 1
    while (last // step - first // step) + 1 > most:
        step += 1
    found: dict[int, list[float]] = {}
    for size, exponent in zip(sizes, exponents, strict=True):
        found.setdefault(exponent // step, []).append(size)
    places = range(last // step, first // step - 1, -1)
    return [Bin(2 ** (at * step), 2 ** ((at + 1) * step), len(found.get(at, ())), sum(found.get(at, ()))) for at in places]


def bars(bins: Sequence[Bin], width: int, symbols: Symbols) -> list[Line]:
    """One line for each bin: from which size on, a bar of how many, how many, and what they weigh."""
    if not bins:
        return [(Span("no sizes", "faint"),)]
    labels = [f"{humanise(int(one.low), Kind.BYTES).replace('.00', '')}" for one in bins]
    tails = [f" {one.count:,}  {humanise(int(one.weight), Kind.BYTES)}" if one.count else "" for one in bins]
    before, behind = max(map(display_width, labels)), max(map(display_width, tails))
    room = max(width - before - behind - 2, _LEAST_BAR)
    most = max(one.count for one in bins) or 1
    lines: list[Line] = []
    for label, one, tail in zip(labels, bins, tails, strict=True):
        filled = max(1, round(room * one.count / most)) if one.count else 0
        line = (
            Span(f"{pad(label, before, right=True)} {symbols.glyphs.axis}", "faint"),
            Span(symbols.glyphs.blocks[-1] * filled, "bar"),
            Span(tail),
        )
        lines.append(cut_line(line, width, symbols))
    return lines


@dataclass(frozen=True, slots=True)
class Linear:
    """How many values lie in each of several stretches of equal width."""

    low: float
    high: float
    counts: tuple[float, ...]
    beyond: int
    """Values that are further out than both ends."""


def linear(bins: Sequence[Bin], zeros: int, columns: int) -> Linear | None:
    """Bins of any width as stretches of equal width: what lies in a bin is spread evenly over it, zeros are where zero is.

    Few values far out would leave all others in a single column: up to one in a thousand at each end is left out, whole bins at a time.
    """
    kept = sorted((one for one in [*bins, Bin(0.0, 0.0, zeros)] if one.count), key=lambda one: (one.low, one.high))
    total = sum(one.count for one in kept)
    beyond = 0
    for end in (0, -1):
        room = total // _FAR
        while len(kept) > 1 and kept[end].count <= room and (kept[end].low < 0 if end == 0 else kept[end].high > 0):
            room -= kept[end].count
            beyond += kept.pop(end).count
    if not kept or columns < 1:
        return None
    low, high = kept[0].low, max(one.high for one in kept)
    if low == high:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    counts = [0.0] * columns
    for one in kept:
        first, last = ((end - low) / (high - low) * columns for end in (one.low, one.high))
        begin = min(int(first), columns - 1)
        if last - first < _NARROW:
            counts[begin] += one.count
            continue
        for column in range(begin, min(math.ceil(last), columns)):
            counts[column] += one.count * max(min(last, column + 1) - max(first, column), 0.0) / (last - first)
    return Linear(low, high, tuple(counts), beyond)


def upright(bins: Sequence[Bin], width: int, height: int, symbols: Symbols, zeros: int = 0) -> list[Line]:
    """Values on a linear axis, a column of the screen each, with the ends of the axis below."""
    rows = height - 2
    found = linear(bins, zeros, width)
    if rows < 1 or width < _LEAST_BAR or found is None:
        return []
    blocks = symbols.glyphs.blocks
    steps = len(blocks) - 1
    most = max(found.counts)
    levels = [max(1, round(count * rows * steps / most)) if count else 0 for count in found.counts]
    lines: list[Line] = []
    for row in range(rows):
        cells = "".join(blocks[min(max(level - (rows - 1 - row) * steps, 0), steps)] for level in levels)
        lines.append((Span(cells, "bar"),))
    said = f" {found.beyond:,} further out" if found.beyond else ""
    lines.append((Span(f"{symbols.glyphs.rule * max(width - len(said), 0)}{said}", "faint"),))
    left, right = f"{found.low:.3g}", f"{found.high:.3g}"
    axis = list(f"{left}{' ' * max(width - len(left) - len(right), 1)}{right}")
    at = int(-found.low * width / (found.high - found.low))
    if len(left) < at < width - len(right) - 1:
        axis[at] = "0"
    lines.append((Span("".join(axis), "faint"),))
    return [cut_line(line, width, symbols) for line in lines]


# ----------------------------------------------------------------------------------------------------
# A scatter of points under a roof, both axes logarithmic, drawn with braille dots: eight to a character.

_BITS = np.array(((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80)), dtype=np.int64)
"""Bits of a braille character by row and column."""
_LEAST_ACROSS, _LEAST_ROWS = 12, 3


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
        if across < _LEAST_ACROSS or up < _LEAST_ROWS:
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
