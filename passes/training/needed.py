"""Access to the captured training step of a program."""

from __future__ import annotations

from irscope.errors import PassError
from irscope.ir.program import Program
from irscope.training import Trace


def trace_in(program: Program) -> Trace:
    """The captured training of a program; PassError where there is none."""
    found = program.training
    if isinstance(found, Trace):
        return found
    raise PassError(
        "the model holds no training step, only a forward",
        code="IRS381",
        where=program.path,
        hint="`irscope train-plan MODEL` for a model by name or a script, irscope.capture_training(module, ...) from Python",
    )
