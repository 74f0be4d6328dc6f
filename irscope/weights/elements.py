"""Element types as bytes: which numpy type holds them, and what every bit pattern of the small ones stands for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from irscope.ir.dtypes import DType, DTypeKind

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

WIDE: dict[DType, np.dtype[Any]] = {
    DType.F32: np.dtype("<f4"),
    DType.F64: np.dtype("<f8"),
    DType.I32: np.dtype("<i4"),
    DType.U32: np.dtype("<u4"),
    DType.I64: np.dtype("<i8"),
    DType.U64: np.dtype("<u8"),
}
"""Types of 32 bits and more."""

PARTS: dict[DType, DType] = {DType.C64: DType.F32, DType.C128: DType.F64}
"""Complex types: a number counts as two."""

# Exponent bits, fraction bits, exponent bias, and what the largest codes stand for.
_SMALL_FLOATS: dict[DType, tuple[int, int, int, str]] = {
    DType.F4E2M1: (2, 1, 1, "finite"),
    DType.F6E2M3: (2, 3, 1, "finite"),
    DType.F6E3M2: (3, 2, 3, "finite"),
    DType.F8E4M3FN: (4, 3, 7, "all ones"),
    DType.F8E4M3FNUZ: (4, 3, 8, "minus zero"),
    DType.F8E5M2: (5, 2, 15, "ieee"),
    DType.F8E5M2FNUZ: (5, 2, 16, "minus zero"),
    DType.BF16: (8, 7, 127, "ieee"),
    DType.F16: (5, 10, 15, "ieee"),
}


def is_narrow(dtype: DType) -> bool:
    """Whether an exact count of every bit pattern is kept: types of at most 16 bits."""
    return dtype.bits is not None and dtype.bits <= 16


def is_readable(dtype: DType) -> bool:
    """Whether values of this type are numbers."""
    return is_narrow(dtype) or dtype in WIDE or dtype in PARTS


@cache
def pattern_values(dtype: DType) -> Floats:
    """The number that every bit pattern of a narrow type stands for."""
    bits = dtype.bits or 8
    codes = np.arange(1 << bits, dtype=np.int64)
    if dtype is DType.F8E8M0:
        values = np.ldexp(1.0, codes - 127)
        values[255] = np.nan
    elif dtype in _SMALL_FLOATS:
        values = _float_values(codes, *_SMALL_FLOATS[dtype])
    elif dtype.kind is DTypeKind.INT:
        values = np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes).astype(np.float64)
    elif dtype is DType.BOOL:
        values = (codes != 0).astype(np.float64)
    else:
        values = codes.astype(np.float64)
    values.setflags(write=False)
    return values


def _float_values(codes: npt.NDArray[np.int64], exponent_bits: int, fraction_bits: int, bias: int, specials: str) -> Floats:
    half = 1 << (exponent_bits + fraction_bits)
    magnitude = codes & (half - 1)
    exponent, fraction = magnitude >> fraction_bits, magnitude & ((1 << fraction_bits) - 1)
    normal = np.ldexp((fraction + (1 << fraction_bits)).astype(np.float64), exponent - bias - fraction_bits)
    values = np.where(exponent == 0, np.ldexp(fraction.astype(np.float64), 1 - bias - fraction_bits), normal)
    top = exponent == (1 << exponent_bits) - 1
    if specials == "ieee":
        values = np.where(top, np.where(fraction != 0, np.nan, np.inf), values)
    elif specials == "all ones":
        values = np.where(top & (fraction == (1 << fraction_bits) - 1), np.nan, values)
    values = np.where(codes >= half, -values, values)
    if specials == "minus zero":
        values[half] = np.nan
    return values


@cache
def zero_patterns(dtype: DType) -> tuple[int, ...]:
    """The bit patterns that stand for zero."""
    return tuple(int(code) for code in np.flatnonzero(pattern_values(dtype) == 0.0))


def unpack_codes(packed: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[np.uint8]:
    """Codes of fewer than 8 bits, the first in the lowest bits of its byte, one to a byte."""
    if bits == 6:
        whole = packed[: len(packed) // 3 * 3].reshape(-1, 3).astype(np.uint32)
        words = whole[:, 0] | whole[:, 1] << 8 | whole[:, 2] << 16
        tail = np.zeros(4, np.uint8)
        tail[: len(packed) % 3] = packed[len(packed) // 3 * 3 :]
        last = int.from_bytes(tail.tobytes(), "little")
        words = np.append(words, np.uint32(last))
        return np.stack([(words >> shift) & 63 for shift in (0, 6, 12, 18)], axis=1).astype(np.uint8).reshape(-1)[:count]
    mask = np.uint8((1 << bits) - 1)
    made = np.empty((len(packed), 8 // bits), np.uint8)
    for place in range(8 // bits):
        np.bitwise_and(packed >> np.uint8(place * bits), mask, out=made[:, place])
    return made.reshape(-1)[:count]


def encode_elements(values: Sequence[bool | int | float | complex], dtype: DType) -> bytes:
    """Numbers as packed elements of a type, rounded to the nearest that it has."""
    bits = dtype.bits or 8
    if dtype.kind is DTypeKind.COMPLEX:
        return np.array(values, np.complex64 if bits == 64 else np.complex128).tobytes()
    if not is_narrow(dtype):
        return np.array(values, WIDE[dtype]).tobytes()
    codes = _codes_of(np.array(values, np.float64), dtype)
    if bits >= 8:
        return codes.astype(f"<u{bits // 8}").tobytes()
    whole = 0
    for place, code in enumerate(codes.tolist()):
        whole |= code << (place * bits)
    return whole.to_bytes(packed_bytes(len(codes), bits), "little")


def _codes_of(values: Floats, dtype: DType) -> npt.NDArray[np.int64]:
    table = pattern_values(dtype)
    order = np.argsort(table, kind="stable")
    held = table[order]
    # Not-a-numbers come last in the order, and are looked for as such.
    after = np.minimum(np.searchsorted(held, values), len(held) - 1)
    before = np.maximum(after - 1, 0)
    with np.errstate(invalid="ignore"):
        is_before = np.abs(held[before] - values) < np.abs(held[after] - values)
    return order[np.where(is_before, before, after)].astype(np.int64)


def packed_bytes(count: int, bits: int) -> int:
    """Bytes that so many packed elements take."""
    return (count * bits + 7) // 8
