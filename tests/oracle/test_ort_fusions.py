"""Fusions of levels 2 and 3 beside what onnxruntime saves: the same nodes, names, order and weights, and none where a condition fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

import numpy as np
import onnx
import onnxruntime as ort

from irscope.frontends.onnx.optimizer.bridge import optimised, session_on
from irscope.frontends.onnx.optimizer.driver import Level
from irscope.frontends.onnx.reader import read_file
from irscope.measure.machine import vector_bits
from irscope.session import open_model
from tests.tools.oracle.ort_fusion_cases import model, read_cases
from tests.tools.ort_levels import reordered, types_of

LEVELS = {
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
CASES = read_cases()
Nodes = list[tuple[str, str, str, list[str], list[str]]]


def saved(source: onnx.ModelProto, level: Level, folder: Path) -> onnx.ModelProto:
    """What a session makes of it."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(folder / "saved.onnx")
    ort.InferenceSession(source.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "saved.onnx")


def predicted(source: onnx.ModelProto, level: Level, folder: Path, order: Sequence[str] = ()) -> onnx.ModelProto:
    path = folder / "source.onnx"
    onnx.save(source, path)
    types = types_of(open_model(path).program)
    return optimised(read_file(path), types, level, replace(session_on("", vector_bits=vector_bits()), reordered=order)).proto


def nodes(proto: onnx.ModelProto) -> Nodes:
    return [(node.domain, node.op_type, node.name, list(node.input), list(node.output)) for node in proto.graph.node]


def weights(proto: onnx.ModelProto) -> list[tuple[str, tuple[int, ...], int]]:
    return sorted((weight.name, tuple(weight.dims), weight.data_type) for weight in proto.graph.initializer)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("level", ["extended", "all"])
def test_fusion(name: str, level: Level, tmp_path: Path) -> None:
    """From the graph that level 1 leaves, so that only levels 2 and 3 are at stake."""
    basic = saved(model(name, CASES[name]), "basic", tmp_path)
    wanted = saved(basic, level, tmp_path)
    # The order of reorders back from blocks is chance in ONNX Runtime.
    found = predicted(basic, level, tmp_path, reordered(wanted))
    if nodes(wanted) == nodes(basic):
        # A graph that nothing changed is saved as it was read.
        assert sorted(nodes(found)) == sorted(nodes(wanted))
    else:
        assert nodes(found) == nodes(wanted)
    assert weights(found) == weights(wanted)


@pytest.mark.parametrize("name", [name for name in CASES if "reshapes" in name or name.startswith("basic-")])
def test_level_1(name: str, tmp_path: Path) -> None:
    """Operators alone: a file that level 1 leaves as it is is saved in another order."""
    source = model(name, CASES[name])
    wanted, found = saved(source, "basic", tmp_path), predicted(source, "basic", tmp_path)
    assert sorted(nodes(found)) == sorted(nodes(wanted))


@pytest.mark.parametrize("operands", [["x", "p"], ["x", "p", ""], ["x", "p", "zero"]])
def test_a_pad_with_an_empty_name_for_its_value_stays(operands: list[str], tmp_path: Path) -> None:
    """As the exporter of TorchScript writes it."""
    made = [onnx.helper.make_node("Pad", operands, ["a"], "pad"), onnx.helper.make_node("Conv", ["a", "w"], ["y"], "conv", pads=[0, 0])]
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy"]
    infos[0].type.tensor_type.shape.CopyFrom(onnx.helper.make_tensor_type_proto(1, ["batch", 4, 20]).tensor_type.shape)
    values = {"p": np.array([0, 0, 2, 0, 0, 0]), "zero": np.float32(0), "w": np.ones((6, 4, 3), np.float32)}
    weights_ = [onnx.numpy_helper.from_array(np.asarray(values[name]), name) for name in ("p", "w", *operands[2:]) if name]
    graph = onnx.helper.make_graph(made, "g", infos[:1], infos[1:], weights_)
    source = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    wanted, found = saved(source, "basic", tmp_path), predicted(source, "basic", tmp_path)
    assert nodes(found) == nodes(wanted)
