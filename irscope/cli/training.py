"""What `irscope train-plan` opens, writes and sweeps over."""

from __future__ import annotations

import argparse
from dataclasses import replace

from irscope.cli.args import load_options, settings_from
from irscope.errors import UsageError
from irscope.memory.checkpointing.solve import CheckpointPlans
from irscope.passes.activations import ActivationList, Activations
from irscope.passes.checkpoint import Checkpoint, Checkpointed
from irscope.passes.training.exports import activations_csv, nodes_csv
from irscope.passes.training.replayed import StepMemory
from irscope.passes.training_memory import TrainingMemory
from irscope.session import Model
from irscope.trainingcapture import Training, open_training


def training_from(args: argparse.Namespace) -> Training:
    """How the step is made, from arguments."""
    if args.accumulate < 1:
        raise UsageError("--accumulate must be at least 1", code="IRS373")
    options: dict[str, object] = {}
    if args.fused:
        options["fused"] = True
    if args.foreach or args.one_by_one:
        options["foreach"] = args.foreach
    return Training(args.loss, args.optimizer, options, not args.keep_gradients, args.accumulate, args.autocast, args.answers_zero)


def opened(args: argparse.Namespace, batch: int | None = None) -> Model:
    """The captured step; `batch` replaces the size of the batch, of a named model or of a script's function that takes one."""
    options = load_options(args)
    if batch is not None:
        options = replace(options, bind={**options.bind, "batch": batch})
    return open_training(str(args.model), options, training_from(args), settings_from(args))


def memory_of(model: Model) -> StepMemory:
    """The step's memory."""
    found: StepMemory = model.manager.get(TrainingMemory())
    return found


def kept_of(model: Model, link: float) -> ActivationList:
    """What the step keeps."""
    found: ActivationList = model.manager.get(Activations(link=link))
    return found


def plans_of(model: Model, seconds: float) -> CheckpointPlans:
    """Plans of what to recompute, for budgets from everything kept to the least."""
    found: Checkpointed = model.manager.get(Checkpoint(seconds=seconds))
    return found.plans


def node_lines(model: Model, link: float) -> str:
    """The CSV of operators."""
    return nodes_csv(memory_of(model), kept_of(model, link).times)


def activation_lines(model: Model, link: float) -> str:
    """The CSV of kept activations."""
    found = kept_of(model, link)
    return activations_csv(memory_of(model), found.kept, found.times)
