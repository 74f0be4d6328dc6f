"""Activations saved for the backward, storage by storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from irscope.devices import target_of
from irscope.ir.graph import Facet, Graph
from irscope.passes.sizes import CONVENTION
from irscope.passes.training.idle import Kept, kept_pieces
from irscope.passes.training.needed import trace_in
from irscope.passes.training.times import StepTimes
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

_GIGA = 1e9


@dataclass
class ActivationList:
    """Kept activations, with the source of their times."""

    kept: list[Kept]
    times: StepTimes
    link: float
    """Bytes a second."""


@dataclass(frozen=True)
class Activations(Analysis[ActivationList]):
    """List the tensors saved for the backward: how long each is unused, and the cost of recomputing or offloading it."""

    name: ClassVar[str] = "activations"
    reads: ClassVar[tuple[Facet, ...]] = ()

    top: int = 0
    """Rows to show, the longest unused first; 0: all in order of creation."""
    link: float = 55.0
    """Speed of the link to the host's memory in GB/s; PCIe 5.0 with 16 lanes reaches about 55."""

    def compute(self, graph: Graph, ctx: PassContext) -> ActivationList:
        times = StepTimes(target_of(ctx.settings).device)
        link = max(self.link, 1e-9) * _GIGA
        return ActivationList(kept_pieces(trace_in(ctx.program), times, link), times, link)

    def report(self, result: ActivationList, ctx: PassContext) -> Report:
        kept = result.kept
        total = sum(one.piece.size for one in kept)
        unused = [one for one in kept if one.first_backward is None]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "activations_count": len(kept),
                "kept_bytes": total,
                "not_read_in_backward_bytes": sum(one.piece.size for one in unused),
                "longest_idle_seconds": Quantity(max((one.idle_seconds for one in kept), default=0.0), _MODELLED),
                "times": result.times.source,
                "device": result.times.device.name,
                "link": f"{result.link / _GIGA:g} GB/s",
            },
            tables=(_table(result, self.top),),
            coverage=Coverage(sum(one.recompute_seconds is not None for one in kept), len(kept)),
            notes=(CONVENTION, f"times are bounds by the {result.times.source} of {result.times.device.title}, not measured"),
        )


_MODELLED = Provenance.MODELLED
_COLUMNS = (
    Column("name"),
    Column("size", Kind.BYTES),
    Column("created", Kind.INDEX),
    Column("last_forward_use", Kind.INDEX),
    Column("first_backward_use", Kind.INDEX, help="unknown where the backward only holds it"),
    Column("last_backward_use", Kind.INDEX),
    Column("idle", Kind.SECONDS, provenance=_MODELLED),
    Column("recompute", Kind.SECONDS, help="from what is kept", provenance=_MODELLED),
    Column("recompute_memory", Kind.BYTES, help="made on the way, itself included"),
    Column("recomputed_operators", Kind.COUNT),
    Column("random", Kind.BOOL, help="needs the state of the random generator"),
    Column("swap", Kind.SECONDS, help="over the link, one way", provenance=_MODELLED),
    Column("times"),
)


def _table(result: ActivationList, top: int) -> Table:
    kept = sorted(result.kept, key=lambda one: -one.idle_seconds)[:top] if top else result.kept
    rows = [
        (
            one.piece.name,
            one.piece.size,
            one.created,
            one.last_forward,
            one.first_backward,
            one.last_backward,
            one.idle_seconds,
            one.recompute_seconds,
            one.recompute_bytes,
            one.recomputed,
            one.needs_random_state,
            one.swap_seconds,
            result.times.source,
        )
        for one in kept
    ]
    return Table.of(rows, _COLUMNS, "Activations kept for the backward")
