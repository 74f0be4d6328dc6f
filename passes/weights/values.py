"""The values of all weights, read once for `params`, `prune-report` and `advise`, and what rounding to few bits does to each matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from irscope.immutable import immutable
from irscope.ir.dims import int_or_zero
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Facet, Graph, Node, Role, Value
from irscope.ir.program import Program
from irscope.ops.facts import CodedOperand, Packing
from irscope.ops.registry import spec_of
from irscope.passes.sizes import at_least, within
from irscope.passes.weights.storages import count_parameters, is_matrix
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.weights.losses import FORMAT_NAMES, FormatName, Noise, in_rows, measured_noise
from irscope.weights.result import TensorStatistics, Unread
from irscope.weights.scan import Options, Tick, duplicates, hold, lots, pays_to_compile, scan, spectra
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import Array, Quantized, Stored, checked, decode_elements, read_all, stored_tensor

MISSING = "IRS440"
NOT_FINITE = "IRS441"

__all__ = ["MISSING", "NOT_FINITE", "Look", "WeightValues", "open_weights"]


@dataclass
class Look:
    """Statistics of the values of a model's weights."""

    statistics: dict[Value, TensorStatistics] = field(default_factory=dict)
    """Of every weight whose values could be read; tied names share one object."""
    unread: dict[Value, str] = field(default_factory=dict)
    """Why the values of the others are not known."""
    duplicates: list[list[Value]] = field(default_factory=list)
    """Groups of weights with equal contents in different places."""
    logical: list[tuple[Logical, TensorStatistics | Unread]] = field(default_factory=list)
    """Quantized weights with statistics of the numbers that they stand for."""
    rounding: dict[Value, tuple[Stored, Noise] | str] = field(default_factory=dict)
    """Errors of matrices, or why there are none, where they were asked for."""
    bytes_read: int = 0


@dataclass(frozen=True)
class WeightValues(Analysis[Look]):
    """Read all weights once and compute statistics of their values."""

    name: ClassVar[str] = "weight-values"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)
    of_weights: ClassVar[bool] = True

    histogram: bool = True
    near_zero: float = 1e-6
    spectral: bool = False
    iterations: int = 100
    threads: int = 0
    allow: tuple[str, ...] = ()
    rounding: bool = False
    """Whether matrices are rounded as well."""
    is_shown: bool = False
    """Whether the statistics themselves are shown, so that they must be these."""

    def compute(self, graph: Graph, ctx: PassContext) -> Look:
        totals = count_parameters(ctx.program)
        look = Look()
        with open_weights(ctx, self.allow) as files:
            weights = [weight for weight in totals.weights if weight not in totals.tied_to]
            tensors = [_stored(weight, files) for weight in weights]
            logical = logical_weights(ctx.program, files)
            every = [*tensors, *(logical.tensor for logical in logical)]
            options = Options(self.histogram, self.near_zero, self.threads)
            if self.rounding:
                places = {weight: place for place, weight in enumerate(weights)}
                near = [*range(len(tensors)), *(places.get(logical.weight, len(tensors)) for logical in logical)]
                found = self._in_lots(every, near, options, files, weights, look, ctx)
            else:
                found = scan(every, files, options, ctx.tick)
                if self.spectral:
                    spectra(every, found, files, self.iterations, options, ctx.tick)
            groups = duplicates(tensors, found[: len(tensors)], files, ctx.tick)
        for weight, made in zip(weights, found, strict=False):
            if isinstance(made, Unread):
                look.unread[weight] = made.reason
            else:
                look.statistics[weight] = made
        for weight, first in totals.tied_to.items():
            if first in look.statistics:
                look.statistics[weight] = look.statistics[first]
            else:
                look.unread[weight] = look.unread[first]
            if first in look.rounding:
                look.rounding[weight] = look.rounding[first]
        look.duplicates = [[weights[index] for index in group] for group in groups]
        look.logical = list(zip(logical, found[len(tensors) :], strict=True))
        look.bytes_read = sum(tensor.bytes for tensor in tensors if isinstance(tensor, Stored))
        _warn(look, ctx)
        return look

    def _in_lots(
        self,
        every: Sequence[Stored | Unread],
        near: Sequence[int],
        options: Options,
        files: WeightFiles,
        weights: Sequence[Value],
        look: Look,
        ctx: PassContext,
    ) -> list[TensorStatistics | Unread]:
        """Look several times at tensors that are held in memory, so that each is read once; `near` says which of them share bytes.

        A tensor that is larger than a lot is read again for each look; then it mostly lies in the system's own cache.
        """
        order = sorted(range(len(every)), key=lambda index: near[index])
        found: list[TensorStatistics | Unread] = [Unread("")] * len(every)
        compiled = pays_to_compile(every)
        progress = _Progress(ctx.tick, sum(one.bytes for one in every if isinstance(one, Stored)))
        for places in lots([every[index] for index in order], MOST_HELD):
            lot = [order[place] for place in places]
            tensors = [every[index] for index in lot]
            progress.begin(sum(tensor.bytes for tensor in tensors if isinstance(tensor, Stored)), looks=4 if self.spectral else 3)
            hold(tensors, files, self.threads, MOST_HELD, progress.tick)
            made = scan(tensors, files, options, progress.next, compiled)
            if self.spectral:
                spectra(tensors, made, files, self.iterations, options, progress.next)
            jobs: list[tuple[Value, Stored, float]] = []
            for index, tensor, statistics in zip(lot, tensors, made, strict=True):
                found[index] = statistics
                if index < len(weights) and isinstance(tensor, Stored) and isinstance(statistics, TensorStatistics):
                    try:
                        if is_matrix(weights[index], ctx.program):
                            jobs.append((weights[index], in_rows(tensor), statistics.absmax or 0.0))
                    except Unreadable as problem:
                        look.rounding[weights[index]] = str(problem)
            noises = measured_noise([(tensor, most) for _, tensor, most in jobs], files, self.threads, progress.next)
            for (weight, tensor, _), noise in zip(jobs, noises, strict=True):
                look.rounding[weight] = noise if isinstance(noise, str) else (tensor, noise)
        files.hold(())
        return found

    def report(self, result: Look, ctx: PassContext) -> Report:
        return Report(self.name, self.text, {"read_bytes": result.bytes_read, "unread_count": len(result.unread)})


