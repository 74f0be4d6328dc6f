"""Differences between the exported program and the one that Python runs, and a copy of the program with them applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from irscope.devices import Target
from irscope.ir.graph import Attr, Graph, Node, Value
from irscope.ir.program import Program
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops.layouts import result_strides, row_major
from irscope.ops.registry import find_op, plays
from irscope.ops.spec import OpCall, OpRole
from irscope.passes.cuda.kernels import attention_layout


@dataclass(frozen=True)
class Fused:
    """One operator that runs in place of the operators of a module call."""

    op: str
    inputs: tuple[Value | None, ...]
    attrs: Mapping[str, Attr]
    source: str
    results: tuple[Value, ...]


@dataclass
class Changes:
    """Differences, collected while the program is analysed."""

    instead: dict[Value, Value] = field(default_factory=dict)
    """Results that are no longer computed, with the values that replace them."""
    dropped: dict[Node, tuple[dict[int, None], dict[str, Attr]]] = field(default_factory=dict)
    """Nodes that run without some operands and with other attributes."""
    fused: dict[Node, Fused] = field(default_factory=dict)
    """By the last node of those that they replace."""
    absorbed: set[Node] = field(default_factory=set)
    """Nodes that fused operators replace."""
    may_go: set[Node] = field(default_factory=set)
    """Nodes removed when dead, though they are dead in the file too (other dead nodes run)."""

    relays: bool = False
    """Whether some results have another layout on the device."""

    def __bool__(self) -> bool:
        return bool(self.instead or self.dropped or self.fused or self.relays)


def changed(program: Program, changes: Changes, target: Target) -> Program:
    """A copy of the program with the changes, without dead code."""
    return _Copy(program, changes, target).made()


class _Copy:
    def __init__(self, program: Program, changes: Changes, target: Target) -> None:
        self._program = program
        self._target = target
        self._changes = changes
        self._graph = Graph(program.graph.name, scope=program.graph.scope)
        self._values: dict[Value, Value] = {}
        self._relaid: set[Value] = set()
        """Values of the original that have another layout in the copy."""

    def made(self) -> Program:
        program, graph, copy, values = self._program, self._program.graph, self._graph, self._values
        for value in graph.inputs:
            values[value] = copy.add_input(value.type, value.name)
        for value in graph.weights:
            values[value] = copy.add_weight(value.type, value.name, value.role, graph.data.get(value))
        unused = self._unused(graph)
        for node in graph:
            stand_in = self._stand_in(node)
            if stand_in is not None:
                values[node.outputs[0]] = values[stand_in]
                self._note_layout(node.outputs[0])
            elif node in self._changes.fused:
                self._fuse(node, self._changes.fused[node])
            elif node not in unused:
                self._run(node)
        copy.set_outputs([values[value] for value in graph.outputs])
        return Program(
            copy,
            {},
            dict(program.symbols),
            program.format,
            program.path,
            dict(program.given),
            dict(program.metadata),
            assumed=list(program.assumed),
            traits=program.traits,
        )

    def _stand_in(self, node: Node) -> Value | None:
        return self._changes.instead.get(node.outputs[0]) if node.outputs else None

    def _note_layout(self, original: Value) -> None:
        if original.type.layout != self._values[original].type.layout:
            self._relaid.add(original)

    def _operands(self, node: Node) -> list[Value | None]:
        left_out, _ = self._changes.dropped.get(node, ({}, {}))
        return [None if place in left_out else value for place, value in enumerate(node.inputs)]

    def _run(self, node: Node) -> None:
        operands = self._operands(node)
        _, other = self._changes.dropped.get(node, ({}, {}))
        relaid = plays(node, OpRole.LAYOUT_BY_DEVICE) or lies_otherwise(node) or any(value in self._relaid for value in operands)
        inputs = [None if value is None else self._values[value] for value in operands]
        types = [self._type(node, index, inputs) if relaid else output.type for index, output in enumerate(node.outputs)]
        names = [output.name for output in node.outputs]
        made = self._graph.append(
            node.op, inputs, types, {**node.attrs, **other}, names=names, scope=node.scope, loc=node.loc, source=node.source
        )
        for original, output in zip(node.outputs, made.outputs, strict=True):
            self._values[original] = output
            if relaid:
                self._note_layout(original)

    def _type(self, node: Node, index: int, inputs: list[Value | None]) -> Type:
        """The type of a result whose operands have another layout than the file says."""
        type_, spec = node.outputs[index].type, find_op(node.op)
        if type_.shape is None or spec is None:
            return type_
        operands = [value.type if value is not None and isinstance(value.type, TensorType) else None for value in inputs]
        plain = tensor(type_.dtype, type_.shape, type_.device)
        if OpRole.LAYOUT_BY_DEVICE in spec.roles:
            layout = attention_layout(OpCall(spec, operands, node.attrs, (), [type_]), self._target, type_.layout)
        else:
            results = [plain if output is node.outputs[index] else output.type for output in node.outputs]
            layout = result_strides(OpCall(spec, operands, node.attrs, (), results, source=node.source), index)
        return plain if layout == row_major(type_.shape) else tensor(type_.dtype, type_.shape, type_.device, layout)

    def _fuse(self, node: Node, fused: Fused) -> None:
        inputs = [None if value is None else self._values[value] for value in fused.inputs]
        types = [tensor(one.type.dtype, one.type.shape, one.type.device) for one in fused.results if isinstance(one.type, TensorType)]
        names = [result.name for result in fused.results]
        made = self._graph.append(fused.op, inputs, types, fused.attrs, names=names, scope=node.scope, loc=node.loc, source=fused.source)
        for original, output in zip(fused.results, made.outputs, strict=True):
            self._values[original] = output
            self._note_layout(original)

    def _unused(self, graph: Graph) -> set[Node]:
        """Dead nodes: no output depends on them."""
        unused = set(self._changes.absorbed)
        needed = set(graph.outputs)
        for node in reversed(list(graph)):
            stand_in = self._stand_in(node)
            if stand_in is not None:
                if node.outputs[0] in needed:
                    needed.add(stand_in)
            elif node in self._changes.fused:
                needed.update(value for value in self._changes.fused[node].inputs if value is not None)
            elif node in unused:
                continue
            elif any(output in needed for output in node.outputs) or not self._may_go(node):
                needed.update(value for value in self._operands(node) if value is not None)
            else:
                unused.add(node)
        return unused

    def _may_go(self, node: Node) -> bool:
        """A node that is dead in the file runs nevertheless; one that became dead by the changes does not."""
        return "inplace" not in node.attrs and (node in self._changes.may_go or any(output.users for output in node.outputs))


def lies_otherwise(node: Node) -> bool:
    """Whether a result's layout differs from the exporter's, which does not know that dropout returns its operand in inference, nor
    which stride a view gives an axis of size 1."""
    operand = node.inputs[0] if node.inputs else None
    if operand is None or operand.type.layout is None:
        return False
    if plays(node, OpRole.DROPOUT):
        return not node.attrs.get("training") and operand.type.layout != node.outputs[0].type.layout
    stated, spec = node.outputs[0].type, find_op(node.op)
    if (
        spec is None
        or OpRole.UNIT_STRIDES not in spec.roles
        or not isinstance(stated, TensorType)
        or not isinstance(operand.type, TensorType)
    ):
        return False
    if stated.layout is None or stated.shape is None or 1 not in stated.shape:
        return False
    plain = tensor(stated.dtype, stated.shape, stated.device)
    layout = result_strides(OpCall(spec, [operand.type], node.attrs, (), [plain], source=node.source))
    return layout is not None and layout != stated.layout
