"""Charts of a terminal: bytes over steps, stacked or of two sides, histograms, and points under a roof."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import ClassVar, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from irscope.immutable import immutable
from irscope.report.celltext import SIGNS
from irscope.report.chart import Canvas, bar_column
from irscope.report.picture import colours_of
from irscope.report.printable import display_width, pad
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance
from irscope.tui.text import PARTS, Line, PartRole, Role, Span, Symbols, cut_end, cut_line, text_of

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
_LEAST_COLUMNS = 8
_NEAR = 0.5
"""From this share of a limit on it is drawn: a line far above all bars would flatten them."""
_LEAST_DIFFERENCE = 6
"""Rows of bars from which on a difference has rows of its own."""
_LEAST_BROKEN = 3
"""Rows of bars from which on the lowest may stand for what never changes."""


# Bytes over steps: every column shows its highest step, so that no peak vanishes.


class StepChart(ABC):
    """Totals by step, and a window of steps that is looked at. Subclasses draw the bars; NaN is a total that is unknown."""

    names_window_from: ClassVar[int] = 12
    """From so many lines on the last one says which steps are drawn; with fewer the axis does."""

    def __init__(self, total: Floats, *, kind: Kind = Kind.BYTES, places: Sequence[str] | None = None) -> None:
        self.total = total
        self.kind = kind
        self.places = places
        """Names of the places of the axis; without it, steps are named by their number."""
        self.count = len(total)
        known = np.flatnonzero(~np.isnan(total))
        self.peak: int | None = int(known[np.argmax(total[known])]) if len(known) else None
        """The first step with the largest total."""
        self.start, self.stop = 0, self.count
        self.limit: Limit | None = None
        self.scale = 0.0
        """The least height of the chart, so that several can be compared."""
        self._edges: Floats | None = None
        self.time = ""
        """Kind of time, where the axis is time."""
        self.pointed = ""
        """Text of the band and step under the pointer; empty where it is elsewhere."""

    def use_time(self, seconds: Floats | None, what: str = "") -> None:
        """Make each place as wide as it takes time, of which `what` says whose it is; None for equal widths."""
        edges = None if seconds is None else np.concatenate(([0.0], np.cumsum(seconds)))
        self._edges = edges if edges is not None and len(edges) == self.count + 1 and edges[-1] > 0 else None
        self.time = what if self._edges is not None else ""

    def _times(self) -> tuple[Floats, float, float] | None:
        """Return where each shown place begins and the last one ends, with the first and the last of these; None without an axis of
        time."""
        if self._edges is None:
            return None
        edges = self._edges[self.start : self.stop + 1]
        return (edges, float(edges[0]), float(edges[-1])) if len(edges) > 1 and edges[-1] > edges[0] else None

    def __len__(self) -> int:
        return self.count

    def text_at(self, step: int) -> str:
        """Return the total at a step with its unit, and the sign of a modelled one."""
        value = float(self.total[step]) if 0 <= step < self.count else math.nan
        return "?" if math.isnan(value) else self.amount(value, is_modelled=self.is_modelled(step))

    def amount(self, value: float, *, is_modelled: bool = False) -> str:
        """Return a number of the chart with its unit."""
        return f"{SIGNS[Provenance.MODELLED] if is_modelled else ''}{humanise(int(value), self.kind)}"

    def is_modelled(self, step: int) -> bool:
        """Return whether something in the total of a step is modelled."""
        return False

    def point_text(self, step: int, role: str) -> str:
        """Return what is drawn at a step in a cell with this role."""
        return f"{self.place(step)}: {self.text_at(step)}"

    @property
    def highest(self) -> float:
        """Return the largest total; 0 where none is known."""
        return float(self.total[self.peak]) if self.peak is not None else 0.0

    @property
    def shown_limit(self) -> Limit | None:
        """Return the limit, where totals come near it."""
        return self.limit if self.limit is not None and self.highest >= _NEAR * self.limit.height else None

    @property
    def top(self) -> float:
        """Return the height of the chart."""
        limit = self.shown_limit
        return max(self.highest, self.scale, 0.0 if limit is None else limit.height)

    def place(self, step: int) -> str:
        """Return the name of a place of the axis."""
        return f"step {step:,}" if self.places is None else self.places[step]

    def hills(self) -> Ints:
        """Return the first step of every highest place: higher than what is before and after it."""
        if not self.count:
            return np.zeros(0, dtype=np.int64)
        starts = np.concatenate(([0], np.flatnonzero(np.diff(self.total)) + 1))
        levels = self.total[starts]
        before, after = np.concatenate(([-np.inf], levels[:-1])), np.concatenate((levels[1:], [-np.inf]))
        ints: Ints = starts[(levels > before) & (levels > after)].astype(np.int64)
        return ints

    def next_hill(self, step: int, by: int) -> int | None:
        """Return the next highest place after a step, or the one before it; None where there is none."""
        hills = self.hills()
        beyond = hills[hills > step] if by > 0 else hills[hills < step][::-1]
        return int(beyond[0]) if len(beyond) else None

    def zoom(self, here: int, factor: float) -> None:
        """Look at fewer steps around one, or at more."""
        times = self._times()
        if times is not None and self._edges is not None:
            low, high = (float(self._edges[here]) + (end - float(self._edges[here])) * factor for end in times[1:])
            start = min(max(int(np.searchsorted(self._edges, low, "right")) - 1, 0), here)
            stop = max(min(int(np.searchsorted(self._edges, high, "left")), self.count), here + 1)
            if stop - start < _LEAST_COLUMNS:
                start = max(min(start, self.count - _LEAST_COLUMNS), 0)
                stop = min(start + _LEAST_COLUMNS, self.count)
            self.start, self.stop = start, stop
            return
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
        """Return the chart column in which a step is drawn; outside of the chart for steps outside of the window."""
        times = self._times()
        if times is not None and self._edges is not None and self.start <= step < self.stop:
            borders = _borders(width, *times[1:])
            return min(max(int(np.searchsorted(borders, self._edges[step], "right")) - 1, 0), width - 1)
        return (step - self.start) * width // max(self.stop - self.start, 1)

    def step_of(self, column: int, width: int) -> int:
        """Return the step that a column shows."""
        return int(self.chosen(width)[min(max(column, 0), width - 1)])

    def chosen(self, width: int, amounts: Floats | None = None) -> Ints:
        """Return for each column the step that it shows: of those that fall into it the one with the largest total, or amount."""
        amounts = np.nan_to_num(self.total if amounts is None else amounts, nan=-1.0)[self.start : self.stop]
        span = self.stop - self.start
        times = self._times()
        if times is not None:
            return self._chosen_by_time(width, amounts, *times)
        if span <= width:
            columns = np.arange(width, dtype=np.int64)
            return self.start + np.searchsorted(np.arange(span) * width // span, columns, side="right") - 1
        # Rounded up, so that every step is in the column that column_of() names.
        starts = -(-np.arange(width, dtype=np.int64) * span // width)
        ends = np.append(starts[1:], span)
        # The largest of each piece, then the first step that has it: no loop over steps.
        largest = np.maximum.reduceat(amounts, starts)
        hits = np.flatnonzero(amounts == np.repeat(largest, ends - starts))
        return self.start + hits[np.searchsorted(hits, starts)]

    def _chosen_by_time(self, width: int, window: Floats, edges: Floats, low: float, high: float) -> Ints:
        """Return the same where the axis is time: a long step is in several columns, and many short ones are in one."""
        starts = edges[:-1]
        borders = _borders(width, low, high)
        # Steps that take no time begin where others do: none of them may be left out.
        first = np.minimum(np.searchsorted(starts, borders[:-1], "left"), np.searchsorted(starts, borders[:-1], "right") - 1)
        end = np.maximum(np.searchsorted(starts, borders[1:], "left"), first + 1)
        end[-1] = len(starts)
        pieces = zip(first.tolist(), end.tolist(), strict=True)
        return self.start + np.array([one + int(np.argmax(window[one:other])) for one, other in pieces], dtype=np.int64)

    def top_text(self) -> str:
        """Return the label at the top of the axis."""
        if self.peak is None or self.top > self.highest:
            return humanise(int(self.top), self.kind)
        return self.text_at(self.peak)

    @property
    def unchanging(self) -> float:
        """Return what is there at all steps alike."""
        return 0.0

    @property
    def is_broken(self) -> bool:
        """Return whether the axis begins at what never changes, where there is room to say so."""
        return self.highest / 2 < self.unchanging < self.highest

    def base(self, rows: int) -> float:
        """Return where so many rows of bars begin: what is below stands for itself in the lowest of them; 0 where all is drawn to scale."""
        return self.unchanging if self.is_broken and rows >= _LEAST_BROKEN else 0.0

    def margin(self) -> int:
        """Return the columns left of the chart, taken by labels and the axis."""
        labels = (self.top_text(), humanise(int(self.unchanging), self.kind) if self.is_broken else "")
        return max(*map(display_width, labels), 3) + 2

    def _broken_line(self, count: int, texts: Sequence[str], symbols: Symbols) -> Line:
        """Return the lowest row of a chart that begins at what never changes, with the first of the texts that it has room for."""
        text, cut = next((text for text in texts if display_width(text) + 4 <= count), ""), symbols.glyphs.cut
        return (Span(f"{cut * 2}{text}{cut * (count - 2 - display_width(text))}", "faint"),)

    def lines(self, width: int, height: int, here: int | None, symbols: Symbols, mark: int | None = None) -> list[Line]:
        """Return the chart in exactly `height` lines: marks, bars, axis. `mark` is the other end of a range that is looked at."""
        margin = self.margin()
        count = width - margin
        if count < _LEAST_COLUMNS or height < 1 or not self.count:
            return [()] * max(height, 0)
        marks = self.mark_lines(count, symbols)
        above = [_moved_in(line, margin) for line in marks] if height >= len(marks) + 2 else []
        window = (Span(cut_end(symbols.clean(self.pointed), count, symbols)),) if self.pointed else self.window_line(count, symbols)
        has_window, said = height >= self.names_window_from, text_of(window)
        inside = "" if has_window else said if self.pointed else said.partition(", ")[0]
        below = [self._axis_line(margin, count, here, mark, inside, symbols)] if height >= 2 else []
        below += [_moved_in(window, margin)] if has_window else []
        rows = height - len(above) - len(below)
        labels = ["" if self.peak is None else self.top_text(), *([""] * rows)]
        if self.base(rows):
            labels[rows - 1] = humanise(int(self.base(rows)), self.kind)
        drawn = self._limited(self.marked(self.bars(count, rows, symbols), count, symbols), symbols)
        bars = [(axis_label(label, margin, symbols), *bar) for label, bar in zip(labels, drawn, strict=False)]
        return [cut_line(line, width, symbols) for line in (*above, *bars, *below)]

    def _limited(self, bars: list[Line], symbols: Symbols) -> list[Line]:
        """Return the bars with a line across them where the limit is."""
        limit = self.shown_limit
        if limit is None or not bars or self.top <= 0:
            return bars
        base = self.base(len(bars))
        lowest, scale = int(base > 0), (limit.height - base) / (self.top - base)
        row = len(bars) - lowest - max(1, min(math.ceil((len(bars) - lowest) * scale - 1e-9), len(bars) - lowest))
        width = sum(display_width(span.text) for span in bars[row])
        label = cut_end(f" {symbols.clean(limit.name)} {humanise(int(limit.height), self.kind)} ", width, symbols)
        rule = symbols.glyphs.rule * (width - display_width(label))
        bars[row] = (Span(f"{rule[:2]}{label}{rule[2:]}", "error" if self.highest > limit.height else "mark"),)
        return bars

    @abstractmethod
    def bars(self, count: int, rows: int, symbols: Symbols) -> list[Line]:
        """Return the bars in so many columns and rows."""

    def marked(self, bars: list[Line], count: int, symbols: Symbols) -> list[Line]:
        """Return the bars with a line through what is marked, where a subclass draws it."""
        return bars

    def mark_lines(self, count: int, symbols: Symbols) -> list[Line]:
        """Return the lines that mark the peak."""
        if self.peak is None:
            return [()]
        return [self.mark_line(self.peak, f"peak {self.text_at(self.peak)} at {self.place(self.peak)}", count, symbols)]

    def mark_line(self, step: int, label: str, count: int, symbols: Symbols) -> Line:
        """Return a sign above a step with a label, on the side that has more room for it."""
        at = self.column_of(step, count)
        if not 0 <= at < count:
            return (Span(cut_end(f"{label}, outside of what is shown", count, symbols), "faint"),)
        sign, before, behind = Span(symbols.glyphs.mark, "mark"), at - 1, count - at - 2
        if len(label) <= behind or behind >= before:
            return (Span(" " * at), sign, Span(f" {cut_end(label, behind, symbols)}"))
        label = cut_end(label, before, symbols)
        return (Span(f"{' ' * (before - len(label))}{label} "), sign)

    def _axis_line(self, margin: int, count: int, here: int | None, mark: int | None, text: str, symbols: Symbols) -> Line:
        """Return the axis with the cursor and the other end of a range; the text stands in it, on the side where the cursor is not."""
        signs = [symbols.glyphs.rule] * count
        at = -1 if here is None else self.column_of(here, count)
        is_placed = text.startswith(symbols.glyphs.axis)  # phases, each below its steps
        words = [sign for sign in (text.rstrip() if is_placed else f" {text} " if text else "") if display_width(sign) == 1]
        first = 0 if is_placed else 1 if at > len(words) or at < 0 else count - len(words) - 1
        if 0 <= first <= count - len(words):
            signs[first : first + len(words)] = words
        for step, sign in ((mark, "A"), (here, symbols.here)):
            at = -1 if step is None else self.column_of(step, count)
            if 0 <= at < count:
                signs[at] = sign
        zero = Span(f"{pad(humanise(0, self.kind), margin - 2, right=True)} {symbols.glyphs.corner}", "faint")
        return (zero, *(Span("".join(run), "mark" if sign in ("A", symbols.here) else "faint") for sign, run in groupby(signs)))

    def window_line(self, count: int, symbols: Symbols) -> Line:
        """Return which steps are drawn."""
        if self.places is not None:
            return (Span(f"{self.places[self.start]} to {self.places[self.stop - 1]}", "faint"),)
        part = "" if self.stop - self.start == self.count else f" of {self.count:,}"
        times = self._times()
        if times is not None:
            span = humanise(times[2] - times[1], Kind.SECONDS)
            return (Span(f"steps {self.start:,} to {self.stop - 1:,}{part} over {span}, {symbols.clean(self.time)}", "faint"),)
        return (Span(f"steps {self.start:,} to {self.stop - 1:,}{part} in program order, which is not time", "faint"),)


@immutable
class Limit:
    """A height that totals are not to pass, such as the memory of a device."""

    height: float
    name: str


def _borders(width: int, low: float, high: float) -> Floats:
    """Return where columns of an axis of time begin, and the last one ends."""
    floats: Floats = low + (high - low) * np.arange(width + 1) / width
    return floats


class Timeline(StepChart):
    """Totals alone, small enough to stay on the screen. Steps whose total is unknown have no height and are drawn as `?`."""

    names_window_from = 6

    def __init__(self, values: Sequence[int | None] | Floats, kind: Kind, modelled: Mask | None = None) -> None:
        """`modelled` says at which steps something in the total is modelled."""
        if not isinstance(values, np.ndarray):
            values = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        super().__init__(values, kind=kind)
        self.modelled = modelled

    def is_modelled(self, step: int) -> bool:
        return self.modelled is not None and bool(self.modelled[step])

    @property
    def values(self) -> list[int | None]:
        """Return the totals."""
        return [None if value != value else int(value) for value in self.total.tolist()]

    @property
    def has_unknown(self) -> bool:
        """Return whether the total of some step is unknown."""
        return bool(np.isnan(self.total).any())

    def heights(self, count: int) -> Floats:
        """Return the largest total of each of `count` columns; a step wider than a column is repeated."""
        return self.total[self.chosen(count)]

    @property
    def unchanging(self) -> float:
        return 0.0 if self.has_unknown or not self.count else float(self.total.min())

    def bars(self, count: int, rows: int, symbols: Symbols) -> list[Line]:
        heights, base = [None if height != height else height for height in self.heights(count).tolist()], self.base(rows)
        top = max((height for height in heights if height is not None), default=0.0)
        columns = (bar_column(height, base, top, rows - bool(base), symbols.glyphs.blocks) for height in heights)
        lines: list[Line] = [(Span("".join(characters), "bar"),) for characters in zip(*columns, strict=True)]
        texts = (" alive at every step, not to scale; 2 shows what it is ", " not to scale ")
        return [*lines[::-1], *([self._broken_line(count, texts, symbols)] if base else [])]


class Stack(StepChart):
    """Categories by step, the lowest first."""

    def __init__(
        self,
        parts: Mapping[str, Floats],
        *,
        kind: Kind = Kind.BYTES,
        places: Sequence[str] | None = None,
        modelled: Mapping[str, Mask] | None = None,
    ) -> None:
        """`modelled` says of parts at which steps they are modelled, where they are."""
        self.parts = dict(parts)
        self.modelled = {name: mask for name, mask in (modelled or {}).items() if name in self.parts}
        total = np.sum(list(self.parts.values()), axis=0) if self.parts else np.zeros(0, dtype=np.float64)
        super().__init__(total, kind=kind, places=places)
        self.breaks: bool | None = False
        """True where the axis begins at the constant part; None where that is so when it is more than half of the peak."""
        self._same = [name for name, part in self.parts.items() if part.any() and (part == part[0]).all()]
        """Parts that are equally large at all steps."""
        self.beside: tuple[str, Stack] | None = None
        """Name and chart of another run, whose total is a thin line over this one."""

    @property
    def unchanging(self) -> float:
        return sum(float(self.parts[name][0]) for name in self._same)

    @property
    def is_broken(self) -> bool:
        # Charts of one scale are compared by their heights.
        wanted = self.unchanging > self.highest / 2 and not self.scale if self.breaks is None else self.breaks
        return wanted and 0 < self.unchanging < self.highest

    def is_modelled(self, step: int) -> bool:
        return any(mask[step] for mask in self.modelled.values())

    def values_at(self, step: int) -> dict[str, int]:
        """Return the parts of a step's total, the lowest first: whole numbers that add up to it."""
        return {name: int(part[step]) for name, part in self.parts.items() if part[step] and not math.isnan(part[step])}

    def point_text(self, step: int, role: str) -> str:
        bands = zip(self.parts, colours_of(list(self.parts)), strict=True)
        name = next((name for name, look in bands if PARTS[look % len(PARTS)] == role), "")
        return super().point_text(step, role) + (f", {name} {self._sum_text([name], step)}" if name else "")

    def bars(self, count: int, rows: int, symbols: Symbols) -> list[Line]:
        steps, fills, base = self.chosen(count), self._fills(symbols), self.base(rows)
        drawn = [place for place, name in enumerate(self.parts) if not base or name not in self._same]
        columns = list(self.parts.values())
        bands, looks = [columns[place][steps] for place in drawn], [fills[place] for place in drawn]
        lines = band_lines(bands, self.top - base, rows - bool(base), looks, symbols)
        names = " + ".join(map(symbols.clean, self._same))
        texts = (f" {names}, not to scale: never changes; r shows all ", f" {names}, not to scale; r shows all ", " not to scale ")
        return [*lines, self._broken_line(count, texts, symbols)] if base else lines

    @property
    def marked_place(self) -> int | None:
        """Return the place whose column has a line through all bands: the peak."""
        return self.peak

    def marked(self, bars: list[Line], count: int, symbols: Symbols) -> list[Line]:
        at = -1 if self.marked_place is None else self.column_of(self.marked_place, count)
        # Not through the words of the row that is not to scale.
        base = self.base(len(bars))
        rows = len(bars) - bool(base)
        lines = [_line_through(line, at, symbols.glyphs.axis, symbols) if 0 <= at < count else line for line in bars[:rows]]
        heights = () if self.beside is None else self.beside[1].over(self, count)
        for column, level in enumerate([(float(height) - base) / (self.top - base) * rows for height in heights]):
            if 0 < level < rows + 1 and column != at:
                top = min(math.ceil(level), rows)
                sign = symbols.glyphs.levels[min(int((1 - top + level) * 3), 2)]
                lines[rows - top] = _line_through(lines[rows - top], column, sign, symbols, in_blank=True)
        return [*lines, *bars[rows:]]

    def over(self, chart: StepChart, count: int) -> Floats:
        """Return the largest total in each of so many columns of another chart: both axes are as long."""
        ends, own = (one._edges if one._edges is not None else np.arange(one.count + 1.0) for one in (chart, self))
        borders = _borders(count, *(float(ends[place] * own[-1] / ends[-1]) for place in (chart.start, chart.stop)))
        begin = np.searchsorted(own[:-1], borders, "left")
        # Where no moment begins in a column it shows the one that goes on there.
        first = np.where(begin[:-1] < begin[1:], begin[:-1], np.searchsorted(own[:-1], borders[:-1], "right") - 1)
        last = np.maximum(begin[1:], first + 1)
        return np.array([self.total[one:other].max() for one, other in zip(first.tolist(), last.tolist(), strict=True)], dtype=np.float64)

    def mark_lines(self, count: int, symbols: Symbols) -> list[Line]:
        if self.peak is None or self.beside is None:
            return super().mark_lines(count, symbols)
        (name, other), rule = self.beside, symbols.glyphs.rule
        label = (
            f"peak {self.text_at(self.peak)} at {self.place(self.peak)}, {rule}{rule} {other.amount(other.highest)} {symbols.clean(name)}"
        )
        return [self.mark_line(self.peak, label, count, symbols)]

    def _fills(self, symbols: Symbols) -> list[Span]:
        """Return one cell of each part."""
        return [fill_of(number, symbols, look) for number, look in enumerate(colours_of(list(self.parts)))]

    def legend(self, symbols: Symbols) -> Line:
        """Return the legend of the fills."""
        return tuple(span for fill, name in zip(self._fills(symbols), self.parts, strict=True) for span in (fill, Span(f" {name}  ")))

    def legend_at(self, step: int, width: int, most: int, symbols: Symbols) -> list[Line]:
        """Return the legend of a step's total, in at most so many lines: the smallest parts are merged where there is little room."""
        if not 0 <= step < self.count or math.isnan(self.total[step]):
            return self.wrapped_legend(width, symbols)[:most]
        values = self.values_at(step)
        fills = dict(zip(self.parts, self._fills(symbols), strict=True))
        # What there is none of at this step is named too: no colour is without its name.
        drawn = [name for name, part in self.parts.items() if part.any()]
        ranked = sorted(drawn, key=lambda name: -values.get(name, 0))
        few, rows = min(len(values), 1), list[Line]()
        # Where there is little room the sum goes first, which stands in the title too, then numbers of the smallest, then their names.
        tries = [(len(values), len(drawn)), *((numbers, len(drawn)) for numbers in range(len(values), few - 1, -1))]
        for place, (numbers, names) in enumerate([*tries, *((names, names) for names in range(len(drawn) - 1, -1, -1))]):
            entries: list[Line] = [] if place else [(Span(f"{self.text_at(step)}: ", "heading"),)]
            named, joined = set(ranked[:names]), [name for name in drawn if name in values and name in ranked[numbers:names]]
            for name in (name for name in drawn if name in named and name not in joined):
                number = self._sum_text([name], step) if name in values else "" if place else "0"
                look: Role = "plain" if name in values else "faint"
                amount = (Span(f"{number} ", "name" if name in values else "faint"),) if number else ()
                entries.append((fills[name], Span(f" {symbols.clean(name)} ", look), *amount, Span(" ")))
            entries += [(fills[name], Span(f" {symbols.clean(name)}, ")) for name in joined[:-1]]
            entries += [
                (fills[name], Span(f" {symbols.clean(name)}: "), Span(f"{self._sum_text(joined, step)}  ", "name")) for name in joined[-1:]
            ]
            rest = [name for name in ranked[names:] if name in values]
            entries += [(Span(f"{len(rest)} more "), Span(f"{self._sum_text(rest, step)}  ", "name"))] if rest else []
            rows = _legend_rows(entries, width)
            if len(rows) <= most:
                break
        return [cut_line(row, width, symbols) for row in rows[:most]]

    def _sum_text(self, names: Sequence[str], step: int) -> str:
        """Return the bytes of some parts at a step."""
        return self.amount(
            sum(int(self.parts[name][step]) for name in names), is_modelled=any(self._is_modelled_at(name, step) for name in names)
        )

    def _is_modelled_at(self, name: str, step: int) -> bool:
        return name in self.modelled and bool(self.modelled[name][step])

    def legend_rows(self, width: int, symbols: Symbols) -> list[Line]:
        """Return the legend in lines of a width."""
        return [cut_line(self.legend(symbols), width, symbols)]

    def wrapped_legend(self, width: int, symbols: Symbols) -> list[Line]:
        """Return the meaning of each fill that occurs, in as many rows as that takes."""
        spans = self.legend(symbols)
        entries = [spans[2 * number : 2 * number + 2] for number, part in enumerate(self.parts.values()) if part.any()]
        return [cut_line(row, width, symbols) for row in _legend_rows(entries, width)]


