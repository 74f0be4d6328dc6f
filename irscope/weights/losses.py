"""What is left of a tensor's energy when its smallest elements become zero: exact, in bounded memory, for any number of threads.

The smallest elements are found by their bits: magnitudes as 32-bit floats have the order of their bit patterns. One pass counts leading
halves and adds up squares by them, a second one counts the trailing halves of the patterns at the borders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.weights.scan import Pool, Tick
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import Stored, decode_elements, pattern_values
from irscope.weights.window import Window

PRUNED = (0.5, 0.75, 0.9)
_HALF = 1 << 16
_INFINITE = np.uint32(0x7F800000)
_JOB = 1 << 22
_STEP = 1 << 20

Bits = npt.NDArray[np.uint32]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[Any]


@immutable
class EnergyKept:
    """Shares of the sum of squares that are left, in the order of the shares that are pruned."""

    elements: int
    energy: float
    kept: tuple[float, ...]


@dataclass
class _Border:
    """The largest magnitude that is pruned, as far as it is known."""

    leading: int
    """The leading half of its pattern."""
    rank: int
    """Number of elements with this leading half that are pruned."""
    lost: float
    """Sum of squares of the elements that are pruned, those with this leading half not yet among them."""
    trailing: Counts | None = None

    def add(self, counts: Counts) -> None:
        """Count trailing halves of a piece."""
        self.trailing = counts.copy() if self.trailing is None else self.trailing + counts

    def settle(self) -> None:
        """Take the smallest of those with this leading half as well."""
        if self.trailing is None or not self.rank:
            return
        below = np.cumsum(self.trailing)
        place = int(np.searchsorted(below, self.rank))
        taken = self.trailing[: place + 1].copy()
        taken[place] = self.rank - (int(below[place - 1]) if place else 0)
        values = (np.uint32(self.leading << 16) + np.arange(place + 1, dtype=np.uint32)).view(np.float32).astype(np.float64)
        self.lost += float((values * values * taken).sum())
        self.trailing = None


@dataclass
class _Set:
    """Elements that are pruned together: those of one tensor, or of all."""

    counts: Counts = field(default_factory=lambda: np.zeros(_HALF, np.int64))
    squares: Floats = field(default_factory=lambda: np.zeros(_HALF))
    elements: int = 0
    energy: float = 0.0
    borders: list[_Border] = field(default_factory=list)

    def cut(self, shares: Sequence[float]) -> None:
        """Find the leading half of each threshold; the counts are dropped."""
        below, lost = np.cumsum(self.counts), np.cumsum(self.squares)
        self.elements, self.energy = int(below[-1]), float(lost[-1])
        for share in shares:
            rank = int(share * self.elements)
            place = int(np.searchsorted(below, rank)) if rank else 0
            before = (int(below[place - 1]), float(lost[place - 1])) if place else (0, 0.0)
            self.borders.append(_Border(place, rank - before[0], before[1]))
        self.counts, self.squares = self.counts[:0].copy(), self.squares[:0].copy()

    def result(self) -> EnergyKept:
        """Return the energy that is left, once the thresholds are known."""
        if not self.energy:
            return EnergyKept(self.elements, 0.0, ())
        return EnergyKept(self.elements, self.energy, tuple(min(1.0, max(0.0, 1 - one.lost / self.energy)) for one in self.borders))


@immutable
class _Some:
    """Magnitudes of a window as bit patterns, with how often each is there."""

    bits: Bits
    times: Counts | None

    def count(self, into: Counts, places: Bits, some: npt.NDArray[np.bool_] | None = None) -> None:
        """Add how often each place is there."""
        if self.times is None and len(places) < _HALF // 4:
            # A few places are counted one by one: that is less than going through all counts.
            np.add.at(into, places.astype(np.int64), 1)
        elif self.times is None:
            into += np.bincount(places.astype(np.int64), minlength=_HALF)
        else:
            np.add.at(into, places.astype(np.int64), self.times if some is None else self.times[some])

    def squares(self) -> npt.NDArray[np.float64]:
        """Squares, those of equal elements added up."""
        values = self.bits.view(np.float32).astype(np.float64)
        made: npt.NDArray[np.float64] = values * values
        return made if self.times is None else made * self.times


_Look: TypeAlias = Callable[[int, _Some, Numbers], None]


def energy_kept(
    tensors: Sequence[Stored], files: WeightFiles, shares: Sequence[float] = PRUNED, threads: int = 0, tick: Tick | None = None
) -> tuple[list[EnergyKept | str], EnergyKept | None]:
    """Return the energy that is kept of each tensor (or why it is not known), and of all of them pruned by one global threshold.

    Elements of 64 bits count as rounded to 32.
    """
    work = _Work(len(tensors), shares)
    with Pool(threads, 2 * sum(tensor.bytes for tensor in tensors), "magnitudes", tick) as pool:
        return work.run(_Reader(tensors, files, pool, work.failed))


class _Work:
    """The two passes. Tensors come one after the other, so that counts of one at a time are held."""

    def __init__(self, count: int, shares: Sequence[float]) -> None:
        self.failed: dict[int, str] = {}
        self._shares = shares
        self._sets: list[_Set | None] = [None] * count
        self._every = _Set()

    def run(self, reader: _Reader) -> tuple[list[EnergyKept | str], EnergyKept | None]:
        self._count(reader)
        unread = len(self.failed)
        for index, lists in reader.look(self._trailing, lambda index: np.zeros((len(self._borders(index)), _HALF), np.int64)):
            for border, counts in zip(self._borders(index), lists, strict=True):
                border.add(counts)
            if reader.is_last:
                self._settle(self._sets[index])
        self._settle(self._every)
        nothing = EnergyKept(0, 0.0, ())
        results = [self.failed.get(index) or (nothing if held is None else held.result()) for index, held in enumerate(self._sets)]
        # What failed after the first pass has been counted among all.
        return results, self._every.result() if len(self.failed) == unread else None

    def _count(self, reader: _Reader) -> None:
        every = self._every
        for index, found in reader.look(_leading, lambda _: np.zeros((2, _HALF))):
            held = self._sets[index]
            if held is None:
                held = self._sets[index] = _Set()
            # Numbers of elements of one piece are exact in float64.
            held.counts += found[0].astype(np.int64)
            held.squares += found[1]
            if reader.is_last:
                every.counts += held.counts
                every.squares += held.squares
                held.cut(self._shares)
        every.cut(self._shares)

    def _settle(self, held: _Set | None) -> None:
        for border in held.borders if held is not None else ():
            border.settle()

    def _borders(self, index: int) -> list[_Border]:
        held = self._sets[index]
        return [*(held.borders if held is not None else ()), *self._every.borders]

    def _trailing(self, index: int, some: _Some, into: Numbers) -> None:
        high = some.bits >> np.uint32(16)
        for counts, border in zip(into, self._borders(index), strict=True):
            at = high == border.leading
            some.count(counts, some.bits[at] & np.uint32(0xFFFF), at)


def _leading(index: int, some: _Some, into: Numbers) -> None:
    places = (some.bits >> np.uint32(16)).astype(np.int64)
    into[0] += np.bincount(places, some.times, _HALF)
    into[1] += np.bincount(places, some.squares(), _HALF)


class _Reader:
    """Reads all tensors once for each look, in pieces that threads share; results come in the order of the pieces."""

    def __init__(self, tensors: Sequence[Stored], files: WeightFiles, pool: Pool, failed: dict[int, str]) -> None:
        self._tensors = tensors
        self._files = files
        self._pool = pool
        self._failed = failed
        self.is_last = False
        """True where the window handed out last ends its tensor."""

    def look(self, look: _Look, start: Callable[[int], Numbers]) -> Iterator[tuple[int, Numbers]]:
        """Yield what was found in each piece, with the number of its tensor."""
        pieces = [
            (index, first, min(first + _JOB, tensor.count))
            for index, tensor in enumerate(self._tensors)
            if index not in self._failed
            for first in range(0, tensor.count, _JOB)
        ]
        calls = (self._call(piece, look, start) for piece in pieces)
        for (index, _, last), made in zip(pieces, self._pool.map(calls), strict=True):
            if isinstance(made, str):
                self._failed[index] = made
            elif index not in self._failed:
                self.is_last = last == self._tensors[index].count
                yield index, made

    def _call(self, piece: tuple[int, int, int], look: _Look, start: Callable[[int], Numbers]) -> Callable[[], Numbers | str]:
        index, first, last = piece
        tensor = self._tensors[index]

        def run() -> Numbers | str:
            window, made = Window(self._files, 0.0, False), start(index)
            for begin in range(first, last, _STEP):
                end = min(begin + _STEP, last)
                try:
                    raw = window.raw(tensor, begin, end)
                except Unreadable as problem:
                    return str(problem)
                with np.errstate(all="ignore"):
                    look(index, _magnitudes(raw, tensor.dtype, end - begin), made)
                self._pool.advance((end - begin) * tensor.bytes // tensor.count)
            return made

        return run


def _magnitudes(raw: npt.NDArray[np.uint8], dtype: DType, count: int) -> _Some:
    """Finite magnitudes; equal ones of narrow types are counted at once."""
    if dtype.bits == 16:
        codes = np.bincount(raw.view("<u2"), minlength=_HALF)
        present = np.flatnonzero(codes)
        bits = np.abs(pattern_values(dtype)[present].astype(np.float32)).view(np.uint32)
        finite = bits < _INFINITE
        return _Some(bits[finite], codes[present][finite])
    bits = np.abs(decode_elements(raw, dtype, count).astype(np.float32)).view(np.uint32)
    return _Some(bits if int(bits.max(initial=0)) < _INFINITE else bits[bits < _INFINITE], None)


# ----------------------------------------------------------------------------------------------------
# How near a matrix is to 2:4 sparsity: of four neighbours along the axis that is summed over, two are zero.

_GROUPS_STEP = 1 << 18
_LARGEST = 1 << 22
METADATA_BITS = 2
"""Bits that say where in its group each element that is kept stands."""


@dataclass(slots=True)
class Grouped:
    """Groups of four, those with at least two zeros, and the share of the sum of squares in the two largest of each group."""

    groups: int = 0
    sparse: int = 0
    energy: float = 0.0
    largest: float = 0.0

    @property
    def ready(self) -> float | None:
        """Share of the groups that need no pruning."""
        return self.sparse / self.groups if self.groups else None

    @property
    def kept(self) -> float | None:
        """Share of the energy that is left when the two smallest of every group become zero."""
        return min(1.0, self.largest / self.energy) if self.energy else None

    def add(self, other: Grouped) -> None:
        """Merge the part that follows."""
        self.groups += other.groups
        self.sparse += other.sparse
        self.energy += other.energy
        self.largest += other.largest


@immutable
class Grouping:
    """A tensor with the axis along which its elements stand in groups."""

    tensor: Stored
    along_rows: bool
    """True where neighbours are of one row (along the second axis), rather than of one column."""

    @property
    def inner(self) -> int:
        """Elements between neighbours; 0 where there are no whole groups, or rows too long to look at four at once."""
        axes = self.tensor.axes
        if axes is None or not self.tensor.count:
            return 0
        along_rows = self.along_rows != self.tensor.is_swapped
        size, inner = (axes.columns, axes.inner) if along_rows else (axes.rows, axes.row)
        return inner if size % 4 == 0 and 4 * inner <= _LARGEST else 0


def grouped(jobs: Sequence[Grouping], files: WeightFiles, threads: int = 0, tick: Tick | None = None) -> list[Grouped | str]:
    """Return the losses of each tensor by groups, or why it cannot be read."""
    results: list[Grouped | str] = [Grouped() if job.inner else "the axis that is summed over is no multiple of 4" for job in jobs]
    pieces = list(_stretches_of_groups(jobs))
    with Pool(threads, sum(job.tensor.bytes for job in jobs if job.inner), "groups of four", tick) as pool:
        calls = (_measuring_job(jobs[index], start, stop, files, pool) for index, start, stop in pieces)
        for (index, _, _), made in zip(pieces, pool.map(calls), strict=True):
            held = results[index]
            if isinstance(made, str):
                results[index] = made
            elif not isinstance(held, str):
                held.add(made)
    return results


def _stretches_of_groups(jobs: Sequence[Grouping]) -> Iterator[tuple[int, int, int]]:
    for index, job in enumerate(jobs):
        if job.inner:
            step = max(1, _LARGEST // (4 * job.inner)) * 4 * job.inner
            for start in range(0, job.tensor.count, step):
                yield index, start, min(start + step, job.tensor.count)


def _measuring_job(job: Grouping, start: int, stop: int, files: WeightFiles, pool: Pool) -> Callable[[], Grouped | str]:
    def run() -> Grouped | str:
        tensor, window, found = job.tensor, Window(files, 0.0, False), Grouped()
        step = max(1, _GROUPS_STEP // (4 * job.inner)) * 4 * job.inner
        for first in range(start, stop, step):
            last = min(first + step, stop)
            try:
                raw = window.raw(tensor, first, last)
            except Unreadable as problem:
                return str(problem)
            with np.errstate(all="ignore"):
                values = decode_elements(raw, tensor.dtype, last - first).astype(np.float32)
                _count_groups(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0).reshape(-1, 4, job.inner), found)
            pool.advance((last - first) * tensor.bytes // tensor.count)
        return found

    return run


def _count_groups(values: npt.NDArray[np.float32], found: Grouped) -> None:
    size = np.abs(values)
    one, two, three, four = (size[:, place] for place in range(4))
    low, high, less, more = np.minimum(one, two), np.maximum(one, two), np.minimum(three, four), np.maximum(three, four)
    first, second = np.maximum(high, more), np.maximum(np.minimum(high, more), np.maximum(low, less))
    found.groups += first.size
    found.energy += _squares(size)
    found.largest += _squares(first) + _squares(second)
    found.sparse += int(np.count_nonzero((size == 0).sum(axis=1) >= 2))


def _squares(values: npt.NDArray[np.float32]) -> float:
    wide = values.astype(np.float64).reshape(-1)
    return float(np.multiply(wide, wide, out=wide).sum())


# ----------------------------------------------------------------------------------------------------
# What is lost when weights are rounded to few bits: quantize, dequantize, compare. Only weights are seen, no activations.

Array32: TypeAlias = npt.NDArray[np.float32]
Round: TypeAlias = Callable[[Array32], Array32]

TENSOR, CHANNEL, GROUP_128, GROUP_32 = "tensor", "channel", "g128", "g32"
GRANULARITIES = (TENSOR, CHANNEL, GROUP_128, GROUP_32)
_SCALE_BITS = 16


def _group_of(granularity: str) -> int:
    """Neighbours that share a scale, as in g128; 0 for other granularities."""
    return int(granularity[1:]) if granularity[1:].isdecimal() else 0


def _integers(bits: int) -> tuple[float, Round]:
    most = float((1 << (bits - 1)) - 1)
    return most, lambda x: np.clip(np.rint(x, out=x), -most, most, out=x)


def _floats(fraction_bits: int, smallest: int, most: float) -> tuple[float, Round]:
    """Floats with so many fraction bits, whose smallest normal number is 2**smallest; ties go to even, too large ones saturate."""
    dropped = np.uint32(23 - fraction_bits)
    half, one = np.uint32((1 << (22 - fraction_bits)) - 1), np.uint32(1)
    mask = np.uint32(0xFFFFFFFF << (23 - fraction_bits) & 0xFFFFFFFF)
    normal, quantum = np.float32(2.0**smallest), np.float32(2.0 ** (smallest - fraction_bits))

    def round_to(x: Array32) -> Array32:
        small = np.abs(x) < normal
        below = np.rint(x / quantum) * quantum
        bits = x.view(np.uint32)
        bits += half + ((bits >> dropped) & one)
        bits &= mask
        np.copyto(x, below, where=small)
        return np.clip(x, -most, most, out=x)

    return most, round_to


_NF4 = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
        -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    np.float32,
)  # fmt: skip
"""Quantiles of a normal distribution, as the QLoRA paper (Dettmers et al., 2023) gives them."""


_HALF_FP4 = (1 / 192, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 1.0)
_FP4 = np.array([*(-one for one in reversed(_HALF_FP4)), 0.0, *_HALF_FP4], np.float32)
"""Values of bitsandbytes' fp4 codes (`get_4bit_type`): a float of two fraction values, whose smallest is nearly zero."""


