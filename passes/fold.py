"""Constant folding: nodes whose small results are known become constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.places import Literal, Scalar
from irscope.ir.types import TensorType
from irscope.ops.registry import control_of, find_op
from irscope.ops.spec import Control
from irscope.ops.values import is_symbolic
from irscope.passes.shapes import Shapes
from irscope.passkit.base import PassContext, Transform


@dataclass(frozen=True)
class Fold(Transform):
    """Constant folding: replace nodes whose small results are known by constants."""

    name: ClassVar[str] = "fold"

    limit: int = 1024
    """Most elements of a result that becomes a constant."""

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        values = ctx.get(Shapes).values
        folded = 0
        for body in list(ctx.program.bodies()):
            inside_function = body is not graph and body.owner is None
            if inside_function or _runs_often(body):
                # What a loop's body computes may differ from step to step.
                continue
            for node in body:
                if _can_fold(node, values, self.limit):
                    for output in node.outputs:
                        if output.users:
                            name = output.name
                            body.rename(output, None)
                            body.replace_uses(output, _constant(graph, output, name if body is graph else None, values[output]))
                    body.erase(node)
                    folded += 1
        ctx.stat("nodes", folded)
        return folded > 0


def _runs_often(body: Graph) -> bool:
    """Whether a region may run more than once, on its own account or that of a region around it."""
    while body.owner is not None:
        if control_of(body.owner) is not Control.BRANCH:
            return True
        outer = body.owner.graph
        if outer is None:
            return True
        body = outer
    return False


def _can_fold(node: Node, values: dict[Value, np.ndarray[Any, Any]], limit: int) -> bool:
    spec = find_op(node.op)
    if spec is None or spec.random or spec.has_effect or spec.writes or "inplace" in node.attrs or node.regions or not node.outputs:
        return False
    for output in node.outputs:
        known = values.get(output)
        if output.users and (known is None or known.size > limit or is_symbolic(known) or not isinstance(output.type, TensorType)):
            return False
    return any(output.users for output in node.outputs)


def _constant(graph: Graph, output: Value, name: str | None, known: np.ndarray[Any, Any]) -> Value:
    items: list[Scalar] = known.reshape(-1).tolist()
    type_ = output.type.with_shape(known.shape)
    return graph.add_weight(type_, name, Role.CONSTANT, Literal(tuple(items)))
