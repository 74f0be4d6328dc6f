"""Parameters and buffers: what they are, what they weigh and, on request, what values they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from irscope.ir.graph import Facet, Graph, Role, Value
from irscope.ir.types import TensorType
from irscope.passes.sizes import at_least, dim_cell
from irscope.passes.weights.storages import ParameterTotals, count_parameters
from irscope.passes.weights.tables import alignment_of, alignment_table, module_table, value_columns, value_tables
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind

if TYPE_CHECKING:
    from irscope.passes.weights.values import Look

__all__ = ["ParameterReport", "ParameterTotals", "Params", "count_parameters"]

_FIRST = (
    Column("name", Kind.VALUE),
    Column("role"),
    Column("dtype", Kind.DTYPE),
    Column("shape", Kind.SHAPE),
    Column("bytes", Kind.BYTES),
)
_LAST = (
    Column("trainable", Kind.BOOL, help="whether it takes gradients, where the file says so"),
    Column("tied_to", help="the first name of the same bytes"),
    Column("overlaps", help="the first weight that lies in the same storage"),
    Column("multiple_of", Kind.COUNT, help="the largest of 128, 64, 16, 8 that divides its first two sizes"),
)


@dataclass
class ParameterReport:
    """Sizes of all weights, and what their values say where these were looked at."""

    totals: ParameterTotals
    values: Look | None = None
    trainable: dict[Value, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Params(Analysis[ParameterReport]):
    """List parameters and buffers with their sizes, and statistics of their values.

    `values` reads every weight once. `histogram` counts leading bits as well: entropy, quantiles, magnitudes. `spectral` adds the
    spectral norm by Lanczos iteration, with at most so many `iterations`. `allow` names folders besides the model's own
    in which weights may lie.
    """

    name: ClassVar[str] = "params"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)
    of_weights: ClassVar[bool] = True

    values: bool = False
    """Whether values are read, for statistics of each tensor."""
    histogram: bool = True
    """Whether leading bits are counted too: entropy, quantiles, histogram of magnitudes."""
    near_zero: float = 1e-6
    """Magnitudes below this count as near zero."""
    spectral: bool = False
    """Whether the spectral norm of each matrix is computed."""
    iterations: int = 100
    """Maximum number of iterations for a spectral norm."""
    depth: int = 2
    """Levels of modules in the table by module."""
    threads: int = 0
    """Threads that read weights; 0: one per core."""
    allow: tuple[str, ...] = ()
    """Further folders from which external data may be read."""

    def compute(self, graph: Graph, ctx: PassContext) -> ParameterReport:
        result = ParameterReport(count_parameters(ctx.program))
        for body in ctx.program.bodies():
            result.trainable.update(body.trainable)
        if self.values:
            from irscope.passes.weights.values import WeightValues

            wanted = WeightValues(self.histogram, self.near_zero, self.spectral, self.iterations, self.threads, self.allow)
            result.values = ctx.get(wanted)
        return result

    def report(self, result: ParameterReport, ctx: PassContext) -> Report:
        totals, look = result.totals, result.values
        weights = [weight for weight in totals.weights if isinstance(weight.type, TensorType)]
        rows = [self._row(weight, weight.type, result) for weight in weights if isinstance(weight.type, TensorType)]
        first, last = ([row[: len(_FIRST)] for row in rows], [row[len(_FIRST) :] for row in rows])
        extra = value_columns(weights, look, self.spectral) if look is not None else []
        cells = [*_columns(_FIRST, first), *extra, *_columns(_LAST, last)]
        table = Table("parameters", tuple(column for column, _ in cells), {column.key: held for column, held in cells})
        tables = [table, module_table(totals, self.depth), alignment_table(weights)]
        summary: dict[str, object] = {
            "count": at_least(totals.count, totals.is_complete(Role.PARAMETER)),
            "bytes": at_least(totals.bytes, totals.is_complete(Role.PARAMETER)),
            "buffer_bytes": at_least(totals.buffer_bytes, totals.is_complete(Role.BUFFER)),
            "constant_bytes": at_least(totals.constant_bytes, totals.is_complete(Role.CONSTANT)),
            "tied_bytes_saved": at_least(totals.tied_bytes_saved, totals.is_complete()),
        }
        known, unknown = len(totals.weights) - len(totals.unsized), [weight.name or "?" for weight in totals.unsized]
        notes: tuple[str, ...] = ()
        if look is not None:
            known = len(look.statistics)
            unknown = [weight.name or "?" for weight in look.unread]
            further, more, notes = value_tables(look)
            summary.update(further)
            tables += more
        return Report(
            pass_name=self.name,
            options=self.text,
            summary=summary,
            units={"bytes": Kind.BYTES, "tied_bytes_saved": Kind.BYTES},
            tables=tuple(tables),
            coverage=Coverage(known, len(totals.weights), tuple(unknown)),
            notes=notes,
            partial=look is not None and bool(look.unread),
        )

    def _row(self, weight: Value, type_: TensorType, result: ParameterReport) -> tuple[object, ...]:
        totals = result.totals
        tied, shared = totals.tied_to.get(weight), totals.overlaps.get(weight)
        return (
            weight.name,
            weight.role.value,
            type_.dtype.text,
            type_.shape,
            dim_cell(type_.nbytes),
            result.trainable.get(weight),
            tied.name if tied else "",
            shared.name if shared else "",
            alignment_of(type_),
        )


def _columns(columns: Sequence[Column], rows: Sequence[tuple[object, ...]]) -> list[tuple[Column, list[object]]]:
    return [(column, [row[place] for row in rows]) for place, column in enumerate(columns)]
