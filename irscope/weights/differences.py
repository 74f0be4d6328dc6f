"""How the values of two tensors differ: read once, side by side, in windows, in several threads.

The result does not depend on the number of threads: a tensor is read by one of them from its first window to its last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.types import TensorType
from irscope.weights.result import Unread
from irscope.weights.scan import Pool, Tick
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import Array, Floats, Mask, Stored, decode_elements, packed_bytes, stored_tensor
from irscope.weights.window import dot

_STEP = 1 << 16
"""Elements of a window: so few that its arrays stay in a cache; a multiple of 8, so that windows of packed types begin at a byte."""
_EXACT = 2.0**53
"""Integers up to here are exact as 64-bit floats; differences of larger ones are taken as integers."""


@dataclass(slots=True)
class Difference:
    """Difference of a tensor B from a tensor A of as many elements. Sums are over the elements that are finite in both."""

    count: int
    changed: int = 0
    """Elements that are not the same number; a NaN on both sides counts as the same."""
    lost: int = 0
    """Elements that are finite in A, and NaN or infinite in B."""
    gained: int = 0
    """Elements that are finite in B only."""
    apart: int = 0
    """Elements among the changed ones that are NaN or infinite on a side: their difference is not a number."""
    max_abs: float = 0.0
    """The largest magnitude of a difference."""
    squares_a: float = 0.0
    squares_b: float = 0.0
    product: float = 0.0
    squares: float = 0.0
    """Of the differences."""

    @property
    def measured(self) -> int:
        """Return how many of the changed elements are finite on both sides."""
        return self.changed - self.apart

    @property
    def relative(self) -> float | None:
        """Return the L2 norm of the difference over that of A; None where no difference is a number, A has no length or a sum overflows."""
        if not self.changed:
            return 0.0
        if not self.measured:
            return None
        return _finite_or_none(math.sqrt(self.squares / self.squares_a)) if self.squares_a > 0 else None

    @property
    def cosine(self) -> float | None:
        """Return the cosine of the angle between both; None where no difference is a number, or one of them has no length."""
        if not self.changed:
            return 1.0 if self.count else None
        if not self.measured:
            return None
        length = math.sqrt(self.squares_a) * math.sqrt(self.squares_b)
        found = _finite_or_none(self.product / length) if length > 0 else None
        return None if found is None else min(max(found, -1.0), 1.0)

    @property
    def largest(self) -> float | None:
        """Return the largest magnitude of a difference; None where no difference is a number, or it overflows."""
        return None if self.changed and not self.measured else _finite_or_none(self.max_abs)


def _finite_or_none(number: float) -> float | None:
    return number if math.isfinite(number) else None


def differences(
    pairs: Sequence[tuple[Value, Value]], files: tuple[WeightFiles, WeightFiles], threads: int = 0, tick: Tick | None = None
) -> list[Difference | Unread]:
    """Return how the values of each pair differ, in order, or why that is not known. The tensors of a pair have equal shapes."""
    stored = [_stored(pair, files) for pair in pairs]
    total = sum(one.bytes for found in stored if not isinstance(found, Unread) for one in found)
    with Pool(threads, total, "weights", tick) as pool:

        def job(found: tuple[Stored, Stored] | Unread) -> Callable[[], Difference | Unread]:
            return lambda: found if isinstance(found, Unread) else _difference(found, files, pool.advance)

        return list(pool.map(job(found) for found in stored))


def _stored(pair: tuple[Value, Value], files: tuple[WeightFiles, WeightFiles]) -> tuple[Stored, Stored] | Unread:
    # Two tensors whose axes lie in the same order are compared as they lie, others element by element in row-major order.
    one, other = (value.type.layout if isinstance(value.type, TensorType) else None for value in pair)
    a, b = (_read_stored(value, held, row_major=one != other) for value, held in zip(pair, files, strict=True))
    if isinstance(a, Unread) or isinstance(b, Unread):
        side, why = ("A", a) if isinstance(a, Unread) else ("B", b)
        assert isinstance(why, Unread)
        return Unread(f"in {side} {why.reason}")
    return (a, b) if a.count == b.count else Unread("one of them is complex")


def _read_stored(value: Value, files: WeightFiles, *, row_major: bool) -> Stored | Unread:
    try:
        return stored_tensor(value, files, row_major=row_major)
    except Unreadable as problem:
        return Unread(str(problem))


def _difference(pair: tuple[Stored, Stored], files: tuple[WeightFiles, WeightFiles], advance: Callable[[int], None]) -> Difference | Unread:
    a, b = pair
    difference = Difference(a.count)
    equal = 0
    """Elements at the begin whose bytes are the same; they are only measured once something differs."""
    try:
        for start in range(0, a.count, _STEP):
            stop = min(start + _STEP, a.count)
            raw_a, raw_b = (_raw(tensor, held, start, stop) for tensor, held in zip(pair, files, strict=True))
            advance(len(raw_a) + len(raw_b))
            if equal == start and a.dtype is b.dtype and np.array_equal(raw_a, raw_b):
                equal = stop
                continue
            _add_window(difference, raw_a, raw_b, pair, stop - start)
        if difference.changed:
            for start in range(0, equal, _STEP):
                raw = _raw(a, files[0], start, min(start + _STEP, equal))
                _add_window(difference, raw, raw, pair, min(start + _STEP, equal) - start)
    except Unreadable as problem:
        return Unread(str(problem))
    return difference


def _raw(tensor: Stored, files: WeightFiles, start: int, stop: int) -> npt.NDArray[np.uint8]:
    bits = tensor.dtype.bits or 8
    first = start * bits // 8
    raw = np.empty(packed_bytes(stop, bits) - first, np.uint8)
    files.read_into(tensor.source, first, raw.data)
    return raw


def _add_window(difference: Difference, raw_a: Array, raw_b: Array, pair: tuple[Stored, Stored], count: int) -> None:
    """Add what one window says."""
    a, b = (decode_elements(raw, tensor.dtype, count) for raw, tensor in zip((raw_a, raw_b), pair, strict=True))
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        fine_x, fine_y = np.isfinite(x), np.isfinite(y)
        is_same_type = pair[0].dtype is pair[1].dtype
        differs: Mask = (a != b if is_same_type else x != y) & ~(np.isnan(x) & np.isnan(y))
        difference.changed += int(np.count_nonzero(differs))
        fine = fine_x & fine_y
        if not fine.all():
            difference.lost += int(np.count_nonzero(fine_x & ~fine_y))
            difference.gained += int(np.count_nonzero(fine_y & ~fine_x))
            difference.apart += int(np.count_nonzero(differs & ~fine))
            x, y, a, b = x[fine], y[fine], a[fine], b[fine]
        away = _less(x, y, a, b, pair[0].dtype) if is_same_type else y - x
        difference.max_abs = max(difference.max_abs, float(np.abs(away).max(initial=0.0)))
        difference.squares += dot(away, away)
        difference.squares_a += dot(x, x)
        difference.squares_b += dot(y, y)
        difference.product += dot(x, y)


def _less(x: Floats, y: Floats, a: Array, b: Array, dtype: DType) -> Floats:
    """B less A. Large integers are subtracted as integers where that does not overflow."""
    away = y - x
    if dtype in (DType.I64, DType.U64):
        near = np.abs(away) < _EXACT
        away[near] = (b[near] - a[near]).astype(np.int64).astype(np.float64)
    return away
