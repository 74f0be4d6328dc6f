"""Predicted bytes in use after every kernel against ONNX Runtime's own profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime")

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from irscope.memory import BfcArena
from tests.cli.wild_models import detector_compress, detector_nms, detector_nonzero, loop_trips, text_unique
from tests.tools.oracle.ort_graphs import random_model
from tests.tools.oracle.ort_memory import compare, predict, sample_models, wheel_models
from tests.tools.oracle.ort_profile import measure

KIB = 1 << 10


def has_memory_fields(folder: Path) -> bool:
    """Profiles carry them since onnxruntime 1.29."""
    path = folder / "probe.onnx"
    onnx.save(random_model(0, 5), path)
    try:
        measure(path, False, folder)
    except KeyError:
        return False
    return True


@pytest.fixture(autouse=True)
def _needs_memory_fields(tmp_path: Path) -> None:
    if not has_memory_fields(tmp_path):
        pytest.skip(f"onnxruntime {onnxruntime.__version__} has no memory fields in its profile")


@pytest.mark.parametrize("name", ["cnn", "lstm", "transformer"])
def test_samples(name: str) -> None:
    path = next(path for path in sample_models() if path.stem == name)
    for row in compare(path):
        assert row.error == 0, row


@pytest.mark.parametrize("name", ["light_squeezenet", "light_shufflenet"])
def test_networks_of_the_wheel(name: str) -> None:
    """Their weights are made by nodes; with optimisations ONNX Runtime runs another graph, which it saves."""
    path = next(path for path in wheel_models() if path.stem == name)
    for row in compare(path):
        assert abs(row.error) <= 0.02, row


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    """Every kernel of both runs, to the byte: in use as asked for and as chunks of the arena."""
    path = tmp_path / "model.onnx"
    onnx.save(random_model(seed), path)
    truth, figures = measure(path, False, tmp_path), predict(path, {}).figures
    for run, predicted in zip(truth.runs, (figures.cold, figures.warm), strict=True):
        assert [one.requested for one in run] == predicted.requested
        assert [one.in_use for one in run] == predicted.allocated


@pytest.mark.parametrize(
    "make", [detector_nonzero, detector_nms, detector_compress, text_unique, loop_trips], ids=lambda make: make.__name__
)
def test_sizes_that_depend_on_data_have_limits(make: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    """What a run asks for and has in use lies between the ends that are said."""
    path = tmp_path / "model.onnx"
    onnx.save(make(), path)
    truth, plan = measure(path, False, tmp_path), predict(path, {})
    assert plan.figures is None
    assert plan.limits is not None
    low, high = plan.limits
    for run, least, most in zip(truth.runs, (low.cold, low.warm), (None, None) if high is None else (high.cold, high.warm), strict=True):
        asked, in_use = (max(getattr(one, name) for one in run) for name in ("requested", "in_use"))
        assert least.peak.requested <= asked
        if most is not None:
            assert asked <= most.peak.requested
            assert in_use <= most.peak.allocated


@pytest.mark.parametrize("seed", range(3))
def test_arena(seed: int, tmp_path: Path) -> None:
    """Any sequence of requests that all stay alive, from less than a chunk to many regions."""
    chance = np.random.default_rng(seed)
    sizes = [int(chance.choice([chance.integers(1, 3000), chance.integers(1, 100_000), chance.integers(1, 9_000_000)])) for _ in range(60)]
    path = tmp_path / "model.onnx"
    onnx.save(_allocating(sizes), path)
    arena = BfcArena()
    expected: list[tuple[int, int, int]] = []
    for size in sizes:
        arena.malloc(size)
        expected.append((arena.requested, arena.in_use, arena.held))
    run = _profile_once(path)
    assert run == expected


def _allocating(sizes: list[int]) -> onnx.ModelProto:
    """A model whose kernels ask for these sizes, in this order: ONNX Runtime begins with the last of what nobody reads."""
    nodes = []
    weights = []
    for index, size in reversed(list(enumerate(sizes))):
        # 16 sizes of 8 bytes are more than a session copies into the arena.
        weights.append(onnx.numpy_helper.from_array(np.array([size, *[1] * 15], np.int64), f"size{index}"))
        zero = helper.make_tensor("zero", TensorProto.UINT8, [1], [0])
        nodes.append(helper.make_node("ConstantOfShape", [f"size{index}"], [f"y{index}"], name=f"n{index}", value=zero))
    outputs = [helper.make_tensor_value_info(f"y{index}", TensorProto.UINT8, None) for index in range(len(sizes))]
    graph = helper.make_graph(nodes, "g", [], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _profile_once(path: Path) -> list[tuple[int, int, int]]:
    run: list[Any] = measure(path, False, path.parent).runs[0]
    return [(one.requested, one.in_use, one.held) for one in run]
