"""The largest singular value of a matrix by power iteration, reading its rows as a stream."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from irscope.weights.elements import Floats
from irscope.weights.packed import decode
from irscope.weights.result import Spectrum, TensorStatistics
from irscope.weights.tensors import Stored
from irscope.weights.window import Window

_ENOUGH = 1e-4


def spectrum(tensor: Stored, made: TensorStatistics, window: Window, iterations: int, advance: Callable[[int], None]) -> Spectrum | None:
    """The spectral norm of a tensor as a matrix of its rows; None for what is no matrix of finite numbers.

    The residual is |AᵀAv - σ²v| / σ²: some singular value is that close to σ, in relative terms.
    """
    axes = tensor.axes
    if axes is None or min(axes.rows, axes.row) < 2 or made.finite < made.count or tensor.window % axes.row or not made.absmax:
        return None
    largest = made.absmax
    vector: Floats = np.random.default_rng(0).standard_normal(axes.row)
    vector /= np.linalg.norm(vector)
    square, residual, steps = 0.0, math.inf, 0
    while steps < iterations:
        steps += 1
        product = np.zeros(axes.row)
        for start in range(0, tensor.count, tensor.window):
            stop = min(start + tensor.window, tensor.count)
            rows = decode(window.raw(tensor, start, stop), tensor.dtype, stop - start).reshape(-1, axes.row).astype(np.float64)
            # In units of the largest element, so that squares of large or tiny ones stay in range.
            rows /= largest
            product += (rows @ vector) @ rows
            advance(stop - start)
        square = float(vector @ product)
        if square <= 0:
            break
        residual = float(np.linalg.norm(product - square * vector)) / square
        if residual < _ENOUGH:
            break
        vector = product / np.linalg.norm(product)
    norm = math.sqrt(square) * largest
    return Spectrum(norm, residual, (made.l2 / norm) ** 2 if norm else 0.0, steps)
