"""A graph as columns: what analyses over many nodes read instead of walking objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.ir.graph import Facet, Graph, Node, Run, Value, runs
from irscope.ir.places import Scope
from irscope.ir.program import Program

Column: TypeAlias = NDArray[np.int32]

OUTSIDE = -2
"""In place of a value that is defined around what was indexed, when that is a region."""


@dataclass(frozen=True, eq=False)
class GraphIndex:
    """Nodes in pre-order (a node, then all in its regions) and values in order of definition, all by number.

    Where a column has one entry per pair, `X_offsets[i]:X_offsets[i + 1]` are the entries of number i. -1 stands for none.
    """

    nodes: list[Node]
    values: list[Value]
    graphs: list[Graph]
    """Bodies and regions, outer before inner."""
    value_of: dict[Value, int]
    graph_of: dict[Graph, int]

    input_offsets: Column
    input_values: Column
    """Values that a node reads, position by position; OUTSIDE for those of graphs around an indexed region."""
    output_offsets: Column
    output_values: Column
    """Values that a node defines."""
    use_offsets: Column
    use_nodes: Column
    """Nodes that read a value, in order; a node that reads it twice is listed twice."""
    return_offsets: Column
    return_values: Column
    """Values that a graph returns."""
    producer: Column
    """The node that defines a value; -1 for what a graph declares."""
    value_graph: Column
    """The graph in which a value is defined."""

    parent_node: Column
    """The node whose region a node stands in; -1 at the top."""
    node_graph: Column
    """The graph in which a node stands."""
    depth: Column
    """How many regions are around a node."""
    span_end: Column
    """The nodes inside a node's regions are those from its number plus 1 up to, not including, this one."""
    graph_owner: Column
    """The node that owns a graph as its region; -1 for bodies."""

    scopes: list[Scope]
    """Scopes in use and those above them, outer before inner, in the order of their first node."""
    scope_of: Column
    """The scope of a node."""
    scope_parents: Column
    scope_depths: Column
    ops: list[str]
    """Names of operators in the order of their first node."""
    op_of: Column
    """The operator of a node."""

    @cached_property
    def node_of(self) -> dict[Node, int]:
        """Numbers of nodes; made when first asked for, as most analyses think in numbers throughout."""
        return dict(zip(self.nodes, range(len(self.nodes)), strict=True))

    def inputs(self, node: int) -> Column:
        """Numbers of the values a node reads; -1 where it reads none."""
        return self.input_values[self.input_offsets[node] : self.input_offsets[node + 1]]

    def outputs(self, node: int) -> Column:
        """Numbers of the values a node defines."""
        return self.output_values[self.output_offsets[node] : self.output_offsets[node + 1]]

    def uses(self, value: int) -> Column:
        """Numbers of the nodes that read a value."""
        return self.use_nodes[self.use_offsets[value] : self.use_offsets[value + 1]]

    def returns(self, graph: int) -> Column:
        """Numbers of the values a graph returns."""
        return self.return_values[self.return_offsets[graph] : self.return_offsets[graph + 1]]


def index_of(graph: Graph) -> GraphIndex:
    """The index of a graph, cached until nodes or edges change."""
    version = graph.versions[Facet.TOPOLOGY]
    cached = graph.cached_index
    if cached is not None and cached[0] == version and isinstance(cached[1], GraphIndex):
        return cached[1]
    made = build_index(graph)
    graph.cached_index = (version, made)
    return made


def build_index(source: Graph | Program) -> GraphIndex:
    """Number everything in a graph with its regions, or in a program: its main graph, then its functions."""
    bodies = [source] if isinstance(source, Graph) else [source.graph, *source.functions.values()]
    return _Builder(bodies).index()


