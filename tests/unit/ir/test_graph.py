"""Editing a graph: order, uses, regions, versions."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest

from irscope.ir.dtypes import DType
from irscope.ir.graph import Facet, Graph, Node, Role, Value, paused_gc
from irscope.ir.program import Program
from irscope.ir.types import tensor
from irscope.ir.verify import verify

TYPE = tensor(DType.F32, (2,))


def chain(length: int) -> tuple[Graph, list[Node]]:
    """x -> n0 -> n1 ... -> output."""
    graph = Graph()
    value = graph.add_input(TYPE, "x")
    nodes = []
    for index in range(length):
        nodes.append(graph.append("math.neg", [value], [TYPE], names=[f"n{index}"]))
        value = nodes[-1].outputs[0]
    graph.set_outputs([value])
    return graph, nodes


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph]


def check(graph: Graph) -> None:
    assert [str(problem) for problem in verify(Program(graph))] == []


def test_nodes_keep_program_order_when_inserted_anywhere() -> None:
    graph, nodes = chain(2)
    # Far more insertions at one place than order numbers leave room for.
    for index in range(100):
        graph.insert_before(nodes[1], "math.abs", [nodes[0].outputs[0]], [TYPE], names=[f"i{index}"])
    assert names(graph) == ["n0", *(f"i{index}" for index in range(100)), "n1"]
    order = list(graph)
    assert all(a.is_before(b) and not b.is_before(a) for a, b in pairwise(order))
    check(graph)


def test_a_node_may_be_inserted_at_the_very_start() -> None:
    graph, nodes = chain(1)
    made = graph.insert_before(nodes[0], "math.abs", [graph.inputs[0]], [TYPE], names=["first"])
    assert names(graph) == ["first", "n0"] and made.is_before(nodes[0])
    check(graph)


def test_the_current_node_may_be_erased_while_iterating() -> None:
    graph, nodes = chain(4)
    graph.set_outputs([graph.inputs[0]])
    for node in reversed(nodes):
        graph.erase(node)
    assert names(graph) == [] and graph.first is graph.last is None
    graph, _ = chain(4)
    for node in graph:
        if node.op == "math.neg":
            graph.replace_uses(node.outputs[0], node.inputs[0])  # type: ignore[arg-type]  # it has an operand
            graph.erase(node)
    assert len(graph) == 0 and graph.outputs == (graph.inputs[0],)
    check(graph)


def test_a_value_in_use_cannot_lose_its_producer() -> None:
    graph, nodes = chain(2)
    with pytest.raises(ValueError, match="still has users"):
        graph.erase(nodes[0])


def test_uses_are_counted_and_follow_every_edit() -> None:
    graph, nodes = chain(1)
    x, y = graph.inputs[0], nodes[0].outputs[0]
    both = graph.append("math.add", [y, y], [TYPE])
    assert y.users == {nodes[0].outputs[0].node and graph: 1, both: 2}
    graph.set_input(both, 1, x)
    assert y.users == {graph: 1, both: 1}
    graph.replace_uses(y, x)
    assert y.users is None and both.inputs == (x, x) and graph.outputs == (x,)
    graph.set_input(both, 0, None)
    assert x.users == {nodes[0]: 1, both: 1, graph: 1}
    check(graph)


def branching() -> tuple[Graph, Node, Value]:
    """A node with a region that captures a value of the graph."""
    graph = Graph()
    x, condition = graph.add_input(TYPE, "x"), graph.add_input(tensor(DType.BOOL, ()), "c")
    outer = graph.append("math.neg", [x], [TYPE], names=["outer"])
    branch = graph.append("cf.if", [condition], [TYPE], names=["branch"])
    for name in ("then", "else"):
        region = graph.add_region(branch, name)
        inner = region.append("math.abs", [outer.outputs[0]], [TYPE], names=[f"{name}_inner"])
        region.set_outputs([inner.outputs[0]])
    after = graph.append("math.neg", [branch.outputs[0]], [TYPE], names=["after"])
    graph.set_outputs([after.outputs[0]])
    return graph, branch, outer.outputs[0]


def test_a_walk_enters_regions_right_after_their_node() -> None:
    graph, _, _ = branching()
    assert [node.name for node in graph.walk()] == ["outer", "branch", "then_inner", "else_inner", "after"]
    assert [body.name for body in graph.graphs()] == ["main", "then", "else"]


def test_erasing_a_node_frees_what_its_regions_captured() -> None:
    graph, branch, captured = branching()
    after = graph.last
    assert after is not None
    graph.set_outputs([captured])
    graph.erase(after)
    graph.erase(branch)
    assert captured.users == {graph: 1}
    check(graph)


def test_arguments_of_a_region_are_no_inputs_of_the_model() -> None:
    _, branch, _ = branching()
    assert branch.regions[0].add_input(TYPE).role is Role.ARGUMENT


def test_versions_count_by_facet_and_are_shared_with_regions() -> None:
    graph, branch, outer = branching()
    region = branch.regions[0]

    def changed(edit: object) -> set[str]:
        before = list(graph.versions)
        edit()  # type: ignore[operator]  # a closure over the graph
        return {facet.name for facet in Facet if graph.versions[facet] != before[facet]}

    node = region.first
    assert node is not None
    assert changed(lambda: region.set_attr(node, "a", 1)) == {"ATTRS"}
    assert changed(lambda: region.set_type(node.outputs[0], tensor(DType.F16, (2,)))) == {"TYPES"}
    assert changed(lambda: region.set_type(node.outputs[0], tensor(DType.F16, (2,)))) == set()
    assert changed(lambda: graph.set_type(graph.inputs[0], tensor(DType.F16, (2,)))) == {"DECLARED"}
    assert changed(lambda: graph.rename(outer, "o")) == {"NAMES"}
    assert changed(lambda: region.set_input(node, 0, graph.inputs[0])) == {"TOPOLOGY"}


def test_reorder_wants_every_node_once() -> None:
    graph, nodes = chain(3)
    graph.reorder([nodes[1], nodes[0], nodes[2]])
    assert names(graph) == ["n1", "n0", "n2"]
    assert verify(Program(graph))
    graph.reorder(nodes)
    check(graph)
    with pytest.raises(ValueError, match="each of its 3 nodes once"):
        graph.reorder(nodes[:2] * 2)


def test_a_chain_of_100_000_nodes_needs_no_recursion() -> None:
    with paused_gc():
        graph, _ = chain(100_000)
        assert sum(1 for _ in graph.walk()) == 100_000
        check(graph)


def test_the_collector_is_paused_and_comes_back() -> None:
    assert gc.isenabled()
    with paused_gc():
        assert not gc.isenabled()
        with paused_gc():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_module_called_from_elsewhere_keeps_its_own_path() -> None:
    scope = Graph().scope.child("decoder").child("=shared.embed").child("norm")
    assert (scope.path, scope.module) == ("decoder/=shared.embed/norm", "shared.embed.norm")
