"""Measure what rounding weights to few bits loses: quantize, dequantize, compare. Only weights are seen, no activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from irscope.immutable import immutable
from irscope.ir.graph import Value
from irscope.weights.scan import Pool, Tick
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import Stored, decode_elements, stored_tensor
from irscope.weights.window import Window

Array32: TypeAlias = npt.NDArray[np.float32]
Round: TypeAlias = Callable[[Array32], Array32]

TENSOR, CHANNEL, GROUP_128, GROUP_32 = "tensor", "channel", "g128", "g32"
GRANULARITIES = (TENSOR, CHANNEL, GROUP_128, GROUP_32)
_SCALE_BITS = 16
_LEAST_SQUARES = 1e-30
"""Sums of squares below it are lost in float32."""
_MOST = float(np.finfo(np.float32).max)


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


FormatName = Literal["int8", "fp8_e4m3", "fp8_e5m2", "int4", "nf4", "mxfp4"]
"""Formats whose errors are measured unless others are asked for."""
FORMAT_NAMES: Final[tuple[FormatName, ...]] = get_args(FormatName)
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
    numbers: int = 0
    """Elements that are finite; the others count as zero."""

    def __post_init__(self) -> None:
        self.errors = self.errors or [0.0] * len(self.choices)

    def add(self, other: Noise) -> None:
        """Merge the rows that follow."""
        self.signal, self.numbers = self.signal + other.signal, self.numbers + other.numbers
        self.errors = [error + more for error, more in zip(self.errors, other.errors, strict=True)]

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
    largest_of_rows = np.abs(rows).max(axis=1, keepdims=True)
    # Rounding is the same at every power of two; near one, scales and squares are floats.
    shift = math.frexp(float(largest_of_rows.max(initial=0.0)))[1]
    rows, largest_of_rows, absmax = np.ldexp(rows, -shift), np.ldexp(largest_of_rows, -shift), float(np.ldexp(absmax, -shift))
    noise.signal += math.ldexp(_sum_of_squares(rows), 2 * shift)
    scaled: dict[str, tuple[Array32, Any]] = {TENSOR: (rows, np.float32(min(absmax, _MOST))), CHANNEL: (rows, largest_of_rows)}
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
        noise.errors[place] += math.ldexp(_sum_of_squares(made), 2 * shift)


_ROWS_STEP = 1 << 16
_LONGEST_ROW = 1 << 22
_ROWS_BATCH = 16
_NO_NUMBER = "none of its elements is a finite number"


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
    return [_NO_NUMBER if isinstance(one, Noise) and not one.numbers else one for one in noises]


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
                elements = decode_elements(raw, tensor.dtype, (stop - start) * row)
                rows = elements.astype(np.float32).reshape(stop - start, row)
                noise.numbers += rows.size
                if not math.isfinite(float(rows.sum())):
                    finite = np.isfinite(rows)
                    if np.count_nonzero(finite) < np.count_nonzero(np.isfinite(elements)):
                        return "it has numbers beyond those of f32"
                    noise.numbers -= rows.size - int(np.count_nonzero(finite))
                    rows = np.where(finite, rows, np.float32(0.0))
                measure_rounding(rows, absmax, noise)
            pool.advance((stop - start) * row * tensor.bytes // tensor.count)
        return noise

    return run


def lengths_of_rows(weight: Value, files: WeightFiles) -> list[float]:
    """Return the length of each slice along the first axis as a vector, infinite and undefined elements left out; none where the values
    cannot be read row by row."""
    window, found = Window(files, 0.0, False), list[float]()
    try:
        tensor = in_rows(stored_tensor(weight, files, row_major=True))
        assert tensor.axes is not None
        row, step = tensor.axes.row, max(1, _ROWS_STEP // tensor.axes.row)
        for first in range(0, tensor.axes.rows if row * (tensor.dtype.bits or 8) % 8 == 0 else 0, step):
            last = min(first + step, tensor.axes.rows)
            rows = decode_elements(window.raw(tensor, first * row, last * row), tensor.dtype, (last - first) * row).reshape(-1, row)
            with np.errstate(all="ignore"):
                found += np.linalg.norm(np.nan_to_num(rows.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0), axis=1).tolist()
    except Unreadable:
        return []
    return found


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
    """Return the sum; only what float32 cannot hold as a square is multiplied in float64."""
    flat = values.reshape(-1)
    whole = len(flat) // 128 * 128
    short = flat[:whole].reshape(-1, 128)
    total = float(np.add.reduce(np.einsum("ij,ij->i", short, short), dtype=np.float64))
    rest = flat[whole:].astype(np.float64)
    if total < _LEAST_SQUARES:
        rest, total = flat.astype(np.float64), 0.0
    return total + float(rest @ rest)
