"""Live modules: one forward under fake tensors on a simulated device, recorded with the live ranges of its storages."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from irscope.devices import target_of
from irscope.diagnostics import DiagnosticSink
from irscope.errors import UsageError
from irscope.ir.program import Program
from irscope.passkit.settings import Settings

if TYPE_CHECKING:
    from torch import nn


def capture(
    module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object], *, device: str, settings: Settings, sink: DiagnosticSink
) -> Program:
    """The program that a module runs with these arguments."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError("torch is not installed", code="IRS192", hint="live models need it: pip install torch")
    from irscope.frontends.eager.live import capture_program

    return capture_program(module, args, kwargs, device=device, target=target_of(settings), sink=sink)
