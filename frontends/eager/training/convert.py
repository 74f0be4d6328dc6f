"""Recorded steps as a trace: operators with their records, storages with their categories."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from irscope.frontends.eager.program import lowered
from irscope.frontends.eager.record import Op, Storage, Tensor, tensors_in
from irscope.frontends.eager.training.steps import Recorded
from irscope.ir.graph import Node, Role, paused_gc
from irscope.ir.names import Names
from irscope.ir.places import Scope
from irscope.ops.call import OpCall
from irscope.ops.registry import find_op
from irscope.training.trace import Category, Piece, Span, StepOp, Trace, label, module_of, piece_name

_BY_KIND: dict[str, Category] = {"parameter": "parameter", "buffer": "buffer", "input": "input", "state": "optimizer state"}
_STEP_NAMES = ("first", "second", "third")


def trace_of(recorded: Recorded, model: str) -> Trace:
    """The trace of recorded steps."""
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
        """Names of all operators; each step begins anew."""
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
        return ("activation" if self._is_kept(storage, op) else "temporary"), name

    def _is_kept(self, storage: Storage, op: Op) -> bool:
        """Whether it is allocated in the forward and alive when the backward begins."""
        if op.phase != "forward":
            return False
        begins = next((start for start in self._backward_starts if start > op.number), None)
        return begins is not None and (storage.died is None or storage.died > begins)

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
        for tensor in _changed(op):
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
        """Whether an operator outside of autograd touches nothing but gradients: zero_grad."""
        storages = [one.storage for one in op.reads()]
        return bool(storages) and all(one in self._recorded.gradients for one in storages if one is not None)

    def _call(self, node: Node) -> OpCall | None:
        """What the node's record sees; nodes that look alike share it."""
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
        """The scope of an operator. Gradients and an optimizer's step belong to the innermost module that holds their parameters."""
        if op.phase == "forward":
            return op.scope
        if op.phase == "backward" and op.sequence in self._by_sequence:
            return self._by_sequence[op.sequence]
        touched = {self._parameters[one.storage] for one in op.reads() if one.storage in self._parameters}
        path = module_of(touched)
        while path not in self._by_module:
            path = path.rpartition(".")[0]
        return self._by_module[path]


def _changed(op: Op) -> Iterator[Tensor]:
    """Tensors that an operator writes over, by its schema."""
    for place, argument in enumerate(op.func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given: Any = op.args[place] if place < len(op.args) else op.kwargs.get(argument.name)
            yield from tensors_in(given)
