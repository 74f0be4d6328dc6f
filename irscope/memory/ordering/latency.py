"""How long an order takes where operators may overlap, and orders that do not take much longer than the one as written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from irscope.memory.ordering.problem import OrderProblem

_BLENDS = 32


@dataclass
class LatencyLimit:
    """A limit on the time that an order takes on a machine that starts operators in that order, each as soon as its operands are there.

    The least time of any order is the critical path. An order that puts a long chain behind other work starts it late.
    """

    problem: OrderProblem
    seconds: Sequence[float]
    """How long each operator runs."""
    share: float
    """By how much the time of the order as written may grow."""
    as_written: float = field(init=False)
    most: float = field(init=False)

    def __post_init__(self) -> None:
        self.as_written = self.length(range(len(self.problem)))
        # A little room for sums in another order.
        self.most = self.as_written * (1 + self.share) * (1 + 1e-9)

    def length(self, order: Sequence[int]) -> float:
        """The time until the last operator has finished."""
        start = 0.0
        finished = [0.0] * len(order)
        for op in order:
            for earlier in self.problem.before[op]:
                start = max(start, finished[earlier])
            finished[op] = start + self.seconds[op]
        return max(finished, default=0.0)

    @property
    def critical_path(self) -> float:
        """The least time of any order."""
        return self.length(self.earliest())

    def allows(self, order: Sequence[int]) -> bool:
        return self.length(order) <= self.most

    def earliest(self) -> list[int]:
        """Operators by the time at which they could start at the earliest: no order takes less time."""
        starts = [0.0] * len(self.problem)
        depth = [0] * len(self.problem)
        for op, before in enumerate(self.problem.before):
            for earlier in before:
                starts[op] = max(starts[op], starts[earlier] + self.seconds[earlier])
                depth[op] = max(depth[op], depth[earlier] + 1)
        # Where operators take no time, depth keeps one after the other.
        return sorted(range(len(starts)), key=lambda op: (starts[op], depth[op], op))

    def closest(self, order: Sequence[int]) -> list[int]:
        """What of an order the limit allows: mixed with the quick orders as far as that is needed, whichever needs least memory.

        Operators sorted by a mean of their places in two valid orders are in a valid order.
        """
        written = list(range(len(order)))
        best = written
        place = _places(order)
        for quick in (written, self.earliest()):
            other = _places(quick)
            for part in range(_BLENDS + 1):
                found = sorted(written, key=lambda op: ((_BLENDS - part) * place[op] + part * other[op], other[op]))
                if self.allows(found) and self.problem.peak(found) < self.problem.peak(best):
                    best = found
        return best


def _places(order: Sequence[int]) -> list[int]:
    places = [0] * len(order)
    for at, op in enumerate(order):
        places[op] = at
    return places