MOST_HELD = 1 << 28
"""Bytes of weights that are held in memory where several looks are taken at them."""


class _Progress:
    """Progress of several looks at each of several lots, as one number."""

    def __init__(self, tell: Tick, total: int) -> None:
        self._tell = tell
        self._total = max(total, 1)
        self._before = self._size = self._look = 0
        self._looks = 1

    def begin(self, size: int, looks: int) -> None:
        """Begin another lot."""
        self._before += self._size
        self._size, self._looks, self._look = size, looks, 0

    @property
    def next(self) -> Tick:
        """Return what tells about the next look at the lot."""
        self._look += 1
        return self.tick

    def tick(self, done: int, total: int, what: str) -> None:
        """So much of a look is done; raises to cancel."""
        part = (self._look + done / total if total else self._look) / self._looks
        self._tell(self._before + int(self._size * min(part, 1.0)), self._total, what)


@runtime_checkable
class LooksAtValues(Protocol):
    """A pass that asks for statistics of values."""

    def wants(self) -> WeightValues | None:
        """Return what of the values it asks for; None where it does not look."""
        ...


def shared_look(own: WeightValues, ctx: PassContext) -> WeightValues:
    """Return what a pass asks for, together with what other passes of the run ask for, so that all is read once."""
    planned = [wanted for one in ctx.planned if isinstance(one, LooksAtValues) and (wanted := one.wants()) is not None]
    planned = [wanted for wanted in planned if wanted.allow == own.allow]
    first = next((wanted for wanted in planned if wanted.is_shown), planned[0] if planned else own)
    if own.is_shown and own != first:
        return own
    return replace(first, rounding=own.rounding or any(wanted.rounding for wanted in planned))


def open_weights(ctx: PassContext, allow: tuple[str, ...] = ()) -> WeightFiles:
    """Return the files that a program's weights lie in."""
    return WeightFiles(ctx.program.path, allow)


def _stored(weight: Value, files: WeightFiles) -> Stored | Unread:
    try:
        return stored_tensor(weight, files)
    except Unreadable as problem:
        return Unread(str(problem))


def _warn(look: Look, ctx: PassContext) -> None:
    for weight, reason in look.unread.items():
        ctx.sink.warn(MISSING, f"the values of {weight.name!r} are not known: {reason}", about=reason)
    for weight, made in look.statistics.items():
        if made.nan or made.inf:
            what = " and ".join(f"{count:,} {text}" for count, text in ((made.nan, "NaN"), (made.inf, "infinite")) if count)
            ctx.sink.warn(NOT_FINITE, f"{weight.name!r} has {what} of {made.count:,} elements", about=str(weight.name))


# Finds quantized weights: codes that a node of the graph shifts and scales.

_DECLARED = (Role.PARAMETER, Role.BUFFER, Role.CONSTANT)
_FEW_BITS = {2: DType.U2, 4: DType.U4, 8: DType.U8}


