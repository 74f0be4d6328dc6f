"""Training steps of a live module under fake tensors: loss, optimizer, and what cannot be trained."""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from irscope.devices import Target
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError, UsageError
from irscope.frontends.eager.fakes import Fakes
from irscope.frontends.eager.optimizing import watched_steps
from irscope.frontends.eager.record import Record, Storage
from irscope.frontends.eager.recorder import StepRecorder
from irscope.frontends.eager.routes import attention
from irscope.frontends.eager.running import Bench, bench
from irscope.ir.program import Assumed
from irscope.training import Phase, StepSetup

_AUTOCAST: Final = {"bf16": torch.bfloat16, "f16": torch.float16}


@dataclass
class Recorded:
    """Recorded steps, with the roles of their storages."""

    record: Record
    starts: list[tuple[int, int]]
    """For each step its first operator and how many storages had been freed before it; the end comes last."""
    gradients: dict[Storage, str] = field(default_factory=dict)
    """Storages of gradients with the parameter they belong to."""
    states: dict[Storage, str] = field(default_factory=dict)
    """Storages of the optimizer's states, each with its name."""
    resident: list[Storage] = field(default_factory=list)
    """Storages on the device before the first step, in the order of allocation."""
    optimizer: str = ""
    has_scopes: bool = False
    """True where operators of the backward and of the optimizer record their own module, where it is known."""


def record_steps(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    plan: StepSetup,
    target: Target,
    sink: DiagnosticSink | None = None,
) -> Recorded:
    """Run the steps; raises one clear error where the module cannot be trained."""
    check_trainable(module)
    objective = objective_of(plan.loss)
    with ExitStack() as stack:
        is_plain = stack.enter_context(_without_library(module, sink))
        device = "cpu" if target.device.kind == "cpu" else "cuda"
        ready = stack.enter_context(bench(module, args, kwargs, grad=True, device=device, target=target, sink=sink, watch=StepRecorder))
        stack.enter_context(fused_and_foreach())
        stack.enter_context(_whole_operators())
        stack.enter_context(explained())
        module.train()
        assert isinstance(ready.recorder, StepRecorder)
        ready.recorder.answers_zero = plan.answers_zero
        if is_plain:
            plain = Assumed("recurrent layers", "PyTorch's own kernels", "what cuDNN keeps of them for the backward is not known")
            ready.recorder.record.assumed[plain] = ""
        run = _Run(ready, plan, objective, maker_of(plan.optimizer, ready.fakes, dict(plan.options)))
        recorded = run.record(target)
        if plan.loss is None and isinstance(objective, Auto) and objective.taken not in ("", OWN):
            recorded.record.assumed[Assumed("loss", objective.taken, "default; --loss NAME", is_guess=False)] = ""
        return recorded


