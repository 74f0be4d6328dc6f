"""Baseline planners: a knapsack on saved bytes, and segments of the forward (Chen and others)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from irscope.memory.checkpointing.greedy import recipe
from irscope.memory.checkpointing.problem import CheckpointProblem, Phase
from irscope.memory.checkpointing.simulate import KEEP, ONCE, Cost, Simulator

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
    made = [sum(problem.storages[one].size for one in problem.operators[at].writes if one in saved) for at in forward]
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
    """For each operator of the forward, what lies there after it and is still read by the forward."""
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
