"""Lower bounds for every plan: of the peak, and of the time under a memory budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from irscope.memory.checkpointing.cut import PICOSECOND, Network, Priced
from irscope.memory.checkpointing.problem import CheckpointProblem, Phase


@dataclass(frozen=True)
class Floor:
    """A lower bound of the peak, and why it holds."""

    bytes: int
    at: int
    """The operator that runs then."""
    storages: tuple[int, ...]
    """What is there then in every plan, without what stays all the time."""


class Bounds:
    """Bounds on the peak and on the time of all plans for one problem, however often they recompute."""

    def __init__(self, problem: CheckpointProblem) -> None:
        self.problem = problem
        self._must = self._forced()
        self.floor = self._floor()

    def _forced(self) -> list[int]:
        """Bytes that are there while each operator runs, whatever the plan."""
        problem = self.problem
        steps = len(problem)
        change = [0] * (steps + 1)
        for number, one in enumerate(problem.storages):
            span = self._span(number)
            if span is not None:
                change[span[0]] += one.size
                change[span[1] + 1] -= one.size
        must: list[int] = []
        live = 0
        for at, op in enumerate(problem.operators):
            live += change[at]
            again = 0
            if op.phase is not Phase.FORWARD:
                again = sum(problem.storages[one].size for one in op.reads if problem.droppable[one] and at > problem.last_forward[one])
            must.append(live + again + op.workspace)
        return must

    def _span(self, number: int) -> tuple[int, int] | None:
        """First and last operator during which a storage is there in every plan; what is read after that is counted there."""
        problem = self.problem
        one = problem.storages[number]
        first, last = problem.first_touch[number], problem.last_touch[number]
        if not one.size or (first < 0 and not one.is_input):
            return None
        if problem.droppable[number]:
            last = problem.last_forward[number]
        return max(first, 0), min(last, len(problem) - 1)

    def _floor(self) -> Floor:
        problem = self.problem
        at_start = sum(one.size for one in problem.storages if one.is_input)
        at_end = sum(one.size for one in problem.storages if one.is_output)
        highest = max(range(len(problem)), key=lambda at: self._must[at], default=-1)
        most = self._must[highest] if highest >= 0 else 0
        if max(at_start, at_end) >= most:
            return Floor(max(at_start, at_end), -1, ())
        return Floor(most, highest, tuple(self.forced_at(highest)))

    def forced_at(self, at: int) -> Iterable[int]:
        """Storages that are there while an operator runs, whatever the plan; largest first, without what stays all the time."""
        problem = self.problem
        found = {one for one in problem.operators[at].reads if problem.storages[one].size}
        for number in range(len(problem.storages)):
            span = self._span(number)
            if span is not None and span[0] <= at <= span[1]:
                found.add(number)
        lasting = [one for one in found if not (problem.storages[one].is_input and problem.storages[one].is_output)]
        return sorted(lasting, key=lambda one: (-problem.storages[one].size, one))

    def moments(self, most: int) -> list[int]:
        """Operators at which to ask for the least time: where what is forced is highest once the forward has ended, and evenly between."""
        problem = self.problem
        wanting = [
            at
            for at, op in enumerate(problem.operators)
            if op.phase is not Phase.FORWARD and any(problem.droppable[one] for one in op.reads)
        ]
        if len(wanting) <= most:
            return wanting
        # The first third of the backward is where least has been freed.
        early = wanting[: max(most, len(wanting) // 3)]
        chosen = sorted(early, key=lambda at: (-self._must[at], at))[: most // 2]
        step = max(1, len(early) // (most - len(chosen)))
        return sorted({*chosen, *early[::step][: most - len(chosen)]})

    def seconds(self, budget: int, moments: int = 6) -> float | None:
        """Extra time that every plan within a budget needs; None where no plan is within it."""
        if budget < self.floor.bytes:
            return None
        best = 0.0
        for at in self.moments(moments):
            least = self._seconds_at(at, budget)
            if least is None:
                return None
            best = max(best, least)
        return best

    def _seconds_at(self, at: int, budget: int) -> float | None:
        """The same from the one fact that what lies there while an operator runs has to fit."""
        problem = self.problem
        room = budget - self._must[at]
        there = set(problem.operators[at].reads)
        needed = {
            number
            for number in range(len(problem.storages))
            if problem.droppable[number]
            and number not in there
            and problem.first_touch[number] < at
            and problem.last_forward[number] < at
            and problem.later_readers[number]
            and problem.later_readers[number][-1] > at
        }
        return self._dual(self._frontier(at, needed, there), room)

    def _frontier(self, at: int, needed: set[int], there: set[int]) -> Network:
        present = {
            number
            for number in range(len(self.problem.storages))
            if not self.problem.droppable[number] and (span := self._span(number)) is not None and span[0] <= at <= span[1]
        }
        return Network(self.problem, needed, there | present)

    def _dual(self, network: Network, room: int) -> float | None:
        """The best price per byte: the highest point of the lower envelope of all cuts."""
        size = {number: self.problem.storages[number].size for number in network.storages}
        everything = _point(network.solve({number: 0 for number in size}), size)
        if everything[0] <= room:
            return 0.0
        dear = max(1, network.most_picoseconds + 1)
        least = _point(network.solve({number: dear * bytes_ for number, bytes_ in size.items()}), size)
        if least[0] > room:
            return None
        left, right = everything, least
        while True:
            if left[0] <= right[0]:
                return right[1] * PICOSECOND
            # A price at which both ends cost the same, as a fraction: kept exact by scaling all times instead.
            rise, run = right[1] - left[1], left[0] - right[0]
            priced = network.solve({number: rise * bytes_ for number, bytes_ in size.items()}, scale=run)
            found = _point(priced, size)
            value = found[1] * run + rise * found[0]
            if value >= left[1] * run + rise * left[0]:
                return max(0.0, (value - rise * room) / run) * PICOSECOND
            if found[0] > room:
                left = found
            else:
                right = found


def _point(priced: Priced, size: dict[int, int]) -> tuple[int, int]:
    return sum(size[number] for number in priced.kept), priced.picoseconds
