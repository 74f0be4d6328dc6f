"""Adjacent modules of equal structure, such as the layers of a transformer: folded into one row until expanded."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from irscope.ir.graph import Node
from irscope.tui.models.outline import Group, Ints, Outline

_LEAST = 3
"""Fewer modules than this stay as they are: two rows say more than one and a number."""


@dataclass(frozen=True, eq=False)
class Folds:
    """Runs of alike modules; the first of each run is its leader."""

    leader: Ints
    """For each run the row of its first module, in order."""
    count: Ints
    end: Ints
    """Behind the last row of the last module."""
    run_of: Ints
    """For each row of a module in a run the number of the run, else -1."""

    def __len__(self) -> int:
        return len(self.leader)

    def members(self, run: int, outline: Outline) -> list[int]:
        """The rows of the modules of a run."""
        rows, row = [], int(self.leader[run])
        for _ in range(int(self.count[run])):
            rows.append(row)
            row = int(outline.end[row])
        return rows


def no_folds(outline: Outline) -> Folds:
    """Nothing is folded."""
    nothing = np.zeros(0, dtype=np.int64)
    return Folds(nothing, nothing, nothing, np.full(len(outline), -1, dtype=np.int64))


def find_folds(outline: Outline) -> Folds:
    """The runs of a model: modules of one class with the same operators on the same types, whatever their names."""
    shapes = _shapes(outline)
    end, parent = outline.end.tolist(), outline.parent.tolist()
    leaders: list[int] = []
    counts: list[int] = []
    ends: list[int] = []
    run_of = np.full(len(outline), -1, dtype=np.int64)
    for row, item in enumerate(outline.items):
        if not isinstance(item, Group) or item.kind != "module" or run_of[row] >= 0:
            continue
        members, following = [row], end[row]
        while following < len(outline) and shapes[following] == shapes[row] and parent[following] == parent[row]:
            members.append(following)
            following = end[following]
        if len(members) >= _LEAST:
            run_of[members] = len(leaders)
            leaders.append(row)
            counts.append(len(members))
            ends.append(following)
    rows, numbers, behind = (np.array(found, dtype=np.int64) for found in (leaders, counts, ends))
    return Folds(rows, numbers, behind, run_of)


def _shapes(outline: Outline) -> list[int]:
    """A number for each row that is equal where two rows are built alike."""
    numbers: dict[Hashable, int] = {}
    inside: dict[int, list[int]] = {}
    shapes = [0] * len(outline)
    parents = outline.parent.tolist()
    for row in range(len(outline) - 1, -1, -1):
        item = outline.items[row]
        below = inside.pop(row, None)
        key: Hashable
        if isinstance(item, Node):
            outputs = item.outputs
            types = id(outputs[0].type) if len(outputs) == 1 else tuple([id(one.type) for one in outputs])
            key = (item.op, len(item.inputs), types, str(item.attrs) if item.attrs else "")
        else:
            key = (item.kind, item.scope.cls if item.scope is not None else item.name)
        if below is not None:
            key = (key, tuple(below))
        shapes[row] = number = numbers.setdefault(key, len(numbers))
        above = parents[row]
        if above >= 0:
            found = inside.get(above)
            if found is None:
                inside[above] = [number]
            else:
                found.append(number)
    return shapes
