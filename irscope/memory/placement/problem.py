"""Buffers to be placed: when each is alive, how large it is, and which are alive together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.errors import UsageError

Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """Buffers by index; each is alive from `lower` up to, not including, `upper`."""

    lower: Numbers
    upper: Numbers
    size: Numbers

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def moments(self) -> list[Numbers]:
        """Buffers alive together, for each moment that no other one includes."""
        return _moments(self.lower, self.upper)

    @cached_property
    def loads(self) -> Numbers:
        """Bytes alive at each of the moments."""
        return np.array([self.size[alive].sum() for alive in self.moments], dtype=np.int64)

    @cached_property
    def max_live(self) -> int:
        """Most bytes alive at once: no arena can be lower."""
        return max_live(self.lower, self.upper, self.size)

    def part(self, buffers: Numbers) -> Problem:
        """Only these buffers."""
        return Problem(self.lower[buffers], self.upper[buffers], self.size[buffers])

    def height(self, offsets: Numbers) -> int:
        """The height of an arena with these offsets."""
        return int((offsets + self.size).max(initial=0))


def make_problem(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], alignment: int) -> Problem:
    """Checked buffers with sizes rounded up, so that offsets that only add sizes stay aligned."""
    if not len(lower) == len(upper) == len(size):
        raise UsageError(
            f"buffers need as many starts as ends and sizes: {len(lower)}, {len(upper)} and {len(size)} were given", code="IRS350"
        )
    if alignment < 1:
        raise UsageError(f"an alignment of {alignment} bytes is not possible: it must be at least 1", code="IRS351")
    starts, ends, sizes = (np.asarray(numbers, dtype=np.int64).reshape(-1) for numbers in (lower, upper, size))
    for index in np.flatnonzero((ends < starts) | (sizes < 0))[:1].tolist():
        raise UsageError(
            f"buffer {index} lives from {starts[index]} to {ends[index]} and has {sizes[index]} bytes: it must not end before it starts, "
            "nor have less than 0 bytes",
            code="IRS350",
        )
    return Problem(starts, ends, -(-sizes // alignment) * alignment)


def max_live(lower: Numbers, upper: Numbers, size: Numbers) -> int:
    """Most bytes alive at once."""
    times = np.concatenate([upper, lower])
    changes = np.concatenate([-size, size])
    # What ends at a time makes room before what starts at it.
    order = np.lexsort((changes > 0, times))
    return int(np.cumsum(changes[order]).max(initial=0))


def apart(problem: Problem) -> list[Numbers]:
    """Groups of buffers that share no moment with one another, each in the order of its starts."""
    order = np.argsort(problem.lower, kind="stable")
    ends = np.maximum.accumulate(problem.upper[order])
    cuts = np.flatnonzero(problem.lower[order][1:] >= ends[:-1]) + 1
    return np.split(order, cuts)


def _moments(lower: Numbers, upper: Numbers) -> list[Numbers]:
    """The largest sets alive together: the moments just before an end that follows a start."""
    count = len(lower)
    times = np.concatenate([upper, lower])
    is_start = np.repeat([False, True], count)
    alive: dict[int, None] = {}
    found: list[Numbers] = []
    grew = False
    for event in np.lexsort((is_start, times)).tolist():
        if event >= count:
            alive[event - count] = None
            grew = True
            continue
        if grew:
            found.append(np.fromiter(alive, dtype=np.int64, count=len(alive)))
            grew = False
        del alive[event]
    return found