@contextmanager
def _whole_operators() -> Iterator[None]:
    """Backward operators with CUDA kernels are kept; torch without CUDA would decompose them."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for name in ("silu_backward", "mish_backward"):
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CUDA"):
                library.impl(name, _never_runs, "CUDA")
        yield
    finally:
        library._destroy()


def _never_runs(*args: Any) -> Any:
    raise AssertionError("fake tensors do not come here")


@contextmanager
def _without_library(module: nn.Module, sink: DiagnosticSink | None) -> Iterator[bool]:
    """Recurrent layers run by PyTorch's own kernels: what cuDNN saves of them for the backward is only known on a device.

    Yields whether that makes a difference.
    """
    if not any(isinstance(one, nn.RNNBase) for one in module.modules()) or not torch.backends.cudnn.enabled:
        yield False
        return
    if sink is not None:
        sink.warn(
            "IRS380",
            "recurrent layers are counted as with torch.backends.cudnn.enabled = False: "
            "what cuDNN keeps of them for the backward is not known",
            about="recurrent",
        )
    with torch.backends.cudnn.flags(enabled=False):
        yield True


def train_once(
    plan: StepSetup,
    forward: Callable[[], Any],
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    device: str,
    enter: Callable[[Phase], None] = lambda _: None,
) -> None:
    """Make one step; `enter` is called where each phase begins, for the optimizer also before gradients are cleared."""
    wanted = _AUTOCAST.get(plan.autocast)
    enter("optimizer")
    optimizer.zero_grad(set_to_none=plan.set_to_none)
    for _ in range(plan.accumulate):
        enter("forward")
        with nullcontext() if wanted is None else torch.autocast(device, dtype=wanted):
            out = forward()  # held as by a loop, until the next forward
            loss = objective(out)
        check_loss(loss)
        if plan.accumulate > 1:
            loss = loss / plan.accumulate
        enter("backward")
        loss.backward()
    enter("optimizer")
    optimizer.step()


class _Run:
    def __init__(self, ready: Bench, plan: StepSetup, objective: Objective, make: Maker) -> None:
        assert isinstance(ready.recorder, StepRecorder)
        self._bench, self._plan, self._objective = ready, plan, objective
        self._recorder = ready.recorder
        self._names = {id(one): name for name, one in ready.module.named_parameters()}
        self._optimizer = make(ready.module.parameters())
        self._found = Recorded(ready.recorder.record, [], optimizer=type(self._optimizer).__name__)

    def record(self, target: Target) -> Recorded:
        """All steps, one after another."""
        found = self._found
        found.resident = self._loaded()
        self._recorder.calibrate(self._bench.device)
        with fused_attention(target), watched_steps(self._before_step, self._after_step):
            for _ in range(self._plan.steps):
                found.starts.append(self._recorder.position)
                self._bench.record(self._step)
        found.starts.append(self._recorder.position)
        return found

    def _step(self) -> None:
        ready, recorder = self._bench, self._recorder

        def enter(phase: Phase) -> None:
            # What autograd runs is known by its nodes, also after the backward has begun.
            recorder.phase = "optimizer" if phase == "optimizer" else "forward"

        train_once(self._plan, ready.forward, self._objective, self._optimizer, ready.device.partition(":")[0], enter)

    # -- what is what ----------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._recorder.phase = "optimizer"
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._note(self._found.gradients, parameter.grad, f"gradient of {self._names.get(id(parameter), '')}")

    def _after_step(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        self._recorder.phase = "forward"
        for parameter, state in self._optimizer.state.items():
            owner = self._names.get(id(parameter), "")
            for key, value in state.items():
                if isinstance(value, Tensor):
                    self._note(self._found.states, value, f"{key} of {owner}")

    def _note(self, where: dict[Storage, str], tensor: Tensor, name: str) -> None:
        storage = self._recorder.storage_of(tensor)
        if storage is not None:
            where.setdefault(storage, name)

    def _loaded(self) -> list[Storage]:
        """Return parameters and buffers as `module.to(device)` moves them, inner modules first, then inputs, then states that are there."""
        tensors: list[Tensor] = []

        def visit(module: nn.Module) -> None:
            for child in module.children():
                visit(child)
            tensors.extend(one for table in (module._parameters, module._buffers) for one in table.values() if one is not None)

        visit(self._bench.module)
        leaves: Callable[[Any], list[Any]] = torch.utils._pytree.tree_leaves
        tensors += [one for one in leaves((self._bench.args, self._bench.kwargs)) if isinstance(one, Tensor)]
        self._after_step()
        for state in self._optimizer.state.values():
            tensors += [one for one in state.values() if isinstance(one, Tensor)]
        storages = [self._recorder.storage_of(one) for one in tensors]
        is_cpu = self._bench.device.startswith("cpu")
        return list(dict.fromkeys(one for one in storages if one is not None and one.device.startswith("cpu") is is_cpu))


# -- attention by the kernels that the device would run ----------------------------------------------------------------


@contextmanager
def fused_attention(target: Target) -> Iterator[None]:
    """Run `scaled_dot_product_attention` as on the target within the context.

    Functions of torch such as `multi_head_attention_forward` look it up by name and run with all modes for functions off.
    """
    original = functional.scaled_dot_product_attention

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if query.device.type != "cuda":
            found: Tensor = original(
                query, key, value, attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
            )
            return found
        q, k, v, mask = _autocast_operands(query, key, value, attn_mask)
        return attention(target, q, k, v, mask, dropout_p, is_causal, scale, enable_gqa)

    functional.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original


def _autocast_operands(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Any, Any, Any, Tensor | None]:
    """Autocast turns operands of attention into its own type, as it does for matrix products."""
    if not torch.is_autocast_enabled("cuda"):
        return query, key, value, mask
    wanted = torch.get_autocast_dtype("cuda")
    q, k, v = (one.to(wanted) if one.is_floating_point() else one for one in (query, key, value))
    return q, k, v, mask.to(wanted) if mask is not None and mask.is_floating_point() else mask


# -- the loss of what a model returns ----------------------------------------------------------------------------------


Objective = Callable[[Any], Tensor]
LOSSES = ("auto", "cross-entropy", "mse", "mean", "sum")
_CLASSES = 2
"""Axes of the scores of a classifier: samples, classes."""


def objective_of(loss: str | Objective | None) -> Objective:
    """Return a function from the model's result to a number; a name stands for a usual one with targets of zero."""
    if loss is None:
        return Auto()
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise UsageError(
                f"there is no loss {loss!r}", code="IRS373", hint=f"one of {', '.join(LOSSES)}, or a function of the model's result"
            )
        return Auto() if loss == "auto" else _BY_NAME[loss]
    if callable(loss):
        return loss
    raise UsageError("the loss must be a name or a function of the model's result", code="IRS373")


