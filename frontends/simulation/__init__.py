"""The device of a simulated program; live modules as programs, those that are compiled by what runs on it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from irscope.devices import Target
from irscope.diagnostics import DiagnosticSink
from irscope.errors import UsageError
from irscope.ir.program import Program

if TYPE_CHECKING:
    from torch import nn

    from irscope.frontends.eager.values import OpenSizes
    from irscope.training import StepSetup


def train_module(
    module: nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    plan: StepSetup,
    *,
    target: Target,
    sink: DiagnosticSink,
    name: str = "",
) -> Program:
    """Return the program of a module's training steps: a compiled one, where the module is compiled or is to be, else as Python runs it."""
    from irscope.frontends.eager.running import check_module, is_compiled
    from irscope.frontends.eager.steptrace import training_program

    check_module(module)
    wanted = _wanted(plan.compile)
    on_cuda = target.device.kind != "cpu"
    if wanted is None and not (on_cuda and is_compiled(module)):
        return training_program(module, args, kwargs, plan, target, sink, name)
    if not on_cuda:
        raise UsageError(_NOT_FOR_CPU, code="IRS396", hint="a CUDA device")
    from irscope.frontends.simulation.captured_training import compiled_training

    return compiled_training(module, args, kwargs, plan, wanted, target, sink, name)


_NOT_FOR_CPU: Final = "what torch.compile generates for a CPU is not followed"


def _wanted(compile: bool | Mapping[str, object]) -> dict[str, object] | None:
    """Return the arguments of torch.compile; None where nobody asks for it."""
    return None if compile is False else {} if compile is True else dict(compile)


def capture_module(
    module: nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    target: Target,
    sink: DiagnosticSink,
    device: str = "cuda",
    compile: bool | Mapping[str, object] = False,
    sizes: OpenSizes | None = None,
    keep_calls: bool = False,
) -> Program:
    """Return the program that a module runs with these arguments: a compiled one where it is compiled or is to be, else Python's."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError("torch is not installed", code="IRS192", hint="live models need it: pip install torch")
    from irscope.frontends.eager.running import capture_program, check_module, is_compiled

    check_module(module)
    wanted = _wanted(compile)
    if wanted is None and not (device.startswith("cuda") and is_compiled(module)):
        return capture_program(module, args, kwargs, device=device, target=target, sizes=sizes, keep_calls=keep_calls, sink=sink)
    if not device.startswith("cuda"):
        raise UsageError(_NOT_FOR_CPU, code="IRS396", hint="a CUDA device")
    if sizes is not None:
        raise UsageError("a compiled program has no open sizes", code="IRS396", hint="give numbers, or leave --compile out")
    from irscope.frontends.simulation.captured import capture_compiled

    return capture_compiled(module, args, kwargs, wanted, target, sink)
