"""Training steps of live modules, of named models and of a user's script, ready for passes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irscope.devices import target_of
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError, UsageError
from irscope.frontends.base import LoadOptions
from irscope.frontends.detect import detect
from irscope.frontends.load import path_of
from irscope.frontends.zoo.names import is_name, is_script
from irscope.ir.graph import paused_gc
from irscope.passes.graph.transforms import Annotate
from irscope.passes.training.joint import joint_trace
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings
from irscope.session import Model, check_target, open_model

if TYPE_CHECKING:
    from torch import nn

    from irscope.frontends.zoo.scripts import Script

_FAILED = ("IRS189", "IRS379")
"""Codes of a step that raises."""


@dataclass(frozen=True)
class StepSetup:
    """How a step is made; see `capture_training`."""

    loss: str | Callable[[Any], Any] | None = None
    optimizer: Any = "sgd"
    options: Mapping[str, Any] = field(default_factory=dict)
    set_to_none: bool = True
    accumulate: int = 1
    autocast: str = ""
    answers_zero: bool = False


def capture_training(
    module: nn.Module,
    inputs: Any = (),
    *,
    loss: str | Callable[[Any], Any] | None = None,
    optimizer: Any = "sgd",
    optimizer_options: Mapping[str, Any] | None = None,
    set_to_none: bool = True,
    accumulate: int = 1,
    autocast: str = "",
    answers_zero: bool = False,
    device: str = "",
    torch: str = "",
    alloc_conf: str = "",
    name: str = "",
) -> Model:
    """Run training steps of an nn.Module on a pretended device, without data, and make a model of the step.

    `inputs` are the arguments of the forward: a tuple, a mapping for named ones, or one tensor; real, fake or on the meta device.
    `loss` makes a scalar of what the module returns: a function, or "cross-entropy", "mse", "mean", "sum"; by default the loss that the
    module returns, else cross entropy of scores with two axes, else the mean. `optimizer` is a name such as "adamw" with its
    `optimizer_options`, a function of the parameters, or an optimizer over the module's own parameters. `accumulate` forwards and
    backwards go into a step; `autocast` is "bf16" or "f16". Where the model asks for values of tensors they are computed from the inputs;
    with `answers_zero` they are zeros, as over stand-ins for CUDA's libraries. The module stays as it is.
    """
    settings = Settings(device=device, torch=torch, alloc_conf=alloc_conf)
    made = StepSetup(loss, optimizer, dict(optimizer_options or {}), set_to_none, accumulate, autocast, answers_zero)
    from irscope.frontends.zoo.scripts import arguments_of

    args, kwargs = arguments_of(inputs)
    return train_module(module, args, kwargs, made, settings, name)


def train_module(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], made: StepSetup, settings: Settings, name: str = ""
) -> Model:
    """The model of a module's training step."""
    from irscope.frontends.eager.steps import Plan
    from irscope.frontends.eager.steptrace import training_program

    check_target(settings)
    sink = DiagnosticSink()
    plan = Plan(made.loss, made.optimizer, made.options, made.set_to_none, made.accumulate, made.autocast, answers_zero=made.answers_zero)
    program = training_program(module, args, kwargs, plan, target_of(settings), sink, name)
    program.path = name
    with paused_gc():
        types = Annotate()
        manager = Manager(program, settings=settings, annotate=types)
        manager.apply(types)
    return Model(manager, tuple(sink), LoadOptions())


def open_training(text: str, options: LoadOptions, made: StepSetup, settings: Settings) -> Model:
    """The training step of a model.

    It has a name ("torchvision:resnet50"), is what a function in a script returns ("./train.py:build"), or is a joint graph ("joint.pt2").
    """
    if is_name(text):
        return _named_model(text, options, made, settings)
    if text.endswith(".pt2"):
        return _joint(Path(text), options, settings)
    if not text.endswith(".onnx"):
        detect(path_of(text))  # a word, a folder, a recording or a script has a line of its own
    raise UsageError(
        "a training step is captured from a live module, or read from a joint graph in a .pt2 file",
        code="IRS384",
        where=text,
        hint="torchvision:resnet50, or ./train.py:build for a function that returns (module, inputs, loss, optimizer)",
    )


def _joint(path: Path, options: LoadOptions, settings: Settings) -> Model:
    """A graph that holds forward and backward; torch is not needed."""
    model = open_model(path, options, settings=settings)
    with paused_gc():
        model.program.training = joint_trace(model.manager)
    return model


def _named_model(text: str, options: LoadOptions, made: StepSetup, settings: Settings) -> Model:
    from irscope.frontends.zoo.load import make_named, quiet

    script = is_script(text)
    named = make_named(text, options, hollow=not script)
    args, kwargs = named.arguments(real=script)
    if named.script is not None:
        made = _with_own(named.script, made, options)
    labels = kwargs.get("input_ids")

    def trained(kwargs: Mapping[str, Any]) -> Model:
        model = train_module(named.module, args, kwargs, made, settings, text)
        model.program.assumed[:0] = named.assumed
        return model

    with quiet():
        if made.loss is None and labels is not None and "labels" in inspect.signature(named.module.forward).parameters:
            # Models of texts compute their own loss where they get labels; not all want one for each token.
            try:
                return trained({**kwargs, "labels": labels})
            except LoadError as error:
                if error.code not in _FAILED:
                    raise
        return trained(kwargs)


def _with_own(script: Script, made: StepSetup, options: LoadOptions) -> StepSetup:
    """The step with the loss and the optimizer that a user's function returned."""
    if script.inputs is not None and "batch" in options.bind and not script.takes_batch:
        raise UsageError(
            f"{script.symbol}() makes its own inputs and takes no size of the batch",
            code="IRS386",
            where=script.where,
            hint=f"def {script.symbol}(batch=8): ...",
        )
    own = {} if script.optimizer is None else {"optimizer": script.optimizer, "options": {}}
    return replace(made, **own, **({} if script.loss is None else {"loss": script.loss}))
