"""Branch and bound: the optimal plan of a small problem."""

from __future__ import annotations

from irscope.memory.checkpointing.bounds import Bounds
from irscope.memory.checkpointing.simulate import AGAIN, KEEP, ONCE, Cost, Simulator


def best_of_all(simulator: Simulator, budget: int, most: int = 200_000) -> tuple[Cost, list[int]] | None:
    """The quickest plan within a budget; None where no plan is within it.

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
        """Whether what is decided takes too long already: what is read later and not kept has to be made at least once."""
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
