"""Which storages are alive at a step, found in logarithmic time plus the size of the answer."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from irscope.passes.lifetimes.lives import LiveRange


@dataclass(frozen=True)
class Windows:
    """Intervals of steps, each with all storages that are alive anywhere in it, in order of birth.

    An interval ends before it holds more than twice as many storages as its emptiest step has alive (at least one). So a step's own
    interval holds little besides what is alive there, and all intervals together hold at most four entries for each storage.
    """

    starts: list[int]
    """The first step of each interval."""
    members: list[list[LiveRange]]

    def living(self, step: int) -> list[LiveRange]:
        """Storages alive at a step, in order of birth."""
        at = bisect_right(self.starts, step) - 1
        if at < 0:
            return []
        return [one for one in self.members[at] if one.born <= step <= one.dies]


def windows(ranges: Sequence[LiveRange], steps: int) -> Windows:
    """The intervals of a timeline."""
    births: list[list[LiveRange]] = [[] for _ in range(steps)]
    deaths = [0] * (steps + 1)
    for one in ranges:
        births[one.born].append(one)
        deaths[min(one.dies + 1, steps)] += 1
    found = Windows([], [])
    inside: list[LiveRange] = []
    alive = emptiest = 0
    for step in range(steps):
        alive += len(births[step]) - deaths[step]
        emptiest = max(1, min(emptiest, alive))
        if not found.starts or len(inside) + len(births[step]) > 2 * emptiest:
            inside = [one for one in inside if one.dies >= step]
            found.starts.append(step)
            found.members.append(inside)
            emptiest = max(1, alive)
        inside.extend(births[step])
    return found
