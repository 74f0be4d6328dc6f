"""A layered drawing of a directed graph, as integers: the layer of every box, its place there, and where edges bend. Then columns.

Sugiyama's method: cycles are cut, layers are longest paths, edges over several layers bend once in each, sweeps over the layers bring
boxes near the median of what they are joined to, and the order with fewest crossings is kept. Edges that leave a box together share
their bends, so that a value that is read in ten places is one line with branches and bends stay at most layers times boxes. Nothing
here knows what a box is: sizes come only with `columns`, in whatever unit the drawing has (points of a picture, columns of a terminal).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Final, NamedTuple

from irscope.immutable import immutable
from irscope.solvers.graphs import in_order

_SWEEPS: Final = 12
"""Sweeps for the order; most graphs of networks are settled after three."""
_MOST_BENDS: Final = 200_000
"""Beyond it long edges are drawn straight: a graph of thousands of boxes on one level is no picture anyway."""
_STRAIGHTEN: Final = 8
"""Rounds for the columns, down and up."""
_BEND_BEND, _BOX_BOX, _BOX_BEND = 64, 32, 1
"""Weights with which an edge is kept vertical: long ones most, then those between boxes that follow each other."""


class Link(NamedTuple):
    """An edge. Edges of one source with the same trunk share their bends."""

    source: int
    target: int
    trunk: int = 0


class Segment(NamedTuple):
    """A part of an edge, from one layer to the next."""

    upper: int
    lower: int
    trunk: int
    """Index of the edge's trunk among all (source, trunk) pairs of the graph, in the order in which links first name them."""
    is_back: bool = False
    """It belongs to an edge that goes upward, against all others: the graph has a cycle."""


@immutable(slots=False)
class Layers:
    """Layer of each box, and its place there. Numbers from `count` on are bends."""

    count: int
    rows: tuple[tuple[int, ...], ...]
    """Boxes and bends of each layer from left to right."""
    segments: tuple[Segment, ...]
    crossings: int
    layer: tuple[int, ...] = field(repr=False)
    """By number, bends included."""


def layers_of(count: int, links: Iterable[Link], first: Sequence[int] = (), last: Sequence[int] = ()) -> Layers:
    """Layers for boxes 0 to count - 1. Those in `first` have the uppermost layer for themselves, those in `last` the lowest."""
    return _layers_of(count, tuple(dict.fromkeys(links)), tuple(first), tuple(last))


@lru_cache(maxsize=512)
def _layers_of(count: int, links: tuple[Link, ...], first: tuple[int, ...], last: tuple[int, ...]) -> Layers:
    # Kept by structure: a model of eighty equal blocks has one layout for them.
    back = _back_edges(count, links)
    down = [(link.target, link.source) if number in back else (link.source, link.target) for number, link in enumerate(links)]
    layer = _longest_paths(count, down, first, last)
    segments = _with_bends(links, down, back, layer)
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for number, at in enumerate(layer):
        rows[at].append(number)
    crossings = _order(rows, segments, layer, count)
    return Layers(count, tuple(map(tuple, rows)), tuple(segments), crossings, tuple(layer))


def _back_edges(count: int, links: Sequence[Link]) -> set[int]:
    """Return the numbers of the edges that close a cycle, found depth first in the order of boxes; edges from a box to itself are among
    them.
    """
    after: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for number, link in enumerate(links):
        after[link.source].append((link.target, number))
    if all(link.source < link.target for link in links):
        return set()
    back_edges: set[int] = set()
    state = bytearray(count)
    for start in range(count):
        if state[start]:
            continue
        state[start] = 1
        stack = [(start, iter(after[start]))]
        while stack:
            box, rest = stack[-1]
            for target, number in rest:
                if state[target] == 1:
                    back_edges.add(number)
                elif not state[target]:
                    state[target] = 1
                    stack.append((target, iter(after[target])))
                    break
            else:
                state[box] = 2
                stack.pop()
    return back_edges


