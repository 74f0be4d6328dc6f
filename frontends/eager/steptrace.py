"""A live module's training step as a program, with the trace of its first steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch import nn

from irscope.devices import Target
from irscope.diagnostics import DiagnosticSink
from irscope.frontends.eager.record import Op, Record, Storage, Tensor, lowered, program_of
from irscope.frontends.eager.running import tell_assumed
from irscope.frontends.eager.steps import Recorded, record_steps
from irscope.ir.graph import Names, Node, Role, paused_gc
from irscope.ir.places import Scope, root_scope
from irscope.ir.program import Program
from irscope.memory.run import passes
from irscope.ops.registry import find_op
from irscope.ops.spec import OpCall
from irscope.training import Category, LiveStep, Piece, Span, StepOp, StepSetup, Trace, label, module_of, piece_name


def training_program(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    plan: StepSetup,
    target: Target,
    sink: DiagnosticSink,
    name: str = "",
) -> Program:
    """Capture the first steps; the graph is that of the last one, `program.training` the trace of all."""
    recorded = record_steps(module, args, kwargs, plan, target, sink)
    tell_assumed(recorded.record, sink)
    program, trace = steps_as_program(recorded, name or type(module).__name__, plan)
    trace.live = LiveStep(module, args, kwargs, plan.loss)
    program.metadata["class"] = type(module).__name__
    return program


def steps_as_program(recorded: Recorded, model: str, plan: StepSetup) -> tuple[Program, Trace]:
    """Return the program of recorded steps, with their trace."""
    trace = trace_of(recorded, model)
    loss = plan.loss if isinstance(plan.loss, str) else "" if plan.loss is None else getattr(plan.loss, "__name__", "")
    trace.settings = {
        "loss": loss,
        "autocast": plan.autocast,
        "accumulate": plan.accumulate if plan.accumulate > 1 else "",
        "set_to_none": "" if plan.set_to_none else "False",
    }
    program = program_of(_last_step(recorded))
    program.training = trace
    return program, trace


def _last_step(recorded: Recorded) -> Record:
    """Return the recording of the last step alone: what earlier ones made was there before."""
    (first, _), (end, _) = recorded.starts[-2:]
    return _Cut(recorded, first, end).record()


class _Cut:
    """Copies an interval of a recording, counted from its first operator."""

    def __init__(self, recorded: Recorded, first: int, end: int) -> None:
        self._record, self._first, self._end = recorded.record, first, end
        self._storages: dict[Storage, Storage] = {}
        self._tensors: dict[Tensor, Tensor] = {}
        self._root = root_scope()
        self._has_scopes = recorded.has_scopes
        self._calls = self._counted_anew(_Scopes(recorded))

    def record(self) -> Record:
        """Return the interval as a recording of its own."""
        made = Record(root=self._root, device=self._record.device, grad=True, assumed=self._record.assumed)
        for one in self._record.tensors:
            if one.kind in ("parameter", "buffer", "input"):
                self._tensor(one)
        made.ops = [self._op(op) for op in self._record.ops[self._first : self._end]]
        made.tensors, made.storages = list(self._tensors.values()), list(self._storages.values())
        return made

    def _op(self, op: Op) -> Op:
        found = copy(op)
        found.number = op.number - self._first
        found.scope = self._calls[op.number]
        found.args = tuple([self._noted(one) for one in op.args])
        found.kwargs = {key: self._noted(value) for key, value in op.kwargs.items()}
        found.results = tuple([self._noted(one) for one in op.results])
        return found

    def _counted_anew(self, scopes: _Scopes) -> dict[int, Scope]:
        """Return each operator's module call, counted from the interval's begin; the backward's have that of their forward operator."""
        made: dict[Scope, Scope] = {self._record.root: self._root}
        by_module = {"": self._root}

        def call(scope: Scope) -> Scope:
            if scope not in made:
                parent = made[self._record.root] if scope.parent is None else call(scope.parent)
                times = sum(one.name == scope.name for one in parent.children)
                made[scope] = parent.child(scope.name, scope.cls, times)
                by_module.setdefault(scope.module, made[scope])
            return made[scope]

        ops = self._record.ops[self._first : self._end]
        found = {op.number: call(op.scope) for op in ops if op.phase == "forward"}
        for op in ops:
            if op.number not in found:
                # Gradients of parameters and the optimizer belong to a module, whichever of its calls they are for.
                scope = scopes.of(op)
                known = made[scope] if scope in made else by_module.get(scope.module)
                found[op.number] = known if known is not None else call(scope) if self._has_scopes else self._root
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


