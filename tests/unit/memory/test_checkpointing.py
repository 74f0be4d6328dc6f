"""Planning what to recompute: small steps whose answers are known by hand."""

from __future__ import annotations

import pytest

from irscope.errors import UsageError
from irscope.solvers.checkpoint.problem import Bounds, Phase, Repeat, StepOperator, StepStorage, checkpoint_problem
from irscope.solvers.checkpoint.simulate import AGAIN, KEEP, ONCE, Cost, Region, RegionSimulator, Simulator
from irscope.solvers.checkpoint.solve import Archive, CheckpointPlanner, greedy, knapsack, plan_checkpoints, recipe, segments
from tests.unit.memory.stepgraphs import chain, slow_cost


def test_everything_kept_is_plain_liveness() -> None:
    simulator = Simulator(chain(3))
    cost = simulator.cost(simulator.save_all())
    # Weights, input, three results, and the first gradient.
    assert (cost.peak, cost.seconds) == (1000 + 100 + 300 + 100, 0.0)
    assert simulator.problem.operators[cost.where].name == "backward 2"


def test_what_is_dropped_is_made_again_right_before_its_use() -> None:
    simulator = Simulator(chain(3))
    plan = simulator.save_all()
    plan[3] = ONCE  # what the second layer makes
    rewritten = simulator.rewrite(plan)
    names = [simulator.problem.operators[op].name for op in rewritten.sequence]
    assert names == ["layer 0", "layer 1", "layer 2", "layer 1", "backward 2", "backward 1", "backward 0"]
    assert rewritten.cost.seconds == 1.0
    assert max(rewritten.needs) == rewritten.cost.peak == slow_cost(simulator.problem, plan)[0]


def test_chains_start_from_what_is_really_kept() -> None:
    problem = chain(4)
    simulator = Simulator(problem)
    plan = simulator.save_all()
    plan[3] = plan[4] = ONCE
    assert recipe(problem, plan, 4) == ([1, 2], {0, 2})
    assert [problem.operators[op].name for op in simulator.chains(plan)[4]] == ["layer 1", "layer 2"]


def test_once_and_anew_for_each_use_differ() -> None:
    problem = chain(5)
    simulator = Simulator(problem)
    plan = simulator.save_all()
    plan[3] = plan[4] = plan[5] = ONCE
    once = simulator.cost(plan)
    plan[3] = plan[4] = AGAIN
    again = simulator.cost(plan)
    assert once.seconds == 3.0
    assert again.seconds > once.seconds


def _random_step(repeat: Repeat, replay: bool) -> Simulator:
    storages = [StepStorage("x", 10, True, True), StepStorage("dropped out", 50), StepStorage("g", 5, False, True)]
    operators = [StepOperator("dropout", (0,), (1,), 1.0, repeat=repeat), StepOperator("backward", (1,), (2,), 1.0, Phase.BACKWARD)]
    return Simulator(checkpoint_problem(operators, storages, replay_random=replay))


def test_random_numbers_are_replayed_or_kept() -> None:
    assert _random_step(Repeat.REPLAYED, replay=True).choices == [1]
    assert _random_step(Repeat.REPLAYED, replay=False).choices == []
    assert _random_step(Repeat.NEVER, replay=True).choices == []


def test_what_was_written_over_since_is_no_source() -> None:
    storages = [StepStorage(name, 10) for name in "abc"] + [StepStorage("g", 1, False, True)]
    operators = [
        StepOperator("make", (), (0,), 1.0),
        StepOperator("read", (0,), (1,), 1.0),
        StepOperator("over", (0,), (0,), 1.0),
        StepOperator("backward", (1, 0), (3,), 1.0, Phase.BACKWARD),
    ]
    problem = checkpoint_problem(operators, storages)
    assert not problem.can_repeat[1]
    assert not problem.droppable[1]
    # What was made and written over as a whole can be had again, by both in order.
    assert problem.droppable[0]
    simulator = Simulator(problem)
    plan = simulator.save_all()
    plan[0] = ONCE
    assert simulator.chains(plan) == {3: [0, 2]}


def test_a_second_update_of_what_stays_is_refused() -> None:
    storages = [StepStorage("counter", 8, True, True), StepStorage("result", 10), StepStorage("g", 1, False, True)]
    operators = [StepOperator("normalise", (), (0, 1), 1.0), StepOperator("backward", (1,), (2,), 1.0, Phase.BACKWARD)]
    assert checkpoint_problem(operators, storages).choices == []


def test_batches_live_as_long_as_something_is_made_from_them() -> None:
    simulator = Simulator(chain(3))
    plan = simulator.save_all()
    plan[2] = ONCE
    assert simulator.cost(plan).peak == slow_cost(simulator.problem, plan)[0]


