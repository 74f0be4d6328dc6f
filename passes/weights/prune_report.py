"""What could be pruned: rows and columns of zeros, and what sparse matrices keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from irscope.immutable import immutable
from irscope.ir.graph import Facet, Graph, Node, Value
from irscope.ops.facts import OpRole
from irscope.ops.registry import factors_of, plays
from irscope.passes.sizes import at_least
from irscope.passes.weights.storages import count_parameters, is_matrix
from irscope.passes.weights.values import MISSING, Look, WeightValues, open_weights, shared_look
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance
from irscope.weights.losses import METADATA_BITS, EnergyKept, Grouped, Grouping, energy_kept, grouped
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import Stored, stored_tensor

_NOTES = (
    "dead: rows (slices along the first axis) and columns (along the second) that hold only zeros",
    "kept_N: share of the sum of squares that is left when the N % of elements that are smallest in magnitude become zero",
    "2:4: of four neighbours along the axis that is summed over, two are zero; ready is the share of groups that are so already",
)
_AXES = ("rows", "columns")
_SHARES = ("kept_50", "kept_75", "kept_90")


@immutable(slots=False)
class DeadSlices:
    """Slices of zeros along one axis of a weight."""

    weight: Value
    axis: str
    slices: int
    dead: int


@dataclass
class Pruning:
    """The answer of the pass."""

    dead: list[DeadSlices]
    sparsity: Sparsity
    unread: dict[Value, str] = field(default_factory=dict)
    """Weights whose values are not known, with the reason."""


@dataclass(frozen=True)
class PruneReport(Analysis[Pruning]):
    """Report rows and columns of zeros, and how much energy pruned sparse matrices keep."""

    name: ClassVar[str] = "prune-report"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)
    known_of_weights: ClassVar[tuple[str, ...]] = ("dead_count", "weight_bytes", "energy_kept", "sparsity")

    threads: int = 0
    """Threads that read weights; 0: one per core."""
    allow: tuple[str, ...] = ()
    """Further folders from which external data may be read."""

    def compute(self, graph: Graph, ctx: PassContext) -> Pruning:
        look = ctx.get(shared_look(self.wants(), ctx))
        totals = count_parameters(ctx.program)
        with open_weights(ctx, self.allow) as files:
            sparsity = thin_out(totals.weights, look, files, self.threads, ctx)
        for weight, reason in sparsity.unread.items():
            if weight not in look.unread:
                ctx.sink.warn(MISSING, f"the values of {weight.name!r} are not known: {reason}", about=reason)
        dead = [found for weight in totals.weights if weight not in totals.tied_to for found in _dead_slices(weight, look)]
        return Pruning(dead, sparsity, {**look.unread, **sparsity.unread})

    def wants(self) -> WeightValues:
        """Return what of the values it asks for."""
        return WeightValues(histogram=False, threads=self.threads, allow=self.allow)

    def report(self, result: Pruning, ctx: PassContext) -> Report:
        weights, sparsity = count_parameters(ctx.program), result.sparsity
        unread = [weight.name or "?" for weight in result.unread]
        summary: dict[str, object] = {
            "dead_count": at_least(sum(one.dead for one in result.dead), not result.unread),
            "weight_bytes": at_least(weights.every_byte, weights.is_complete()),
        }
        if sparsity.total is not None and sparsity.total.kept:
            summary["energy_kept"] = dict(zip(_SHARES, sparsity.total.kept, strict=True))
        return Report(
            pass_name=self.name,
            options=self.text,
            summary=summary,
            units={"energy_kept": Kind.RATIO},
            tables=tuple(table for table in (_dead(result), _sparsity(sparsity)) if len(table)),
            coverage=Coverage(len(weights.weights) - len(unread), len(weights.weights), tuple(unread)),
            notes=_NOTES,
            partial=bool(result.unread),
        )


def _dead_slices(weight: Value, look: Look) -> Iterator[DeadSlices]:
    made, shape = look.statistics.get(weight), weight.type.shape
    if made is None or shape is None:
        return
    for axis, dead in enumerate((made.dead_rows, made.dead_columns)):
        size = shape[axis] if axis < len(shape) else None
        if dead and isinstance(size, int):
            yield DeadSlices(weight, _AXES[axis], size, dead)


def _dead(result: Pruning) -> Table:
    rows = [(one.weight.name, one.axis, one.slices, one.dead) for one in result.dead]
    return Table.of(rows, ["name:value", "axis:text", "slices:count", "dead:count"], "dead slices")


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
