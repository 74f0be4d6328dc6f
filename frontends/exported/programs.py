"""Exported programs in memory: their nodes in another order. Needs torch."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irscope.errors import LoadError, UsageError

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Graph, Node


def as_program(subject: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    """A module exported for its arguments, or an exported program as it is."""
    import torch

    if isinstance(subject, torch.export.ExportedProgram):
        return subject
    if not isinstance(subject, torch.nn.Module):
        raise UsageError(
            f"a {type(subject).__name__} has no graph", code="IRS362", hint="give an nn.Module with its arguments, or an ExportedProgram"
        )
    if not args and not kwargs:
        raise UsageError("a module's graph depends on its arguments", code="IRS362", hint="scheduled(module, x) as in module(x)")
    try:
        with torch.no_grad():
            return torch.export.export(subject, args, kwargs)
    except Exception as error:  # whatever torch.export raises is why there is no graph
        reason = str(error).strip().partition("\n")[0]
        raise LoadError(
            f"torch.export makes no graph of it: {reason[:200]}", code="IRS362", where=type(subject).__name__, hint="export it yourself"
        ) from error


def save_program(program: ExportedProgram, path: Path) -> None:
    """Write a `.pt2` file."""
    import torch

    torch.export.save(program, path)


def reordered(program: ExportedProgram, order: Sequence[int]) -> ExportedProgram:
    """The program with its nodes, counted as a file counts them, in another order. Weights are shared with the original."""
    import torch

    graph = _copied(program.graph, order)
    return torch.export.ExportedProgram(
        root=torch.fx.GraphModule(program.graph_module, graph),
        graph=graph,
        graph_signature=copy.copy(program.graph_signature),
        state_dict=program.state_dict,
        range_constraints=copy.copy(program.range_constraints),
        module_call_graph=copy.copy(program.module_call_graph),
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _copied(graph: Graph, order: Sequence[int]) -> Graph:
    """A copy of a graph: first what it declares, then its nodes in the order, parts of results right behind what makes them."""
    import torch

    rows = [node for node in graph.nodes if _is_row(node)]
    if len(rows) != len(order):
        raise LoadError("the program's graph does not have the nodes of its file", code="IRS362", hint="export it again")
    made = torch.fx.Graph(tracer_cls=graph._tracer_cls)
    made.set_codegen(copy.copy(graph._codegen))
    found: dict[Node, Node] = {}
    for node in _in_order(graph, [rows[number] for number in order]):
        found[node] = made.node_copy(node, found.__getitem__)
    made.lint()
    return made


def _is_row(node: Node) -> bool:
    """Whether a file lists the node: parts of results are listed with what makes them."""
    return node.op == "call_function" and node.target is not operator.getitem


def _in_order(graph: Graph, rows: Sequence[Node]) -> Iterator[Node]:
    yield from (node for node in graph.nodes if node.op in ("placeholder", "get_attr"))
    for row in rows:
        pending = [row]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed([user for user in node.users if user.target is operator.getitem and user.args[0] is node]))
    yield from (node for node in graph.nodes if node.op == "output")


def graph_module(program: ExportedProgram) -> torch.fx.GraphModule:
    """What runs the program: it lets go of each value after its last use."""
    return program.module()
