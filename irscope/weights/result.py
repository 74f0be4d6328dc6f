"""Statistics of a tensor's values, and those that follow from counts of its bit patterns."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from irscope.immutable import immutable
from irscope.ir.dtypes import DType, DTypeKind
from irscope.weights.tensors import Floats, fraction_bits_of, pattern_values

Counts = npt.NDArray[np.int64]


@immutable
class Quantile:
    """A value that at least this share of the finite elements does not exceed; between `low` and `high` where bins are wider."""

    share: float
    value: float
    low: float
    high: float


@immutable
class Octave:
    """Number of elements with a magnitude from `low` up to, but not including, twice that."""

    low: float
    negative: int
    positive: int


@immutable
class EvenBins:
    """Numbers of finite elements in bins of equal width, which have an edge at zero.

    A bin holds magnitudes from a multiple of `width` up to, but not including, the next one; zeros are in the one that begins at zero.
    """

    width: float
    first: int
    """The lower edge of the first bin, in widths."""
    counts: tuple[int, ...]
    beyond: int
    """Elements further out, on both sides: at most one in a thousand."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Share of the squared L2 norm that is left when this share of the elements, the smallest in magnitude, become zero."""

    pruned: float
    energy: float


@immutable
class Spectrum:
    """The largest singular value of a matrix, how far the iteration still was from one, and the stable rank."""

    norm: float
    residual: float
    stable_rank: float
    iterations: int
    high: float
    """Upper bound of the spectral norm; `norm` is the lower bound."""


@dataclass(slots=True)
class TensorStatistics:
    """Statistics of the finite elements of one tensor; None where a number does not exist."""

    count: int
    nan: int = 0
    inf: int = 0
    zeros: int = 0
    near_zeros: int = 0
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    l1: float = 0.0
    l2: float = 0.0
    skewness: float | None = None
    kurtosis: float | None = None
    outliers: int | None = None
    """Elements more than 6 standard deviations from the mean."""
    entropy: float | None = None
    """Bits an element would take in an ideal code; of the leading 16 bits for wider types."""
    quantiles: tuple[Quantile, ...] = ()
    octaves: tuple[Octave, ...] = ()
    even: EvenBins | None = None
    """Exact, as the edges lie where leading bits change; integers of 32 bits and more count as the nearest 32-bit float."""
    kept: tuple[Kept, ...] = ()
    """Exact for types of at most 16 bits; for wider ones each element counts as the middle of its bin, which is 1/128 wide."""
    dead_rows: int | None = None
    """Slices along the first axis that hold only zeros."""
    dead_columns: int | None = None
    """Slices along the second axis that hold only zeros."""
    two_of_four: float | None = None
    """Share of the groups of four neighbours along the second axis with at least two zeros."""
    spectrum: Spectrum | None = None
    fingerprint: Hashable = field(default=(), repr=False)
    """Equal for equal contents; different contents rarely share one."""

    @property
    def finite(self) -> int:
        return self.count - self.nan - self.inf

    @property
    def absmax(self) -> float | None:
        return None if self.min is None or self.max is None else max(abs(self.min), abs(self.max))

    @property
    def is_constant(self) -> bool:
        """Return whether all elements are one number."""
        return self.count > 0 and self.finite == self.count and self.min == self.max


@immutable
class Unread:
    """The reason why the values of a tensor are not known."""

    reason: str


# Counts of 16-bit patterns: everything about a narrow type exactly, the shape of the distribution for wider ones.

WORDS = 1 << 16
OUTLIER = 6.0
SHARES = (0.01, 0.5, 0.99)
PRUNED = (0.5, 0.75, 0.9)


def element_counts(words: Counts, bits: int) -> Counts:
    """Counts of elements from counts of 16-bit words that hold several of them."""
    counts = words
    for width in (8, 4, 2):
        if bits > width:
            break
        pairs = counts.reshape(1 << width, 1 << width)
        counts = pairs.sum(axis=0) + pairs.sum(axis=1)
    return counts


