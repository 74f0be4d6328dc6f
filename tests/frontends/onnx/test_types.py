"""Types and tensors of every encoding."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.onnx.types import DTYPES, pack_field, packed_size, unpack
from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role, Value
from irscope.ir.places import Blob, Literal
from irscope.ir.program import Program
from irscope.ir.types import tensor
from tests.frontends.onnx.build import ints, load, model, value
from tests.tables import every

# Declared types: names, formulas and missing sizes.

RELU = helper.make_node("Relu", ["x"], ["y"])


def with_input(*dims: int | str | None) -> Program:
    return load(model([RELU], [value("x", dims)]))


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ((2, 3), "f32[2,3]"),
        ((), "f32[]"),
        (("batch", "seq"), "f32[batch,seq]"),
        (("batch*seq", "floor(seq/2)"), "f32[batch*seq,seq//2]"),
        ((None, 3), "f32[x_dim0,3]"),
        (("?", "None"), "f32[x_dim0,x_dim1]"),
        ((-1, 0), "f32[x_dim0,0]"),
        (("batch size", "3"), "f32[batch_size,3]"),
        (("übung", "1st"), "f32[bung,s_1st]"),
        (("-5", 2**40), "f32[x_dim0,1099511627776]"),
    ],
)
def test_sizes_of_inputs(dims: tuple[int | str | None, ...], text: str) -> None:
    assert str(with_input(*dims).graph.inputs[0].type) == text


def test_symbols_and_their_spelling() -> None:
    program = with_input("batch size", "2*n", None)
    assert list(program.symbols) == ["batch_size", "n", "x_dim2"]
    assert program.metadata["symbol.batch_size"] == "batch size"


def test_two_names_that_look_alike_stay_apart() -> None:
    program = with_input("batch size", "batch_size", "batch@size")
    assert len(set(program.symbols)) == 3


def test_missing_shape_is_no_scalar() -> None:
    assert str(load(model([RELU], [value("x", None)])).graph.inputs[0].type) == "f32[*]"


def test_input_names_that_are_no_identifiers() -> None:
    node = helper.make_node("Relu", ["in:0\x1b[31m"], ["y"])
    program = load(model([node], [value("in:0\x1b[31m", [None])]))
    assert program.graph.inputs[0].name == "in:0\x1b[31m"
    assert list(program.symbols) == ["in_0_31m_dim0"]


@pytest.mark.slow
def test_absurd_numbers_of_axes_and_symbols() -> None:
    assert str(with_input(*[None] * 1000).graph.inputs[0].type) == "f32[*]"
    inputs = [value(f"x{index}", [None] * 200) for index in range(200)]
    assert len(load(model([], inputs, [])).symbols) == 20_000


def test_sequence_optional_map_and_sparse() -> None:
    element = helper.make_tensor_type_proto(1, [2, "n"])
    inputs = [
        helper.make_value_info("s", helper.make_sequence_type_proto(element)),
        helper.make_value_info("o", helper.make_optional_type_proto(helper.make_sequence_type_proto(element))),
        helper.make_value_info("m", helper.make_map_type_proto(7, helper.make_tensor_type_proto(8, [1]))),
        helper.make_value_info("p", helper.make_sparse_tensor_type_proto(1, [4, 4])),
    ]
    program = load(model([], inputs, ["s"]))
    texts = [str(value.type) for value in program.graph.inputs]
    assert texts == ["seq(f32[2,n])", "optional(seq(f32[2,n]))", "map(i64, str[1])", "f32[4,4]<sparse>"]


def test_declared_results_name_no_new_symbols() -> None:
    proto = model([RELU], [value("x", ["n"])])
    proto.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, ["n", "m", None]))
    program = load(proto)
    assert list(program.symbols) == ["n"]
    assert str(program.graph.outputs[0].type).startswith("f32[n,?")


def test_results_of_foreign_operators_do() -> None:
    proto = model([helper.make_node("Custom", ["x"], ["y"], domain="my.domain", rate=2)], [value("x", ["n"])], my_domain=1)
    proto.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, ["n", "boxes"]))
    sink = DiagnosticSink()
    program = load(proto, sink=sink)
    node = program.graph.first
    assert node is not None
    assert (node.op, dict(node.attrs), str(node.outputs[0].type)) == ("my.domain.Custom", {"rate": 2}, "f32[n,boxes]")
    assert list(program.symbols) == ["n", "boxes"]
    assert [diagnostic.code for diagnostic in sink] == ["IRS152"]


def test_bad_element_type_of_an_input() -> None:
    with pytest.raises(LoadError, match="element type 99"):
        load(model([RELU], [value("x", [1], 99)]))


def test_input_option_by_name_and_position() -> None:
    inputs = [value("before", ["n", "m"]), value("x", ["n"]), value("w"), value("z", ["m"])]
    proto = model([helper.make_node("Add", ["x", "z"], ["y"])], inputs, initializers=[])
    proto.graph.initializer.append(helper.make_tensor("w", 1, [1], [1.0]))
    given = {"x": tensor(DType.F16, (4, symbol("k") * 2)), "2": tensor(DType.F32, (7,))}
    program = load(proto, LoadOptions(inputs=given))
    assert [str(value.type) for value in program.graph.inputs] == ["f32[4,7]", "f16[4,2*k]", "f32[7]"]
    assert list(program.symbols) == ["k"]


@pytest.mark.parametrize("name", ["nothing", "5", "w"])
def test_input_option_that_does_not_fit(name: str) -> None:
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x"), value("w")], initializers=[ints("w", 1)])
    with pytest.raises(LoadError) as caught:
        load(proto, LoadOptions(inputs={name: tensor(DType.F32, ())}))
    assert caught.value.code == "IRS148"


@pytest.mark.parametrize(("ir_version", "codes"), [(3, []), (10, ["IRS155"])])
def test_inputs_with_a_value_are_weights(ir_version: int, codes: list[str]) -> None:
    sink = DiagnosticSink()
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])], [value("x"), value("w")], initializers=[ints("w", 1)], ir_version=ir_version
    )
    program = load(proto, sink=sink)
    assert [value.name for value in program.graph.inputs] == ["x"]
    assert [value.name for value in program.graph.weights] == ["w"]
    assert [diagnostic.code for diagnostic in sink] == codes


@pytest.mark.parametrize(("opset", "ir_version", "codes"), [(21, 10, []), (999, 10, ["IRS151"]), (21, 99, ["IRS151"]), (0, 10, ["IRS151"])])
def test_versions(opset: int, ir_version: int, codes: list[str]) -> None:
    sink = DiagnosticSink()
    program = load(model([RELU], opset=opset, ir_version=ir_version), sink=sink)
    assert [diagnostic.code for diagnostic in sink] == codes
    assert [node.op for node in program.graph] == ["nn.relu"]


def test_missing_operator_set() -> None:
    proto = model([RELU])
    del proto.opset_import[:]
    sink = DiagnosticSink()
    program = load(proto, sink=sink)
    assert [node.source for node in program.graph] == ["onnx::Relu@14"]
    assert [diagnostic.code for diagnostic in sink] == ["IRS151"]
    (guess,) = program.guesses
    assert guess.what == "operator set" and int(guess.value) >= 14
    assert not load(model([RELU])).assumed
    proto.ir_version = 2
    assert [node.source for node in load(proto).graph] == ["onnx::Relu@1"]


def test_domain_alias() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")
    assert [made.op for made in load(model([node])).graph] == ["nn.relu"]


def test_metadata() -> None:
    proto = model([RELU])
    proto.producer_name, proto.producer_version = "exporter", "1.2"
    onnx.helper.set_model_props(proto, {"author": "me"})
    metadata = load(proto).metadata
    assert metadata["producer"] == "exporter 1.2"
    assert metadata["opsets"] == "ai.onnx 21"
    assert metadata["file.author"] == "me"


# Tensors of every element type in every form, against the onnx package's own reading.

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


@every("number", NUMBERS, ids=lambda number: TensorProto.DataType.Name(number))
def test_raw_data_of_every_type(number: int) -> None:
    expected = random_array(number, 13)
    proto = numpy_helper.from_array(expected)
    program, weight = weight_of(proto)
    assert weight.type is tensor(DTYPES[number], (13,))
    data = program.graph.data[weight]
    assert isinstance(data, Literal)
    np.testing.assert_array_equal(np.asarray(data.values, np.complex128), expected.astype(np.complex128))


@every("number", NUMBERS, ids=lambda number: TensorProto.DataType.Name(number))
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
