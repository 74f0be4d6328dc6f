"""Lowers the nodes of one graph: the main one, a region's, or the body of a function that is inlined."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx

from irscope.budget import spend
from irscope.frontends.onnx.attributes import AttrValue, decode
from irscope.frontends.onnx.call import Call, Mismatch, Operand
from irscope.frontends.onnx.failures import BAD_GRAPH, MISUSED, TOO_LARGE, refuse, short
from irscope.frontends.onnx.foreign import keep_foreign
from irscope.frontends.onnx.order import Row, in_order
from irscope.frontends.onnx.scopes import Scopes
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.places import Scope
from irscope.ir.types import UNKNOWN_TENSOR, Type

if TYPE_CHECKING:
    from irscope.frontends.onnx.model import Model

DEEPEST = 64
"""Functions within functions and graphs within graphs, all together."""
_HAS_METADATA = "metadata_props" in onnx.NodeProto.DESCRIPTOR.fields_by_name
_HAS_OVERLOAD = "overload" in onnx.NodeProto.DESCRIPTOR.fields_by_name


class Body:
    """One level of names. A region's body sees the names around it; a function's body sees only its arguments."""

    def __init__(
        self,
        model: Model,
        graph: Graph,
        opsets: Mapping[str, int],
        scopes: Scopes,
        *,
        outer: Body | None = None,
        depth: int = 0,
        scope: Scope | None = None,
    ) -> None:
        if depth > DEEPEST:
            raise refuse(TOO_LARGE, f"graphs and functions are nested more than {DEEPEST} deep", model.where)
        self.model = model
        self.graph = graph
        self.opsets = opsets
        self.scopes = scopes
        self.outer = outer
        self.depth = depth
        self.scope = scope if scope is not None else scopes.root
        """Scope of nodes that name none."""
        self.values: dict[str, Operand] = {}
        self.declared: dict[str, onnx.TypeProto] = {}
        self.renamed: dict[str, str] = {}
        """What results of a function are called where it is used."""
        self.prefix = ""
        self.arguments: Mapping[str, AttrValue] | None = None
        """Attributes of the call that is inlined; None outside of functions."""
        self.constants: dict[str, Value] | None = None
        """Constants of a function, shared by all its calls; None outside of functions."""
        self.origins = array("l")
        """The number of the file's node that each node stands for which was lowered here."""
        self._repeated: dict[tuple[Scope, str], int] = {}

    # -- names and types ---------------------------------------------------------------------------------------

    def find(self, name: str) -> Operand:
        """The value that a name stands for here; raises LoadError where there is none."""
        body: Body | None = self
        while body is not None:
            if name in body.values:
                return body.values[name]
            body = body.outer
        raise refuse(
            BAD_GRAPH,
            f"'{short(name)}' is used but nothing makes it",
            f"graph '{short(self.graph.name)}'",
            "the model is damaged or incomplete",
        )

    def knows(self, name: str) -> bool:
        """Whether a name stands for something here or around here."""
        body: Body | None = self
        while body is not None:
            if name in body.values:
                return True
            body = body.outer
        return False

    def shown_name(self, name: str) -> str:
        """What a name of this level is called in the program, if nothing else has that name."""
        return self.renamed[name] if name in self.renamed else self.prefix + name if name else ""

    def new_name(self, name: str) -> str | None:
        """A unique name for a value of this level; None for one without a name."""
        shown = self.shown_name(name)
        return self.model.names.unique(shown) if shown else None

    def declared_type(self, name: str, undeclared: Type = UNKNOWN_TENSOR) -> Type:
        """The type that the file gives for a result; the `shapes` pass trusts only those of foreign operators."""
        proto = self.declared.get(name)
        if proto is None:
            return undeclared
        return self.model.types.of_result(proto)

    def declare(self, infos: Iterable[onnx.ValueInfoProto]) -> None:
        for info in infos:
            if info.HasField("type"):
                self.declared[info.name] = info.type

    # -- nodes -------------------------------------------------------------------------------------------------

    def lower_nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Lower all nodes, in an order in which everything is made before it is used."""
        rows = [Row(node, list(node.input), list(node.output)) for node in nodes]
        self.model.count(len(rows))
        numbers = {id(row): number for number, row in enumerate(rows)}
        rows = in_order(rows, self)
        rows.reverse()
        while rows:
            row = rows.pop()
            before = len(self.graph)
            spend(20, "nodes of the graph")
            self._lower(row)
            self.origins.extend([numbers[id(row)]] * (len(self.graph) - before))

    def _lower(self, row: Row) -> None:
        node, inputs, outputs = row
        values = self.values
        operands: list[Operand] = []
        for name in inputs:
            if not name:
                operands.append(None)
            else:
                found = values.get(name)
                operands.append(found if found is not None else self.find(name))
        while outputs and not outputs[-1]:
            outputs.pop()
        op_type = node.op_type
        overload = node.overload if _HAS_OVERLOAD else ""
        name = node.name
        entry = self.model.operator(self.opsets, node.domain, op_type, overload)
        scope, loc = self.scope, None
        metadata = node.metadata_props if _HAS_METADATA else ()
        if metadata:
            entries = {item.key: item.value for item in metadata}
            found_scope = self.scopes.of_metadata(entries)
            loc = self.model.locations.of_metadata(entries)
            scope = found_scope if found_scope is not None else self._named_scope(name, op_type)
        elif name:
            scope = self._named_scope(name, op_type)
        attrs = self._attributes(node)
        call = Call(self, entry.domain, op_type, entry.version, name, operands, outputs, attrs, scope, loc, entry.source)
        try:
            entry.check(len(operands))
            entry.lower(call)
        except Mismatch as mismatch:
            shown = short(name or next(iter(outputs), ""))
            self.model.sink.warn(
                MISUSED,
                f"{op_type} '{shown}' is not as its operator asks: {mismatch}; it is kept as it is",
                node=shown,
                hint="its results are unknown",
            )
            keep_foreign(call)

    def _named_scope(self, name: str, op_type: str) -> Scope:
        found = self.scopes.of_name(name, op_type) if name else self.scope
        return self.scope if found is self.scopes.root else found

    def _attributes(self, node: onnx.NodeProto) -> dict[str, AttrValue]:
        if self.arguments is None:
            return {attribute.name: decode(attribute) for attribute in node.attribute}
        attrs: dict[str, AttrValue] = {}
        for attribute in node.attribute:
            value = self.arguments.get(attribute.ref_attr_name) if attribute.ref_attr_name else decode(attribute)
            if value is not None:
                attrs[attribute.name] = value
        return attrs

    def call_scope(self, parent: Scope, name: str, cls: str) -> Scope:
        """The scope of another call of a function."""
        count = self._repeated.get((parent, name), 0)
        self._repeated[parent, name] = count + 1
        return parent.child(name, cls, count)

    # -- regions -----------------------------------------------------------------------------------------------

    def lower_region(self, owner: Node, name: str, proto: onnx.GraphProto, count: int | None = None) -> Graph:
        """Lower a graph attribute as a region; `count` is the number of its arguments."""
        region = self.graph.add_region(owner, name)
        body = Body(self.model, region, self.opsets, self.scopes, outer=self, depth=self.depth + 1, scope=owner.scope)
        body.arguments, body.prefix, body.constants = self.arguments, self.prefix, None
        body.declare(proto.value_info)
        body.declare(proto.output)
        if count is not None and len(proto.input) != count:
            raise refuse(
                BAD_GRAPH,
                f"the graph '{short(proto.name)}' of '{short(owner.name)}' takes {len(proto.input)} values, it is given {count}",
                self.model.where,
                "the model is damaged",
            )
        for info in proto.input:
            type_ = self.model.types.of_result(info.type) if info.HasField("type") else UNKNOWN_TENSOR
            body.define(info.name, region.add_input(type_, body.new_name(info.name)))
        self.model.add_initializers(body, proto)
        body.lower_nodes(proto.node)
        region.set_outputs(body.results([info.name for info in proto.output]))
        return region

    def define(self, name: str, value: Operand) -> None:
        """Let a name stand for a value; it may not stand for another one of this level."""
        if name in self.values:
            raise refuse(BAD_GRAPH, f"'{short(name)}' is declared twice", f"graph '{short(self.graph.name)}'", "the model is damaged")
        self.values[name] = value

    def results(self, names: Sequence[str]) -> list[Value]:
        found: list[Value] = []
        for name in names:
            value = self.find(name)
            if value is None:
                raise refuse(BAD_GRAPH, f"the result '{short(name)}' is an argument that was not given", self.model.where)
            found.append(value)
        return found


Lower = Callable[[Call], None]
