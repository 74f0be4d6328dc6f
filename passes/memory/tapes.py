"""Writes tapes: what a forward pass, or captured training steps, ask PyTorch's allocator for, the temporary memory of kernels included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple, TypeAlias

from irscope.devices import Target
from irscope.errors import UsageError
from irscope.immutable import mutable
from irscope.ir.dims import Dim
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.places import Blob, FileRegion
from irscope.ir.types import TensorType, Type
from irscope.memory.kernels import KernelWriter
from irscope.memory.tape import ACTIVATION, OUTPUT, TEMPORARY, Span, Tape
from irscope.ops.registry import runs_bodies, spec_of
from irscope.ops.spec import MemoryEvent, OpCall, OpSpec, memory_events
from irscope.passes.graph.alias import Aliases, Strides
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.lives import LiveRange
from irscope.passes.lifetimes.traced import Lifetimes
from irscope.training import Piece, StepOp, Trace

COLD: Final = "cold"
"""The name of the first forward."""
WARM: Final = "warm"
"""That of the second."""
ForwardTape: TypeAlias = Tape[LiveRange]
StepTape: TypeAlias = Tape[Piece]


# The order in which `Module.to(device)` moves a model's tensors, which determines how they fill the allocator's segments.


@mutable
class _Module:
    """A module, reconstructed from the names of its tensors."""

    parameters: list[Value] = field(default_factory=list)
    buffers: list[Value] = field(default_factory=list)
    children: dict[str, _Module] = field(default_factory=dict)


def moved_weights(graph: Graph) -> Iterator[Value]:
    """Yield the parameters and buffers in the order in which they are moved to the device: inner modules first, tied ones once.

    Constants are not part of a module's state, so `Module.to` leaves them where they are.
    """
    moved: set[str] = set()
    for value in _children_first(_tree(graph)):
        storage = _storage(graph, value)
        if not storage or storage not in moved:
            moved.add(storage)
            yield value


def is_on_host(type_: Type, graph: Graph) -> bool:
    """Return whether a tensor stays on the host: the file places it there, and others on a CUDA device."""
    return type_.device.startswith("cpu") and any(value.type.device.startswith("cuda") for value in (*graph.weights, *graph.inputs))


def _tree(graph: Graph) -> _Module:
    """Return the modules in the order in which they were registered. Files list all parameters before all buffers."""
    root = _Module()
    for weight in graph.weights:
        if weight.role is Role.CONSTANT:
            continue
        *path, _ = (weight.name or "").split(".")
        module = root
        for name in path:
            child = module.children.get(name)
            if child is None:
                child = _Module()
                _register(module.children, name, child)
            module = child
        (module.parameters if weight.role is Role.PARAMETER else module.buffers).append(weight)
    return root


def _register(children: dict[str, _Module], name: str, module: _Module) -> None:
    """Modules with buffers only follow all those with parameters; numbered ones are inserted by their number."""
    children[name] = module
    if not name.isdecimal():
        return
    later = [other for other in children if other.isdecimal() and int(other) > int(name)]
    for other in later:
        children[other] = children.pop(other)


def _children_first(root: _Module) -> Iterator[Value]:
    pending = [(root, False)]
    while pending:
        module, entered = pending.pop()
        if entered or not module.children:
            yield from module.parameters
            yield from module.buffers
        else:
            pending.append((module, True))
            pending.extend((child, False) for child in reversed(module.children.values()))


def _storage(graph: Graph, value: Value) -> str:
    """Identifies the memory behind a weight; empty where the file does not record it."""
    data = graph.data.get(value)
    if isinstance(data, FileRegion):
        return data.storage or f"{data.path}:{data.offset}"
    return data.storage if isinstance(data, Blob) else ""


class Load(NamedTuple):
    """A tensor that is on the device before the first forward."""

    size: Dim
    kind: str
    name: str


def loaded(graph: Graph) -> list[Load] | None:
    """Parameters, buffers and inputs in the order in which they come to the device; None where the size of one is not known."""
    loads: list[Load] = []
    for value in (*moved_weights(graph), *graph.inputs):
        if not isinstance(value.type, TensorType) or (value.type.device and is_on_host(value.type, graph)):
            continue
        size = value.type.nbytes
        if size is None:
            return None
        kind = "parameter" if value.role is Role.PARAMETER else value.role.value
        loads.append(Load(size, kind, value.name or ""))
    return loads


def forward_tape(
    load: Sequence[Load],
    lifetimes: Lifetimes,
    aliases: Aliases,
    types: Inferred,
    target: Target,
    known: Mapping[Node, Sequence[MemoryEvent]] | None = None,
) -> ForwardTape:
    """Return a model that is loaded and run twice, with the given live ranges; `known` has precomputed requests of some nodes."""
    return _ForwardWriter(lifetimes, aliases, types, target, known or {}).write(load)


def operator_call(node: Node, spec: OpSpec, types: Inferred, strides: Strides) -> OpCall:
    """Return what the rules of an operator see of a node."""
    operands: Sequence[Type | None] = [None if value is None else strides.type_of(value) for value in node.inputs]
    values = [None if value is None else types.values.get(value) for value in node.inputs]
    results = [strides.type_of(output) for output in node.outputs]
    parameters = frozenset(index for index, value in enumerate(node.inputs) if value is not None and value.role is Role.PARAMETER)
    return OpCall(spec, operands, node.attrs, values, results, source=node.source, parameters=parameters)


def _may_be_on_host(graph: Graph) -> bool:
    """Return whether there are constants, or tensors of which the file says where they are."""
    declared = (*graph.weights, *graph.inputs)
    return any(value.role is Role.CONSTANT or value.type.device for value in declared)


def _names_device(node: Node) -> bool:
    return node.loc is not None and "device=" in node.loc.statement


def _rank(life: LiveRange) -> int:
    return life.rank


class _ForwardWriter:
    def __init__(
        self,
        lifetimes: Lifetimes,
        aliases: Aliases,
        types: Inferred,
        target: Target,
        known: Mapping[Node, Sequence[MemoryEvent]],
    ) -> None:
        self._lifetimes = lifetimes
        self._known = known
        self._aliases = aliases
        self._types = types
        self._target = target
        self._tape: ForwardTape = Tape()
        self._kernels = KernelWriter(self._tape, target)
        self._slots: dict[Value, int] = {}
        self._on_host: set[Value] = set()
        self._seen: dict[object, tuple[MemoryEvent, ...]] = {}
        """Requests of calls that look alike."""

    def write(self, load: Sequence[Load]) -> ForwardTape:
        """Walk the steps in order; the caller lets go of the outputs in a step of their own."""
        tape, steps = self._tape, self._lifetimes.steps
        for one in load:
            tape.load(one.size, one.kind, one.name)
        self._find_host_values()
        outputs: list[int] = []
        dying: list[list[int]] = [[] for _ in steps]
        for live in sorted(self._lifetimes.ranges, key=_rank):
            if live.value in self._on_host:
                continue
            slot = tape.slot(live.size, OUTPUT if live.is_output else ACTIVATION, live.value.name or "")
            self._slots[live.value] = slot
            tape.owners[slot] = live
            (outputs if live.is_output else dying[live.dies]).append(slot)
        for step, (node, gone) in enumerate(zip(steps, dying, strict=True)):
            tape.starts.append(len(tape.events))
            self._visit(step, node)
            tape.free(*gone)
        tape.starts.append(len(tape.events))
        tape.free(*outputs)
        tape.starts.append(len(tape.events))
        count = len(steps)
        release = Span("release", count, count + 1, counted=False)
        tape.spans = [Span(COLD, 0, count), release, Span(WARM, 0, count, again=True), release]
        return tape

    def _find_host_values(self) -> None:
        """Constants that Python creates without a device stay in host memory, and so does what is computed from them alone."""
        found, steps = self._on_host, self._lifetimes.steps
        graph = steps[0].graph if steps else None
        if graph is None or not _may_be_on_host(graph):
            return
        for node in steps:
            operands = [value for value in node.inputs if value is not None]
            if operands and all(value in found or value.role is Role.CONSTANT for value in operands) and not _names_device(node):
                found.update(node.outputs)
            for output in node.outputs:
                type_ = self._types.type_of(output)
                if type_.device and is_on_host(type_, graph):
                    found.add(output)

    def _visit(self, step: int, node: Node) -> None:
        spec = spec_of(node)
        made = {index: slot for index, output in enumerate(node.outputs) if (slot := self._slots.get(output)) is not None}
        if runs_bodies(node):
            self._inside(step, [*made.values()])
        elif spec is None or spec.temporaries is None:
            self._tape.take(*made.values())
        else:
            cached = self._known.get(node)
            self._kernels.write(self._asked(node, spec) if cached is None else cached, made)

    def _asked(self, node: Node, spec: OpSpec) -> Sequence[MemoryEvent]:
        """Return the requests of a call; repeated layers are computed once."""
        types, values, strides = self._types, self._types.values, self._aliases.strides
        operands = [
            None if value is None else (strides.type_of(value), value.role is Role.PARAMETER, value in values) for value in node.inputs
        ]
        key: object = None
        if not any(operand is not None and operand[2] for operand in operands):
            key = (node.op, node.source, *operands, *[strides.type_of(output) for output in node.outputs], *node.attrs.items())
            try:
                cached = self._seen.get(key)
            except TypeError:  # an attribute of a foreign operator may be anything
                key = cached = None
            if cached is not None:
                return cached
        made = memory_events(operator_call(node, spec, types, strides), self._target)
        if key is not None:
            self._seen[key] = made
        return made

    def _inside(self, step: int, made: list[int]) -> None:
        """Note the peak inside regions, as one allocation."""
        size = self._lifetimes.inside.get(step, 0)
        slot = self._tape.slot(size, TEMPORARY, "regions")
        self._tape.take(slot, *made)
        self._tape.free(slot)


# Training steps as they were captured.


def step_tape(trace: Trace, target: Target) -> StepTape:
    """Return the requests of a trace's steps on a device."""
    run = trace.requests
    if run is not None:
        if (run.device, run.torch) != (target.device.name, target.torch):
            what = f"{run.device} and torch {'{}.{}'.format(*run.torch)}"
            said = f"the step was compiled for {what}: for another one it is another program"
            raise UsageError(said, code="IRS396", hint=f"device {run.device}, or capture it again")
        return run.tape
    return _StepWriter(trace, target).write()


