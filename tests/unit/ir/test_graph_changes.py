"""Every change of a graph: what it refuses, which counter it moves, and that long series of changes stay sound."""

from __future__ import annotations

import random

import pytest

from irscope.ir.dtypes import DType
from irscope.ir.graph import NO_ATTRS, Facet, Graph, Node, Role, Value
from irscope.ir.payload import Literal
from irscope.ir.program import Program
from irscope.ir.types import UNKNOWN_TYPE, tensor
from irscope.ir.verify import verify


def chain(length: int) -> tuple[Graph, list[Node]]:
    """A graph whose nodes each read the one before."""
    graph = Graph()
    value = graph.add_input(UNKNOWN_TYPE, "x")
    nodes: list[Node] = []
    for number in range(length):
        nodes.append(graph.append("a", [value], [UNKNOWN_TYPE], names=[f"v{number}"]))
        value = nodes[-1].outputs[0]
    graph.set_outputs([value])
    return graph, nodes


def sound(graph: Graph) -> bool:
    return verify(Program(graph)) == []


def test_only_own_nodes_can_be_used_as_places() -> None:
    graph, nodes = chain(2)
    other, others = chain(2)
    for change in (
        lambda: graph.insert_before(others[0], "b", [nodes[0].outputs[0]]),
        lambda: graph.move_before(others[0], nodes[0]),
        lambda: graph.move_before(nodes[0], others[0]),
        lambda: graph.erase(others[1]),
    ):
        with pytest.raises(ValueError, match=r"is not a node of graph main|still has users"):
            change()
    assert sound(graph)
    assert sound(other)


def test_a_node_that_is_read_cannot_be_erased() -> None:
    graph, nodes = chain(2)
    with pytest.raises(ValueError, match="still has users"):
        graph.erase(nodes[0])
    graph.set_outputs([nodes[0].outputs[0]])
    graph.erase(nodes[1])
    assert list(graph) == [nodes[0]]
    assert nodes[1].graph is None
    assert nodes[1].outputs[0].graph is None
    assert sound(graph)
    with pytest.raises(ValueError, match="is not a node of graph main"):
        graph.erase(nodes[1])
    assert list(graph) == [nodes[0]]


def test_moving_and_reordering() -> None:
    graph, nodes = chain(4)
    for node in nodes[1:]:
        graph.set_input(node, 0, graph.inputs[0])
    graph.move_before(nodes[3], nodes[1])
    assert list(graph) == [nodes[0], nodes[3], nodes[1], nodes[2]]
    graph.move_before(nodes[0], nodes[0])
    graph.reorder(nodes[::-1])
    assert list(graph) == nodes[::-1]
    assert graph.last is nodes[0]
    assert sound(graph)
    for wrong in (nodes[:3], [*nodes[:3], nodes[0]], [*nodes, nodes[0]]):
        with pytest.raises(ValueError, match="each of its 4 nodes once"):
            graph.reorder(wrong)
    assert list(graph) == nodes[::-1]


def test_replacing_uses_reaches_nodes_regions_and_outputs() -> None:
    graph = Graph()
    x = graph.add_input(UNKNOWN_TYPE, "x")
    y = graph.add_input(UNKNOWN_TYPE, "y")
    node = graph.append("a", [x, y, x])
    region = graph.add_region(node, "r")
    inner = region.append("b", [x])
    region.set_outputs([x])
    graph.set_outputs([x, x])
    graph.replace_uses(x, y)
    assert (node.inputs, inner.inputs, region.outputs, graph.outputs) == ((y, y, y), (y,), (y,), (y, y))
    assert not x.users
    assert y.users == {node: 3, inner: 1, region: 1, graph: 2}
    graph.replace_uses(y, y)
    assert sound(graph)


def test_weights_are_declared_with_data_and_taken_back() -> None:
    graph = Graph()
    first = graph.add_weight(tensor(DType.I64, (1,)), "a", Role.CONSTANT, Literal((1,)))
    second = graph.add_weight(tensor(DType.I64, (1,)), "b", Role.BUFFER)
    node = graph.append("n", [first])
    with pytest.raises(ValueError, match="still has users"):
        graph.remove_weight(first)
    graph.erase(node)
    graph.remove_weight(first)
    assert (graph.weights, graph.data, second.index, first.graph) == ([second], {}, 0, None)
    graph.set_data(second, Literal((2,)))
    assert graph.data == {second: Literal((2,))}


