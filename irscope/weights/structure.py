"""Structure of zeros: slices that are all zero, and groups of four with at least two zeros."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
_MOST_SLICES = 1 << 24


@dataclass(frozen=True, slots=True)
class Axes:
    """A tensor as rows (its first axis) of columns (its second), each an inner run of elements."""

    rows: int
    columns: int
    inner: int

    @property
    def row(self) -> int:
        """Elements of a row."""
        return self.columns * self.inner


def axes_of(shape: tuple[int, ...]) -> Axes | None:
    """None for tensors of fewer than two axes, and for those with more slices than are worth keeping apart."""
    if len(shape) < 2 or max(shape[:2]) > _MOST_SLICES or 0 in shape:
        return None
    return Axes(shape[0], shape[1], math.prod(shape[2:]))


class Structure:
    """Collects which rows and columns of a tensor have a value other than zero. Parts may come in any order, from any thread."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.rows = np.zeros(axes.rows, np.bool_)
        self.columns = np.zeros(axes.columns, np.bool_)

    def add_full(self, start: int, stop: int) -> None:
        """Elements without a zero among them."""
        row = self.axes.row
        self.rows[start // row : -(-stop // row)] = True
        if stop - start >= row:
            self.columns[:] = True
            return
        inner = self.axes.inner
        first, last = start % row, (stop - 1) % row
        if first <= last:
            self.columns[first // inner : last // inner + 1] = True
        else:
            self.columns[first // inner :] = True
            self.columns[: last // inner + 1] = True

    def add(self, start: int, zero: Mask) -> None:
        """Elements of which some are zero, in order."""
        stop, row = start + len(zero), self.axes.row
        if start % row == 0 and stop % row == 0:
            live = np.logical_not(zero).reshape(-1, row)
            self.rows[start // row : stop // row] = live.any(axis=1)
            # An or over bytes runs through whole rows at a time.
            by_element = np.bitwise_or.reduce(live.view(np.uint8), axis=0)
            self.columns |= by_element.reshape(self.axes.columns, self.axes.inner).any(axis=1)
            return
        position = start
        while position < stop:
            end = min(stop, position - position % row + row)
            live_at = np.flatnonzero(np.logical_not(zero[position - start : end - start])) + position % row
            if len(live_at):
                self.rows[position // row] = True
                self.columns[live_at // self.axes.inner] = True
            position = end


def sparse_groups(zero: Mask, axes: Axes) -> int:
    """Groups of four neighbours along the second axis with at least two zeros; `zero` starts at a group and holds whole groups."""
    if axes.inner > 1:
        return int(np.count_nonzero(zero.reshape(-1, 4, axes.inner).sum(axis=1, dtype=np.uint8) >= 2))
    words = zero.view(np.uint8).view(np.uint32)
    return int(np.count_nonzero((words * np.uint32(0x01010101)) >> np.uint32(24) >= 2))