class _Builder:
    """Collects objects in order; what can be counted in bulk is left to numpy."""

    def __init__(self, bodies: Sequence[Graph]) -> None:
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.graphs: list[Graph] = []
        self.graph_of: dict[Graph, int] = {}
        self.owners: list[int] = []
        self.spans: list[tuple[int, int]] = []
        # One entry a run: how many nodes and values it adds, its graph, the node around it, its depth.
        self.run_nodes: list[int] = []
        self.run_values: list[int] = []
        self.run_graphs: list[int] = []
        self.run_owners: list[int] = []
        self.run_depths: list[int] = []
        self.declared: list[tuple[int, int]] = []
        for body in bodies:
            self._walk(body)

    def _walk(self, body: Graph) -> None:
        # Nodes whose regions are being walked.
        open_nodes: list[int] = []
        for run in runs(body):
            if run.opens:
                self.graph_of[run.graph] = len(self.graphs)
                self.graphs.append(run.graph)
                self.owners.append(open_nodes[-1] if open_nodes else -1)
            else:
                node = open_nodes.pop()
                self.spans.append((node, len(self.nodes)))
            self._take(run, open_nodes[-1] if open_nodes else -1)
            if not run.closes:
                open_nodes.append(len(self.nodes) - 1)

    def _take(self, run: Run, owner: int) -> None:
        start = len(self.values)
        if run.opens:
            self.values.extend(run.graph.inputs)
            self.values.extend(run.graph.weights)
            self.declared.append((start, len(self.values)))
        self.nodes.extend(run.nodes)
        self.values.extend([value for node in run.nodes for value in node.outputs])
        self.run_nodes.append(len(run.nodes))
        self.run_values.append(len(self.values) - start)
        self.run_graphs.append(self.graph_of[run.graph])
        self.run_owners.append(owner)
        self.run_depths.append(run.depth)

    def index(self) -> GraphIndex:
        nodes, values = self.nodes, self.values
        value_of = dict(zip(values, range(len(values)), strict=True))
        output_counts = _column([len(node.outputs) for node in nodes])
        output_offsets = _offsets(output_counts)
        producer = self._producers(output_counts)
        input_offsets, input_values = _lists([node.inputs for node in nodes], value_of)
        return_offsets, return_values = _lists([graph.outputs for graph in self.graphs], value_of)
        use_offsets, use_nodes = _uses(input_offsets, input_values, len(values))
        scopes, scope_of = self._scopes()
        scope_numbers: dict[Scope | None, int] = {None: -1, **{scope: number for number, scope in enumerate(scopes)}}
        ops = list(dict.fromkeys([node.op for node in nodes]))
        op_numbers = {op: number for number, op in enumerate(ops)}
        span_end = np.arange(1, len(nodes) + 1, dtype=np.int32)
        for node, end in self.spans:
            span_end[node] = end
        return GraphIndex(
            nodes=nodes,
            values=values,
            graphs=self.graphs,
            value_of=value_of,
            graph_of=self.graph_of,
            input_offsets=input_offsets,
            input_values=input_values,
            output_offsets=output_offsets,
            output_values=np.flatnonzero(producer >= 0).astype(np.int32),
            use_offsets=use_offsets,
            use_nodes=use_nodes,
            return_offsets=return_offsets,
            return_values=return_values,
            producer=producer,
            value_graph=_repeated(self.run_graphs, self.run_values),
            parent_node=_repeated(self.run_owners, self.run_nodes),
            node_graph=_repeated(self.run_graphs, self.run_nodes),
            depth=_repeated(self.run_depths, self.run_nodes),
            span_end=span_end,
            graph_owner=_column(self.owners),
            scopes=scopes,
            scope_of=scope_of,
            scope_parents=_column([scope_numbers[scope.parent] for scope in scopes]),
            scope_depths=_column([scope.depth for scope in scopes]),
            ops=ops,
            op_of=_column([op_numbers[node.op] for node in nodes]),
        )

    def _producers(self, output_counts: Column) -> Column:
        """Values are numbered in the order of their nodes, but for what graphs declare in between."""
        is_declared = np.zeros(len(self.values), dtype=np.bool_)
        for start, end in self.declared:
            is_declared[start:end] = True
        producer = np.full(len(self.values), -1, dtype=np.int32)
        producer[~is_declared] = np.repeat(np.arange(len(self.nodes), dtype=np.int32), output_counts)
        return producer

    def _scopes(self) -> tuple[list[Scope], Column]:
        order = [node.scope for node in self.nodes]
        found: dict[Scope, None] = {}
        for used in dict.fromkeys(order):
            fresh: list[Scope] = []
            scope: Scope | None = used
            while scope is not None and scope not in found:
                fresh.append(scope)
                scope = scope.parent
            found.update(dict.fromkeys(reversed(fresh)))
        numbers = {scope: number for number, scope in enumerate(found)}
        return list(found), _column([numbers[scope] for scope in order])


def _column(items: Sequence[int]) -> Column:
    return np.array(items, dtype=np.int32)


def _repeated(items: Sequence[int], counts: Sequence[int]) -> Column:
    return np.repeat(_column(items), counts)


def _offsets(counts: Column) -> Column:
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _lists(tuples: Iterable[tuple[Value | None, ...]], numbers: dict[Value, int]) -> tuple[Column, Column]:
    """Offsets and value numbers of many tuples of values."""
    rows = list(tuples)
    flat = _column([-1 if value is None else numbers.get(value, OUTSIDE) for value in chain.from_iterable(rows)])
    return _offsets(_column([len(row) for row in rows])), flat


def _uses(input_offsets: Column, input_values: Column, count: int) -> tuple[Column, Column]:
    """The reverse of the inputs: for each value the nodes that read it."""
    readers = np.repeat(np.arange(len(input_offsets) - 1, dtype=np.int32), np.diff(input_offsets))
    reads = input_values >= 0
    values, readers = input_values[reads], readers[reads]
    order = np.argsort(values, kind="stable")
    return _offsets(np.bincount(values, minlength=count).astype(np.int32)), readers[order]
