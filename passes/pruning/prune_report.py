"""What could be pruned: channels that do nothing, with what the model costs without them, and how much energy sparse matrices keep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from irscope.immutable import immutable
from irscope.ir.dims import Dim, int_or_zero
from irscope.ir.graph import Attr, Facet, Graph, Node, Value
from irscope.ir.types import TensorType, Type
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.registry import factors_of, find_op, plays
from irscope.ops.slices import Floats, Ids, Slices
from irscope.ops.spec import OpCall
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passes.cost.entries import Entry
from irscope.passes.cost.tables import cell
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes
from irscope.passes.pruning.flow import Flow, Mask, Verdict
from irscope.passes.sizes import CONVENTION, at_least, dim_cell, scale
from irscope.passes.weights.storages import ParameterTotals, count_parameters, is_matrix
from irscope.passes.weights.values import Look, WeightValues, open_weights, shared_look
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance
from irscope.weights.losses import METADATA_BITS, EnergyKept, Grouped, Grouping, energy_kept, grouped
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import Stored, read_all, stored_tensor

_MISSING = "IRS440"
_NOTES = (
    "a channel can go where everything that sums over it meets zeros there, in it or in the weights; activations are taken to be finite",
    "costs without these channels are recounted by the operators' rules on the smaller shapes",
    "foldable: channels that always hold one number other than zero, which a bias could take over; their saving is not counted",
    "kept_N: share of the sum of squares that is left when the N % of elements that are smallest in magnitude become zero",
    "2:4: of four neighbours along the axis that is summed over, two are zero; ready is the share of groups that are so already",
)
_AXES = ("rows", "columns")


@immutable(slots=False)
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
        look = ctx.get(shared_look(self.wants(), ctx))
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

    def wants(self) -> WeightValues:
        """Return what of the values it asks for."""
        return WeightValues(histogram=False, threads=self.threads, allow=self.allow)

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
            rows.append(
                (node, before.total.flops, after.total.flops, saved, (_bytes_moved(before.cost) - _bytes_moved(after.cost)) * before.runs)
            )
        if self.top:
            rows = sorted(rows, key=lambda row: -scale(row[3]))[: self.top]
        cells = [(node.name, node.op, node.scope.path, *map(dim_cell, numbers)) for node, *numbers in rows]
        columns = ["node:node", "operator:text", "module:text", "flops:flops", "flops_then:flops", "saved_flops:flops", "saved_moved:bytes"]
        return Table.of(cells, columns, "nodes that get smaller")


_SHARES = ("kept_50", "kept_75", "kept_90")


def _flow(graph: Graph, ctx: PassContext, totals: ParameterTotals, look: Look, files: WeightFiles) -> Flow:
    """Slices of all values, followed from the weights to the outputs."""
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


def _bytes_moved(cost: Cost) -> Dim:
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


# ----------------------------------------------------------------------------------------------------
# What a model costs without the slices that can go: every node that gets smaller is counted again by its operator's rule.


@immutable(slots=False)
class Smaller:
    """A weight of which slices can go: by axis which ones, and the type that is left."""

    weight: Value
    going: tuple[Mask | None, ...]
    type: TensorType

    def count(self, axis: int) -> int:
        """Slices along an axis that go."""
        going = self.going[axis] if axis < len(self.going) else None
        return 0 if going is None else int(np.count_nonzero(going))


@dataclass
class Savings:
    """Weights and nodes that get smaller."""

    weights: list[Smaller] = field(default_factory=list)
    entries: dict[Node, tuple[Entry, Entry]] = field(default_factory=dict)
    """Nodes that cost less, before and after."""
    unknown: list[Node] = field(default_factory=list)
    """Nodes that get smaller, but whose cost is not known exactly."""

    def total(self, measure: str) -> Dim:
        """Return what is saved of FLOPs, bytes read or bytes written."""
        saved: Dim = 0
        for before, after in self.entries.values():
            saved = saved + _amount(before, measure) - _amount(after, measure)
        return saved

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that go."""
        return sum(int_or_zero(one.weight.type.nbytes) - int_or_zero(one.type.nbytes) for one in self.weights)


