"""Plans for memory budgets, and the curve of peak against time, each with a lower bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from irscope.errors import UsageError
from irscope.memory.checkpointing.anneal import Annealer
from irscope.memory.checkpointing.archive import Archive, Point
from irscope.memory.checkpointing.baselines import knapsack, segments
from irscope.memory.checkpointing.bounds import Bounds
from irscope.memory.checkpointing.cut import Network
from irscope.memory.checkpointing.exact import best_of_all
from irscope.memory.checkpointing.greedy import greedy
from irscope.memory.checkpointing.problem import CheckpointProblem
from irscope.memory.checkpointing.simulate import AGAIN, KEEP, ONCE, Cost, Simulator
from irscope.report.units import Kind, humanise

_SMALL = 7
"""With at most this many choices branch and bound is used."""
_ROUND = 6000
"""Steps of a round where their number is given."""
_SHARE = 0.35
"""How much of the remaining time a round gets."""
_PRICES = 48


@dataclass(frozen=True)
class Planned:
    """The best plan found for a budget."""

    budget: int
    peak: int
    seconds: float
    """Extra time."""
    plan: bytes
    """For each storage whether it is kept (0), recomputed once (1), or recomputed for each use (2)."""
    method: str
    bound: float | None
    """Extra time that every plan within the budget needs; None where it is proven that no plan is within it."""
    proven: bool
    """Whether no plan within the budget is quicker."""

    @property
    def met(self) -> bool:
        """Whether the plan is within the budget."""
        return self.peak <= self.budget


@dataclass
class CheckpointPlans:
    """Plans and bounds of a step."""

    problem: CheckpointProblem
    save_all: Cost
    floor: int
    """Lower bound of the peak of every plan."""
    planned: list[Planned] = field(default_factory=list)
    curve: list[Point] = field(default_factory=list)
    """All Pareto optimal plans in peak and time, lowest peak first."""
    baselines: dict[str, list[Cost]] = field(default_factory=dict)
    """Costs of the plans of simpler planners."""
    evaluations: int = 0


class CheckpointPlanner:
    """Plans for one problem; what was found for one budget helps with the next."""

    def __init__(
        self,
        problem: CheckpointProblem,
        *,
        seed: int = 0,
        watch: Callable[[str], None] | None = None,
        simulator: Simulator | None = None,
    ) -> None:
        self.simulator = simulator or Simulator(problem)
        self.problem = problem = self.simulator.problem
        self.archive = Archive()
        self.bounds = Bounds(problem)
        self.seed = seed
        self.watch = watch
        plan = self.simulator.save_all()
        self._began = time.monotonic()
        self.is_free = AGAIN in self.simulator.states
        """Whether each storage can be chosen for itself."""
        self.tries_all = self.is_free
        """Whether every plan is tried where there are few choices."""
        self.save_all = self.simulator.cost(plan)
        self.archive.offer(self.save_all, plan, "everything kept")
        self.baselines: dict[str, list[Cost]] = {}
        self._seeded = False

    def plan(self, budget: int, *, seconds: float = 10.0, steps: int | None = None) -> Planned:
        """The quickest plan within a budget of bytes that is found in a time, or in a number of steps of the search."""
        if budget < self.bounds.floor.bytes:
            raise UsageError(self._too_small(budget), code="IRS390", hint="a smaller batch needs less; so does a lower precision")
        deadline = time.monotonic() + seconds

        def late() -> bool:
            return steps is None and time.monotonic() > deadline

        self._seed_archive(late)
        bound = self.bounds.seconds(budget)
        if self.tries_all and len(self.simulator.choices) <= _SMALL:
            return self._exactly(budget, bound)
        annealer = Annealer(self.simulator, self.archive, self.seed)
        turn, misses, left = 0, 0, steps
        while not late() and not self._is_proven(budget, bound) and (left is None or left > 0):
            count = (
                self._round(deadline - time.monotonic()) if left is None else min(max(_ROUND // 16, min(_ROUND, (steps or 0) // 5)), left)
            )
            if self.watch is not None:
                self.watch(f"local search, {count} steps")
            annealer.run(budget, count, late, turn, misses)
            left = None if left is None else left - count
            turn += 1
            misses += self.archive.within(budget) is None
        return self._found(budget, bound)

    def curve(self, budgets: Sequence[int], *, seconds: float = 10.0, steps: int | None = None) -> list[Planned]:
        """Plans for several budgets, largest first, in a time for all of them together."""
        able = sorted((budget for budget in set(budgets) if budget >= self.bounds.floor.bytes), reverse=True)
        began = time.monotonic()
        found: list[Planned] = []
        for at, budget in enumerate(able):
            left = max(0.0, seconds - (time.monotonic() - began)) / (len(able) - at)
            found.append(self.plan(budget, seconds=left, steps=steps))
        # A plan that was found for a smaller budget may be the best one for a larger budget.
        return [self._found(one.budget, one.bound, proven=one.proven) for one in found]

    def result(self, planned: Sequence[Planned]) -> CheckpointPlans:
        """All plans and bounds found so far."""
        return CheckpointPlans(
            self.problem,
            self.save_all,
            self.bounds.floor.bytes,
            list(planned),
            list(self.archive.points),
            self.baselines,
            self.simulator.evaluations,
        )

    def even_budgets(self, count: int = 9) -> list[int]:
        """Budgets from that of keeping everything to the least that could be possible, evenly spaced."""
        full, floor = self.save_all.peak, self.bounds.floor.bytes
        return sorted({full - (full - floor) * at // max(1, count - 1) for at in range(count)}, reverse=True)

    def _round(self, seconds: float) -> int:
        """Steps of a round that leave time for more rounds; by how long plans have taken so far."""
        spent = max(1e-4, time.monotonic() - self._began)
        return max(_ROUND // 8, int(_SHARE * seconds * self.simulator.evaluations / spent))

    def _too_small(self, budget: int) -> str:
        floor = self.bounds.floor
        where = f", at {self.problem.operators[floor.at].name}" if floor.at >= 0 else ""
        return (
            f"no plan needs less than {humanise(floor.bytes, Kind.BYTES)}{where}: a budget of {humanise(budget, Kind.BYTES)} cannot be met"
        )

    def _seed_archive(self, late: Callable[[], bool]) -> None:
        if self._seeded:
            return
        self._seeded = True
        for name, plans in self._seeds():
            costs = self.baselines.setdefault(name, [])
            for cost, plan in plans:
                costs.append(cost)
                self.archive.offer(cost, plan, name)
                if late():
                    return

    def _seeds(self) -> Iterator[tuple[str, Iterator[tuple[Cost, list[int]]]]]:
        if not self.is_free:
            yield "units", self._units()
            return
        yield "μ-TWO", greedy(self.simulator)
        yield "minimum cuts", self._cuts()
        yield "knapsack", knapsack(self.simulator)
        yield "Chen's segments", segments(self.simulator)
        yield "articulation segments", segments(self.simulator, articulation=True)

    def _cuts(self) -> Iterator[tuple[Cost, list[int]]]:
        """What is best kept when a byte has a price, for many prices."""
        problem, simulator = self.problem, self.simulator
        network = Network(problem, [number for number in problem.saved if problem.droppable[number]], ())
        size = sum(problem.storages[number].size for number in network.storages)
        if not size:
            return
        seen: set[frozenset[int]] = set()
        middle = max(1, network.most_picoseconds) / size
        for at in range(_PRICES):
            price = middle * 10 ** (4 * at / (_PRICES - 1) - 2)
            kept = network.solve({number: round(1000 * price * problem.storages[number].size) for number in network.storages}, 1000).kept
            if kept not in seen:
                seen.add(kept)
                plan = [KEEP] * len(problem.storages)
                for number in simulator.choices:
                    if number not in kept:
                        plan[number] = ONCE
                yield simulator.cost(plan), plan

    def _units(self) -> Iterator[tuple[Cost, list[int]]]:
        """Give up what saves most bytes for its time, one unit after the other; then the same with all that is not read later."""
        problem, simulator = self.problem, self.simulator
        worth: list[tuple[float, int]] = []
        for at, unit in enumerate(simulator.units):
            size = sum(problem.storages[number].size for number in unit if problem.later_readers[number])
            spent = sum(problem.operators[op].seconds for op in {op for number in unit for op in problem.writers[number]})
            worth.append((size / spent if spent else float(size), at))
        plan = simulator.save_all()
        for ratio, at in sorted(worth, key=lambda one: (-one[0], one[1])):
            if ratio:
                for number in simulator.units[at]:
                    plan[number] = ONCE
                yield simulator.cost(plan), plan

    def _exactly(self, budget: int, bound: float | None) -> Planned:
        best = best_of_all(self.simulator, budget)
        if best is None:
            return self._found(budget, bound)
        self.archive.offer(*best, "every plan tried")
        found = self._found(budget, bound, proven=True)
        return Planned(budget, found.peak, found.seconds, found.plan, found.method, found.seconds, proven=True)

    def _tidied(self, point: Point) -> Point:
        """The plan in canonical form: recomputed for each use only where that is better than once."""
        cost, plan = point.cost, list(point.plan)
        for number in self.simulator.choices:
            if plan[number] == AGAIN:
                plan[number] = ONCE
                found = self.simulator.cost(plan)
                if found.peak > cost.peak or found.seconds > cost.seconds:
                    plan[number] = AGAIN
        return Point(cost, bytes(plan), point.method)

    def _is_proven(self, budget: int, bound: float | None) -> bool:
        point = self.archive.within(budget)
        return point is not None and bound is not None and point.cost.seconds <= bound * (1 + 1e-9)

    def _found(self, budget: int, bound: float | None, *, proven: bool = False) -> Planned:
        point = self._tidied(self.archive.within(budget) or self.archive.lowest)
        met = point.cost.peak <= budget
        return Planned(
            budget,
            point.cost.peak,
            point.cost.seconds,
            point.plan,
            point.method,
            bound,
            met and (proven or self._is_proven(budget, bound)),
        )


def plan_checkpoints(problem: CheckpointProblem, budget: int, *, seconds: float = 10.0, steps: int | None = None, seed: int = 0) -> Planned:
    """The quickest plan within a budget of bytes that can be found in a time.

    With `steps` the search is as long as that, whatever the time, and gives the same plan every time.
    """
    return CheckpointPlanner(problem, seed=seed).plan(budget, seconds=seconds, steps=steps)