class _StepWriter:
    def __init__(self, trace: Trace, target: Target) -> None:
        self._trace = trace
        self._target = target
        self._tape: StepTape = Tape()
        self._kernels = KernelWriter(self._tape, target)
        self._slots: dict[Piece, int] = {}
        self._asked: dict[int, tuple[OpCall, tuple[MemoryEvent, ...]]] = {}
        """Requests of calls, by identity of the call."""

    def write(self) -> StepTape:
        """Walk all operators: each is a step of the tape."""
        tape, trace = self._tape, self._trace
        for piece in trace.resident:
            tape.resident.append(self._slot(piece))
        deaths = trace.deaths
        begins = {span.first: span.deaths for span in trace.steps}
        for op in trace.ops:
            dying = deaths.get(op.number, [])
            # What the functions of the last step held goes with them.
            late = [piece for piece in dying if piece.rank < begins.get(op.number, 0)]
            self._free(late)
            tape.starts.append(len(tape.events))
            self._free(dying[len(late) :])
            if not tape.phases or op.phase != tape.phases[-1][1]:
                tape.phases.append((len(tape.events), op.phase))
            self._visit(op)
        self._free([piece for piece in deaths.get(len(trace.ops), ()) if piece.rank < trace.deaths_in_all])
        tape.starts.append(len(tape.events))
        at = 0
        for span in trace.steps:
            if span.first > at:
                tape.spans.append(Span("before", at, span.first, counted=False))
            tape.spans.append(Span(span.name, span.first, span.end))
            at = span.end
        return tape

    def _slot(self, piece: Piece) -> int:
        slot = self._slots[piece] = self._tape.slot(piece.size, piece.category, piece.name)
        self._tape.owners[slot] = piece
        return slot

    def _free(self, pieces: Sequence[Piece]) -> None:
        self._tape.free(*(self._slots[piece] for piece in pieces if piece in self._slots))

    def _visit(self, op: StepOp) -> None:
        tape = self._tape
        made = {index: self._slot(piece) for index, piece in op.makes if piece.on_device}
        call = op.call
        if call is None:
            tape.take(*made.values())
            if not op.is_view and (made or op.writes):
                tape.unknown[op.source] = tape.unknown.get(op.source, 0) + 1
            return
        if not self._on_device(op) or self._target.device.lacks_cuda:
            tape.take(*made.values())  # what kernels take besides is known for CUDA alone
            return
        self._kernels.write(self._events_of(call), made)

    @staticmethod
    def _on_device(op: StepOp) -> bool:
        return any(piece.on_device for piece in (*op.reads, *op.writes))

    def _events_of(self, call: OpCall) -> tuple[MemoryEvent, ...]:
        found = self._asked.get(id(call))
        if found is None:
            found = self._asked[id(call)] = (call, memory_events(call, self._target))
        return found[1]
