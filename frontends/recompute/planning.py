"""From a live module and a budget to policies of checkpointing that are checked on tensors without data."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from irscope.errors import UsageError
from irscope.frontends.eager.running import bench
from irscope.frontends.recompute.policy import Occurrence, RegionPolicy, checkpointed
from irscope.frontends.recompute.recorded import SIMPLE_COSTS, CostModel, RecordedStep, divisions, problem_of, recorded_peak
from irscope.memory.checkpointing.regions import RegionSimulator
from irscope.memory.checkpointing.solve import CheckpointPlanner
from irscope.report.units import Kind, humanise

Loss = Callable[[Any], torch.Tensor]
"""From what the module returns to a number."""

_ROUNDS = 4
"""How often the budget of the search is lowered when the step that was checked needs more than was simulated."""


@dataclass(frozen=True)
class ModulePlan:
    """What to save and what to recompute in a module's step, and what that costs."""

    policies: tuple[RegionPolicy, ...]
    budget: int
    kept_peak: int
    """Peak of what the step makes when nothing is recomputed."""
    peak: int
    """The same under the plan: found by running the checkpointed step on tensors without data."""
    simulated: int
    """The same as the search saw it."""
    step_seconds: float
    """Time of the step when nothing is recomputed, by the cost model."""
    seconds: float
    """Extra time, by the same."""
    bound: float | None
    """Extra time that every plan needs, also those that no policy can express."""

    @property
    def met(self) -> bool:
        """Whether the plan is within the budget."""
        return self.peak <= self.budget

    def document(self) -> dict[str, object]:
        """The plan as it goes into JSON."""
        return {
            "format": "irscope-checkpoint-plan",
            "version": 1,
            "budget_bytes": self.budget,
            "peak_bytes": self.peak,
            "kept_peak_bytes": self.kept_peak,
            "step_seconds": self.step_seconds,
            "extra_seconds": self.seconds,
            "regions": [{"module": one.module, "save": [list(pair) for pair in sorted(one.save)]} for one in self.policies],
        }


