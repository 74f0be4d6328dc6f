"""The ratio of real run times to the least time, fitted to recordings and validated on held-out models."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_LEAST_MODELS = 3


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded model: what it took and the least that it could have taken, in seconds."""

    model: str
    measured: float
    least: float

    @property
    def ratio(self) -> float:
        return self.measured / self.least


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The fitted factor with what lies between a quarter and three quarters of the models."""

    low: float
    high: float
    models: int
    kept_out: int
    error: float | None
    """Median error of the prediction on held-out models; None without such models."""
    below: tuple[str, ...]
    """Models that ran faster than the least time: a sign that the device's figures are too low."""

    @property
    def middle(self) -> float:
        """What predictions are made with."""
        return math.sqrt(self.low * self.high)


def fit_slowdown(runs: Sequence[Run], aside: frozenset[str]) -> Slowdown | None:
    """The factor for a device; None where there are too few models."""
    ratios = sorted(run.ratio for run in runs if run.model not in aside)
    if len(ratios) < _LEAST_MODELS:
        return None
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    middle = math.sqrt(low * high)
    other = [run for run in runs if run.model in aside]
    error = statistics.median(abs(middle * run.least / run.measured - 1) for run in other) if other else None
    below = tuple(sorted(run.model for run in runs if run.ratio < 1))
    return Slowdown(low, high, len(ratios), len(other), error, below)
