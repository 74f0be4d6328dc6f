"""Removal of nodes that nothing depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from irscope.ir.graph import Graph, Node
from irscope.ops.registry import find_op
from irscope.passkit.base import PassContext, Transform


@dataclass(frozen=True)
class DeadCode(Transform):
    """Dead code elimination: remove nodes and weights that no output depends on."""

    name: ClassVar[str] = "dce"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        removed = 0
        bodies = list(ctx.program.bodies())
        kept: dict[Graph, bool] = {}
        # Inner regions come last in the list, so their nodes go first and free what they captured.
        for body in reversed(bodies):
            node = body.last
            while node is not None:
                before = node.prev
                if not any(output.users for output in node.outputs) and not has_effect(node, kept):
                    body.erase(node)
                    removed += 1
                node = before
            kept[body] = any(has_effect(node, kept) for node in body)
        weights = 0
        for body in bodies:
            for weight in [weight for weight in body.weights if not weight.users]:
                body.remove_weight(weight)
                weights += 1
        ctx.stat("nodes", removed)
        ctx.stat("weights", weights)
        return bool(removed or weights)


def has_effect(node: Node, bodies: dict[Graph, bool]) -> bool:
    """Whether a node matters though nothing reads its results; foreign operators are assumed to."""
    if "inplace" in node.attrs:
        return True
    if any(bodies.get(region, True) for region in node.regions):
        return True
    spec = find_op(node.op)
    return spec is None or spec.has_effect or bool(spec.writes)
