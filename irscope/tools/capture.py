"""Training steps of live modules, of named models and of a user's script: captured for passes, or made to be recorded as they run."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from irscope import diskcache
from irscope.devices import target_of
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError, UsageError
from irscope.frontends.base import LoadOptions
from irscope.frontends.detect import detect
from irscope.frontends.load import path_of
from irscope.frontends.zoo.names import is_name, is_script
from irscope.frontends.zoo.packages import check_installed
from irscope.ir.graph import paused_gc
from irscope.ir.program import WEIGHTS, Assumed, Program
from irscope.ir.spelling import parse_type
from irscope.optiontext import OptionsError, read_options
from irscope.passes.graph.transforms import Annotate
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings
from irscope.session import Model, check_target
from irscope.training import StepOptions, StepSetup, Tuning
from irscope.weights.schemes import parse_scheme

if TYPE_CHECKING:
    from torch import nn

    from irscope.frontends.zoo.adapters import Lora
    from irscope.frontends.zoo.load import Made
    from irscope.frontends.zoo.scripts import Script
    from irscope.recording.records import Input

_FAILED = ("IRS189", "IRS379")
"""Codes of a step that raises."""


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
    compile: bool | Mapping[str, Any] = False,
) -> Model:
    """Run training steps of an nn.Module on a pretended device, without data, and make a model of the step.

    `inputs` are the arguments of the forward: a tuple, a mapping for named ones, or one tensor; real, fake or on the meta device.
    `loss` makes a scalar of what the module returns: a function, or "cross-entropy", "mse", "mean", "sum"; by default the loss that the
    module returns, else cross entropy of scores with two axes, else the mean. `optimizer` is a name such as "adamw" with its
    `optimizer_options`, a function of the parameters, or an optimizer over the module's own parameters. `accumulate` forwards and
    backwards go into a step; `autocast` is "bf16" or "f16". Where the model asks for values of tensors they are computed from the inputs;
    with `answers_zero` they are zeros, as over stand-ins for CUDA's libraries. The module stays as it is.
    `compile` is True, or arguments of torch.compile such as {"mode": "max-autotune"}: then operators are the kernels of the compiled
    forward and backward, and memory is what they ask for. So it is for a module that torch.compile returned, or that holds compiled ones.
    """
    settings = Settings(device=device, torch=torch, alloc_conf=alloc_conf)
    made = StepSetup(loss, optimizer, dict(optimizer_options or {}), set_to_none, accumulate, autocast, answers_zero, compile=compile)
    from irscope.frontends.zoo.scripts import arguments_of

    args, kwargs = arguments_of(inputs)
    return train_module(module, args, kwargs, made, settings, name)


def train_module(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], made: StepSetup, settings: Settings, name: str = ""
) -> Model:
    """Return the model of a module's training step."""
    check_target(settings)
    sink = DiagnosticSink()
    return _model_of(_step_program(module, args, kwargs, made, settings, name, sink), settings, sink)


def _step_program(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], made: StepSetup, settings: Settings, name: str, sink: DiagnosticSink
) -> Program:
    from irscope.frontends.simulation import train_module as trained

    program = trained(module, args, kwargs, made, target=target_of(settings), sink=sink, name=name)
    program.path = name
    return program


def _model_of(program: Program, settings: Settings, sink: DiagnosticSink) -> Model:
    with paused_gc():
        types = Annotate()
        manager = Manager(program, settings=settings, annotate=types)
        manager.apply(types)
    return Model(manager, tuple(sink), LoadOptions())


def open_training(text: str, options: LoadOptions, made: StepSetup, settings: Settings) -> Model:
    """Return the training step of a model.

    It has a name ("torchvision:resnet50"), or is what a function in a script returns ("./train.py:build").
    """
    if is_name(text):
        return _named_model(text, options, replace(made, compile=options.compile), settings)
    if not text.endswith((".onnx", ".pt2")):
        detect(path_of(text))  # a word, a folder, a recording or a script has a line of its own
    raise UsageError(
        "a training step is captured from a live module",
        code="IRS384",
        where=text,
        hint="torchvision:resnet50, or ./train.py:build for a function that returns (module, inputs, loss, optimizer)",
    )


