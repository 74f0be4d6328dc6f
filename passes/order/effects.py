"""Ordering constraints of a schedule besides data dependences: reads and writes of one storage, and side effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from irscope.immutable import immutable, mutable
from irscope.ir.graph import Facet, Graph, Node, Role, Value
from irscope.ops.registry import spec_of
from irscope.passes.graph.alias import Alias, Aliases, written_operand
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Table

READ_AFTER_WRITE = "read after write"
WRITE_AFTER_READ = "write after read"
WRITE_AFTER_WRITE = "write after write"
EFFECT = "effect"


@immutable
class Edge:
    """`before` must run before `after` because of what both do to a storage, or to the world."""

    before: Node
    after: Node
    kind: str
    storage: Value | None
    """The storage by the value that had it first; None for effects on the world."""


@mutable
class Order:
    """Edges between nodes of the main graph; what regions do counts for the node that owns them."""

    edges: list[Edge] = field(default_factory=list)
    mutated: list[Value] = field(default_factory=list)
    """Inputs and weights that the model writes, each once."""

    def before(self) -> Mapping[Node, list[Node]]:
        """Return for each node those that must run before it."""
        found: dict[Node, list[Node]] = {}
        for edge in self.edges:
            found.setdefault(edge.after, []).append(edge.before)
        return found


@mutable
class _Access:
    """The readers of a storage since it was last written, and its writer."""

    writer: Node | None = None
    readers: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Effects(Analysis[Order]):
    """Find ordering constraints between nodes that use the same storage."""

    name: ClassVar[str] = "effects"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    def compute(self, graph: Graph, ctx: PassContext) -> Order:
        aliases = ctx.get(Alias())
        order = Order()
        written = {storage for node in graph.walk() for value in writes(node) for storage in aliases.storages(value)}
        accesses: dict[Value, _Access] = {storage: _Access() for storage in written}
        last_effect: Node | None = None
        for node in ctx.each(graph, "ordering", len(graph)):
            if written:
                _visit(node, aliases, accesses, order)
            if _has_effect(node):
                if last_effect is not None:
                    order.edges.append(Edge(last_effect, node, EFFECT, None))
                last_effect = node
        declared = (*graph.inputs, *graph.weights)
        order.mutated = [value for value in declared if value in written and value.role is not Role.ARGUMENT]
        return order

    def report(self, result: Order, ctx: PassContext) -> Report:
        kinds = {kind: 0 for kind in (READ_AFTER_WRITE, WRITE_AFTER_READ, WRITE_AFTER_WRITE, EFFECT)}
        for edge in result.edges:
            kinds[edge.kind] += 1
        rows = [(edge.before.name, edge.after.name, edge.kind, _name(edge.storage)) for edge in result.edges]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "edges": len(result.edges),
                **{kind.replace(" ", "_"): count for kind, count in kinds.items()},
                "mutated": ", ".join(_name(value) for value in result.mutated) or "none",
            },
            tables=(Table.of(rows, columns=["before:node", "after:node", "kind", "storage:value"], title="order to keep"),),
        )


def _visit(node: Node, aliases: Aliases, accesses: dict[Value, _Access], order: Order) -> None:
    inner = list(_region_nodes(node))
    wrote = dict.fromkeys(storage for one in (node, *inner) for value in writes(one) for storage in aliases.storages(value))
    read = dict.fromkeys(
        storage for one in (node, *inner) for value in one.inputs if value is not None for storage in aliases.storages(value)
    )
    for storage in read:
        access = accesses.get(storage)
        if access is None:
            continue
        if storage not in wrote:
            _link(order, access.writer, node, READ_AFTER_WRITE, storage)
            access.readers.append(node)
    for storage in wrote:
        access = accesses[storage]
        for reader in access.readers:
            _link(order, reader, node, WRITE_AFTER_READ, storage)
        if storage in read:
            # What works in place reads what the last writer left.
            _link(order, access.writer, node, READ_AFTER_WRITE, storage)
        _link(order, access.writer, node, WRITE_AFTER_WRITE, storage)
        access.writer, access.readers = node, []
    for output in node.outputs:
        # Whoever makes a storage writes it first.
        access = accesses.get(output)
        if access is not None and access.writer is None:
            access.writer = node


def _link(order: Order, before: Node | None, after: Node, kind: str, storage: Value) -> None:
    if before is not None and before is not after:
        order.edges.append(Edge(before, after, kind, storage))


def _region_nodes(node: Node) -> Iterator[Node]:
    for region in node.regions:
        yield from region.walk()


def writes(node: Node) -> list[Value]:
    """Return the values whose storage a node writes besides those it makes."""
    found = written_operand(node)
    values = [] if found is None else [found]
    spec = spec_of(node)
    for index in spec.writes if spec is not None else ():
        operand = node.inputs[index] if index < len(node.inputs) else None
        if operand is not None:
            values.append(operand)
    return values


def _has_effect(node: Node) -> bool:
    spec = spec_of(node)
    return spec is not None and spec.has_effect


def _name(value: Value | None) -> str:
    return "" if value is None else value.name or (value.node.name if value.node is not None else "unnamed")