def policies_of(document: Mapping[str, Any]) -> tuple[RegionPolicy, ...]:
    """The policies in a plan's JSON."""
    try:
        if document["format"] != "irscope-checkpoint-plan":
            raise KeyError("format")
        return tuple(
            RegionPolicy(str(one["module"]), frozenset((str(name), int(count)) for name, count in one["save"]))
            for one in document["regions"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError("this is no checkpoint plan", code="IRS392", hint="irscope.plan_checkpoints(...).document() gives one") from error


def plan_module(
    module: nn.Module,
    args: Sequence[Any],
    loss: Loss,
    budget: int | Callable[[int], int],
    kwargs: Mapping[str, Any] | None = None,
    *,
    seconds: float = 10.0,
    steps: int | None = None,
    seed: int = 0,
    costs: CostModel = SIMPLE_COSTS,
    device: str = "cpu",
) -> ModulePlan:
    """A plan under which what the step makes stays within a budget of bytes, gradients included, parameters and inputs not.

    The budget may be a function of the peak when everything is kept.
    Regions are modules, each run again as a whole except for what is saved, as `torch.utils.checkpoint` does.
    """
    return _ModulePlanner(module, args, kwargs or {}, loss, costs, device).plan(budget, seconds, steps, seed)


class _ModulePlanner:
    def __init__(
        self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], loss: Loss, costs: CostModel, device: str
    ) -> None:
        self.module, self.args, self.kwargs, self.loss, self.device = module, args, kwargs, loss, device
        self.kept_peak, self.step = self._recorded((), costs)
        problem = self.step.problem
        self.resident = sum(one.size for one in problem.storages if one.is_input)
        self.planners = [CheckpointPlanner(problem, simulator=RegionSimulator(problem, regions)) for regions in divisions(self.step)]

    def plan(self, asked: int | Callable[[int], int], seconds: float, steps: int | None, seed: int) -> ModulePlan:
        """Search, check on tensors without data, and search again with less where the check needs more."""
        budget = asked if isinstance(asked, int) else asked(self.kept_peak)
        deadline = time.monotonic() + seconds
        if budget >= self.kept_peak or not self.planners:
            return self._planned((), budget, self.kept_peak, self.kept_peak, 0.0, 0.0)
        floor = self.planners[0].bounds.floor.bytes - self.resident
        if budget < floor:
            raise UsageError(
                f"no plan needs less than {humanise(floor, Kind.BYTES)} besides parameters and inputs: "
                f"a budget of {humanise(budget, Kind.BYTES)} cannot be met",
                code="IRS390",
                hint="a smaller batch needs less; so does a lower precision",
            )
        target, best = budget, None
        for left in range(_ROUNDS, 0, -1):
            spare = max(0.0, deadline - time.monotonic()) / left
            found = replace(self._search(target, spare, steps, seed), budget=budget)
            if best is None or (found.met, -found.seconds if found.met else -found.peak) > (
                best.met,
                -best.seconds if best.met else -best.peak,
            ):
                best = found
            if found.met:
                break
            target -= (found.peak - budget) * 5 // 4 + 1
            if target < floor:
                break
        assert best is not None
        return best

    def _search(self, target: int, seconds: float, steps: int | None, seed: int) -> ModulePlan:
        """The best plan among all ways to divide the module into regions."""
        wanted = target + self.resident
        # Where some divisions reach the budget at once, the others are not worth the time.
        able = [one for one in self.planners if one.plan(wanted, seconds=0, steps=0).met] or self.planners
        found = []
        for planner in able:
            planner.seed = seed
            planned = planner.plan(wanted, seconds=seconds / len(able), steps=steps)
            found.append((not planned.met, planned.seconds if planned.met else planned.peak, planner, planned))
        _, _, planner, planned = min(found, key=lambda one: one[:2])
        assert isinstance(planner.simulator, RegionSimulator)
        policies = policies_for(self.step, planner.simulator, list(planned.plan))
        peak, _ = self._recorded(policies, None)
        return self._planned(policies, target, peak, planned.peak - self.resident, planned.seconds, planned.bound)

    def _planned(
        self, policies: tuple[RegionPolicy, ...], budget: int, peak: int, simulated: int, seconds: float, bound: float | None
    ) -> ModulePlan:
        return ModulePlan(policies, budget, self.kept_peak, peak, simulated, self.step.problem.seconds, seconds, bound)

    def _recorded(self, policies: Sequence[RegionPolicy], costs: CostModel | None) -> tuple[int, RecordedStep]:
        """Peak of the step on tensors without data, and its problem."""
        with bench(self.module, self.args, self.kwargs, grad=True, device=self.device) as ready, checkpointed(ready.module, policies):
            ready.module.train()
            record = ready.record(lambda: self.loss(ready.forward()).backward())
        return recorded_peak(record), problem_of(record, costs or SIMPLE_COSTS)


def policies_for(step: RecordedStep, simulator: RegionSimulator, plan: list[int]) -> tuple[RegionPolicy, ...]:
    """The policies that carry out a plan of regions."""
    chains = simulator.chains(plan)
    found: list[RegionPolicy] = []
    for region in simulator.regions:
        if region.trigger not in chains or all(simulator.is_saved(plan, op) for op in region.operators):
            continue
        saved = {step.ops[op].number for op in region.operators if simulator.is_saved(plan, op)}
        counts: Counter[str] = Counter()
        save: set[Occurrence] = set()
        prefix = f"{region.module}."
        for op in step.record.ops:
            if op.phase == "forward" and f"{op.scope.module}.".startswith(prefix):
                name = str(op.func)
                if op.number in saved:
                    save.add((name, counts[name]))
                counts[name] += 1
        found.append(RegionPolicy(region.module, frozenset(save)))
    return tuple(found)
