"""Types are one object each and know their size; scopes and locations tell where a node comes from."""

from __future__ import annotations

import pytest

from irscope.ir.dims import bind, symbol
from irscope.ir.dtypes import DTYPES_BY_TEXT, DType, DTypeKind
from irscope.ir.payload import Blob
from irscope.ir.places import Loc, root_scope
from irscope.ir.types import UNKNOWN_TENSOR, UNKNOWN_TYPE, map_of, optional, scalar, sequence, tensor, tuple_of

CONTRACT_NAMES = (
    "bool u2 u4 u8 u16 u32 u64 i2 i4 i8 i16 i32 i64 f4e2m1 f6e2m3 f6e3m2 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 "
    "f16 bf16 f32 f64 c64 c128 str"
)


def test_element_types_have_the_published_names() -> None:
    assert [dtype.text for dtype in DType if dtype is not DType.UNKNOWN] == CONTRACT_NAMES.split()
    assert all(DTYPES_BY_TEXT[dtype.text] is dtype for dtype in DType)


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.kind in (DTypeKind.INT, DTypeKind.UINT, DTypeKind.FLOAT)], ids=str)
def test_the_size_of_an_element_is_in_its_name(dtype: DType) -> None:
    digits = "".join(char if char.isdigit() else " " for char in dtype.text).split()
    assert dtype.bits == int(digits[0])
    assert dtype.is_integer != dtype.is_float


def test_equal_types_are_one_object() -> None:
    batch = symbol("batch")
    assert tensor(DType.F32, [2, batch * 2]) is tensor(DType.F32, (2, 2 * batch))
    assert tensor(DType.F32, ()) is not tensor(DType.F32, None)
    assert tensor(DType.F32, (2,), "cpu") is not tensor(DType.F32, (2,))
    assert tensor(DType.F32, (2,), layout=(1,)) is not tensor(DType.F32, (2,))
    assert scalar(DType.I64) is scalar(DType.I64)
    assert sequence(UNKNOWN_TYPE) is sequence(UNKNOWN_TYPE)
    assert optional(UNKNOWN_TENSOR) is optional(tensor(DType.UNKNOWN, None))
    assert tuple_of([UNKNOWN_TYPE]) is tuple_of((UNKNOWN_TYPE,))
    assert map_of(DType.I64, UNKNOWN_TYPE) is map_of(DType.I64, UNKNOWN_TYPE)
    assert len({sequence(UNKNOWN_TYPE), optional(UNKNOWN_TYPE), tuple_of([UNKNOWN_TYPE]), UNKNOWN_TYPE}) == 4


@pytest.mark.parametrize(
    ("dtype", "shape", "count", "size"),
    [
        (DType.F32, (2, 3), 6, 24),
        (DType.F32, (), 1, 4),
        (DType.F32, (0, 5), 0, 0),
        (DType.BOOL, (3,), 3, 3),
        (DType.I4, (3,), 3, 2),
        (DType.U2, (3, 3), 9, 3),
        (DType.F6E2M3, (2,), 2, 2),
        (DType.C128, (2,), 2, 32),
        (DType.STR, (2,), 2, None),
        (DType.F32, None, None, None),
    ],
)
def test_bytes_of_packed_elements(dtype: DType, shape: tuple[int, ...] | None, count: int | None, size: int | None) -> None:
    type_ = tensor(dtype, shape)
    assert (type_.numel, type_.nbytes) == (count, size)
    assert type_.rank == (None if shape is None else len(shape))
    assert type_.is_static == (shape is not None)


def test_symbolic_sizes_give_formulas() -> None:
    type_ = tensor(DType.F16, (symbol("batch"), 3))
    assert str(type_.nbytes) == "6*batch"
    assert not type_.is_static
    packed = tensor(DType.I4, (symbol("batch"), 3)).nbytes
    assert packed is not None
    assert [bind(packed, {"batch": batch}) for batch in range(1, 5)] == [2, 3, 5, 6]


def test_types_derived_from_others() -> None:
    type_ = tensor(DType.F32, (2, 3), "cuda:0", (1, 2))
    assert type_.with_dtype(DType.F16) is tensor(DType.F16, (2, 3), "cuda:0", (1, 2))
    assert type_.with_shape([6]) is tensor(DType.F32, (6,), "cuda:0")
    assert repr(type_) == "<TensorType f32[2,3]<1,2>@cuda:0>"


def test_scopes_form_a_tree_of_module_calls() -> None:
    root = root_scope()
    conv = root.child("layer1", "Sequential").child("0", "Block").child("conv", "Conv2d", 2)
    assert root.child("layer1").child("0").child("conv", call=2) is conv
    assert (conv.path, conv.module, conv.depth) == ("layer1/0/conv#2", "layer1.0.conv", 3)
    assert [scope.cls for scope in conv.chain] == ["Sequential", "Block", "Conv2d"]
    assert (root.path, root.module, root.chain, root.depth) == ("", "", (), 0)
    assert [scope.name for scope in root.children] == ["layer1"]
    assert repr(conv) == "<Scope layer1/0/conv#2>"
    assert repr(root) == "<Scope (root)>"


def test_a_module_from_elsewhere_tells_its_own_path() -> None:
    head = root_scope().child("head").child("=encoder.embed")
    assert head.module == "encoder.embed"
    assert head.child("proj").module == "encoder.embed.proj"


def test_a_class_that_becomes_known_later_is_kept() -> None:
    root = root_scope()
    scope = root.child("a")
    assert root.child("a", "Block") is scope
    assert root.child("a", "Other").cls == "Block"


def test_locations_and_blobs_show_themselves_short() -> None:
    assert str(Loc("model.py", 12, "forward")) == "model.py:12"
    assert repr(Blob(b"abc" * 1000)) == "Blob(3000 bytes)"
