"""Values of small tensors: how they are held, and how a function is applied where some elements are symbolic.

An array has the exact numpy type of its element type. Element types that numpy lacks are held wider: bf16 and the 8, 6
and 4 bit floats as float32, integers below a byte as int8 or uint8, strings as objects. Numbers and truth values may be
symbolic; the array then holds objects: Python ints and SymDims, or Python floats and Reals where the element type is a float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.places import Scalar
from irscope.ir.types import TensorType, Type
from irscope.ops.reals import PRECISION, Real, quotient, real_of

Array: TypeAlias = npt.NDArray[Any]

MAX_ELEMENTS = 4096
"""Tensors with more elements are evaluated only on request."""

_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.U2: np.dtype(np.uint8),
    DType.U4: np.dtype(np.uint8),
    DType.U8: np.dtype(np.uint8),
    DType.U16: np.dtype(np.uint16),
    DType.U32: np.dtype(np.uint32),
    DType.U64: np.dtype(np.uint64),
    DType.I2: np.dtype(np.int8),
    DType.I4: np.dtype(np.int8),
    DType.I8: np.dtype(np.int8),
    DType.I16: np.dtype(np.int16),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.F16: np.dtype(np.float16),
    DType.F64: np.dtype(np.float64),
    DType.C64: np.dtype(np.complex64),
    DType.C128: np.dtype(np.complex128),
    DType.STR: np.dtype(object),
}

# Fraction bits, smallest exponent of a normal number, largest finite value, whether an infinity exists.
_NARROW_FLOATS: dict[DType, tuple[int, int, float, bool]] = {
    DType.BF16: (7, -126, 255.0 * 2.0**120, True),
    DType.F8E4M3FN: (3, -6, 448.0, False),
    DType.F8E4M3FNUZ: (3, -7, 240.0, False),
    DType.F8E5M2: (2, -14, 57344.0, True),
    DType.F8E5M2FNUZ: (2, -15, 57344.0, False),
    DType.F6E2M3: (3, 0, 7.5, False),
    DType.F6E3M2: (2, -2, 28.0, False),
    DType.F4E2M1: (1, 0, 6.0, False),
}
NEVER_NAN = frozenset({DType.F6E2M3, DType.F6E3M2, DType.F4E2M1})
"""Floats without a spelling for "not a number" or infinity: what is too large becomes the largest."""


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the numpy type that holds elements of this type."""
    return _NUMPY.get(dtype, np.dtype(np.float32))


def is_symbolic(array: Array) -> bool:
    """Return whether some element is a symbol."""
    return array.dtype == object and any(isinstance(item, SymDim | Real) for item in array.flat)


def has_reals(array: Array) -> bool:
    """Return whether some element is a float made of sizes."""
    return array.dtype == object and any(isinstance(item, Real) for item in array.flat)


def as_ints(array: Array) -> tuple[int, ...] | None:
    """Return the elements in order as plain integers, None where one is symbolic."""
    return None if is_symbolic(array) else tuple(int(item) for item in array.flat)


def static_shape(type_: Type) -> tuple[int, ...] | None:
    """Return sizes of a tensor type as plain integers, None where one is not known."""
    if type_.shape is None:
        return None
    sizes = [dim for dim in type_.shape if not isinstance(dim, SymDim)]
    return tuple(sizes) if len(sizes) == len(type_.shape) else None


def objects(items: Iterable[object], shape: Sequence[int]) -> Array:
    """Return an array of objects with these elements in row-major order."""
    made = np.empty(tuple(shape), dtype=object)
    made.reshape(-1)[:] = list(items)
    return made


def as_objects(array: Array) -> Array:
    """Return the same elements as Python objects, truth values as 0 and 1."""
    return array.astype(np.int64).astype(object) if array.dtype == np.bool_ else array.astype(object)


def dims_array(dims: Sequence[Dim], dtype: DType = DType.I64) -> Array:
    """Return a one-dimensional integer tensor of sizes, which may be symbolic."""
    return settle(objects(dims, (len(dims),)), dtype)


def to_array(values: Iterable[Scalar], type_: TensorType) -> Array | None:
    """Return values that stand in the graph as an array of their type; None where the type does not say the shape."""
    shape = static_shape(type_)
    if shape is None:
        return None
    items = list(values)
    if len(items) == 1 and shape != ():
        items *= int(np.prod(shape, dtype=np.int64))
    return settle(objects(items, shape), type_.dtype)


