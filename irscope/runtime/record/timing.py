"""Repeated measurements in three numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from irscope.recording.records import Times


def times_of(microseconds: Sequence[float]) -> Times | None:
    """Minimum, median and 95th percentile; None without measurements."""
    if not microseconds:
        return None
    ordered = sorted(microseconds)
    return Times(len(ordered), _short(ordered[0]), _short(statistics.median(ordered)), _short(ordered[_rank(len(ordered))]))


def _rank(count: int) -> int:
    """Position of the smallest measurement that 95 % of them do not exceed."""
    return max(0, -(-95 * count // 100) - 1)


def _short(value: float) -> float:
    """Nanoseconds are below what a clock can tell."""
    return round(value, 3)
