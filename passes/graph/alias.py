"""Which values share a storage: views, writes in place, lists; a reshape copies exactly where strides say that it must."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from irscope.immutable import immutable, mutable
from irscope.ir.graph import Facet, Graph, Node, Value
from irscope.ir.program import Observed
from irscope.ir.types import Layout, TensorType, Type, tensor
from irscope.ops.layouts import result_strides, row_major, strides_rule
from irscope.ops.registry import spec_of
from irscope.ops.spec import OpCall, OpSpec
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Table

_ALWAYS_VIEWS = frozenset({"aten::view", "aten::_unsafe_view", "aten::view_as"})
"""They raise where a copy would be needed."""


@immutable
class MayShare:
    """A result that shares its operand's storage or is a copy, depending on strides that are not known."""

    node: Node
    result: Value
    operand: Value


@mutable
class Aliases:
    """Storages of the values, each named by the value that had it first."""

    strides: Strides
    """Strides of each value in its storage."""
    parents: dict[Value, Value] = field(default_factory=dict)
    """The value whose storage a value shares, for values that share one."""
    contents: dict[Value, tuple[Value, ...]] = field(default_factory=dict)
    """Storages that a list, a tuple or the result of a branch may hold, by the value that holds them."""
    undecided: list[MayShare] = field(default_factory=list)

    def storage(self, value: Value) -> Value:
        """Return the value that had this value's storage first: itself where it shares none."""
        parents = self.parents
        parent = parents.get(value)
        if parent is None:
            return value
        while (above := parents.get(parent)) is not None:
            parent = above
        parents[value] = parent
        return parent

    def storages(self, value: Value) -> tuple[Value, ...]:
        """Return every storage that a value keeps alive: more than one for lists."""
        held = self.contents.get(value)
        own = self.storage(value)
        return (own,) if held is None else (own, *held)

    def share(self, result: Value, operand: Value) -> None:
        """Note that a result has its operand's storage, and holds what that one holds."""
        root = self.storage(operand)
        if root is not result:
            self.parents[result] = root
        held = self.contents.get(operand)
        if held is not None:
            self.contents[result] = held

    def hold(self, holder: Value, items: Iterable[Value]) -> None:
        """Note that a value keeps others alive besides what it holds already."""
        found = dict.fromkeys(self.contents.get(holder, ()))
        for item in items:
            found.update(dict.fromkeys(self.storages(item)))
        found.pop(self.storage(holder), None)
        self.contents[holder] = tuple(found)

    def believe(self, watched: Observed) -> None:
        """Put what was seen in a run in the place of what rules say."""
        for value, first in watched.storages.items():
            self.parents.pop(value, None)
            self.contents.pop(value, None)
            if value is not first:
                self.parents[value] = first
        self.undecided = [one for one in self.undecided if one.result not in watched.storages]


@dataclass(frozen=True)
class Alias(Analysis[Aliases]):
    """Find which values share a storage."""

    name: ClassVar[str] = "alias"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    undecided: Literal["copy", "share"] = "copy"
    """Treatment of a result where unknown strides decide between a view and a copy."""

    def compute(self, graph: Graph, ctx: PassContext) -> Aliases:
        types = ctx.get(Shapes)
        strides = Strides(types, follow=ctx.program.traits.follows_strides)
        finder = _Finder(types, strides, self.undecided == "share")
        total = sum(len(body) for body in ctx.program.bodies())
        # Every value of a body is defined before it is used, and a region's node stands before the region's own nodes.
        bodies = (graph, *ctx.program.functions.values())
        for node in ctx.each((node for body in bodies for node in body.walk()), "following storages", total):
            finder.visit(node)
        for body in ctx.program.bodies():
            finder.leave(body)
        watched = ctx.program.watched
        if watched is not None:
            finder.found.believe(watched)
        return finder.found

    def report(self, result: Aliases, ctx: PassContext) -> Report:
        values = [output for node in ctx.program.graph.walk() for output in node.outputs]
        shared = [value for value in values if result.storage(value) is not value]
        rows = [(value.name or "", result.storage(value).name or "", _maker_op(value)) for value in shared]
        unknown = [(one.node.name, one.result.name or "", one.operand.name or "") for one in result.undecided]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={"values": len(values), "storages": len(values) - len(shared), "undecided": len(result.undecided)},
            tables=(
                Table.of(rows, columns=["value", "storage:value", "operator:text"], title="values that share a storage"),
                Table.of(unknown, columns=["node", "result:value", "operand:value"], title="views or copies"),
            ),
        )


