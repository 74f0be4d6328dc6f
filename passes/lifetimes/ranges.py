"""Live range of every storage, under a lifetime model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from irscope.immutable import mutable
from irscope.ir.dims import Dim
from irscope.ir.graph import Facet, Graph, Node, Value, paused_gc
from irscope.ir.program import LocalNames, Program, Traits
from irscope.ops.registry import find_op
from irscope.ops.spec import OpCall
from irscope.passes.graph.alias import Alias, Strides
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passes.lifetimes.frames import Locals, held_by_calls, longest_holds
from irscope.passes.lifetimes.lives import Body, Hold, LiveRange, alive_bytes, as_observed, inner_peaks, label_of
from irscope.passes.lifetimes.traced import TracedLocals
from irscope.passes.lifetimes.xla import XlaMemory
from irscope.passes.ort import OrtPlan
from irscope.passes.ort.memory import OrtMemory
from irscope.passes.sizes import size_cell
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Table


@mutable
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
    unsized_ranges: list[LiveRange] = field(default_factory=list)
    """When storages of unknown size live; their sizes are unknown within the limits there are, and no sum counts them."""
    is_modelled: bool = False
    """Whether live ranges are what the lines of a file suggest, where Python may keep tensors in ways that it does not show."""

    @property
    def deaths(self) -> list[int]:
        """The last step of each storage."""
        return [one.dies for one in (*self.ranges, *self.unsized_ranges)]

    def alive(self) -> list[Dim]:
        """Bytes alive at each step."""
        return alive_bytes(self.ranges, self.inside, len(self.steps))


@dataclass(frozen=True)
class Ranges(Analysis[Lifetimes]):
    """Compute the live range of each storage: its first and last step."""

    name: ClassVar[str] = "ranges"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    model: Literal["auto", "ssa", "eager", "jit", "ort", "xla"] = "auto"
    """Lifetime model, which says when tensors are freed: ssa and jit after the last use, eager as Python's frames do, ort as ONNX
    Runtime does, xla as XLA's CPU compiler packs what it does not fuse; auto follows the file."""
    undecided: Literal["copy", "share"] = "copy"
    """Whether a result counts as a view or a copy where unknown strides decide that."""
    held: Literal["likely", "least", "most"] = "likely"
    """How long tensors live where that is modelled: as names in the file suggest, until their last use, or until the call ends that
    they are made and used in."""

    def compute(self, graph: Graph, ctx: PassContext) -> Lifetimes:
        with paused_gc():
            return self._lifetimes(graph, ctx)

    def _lifetimes(self, graph: Graph, ctx: PassContext) -> Lifetimes:
        program = ctx.program
        model = self.resolved(program.traits)
        if model == "ort":
            return _of_plan(ctx.get(OrtMemory()))
        if model == "xla":
            fused = ctx.get(XlaMemory())
            if not fused.unsized:
                inside: dict[int, Dim] = {**fused.inside}
                return Lifetimes("xla", fused.steps, fused.ranges(), inside, [], 0)
            model = "ssa"  # which formulas of sizes can be made for
        types = ctx.get(Shapes)
        aliases = ctx.get(Alias(undecided=self.undecided))
        unsized: list[Value] = []
        peaks = inner_peaks(program, aliases, types, unsized)
        body = Body(list(ctx.each(graph, "live ranges", len(graph))), aliases, types, unsized)
        body.read(graph.outputs)
        holds: list[dict[Value, Hold]] = []
        is_modelled = self.is_modelled(program)
        if model == "eager" and not (is_modelled and self.held == "least"):
            facts = body.facts()
            holds.append(held_by_calls(facts, body.reads()))
            # TorchScript's own variables are not those of the Python that it was made from.
            names = TracedLocals if program.traits.local_names is LocalNames.LINES else Locals
            holds.append(names(facts).holds())
            if is_modelled and self.held == "most":
                holds.append(longest_holds(facts))
        inside = {}
        for step, node in enumerate(body.steps):
            size = _hidden(node, types, aliases.strides) + peaks.get(node, 0)
            if size != 0:
                inside[step] = size
        ranges = body.ranges(holds)
        if model == "eager" and program.watched is not None:
            ranges = as_observed(ranges, program.watched, body.steps)
        undecided = len(aliases.undecided)
        return Lifetimes(model, body.steps, ranges, inside, unsized, undecided, body.unsized_ranges(holds), is_modelled)

    def resolved(self, traits: Traits) -> str:
        """The model, where auto follows the file."""
        return traits.lifetimes if self.model == "auto" else self.model

    def is_modelled(self, program: Program) -> bool:
        """Return whether live ranges rest on what lines of source say: nobody watched the run, and no compiler wrote them down."""
        return self.resolved(program.traits) == "eager" and program.watched is None and not program.traits.is_plan

    def report(self, result: Lifetimes, ctx: PassContext) -> Report:
        every = (*result.ranges, *result.unsized_ranges)
        rows = [(label_of(one.value), size_cell(one.size), one.born, one.dies, one.last_use, one.held_by) for one in every]
        columns = ["storage:value", "size:bytes", "born:index", "dies:index", "last_use:index", "held_by:node"]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={"model": result.model, "storages": len(every), "undecided": result.undecided},
            tables=(Table.of(rows, columns=columns, title="storages"),),
        )


MODELLED_LIVES = "live ranges are modelled by lines of source"
"""Why a peak that depends on what Python holds is modelled, in a few words."""


def other_lives(ctx: PassContext, model: Literal["auto", "ssa", "eager", "jit", "ort", "xla"], likely: Lifetimes) -> list[Lifetimes]:
    """The shortest and the longest live ranges there may be, where they are modelled; nothing where no tensor's differs."""
    if not likely.is_modelled:
        return []
    found = [ctx.get(Ranges(model=model, held="least")), ctx.get(Ranges(model=model, held="most"))]
    return found if any(one.deaths != likely.deaths for one in found) else []


def _of_plan(plan: OrtPlan) -> Lifetimes:
    """Lifetimes as ONNX Runtime plans them: the steps are its kernels in its order."""
    steps = plan.steps
    inside = {step: size for step, node in enumerate(steps) if (size := plan.inside.get(node, 0)) != 0}
    return Lifetimes("ort", steps, plan.ranges, inside, plan.unsized, 0, plan.unsized_ranges)


def _hidden(node: Node, types: Inferred, strides: Strides) -> Dim:
    spec = find_op(node.op)
    if spec is None or spec.intermediates is None:
        return 0
    operands = [None if value is None else strides.type_of(value) for value in node.inputs]
    results = [types.type_of(output) for output in node.outputs]
    return spec.intermediate_bytes(OpCall(spec, operands, node.attrs, (), results, source=node.source))
