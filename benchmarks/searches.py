"""Searches that work for a number of CPU seconds: orders of 100,000 operators, and checkpoint plans."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Iterator
from typing import Final

from benchmarks.measurement import Measurement
from benchmarks.scheduling import LAYERED
from irscope.solvers.order.solve import best_order

SECONDS: Final = 20.0
"""For an order; it ends before where an order is proven to be the best."""
PLAN_SECONDS: Final = 14.0
PLANS: Final = (("TF-12L", 0.5, 0.103), ("TF-2L", 0.6, 0.131), ("CNN-16", 0.5, 0.153))
"""Models, shares of the peak, and the extra time of the plan that was found at the last release, as a share of the step."""
_SHOWN: Final = 0.0005


def measure() -> Iterator[Measurement | str]:
    """Time and quality: the best known order beside the bound, and extra time of plans."""
    for title, make in LAYERED.items():
        if not title.startswith("100,000"):
            continue
        problem = make()
        began = time.process_time()
        ordering = best_order(problem, seconds=SECONDS)
        yield Measurement(f"order of {title}", time.process_time() - began, "CPU s", goal=SECONDS * 1.05)
        yield Measurement("the same: peak beside the bound", ordering.peak, "bytes", "bound", ordering.peak / ordering.bound, 1.0)
    if importlib.util.find_spec("torch") is None:
        yield "torch is not installed: no checkpoint plans"
        return
    yield from _plans()


def _plans() -> Iterator[Measurement]:
    import torch
    from torch._subclasses import FakeTensorMode

    from benchmarks.checkpointmodels import MODELS
    from irscope.solvers.checkpoint.solve import CheckpointPlanner
    from tests.tools.joint import joint_with_descriptors, read_problem

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name, share, goal in PLANS:
        with FakeTensorMode():
            module, inputs = MODELS[name]()
            problem = read_problem(joint_with_descriptors(module.train(), inputs))
        planner = CheckpointPlanner(problem)
        found = planner.plan(int(share * planner.save_all.peak), seconds=PLAN_SECONDS)
        extra = found.seconds / problem.seconds if found.met else float("inf")
        title = f"checkpoint plan of {name} within {share:.0%} of the peak, {PLAN_SECONDS:g} CPU s: extra time"
        yield Measurement(title, 100 * extra, "% of the step", goal=100 * (goal + _SHOWN))
