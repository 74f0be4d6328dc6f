"""The report of a plan: summary, kernels, timeline."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.devices.catalogue import DEFAULT_PROCESSOR
from irscope.ir.bind import bind_option, typed
from irscope.ir.dims import Dim
from irscope.memory.tape import REPORTED
from irscope.passes.lifetimes.lives import label_of
from irscope.passes.ort.cuda_session import CudaSession
from irscope.passes.ort.model import OrtPlan
from irscope.passes.ort.simulated import OrtFigures, OrtUsage
from irscope.passes.sizes import CONVENTION, dim_cell
from irscope.passkit.base import Pass
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

MOMENTS = ("before", "cold", "warm")
UNITS = dict.fromkeys((*MOMENTS, "cpu_arena"), Kind.BYTES)
_MOST_POINTS = 10_000


def report(subject: Pass, plan: OrtPlan) -> Report:
    """Return everything about the session."""
    return Report(
        pass_name=subject.name,
        options=subject.text,
        summary={"model": "ort", **summary(plan)},
        units=UNITS,
        tables=(_kernels(plan), _buffers(plan), _tenants_table(plan)),
        series=series(plan),
        coverage=Coverage(len(plan.ranges), len(plan.ranges) + len(plan.unsized)),
        notes=(CONVENTION, *notes(plan)),
    )


def peak_summary(plan: OrtPlan, beside: Dim | None) -> dict[str, object]:
    """Return the known facts of a peak of unknown size: the reason, and its limits with the bytes of weights and inputs beside the
    arena."""
    is_known = plan.figures is not None and plan.is_known
    return {} if is_known else {"device_peak_bytes": limited(plan, "allocated", beside)}


def limited(plan: OrtPlan, name: str, beside: Dim | None = 0, moments: Sequence[str] = ("cold", "warm")) -> Quantity:
    """Return a counter of a session with tensors of unknown size: the largest of some moments with the least and with the most that they
    can be. What the arena holds in chunks need not grow with each size, so that it is modelled even where both are the same."""
    note = why_unknown(plan)
    if plan.limits is None or not plan.is_known or not isinstance(beside, int):
        return Quantity(None, Provenance.UNKNOWN, note=note)
    low, high = (None if limit is None else beside + max(_counter(limit, moment, name) for moment in moments) for limit in plan.limits)
    if low == high:
        is_exact = name == "requested" or tuple(moments) == ("before",)
        return Quantity(low, Provenance.EXACT if is_exact else Provenance.MODELLED)
    return Quantity(None, Provenance.UNKNOWN, note=f"{note}; the ends are for the least and the most that it can be", lo=low, hi=high)


def _counter(figures: OrtFigures, moment: str, name: str) -> int:
    usage = figures.before if moment == "before" else getattr(figures, moment).peak
    return int(getattr(usage, name))


def summary(plan: OrtPlan) -> dict[str, object]:
    """Return the part that the reports of `liveness` and `ort-memory` have in common."""
    found: dict[str, object] = {"device": plan.device, "torch": None, "runtime": f"onnxruntime {plan.release.text}"}
    figures = plan.figures
    if figures is None or not plan.is_known:
        found.update({moment: {name: limited(plan, name, 0, (moment,)) for name in REPORTED} for moment in MOMENTS})
        known = plan.limits is not None and plan.is_known
        found["workspace_bytes"] = 0 if known else Quantity(None, Provenance.UNKNOWN, note=why_unknown(plan))
        return found
    if plan.cuda is not None:
        return {**found, **_gpu_summary(plan, plan.cuda, figures)}
    found["before"] = _usage_cells(figures.before)
    found["cold"] = _usage_cells(figures.cold.peak, plan)
    found["warm"] = _usage_cells(figures.warm.peak, plan)
    found["workspace_bytes"] = 0
    found["pattern_bytes"] = figures.pattern
    found["reused_buffers"] = sum(owner != value for value, owner in enumerate(plan.buffers.owner))
    return found


def _gpu_summary(plan: OrtPlan, session: CudaSession, figures: OrtFigures) -> dict[str, object]:
    """Return both arenas of a session on a GPU, and which of its kernels run there."""
    found: dict[str, object] = {moment: {name: session.counter(figures, moment, name) for name in REPORTED} for moment in MOMENTS}
    found["workspace_bytes"] = session.scratch
    found["pattern_bytes"] = figures.pattern
    found["reused_buffers"] = sum(owner != value for value, owner in enumerate(plan.buffers.owner))
    found["kernels_on_gpu"] = session.kernels
    found["kernels_on_cpu"] = len(session.on_cpu)
    found["operators_on_cpu"] = session.operators_on_cpu or "none"
    found["copy_kernels"] = session.copies
    found["weights_on_gpu_bytes"] = session.weights
    found["weights_on_cpu_bytes"] = session.host_weights
    if session.host is not None:
        found["cpu_arena"] = _usage_cells(session.host.cold.peak)
    if session.limit is not None:
        found["limit_bytes"] = session.limit
    found["fits"] = session.fits(figures)
    return found


_GPU_NOTES = (
    "before, cold and warm are the arena of ONNX Runtime's CUDA provider: weights, inputs that each run copies there, and results; "
    "cpu_arena is that of the CPU in the first run",
    "requested follows from the provider's own planner; allocated and reserved also from the order in which weights are loaded, which "
    "differs from session to session, and from cuDNN: where that matters an interval stands beside them",
    "the CUDA context, and what cuBLAS and cuDNN take for their handles, lie outside the arena: the device file says how much that is",
)


def notes(plan: OrtPlan) -> tuple[str, ...]:
    """Return notes on the meaning of the numbers, and on how far the rules are those of the release."""
    note = plan.release.note
    return (*([note] if note else ()), *_meaning(plan))


def _meaning(plan: OrtPlan) -> tuple[str, ...]:
    if plan.limits is not None and plan.is_known:
        sizes = "the least" if plan.limits[1] is None else "the least and the most"
        return (f"counters of ONNX Runtime's arena are for {sizes} that tensors of unknown size can be: {why_unknown(plan)}",)
    if plan.figures is None or not plan.is_known:
        return (f"no counters of ONNX Runtime's arena: {why_unknown(plan)}",)
    if plan.cuda is not None:
        return (*_GPU_NOTES, *([f"the arena fails: {plan.cuda.shortage}"] if plan.cuda.shortage else ()))
    graph = f"for the graph that optimisations leave ({plan.level})" if plan.level else "for the graph as it is in the file"
    return (
        *((STAYS,) if plan.stays else ()),
        *((_LEARNS,) if plan.learns_sizes else ()),
        f"before, cold and warm are what the profile of ONNX Runtime says on its CPU provider, {graph}: "
        "requested is the most mem_bytes_requested_in_use after a kernel, allocated mem_in_use_peak, reserved mem_arena_held",
        *(() if plan.level else (_OTHER_GRAPH,)),
    )


_LEARNS = (
    "sizes come with the inputs: the session plans without them, and reuses fewer buffers than one that knows them when it is made "
    "(ort-memory{sizes=session})"
)
STAYS = "the CUDA provider has no kernel for any node of this model: all of it runs on the CPU, and takes nothing on the GPU"
_OTHER_GRAPH = "with graph optimisations a session runs another graph, which --ort-level all predicts"


def why_unknown(plan: OrtPlan) -> str:
    """Return why there are no counters."""
    if not plan.is_known:
        return (
            "order and reuse are modelled, but not what kernels of this device take and where weights lie; "
            f"`--device {DEFAULT_PROCESSOR}` has the counters of a processor"
        )
    if plan.unsized:
        return f"the size of {plan.unsized[0].name or 'a tensor'} is not known"
    return f"sizes depend on {', '.join(map(str, plan.symbols))}; {typed(bind_option(plan.symbols))} makes them known"


_LOOPS = frozenset({"Loop", "Scan"})
_INSIDE = "a graph inside a Scan counts with what one step needs, one inside a Loop with steps of equal sizes"


def _usage_cells(usage: OrtUsage, plan: OrtPlan | None = None) -> dict[str, object]:
    """Counters; modelled where a loop runs, of whose copies and blocks nothing is known."""
    found = {"requested": usage.requested, "allocated": usage.allocated, "reserved": usage.reserved}
    if plan is not None and any(launch.name in _LOOPS for launch in plan.order):
        return {name: Quantity(size, Provenance.MODELLED, note=_INSIDE) for name, size in found.items()}
    return dict(found)


def _kernels(plan: OrtPlan) -> Table:
    """Return the steps in the order in which they run, with the fields of the profile."""
    figures = plan.figures
    if plan.cuda is not None:
        return _kernels_on_gpu(plan, plan.cuda, figures)
    rows = [
        (
            launch.node.name,
            launch.name,
            None if figures is None else figures.cold.requested[step],
            None if figures is None else figures.cold.allocated[step],
            None if figures is None else figures.warm.requested[step],
            None if figures is None else figures.warm.allocated[step],
        )
        for step, launch in enumerate(plan.order)
    ]
    columns = ["node", "kernel:text", "requested_first:bytes", "in_use_first:bytes", "requested_second:bytes", "in_use_second:bytes"]
    return Table.of(rows, columns=columns, title="in use after each kernel")


def _kernels_on_gpu(plan: OrtPlan, session: CudaSession, figures: OrtFigures | None) -> Table:
    """Return the same where there are two arenas: each row has that of the device on which the kernel runs."""
    on_cpu = {id(launch) for launch in session.on_cpu}
    rows = []
    for step, launch in enumerate(plan.order):
        arena = session.host if id(launch) in on_cpu else figures
        cells = (
            (None,) * 4
            if arena is None
            else [numbers[step] for run in (arena.cold, arena.warm) for numbers in (run.requested, run.allocated)]
        )
        rows.append((launch.node.name, launch.name, "cpu" if id(launch) in on_cpu else "gpu", *cells))
    columns = [
        "node",
        "kernel:text",
        "runs_on:text",
        "requested_first:bytes",
        "in_use_first:bytes",
        "requested_second:bytes",
        "in_use_second:bytes",
    ]
    return Table.of(rows, columns=columns, title="in use after each kernel")


def _buffers(plan: OrtPlan) -> Table:
    rows = [(label_of(one.value), dim_cell(one.size), one.born, one.dies, one.held_by, len(one.tenants)) for one in plan.ranges]
    columns = ["buffer:value", "size:bytes", "born:index", "dies:index", "held_by:text", "tensors:count"]
    return Table.of(rows, columns=columns, title="buffers of the first run")


def _tenants_table(plan: OrtPlan) -> Table:
    """Return each tensor with its buffer, which others may occupy before and after it."""
    rows = [
        (label_of(tenant.value), dim_cell(one.size), tenant.born, tenant.dies, tenant.held_by, label_of(one.value))
        for one in plan.ranges
        for tenant in one.tenants
    ]
    rows.sort(key=lambda row: row[2])
    columns = ["tensor:value", "size:bytes", "born:index", "dies:index", "held_by:text", "buffer:value"]
    return Table.of(rows, columns=columns, title="tensors of the first run")


def series(plan: OrtPlan) -> tuple[Series, ...]:
    """Return the bytes in use over the steps, as asked for, in both runs."""
    figures = plan.figures
    if figures is None or not plan.order:
        return ()
    steps = _shown_steps(figures)
    rows: dict[str, list[object]] = {
        "step": list(steps),
        "first run": [figures.cold.requested[step] for step in steps],
        "second run": [figures.warm.requested[step] for step in steps],
    }
    columns = (Column("first run", Kind.BYTES), Column("second run", Kind.BYTES))
    mark = (Mark(figures.cold.peak_step, "peak"),)
    return (Series("ONNX Runtime: bytes in use", Column("step", Kind.COUNT), columns, rows, marks=mark, stacked=False),)


def _shown_steps(figures: OrtFigures) -> list[int]:
    """Return all steps, or of many the highest in each interval."""
    height = figures.cold.requested
    count = len(height)
    if count <= _MOST_POINTS:
        return list(range(count))
    width = -(-count // _MOST_POINTS)
    return [max(range(first, min(first + width, count)), key=height.__getitem__) for first in range(0, count, width)]
