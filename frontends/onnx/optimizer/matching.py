"""What ONNX Runtime's transformers ask of a node and its neighbours: graph_utils and optimizer_utils."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final

from irscope.frontends.onnx.optimizer.graph import OrtGraph, OrtNode, Weight
from irscope.ir.dtypes import DType

ADD: Final = (7, 13, 14)
"""since_versions of Add, Sub, Mul and Div."""
POW: Final = (7, 12, 13, 15)
CAST: Final = (9, 13, 19, 21, 23, 24, 25)

HALF_OR_MORE: Final = frozenset({DType.F16, DType.F32, DType.F64})
FLOATS: Final = frozenset({DType.F16, DType.F32, DType.F64, DType.BF16})


def has_dtypes(graph: OrtGraph, node: OrtNode, allowed: Collection[DType], first: int | None = None) -> bool:
    """IsSupportedDataType: all operands, or the first few, are of these element types."""
    return all(graph.dtype(name) in allowed for name in node.inputs[:first] if name)


def is_scalar(graph: OrtGraph, name: str) -> bool:
    """optimizer_utils::IsScalar: no axes, or one of a single element."""
    return graph.shape(name) in ((), (1,))


def is_number(graph: OrtGraph, name: str, expected: float) -> bool:
    """optimizer_utils::IsInitializerWithExpectedValue, for a constant."""
    found = graph.scalar(name) if is_scalar(graph, name) else None
    if found is None:
        return False
    if graph.dtype(name).is_float:
        difference = abs(found - expected)
        return not math.isinf(difference) and difference <= 1e-8 + 1e-5 * abs(expected)
    return found == expected


def ends_in_one(graph: OrtGraph, node: OrtNode, count: int = 1) -> bool:
    """optimizer_utils::CheckOutputEdges: its results are not the graph's, and are read so many times."""
    return not graph.makes_output(node) and graph.edge_count(node) == count


def matching(
    graph: OrtGraph,
    node: OrtNode | None,
    op: str,
    versions: Sequence[int],
    test: Callable[[OrtGraph, OrtNode], bool] | None = None,
) -> OrtNode | None:
    """The node, if it is this operator in one of these versions and passes the test: a link of a chain that is fused."""
    if node is None or not node.matches(op, versions):
        return None
    return node if test is None or test(graph, node) else None


def reader_of(graph: OrtGraph, node: OrtNode) -> OrtNode | None:
    """The node at the first output edge."""
    edges = graph.edges(node)
    return edges[0][0] if edges else None


def readers_by_number(graph: OrtGraph, node: OrtNode) -> list[OrtNode]:
    """The nodes at the output edges, one for each edge."""
    return [reader for reader, _, _ in graph.edges(node)]


def first_child(graph: OrtGraph, node: OrtNode, op: str) -> OrtNode | None:
    """graph_utils::FirstChildByType."""
    return next((reader for reader in readers_by_number(graph, node) if reader.op == op), None)


def parents(graph: OrtGraph, node: OrtNode) -> list[OrtNode]:
    """The nodes at the input edges, by number: the order in which ONNX Runtime keeps them."""
    return sorted([made for made, _ in graph.input_edges(node)], key=lambda made: made.index)


def first_parent(graph: OrtGraph, node: OrtNode, op: str) -> OrtNode | None:
    """graph_utils::FirstParentByType."""
    return next((made for made in parents(graph, node) if made.op == op), None)


def other_operand(node: OrtNode, name: str) -> str:
    """Of a node with two operands the one that is not `name`."""
    return node.input(1) if node.input(0) == name else node.input(0)


def find_path(graph: OrtGraph, node: OrtNode, steps: Sequence[tuple[int, str, Collection[int]]]) -> list[OrtNode] | None:
    """graph_utils::FindPath towards the operands: for each step the operand's place, and the operator that makes it."""
    found: list[OrtNode] = []
    for place, op, versions in steps:
        made = graph.input_node(node, place)
        if made is None or made.op != op or made.version not in versions:
            return None
        found.append(made)
        node = made
    return found


def static_weight(graph: OrtGraph, name: str, rank: int, dtype: DType = DType.F32) -> Weight | None:
    """A constant initializer of an element type and rank."""
    found = graph.constant(name)
    return found if found is not None and found.type.dtype is dtype and len(found.shape) == rank else None
