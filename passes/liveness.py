"""Bytes alive at each step, where the peak is, and why each tensor is alive there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar, Literal

from irscope.diagnostics import Diagnostic, Severity
from irscope.ir.dims import Dim
from irscope.ir.graph import Facet, Graph, Node, Value
from irscope.ir.types import TensorType
from irscope.passes.alias import Alias, Aliases
from irscope.passes.lifetimes.lives import LiveRange
from irscope.passes.ranges import Lifetimes, Ranges
from irscope.passes.sizes import CONVENTION, largest, plain, scale
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Quantity

_RUNNERS_UP = 5
_SIZES = "sizes as asked for: no rounding by an allocator, no temporary memory of kernels"


@dataclass
class Timeline:
    """Storages, and bytes alive at each step of the main graph."""

    model: str
    """Who frees when."""
    steps: list[Node]
    ranges: list[LiveRange]
    alive: list[Dim]
    inside: dict[int, Dim]
    """Bytes that only exist within a step; `alive` counts them."""
    peak: Dim
    """Formulas where sizes are; the largest of several where none is the largest for every binding."""
    peak_step: int
    lower_bound: Dim
    resident: dict[str, Dim | None]
    """Bytes that are there all the time: parameter, buffer, constant, input."""
    unsized: list[Value]
    undecided: int = 0
    """Results that share or copy depending on strides that are not known; they are counted as copies."""
    peak_if_shared: Dim | None = None
    """The peak where all of these share."""

    def living(self, step: int) -> list[LiveRange]:
        """Storages alive at a step, in order of birth."""
        return [one for one in self.ranges if one.born <= step <= one.dies]

    def why(self, one: LiveRange, step: int) -> str:
        """Why a storage is alive at a step."""
        if one.born == step:
            return "made here"
        for used, value in one.uses:
            if used >= step:
                return _use_text(self.steps, one, used, value, step)
        return f"held by {one.held_by}"


@dataclass(frozen=True)
class Liveness(Analysis[Timeline]):
    """Find how many bytes are alive at each step and where the peak is."""

    name: ClassVar[str] = "liveness"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    model: Literal["auto", "ssa", "eager", "jit"] = "auto"
    """Who frees when: ssa and jit right after the last use, eager as Python's frames do; auto is eager for files of PyTorch, else ssa."""
    top: int = 20
    """Tensors listed at the peak, largest first; 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> Timeline:
        lifetimes = ctx.get(Ranges(model=self.model))
        timeline = measure(graph, lifetimes, ctx.get(Alias()))
        if lifetimes.undecided:
            other = ctx.get(Ranges(model=self.model, undecided="share"))
            timeline.undecided, timeline.peak_if_shared = lifetimes.undecided, largest(other.alive())[0]
        if timeline.unsized:
            first = timeline.unsized[0]
            message = f"{len(timeline.unsized)} tensors have no known size and are not counted; the first is {first.name or 'unnamed'}"
            hint = "bind the symbols or give input types: --bind batch=8, --input x=f32[1,3,224,224]"
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS301", message, first.node.name if first.node else "", hint=hint))
        return timeline

    def report(self, result: Timeline, ctx: PassContext) -> Report:
        complete = not result.unsized
        peak = result.steps[result.peak_step] if result.steps else None
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "model": result.model,
                "activation_peak_bytes": _peak_cell(result) if complete else None,
                "peak_node": peak.name if peak is not None else "",
                "lower_bound_bytes": plain(result.lower_bound) if complete else None,
                **{f"{role}_bytes": plain(size) for role, size in result.resident.items()},
            },
            tables=(self._living(result), _runners_up(result)),
            series=_series(result),
            coverage=Coverage(len(result.ranges), len(result.ranges) + len(result.unsized)),
            notes=(CONVENTION, _SIZES, _NOTES[result.model]),
        )

    def _living(self, result: Timeline) -> Table:
        living = sorted(result.living(result.peak_step), key=lambda one: -scale(one.size))
        rows: list[tuple[object, ...]] = [
            (
                _label(one),
                plain(one.size),
                "output" if one.is_output else "activation",
                one.born,
                one.dies,
                result.why(one, result.peak_step),
                one.held_by,
            )
            for one in living[: self.top or None]
        ]
        inside = result.inside.get(result.peak_step)
        if inside is not None:
            step = result.peak_step
            rows.append(("", plain(inside), "temporary", step, step, "only exists while the node runs", result.steps[step].name))
        columns = ["tensor:value", "size:bytes", "category", "born:index", "dies:index", "why:text", "held_by:text"]
        return Table.of(rows, columns=columns, title="alive at the peak")


_NOTES = {
    "ssa": "model ssa: a tensor is freed right after its last use",
    "jit": "model jit: a tensor is freed right after its last use, as TorchScript's interpreter does",
    "eager": "model eager: a module call holds its inputs until it returns, a variable its tensor until it is bound again or its call ends",
}


def measure(graph: Graph, lifetimes: Lifetimes, aliases: Aliases) -> Timeline:
    """The timeline of lifetimes."""
    alive = lifetimes.alive()
    peak, at = largest(alive)
    bound = lower_bound(lifetimes, aliases)
    return Timeline(
        lifetimes.model,
        lifetimes.steps,
        lifetimes.ranges,
        alive,
        lifetimes.inside,
        peak,
        at,
        bound,
        _resident(graph),
        lifetimes.unsized,
    )


def lower_bound(lifetimes: Lifetimes, aliases: Aliases) -> Dim:
    """No order of the nodes can need less than its largest node: results, operands and what exists only inside it, together."""
    sizes = {one.value: one.size for one in lifetimes.ranges}
    needs: list[Dim] = []
    for step, node in enumerate(lifetimes.steps):
        operands = (value for value in node.inputs if value is not None)
        touched = dict.fromkeys(aliases.storage(value) for value in (*node.outputs, *operands))
        needs.append(reduce(add, (sizes.get(storage, 0) for storage in touched), lifetimes.inside.get(step, 0)))
    return largest([*needs, *_returned(lifetimes)])[0]


def _returned(lifetimes: Lifetimes) -> list[Dim]:
    """All that the model returns is alive at its end."""
    return [reduce(add, (one.size for one in lifetimes.ranges if one.is_output), 0)]


def _peak_cell(result: Timeline) -> object:
    peak, other = result.peak, result.peak_if_shared
    if other is None or other == peak:
        return plain(peak)
    low, high = sorted((peak, other), key=scale)
    note = f"{result.undecided} results share their operand's storage or copy it, depending on strides that are not known"
    return Quantity(plain(peak), note=note, lo=plain(low), hi=plain(high))


def _use_text(steps: list[Node], one: LiveRange, used: int, value: Value, step: int) -> str:
    through = "" if value is one.value or not value.name else f" as {value.name}"
    if used == len(steps):
        return f"output{through}"
    node = steps[used].name
    return f"read here{through}" if used == step else f"used later by {node}{through}"


def _runners_up(result: Timeline) -> Table:
    """The highest points of the timeline besides the peak, one for each hill."""
    heights = [scale(size) for size in result.alive]
    hills = [
        step
        for step, height in enumerate(heights)
        if (step == 0 or heights[step - 1] < height) and (step + 1 == len(heights) or _falls_after(heights, step))
    ]
    hills.sort(key=lambda step: (-heights[step], step))
    rows = [(result.steps[step].name, step, plain(result.alive[step])) for step in hills[:_RUNNERS_UP]]
    return Table.of(rows, columns=["node", "step:index", "alive:bytes"], title="highest steps")


def _falls_after(heights: list[int], step: int) -> bool:
    # By index: a slice would copy the rest of the timeline for every rise.
    for later in range(step + 1, len(heights)):
        if heights[later] != heights[step]:
            return heights[later] < heights[step]
    return True


def _series(result: Timeline) -> tuple[Series, ...]:
    """The timeline by category; with symbols there is no one height to draw."""
    numbers = [size for size in result.alive if isinstance(size, int)]
    if len(numbers) < len(result.alive):
        return ()
    outputs = [0] * (len(numbers) + 1)
    for one in result.ranges:
        if one.is_output and isinstance(one.size, int):
            outputs[one.born] += one.size
    kept = 0
    rows: dict[str, list[object]] = {"step": list(range(len(numbers))), "activation": [], "temporary": [], "output": []}
    for step, total in enumerate(numbers):
        kept += outputs[step]
        inside = result.inside.get(step, 0)
        temporary = inside if isinstance(inside, int) else 0
        rows["activation"].append(total - kept - temporary)
        rows["temporary"].append(temporary)
        rows["output"].append(kept)
    columns = tuple(Column(key, Kind.BYTES) for key in ("output", "activation", "temporary"))
    return (Series("activations alive", Column("step", Kind.COUNT), columns, rows, marks=(Mark(result.peak_step, "peak"),)),)


def _resident(graph: Graph) -> dict[str, Dim | None]:
    """Bytes by role of what the graph declares, None where one of them has no known size."""
    totals: dict[str, Dim | None] = {}
    for value in (*graph.weights, *graph.inputs):
        role = value.role.value
        size = value.type.nbytes if isinstance(value.type, TensorType) else 0
        before = totals.get(role, 0)
        totals[role] = None if size is None or before is None else before + size
    return totals


def _label(one: LiveRange) -> str:
    value = one.value
    return value.name or (value.node.name if value.node is not None else "")
