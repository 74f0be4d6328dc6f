"""Sums over a window of float32 as machine code, in one pass: import it only where `can_compile` says so, as plain Python it is slow.

All sums are in float64 and their order does not depend on threads; it does on the width of the processor's vectors, as in numpy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irscope.compiled import machine_code_for_sums

_BLOCK = 4096
"""Elements that stay in the nearest cache between the loops over them."""
_INFINITE = np.int32(0x7F800000)
"""The bits of infinity; those of NaN are higher."""
_MAGNITUDE = np.int32(0x7FFFFFFF)
_SIGN = np.int32(31)
_HALF = np.uint32(16)


class Sums(NamedTuple):
    """Of the finite numbers of a window."""

    low: float
    high: float
    s1: float
    s2: float
    s3: float
    s4: float
    absolute: float
    zeros: int
    near: int


@machine_code_for_sums
def _extremes(bits: NDArray[np.int32]) -> tuple[np.int32, np.int32]:
    """Return the places of the smallest and the largest number: whole numbers in the order of the floats, which compare in vectors."""
    low, high = _MAGNITUDE, -_MAGNITUDE
    for at in range(len(bits)):
        place = bits[at] ^ ((bits[at] >> _SIGN) & _MAGNITUDE)
        low, high = min(low, place), max(high, place)
    return low, high


@machine_code_for_sums
def sums_about(x: NDArray[np.float32], shift: float) -> tuple[float, float, float, float]:
    """Return sums of the first four powers of deviations from a number."""
    s1, s2, s3, s4 = 0.0, 0.0, 0.0, 0.0
    for at in range(len(x)):
        value = np.float64(x[at]) - shift
        square = value * value
        s1 += value
        s2 += square
        s3 += square * value
        s4 += square * square
    return s1, s2, s3, s4


@machine_code_for_sums
def _sizes(x: NDArray[np.float32], near: np.float32) -> tuple[float, int, int]:
    """Return the sum of magnitudes, how many are zero and how many are near it; in loops of their own, which become instructions on
    vectors."""
    absolute, zeros, close = 0.0, 0, 0
    for at in range(len(x)):
        absolute += abs(np.float64(x[at]))
    for at in range(len(x)):
        zeros += x[at] == 0
    for at in range(len(x)):
        close += abs(x[at]) < near
    return absolute, zeros, close


@machine_code_for_sums
def sums(x: NDArray[np.float32], near: np.float32) -> tuple[bool, Sums]:
    """Return everything at once; the first is False, and nothing else counts, where a number is not finite."""
    places = np.array(_extremes(x.view(np.int32)), np.int32)
    finite = places[1] < _INFINITE and places[0] > -_INFINITE - 1
    for at in range(2):
        places[at] ^= (places[at] >> _SIGN) & _MAGNITUDE
    ends = places.view(np.float32)
    s1, s2, s3, s4, absolute = 0.0, 0.0, 0.0, 0.0, 0.0
    zeros, close = 0, 0
    for begin in range(0, len(x) if finite else 0, _BLOCK):
        block = x[begin : begin + _BLOCK]
        a1, z1, c1 = _sizes(block, near)
        absolute, zeros, close = absolute + a1, zeros + z1, close + c1
        p1, p2, p3, p4 = sums_about(block, 0.0)
        s1, s2, s3, s4 = s1 + p1, s2 + p2, s3 + p3, s4 + p4
    return finite, Sums(float(ends[0]), float(ends[1]), s1, s2, s3, s4, absolute, zeros, close)


@machine_code_for_sums
def tally(bits: NDArray[np.uint32], counts: NDArray[np.int64]) -> None:
    """Count the upper halves."""
    for at in range(len(bits)):
        counts[bits[at] >> _HALF] += 1
