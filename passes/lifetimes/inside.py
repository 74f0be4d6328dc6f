"""Peak bytes inside a node: of its regions, or of the function it calls."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add

from irscope.ir.dims import Dim, dim_max
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.program import Program
from irscope.ops.registry import callee_of, control_of
from irscope.passes.alias import Aliases
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.lives import Body, alive_bytes
from irscope.passes.sizes import largest_size


def inner_peaks(program: Program, aliases: Aliases, types: Inferred, unsized: list[Value]) -> dict[Node, Dim]:
    """For each node with regions, or that calls a function, the bytes alive inside it besides its results."""
    finder = _Inside(aliases, types, unsized)
    for body in _callees_first(program):
        finder.visit(body, body is program.graph)
    return finder.extra


def _callees_first(program: Program) -> Iterator[Graph]:
    """Callees before callers, the main graph last; a recursive function comes before its own call."""
    done: set[str] = set()
    for first in program.functions:
        pending = [(first, False)]
        while pending:
            name, ready = pending.pop()
            if ready:
                yield program.functions[name]
            elif name not in done and name in program.functions:
                done.add(name)
                pending.append((name, True))
                pending.extend((callee, False) for callee in _callees(program.functions[name]))
    yield program.graph


def _callees(body: Graph) -> list[str]:
    return list(dict.fromkeys(callee for node in body.walk() if (callee := callee_of(node)) is not None))


class _Inside:
    def __init__(self, aliases: Aliases, types: Inferred, unsized: list[Value]) -> None:
        self.aliases = aliases
        self.types = types
        self.unsized = unsized
        self.extra: dict[Node, Dim] = {}
        self.called: dict[str, Dim] = {}

    def visit(self, body: Graph, is_main: bool) -> None:
        """Regions of a body from the innermost out, then the body itself where it is a function."""
        for graph in reversed(list(body.graphs())):
            for node in graph:
                callee = callee_of(node)
                if callee is not None:
                    self._add(node, self.called.get(callee, 0))
            if graph.owner is not None:
                self._add(graph.owner, self._peak(graph))
        if not is_main:
            self.called[body.name] = self._peak(body)

    def _peak(self, graph: Graph) -> Dim:
        """The peak of the bytes that a graph's nodes allocate."""
        body = Body(list(graph), self.aliases, self.types, self.unsized)
        body.read(graph.outputs)
        inside = {step: self.extra[node] for step, node in enumerate(body.steps) if node in self.extra}
        return largest_size(alive_bytes(body.ranges([]), inside, len(body.steps)))[0]

    def _add(self, node: Node, peak: Dim) -> None:
        kind = control_of(node)
        beyond = peak if kind is not None and kind.repeats else self._beyond_results(node, peak)
        known = self.extra.get(node, 0)
        found = dim_max(known, beyond)
        if found != 0:
            self.extra[node] = found

    def _beyond_results(self, node: Node, peak: Dim) -> Dim:
        """The peak inside less the node's results, which are counted outside; in a loop the previous iteration's state remains."""
        types = (self.types.type_of(output) for output in node.outputs if self.aliases.storage(output) is output)
        sizes = [size for type_ in types if (size := type_.nbytes) is not None]
        return dim_max(peak - reduce(add, sizes, 0), 0)
