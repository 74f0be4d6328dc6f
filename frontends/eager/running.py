"""A callable recorded on a simulated device."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from irscope.devices import Target, target_of
from irscope.diagnostics import DiagnosticSink
from irscope.frontends.eager.around import around, check_whole
from irscope.frontends.eager.failures import told_clearly
from irscope.frontends.eager.fakes import Fakes, mode_of, taken_for_real
from irscope.frontends.eager.inside import MOST_FOUND, Inside
from irscope.frontends.eager.opensizes import OpenSizes
from irscope.frontends.eager.pretend import pretended_cuda
from irscope.frontends.eager.record import Record
from irscope.frontends.eager.recorder import Recorder
from irscope.ir.program import Assumed
from irscope.passkit.settings import Settings


@dataclass
class Bench:
    """A module and its arguments on a simulated device, ready to be run."""

    recorder: Recorder
    fakes: Fakes
    module: nn.Module
    """The user's own module, whose tensors are fake while the bench is open."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    device: str

    def forward(self) -> Any:
        """Call the module."""
        return self.module(*self.args, **self.kwargs)

    def record(self, function: Callable[[], Any] | None = None) -> Record:
        """Record a function, the module's forward by default; fake tensors are made inside it as outside."""
        with told_clearly(self.recorder):
            self.recorder.run(function or self.forward)
        return self.recorder.record


@contextmanager
def bench(
    module: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    grad: bool = False,
    device: str = "cuda",
    target: Target | None = None,
    sink: DiagnosticSink | None = None,
    watch: type[Recorder] = Recorder,
    most_found: int = MOST_FOUND,
    sizes: OpenSizes | None = None,
) -> Iterator[Bench]:
    """Put a module and its arguments on a simulated device. When the context ends the module is restored.

    `grad` says whether operators are seen below autograd; `watch` is the class of the recorder; `most_found` is how much an operator is
    taken to find where that depends on values that are not known; `sizes` are those that stay open.
    """
    check_whole(module, [args, kwargs])
    surroundings = list(around(module, grad=grad))
    with ExitStack() as stack:
        target = target or target_of(Settings())
        found = stack.enter_context(pretended_cuda(target, sink)) if device.startswith("cuda") else device
        mode = mode_of([args, kwargs, list(module.parameters()), list(module.buffers())], sizes)
        fakes = Fakes(mode, found, sizes)
        given, named = fakes.all(tuple(args)), fakes.all(dict(kwargs or {}))
        stack.enter_context(fakes.module(module))
        stack.enter_context(taken_for_real())
        stack.enter_context(mode)
        # One thread for autograd too: its worker threads lack devices if a backward ran before the device existed.
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        inside = stack.enter_context(Inside(most_found))
        recorder = watch(module, grad=grad, device=found, target=target)
        recorder.inside, recorder.sizes, recorder.values.sizes = inside, sizes, sizes
        recorder.record.assumed.update(dict.fromkeys(surroundings, "IRS199"))
        if device.startswith("cuda") and not found.startswith("cuda"):
            recorder.record.assumed[Assumed("layouts", "those of the CPU", "this torch cannot pretend to have a CUDA device")] = ""
        recorder.declare_module(module, fakes.real)
        for name, value in _names(module, given, named):
            recorder.declare(value, "input", name, fakes.real(value))
        yield Bench(recorder, fakes, module, given, named, found)


def tell_assumed(record: Record, sink: DiagnosticSink) -> None:
    """Warn about the assumptions of a recording, guessed sizes included."""
    for op in record.guessed:
        rows = next((one.shape[0] for one in op.makes() if one.shape), 0)
        why = f"how much {op.namespace}.{op.name} returns depends on values that are not known; it stands at {op.loc}"
        record.assumed[Assumed(f"rows of {op.name}", str(rows), why)] = "IRS193"
    for one, code in record.assumed.items():
        if code:
            sink.warn(code, f"{one.what} taken to be {one.value}: {one.why}", about=one.text)


def _names(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors among the arguments under the names of forward's parameters, those in containers numbered."""
    try:
        names = list(inspect.signature(module.forward).bind_partial(*args).arguments.items())
    except (TypeError, ValueError):
        names = [(f"arg{place}", value) for place, value in enumerate(args)]
    for name, item in (*names, *kwargs.items()):
        yield from _named(name, item)


def _named(name: str, item: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(item, torch.Tensor):
        yield name, item
    elif isinstance(item, Mapping):
        for key, part in item.items():
            yield from _named(f"{name}.{key}", part)
    elif isinstance(item, tuple | list):
        for place, part in enumerate(item):
            yield from _named(f"{name}.{place}", part)
