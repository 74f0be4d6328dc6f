"""The index by example, and when it is made anew. That it agrees with a walk is a property test."""

from __future__ import annotations

import gc
import weakref

from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph
from irscope.ir.index import OUTSIDE, build_index, index_of
from irscope.ir.parser import parse_program
from irscope.ir.types import UNKNOWN_TYPE, tensor

TEXT = """\
irscope 1
graph @main {
  input %x: f32[2]
  param %w: f32[2]
  %a: f32[2] = math.neg(%x) @layer/act
  %b: f32[2] = cf.if(%a)
  region then {
    param %v: f32[2]
    %c: f32[2], %d: f32[2] = view.split(%a) @layer
    return %d
  }
  region else {
    return %w
  }
  op.last(%b, %b, _) @layer/act
  return %b, %x
}
func @helper {
  %y: f32[2] = math.neg(_)
  return %y
}
"""


def test_an_example_in_numbers() -> None:
    program = parse_program(TEXT)
    index = build_index(program)
    assert [node.op for node in index.nodes] == ["math.neg", "cf.if", "view.split", "op.last", "math.neg"]
    assert [value.name for value in index.values] == ["x", "w", "a", "b", "v", "c", "d", "y"]
    assert [graph.name for graph in index.graphs] == ["main", "then", "else", "helper"]
    assert index.input_values.tolist() == [0, 2, 2, 3, 3, -1, -1]
    assert index.input_offsets.tolist() == [0, 1, 2, 3, 6, 7]
    assert index.output_values.tolist() == [2, 3, 5, 6, 7]
    assert index.output_offsets.tolist() == [0, 1, 2, 4, 4, 5]
    assert index.use_offsets.tolist() == [0, 1, 1, 3, 5, 5, 5, 5, 5]
    assert index.use_nodes.tolist() == [0, 1, 2, 3, 3]
    assert [index.returns(graph).tolist() for graph in range(4)] == [[3, 0], [6], [1], [7]]
    assert index.producer.tolist() == [-1, -1, 0, 1, -1, 2, 2, 4]
    assert index.value_graph.tolist() == [0, 0, 0, 0, 1, 1, 1, 3]
    assert index.parent_node.tolist() == [-1, -1, 1, -1, -1]
    assert index.node_graph.tolist() == [0, 0, 1, 0, 3]
    assert index.depth.tolist() == [0, 0, 1, 0, 0]
    assert index.span_end.tolist() == [1, 3, 3, 4, 5]
    assert index.graph_owner.tolist() == [-1, 1, 1, -1]
    assert [scope.path for scope in index.scopes] == ["", "layer", "layer/act", ""]
    assert index.scope_of.tolist() == [2, 0, 1, 2, 3]
    assert index.scope_parents.tolist() == [-1, 0, 1, -1]
    assert index.scope_depths.tolist() == [0, 1, 2, 0]
    assert index.ops == ["math.neg", "cf.if", "view.split", "op.last"]
    assert index.op_of.tolist() == [0, 1, 2, 3, 0]


def test_a_region_alone_marks_values_from_outside() -> None:
    region = parse_program(TEXT).graph.first
    assert region is not None
    assert region.next is not None
    index = build_index(region.next.regions[0])
    assert index.input_values.tolist() == [OUTSIDE]
    assert index.depth.tolist() == [0]
    assert build_index(region.next.regions[1]).return_values.tolist() == [OUTSIDE]


def test_an_empty_graph_has_empty_columns() -> None:
    index = build_index(Graph())
    assert (index.nodes, index.values, index.scopes, index.ops) == ([], [], [], [])
    assert index.input_offsets.tolist() == index.use_offsets.tolist() == [0]
    assert index.return_offsets.tolist() == [0, 0]


def test_the_index_is_kept_until_the_topology_changes() -> None:
    graph = parse_program(TEXT).graph
    first = index_of(graph)
    assert graph.first is not None
    graph.set_type(graph.first.outputs[0], tensor(DType.F16, (2,)))
    graph.set_attr(graph.first, "axis", 1)
    graph.rename(graph.first.outputs[0], "other")
    assert index_of(graph) is first
    inner = graph.first.next
    assert inner is not None
    inner.regions[0].append("op.new")
    second = index_of(graph)
    assert second is not first
    assert len(second.nodes) == len(first.nodes) + 1
    graph.set_op(graph.first, "math.abs")
    assert index_of(graph).ops[0] == "math.abs"


def test_the_kept_index_does_not_keep_the_graph() -> None:
    graph = Graph()
    graph.append("a", [], [UNKNOWN_TYPE])
    scope = weakref.ref(index_of(graph))
    del graph
    gc.collect()
    assert scope() is None
