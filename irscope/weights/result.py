"""Statistics of a tensor's values."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Quantile:
    """A value that at least this share of the finite elements does not exceed; between `low` and `high` where bins are wider."""

    share: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Octave:
    """How many elements have a magnitude from `low` up to, but not including, twice that."""

    low: float
    negative: int
    positive: int


@dataclass(frozen=True, slots=True)
class Kept:
    """Share of the squared L2 norm that is left when this share of the elements, the smallest in magnitude, become zero."""

    pruned: float
    energy: float


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The largest singular value of a matrix, how far the iteration still was from one, and the stable rank."""

    norm: float
    residual: float
    stable_rank: float
    iterations: int
    high: float
    """What it is at most; `norm` is what it is at least."""


def _no_indices() -> npt.NDArray[np.int32]:
    return np.empty(0, np.int32)


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
    kept: tuple[Kept, ...] = ()
    """Exact for types of at most 16 bits; for wider ones each element counts as the middle of its bin, which is 1/128 wide."""
    dead_rows: int | None = None
    """Slices along the first axis that hold only zeros."""
    dead_columns: int | None = None
    """Slices along the second axis that hold only zeros."""
    dead_row_indices: npt.NDArray[np.int32] = field(default_factory=_no_indices, repr=False, compare=False)
    dead_column_indices: npt.NDArray[np.int32] = field(default_factory=_no_indices, repr=False, compare=False)
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
        """Whether all elements are one number."""
        return self.count > 0 and self.finite == self.count and self.min == self.max


@dataclass(frozen=True, slots=True)
class Unread:
    """Why the values of a tensor are not known."""

    reason: str
