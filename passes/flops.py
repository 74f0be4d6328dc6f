"""Arithmetic and traffic of every node by its operator's cost rule. A multiply-add is 2 FLOPs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from irscope.diagnostics import Diagnostic, Severity
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Facet, Graph, Node
from irscope.ops.call import OpCall
from irscope.ops.cost import FLOP_CLASSES, Cost
from irscope.ops.registry import find_op
from irscope.passes.inference.engine import Inferred
from irscope.passes.shapes import Shapes
from irscope.passes.sizes import CONVENTION, plain, scale
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Table
from irscope.report.units import Kind


@dataclass
class Costs:
    """Cost of each node that has one, with what is inside its regions, and the total."""

    by_node: dict[Node, Cost] = field(default_factory=dict)
    total: Cost = field(default_factory=lambda: Cost(read=0, written=0))
    unknown: dict[str, list[Node]] = field(default_factory=dict)
    """Nodes without a known cost by operator."""
    partial: set[Node] = field(default_factory=set)
    """Nodes whose regions hold nodes without a known cost: theirs is only the part that is known."""
    counted: int = 0
    """Nodes looked at, those inside regions included."""


@dataclass(frozen=True)
class Flops(Analysis[Costs]):
    """Count the arithmetic and the bytes of every node."""

    name: ClassVar[str] = "flops"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    top: int = 0
    """Rows of the table of nodes, largest first; 0 for all in program order."""

    def compute(self, graph: Graph, ctx: PassContext) -> Costs:
        counter = _Counter(ctx.get(Shapes), ctx)
        counter.costs.total = counter.body(graph, ctx.each)
        for op, nodes in counter.costs.unknown.items():
            message = f"the cost of {op} is unknown (no rule, or a size is unknown) and not part of the totals"
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS401", message, nodes[0].name, count=len(nodes)), about=op)
        return counter.costs

    def report(self, result: Costs, ctx: PassContext) -> Report:
        items = list(result.by_node.items())
        if self.top:
            items = sorted(items, key=lambda item: -scale(item[1].flops))[: self.top]
        rows = [(node.name, node.op, node.scope.path, *_numbers(cost, node in result.partial)) for node, cost in items]
        missing = sum(len(nodes) for nodes in result.unknown.values())
        # Where no cost is known at all, a total of zero would be a lie.
        total = result.total if missing < result.counted or not result.counted else None
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "total_flops": plain(total.flops) if total else None,
                "macs": plain(total.macs) if total else None,
                "by_class": {name: plain(getattr(total, name)) if total else None for name in FLOP_CLASSES},
                "read_bytes": plain(total.read) if total else None,
                "written_bytes": plain(total.written) if total else None,
            },
            units={"macs": Kind.FLOPS, "by_class": Kind.FLOPS},
            tables=(
                Table.of(
                    rows,
                    columns=["node", "operator:text", "module:text", "flops", "read:bytes", "written:bytes", "macs:flops"],
                    title="nodes",
                ),
            ),
            coverage=Coverage(result.counted - missing, result.counted, tuple(sorted(result.unknown))),
            notes=(CONVENTION,),
        )


class _Counter:
    """Walks a graph and adds up; regions count as often as they run."""

    def __init__(self, types: Inferred, ctx: PassContext) -> None:
        self.types = types
        self.ctx = ctx
        self.costs = Costs()

    @property
    def missing(self) -> int:
        """Nodes without a known cost so far."""
        return sum(len(nodes) for nodes in self.costs.unknown.values())

    def body(self, graph: Graph, each: Callable[..., object] | None = None) -> Cost:
        total = Cost(read=0, written=0)
        for node in self.ctx.each(graph, "counting", len(graph)) if each else graph:
            cost = self.node(node)
            if cost is not None:
                self.costs.by_node[node] = cost
                total = total + cost
        return total

    def node(self, node: Node) -> Cost | None:
        self.costs.counted += 1
        if node.regions or node.op == "cf.call":
            return self.control(node)
        spec = find_op(node.op)
        types = [None if value is None else self.types.type_of(value) for value in node.inputs]
        results = [self.types.type_of(value) for value in node.outputs]
        known = [None if value is None else self.types.values.get(value) for value in node.inputs]
        cost = spec.cost_of(OpCall(spec, types, node.attrs, known, results)) if spec is not None else None
        if cost is None or _depends_on_unknown(cost):
            self.costs.unknown.setdefault(node.op, []).append(node)
            return None
        return cost

    def control(self, node: Node) -> Cost | None:
        if node.op == "cf.call":
            callee = self.ctx.program.functions.get(str(node.attrs.get("callee")))
            return self.body(callee) if callee is not None else None
        missing = self.missing
        bodies = [self.body(region) for region in node.regions]
        if self.missing > missing:
            self.costs.partial.add(node)
        if node.op == "cf.if":
            # The dearer branch: an upper bound, as a run takes one of them.
            return max(bodies, key=lambda cost: scale(cost.flops))
        trips = self.trips(node)
        if trips is None or (isinstance(trips, SymDim) and trips.is_unknown):
            self.costs.unknown.setdefault(node.op, []).append(node)
            return None
        return bodies[0].times(trips)

    def trips(self, node: Node) -> Dim | None:
        """How often a region runs."""
        trip = node.inputs[0] if node.op == "cf.loop" and node.inputs else None
        known = self.types.values.get(trip) if trip is not None else None
        if known is not None and known.size == 1:
            count: Dim = known.reshape(-1)[0]
            return int(count) if not hasattr(count, "lo") else count
        if node.op == "cf.scan" and node.inputs:
            axes = node.attrs.get("input_axes") or (0,)
            scanned = int(node.attrs.get("num_scan_inputs", 1))
            first = node.inputs[len(node.inputs) - scanned]
            shape = getattr(self.types.type_of(first), "shape", None) if first is not None else None
            return shape[axes[0] % len(shape)] if shape else None
        return None


def _numbers(cost: Cost, partial: bool) -> list[int | str | None]:
    """FLOPs, bytes read, bytes written and multiply-adds of a row, all unknown where only a part is known."""
    return [None if partial else plain(number) for number in (cost.flops, cost.read, cost.written, cost.macs)]


def _depends_on_unknown(cost: Cost) -> bool:
    """Whether a size that nobody can know is part of it."""
    parts = (cost.flops, cost.macs, cost.read, cost.written)
    return any(part is None or (isinstance(part, SymDim) and part.is_unknown) for part in parts)
