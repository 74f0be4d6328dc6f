"""Where memory lies: the segments that the device gave, what is free in them, and who keeps them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from irscope.tools.explain.history import History, rounded

ALLOCATED: Final = "allocated"
ROUNDING: Final = "rounding of blocks"
FRAGMENT: Final = "free parts of segments in use"
CACHED: Final = "free segments in the cache"


@dataclass
class Piece:
    """Adjacent memory that the device gave."""

    address: int
    size: int
    blocks: list[int] = field(default_factory=list)
    """Those alive in it, by address."""
    used: int = 0

    @property
    def free(self) -> int:
        return max(self.size - self.used, 0)


class Space:
    """The memory of the device at the moment that is explained."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._moment = history.moment

    @cached_property
    def pieces(self) -> list[Piece]:
        """By address, with what is alive in them."""
        found = [Piece(begin, end - begin) for begin, end in self._given()]
        starts = [one.address for one in found]
        blocks = self._history.blocks
        alive = self._history.alive(self._moment)
        alive = alive[np.argsort(blocks.address[alive], kind="stable")]
        for number, address, size in zip(alive.tolist(), blocks.address[alive].tolist(), rounded(blocks.size[alive]).tolist(), strict=True):
            at = bisect_right(starts, address) - 1
            if at >= 0 and address < found[at].address + found[at].size:
                found[at].blocks.append(number)
                found[at].used += size
        return found

    def _given(self) -> list[tuple[int, int]]:
        """What the device has given at the moment: what it has at the end, and back from there."""
        history = self._history
        now = {segment.address: segment.address + segment.size for segment in history.snapshot.held()}
        about = np.flatnonzero(history.acts("segment_alloc", "segment_map", "segment_free", "segment_unmap"))
        gives = history.acts("segment_alloc", "segment_map")
        if history.snapshot.held():
            # Backwards: what was given then is not there before, and what was given back is.
            for at in about[about >= self._moment][::-1].tolist():
                _change(now, int(history.address[at]), int(history.size[at]), more=not gives[at])
        else:
            for at in about[about < self._moment].tolist():
                _change(now, int(history.address[at]), int(history.size[at]), more=bool(gives[at]))
        return sorted(now.items())

    def parts(self) -> list[tuple[str, int, int]]:
        """What reserved is made of, with the number of blocks or segments; the bytes add up to it."""
        blocks = self._history.blocks
        inside = np.array([number for one in self.pieces for number in one.blocks], dtype=np.int64)
        asked = int(blocks.size[inside].sum())
        used = sum(one.used for one in self.pieces)
        broken = [one for one in self.pieces if one.blocks and one.free]
        whole = [one for one in self.pieces if not one.blocks]
        return [
            (ALLOCATED, len(inside), asked),
            (ROUNDING, len(inside), used - asked),
            (FRAGMENT, len(broken), sum(one.free for one in broken)),
            (CACHED, len(whole), sum(one.size for one in whole)),
        ]

    @property
    def reserved(self) -> int:
        """Bytes that the device has given."""
        return sum(one.size for one in self.pieces)

    def keepers(self) -> Iterator[tuple[str, str, str, int, int, int]]:
        """Who keeps segments that are partly free: category, module, line, segments, bytes of its own in them, and the bytes that are free.

        Of several in a segment it is the one that stays longest.
        """
        history = self._history
        found: dict[tuple[str, str, str], list[int]] = {}
        for one in self.pieces:
            if not one.blocks or not one.free:
                continue
            last = max(one.blocks, key=lambda number: (int(history.blocks.died[number]), -int(history.blocks.born[number])))
            key = str(history.category[last]), history.module(last), history.line(last)
            row = found.setdefault(key, [0, 0, 0])
            row[0] += 1
            row[1] += int(history.blocks.size[last])
            row[2] += one.free
        for key, (count, own, free) in sorted(found.items(), key=lambda item: -item[1][2]):
            yield (*key, count, own, free)


def _change(now: dict[int, int], address: int, size: int, *, more: bool) -> None:
    """Add a range to, or take it from, what is there; adjacent segments stay apart, mapped pages of one join."""
    end = address + size
    if more:
        now[address] = max(end, now.get(address, end))
        return
    if now.get(address) == end:
        del now[address]
        return
    for begin, stop in list(now.items()):
        if begin < end and address < stop:
            del now[begin]
            if begin < address:
                now[begin] = address
            if end < stop:
                now[end] = stop
