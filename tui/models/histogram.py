"""Histograms: sizes as bars across, values as bars upright."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irscope.report.printable import display_width, pad
from irscope.report.units import Kind, humanise
from irscope.tui.models.spans import Line, Span, cut_line
from irscope.tui.models.symbols import Symbols

_LEAST_BAR = 4


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


def upright(bins: Sequence[Bin], width: int, height: int, symbols: Symbols) -> list[Line]:
    """One or more columns for each bin, with the ends of the axis below."""
    rows = height - 2
    shown = [one for one in bins if one.count] and list(bins)
    if rows < 1 or width < _LEAST_BAR or not shown:
        return []
    # Bins are joined where there are more than columns.
    joined = _joined(shown, width)
    each = max(1, min(width // len(joined), 6))
    blocks = symbols.glyphs.blocks
    steps = len(blocks) - 1
    most = max(one.count for one in joined)
    levels = [max(1, round(one.count * rows * steps / most)) if one.count else 0 for one in joined]
    lines: list[Line] = []
    for row in range(rows):
        cells = "".join(blocks[min(max(level - (rows - 1 - row) * steps, 0), steps)] * each for level in levels)
        lines.append((Span(cells, "bar"),))
    used = each * len(joined)
    left, middle, right = f"{joined[0].low:.3g}", "0", f"{joined[-1].high:.3g}"
    at = each * sum(1 for one in joined if one.high <= 0)
    axis = list(f"{left}{' ' * max(used - len(left) - len(right), 1)}{right}")
    if len(left) < at < used - len(right):
        axis[at] = middle
    lines.append((Span(symbols.glyphs.rule * used, "faint"),))
    tail = f"  most in a bar: {most:,}"
    lines.append((Span(f"{''.join(axis)}{tail if used + len(tail) <= width else ''}", "faint"),))
    return [cut_line(line, width, symbols) for line in lines]


def _joined(bins: Sequence[Bin], most: int) -> list[Bin]:
    each = -(-len(bins) // most)
    groups = [bins[start : start + each] for start in range(0, len(bins), each)]
    return [Bin(group[0].low, group[-1].high, sum(one.count for one in group)) for group in groups]
