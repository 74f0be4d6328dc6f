"""What slices of weights hold: zeros from the statistics, and the numbers of vectors, which are small enough to be read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from irscope.ir.graph import Value
from irscope.ops.slices import Floats
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import read_all, stored_tensor

if TYPE_CHECKING:
    from irscope.passes.weights.values import Look

_LONGEST_VECTOR = 1 << 20


class WeightConstants:
    """Answers for the weights of one program."""

    def __init__(self, look: Look, files: WeightFiles) -> None:
        self._look = look
        self._files = files

    def slices(self, weight: Value) -> tuple[Floats | None, ...]:
        """By axis the number that each slice holds everywhere, NaN where that is not one number or not known."""
        declared = weight.type.shape or ()
        shape = [size for size in declared if isinstance(size, int)]
        if len(shape) < len(declared) or weight not in self._look.statistics:
            return (None,) * len(declared)
        held: list[Floats | None] = [None] * len(shape)
        wide = [axis for axis, size in enumerate(shape) if size != 1]
        if len(wide) <= 1:
            numbers = self._numbers(weight)
            held = [numbers if len(wide) == 0 or axis == wide[0] else None for axis in range(len(shape))]
        statistics = self._look.statistics[weight]
        for axis, dead in enumerate((statistics.dead_row_indices, statistics.dead_column_indices)):
            if axis < len(shape) and held[axis] is None and statistics.dead_rows is not None:
                held[axis] = _with_zeros(shape[axis], dead)
        return tuple(held)

    def number(self, weight: Value) -> float:
        """The number in a weight of one element, NaN where it is not known."""
        statistics = self._look.statistics.get(weight)
        if statistics is None or statistics.count != 1 or statistics.min is None:
            return math.nan
        return float(statistics.min)

    def _numbers(self, weight: Value) -> Floats | None:
        try:
            tensor = stored_tensor(weight, self._files)
            if tensor.count > _LONGEST_VECTOR:
                return None
            return read_all(tensor, self._files).astype(np.float64).reshape(-1)
        except Unreadable:
            return None


def _with_zeros(size: int, dead: npt.NDArray[np.int32]) -> Floats:
    made = np.full(size, math.nan)
    made[dead] = 0.0
    return made