def _line_through(line: Line, at: int, sign: str, symbols: Symbols, *, in_blank: bool = False) -> Line:
    """Return the line of a chart with the sign of a line in one of its columns, on the colour of the band that fills most of the cell."""
    spans: list[Span] = []
    end = 0
    for span in line:
        start, end = end, end + len(span.text)
        before, cell, after = span.text[: max(at - start, 0)], span.text[max(at - start, 0) :][:1], span.text[max(at - start, 0) + 1 :]
        if not start <= at < end or not (in_blank or cell.strip()):
            spans.append(span)
            continue
        blocks = symbols.glyphs.blocks
        is_above = symbols.has_colours and cell in blocks and 2 * blocks.index(cell) < len(blocks) - 1
        band = span.behind if is_above else _part_role(span) if symbols.has_colours and span.role in PARTS else None
        line_cell = Span(sign, "mark" if band is None else "through", behind=band)
        through = span._replace(text=cell) if is_above and band is None else line_cell
        spans += [span._replace(text=before), through, span._replace(text=after)]
    return tuple(span for span in spans if span.text)


def _legend_rows(entries: Iterable[Line], width: int) -> list[Line]:
    """Return the entries of a legend in as many rows as they take."""
    rows: list[Line] = [()]
    for entry in entries:
        fits = display_width(text_of((*rows[-1], *entry)).rstrip()) <= width
        rows[-1:] = [(*rows[-1], *entry)] if fits or not rows[-1] else [rows[-1], entry]
    return [(*row[:-1], Span(row[-1].text.rstrip(), row[-1].role)) if row else row for row in rows]


