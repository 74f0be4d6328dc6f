"""What ONNX Runtime's optimisations make of a graph."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irscope
from irscope.cli.main import main
from irscope.frontends.onnx.optimizer.bridge import Bridge, optimised
from irscope.frontends.onnx.optimizer.driver import Level
from irscope.frontends.onnx.optimizer.graph import OrtGraph, Session
from irscope.frontends.onnx.reader import ModelFile
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor


def model(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    shape: Sequence[int | str] = (2, 3),
    opset: int = 17,
) -> onnx.ModelProto:
    """A model with one input x."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def after(proto: onnx.ModelProto, level: Level = "basic") -> list[str]:
    """The operators that are left, with their results."""
    session = Session()
    found = optimised(ModelFile(proto), {}, level, session).proto.graph
    return [f"{node.op_type}:{','.join(node.output)}" for node in found.node]


def read(proto: onnx.ModelProto) -> OrtGraph:
    return Bridge(ModelFile(proto), {}).read()


def test_a_dropout_goes_and_its_reader_reads_what_it_read() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Dropout", ["a"], ["b"]), helper.make_node("Exp", ["b"], ["y"])]
    assert after(model(nodes)) == ["Relu:a", "Exp:y"]


def test_a_dropout_whose_result_is_the_models_stays() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Dropout", ["a"], ["y"])]
    assert after(model(nodes)) == ["Relu:a", "Dropout:y"]


def test_nodes_stand_in_the_order_in_which_they_run() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Tanh", ["a"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    assert [node.outputs[0] for node in read(model(nodes)).order()] == ["a", "c", "b", "y"]


def test_a_new_node_gets_the_next_number() -> None:
    graph = read(model([helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Exp", ["a"], ["y"])]))
    first, second = graph
    made = graph.fuse([first, second], "Fused", ["x"], domain="com.microsoft")
    assert (made.index, made.outputs, list(graph.nodes)) == (2, ["y"], [2])


def test_constants_are_weights() -> None:
    value = numpy_helper.from_array(np.ones(3, np.float32), "")
    graph = read(model([helper.make_node("Constant", [], ["c"], value=value), helper.make_node("Add", ["x", "c"], ["y"])]))
    found = graph.constant("c")
    assert found is not None
    assert found.shape == (3,)
    assert [node.op for node in graph] == ["Add"]


def test_a_bias_behind_a_product_is_a_gemm() -> None:
    weights = {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    proto = model(nodes, weights)
    types = {"x": tensor(DType.F32, (2, 3)), "a": tensor(DType.F32, (2, 4)), "y": tensor(DType.F32, (2, 4))}
    found = optimised(ModelFile(proto), types, "basic").proto.graph
    assert [(node.op_type, list(node.input)) for node in found.node] == [("Gemm", ["x", "w", "b"])]


def test_what_is_computed_from_constants_is_a_constant() -> None:
    weights = {"one": np.array([1, 2], np.int64), "two": np.array([3, 4], np.int64)}
    nodes = [
        helper.make_node("Add", ["one", "two"], ["sizes"]),
        helper.make_node("Expand", ["x", "sizes"], ["y"]),
    ]
    proto = model(nodes, weights, shape=(1, 1))
    types = {"sizes": tensor(DType.I64, (2,)), "x": tensor(DType.F32, (1, 1)), "y": tensor(DType.F32, (4, 6))}
    found = optimised(ModelFile(proto), types, "basic").proto.graph
    assert [node.op_type for node in found.node] == ["Expand"]
    assert {one.name: numpy_helper.to_array(one).tolist() for one in found.initializer} == {"sizes": [4, 6]}


def test_what_is_computed_from_numbers_without_axes_has_no_axes_that_they_lack(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["rows"]),
        helper.make_node("Unsqueeze", ["rows", "axes"], ["first"]),
        helper.make_node("Concat", ["first", "rest"], ["sizes"], axis=0),
        helper.make_node("Tile", ["x", "sizes"], ["y"]),
    ]
    weights = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([3])}
    onnx.save(model(nodes, weights), tmp_path / "m.onnx")
    program = irscope.load(tmp_path / "m.onnx", ort_level="basic").program
    (tile,) = program.graph
    assert str(tile.outputs[0].type) == "f32[4,9]"


def test_what_is_computed_twice_is_computed_once() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Exp", ["x"], ["b"]),
        helper.make_node("Mul", ["a", "b"], ["y"]),
    ]
    assert sorted(one.partition(":")[0] for one in after(model(nodes))) == ["Exp", "Mul"]


def test_a_level_is_an_option_of_reading(tmp_path: Path) -> None:
    weights = {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    path = tmp_path / "model.onnx"
    onnx.save(model(nodes, weights), path)
    written, basic = (irscope.load(path, ort_level=level) for level in ("off", "basic"))
    sources = [[node.source.partition("@")[0] for node in one.graph] for one in (written, basic)]
    assert [list(dict.fromkeys(one)) for one in sources] == [["onnx::MatMul", "onnx::Add"], ["onnx::Gemm"]]
    assert basic.program.metadata["ort_level"] == "basic, predicted"
    assert str(basic.graph.outputs[0].type) == "f32[2,4]"
    with pytest.raises(irscope.IrscopeError, match="no level 'most'"):
        irscope.load(path, ort_level="most")


def test_two_transposes_that_undo_each_other_go() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Relu", ["t"], ["a"]),
        helper.make_node("Transpose", ["a"], ["u"], perm=[1, 0]),
        helper.make_node("Exp", ["u"], ["y"]),
    ]
    assert [one.partition(":")[0] for one in after(model(nodes))] == ["Relu", "Exp"]


def test_the_shape_of_a_transposed_value_is_that_of_the_value_in_another_order() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Shape", ["t"], ["s"]),
        helper.make_node("Expand", ["x", "s"], ["y"]),
    ]
    assert [one.partition(":")[0] for one in after(model(nodes, shape=("a", "b")))] == ["Shape", "Gather", "Expand"]