@immutable(slots=False)
class Logical:
    """A quantized weight with the node that gives it its meaning."""

    weight: Value
    node: Node
    scheme: str
    tensor: Stored | Unread


def logical_weights(program: Program, files: WeightFiles) -> list[Logical]:
    """Return every quantized weight once, in the order of the nodes that use them."""
    found: dict[Value, Logical] = {}
    for body in program.bodies():
        for node in body:
            weight = _quantized_operand(node)
            if weight is None or weight in found:
                continue
            try:
                quantized = _quantized(node, weight, files)
                found[weight] = Logical(weight, node, _scheme(quantized), quantized.stored(files))
            except Unreadable as problem:
                found[weight] = Logical(weight, node, "", Unread(str(problem)))
    return list(found.values())


def _quantized_operand(node: Node) -> Value | None:
    """Return the weight that a node takes as codes."""
    codes = _codes(node)
    value = node.inputs[codes.weight] if codes is not None and codes.weight < len(node.inputs) else None
    return value if value is not None and value.role in _DECLARED else None


def _codes(node: Node) -> CodedOperand | None:
    spec = spec_of(node)
    return None if spec is None else spec.codes


def _scheme(quantized: Quantized) -> str:
    if quantized.scale.size == 1:
        return f"{quantized.codes}, one scale"
    return f"{quantized.codes}, blocks of {quantized.block}" if quantized.block else f"{quantized.codes}, axis {quantized.axis}"


