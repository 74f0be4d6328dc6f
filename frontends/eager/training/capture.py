"""A live module's training step as a program, with the trace of its first steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from torch import nn

from irscope.devices import Target
from irscope.diagnostics import DiagnosticSink
from irscope.frontends.eager.program import program_of
from irscope.frontends.eager.record import Op, Record, Storage, Tensor
from irscope.frontends.eager.running import tell_assumed
from irscope.frontends.eager.training.convert import trace_of
from irscope.frontends.eager.training.steps import Plan, Recorded, record_steps
from irscope.ir.program import Program
from irscope.training.trace import LiveStep


def training_program(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    plan: Plan,
    target: Target,
    sink: DiagnosticSink,
    name: str = "",
) -> Program:
    """Capture the first steps; the graph is that of the last one, `program.training` the trace of all."""
    recorded = record_steps(module, args, kwargs, plan, target, sink)
    tell_assumed(recorded.record, sink)
    trace = trace_of(recorded, name or type(module).__name__)
    loss = plan.loss if isinstance(plan.loss, str) else "" if plan.loss is None else getattr(plan.loss, "__name__", "")
    trace.settings = {
        "loss": loss,
        "autocast": plan.autocast,
        "accumulate": plan.accumulate if plan.accumulate > 1 else "",
        "set_to_none": "" if plan.set_to_none else "False",
    }
    trace.live = LiveStep(module, args, kwargs, plan.loss)
    program = program_of(_last_step(recorded))
    program.metadata["class"] = type(module).__name__
    program.training = trace
    return program


def _last_step(recorded: Recorded) -> Record:
    """The recording of the last step alone: what earlier ones made was there before."""
    (first, _), (end, _) = recorded.starts[-2:]
    return _Cut(recorded.record, first, end).record()


class _Cut:
    """Copies an interval of a recording, counted from its first operator."""

    def __init__(self, record: Record, first: int, end: int) -> None:
        self._record, self._first, self._end = record, first, end
        self._storages: dict[Storage, Storage] = {}
        self._tensors: dict[Tensor, Tensor] = {}

    def record(self) -> Record:
        """The interval as a recording of its own."""
        made = Record(root=self._record.root, device=self._record.device, grad=True, assumed=self._record.assumed)
        for one in self._record.tensors:
            if one.kind in ("parameter", "buffer", "input"):
                self._tensor(one)
        made.ops = [self._op(op) for op in self._record.ops[self._first : self._end]]
        made.tensors, made.storages = list(self._tensors.values()), list(self._storages.values())
        return made

    def _op(self, op: Op) -> Op:
        found = copy(op)
        found.number = op.number - self._first
        found.args = tuple([self._noted(one) for one in op.args])
        found.kwargs = {key: self._noted(value) for key, value in op.kwargs.items()}
        found.results = tuple([self._noted(one) for one in op.results])
        return found

    def _noted(self, item: Any) -> Any:
        if isinstance(item, Tensor):
            return self._tensor(item)
        return tuple([self._noted(part) for part in item]) if isinstance(item, tuple) else item

    def _tensor(self, one: Tensor) -> Tensor:
        found = self._tensors.get(one)
        if found is None:
            found = self._tensors[one] = copy(one)
            found.storage = None if one.storage is None else self._storage(one.storage)
            if one.made_by is not None:
                found.made_by = one.made_by - self._first
                if found.made_by < 0:
                    found.kind, found.made_by = "constant", None
        return found

    def _storage(self, one: Storage) -> Storage:
        found = self._storages.get(one)
        if found is None:
            found = self._storages[one] = copy(one)
            found.born = None if one.born is None or one.born < self._first else one.born - self._first
            found.died = None if one.died is None or one.died >= self._end else max(one.died - self._first, 0)
        return found