def from_bytes(data: bytes, type_: TensorType) -> Array | None:
    """Packed little-endian elements as an array; None for element types that do not fill whole bytes as numpy has them."""
    shape, dtype = static_shape(type_), type_.dtype
    held = np.dtype("<u2") if dtype is DType.BF16 else numpy_dtype(dtype)
    if shape is None or held.itemsize * 8 != dtype.bits or len(data) != held.itemsize * int(np.prod(shape, dtype=np.int64)):
        return None
    array = np.frombuffer(data, held.newbyteorder("<"))
    if dtype is DType.BF16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(numpy_dtype(dtype)).reshape(shape)


def settle(array: Array, dtype: DType) -> Array:
    """Return the elements as the type holds them: converted, wrapped or rounded; objects only where one is symbolic."""
    if dtype is DType.STR or is_symbolic(array):
        return array
    if array.dtype.kind == "c" and dtype.kind is not DTypeKind.COMPLEX:
        array = array.real
    if dtype.is_integer and (array.dtype == object or (dtype.bits or 0) < 8):
        return wrap(array, dtype)
    with np.errstate(all="ignore"):
        if dtype in _NARROW_FLOATS:
            return round_to(array.astype(np.float64), dtype)
        return array.astype(numpy_dtype(dtype), copy=False)


def wrap(array: Array, dtype: DType) -> Array:
    """Integers reduced to the bits of the type, as arithmetic in that type would leave them."""
    bits = dtype.bits or 64
    low = -(1 << (bits - 1)) if dtype.kind is DTypeKind.INT else 0
    wide = as_objects(array if array.dtype.kind in "iuO" else array.astype(np.int64))
    wrapped = objects(((int(item) - low) % (1 << bits) + low for item in wide.flat), wide.shape)
    return wrapped.astype(numpy_dtype(dtype))


def round_to(array: npt.NDArray[np.float64], dtype: DType, saturate: bool = False) -> Array:
    """Floats rounded half to even to a type that numpy lacks; too large ones become the largest, infinite or not a number."""
    fraction, smallest, largest, has_infinity = _NARROW_FLOATS[dtype]
    _, exponent = np.frexp(array)
    quantum = np.ldexp(1.0, np.maximum(exponent - 1, smallest) - fraction)
    with np.errstate(all="ignore"):
        rounded = np.where(np.isfinite(array), np.rint(array / quantum) * quantum, array)
    over = np.abs(rounded) > largest
    if saturate or dtype in NEVER_NAN:
        beyond = np.sign(rounded) * largest
    else:
        beyond = np.sign(rounded) * np.inf if has_infinity else np.full_like(rounded, np.nan)
    with np.errstate(all="ignore"):
        return np.where(over, beyond, rounded).astype(np.float32)


OnReals: TypeAlias = Callable[..., "Real | Dim"]
"""A function of floats made of sizes, and of the bits of their significand."""


def apply(
    arrays: Sequence[Array],
    on_arrays: Callable[..., Any],
    on_dims: Callable[..., Dim] | None,
    dtype: DType,
    on_reals: OnReals | None = None,
    computed_in: DType | None = None,
) -> Array | None:
    """Return a function of broadcast elements: numpy's where all are plain, `on_dims` one by one where some are symbolic.

    `on_reals` computes with floats, of the element type of the result where no other is named.
    """
    if not any(is_symbolic(array) for array in arrays):
        with np.errstate(all="ignore"):
            return settle(np.asarray(on_arrays(*arrays)), dtype)
    working = computed_in or dtype
    wide = np.broadcast_arrays(*(as_objects(array) for array in arrays))
    if on_reals is not None and (dtype.is_float or any(map(has_reals, arrays))):
        bits = PRECISION.get(working)
        if bits is None:
            return None
        rows = zip(*(part.flat for part in wide), strict=True)
        return settle(objects([_of_floats(row, on_arrays, on_reals, working, bits) for row in rows], wide[0].shape), dtype)
    if on_dims is None or any(map(has_reals, arrays)):
        return None
    return settle(objects(map(on_dims, *(part.flat for part in wide)), wide[0].shape), dtype)


def _of_floats(row: Sequence[object], on_arrays: Callable[..., Any], on_reals: OnReals, working: DType, bits: int) -> object:
    """Return the function of one element of each operand."""
    if not any(isinstance(item, SymDim | Real) for item in row):
        with np.errstate(all="ignore"):
            return np.asarray(on_arrays(*(settle(np.asarray(item), working) for item in row))).item()
    made = on_reals(*(real_of(item, bits) for item in row), bits)
    if not isinstance(made, Real):
        return made
    number = quotient(made)
    return made if number is None else settle(np.asarray(number), working).item()
