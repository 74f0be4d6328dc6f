"""How near a matrix is to 2:4 sparsity: of four neighbours along the axis that is summed over, two are zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from irscope.weights.packed import decode
from irscope.weights.scan import Pool, Tick
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import Stored
from irscope.weights.window import Window

_STEP = 1 << 18
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


@dataclass(frozen=True, slots=True)
class Grouping:
    """A tensor with the axis along which its elements stand in groups."""

    tensor: Stored
    along_rows: bool
    """Whether neighbours are of one row (along the second axis), rather than of one column."""

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
    """For each tensor, or why it cannot be read."""
    results: list[Grouped | str] = [Grouped() if job.inner else "the axis that is summed over is no multiple of 4" for job in jobs]
    pieces = list(_pieces(jobs))
    with Pool(threads, sum(job.tensor.bytes for job in jobs if job.inner), "groups of four", tick) as pool:
        calls = (_call(jobs[index], start, stop, files, pool) for index, start, stop in pieces)
        for (index, _, _), made in zip(pieces, pool.map(calls), strict=True):
            held = results[index]
            if isinstance(made, str):
                results[index] = made
            elif not isinstance(held, str):
                held.add(made)
    return results


def _pieces(jobs: Sequence[Grouping]) -> Iterator[tuple[int, int, int]]:
    for index, job in enumerate(jobs):
        if job.inner:
            step = max(1, _LARGEST // (4 * job.inner)) * 4 * job.inner
            for start in range(0, job.tensor.count, step):
                yield index, start, min(start + step, job.tensor.count)


def _call(job: Grouping, start: int, stop: int, files: WeightFiles, pool: Pool) -> Callable[[], Grouped | str]:
    def run() -> Grouped | str:
        tensor, window, found = job.tensor, Window(files, 0.0, False), Grouped()
        step = max(1, _STEP // (4 * job.inner)) * 4 * job.inner
        for first in range(start, stop, step):
            last = min(first + step, stop)
            try:
                raw = window.raw(tensor, first, last)
            except Unreadable as problem:
                return str(problem)
            with np.errstate(all="ignore"):
                values = decode(raw, tensor.dtype, last - first).astype(np.float32)
                _measure(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0).reshape(-1, 4, job.inner), found)
            pool.advance((last - first) * tensor.bytes // tensor.count)
        return found

    return run


def _measure(values: npt.NDArray[np.float32], found: Grouped) -> None:
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
