"""Histograms: sizes as bars across, values as bars upright."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from irscope.report.printable import display_width, pad
from irscope.report.units import Kind, humanise
from irscope.tui.models.spans import Line, Span, cut_line
from irscope.tui.models.symbols import Symbols

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
