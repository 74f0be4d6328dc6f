"""Types are interned, know their size, and are refused where no machine could hold them; scopes and locations tell a node's place."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from irscope.cli.main import main
from irscope.ir.dims import bind, symbol
from irscope.ir.dtypes import DTYPES_BY_TEXT, LONG_NAMES, STRUCT_CODES, DType, DTypeKind
from irscope.ir.places import Blob, Loc, root_scope
from irscope.ir.spelling import parse_type
from irscope.ir.types import UNKNOWN_TENSOR, UNKNOWN_TYPE, map_of, optional, scalar, sequence, tensor, tuple_of
from irscope.session import open_model
from tests.tables import every

# Types are one object each and know their size; scopes and locations tell where a node comes from.


@every("dtype", [dtype for dtype in DType if dtype.kind in (DTypeKind.INT, DTypeKind.UINT, DTypeKind.FLOAT)], ids=str)
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
    assert sequence(scalar(DType.I64)) is sequence(scalar(DType.I64))
    assert optional(UNKNOWN_TENSOR) is optional(tensor(DType.UNKNOWN, None))
    assert optional(tuple_of([UNKNOWN_TYPE])) is optional(tuple_of((UNKNOWN_TYPE,)))
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


# Types are interned and know their exact size.

CONTRACT = """
bool u2 u4 u8 u16 u32 u64 i2 i4 i8 i16 i32 i64 f4e2m1 f6e2m3 f6e3m2
f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f16 bf16 f32 f64 c64 c128 str
"""


def test_names_of_element_types_are_those_scripts_rely_on() -> None:
    assert {text for text, dtype in DTYPES_BY_TEXT.items() if dtype.block is None} == {*CONTRACT.split(), "?"}


@pytest.mark.parametrize(
    ("dtype", "count", "size"),
    [(DType.I4, 13, 7), (DType.U2, 13, 4), (DType.F6E2M3, 13, 10), (DType.F8E4M3FN, 13, 13), (DType.BOOL, 3, 3), (DType.C128, 2, 32)],
)
def test_packed_sizes_are_exact(dtype: DType, count: int, size: int) -> None:
    assert tensor(dtype, (count,)).nbytes == size


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        (DType.Q4_0, (3, 64), 3 * 2 * 18),
        (DType.Q4_K, (2, 256), 288),
        (DType.Q4_0, (33,), 36),
        (DType.Q6_K, (0, 256), 0),
        (DType.MXFP4, (), 17),
    ],
)
def test_blocks_that_are_begun_count_whole(dtype: DType, shape: tuple[int, ...], size: int) -> None:
    assert tensor(dtype, shape).nbytes == size
    assert not (dtype.is_float or dtype.is_integer)
    assert tensor(dtype, (symbol("batch"), 256)).nbytes == symbol("batch") * (256 // dtype.block[0]) * dtype.block[1]  # type: ignore[index]


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


def test_every_type_answers_what_is_asked_about_tensors() -> None:
    for other in (scalar(DType.I64), sequence(tensor(DType.F32, [2])), optional(tensor(DType.F32, [2])), UNKNOWN_TYPE):
        assert (other.shape, other.rank, other.numel, other.nbytes, other.layout, other.device) == (None, None, None, None, None, "")
        assert not other.is_static
        assert other.tensor_bytes == 0
    assert (scalar(DType.I64).dtype, UNKNOWN_TYPE.dtype) == (DType.I64, DType.UNKNOWN)
    assert tensor(DType.F32, [2, 3]).tensor_bytes == 24
    assert tensor(DType.F32, None).tensor_bytes is None, "unknown is never zero"


# Tensors that no machine could hold are refused where a file declares them, and unknown where an operator would make them.


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("f32[4,8]", True),
        ("f32[*]", True),
        ("f32[batch,1000000]", True),
        (f"i8[{2**62 - 1}]", True),
        (f"i8[{2**62}]", False),
        (f"f32[{2**40},{2**40}]", False),
        (f"f32[batch,{2**40},{2**40}]", False),
        ("f32[batch - 9]", True),
        (f"f32[0,{2**40},{2**40}]", True),
        (f"f32[{2**64}*batch]", False),
    ],
)
def test_what_a_machine_could_hold(text: str, fits: bool) -> None:
    type_ = parse_type(text)
    assert type_.is_possible is fits


def test_an_input_that_no_machine_could_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.irs"
    path.write_text("irscope 1\ngraph @main {\n  input %x: f32[" + "9" * 400 + "]\n  return %x\n}\n")
    assert main(["run", str(path)]) == 3
    err = capsys.readouterr().err
    assert "IRS108" in err and err.count("\n") == 1 and len(err) <= 401


def test_a_result_that_no_machine_could_hold_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "m.irs"
    sizes = ",".join(["1099511627776"] * 2)
    path.write_text(f"irscope 1\ngraph @main {{\n  input %x: f32[1]\n  %y: f32[*] = view.expand(%x) {{shape=[{sizes}]}}\n  return %y\n}}\n")
    model = open_model(path)
    assert str(model.graph.outputs[0].type) == "?[*]"
    assert "more elements than a machine can address" in " ".join(map(str, model.run("shapes")["shapes"].report().diagnostics))


def test_negative_sizes() -> None:
    assert not tensor(DType.F32, (4, -1)).is_possible


def test_shared_names_and_codes_of_element_types_have_their_sizes() -> None:
    plain = {name: dtype for name, dtype in LONG_NAMES.items() if not name.startswith(("bfloat", "float8"))}
    assert {name: np.dtype(name).itemsize * 8 for name in plain} == {name: dtype.bits for name, dtype in plain.items()}
    assert {dtype: struct.calcsize(f"<{code}") * 8 for dtype, code in STRUCT_CODES.items()} == {dtype: dtype.bits for dtype in STRUCT_CODES}
    assert all(np.dtype(code) == np.dtype(name) for name, dtype in plain.items() if (code := STRUCT_CODES.get(dtype)))
