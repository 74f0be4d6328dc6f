"""Contents of a picture, apart from how it is drawn: panels of curves or bars, over axes with round ticks."""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, count
from types import MappingProxyType
from typing import Final

from irscope.immutable import immutable
from irscope.report.celltext import signed
from irscope.report.chart import axis, drawable, highest, totals
from irscope.report.printable import legible
from irscope.report.table import Column, Limit, Mark, Series
from irscope.report.units import Kind, humanise, scale_of
from irscope.report.values import Cell, Number, Provenance, Quantity

MOST_POINTS = 800
"""Points of a curve that are drawn: of more, the highest in each stretch, so that no peak vanishes. A screen shows no more."""
MOST_BARS = 60
_MOST_LARGEST = 25
_NEAR = 2
"""A limit is drawn where the curves reach at least this part of it, one half."""
_MOST_TICKS = 6
_ABSURD = 1e9
"""So many of the largest unit are written short."""
_WHOLE = frozenset({Kind.INDEX, Kind.COUNT})
_WORDS = {Provenance.MODELLED: " (modelled)", Provenance.ASSUMED: " (assumed)", Provenance.MEASURED: " (measured)"}


_USUAL: Final[Mapping[str, int]] = MappingProxyType(
    {
        "parameter": 0,
        "activation": 1,
        "output": 2,
        "gradient": 3,
        "input": 4,
        "temporary": 5,
        "optimizer state": 6,
        "workspace": 7,
        "rounding": 8,
        "buffer": 9,
    }
)
"""Categories of memory have the same colour in all pictures: pages, plots and the terminal. Weights are quiet, activations are not."""
_OTHER_WORDS: Final[Mapping[str, str]] = MappingProxyType({"weight": "parameter", "constant": "buffer", "optimizer": "optimizer state"})
"""Categories by other words that charts have for them."""
_FREE: Final = (7, 1, 2, 3, 4, 5, 8, 9, 6)
"""Colours of what is no category, in this order: the quiet one is for weights."""


def colours_of(names: Sequence[str]) -> list[int]:
    """Return the number of a colour for each name: the usual one of a category, for others the first that is free."""
    categories = [_category(name) for name in names]
    taken = {_USUAL[category] for category in categories if category in _USUAL}
    free = (number for number in chain(_FREE, count(len(_FREE) + 1)) if number not in taken)
    return [_USUAL[category] if category in _USUAL else next(free) for category in categories]


def _category(name: str) -> str:
    """Return the category that a name such as `activations (modelled)`, `buffers, inputs` or `weights and inputs` begins with."""
    word = name.partition(" (")[0].partition(",")[0].partition(" and ")[0].removesuffix("s")
    return _OTHER_WORDS.get(word, word)


class Style(enum.Enum):
    """Ways to join the points of a curve."""

    AREA = "area"
    """Parts of a whole on top of one another; each holds until the next place."""
    BAND = "band"
    """The same, straight between places."""
    STEPS = "steps"
    """A value holds until the next place."""
    LINE = "line"
    """Straight between places."""
    POINTS = "points"
    BARS = "bars"
    """A bar for each of the panel's names."""


@immutable(slots=False)
class Curve:
    """One series of a panel; a height is None where it is unknown."""

    name: str
    xs: Sequence[Number]
    ys: Sequence[Number | None]
    style: Style
    dashed: bool = False
    texts: Sequence[str] = ()
    """Texts at the ends of bars."""
    kept: Sequence[int] = ()
    """Indices of these points in the series, counted from 0."""


@immutable
class Peak:
    """The highest point of a curve, or of a whole."""

    x: Number
    y: Number


