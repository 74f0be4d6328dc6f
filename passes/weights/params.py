"""Parameters and buffers: what they are, what they weigh and, on request, what values they hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from irscope.immutable import mutable
from irscope.ir.dims import Dim, SymDim, int_or_zero, round_up
from irscope.ir.dtypes import DType
from irscope.ir.graph import Facet, Graph, Role, Value
from irscope.ir.types import TensorType, Type
from irscope.passes.sizes import at_least, dim_cell, known_share, share_of, within
from irscope.passes.weights.described import described
from irscope.passes.weights.storages import ParameterTotals, count_parameters
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

if TYPE_CHECKING:
    from irscope.passes.weights.values import Look, WeightValues
    from irscope.weights.result import Quantile, Spectrum, TensorStatistics


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


@mutable
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
        wanted = self.wants()
        if wanted is not None:
            from irscope.passes.weights.values import shared_look

            result.values = ctx.get(shared_look(wanted, ctx))
        return result

    def wants(self) -> WeightValues | None:
        """Return what of the values it asks for."""
        if not self.values:
            return None
        from irscope.passes.weights.values import WeightValues

        return WeightValues(self.histogram, self.near_zero, self.spectral, self.iterations, self.threads, self.allow, is_shown=True)

    def report(self, result: ParameterReport, ctx: PassContext) -> Report:
        totals, look = result.totals, result.values
        weights = [weight for weight in totals.weights if isinstance(weight.type, TensorType)]
        rows = [self._row(weight, weight.type, result) for weight in weights if isinstance(weight.type, TensorType)]
        first, last = ([row[: len(_FIRST)] for row in rows], [row[len(_FIRST) :] for row in rows])
        extra = value_columns(weights, look, self.spectral) if look is not None else []
        cells = [*_columns(_FIRST, first), *extra, *_columns(_LAST, last)]
        table = Table("parameters", tuple(column for column, _ in cells), {column.key: held for column, held in cells})
        tables = [*_type_tables(totals), table, *_packed_tables(totals), module_table(totals, self.depth)]
        summary: dict[str, object] = {
            "count": totals.count_cell,
            "bytes": totals.bytes_cell,
            "buffer_bytes": at_least(totals.buffer_bytes, totals.is_complete(Role.BUFFER)),
            "constant_bytes": at_least(totals.constant_bytes, totals.is_complete(Role.CONSTANT)),
            "tied_bytes_saved": at_least(totals.tied_bytes_saved, totals.is_complete()),
        }
        if totals.bits_each is not None:
            summary["bits_each"] = totals.bits_each
        told = described(ctx.program.metadata)
        if told is not None:
            tables.insert(0, told.table())
            summary["architecture"] = told.architecture
            summary["kv_cache_bytes_per_token"], summary["kv_cache_bytes_at_context"] = told.cache, told.cache_at_context
        known, unknown = len(totals.weights) - len(totals.unsized), [weight.name or "?" for weight in totals.unsized]
        notes: tuple[str, ...] = ()
        if look is not None:
            known = len(look.statistics)
            unknown = [weight.name or "?" for weight in look.unread]
            further, more, notes = value_tables(look)
            summary.update(further)
            tables += more
        tables.append(alignment_table(weight for weight in weights if weight not in totals.packed))
        if told is not None and told.why:
            notes = (*notes, f"the cache of keys and values is not known: {told.why}")
        return Report(
            pass_name=self.name,
            options=self.text,
            summary=summary,
            units={
                "bytes": Kind.BYTES,
                "tied_bytes_saved": Kind.BYTES,
                "bits_each": Kind.NUMBER,
                **(_CACHE_UNITS if told is not None else {}),
            },
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


# Tables about weights: statistics of values, shares of modules, sizes that are no multiple of what hardware likes.

MULTIPLES = (8, 16, 64, 128)
_DEEPEST = 1000
_CACHE_UNITS = {"kv_cache_bytes_per_token": Kind.BYTES, "kv_cache_bytes_at_context": Kind.BYTES}
_SEPARATOR = re.compile(r"(?<=[^./])[./]")

_STATISTICS = (
    Column("mean", Kind.NUMBER),
    Column("std", Kind.NUMBER, help="standard deviation over all finite elements"),
    Column("min", Kind.NUMBER),
    Column("max", Kind.NUMBER),
    Column("absmax", Kind.NUMBER),
    Column("l1", Kind.NUMBER),
    Column("l2", Kind.NUMBER),
    Column("skewness", Kind.NUMBER),
    Column("kurtosis", Kind.NUMBER, help="3 for a normal distribution"),
    Column("zeros", Kind.COUNT),
    Column("sparsity", Kind.RATIO, help="share of elements that are zero"),
    Column("near_zeros", Kind.COUNT, help="magnitudes below the option near_zero, zeros included"),
    Column("nan", Kind.COUNT),
    Column("inf", Kind.COUNT),
    Column("outliers", Kind.COUNT, help="more than 6 standard deviations from the mean"),
    Column("entropy", Kind.NUMBER, help="bits an element; of its leading 16 bits for types that have more"),
    Column("q01", Kind.NUMBER),
    Column("median", Kind.NUMBER),
    Column("q99", Kind.NUMBER),
    Column("dead_rows", Kind.COUNT, help="slices along the first axis that hold only zeros"),
    Column("dead_columns", Kind.COUNT, help="slices along the second axis that hold only zeros"),
    Column("two_of_four", Kind.RATIO, help="groups of four along the second axis with at least two zeros"),
)
_SPECTRAL = (
    Column("spectral_norm", Kind.NUMBER, provenance=Provenance.MODELLED, help="largest singular value, by Lanczos iteration"),
    Column("residual", Kind.NUMBER, help="how far the iteration was from a singular value, relative"),
    Column("stable_rank", Kind.NUMBER, provenance=Provenance.MODELLED, help="squared L2 norm over squared spectral norm"),
)
_NOTES = (
    "statistics are over finite elements; std divides by their number; kurtosis is 3 for a normal distribution",
    "~ marks quantiles known to 8 significant bits, from counts of leading bits",
)


def value_columns(weights: Sequence[Value], look: Look, spectral: bool) -> list[tuple[Column, list[object]]]:
    """Return the columns of statistics for these weights, empty cells where values are not known."""
    known = [look.statistics.get(weight) for weight in weights]
    made = _statistics_columns(known, spectral)
    problems: list[object] = [look.unread.get(weight, "") for weight in weights]
    if any(problems):
        made.append((Column("problem", help="why its values are not known"), problems))
    return made


def _statistics_columns(known: Sequence[TensorStatistics | None], spectral: bool) -> list[tuple[Column, list[object]]]:
    columns = (*_STATISTICS, *(_SPECTRAL if spectral else ()))
    rows = [[None] * len(columns) if made is None else _statistics_cells(made, spectral) for made in known]
    return [(column, [row[place] for row in rows]) for place, column in enumerate(columns)]


def _statistics_cells(made: TensorStatistics, spectral: bool) -> list[object]:
    quantiles = [*map(_quantile, made.quantiles)] or [None] * 3
    cells: list[object] = [
        made.mean, made.std, made.min, made.max, made.absmax, made.l1, made.l2, made.skewness, made.kurtosis, made.zeros,
        made.zeros / made.count if made.count else None,
        made.near_zeros, made.nan, made.inf, made.outliers, made.entropy, *quantiles, made.dead_rows, made.dead_columns, made.two_of_four,
    ]  # fmt: skip
    if spectral:
        spectrum = made.spectrum
        cells += [None] * 3 if spectrum is None else [*_spectrum(spectrum, made.l2)]
    return cells


def _spectrum(spectrum: Spectrum, l2: float | None) -> Iterator[object]:
    """Norm, residual and stable rank; the norm is |Av| of a unit vector, so it is at least that."""
    yield Quantity(spectrum.norm, Provenance.MODELLED, lo=spectrum.norm, hi=spectrum.high)
    yield spectrum.residual
    low = (l2 / spectrum.high) ** 2 if l2 is not None and spectrum.high else spectrum.stable_rank
    yield Quantity(spectrum.stable_rank, Provenance.MODELLED, lo=min(low, spectrum.stable_rank), hi=spectrum.stable_rank)


def _quantile(quantile: Quantile) -> object:
    if quantile.low == quantile.high:
        return quantile.value
    return Quantity(quantile.value, Provenance.MODELLED, lo=quantile.low, hi=quantile.high)


def value_tables(look: Look) -> tuple[dict[str, object], list[Table], tuple[str, ...]]:
    """Return what values add to a summary, further tables about them, and the conventions they follow."""
    several = list(dict.fromkeys(map(id, look.statistics.values())))
    distinct = {id(made): made for made in look.statistics.values()}
    counted = [distinct[key] for key in several]
    saved = [(group, int_or_zero(group[0].type.nbytes)) for group in look.duplicates]
    complete = not look.unread
    zeros, elements = sum(made.zeros for made in counted), sum(made.count for made in counted)
    summary: dict[str, object] = {
        "read_bytes": look.bytes_read,
        "zero_count": at_least(zeros, complete),
        "sparsity_ratio": known_share(zeros / elements if elements else None, complete),
        "nan_count": at_least(sum(made.nan for made in counted), complete),
        "inf_count": at_least(sum(made.inf for made in counted), complete),
        "unread_count": len(look.unread),
        "duplicate_bytes": at_least(sum(size * (len(group) - 1) for group, size in saved), complete),
    }
    tables: list[Table] = []
    if look.logical:
        tables.append(_dequantized(look))
    if look.duplicates:
        rows = [
            (group[0].name, ", ".join(str(value.name) for value in group[1:]), len(group), size, size * (len(group) - 1), constant)
            for group, size in saved
            for constant in (look.statistics[group[0]].is_constant,)
        ]
        columns = ["first:value", "equal_to:text", "tensors:count", "bytes", "saved_bytes:bytes", "constant:bool"]
        tables.append(Table.of(rows, columns, "duplicates"))
    octaves = [
        (weight.name, octave.low, octave.negative, octave.positive) for weight, made in look.statistics.items() for octave in made.octaves
    ]
    if octaves:
        tables.append(Table.of(octaves, ["name:value", "magnitude:number", "negative:count", "positive:count"], "histogram"))
        tables.append(_even_table(look))
    return summary, tables, _NOTES


def _even_table(look: Look) -> Table:
    """Histograms of bins of equal width."""
    rows = [
        (weight.name, (even.first + place) * even.width, even.width, count)
        for weight, made in look.statistics.items()
        if (even := made.even) is not None
        for place, count in enumerate(even.counts)
    ]
    return Table.of(rows, ["name:value", "from:number", "width:number", "count"], "histogram of equal widths")


def _dequantized(look: Look) -> Table:
    """Statistics of the numbers that quantized weights stand for."""
    from irscope.weights.result import TensorStatistics

    known = [made if isinstance(made, TensorStatistics) else None for _, made in look.logical]
    columns: list[tuple[Column, list[object]]] = [
        (Column("name", Kind.VALUE), [one.weight.name for one, _ in look.logical]),
        (Column("used_by", Kind.NODE), [one.node.name for one, _ in look.logical]),
        (Column("scheme"), [one.scheme for one, _ in look.logical]),
        (Column("count", Kind.COUNT), [made.count if made is not None else None for made in known]),
        *_statistics_columns(known, False),
    ]
    problems: list[object] = ["" if isinstance(made, TensorStatistics) else made.reason for _, made in look.logical]
    if any(problems):
        columns.append((Column("problem"), problems))
    return Table("dequantized", tuple(column for column, _ in columns), {column.key: cells for column, cells in columns})


def _packed_tables(totals: ParameterTotals) -> Iterator[Table]:
    """Yield how many parameters are stored in few bits, and what they take with all that lies beside them."""
    found: dict[str, list[int]] = {}
    for weight, part in totals.packed.items():
        size = totals.own[weight][1] if weight in totals.own else 0
        sums = found.setdefault(part.scheme, [0, 0, 0])
        for place, number in enumerate((bool(part.parameters), part.parameters, int_or_zero(size))):
            sums[place] += number
    rows = [(scheme, *sums, 8 * sums[2] / sums[1] if sums[1] else None) for scheme, sums in found.items()]
    if rows:
        yield Table.of(rows, ["scheme:text", "weights:count", "parameters:count", "bytes", "bits_each:number"], "quantised")


def _type_tables(totals: ParameterTotals) -> Iterator[Table]:
    """Yield the weights by element type with the bits that each takes, scales included, where some are stored by blocks."""
    found: dict[DType, list[int]] = {}
    for weight in totals.weights:
        numel, size = weight.type.numel, weight.type.nbytes
        if weight not in totals.tied_to and isinstance(numel, int) and isinstance(size, int):
            share = found.setdefault(weight.type.dtype, [0, 0, 0])
            for place, amount in enumerate((1, numel, size)):
                share[place] += amount
    if not any(dtype.block for dtype in found):
        return
    everything = [sum(amounts) for amounts in zip(*found.values(), strict=True)]
    shares = sorted(((one.text, held) for one, held in found.items()), key=lambda pair: -pair[1][2])
    rows = [
        (name, *amounts, 8 * amounts[2] / amounts[1] if amounts[1] else None, share_of(amounts[2], everything[2]))
        for name, amounts in [*shares, ("(all)", everything)]
    ]
    yield Table.of(rows, ["dtype", "tensors:count", "elements:count", "bytes", "bits_each:number", "share:ratio"], "types")


def module_table(totals: ParameterTotals, depth: int) -> Table:
    """Return the parameters and bytes by module, each storage once, down to so many levels."""
    shares: dict[str, list[Dim]] = {"": [0, 0, 0]}
    partial: set[str] = set()
    for weight in totals.weights:
        if weight in totals.tied_to:
            continue
        part = totals.packed.get(weight)
        numel = weight.type.numel if part is None else part.parameters
        size = weight.type.nbytes
        name = weight.name or ""
        for module in ("", *(name[: cut.start()] for cut in islice(_SEPARATOR.finditer(name), min(max(depth, 0), _DEEPEST)))):
            share = shares.setdefault(module, [0, 0, 0])
            if numel is None or size is None:
                partial.add(module)
            for place, amount in enumerate((1, 0 if numel is None else numel, 0 if size is None else size)):
                share[place] = share[place] + amount
    whole = None if partial else shares[""][2]
    rows = [
        (name or "(model)", tensors, at_least(elements, name not in partial), at_least(size, name not in partial), share_of(size, whole))
        for name, (tensors, elements, size) in shares.items()
    ]
    return Table.of(rows, ["module:text", "tensors:count", "elements:count", "bytes", "share:ratio"], "modules")


def alignment_of(type_: Type) -> int | None:
    """Return the largest of 128, 64, 16, 8 (else 1) that divides the first two sizes: those of a matrix, the channels of a convolution."""
    sizes = None if type_.shape is None else type_.shape[:2]
    if sizes is None or any(isinstance(size, SymDim) for size in sizes):
        return None
    fits = (multiple for multiple in reversed(MULTIPLES) if not any(int(size) % multiple for size in sizes if isinstance(size, int)))
    return next(fits, 1) if sizes else 1


def alignment_table(weights: Iterable[Value]) -> Table:
    """Return how many matrices have sizes that are multiples of 8, 16, 64, 128, and what filling up the others would take."""
    weights = list(weights)
    open_ended = sum(isinstance(weight.type, TensorType) and _may_be_matrix(weight.type) for weight in weights)
    matrices = [
        (weight, weight.type.dtype.bits or 8, sizes)
        for weight in weights
        if (sizes := _matrix(weight.type)) and int_or_zero(weight.type.nbytes) and weight.type.dtype.block is None
    ]
    rows = []
    for multiple in MULTIPLES:
        aligned = waste = held = 0
        for weight, bits, (rows_, columns) in matrices:
            size = int_or_zero(weight.type.nbytes)
            # Elements behind the matrix, such as those of a kernel, and their bits follow from the size as it is.
            inner = size * 8 // bits // (rows_ * columns)
            padded = (round_up(rows_, multiple) * round_up(columns, multiple) * inner * bits + 7) // 8
            aligned += rows_ % multiple == 0 and columns % multiple == 0
            waste += padded - size
            held += size
        counts = (within(count, open_ended) for count in (aligned, len(matrices) - aligned))
        rows.append((multiple, *counts, at_least(waste, not open_ended), waste / held if held and not open_ended else None))
    columns_ = ["multiple_of:count", "aligned:count", "not_aligned:count", "padding_bytes:bytes", "padding:ratio"]
    return Table.of(rows, columns_, "alignment")


def _matrix(type_: Type) -> tuple[int, int] | None:
    shape = type_.shape
    if shape is None or len(shape) < 2 or isinstance(shape[0], SymDim) or isinstance(shape[1], SymDim):
        return None
    return (shape[0], shape[1]) if shape[0] and shape[1] else None


def _may_be_matrix(type_: Type) -> bool:
    """Return whether it may be a matrix whose sizes are not numbers."""
    shape = type_.shape
    return shape is None or (len(shape) >= 2 and any(isinstance(size, SymDim) for size in shape))