def narrow_statistics(counts: Counts, dtype: DType, near: float) -> TensorStatistics:
    """Return everything that does not depend on the order of the elements, exactly."""
    values = pattern_values(dtype)
    present = np.flatnonzero(counts)
    held, many = values[present], counts[present]
    finite = np.isfinite(held)
    made = TensorStatistics(int(many.sum()))
    made.nan, made.inf = int(many[np.isnan(held)].sum()), int(many[np.isinf(held)].sum())
    made.entropy = _entropy(many)
    made.fingerprint = (dtype, _digest(present, many))
    held, many = held[finite], many[finite]
    if not len(held):
        return made
    weights = many.astype(np.float64)
    total = float(weights.sum())
    mean = float((held * weights).sum()) / total
    mean += float(((held - mean) * weights).sum()) / total
    away = held - mean
    powers = [float((away**power * weights).sum()) for power in (2, 3, 4)]
    made.mean, made.std = mean, math.sqrt(powers[0] / total)
    made.min, made.max = float(held.min()), float(held.max())
    if made.min == made.max:
        made.mean, made.std, powers = made.min, 0.0, [0.0, 0.0, 0.0]
    if powers[0] > 0:
        made.skewness = math.sqrt(total) * powers[1] / powers[0] ** 1.5
        made.kurtosis = total * powers[2] / powers[0] ** 2
    magnitude = np.abs(held)
    made.l1, made.l2 = float((magnitude * weights).sum()), math.sqrt(float((held * held * weights).sum()))
    made.zeros, made.near_zeros = int(many[held == 0].sum()), int(many[magnitude < near].sum())
    made.outliers = int(many[np.abs(away) > OUTLIER * made.std].sum())
    order = np.argsort(held, kind="stable")
    made.quantiles = _quantiles(held[order], held[order], many[order])
    made.octaves = _octaves(held, many)
    made.even = _even_bins(magnitude, held < 0, many, fraction_bits_of(dtype), _least_width(dtype))
    made.kept = _kept(magnitude, many)
    return made


def wide_shape(counts: Counts, exponent_bits: int, made: TensorStatistics, dtype: DType) -> None:
    """Entropy, quantiles and both histograms from counts of the leading 16 bits of wider floats, which integers were rounded to."""
    present = np.flatnonzero(counts)
    fraction_bits = 15 - exponent_bits
    sign, magnitude = present >> 15, present & 0x7FFF
    low, high = (_leading(magnitude + step, exponent_bits, fraction_bits) for step in (0, 1))
    finite = magnitude >> fraction_bits != (1 << exponent_bits) - 1
    many = counts[present]
    made.entropy = _entropy(many)
    low, high, sign, many = low[finite], high[finite], sign[finite], many[finite]
    if not len(low):
        return
    lower, upper = np.where(sign == 1, -high, low), np.where(sign == 1, -low, high)
    if made.min is not None and made.max is not None:
        lower, upper = np.clip(lower, made.min, made.max), np.clip(upper, made.min, made.max)
    order = np.argsort(lower + upper, kind="stable")
    made.quantiles = _quantiles(lower[order], upper[order], many[order])
    made.octaves = _octaves(np.where(sign == 1, -low, low), many)
    made.even = _even_bins(low, sign == 1, many, fraction_bits, _least_width(dtype))
    made.kept = _kept(np.abs(lower / 2 + upper / 2), many)


def _leading(codes: Counts, exponent_bits: int, fraction_bits: int) -> Floats:
    """Return the numbers whose leading bits these are, the rest zero. A code with the top exponent is the end of the largest bin."""
    bias = (1 << (exponent_bits - 1)) - 1
    exponent, fraction = codes >> fraction_bits, codes & ((1 << fraction_bits) - 1)
    with np.errstate(over="ignore"):
        normal = np.ldexp((fraction + (1 << fraction_bits)).astype(np.float64), exponent - bias - fraction_bits)
        return np.where(exponent == 0, np.ldexp(fraction.astype(np.float64), 1 - bias - fraction_bits), normal)


