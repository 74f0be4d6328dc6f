"""Bytes alive at each step when a tensor is freed right after its last use, which is the least any runtime can do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import add
from typing import ClassVar, Literal

from irscope.diagnostics import Diagnostic, Severity
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Facet, Graph, Node, Value
from irscope.ir.types import TensorType
from irscope.ops.registry import find_op
from irscope.passes.inference import Inferred
from irscope.passes.shapes import Shapes
from irscope.passes.sizes import CONVENTION, largest, plain, scale
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind


@dataclass(frozen=True, slots=True)
class LiveRange:
    """One storage made by a node: from the step that makes it to the last that needs it."""

    value: Value
    size: Dim
    born: int
    dies: int
    held_by: str
    """What needs it last: a node's name, or "output"."""


@dataclass
class Timeline:
    """Storages, and bytes alive at each step of the main graph."""

    steps: list[Node]
    ranges: list[LiveRange]
    alive: list[Dim]
    peak: Dim
    """Formulas where sizes are; the largest of several where none is the largest for every binding."""
    peak_step: int
    resident: dict[str, Dim | None]
    """Bytes that are there all the time: param, buffer, const, input."""
    unsized: list[Value]


@dataclass(frozen=True)
class Liveness(Analysis[Timeline]):
    """Find how many bytes are alive at each step and where the peak is."""

    name: ClassVar[str] = "liveness"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    model: Literal["ssa"] = "ssa"
    """Who frees when: ssa frees right after the last use."""
    top: int = 20
    """Tensors listed at the peak, largest first; 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> Timeline:
        types = ctx.get(Shapes)
        timeline = measure(graph, types, ctx)
        if timeline.unsized:
            first = timeline.unsized[0]
            message = f"{len(timeline.unsized)} tensors have no known size and are not counted; the first is {first.name or 'unnamed'}"
            hint = "bind the symbols or give input types: --bind batch=8, --input x=f32[1,3,224,224]"
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS301", message, first.node.name if first.node else "", hint=hint))
        return timeline

    def report(self, result: Timeline, ctx: PassContext) -> Report:
        complete = not result.unsized
        peak = result.steps[result.peak_step] if result.steps else None
        living = [one for one in result.ranges if one.born <= result.peak_step <= one.dies]
        living.sort(key=lambda one: -scale(one.size))
        rows = [(one.value.name or _maker(one), plain(one.size), one.born, one.dies, one.held_by) for one in living[: self.top or None]]
        numbers = [size for size in result.alive if isinstance(size, int)]
        timeline = Series(
            "activations alive",
            Column("step", Kind.COUNT),
            (Column("alive", Kind.BYTES),),
            {"step": list(range(len(numbers))), "alive": numbers},
            marks=(Mark(result.peak_step, "peak"),),
        )
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "model": self.model,
                "activation_peak_bytes": plain(result.peak) if complete else None,
                "peak_node": peak.name if peak is not None else "",
                "lower_bound_bytes": plain(_lower_bound(result)) if complete else None,
                **{f"{role}_bytes": plain(size) for role, size in result.resident.items()},
            },
            tables=(
                Table.of(
                    rows,
                    columns=["tensor:value", "size:bytes", "born:index", "dies:index", "needed_by:node"],
                    title="alive at the peak",
                ),
            ),
            # With symbols there is no one height to draw.
            series=(timeline,) if len(numbers) == len(result.alive) else (),
            coverage=Coverage(len(result.ranges), len(result.ranges) + len(result.unsized)),
            notes=(CONVENTION, "sizes as asked for: no rounding by an allocator, no temporary memory of kernels"),
        )


def measure(graph: Graph, types: Inferred, ctx: PassContext) -> Timeline:
    """Live ranges over the order of the main graph; what a region needs or makes counts at the node that owns it."""
    steps = list(graph)
    lifetimes = _Lifetimes(types)
    for step, node in enumerate(ctx.each(steps, "live ranges", len(steps))):
        lifetimes.visit(step, node)
    for value in graph.outputs:
        lifetimes.use(value, len(steps), "output")
    position = {node: index for index, node in enumerate(steps)}
    ranges = [
        LiveRange(value, size, position[value.node], *lifetimes.last[value])
        for value, size in lifetimes.sizes.items()
        if value.node is not None
    ]
    alive = _alive(ranges, len(steps))
    for step, size in lifetimes.inside.items():
        alive[step] = alive[step] + size
    peak, at = largest(alive)
    return Timeline(steps, ranges, alive, peak, at, _resident(graph), lifetimes.unsized)


class _Lifetimes:
    """Follows storages through the steps: who made them, who reads them last."""

    def __init__(self, types: Inferred) -> None:
        self.types = types
        self.storage: dict[Value, Value] = {}
        """The value that first had the storage, for values that share another's."""
        self.last: dict[Value, tuple[int, str]] = {}
        self.sizes: dict[Value, Dim] = {}
        self.inside: dict[int, Dim] = {}
        """Bytes made inside the regions of a step, all taken to be alive together."""
        self.unsized: list[Value] = []

    def use(self, value: Value, step: int, by: str) -> None:
        self.last[self.storage.get(value, value)] = (step, by)

    def visit(self, step: int, node: Node) -> None:
        for value in _read(node):
            self.use(value, step, node.name)
        shared = _shares(node)
        for index, output in enumerate(node.outputs):
            source = shared.get(index)
            if source is not None:
                self.storage[output] = self.storage.get(source, source)
                continue
            size = self.size_of(output)
            if size is not None:
                self.sizes[output] = size
                self.last[output] = (step, "nothing")
        for region in node.regions:
            made = (output for body in region.graphs() for inner in body for output in inner.outputs)
            for output in made:
                size = self.size_of(output)
                self.inside[step] = self.inside.get(step, 0) + (0 if size is None else size)

    def size_of(self, value: Value) -> Dim | None:
        """Bytes of a tensor; one that is not known is remembered."""
        type_ = self.types.type_of(value)
        found = type_.nbytes if isinstance(type_, TensorType) else 0
        if found is None or (isinstance(found, SymDim) and found.is_unknown):
            self.unsized.append(value)
            return None
        return found


