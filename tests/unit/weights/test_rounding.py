"""Rounding to few bits: published figures for normal weights, and torch's own 8-bit floats."""

from __future__ import annotations

import math

import numpy as np
import pytest

from irscope.weights.rounding import CHOICES, FORMATS, Noise, measure_rounding


@pytest.fixture(scope="module")
def decibels() -> dict[str, float]:
    rows = (np.random.default_rng(3).standard_normal((512, 4096)) * 0.02).astype(np.float32)
    noise = Noise()
    for start in range(0, 512, 100):
        measure_rounding(rows[start : start + 100], float(np.abs(rows).max()), noise)
    return noise.decibels()


@pytest.mark.parametrize(("key", "wanted"), [("int8_channel", 41.2), ("int4_channel", 16.1), ("int4_g128", 18.6), ("int4_g32", 20.3)])
def test_normal_weights_lose_what_is_known(key: str, wanted: float, decibels: dict[str, float]) -> None:
    assert decibels[key] == pytest.approx(wanted, abs=0.2)


def test_smaller_groups_never_lose_more(decibels: dict[str, float]) -> None:
    for form in FORMATS:
        found = [decibels[f"{form.name}_{granularity}"] for granularity in form.granularities]
        assert found == sorted(found)


@pytest.mark.torch
@pytest.mark.parametrize(("name", "kind", "most"), [("fp8_e4m3", "float8_e4m3fn", 448), ("fp8_e5m2", "float8_e5m2", 57344)])
def test_floats_round_as_torch_does(name: str, kind: str, most: float) -> None:
    import torch

    form = next(form for form in FORMATS if form.name == name)
    values = np.random.default_rng(0).uniform(-1, 1, 200_000).astype(np.float32)
    values *= np.exp2(np.random.default_rng(1).uniform(-25, 0, values.size)).astype(np.float32) * most
    values[:3] = 0, most, -most
    wanted = torch.from_numpy(values.copy()).to(getattr(torch, kind)).float().numpy()
    np.testing.assert_array_equal(form.round(values.copy()), wanted)


def test_every_number_of_a_small_format_survives() -> None:
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    rows = np.tile(np.concatenate([levels, -levels]), 4).reshape(1, -1) * np.float32(0.25)
    noise = Noise()
    measure_rounding(rows, 1.5, noise)
    assert noise.decibels()["mxfp4_g32"] == math.inf


def test_four_bit_quantiles_are_the_nearest() -> None:
    form = next(form for form in FORMATS if form.name == "nf4")
    values = np.random.default_rng(0).uniform(-1, 1, 10_000).astype(np.float32)
    levels = np.unique(form.round(np.linspace(-1, 1, 100_001, dtype=np.float32)))
    assert len(levels) == 16 and {-1.0, 0.0, 1.0} <= set(levels.tolist())
    nearest = levels[np.abs(values[:, None] - levels).argmin(axis=1)]
    np.testing.assert_array_equal(form.round(values.copy()), nearest)


def test_zeros_and_short_rows_are_no_problem() -> None:
    noise = Noise()
    measure_rounding(np.zeros((3, 5), np.float32), 0.0, noise)
    measure_rounding(np.ones((2, 5), np.float32), 1.0, noise)
    assert noise.signal == 10 and noise.decibels()["int8_g128"] > 100


def test_scales_are_counted() -> None:
    sizes = {choice.key: choice.format.stored_bits(choice.granularity, 4096, 4096 * 64) for choice in CHOICES}
    assert sizes["int4_g32"] == 4.5 and sizes["mxfp4_g32"] == 4.25 and sizes["int8_channel"] == 8 + 16 / 4096
