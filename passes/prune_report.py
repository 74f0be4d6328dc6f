"""What could be pruned: channels that do nothing, with what the model costs without them, and how much energy sparse matrices keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from irscope.ir.graph import Facet, Graph, Value
from irscope.passes.alias import Alias
from irscope.passes.cost.count import NodeCosts
from irscope.passes.cost.tables import cell
from irscope.passes.shapes import Shapes
from irscope.passes.sizes import CONVENTION, at_least, dim_cell, scale
from irscope.passes.weights.storages import count_parameters
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from irscope.ir.dims import Dim
    from irscope.ops.cost import Cost
    from irscope.ops.slices import Slices
    from irscope.passes.pruning.channels import Verdict
    from irscope.passes.pruning.flow import Flow
    from irscope.passes.pruning.savings import Savings
    from irscope.passes.pruning.sparsity import Sparsity, Thinned
    from irscope.passes.weights.storages import ParameterTotals
    from irscope.passes.weights.values import Look
    from irscope.weights.source import WeightFiles

_MISSING = "IRS440"
_NOTES = (
    "a channel can go where everything that sums over it meets zeros there, in it or in the weights; activations are taken to be finite",
    "costs without these channels are counted anew by the operators' rules on the smaller shapes",
    "foldable: channels that always hold one number other than zero, which a bias could take over; their saving is not counted",
    "kept_N: share of the sum of squares that is left when the N % of elements that are smallest in magnitude become zero",
    "2:4: of four neighbours along the axis that is summed over, two are zero; ready is the share of groups that are so already",
)
_AXES = ("rows", "columns")


@dataclass(frozen=True)
class DeadSlices:
    """Slices of zeros along one axis of a weight, with how many of them can go and what keeps the others."""

    weight: Value
    axis: str
    slices: int
    dead: int
    goes: int
    why: str


@dataclass
class Pruning:
    """The answer of the pass."""

    removable: int
    """Channels that can go: sets of slices that only go together."""
    savings: Savings
    sparsity: Sparsity
    dead: list[DeadSlices] = field(default_factory=list)
    unread: dict[Value, str] = field(default_factory=dict)
    """Weights whose values are not known, with the reason."""
    foldable: int = 0
    """Channels that only a constant keeps from going, each counted once where it is made."""


@dataclass(frozen=True)
class PruneReport(Analysis[Pruning]):
    """Report dead channels, the model's cost without them, and how much energy pruned sparse matrices keep."""

    name: ClassVar[str] = "prune-report"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)
    known_of_weights: ClassVar[tuple[str, ...]] = ("dead_count", "weight_bytes", "energy_kept", "sparsity")

    threads: int = 0
    """Threads that read weights; 0: one per core."""
    allow: tuple[str, ...] = ()
    """Further folders from which external data may be read."""
    top: int = 0
    """Rows of the table of nodes, those that save most first; 0 for all in program order."""

    def compute(self, graph: Graph, ctx: PassContext) -> Pruning:
        from irscope.passes.pruning.savings import savings_of
        from irscope.passes.pruning.sparsity import thin_out
        from irscope.passes.weights.values import WeightValues, open_weights

        look = ctx.get(WeightValues(histogram=False, threads=self.threads, allow=self.allow))
        totals = count_parameters(ctx.program)
        with open_weights(ctx, self.allow) as files:
            flow = _flow(graph, ctx, totals, look, files)
            sparsity = thin_out(totals.weights, look, files, self.threads, ctx)
        verdict = flow.channels.verdict
        for slices in flow.found.values():
            for ids in slices.ids:
                if ids is not None:
                    verdict.keep_one(ids)
        savings = savings_of(flow, verdict, ctx.get(NodeCosts()), totals.tied_to)
        weights = {value: slices for value, slices in flow.found.items() if value.node is None and value not in totals.tied_to}
        matrices = {value: slices for value, slices in weights.items() if slices.rank > 1}
        result = Pruning(
            int(verdict.goes.sum()),
            savings,
            sparsity,
            [
                *(found for value, slices in matrices.items() for found in _dead_slices(value, slices, verdict)),
                *(found for value in totals.weights if value not in flow.found for found in _dead_outside(value, totals, look)),
            ],
            {**look.unread, **sparsity.unread},
            sum(int(verdict.folding(slices.ids[0]).sum()) for slices in matrices.values() if slices.ids[0] is not None),
        )
        for weight, reason in sparsity.unread.items():
            if weight not in look.unread:
                ctx.sink.warn(_MISSING, f"the values of {weight.name!r} are not known: {reason}", about=reason)
        return result

    def report(self, result: Pruning, ctx: PassContext) -> Report:
        savings, sparsity, costs = result.savings, result.sparsity, ctx.get(NodeCosts())
        weights, tally = count_parameters(ctx.program), costs.tally
        # Values that were not read may be zeros, and channels may be removable behind an unknown operator.
        complete = not result.unread and not costs.missing
        unread = [weight.name or "?" for weight in result.unread]
        summary: dict[str, object] = {
            "dead_count": at_least(sum(one.dead for one in result.dead), not result.unread),
            "removable_count": at_least(result.removable, complete),
            "foldable_count": at_least(result.foldable, complete),
            "weight_bytes": at_least(weights.every_byte, weights.is_complete()),
            "saved_weight_bytes": at_least(savings.weight_bytes, complete),
            "flops": cell(tally.value("flops"), tally.limits("flops")),
            "saved_flops": at_least(savings.total("flops"), complete),
            "moved_bytes": cell(tally.moved, tally.moved_limits),
            "saved_moved_bytes": at_least(savings.total("read") + savings.total("written"), complete),
        }
        if savings.unknown:
            summary["not_counted_again_count"] = len(savings.unknown)
        if sparsity.total is not None and sparsity.total.kept:
            summary["energy_kept"] = dict(zip(_SHARES, sparsity.total.kept, strict=True))
        return Report(
            pass_name=self.name,
            options=self.text,
            summary=summary,
            units={"flops": Kind.FLOPS, "energy_kept": Kind.RATIO},
            tables=tuple(table for table in (_dead(result), _smaller(savings), self._nodes(savings), _sparsity(sparsity)) if len(table)),
            coverage=Coverage(len(weights.weights) - len(unread), len(weights.weights), tuple(unread)),
            notes=(CONVENTION, *_NOTES),
            partial=bool(result.unread),
        )

    def _nodes(self, savings: Savings) -> Table:
        rows = []
        for node, (before, after) in savings.entries.items():
            saved = (before.cost.flops - after.cost.flops) * before.runs
            rows.append((node, before.total.flops, after.total.flops, saved, (_moved(before.cost) - _moved(after.cost)) * before.runs))
        if self.top:
            rows = sorted(rows, key=lambda row: -scale(row[3]))[: self.top]
        cells = [(node.name, node.op, node.scope.path, *map(dim_cell, numbers)) for node, *numbers in rows]
        columns = ["node:node", "operator:text", "module:text", "flops:flops", "flops_then:flops", "saved_flops:flops", "saved_moved:bytes"]
        return Table.of(cells, columns, "nodes that get smaller")


