"""Fits the points of a series into the columns of a chart: each column takes its highest point, so no peak vanishes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from irscope.report.table import Mark, Series
from irscope.report.values import Cell, Number, bare

_LARGEST = 1e100
"""Beyond this floats overflow while they are scaled; such values, infinities and NaN are not drawn."""


def drawable(cells: Sequence[Cell]) -> list[Number | None]:
    """The numbers that can be drawn; None for what is unknown, symbolic or not finite."""
    return [_number(bare(cell)) for cell in cells]


def _number(value: object) -> Number | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _LARGEST else None


def axis(series: Series) -> tuple[list[Number], tuple[Mark, ...]]:
    """Where each point stands, and the marks: at x, or at the point's index (then without marks) where x is not numbers in order."""
    places = [place for place in drawable(series.cells(series.x.key)) if place is not None]
    if len(places) == len(series) and all(before <= after for before, after in pairwise(places)):
        return places, series.marks
    return list(range(len(series))), ()


def totals(columns: Sequence[Sequence[Number | None]]) -> list[Number | None]:
    """The sum of the columns at each point; None where a part is unknown."""
    return [None if None in point else sum(value for value in point if value is not None) for point in zip(*columns, strict=True)]


def bin_of(place: Number, places: Sequence[Number], count: int) -> int:
    """The part of the x axis, of `count` equal ones, in which a place lies."""
    span = (places[-1] - places[0]) * len(places)  # the last point is as wide as the others are on average
    if not span:
        return 0
    at = int((place - places[0]) * (len(places) - 1) * count // span)
    return max(0, min(count - 1, at))


def highest(places: Sequence[Number], heights: Sequence[Number | None], count: int) -> list[int | None]:
    """For each of `count` equal parts of the x axis the index of its highest point; None where nothing is known.

    A part without a point repeats the point before it: a value holds until the next one.
    """
    members: list[list[int]] = [[] for _ in range(count)]
    for index, place in enumerate(places):
        members[bin_of(place, places, count)].append(index)
    chosen: list[int | None] = []
    held: list[int] = []
    for inside in members:
        known = [(height, -index) for index in inside or held if (height := heights[index]) is not None]
        chosen.append(-max(known)[1] if known else None)
        held = inside[-1:] or held
    return chosen
