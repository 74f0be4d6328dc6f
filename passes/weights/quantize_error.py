"""Weight error of quantization: what rounding to few bits does to each matrix. No activations are seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from irscope.immutable import immutable
from irscope.ir.dims import int_or_zero
from irscope.ir.graph import Facet, Graph, Value
from irscope.passes.sizes import at_least, within
from irscope.passes.weights.storages import is_matrix
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind

if TYPE_CHECKING:
    from irscope.passes.weights.values import Look, WeightValues
    from irscope.weights.losses import Noise
    from irscope.weights.tensors import Stored

_MISSING = "IRS440"
_FORMATS = ("int8", "fp8_e4m3", "fp8_e5m2", "int4", "nf4", "mxfp4")
_NOTES = (
    "weight error: 10 log10(sum of squares of the weights / sum of squares of their rounding errors); no activations were seen",
    "integers are symmetric around zero; scales come from the largest magnitude of the tensor, of a slice along the first axis (channel), "
    "or of a group of neighbours in it; a scale is counted with 16 bits, of mxfp4 with 8",
)

Format = Literal["int8", "fp8_e4m3", "fp8_e5m2", "int4", "nf4", "mxfp4"]


@immutable
class TensorError:
    """Signal to noise of one matrix in dB by format and granularity, such as int4_g128, and the smallest that reaches the target."""

    weight: Value
    count: int
    decibels: dict[str, float]
    smallest: str
    bits: float | None
    """Bits an element takes in the smallest format, its share of the scales included."""

    @property
    def bytes(self) -> int | None:
        return None if self.bits is None else math.ceil(self.count * self.bits / 8)


@dataclass
class WeightErrors:
    """Errors of all matrices of floats."""

    tensors: list[TensorError] = field(default_factory=list)
    unread: dict[Value, str] = field(default_factory=dict)
    skipped: int = 0
    """Weights that are no matrices of floats: they are usually left as they are."""


@dataclass(frozen=True)
class QuantizeError(Analysis[WeightErrors]):
    """Compute the error of quantizing each matrix to 8 or 4 bits, and the smallest format that reaches a target in dB."""

    name: ClassVar[str] = "quantize-error"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)
    of_weights: ClassVar[bool] = True

    target: float = 30.0
    """Signal-to-noise ratio in dB that a matrix must reach."""
    formats: tuple[Format, ...] = _FORMATS  # type: ignore[assignment]  # the same names
    """Formats that are tried."""
    threads: int = 0
    """Threads that read weights; 0: one per core."""
    allow: tuple[str, ...] = ()
    """Further folders from which external data may be read."""

    def compute(self, graph: Graph, ctx: PassContext) -> WeightErrors:
        from irscope.passes.weights.values import shared_look
        from irscope.weights.source import Unreadable

        look: Look = ctx.get(shared_look(self.wants(), ctx))
        result = WeightErrors()
        seen: set[int] = set()
        for weight in ctx.program.weights():
            if not is_matrix(weight, ctx.program) or id(look.statistics.get(weight)) in seen:
                result.skipped += 1
                continue
            try:
                if weight in look.unread:
                    raise Unreadable(look.unread[weight])
                rounded = look.rounding[weight]
                if isinstance(rounded, str):
                    raise Unreadable(rounded)
                result.tensors.append(self._judge(weight, *rounded))
                seen.add(id(look.statistics[weight]))
            except Unreadable as problem:
                result.unread[weight] = str(problem)
        for weight, reason in result.unread.items():
            ctx.sink.warn(_MISSING, f"the values of {weight.name!r} are not known: {reason}", about=reason)
        return result

    def wants(self) -> WeightValues:
        """Return what of the values it asks for."""
        from irscope.passes.weights.values import WeightValues

        return WeightValues(histogram=False, threads=self.threads, allow=self.allow, rounding=True)

    def _judge(self, weight: Value, tensor: Stored, noise: Noise) -> TensorError:
        from irscope.weights.losses import CHOICES

        assert tensor.axes is not None
        decibels = noise.decibels()
        sizes = {
            choice.key: choice.format.stored_bits(choice.granularity, tensor.axes.row, tensor.count)
            for choice in CHOICES
            if choice.format.name in self.formats
        }
        reached = [(bits, key) for key, bits in sizes.items() if decibels[key] >= self.target]
        bits, key = min(reached, default=(None, ""))
        return TensorError(weight, tensor.count, {name: decibels[name] for name in sizes}, key, bits)

    def report(self, result: WeightErrors, ctx: PassContext) -> Report:
        from irscope.weights.losses import CHOICES

        keys = [choice.key for choice in CHOICES if choice.format.name in self.formats]
        columns = [
            Column("name", Kind.VALUE),
            Column("dtype", Kind.DTYPE),
            Column("shape", Kind.SHAPE),
            Column("bytes", Kind.BYTES),
            Column("smallest", help=f"the format of fewest bits with at least {self.target:g} dB"),
            Column("smallest_bits", Kind.NUMBER, help="bits an element, scales included"),
            Column("smallest_bytes", Kind.BYTES),
            *(Column(key, Kind.NUMBER, help="dB") for key in keys),
        ]
        rows = [(*_head(one), *(one.decibels[key] for key in keys)) for one in result.tensors]
        before = sum(int_or_zero(one.weight.type.nbytes) for one in result.tensors)
        after = sum(
            int_or_zero(one.weight.type.nbytes) if one.bytes is None else min(one.bytes, int_or_zero(one.weight.type.nbytes))
            for one in result.tensors
        )
        known, complete = len(result.tensors), not result.unread
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "target_db": self.target,
                "matrices_count": within(known, len(result.unread)),
                "reached_count": at_least(sum(bool(one.smallest) for one in result.tensors), complete),
                "bytes": at_least(before, complete),
                "smallest_bytes": at_least(after, complete),
            },
            units={"bytes": Kind.BYTES},
            tables=(Table.of(rows, columns, "weight error"),),
            coverage=Coverage(known, known + len(result.unread), tuple(weight.name or "?" for weight in result.unread)),
            notes=_NOTES,
            partial=bool(result.unread),
        )


def _head(one: TensorError) -> tuple[object, ...]:
    type_ = one.weight.type
    return one.weight.name, type_.dtype.text, type_.shape, int_or_zero(one.weight.type.nbytes), one.smallest, one.bits, one.bytes
