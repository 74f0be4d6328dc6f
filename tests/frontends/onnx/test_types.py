"""Declared types: names, formulas and missing sizes."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.program import Program
from irscope.ir.types import tensor
from tests.frontends.onnx.build import ints, load, model, value

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
    proto = model([helper.make_node("Add", ["x", "z"], ["y"])], [value("x", ["n"]), value("w"), value("z", ["m"])], initializers=[])
    proto.graph.initializer.append(helper.make_tensor("w", 1, [1], [1.0]))
    given = {"x": tensor(DType.F16, (4, symbol("k") * 2)), "1": tensor(DType.F32, (7,))}
    program = load(proto, LoadOptions(inputs=given))
    assert [str(value.type) for value in program.graph.inputs] == ["f16[4,2*k]", "f32[7]"]
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