def _nearest_in(table: Array32) -> Round:
    borders = (table[1:] + table[:-1]) / 2

    def nearest(x: Array32) -> Array32:
        # Fifteen comparisons of whole arrays are faster than a search for each element.
        place = np.zeros(x.shape, np.uint8)
        for border in borders:
            place += x > border
        return table[place]

    return nearest


@immutable
class Format:
    """A way to store weights: the largest number it holds before scaling, its rounding, and how scales may be shared."""

    name: str
    bits: int
    most: float
    round: Round = field(compare=False)
    granularities: tuple[str, ...] = GRANULARITIES
    power_of_two: bool = False
    """True where scales are powers of two in 8 bits, as in the microscaling formats."""

    def stored_bits(self, granularity: str, row: int, count: int) -> float:
        """Bits an element takes with its share of the scales."""
        group = count if granularity == TENSOR else min(_group_of(granularity) or row, row)
        return self.bits + (8 if self.power_of_two else _SCALE_BITS) / max(group, 1)


FORMATS = (
    Format("int8", 8, *_integers(8)),
    Format("fp8_e4m3", 8, *_floats(3, -6, 448.0)),
    Format("fp8_e5m2", 8, *_floats(2, -14, 57344.0)),
    Format("int4", 4, *_integers(4)),
    Format("nf4", 4, 1.0, _nearest_in(_NF4)),
    Format("mxfp4", 4, *_floats(1, 0, 6.0), granularities=(GROUP_32,), power_of_two=True),
)


