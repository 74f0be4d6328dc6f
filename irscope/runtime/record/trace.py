"""What a profiler saw of a run, as plain data: operators in order, and memory that came and went."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

RUN = "irscope::run"
NODE = "irscope::node"
SCOPE = "irscope::scope"
OUT = "irscope::out"
"""Markers that the recorder puts around what it runs; a space and a name follow."""


@dataclass(slots=True)
class Operator:
    """One operator as it was called, with what it called in turn."""

    name: str
    start: int
    end: int
    source: str = ""
    scope: str = ""
    inputs: tuple[str, ...] = ()
    kernels: list[str] = field(default_factory=list)
    seconds: int = 0
    """Nanoseconds spent in it."""
    outs: list[int] = field(default_factory=list)
    """Numbers of the calls that a dispatch mode saw inside."""


@dataclass(slots=True)
class Allocation:
    """A block that came (positive) or went."""

    time: int
    bytes: int
    block: int
    op: int | None = None
    inside: bool = False
    kernel: int = -1
    """Number of the kernel's call; -1 outside of any."""
    kernel_name: str = ""
    scope: str = ""
    device: str = "cpu"
    address: int = 0


@dataclass(slots=True)
class Trace:
    """One run."""

    start: int = 0
    end: int = 0
    operators: list[Operator] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    results: frozenset[int] = frozenset()
    """Addresses of what the run returned."""

    @property
    def names(self) -> tuple[str, ...]:
        """A key that is equal for two runs of the same operators."""
        return tuple(f"{operator.source}:{operator.name}" for operator in self.operators)

    def settle(self) -> None:
        """Put allocations in order and give those outside of operators to the one that ran last."""
        self.allocations.sort(key=lambda one: one.time)
        starts = [operator.start for operator in self.operators]
        for one in self.allocations:
            if one.op is None:
                last = bisect_right(starts, one.time) - 1
                if last >= 0:
                    one.op = last
                    one.inside = one.time <= self.operators[last].end


@dataclass(frozen=True, slots=True)
class Categorised:
    """An allocation with what became of its block."""

    allocation: Allocation
    category: str


def categorise(allocations: Iterable[Allocation], results: frozenset[int]) -> list[Categorised]:
    """Classify blocks by when they are freed: in the kernel that requested them, in its operator, after it, or after the run."""
    listed = list(allocations)
    ends = {one.block: one for one in listed if one.bytes < 0}
    births = {one.block: one for one in listed if one.bytes >= 0}
    return [Categorised(one, _category(births.get(one.block), ends.get(one.block), results)) for one in listed]


def _category(birth: Allocation | None, end: Allocation | None, results: frozenset[int]) -> str:
    if birth is None:
        return "activation"
    if end is None:  # libraries keep the workspace of their first call
        return "output" if birth.address in results else "workspace"
    if birth.inside and end.inside and birth.op == end.op:
        return "workspace" if birth.kernel >= 0 and birth.kernel == end.kernel else "temporary"
    return "activation"
