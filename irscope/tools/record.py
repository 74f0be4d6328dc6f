"""Named models and training steps for the process that records them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from irscope.frontends.base import LoadOptions
from irscope.ir.spelling import parse_type
from irscope.recording.records import Input
from irscope.training import StepOptions

FACTORY = "irscope.tools.record:make"
"""Function by which the recording process makes a named model."""


def make(name: str, inputs: Mapping[str, str], bind: Mapping[str, int]) -> tuple[Any, tuple[Any, ...], dict[str, Any], tuple[str, ...]]:
    """Return a named model with random weights, its arguments by position and by name, and what the inputs are called."""
    from irscope.frontends.zoo.load import make_named  # it imports torch

    types = {key: parse_type(text) for key, text in inputs.items()}
    made = make_named(name, LoadOptions(inputs=types, bind=dict(bind)), hollow=False)
    arguments, keywords = made.arguments(real=True)
    return made.module, arguments, keywords, tuple(one.name for one in made.chosen.inputs if not one.is_plain)


STEP_FACTORY = "irscope.tools.record:make_step"
"""Function by which it makes a training step."""


@dataclass
class RealStep:
    """A training step of a model with values, ready to be run again and again."""

    step: Callable[[], None]
    inputs: tuple[Input, ...]
    optimizer: str
    loss: str
    assumed: tuple[str, ...] = ()


def make_step(name: str, inputs: Mapping[str, str], bind: Mapping[str, int], wanted: StepOptions, device: Any) -> RealStep:
    """Return a step as `irscope train-plan` captures it, of a model with random weights or of what a user's function returned."""
    import torch  # what runs here is real

    from irscope.frontends.eager.steps import Auto, check_trainable, maker_of, objective_of, train_once
    from irscope.frontends.zoo.load import make_named
    from irscope.tools.capture import tune, with_own

    options = LoadOptions(inputs={key: parse_type(text) for key, text in inputs.items()}, bind=dict(bind))
    made = make_named(name, options, hollow=False)
    setup = wanted.setup()
    if setup.tuning is not None:
        tune(made, setup.tuning, name)
    if made.script is not None:
        setup = with_own(made.script, setup, options)
    module = made.module.to(device).train()
    check_trainable(module)
    args, kwargs = torch.utils._pytree.tree_map(
        lambda one: one.to(device) if isinstance(one, torch.Tensor) else one, made.arguments(real=True)
    )
    labels = kwargs.get("input_ids")
    if setup.loss is None and labels is not None and "labels" in inspect.signature(module.forward).parameters:
        kwargs = {**kwargs, "labels": labels}
    objective = objective_of(setup.loss)
    optimizer = maker_of(setup.optimizer, None, dict(setup.options))(module.parameters())

    def step() -> None:
        train_once(setup, lambda: module(*args, **kwargs), objective, optimizer, device.type)

    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    names = [one.name for one in made.chosen.inputs if not one.is_plain]
    known = zip([*names, *(str(at) for at in range(len(names), len(leaves)))], leaves, strict=False)
    from irscope.measure.record.torchmodel import type_text

    said = setup.loss if isinstance(setup.loss, str) else "the model's own" if isinstance(objective, Auto) else "a function of the script's"
    return RealStep(step, tuple(Input(one, type_text(leaf.dtype, leaf.shape)) for one, leaf in known), type(optimizer).__name__, said)