@immutable
class Choice:
    """A format with the way its scales are shared."""

    format: Format
    granularity: str

    @property
    def key(self) -> str:
        return f"{self.format.name}_{self.granularity}"


CHOICES = tuple(Choice(form, granularity) for form in FORMATS for granularity in form.granularities)
_FURTHER = (Format("fp4", 4, 1.0, _nearest_in(_FP4)), Format("int2", 2, *_integers(2)), Format("int3", 3, *_integers(3)))


def choice_of(form: str, granularity: str) -> Choice:
    """Return a format by its name, with a granularity such as channel or g64."""
    return Choice(next(one for one in (*FORMATS, *_FURTHER) if one.name == form), granularity)


@dataclass(slots=True)
class Noise:
    """Sums of squares of the weights and of their errors, by choice."""

    choices: tuple[Choice, ...] = CHOICES
    signal: float = 0.0
    errors: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.errors = self.errors or [0.0] * len(self.choices)

    def add(self, other: Noise) -> None:
        """Merge the rows that follow."""
        self.signal += other.signal
        self.errors = [one + more for one, more in zip(self.errors, other.errors, strict=True)]

    def decibels(self) -> dict[str, float]:
        """Signal to quantization noise by choice; infinite where rounding loses nothing."""
        return {choice.key: _ratio(self.signal, error) for choice, error in zip(self.choices, self.errors, strict=True)}


