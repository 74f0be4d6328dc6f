"""Bytes alive at each step, where the peak is, and why each tensor is alive there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from irscope.devices import Target, target_of
from irscope.diagnostics import Diagnostic, Severity
from irscope.immutable import immutable
from irscope.ir.dims import dim_max, total_of
from irscope.ir.graph import Facet, Graph
from irscope.memory.tape import REPORTED
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes, size_hint
from irscope.passes.lifetimes.lives import LiveRange, alive_bytes
from irscope.passes.lifetimes.packed import FusedPlan
from irscope.passes.lifetimes.timeline import (
    INSIDE,
    ROLES,
    Footprint,
    Held,
    HeldOver,
    ShownRun,
    Timeline,
    as_far_as_known,
    measure,
    of_tensors,
    resident_row,
    tensor_row,
    unsized_tables,
    windows,
)
from irscope.passes.lifetimes.traced import MODELLED_LIVES, Ranges, other_lives
from irscope.passes.lifetimes.xla import XlaMemory
from irscope.passes.memory.cuda import (
    UNITS,
    CudaMemory,
    DeviceMemory,
    counters_notes,
    counters_summary,
    fitting,
    headline,
    inferred_lives,
    peak_summary,
    verdict_line,
    verdict_summary,
)
from irscope.passes.ort import present as ort
from irscope.passes.ort.memory import OrtMemory
from irscope.passes.ort.model import OrtPlan
from irscope.passes.sizes import CONVENTION, dim_cell, largest_size, scale
from irscope.passes.training.memory import StepMemory, TrainingMemory, counted_note, step_footprint
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Mark, Series
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

_SIZES = "activation peak: tensors beyond weights and inputs, sizes as requested, no temporary memory of kernels"


@dataclass(frozen=True)
class Liveness(Analysis[Timeline]):
    """Compute the bytes alive at each step, and the peak."""

    name: ClassVar[str] = "liveness"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)
    known_of_weights: ClassVar[tuple[str, ...]] = ("param_bytes", "buffer_bytes", "const_bytes")

    model: Literal["auto", "ssa", "eager", "jit", "ort", "xla"] = "auto"
    """Lifetime model, which says when tensors are freed: ssa and jit after the last use, eager as Python's frames do, ort as ONNX
    Runtime does, xla as XLA's CPU compiler packs what it does not fuse; auto follows the file."""
    run: ShownRun = "worst"
    """Run whose memory is shown over the steps: worst is the one that needs more. A training step is always the steady one."""
    top: int = 20
    """Tensors listed at the peak, largest first; 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> Timeline:
        lifetimes = ctx.get(Ranges(model=self.model))
        timeline = measure(graph, lifetimes, ctx.get(Alias()))
        if lifetimes.undecided:
            other = ctx.get(Ranges(model=self.model, undecided="share"))
            timeline.undecided, timeline.peak_if_shared = lifetimes.undecided, largest_size(other.alive())[0]
        lives = other_lives(ctx, self.model, lifetimes)
        if lives:
            shortest, longest = (largest_size(other.alive())[0] for other in lives)
            timeline.peak_by_lives = shortest, dim_max(timeline.peak, longest)
        if timeline.unsized:
            first = timeline.unsized[0]
            message = f"{len(timeline.unsized)} tensors have no known size and are not counted; the first is {first.name or 'unnamed'}"
            hint = size_hint(ctx.get(Shapes), timeline.unsized)
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS301", message, first.node.name if first.node else "", hint=hint))
        if ctx.program.training is not None:
            step = ctx.get(TrainingMemory())
            timeline.find_footprint = lambda found: step_footprint(step, found.steps)
        elif timeline.model == "ort":
            plan = ctx.get(OrtMemory())
            timeline.find_footprint = lambda found: arena(plan, found, self.run) or of_tensors(found, ort.why_unknown(plan))
        elif timeline.model == "xla":
            fused = ctx.get(XlaMemory())
            timeline.find_footprint = lambda found: _packed(of_tensors(found, fused.note), fused)
        else:
            memory = ctx.get(CudaMemory(model=self.model))
            for finding in memory.findings:
                ctx.sink.add(finding)
            timeline.find_footprint = lambda found: memory.footprint_of(self.run) or of_tensors(found, memory.reason)
        return timeline

    def report(self, result: Timeline, ctx: PassContext) -> Report:
        device = self._counters(result, ctx)
        peak = result.steps[result.peak_step] if result.steps else None
        memory = result.footprint
        assert memory is not None
        rest_by = replace(self, top=0).text
        return Report(
            pass_name=self.name,
            options=self.text,
            headline=device.headline,
            summary={
                "model": result.model,
                **device.verdict,
                **device.peak,
                **memory.summary(),
                "activation_peak_bytes": activation_peak(result),
                "peak_node": "" if peak is None else as_far_as_known(peak.name) if result.unsized else peak.name,
                "lower_bound_bytes": _bound_cell(result),
                **{f"{role}_bytes": dim_cell(size) for role, size in result.resident.items()},
                **device.summary,
            },
            units={"device_peak": Kind.BYTES, "tensor_peak": Kind.BYTES, **UNITS, **ort.UNITS},
            tables=(memory.alive(self.top, rest_by), *unsized_tables(result, self.top), memory.by_module(self.top), memory.runners_up()),
            series=(*memory.series(), *_series(result), *device.series),
            coverage=Coverage(len(result.ranges), len(result.ranges) + len(result.unsized)),
            inferred=inferred_lives(self.name) if result.peak_by_lives is not None else "",
            notes=(CONVENTION, memory.note, _SIZES, _freed(result, ctx), *_modelled(result, ctx), *device.notes),
        )

    def _counters(self, result: Timeline, ctx: PassContext) -> _Counters:
        if ctx.program.training is not None:
            return _step_counters(ctx.get(TrainingMemory()))
        if result.model == "xla":
            return _xla_counters(ctx.get(XlaMemory()), target_of(ctx.settings))
        return _ort_counters(result, ctx) if result.model == "ort" else _cuda_counters(ctx.get(CudaMemory(model=self.model)))


def _packed(footprint: Footprint, plan: FusedPlan) -> Footprint:
    """Return what XLA holds: arguments and results of one device, and beside the tensors in its blocks what these have beyond them."""
    count = max(len(footprint.steps), 1)
    made = {category: [_at_most(cell, plan.temporary) for cell in footprint.parts[category]] for category in ("activation", "temporary")}
    highest = sum(column[footprint.peak_step] for column in made.values() if column)
    fixed = {"constant": plan.constants, "input": plan.arguments, "output": plan.outputs - plan.aliased}
    rest = [max(plan.temporary - highest, 0)] * count
    parts = {category: [size] * count for category, size in fixed.items()} | made | {"rounding": rest}
    return replace(footprint, peak=plan.total, parts=parts)


def _at_most(cell: object, most: int) -> int:
    return min(cell, most) if isinstance(cell, int) else most


def _freed(result: Timeline, ctx: PassContext) -> str:
    """Return who lets go of tensors when."""
    return _SEEN if result.model == "eager" and ctx.program.watched is not None else _NOTES[result.model]


def _modelled(result: Timeline, ctx: PassContext) -> tuple[str, ...]:
    return (_BY_LINES,) if result.peak_by_lives is not None else ()


_BY_LINES = (
    "live ranges are modelled by lines of source, which do not show what lists, dicts and attributes hold: "
    "from the last use to the end of the call that a tensor is made and used in"
)


_SEEN = "model eager: a tensor lives as long as Python held it when the model was captured"
_NOTES = {
    "ssa": "model ssa: a tensor is freed right after its last use",
    "jit": "model jit: a tensor is freed right after its last use, as TorchScript's interpreter does",
    "ort": "model ort: kernels run in ONNX Runtime's order, results take over dead buffers as its planner says",
    "xla": "model xla: what XLA's CPU compiler fuses has no buffer, the others are packed; results are allocated before anything runs",
    "eager": "model eager: a module call holds its inputs until it returns, a variable its tensor until it is bound again or its call ends",
}


@immutable
class _Counters:
    """Counters of an allocator, for the report."""

    headline: tuple[str, ...]
    verdict: dict[str, object]
    peak: dict[str, object]
    summary: dict[str, object]
    series: tuple[Series, ...]
    notes: tuple[str, ...]


def _cuda_counters(memory: DeviceMemory) -> _Counters:
    return _Counters(headline(memory), verdict_summary(memory), peak_summary(memory), counters_summary(memory), (), counters_notes(memory))


def _step_counters(memory: StepMemory) -> _Counters:
    """Return the counters of a training step: the first and every later one in place of a first and a second forward."""
    summary: dict[str, object] = {**memory.target.to_json(), "before": memory.loaded}
    for moment, step in (("cold", 0), ("warm", -1)):
        summary[moment] = {counter: memory.counter(counter, step) for counter in REPORTED}
    if memory.reason:
        summary["workspace_bytes"] = Quantity(None, Provenance.UNKNOWN, note=memory.reason)
    else:
        summary["workspace_bytes"] = 0 if memory.tape.is_exact else Quantity(memory.moments.modelled, Provenance.MODELLED)
    verdict = verdict_line(memory.verdict, memory.worst("reserved"), memory.target.device)
    note = counted_note(memory, "before training, then (cold and warm) the peaks of its first and of every later step")
    return _Counters(verdict, {} if memory.reason else {"fits": memory.verdict}, {}, summary, (), (note,))


def _ort_counters(result: Timeline, ctx: PassContext) -> _Counters:
    plan = ctx.get(OrtMemory())
    if plan.cuda is not None and plan.figures is not None:
        fits, reserved = plan.cuda.fits(plan.figures), plan.cuda.worst(plan.figures, "reserved")
        headline = verdict_line(fits, reserved, plan.cuda.device)
        return _Counters(headline, {"fits": fits}, {}, ort.summary(plan), ort.series(plan), ort.notes(plan))
    peak = ort.peak_summary(plan, total_of(result.resident.values()))
    return _Counters((), {}, peak, ort.summary(plan), ort.series(plan), ort.notes(plan))


def _xla_counters(plan: FusedPlan, target: Target) -> _Counters:
    fits = xla_fits(plan, target)
    summary: dict[str, object] = {"device": target.device.name, "torch": None, "xla": plan.summary()}
    return _Counters((), {} if fits is None else {"fits": fits}, {}, summary, (), (plan.note,))


def xla_fits(plan: FusedPlan, target: Target) -> Quantity | None:
    """Return whether a program that XLA compiles fits on a device; None where its memory is not known."""
    room, total = target.device.room_bytes, plan.total
    likely, low, high = (end if isinstance(end, int) else None for end in (total.value, total.lo, total.hi))
    return None if room is None or likely is None else fitting(likely <= room, target, low, high, total)


def activation_peak(result: Timeline) -> Quantity | int | str | None:
    """Return the peak of tensors beyond weights and inputs, with what is known of it where it is not exact."""
    if result.unsized:
        low, most = result.peak_limits()
        if low == most == result.peak:
            return dim_cell(low)
        note = result.open_note() if most is not None else f"{len(result.unsized)} tensors have no known size"
        return Quantity(None, Provenance.UNKNOWN, note=note, lo=dim_cell(low), hi=dim_cell(most))
    peak, other = result.peak, result.peak_if_shared
    if result.peak_by_lives is not None:
        lo, hi = (dim_cell(end) for end in result.peak_by_lives)
        return Quantity(dim_cell(peak), Provenance.MODELLED, note=MODELLED_LIVES, lo=lo, hi=hi)
    if other is None or other == peak:
        return dim_cell(peak)
    low, high = sorted((peak, other), key=scale)
    note = f"{result.undecided} results share their operand's storage or copy it, depending on strides that are not known"
    return Quantity(dim_cell(peak), note=note, lo=dim_cell(low), hi=dim_cell(high))


def _bound_cell(result: Timeline) -> object:
    bound = dim_cell(result.lower_bound)
    return bound if not result.unsized else Quantity(None, Provenance.UNKNOWN, lo=bound)


def _series(result: Timeline) -> tuple[Series, ...]:
    """Return the timeline by category; with symbols there is no one height to draw."""
    numbers = [size for size in result.alive if isinstance(size, int)]
    if len(numbers) < len(result.alive):
        return ()
    outputs = [0] * (len(numbers) + 1)
    for one in result.ranges:
        if one.is_output and isinstance(one.size, int):
            outputs[one.born] += one.size
    unsized = {step for life in result.unsized_ranges for step in range(life.born, min(life.dies, len(numbers) - 1) + 1)}
    kept = 0
    rows: dict[str, list[object]] = {"step": list(range(len(numbers))), "activation": [], "temporary": [], "output": []}
    for step, total in enumerate(numbers):
        kept += outputs[step]
        inside = result.inside.get(step, 0)
        temporary = inside if isinstance(inside, int) else 0
        is_open = step in unsized
        for key, amount in (("activation", total - kept - temporary), ("temporary", temporary), ("output", kept)):
            # A tensor of unknown size may be of any category: where nothing else is alive, the category is unknown.
            rows[key].append(None if is_open and not amount else amount)
    columns = tuple(Column(key, Kind.BYTES) for key in ("output", "activation", "temporary"))
    title = f"activations alive{', tensors of unknown size not counted' if unsized else ''}"
    return (Series(title, Column("step", Kind.COUNT), columns, rows, marks=(Mark(result.peak_step, "peak"),)),)


# Memory of a session of ONNX Runtime: weights, inputs, and what adds up to what its arena has in use.

PACKED, BLOCK, ROUNDING = "packed", "block", "rounding"
_ROUNDED = "chunks of 256 bytes, not split where little is left"
_BLOCK = "the second run's block has room for tensors of other steps"


def arena(plan: OrtPlan, timeline: Timeline, shown: ShownRun = "worst") -> Footprint | None:
    """Memory in use by a session in one run; None where sizes or kernels are unknown."""
    figures = plan.figures
    resident, names = (timeline.resident, timeline.declared) if plan.cuda is None else (plan.cuda.resident, plan.cuda.declared)
    sizes = {ROLES.get(role, role): size for role, size in resident.items()}
    numbers = {category: size for category, size in sizes.items() if isinstance(size, int)}
    if figures is None or not plan.is_known or len(numbers) < len(sizes):
        return None
    first, second = figures.cold, figures.warm
    is_second = second.peak.allocated > first.peak.allocated if shown == "worst" else shown == "steady"
    rows = _Rows(plan, numbers, {ROLES.get(role, role): given for role, given in names.items()}, is_second=is_second)
    run = "second run" if is_second else "first run"
    there = rows.outside
    chosen = second if is_second else first
    heights = [there + size for size in chosen.highest]
    peak = there + chosen.peak.allocated
    which = ", the higher of the first two" if shown == "worst" else ""
    beside = "weights and inputs, and " if plan.cuda is None else ""
    what = f"{beside}the most that ONNX Runtime's arena {'' if plan.cuda is None else 'on the GPU '}has in use in the {run}{which}"
    quantity = Quantity(peak) if plan.cuda is None else plan.cuda.counter(figures, "warm" if is_second else "cold", "allocated")
    at = heights.index(max(heights)) if heights else 0
    return Footprint("device", what, run, plan.steps, rows.columns(), heights, quantity, at, rows.at, over=rows.over)


class _Rows:
    """Everything in use at a step, as rows."""

    def __init__(self, plan: OrtPlan, resident: Mapping[str, int], names: Mapping[str, Sequence[str]], *, is_second: bool) -> None:
        assert plan.figures is not None
        self._plan = plan
        self._figures = figures = plan.figures
        self._resident = resident
        self.outside = sum(resident.values()) if plan.cuda is None else 0
        """Bytes of weights and inputs that do not lie in the arena."""
        loaded = 0 if plan.cuda is None else plan.cuda.weights
        self._packed = figures.before.requested - loaded
        self._names = names
        self._run = figures.warm if is_second else figures.cold
        self._block = figures.pattern if is_second else 0
        found, buffers = plan.found, plan.buffers
        taken = [number for taken in buffers.taken for number in taken if number not in found.elsewhere]
        owners = [number for number in taken if found.sizes[number] is not None and found.is_tensor[number]]
        self._in_block = {
            (one.born, one.value)
            for one, number in zip(plan.ranges, owners, strict=True)
            if self._block and found.traced[number] and not buffers.is_output[number]
        }
        self._windows = windows(plan.ranges, len(plan.order))

    def columns(self) -> dict[str, list[object]]:
        """Return the bytes by category at each step; of a model without steps, what there is anyway."""
        plan, count = self._plan, len(self._plan.order)
        if not count:
            before = self._figures.before
            rounding = self._run.peak.allocated - before.requested
            return {**{key: [size] for key, size in self._resident.items()}, PACKED: [self._packed], ROUNDING: [rounding]}
        outputs = [one for one in plan.ranges if one.is_output]
        others = [one for one in plan.ranges if not one.is_output]
        found: dict[str, list[int]] = {category: [size] * count for category, size in self._resident.items()}
        found[PACKED] = [self._packed] * count
        found["output"], found["activation"] = _heights(outputs, count), _heights(others, count)
        found["temporary"] = [*self._figures.takes]
        if self._block:
            inside = _heights([one for one in plan.ranges if (one.born, one.value) in self._in_block], count)
            found[BLOCK] = [self._block - size for size in inside]
        asked = [sum(sizes) - self.outside for sizes in zip(*found.values(), strict=True)]
        found[ROUNDING] = [highest - size for highest, size in zip(self._run.highest, asked, strict=True)]
        return {category: [*column] for category, column in found.items()}

    def over(self) -> HeldOver:
        """Return everything in use at some step, but for rounding and for what the block of the second run has besides."""
        plan, count, found = self._plan, len(self._plan.order), HeldOver()
        for category, size in self._resident.items():
            found.add(resident_row(category, self._names[category], size, count), 0, count - 1)
        found.add(Held("packed weights", PACKED, self._packed, 0, count, ""), 0, count - 1)
        found.add_ranges(plan.ranges, count)
        for step, size in enumerate(self._figures.takes):
            found.add(Held("", "temporary", size, step, step, INSIDE, plan.steps[step].name, plan.steps[step]), step, step)
        return found

    def at(self, step: int) -> list[Held]:
        """Return everything that adds up to the total of a step."""
        steps, figures = self._plan.steps, self._figures
        count = len(steps)
        rows = [resident_row(category, self._names[category], size, count) for category, size in self._resident.items() if size]
        if self._packed:
            why = "weights that kernels have in another order, and small ones"
            rows.append(Held("packed weights", PACKED, self._packed, 0, count, why))
        if not count:
            rounding = self._run.peak.allocated - figures.before.requested
            return [*rows, Held(ROUNDING, ROUNDING, rounding, 0, 0, _ROUNDED)] if rounding else rows
        living = self._windows.living(step)
        rows += [tensor_row(steps, one, step, one.size) for one in living]
        if figures.takes[step]:
            rows.append(Held("", "temporary", figures.takes[step], step, step, INSIDE, steps[step].name, steps[step]))
        if self._block:
            unused = self._block - sum(scale(one.size) for one in living if (one.born, one.value) in self._in_block)
            rows.append(Held("unused part of the block", BLOCK, unused, 0, count, _BLOCK))
        rounding = self.outside + self._run.highest[step] - sum(scale(row.size) for row in rows)
        if rounding:
            rows.append(Held(ROUNDING, ROUNDING, rounding, step, step, _ROUNDED))
        return rows


def _heights(ranges: Sequence[LiveRange], steps: int) -> list[int]:
    return [scale(size) for size in alive_bytes(ranges, {}, steps)]
