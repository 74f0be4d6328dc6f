"""Building graphs: pausing the garbage collector, and a small helper that carries scope and location."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from irscope.ir.graph import Attr, Graph, Node, Value
from irscope.ir.places import Loc, Scope
from irscope.ir.types import Type


@contextmanager
def paused_gc() -> Iterator[None]:
    """Pause garbage collection: building many small objects that all stay makes the collector scan for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Builder:
    """Appends nodes to a graph with the scope and location that are current."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.scope: Scope = graph.scope
        self.loc: Loc | None = None

    @contextmanager
    def module(self, name: str, cls: str = "") -> Iterator[Scope]:
        """Nodes added inside belong to a call of the module `name` of the current scope."""
        outer = self.scope
        call = sum(scope.name == name for scope in outer.children)
        self.scope = outer.child(name, cls, call)
        try:
            yield self.scope
        finally:
            self.scope = outer

    def node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        types: Sequence[Type],
        attrs: Mapping[str, Attr] | None = None,
        *,
        names: Sequence[str | None] | None = None,
        source: str = "",
    ) -> Node:
        """Append a node with any number of outputs."""
        return self.graph.append(op, inputs, types, attrs, names=names, scope=self.scope, loc=self.loc, source=source)

    def value(
        self,
        op: str,
        inputs: Sequence[Value | None],
        type_: Type,
        attrs: Mapping[str, Attr] | None = None,
        *,
        name: str | None = None,
        source: str = "",
    ) -> Value:
        """Append a node with one output and return that output."""
        return self.node(op, inputs, (type_,), attrs, names=(name,), source=source).outputs[0]