def _longest_paths(count: int, down: Sequence[tuple[int, int]], first: Sequence[int], last: Sequence[int]) -> list[int]:
    """Return the layer of each box: one below the lowest of its predecessors; boxes that only feed others stand right above the first of
    those.
    """
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for upper, lower in down:
        if upper != lower:
            before[lower].append(upper)
            after[upper].append(lower)
    order = in_order(before, after)
    top = 1 if first else 0
    layer = [top] * count
    for box in order:
        layer[box] = max((layer[earlier] + 1 for earlier in before[box]), default=top)
    for box in reversed(order):
        # Fewer edges come in than go out: standing lower makes the edges shorter altogether.
        if after[box] and len(after[box]) > len(before[box]):
            layer[box] = min(layer[later] for later in after[box]) - 1
    for box in first:
        layer[box] = 0
    if last:
        free = set(last)
        lowest = max((at for box, at in enumerate(layer) if box not in free), default=-1) + 1
        for box in last:
            layer[box] = lowest
    return _without_gaps(layer)


def _without_gaps(layer: list[int]) -> list[int]:
    numbers = {at: number for number, at in enumerate(sorted(set(layer)))}
    return [numbers[at] for at in layer]


def _with_bends(links: Sequence[Link], down: Sequence[tuple[int, int]], back: set[int], layer: list[int]) -> list[Segment]:
    """Edges cut into segments; bends are added to `layer`."""
    trunks: dict[tuple[int, int], int] = {}
    bends: dict[tuple[int, int], list[int]] = {}
    segments: dict[Segment, None] = {}
    boxes = len(layer)
    for number, (link, (upper, lower)) in enumerate(zip(links, down, strict=True)):
        trunk = trunks.setdefault((link.source, link.trunk), len(trunks))
        if upper == lower:
            continue
        is_back = number in back
        chain = bends.setdefault((trunk, -1 - number if is_back else upper), [])
        steps = layer[lower] - layer[upper] - 1
        if len(layer) - boxes + steps > _MOST_BENDS:
            segments[Segment(upper, lower, trunk, is_back)] = None
            continue
        while len(chain) < steps:
            chain.append(len(layer))
            layer.append(layer[upper] + len(chain))
            segments[Segment(chain[-2] if len(chain) > 1 else upper, chain[-1], trunk, is_back)] = None
        segments[Segment(chain[steps - 1] if steps > 0 else upper, lower, trunk, is_back)] = None
    return list(segments)


def _order(rows: list[list[int]], segments: Sequence[Segment], layer: Sequence[int], count: int) -> int:
    """Sort the rows so that few segments cross; returns how many do."""
    above: list[list[int]] = [[] for _ in layer]
    below: list[list[int]] = [[] for _ in layer]
    for segment in segments:
        if layer[segment.lower] == layer[segment.upper] + 1:
            above[segment.lower].append(segment.upper)
            below[segment.upper].append(segment.lower)
    _first_order(rows, below, count)
    place = [0] * len(layer)
    for row in rows:
        for at, number in enumerate(row):
            place[number] = at
    best, fewest = [list(row) for row in rows], _crossings(rows, below, place)
    idle = 0
    for sweep in range(_SWEEPS):
        if not fewest or idle > 3:
            break
        goes_down = sweep % 2 == 0
        for at in range(1, len(rows)) if goes_down else range(len(rows) - 2, -1, -1):
            _sort_row(rows[at], above if goes_down else below, place)
        crossings = _crossings(rows, below, place)
        idle += 1
        if crossings < fewest:
            best, fewest, idle = [list(row) for row in rows], crossings, 0
    rows[:] = best
    return fewest


def _first_order(rows: list[list[int]], below: Sequence[Sequence[int]], count: int) -> None:
    """Boxes as the program has them, bends in the order in which a walk depth first meets them: branches then start side by side."""
    met: dict[int, int] = {}
    for start in (number for row in rows for number in row if number < count):
        stack = [start]
        while stack:
            number = stack.pop()
            if number not in met:
                met[number] = len(met)
                stack.extend(reversed(below[number]))
    for row in rows:
        row.sort(key=lambda number: met.get(number, len(met)))


def _sort_row(row: list[int], joined: Sequence[Sequence[int]], place: list[int]) -> None:
    """Sort a row by the mean place of what its members are joined to; those joined to nothing keep their places."""
    keyed = [(sum(place[one] for one in joined[number]) / len(joined[number]), number) for number in row if joined[number]]
    keyed.sort(key=lambda pair: (pair[0], place[pair[1]]))
    moved = iter(keyed)
    row[:] = [next(moved)[1] if joined[number] else number for number in row]
    for at, number in enumerate(row):
        place[number] = at


