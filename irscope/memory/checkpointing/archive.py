"""Pareto front of the plans seen so far: for each peak the least time."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from irscope.memory.checkpointing.simulate import Cost


@dataclass(frozen=True, slots=True)
class Point:
    """One plan of the curve of peak against time."""

    cost: Cost
    plan: bytes
    method: str


class Archive:
    """Plans that are Pareto optimal in peak and time."""

    def __init__(self) -> None:
        self._peaks: list[int] = []
        self.points: list[Point] = []

    def offer(self, cost: Cost, plan: Sequence[int], method: str) -> bool:
        """Add a plan unless it is dominated."""
        at = bisect.bisect_right(self._peaks, cost.peak)
        if at and self.points[at - 1].cost.seconds <= cost.seconds:
            return False
        end = at = at - 1 if at and self._peaks[at - 1] == cost.peak else at
        while end < len(self.points) and self.points[end].cost.seconds >= cost.seconds:
            end += 1
        self.points[at:end] = [Point(cost, bytes(plan), method)]
        self._peaks[at:end] = [cost.peak]
        return True

    def within(self, budget: int) -> Point | None:
        """The quickest plan whose peak is within a budget."""
        at = bisect.bisect_right(self._peaks, budget)
        return self.points[at - 1] if at else None

    @property
    def lowest(self) -> Point:
        """The plan with the lowest peak."""
        return self.points[0]

    def near(self, budget: int, price: float) -> Point:
        """The plan to start from when a byte above the budget costs this many seconds."""
        return min(self.points, key=lambda one: one.cost.seconds + price * max(0, one.cost.peak - budget))