def _digest(*arrays: Counts) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(array.tobytes())
    return found.digest()


def _entropy(many: Counts) -> float:
    shares = many / many.sum()
    return max(0.0, float(-(shares * np.log2(shares)).sum()))


def _quantiles(lower: Floats, upper: Floats, many: Counts, shares: Sequence[float] = SHARES) -> tuple[Quantile, ...]:
    below = np.cumsum(many)
    made = []
    for share in shares:
        rank = max(1, math.ceil(share * int(below[-1])))
        place = int(np.searchsorted(below, rank))
        low, high = float(lower[place]), float(upper[place])
        made.append(Quantile(share, low if low == high else low + (high - low) / 2, low, high))
    return tuple(made)


def _kept(magnitude: Floats, many: Counts) -> tuple[Kept, ...]:
    """Return what is left of the energy when the smallest elements go."""
    largest = float(magnitude.max())
    if not largest:
        return ()
    order = np.argsort(magnitude, kind="stable")
    squares, many = (magnitude[order] / largest) ** 2, many[order]
    below, energy = np.cumsum(many), np.cumsum(squares * many)
    total, made = int(below[-1]), []
    for share in PRUNED:
        gone = int(share * total)
        place = int(np.searchsorted(below, gone))
        before = int(below[place] - many[place])
        lost = float(energy[place] - squares[place] * many[place]) + (gone - before) * float(squares[place])
        made.append(Kept(share, max(0.0, 1 - lost / float(energy[-1]))))
    return tuple(made)


def _octaves(held: Floats, many: Counts) -> tuple[Octave, ...]:
    """Return the counts by power of two, in ascending order; zeros are left out."""
    some = held != 0
    held, many = held[some], many[some]
    if not len(held):
        return ()
    exponents = np.frexp(held)[1].astype(np.int64) - 1
    least = int(exponents.min())
    places = exponents - least
    # Sums of integers below 2**53 are exact in float64.
    total = np.bincount(places, weights=many)
    below = np.bincount(places[held < 0], weights=many[held < 0], minlength=len(total))
    present = np.flatnonzero(total).tolist()
    return tuple(Octave(math.ldexp(1.0, least + place), int(below[place]), int(total[place] - below[place])) for place in present)


_MOST_BINS = 64
_FAR = 1000
"""One in so many elements at most is further out than the bins of equal width go."""


def _least_width(dtype: DType) -> float:
    """Bins of integers are not narrower than one."""
    return 0.0 if dtype.kind is DTypeKind.FLOAT else 1.0


def _even_bins(magnitude: Floats, is_negative: npt.NDArray[np.bool_], many: Counts, fraction_bits: int, least: float) -> EvenBins | None:
    """Counts in bins of equal width, a power of two that is no narrower than the patterns whose counts these are; None where all are zero.

    A few elements far out would put all others into a single bin, so whole octaves of them are left out.
    """
    some = magnitude > 0
    if not some.any():
        return None
    exponents = np.where(some, np.frexp(magnitude)[1], np.iinfo(np.int32).min).astype(np.int64)
    room, beyond = int(many.sum()) // _FAR, 0
    present = np.unique(exponents)[::-1].tolist()
    for top in present:
        count = int(many[exponents == top].sum())
        if top == present[-1] or beyond + count > room:
            break
        beyond += count
    kept = exponents <= top
    width = max(math.ldexp(0.5, top - fraction_bits), least)
    if not width:
        return None
    with np.errstate(over="ignore"):
        places = np.floor(magnitude[kept] / width).astype(np.int64)
    places = np.where(is_negative[kept] & some[kept], -places - 1, places)
    while int(places.max()) - int(places.min()) >= _MOST_BINS:
        places, width = places >> 1, 2 * width
    first = int(places.min())
    counts = np.bincount(places - first, weights=many[kept])
    return EvenBins(width, first, tuple(int(count) for count in counts.tolist()), beyond)
