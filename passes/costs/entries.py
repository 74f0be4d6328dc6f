"""What one node adds to the totals of a model, and whether that is exact."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from irscope.ir.dims import Dim
from irscope.ir.graph import Node
from irscope.ops.cost import FLOP_CLASSES, Cost

MEASURES = ("flops", *FLOP_CLASSES, "macs", "masked", "read", "written")
"""The numbers of a cost that are summed up, as attributes of `Cost`."""


class Certainty(enum.Enum):
    """Whether the cost of a node is exact, bounded or unknown."""

    EXACT = "exact"
    BOUNDED = "bounded"
    """It lies between two numbers: a branch, or a size that depends on data within limits."""
    FREE = "free"
    """Nothing is computed and nothing moves: views, questions about shapes."""
    UNKNOWN = "unknown"


class Arithmetic(enum.Enum):
    """What numbers a node computes with."""

    FLOAT = "float"
    INTEGER = "integer"
    QUANTISED = "quantised"
    UNKNOWN = "unknown"
    """The operator has no record, or which of several runs is not known."""


Bounds: TypeAlias = Mapping[str, "tuple[Dim, Dim | None]"]
"""By measure the least and the most it can be; None where it has no upper limit."""


@dataclass(slots=True)
class Entry:
    """One node's share of the totals: `cost` as often as it `runs`. Never mutated: a frozen class takes three times as long to create."""

    node: Node
    certainty: Certainty
    cost: Cost
    """Of one run. Where it is bounded the upper limit, where it is unknown the part that is known."""
    arithmetic: Arithmetic = Arithmetic.FLOAT
    runs: Dim = 1
    bounds: Bounds | None = None
    """For one run, where it is not exact."""
    reason: str = ""
    """Why the cost is not exact."""

    def repeated(self, times: Dim) -> Entry:
        """The same node inside something that runs so many times."""
        return self if times == 1 else replace(self, runs=self.runs * times)

    @property
    def total(self) -> Cost:
        """The cost of all runs."""
        return self.cost if self.runs == 1 else self.cost.times(self.runs)

    def limits(self, measure: str) -> tuple[Dim, Dim | None]:
        """The least and the most of a measure, all runs together."""
        if self.bounds is None:
            exact = getattr(self.cost, measure) * self.runs
            return exact, exact
        low, high = self.bounds[measure]
        return low * self.runs, None if high is None else high * self.runs