@immutable(slots=False)
class Panel:
    """Curves over one pair of axes, or bars by name."""

    title: str
    x: Column
    y: Column
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()
    peaks: tuple[Peak, ...] = ()
    names: tuple[str, ...] = ()
    """Of bars, from top to bottom."""
    left: Number = 0
    right: Number = 1
    """Ends of the x axis."""
    top: Number = 1
    """The end of the axis of heights, which begins at 0."""
    limits: tuple[Limit, ...] = ()
    """Heights that are near enough to be drawn."""
    beyond: tuple[Limit, ...] = ()
    """Those far above, which a sentence says instead: drawn, they would flatten the curves."""
    columns: tuple[Column, ...] = ()
    """Those of the series that the curves show."""

    @property
    def has_legend(self) -> bool:
        return len(self.curves) > 1

    @cached_property
    def colours(self) -> Sequence[int]:
        """Return the number of each curve's colour."""
        return colours_of([curve.name for curve in self.curves])

    def thickness(self, number: int) -> float:
        """Return how much thicker than usual a line is drawn: what comes later lies on top, and does not hide what is the same."""
        return 1 + 0.8 * min(len(self.curves) - 1 - number, 3)


def panels_of(series: Series, title: str | None = None) -> list[Panel]:
    """Return the panels of a series: parts of a whole in one, other columns in one for each kind; none where no number can be drawn."""
    cells = series.cells(series.x.key)
    names = [str(cell) for cell in cells] if all(isinstance(cell, str) for cell in cells) and 0 < len(cells) <= MOST_BARS else []
    groups = [series.y] if series.stacked and not names else _by_kind(series.y)
    made = [_panel(series, columns, names) for columns in groups]
    shown = [panel for panel in made if panel is not None]
    words = series.title if title is None else title
    return [_titled(panel, words, len(groups) > 1) for panel in shown]


def bars(title: str, names: Sequence[str], columns: Iterable[tuple[Column, Sequence[Cell]]]) -> Panel:
    """Bars side by side for each name, from top to bottom; a column of which nothing is known has none."""
    given = [(column, cells) for column, cells in columns if any(height is not None for height in drawable(cells))]
    curves = tuple(
        Curve(heading(column), range(len(names)), drawable(cells), Style.BARS, texts=[signed(cell, column.kind) for cell in cells])
        for column, cells in given
    )
    top = max((height for curve in curves for height in curve.ys if height is not None), default=1) or 1
    said = title if len(given) > 1 else f"{title}{_WORDS.get(given[0][0].provenance, '')}"
    return Panel(said, Column("name"), given[0][0], curves, names=tuple(names), top=top)


def largest_bars(title: str, names: Sequence[str], columns: Sequence[tuple[Column, Sequence[Cell]]]) -> Panel | None:
    """Bars for the names with the largest number in any column, the largest first; None where no number is known."""
    heights = [drawable(cells) for _, cells in columns]
    size = [max((height[place] or 0 for height in heights), default=0) for place in range(len(names))]
    order = sorted((place for place in range(len(names)) if size[place]), key=lambda place: -size[place])
    shown = order[:_MOST_LARGEST]
    if not shown:
        return None
    words = f"{title}, the {len(shown):,} largest of {len(order):,}" if len(order) > len(shown) else title
    return bars(words, [names[place] for place in shown], [(column, [cells[place] for place in shown]) for column, cells in columns])


def heading(column: Column) -> str:
    """Return a column's heading, which says so where its numbers are not exact."""
    word = _WORDS.get(column.provenance, "")
    return column.heading if word.strip(" ()") in column.heading else f"{column.heading}{word}"


def ticks(low: Number, high: Number, kind: Kind) -> list[tuple[float, str]]:
    """Round places on an axis with their labels, all in one unit: 0, 50 MiB, 100 MiB."""
    factor, unit = scale_of(max(abs(low), abs(high)), kind)
    span = (high - low) / factor
    if not 0 < span < math.inf:
        return []
    power = math.floor(math.log10(span)) - 1
    is_whole = kind in _WHOLE or unit in ("B", "FLOPs")
    steps = (digit * 10.0**exponent for exponent in count(power) for digit in (1, 2, 5))
    step = next(step for step in steps if span / step <= _MOST_TICKS and (step >= 1 or not is_whole))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    numbers = range(math.ceil(low / factor / step - 1e-9), math.floor(high / factor / step + 1e-9) + 1)
    space = "" if unit in ("", "%") else " "

    def label(value: float) -> str:
        return "0" if not value else f"{value:,.{decimals}f}{space}{unit}" if value < _ABSURD else f"{value:.3g}{space}{unit}"

    return [(number * step * factor, label(number * step)) for number in numbers]


