"""Checkpoints larger than memory: structure at once, values in a stream, memory flat, stopped when asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from irscope.ir.dtypes import DType
from tests.tools.bench import torch_big, weights_big
from tests.unit.weights.making import look

_GB = 1_000_000_000


@pytest.mark.parametrize("form", weights_big.FORMATS)
@pytest.mark.parametrize("total", [2 * _GB, pytest.param(weights_big.LARGE, marks=pytest.mark.full)], ids=["2 GB", "40 GB"])
def test_values_are_streamed_in_little_memory(form: str, total: int, tmp_path: Path) -> None:
    if not weights_big.has_room(tmp_path):
        pytest.skip("the disk has no room, or cannot make files of holes")
    found = weights_big.measure(form, tmp_path, total, "stream")
    size = weights_big.features(total)
    assert found["read"] == found["bytes"] == 4 * torch_big.LAYERS * size * size and found["zeros"] == found["read"] // 4
    assert found["mb"] <= weights_big.LIMIT_MB


@pytest.mark.parametrize("form", weights_big.FORMATS)
def test_work_stops_within_a_second(form: str, tmp_path: Path) -> None:
    if not weights_big.has_room(tmp_path):
        pytest.skip("the disk has no room, or cannot make files of holes")
    found = weights_big.measure(form, tmp_path, weights_big.LARGE, "cancel")
    assert found["cancelled_after"] <= 1.0


@pytest.mark.full
def test_a_quarter_of_a_billion_values(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    array = np.empty(1 << 28, np.float32)
    for start in range(0, array.size, 1 << 24):
        array[start : start + (1 << 24)] = random.standard_normal(1 << 24) * 0.02
    made = look(tmp_path, array, DType.F32, shape=(1 << 16, 1 << 12))
    parts = [array[start : start + (1 << 24)].astype(np.float64) for start in range(0, array.size, 1 << 24)]
    mean = sum(float(part.sum()) for part in parts) / array.size
    powers = {power: sum(float(((part - mean) ** power).sum()) for part in parts) / array.size for power in (2, 3, 4)}
    wanted = {
        "mean": mean,
        "std": powers[2] ** 0.5,
        "l1": sum(float(np.abs(part).sum()) for part in parts),
        "l2": sum(float((part * part).sum()) for part in parts) ** 0.5,
        "skewness": powers[3] / powers[2] ** 1.5,
        "kurtosis": powers[4] / powers[2] ** 2,
    }
    assert {key: getattr(made, key) for key in wanted} == pytest.approx(wanted, rel=1e-6)