def _ratio(signal: float, error: float) -> float:
    if error <= 0:
        return math.inf
    # The quotient of a hostile weight's sums may be too small for a float, which has a logarithm all the same.
    return 10 * (math.log10(signal) - math.log10(error)) if signal > 0 else -math.inf


def measure_rounding(rows: Array32, absmax: float, noise: Noise) -> None:
    """Add the errors of whole rows; `absmax` is the largest magnitude of the whole tensor."""
    noise.signal += _sum_of_squares(rows)
    scaled: dict[str, tuple[Array32, Any]] = {TENSOR: (rows, np.float32(absmax)), CHANNEL: (rows, np.abs(rows).max(axis=1, keepdims=True))}
    for granularity in dict.fromkeys(choice.granularity for choice in noise.choices):
        if group := _group_of(granularity):
            grouped = _rows_in_groups(rows, group)
            scaled[granularity] = (grouped, np.abs(grouped).max(axis=1, keepdims=True))
    for place, choice in enumerate(noise.choices):
        values, largest = scaled[choice.granularity]
        scale = _scales(choice.format, largest)
        made = choice.format.round(values / scale)
        made *= scale
        made -= values
        noise.errors[place] += _sum_of_squares(made)


_ROWS_STEP = 1 << 16
_LONGEST_ROW = 1 << 22
_ROWS_BATCH = 16