def _amount(entry: Entry, measure: str) -> Dim:
    found: Dim | None = getattr(entry.cost, measure)
    return 0 if found is None else found * entry.runs


def savings_of(flow: Flow, verdict: Verdict, costs: Costs, first_of: Mapping[Value, Value]) -> Savings:
    """Apply a verdict."""
    shrink = _Shrink(flow, verdict)
    found = Savings()
    for value in flow.found:
        type_ = shrink.type(value)
        if value.node is None and value not in first_of and type_ is not flow.types.type_of(value) and isinstance(type_, TensorType):
            slices = flow.found[value]
            found.weights.append(Smaller(value, tuple(None if ids is None else verdict.going(ids) for ids in slices.ids), type_))
    if not found.weights:
        return found
    for entry in costs.entries:
        node = entry.node
        operands = [None if value is None else shrink.type(value) for value in node.inputs]
        results = [shrink.type(value) for value in node.outputs]
        before = [*(None if value is None else flow.types.type_of(value) for value in node.inputs), *map(flow.types.type_of, node.outputs)]
        if all(one is other for one, other in zip(before, [*operands, *results], strict=True)):
            continue
        cost = None if entry.bounds is not None else _cost(flow, node, operands, results, shrink.attrs(node))
        if cost is None:
            found.unknown.append(node)
        else:
            found.entries[node] = (entry, replace(entry, cost=cost))
    return found


def _cost(flow: Flow, node: Node, operands: Sequence[Type | None], results: Sequence[Type], attrs: Mapping[str, Attr]) -> Cost | None:
    spec = find_op(node.op)
    known = [None if value is None else flow.types.values.get(value) for value in node.inputs]
    return None if spec is None else spec.cost_of(OpCall(spec, operands, attrs, known, results))


