"""All memory over the steps, from the liveness pass, on the axis of the steps that the screens show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from irscope.ir.graph import Node
from irscope.report.units import Kind, humanise
from irscope.report.values import bare
from irscope.tui.models.amounts import Floats
from irscope.tui.models.outline import Ints

if TYPE_CHECKING:
    from irscope.passes.lifetimes.footprint import Footprint, Held
    from irscope.passes.lifetimes.timeline import Timeline

RESIDENT: Mapping[str, Sequence[str]] = {"weights": ("parameter", "buffer", "constant", "packed"), "inputs": ("input",)}
"""Resident memory, by the categories of the chart."""
_OTHERS: Mapping[str, Sequence[str]] = {
    "gradients": ("gradient",),
    "optimizer": ("optimizer state",),
    "outputs": ("output",),
    "activations": ("activation",),
    "temporary": ("temporary",),
    "workspace": ("workspace",),
    "rounding": ("rounding", "block"),
}


class Measured:
    """A sum whose sizes are all numbers, over the steps of the program that is shown."""

    def __init__(self, found: Footprint, steps: Sequence[Node]) -> None:
        self.found = found
        self._place = _places(found.steps, steps)
        self.heights: Floats = np.array([float(str(size)) for size in found.heights], dtype=np.float64)[self._place]
        columns = {key: np.array([_number(cell) for cell in column], dtype=np.float64) for key, column in found.parts.items()}
        self.parts: dict[str, Floats] = {}
        for name, categories in (*RESIDENT.items(), *_OTHERS.items()):
            known = [columns[category] for category in categories if category in columns]
            if known and (name in RESIDENT or any(column.any() for column in known)):
                self.parts[name] = np.sum(known, axis=0)[self._place]

    @property
    def title(self) -> str:
        """Whose memory it is, and in which run."""
        return f"{self.found.of} memory{f', {self.found.run}' if self.found.run else ''}"

    def living(self, step: int) -> Sequence[Held]:
        """What is in use at a step: sizes add up to its total."""
        return self.found.living(int(self._place[step]))


def measured(live: Timeline, steps: Sequence[Node] | None = None) -> Measured | None:
    """The sum of an answer, over the steps of another program of the same nodes; None where some size is no number."""
    found = live.footprint
    if found is None or not found.steps or not all(isinstance(size, int) for size in found.heights):
        return None
    return Measured(found, live.steps if steps is None else steps)


def peak_text(found: Footprint, sign: str, at_least: str) -> str:
    """The largest total of any step; a lower bound where it is unknown."""
    value = found.peak.value
    if isinstance(value, int):
        return f"{sign}{humanise(value, Kind.BYTES)}"
    low = found.peak.lo
    return f"{at_least}{humanise(low, Kind.BYTES)}" if isinstance(low, int) else ""


def _number(cell: object) -> float:
    value = bare(cell)  # type: ignore[arg-type]  # cells of a table are plain
    return float(value) if isinstance(value, int | float) else 0.0


def _places(own: Sequence[Node], shown: Sequence[Node]) -> Ints:
    """For each step that is shown the one that stands for it: of nodes that do not run as they are, the one before."""
    if own is shown or (len(own) == len(shown) and all(one.name == other.name for one, other in zip(own, shown, strict=True))):
        return np.arange(len(shown), dtype=np.int64)
    number = {node.name: place for place, node in enumerate(own)}
    found: Ints = np.array([number.get(node.name, -1) for node in shown], dtype=np.int64)
    return np.maximum.accumulate(np.maximum(found, 0)) if len(found) else found
