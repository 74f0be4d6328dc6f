"""Sums of a window by machine code are those by numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from irscope.weights.source import WeightFiles
from irscope.weights.window import Part, Window

Values = np.ndarray[tuple[int], np.dtype[np.float32]]
normal = np.random.default_rng(0).standard_normal


def with_some(values: Values, some: tuple[float, ...]) -> Values:
    values[100 : 100 + len(some)] = some
    return values


@pytest.mark.parametrize(
    "make",
    [
        lambda: (normal(100_003) * 0.02).astype(np.float32),
        lambda: with_some((normal(9_000) * 0.02).astype(np.float32), (0.0, -0.0, 1e-7, -1e-7, 3e38, -3e38)),
        lambda: with_some((normal(9_000) * 0.02).astype(np.float32), (np.nan, np.inf, -np.inf, 0.0)),
        lambda: with_some(np.zeros(9_000, np.float32), (np.nan,)),
        lambda: (1000 + normal(50_000)).astype(np.float32),
        lambda: -np.abs(normal(50_000)).astype(np.float32),
        lambda: np.full(4_097, 0.25, np.float32),
        lambda: np.array([1e-45, -1e-45, 1e-40], np.float32),
        lambda: np.zeros(5, np.float32),
    ],
)
@pytest.mark.parametrize("near", [1e-6, 0.01])
def test_machine_code_finds_what_numpy_finds(make: Callable[[], Values], near: float) -> None:
    pytest.importorskip("numba")
    found, values = [], make()
    with WeightFiles("none") as files, np.errstate(all="ignore"):
        for compiled in (False, True):
            part = Part()
            mask = Window(files, near, True, compiled=compiled)._sum_powers(values.copy(), part)
            found.append((part, None if mask is None else mask.copy()))
    (plain, plain_zero), (quick, quick_zero) = found
    assert [getattr(quick, name) for name in ("nan", "inf", "zeros", "near_zeros")] == [
        getattr(plain, name) for name in ("nan", "inf", "zeros", "near_zeros")
    ]
    np.testing.assert_array_equal(quick.words, plain.words)
    np.testing.assert_array_equal(quick.extremes, plain.extremes)
    assert (plain_zero is None) == (quick_zero is None)
    if plain_zero is not None and quick_zero is not None:
        np.testing.assert_array_equal(quick_zero, plain_zero)
    one, other = plain.moments, quick.moments
    assert (one.count, one.low, one.high) == (other.count, other.low, other.high)
    if one.count:
        # Sums of magnitudes by numpy are of float32 in short rows: within 5e-7.
        assert other.l1 == pytest.approx(one.l1, rel=1e-6)
        assert other.average == pytest.approx(one.average, rel=1e-9, abs=1e-12 * one.deviation)
        assert (other.deviation, other.l2) == pytest.approx((one.deviation, one.l2), rel=1e-9)
        if one.skewness is not None:
            assert (other.skewness, other.kurtosis) == pytest.approx((one.skewness, one.kurtosis), rel=1e-7, abs=1e-7)
