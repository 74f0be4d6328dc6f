"""How much more the arena asks the device for when nothing free is large enough."""

from __future__ import annotations

import struct
from typing import Final, Literal, get_args

from irscope.errors import UsageError

Strategy = Literal["next_power_of_two", "same_as_requested"]
"""ONNX Runtime's arena_extend_strategy: kNextPowerOfTwo (its default) or kSameAsRequested."""

MIB: Final = 1 << 20
GRAIN: Final = 256
"""Every chunk is a multiple of this."""
FIRST_REGION: Final = MIB
"""initial_chunk_size_bytes"""
AFTER_SHRINKING: Final = 2 * MIB
"""initial_growth_chunk_size_bytes"""
MOST_DOUBLED: Final = 1 << 30
"""max_power_of_two_extend_bytes"""
MOST_DEAD: Final = 128 * MIB
"""max_dead_bytes_per_chunk"""
_LEAST_RETRY: Final = 8 * 1024


def rounded(size: int) -> int:
    """A request as the arena counts it."""
    return (size + GRAIN - 1) & -GRAIN


class Growth:
    """The size of the next region."""

    __slots__ = ("after_shrinking", "most_doubled", "next_size", "strategy")

    def __init__(self, strategy: Strategy, first: int, after_shrinking: int, most_doubled: int) -> None:
        if strategy not in get_args(Strategy):
            known = ", ".join(get_args(Strategy))
            raise UsageError(f"there is no way to extend an arena called {strategy!r}", code="IRS321", hint=f"known: {known}")
        self.strategy = strategy
        self.next_size = rounded(first)
        self.after_shrinking = after_shrinking
        self.most_doubled = most_doubled

    def region_for(self, size: int, available: int) -> int:
        """Bytes to ask for on behalf of a request that no free chunk can serve."""
        if self.strategy == "same_as_requested":
            return size
        if size > self.next_size:
            while size > self.next_size:
                self.next_size *= 2
            return min(self.next_size, available)
        found = min(self.next_size, available)
        self.next_size = min(2 * self.next_size, self.most_doubled)
        return found


def less_after_failure(size: int, least: int) -> int | None:
    """What is tried when the device refused a region: nine tenths of it, as long as the request fits."""
    # ONNX Runtime computes this in single precision.
    smaller = rounded(int(_single(_single(float(size)) * _single(0.9))))
    return smaller if smaller >= max(least, _LEAST_RETRY) else None


def _single(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])