def _alive(ranges: list[LiveRange], steps: int) -> list[Dim]:
    """Bytes alive at each step."""
    change: list[Dim] = [0] * (steps + 1)
    for one in ranges:
        change[one.born] = change[one.born] + one.size
        if one.dies < steps:
            change[one.dies + 1] = change[one.dies + 1] - one.size
    return list(accumulate(change[:steps], add))


def _maker(one: LiveRange) -> str:
    return one.value.node.name if one.value.node is not None else ""


def _read(node: Node) -> list[Value]:
    """Values a node needs, those captured by its regions included."""
    values = [value for value in node.inputs if value is not None]
    for region in node.regions:
        for inner in region.walk():
            values.extend(value for value in inner.inputs if value is not None)
        for body in region.graphs():
            values.extend(body.outputs)
    return values


def _shares(node: Node) -> dict[int, Value]:
    """Results that share the storage of an operand: views, and writes in place."""
    found: dict[int, Value] = {}
    spec = find_op(node.op)
    for rule in spec.aliases if spec is not None else ():
        source = node.inputs[rule.operand] if rule.operand < len(node.inputs) else None
        if source is not None:
            found[rule.result] = source
    inplace = node.attrs.get("inplace")
    if isinstance(inplace, int) and inplace < len(node.inputs):
        target = node.inputs[inplace]
        if target is not None:
            found[0] = target
    return found


def _resident(graph: Graph) -> dict[str, Dim | None]:
    """Bytes by role of what the graph declares, None where one of them has no known size."""
    totals: dict[str, Dim | None] = {}
    for value in (*graph.weights, *graph.inputs):
        role = value.role.value
        size = value.type.nbytes if isinstance(value.type, TensorType) else 0
        before = totals.get(role, 0)
        totals[role] = None if size is None or before is None else before + size
    return totals


def _lower_bound(timeline: Timeline) -> Dim:
    """No order of the nodes can need less than its largest node: results and operands together."""
    operands = {one.value: one.size for one in timeline.ranges}
    needs: list[Dim] = []
    for node in timeline.steps:
        touched = {value: operands.get(value, 0) for value in (*node.outputs, *(v for v in node.inputs if v is not None))}
        needs.append(reduce(add, touched.values(), 0))
    return largest(needs)[0]
