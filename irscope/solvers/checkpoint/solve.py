"""Plans for memory budgets, and the curve of peak against time, each with a lower bound."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.report.units import Kind, humanise
from irscope.solvers.checkpoint.problem import Bounds, CheckpointProblem, Network, Phase
from irscope.solvers.checkpoint.simulate import AGAIN, KEEP, ONCE, Cost, Simulator
from irscope.solvers.worktime import WorkTime

# Pareto front of the plans seen so far: for each peak the least time.


@immutable
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
        """Return the quickest plan whose peak is within a budget."""
        at = bisect.bisect_right(self._peaks, budget)
        return self.points[at - 1] if at else None

    @property
    def lowest(self) -> Point:
        """Return the plan with the lowest peak."""
        return self.points[0]

    def near(self, budget: int, price: float) -> Point:
        """Return the plan to start from when a byte above the budget costs this many seconds."""
        return min(self.points, key=lambda point: point.cost.seconds + price * max(0, point.cost.peak - budget))


# The greedy choice of the μ-TWO compiler, with its updates of sources, stopped by the exact simulator.


@dataclass
class _Candidate:
    """A storage that the backward reads, and what making it again takes."""

    number: int
    sources: set[int]
    """Storages that it is computed from and that are still live."""
    seconds: float
    total: float
    """The same, and what it adds to those that are made from it."""

    def ratio(self, size: int) -> float:
        return size / self.total if self.total > 0 else float("inf")


def greedy(simulator: Simulator, *, gated: bool = True) -> Iterator[tuple[Cost, list[int]]]:
    """One plan after each choice: most bytes per second of recomputing first.

    With a gate only what lies idle at the peak may be chosen: nothing else can lower it.
    """
    problem = simulator.problem
    plan = simulator.save_all()
    cost = simulator.cost(plan)
    yield cost, plan
    candidates = {number: _candidate(problem, simulator, number) for number in problem.saved if problem.droppable[number]}
    chosen: list[_Candidate] = []
    while candidates:
        able = [candidate for candidate in candidates.values() if not gated or _idle_at(problem, candidate.number, cost.where)]
        if not able:
            return
        best = max(able, key=lambda one: (one.ratio(problem.storages[one.number].size), -one.number))
        del candidates[best.number]
        _choose(best, chosen, candidates)
        plan = plan.copy()
        plan[best.number] = ONCE
        cost = simulator.cost(plan)
        yield cost, plan


def _choose(best: _Candidate, chosen: list[_Candidate], candidates: dict[int, _Candidate]) -> None:
    """Tell those recomputed before and those that remain that one more is no longer there."""
    times = 1
    for prior in chosen:
        if best.number in prior.sources:
            prior.sources = (prior.sources - {best.number}) | best.sources
            prior.seconds += best.seconds
            times += 1
    chosen.append(best)
    for candidate in candidates.values():
        if best.number in candidate.sources:
            candidate.sources = (candidate.sources - {best.number}) | best.sources
            candidate.seconds += best.seconds
            candidate.total = candidate.seconds * (1 + sum(candidate.number in prior.sources for prior in chosen))
        elif candidate.number in best.sources:
            candidate.total = candidate.seconds * (times + 1)


def _candidate(problem: CheckpointProblem, simulator: Simulator, number: int) -> _Candidate:
    operators, sources = recipe(problem, simulator.save_all(), number)
    seconds = sum(problem.operators[op].seconds for op in operators)
    return _Candidate(number, sources, seconds, seconds)


def recipe(problem: CheckpointProblem, plan: Sequence[int], number: int) -> tuple[list[int], set[int]]:
    """Return operators that make a storage from what a plan really keeps, in order, and what they start from."""
    operators: set[int] = set()
    sources: set[int] = set()
    stack = [number]
    while stack:
        for writer in problem.writers[stack.pop()]:
            if writer in operators:
                continue
            operators.add(writer)
            for source in problem.operators[writer].reads:
                if source in problem.operators[writer].writes:
                    continue
                if plan[source] and problem.droppable[source] and problem.storages[source].size:
                    stack.append(source)
                else:
                    sources.add(source)
    return sorted(operators), sources


def _idle_at(problem: CheckpointProblem, number: int, at: int) -> bool:
    return problem.last_forward[number] < at < problem.later_readers[number][0]


# Plans for memory budgets, and the curve of peak against time, each with a lower bound.

# Simulated annealing over plans: keep one storage more, one less, or exchange two, evaluated by the exact simulator.

_HOT = (3e-4, 3e-5, 3e-3)
"""Temperatures at the beginning of a round, as shares of the time of the step; rounds take them in turn."""
_COLD = 1e-5
"""The same at the end."""
_PRICE = 3.0
"""Price of a whole peak above the budget, in times of the step."""
_DEARER = 20.0
"""By how much that grows each time."""
_FLIPS, _LIKE = 0.5, 0.8
"""Draws below these change one storage, or exchange two that look alike; the rest exchange any two."""
_REPEATS = 0.2
"""Probability that a discarded storage is recomputed for each use separately."""


class Annealer:
    """Looks for the quickest plan within a budget, near the plans that an archive has already."""

    def __init__(self, simulator: Simulator, archive: Archive, seed: int) -> None:
        self.simulator = simulator
        self.archive = archive
        self.random = random.Random(seed)
        problem = simulator.problem
        self.units = simulator.units
        alike: dict[tuple[tuple[int, ...], tuple[float, ...]], list[int]] = {}
        for at, unit in enumerate(self.units):
            sizes = tuple(problem.storages[number].size for number in unit)
            times = tuple(problem.operators[op].seconds for number in unit for op in problem.writers[number])
            alike.setdefault((sizes, times), []).append(at)
        self.alike = {at: members for members in alike.values() for at in members}
        self.can_repeat = AGAIN in simulator.states
        self.full = max(1, simulator.cost(simulator.save_all()).peak)
        self.step = problem.seconds or 1.0

    def run(self, budget: int, steps: int, late: Callable[[], bool], turn: int = 0, misses: int = 0) -> bool:
        """Try a number of changes, fewer when it gets late; whether time was left.

        `misses` is how often no plan within the budget was found: bytes above it get dearer each time.
        """
        if not self.units:
            return True
        price = _PRICE * _DEARER**misses * self.step / self.full
        hot = _HOT[turn % len(_HOT)]
        plan = list(self.archive.near(budget, price).plan)
        energy = self._energy(self.simulator.cost(plan), budget, price)
        for done in range(steps):
            if not done % 64 and late():
                return False
            heat = self.step * hot * (_COLD / hot) ** (done / steps)
            undo = self._change(plan)
            if not undo:
                continue
            cost = self.simulator.cost(plan)
            reached = self._energy(cost, budget, price)
            if reached <= energy or self.random.random() < math.exp((energy - reached) / heat):
                energy = reached
                self.archive.offer(cost, plan, "local search")
            else:
                for number, state in undo:
                    plan[number] = state
        return True

    def _energy(self, cost: Cost, budget: int, price: float) -> float:
        over = cost.peak - budget
        return cost.seconds + (price * over + self.step * 2e-3 if over > 0 else 0.0)

    def _change(self, plan: list[int]) -> list[tuple[int, int]]:
        """Change the plan a little; what it was before."""
        draw = self.random.random()
        at = self.random.randrange(len(self.units))
        before = plan[self.units[at][0]]
        if draw < _FLIPS:
            if before == KEEP:
                after = AGAIN if self.can_repeat and self.random.random() < _REPEATS else ONCE
            else:
                after = ONCE + AGAIN - before if self.can_repeat and draw > _FLIPS * (1 - _REPEATS / 2) else KEEP
            return self._set(plan, at, after)
        other = self.random.choice(self.alike[at]) if draw < _LIKE else self.random.randrange(len(self.units))
        there = plan[self.units[other][0]]
        if there == before:
            return []
        return self._set(plan, at, there) + self._set(plan, other, before)

    def _set(self, plan: list[int], at: int, state: int) -> list[tuple[int, int]]:
        undo = [(number, plan[number]) for number in self.units[at]]
        for number in self.units[at]:
            plan[number] = state
        return undo


# Baseline planners: a knapsack on saved bytes, and segments of the forward (Chen and others).

_BUCKETS = 1000
_SWEPT = 48


def knapsack(simulator: Simulator) -> Iterator[tuple[Cost, list[int]]]:
    """Solve a knapsack over recomputation time for many shares of the saved bytes, as torch's activation_memory_budget does."""
    problem = simulator.problem
    base = simulator.save_all()
    items = [number for number in problem.saved if problem.droppable[number] and problem.storages[number].size]
    total = sum(problem.storages[number].size for number in items)
    if not total:
        return
    weights = [max(1, problem.storages[number].size * _BUCKETS // total) for number in items]
    values = [sum(problem.operators[op].seconds for op in recipe(problem, base, number)[0]) for number in items]
    best = [0.0] * (_BUCKETS + 1)
    taken: list[bytearray] = []
    for weight, value in zip(weights, values, strict=True):
        row = bytearray(_BUCKETS + 1)
        for room in range(_BUCKETS, weight - 1, -1):
            with_it = best[room - weight] + value
            if with_it > best[room]:
                best[room] = with_it
                row[room] = 1
        taken.append(row)
    for share in range(_SWEPT + 1):
        room = share * _BUCKETS // _SWEPT
        plan = base.copy()
        for at in range(len(items) - 1, -1, -1):
            if taken[at][room]:
                room -= weights[at]
            else:
                plan[items[at]] = ONCE
        yield simulator.cost(plan), plan


def segments(simulator: Simulator, *, articulation: bool = False) -> Iterator[tuple[Cost, list[int]]]:
    """Keep what crosses the ends of segments with about as many saved bytes each, for many numbers of segments (Chen and others).

    With `articulation` a segment may only end where a single storage crosses.
    """
    problem = simulator.problem
    forward = [at for at, op in enumerate(problem.operators) if op.phase is Phase.FORWARD]
    saved = set(problem.saved)
    made = [sum(problem.storages[write].size for write in problem.operators[at].writes if write in saved) for at in forward]
    total = sum(made)
    crossing = _crossing(problem, forward)
    seen: set[bytes] = set()
    for count in range(1, _SWEPT):
        ends: list[int] = []
        gathered = 0
        for place, at in enumerate(forward):
            gathered += made[place]
            if gathered * count >= total and (not articulation or len(crossing[place]) == 1):
                ends.append(place)
                gathered = 0
            if at == forward[-1]:
                break
        plan = _keeping(simulator, {number for place in ends for number in crossing[place]})
        if bytes(plan) not in seen:
            seen.add(bytes(plan))
            yield simulator.cost(plan), plan


def _crossing(problem: CheckpointProblem, forward: list[int]) -> list[list[int]]:
    """Return, for each operator of the forward, what lies there after it and is still read by the forward."""
    begins: dict[int, list[int]] = {}
    for number in range(len(problem.storages)):
        if problem.droppable[number] and problem.storages[number].size:
            begins.setdefault(problem.first_touch[number], []).append(number)
    live: list[int] = []
    found: list[list[int]] = []
    for at in forward:
        live = [number for number in (*live, *begins.get(at, ())) if problem.last_forward[number] > at]
        found.append(live)
    return found


def _keeping(simulator: Simulator, kept: Iterable[int]) -> list[int]:
    plan = [KEEP] * len(simulator.problem.storages)
    for number in simulator.choices:
        plan[number] = ONCE
    for number in kept:
        plan[number] = KEEP
    return plan


# Branch and bound: the optimal plan of a small problem.


def best_of_all(simulator: Simulator, budget: int, most: int = 200_000) -> tuple[Cost, list[int]] | None:
    """Return the quickest plan within a budget; None where no plan is within it.

    Raises `OverflowError` where more than `most` plans would have to be simulated.
    """
    return _Search(simulator, budget, most).run()


class _Search:
    def __init__(self, simulator: Simulator, budget: int, most: int) -> None:
        self.simulator = simulator
        self.budget = budget
        self.left = most
        problem = simulator.problem
        # What is later read and largest decides most.
        self.order = sorted(simulator.choices, key=lambda one: (not problem.later_readers[one], -problem.storages[one].size, one))
        self.best: tuple[Cost, list[int]] | None = None

    def run(self) -> tuple[Cost, list[int]] | None:
        simulator, problem = self.simulator, self.simulator.problem
        if Bounds(problem).floor.bytes > self.budget:
            return None
        plan = simulator.save_all()
        # Each level of the search holds the states that its storage has yet to take.
        stack: list[list[int]] = [[AGAIN, ONCE, KEEP]]
        while stack:
            if not stack[-1]:
                stack.pop()
                continue
            depth = len(stack) - 1
            if depth == len(self.order):
                stack.pop()
                self._try(plan)
                continue
            plan[self.order[depth]] = stack[-1].pop()
            if self._hopeless(plan, depth + 1):
                continue
            stack.append([AGAIN, ONCE, KEEP] if depth + 1 < len(self.order) else [0])
        return self.best

    def _try(self, plan: list[int]) -> None:
        self.left -= 1
        if self.left < 0:
            raise OverflowError("the problem is too large for trying every plan")
        cost = self.simulator.cost(plan)
        if cost.peak <= self.budget and (self.best is None or cost.seconds < self.best[0].seconds):
            self.best = cost, plan.copy()

    def _hopeless(self, plan: list[int], decided: int) -> bool:
        """Return whether what is decided takes too long already: what is read later and not kept has to be made at least once."""
        if self.best is None:
            return False
        problem = self.simulator.problem
        again = {
            writer
            for number in self.order[:decided]
            if plan[number] != KEEP and problem.later_readers[number]
            for writer in problem.writers[number]
        }
        return sum(problem.operators[writer].seconds for writer in again) >= self.best[0].seconds


# Plans for memory budgets, and the curve of peak against time, each with a lower bound.

_SMALL = 7
"""With at most this many choices branch and bound is used."""
_ROUND = 6000
"""Steps of a round where their number is given."""
_SHARE = 0.35
"""Share of the remaining time that a round gets."""
_PRICES = 48


@immutable(slots=False)
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
    """True where it is proven that no plan within the budget is quicker."""

    @property
    def met(self) -> bool:
        """Return whether the plan is within the budget."""
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
        self, problem: CheckpointProblem, *, seed: int = 0, watch: Callable[[str], None] | None = None, simulator: Simulator | None = None
    ) -> None:
        self.simulator = simulator or Simulator(problem)
        self.problem = problem = self.simulator.problem
        self.archive = Archive()
        self.bounds = Bounds(problem)
        self.seed = seed
        self.watch = watch
        plan = self.simulator.save_all()
        self._work = WorkTime(0)
        self.is_free = AGAIN in self.simulator.states
        """True where each storage can be chosen independently."""
        self.tries_all = self.is_free
        """True where every plan is tried if there are few choices."""
        self.save_all = self.simulator.cost(plan)
        self.archive.offer(self.save_all, plan, "everything kept")
        self.baselines: dict[str, list[Cost]] = {}
        self._seeded = False

    def plan(self, budget: int, *, seconds: float = 10.0, steps: int | None = None) -> Planned:
        """Return the quickest plan within a budget of bytes, found in so many CPU seconds of this thread, or in a number of steps."""
        if budget < self.bounds.floor.bytes:
            raise UsageError(self._too_small(budget), code="IRS390", hint="a smaller batch needs less; so does a lower precision")
        clock = WorkTime(seconds)

        def late() -> bool:
            return steps is None and clock.over()

        self._seed_archive(late)
        bound = self.bounds.seconds(budget)
        if self.tries_all and len(self.simulator.choices) <= _SMALL:
            return self._exactly(budget, bound)
        annealer = Annealer(self.simulator, self.archive, self.seed)
        turn, misses, left = 0, 0, steps
        while not late() and not self._is_proven(budget, bound) and (left is None or left > 0):
            count = self._round(clock.left) if left is None else min(max(_ROUND // 16, min(_ROUND, (steps or 0) // 5)), left)
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
        clock = WorkTime(seconds)
        found: list[Planned] = []
        for at, budget in enumerate(able):
            left = max(0.0, clock.left) / (len(able) - at)
            found.append(self.plan(budget, seconds=left, steps=steps))
        # A plan that was found for a smaller budget may be the best one for a larger budget.
        return [self._found(planned.budget, planned.bound, proven=planned.proven) for planned in found]

    def result(self, planned: Sequence[Planned]) -> CheckpointPlans:
        """Return all plans and bounds found so far."""
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
        """Return steps of a round that leave time for more rounds; by how long plans have taken so far."""
        spent = max(1e-4, self._work.used)
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
        """Yield what is best kept when a byte has a price, for many prices."""
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
        for ratio, at in sorted(worth, key=lambda pair: (-pair[0], pair[1])):
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
        """Return the plan in canonical form: recomputed for each use only where that is better than once."""
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
            budget, point.cost.peak, point.cost.seconds, point.plan, point.method, bound, met and (proven or self._is_proven(budget, bound))
        )


def plan_checkpoints(problem: CheckpointProblem, budget: int, *, seconds: float = 10.0, steps: int | None = None, seed: int = 0) -> Planned:
    """Return the quickest plan within a budget of bytes that can be found in a time.

    With `steps` the search is as long as that, whatever the time, and gives the same plan every time.
    """
    return CheckpointPlanner(problem, seed=seed).plan(budget, seconds=seconds, steps=steps)