# -- recorded steps as a trace -----------------------------------------------------------------------------------------


_BY_KIND: dict[str, Category] = {"parameter": "parameter", "buffer": "buffer", "input": "input", "state": "optimizer state"}
_STEP_NAMES = ("first", "second", "third")


def trace_of(recorded: Recorded, model: str) -> Trace:
    """Return the trace of recorded steps."""
    with paused_gc():
        return _Converter(recorded, model).trace()


class _Converter:
    def __init__(self, recorded: Recorded, model: str) -> None:
        self._recorded = recorded
        self._model = model
        self._pieces: dict[Storage, Piece] = {}
        self._calls: dict[object, OpCall] = {}
        self._backward_starts: list[int] = []
        """Operators with which a backward begins."""
        self._scopes = _Scopes(recorded)
        self._names: list[str] = []
        """By operator, unique within its step."""

    def trace(self) -> Trace:
        """Convert everything."""
        recorded = self._recorded
        record = recorded.record
        before = ""
        for op in record.ops:
            if op.phase == "backward" and before != "backward":
                self._backward_starts.append(op.number)
            before = op.phase
        self._names = [*self._named()]
        self._make_pieces()
        program, starts = lowered(record)
        nodes = list(program.graph)
        ops = [self._converted(op, nodes[starts[op.number]] if starts[op.number + 1] > starts[op.number] else None) for op in record.ops]
        bounds = recorded.starts
        spans = [
            Span(_STEP_NAMES[number] if number < len(_STEP_NAMES) else str(number + 1), first, end, deaths)
            for number, ((first, deaths), (end, _)) in enumerate(itertools.pairwise(bounds))
        ]
        pieces = sorted(self._pieces.values(), key=lambda piece: piece.number)
        resident = [self._pieces[one] for one in recorded.resident]
        return Trace(self._model, ops, pieces, spans, resident, bounds[-1][1], recorded.optimizer)

    def _named(self) -> Iterator[str]:
        """Yield the names of all operators; numbering restarts at each step."""
        for (first, _), (end, _) in itertools.pairwise(self._recorded.starts):
            taken = Names()
            for op in self._recorded.record.ops[first:end]:
                yield taken.unique(label(self._scopes.of(op), op.name))

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _make_pieces(self) -> None:
        record, recorded = self._recorded.record, self._recorded
        owners: dict[Storage, Tensor] = {}
        for tensor in record.tensors:
            if tensor.storage is not None:
                owners.setdefault(tensor.storage, tensor)
        for storage in record.storages:
            owner = owners[storage]
            category, name = self._kind(storage, owner)
            self._pieces[storage] = Piece(
                storage.number,
                storage.bytes,
                name,
                category,
                storage.born,
                storage.died,
                storage.rank,
                not storage.device.startswith("cpu") or recorded.record.device == "cpu",
            )

    def _kind(self, storage: Storage, owner: Tensor) -> tuple[Category, str]:
        recorded = self._recorded
        if storage in recorded.gradients:
            return "gradient", recorded.gradients[storage]
        if storage in recorded.states:
            return "optimizer state", recorded.states[storage]
        if storage.born is None:
            return _BY_KIND.get(owner.kind, "input"), owner.name
        op = recorded.record.ops[storage.born]
        made = [one.storage for one in op.results if isinstance(one, Tensor)]
        name = piece_name(self._names[op.number], made.index(storage) if storage in made else 0)
        died = len(recorded.record.ops) if storage.died is None else storage.died - 1
        return ("temporary" if op.phase != "forward" or passes(op.number, died, self._backward_starts) else "activation"), name

    # -- operators -------------------------------------------------------------------------------------------------

    def _converted(self, op: Op, node: Node | None) -> StepOp:
        made: list[tuple[int, Piece]] = []
        writes: list[Piece] = []
        for index, result in enumerate(op.results):
            if isinstance(result, Tensor) and result.storage is not None and result.storage.born == op.number:
                piece = self._pieces[result.storage]
                if all(piece is not known for _, known in made):
                    made.append((index, piece))
                    writes.append(piece)
        for tensor in op.writes():
            if tensor.storage is not None and self._pieces[tensor.storage] not in writes:
                writes.append(self._pieces[tensor.storage])
        reads = list(dict.fromkeys(self._pieces[one.storage] for one in op.reads() if one.storage is not None))
        call = self._call(node) if node is not None else None
        return StepOp(
            op.number,
            self._names[op.number],
            f"{op.namespace}::{op.name}" + ("" if op.overload in ("", "default") else f".{op.overload}"),
            call,
            "optimizer" if op.phase == "forward" and self._only_gradients(op) else op.phase,
            tuple(reads),
            tuple(writes),
            tuple(made),
            self._scopes.of(op),
            op.loc,
            op.sequence,
            op.autograd_node,
            torch.Tag.nondeterministic_seeded in op.func.tags,
            not made and bool(op.func.is_view),
        )

    def _only_gradients(self, op: Op) -> bool:
        """Return whether an operator outside of autograd touches nothing but gradients: zero_grad."""
        storages = [one.storage for one in op.reads()]
        return bool(storages) and all(one in self._recorded.gradients for one in storages if one is not None)

    def _call(self, node: Node) -> OpCall | None:
        """Return what the node's record sees; nodes that look alike share it."""
        spec = find_op(node.op)
        if spec is None:
            return None
        operands = [None if value is None else value.type for value in node.inputs]
        results = [output.type for output in node.outputs]
        parameters = frozenset(place for place, value in enumerate(node.inputs) if value is not None and value.role is Role.PARAMETER)
        key: object = (node.op, node.source, *operands, None, *results, parameters, *node.attrs.items())
        try:
            found = self._calls.get(key)
        except TypeError:  # an attribute may be anything
            return OpCall(spec, operands, node.attrs, (), results, source=node.source, parameters=parameters)
        if found is None:
            found = self._calls[key] = OpCall(spec, operands, node.attrs, (), results, source=node.source, parameters=parameters)
        return found


