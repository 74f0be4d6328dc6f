"""What a graph is made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from irscope.ir.graph import Facet, Graph, Node, Value
from irscope.ir.places import Scope
from irscope.ops.registry import find_op
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Table


@dataclass
class Statistics:
    """Counts over all nodes, those inside regions and functions included."""

    nodes: int
    operators: Counter[str]
    sources: dict[str, Counter[str]]
    """Source operators by canonical one."""
    scopes: Counter[str]
    """Nodes by module, each counted for every module around it."""
    depth: int
    """Nodes on the longest path of uses."""
    widest: int
    """Most values alive at once if each lives from its node to its last use."""
    widest_at: str
    regions: int
    foreign: Counter[str]


@dataclass(frozen=True)
class Stats(Analysis[Statistics]):
    """Count operators by kind and module, depth and widest point."""

    name: ClassVar[str] = "stats"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY,)

    top: int = 0
    """Rows per table, 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> Statistics:
        operators: Counter[str] = Counter()
        foreign: Counter[str] = Counter()
        sources: dict[str, Counter[str]] = {}
        own: Counter[Scope] = Counter()
        regions = 0
        for body in ctx.program.bodies():
            regions += body.owner is not None
            for node in ctx.each(body, "counting", len(body)):
                operators[node.op] += 1
                sources.setdefault(node.op, Counter())[node.source or node.op] += 1
                own[node.scope] += 1
                if find_op(node.op) is None:
                    foreign[node.op] += 1
        widest, widest_at = _widest(graph)
        return Statistics(
            sum(operators.values()), operators, sources, _with_parents(own), _depth(graph), widest, widest_at, regions, foreign
        )

    def report(self, result: Statistics, ctx: PassContext) -> Report:
        total = result.nodes or 1
        operators = [
            (name, count, count / total, ", ".join(source for source, _ in result.sources[name].most_common(3)))
            for name, count in result.operators.most_common(self.top or None)
        ]
        scopes = [(path, count) for path, count in result.scopes.most_common(self.top or None)]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "nodes": result.nodes,
                "operators": len(result.operators),
                "modules": len(result.scopes),
                "regions": result.regions,
                "depth": result.depth,
                "widest": result.widest,
                "widest_at": result.widest_at,
            },
            tables=(
                Table.of(operators, columns=["operator:text", "nodes:count", "share:ratio", "from:text"], title="operators"),
                Table.of(scopes, columns=["module:text", "nodes:count"], title="modules"),
            ),
            coverage=Coverage(result.nodes - sum(result.foreign.values()), result.nodes, tuple(sorted(result.foreign))),
        )


def _with_parents(own: Counter[Scope]) -> Counter[str]:
    """Return the counts of scopes with everything below them, by path."""
    total: Counter[Scope] = Counter()
    for scope, count in own.items():
        for around in scope.chain:
            total[around] += count
    return Counter({scope.path: count for scope, count in total.items()})


def _depth(graph: Graph) -> int:
    depth: dict[Value, int] = {}
    deepest = 0
    for node in graph.walk():
        level = 1 + max((depth.get(value, 0) for value in node.inputs if value is not None), default=0)
        deepest = max(deepest, level)
        for output in node.outputs:
            depth[output] = level
    return deepest


def _widest(graph: Graph) -> tuple[int, str]:
    """Most results of this level alive at once, and the node where."""
    last: dict[Value, Node] = {}
    for node in graph.walk():
        top = _at_level(node, graph)
        for value in node.inputs:
            if value is not None and value.node is not None and value.node.graph is graph:
                last[value] = top
    ends: Counter[Node] = Counter(last.values())
    alive, widest, where = 0, 0, ""
    for node in graph:
        alive += sum(output in last or bool(output.users) for output in node.outputs)
        if alive > widest:
            widest, where = alive, node.name
        alive -= ends[node]
    return widest, where


def _at_level(node: Node, graph: Graph) -> Node:
    while node.graph is not graph and node.graph is not None and node.graph.owner is not None:
        node = node.graph.owner
    return node