def own_loss(out: Any) -> Tensor | None:
    """Return the loss that a model computes itself."""
    if isinstance(out, Tensor):
        return out if out.ndim == 0 else None
    found = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    return found if isinstance(found, Tensor) else None


OWN: Final = "the model's own"


class Auto:
    """The model's own loss where it has one; cross entropy where it gives scores of classes for samples; else the mean."""

    def __init__(self) -> None:
        self.taken = ""
        """Which of them it was."""

    def __call__(self, out: Any) -> Tensor:
        found = own_loss(out)
        if found is not None:
            self.taken = OWN
            return found
        scores = _scores(out)
        self.taken = "cross-entropy" if scores.ndim == _CLASSES else "mean"
        return _cross_entropy(scores) if scores.ndim == _CLASSES else scores.mean()


def _scores(out: Any) -> Tensor:
    """Return the first tensor of numbers with a fraction."""
    for leaf in tree_leaves(out):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return leaf
    raise UsageError(
        "the model returns no tensor that a loss could be made of",
        code="IRS375",
        hint="give loss=, a function of what the model returns",
    )


def _cross_entropy(out: Any) -> Tensor:
    scores = _scores(out)
    labels = torch.zeros((scores.shape[0], *scores.shape[2:]), dtype=torch.long, device=scores.device)
    return functional.cross_entropy(scores, labels)


def _mse_of_scores(out: Any) -> Tensor:
    scores = _scores(out)
    return functional.mse_loss(scores, torch.zeros_like(scores))


def _sum_of_scores(out: Any) -> Tensor:
    return _scores(out).sum()


_BY_NAME: Final[dict[str, Objective]] = {
    "cross-entropy": _cross_entropy,
    "mse": _mse_of_scores,
    "mean": lambda out: _scores(out).mean(),
    "sum": _sum_of_scores,
}


# -- optimizers over fake parameters -----------------------------------------------------------------------------------


Maker = Callable[[Any], torch.optim.Optimizer]
_MOMENTUM = 0.9


def _optimizer_named(name: str, options: dict[str, Any]) -> Maker:
    def make(parameters: Any) -> torch.optim.Optimizer:
        kinds = {one.lower(): getattr(torch.optim, one) for one in dir(torch.optim) if one[0].isupper() and one != "Optimizer"}
        usual = {"lr": 1e-3, **({"momentum": _MOMENTUM} if name == "momentum" else {})}
        kind = kinds["sgd" if name == "momentum" else name]
        try:
            return kind(parameters, **{**usual, **options})  # type: ignore[no-any-return]
        except TypeError as error:
            known = ", ".join(one for one in inspect.signature(kind).parameters if one != "params")
            raise UsageError(f"{kind.__name__} does not take these options: {error}", code="IRS373", hint=f"it takes {known}") from error

    return make


def optimizer_names() -> list[str]:
    """Optimizers that can be named."""
    unusual = {"optimizer", "lbfgs", "sparseadam"}  # they call the model again, or want sparse gradients
    return sorted({"momentum", *(one.lower() for one in dir(torch.optim) if one[0].isupper())} - unusual)


def maker_of(optimizer: str | Maker | torch.optim.Optimizer, fakes: Fakes | None, options: dict[str, Any]) -> Maker:
    """Return what makes the optimizer once the parameters are fake, or real ones are given."""
    if isinstance(optimizer, str):
        if optimizer.lower() not in optimizer_names():
            raise UsageError(f"there is no optimizer {optimizer!r}", code="IRS373", hint=f"one of {', '.join(optimizer_names())}")
        return _optimizer_named(optimizer.lower(), options)
    if isinstance(optimizer, torch.optim.Optimizer):
        mine = optimizer
        return lambda _: mine if fakes is None else _optimizer_like(mine, fakes)
    if callable(optimizer):
        return _checked(optimizer)
    raise UsageError("the optimizer must be a name, an optimizer, or a function of the parameters", code="IRS373")


