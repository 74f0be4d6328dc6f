"""Report what could be pruned: rows and columns of zeros, and what sparse matrices keep."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import ClassVar

from irscope.immutable import immutable
from irscope.ir.graph import Facet, Graph, Node, Value
from irscope.ops.facts import OpRole
from irscope.ops.registry import factors_of, plays
from irscope.passes.sizes import at_least
from irscope.passes.weights.storages import count_parameters, is_matrix
from irscope.passes.weights.values import Look, WeightValues, open_weights, shared_look
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity, derived
from irscope.weights.losses import lengths_of_rows
from irscope.weights.result import PRUNED, TensorStatistics

_NOTES = (
    "dead: rows (slices along the first axis) and columns (along the second) that hold only zeros",
    "kept_N: share of the sum of squares that is left when the N % of a matrix's elements that are smallest in magnitude become zero; "
    "each element of more than 16 bits counts as the middle of a bin that is 1/128 wide",
    "2:4: of four neighbours along the axis that is summed over, two are zero; ready is the share of groups that are so already",
)
_AXES = ("rows", "columns")
_SHARES = tuple(f"kept_{share:.0%}".removesuffix("%") for share in PRUNED)
_EXACT_BITS = 16
"""Widest element type of which each number is counted by itself."""
_METADATA_BITS = 2
"""Bits that say where in its group each element that is kept stands."""


@immutable(slots=False)
class DeadSlices:
    """Slices of zeros along one axis of a weight."""

    weight: Value
    axis: str
    slices: int
    dead: int


@immutable(slots=False)
class Thinned:
    """One matrix, and how far it could be thinned out."""

    weight: Value
    energy: float
    """Sum of squares."""
    kept: tuple[Quantity, ...]
    """Shares of it that are left, in the order of the shares that are pruned; nothing where all elements are zero."""
    ready: float | None
    """Share of the groups of four neighbours, along the axis that is summed over, that hold two zeros as they are."""
    why_no_groups: str = ""

    @classmethod
    def of(cls, weight: Value, made: TensorStatistics) -> Thinned:
        """Return what the statistics of a matrix say; those of wide types count each element as the middle of a bin."""
        bits = weight.type.dtype.bits
        origin = Provenance.EXACT if bits is not None and bits <= _EXACT_BITS else Provenance.MODELLED
        kept = tuple(Quantity(one.energy, origin) for one in made.kept)
        over_second = _sums_over_second(weight)
        why = "" if over_second and made.two_of_four is not None else "its second axis is no multiple of 4"
        if not over_second:
            why = "products sum over its first axis: groups are counted along the second"
        return cls(weight, float(made.l2) ** 2, kept, made.two_of_four if over_second else None, why)

    @property
    def sparse_bytes(self) -> int | None:
        """Bytes of the matrix with two of every four elements, and where they stand."""
        type_ = self.weight.type
        bits, count = type_.dtype.bits, type_.numel
        return (count // 4 * 2 * (bits + _METADATA_BITS) + 7) // 8 if self.ready is not None and bits and isinstance(count, int) else None


@dataclass
class Pruning:
    """The answer of the pass."""

    dead: list[DeadSlices]
    thinned: list[Thinned]
    """All matrices of floats."""
    unread: dict[Value, str] = field(default_factory=dict)
    """Weights whose values are not known, with the reason."""
    weak: list[tuple[float, float, Value, int]] = field(default_factory=list)
    """The weakest channels: length as a share of the matrix's root mean square, length, weight, number."""

    @property
    def kept(self) -> tuple[Quantity, ...]:
        """Return what is left of all matrices when the same share of each is pruned; nothing where no element is other than zero."""
        known = [thinned for thinned in self.thinned if thinned.kept]
        whole = sum(one.energy for one in known)
        if not whole:
            return ()
        sums = (
            (sum(_share(cell) * one.energy for cell, one in zip(column, known, strict=True)), column)
            for column in zip(*(one.kept for one in known), strict=True)
        )
        return tuple(derived(total / whole, *column) for total, column in sums)


def _share(cell: Quantity) -> float:
    assert isinstance(cell.value, float)
    return cell.value


