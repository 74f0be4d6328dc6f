"""Simulated annealing over plans: keep one storage more, one less, or exchange two, evaluated by the exact simulator."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from irscope.memory.checkpointing.archive import Archive
from irscope.memory.checkpointing.simulate import AGAIN, KEEP, ONCE, Cost, Simulator

_HOT = (3e-4, 3e-5, 3e-3)
"""Temperatures at the beginning of a round, as shares of the time of the step; rounds take them in turn."""
_COLD = 1e-5
"""The same at the end."""
_PRICE = 3.0
"""What a whole peak above the budget costs, in times of the step."""
_DEARER = 20.0
"""By how much that grows each time."""
_FLIPS, _LIKE = 0.5, 0.8
"""Draws below these change one storage, or exchange two that look alike; the rest exchange any two."""
_REPEATS = 0.2
"""How often a discarded storage is recomputed for each use separately."""


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