@pytest.mark.parametrize(
    ("change", "facet"),
    [
        (lambda graph, node: graph.append("b"), Facet.TOPOLOGY),
        (lambda graph, node: graph.insert_before(node, "b"), Facet.TOPOLOGY),
        (lambda graph, node: graph.set_input(node, 0, None), Facet.TOPOLOGY),
        (lambda graph, node: graph.set_op(node, "b"), Facet.TOPOLOGY),
        (lambda graph, node: graph.set_outputs([]), Facet.TOPOLOGY),
        (lambda graph, node: graph.add_region(node, "r"), Facet.TOPOLOGY),
        (lambda graph, node: graph.add_input(UNKNOWN_TYPE), Facet.TOPOLOGY),
        (lambda graph, node: graph.add_weight(UNKNOWN_TYPE), Facet.TOPOLOGY),
        (lambda graph, node: graph.replace_uses(node.outputs[0], graph.inputs[0]), Facet.TOPOLOGY),
        (lambda graph, node: graph.set_type(node.outputs[0], tensor(DType.F32, ())), Facet.TYPES),
        (lambda graph, node: graph.set_type(graph.inputs[0], tensor(DType.F32, ())), Facet.DECLARED),
        (lambda graph, node: graph.set_attr(node, "k", 1), Facet.ATTRS),
        (lambda graph, node: graph.remove_attr(node, "k"), Facet.ATTRS),
        (lambda graph, node: graph.rename(node.outputs[0], "n"), Facet.NAMES),
    ],
)
def test_a_change_counts_up_just_its_facet(change: object, facet: Facet) -> None:
    graph, nodes = chain(2)
    before = list(graph.versions)
    assert callable(change)
    change(graph, nodes[0])
    assert [index for index, (old, new) in enumerate(zip(before, graph.versions, strict=True)) if new > old] == [facet]


def test_setting_the_type_a_value_has_counts_nothing() -> None:
    graph, nodes = chain(1)
    before = list(graph.versions)
    graph.set_type(nodes[0].outputs[0], UNKNOWN_TYPE)
    graph.set_input(nodes[0], 0, graph.inputs[0])
    assert graph.versions == before


def test_attributes_are_replaced_never_changed() -> None:
    graph, nodes = chain(1)
    graph.set_attr(nodes[0], "a", 1)
    kept = nodes[0].attrs
    graph.set_attr(nodes[0], "a", 2)
    graph.set_attr(nodes[0], "b", 3)
    graph.remove_attr(nodes[0], "a")
    assert (kept, nodes[0].attrs) == ({"a": 1}, {"b": 3})
    graph.remove_attr(nodes[0], "b")
    assert nodes[0].attrs is NO_ATTRS


def test_random_edits_agree_with_a_list() -> None:
    rng = random.Random(7)
    graph = Graph()
    model: list[Node] = []
    for step in range(2_000):
        kind = rng.choice("aaiiem") if model else "a"
        place = rng.randrange(len(model)) if model else 0
        if kind == "a":
            model.append(graph.append(f"n{step}"))
        elif kind == "i":
            model.insert(place, graph.insert_before(model[place], f"n{step}"))
        elif kind == "e":
            graph.erase(model.pop(place))
        else:
            node = model.pop(rng.randrange(len(model)))
            if not model:
                model.append(node)
                continue
            place = rng.randrange(len(model))
            graph.move_before(node, model[place])
            model.insert(place, node)
    assert list(graph) == model
    assert sound(graph)


def test_names_of_nodes_and_values() -> None:
    graph = Graph()
    node = graph.append("a.b", [], [UNKNOWN_TYPE, UNKNOWN_TYPE], names=[None, "y"])
    assert (node.name, graph.append("c").name) == ("y", "c")
    assert repr(node) == "<Node y = a.b>"
    assert repr(node.outputs[0]) == "<Value %?: ?>"
    assert isinstance(node.outputs[1], Value)
