"""The arithmetic of the comparison with measured times."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.roofline import Run, fit, left_out, summary

pytestmark = pytest.mark.torch


def test_one_factor_fits_what_is_off_by_one_factor() -> None:
    found = fit([0.5, 0.5, 0.5])
    assert found.factor == pytest.approx(2) and found.mean == pytest.approx(0)
    assert left_out([0.5, 0.5, 0.5]) == pytest.approx(0)


def test_the_factor_has_the_least_mean_error() -> None:
    ratios = [0.4, 0.55, 0.6, 0.8, 0.81]
    found = fit(ratios)
    for factor in (0.9 * found.factor, 1.1 * found.factor, 1.0):
        assert found.mean <= sum(abs(factor * ratio - 1) for ratio in ratios) / len(ratios)
    assert left_out(ratios) >= found.mean


def test_a_broken_bound_is_counted() -> None:
    text = summary([Run("good", 1.0, 0.5), Run("bad", 1.0, 1.5)])
    assert "holds on 1 of 2" in text