class Beside(Stack):
    """Bytes on two sides along one axis: common bytes, bytes of one side only, both peaks, and below how far they differ.

    The difference has a scale of its own, so that one of a few percent is seen.
    """

    names_window_from = 16

    def __init__(
        self,
        names: tuple[str, str],
        heights: tuple[Floats, Floats],
        *,
        parts: tuple[str, str, str] | None = None,
        places: Sequence[str] | None = None,
        modelled: bool = False,
    ) -> None:
        """`parts` are names of common bytes and of bytes of one side only."""
        a, b = heights
        words = parts or ("both", f"only {names[0]}", f"only {names[1]}")
        bands = dict(zip(words, (np.minimum(a, b), np.maximum(a - b, 0), np.maximum(b - a, 0)), strict=True))
        masks = dict.fromkeys(bands, np.full(len(a), modelled, dtype=np.bool_)) if modelled else None
        super().__init__(bands, places=places, modelled=masks)
        self.names = names
        self.heights = heights
        self.difference: Floats = np.nan_to_num(b - a)

    def peak_of(self, side: int) -> int:
        """Return the first place at which a side is highest."""
        return int(np.argmax(self.heights[side]))

    @property
    def marked_place(self) -> int | None:
        return None

    def _strip(self, rows: int) -> int:
        """Return how many rows the difference takes, a line of words among them."""
        return 1 + max(2, rows // 4) if rows >= _LEAST_DIFFERENCE and self.difference.any() else 0

    def bars(self, count: int, rows: int, symbols: Symbols) -> list[Line]:
        strip = self._strip(rows)
        lines = super().bars(count, rows - strip, symbols)
        if not strip:
            return lines
        steps = self.chosen(count, np.abs(self.difference))
        apart, most = self.difference[steps], float(np.abs(self.difference).max())
        at = int(np.argmax(np.abs(self.difference)))
        share = most / max(float(min(side[at] for side in self.heights)), 1.0)
        words = (
            f" difference, at most {humanise(int(most), self.kind)} ({share:.1%}) at {self.place(at)}: {self._more(at)} has more ",
            f" difference, at most {humanise(int(most), self.kind)} ({share:.1%}) ",
            f" at most {humanise(int(most), self.kind)} ",
        )
        text = next((symbols.clean(text) for text in words if display_width(text) + 4 <= count), "")
        rule = symbols.glyphs.rule
        title = (Span(f"{rule * 2}{text}{rule * (count - 2 - display_width(text))}", "faint"),)
        below = band_lines([np.maximum(-apart, 0), np.maximum(apart, 0)], most, strip - 1, self._fills(symbols)[1:], symbols)
        return [*lines, title, *below]

    def _more(self, place: int) -> str:
        """Return the side that has more at a place."""
        return self.names[int(self.difference[place] > 0)]

    def mark_lines(self, count: int, symbols: Symbols) -> list[Line]:
        """Return the lines that mark the peak of each side; one line for both where it is the same place."""
        peaks = [self.peak_of(side) for side in (0, 1)]
        sides = zip(self.names, self.heights, strict=True)
        amounts = [f"{name} {self.amount(side.max(initial=0), is_modelled=bool(self.modelled))}" for name, side in sides]
        if peaks[0] == peaks[1]:
            return [self.mark_line(peaks[0], f"both peaks: {', '.join(amounts)}", count, symbols)]
        return [self.mark_line(at, f"peak of {text}", count, symbols) for at, text in zip(peaks, amounts, strict=True)]


def _moved_in(line: Line, margin: int) -> Line:
    """Return a line with blanks before it."""
    first, *rest = line or (Span(""),)
    return (Span(f"{' ' * margin}{first.text}", first.role), *rest)


def axis_label(label: str, margin: int, symbols: Symbols) -> Span:
    """Return the label left of a row, with the axis."""
    return Span(f"{pad(label, margin - 2, right=True)} {symbols.glyphs.axis}", "faint")


def fill_of(part: int, symbols: Symbols, look: int | None = None) -> Span:
    """Return one cell of a part: solid in the colour `look`, else of its own number; hatched by its number where there are no colours."""
    role = PARTS[(part if look is None else look) % len(PARTS)]
    return Span(symbols.fills[0] if symbols.has_colours else symbols.fills[part % len(symbols.fills)], role)


def band_lines(bands: Sequence[Floats], top: float, rows: int, fills: Sequence[Span], symbols: Symbols) -> list[Line]:
    """Draw bands on top of one another in `rows` lines, the highest line first; `top` is the height of all lines together.

    With colours a cell holds the border of two bands to an eighth of its height: the one below as block character, the one above as
    background. Of more than two in a cell the two largest are drawn. Without colours a cell is hatched for the band in its middle.
    """
    tops = np.cumsum(bands, axis=0) * (rows / top if top > 0 else 0.0)
    total = tops[-1]
    lines: list[Line] = []
    if not symbols.has_colours:
        # Non-zero values get at least the smallest bar.
        filled = np.where(total > 0, np.maximum(np.ceil(total - 1e-9), 1), 0)
        for level in range(rows - 1, -1, -1):
            middle = np.minimum(level + 0.5, np.maximum((level + total) / 2, 0))
            part = np.minimum((tops <= middle).sum(axis=0), len(tops) - 1)
            lines.append(runs(np.where(level < filled, part, -1), fills.__getitem__))
        return lines
    blocks = symbols.glyphs.blocks
    parts, whole = len(blocks) - 1, len(tops)
    edges = np.rint(np.nan_to_num(tops) * parts).astype(np.int64)
    edges = np.where((total > 0) & (edges[-1] == 0), (tops >= total).astype(np.int64), edges)
    edges = np.concatenate((np.zeros((1, edges.shape[1]), dtype=np.int64), edges))

    def cell(code: int) -> Span:
        below, above = divmod(code // (parts + 1), whole + 1)
        fill = fills[below]
        return fill._replace(text=blocks[code % (parts + 1)], behind=None if above == whole else _part_role(fills[above]))

    for level in range(rows - 1, -1, -1):
        clipped = np.clip(edges, level * parts, (level + 1) * parts)
        cover = np.concatenate((np.diff(clipped, axis=0), ((level + 1) * parts - clipped[-1])[None]))
        largest = np.argsort(-cover, axis=0, kind="stable")[:2]
        below, above = largest.min(axis=0), largest.max(axis=0)
        columns = np.arange(cover.shape[1])
        under, over = cover[below, columns], cover[above, columns]
        alone = (under == 0) | (over == 0)
        below = np.where(alone, largest[0], below)
        height = np.where(alone, parts, np.clip(np.rint(parts * under / np.maximum(under + over, 1)), 1, parts - 1).astype(np.int64))
        above = np.where(alone, whole, above)
        codes = (below * (whole + 1) + above) * (parts + 1) + height
        lines.append(runs(np.where(below == whole, -1, codes), cell))
    return lines


def _part_role(span: Span) -> PartRole:
    """Return the look of a part's cell."""
    return PARTS[PARTS.index(cast("PartRole", span.role))]


def runs(cells: Ints, look: Callable[[int], Span]) -> Line:
    """Cells of one kind next to one another as one span; nothing where there is -1."""
    edges = np.concatenate(([0], np.flatnonzero(np.diff(cells)) + 1, [len(cells)]))
    spans: list[Span] = []
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        kind = int(cells[start])
        span = look(kind) if kind >= 0 else Span(" ")
        spans.append(span._replace(text=span.text * (stop - start)))
    return tuple(spans)


# Histograms: sizes as bars across, values as bars upright.

_LEAST_BAR = 4
_TALL = 7
"""Lines from which on a histogram has a rule below its bars."""


@immutable
class Bin:
    """Values from `low` up to `high`: their number, and their total weight."""

    low: float
    high: float
    count: int
    weight: float = 0


def size_bins(sizes: Sequence[float], most: int) -> list[Bin]:
    """Return the sizes in bins of equal width on a logarithmic scale, at most `most` of them; the largest sizes come first."""
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
    """Return one line for each bin: from which size on, a bar of how many, how many, and what they weigh."""
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
        line = (axis_label(label, before + 2, symbols), Span(symbols.glyphs.blocks[-1] * filled, "bar"), Span(tail))
        lines.append(cut_line(line, width, symbols))
    return lines


@immutable
class Histogram:
    """Counts in bins next to one another, of one width on the axis that they are for."""

    counts: tuple[int, ...]
    ends: tuple[str, str]
    """Labels at both ends of the axis."""
    zero: tuple[float, float]
    """The place of zero in bins: where it begins and ends."""
    axis: str
    """Which axis it is, and how wide a bin."""
    beyond: int = 0
    """Number of values beyond both ends."""


def even_histogram(width: float, first: int, counts: Sequence[int], beyond: int, columns: int) -> Histogram | None:
    """Return a linear axis: bins with edges at multiples of a width from `first` on, joined two and two until they have room."""
    numbers, held = np.arange(first, first + len(counts)), np.array(counts, dtype=np.int64)
    while len(held) > max(columns, 2):  # the two sides of zero are never joined
        numbers, width = numbers >> 1, 2 * width
        held = np.bincount(numbers - numbers[0], weights=held).astype(np.int64)
        numbers = np.arange(numbers[0], numbers[0] + len(held))
    if not len(held):
        return None
    low = int(numbers[0])
    ends = (f"{low * width:.3g}", f"{(low + len(held)) * width:.3g}")
    return Histogram(tuple(held.tolist()), ends, (-low, -low), f"linear axis, {len(held)} bins of {width:.3g}", beyond)


def octave_histogram(octaves: Sequence[tuple[float, int, int]], zeros: int, columns: int) -> Histogram | None:
    """Return a logarithmic axis on either side of zero: from the power of two on which each begins, counts of negative and positive
    magnitudes."""
    if not octaves and not zeros:
        return None
    exponents = [round(math.log2(low)) for low, _, _ in octaves]
    step = 1
    while True:
        # Bins begin at multiples of the step, so that each is as wide as the others.
        sides = [_joined_bins(exponents, counts, step) for counts in ([octave[1] for octave in octaves], [octave[2] for octave in octaves])]
        held = [at for side in sides for at in side]
        first, last = (min(held), max(held)) if held else (0, -1)
        spans = [last - first + 1 if side else 0 for side in sides]
        if sum(spans) + 1 <= columns or max(spans) <= 2:  # those around a magnitude of one are never joined
            break
        step *= 2
    negative = [sides[0].get(at, 0) for at in range(last, last - spans[0], -1)]
    positive = [sides[1].get(at, 0) for at in range(first, first + spans[1])]
    end = f"{2.0 ** ((last + 1) * step):.3g}" if held else "0"
    near = f"{2.0 ** (first * step):.3g}" if held else "0"
    ends = (f"-{end}" if negative else "0", end if positive else "0")
    axis = f"logarithmic axis, bins of a factor of {2**step:,} from {near}"
    return Histogram((*negative, zeros, *positive), ends, (len(negative), len(negative) + 1), axis)


def _joined_bins(exponents: Sequence[int], counts: Iterable[int], step: int) -> dict[int, int]:
    joined_bins: dict[int, int] = {}
    for exponent, count in zip(exponents, counts, strict=True):
        if count:
            joined_bins[exponent // step] = joined_bins.get(exponent // step, 0) + count
    return joined_bins


def upright(histogram: Histogram, width: int, height: int, symbols: Symbols) -> list[Line]:
    """Bars in as many columns of the screen each, which axis it is above them, its ends and zero below."""
    has_rule = height >= _TALL
    rows = height - 2 - has_rule
    counts = histogram.counts
    wide = width // len(counts) if counts else 0
    if rows < 1 or wide < 1:
        return []
    blocks = symbols.glyphs.blocks
    steps = len(blocks) - 1
    most = max(counts) or 1
    levels = [max(1, round(count * rows * steps / most)) if count else 0 for count in counts]
    said = f"{histogram.axis}; highest {most:,}" + (f"; {histogram.beyond:,} further out" if histogram.beyond else "")
    lines: list[Line] = [(Span(said, "faint"),)]
    for row in range(rows):
        cells = "".join(blocks[min(max(level - (rows - 1 - row) * steps, 0), steps)] * wide for level in levels)
        lines.append((Span(cells, "bar"),))
    across = wide * len(counts)
    if has_rule:
        lines.append((Span(symbols.glyphs.rule * across, "faint"),))
    left, right = histogram.ends
    axis = list(f"{left}{' ' * max(across - len(left) - len(right), 1)}{right}")
    at = int(sum(histogram.zero) / 2 * wide)
    if len(left) < at < across - len(right):
        axis[at] = "0"
    lines.append((Span("".join(axis), "faint"),))
    return [cut_line(line, width, symbols) for line in lines]


# A scatter of points under a roof, both axes logarithmic, drawn with braille dots: eight to a character.

_LEAST_ACROSS, _LEAST_ROWS = 12, 3


@immutable(slots=False)
class Roof:
    """Upper limits of a device: bytes a second, and operations a second."""

    bandwidth: float
    ceilings: tuple[float, ...]
    """Operations a second of each element type."""
    name: str

    @property
    def peak(self) -> float:
        """Return the most operations a second."""
        return max(self.ceilings)

    def at(self, intensity: float) -> float:
        """Return the most operations a second at so many of them for each byte."""
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
        """Return the chart in exactly `height` lines."""
        labels = [_rate(10**self.top), _rate(10**self.bottom)]
        margin = max(map(display_width, labels)) + 2
        across, up = width - margin, height - 2
        if across < _LEAST_ACROSS or up < _LEAST_ROWS:
            return [()] * max(height, 0)
        roof, points = Canvas(across, up, symbols.encoding), Canvas(across, up, symbols.encoding)
        self._draw_roof(roof)
        x, y = self._places(self.xs, self.ys, *points.dots)
        for dx, dy in ((0, 0), (1, 0), (0, -1), (1, -1)):
            # A point is two dots high and wide, as one dot is hard to see.
            _set(points, x + dx, y + dy)
        here = self._cell(selected, *points.dots)
        lines: list[Line] = []
        for row, (front, behind) in enumerate(zip(points.cells(), roof.cells("-"), strict=True)):
            label = labels[0] if row == 0 else labels[1] if row == up - 1 else ""
            cells: list[tuple[str, Role]] = [
                (dots, "part1") if dots != " " else (line, "part3" if line != " " else "plain")
                for dots, line in zip(front, behind, strict=True)
            ]
            if here is not None and here[1] == up - 1 - row:
                cells[here[0]] = (symbols.point, "mark")
            spans = [Span("".join(text for text, _ in run), role) for role, run in groupby(cells, lambda cell: cell[1])]
            lines.append(cut_line((axis_label(label, margin, symbols), *spans), width, symbols))
        lines.append((Span(f"{' ' * (margin - 2)} {symbols.glyphs.corner}{symbols.glyphs.rule * across}", "faint"),))
        lines.append(cut_line((Span(self._axis_text(margin, across), "faint"),), width, symbols))
        return lines

    def _axis_text(self, margin: int, across: int) -> str:
        left, right = _plain(10**self.left), _plain(10**self.right)
        middle = " FLOPs for each byte "
        room = across - len(left) - len(right)
        return f"{' ' * margin}{left}{middle.center(room, ' ') if room >= len(middle) else ' ' * max(room, 1)}{right}"

    def _places(self, xs: Floats, ys: Floats, across: int, up: int) -> tuple[Ints, Ints]:
        """Dots, counted from the lower left corner."""
        x = np.clip((xs - self.left) / (self.right - self.left) * (across - 1), 0, across - 1)
        y = np.clip((self.top - ys) / (self.top - self.bottom) * (up - 1), 0, up - 1)
        return np.round(x).astype(np.int64), up - 1 - np.round(y).astype(np.int64)

    def _draw_roof(self, canvas: Canvas) -> None:
        if self.roof is not None:
            xs = np.linspace(self.left, self.right, canvas.dots[0] * 2)
            slope = xs + math.log10(self.roof.bandwidth)
            for ceiling in map(math.log10, self.roof.ceilings):
                # Lower ceilings are drawn right of the slope alone, up to which all share it.
                seen = (slope >= ceiling) | (ceiling == math.log10(self.roof.peak))
                _set(canvas, *self._places(xs[seen], np.minimum(ceiling, slope)[seen], *canvas.dots))

    def _cell(self, selected: int | None, across: int, up: int) -> tuple[int, int] | None:
        """Return where the selected point is: its column, and its row counted from the bottom."""
        if selected is None or not 0 <= selected < len(self.xs):
            return None
        x, y = self._places(self.xs[selected : selected + 1], self.ys[selected : selected + 1], across, up)
        return int(x[0]) // 2, int(y[0]) // 4


def _set(canvas: Canvas, x: Ints, y: Ints) -> None:
    """Set dots, each place once however many points there are; those beyond an edge are on it."""
    across, up = canvas.dots
    for place in np.unique(np.clip(x, 0, across - 1) * up + np.clip(y, 0, up - 1)).tolist():
        canvas.set(*divmod(place, up))


def _rate(value: float) -> str:
    return humanise(float(value), Kind.FLOPS_PER_SECOND).replace(".00", "")


def _plain(value: float) -> str:
    return f"{value:g}"
