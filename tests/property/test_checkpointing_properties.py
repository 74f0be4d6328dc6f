"""Plans of checkpointing against a slow simulator and against trying every plan."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from irscope.solvers.checkpoint.problem import Bounds
from irscope.solvers.checkpoint.simulate import Simulator
from irscope.solvers.checkpoint.solve import CheckpointPlanner, best_of_all
from tests.unit.memory.stepgraphs import STATES, random_step, slow_cost

SEEDS = st.integers(0, 10**9)


@given(SEEDS, st.integers(1, 9))
@settings(max_examples=300, deadline=None)
def test_costs_are_those_of_the_slow_simulator(seed: int, count: int) -> None:
    problem = random_step(seed, count)
    simulator = Simulator(problem)
    plan = simulator.save_all()
    draw = random.Random(seed)
    for number in problem.choices:
        plan[number] = draw.choice(STATES)
    cost = simulator.cost(plan)
    assert (cost.peak, round(cost.seconds, 6)) == slow_cost(problem, plan)


@given(SEEDS, st.integers(2, 6))
@settings(max_examples=60, deadline=None)
def test_no_plan_is_better_than_the_bounds(seed: int, count: int) -> None:
    problem = random_step(seed, count)
    choices = problem.choices[:6]
    simulator, bounds = Simulator(problem), Bounds(problem)
    plan = simulator.save_all()
    costs = []
    for states in itertools.product(STATES, repeat=len(choices)):
        for number, state in zip(choices, states, strict=True):
            plan[number] = state
        costs.append(simulator.cost(plan))
    assert min(cost.peak for cost in costs) >= bounds.floor.bytes
    for budget in sorted({cost.peak for cost in costs}):
        least = bounds.seconds(budget)
        assert least is not None
        assert least <= min(cost.seconds for cost in costs if cost.peak <= budget) + 1e-6


@given(SEEDS, st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_local_search_finds_what_trying_every_plan_finds(seed: int, count: int) -> None:
    problem = random_step(seed, count)
    simulator = Simulator(problem)
    if not 0 < len(problem.choices) <= 5:
        return
    full = simulator.cost(simulator.save_all()).peak
    budget = max(Bounds(problem).floor.bytes, full * 8 // 10)
    best = best_of_all(simulator, budget)
    planner = CheckpointPlanner(problem)
    planner.tries_all = False
    found = planner.plan(budget, steps=2500)
    if best is None:
        assert not found.met
    else:
        assert found.met
        assert abs(found.seconds - best[0].seconds) < 1e-9
