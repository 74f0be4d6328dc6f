"""Memory, arithmetic, traffic and least time over the sizes of symbols, in one table from one analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from irscope.devices import find_device, target_of
from irscope.devices.profile import DeviceProfile
from irscope.ir.dim_arrays import Evaluator
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Facet, Graph
from irscope.passes.cost.bounds import Bounder, Bounds, Rates
from irscope.passes.cost.count import NodeCosts
from irscope.passes.cost.roofline import element_type
from irscope.passes.cost.tables import cell
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes
from irscope.passes.memory.curve import LifetimeModel
from irscope.passes.memory.liveness import Liveness
from irscope.passes.memory.points import Peaks, Points, parse_points, peaks_at
from irscope.passes.sizes import CONVENTION, at_least
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance

_ORIGINS = {"least_seconds": Provenance.MODELLED}
MOST_TIMED = 2_000
"""Each point of the time costs a walk over the nodes; the other columns are formulas."""


@dataclass
class Swept:
    """Everything by point, and the formulas it comes from. A column is None where it depends on something unknown."""

    device: DeviceProfile
    points: Points
    peaks: Peaks
    flops: list[int] | None
    bytes: list[int] | None
    seconds: list[float] | None
    totals: dict[str, object]
    model: str
    missing: int
    """Nodes without a known cost."""

    def take(self, number: int, other: Swept) -> None:
        """Put the one point of another sweep in the place of one of these."""
        peaks, own = self.peaks, other.peaks
        for column, found in (
            *((peaks.activation, own.activation), (peaks.step, own.step), (peaks.resident, own.resident)),
            *((self.flops, other.flops), (self.bytes, other.bytes), (self.seconds, other.seconds)),
        ):
            if column is not None and found is not None:
                column[number] = found[0]  # type: ignore[assignment]


@dataclass(frozen=True)
class Sweep(Analysis[Swept]):
    """Compute memory, FLOPs, bytes and the least time at many sizes of symbols."""

    name: ClassVar[str] = "sweep"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    over: str = "batch=1,2,4,8,16"
    """Symbols and sizes, such as "batch=1..16,seq=128..1024..128": every combination."""
    device: str = ""
    """A device, "this" or a device file; default: what --device says, else h200."""
    dtype: str = ""
    """Element type that the least time takes every floating-point tensor to have; default: as the model has them."""
    model: LifetimeModel = "auto"
    """Lifetime model, as in liveness."""

    def compute(self, graph: Graph, ctx: PassContext) -> Swept:
        points = parse_points([self.over], ctx.program)
        found = self._swept(ctx, points)
        for number, point in points.apart(ctx.program).items():
            own = ctx.at(next(iter(point)))
            if own is not None:
                found.take(number, self._swept(own, point))
        return found

    def _swept(self, ctx: PassContext, points: Points) -> Swept:
        timeline = ctx.get(Liveness(model=self.model))
        costs = ctx.get(NodeCosts())
        device = find_device(self.device) if self.device else target_of(ctx.settings).device
        tally = costs.tally
        # The upper limits; where there are none, what is known, unless that is nothing.
        flops = _unless_open(tally.value("flops"), tally.limits("flops"))
        moved = _unless_open(tally.moved, tally.moved_limits)
        evaluator = Evaluator(points.columns)
        return Swept(
            device,
            points,
            peaks_at(timeline, points),
            _column(evaluator, flops),
            _column(evaluator, moved),
            self._seconds(device, points, ctx) if len(points) <= MOST_TIMED else None,
            {"flops": cell(tally.value("flops"), tally.limits("flops")), "bytes": cell(tally.moved, tally.moved_limits)},
            timeline.model,
            costs.missing,
        )

    def _seconds(self, device: DeviceProfile, points: Points, ctx: PassContext) -> list[float] | None:
        """The least time at each point; None where it is unknown for every node."""
        rates, types, aliases, dtype = Rates(device), ctx.get(Shapes), ctx.get(Alias()), element_type(self.dtype)
        entries = ctx.get(NodeCosts()).entries
        found: list[float] = []
        for sizes in ctx.each(list(points), "bounding", len(points)):
            bounds = Bounds(device, self.dtype, list(Bounder(rates, types, aliases, dtype, sizes).bounds(entries)))
            if entries and len(bounds.unknown) == len(entries):
                return None
            found.append(bounds.seconds)
        return found

    def report(self, result: Swept, ctx: PassContext) -> Report:
        columns = _columns(result)
        notes = [
            CONVENTION,
            f"activations freed as {result.model} does; sizes as asked for, without an allocator's rounding",
            f"least: a lower bound of the time on {result.device.title}, one node after the other",
        ]
        if result.missing:
            notes.append(f"the cost of {result.missing} nodes is unknown: FLOPs, bytes and time are those of the others")
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "points": len(result.points),
                "device": result.device.title,
                "total_flops": result.totals["flops"],
                "moved_bytes": result.totals["bytes"],
            },
            units={"points": Kind.COUNT},
            tables=(Table("sweep", tuple(columns), {column.key: cells for column, cells in columns.items()}),),
            series=curves(result),
            notes=tuple(notes),
        )


def _unless_open(value: Dim, limits: tuple[Dim, Dim | None]) -> Dim | None:
    return None if limits[1] is None and value == 0 else value


def _column(evaluator: Evaluator, amount: Dim | None) -> list[int] | None:
    """A formula at every point; None where part of it is unknown whatever is bound."""
    if amount is None or (isinstance(amount, SymDim) and amount.is_unknown):
        return None
    return [int(number) for number in evaluator.at(amount).tolist()]


def _columns(result: Swept) -> dict[Column, Sequence[object]]:
    points, peaks = result.points, result.peaks
    nothing: list[None] = [None] * len(points)
    found: dict[Column, Sequence[object]] = {Column(points.names[symbol], Kind.COUNT): sizes for symbol, sizes in points.columns.items()}
    found[Column("peak_bytes", Kind.BYTES, "peak memory")] = peaks.total
    found[Column("activation_peak_bytes", Kind.BYTES, "activations")] = peaks.activation
    found[Column("flops", Kind.FLOPS)] = _swept_cells(result.flops, result) or nothing
    found[Column("moved_bytes", Kind.BYTES, "bytes moved")] = _swept_cells(result.bytes, result) or nothing
    seconds = result.seconds or nothing
    found[Column("least_seconds", Kind.SECONDS, "least time", provenance=_ORIGINS["least_seconds"])] = seconds
    return found


def _swept_cells(amounts: Sequence[int] | None, result: Swept) -> Sequence[object] | None:
    """Amounts that are lower bounds where the cost of a node is unknown."""
    return amounts if amounts is None or not result.missing else [at_least(amount, False) for amount in amounts]


def curves(result: Swept) -> tuple[Series, ...]:
    """Each quantity over the one symbol that was swept; none where there were several."""
    if len(result.points.columns) != 1 or len(result.points) < 2:
        return ()
    ((symbol, sizes),) = result.points.columns.items()
    x = Column(result.points.names[symbol], Kind.COUNT)
    measures: list[tuple[str, Kind, str, Sequence[object] | None]] = [
        ("peak_bytes", Kind.BYTES, "peak memory", result.peaks.total),
        ("flops", Kind.FLOPS, "FLOPs", result.flops),
        ("moved_bytes", Kind.BYTES, "bytes moved", result.bytes),
        ("least_seconds", Kind.SECONDS, "least time", result.seconds),
    ]
    columns = {key: Column(key, kind, title, provenance=_ORIGINS.get(key, Provenance.EXACT)) for key, kind, title, _ in measures}
    return tuple(
        Series(title, x, (columns[key],), {x.key: sizes, key: cells}, stacked=False, sampled=True)
        for key, _, title, cells in measures
        if cells is not None
    )
