"""A run: pieces of memory over its moments. What is there at one of them, how high each category or line stands, and rows of both.

A moment is a number of requests: at 0 nothing was asked for yet, at n the first n requests are done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from irscope.memory.tape import Span, Tape

Ints: TypeAlias = NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)
Row: TypeAlias = "tuple[str, str, str, int, int]"
"""Category, module, line, bytes and number of blocks."""


def summed(parts: Iterable[tuple[Key, int]]) -> list[tuple[Any, ...]]:
    """Return a row for each key, with its bytes and the number of parts: the largest first, without those of no bytes."""
    sums: dict[tuple[object, ...], list[int]] = {}
    for key, size in parts:
        row = sums.setdefault(key if isinstance(key, tuple) else (key,), [0, 0])
        row[0] += size
        row[1] += 1
    return [(*key, size, count) for key, (size, count) in sorted(sums.items(), key=lambda one: -one[1][0]) if size]


def rows_of(tape: Tape[Any], slots: Iterable[int]) -> list[Row]:
    """Return what is in some slots by category, module and line, with the bytes that were asked for and the number of blocks."""
    return summed(((tape.kinds[slot], *tape.origin(slot)), tape.number_of(slot)) for slot in slots)


def totals_of(rows: Iterable[Row]) -> dict[str, int]:
    """Return the bytes by category."""
    found: Counter[str] = Counter()
    for category, _, _, size, _ in rows:
        found[category] += size
    return dict(found)


def heights_of(changes: Sequence[tuple[str, int]], before: Iterable[tuple[str, int]] = ()) -> dict[str, list[int]]:
    """Return the bytes of each category before and after each change, for changes of which nobody tells the blocks."""
    there: Counter[str] = Counter()
    for name, size in before:
        there[name] += size
    names = dict.fromkeys([*there, *(name for name, _ in changes)])
    return {name: [*accumulate((size * (of == name) for of, size in changes), initial=there[name])] for name in names}


def highest_of(heights: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return what there is by category where the sum is highest, the first of several."""
    totals = list(map(sum, zip(*heights.values(), strict=True)))
    return {name: column[totals.index(max(totals))] for name, column in heights.items()}


class Lives:
    """Pieces of memory by number: their bytes, the first moment at which each is there, and the first at which it is no longer."""

    def __init__(self, sizes: Ints, begins: Ints, ends: Ints, moments: int) -> None:
        self.sizes, self.begins, self.ends, self.moments = sizes, begins, ends, moments

    @classmethod
    def of_events(cls, events: Sequence[int], sizes: Sequence[int], before: Iterable[int] = ()) -> Lives:
        """Return the slots of a stretch of a tape; those of `before` are taken when it begins."""
        numbers = np.array(events, dtype=np.int64)
        takes = numbers >= 0
        begins, ends = (np.full(len(sizes), len(numbers) + 1, dtype=np.int64) for _ in range(2))
        begins[numbers[takes]] = np.flatnonzero(takes) + 1
        ends[~numbers[~takes]] = np.flatnonzero(~takes) + 1
        begins[np.fromiter(before, dtype=np.int64)] = 0
        return cls(np.array(sizes, dtype=np.int64), begins, ends, len(numbers) + 1)

    @classmethod
    def of(cls, tape: Tape[Any]) -> Lives:
        """Return the slots of a tape whose requests are made once, from its beginning to its end."""
        return cls.of_events(tape.events, tape.numbers("central"), tape.resident)

    def alive(self, moment: int) -> Ints:
        """Return what is there at a moment."""
        return np.flatnonzero((self.begins <= moment) & (self.ends > moment))

    def over(self, which: Any = slice(None)) -> Ints:
        """Return the bytes at each moment, of all pieces or of some."""
        changes = np.zeros(self.moments + 1, dtype=np.int64)
        sizes, last = self.sizes[which], self.moments
        np.add.at(changes, np.minimum(self.begins[which], last), sizes)
        np.subtract.at(changes, np.minimum(self.ends[which], last), sizes)
        return np.cumsum(changes[:last])

    @cached_property
    def total(self) -> Ints:
        """Return the bytes at each moment."""
        return self.over()

    def heights(self, keys: Sequence[Key]) -> Iterator[tuple[Key, Ints]]:
        """Yield the bytes at each moment by what belongs to each piece, such as its category."""
        codes: dict[Key, int] = {}
        numbers = np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=np.int64)
        for key, code in codes.items():
            yield key, self.over(numbers == code)

    def requests(self, until: int) -> Tape[Any]:
        """Return a tape of what was asked for up to a moment: what is given back at one comes before what is taken there."""
        mine = np.flatnonzero((self.begins <= until) & (self.sizes > 0) & (self.ends > self.begins))
        gone = mine[self.ends[mine] <= until]
        order = np.argsort(np.concatenate((self.begins[mine] * 2 + 1, self.ends[gone] * 2)), kind="stable")
        events: list[int] = np.concatenate((mine, ~gone))[order].tolist()
        return Tape(events=events, sizes=self.sizes.tolist(), starts=[0, len(events)], spans=[Span("all", 0, 1)])
