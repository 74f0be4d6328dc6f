"""Tensors of every element type in every form, against the onnx package's own reading."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from irscope.errors import LoadError
from irscope.frontends.onnx.types import DTYPES, pack_field, packed_size, unpack
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role, Value
from irscope.ir.places import Blob, Literal
from irscope.ir.program import Program
from irscope.ir.types import tensor
from tests.frontends.onnx.build import load, model, value

NUMBERS = sorted(number for number in DTYPES if number not in (0, 8) and number in TensorProto.DataType.values())


def weight_of(proto: onnx.TensorProto) -> tuple[Program, Value]:
    proto.name = "w"
    program = load(model([helper.make_node("Identity", ["w"], ["y"])], [], initializers=[proto]))
    return program, program.graph.weights[0]


def random_array(number: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(number)
    dtype = helper.tensor_dtype_to_np_dtype(number)
    if dtype == np.bool_:
        return rng.integers(0, 2, count).astype(np.bool_)
    if np.issubdtype(dtype, np.complexfloating):
        return (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(dtype)
    return (
        rng.integers(0, 2, count).astype(np.float32).astype(dtype)
        if DTYPES[number].bits in (2, 4, 6)
        else rng.integers(0, 100, count).astype(dtype)
    )


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: TensorProto.DataType.Name(number))
def test_raw_data_of_every_type(number: int) -> None:
    expected = random_array(number, 13)
    proto = numpy_helper.from_array(expected)
    program, weight = weight_of(proto)
    assert weight.type is tensor(DTYPES[number], (13,))
    data = program.graph.data[weight]
    assert isinstance(data, Literal)
    np.testing.assert_array_equal(np.asarray(data.values, np.complex128), expected.astype(np.complex128))


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: TensorProto.DataType.Name(number))
def test_typed_fields_of_every_type(number: int) -> None:
    expected = random_array(number, 13)
    proto = helper.make_tensor(
        "w", number, [13], expected.tolist() if DTYPES[number].bits not in (2, 4, 6, 8) else expected.astype(np.float32).tolist()
    )
    assert not proto.HasField("raw_data")
    program, weight = weight_of(proto)
    data = program.graph.data[weight]
    assert isinstance(data, Literal)
    np.testing.assert_array_equal(np.asarray(data.values, np.complex128), numpy_helper.to_array(proto).astype(np.complex128))


@pytest.mark.parametrize("number", [number for number in NUMBERS if DTYPES[number].bits == 8 and DTYPES[number].is_float])
def test_every_code_of_8_bit_floats(number: int) -> None:
    raw = bytes(range(256))
    expected = np.frombuffer(raw, helper.tensor_dtype_to_np_dtype(number)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(unpack(raw, DTYPES[number], 256), np.float32), expected)


@pytest.mark.parametrize(
    ("dtype", "count", "size"), [(DType.U4, 13, 7), (DType.I2, 13, 4), (DType.F6E2M3, 13, 10), (DType.F8E8M0, 13, 13), (DType.BF16, 13, 26)]
)
def test_packed_sizes(dtype: DType, count: int, size: int) -> None:
    assert packed_size(count, dtype) == size


def test_large_floats_are_kept_packed() -> None:
    program, weight = weight_of(helper.make_tensor("w", TensorProto.BFLOAT16, [40], [1.5] * 40))
    assert program.graph.data[weight] == Blob(b"\xc0\x3f" * 40)
    assert pack_field([0x3FC0] * 2, DType.BF16) == b"\xc0\x3f" * 2


@pytest.mark.parametrize(
    "proto",
    [
        TensorProto(data_type=1, dims=[4], raw_data=b"123"),
        TensorProto(data_type=1, dims=[4], float_data=[1, 2, 3]),
        TensorProto(data_type=1, dims=[-4], raw_data=b""),
        TensorProto(data_type=1, dims=[2**31, 2**31, 2**31], raw_data=b""),
        TensorProto(data_type=1, dims=[2**31, 2**31], raw_data=b"1234"),
        TensorProto(data_type=99, dims=[1], raw_data=b"1234"),
        TensorProto(data_type=0, dims=[1], raw_data=b"1234"),
        TensorProto(data_type=8, dims=[1], raw_data=b"1234"),
        TensorProto(data_type=21, dims=[13], raw_data=b"123456"),
    ],
)
def test_malformed_tensors_are_refused(proto: onnx.TensorProto) -> None:
    with pytest.raises(LoadError, match="tensor 'w'") as caught:
        weight_of(proto)
    assert caught.value.code == "IRS144"


def test_empty_and_scalar_tensors() -> None:
    program, weight = weight_of(TensorProto(data_type=1, dims=[0, 5]))
    assert program.graph.data[weight] == Literal(())
    program, weight = weight_of(TensorProto(data_type=7, int64_data=[7]))
    assert (program.graph.data[weight], weight.type) == (Literal((7,)), tensor(DType.I64, ()))


def test_strings() -> None:
    program, weight = weight_of(helper.make_tensor("w", TensorProto.STRING, [2], [b"a", b"\xff"]))
    assert program.graph.data[weight] == Literal(("a", "\N{REPLACEMENT CHARACTER}"))


def sparse(indices: list[int] | list[list[int]], shape: list[int]) -> onnx.SparseTensorProto:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [5.0, 6.0])
    array = np.asarray(indices, np.int64)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(array, "i"), shape)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_small_sparse_tensors_become_dense(indices: list[int]) -> None:
    proto = model([helper.make_node("Identity", ["w"], ["y"])], [])
    proto.graph.sparse_initializer.append(sparse(indices, [2, 3]))
    program = load(proto)
    assert program.graph.data[program.graph.weights[0]] == Literal((0.0, 5.0, 0.0, 0.0, 0.0, 6.0))


def test_large_sparse_tensors_keep_their_type() -> None:
    proto = model([helper.make_node("Constant", [], ["y"], sparse_value=sparse([1, 5], [200, 300]))], [])
    proto.graph.sparse_initializer.append(sparse([1, 5], [200, 300]))
    program = load(proto)
    assert [str(weight.type) for weight in program.graph.weights] == ["f32[200,300]<sparse>", "f32[200,300]"]


@pytest.mark.parametrize("indices", [[1, 6], [-1, 2], [[0, 1], [1, 3]]])
def test_indices_outside_a_sparse_tensor_are_refused(indices: list[int]) -> None:
    proto = model([helper.make_node("Identity", ["w"], ["y"])], [])
    proto.graph.sparse_initializer.append(sparse(indices, [2, 3]))
    with pytest.raises(LoadError, match="outside"):
        load(proto)


def test_roles() -> None:
    weights = [
        helper.make_tensor("w", 1, [2, 3], [1.0] * 6),
        helper.make_tensor("half", 1, [], [0.5]),
        helper.make_tensor("axes", 7, [1], [0]),
        helper.make_tensor("scale", 1, [3], [1.0] * 3),
        helper.make_tensor("mean", 1, [3], [1.0] * 3),
    ]
    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "scale", "mean", "mean"], ["b"]),
        helper.make_node("Sum", ["b", "w", "half"], ["y"]),
    ]
    program = load(model(nodes, [value("x")], initializers=weights))
    roles = {weight.name: weight.role for weight in program.graph.weights}
    assert roles == {"w": Role.PARAMETER, "half": Role.CONSTANT, "axes": Role.CONSTANT, "scale": Role.PARAMETER, "mean": Role.BUFFER}