def _quantized(node: Node, weight: Value, files: WeightFiles) -> Quantized:
    coded = _codes(node)
    assert coded is not None
    if coded.packing is Packing.ROWS:
        return _rows_of_blocks(node, coded, weight, files)
    if coded.packing is Packing.BLOCKS:
        return _gathered_blocks(node, coded, weight, files)
    axis = 0 if node.attrs.get("trans_b") else coded.axis
    codes = stored_tensor(weight, files)
    block = _integer_attr(node.attrs, "block_size", 0)
    axis = _integer_attr(node.attrs, "axis", 1) if axis is None else axis
    scale, zero = _operand_values(node, coded.scale, files, "scale_value"), _operand_values(node, coded.zero, files)
    if scale is None:
        raise Unreadable("its scale is computed, or not in the file")
    shape = _static_sizes(weight)
    if block and scale.ndim != len(shape):
        block = 0
    if not block and scale.ndim == len(shape) and scale.ndim > 1 and scale.size > 1:
        along = axis % len(shape)
        block = -(-shape[along] // scale.shape[along])
    return checked(shape, codes.dtype, codes.source, scale, zero, axis, block)


def _rows_of_blocks(node: Node, coded: CodedOperand, weight: Value, files: WeightFiles) -> Quantized:
    """Return the rows of blocks, the first code in the lowest bits; without zero points the middle of the range stands for zero."""
    rows, inner = _integer_attr(node.attrs, "n", 0), _integer_attr(node.attrs, "k", 0)
    bits, block = _integer_attr(node.attrs, "bits", 4), _integer_attr(node.attrs, "block_size", 32)
    if node.source.endswith(("MatMulBnb4", "MatMulFpQ4")):
        raise Unreadable(f"codes of {node.source} are not unpacked")
    if bits not in _FEW_BITS or block <= 0 or rows <= 0 or inner <= 0:
        raise Unreadable(f"weights of {bits} bits in blocks of {block} are not unpacked")
    blocks = -(-inner // block)
    scale = _operand_values(node, coded.scale, files)
    if scale is None or scale.size != rows * blocks:
        raise Unreadable("its scales are computed, or do not fit its shape")
    zero = _zero_points(node, coded.zero, rows, blocks, bits, files)
    source = stored_tensor(weight, files).source
    return checked((rows, inner), _FEW_BITS[bits], source, scale.reshape(rows, blocks), zero, 1, block, blocks * block)


def _zero_points(node: Node, place: int, rows: int, blocks: int, bits: int, files: WeightFiles) -> Array:
    """Return one for each block: packed like the codes, or as plain numbers."""
    value = node.inputs[place] if place < len(node.inputs) else None
    if value is None:
        return np.array([float(1 << (bits - 1))], np.float32)
    held = stored_tensor(value, files)
    numbers = read_all(held, files)
    if held.dtype is not DType.U8 or bits == 8:
        if held.count != rows * blocks:
            raise Unreadable("its zero points do not fit its shape")
        return numbers.reshape(rows, blocks)
    size = (blocks * bits + 7) // 8
    if held.count != rows * size:
        raise Unreadable("its zero points do not fit its shape")
    packed = numbers.astype(np.uint8).reshape(rows, size)
    unpacked = [decode_elements(np.ascontiguousarray(row), _FEW_BITS[bits], blocks) for row in packed]
    return np.stack(unpacked) if unpacked else np.zeros((0, blocks), np.float32)


def _gathered_blocks(node: Node, coded: CodedOperand, weight: Value, files: WeightFiles) -> Quantized:
    bits, block = _integer_attr(node.attrs, "bits", 4), _integer_attr(node.attrs, "block_size", 128)
    codes, shape = stored_tensor(weight, files), _static_sizes(weight)
    dtype = codes.dtype
    packs = dtype is DType.U8 and bits in _FEW_BITS
    if packs:
        dtype = _FEW_BITS[bits]
        shape = (*shape[:-1], shape[-1] * (8 // bits))
    axis = _integer_attr(node.attrs, "quantize_axis", 1) % len(shape)
    scale = _operand_values(node, coded.scale, files)
    if scale is None:
        raise Unreadable("its scales are computed, or not in the file")
    if packs:
        zero: Array | None = _zero_points(node, coded.zero, math.prod(scale.shape[:-1]), scale.shape[-1], bits, files)
        zero = zero if zero is None or zero.size == 1 else zero.reshape(scale.shape)
    else:
        zero = _operand_values(node, coded.zero, files)
    return checked(shape, dtype, codes.source, scale, zero, axis, block)


def _operand_values(node: Node, place: int, files: WeightFiles, attr: str = "zero_point_value") -> Array | None:
    """Return the values of an operand, or the number in an attribute; None where there is none, or where it is computed."""
    value = node.inputs[place] if place < len(node.inputs) else None
    if value is None:
        given = node.attrs.get(attr)
        return np.array([float(given)], np.float32) if isinstance(given, int | float) else None
    if value.role not in _DECLARED:
        return None
    return read_all(stored_tensor(value, files), files).reshape(_static_sizes(value))


def _static_sizes(value: Value) -> tuple[int, ...]:
    type_ = value.type
    sizes = type_.shape
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        raise Unreadable("its shape is unknown")
    return tuple(size for size in sizes if isinstance(size, int))


def _integer_attr(attrs: Mapping[str, Attr], name: str, default: int) -> int:
    found = attrs.get(name)
    return found if isinstance(found, int) else default


_MISSING = "IRS440"
_NOTES = (
    "weight error: 10 log10(sum of squares of the weights / sum of squares of their rounding errors); no activations were seen",
    "integers are symmetric around zero; scales come from the largest magnitude of the tensor, of a slice along the first axis (channel), "
    "or of a group of neighbours in it; a scale is counted with 16 bits, of mxfp4 with 8",
)


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
    """Weights that are not matrices of floats: they are usually left as they are."""


@dataclass(frozen=True)
class QuantizeError(Analysis[WeightErrors]):
    """Compute the error of quantizing each matrix to 8 or 4 bits, and the smallest format that reaches a target in dB."""

    name: ClassVar[str] = "quantize-error"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)
    of_weights: ClassVar[bool] = True

    target: float = 30.0
    """Signal-to-noise ratio in dB that a matrix must reach."""
    formats: tuple[FormatName, ...] = FORMAT_NAMES
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
        rows = [(*_head(tensor), *(tensor.decibels[key] for key in keys)) for tensor in result.tensors]
        before = sum(int_or_zero(tensor.weight.type.nbytes) for tensor in result.tensors)
        after = sum(
            int_or_zero(tensor.weight.type.nbytes) if tensor.bytes is None else min(tensor.bytes, int_or_zero(tensor.weight.type.nbytes))
            for tensor in result.tensors
        )
        known, complete = len(result.tensors), not result.unread
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "target_db": self.target,
                "matrices_count": within(known, len(result.unread)),
                "reached_count": at_least(sum(bool(tensor.smallest) for tensor in result.tensors), complete),
                "bytes": at_least(before, complete),
                "smallest_bytes": at_least(after, complete),
            },
            units={"bytes": Kind.BYTES},
            tables=(Table.of(rows, columns, "weight error"),),
            coverage=Coverage(known, known + len(result.unread), tuple(weight.name or "?" for weight in result.unread)),
            notes=_NOTES,
            partial=bool(result.unread),
        )


def _head(error: TensorError) -> tuple[object, ...]:
    type_ = error.weight.type
    return error.weight.name, type_.dtype.text, type_.shape, int_or_zero(error.weight.type.nbytes), error.smallest, error.bits, error.bytes