def _checked(maker: Maker) -> Maker:
    """Return a user's function, which must make an optimizer."""

    def make(parameters: Any) -> torch.optim.Optimizer:
        made = maker(parameters)
        if not isinstance(made, torch.optim.Optimizer):
            raise UsageError(
                f"the optimizer's function returns {type(made).__name__}, not an optimizer",
                code="IRS373",
                hint="lambda parameters: torch.optim.AdamW(parameters)",
            )
        return made

    return make


def _optimizer_like(optimizer: torch.optim.Optimizer, fakes: Fakes) -> torch.optim.Optimizer:
    """Return the same optimizer over fake parameters, with fake states where it has states."""
    made = copy.copy(optimizer)
    made.param_groups = [
        {**{key: value for key, value in group.items() if key != "params"}, "params": [fakes.tensor(one) for one in group["params"]]}
        for group in optimizer.param_groups
    ]
    made.state = defaultdict(dict)
    for parameter, state in optimizer.state.items():
        made.state[fakes.tensor(parameter)] = fakes.all(dict(state))
    return made


@contextmanager
def fused_and_foreach() -> Iterator[None]:
    """Let optimizers choose between foreach and single-tensor loops for fake parameters as for real ones."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.optim import optimizer as module

    listed: list[Any] = module._foreach_supported_types
    new = [kind for kind in (FakeTensor, nn.Parameter) if kind not in listed]
    listed.extend(new)
    try:
        yield
    finally:
        for kind in new:
            listed.remove(kind)


# -- one-line errors for what cannot be trained ------------------------------------------------------------------------


_LONGEST = 240
_DATA, _RAISED = "IRS188", "IRS189"
"""Codes of a capture that depends on values, and of one that raises."""


def check_trainable(module: nn.Module) -> None:
    """Refuse a model that has nothing to train."""
    if not any(one.requires_grad for one in module.parameters()):
        count = sum(1 for _ in module.parameters())
        said = (
            f"none of the {count} parameters of {type(module).__name__} needs"
            if count
            else f"{type(module).__name__} has no parameters that need"
        )
        raise LoadError(
            f"{said} gradients, so there is nothing to train", code="IRS374", hint="requires_grad_(True) on what is to be trained"
        )


def check_loss(loss: Any) -> None:
    """Refuse a loss that has no gradient."""
    if not isinstance(loss, torch.Tensor):
        raise LoadError(f"the loss is {type(loss).__name__}, not a tensor", code="IRS375", hint="loss= is a function of the model's result")
    if loss.numel() != 1:
        shape = "x".join(map(str, loss.shape))
        raise LoadError(f"the loss is not a scalar but a tensor of {shape}", code="IRS375", hint="reduce it, as with .mean()")
    if not loss.requires_grad:
        raise LoadError("the loss does not depend on any parameter that needs a gradient", code="IRS376")


@contextmanager
def explained() -> Iterator[None]:
    """Turn an error that the model raises in a step into a single line about the training."""
    try:
        yield
    except LoadError as error:
        cause = error.__cause__
        if error.code == _DATA:
            raise LoadError(error.message, code="IRS378", where=error.where, hint=error.hint) from cause
        if error.code != _RAISED or cause is None:
            raise
        text = " ".join(str(cause).split())
        if "inplace operation" in text or "in-place operation" in text:
            text = text.partition("; expected version")[0]
            raise LoadError(
                f"autograd refuses an operation in place: {_shortened(text)}",
                code="IRS377",
                where=error.where,
                hint="use the form that makes a new tensor",
            ) from cause
        said = f"the training step fails: {type(cause).__name__}: {_shortened(text)}"
        hint = "try it once without irscope"
        if "two devices" in text:
            hint = "what the loss holds is moved to where the result is, as with labels.to(scores.device)"
        elif "argument: 'target'" in text:
            hint = "a loss gets the result of the model alone, as in lambda scores: loss(scores, labels)"
        raise LoadError(said, code="IRS379", where=error.where, hint=hint) from cause


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