class _Shrink:
    """Types of values and attributes of nodes without the slices that go."""

    def __init__(self, flow: Flow, verdict: Verdict) -> None:
        self._flow = flow
        self._verdict = verdict
        self._types: dict[Value, Type] = {}

    def type(self, value: Value) -> Type:
        if value not in self._types:
            self._types[value] = self._made(value)
        return self._types[value]

    def _made(self, value: Value) -> Type:
        type_ = self._flow.types.type_of(value)
        slices = self._flow.found.get(value)
        if slices is None or type_.shape is None:
            return type_
        sizes = [size if ids is None else self._left(ids) for size, ids in zip(type_.shape, slices.ids, strict=True)]
        return type_ if tuple(sizes) == type_.shape else type_.with_shape(sizes)

    def _left(self, ids: Ids) -> int:
        return len(ids) - int(np.count_nonzero(self._verdict.going(ids)))

    def attrs(self, node: Node) -> Mapping[str, Attr]:
        """A grouped convolution is left with fewer groups."""
        groups = node.attrs.get("groups")
        slices = self._flow.found.get(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        if not isinstance(groups, int) or groups <= 1 or slices is None or slices.rank < 2:
            return node.attrs
        ids = slices.ids[1]
        return node.attrs if ids is None else {**node.attrs, "groups": groups * self._left(ids) // len(ids)}


# ----------------------------------------------------------------------------------------------------
# How far the matrices of a model could be thinned out: energy kept by magnitude, and readiness for 2:4 sparsity.


@immutable(slots=False)
class Thinned:
    """One matrix."""

    weight: Value
    kept: EnergyKept | None
    groups: Grouped | None
    why_no_groups: str = ""

    @property
    def sparse_bytes(self) -> int | None:
        """Bytes of the matrix with two of every four elements, and where they stand."""
        type_ = self.weight.type
        bits = type_.dtype.bits
        return None if self.groups is None or not bits else (self.groups.groups * 2 * (bits + METADATA_BITS) + 7) // 8


@dataclass
class Sparsity:
    """All matrices of floats, and what is left when they are pruned by one global threshold."""

    tensors: list[Thinned] = field(default_factory=list)
    total: EnergyKept | None = None
    unread: dict[Value, str] = field(default_factory=dict)


def thin_out(weights: Iterable[Value], look: Look, files: WeightFiles, threads: int, ctx: PassContext) -> Sparsity:
    """Look at each distinct matrix."""
    found = Sparsity()
    jobs: list[tuple[Value, Stored]] = []
    seen: set[int] = set()
    for weight in weights:
        if not is_matrix(weight, ctx.program) or id(look.statistics.get(weight, weight)) in seen:
            continue
        seen.add(id(look.statistics.get(weight, weight)))
        try:
            if weight in look.unread:
                raise Unreadable(look.unread[weight])
            jobs.append((weight, stored_tensor(weight, files)))
        except Unreadable as problem:
            found.unread[weight] = str(problem)
    kept, found.total = energy_kept([tensor for _, tensor in jobs], files, threads=threads, tick=ctx.tick)
    groups = grouped([Grouping(tensor, _sums_over_second(weight)) for weight, tensor in jobs], files, threads, ctx.tick)
    for (weight, _), one, group in zip(jobs, kept, groups, strict=True):
        if isinstance(one, str):
            found.unread[weight] = one
            continue
        is_known = isinstance(group, Grouped)
        found.tensors.append(Thinned(weight, one, group if isinstance(group, Grouped) else None, "" if is_known else str(group)))
    return found


def _sums_over_second(weight: Value) -> bool:
    """Return whether products are summed over the second axis of a weight, as in linear layers and convolutions; else over the first."""
    value, is_second = weight, True
    while True:
        user = next((one for one in value.users or () if isinstance(one, Node)), None)
        if user is None:
            return is_second
        if plays(user, OpRole.TRANSPOSE) and len(value.users or ()) == 1:
            value, is_second = user.outputs[0], not is_second
            continue
        return is_second != _sums_over_first(user, value)


def _sums_over_first(node: Node, value: Value) -> bool:
    """Return whether an operator sums over the first axis of this operand."""
    factors = factors_of(node)
    if factors is None:
        return plays(node, OpRole.OVER_FIRST)
    return factors.over_first and node.inputs.index(value) == factors.right and not node.attrs.get("trans_b")


# ----------------------------------------------------------------------------------------------------
# What slices of weights hold: zeros from the statistics, and the numbers of vectors, which are small enough to be read.

_LONGEST_VECTOR = 1 << 20


class WeightConstants:
    """Answers for the weights of one program."""

    def __init__(self, look: Look, files: WeightFiles) -> None:
        self._look = look
        self._files = files

    def slices(self, weight: Value) -> tuple[Floats | None, ...]:
        """By axis the number that each slice holds everywhere, NaN where that is not one number or not known."""
        declared = weight.type.shape or ()
        shape = [size for size in declared if isinstance(size, int)]
        if len(shape) < len(declared) or weight not in self._look.statistics:
            return (None,) * len(declared)
        held: list[Floats | None] = [None] * len(shape)
        wide = [axis for axis, size in enumerate(shape) if size != 1]
        if len(wide) <= 1:
            numbers = self._numbers(weight)
            held = [numbers if len(wide) == 0 or axis == wide[0] else None for axis in range(len(shape))]
        statistics = self._look.statistics[weight]
        for axis, dead in enumerate((statistics.dead_row_indices, statistics.dead_column_indices)):
            if axis < len(shape) and held[axis] is None and statistics.dead_rows is not None:
                held[axis] = _with_zeros(shape[axis], dead)
        return tuple(held)

    def number(self, weight: Value) -> float:
        """The number in a weight of one element, NaN where it is not known."""
        statistics = self._look.statistics.get(weight)
        if statistics is None or statistics.count != 1 or statistics.min is None:
            return math.nan
        return float(statistics.min)

    def _numbers(self, weight: Value) -> Floats | None:
        try:
            tensor = stored_tensor(weight, self._files)
            if tensor.count > _LONGEST_VECTOR:
                return None
            return read_all(tensor, self._files).astype(np.float64).reshape(-1)
        except Unreadable:
            return None


def _with_zeros(size: int, dead: npt.NDArray[np.int32]) -> Floats:
    made = np.full(size, math.nan)
    made[dead] = 0.0
    return made