def in_rows(tensor: Stored) -> Stored:
    """Return a tensor whose rows can be looked at one by one; Unreadable for others."""
    if tensor.axes is None:
        raise Unreadable("its rows are not told apart")
    if tensor.axes.row > _LONGEST_ROW:
        raise Unreadable(f"rows of {tensor.axes.row:,} elements are too long")
    return tensor


def measured_noise(
    jobs: Sequence[tuple[Stored, float]],
    files: WeightFiles,
    threads: int = 0,
    tick: Tick | None = None,
    choices: tuple[Choice, ...] = CHOICES,
) -> list[Noise | str]:
    """Noise of each tensor, given its largest magnitude, or why there is none; threads share batches of rows, added up in order."""
    pieces = list(_stretches_of_rows([tensor for tensor, _ in jobs]))
    noises: list[Noise | str] = [Noise(choices) for _ in jobs]
    with Pool(threads, sum(tensor.bytes for tensor, _ in jobs), "weight error", tick) as pool:
        calls = (_rounding_job(jobs[index], first, last, files, pool, choices) for index, first, last in pieces)
        for (index, _, _), made in zip(pieces, pool.map(calls), strict=True):
            held = noises[index]
            if isinstance(held, str):
                continue
            if isinstance(made, str):
                noises[index] = made
            else:
                held.add(made)
    return noises


