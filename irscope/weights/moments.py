"""Count, mean and sums of powers of deviations, in float64, of parts that are merged in a fixed order."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from irscope.weights.elements import Floats

_ROW = 8192
"""Longest dot product that no BLAS library splits among its own threads, which would make sums depend on the machine's load."""
_FAR = 900.0
"""Squared mean over variance from which the powers are summed again around the mean."""
_LARGEST, _SMALLEST = 1e60, 1e-60


@dataclass(slots=True)
class Moments:
    """Sums over finite numbers, in units of 2**scale."""

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    m3: float = 0.0
    m4: float = 0.0
    absolute: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    scale: int = 0

    def add(self, other: Moments) -> None:
        """Merge the part that follows."""
        if not other.count:
            return
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        if not self.count:
            kept = self.low, self.high
            for name in ("count", "mean", "m2", "m3", "m4", "absolute", "squares", "scale"):
                setattr(self, name, getattr(other, name))
            self.low, self.high = kept
            return
        if other.scale != self.scale:
            scale = max(self.scale, other.scale)
            self._rescale(scale)
            other._rescale(scale)
        n, m = self.count, other.count
        total = n + m
        delta = other.mean - self.mean
        step = delta / total
        square = delta * step * n * m
        fourth = other.m4 + square * step * step * (n * n - n * m + m * m)
        fourth += 6 * step * step * (n * n * other.m2 + m * m * self.m2) + 4 * step * (n * other.m3 - m * self.m3)
        third = other.m3 + square * step * (n - m) + 3 * step * (n * other.m2 - m * self.m2)
        self.m4 += fourth
        self.m3 += third
        self.m2 += other.m2 + square
        self.mean += step * m
        self.absolute += other.absolute
        self.squares += other.squares
        self.count = total

    def _rescale(self, scale: int) -> None:
        shift = self.scale - scale
        self.mean, self.absolute = math.ldexp(self.mean, shift), math.ldexp(self.absolute, shift)
        self.m2, self.squares = math.ldexp(self.m2, 2 * shift), math.ldexp(self.squares, 2 * shift)
        self.m3, self.m4 = math.ldexp(self.m3, 3 * shift), math.ldexp(self.m4, 4 * shift)
        self.scale = scale

    @property
    def deviation(self) -> float:
        """Standard deviation, over all elements."""
        return _unscaled(math.sqrt(self.m2 / self.count), self.scale) if self.count else 0.0

    @property
    def average(self) -> float:
        return _unscaled(self.mean, self.scale)

    @property
    def l1(self) -> float:
        return _unscaled(self.absolute, self.scale)

    @property
    def l2(self) -> float:
        return _unscaled(math.sqrt(self.squares), self.scale)

    @property
    def skewness(self) -> float | None:
        """Third standardised moment; None where nothing deviates."""
        return math.sqrt(self.count) * self.m3 / self.m2**1.5 if self.m2 > 0 else None

    @property
    def kurtosis(self) -> float | None:
        """Fourth standardised moment, 3 for a normal distribution; None where nothing deviates."""
        return self.count * self.m4 / (self.m2 * self.m2) if self.m2 > 0 else None


def _unscaled(value: float, scale: int) -> float:
    try:
        return math.ldexp(value, scale)
    except OverflowError:
        return math.copysign(math.inf, value)


def constant_moments(count: int, value: float) -> Moments:
    """Of so many equal numbers."""
    scale = _scale_of(abs(value))
    unit = math.ldexp(value, -scale)
    return Moments(count, unit, 0.0, 0.0, 0.0, count * abs(unit), count * unit * unit, value, value, scale)


def moments_of(values: Floats, spare: Floats, low: float, high: float, absolute: float | None = None) -> Moments:
    """Of finite numbers, which are overwritten; `spare` has room for as many. `absolute` is the sum of magnitudes if it is known."""
    count = len(values)
    if low == high:
        return constant_moments(count, low)
    scale = _scale_of(max(abs(low), abs(high)))
    if scale:
        np.ldexp(values, -scale, out=values)
    square = spare[:count]
    first = _total(values)
    if low >= 0 or high <= 0:
        absolute = abs(first)
    elif absolute is None or scale:
        np.abs(values, out=square)
        absolute = _total(square)
    np.multiply(values, values, out=square)
    squares = _dot(values, values)
    mean = first / count
    if mean * mean * count > _FAR * max(squares - mean * first, 0.0):
        # The deviations are small beside the mean: sums of plain powers would lose them.
        np.subtract(values, mean, out=values)
        np.multiply(values, values, out=square)
        made = _central(count, mean, _total(values), _dot(values, values), _dot(values, square), _dot(square, square))
    else:
        made = _central(count, 0.0, first, squares, _dot(values, square), _dot(square, square))
    made.absolute, made.squares, made.low, made.high, made.scale = absolute, squares, low, high, scale
    return made


def _scale_of(largest: float) -> int:
    """The power of two to work in units of, so that fourth powers neither overflow nor vanish."""
    return math.frexp(largest)[1] if largest and not _SMALLEST < largest < _LARGEST else 0


def _central(count: int, shift: float, s1: float, s2: float, s3: float, s4: float) -> Moments:
    """Moments about the mean from sums of powers about `shift`."""
    mean = s1 / count
    m2 = s2 - mean * s1
    m3 = s3 - 3 * mean * s2 + 2 * mean * mean * s1
    m4 = s4 - 4 * mean * s3 + 6 * mean * mean * s2 - 3 * mean * mean * mean * s1
    return Moments(count, shift + mean, max(m2, 0.0), m3, max(m4, 0.0))


_ONES = np.ones(_ROW)


def _total(a: Floats) -> float:
    """Sum of all elements: a product with ones, which is faster than adding."""
    count = len(a)
    if count <= _ROW:
        return float(np.dot(a, _ONES[:count]))
    whole = count // _ROW * _ROW
    total = float(np.add.reduce(np.matmul(a[:whole].reshape(-1, 1, _ROW), _ONES.reshape(1, _ROW, 1)), axis=None))
    return total + float(np.dot(a[whole:], _ONES[: count - whole]))


def _dot(a: Floats, b: Floats) -> float:
    count = len(a)
    if count <= _ROW:
        return float(np.dot(a, b))
    whole = count // _ROW * _ROW
    total = float(np.add.reduce(np.matmul(a[:whole].reshape(-1, 1, _ROW), b[:whole].reshape(-1, _ROW, 1)), axis=None))
    return total + float(np.dot(a[whole:], b[whole:]))