def test_a_reshape_by_its_own_sizes_reads_constants() -> None:
    weights = {"zero": np.array(0, np.int64), "axes": np.array([0], np.int64), "rest": np.array([-1], np.int64)}
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["g"]),
        helper.make_node("Unsqueeze", ["g", "axes"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["x", "sizes"], ["y"]),
    ]
    found = optimised(ModelFile(model(nodes, weights, shape=("a", "b", 3))), {}, "basic").proto.graph
    assert [node.op_type for node in found.node] == ["Reshape"]
    assert {one.name: numpy_helper.to_array(one).tolist() for one in found.initializer} == {"sizes": [0, -1]}


def test_a_session_of_an_installed_runtime_is_the_same(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    weights = {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("MatMul", ["i", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    path = tmp_path / "model.onnx"
    onnx.save(model(nodes, weights), path)
    asked, predicted = (irscope.load(path, ort_level="all", use_ort=use_ort, device="xeon-8480") for use_ort in (True, False))
    assert [node.source for node in asked.graph] == [node.source for node in predicted.graph]
    assert asked.program.metadata["ort_level"].startswith("all, asked of onnxruntime ")
    assert {weight.name for weight in asked.graph.weights} == {"w", "b"}


def test_a_model_that_the_runtime_refuses_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    onnx.save(model([helper.make_node("Unheard", ["x"], ["y"], domain="my.own")]), path)
    with pytest.raises(irscope.IrscopeError, match=r"ONNX Runtime makes no session of it: .*my\.own"):
        irscope.load(path, ort_level="all", use_ort=True)


def test_without_the_runtime_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])]), path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(irscope.IrscopeError, match="not installed"):
        irscope.load(path, ort_level="all", use_ort=True)


def test_memory_is_that_of_a_default_session_unless_a_level_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    path = str(tmp_path / "model.onnx")
    onnx.save(model(nodes, weights), path)
    kernels = {}
    for option in ("", "off", "all"):
        assert main(["run", "--format", "json", "--passes", "ort-memory,stats", *(["--ort-level", option] if option else []), path]) == 0
        document = json.loads(capsys.readouterr().out)
        memory, stats = document["reports"]
        kernels[option] = [row[1] for row in memory["tables"][0]["rows"]]
        assert (stats["summary"]["nodes"] == 2) is (option != "all")
    assert kernels == {"": ["Gemm"], "off": ["MatMul", "Add"], "all": ["Gemm"]}


def test_half_precision_runs_between_casts() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Sin", ["a"], ["y"])])
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    types = {name: tensor(DType.F16, (2, 3)) for name in ("x", "a", "y")}
    found = optimised(ModelFile(proto), types, "basic").proto.graph
    assert [node.op_type for node in found.node] == ["Cast", "Relu", "Sin", "Cast"]


def test_an_operator_without_a_kernel_is_its_function() -> None:
    types = {name: tensor(DType.F32, (2, 3)) for name in ("x", "y")}
    found = optimised(ModelFile(model([helper.make_node("HardSwish", ["x"], ["y"])])), types, "basic").proto.graph
    assert [node.op_type for node in found.node] == ["HardSigmoid", "Mul"]


def test_a_dequantised_value_has_one_reader() -> None:
    weights = {"s": np.array(0.5, np.float32), "z": np.array(0, np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Exp", ["d"], ["a"]),
        helper.make_node("Tanh", ["d"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    found = [one.partition(":")[0] for one in after(model(nodes, weights))]
    assert sorted(found) == ["Add", "DequantizeLinear", "DequantizeLinear", "Exp", "QuantizeLinear", "Tanh"]


def test_pairs_are_moved_past_what_only_moves_data() -> None:
    weights = {"s": np.array(0.5, np.float32), "z": np.array(0, np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
        helper.make_node("Softmax", ["t"], ["y"]),
    ]
    found = [one.partition(":")[0] for one in after(model(nodes, weights))]
    assert found == ["QuantizeLinear", "DequantizeLinear", "Transpose", "QuantizeLinear", "DequantizeLinear", "Softmax"]


def test_a_name_for_a_node_takes_no_look_at_all_nodes() -> None:
    def calls(count: int) -> int:
        graph = OrtGraph({"": 17})
        for number in range(count):
            graph.add_node("Relu", [f"x{number}"], [f"x{number + 1}"], name=f"relu{number % 2}")
        found = 0

        def seen(frame: object, event: str, argument: object) -> None:
            nonlocal found
            found += 1

        sys.setprofile(seen)
        try:
            assert graph.new_node_name("gelu") == "gelu"
            assert graph.new_node_name("relu1") == "relu1_token_0"
        finally:
            sys.setprofile(None)
        return found

    assert calls(400) <= calls(50)
