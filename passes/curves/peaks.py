"""Peaks of a timeline at many bindings of its symbols."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irscope.errors import PassError
from irscope.ir.dim_arrays import Evaluator, Numbers
from irscope.ir.dims import Dim
from irscope.passes.curves.points import Points
from irscope.passes.inference.remedies import SHAPES_HINT
from irscope.passes.lifetimes.timeline import Timeline

_AT_ONCE = 1 << 22
"""Heights computed at once, to bound memory."""


@dataclass(frozen=True)
class Peaks:
    """What a timeline says at each point."""

    activation: list[int]
    """Most bytes alive at once."""
    step: list[int]
    """The first step that has them."""
    resident: list[int]
    """Bytes of parameters, buffers and inputs, which are there all the time."""

    @property
    def total(self) -> list[int]:
        """Bytes as they are asked for: all of the above."""
        return [peak + resident for peak, resident in zip(self.activation, self.resident, strict=True)]


def peaks_at(timeline: Timeline, points: Points) -> Peaks:
    """Peaks at every point, from one timeline. Raises PassError where sizes stay unknown whatever is bound."""
    check_known(timeline)
    evaluator = Evaluator(points.columns)
    sizes: dict[Dim, int] = {}
    rows = [sizes.setdefault(one.size, len(sizes)) for one in timeline.ranges]
    inside = [sizes.setdefault(size, len(sizes)) for size in timeline.inside.values()]
    numbers = evaluator.rows(sizes)
    heights = _Heights(timeline, np.array(rows, dtype=np.intp), np.array(inside, dtype=np.intp))
    chunk = max(1, _AT_ONCE // (len(timeline.steps) + 1))
    activation: list[int] = []
    steps: list[int] = []
    for start in range(0, evaluator.count, chunk):
        alive = heights.alive(numbers[:, start : start + chunk])
        if len(alive):
            activation.extend(alive.max(axis=0).tolist())
            steps.extend(alive.argmax(axis=0).tolist())
        else:
            activation.extend([0] * alive.shape[1])
            steps.extend([0] * alive.shape[1])
    resident = sum((evaluator.at(size) for size in timeline.resident.values() if size is not None), evaluator.at(0))
    return Peaks(activation, steps, resident.tolist())


def check_known(timeline: Timeline) -> None:
    """Raise PassError where some tensor has no size that symbols could give."""
    unknown = [role for role, size in timeline.resident.items() if size is None]
    if timeline.unsized or unknown:
        what = f"{len(timeline.unsized)} tensors" if timeline.unsized else f"some of the model's {unknown[0]}s"
        raise PassError(
            f"{what} have sizes that no binding of symbols makes known, so the peak is unknown",
            code="IRS333",
            hint=SHAPES_HINT,
        )


class _Heights:
    """The steps at which storages are born and die; their sizes are given later."""

    def __init__(self, timeline: Timeline, rows: Numbers, inside: Numbers) -> None:
        self.steps = len(timeline.steps)
        self.rows = rows
        self.inside = inside
        self.inside_steps = np.array(list(timeline.inside), dtype=np.intp)
        self.born = np.array([one.born for one in timeline.ranges], dtype=np.intp)
        self.gone = np.array([min(one.dies + 1, self.steps) for one in timeline.ranges], dtype=np.intp)

    def alive(self, sizes: Numbers) -> Numbers:
        """Bytes alive at each step: a row for each step, a column for each binding."""
        change = np.zeros((self.steps + 1, sizes.shape[1]), dtype=sizes.dtype)
        if len(self.rows):
            np.add.at(change, self.born, sizes[self.rows])
            np.subtract.at(change, self.gone, sizes[self.rows])
        alive: Numbers = np.cumsum(change[: self.steps], axis=0)
        if len(self.inside):
            np.add.at(alive, self.inside_steps, sizes[self.inside])
        return alive
