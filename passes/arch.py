"""What kind of model this is: a family, the confidence, and the nodes that are the evidence. Names in the file are never used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from irscope.ir.graph import Facet, Graph, Node
from irscope.passes.cost.count import NodeCosts
from irscope.passes.patterns.families import Verdict, Work, verdict_of
from irscope.passes.patterns.features import Features, features_of
from irscope.passes.patterns.triangles import Triangles
from irscope.passes.shapes import Shapes
from irscope.passes.sizes import known_share
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Table
from irscope.report.values import Provenance
from irscope.weights.source import WeightFiles


@dataclass(frozen=True)
class Kind:
    """The answer of the pass."""

    verdict: Verdict
    features: Features
    work: Work
    nodes: int
    unknown: tuple[str, ...]


_DECISIVE = "share of matrix arithmetic that the family explains"


@dataclass(frozen=True)
class Arch(Analysis[Kind]):
    """Classify the model (attention, convolution, recurrence, mixture of experts, scan) and list the evidence."""

    name: ClassVar[str] = "arch"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    top: int = 5
    """Nodes named for each piece of evidence; 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> Kind:
        types = ctx.get(Shapes)
        costs = ctx.get(NodeCosts())
        nodes = [node for body in (graph, *ctx.program.functions.values()) for node in body.walk()]
        with WeightFiles(ctx.program.path) as files:
            features = features_of(nodes, graph.inputs, graph.outputs, types, Triangles(files))
        work = Work.of(costs.by_node, features)
        return Kind(verdict_of(features, work), features, work, costs.counted, tuple(sorted(costs.unknown)))

    def report(self, result: Kind, ctx: PassContext) -> Report:
        verdict, work = result.verdict, result.work
        rows = [(one.what, one.count, one.share, self._names(one.nodes), one.why) for one in verdict.evidence]
        low, high = ctx.get(NodeCosts()).tally.limits("matmul")
        complete = low == high
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "family": verdict.family,
                "confidence": verdict.confidence,
                "because": verdict.reason,
                "traits": ", ".join(verdict.traits),
                "convolution_ratio": known_share(work.share(result.features.convolutions), complete),
                "decisive_ratio": known_share(verdict.decisive if work.total else None, complete, Provenance.MODELLED, _DECISIVE),
            },
            tables=(Table.of(rows, columns=["evidence:text", "nodes:count", "share:ratio", "proof:text", "why:text"], title="evidence"),),
            coverage=Coverage(result.nodes - ctx.get(NodeCosts()).missing, result.nodes, result.unknown),
            notes=("share: part of the FLOPs of matrix products and convolutions",),
        )

    def _names(self, nodes: Sequence[Node]) -> str:
        shown = nodes[: self.top] if self.top else nodes
        more = f" and {len(nodes) - len(shown)} more" if len(nodes) > len(shown) else ""
        return ", ".join(node.name for node in shown) + more
