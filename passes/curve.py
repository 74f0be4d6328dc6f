"""Peak memory over the sizes of symbols: the whole curve from one analysis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from irscope.devices import target_of
from irscope.ir.graph import Facet, Graph
from irscope.memory.tape import Replayed
from irscope.passes.curves.peaks import Peaks, peaks_at
from irscope.passes.curves.points import Points, parse_points
from irscope.passes.lifetimes.timeline import Timeline
from irscope.passes.liveness import Liveness
from irscope.passes.memory.sizes import LifetimeModel, simulator
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance


@dataclass
class PeakCurve:
    """Peaks at every point, with the timeline they come from."""

    points: Points
    peaks: Peaks
    nodes: list[str]
    """The node at each peak of activations."""
    timeline: Timeline
    counted: list[Replayed] | None
    """What PyTorch's allocator counts at each point; None where it does not run such a model."""
    is_modelled: bool = False
    """Whether what is counted contains sizes that are not exact, as the workspaces of cuDNN."""

    @property
    def origin(self) -> Provenance:
        """Where what is counted comes from."""
        return Provenance.MODELLED if self.is_modelled else Provenance.EXACT

    def take(self, number: int, other: PeakCurve) -> None:
        """Put the one point of another curve in the place of one of these."""
        self.peaks.activation[number], self.peaks.resident[number] = other.peaks.activation[0], other.peaks.resident[0]
        self.nodes[number] = other.nodes[0]
        if self.counted is not None and other.counted is not None:
            self.counted[number] = other.counted[0]


@dataclass(frozen=True)
class Curve(Analysis[PeakCurve]):
    """Compute peak memory as a function of the sizes of symbols, from one analysis."""

    name: ClassVar[str] = "curve"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    over: str = "batch=1..64"
    """Symbols and sizes, such as "batch=1..128" or "batch=1,2,4,seq=128..1024..128": every combination."""
    model: LifetimeModel = "auto"
    """Lifetime model, as in liveness."""
    allocator: bool = True
    """Also replay PyTorch's allocator at every point, for models that it runs."""

    def compute(self, graph: Graph, ctx: PassContext) -> PeakCurve:
        points = parse_points([self.over], ctx.program)
        found = self._curve(ctx, points)
        for number, point in points.apart(ctx.program).items():
            own = ctx.at(next(iter(point)))
            if own is not None:
                found.take(number, self._curve(own, point))
        return found

    def _curve(self, ctx: PassContext, points: Points) -> PeakCurve:
        timeline = ctx.get(Liveness(model=self.model))
        peaks = peaks_at(timeline, points)
        replayed = simulator(ctx, self.model) if self.allocator else None
        counted = None if replayed is None else replayed.counted(points)
        nodes = [timeline.steps[step].name if timeline.steps else "" for step in peaks.step]
        return PeakCurve(points, peaks, nodes, timeline, counted, replayed is not None and replayed.is_modelled)

    def report(self, result: PeakCurve, ctx: PassContext) -> Report:
        points = result.points
        columns = _columns(result)
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "model": result.timeline.model,
                "points": len(points),
                "symbols": ", ".join(f"{name} ({own})" if name != own else own for own, name in points.names.items()),
            },
            tables=(Table("peak by size", tuple(columns), {column.key: cells for column, cells in columns.items()}),),
            series=_series(result),
            notes=(*_notes(result, target_of(ctx.settings).text), *_undecided(result.timeline)),
        )


def _columns(result: PeakCurve) -> dict[Column, Sequence[object]]:
    """What is known at each point."""
    points, peaks = result.points, result.peaks
    found: dict[Column, Sequence[object]] = {Column(points.names[symbol], Kind.COUNT): sizes for symbol, sizes in points.columns.items()}
    found[Column("activation_peak_bytes", Kind.BYTES, "activation peak")] = peaks.activation
    found[Column("resident_bytes", Kind.BYTES, "weights and inputs")] = peaks.resident
    if result.counted is None:
        found[Column("requested_bytes", Kind.BYTES, "together")] = peaks.total
    else:
        for counter in ("requested", "allocated", "reserved"):
            cells = [one.worst(counter) for one in result.counted]
            found[Column(f"{counter}_bytes", Kind.BYTES, counter, provenance=result.origin)] = cells
    found[Column("peak_node", Kind.NODE, "activation peak at")] = result.nodes
    return found


def _notes(result: PeakCurve, target: str) -> Iterator[str]:
    if result.counted is None:
        yield "sizes as asked for: no rounding by an allocator"
        return
    if result.is_modelled:
        yield "memory of unknown size, such as cuDNN's workspaces, is modelled: liveness at one size has the interval"
    yield f"requested, allocated and reserved are peaks of PyTorch's allocator on {target}, of the worse of two forward passes"


def _series(result: PeakCurve) -> tuple[Series, ...]:
    """The curve, where it is one: over several symbols it would be a surface."""
    if len(result.points.columns) != 1 or len(result.points) < 2:
        return ()
    ((symbol, sizes),) = result.points.columns.items()
    x = Column(result.points.names[symbol], Kind.COUNT)
    parts: dict[Column, list[int]] = {Column("resident", Kind.BYTES, "weights and inputs"): result.peaks.resident}
    if result.counted is None:
        parts[Column("activation", Kind.BYTES, "activation peak")] = result.peaks.activation
    else:
        worst = [one.worst("reserved") for one in result.counted]
        rest = [reserved - resident for reserved, resident in zip(worst, result.peaks.resident, strict=True)]
        parts[Column("working", Kind.BYTES, "reserved for everything else", provenance=result.origin)] = rest
    data = {x.key: sizes, **{column.key: cells for column, cells in parts.items()}}
    return (Series("memory by size", x, tuple(parts), data, sampled=True),)


def _undecided(timeline: Timeline) -> Iterator[str]:
    if timeline.undecided:
        yield f"{timeline.undecided} results share or copy depending on strides that only bound sizes decide; they count as copies"
