"""Moving the nodes of a region to where its node stands, and copying those of a function to where it is called."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from irscope.ir.graph import Graph, Names, Node, Value
from irscope.ir.places import Scope


def splice(anchor: Node, region: Graph, arguments: Sequence[Value] = (), taken: set[str] | None = None) -> tuple[Value, ...]:
    """Move nodes and weights of a region right before `anchor`, a node of the same body; return what the region yields, and no longer does.

    `arguments` take the place of the region's own. Names that stand for other values of the body get a number; `taken` are those
    names, with which a caller that splices often saves collecting them.
    """
    graph = graph_of(anchor)
    if region.versions is not graph.versions or region is graph:
        raise ValueError(f"graph {region.name} is not a region of the same body as {anchor!r}")
    if len(arguments) != len(region.inputs):
        raise ValueError(f"region {region.name} takes {len(region.inputs)} arguments, not {len(arguments)}")
    for formal, actual in zip(region.inputs, arguments, strict=True):
        region.replace_uses(formal, actual)
    moved = [*region.weights, *(output for node in region for output in node.outputs)]
    taken = body_names(graph) if taken is None else taken
    taken.difference_update([value.name for value in moved if value.name is not None])
    fresh = Names()
    for value in moved:
        if value.name is not None:
            value.name = fresh.unique(value.name, taken)
            taken.add(value.name)
    for weight in region.weights:
        made = graph.add_weight(weight.type, weight.name, weight.role, region.data.get(weight))
        if weight in region.trainable:
            graph.trainable[made] = region.trainable[weight]
        region.replace_uses(weight, made)
    region.remove_weights(list(region.weights))
    yielded = region.outputs
    region.set_outputs(())
    for node in region:
        region.move_before(node, anchor)
    return yielded


def copy_before(anchor: Node, body: Graph, values: dict[Value, Value | None], taken: set[str] | None = None) -> list[Value | None]:
    """Put copies of the nodes of any graph right before `anchor`, below its scope; return what stands for the outputs of `body` then.

    `values` say what stands for its inputs and weights, and get what stands for its results.
    """
    graph = graph_of(anchor)
    taken = body_names(graph) if taken is None else taken
    names = Names()

    def name(value: Value) -> str | None:
        made = None if value.name is None else names.unique(value.name, taken)
        if made is not None:
            taken.add(made)
        return made

    def place(scope: Scope) -> Scope:
        below = anchor.scope
        for part in scope.chain:
            below = below.child(part.name, part.cls, part.call)
        return below

    todo: list[tuple[Graph, Graph]] = [(body, graph)]
    regions: list[tuple[Graph, Graph]] = []
    while todo:
        old, target = todo.pop()
        if target is not graph:
            regions.append((old, target))
            for value in old.inputs:
                values[value] = target.add_input(value.type, name(value), value.role)
            for weight in old.weights:
                values[weight] = target.add_weight(weight.type, name(weight), weight.role, old.data.get(weight))
        for node in old:
            inputs = [None if value is None else values.get(value, value) for value in node.inputs]
            types, named = [output.type for output in node.outputs], [name(output) for output in node.outputs]
            add = partial(graph.insert_before, anchor) if target is graph else target.append
            copy = add(node.op, inputs, types, node.attrs, names=named, scope=place(node.scope), loc=node.loc, source=node.source)
            values.update(zip(node.outputs, copy.outputs, strict=True))
            todo.extend([(inner, target.add_region(copy, inner.name)) for inner in node.regions])
    for old, region in regions:
        region.set_outputs([cast("Value", values.get(value, value)) for value in old.outputs])
    return [values.get(value, value) for value in body.outputs]


def root_of(graph: Graph) -> Graph:
    """Return the body that a graph or region is of: a model's main graph or a function."""
    while graph.owner is not None and graph.owner.graph is not None:
        graph = graph.owner.graph
    return graph


def body_names(graph: Graph) -> set[str]:
    """Return the names of all values of the body that a graph or region is of."""
    graph = root_of(graph)
    nodes = (output for node in graph.walk() for output in node.outputs)
    declared = (value for each in graph.graphs() for value in (*each.inputs, *each.weights))
    return {value.name for values in (declared, nodes) for value in values if value.name is not None}


def graph_of(node: Node) -> Graph:
    """Return the graph or region that a node stands in."""
    if node.graph is None:
        raise ValueError(f"{node!r} was erased")
    return node.graph
