"""Bytes that every node reads and writes, the least that the whole model must move, and FLOPs for each byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from irscope.immutable import immutable
from irscope.ir.dims import Dim, int_or_zero, total_of
from irscope.ir.graph import Facet, Graph, Value
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passes.cost.entries import Entry
from irscope.passes.cost.tables import cell, entries_table
from irscope.passes.inference.shapes import Shapes
from irscope.passes.sizes import CONVENTION, dim_cell, known_share, scale
from irscope.passes.weights.params import count_parameters
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind

_NOTES = (
    "read and written: every operand and result of every node once, views not at all; caches and fusion would make it less",
    "compulsory: inputs and weights that are used once each, and the outputs; no way to run the model moves less",
)


@immutable(slots=False)
class Compulsory:
    """What must be moved however the model is run. A part is None where a size is unknown."""

    inputs: Dim | None
    weights: Dim | None
    outputs: Dim | None

    @property
    def total(self) -> Dim | None:
        if self.inputs is None or self.weights is None or self.outputs is None:
            return None
        return self.inputs + self.weights + self.outputs


@immutable(slots=False)
class Moved:
    """The answer of the pass."""

    costs: Costs
    compulsory: Compulsory


@dataclass(frozen=True)
class Traffic(Analysis[Moved]):
    """Count the bytes that every node reads and writes, and a lower bound of the whole model's traffic."""

    name: ClassVar[str] = "bytes"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    top: int = 0
    """Rows of the table of nodes, most bytes first; 0 for all in program order."""

    def compute(self, graph: Graph, ctx: PassContext) -> Moved:
        types = ctx.get(Shapes)
        totals = count_parameters(ctx.program)
        weights = [weight for weight in totals.weights if weight.users and weight not in totals.tied_to]
        tied = [owner for weight, owner in totals.tied_to.items() if weight.users and not owner.users]

        def size(values: list[Value]) -> Dim | None:
            return total_of(types.type_of(value).tensor_bytes for value in dict.fromkeys(values))

        compulsory = Compulsory(size([value for value in graph.inputs if value.users]), size([*weights, *tied]), size(list(graph.outputs)))
        return Moved(ctx.get(NodeCosts()), compulsory)

    def report(self, result: Moved, ctx: PassContext) -> Report:
        costs, least = result.costs, result.compulsory
        tally = costs.tally
        moved = tally.moved
        flops = tally.value("flops")
        unknown = [entry.node.op for entry in costs.entries if _has_no_limit(entry)]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "read_bytes": cell(tally.value("read"), tally.limits("read")),
                "written_bytes": cell(tally.value("written"), tally.limits("written")),
                "moved_bytes": cell(moved, tally.moved_limits),
                "compulsory_bytes": dim_cell(least.total),
                "compulsory": {"inputs": dim_cell(least.inputs), "weights": dim_cell(least.weights), "outputs": dim_cell(least.outputs)},
                # Whether an unknown operator computes or only moves data is unknown.
                "intensity": {
                    "as_counted": intensity(flops, moved) if tally.is_exact else None,
                    "at_most": intensity(flops, least.total) if tally.is_exact else None,
                },
            },
            units={"compulsory": Kind.BYTES, "intensity": Kind.NUMBER},
            tables=(self._nodes(costs), _by_intensity(costs)),
            coverage=Coverage(len(costs.entries) - len(unknown), len(costs.entries), tuple(sorted(set(unknown)))),
            notes=(CONVENTION, *_NOTES),
        )

    def _nodes(self, costs: Costs) -> Table:
        entries = costs.entries
        if self.top:
            entries = sorted(entries, key=lambda entry: -scale(_known_traffic(entry)))[: self.top]
        return entries_table("nodes", entries, ("read", "written", "flops"), _INTENSITY)


def _known_traffic(entry: Entry) -> Dim:
    read, written = entry.cost.read, entry.cost.written
    return ((0 if read is None else read) + (0 if written is None else written)) * entry.runs


def _has_no_limit(entry: Entry) -> bool:
    return entry.limits("read")[1] is None or entry.limits("written")[1] is None


def intensity(flops: Dim, moved: Dim | None) -> float | None:
    """FLOPs for each byte; None where that depends on sizes, and where nothing moves."""
    if not isinstance(flops, int) or not isinstance(moved, int):
        return None
    if not moved:
        return None
    return flops / moved


_INTENSITY = (
    Column("intensity", Kind.NUMBER, help="FLOPs for each byte read or written"),
    lambda entry: intensity(entry.cost.flops * entry.runs, _known_traffic(entry)) if entry.bounds is None else None,
)

_BUSY, _IDLE = 50, 10
"""FLOPs a byte above which arithmetic, and below which memory decides: usual limits of profilers, on any device."""
_INTENSITY_COLUMNS = (
    "flops_per_byte:text", "nodes:count", "of_nodes:ratio", "flops:flops", "of_flops:ratio", "memory:bytes", "of_memory:ratio",
)  # fmt: skip


def _by_intensity(costs: Costs) -> Table:
    """Shares by FLOPs a byte, which need no device: bottlenecks depend on one, and small nodes only wait to be launched there."""
    names = (f"> {_BUSY}", f"{_IDLE} to {_BUSY}", f"< {_IDLE}", "moves nothing", "unknown")
    sums = {name: [0, 0, 0] for name in names}  # nodes, FLOPs, bytes
    for entry in costs.entries:
        cost = entry.total
        moved = None if cost.read is None or cost.written is None else cost.read + cost.written
        is_known = entry.bounds is None and isinstance(cost.flops, int) and isinstance(moved, int) and entry.node.op not in costs.unknown
        ratio = intensity(cost.flops, moved) if is_known else None
        place = 4 if not is_known else 3 if ratio is None else 0 if ratio > _BUSY else 1 if ratio >= _IDLE else 2
        found = sums[names[place]]
        found[0] += 1
        if is_known:
            found[1] += int_or_zero(cost.flops)
            found[2] += int_or_zero(moved)
    nodes, *wholes = (sum(column) for column in zip(*sums.values(), strict=True))
    complete = not sums["unknown"][0]
    rows: list[tuple[object, ...]] = []
    for name, (count, *parts) in sums.items():
        if not count:
            continue
        cells: list[object] = [None] * 4
        if name != "unknown":
            shares = (known_share(part / whole if whole else 0.0, complete) for part, whole in zip(parts, wholes, strict=True))
            cells = [cell for pair in zip(parts, shares, strict=True) for cell in pair]
        rows.append((name, count, count / nodes, *cells))
    return Table.of(rows, _INTENSITY_COLUMNS, "by arithmetic intensity")
