"""One short table of what every operator computes, moves and waits for, in the columns that other profilers' JSON has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from irscope.ir.graph import Facet, Graph, Names, Node
from irscope.ir.places import Scope
from irscope.passes.cost.bounds import Bounds
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passes.cost.roofline import Roofline
from irscope.passes.cost.tables import cell
from irscope.passes.cost.traffic import intensity
from irscope.passes.sizes import CONVENTION, dim_cell
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Table

_MEMORY = "memory: bytes read and written by an operator, weights included, views not counted"
_BOTTLENECK = "bottleneck: what takes the time on {device}: compute, memory, balanced (within a factor of 2), launch, free or unknown"


@dataclass(frozen=True)
class Layering:
    """The two results that the table joins."""

    costs: Costs
    bounds: Bounds


@dataclass(frozen=True)
class Layers(Analysis[Layering]):
    """List FLOPs, memory traffic, arithmetic intensity and bottleneck of every operator: --format layers-json writes them."""

    name: ClassVar[str] = "layers"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    device: str = ""
    """As in roofline."""
    dtype: str = ""
    """As in roofline."""

    def compute(self, graph: Graph, ctx: PassContext) -> Layering:
        return Layering(ctx.get(NodeCosts()), ctx.get(Roofline(device=self.device, dtype=self.dtype)))

    def report(self, result: Layering, ctx: PassContext) -> Report:
        costs, tally = result.costs, result.costs.tally
        rows: list[tuple[object, ...]] = []
        nodes = [entry.node for entry in costs.entries]
        for name, entry, bound in zip(layer_names(nodes), costs.entries, result.bounds.nodes, strict=True):
            cost, is_exact = entry.total, entry.bounds is None
            moved = None if cost.read is None or cost.written is None else cost.read + cost.written
            flops = dim_cell(cost.flops) if is_exact else cell(cost.flops, entry.limits("flops"))
            ratio = intensity(cost.flops, moved) if is_exact else None
            rows.append((name, entry.node.op, flops, dim_cell(moved) if is_exact else None, ratio, bound.binding))
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "model": ctx.program.path,
                "total_flops": cell(tally.value("flops"), tally.limits("flops")),
                "total_memory_bytes": cell(tally.moved, tally.moved_limits),
            },
            tables=(Table.of(rows, columns=_COLUMNS, title="layers", keys=nodes),),
            coverage=Coverage(costs.counted - costs.missing, costs.counted, tuple(sorted(costs.unknown))),
            notes=(CONVENTION, _MEMORY, _BOTTLENECK.format(device=result.bounds.device.title)),
        )


def layer_names(nodes: Sequence[Node]) -> list[str]:
    """Unique names: the module where a node is all that a call of it does, else module and operator; the node's own outside of modules.

    Later calls of a module carry "#1", "#2", as in paths of scopes; other names that are taken get ".1", ".2".
    """
    inside: Counter[Scope] = Counter(around for node in nodes for around in node.scope.chain)
    names = Names()
    return [names.unique(_layer_name(node, alone=inside[node.scope] == 1)) for node in nodes]


def _layer_name(node: Node, *, alone: bool) -> str:
    scope = node.scope
    if not scope.module:
        return node.name
    module = f"{scope.module}#{scope.call}" if scope.call else scope.module
    return module if alone else f"{module}: {node.op.rpartition('.')[2]}"


_COLUMNS = ("name:text", "type:text", "flops:flops", "memory:bytes", "arithmetic_intensity:number", "bottleneck:text")
