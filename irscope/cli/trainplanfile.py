"""Writes the plan that `irscope.apply_checkpoints` carries out on the live module."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from irscope.cli.training import memory_of
from irscope.errors import UsageError
from irscope.files import write_text
from irscope.memory.checkpointing.simulate import Simulator
from irscope.passes.checkpoint import budget_of
from irscope.passes.training.needed import trace_in
from irscope.passes.training.recompute import step_problem
from irscope.passes.training.times import StepTimes
from irscope.report.report import Report
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity
from irscope.session import Model
from irscope.training.trace import LiveStep, Trace

if TYPE_CHECKING:
    from irscope.frontends.eager.checkpointing import ModulePlan


def check_plan_file(args: argparse.Namespace) -> None:
    """Refuses before any work what could not be planned."""
    if not args.budget:
        raise UsageError("--plan-out writes the plan for a budget", code="IRS394", hint="`--budget 60%` or `--budget 24GiB`")
    if args.autocast:
        raise UsageError("plans for the live module are made without autocast", code="IRS394", hint="leave out --autocast or --plan-out")
    if args.batches or args.memory:
        raise UsageError("--plan-out is for one size of the batch", code="IRS394", hint="`--bind batch=64 --budget 24GiB --plan-out FILE`")


def write_plan(args: argparse.Namespace, model: Model) -> Report:
    """Plan in whole modules with operators that are saved, as `torch.utils.checkpoint` can, and write it down."""
    from irscope.frontends.eager.checkpointing import plan_module
    from irscope.frontends.eager.steps import objective_of

    trace = trace_in(model.program)
    live = trace.live
    if not isinstance(live, LiveStep):
        raise UsageError(
            "there is no live module to plan for, only a graph", code="IRS394", hint="the checkpoint pass says what to recompute in a graph"
        )
    target = memory_of(model).target
    budget, others = _budget(trace, StepTimes(target.device), args.budget)
    device = "cpu" if target.device.kind == "cpu" else "cuda"
    plan = plan_module(
        live.module,  # type: ignore[arg-type]  # an nn.Module: the trace itself does not know torch
        live.args,
        objective_of(live.loss),  # type: ignore[arg-type]  # a name or a function, as capture took it
        max(0, budget - others),
        live.kwargs,
        seconds=args.seconds,
        device=device,
    )
    written = {**plan.document(), "model": trace.model, "step_budget_bytes": budget, "step_peak_bytes": plan.peak + others}
    write_text(Path(args.plan_out), [json.dumps(written, indent=1), "\n"])
    return _report(args.plan_out, plan, budget, others)


def _budget(trace: Trace, times: StepTimes, text: str) -> tuple[int, int]:
    """Bytes of the budget, and of what is there all the time and is neither activation nor gradient."""
    step = step_problem(trace, times.of)
    problem = step.problem
    simulator = Simulator(problem)
    budget = budget_of(text, simulator.cost(simulator.save_all()).peak)
    pairs = zip(problem.storages, step.pieces, strict=True)
    return budget, sum(one.size for one, piece in pairs if one.is_input and one.is_output and piece.category != "gradient")


def _report(path: str, plan: ModulePlan, budget: int, others: int) -> Report:
    notes = ["the plan is in whole modules and operators of them that are saved, as torch.utils.checkpoint carries out"]
    if not plan.met:
        notes.append(
            f"no plan of this kind within {humanise(budget, Kind.BYTES)} was found: this one comes nearest; the checkpoint pass is freer"
        )
    return Report(
        "plan",
        options="plan",
        summary={
            "file": path,
            "modules_count": len(plan.policies),
            "budget_bytes": budget,
            "budget_met": plan.met,
            "planned_peak_bytes": plan.peak + others,
            "stays_bytes": others,
            "extra_seconds": Quantity(plan.seconds, Provenance.MODELLED),
            "extra_ratio": Quantity(plan.seconds / plan.step_seconds if plan.step_seconds else None, Provenance.MODELLED),
        },
        notes=tuple(notes),
    )