def _named_model(text: str, options: LoadOptions, made: StepSetup, settings: Settings) -> Model:
    check_target(settings)
    check_installed(text)
    sink = DiagnosticSink()
    asked = _asked(made)
    if options.use_cache and asked and not diskcache.is_off():
        from irscope.frontends.zoo.kept import kept

        program = kept(text, lambda found: _named_step(text, options, made, settings, found), options, sink, settings, asked)
    else:
        program = _named_step(text, options, made, settings, sink)
    return _model_of(program, settings, sink)


def _asked(made: StepSetup) -> str:
    """Return a step's settings as text; nothing where they are the user's own functions, of which nobody knows what they follow from."""
    own = (made.loss, made.optimizer, *made.options.values())
    return f"step {made}" if all(isinstance(one, str | int | float | None) for one in own) else ""


def _named_step(text: str, options: LoadOptions, made: StepSetup, settings: Settings, sink: DiagnosticSink) -> Program:
    """Return the step of a model whose large weights have no values; of a user's own one with values where its code wants them."""
    if not is_script(text):
        return _made_step(text, options, made, settings, sink, hollow=True)
    said = DiagnosticSink()
    try:
        program = _made_step(text, options, made, settings, said, hollow=True)
    except LoadError:  # its own code looks at values, or puts tensors together that have some and that have none
        return _made_step(text, options, made, settings, sink, hollow=False)
    for one in said:
        sink.add(one)
    return program


def _made_step(text: str, options: LoadOptions, made: StepSetup, settings: Settings, sink: DiagnosticSink, *, hollow: bool) -> Program:
    from irscope.frontends.zoo.load import make_named, quiet

    named = make_named(text, options, hollow=hollow)
    if made.tuning is not None:
        tune(named, made.tuning, text)
    args, kwargs = named.arguments(real=not hollow)
    if named.script is not None:
        made = with_own(named.script, made, options)
    labels = kwargs.get("input_ids")

    def trained(kwargs: Mapping[str, Any]) -> Program:
        said = DiagnosticSink()
        program = _step_program(named.module, args, kwargs, made, settings, text, said)
        program.assumed[:0] = named.assumed
        for one in said:
            sink.add(one)
        return program

    with quiet():
        if made.loss is None and labels is not None and "labels" in inspect.signature(named.module.forward).parameters:
            # Models of texts compute their own loss where they get labels; not all want one for each token.
            try:
                return trained({**kwargs, "labels": labels})
            except LoadError as error:
                if error.code not in _FAILED:
                    raise
        return trained(kwargs)


_TUNING: Final = "`--lora r=16,targets=q_proj+v_proj`"


def lora_of(text: str) -> Lora:
    """New matrices from "r=16,targets=q_proj+v_proj"; what is not said is as usual with peft, but that all linear layers have them."""
    from irscope.frontends.zoo.adapters import Lora

    try:
        given, _ = read_options(f"{text}}}")
    except OptionsError as error:
        raise UsageError(f"--lora {text}: {error}", code="IRS389", hint=_TUNING) from None
    unknown = sorted(given.keys() - {"r", "alpha", "targets", "dropout"})
    if unknown:
        raise UsageError(f"--lora has no setting {unknown[0]!r}", code="IRS389", hint="r, alpha, targets, dropout")
    numbers: dict[str, float] = {}
    for key, least, most in (("r", 1, 1 << 16), ("alpha", 0, math.inf), ("dropout", 0, 1)):
        try:
            numbers[key] = float(given.get(key) or {"r": 8, "alpha": given.get("r") or 8}.get(key, 0))
        except ValueError:
            numbers[key] = math.nan
        if not least <= numbers[key] <= most or (key == "r" and numbers[key] % 1):
            raise UsageError(f"{key}={given[key]} is no {'whole number' if key == 'r' else 'number'} for it", code="IRS389", hint=_TUNING)
    targets = tuple(one for one in (given.get("targets") or "").split("+") if one and one != "all-linear")
    return Lora(int(numbers["r"]), numbers["alpha"], targets, numbers["dropout"])


