"""Types are one object each and know their size; scopes and locations tell where a node comes from."""

from __future__ import annotations

import pytest

from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.places import Blob, Loc, root_scope
from irscope.ir.types import UNKNOWN_TENSOR, UNKNOWN_TYPE, map_of, optional, scalar, sequence, tensor, tuple_of


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
