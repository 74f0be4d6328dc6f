"""Extra time of checkpointing under a budget, planner by planner: `python -m benchmarks.checkpointing [--seconds 15] [MODEL ...]`.

Times are those of a simple cost model (100 TFLOP/s, 1.5 TB/s, 2 microseconds for a launch), peaks those of the exact simulator.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterable

import torch
from torch._subclasses import FakeTensorMode

from benchmarks.checkpointmodels import MODELS
from irscope.solvers.checkpoint.problem import CheckpointProblem
from irscope.solvers.checkpoint.simulate import Cost
from irscope.solvers.checkpoint.solve import CheckpointPlanner
from tests.tools.joint import JointGraph, joint_with_descriptors, read_problem, torch_budgets

BUDGETS = (0.9, 0.75, 0.6, 0.5, 0.4)
PLANNERS = ("μ-TWO", "knapsack", "Chen's segments", "articulation segments")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| model | budget | μ-TWO | knapsack | Chen's segments | articulation | found | bound | gap | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    others: list[str] = []
    for name in args.models or list(MODELS):
        with FakeTensorMode():
            module, inputs = MODELS[name]()
            began = time.perf_counter()
            joint = joint_with_descriptors(module.train(), inputs)
            problem = read_problem(joint)
            captured = time.perf_counter() - began
            others += _torch_rows(name, joint, problem)
        _rows(name, joint, problem, args.seconds, captured)
    print("\n| model | activation_memory_budget | saved MiB | peak | extra time |\n|---|---|---|---|---|")
    print("\n".join(others))


def _rows(name: str, joint: JointGraph, problem: CheckpointProblem, seconds: float, captured: float) -> None:
    planner = CheckpointPlanner(problem)
    full = planner.save_all.peak
    operators = sum(node.op == "call_function" for node in joint.graph.nodes)
    title = f"{name}: {operators} operators, {full / 2**20:.1f} MiB, captured in {captured:.1f} s"
    for share in BUDGETS:
        budget = int(share * full)
        if budget < planner.bounds.floor.bytes:
            print(f"| {title} | {share:.0%} | | | | | no plan needs less than {planner.bounds.floor.bytes / full:.1%} | | | |")
            continue
        began = time.perf_counter()
        found = planner.plan(budget, seconds=seconds)
        spent = time.perf_counter() - began
        cells = [_best(planner.baselines.get(one, ()), budget, full, problem.seconds) for one in PLANNERS]
        cells.append(_percent(found.seconds / problem.seconds) if found.met else f"MISS ({found.peak / full:.2f})")
        cells.append("none" if found.bound is None else _percent(found.bound / problem.seconds))
        gap = "" if found.bound is None else _percent((problem.seconds + found.seconds) / (problem.seconds + found.bound) - 1)
        print(f"| {title} | {share:.0%} | {' | '.join(cells)} | {gap} | {spent:.1f} |", flush=True)
        title = ""


def _torch_rows(name: str, joint: JointGraph, problem: CheckpointProblem) -> list[str]:
    full = CheckpointPlanner(problem).save_all.peak
    step = read_problem(joint, launch_views=False).seconds
    return [
        f"| {name} | {one.budget} | {one.saved / 2**20:.1f} | {one.peak / full:.2f} | {_percent(one.seconds / step - 1)} |"
        for one in torch_budgets(joint)
    ]


def _best(costs: Iterable[Cost], budget: int, full: int, step: float) -> str:
    known = list(costs)
    within = [one.seconds for one in known if one.peak <= budget]
    if within:
        return _percent(min(within) / step)
    return f"MISS ({min((one.peak for one in known), default=full) / full:.2f})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    main()
