"""The orders in which ONNX Runtime runs the kernels of a model, and whether another order in the file would change them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from irscope.amounts import Seconds
from irscope.devices.releases import ort_release
from irscope.immutable import immutable
from irscope.ir.graph import Facet, Graph, paused_gc
from irscope.passes.inference.shapes import Shapes
from irscope.passes.order.schedule import Schedule, Scheduled
from irscope.passes.ort.known import known_types
from irscope.passes.ort.memory import bytes_inside
from irscope.passes.ort.model import (
    DEQUANTIZE,
    EXECUTION_ORDERS,
    REFUSED_ORDER,
    ExecutionOrder,
    OrtOptions,
    OrtPlan,
    launches_of,
    makers_of,
    plan_launches,
)
from irscope.passes.ort.plan import Launches
from irscope.passes.sizes import CONVENTION
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.solvers.graphs import sorted_by


@immutable(slots=False)
class OneOrder:
    """Result of a session with one setting, for the file as it is and for its nodes in the scheduled order."""

    setting: ExecutionOrder
    written: OrtPlan
    reordered: OrtPlan

    @property
    def changes(self) -> bool:
        """Return whether the session would run kernels in another order."""
        return any(op is not other for op, other in zip(self.written.order, self.reordered.order, strict=True))

    @property
    def peaks(self) -> tuple[int | None, int | None]:
        """Most bytes in use after a kernel of the first run, as asked for."""
        return _cold_peak(self.written), _cold_peak(self.reordered)


@dataclass
class OrtOrders:
    """Both settings, and the orders as the file and as the schedule has them."""

    found: Launches
    scheduled: Scheduled
    orders: list[OneOrder] = field(default_factory=list)

    @property
    def is_new(self) -> bool:
        return self.scheduled.is_new


@dataclass(frozen=True)
class OrtOrder(Analysis[OrtOrders]):
    """Predict the order in which ONNX Runtime runs kernels, for each of its settings, and what a reordered file would change there."""

    name: ClassVar[str] = "ort-order"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    seconds: Seconds = 10
    """Time to search for the scheduled order."""
    seed: int = 0
    """For the random part of that search."""
    top: int = 20
    """Rows of the table of kernels, 0 for all."""
    sizes: Literal["inputs", "session"] = "inputs"
    """Where bound sizes come from, as in ort-memory: inputs as the session learns them when it runs, session as it knows them when it is
    made."""

    def compute(self, graph: Graph, ctx: PassContext) -> OrtOrders:
        scheduled = ctx.get(Schedule(seconds=self.seconds, seed=self.seed))
        with paused_gc():
            types = ctx.get(Shapes)
            inside = bytes_inside(graph, ctx, types)
            launches = launches_of(
                graph,
                types,
                known_types(ctx.program, sizes_come_with_inputs=self.sizes == "inputs"),
                is_session=ctx.program.traits.is_session,
            )
            others = in_scheduled_order(launches, scheduled) if scheduled.is_new else launches
            result = OrtOrders(launches, scheduled)
            for setting in EXECUTION_ORDERS:
                options = OrtOptions(execution=setting, file_order=ctx.program.traits.is_session and setting == "default")
                written, reordered = (plan_launches(graph, one, types, options, inside) for one in (launches, others))
                result.orders.append(OneOrder(setting, written, reordered))
        return result

    def report(self, result: OrtOrders, ctx: PassContext) -> Report:
        summary: dict[str, object] = {"runtime": f"onnxruntime {ort_release(ctx.settings.ort).text}"}
        for order in result.orders:
            before, after = order.peaks
            summary[order.setting] = {"peak_bytes": before, "reordered_peak_bytes": after, "reordering_changes_it": order.changes}
        summary["says"] = verdict(result)
        return Report(
            pass_name=self.name,
            options=self.text,
            summary=summary,
            tables=(self._kernels(result),),
            notes=(CONVENTION, *_notes()),
        )

    def _kernels(self, result: OrtOrders) -> Table:
        """Return the kernels in the order of the file, and at which step each runs."""
        plans = [order.written for order in result.orders] + [order.reordered for order in result.orders]
        steps = [{id(launch): step for step, launch in enumerate(plan.order)} for plan in plans]
        rows = [
            (launch.node.name, launch.name, number, *(step[id(launch)] for step in steps))
            for number, launch in enumerate(result.found.launches)
        ]
        columns = [Column("node", Kind.NODE), Column("kernel"), Column("in_file", Kind.INDEX)]
        columns += [Column(order.setting, Kind.INDEX) for order in result.orders]
        columns += [Column(f"{order.setting}_reordered", Kind.INDEX) for order in result.orders]
        return Table.of(rows[: self.top or None], columns=columns, title="step of each kernel")


def verdict(result: OrtOrders) -> str:
    """Return the benefit of a reordered file there, in one sentence."""
    if not result.is_new:
        return "no better order than the one as written was found: there is nothing to reorder"
    parts = []
    for order in result.orders:
        before, after = order.peaks
        if not order.changes:
            parts.append(f"{order.setting}: a reordered file changes nothing, ONNX Runtime sorts for itself and runs the same order")
        elif before is None or after is None:
            parts.append(f"{order.setting}: a reordered file runs in another order")
        elif after < before:
            parts.append(f"{order.setting}: a reordered file needs {1 - after / before:.1%} less")
        else:
            more = f"{after / before - 1:.1%} more" if after > before else "as much as before"
            parts.append(f"{order.setting}: a reordered file runs in another order, and needs {more}")
    return "; ".join(parts)


def in_scheduled_order(found: Launches, scheduled: Scheduled) -> Launches:
    """Return the kernels as they would stand in the reordered file. Those of functions and copies of a DequantizeLinear come last in any
    file."""
    place = {node: at for at, node in enumerate(scheduled.nodes)}
    times = Counter(launch.node for launch in found.launches)
    first = {launch.node: launch for launch in reversed(found.launches) if launch.name == DEQUANTIZE}
    keys = [place[launch.node] if times[launch.node] == 1 or first.get(launch.node) is launch else len(place) for launch in found.launches]
    return replace(found, launches=[found.launches[index] for index in sorted_by(keys, makers_of(found))])


def _notes() -> Iterator[str]:
    yield "peaks are the most mem_bytes_requested_in_use after a kernel of the first run, weights that the session copies included"
    yield (
        "the peaks of ort-memory at --ort-level off: for a session without graph optimisations; with them it runs another graph, which it "
        "saves as optimized_model_filepath, in the order in which its default setting runs it: ort-memory{order=file} analyses that file"
    )
    yield f"{REFUSED_ORDER}: only builds with training have it; the packages on PyPI refuse to make a session"


def _cold_peak(plan: OrtPlan) -> int | None:
    return None if plan.figures is None else plan.figures.cold.peak.requested
