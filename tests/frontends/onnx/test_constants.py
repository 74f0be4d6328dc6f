"""Weights of ONNX files count the same wherever they stand: as initializers, in Constant nodes, or in attributes of a node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from irscope.frontends.onnx import load_model
from irscope.ir.graph import Role
from irscope.passes.cost.flops import Flops
from irscope.passes.inference.shapes import Shapes
from irscope.passes.memory.liveness import Liveness
from irscope.passes.ort.memory import OrtMemory
from irscope.passes.weights.params import Params
from irscope.passes.weights.storages import count_parameters
from irscope.passkit.manager import Manager

F32 = np.float32
node = helper.make_node


def model(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray[Any, Any]], shape: list[int], opset: int = 17) -> onnx.ModelProto:
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    results = [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)]
    graph = helper.make_graph(nodes, "g", inputs, results, arrays)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def in_nodes(made: onnx.ModelProto, spread: bool = False) -> onnx.ModelProto:
    """The same with a Constant node for each initializer, in front or right before its first reader."""
    model_proto = onnx.ModelProto()
    model_proto.CopyFrom(made)
    graph = model_proto.graph
    constants = {tensor.name: node("Constant", [], [tensor.name], name=f"{tensor.name}_node", value=tensor) for tensor in graph.initializer}
    rest = list(graph.node)
    del graph.node[:], graph.initializer[:]
    if not spread:
        graph.node.extend(constants.values())
    for one in rest:
        graph.node.extend(constants.pop(name) for name in one.input if spread and name in constants)
        graph.node.append(one)
    return model_proto


def numbers(made: onnx.ModelProto) -> dict[str, object]:
    """All that reports say of weights and memory."""
    program = load_model(made)
    manager = Manager(program)
    totals = count_parameters(program)
    figures = manager.get(OrtMemory()).figures
    assert figures is not None
    params = Params().report(manager.get(Params()), manager)
    liveness = Liveness().report(manager.get(Liveness()), manager)
    return {
        "totals": (totals.count, totals.bytes, totals.buffer_bytes, totals.constant_bytes),
        "weights": sorted((weight.name, str(weight.type), weight.role) for weight in program.weights()),
        "figures": (figures.before, figures.cold.peak, figures.warm.peak, figures.cold.requested),
        "params": params.summary,
        "liveness": {key: value for key, value in liveness.summary.items() if key != "peak_node"},
        "flops": Flops().report(manager.get(Flops()), manager).summary,
    }


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["MatMul", "Add", "Mul", "Gemm", "Cast", "Reshape", "Clip", "Gather", "Abs"]), min_size=1, max_size=8),
    st.booleans(),
)
def test_constant_nodes_are_what_initializers_are(ops: list[str], spread: bool) -> None:
    rng = np.random.default_rng(len(ops))
    weights: dict[str, np.ndarray[Any, Any]] = {}
    nodes = []
    before = "x"
    for place, op in enumerate(ops):
        w, b, result = f"w{place}", f"b{place}", f"r{place}"
        operands, attributes = [before], {}
        if op == "Gemm":
            weights |= {w: rng.normal(size=(16, 16)).astype(F32), b: rng.normal(size=16).astype(F32)}
            operands += [w, b]
        elif op == "Clip":
            weights |= {w: np.array(-1, F32), b: np.array(1, F32)}
            operands += [w, b]
        elif op == "Cast":
            weights[w] = rng.integers(-8, 8, (16, 16)).astype(np.int8)
            nodes.append(node("Cast", [w], [f"c{place}"], name=f"c{place}", to=TensorProto.FLOAT))
            op, operands = "MatMul", [before, f"c{place}"]
        elif op != "Abs":
            array = {"MatMul": rng.normal(size=(16, 16)).astype(F32), "Reshape": np.array([8, 16]), "Gather": np.arange(8)}
            weights[w] = array.get(op, rng.normal(size=16).astype(F32))
            operands.append(w)
        nodes.append(node(op, operands, [result], name=result, **attributes))
        before = result
    nodes.append(node("Identity", [before], ["y"], name="y"))
    made = model(nodes, weights, [8, 16])
    assert numbers(in_nodes(made, spread)) == numbers(made)


def test_constant_nodes_of_branches_are_what_their_initializers_are() -> None:
    def branch(name: str, in_node: bool) -> onnx.GraphProto:
        array = numpy_helper.from_array(np.ones((16, 16), F32), f"{name}_w")
        nodes = [node("MatMul", ["x", f"{name}_w"], [f"{name}_y"], name=f"{name}_y")]
        constant = [node("Constant", [], [f"{name}_w"], name=f"{name}_w", value=array)] if in_node else []
        return helper.make_graph(
            constant + nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", 1, [8, 16])], [] if in_node else [array]
        )

    def made(in_node: bool) -> onnx.ModelProto:
        choice = node("If", ["c"], ["y"], name="y", then_branch=branch("a", in_node), else_branch=branch("b", in_node))
        return model([node("ReduceMax", ["x"], ["m"], keepdims=0), node("Cast", ["m"], ["c"], to=TensorProto.BOOL), choice], {}, [8, 16])

    assert numbers(made(True))["totals"] == numbers(made(False))["totals"] == (512, 2048, 0, 0)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value_floats": [1.0, 2.0, 3.0]}, (3, 12, 0, 0)),
        ({"value_float": 1.0}, (0, 0, 0, 4)),
        ({"value_ints": [1, 2, 3]}, (0, 0, 0, 24)),
        ({"sparse_value": ([5.0], [2], [3])}, (3, 12, 0, 0)),
    ],
)
def test_every_form_of_a_constant_counts(attributes: dict[str, Any], expected: tuple[int, ...]) -> None:
    if "sparse_value" in attributes:
        values, indices, dims = attributes["sparse_value"]
        tensors = (numpy_helper.from_array(np.array(values, F32)), numpy_helper.from_array(np.array(indices)))
        attributes = {"sparse_value": helper.make_sparse_tensor(*tensors, dims)}
    made = model([node("Constant", [], ["c"], **attributes), node("Cast", ["c"], ["f"], to=1), node("Add", ["x", "f"], ["y"])], {}, [2, 3])
    totals = count_parameters(load_model(made))
    assert (totals.count, totals.bytes, totals.buffer_bytes, totals.constant_bytes) == expected


_BOX = np.zeros((1, 4, 4), F32)
_ROOT = {"nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "nodes_values": [0.5, 0.0, 0.0]}
_LINKS = {"nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0]}
_TARGETS = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0], "n_targets": 1}


@pytest.mark.parametrize(
    ("op", "attributes", "parameters"),
    [
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "intercepts": [1.0]}, 4),
        ("LinearClassifier", {"coefficients": [1.0] * 6, "intercepts": [1.0, 2.0], "classlabels_ints": [0, 1]}, 8),
        (
            "SVMRegressor",
            {"coefficients": [1.0, 2.0], "support_vectors": [1.0] * 6, "rho": [1.0], "n_supports": 2, "kernel_type": "LINEAR"},
            9,
        ),
        ("TreeEnsembleRegressor", {**_ROOT, **_LINKS, **_TARGETS}, 5),
    ],
)
def test_what_was_learned_stands_in_attributes_and_counts(op: str, attributes: dict[str, Any], parameters: int) -> None:
    made = load_model(model([node(op, ["x"], ["y"], domain="ai.onnx.ml", **attributes)], {}, [2, 3]))
    totals = count_parameters(made)
    assert (totals.count, totals.bytes) == (parameters, 4 * parameters)
    manager = Manager(made)
    assert Liveness().report(manager.get(Liveness()), manager).summary["param_bytes"] == 4 * parameters


@pytest.mark.parametrize(
    ("nodes", "weights", "shape", "opset"),
    [
        ([node("Resize", ["x", "roi", "s"], ["y"])], {"roi": np.zeros(8, F32), "s": np.array([1, 1, 2, 2], F32)}, [1, 2, 4, 4], 17),
        ([node("Resize", ["x", "s"], ["y"])], {"s": np.array([1, 1, 2, 2], F32)}, [1, 2, 4, 4], 10),
        ([node("Upsample", ["x", "s"], ["y"])], {"s": np.array([1, 1, 2, 2], F32)}, [1, 2, 4, 4], 9),
        (
            [node("ArgMax", ["x"], ["a"]), node("OneHot", ["a", "d", "v"], ["y"])],
            {"d": np.array([5]), "v": np.array([0, 1], F32)},
            [2, 5],
            17,
        ),
        (
            [node("MaxPool", ["x"], ["s"], kernel_shape=[1]), node("NonMaxSuppression", ["b", "s", "k", "i", "t"], ["y"])],
            {"k": np.array([3]), "i": np.array([0.5], F32), "t": np.array([0.1], F32), "b": _BOX.astype(np.float32)},
            [1, 1, 4],
            17,
        ),
        ([node("Pad", ["x", "p", "v"], ["y"])], {"p": np.array([0, 0, 1, 1]), "v": np.array(0, F32)}, [2, 5], 17),
    ],
)
def test_sizes_scales_and_thresholds_are_no_parameters(
    nodes: list[onnx.NodeProto], weights: dict[str, Any], shape: list[int], opset: int
) -> None:
    program = load_model(model(nodes, weights, shape, opset))
    assert {weight.name for weight in program.weights() if weight.role is Role.PARAMETER} <= {"b"}


def test_a_quantised_number_without_axes_has_a_type() -> None:
    """A constant of no axes between QuantizeLinear and DequantizeLinear, as quantisers put around the 1 of a GELU."""
    weights = {"one": F32(1), "s": F32(0.1), "z": np.int8(3)}
    nodes = [node("QuantizeLinear", ["one", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"])]
    program = load_model(model([*nodes, node("Mul", ["x", "d"], ["y"])], weights, [2]))
    found = Manager(program).get(Shapes())
    assert [str(found.type_of(node.outputs[0])) for node in program.graph] == ["i8[]", "f32[]", "f32[2]"]
