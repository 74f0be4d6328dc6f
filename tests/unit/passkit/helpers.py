"""A small program and passes that the tests of the pass kit share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from irscope.ir.dtypes import DType
from irscope.ir.graph import Facet, Graph
from irscope.ir.program import Program
from irscope.ir.types import tensor
from irscope.passkit.base import Analysis, PassContext, Transform

MATRIX = tensor(DType.F32, (4, 4))


def chain(length: int = 3) -> Program:
    """x -> relu -> relu ... -> output."""
    graph = Graph()
    value = graph.add_input(MATRIX, "x")
    for index in range(length):
        value = graph.append("nn.relu", [value], [MATRIX], names=[f"r{index}"]).outputs[0]
    graph.set_outputs([value])
    return Program(graph)


@dataclass(frozen=True)
class Count(Analysis[int]):
    """Count nodes."""

    name: ClassVar[str] = "count"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY,)
    runs: ClassVar[list[str]] = []

    op: str = ""
    scale: float = 1.0
    mode: Literal["plain", "odd one"] = "plain"
    names: tuple[str, ...] = ()
    limit: int | None = None
    deep: bool = False

    def compute(self, graph: Graph, ctx: PassContext) -> int:
        self.runs.append("count")
        return sum(1 for node in ctx.each(graph, "counting") if not self.op or node.op == self.op)


@dataclass(frozen=True)
class Twice(Analysis[int]):
    """Twice the count: depends on another analysis."""

    name: ClassVar[str] = "twice"
    reads: ClassVar[tuple[Facet, ...]] = ()
    runs: ClassVar[list[str]] = []

    def compute(self, graph: Graph, ctx: PassContext) -> int:
        self.runs.append("twice")
        return 2 * ctx.get(Count())


@dataclass(frozen=True)
class Rename(Transform):
    """Rename the first output."""

    name: ClassVar[str] = "rename"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        ctx.stat("renamed")
        graph.rename(graph.outputs[0], "renamed")
        return True


@dataclass(frozen=True)
class DropLast(Transform):
    """Remove the last node, whose operand becomes the output."""

    name: ClassVar[str] = "drop-last"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        last = graph.last
        if last is None or last.inputs[0] is None:
            return False
        graph.set_outputs([last.inputs[0]])
        graph.erase(last)
        return True
