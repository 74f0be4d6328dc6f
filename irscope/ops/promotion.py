"""Which element type arithmetic on several operands gives: PyTorch's rules, which for equal types are everyone's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Attr
from irscope.ir.types import ScalarType, TensorType, Type

DEFAULT_FLOAT = DType.F32

_RANK = {DTypeKind.BOOL: 0, DTypeKind.UINT: 1, DTypeKind.INT: 1, DTypeKind.FLOAT: 2, DTypeKind.COMPLEX: 3}
_SIGNED = {8: DType.I8, 16: DType.I16, 32: DType.I32, 64: DType.I64}


def promote_types(left: DType, right: DType) -> DType:
    """The smallest type that both fit in; UNKNOWN where frameworks disagree or refuse."""
    if left is right:
        return left
    if left.kind not in _RANK or right.kind not in _RANK:
        return DType.UNKNOWN
    low, high = sorted((left, right), key=lambda dtype: _RANK[dtype.kind])
    if _RANK[low.kind] < _RANK[high.kind]:
        return DType.C128 if low is DType.F64 and high is DType.C64 else high
    return _widest(low, high)


def _widest(left: DType, right: DType) -> DType:
    small, large = sorted((left, right), key=lambda dtype: dtype.bits or 0)
    small_bits, large_bits = small.bits or 0, large.bits or 0
    if small.is_float:
        if small_bits < 16:
            return DType.UNKNOWN
        return large if small_bits < large_bits else DType.F32
    if small.kind is large.kind or (large.kind is DTypeKind.INT and small_bits < large_bits):
        return large
    unsigned = small_bits if small.kind is DTypeKind.UINT else large_bits
    return _SIGNED.get(unsigned * 2, DType.UNKNOWN)


def scalar_dtype(value: Attr) -> DType:
    """The element type of a Python number."""
    if isinstance(value, bool):
        return DType.BOOL
    if isinstance(value, int | SymDim):
        return DType.I64
    if isinstance(value, complex):
        return DType.C64
    return DType.STR if isinstance(value, str) else DEFAULT_FLOAT


def result_dtype(operands: Iterable[Type], scalars: Sequence[Attr] = ()) -> DType:
    """The type of arithmetic on tensors and Python numbers.

    Tensors with axes come before tensors without, those before plain numbers: the later groups only matter where their
    kind (truth value, integer, float, complex) is higher.
    """
    types = list(operands)
    tensors = [type_ for type_ in types if isinstance(type_, TensorType)]
    if not tensors:
        return (
            _promote_all([*(type_.dtype for type_ in types if isinstance(type_, ScalarType)), *map(scalar_dtype, scalars)]) or DType.UNKNOWN
        )
    numbers = [_number_dtype(type_.dtype) for type_ in types if isinstance(type_, ScalarType)] + [scalar_dtype(value) for value in scalars]
    with_axes = [tensor.dtype for tensor in tensors if tensor.shape]
    without_axes = [tensor.dtype for tensor in tensors if tensor.shape == ()]
    either = [tensor.dtype for tensor in tensors if tensor.shape is None]
    answers = {
        _over(_promote_all([*with_axes, *first]), _over(_promote_all([*without_axes, *second]), _promote_all(numbers)))
        for first, second in ((either, []), ([], either))
    }
    answer = answers.pop()
    return answer if answer is not None and not answers else DType.UNKNOWN


def _number_dtype(dtype: DType) -> DType:
    return DEFAULT_FLOAT if dtype is DType.F64 else dtype


def _promote_all(dtypes: Sequence[DType]) -> DType | None:
    found: DType | None = None
    for dtype in dtypes:
        found = dtype if found is None else promote_types(found, dtype)
    return found


def _over(higher: DType | None, lower: DType | None) -> DType | None:
    """The type of a group of operands over that of a group that only counts by its kind."""
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.kind not in _RANK or lower.kind not in _RANK:
        return higher if higher is lower else DType.UNKNOWN
    if _RANK[lower.kind] <= _RANK[higher.kind] and higher is not DType.BOOL:
        return higher
    if lower.kind is DTypeKind.COMPLEX and higher.is_float:
        return DType.C128 if higher is DType.F64 else DType.C64
    return promote_types(higher, lower)


def to_float(dtype: DType) -> DType:
    """The type of a function with fractional results: integers and truth values become the default float."""
    return DEFAULT_FLOAT if dtype.is_integer or dtype is DType.BOOL else dtype