@dataclass(frozen=True)
class PruneReport(Analysis[Pruning]):
    """Report rows and columns of zeros, and how much energy pruned sparse matrices keep."""

    name: ClassVar[str] = "prune-report"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)
    known_of_weights: ClassVar[tuple[str, ...]] = ("dead_count", "weight_bytes", "energy_kept", "sparsity")

    threads: int = 0
    """Threads that read weights; 0: one per core."""
    weak: int = 0
    """Rows of a table of weak channels: slices along the first axis, the shortest for their matrix first. It reads matrices once more."""
    allow: tuple[str, ...] = ()
    """Further folders from which external data may be read."""

    def compute(self, graph: Graph, ctx: PassContext) -> Pruning:
        look = ctx.get(shared_look(self.wants(), ctx))
        totals = count_parameters(ctx.program)
        distinct = [weight for weight in totals.weights if weight not in totals.tied_to]
        dead = [dead_slices for weight in distinct for dead_slices in _dead_slices(weight, look)]
        thinned = [Thinned.of(weight, look.statistics[weight]) for weight in distinct if _is_looked_at(weight, look, ctx)]
        return Pruning(dead, thinned, look.unread, self._weakest([one.weight for one in thinned], ctx) if self.weak else [])

    def _weakest(self, matrices: list[Value], ctx: PassContext) -> list[tuple[float, float, Value, int]]:
        found: list[tuple[float, float, Value, int]] = []
        with open_weights(ctx, self.allow) as files:
            for weight in ctx.each(matrices, "weak channels", len(matrices)):
                lengths = lengths_of_rows(weight, files)
                usual = math.sqrt(sum(length * length for length in lengths) / len(lengths)) if lengths else 0.0
                rows = [(length / usual, length, weight, number) for number, length in enumerate(lengths)] if usual else []
                found = nsmallest(self.weak, (*found, *rows), key=lambda one: one[0])
        return found

    def wants(self) -> WeightValues:
        """Return what of the values it asks for."""
        return WeightValues(threads=self.threads, allow=self.allow)

    def report(self, result: Pruning, ctx: PassContext) -> Report:
        weights = count_parameters(ctx.program)
        unread = [weight.name or "?" for weight in result.unread]
        summary: dict[str, object] = {
            "dead_count": at_least(sum(one.dead for one in result.dead), not result.unread),
            "weight_bytes": at_least(weights.every_byte, weights.is_complete()),
        }
        if result.kept:
            summary["energy_kept"] = dict(zip(_SHARES, result.kept, strict=True))
        return Report(
            pass_name=self.name,
            options=self.text,
            summary=summary,
            units={"energy_kept": Kind.RATIO},
            tables=tuple(table for table in (_dead(result), _sparsity(result), _weak(result)) if len(table)),
            coverage=Coverage(len(weights.weights) - len(unread), len(weights.weights), tuple(unread)),
            notes=_NOTES,
            partial=bool(result.unread),
        )


def _is_looked_at(weight: Value, look: Look, ctx: PassContext) -> bool:
    return weight in look.statistics and is_matrix(weight, ctx.program)


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


def _weak(result: Pruning) -> Table:
    columns = [
        Column("name", Kind.VALUE),
        Column("channel", Kind.INDEX, help="counted along the first axis"),
        Column("length", Kind.NUMBER),
        Column("share", Kind.RATIO, help="of the root mean square of the matrix's channels"),
    ]
    rows = [(weight.name, number, length, share) for share, length, weight, number in result.weak]
    return Table.of(rows, columns, "weak channels")


def _sparsity(result: Pruning) -> Table:
    columns = [
        Column("name", Kind.VALUE),
        Column("shape", Kind.SHAPE),
        *(Column(key, Kind.RATIO) for key in _SHARES),
        Column("ready_2_4", Kind.RATIO, "2:4 ready"),
        Column("bytes_2_4", Kind.BYTES, "2:4 bytes", provenance=Provenance.MODELLED),
        Column("why", help="why there are no groups of four"),
    ]
    rows = [
        (one.weight.name, one.weight.type.shape, *(one.kept or (None,) * len(_SHARES)), one.ready, one.sparse_bytes, one.why_no_groups)
        for one in result.thinned
    ]
    return Table.of(rows, columns, "sparsity")


def _sums_over_second(weight: Value) -> bool:
    """Return whether products are summed over the second axis of a weight, as in linear layers and convolutions; else over the first."""
    value, is_second = weight, True
    while True:
        user = next((user for user in value.users or () if isinstance(user, Node)), None)
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
