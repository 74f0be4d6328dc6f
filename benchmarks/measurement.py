"""One figure of the benchmark, and how it compares with what was measured beside it in the same run."""

from __future__ import annotations

from typing import NamedTuple


class Measurement(NamedTuple):
    """A figure. Machines differ, so that it is held against a peer or a ceiling of the same run where there is one."""

    name: str
    value: float
    unit: str
    """What the value is in: "CPU s", "MB", "us a node"; with "/s" at its end more is better, else less."""
    peer: str = ""
    """What was measured beside it."""
    ratio: float | None = None
    """The value divided by the peer's."""
    goal: float | None = None
    """What the ratio should reach where there is one, else what the value should."""

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")

    @property
    def compared(self) -> float:
        """What the goal is for."""
        return self.value if self.ratio is None else self.ratio

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        if self.goal is None:
            return None
        return self.compared >= self.goal if self.is_rate else self.compared <= self.goal


def amount(number: float | None) -> str:
    """A number of three digits; empty where there is none."""
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
