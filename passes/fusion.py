"""Groups of nodes that one kernel could do, by named patterns, with what that would save."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from irscope.ir.dims import Dim, SymDim, total_of
from irscope.ir.graph import Facet, Graph, Node
from irscope.passes.alias import Alias
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passes.cost.entries import Certainty
from irscope.passes.cost.tables import cell
from irscope.passes.inference.engine import Inferred
from irscope.passes.order.effects import Effects
from irscope.passes.patterns.fusible import Matcher
from irscope.passes.patterns.groups import by_node, hindrance, is_closed
from irscope.passes.shapes import Shapes
from irscope.passes.sizes import CONVENTION, at_least, dim_cell, scale
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.report.units import Kind

_NOTES = (
    "saved: bytes that the nodes read and write one by one, less those that a single kernel would: its operands once, its result once",
    "legal: nothing outside reads, returns or overwrites what is made inside, and no effect must happen in between; "
    "groups do not overlap. Whether a backend has such a kernel is not checked",
)


@dataclass(frozen=True, slots=True)
class Group:
    """One group; `hindrance` says why it must not be fused, where it must not."""

    pattern: str
    nodes: tuple[Node, ...]
    unfused: Dim | None
    """Bytes that the nodes move one by one; None where a cost is unknown."""
    fused: Dim | None
    launches: int
    """Kernels that are started fewer."""
    hindrance: str = ""

    @property
    def saved(self) -> Dim | None:
        """Bytes that are moved less; never less than nothing."""
        if self.unfused is None or self.fused is None:
            return None
        less = self.unfused - self.fused
        return less if isinstance(less, SymDim) else max(less, 0)


@dataclass(frozen=True)
class Fusions:
    """The answer of the pass: groups in program order, and those that were found but must not be fused."""

    groups: tuple[Group, ...]
    refused: tuple[Group, ...]


@dataclass(frozen=True)
class Fusion(Analysis[Fusions]):
    """Find groups of nodes that could be fused into one kernel, with the bytes and launches saved."""

    name: ClassVar[str] = "fusion"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    top: int = 0
    """Groups shown, most bytes first; 0 for all in program order."""

    def compute(self, graph: Graph, ctx: PassContext) -> Fusions:
        types, costs, aliases = ctx.get(Shapes), ctx.get(NodeCosts()), ctx.get(Alias())
        edges = by_node(ctx.get(Effects()).edges)
        taken: set[Node] = set()
        groups: list[Group] = []
        refused: list[Group] = []
        for pattern, nodes in Matcher(types).matches(list(ctx.each(graph, "matching", len(graph)))):
            if len(nodes) < 2 or any(node in taken for node in nodes):
                continue
            why = hindrance(nodes, aliases, edges) if is_closed(nodes) else "something outside reads what is made inside"
            group = _group(pattern, nodes, types, costs, why)
            if why:
                refused.append(group)
                continue
            taken.update(nodes)
            groups.append(group)
        for found in (groups, refused):
            found.sort(key=lambda one: one.nodes[0].order)
        return Fusions(tuple(groups), tuple(refused))

    def report(self, result: Fusions, ctx: PassContext) -> Report:
        groups, costs = result.groups, ctx.get(NodeCosts())
        # An unknown operator may belong to a group.
        complete = not costs.missing
        shown = sorted(groups, key=lambda one: -scale(0 if one.saved is None else one.saved))[: self.top] if self.top > 0 else groups
        patterns: dict[str, list[Group]] = {}
        for group in groups:
            patterns.setdefault(group.pattern, []).append(group)
        summary_rows = [
            (
                name,
                len(found),
                sum(len(one.nodes) for one in found),
                dim_cell(total_of(one.saved for one in found)),
                sum(one.launches for one in found),
            )
            for name, found in sorted(patterns.items())
        ]
        columns = ["pattern:text", "groups:count", "nodes:count", "saved:bytes", "launches:count"]
        tables = [Table.of(summary_rows, columns=columns, title="patterns"), _table("groups", shown)]
        if result.refused:
            tables.append(_table("not legal", result.refused, legal=False))
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "group_count": at_least(len(groups), complete),
                "saved_bytes": at_least(total_of(one.saved for one in groups), complete),
                "saved_launches": at_least(sum(one.launches for one in groups), complete),
                "moved_bytes": cell(costs.tally.moved, costs.tally.moved_limits),
                "not_legal": at_least(len(result.refused), complete),
            },
            units={"saved_launches": Kind.COUNT, "not_legal": Kind.COUNT},
            tables=tuple(tables),
            notes=(CONVENTION, *_NOTES),
        )


def _group(pattern: str, nodes: list[Node], types: Inferred, costs: Costs, why: str) -> Group:
    unfused: Dim | None = 0
    launches = -1
    for node in nodes:
        cost = costs.by_node.get(node)
        if cost is None or cost.read is None or cost.written is None:
            unfused = None
        elif unfused is not None:
            unfused = unfused + cost.read + cost.written
        launches += costs.certainty.get(node) is not Certainty.FREE
    inside = {value for node in nodes for value in node.outputs}
    outside = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None and value not in inside)
    results = [value for value in nodes[-1].outputs if value.users]
    fused = total_of(types.type_of(value).tensor_bytes for value in (*outside, *results))
    return Group(pattern, tuple(nodes), unfused, fused, max(launches, 0), why)


def _table(title: str, groups: Iterable[Group], *, legal: bool = True) -> Table:
    columns = ["pattern:text", "module:text", "nodes:count", "first:node", "last:node", "operators:text", "moved:bytes", "saved:bytes"]
    rows = [
        (
            one.pattern,
            one.nodes[0].scope.path,
            len(one.nodes),
            one.nodes[0].name,
            one.nodes[-1].name,
            ", ".join(dict.fromkeys(node.op for node in one.nodes)),
            dim_cell(one.unfused),
            dim_cell(one.saved),
            one.launches if legal else one.hindrance,
        )
        for one in groups
    ]
    return Table.of(rows, [*columns, "launches:count" if legal else "hindrance:text"], title=title)