class _Finder:
    """Visits nodes in program order."""

    def __init__(self, types: Inferred, strides: Strides, undecided_shares: bool) -> None:
        self.types = types
        self.strides = strides
        self.undecided_shares = undecided_shares
        self.found = Aliases(strides)

    def visit(self, node: Node) -> None:
        spec = spec_of(node)
        written = written_operand(node)
        if spec is not None and spec.aliases:
            self._by_schema(node, spec, written)
        if written is not None and node.outputs:
            self.found.share(node.outputs[0], written)
        if node.regions:
            self._enter(node)
        self.strides.visit(node, spec)

    def _by_schema(self, node: Node, spec: OpSpec, written: Value | None) -> None:
        for rule in spec.aliases:
            operands = node.inputs[rule.operand :] if spec.schema.operands[rule.operand].variadic else node.inputs[rule.operand :][:1]
            results = node.outputs[rule.result :] if spec.schema.results[rule.result].variadic else node.outputs[rule.result :][:1]
            sources = [operand for operand in operands if operand is not None]
            if written is not None and rule.result == 0:
                continue
            for result in results:
                if self._is_container(result, sources):
                    self.found.hold(result, sources)
                elif sources and (not rule.may or self._shares(node, spec, result, sources[0])):
                    self.found.share(result, sources[0])

    def _is_container(self, result: Value, sources: list[Value]) -> bool:
        """Return whether a result may hold several storages, or one of several."""
        if len(sources) > 1 or any(source in self.found.contents for source in sources):
            return True
        types = (self.types.type_of(value) for value in (result, *sources))
        return any(not isinstance(type_, TensorType) for type_ in types)

    def _shares(self, node: Node, spec: OpSpec, result: Value, operand: Value) -> bool:
        if node.source in _ALWAYS_VIEWS:
            return True
        verdict: bool | None = None
        if spec.shares is not None:
            types = [None if value is None else self.strides.type_of(value) for value in node.inputs]
            results: list[Type] = [self.types.type_of(output) for output in node.outputs]
            known = [None if value is None else self.types.values.get(value) for value in node.inputs]
            try:
                verdict = spec.shares(OpCall(spec, types, node.attrs, known, results))
            except Exception:  # operands of a model that contradicts itself are what no rule expects
                verdict = None
        if verdict is None:
            self.found.undecided.append(MayShare(node, result, operand))
            return self.undecided_shares
        return verdict

    def _enter(self, node: Node) -> None:
        """Note that a region's arguments hold the storages of the node's operands; a loop may give any of its operands."""
        operands = [value for value in node.inputs if value is not None]
        for region in node.regions:
            for argument in region.inputs:
                self.found.hold(argument, operands)

    def leave(self, body: Graph) -> None:
        """Note that values from outside that regions yield are also held by the results of their node."""
        node = body.owner
        if node is None or not node.outputs:
            return
        inside = {value for inner in body for value in inner.outputs}
        outer = [value for value in body.outputs if self.found.storage(value) not in inside]
        for output in node.outputs if outer else ():
            self.found.hold(output, outer)


def written_operand(node: Node) -> Value | None:
    """Return the operand that a node works in place on; its first result is that operand."""
    index = node.attrs.get("inplace")
    if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < len(node.inputs):
        return node.inputs[index]
    return None


def _maker_op(value: Value) -> str:
    return value.node.op if value.node is not None else ""


# Strides of every tensor: as the file states them, or propagated through the operators.


class Strides:
    """Types with strides: those that the file states, else propagated from node to node."""

    def __init__(self, types: Inferred, follow: bool) -> None:
        self._types = types
        self._follow = follow
        self._layouts: dict[Value, Layout] = {}

    def type_of(self, value: Value | None) -> Type:
        """Return the inferred type with the strides of the value."""
        type_ = self._types.type_of(value)
        if value is None or not isinstance(type_, TensorType):
            return type_
        layout = self._layout(value, type_)
        return type_ if layout is type_.layout else tensor(type_.dtype, type_.shape, type_.device, layout)

    def _layout(self, value: Value, type_: TensorType) -> Layout:
        stated = value.type
        if stated.layout is not None and stated.shape == type_.shape:
            return stated.layout
        return self._layouts.get(value) if self._follow else None

    def visit(self, node: Node, spec: OpSpec | None) -> None:
        """Work out the strides of a node's results."""
        if not self._follow or spec is None or not node.outputs:
            return
        operands = [None if value is None else self.type_of(value) for value in node.inputs]
        rule = strides_rule(spec)
        is_plain = all(type_ is None or type_.layout is None for type_ in operands)
        if is_plain and (rule is None or not rule.from_plain):
            return
        results = [self._types.type_of(output) for output in node.outputs]
        call = OpCall(spec, operands, node.attrs, (), results, source=node.source)
        for index, (output, result) in enumerate(zip(node.outputs, results, strict=True)):
            layout = result_strides(call, index) if isinstance(result, TensorType) else None
            # Strides of axes of size 1 say nothing of where elements are, but decide what format a tensor seems to have.
            if isinstance(layout, tuple) and layout != row_major(result.shape or ()):
                self._layouts[output] = layout
