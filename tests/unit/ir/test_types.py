"""Types are interned and know their exact size."""

from __future__ import annotations

import pytest

from irscope.ir.dims import bind, symbol
from irscope.ir.dtypes import DTYPES_BY_TEXT, DType
from irscope.ir.types import UNKNOWN_TYPE, map_of, optional, scalar, sequence, tensor, tuple_of

CONTRACT = """
bool u2 u4 u8 u16 u32 u64 i2 i4 i8 i16 i32 i64 f4e2m1 f6e2m3 f6e3m2
f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f16 bf16 f32 f64 c64 c128 str
"""


def test_names_of_element_types_are_those_scripts_rely_on() -> None:
    assert set(DTYPES_BY_TEXT) == {*CONTRACT.split(), "?"}


@pytest.mark.parametrize(
    ("dtype", "count", "size"),
    [(DType.I4, 13, 7), (DType.U2, 13, 4), (DType.F6E2M3, 13, 10), (DType.F8E4M3FN, 13, 13), (DType.BOOL, 3, 3), (DType.C128, 2, 32)],
)
def test_packed_sizes_are_exact(dtype: DType, count: int, size: int) -> None:
    assert tensor(dtype, (count,)).nbytes == size


def test_what_has_no_size_says_so() -> None:
    assert tensor(DType.STR, (2,)).nbytes is None
    assert tensor(DType.UNKNOWN, (2,)).nbytes is None
    assert tensor(DType.F32, None).nbytes is tensor(DType.F32, None).numel is None


def test_symbolic_sizes_are_formulas() -> None:
    batch = symbol("batch")
    assert tensor(DType.F16, (batch, 3)).nbytes == 6 * batch
    odd = tensor(DType.I4, (batch, 3)).nbytes
    assert odd is not None
    assert [bind(odd, {"batch": size}) for size in range(1, 50)] == [(size * 12 + 7) // 8 for size in range(1, 50)]


def test_equal_types_are_one_object() -> None:
    batch = symbol("batch")
    assert tensor(DType.F32, [batch, 2]) is tensor(DType.F32, (batch, 2))
    assert tensor(DType.F32, (2,)) is not tensor(DType.F32, (2,), "cuda")
    assert tensor(DType.F32, (2,)) is not tensor(DType.F32, (2,), layout=(1,))
    assert sequence(scalar(DType.I64)) is sequence(scalar(DType.I64))
    assert optional(tuple_of([scalar(DType.I64)])) is optional(tuple_of([scalar(DType.I64)]))
    assert map_of(DType.I64, scalar(DType.F32)) is map_of(DType.I64, scalar(DType.F32))


def test_a_new_shape_drops_strides_that_no_longer_hold() -> None:
    strided = tensor(DType.F32, (2, 3), "cuda", (1, 2))
    assert strided.with_shape((3, 2)) is tensor(DType.F32, (3, 2), "cuda")
    assert strided.with_dtype(DType.F16) is tensor(DType.F16, (2, 3), "cuda", (1, 2))


def test_every_type_answers_what_is_asked_about_tensors() -> None:
    for other in (scalar(DType.I64), sequence(tensor(DType.F32, [2])), optional(tensor(DType.F32, [2])), UNKNOWN_TYPE):
        assert (other.shape, other.rank, other.numel, other.nbytes, other.layout, other.device) == (None, None, None, None, None, "")
        assert not other.is_static
        assert other.tensor_bytes == 0
    assert (scalar(DType.I64).dtype, UNKNOWN_TYPE.dtype) == (DType.I64, DType.UNKNOWN)
    assert tensor(DType.F32, [2, 3]).tensor_bytes == 24
    assert tensor(DType.F32, None).tensor_bytes is None, "unknown is never zero"
