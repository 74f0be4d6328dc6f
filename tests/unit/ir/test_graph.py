"""Editing a graph: order, uses, regions, versions; what every change refuses, and that long series of changes stay sound."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from irscope.ir.dtypes import DType
from irscope.ir.graph import NO_ATTRS, Facet, Graph, Node, Role, Value, paused_gc
from irscope.ir.places import Literal, Loc
from irscope.ir.program import Program, facet_contents
from irscope.ir.types import UNKNOWN_TYPE, tensor
from irscope.ir.verify import verify
from tests.tables import every

# Editing a graph: order, uses, regions, versions.

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


def sound(graph: Graph) -> bool:
    return verify(Program(graph)) == []


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph]


def test_nodes_keep_program_order_when_inserted_anywhere() -> None:
    graph, nodes = chain(2)
    # Far more insertions at one place than order numbers leave room for.
    for index in range(100):
        graph.insert_before(nodes[1], "math.abs", [nodes[0].outputs[0]], [TYPE], names=[f"i{index}"])
    assert names(graph) == ["n0", *(f"i{index}" for index in range(100)), "n1"]
    order = list(graph)
    assert all(a.is_before(b) and not b.is_before(a) for a, b in pairwise(order))
    assert sound(graph)


def test_a_node_may_be_inserted_at_the_very_start() -> None:
    graph, nodes = chain(1)
    made = graph.insert_before(nodes[0], "math.abs", [graph.inputs[0]], [TYPE], names=["first"])
    assert names(graph) == ["first", "n0"] and made.is_before(nodes[0])
    assert sound(graph)


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
    assert sound(graph)


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
    assert sound(graph)


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
    assert sound(graph)


def test_versions_count_by_facet_and_are_shared_with_regions() -> None:
    graph, branch, outer = branching()
    region = branch.regions[0]

    def changed(edit: object) -> set[str]:
        before = list(graph.versions)
        edit()  # type: ignore[operator]  # a closure over the graph
        return {facet.name for facet in Facet if graph.versions[facet] != before[facet]}

    node = region.first
    assert changed(lambda: region.set_attr(node, "a", 1)) == {"ATTRS"}
    assert changed(lambda: region.set_type(node.outputs[0], tensor(DType.F16, (2,)))) == {"TYPES"}
    assert changed(lambda: region.set_type(node.outputs[0], tensor(DType.F16, (2,)))) == set()
    assert changed(lambda: graph.set_type(graph.inputs[0], tensor(DType.F16, (2,)))) == {"DECLARED"}
    assert changed(lambda: graph.rename(outer, "o")) == {"NAMES"}
    assert changed(lambda: region.set_input(node, 0, graph.inputs[0])) == {"TOPOLOGY"}


def test_an_order_against_the_uses_is_seen() -> None:
    graph, nodes = chain(3)
    graph.reorder([nodes[1], nodes[0], nodes[2]])
    assert names(graph) == ["n1", "n0", "n2"] and not sound(graph)
    graph.reorder(nodes)
    assert sound(graph)


def test_a_chain_of_100_000_nodes_needs_no_recursion() -> None:
    with paused_gc():
        graph, _ = chain(100_000)
        assert sum(1 for _ in graph.walk()) == 100_000
        assert sound(graph)


def test_the_collector_is_paused_and_comes_back() -> None:
    assert gc.isenabled()
    with paused_gc():
        assert not gc.isenabled()
        with paused_gc():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.slow
def test_what_is_built_counts_as_long_lived_and_garbage_goes_before_the_next() -> None:
    """Else dropped graphs, which are full of cycles, would stay for as long as no other objects are made."""
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(4):
        with paused_gc():
            assert len(gc.get_objects()) < before + 250_000, "the graph before the last one is still there"
            chain(40_000)
            assert gc.get_count()[0] > 100_000
        assert gc.get_count()[0] < 10_000, "the collector would look at all that was built"
    gc.collect()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with paused_gc():
            pass
        assert gc.get_freeze_count() == frozen, "what others froze stays so"
    finally:
        gc.unfreeze()


# Every change of a graph: what it refuses, which counter it moves, and that long series of changes stay sound.


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
        graph.remove_weights([first])
    graph.erase(node)
    graph.remove_weights([first])
    assert (graph.weights, graph.data, second.index, first.graph) == ([second], {}, 0, None)
    graph.set_data(second, Literal((2,)))
    assert graph.data == {second: Literal((2,))}
    with pytest.raises(ValueError, match="not a weight of this graph"):
        graph.remove_weights([first])
    before = list(graph.versions)
    graph.remove_weights([])
    assert graph.versions == before


def test_weights_that_stay_are_numbered_anew() -> None:
    graph = Graph()
    weights = [graph.add_weight(tensor(DType.F32, (n,)), f"w{n}", Role.PARAMETER) for n in range(1, 8)]
    graph.remove_weights(weights[1::2])
    assert [(weight.name, weight.index) for weight in graph.weights] == [("w1", 0), ("w3", 1), ("w5", 2), ("w7", 3)]
    assert all(weight.graph is None for weight in weights[1::2])


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
    graph.set_type(nodes[0].outputs[0], TYPE)
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


ELSEWHERE = Graph().scope.child("elsewhere")


@pytest.mark.parametrize(
    ("change", "facet"),
    [
        (lambda graph, node: setattr(node, "op", "b"), Facet.TOPOLOGY),
        (lambda graph, node: setattr(node, "inputs", [None, graph.inputs[0]]), Facet.TOPOLOGY),
        (lambda graph, node: setattr(node, "scope", ELSEWHERE), Facet.TOPOLOGY),
        (lambda graph, node: setattr(node, "loc", Loc("model.py", 3)), Facet.TOPOLOGY),
        (lambda graph, node: setattr(node, "source", "aten::b"), Facet.TOPOLOGY),
        (lambda graph, node: setattr(node, "attrs", {"k": 1}), Facet.ATTRS),
        (lambda graph, node: setattr(node.outputs[0], "type", tensor(DType.F32, ())), Facet.TYPES),
        (lambda graph, node: setattr(graph.inputs[0], "type", tensor(DType.F32, ())), Facet.DECLARED),
        (lambda graph, node: setattr(graph.weights[0], "role", Role.BUFFER), Facet.DECLARED),
        (lambda graph, node: setattr(node.outputs[0], "name", "n"), Facet.NAMES),
        (lambda graph, node: setattr(graph, "outputs", [graph.inputs[0]]), Facet.TOPOLOGY),
        (lambda graph, node: setattr(graph, "scope", ELSEWHERE), Facet.TOPOLOGY),
        (lambda graph, node: setattr(graph, "name", "other"), Facet.NAMES),
        (lambda graph, node: graph.data.update({graph.weights[0]: Literal((1.0,))}), Facet.ATTRS),
        (lambda graph, node: graph.data.__setitem__(graph.weights[0], Literal((1.0,))), Facet.ATTRS),
        (lambda graph, node: graph.data.__delitem__(graph.weights[1]), Facet.ATTRS),
        (lambda graph, node: graph.data.clear(), Facet.ATTRS),
        (lambda graph, node: graph.data.pop(graph.weights[1]), Facet.ATTRS),
        (lambda graph, node: graph.trainable.setdefault(graph.weights[0], True), Facet.ATTRS),
    ],
)
def test_writing_a_field_counts_as_the_method_does(change: Callable[[Graph, Node], None], facet: Facet) -> None:
    graph, nodes = chain(2)
    graph.add_weight(tensor(DType.F32, (1,)), "w")
    graph.add_weight(tensor(DType.F32, (1,)), "known", data=Literal((2.0,)))
    before = list(graph.versions)
    contents = facet_contents(Program(graph))
    change(graph, nodes[0])
    assert {index for index, (old, new) in enumerate(zip(before, graph.versions, strict=True)) if new > old} == {facet}
    after = facet_contents(Program(graph))
    assert [Facet(index) for index, (old, new) in enumerate(zip(contents, after, strict=True)) if new != old] == [facet]


def test_inputs_that_are_written_know_their_readers() -> None:
    graph, (first, second) = chain(2)
    x = graph.inputs[0]
    second.inputs = [x, x, None]
    assert (second.inputs, x.users, first.outputs[0].users) == ((x, x, None), {first: 1, second: 2}, {})
    assert sound(graph)


@every(
    ("of", "field"),
    [
        *[("node", field) for field in ("name", "outputs", "regions", "graph", "next", "prev", "order", "note")],
        *[("value", field) for field in ("node", "index", "users", "declared_in", "note")],
        *[("graph", field) for field in ("first", "last", "inputs", "weights", "data", "trainable", "owner", "note")],
        *[("type", field) for field in ("shape", "dtype", "text")],
        *[("scope", field) for field in ("name", "parent", "call")],
    ],
)
def test_what_follows_from_the_graph_cannot_be_written(of: str, field: str) -> None:
    graph, nodes = chain(1)
    things = {"node": nodes[0], "value": nodes[0].outputs[0], "graph": graph, "type": tensor(DType.F32, (7,)), "scope": ELSEWHERE}
    with pytest.raises(AttributeError):
        setattr(things[of], field, None)


@pytest.mark.parametrize(
    "change",
    [
        lambda graph, node: node.attrs.update({"k": 2}),
        lambda graph, node: node.attrs.__setitem__("k", 2),
        lambda graph, node: node.attrs.pop("k"),
        lambda graph, node: graph.last.attrs.__setitem__("k", 2),
        lambda graph, node: graph.inputs.append(node.outputs[0]),
        lambda graph, node: graph.inputs.clear(),
        lambda graph, node: graph.weights.__delitem__(0),
        lambda graph, node: graph.weights.sort(),
    ],
)
def test_nothing_is_changed_in_place(change: Callable[[Graph, Node], None]) -> None:
    graph, nodes = chain(1)
    nodes[0].attrs = {"k": 1}
    graph.append("b", [], [], {"k": 1})
    before = list(graph.versions)
    with pytest.raises((TypeError, AttributeError)):
        change(graph, nodes[0])
    assert graph.versions == before


def test_what_is_written_later_to_a_dictionary_that_was_set_does_not_reach_the_node() -> None:
    graph, nodes = chain(1)
    attrs: dict[str, object] = {"k": 1}
    nodes[0].attrs = attrs
    attrs["k"] = 2
    assert nodes[0].attrs == {"k": 1}
    assert graph.append("b", [], [], nodes[0].attrs).attrs is nodes[0].attrs


def test_an_erased_node_cannot_be_written() -> None:
    graph, (_, second) = chain(2)
    graph.set_outputs([])
    graph.erase(second)
    for thing, field in ((second, "op"), (second.outputs[0], "name")):
        with pytest.raises(ValueError, match="was erased"):
            setattr(thing, field, "b")
    assert sound(graph)


def test_a_change_counts_where_the_node_stands_whichever_graph_is_asked() -> None:
    graph, _ = chain(1)
    other, nodes = chain(1)
    before = list(graph.versions)
    graph.set_op(nodes[0], "b")
    graph.set_attr(nodes[0], "k", 1)
    graph.set_type(nodes[0].outputs[0], tensor(DType.F32, ()))
    graph.rename(nodes[0].outputs[0], "n")
    assert graph.versions == before
    assert all(other.versions[facet] for facet in (Facet.TOPOLOGY, Facet.ATTRS, Facet.TYPES, Facet.NAMES))


def test_a_node_that_is_put_before_another_stands_in_its_scope_and_at_its_location() -> None:
    graph, nodes = chain(2)
    nodes[1].scope, nodes[1].loc = graph.scope.child("layer"), Loc("model.py", 3, "forward", "y = a(x)")
    made = graph.insert_before(nodes[1], "b")
    assert (made.scope, made.loc) == (nodes[1].scope, nodes[1].loc)
    given = graph.insert_before(nodes[1], "b", scope=ELSEWHERE, loc=Loc("other.py", 1))
    assert (given.scope, given.loc) == (ELSEWHERE, Loc("other.py", 1))


def test_a_node_that_is_replaced_leaves_its_place_and_names_to_the_new_one() -> None:
    graph = Graph()
    x = graph.add_input(tensor(DType.F32, (2,)), "x")
    scope, loc = graph.scope.child("act"), Loc("model.py", 3)
    before = graph.append("a", [x], [x.type])
    old = graph.append("nn.relu", [x], [x.type, x.type], {"inplace": 0}, names=["y", None], scope=scope, loc=loc, source="aten::relu_")
    after = graph.append("b", [old.outputs[0], old.outputs[1]], [x.type])
    graph.set_outputs([old.outputs[0], after.outputs[0]])
    made = graph.replace(old, "nn.gelu")
    assert list(graph) == [before, made, after]
    assert (made.op, made.name, made.scope, made.loc, made.source, made.attrs) == ("nn.gelu", "y", scope, loc, "", {})
    assert (made.inputs, made.outputs[0].type, after.inputs, graph.outputs[0]) == ((x,), x.type, made.outputs, made.outputs[0])
    assert old.graph is None
    assert sound(graph)
    one = graph.replace(after, "c", [x], [UNKNOWN_TYPE], {"k": 1}, names=["z"], source="aten::c")
    assert (one.name, one.attrs, one.source, one.outputs[0].type) == ("z", {"k": 1}, "aten::c", UNKNOWN_TYPE)
    assert sound(graph)


def test_a_result_that_is_still_read_cannot_be_replaced_by_nothing() -> None:
    graph, nodes = chain(2)
    with pytest.raises(ValueError, match="still has users, and the new node has 0 results"):
        graph.replace(nodes[0], "b", types=[])
    assert list(graph) == nodes
    assert sound(graph)


def test_graphs_that_were_filled_before_their_node_become_its_regions() -> None:
    graph, nodes = chain(1)
    region = Graph("then", scope=graph.scope, versions=graph.versions)
    assert region.add_input(UNKNOWN_TYPE, role=Role.ARGUMENT).role is Role.ARGUMENT
    graph.adopt_regions(nodes[0], [region])
    assert (nodes[0].regions, region.owner) == ((region,), nodes[0])
    for wrong in (region, Graph("apart")):
        with pytest.raises(ValueError, match="not a region without an owner"):
            graph.adopt_regions(nodes[0], [wrong])
    assert sound(graph)