_SHARES = ("kept_50", "kept_75", "kept_90")


def _flow(graph: Graph, ctx: PassContext, totals: ParameterTotals, look: Look, files: WeightFiles) -> Flow:
    """Slices of all values, followed from the weights to the outputs."""
    from irscope.passes.pruning.flow import Flow
    from irscope.passes.pruning.weightvalues import WeightConstants

    flow = Flow(ctx.get(Shapes), ctx.get(Alias()), totals.tied_to, WeightConstants(look, files))
    for weight in totals.overlaps:
        flow.block(weight, "it shares a part of its storage")
    flow.run(graph)
    for function in ctx.program.functions.values():
        for node in function.walk():
            for value in node.inputs:
                if value is not None and value.graph is graph:
                    flow.block(value, f"{function.name} uses it")
    return flow


def _dead_slices(weight: Value, slices: Slices, verdict: Verdict) -> Iterator[DeadSlices]:
    for axis, (ids, held) in enumerate(zip(slices.ids[:2], slices.held[:2], strict=True)):
        if ids is None or held is None or not (held == 0).any():
            continue
        mine = ids[held == 0]
        goes = verdict.going(mine)
        why = next(iter(verdict.reasons(mine[~goes])), "") if not goes.all() else ""
        yield DeadSlices(weight, _AXES[axis], len(ids), len(mine), int(goes.sum()), why)


def _dead_outside(weight: Value, totals: ParameterTotals, look: Look) -> Iterator[DeadSlices]:
    """Slices of zeros in a weight that no graph reads, as in a checkpoint."""
    made, shape = look.statistics.get(weight), weight.type.shape
    if made is None or shape is None or weight in totals.tied_to:
        return
    for axis, dead in enumerate((made.dead_rows, made.dead_columns)):
        size = shape[axis] if axis < len(shape) else None
        if dead and isinstance(size, int):
            yield DeadSlices(weight, _AXES[axis], size, dead, 0, "no graph tells what reads it")


def _moved(cost: Cost) -> Dim:
    return (0 if cost.read is None else cost.read) + (0 if cost.written is None else cost.written)


def _dead(result: Pruning) -> Table:
    rows = [(one.weight.name, one.axis, one.slices, one.dead, one.goes, one.why) for one in result.dead]
    return Table.of(rows, ["name:value", "axis:text", "slices:count", "dead:count", "removable:count", "kept_because:text"], "dead slices")


def _smaller(savings: Savings) -> Table:
    rows = []
    for one in savings.weights:
        type_ = one.weight.type
        before, after = type_.nbytes, one.type.nbytes
        saved = before - after if isinstance(before, int) and isinstance(after, int) else None
        rows.append((one.weight.name, type_.shape, one.type.shape, dim_cell(before), saved))
    return Table.of(rows, ["name:value", "shape:shape", "shape_then:shape", "bytes", "saved:bytes"], "weights that get smaller")


def _sparsity(sparsity: Sparsity) -> Table:
    columns = [
        Column("name", Kind.VALUE),
        Column("shape", Kind.SHAPE),
        *(Column(key, Kind.RATIO) for key in _SHARES),
        Column("ready_2_4", Kind.RATIO, "2:4 ready"),
        Column("kept_2_4", Kind.RATIO, "2:4 kept"),
        Column("bytes_2_4", Kind.BYTES, "2:4 bytes", provenance=Provenance.MODELLED),
        Column("why", help="why there are no groups of four"),
    ]
    return Table.of([_row(one) for one in sparsity.tensors], columns, "sparsity")


def _row(one: Thinned) -> tuple[object, ...]:
    type_ = one.weight.type
    shape = type_.shape
    kept = one.kept.kept if one.kept is not None and one.kept.kept else (None,) * len(_SHARES)
    groups = one.groups
    numbers = (None, None, None) if groups is None else (groups.ready, groups.kept, one.sparse_bytes)
    return one.weight.name, shape, *kept, *numbers, one.why_no_groups