def rows_of(marks: Sequence[Mark], left: Number, right: Number, width: int) -> list[int]:
    """Return the line above a panel in which each label stands so that none runs over another; the panel is `width` characters wide."""
    rows = [0] * len(marks)
    taken: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for place in sorted(range(len(marks)), key=lambda place: marks[place].x):
        mark = marks[place]
        at = (mark.x - left) / ((right - left) or 1) * width
        size = len(mark.label) + 3
        begin, end = (at - size, at + 1) if at > width / 2 else (at, at + size)
        rows[place] = next(row for row in count() if all(end <= first or begin >= last for first, last in taken[row]))
        taken[rows[place]].append((begin, end))
    return rows


@immutable(slots=False)
class Reading:
    """Values of a panel at one place."""

    place: int
    """Index of the point in the series, counted from 0."""
    x: Number
    text: str
    """The place, what is there, and how much that is in all."""
    values: tuple[str, ...]
    """The value of each curve."""


def readings(series: Series, panel: Panel) -> list[Reading]:
    """Return what a panel of a series shows at each of the places that are drawn."""
    xs = {place: x for curve in panel.curves for place, x in zip(curve.kept, curve.xs, strict=True)}
    labels = series.cells(series.x.key)
    cells = [series.cells(column.key) for column in panel.columns]
    whole = series.totals(panel.columns) if series.stacked and panel.has_legend else None
    found: list[Reading] = []
    for place in sorted(xs):
        text = f"{panel.x.heading} {humanise(labels[place], panel.x.kind)}"
        if series.names:
            text += f", {legible(series.names[place])}"
        if whole is not None:
            text += f": {signed(whole[place], panel.y.kind)}"
        values = tuple(_reading(cell[place], column) for cell, column in zip(cells, panel.columns, strict=True))
        found.append(Reading(place, xs[place], text, values))
    return found


def readings_of(panel: Panel) -> list[Reading]:
    """Return the same of a panel that is of no series: values are those at the very places where a curve has some."""
    xs = sorted({x for curve in panel.curves for x in curve.xs})
    heights = [dict(zip(curve.xs, curve.ys, strict=True)) for curve in panel.curves]
    found: list[Reading] = []
    for place, x in enumerate(xs):
        known = [height.get(x) for height in heights]
        values = tuple("" if height is None else signed(Quantity(height, panel.y.provenance), panel.y.kind) for height in known)
        found.append(Reading(place, x, f"{panel.x.heading} {humanise(x, panel.x.kind)}", values))
    return found


def _reading(cell: Cell, column: Column) -> str:
    sure = cell if isinstance(cell, Quantity | tuple | dict) or cell is None else Quantity(cell, column.provenance)
    return signed(sure, column.kind)


def stacked(panel: Panel) -> list[tuple[list[float], list[float]]]:
    """Return the lower and the upper edge of each part of a whole."""
    edges: list[tuple[list[float], list[float]]] = []
    floor = [0.0] * len(panel.curves[0].xs)
    for curve in panel.curves:
        ceiling = [low + float(height or 0) for low, height in zip(floor, curve.ys, strict=True)]
        edges.append((floor, ceiling))
        floor = ceiling
    return edges


def _titled(panel: Panel, title: str, several: bool) -> Panel:
    words = [title, panel.y.heading] if several and panel.y.heading not in title else [title]
    said = ": ".join(word for word in words if word)
    return replace(panel, title=said if panel.has_legend else f"{said}{_WORDS.get(panel.y.provenance, '')}")


def _by_kind(columns: Sequence[Column]) -> list[tuple[Column, ...]]:
    found: dict[Kind, list[Column]] = {}
    for column in columns:
        found.setdefault(column.kind, []).append(column)
    return [tuple(group) for group in found.values()]


