"""Birth and death of every storage, under a model of who frees what when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from irscope.ir.builder import paused_gc
from irscope.ir.dims import Dim
from irscope.ir.graph import Facet, Graph, Node, Value
from irscope.passes.alias import Alias
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.composites import hidden_bytes
from irscope.passes.lifetimes.frames import Hold, Locals, held_by_calls
from irscope.passes.lifetimes.inside import inner_peaks
from irscope.passes.lifetimes.lives import Body, LiveRange, alive_bytes
from irscope.passes.lifetimes.strides import Strides
from irscope.passes.shapes import Shapes
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Table


@dataclass
class Lifetimes:
    """Storages of the main graph."""

    model: str
    steps: list[Node]
    ranges: list[LiveRange]
    inside: dict[int, Dim]
    """Bytes that only exist within a step: what its regions make, and what a composite operator drops again."""
    unsized: list[Value]
    undecided: int
    """Results that share or copy depending on strides that are not known."""

    def alive(self) -> list[Dim]:
        """Bytes alive at each step."""
        return alive_bytes(self.ranges, self.inside, len(self.steps))


@dataclass(frozen=True)
class Ranges(Analysis[Lifetimes]):
    """Find from which step to which each storage lives."""

    name: ClassVar[str] = "ranges"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    model: Literal["auto", "ssa", "eager", "jit"] = "auto"
    """Who frees when: ssa and jit right after the last use, eager as Python's frames do; auto is eager for files of PyTorch, else ssa."""
    undecided: Literal["copy", "share"] = "copy"
    """What a result is taken to be that shares or copies depending on strides that are not known."""

    def compute(self, graph: Graph, ctx: PassContext) -> Lifetimes:
        with paused_gc():
            return self._lifetimes(graph, ctx)

    def _lifetimes(self, graph: Graph, ctx: PassContext) -> Lifetimes:
        program = ctx.program
        types = ctx.get(Shapes)
        aliases = ctx.get(Alias(undecided=self.undecided))
        model = self.model if self.model != "auto" else default_model(program.format)
        unsized: list[Value] = []
        peaks = inner_peaks(program, aliases, types, unsized)
        body = Body(list(ctx.each(graph, "live ranges", len(graph))), aliases, types, unsized)
        body.read(graph.outputs)
        holds: list[dict[Value, Hold]] = []
        if model == "eager":
            facts = body.facts()
            holds.append(held_by_calls(facts, body.reads()))
            if program.format != "torchscript":
                # TorchScript names every result: its variables are not those of the Python it was made from.
                holds.append(Locals(facts).holds())
        inside: dict[int, Dim] = {}
        for step, node in enumerate(body.steps):
            size = _hidden(node, types, aliases.strides) + peaks.get(node, 0)
            if size != 0:
                inside[step] = size
        return Lifetimes(model, body.steps, body.ranges(holds), inside, unsized, len(aliases.undecided))

    def report(self, result: Lifetimes, ctx: PassContext) -> Report:
        rows = [(_label(one), one.size, one.born, one.dies, one.last_use, one.held_by) for one in result.ranges]
        columns = ["storage:value", "size:bytes", "born:index", "dies:index", "last_use:index", "held_by:node"]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={"model": result.model, "storages": len(result.ranges), "undecided": result.undecided},
            tables=(Table.of(rows, columns=columns, title="storages"),),
        )


def default_model(format_: str) -> str:
    """How models of this format are usually run."""
    return "eager" if format_ in ("pt2", "torchscript", "module") else "ssa"


def _hidden(node: Node, types: Inferred, strides: Strides) -> Dim:
    operands = [None if value is None else strides.type_of(value) for value in node.inputs]
    return hidden_bytes(node, operands, [types.type_of(output) for output in node.outputs])


def _label(one: LiveRange) -> str:
    value = one.value
    return value.name or (value.node.name if value.node is not None else "")
