"""What is lost when weights are rounded to few bits: quantize, dequantize, compare. Only weights are seen, no activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array32: TypeAlias = npt.NDArray[np.float32]
Round: TypeAlias = Callable[[Array32], Array32]

TENSOR, CHANNEL, GROUP_128, GROUP_32 = "tensor", "channel", "g128", "g32"
GRANULARITIES = (TENSOR, CHANNEL, GROUP_128, GROUP_32)
_GROUPS = {GROUP_128: 128, GROUP_32: 32}
_SCALE_BITS = 16


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
_NF4_BORDERS = (_NF4[1:] + _NF4[:-1]) / 2


def _nf4(x: Array32) -> Array32:
    # Fifteen comparisons of whole arrays are faster than a search for each element.
    place = np.zeros(x.shape, np.uint8)
    for border in _NF4_BORDERS:
        place += x > border
    return _NF4[place]


@dataclass(frozen=True, slots=True)
class Format:
    """A way to store weights: the largest number it holds before scaling, its rounding, and how scales may be shared."""

    name: str
    bits: int
    most: float
    round: Round = field(compare=False)
    granularities: tuple[str, ...] = GRANULARITIES
    power_of_two: bool = False
    """Whether scales are powers of two in 8 bits, as in the microscaling formats."""

    def stored_bits(self, granularity: str, row: int, count: int) -> float:
        """Bits an element takes with its share of the scales."""
        group = min(_GROUPS.get(granularity, row if granularity == CHANNEL else count), row if granularity != TENSOR else count)
        return self.bits + (8 if self.power_of_two else _SCALE_BITS) / max(group, 1)


FORMATS = (
    Format("int8", 8, *_integers(8)),
    Format("fp8_e4m3", 8, *_floats(3, -6, 448.0)),
    Format("fp8_e5m2", 8, *_floats(2, -14, 57344.0)),
    Format("int4", 4, *_integers(4)),
    Format("nf4", 4, 1.0, _nf4),
    Format("mxfp4", 4, *_floats(1, 0, 6.0), granularities=(GROUP_32,), power_of_two=True),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A format with the way its scales are shared."""

    format: Format
    granularity: str

    @property
    def key(self) -> str:
        return f"{self.format.name}_{self.granularity}"


CHOICES = tuple(Choice(form, granularity) for form in FORMATS for granularity in form.granularities)


@dataclass(slots=True)
class Noise:
    """Sums of squares of the weights and of their errors, by choice."""

    signal: float = 0.0
    errors: list[float] = field(default_factory=lambda: [0.0] * len(CHOICES))

    def add(self, other: Noise) -> None:
        """Merge the rows that follow."""
        self.signal += other.signal
        self.errors = [one + more for one, more in zip(self.errors, other.errors, strict=True)]

    def decibels(self) -> dict[str, float]:
        """Signal to quantization noise by choice; infinite where rounding loses nothing."""
        return {choice.key: _ratio(self.signal, error) for choice, error in zip(CHOICES, self.errors, strict=True)}


def _ratio(signal: float, error: float) -> float:
    if error <= 0:
        return math.inf
    return 10 * math.log10(signal / error) if signal > 0 else -math.inf


def measure_rounding(rows: Array32, absmax: float, noise: Noise) -> None:
    """Add the errors of whole rows; `absmax` is the largest magnitude of the whole tensor."""
    noise.signal += _squares(rows)
    scaled: dict[str, tuple[Array32, Any]] = {
        TENSOR: (rows, np.float32(absmax)),
        CHANNEL: (rows, np.abs(rows).max(axis=1, keepdims=True)),
    }
    for granularity, group in _GROUPS.items():
        grouped = _rows_in_groups(rows, group)
        scaled[granularity] = (grouped, np.abs(grouped).max(axis=1, keepdims=True))
    for place, choice in enumerate(CHOICES):
        values, largest = scaled[choice.granularity]
        scale = _scales(choice.format, largest)
        made = choice.format.round(values / scale)
        made *= scale
        made -= values
        noise.errors[place] += _squares(made)


def _scales(form: Format, largest: Any) -> Any:
    """What values are divided by; 1 where all of them are zero."""
    if form.power_of_two:
        # The exponent of the largest magnitude becomes that of the format's largest number.
        scale = np.ldexp(np.float32(1.0), np.frexp(largest)[1] - math.frexp(form.most)[1])
    else:
        scale = (largest / np.float32(form.most)).astype(np.float32)
    return np.where(scale > 0, scale, np.float32(1.0)).astype(np.float32)


def _rows_in_groups(rows: Array32, group: int) -> Array32:
    """Rows cut into groups; the last group of a row is filled up with zeros, which are never wrong."""
    count, row = rows.shape
    short = -row % group
    if short:
        rows = np.concatenate((rows, np.zeros((count, short), np.float32)), axis=1)
    return rows.reshape(-1, group)


def _squares(values: Array32) -> float:
    flat = values.reshape(-1)
    whole = len(flat) // 128 * 128
    short = flat[:whole].reshape(-1, 128)
    total = float(np.add.reduce(np.einsum("ij,ij->i", short, short), dtype=np.float64))
    rest = flat[whole:].astype(np.float64)
    return total + float(rest @ rest)