def tune(named: Made, tuning: Tuning, text: str) -> None:
    """Freeze, store and switch on what was asked for."""
    from irscope.frontends.zoo.adapters import store
    from irscope.frontends.zoo.adapters import tune as adapt

    module: Any = named.module
    assumed: list[Assumed] = []
    if tuning.lora:
        lora = lora_of(tuning.lora)
        adapt(module, lora, text)
        assumed.append(Assumed("trained", f"{lora}, in f32", "--lora", is_guess=False))
    is_frozen = not all(one.requires_grad for one in module.parameters())
    if tuning.store_as:
        if not is_frozen:
            raise UsageError(
                "weights in few bits cannot be trained", code="IRS389", where=text, hint=f"train matrices beside them: {_TUNING}"
            )
        scheme = parse_scheme(tuning.store_as)
        kernel = store(module, scheme, text)
        assumed.append(Assumed(WEIGHTS, f"frozen ones of linear layers as {scheme.text}", "--as", is_guess=False))
        assumed.append(Assumed("kernels", kernel, "modelled, since they do not run here"))
    if tuning.recomputes:
        # transformers 5 gave it another name
        enable = getattr(module, "activation_checkpointing_enable", None) or getattr(module, "gradient_checkpointing_enable", None)
        if enable is None:
            raise UsageError(
                "the model has no gradient checkpointing of its own", code="IRS389", where=text, hint="--budget finds what to recompute"
            )
        enable({"use_reentrant": False})
        if is_frozen:
            module.enable_input_require_grads()  # as peft does: else nothing before the first matrices needs a gradient
        assumed.append(Assumed("recomputed", "every layer in the backward", "--gradient-checkpointing", is_guess=False))
    named.recipe = replace(named.recipe, assumed=(*named.recipe.assumed, *assumed))


def with_own(script: Script, made: StepSetup, options: LoadOptions) -> StepSetup:
    """Return the step with the loss and the optimizer that a user's function returned."""
    if script.inputs is not None and "batch" in options.bind and not script.takes_batch:
        raise UsageError(
            f"{script.symbol}() makes its own inputs and takes no size of the batch",
            code="IRS386",
            where=script.where,
            hint=f"def {script.symbol}(batch=8): ...",
        )
    own = {} if script.optimizer is None else {"optimizer": script.optimizer, "options": {}}
    return replace(made, **own, **({} if script.loss is None else {"loss": script.loss}))


# Models and steps with values, for the process that records them.

FACTORY = "irscope.tools.capture:make"
"""Function by which the recording process makes a named model."""


def make(
    name: str, inputs: Mapping[str, str], bind: Mapping[str, int], trusted: bool
) -> tuple[Any, tuple[Any, ...], dict[str, Any], tuple[str, ...]]:
    """Return a named model with random weights, its arguments by position and by name, and what the inputs are called."""
    from irscope.frontends.zoo.load import make_named  # it imports torch

    types = {key: parse_type(text) for key, text in inputs.items()}
    made = make_named(name, LoadOptions(inputs=types, bind=dict(bind), trust_remote_code=trusted), hollow=False)
    arguments, keywords = made.arguments(real=True)
    return made.module, arguments, keywords, tuple(one.name for one in made.chosen.inputs if not one.is_plain)


STEP_FACTORY = "irscope.tools.capture:make_step"
"""Function by which it makes a training step."""


@dataclass
class RealStep:
    """A training step of a model with values, ready to be run again and again."""

    step: Callable[[], None]
    inputs: tuple[Input, ...]
    optimizer: str
    loss: str
    assumed: tuple[str, ...] = ()


def make_step(name: str, inputs: Mapping[str, str], bind: Mapping[str, int], trusted: bool, wanted: StepOptions, device: Any) -> RealStep:
    """Return a step as `irscope train-plan` captures it, of a model with random weights or of what a user's function returned."""
    import torch  # what runs here is real

    from irscope.frontends.eager.steps import Auto, check_trainable, maker_of, objective_of, train_once
    from irscope.frontends.zoo.load import make_named

    types = {key: parse_type(text) for key, text in inputs.items()}
    options = LoadOptions(inputs=types, bind=dict(bind), trust_remote_code=trusted)
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
    from irscope.recording.records import Input

    said = setup.loss if isinstance(setup.loss, str) else "the model's own" if isinstance(objective, Auto) else "a function of the script's"
    return RealStep(step, tuple(Input(one, type_text(leaf.dtype, leaf.shape)) for one, leaf in known), type(optimizer).__name__, said)