def _panel(series: Series, columns: tuple[Column, ...], names: Sequence[str]) -> Panel | None:
    columns = tuple(replace(column, provenance=series.provenance(column)) for column in columns)
    layers = [drawable(series.cells(column.key)) for column in columns]
    is_whole = series.stacked and not names
    heights = totals(layers) if is_whole else [height for layer in layers for height in layer]
    known = [height for height in heights if height is not None]
    if not any(known) or min(known) < 0:
        return None
    if names:
        return bars(series.title, names, [(column, series.cells(column.key)) for column in columns])
    places, marks = axis(series)
    right = places[-1] if series.sampled else places[-1] + max((places[-1] - places[0]) / max(len(places) - 1, 1), 0 if places[1:] else 1)
    style = {(True, True): Style.BAND, (True, False): Style.AREA, (False, True): Style.LINE, (False, False): Style.STEPS}[
        is_whole, series.sampled
    ]
    peaks = _peaks(places, layers, marks, is_whole=is_whole) if not series.sampled else []
    curves = _curves(columns, places, layers, style, heights if is_whole else None)
    top = replace(columns[0], provenance=series.provenance_of_top(columns))
    said = [mark for mark in marks if "peak" in mark.label.split()]
    marks = tuple(mark for mark in marks if mark not in said)
    if len(peaks) == 1:
        name = said[0].label if said else "peak"
        marks += (Mark(peaks[0].x, f"{name} {signed(Quantity(peaks[0].y, top.provenance), top.kind)}"),)
    elif peaks:
        curves = [
            replace(curve, name=f"{curve.name}, peak {signed(Quantity(peak.y, column.provenance), column.kind)}")
            for curve, peak, column in zip(curves, peaks, columns, strict=True)
        ]
    # Sizes begin at nothing, unless that would leave most of the panel empty.
    left = min(0, places[0]) if series.sampled and 2 * places[0] <= places[-1] else places[0]
    limits = [limit for limit in series.limits if limit.kind is top.kind]
    near = tuple(limit for limit in limits if limit.y <= _NEAR * max(known))
    far = tuple(limit for limit in limits if limit not in near)
    height = max((*known, *(limit.y for limit in near)))
    return Panel(series.title, series.x, top, tuple(curves), marks, tuple(peaks), (), left, right, height, near, far, columns)


def _peaks(places: Sequence[Number], layers: Sequence[Sequence[Number | None]], marks: Sequence[Mark], *, is_whole: bool) -> list[Peak]:
    """Return the highest point of the whole, which is where the series says, or of each curve."""
    if not is_whole:
        return [_highest(places, layer) for layer in layers]
    heights = totals(layers)
    said = next((mark.x for mark in marks if "peak" in mark.label.split() and mark.x in places), None)
    at = None if said is None else heights[places.index(said)]
    return [_highest(places, heights) if said is None or at is None else Peak(said, at)]


def _highest(places: Sequence[Number], heights: Sequence[Number | None]) -> Peak:
    known = [(height, -place) for place, height in enumerate(heights) if height is not None]
    height, place = max(known, default=(0, 0))
    return Peak(places[-place], height)


def _curves(
    columns: Sequence[Column],
    places: Sequence[Number],
    layers: Sequence[Sequence[Number | None]],
    style: Style,
    whole: Sequence[Number | None] | None,
) -> list[Curve]:
    """Return the columns as curves; parts of a whole are thinned at the same places."""
    made: list[Curve] = []
    for column, layer in zip(columns, layers, strict=True):
        kept = _kept(places, layer if whole is None else whole)
        made.append(Curve(heading(column), [places[place] for place in kept], [layer[place] for place in kept], style, kept=kept))
    return made


def _kept(places: Sequence[Number], heights: Sequence[Number | None]) -> Sequence[int]:
    if len(places) <= MOST_POINTS:
        return range(len(places))
    chosen = {place for place in highest(places, heights, MOST_POINTS) if place is not None}
    return sorted(chosen | {0})
