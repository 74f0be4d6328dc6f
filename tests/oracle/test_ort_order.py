"""Predicted orders of kernels against ONNX Runtime's own profile."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

import onnx
import onnxruntime
from onnx import TensorProto, helper

from tests.oracle.test_ort_memory import has_memory_fields
from tests.tools.oracle.ort_graphs import random_model
from tests.tools.oracle.ort_memory import cached_exports, sample_models, wheel_models
from tests.tools.oracle.ort_order import Compared, compare

pytestmark = pytest.mark.ort


@pytest.fixture(autouse=True)
def _needs_memory_fields(tmp_path: Path) -> None:
    if not has_memory_fields(tmp_path):
        pytest.skip(f"onnxruntime {onnxruntime.__version__} has no memory fields in its profile")


def check(row: Compared) -> None:
    """Kernels ran as predicted, from both files, with the same results."""
    assert row.equal == {"default": True, "priority_based": True}
    assert row.same_results
    assert row.refused


@pytest.mark.parametrize("path", sample_models(), ids=lambda path: path.stem)
def test_samples(path: Path) -> None:
    check(compare(path))


def test_a_network_of_the_wheel() -> None:
    row = compare(next(path for path in wheel_models() if path.stem == "light_squeezenet"), seconds=0.5)
    check(row)
    assert row.peaks_equal


@pytest.mark.parametrize("seed", range(20, 28))
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(random_model(seed), path)
    row = compare(path, seconds=0.5)
    check(row)
    assert row.peaks_equal


def test_casts_of_casts_are_taken_out(tmp_path: Path) -> None:
    """ONNX Runtime does so with graph optimisations off, too."""

    def cast(source: str, name: str, to: int) -> onnx.NodeProto:
        return helper.make_node("Cast", [source], [name], to=to)

    nodes = [
        cast("x", "wider", TensorProto.INT64),
        cast("wider", "floats", TensorProto.FLOAT),
        cast("floats", "back", TensorProto.INT64),
        cast("back", "again", TensorProto.FLOAT),
        helper.make_node("Abs", ["floats"], ["kept"]),
        helper.make_node("Add", ["again", "kept"], ["y"]),
        cast("wider", "z", TensorProto.BOOL),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.BOOL, [8, 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 8]), helper.make_tensor_value_info("z", TensorProto.BOOL, [8, 8])]
    graph = helper.make_graph(nodes, "casts", inputs, outputs)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    row = compare(path)
    check(row)
    assert row.kernels < len(nodes)


@pytest.mark.full
@pytest.mark.parametrize("path", [*wheel_models(), *cached_exports()], ids=lambda path: path.stem)
def test_all(path: Path) -> None:
    check(compare(path))
