"""The allocator requests of a forward pass, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from irscope.devices import Target
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.types import Type
from irscope.ops.registry import find_op, runs_bodies
from irscope.ops.spec import MemoryEvent, OpCall, OpSpec, memory_events
from irscope.passes.alias import Aliases
from irscope.passes.cuda.loading import is_on_host
from irscope.passes.cuda.tape import TEMPORARY, KernelWriter, Tape
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.lives import LiveRange
from irscope.passes.lifetimes.strides import Strides
from irscope.passes.ranges import Lifetimes

ACTIVATION, OUTPUT = "activation", "output"


@dataclass
class Stream(Tape):
    """Requests of one forward pass."""

    kept: list[int] = field(default_factory=list)
    """Slots that the first forward allocates and never frees: workspaces."""
    outputs: list[int] = field(default_factory=list)
    """Slots that the caller frees after the forward."""
    tensors: dict[int, LiveRange] = field(default_factory=dict)
    """Slots of tensors; the others are temporary memory of kernels and libraries."""


def forward_stream(
    lifetimes: Lifetimes,
    aliases: Aliases,
    types: Inferred,
    target: Target,
    known: Mapping[Node, Sequence[MemoryEvent]] | None = None,
) -> Stream:
    """The requests of a forward pass with the given live ranges; `known` has precomputed requests of some nodes."""
    return _Builder(lifetimes, aliases, types, target, known or {}).build()


def operator_call(node: Node, spec: OpSpec, types: Inferred, strides: Strides) -> OpCall:
    """What the rules of an operator see of a node."""
    operands: Sequence[Type | None] = [None if value is None else strides.type_of(value) for value in node.inputs]
    values = [None if value is None else types.values.get(value) for value in node.inputs]
    results = [strides.type_of(output) for output in node.outputs]
    parameters = frozenset(index for index, value in enumerate(node.inputs) if value is not None and value.role is Role.PARAMETER)
    return OpCall(spec, operands, node.attrs, values, results, source=node.source, parameters=parameters)


def _may_be_on_host(graph: Graph) -> bool:
    """Whether there are constants, or tensors of which the file says where they are."""
    declared = (*graph.weights, *graph.inputs)
    return any(value.role is Role.CONSTANT or value.type.device for value in declared)


def _names_device(node: Node) -> bool:
    return node.loc is not None and "device=" in node.loc.statement


def _rank(one: LiveRange) -> int:
    return one.rank


class _Builder:
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
        self._stream = Stream()
        self._kernels = KernelWriter(self._stream, target)
        self._slots: dict[Value, int] = {}
        self._dying: list[list[int] | None] = [None] * len(lifetimes.steps)
        self._on_host: set[Value] = set()
        self._seen: dict[object, tuple[MemoryEvent, ...]] = {}
        """What calls that look alike ask for."""

    def build(self) -> Stream:
        """Walk the steps in order."""
        stream, steps = self._stream, self._lifetimes.steps
        self._find_host_values()
        for one in sorted(self._lifetimes.ranges, key=_rank):
            if one.value in self._on_host:
                continue
            slot = stream.slot(one.size, OUTPUT if one.is_output else ACTIVATION, one.value.name or "")
            self._slots[one.value] = slot
            stream.tensors[slot] = one
            if one.is_output:
                stream.outputs.append(slot)
            else:
                dying = self._dying[one.dies]
                if dying is None:
                    self._dying[one.dies] = [~slot]
                else:
                    dying.append(~slot)
        for step, (node, dying) in enumerate(zip(steps, self._dying, strict=True)):
            stream.starts.append(len(stream.events))
            self._visit(step, node)
            if dying is not None:
                stream.events.extend(dying)
        stream.kept.extend(self._kernels.kept.values())
        return stream

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
        spec = find_op(node.op)
        made = {index: slot for index, output in enumerate(node.outputs) if (slot := self._slots.get(output)) is not None}
        if runs_bodies(node):
            self._inside(step, [*made.values()])
        elif spec is None or spec.temporaries is None:
            self._stream.events.extend(made.values())
        else:
            found = self._known.get(node)
            self._kernels.write(self._asked(node, spec) if found is None else found, made)

    def _asked(self, node: Node, spec: OpSpec) -> Sequence[MemoryEvent]:
        """The requests of a call; repeated layers are computed once."""
        types, values, strides = self._types, self._types.values, self._aliases.strides
        operands = [
            None if value is None else (strides.type_of(value), value.role is Role.PARAMETER, value in values) for value in node.inputs
        ]
        key: object = None
        if not any(operand is not None and operand[2] for operand in operands):
            key = (node.op, node.source, *operands, *[strides.type_of(output) for output in node.outputs], *node.attrs.items())
            try:
                found = self._seen.get(key)
            except TypeError:  # an attribute of a foreign operator may be anything
                key = found = None
            if found is not None:
                return found
        made = memory_events(operator_call(node, spec, types, strides), self._target)
        if key is not None:
            self._seen[key] = made
        return made

    def _inside(self, step: int, made: list[int]) -> None:
        """The peak inside regions, as one allocation."""
        size = self._lifetimes.inside.get(step, 0)
        events = self._stream.events
        slot = self._stream.slot(size, TEMPORARY, "regions")
        events.append(slot)
        events.extend(made)
        events.append(~slot)
