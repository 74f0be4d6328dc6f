"""Bytes by category at the highest moment of each step of the first forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.ir.dims import SymDim
from irscope.passes.cuda.replay import Outcome, Script
from irscope.passes.cuda.stream import ACTIVATION, OUTPUT, TEMPORARY, WORKSPACE, Stream
from irscope.report.values import Provenance, Quantity

CATEGORIES = (OUTPUT, ACTIVATION, TEMPORARY, WORKSPACE)
_Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Moments:
    """One entry for each step: the moment at which most bytes are asked for."""

    by_category: dict[str, list[int]]
    """Bytes as asked for."""
    allocated: list[int]
    reserved: list[int]
    peak_step: int
    """The first step that reaches the most bytes asked for."""
    modelled: int
    """Bytes alive at that moment whose size is a model's."""
    uncertain: dict[str, frozenset[int]]
    """Steps in which something is taken whose size is not exact, by category."""
    ends: tuple[list[int], list[int] | None]
    """The least and the most bytes asked for at each step; no most where nothing bounds it."""

    def column(self, category: str) -> list[object]:
        """Bytes of a category at each step; those that are not exact say so, with what they may be where nothing else is in doubt."""
        found: list[object] = [*self.by_category[category]]
        for step in self.uncertain.get(category, ()):
            size = self.by_category[category][step]
            rest = self._total(step) - size
            alone = sum(step in steps for steps in self.uncertain.values()) == 1
            found[step] = Quantity(size, Provenance.MODELLED) if not alone else self._within(size, step, rest)
        return found

    def requested(self, resident: int) -> list[object]:
        """All categories at each step, and what is there anyway."""
        modelled = frozenset().union(*self.uncertain.values())
        total = [resident + self._total(step) for step in range(len(self.allocated))]
        return [self._within(size, step, -resident) if step in modelled else size for step, size in enumerate(total)]

    def counted(self, column: Sequence[int]) -> list[object]:
        """What the allocator counts at each step: from the first size that is not exact on, none is."""
        first = min((min(steps) for steps in self.uncertain.values() if steps), default=len(column))
        return [size if step < first else Quantity(size, Provenance.MODELLED) for step, size in enumerate(column)]

    def _total(self, step: int) -> int:
        return sum(parts[step] for parts in self.by_category.values())

    def _within(self, size: int, step: int, rest: int) -> Quantity:
        low, high = self.ends
        return Quantity(size, Provenance.MODELLED, lo=low[step] - rest, hi=None if high is None else high[step] - rest)


def moments(stream: Stream, script: Script, outcome: Outcome, low: Script | None = None, high: Script | None = None) -> Moments:
    """Sum up the events of the first forward; `low` and `high` have the least and the most sizes, where these are others."""
    events = np.array(script.events, dtype=np.int64)
    slots = np.where(events >= 0, events, ~events)
    signs = np.where(events >= 0, 1, -1)
    changes = np.array(script.sizes, dtype=np.int64)[slots] * signs
    kinds = np.array([CATEGORIES.index(kind) for kind in stream.kinds], dtype=np.int64)[slots]
    total = _sums(changes)
    starts = np.array([*stream.starts, len(events)], dtype=np.int64)
    places = _highest(total, starts)
    by_category = {category: _sums(np.where(kinds == number, changes, 0))[places].tolist() for number, category in enumerate(CATEGORIES)}
    allocated = outcome.before.allocated + _sums(np.array(outcome.blocks, dtype=np.int64))[places]
    # Growth at event n is there once n + 1 events are done.
    grown = np.array([0, *(event + 1 for event, _ in outcome.reserved[1:])], dtype=np.int64)
    values = np.array([value for _, value in outcome.reserved], dtype=np.int64)
    reserved = values[np.searchsorted(grown, places, "right") - 1]
    peak_step = int(np.argmax(total[places])) if len(places) else 0
    modelled = [slot for slot, spread in stream.spreads.items() if spread.modelled]
    guessed = _sums(np.where(np.isin(slots, modelled), changes, 0)) if modelled else np.zeros_like(total)
    at_peak = int(guessed[places[peak_step]]) if len(places) else 0

    def tops(sizes: Sequence[int]) -> list[int]:
        column = _sums(np.array(sizes, dtype=np.int64)[slots] * signs)
        return _list(column[_highest(column, starts)])

    ends = tops((low or script).sizes), tops(high.sizes) if high is not None else tops(script.sizes) if low is None else None
    return Moments(by_category, _list(allocated), _list(reserved), peak_step, at_peak, _uncertain(stream, events, starts), ends)


def _uncertain(stream: Stream, events: _Numbers, starts: _Numbers) -> dict[str, frozenset[int]]:
    """Steps in which something is there whose size is not exact, by category."""
    slots = {slot for slot, spread in stream.spreads.items() if spread.low != spread.high}
    slots.update(slot for slot, size in enumerate(stream.sizes) if isinstance(size, SymDim))
    places = {event: place for place, event in enumerate(events.tolist())}
    found: dict[str, set[int]] = {}
    for slot in slots & places.keys():
        ends = (places[slot], places.get(~slot, len(events)))
        first, last = (int(np.searchsorted(starts, place, "right")) - 1 for place in ends)
        found.setdefault(stream.kinds[slot], set()).update(range(first, min(last, len(starts) - 2) + 1))
    return {kind: frozenset(steps) for kind, steps in found.items()}


def _sums(changes: _Numbers) -> _Numbers:
    """What there is before the first event, and after each."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(changes)))


def _highest(total: _Numbers, starts: _Numbers) -> _Numbers:
    """For each step the number of events after which the sum is highest, the first of several."""
    first, end = starts[:-1], starts[1:]
    places = first.copy()
    busy = np.flatnonzero(end > first)
    if not len(busy):
        return places
    tops = np.maximum.reduceat(total[1:], first[busy])
    owners = np.repeat(np.arange(len(busy)), (end - first)[busy])
    # Steps without events take no room, so the windows of the busy ones lie side by side.
    hits = np.flatnonzero(total[1:] == tops[owners])
    _, at = np.unique(owners[hits], return_index=True)
    rises = tops > total[first[busy]]
    places[busy] = np.where(rises, hits[at] + 1, first[busy])
    return places


def _list(column: _Numbers) -> list[int]:
    found: list[int] = column.tolist()
    return found
