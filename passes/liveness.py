"""Bytes alive at each step, where the peak is, and why each tensor is alive there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from irscope.diagnostics import Diagnostic, Severity
from irscope.ir.graph import Facet, Graph
from irscope.passes.alias import Alias
from irscope.passes.cuda import present
from irscope.passes.cuda.result import DeviceMemory
from irscope.passes.cuda_memory import CudaMemory
from irscope.passes.inference.remedies import size_hint
from irscope.passes.lifetimes.lives import label_of
from irscope.passes.lifetimes.timeline import Timeline, measure
from irscope.passes.ort import present as ort
from irscope.passes.ort_memory import OrtMemory
from irscope.passes.ranges import Ranges
from irscope.passes.shapes import Shapes
from irscope.passes.sizes import CONVENTION, largest, plain, scale
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Quantity

_RUNNERS_UP = 5
_SIZES = "sizes as asked for: no rounding by an allocator, no temporary memory of kernels"


@dataclass(frozen=True)
class Liveness(Analysis[Timeline]):
    """Find how many bytes are alive at each step and where the peak is."""

    name: ClassVar[str] = "liveness"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)
    known_of_weights: ClassVar[tuple[str, ...]] = ("param_bytes", "buffer_bytes", "const_bytes")

    model: Literal["auto", "ssa", "eager", "jit", "ort"] = "auto"
    """Who frees when: ssa and jit after the last use, eager as Python's frames do, ort as ONNX Runtime does; auto follows the file."""
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
            hint = size_hint(ctx.get(Shapes), timeline.unsized)
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS301", message, first.node.name if first.node else "", hint=hint))
        if timeline.model != "ort":
            for finding in ctx.get(CudaMemory(model=self.model)).findings:
                ctx.sink.add(finding)
        return timeline

    def report(self, result: Timeline, ctx: PassContext) -> Report:
        complete = not result.unsized
        device = _ort_counters(ctx) if result.model == "ort" else _cuda_counters(ctx.get(CudaMemory(model=self.model)))
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
                **device.summary,
            },
            units=present.UNITS,
            tables=(self._living(result), _by_module(result, self.top), _runners_up(result)),
            series=(*_series(result), *device.series),
            coverage=Coverage(len(result.ranges), len(result.ranges) + len(result.unsized)),
            notes=(CONVENTION, _SIZES, _freed(result, ctx), *_modelled(result, ctx), *device.notes),
        )

    def _living(self, result: Timeline) -> Table:
        living = sorted(result.living(result.peak_step), key=lambda one: -scale(one.size))
        rows: list[tuple[object, ...]] = [
            (
                label_of(tenant.value),
                plain(one.size),
                "output" if one.is_output else "activation",
                tenant.born,
                tenant.dies,
                result.why(one, result.peak_step),
                _short(tenant.held_by),
            )
            for one in living[: self.top or None]
            for tenant in (one.at(result.peak_step),)
        ]
        inside = result.inside.get(result.peak_step)
        if inside is not None:
            step = result.peak_step
            rows.append(("", plain(inside), "temporary", step, step, "only exists while the node runs", result.steps[step].name))
        columns = ["tensor:value", "size:bytes", "category", "born:index", "dies:index", "why:text", "held_by:text"]
        return Table.of(rows, columns=columns, title="alive at the peak")


def _freed(result: Timeline, ctx: PassContext) -> str:
    """Who lets go of tensors when."""
    return _SEEN if result.model == "eager" and ctx.program.watched is not None else _NOTES[result.model]


def _modelled(result: Timeline, ctx: PassContext) -> tuple[str, ...]:
    return (_TRACED,) if result.model == "eager" and ctx.program.format == "torchscript" else ()


_TRACED = "the file tells which lines ran and not what they say: where a variable's name is not known, when it lets go is modelled"
_SEEN = "model eager: a tensor lives as long as Python held it when the model was captured"
_NOTES = {
    "ssa": "model ssa: a tensor is freed right after its last use",
    "jit": "model jit: a tensor is freed right after its last use, as TorchScript's interpreter does",
    "ort": "model ort: kernels run in ONNX Runtime's order, results take over dead buffers as its planner says",
    "eager": "model eager: a module call holds its inputs until it returns, a variable its tensor until it is bound again or its call ends",
}


@dataclass(frozen=True, slots=True)
class _Counters:
    """What the report says of an allocator."""

    summary: dict[str, object]
    series: tuple[Series, ...]
    notes: tuple[str, ...]


def _cuda_counters(memory: DeviceMemory) -> _Counters:
    return _Counters(present.summary(memory), present.series(memory)[:1], present.notes(memory))


def _ort_counters(ctx: PassContext) -> _Counters:
    plan = ctx.get(OrtMemory())
    return _Counters(ort.summary(plan), ort.series(plan), ort.notes(plan))


def _peak_cell(result: Timeline) -> object:
    peak, other = result.peak, result.peak_if_shared
    if other is None or other == peak:
        return plain(peak)
    low, high = sorted((peak, other), key=scale)
    note = f"{result.undecided} results share their operand's storage or copy it, depending on strides that are not known"
    return Quantity(plain(peak), note=note, lo=plain(low), hi=plain(high))


def _by_module(result: Timeline, top: int) -> Table:
    """What is alive at the peak by the module call that made it, the largest first; calls that only pass on are left out."""
    shares = [share for share in result.by_module(result.peak_step) if share.own != 0]
    shares.sort(key=lambda share: -scale(share.total))
    rows = [
        (share.scope.path or "(model)", share.scope.cls, plain(share.own), plain(share.total), share.storages)
        for share in shares[: top or None]
    ]
    columns = ["module:text", "class:text", "own:bytes", "with_inner:bytes", "storages:count"]
    return Table.of(rows, columns=columns, title="at the peak by module")


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


def _short(held_by: str) -> str:
    """What keeps a storage to the end, in the few words that a column has room for."""
    return held_by.removeprefix("the ").replace("call of module ", "call of ").removeprefix("local variable ")
