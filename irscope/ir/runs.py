"""Walking a graph with its regions without recursion, in runs of nodes that follow one another on one level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from irscope.ir.graph import Graph, Node


@dataclass(slots=True)
class Run:
    """Consecutive nodes of one level. Only the last node may have regions; their runs come next."""

    graph: Graph
    nodes: list[Node]
    depth: int
    """How many regions are open around these nodes."""
    opens: bool
    """Whether this is the first run of its graph."""
    closes: bool
    """Whether this is the last run of its graph."""


def runs(graph: Graph) -> Iterator[Run]:
    """All nodes of a graph in pre-order, cut where a region begins or ends. The graph must not change meanwhile."""
    # What is still to be walked: a graph, its depth, its next node, and whether its first run was given.
    todo: list[tuple[Graph, int, Node | None, bool]] = [(graph, 0, graph.first, False)]
    while todo:
        level, depth, node, started = todo.pop()
        nodes: list[Node] = []
        regions: tuple[Graph, ...] = ()
        while node is not None and not regions:
            nodes.append(node)
            regions = node.regions
            node = node.next
        closes = node is None and not regions
        yield Run(level, nodes, depth, not started, closes)
        if not closes:
            todo.append((level, depth, node, True))
            todo.extend([(region, depth + 1, region.first, False) for region in reversed(regions)])
