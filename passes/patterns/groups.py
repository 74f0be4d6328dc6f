"""Groups of nodes that one kernel could do: grown from a node, closed so that only the last result is seen outside, and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from irscope.ir.graph import Node, Role, Value
from irscope.ops.registry import find_op
from irscope.ops.spec import OpRole
from irscope.passes.alias import Aliases
from irscope.passes.order.effects import Edge
from irscope.passes.patterns.walk import escapes, is_constant, users

_MOST = 64
_ROUNDS = 4


def grow(start: Node, may_join: Callable[[Node], bool], roots: Iterable[Value] = ()) -> list[Node]:
    """The start and what follows from it alone: nodes that may join, whose operands are all in the group, roots or constants."""
    inside: dict[Node, None] = {start: None}
    known: set[Value] = {*start.outputs, *roots}
    pending = list(start.outputs) + list(roots)
    while pending and len(inside) < _MOST:
        for node in sorted(users([pending.pop(0)]), key=lambda one: one.order):
            if node in inside or node.graph is not start.graph or node.order < start.order or not may_join(node):
                continue
            if all(operand is None or operand in known or is_constant(operand) for operand in node.inputs):
                inside[node] = None
                known.update(node.outputs)
                pending.extend(node.outputs)
    return sorted(inside, key=lambda one: one.order)


def closed(nodes: Sequence[Node]) -> list[Node]:
    """The longest beginning of which only the last node's results are read outside, or returned."""
    for length in range(len(nodes), 1, -1):
        kept = nodes[:length]
        if is_closed(kept):
            return list(kept)
    return []


def filled(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, and those beside them that only read and only feed the group: a test of its values, for example."""
    inside = dict.fromkeys(nodes)
    for _ in range(_ROUNDS):
        beside = [
            user
            for user in users(value for node in inside for value in node.outputs)
            if user not in inside
            and user.graph is nodes[0].graph
            and user.is_before(nodes[-1])
            and all(one in inside for one in users(user.outputs))
            and not any(escapes(value) for value in user.outputs)
        ]
        if not beside:
            break
        inside.update(dict.fromkeys(beside))
    return sorted(inside, key=lambda one: one.order)


def is_closed(nodes: Sequence[Node]) -> bool:
    """Whether nothing outside reads what any but the last node makes."""
    inside = set(nodes)
    for node in nodes[:-1]:
        for value in node.outputs:
            if escapes(value) or any(user not in inside for user in users([value])):
                return False
    return True


def hindrance(nodes: Sequence[Node], aliases: Aliases, edges: dict[Node, list[Edge]]) -> str:
    """Why a closed group must not become one kernel; empty where it may."""
    first, last = nodes[0], nodes[-1]
    inside = set(nodes)
    if any(node.regions or node.graph is not first.graph for node in nodes):
        return "it spans a branch or a loop"
    spec_of = {node: find_op(node.op) for node in nodes}
    for node, spec in spec_of.items():
        if spec is None or spec.has_effect or (spec.random and (OpRole.DROPOUT not in spec.roles or node.attrs.get("training"))):
            return f"{node.name} has an effect or is random"
    for node in nodes:
        for edge in edges.get(node, ()):
            other = edge.after if edge.before is node else edge.before
            if other not in inside and first.is_before(other) and other.is_before(last):
                return f"{other.name} must stay between ({edge.kind})"
    made = {aliases.storage(value) for node in nodes for value in node.outputs}
    for node in nodes[:-1]:
        for value in node.outputs:
            root = aliases.storage(value)
            if root.role is not Role.TEMPORARY and root not in made and node.attrs.get("inplace") is not None:
                return f"{node.name} writes {root.name} in place"
    return ""


def by_node(edges: Iterable[Edge]) -> dict[Node, list[Edge]]:
    """Edges of the order by the nodes at both ends."""
    found: dict[Node, list[Edge]] = {}
    for edge in edges:
        found.setdefault(edge.before, []).append(edge)
        found.setdefault(edge.after, []).append(edge)
    return found
