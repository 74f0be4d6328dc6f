"""Bytes by category at the highest moment of each step of the first forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.passes.cuda.replay import Outcome, Script
from irscope.passes.cuda.stream import ACTIVATION, OUTPUT, TEMPORARY, WORKSPACE, Stream

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


def moments(stream: Stream, script: Script, outcome: Outcome) -> Moments:
    """Sum up the events of the first forward."""
    events = np.array(script.events, dtype=np.int64)
    slots = np.where(events >= 0, events, ~events)
    changes = np.array(script.sizes, dtype=np.int64)[slots] * np.where(events >= 0, 1, -1)
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
    return Moments(by_category, _list(allocated), _list(reserved), peak_step, int(guessed[places[peak_step]]) if len(places) else 0)


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