def _stretches_of_rows(tensors: Sequence[Stored]) -> Iterator[tuple[int, int, int]]:
    """Tensor, first and last row of what a thread takes at once."""
    for index, tensor in enumerate(tensors):
        assert tensor.axes is not None
        step = max(1, _ROWS_STEP // tensor.axes.row) * _ROWS_BATCH
        for first in range(0, tensor.axes.rows, step):
            yield index, first, min(first + step, tensor.axes.rows)


def _rounding_job(
    job: tuple[Stored, float], first: int, last: int, files: WeightFiles, pool: Pool, choices: tuple[Choice, ...]
) -> Callable[[], Noise | str]:
    def run() -> Noise | str:
        tensor, absmax = job
        assert tensor.axes is not None
        row, noise, window = tensor.axes.row, Noise(choices), Window(files, 0.0, False)
        step = max(1, _ROWS_STEP // row)
        for start in range(first, last, step):
            stop = min(start + step, last)
            try:
                raw = window.raw(tensor, start * row, stop * row)
            except Unreadable as problem:
                return str(problem)
            with np.errstate(all="ignore"):
                rows = decode_elements(raw, tensor.dtype, (stop - start) * row).astype(np.float32).reshape(stop - start, row)
                if not math.isfinite(float(rows.sum())):
                    rows = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
                measure_rounding(rows, absmax, noise)
            pool.advance((stop - start) * row * tensor.bytes // tensor.count)
        return noise

    return run


def _scales(form: Format, largest: Any) -> Any:
    """Return what values are divided by; 1 where all of them are zero."""
    if form.power_of_two:
        # The exponent of the largest magnitude becomes that of the format's largest number.
        scale = np.ldexp(np.float32(1.0), np.frexp(largest)[1] - math.frexp(form.most)[1])
    else:
        scale = (largest / np.float32(form.most)).astype(np.float32)
    return np.where(scale > 0, scale, np.float32(1.0)).astype(np.float32)


def _rows_in_groups(rows: Array32, group: int) -> Array32:
    """Return rows cut into groups; the last group of a row is filled up with zeros, which are never wrong."""
    count, row = rows.shape
    short = -row % group
    if short:
        rows = np.concatenate((rows, np.zeros((count, short), np.float32)), axis=1)
    return rows.reshape(-1, group)


def _sum_of_squares(values: Array32) -> float:
    flat = values.reshape(-1)
    whole = len(flat) // 128 * 128
    short = flat[:whole].reshape(-1, 128)
    total = float(np.add.reduce(np.einsum("ij,ij->i", short, short), dtype=np.float64))
    rest = flat[whole:].astype(np.float64)
    return total + float(rest @ rest)
