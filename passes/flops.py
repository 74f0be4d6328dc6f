"""Arithmetic and traffic of every node by its operator's cost rule. A multiply-add is 2 FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from irscope.ir.dims import Dim
from irscope.ir.graph import Facet, Graph, Node
from irscope.ops.cost import FLOP_CLASSES
from irscope.passes.costs.causal import needless
from irscope.passes.costs.count import Costs, NodeCosts
from irscope.passes.costs.entries import Arithmetic
from irscope.passes.costs.explain import explanation
from irscope.passes.costs.tables import cell, certainties, modules_table, nodes_table, operators_table, top_table, unknown_table
from irscope.passes.costs.tally import Sum, Tally
from irscope.passes.shapes import Shapes
from irscope.passes.sizes import CONVENTION, at_least
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.units import Kind

_TOP = 10
_CAUSAL = "causal: masked are products of queries with later keys, which a kernel that knows the mask leaves out; needed is the rest"
_CLASSES = "classes: matmul (with convolutions), elementwise, transcendental (one for each exp, log, sqrt, ...), reduction, move (always 0)"


@dataclass(frozen=True)
class Flops(Analysis[Costs]):
    """Count the arithmetic and the bytes of every node."""

    name: ClassVar[str] = "flops"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    top: int = 0
    """Rows of the table of nodes, largest first, and no other tables; 0 for everything in program order."""
    explain: str = ""
    """A node: its rule, formula, sizes and place instead of the tables."""

    def compute(self, graph: Graph, ctx: PassContext) -> Costs:
        return ctx.get(NodeCosts())

    def report(self, result: Costs, ctx: PassContext) -> Report:
        if self.explain:
            return explanation(self.explain, result, ctx.get(Shapes), ctx.program, self.text)
        bodies = (ctx.program.graph, *ctx.program.functions.values())
        masked = needless((node for body in bodies for node in body.walk()), result, ctx.get(Shapes))
        return Report(
            pass_name=self.name,
            options=self.text,
            summary=_summary(result, masked),
            units={key: Kind.FLOPS for key in ("by_class", "by_arithmetic", "causal")} | {"macs": Kind.COUNT, "nodes": Kind.COUNT},
            tables=(
                *([unknown_table(result)] if result.unknown else []),
                *([operators_table(result), modules_table(result), top_table(result, _TOP)] if not self.top else []),
                nodes_table(result, masked, self.top),
            ),
            coverage=Coverage(result.counted - result.missing, result.counted, tuple(sorted(result.unknown))),
            notes=(CONVENTION, _CLASSES, *([_CAUSAL] if masked else [])),
        )


def _by_arithmetic(tally: Tally) -> dict[str, object]:
    """FLOPs by what computes them. What may be of any kind is among the limits of each, and a part of its own: the parts add up."""
    parts = {kind.value: cell(tally.flops_in(kind), tally.flops_limits(kind)) for kind in Arithmetic if kind is not Arithmetic.UNKNOWN}
    unknown = tally.flops_in(Arithmetic.UNKNOWN)
    return parts if unknown == 0 else {**parts, Arithmetic.UNKNOWN.value: unknown}


def _summary(result: Costs, by_node: Mapping[Node, Dim]) -> dict[str, object]:
    tally = result.tally
    total = Sum()
    for entry in result.entries:
        if entry.node in by_node:
            total.add(by_node[entry.node], entry.runs)
    masked = total.value
    # What is masked depends on products and their masks; an unknown operator may contain further products.
    products = tally.limits("matmul")
    all_masked = products[0] == products[1]

    def shown(measure: str) -> object:
        return cell(tally.value(measure), tally.limits(measure))

    def needed(measure: str) -> object:
        low, high = tally.limits(measure)
        # An unknown operator may compute a mask for any of the products.
        least = low - masked if all_masked else low - products[0]
        return cell(tally.value(measure) - masked, (least, None if high is None else high - masked))

    return {
        "nodes": certainties(result.certainty.values()),
        "total_flops": shown("flops"),
        "macs": shown("macs"),
        "by_class": {name: shown(name) for name in FLOP_CLASSES},
        "by_arithmetic": _by_arithmetic(tally),
        "causal": {
            "masked": at_least(masked, all_masked),
            "matmul_counted": shown("matmul"),
            "matmul_needed": needed("matmul"),
        },
        "needed_flops": needed("flops"),
        "read_bytes": shown("read"),
        "written_bytes": shown("written"),
    }
