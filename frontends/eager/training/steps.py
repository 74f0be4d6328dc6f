"""Runs training steps of a live module under fake tensors and records them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from irscope.devices import Target
from irscope.diagnostics import DiagnosticSink
from irscope.errors import UsageError
from irscope.frontends.eager.record import Record, Storage
from irscope.frontends.eager.running import Bench, bench
from irscope.frontends.eager.training.attention import fused_attention
from irscope.frontends.eager.training.objective import OWN, Auto, Objective, objective_of
from irscope.frontends.eager.training.optimizers import Maker, fused_and_foreach, maker_of, watched_steps
from irscope.frontends.eager.training.recorder import StepRecorder
from irscope.frontends.eager.training.refusals import check_loss, check_trainable, explained
from irscope.ir.program import Assumed

STEPS = 3
"""The first makes the optimizer's states, the second may still find memory that the first left; the third stands for all later ones."""
AUTOCAST = {"": None, "bf16": torch.bfloat16, "f16": torch.float16}


@dataclass(frozen=True)
class Plan:
    """How a step is made."""

    loss: str | Objective | None = None
    optimizer: str | Maker | torch.optim.Optimizer = "sgd"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of a named optimizer: fused, foreach, ..."""
    set_to_none: bool = True
    """What zero_grad does with gradients: drop them, or fill them with zeros."""
    accumulate: int = 1
    """Forwards and backwards before the optimizer's step."""
    autocast: str = ""
    """bf16 or f16: the forward runs in mixed precision."""
    steps: int = STEPS
    answers_zero: bool = False
    """Whether device values that the model reads are taken to be zero."""

    def __post_init__(self) -> None:
        if self.autocast not in AUTOCAST:
            raise UsageError(f"autocast to {self.autocast!r} is not known", code="IRS373", hint="bf16 or f16")
        if self.accumulate < 1 or self.steps < 1:
            raise UsageError("a step needs at least one forward", code="IRS373")


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
    """What is on the device before the first step, in the order of allocation."""
    optimizer: str = ""


def record_steps(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    plan: Plan,
    target: Target,
    sink: DiagnosticSink | None = None,
) -> Recorded:
    """Run the steps; raises one clear error where the module cannot be trained."""
    check_trainable(module)
    objective = objective_of(plan.loss)
    with ExitStack() as stack:
        is_plain = stack.enter_context(_without_library(module, sink))
        ready = stack.enter_context(bench(module, args, kwargs, grad=True, target=target, sink=sink, watch=StepRecorder))
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


class _Run:
    def __init__(self, ready: Bench, plan: Plan, objective: Objective, make: Maker) -> None:
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
        plan, recorder = self._plan, self._recorder
        with recorder.in_phase("optimizer"):
            self._optimizer.zero_grad(set_to_none=plan.set_to_none)
        for _ in range(plan.accumulate):
            with self._precision():
                out = self._bench.forward()
                loss = self._objective(out)
            check_loss(loss)
            if plan.accumulate > 1:
                loss = loss / plan.accumulate
            loss.backward()
        self._optimizer.step()

    def _precision(self) -> Any:
        wanted = AUTOCAST[self._plan.autocast]
        return nullcontext() if wanted is None else torch.autocast("cuda", dtype=wanted)

    # -- what is what ----------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._recorder.phase = "optimizer"
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._note(self._found.gradients, parameter.grad, f"gradient of {self._names.get(id(parameter), '')}")

    def _after_step(self) -> None:
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
        """Parameters and buffers as `module.to(device)` moves them, inner modules first, then inputs, then states that are there."""
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
        return list(dict.fromkeys(one for one in storages if one is not None and not one.device.startswith("cpu")))
