"""Level 1, the rule-based transformer: rules that look at one node and its neighbours."""

from __future__ import annotations

from irscope.frontends.onnx.optimizer.driver import rule
from irscope.frontends.onnx.optimizer.graph import OrtGraph, OrtNode


@rule("EliminateDropout", "Dropout")
def eliminate_dropout(graph: OrtGraph, node: OrtNode) -> bool:
    """A Dropout of which only the first result is used; from version 12 on not one that trains."""
    if any(result != 0 for _, result, _ in graph.edges(node)) or not graph.can_remove(node):
        return False
    if node.version >= 12 and node.has_input(2):
        training = graph.scalar(node.input(2))
        if training is None or training:
            return False
    return graph.drop(node)
