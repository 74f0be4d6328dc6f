"""What a training step needs: the allocator's counters for the first and for later steps, and bytes by category over the phases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from irscope.devices import target_of
from irscope.diagnostics import Diagnostic, Severity
from irscope.ir.graph import Facet, Graph, Node, paused_gc
from irscope.passes.cuda.replay import Bytes
from irscope.passes.cuda.result import Counter
from irscope.passes.lifetimes.footprint import Footprint
from irscope.passes.sizes import CONVENTION
from irscope.passes.training.alive import footprint
from irscope.passes.training.needed import trace_in
from irscope.passes.training.replayed import StepMemory, When, replay_steps
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Mark, Series, Table
from irscope.report.units import Kind
from irscope.report.values import derived

_MOST_POINTS = 10_000
_COUNTERS: tuple[Counter, ...] = ("requested", "allocated", "reserved")


@dataclass(frozen=True)
class TrainingMemory(Analysis[StepMemory]):
    """Predict what a training step needs: the counters of PyTorch's allocator step by step, and bytes by category over the phases."""

    name: ClassVar[str] = "training"
    reads: ClassVar[tuple[Facet, ...]] = ()

    top: int = 10
    """Rows of the table of what is largest at the peak."""

    def compute(self, graph: Graph, ctx: PassContext) -> StepMemory:
        with paused_gc():
            memory = replay_steps(trace_in(ctx.program), target_of(ctx.settings))
        for source, count in memory.stream.unknown.items():
            ctx.sink.add(
                Diagnostic(
                    Severity.WARNING,
                    "IRS382",
                    f"what {source} takes besides its results is not known and counts as nothing",
                    source,
                    count=count,
                ),
                about=source,
            )
        if not memory.fits:
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS383", f"the step does not fit on {memory.target.device.title}"))
        return memory

    def report(self, result: StepMemory, ctx: PassContext) -> Report:
        return _report(self, result, list(ctx.program.graph))


def _report(subject: TrainingMemory, memory: StepMemory, nodes: list[Node]) -> Report:
    trace = memory.trace
    ops = trace.in_step(trace.steady)
    peak_op = ops[memory.peak_step] if ops else None
    known = sum(op.call is not None or op.is_view for op in ops)
    found = footprint(memory, nodes)
    peak = found.summary()
    summary: dict[str, object] = {
        **{key: value for key, value in peak.items() if key != "device_peak_node"},
        "device_peak_node": derived(peak_op.name if peak_op is not None else "", found.peak),
        "device_peak_phase": derived(peak_op.phase if peak_op is not None else "", found.peak),
        "optimizer": trace.optimizer,
        **{key: value for key, value in trace.settings.items() if value not in ("", None)},
        "device": memory.target.device.name,
        "torch": "{}.{}".format(*memory.target.torch),
        "before": _counters(memory.before),
        "first_step": {counter: memory.counter(counter, 0) for counter in _COUNTERS},
        "steady_step": {counter: memory.counter(counter) for counter in _COUNTERS},
        "after": {counter: memory.counter(counter, when="after") for counter in _COUNTERS},
        "phase_peak": dict(memory.phase_peaks()),
        "operators_count": len(ops),
        "fits": memory.verdict,
    }
    units = {key: Kind.BYTES for key in ("device_peak", "before", "first_step", "steady_step", "after", "phase_peak")}
    notes = [
        CONVENTION,
        found.note,
        f"counters are those of torch.cuda.memory_stats() on {memory.target.text}: peaks of the first step and of every later one",
    ]
    for reason in dict.fromkeys(spread.reason for spread in memory.stream.spreads.values()):
        labels = {memory.stream.labels[slot] for slot, spread in memory.stream.spreads.items() if spread.reason == reason}
        notes.append(f"modelled, as {reason}: {'; '.join(sorted(labels))}")
    return Report(
        pass_name=subject.name,
        options=subject.text,
        summary=summary,
        units=units,
        tables=(_steps(memory), found.alive(subject.top)),
        series=_timeline(memory, found),
        coverage=Coverage(known, len(ops), tuple(memory.stream.unknown)),
        notes=tuple(notes),
    )


def _counters(bytes_: Bytes) -> dict[str, int]:
    return {"requested": bytes_.requested, "allocated": bytes_.allocated, "reserved": bytes_.reserved}


def _steps(memory: StepMemory) -> Table:
    columns_of: list[tuple[Counter, When]] = [*((one, "peak") for one in _COUNTERS), ("requested", "after"), ("allocated", "after")]
    rows = [(one.name, *(memory.counter(counter, number, when) for counter, when in columns_of)) for number, one in enumerate(memory.steps)]
    columns = ("step", "requested:bytes", "allocated:bytes", "reserved:bytes", "requested_after:bytes", "allocated_after:bytes")
    return Table.of(rows, columns, "Peak of each step")


def _timeline(memory: StepMemory, found: Footprint) -> tuple[Series, ...]:
    """Bytes by category at each operator of the steady step, with its phases."""
    ops = memory.trace.in_step(memory.trace.steady)
    marks: list[Mark] = []
    before = ""
    for at, op in enumerate(ops):
        if op.phase != before and op.phase == "backward":
            marks.append(Mark(at, "backward"))
        if op.phase != before and op.phase == "optimizer" and at > len(ops) // 2:
            marks.append(Mark(at, "optimizer"))
        before = op.phase
    return tuple(replace(one, marks=(*one.marks, *marks)) for one in found.series())
