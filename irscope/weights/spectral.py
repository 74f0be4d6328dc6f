"""The largest singular value of a matrix by Lanczos iteration on AᵀA, reading its rows as a stream.

Power iteration on a dense random matrix is 1 to 2 % low after thirty steps: its largest singular values lie close together. Lanczos takes
the best vector of all that the same steps have made, and tells how far that still is from being one of A's own.
"""

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
_CHECK_EVERY = 4
"""Iterations between two computations of the small matrix's eigenvalues, which take cubic time."""
_MOST_KEPT = 1 << 25
"""Numbers of all vectors together; with more the iteration starts again from the best it has found."""
_ROUNDING = 1 + 1e-12
"""What sums of so many products may be off."""
_DOUBT = 1e-3
"""How likely the upper end of an iteration that has not converged may be too low."""


def spectrum(tensor: Stored, made: TensorStatistics, window: Window, iterations: int, advance: Callable[[int], None]) -> Spectrum | None:
    """The spectral norm of a tensor as a matrix of its rows; None for what is no matrix of finite numbers.

    The residual is |AᵀAv - σ²v| / σ²: some singular value is that close to σ, in relative terms. The largest is at least σ, which is |Av|
    of a unit vector.
    """
    axes = tensor.axes
    if axes is None or min(axes.rows, axes.row) < 2 or made.finite < made.count or tensor.window % axes.row or not made.absmax:
        return None
    largest, row = made.absmax, axes.row

    def gram(vector: Floats) -> Floats:
        product = np.zeros(row)
        for start in range(0, tensor.count, tensor.window):
            stop = min(start + tensor.window, tensor.count)
            rows = decode(window.raw(tensor, start, stop), tensor.dtype, stop - start).reshape(-1, row).astype(np.float64)
            # In units of the largest element, so that squares of large or tiny ones stay in range.
            rows /= largest
            product += (rows @ vector) @ rows
            advance(stop - start)
        return product

    square, residual, steps, depth = _lanczos(gram, row, iterations)
    norm = math.sqrt(square) * largest
    if not norm:
        return Spectrum(0.0, 0.0, 0.0, steps, made.l2)
    l2 = made.l2
    return Spectrum(norm, residual, (l2 / norm) ** 2, steps, max(norm, min(l2, norm * _above(residual, row, depth) * _ROUNDING)))


def _lanczos(gram: Callable[[Floats], Floats], size: int, iterations: int) -> tuple[float, float, int, int]:
    """The largest eigenvalue that so many products show, its relative residual, how many products it took, and how many from one start."""
    room = max(2, min(iterations, size, _MOST_KEPT // size))
    basis = np.empty((room, size))
    small = np.zeros((room, room))
    vector: Floats = np.random.default_rng(0).standard_normal(size)
    vector /= np.linalg.norm(vector)
    square, residual, steps, kept = 0.0, math.inf, 0, 0
    while steps < iterations:
        basis[kept] = vector
        product = gram(vector)
        steps += 1
        small[kept, kept] = float(vector @ product)
        kept += 1
        # Rounding lets vectors lose their right angles as soon as one eigenvector is found, so all of them are taken out, twice.
        for _ in range(2):
            product -= basis[:kept].T @ (basis[:kept] @ product)
        length = float(np.linalg.norm(product))
        is_done = length <= 1e-14 * abs(small[:kept, :kept]).max() or kept == size
        if is_done or kept == room or steps == iterations or steps % _CHECK_EVERY == 0:
            values, vectors = np.linalg.eigh(small[:kept, :kept])
            square = max(float(values[-1]), 0.0)
            residual = 0.0 if is_done else length * abs(float(vectors[-1, -1])) / square if square else math.inf
            if is_done or residual < _ENOUGH:
                break
            if kept == room:
                vector = vectors[:, -1] @ basis[:kept]
                vector /= np.linalg.norm(vector)
                small[:], kept = 0.0, 0
                continue
        small[kept - 1, kept] = small[kept, kept - 1] = length
        vector = product / length
    return square, residual, steps, min(steps, room)


def _above(residual: float, size: int, depth: int) -> float:
    """How many times larger than what was found the largest singular value may be.

    After convergence the residual bounds it. Before, the bound of Kuczynski and Wozniakowski (SIAM J. Matrix Anal. Appl. 13, 1992,
    theorem 4.2) for a random start holds whatever the spectrum: P(error of the eigenvalue > e) < 1.648 sqrt(n) exp(-sqrt(e) (2k - 1)).
    """
    if residual < _ENOUGH:
        return math.sqrt(1 + residual)
    error = (math.log(1.648 * math.sqrt(size) / _DOUBT) / (2 * depth - 1)) ** 2
    return math.sqrt(1 / (1 - error)) if error < 1 else math.inf
