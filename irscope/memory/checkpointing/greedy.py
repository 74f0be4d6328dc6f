"""The greedy choice of the μ-TWO compiler, with its updates of sources, stopped by the exact simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from irscope.memory.checkpointing.problem import CheckpointProblem
from irscope.memory.checkpointing.simulate import ONCE, Cost, Simulator


@dataclass
class _Candidate:
    """A storage that the backward reads, and what making it again takes."""

    number: int
    sources: set[int]
    """What it is made from that is still there."""
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
        able = [one for one in candidates.values() if not gated or _idle_at(problem, one.number, cost.where)]
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
    for one in candidates.values():
        if best.number in one.sources:
            one.sources = (one.sources - {best.number}) | best.sources
            one.seconds += best.seconds
            one.total = one.seconds * (1 + sum(one.number in prior.sources for prior in chosen))
        elif one.number in best.sources:
            one.total = one.seconds * (times + 1)


def _candidate(problem: CheckpointProblem, simulator: Simulator, number: int) -> _Candidate:
    operators, sources = recipe(problem, simulator.save_all(), number)
    seconds = sum(problem.operators[op].seconds for op in operators)
    return _Candidate(number, sources, seconds, seconds)


def recipe(problem: CheckpointProblem, plan: Sequence[int], number: int) -> tuple[list[int], set[int]]:
    """Operators that make a storage from what a plan really keeps, in order, and what they start from."""
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
