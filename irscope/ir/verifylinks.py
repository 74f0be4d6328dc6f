"""Rules on how nodes and graphs are linked; all other rules can only be checked where these hold."""

from __future__ import annotations

from irscope.ir.findings import Findings, graph_words
from irscope.ir.graph import Graph, Node
from irscope.ir.program import Program

_CODE = "IRS120"


def check_links(program: Program, findings: Findings) -> None:
    """Nodes form one list a graph in rising order, and every region is owned by just one node."""
    seen: set[Graph] = set()
    for name, body in [("", program.graph), *program.functions.items()]:
        if name and body.name != name:
            findings.add(_CODE, f"the function {name!r} has a graph of another name, @{body.name}")
        if body.owner is not None:
            findings.add(_CODE, f"{graph_words(body)} is listed as a body of its own")
        if body.scope.parent is not None:
            findings.add(_CODE, f"the scope of {graph_words(body)} is not the root of a tree")
        if body in seen:
            findings.add(_CODE, f"{graph_words(body)} occurs twice")
            continue
        seen.add(body)
        _check_body(body, seen, findings)


def _check_body(body: Graph, seen: set[Graph], findings: Findings) -> None:
    todo = [body]
    while todo:
        graph = todo.pop()
        if graph.versions is not body.versions:
            findings.add(_CODE, f"{graph_words(graph)} counts its changes apart from @{body.name}")
        nodes = _linked_nodes(graph, findings)
        for node in nodes:
            for region in node.regions:
                if region.owner is not node:
                    findings.add(_CODE, f"the region {region.name!r} names another node as its owner", node)
                if region in seen:
                    findings.add(_CODE, f"the region {region.name!r} occurs twice", node)
                else:
                    seen.add(region)
                    todo.append(region)


def _linked_nodes(graph: Graph, findings: Findings) -> list[Node]:
    """The nodes of a level as far as their links can be followed."""
    nodes: list[Node] = []
    size = len(graph)
    previous: Node | None = None
    node = graph.first
    while node is not None:
        if len(nodes) >= size:
            findings.add(_CODE, f"{graph_words(graph)} has more nodes in its list than the {size} it counts, or the list is a circle")
            return nodes
        if node.graph is not graph:
            findings.add(_CODE, f"a node in the list of {graph_words(graph)} says that it belongs elsewhere", node)
        if node.prev is not previous:
            findings.add(_CODE, "the node's link back does not lead to the node before it", node)
        if previous is not None and previous.order >= node.order:
            findings.add(_CODE, "the node's order number is not above that of the node before it", node)
        nodes.append(node)
        previous, node = node, node.next
    if len(nodes) != size:
        findings.add(_CODE, f"{graph_words(graph)} has {len(nodes)} nodes in its list, but counts {size}")
    if graph.last is not previous:
        findings.add(_CODE, f"the last node of {graph_words(graph)} is not the end of its list")
    return nodes