def _crossings(rows: Sequence[Sequence[int]], below: Sequence[Sequence[int]], place: Sequence[int]) -> int:
    """Return the pairs of segments that cross, by counting inversions with a Fenwick tree (Barth, Jünger and Mutzel, 2002)."""
    total = 0
    for at, row in enumerate(rows[:-1]):
        ends = [end for number in row for end in sorted(place[one] for one in below[number])]
        size = len(rows[at + 1])
        tree = [0] * (size + 1)
        for seen, end in enumerate(ends):
            smaller, index = 0, end + 1
            while index:
                smaller += tree[index]
                index &= index - 1
            total += seen - smaller
            index = end + 1
            while index <= size:
                tree[index] += 1
                index += index & -index
    return total


# Columns: where boxes and bends stand from left to right.


def columns(
    layers: Layers, widths: Sequence[float], gap: float, bend: float, shift: Callable[[Segment], tuple[float, float]] | None = None
) -> list[float]:
    """Return the middle of each box and bend, from the left edge of the drawing. `widths` are those of the boxes, `bend` is the width of a
    bend, `gap` the least distance between neighbours; `shift` tells how far from the middles of its ends a segment begins and stops.

    Each row wants to stand below (above) what it is joined to; the nearest places that keep its order are found exactly, by merging
    neighbours that want the same place (isotonic regression), so that a round is linear in the size of the drawing.
    """
    size = len(layers.layer)
    width = [*widths, *([bend] * (size - layers.count))]
    above: list[list[tuple[int, int, float]]] = [[] for _ in range(size)]
    below: list[list[tuple[int, int, float]]] = [[] for _ in range(size)]
    for segment in layers.segments:
        bends = (segment.upper >= layers.count) + (segment.lower >= layers.count)
        weight = (_BOX_BOX, _BOX_BEND, _BEND_BEND)[bends]
        begin, end = shift(segment) if shift is not None else (0.0, 0.0)
        above[segment.lower].append((segment.upper, weight, begin - end))
        below[segment.upper].append((segment.lower, weight, end - begin))
    middle = [0.0] * size
    room: list[list[float]] = []
    for row in layers.rows:
        starts, left = [], 0.0
        for at, number in enumerate(row):
            left += (width[row[at - 1]] + width[number]) / 2 + gap if at else 0.0
            starts.append(left)
            middle[number] = left
        room.append(starts)
    for _ in range(_STRAIGHTEN):
        for at in range(1, len(layers.rows)):
            _settle_row(layers.rows[at], room[at], above, middle)
        for at in range(len(layers.rows) - 2, -1, -1):
            _settle_row(layers.rows[at], room[at], below, middle)
    left = min((middle[number] - width[number] / 2 for number in range(size)), default=0.0)
    return [one - left for one in middle]


def _settle_row(row: Sequence[int], room: Sequence[float], joined: Sequence[Sequence[tuple[int, int, float]]], middle: list[float]) -> None:
    """Move a row to the nearest places in its order to where each member wants to be."""
    blocks: list[tuple[float, float, int]] = []
    for number, least in zip(row, room, strict=True):
        wanted, weight = _wanted(joined[number], middle, middle[number])
        total, members = (wanted - least) * weight, 1
        while blocks and blocks[-1][0] * weight >= total * blocks[-1][1]:
            before, heavy, many = blocks.pop()
            total, weight, members = total + before, weight + heavy, members + many
        blocks.append((total, weight, members))
    at = 0
    for total, weight, members in blocks:
        for index in range(at, at + members):
            middle[row[index]] = total / weight + room[index]
        at += members


def _wanted(joined: Sequence[tuple[int, int, float]], middle: Sequence[float], now: float) -> tuple[float, float]:
    """Return the weighted median of the places that edges would be vertical from, and how heavy the wish is."""
    if not joined:
        return now, 0.05
    if len(joined) == 1:
        other, weight, shift = joined[0]
        return middle[other] + shift, weight
    places = sorted((middle[other] + shift, weight) for other, weight, shift in joined)
    total = sum(weight for _, weight in places)
    sums: list[float] = []
    for _, weight in places:
        sums.append((sums[-1] if sums else 0) + weight)
    at = bisect_left(sums, total / 2)
    if sums[at] == total / 2:
        return (places[at][0] + places[at + 1][0]) / 2, total
    return places[at][0], total
