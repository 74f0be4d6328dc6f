"""A live module as a program: recorded in one forward on a simulated device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from irscope.devices import Target
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError, UsageError
from irscope.frontends.eager.fakes import MOST_FOUND
from irscope.frontends.eager.program import program_of
from irscope.frontends.eager.record import Tensor
from irscope.frontends.eager.running import bench, tell_assumed
from irscope.frontends.eager.values import OpenSizes
from irscope.frontends.files.pickled import MOST_LITERAL_ELEMENTS
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES
from irscope.ir.places import Literal, Payload
from irscope.ir.program import Program


def capture_program(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    device: str = "cuda",
    target: Target | None = None,
    sizes: OpenSizes | None = None,
    keep_calls: bool = False,
    sink: DiagnosticSink,
) -> Program:
    """Run a module's forward once without data and without gradients, and record it; `sizes` are the symbolic ones."""
    check_module(module)
    for most_found in (MOST_FOUND, 0):
        with bench(module, args, kwargs, device=device, target=target, sink=sink, most_found=most_found, sizes=sizes) as made:
            try:
                record = made.record()
                break
            except LoadError as error:
                # A model that loops over a data-dependent number of items can only be captured with none.
                if error.code != "IRS188" or not most_found or not made.recorder.record.guessed:
                    raise
    tell_assumed(record, sink)
    program = program_of(record, _payloads(made.recorder.values.known), keep_calls=keep_calls)
    if sizes is not None:
        sizes.settle(program)
    program.metadata["class"] = type(module).__name__
    return program


def check_module(module: object) -> None:
    """Raise UsageError for what is no module, or one that has to be called before it has parameters."""
    if isinstance(module, torch.jit.ScriptModule):
        raise UsageError("a TorchScript module is read from its file", code="IRS191", hint="torch.jit.save it, and load the file")
    if not isinstance(module, nn.Module):
        raise UsageError(f"a {type(module).__name__} is no nn.Module", code="IRS191", hint="wrap the function in a module's forward")
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UsageError(f"{name} has no size yet", code="IRS191", hint="call the lazy module once, or give it sizes")


def _payloads(known: Callable[[Tensor], torch.Tensor | None]) -> Callable[[Tensor], Payload | None]:
    """Values of small constants and of small tables of numbers, on which sizes may depend."""

    def payload(one: Tensor) -> Payload | None:
        real = known(one)
        if real is None or real.numel() > MOST_LITERAL_ELEMENTS or one.kind not in ("constant", "buffer"):
            return None
        if str(real.dtype).removeprefix("torch.") not in NAMED_DTYPES or real.is_complex():
            return None
        if one.kind == "buffer" and real.is_floating_point():
            return None
        return Literal(tuple(real.detach().flatten().tolist()))

    return payload
