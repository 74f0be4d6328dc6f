"""The order of nodes: as in the file, or sorted where the file uses a value before it makes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from irscope.frontends.onnx.call import Lowering
from irscope.frontends.onnx.protos import GraphProto, NodeProto
from irscope.frontends.onnx.reader import BAD_GRAPH, CYCLE, UNSORTED, refuse, short
from irscope.frontends.onnx.rules import Use
from irscope.solvers import graphs

_GRAPH, _GRAPHS = 5, 10


Row: TypeAlias = tuple[int, NodeProto, Use | None, list[str], list[str]]
"""A node with its number, what nodes like it have in common (None where there may be graphs in it), and the names that it reads and
makes."""


def in_order(rows: list[Row], body: Lowering) -> list[Row]:
    """Return the rows so that each comes after those whose results it reads; LoadError where that is impossible."""
    made: dict[str, int] = {}
    known = body.values
    check_new([name for row in rows for name in row[4]], body)
    early = False
    for index, (_, _, _, inputs, outputs) in enumerate(rows):
        for name in inputs:
            if name not in made and name not in known and name:
                early = early or body.outer is None or not body.knows(name)
        made.update(dict.fromkeys(filter(None, outputs), index))
    captures = {index: found for index, row in enumerate(rows) if row[2] is None and (found := captured_names(row[1]))}
    early = early or any(made.get(name, -1) >= index for index, names in captures.items() for name in names)
    return _sorted_rows(rows, made, captures, body) if early else rows


def check_new(names: Iterable[str], body: Lowering) -> None:
    """Refuse names of results that stand for something else on this level."""
    seen: set[str] = set()
    for name in names:
        if name and (name in seen or name in body.values):
            where, hint = f"graph '{short(body.graph.name)}'", "the model is damaged: names must be unique"
            raise refuse(BAD_GRAPH, f"'{short(name)}' is made twice", where, hint)
        seen.add(name)


def _sorted_rows(rows: list[Row], made: dict[str, int], captures: dict[int, set[str]], body: Lowering) -> list[Row]:
    before: list[set[int]] = [set() for _ in rows]
    for index, row in enumerate(rows):
        needed = set(row[3]) | captures.get(index, set())
        needed.discard("")
        for name in sorted(needed):
            producer = made.get(name)
            if producer is not None and name not in body.values:
                before[index].add(producer)
            elif producer is None and name in row[3]:
                body.find(name)
    # ONNX Runtime breaks ties by places in the file: float16 converters append the casts of inputs at the end.
    order = graphs.sorted_by(range(len(rows)), before)
    if len(order) < len(rows):
        stuck = rows[min(set(range(len(rows))).difference(order))]
        name = stuck[4][0] if stuck[4] else stuck[1].op_type
        raise refuse(
            CYCLE, f"'{short(name)}' depends on itself", f"graph '{short(body.graph.name)}'", "the model is damaged: its nodes form a cycle"
        )
    body.model.sink.warn(
        UNSORTED,
        "nodes are not in an order in which they can run; they were sorted",
        hint="other tools may refuse this model",
        about=body.graph.name,
    )
    return [rows[index] for index in order]


def captured_names(node: NodeProto) -> set[str]:
    """Return the names that graphs inside a node read from around it."""
    found: set[str] = set()
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            found |= free_names(attribute.g)
        elif attribute.type == _GRAPHS:
            for graph in attribute.graphs:
                found |= free_names(graph)
    return found


def free_names(graph: GraphProto) -> set[str]:
    """Return the names that a graph reads but does not make; the file's depth bounds the recursion."""
    made = {info.name for info in graph.input}
    made.update(tensor.name for tensor in graph.initializer)
    made.update(tensor.values.name for tensor in graph.sparse_initializer)
    made.update(name for node in graph.node for name in node.output)
    free = {info.name for info in graph.output}
    for node in graph.node:
        free.update(node.input)
        free |= captured_names(node)
    free -= made
    free.discard("")
    return free
