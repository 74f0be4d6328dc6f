"""Weights that stand in attributes of nodes: trees, linear and support vector models, operators that nobody knows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from irscope.ir.graph import Role
from irscope.ir.places import Blob
from irscope.ir.program import Program
from irscope.ir.types import TensorType
from irscope.passes.ort.memory import OrtMemory
from irscope.passes.weights.params import Params
from irscope.passes.weights.storages import count_parameters
from irscope.passkit.manager import Manager
from tests.frontends.onnx.build import load, model, value

ML = "ai.onnx.ml"
LINKS = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
CASES: dict[str, tuple[str, dict[str, object], int, int, int]] = {
    "linear regressor": ("LinearRegressor", {"coefficients": [1.0] * 8, "intercepts": [0.5, 0.25], "targets": 2}, 10, 40, 0),
    "linear classifier": (
        "LinearClassifier",
        {"coefficients": [1.0] * 12, "intercepts": [0.5] * 3, "classlabels_ints": [0, 1, 2]},
        15,
        60,
        0,
    ),
    "svm regressor": (
        "SVMRegressor",
        {"coefficients": [1.0, -1.0], "support_vectors": [1.0] * 8, "n_supports": 2, "rho": [0.1], "kernel_params": [0.1, 0.0, 3.0]},
        11,
        44,
        12,
    ),
    "svm classifier": (
        "SVMClassifier",
        {
            "coefficients": [1.0, -1.0],
            "support_vectors": [1.0] * 8,
            "vectors_per_class": [1, 1],
            "rho": [0.1],
            "prob_a": [1.0],
            "prob_b": [2.0],
            "classlabels_ints": [0, 1],
        },
        13,
        52,
        16,
    ),
    "tree regressor": (
        "TreeEnsembleRegressor",
        {
            **LINKS,
            "nodes_values": [0.5, 0.0, 0.0],
            "target_ids": [0, 0],
            "target_nodeids": [1, 2],
            "target_treeids": [0, 0],
            "target_weights": [1.0, 2.0],
        },
        5,
        20,
        5 * 3 * 8 + 3 * 2 * 8,
    ),
    "tree classifier": (
        "TreeEnsembleClassifier",
        {
            **LINKS,
            "nodes_values": [0.5, 0.0, 0.0],
            "class_ids": [0, 1],
            "class_nodeids": [1, 2],
            "class_treeids": [0, 0],
            "class_weights": [1.0, 2.0],
            "classlabels_strings": ["yes", "no"],
        },
        5,
        20,
        5 * 3 * 8 + 3 * 2 * 8,
    ),
}


def _loaded(op_type: str, attrs: dict[str, object]) -> Program:
    outputs = ["label", "y"] if "Classifier" in op_type else ["y"]
    node = helper.make_node(op_type, ["x"], outputs, domain=ML, **attrs)
    return load(model([node], [value("x", (3, 4))], ai_onnx_ml=3))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_learned_numbers_in_attributes_are_parameters(case: tuple[str, dict[str, object], int, int, int]) -> None:
    op_type, attrs, count, size, constant = case
    totals = count_parameters(_loaded(op_type, attrs))
    assert (totals.count, totals.bytes, totals.constant_bytes) == (count, size, constant)


def test_tables_of_parameters_name_them_with_shapes_and_values() -> None:
    program = _loaded(*CASES["linear regressor"][:2])
    manager = Manager(program)
    report = manager.run_one(Params(values=True)).report()
    rows = {row["name"]: row for row in _dicts(report.tables[0])}
    assert rows["y.coefficients"]["shape"] == (2, 4)
    assert rows["y.intercepts"]["mean"] == pytest.approx(0.375)
    assert report.summary["unread_count"] == 0


def test_many_numbers_lie_in_a_blob_and_are_read_exactly() -> None:
    numbers = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    program = _loaded("LinearRegressor", {"coefficients": numbers.tolist(), "intercepts": [0.0]})
    weight = next(weight for weight in program.weights() if weight.name == "y.coefficients")
    data = program.graph.data[weight]
    assert isinstance(data, Blob)
    assert np.array_equal(np.frombuffer(data.data, "<f4"), numbers)


def test_statistics_of_a_scaler_are_buffers() -> None:
    totals = count_parameters(_loaded("Scaler", {"offset": [0.0] * 4, "scale": [1.0] * 4}))
    assert (totals.count, totals.buffer_bytes) == (0, 32)


def test_weights_in_the_body_of_a_function_count_once() -> None:
    inner = helper.make_node("LinearRegressor", ["a"], ["b"], domain=ML, coefficients=[1.0] * 4, intercepts=[0.0])
    opsets = [helper.make_opsetid(ML, 3)]
    function = helper.make_function("mine", "Line", ["a"], ["b"], [inner], opsets)
    proto = model(
        [helper.make_node("Line", ["x"], ["p"], domain="mine"), helper.make_node("Line", ["x"], ["y"], domain="mine")],
        [value("x", (3, 4))],
        mine=1,
        ai_onnx_ml=3,
    )
    proto.functions.append(function)
    assert count_parameters(load(proto)).count == 5


def test_tensors_in_attributes_of_unknown_operators_are_weights() -> None:
    weight = numpy_helper.from_array(np.ones((100, 8), np.float32))
    program = load(model([helper.make_node("Magic", ["x"], ["y"], domain="acme", weight=weight, axis=1)], acme=1))
    totals = count_parameters(program)
    assert totals.count == 800
    assert next(iter(program.graph)).attrs == {"axis": 1}


def test_a_broken_tensor_of_an_unknown_operator_is_a_weight_of_unknown_size() -> None:
    weight = onnx.TensorProto(data_type=1, dims=[5], raw_data=b"123")
    totals = count_parameters(load(model([helper.make_node("Magic", ["x"], ["y"], domain="acme", weight=weight)], acme=1)))
    assert [one.name for one in totals.unsized] == ["y.weight"]


def test_a_compiled_blob_holds_nobody_knows_how_many_parameters() -> None:
    node = helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", embed_mode=1, ep_cache_context=b"\x00" * 64)
    totals = count_parameters(load(model([node], com_microsoft=1)))
    (weight,) = totals.unsized
    assert weight.role is Role.PARAMETER
    assert isinstance(weight.type, TensorType)
    assert weight.type.shape is None


def test_kernels_keep_weights_of_attributes_outside_the_arena() -> None:
    program = _loaded(*CASES["svm regressor"][:2])
    plan = Manager(program).get(OrtMemory())
    assert plan.figures is not None
    assert plan.figures.before.requested == 0


def _dicts(table: object) -> list[dict[str, object]]:
    columns = [column.key for column in table.columns]  # type: ignore[attr-defined]
    return [dict(zip(columns, row, strict=True)) for row in table.rows()]  # type: ignore[attr-defined]