class _Scopes:
    """Module calls of operators: their own in the forward, in the backward those of the forward operators."""

    def __init__(self, recorded: Recorded) -> None:
        self._root = recorded.record.root
        self._has_scopes = recorded.has_scopes
        self._by_sequence: dict[int | None, Scope] = {}
        self._by_module: dict[str, Scope] = {"": self._root}
        for op in recorded.record.ops:
            if op.phase == "forward":
                # The operator for which autograd made a node comes first; others without a node follow it.
                self._by_sequence.setdefault(op.sequence, op.scope)
                for scope in op.scope.chain:
                    self._by_module.setdefault(scope.module, scope)
        self._parameters = {one.storage: one.name for one in recorded.record.tensors if one.kind == "parameter" and one.storage is not None}
        for storage, name in (*recorded.gradients.items(), *recorded.states.items()):
            self._parameters.setdefault(storage, name.partition(" of ")[2])

    def of(self, op: Op) -> Scope:
        """Return the scope of an operator. Gradients and an optimizer's step belong to the innermost module that holds their parameters."""
        if op.phase == "forward" or (self._has_scopes and op.scope is not self._root):
            return op.scope
        if op.phase == "backward" and op.sequence is not None and op.sequence in self._by_sequence:
            return self._by_sequence[op.sequence]
        touched = {self._parameters[one.storage] for one in op.reads() if one.storage in self._parameters}
        path = module_of(touched)
        while path not in self._by_module:
            path = path.rpartition(".")[0]
        return self._by_module[path]