def test_greedy_is_one_storage_more_each_time_and_gated_by_the_peak() -> None:
    simulator = Simulator(chain(6))
    plans = list(greedy(simulator))
    assert [sum(state != KEEP for state in plan) for _, plan in plans] == list(range(len(plans)))
    assert len(list(greedy(simulator, gated=False))) == 7
    assert min(cost.peak for cost, _ in plans) < plans[0][0].peak


def test_segments_reach_below_keeping_everything() -> None:
    simulator = Simulator(chain(12))
    full = simulator.cost(simulator.save_all()).peak
    for plans in (segments(simulator), segments(simulator, articulation=True)):
        assert min(cost.peak for cost, _ in plans) < full


def test_saving_nothing_needs_as_much_as_saving_everything() -> None:
    simulator = Simulator(chain(12))
    costs = [cost for cost, _ in knapsack(simulator)]
    # All of it is made again for the first operator of the backward. This is what a knapsack on saved bytes cannot see.
    assert costs[0].peak == costs[-1].peak == simulator.cost(simulator.save_all()).peak
    assert costs[0].seconds == 12.0 and costs[-1].seconds == 0.0


def test_the_archive_keeps_no_plan_that_another_one_beats() -> None:
    archive = Archive()
    for peak, seconds in ((10, 1.0), (5, 3.0), (7, 2.0), (7, 1.5), (6, 4.0), (5, 3.0), (4, 9.0), (3, 0.5)):
        archive.offer(Cost(peak, seconds, 0), [peak], "test")
    assert [(point.cost.peak, point.cost.seconds) for point in archive.points] == [(3, 0.5)]
    assert archive.within(2) is None


def test_a_budget_below_the_floor_names_the_floor() -> None:
    problem = chain(4)
    floor = Bounds(problem).floor
    # Weights, the input that the last operator reads, and operands and result of a backward in the middle.
    assert floor.bytes == 1000 + 100 + 400
    with pytest.raises(UsageError, match=r"no plan needs less than 1\.46 KiB, at backward") as caught:
        plan_checkpoints(problem, 1200)
    assert caught.value.code == "IRS390"


def test_plans_in_steps_are_the_same_every_time() -> None:
    problem = chain(20)
    budget = 1000 + 1000
    first, second = (plan_checkpoints(problem, budget, steps=800, seed=3) for _ in range(2))
    assert first == second
    assert first.met
    assert first.bound is not None and first.bound <= first.seconds


def test_curves_fall() -> None:
    planner = CheckpointPlanner(chain(16))
    planned = planner.curve(planner.even_budgets(6), steps=400)
    assert [planned.budget for planned in planned] == sorted((planned.budget for planned in planned), reverse=True)
    within = [planned.seconds for planned in planned if planned.met]
    assert within == sorted(within)
    assert planned[0].proven and planned[0].seconds == 0


def test_regions_run_again_as_a_whole() -> None:
    problem = chain(6)
    # Layers 1 to 3; the backward of layer 3 needs something first.
    simulator = RegionSimulator(problem, [Region("block", (1, 2, 3), 8, 4)])
    plan = simulator.save_all()
    assert simulator.chains(plan) == {}
    plan[3] = plan[4] = ONCE
    assert simulator.chains(plan) == {8: [1, 2, 3]}
    assert simulator.cost(plan).peak < simulator.cost(simulator.save_all()).peak
    plan[3] = KEEP
    assert simulator.chains(plan) == {8: [2, 3]}


def test_a_region_that_others_write_into_is_none() -> None:
    storages = [StepStorage("x", 10, True, True), StepStorage("a", 10), StepStorage("b", 10), StepStorage("g", 1, False, True)]
    operators = [
        StepOperator("make", (0,), (1,), 1.0),
        StepOperator("more", (1,), (2,), 1.0),
        StepOperator("over", (2,), (2,), 1.0),
        StepOperator("backward", (1, 2), (3,), 1.0, Phase.BACKWARD),
    ]
    assert RegionSimulator(checkpoint_problem(operators, storages), [Region("block", (0, 1), 3, 2)]).regions == []


def test_operators_that_write_over_one_storage_are_saved_together() -> None:
    storages = [StepStorage("x", 10, True, True), StepStorage("a", 10), StepStorage("mean", 2), StepStorage("g", 1, False, True)]
    operators = [
        StepOperator("normalise", (0,), (1, 2), 1.0),
        StepOperator("over", (1,), (1,), 1.0),
        StepOperator("outside", (1,), (3,), 1.0),
        StepOperator("backward", (1, 2), (3,), 1.0, Phase.BACKWARD),
    ]
    simulator = RegionSimulator(checkpoint_problem(operators, storages), [Region("block", (0, 1), 3, 2)])
    assert len(simulator.units) == 1
    plan = simulator.save_all()
    assert simulator.is_saved(plan, 0) and simulator.is_saved(plan, 1)
    for number in simulator.units[0]:
        plan[number] = ONCE
    assert simulator.chains(plan) == {3: [0, 1]}
