"""Bytes by category at the highest moment of each step of a replayed span: a forward, or a training step."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.immutable import immutable
from irscope.ir.dims import SymDim, bounds
from irscope.memory.run import Lives
from irscope.memory.tape import ACTIVATION, OUTPUT, TEMPORARY, WORKSPACE, Stretch, Tape
from irscope.report.values import Provenance, Quantity, largest, quantity

RESIDENT = ("parameter", "buffer", "input")
CATEGORIES = (*RESIDENT, OUTPUT, ACTIVATION, TEMPORARY, WORKSPACE)
ROUNDING = "rounding"
"""Category of the bytes by which blocks exceed the requests."""
ROUNDED = "blocks of 512 bytes, large ones with a rest"
_Numbers: TypeAlias = NDArray[np.int64]


@immutable(slots=False)
class Moments:
    """One entry for each step: the moment at which most bytes are allocated."""

    stretch: Stretch
    sizes: Sequence[int]
    """Requested bytes of each slot."""
    by_category: dict[str, list[int]]
    """Requested bytes."""
    allocated: list[int]
    """Allocated bytes."""
    reserved: list[int]
    total: list[int]
    """The most requested bytes in the step, which may be at another moment."""
    left: list[int]
    """Allocated bytes that are alive after the step."""
    places: list[int]
    """Events before the moment."""
    peak_step: int
    """The first step that reaches the most bytes allocated."""
    modelled: int
    """Bytes of modelled size that are alive when most is requested."""
    uncertain: dict[str, frozenset[int]]
    """Steps in which something of inexact size is allocated, by category."""
    ends: tuple[list[int], list[int] | None]
    """Lower and upper bound of requested bytes at each step; None without an upper bound."""

    @cached_property
    def lives(self) -> Lives:
        """Return when each slot is there."""
        return Lives.of_events(self.stretch.events, self.sizes, self.stretch.before)

    def held_over(self) -> Iterator[tuple[int, int, int]]:
        """Slots that are taken at the highest moment of some step, with the first such step and the last."""
        places = np.array(self.places, dtype=np.int64)
        first, last = (np.searchsorted(places, moments, "left") for moments in (self.lives.begins, self.lives.ends))
        last -= 1
        slots = np.flatnonzero(first <= last)
        yield from zip(slots.tolist(), first[slots].tolist(), last[slots].tolist(), strict=True)

    def alive(self, step: int) -> list[int]:
        """Slots that are taken at the highest moment of a step."""
        return _integers(self.lives.alive(self.places[step]))

    def column(self, category: str) -> list[Quantity | int]:
        """Return the bytes of a category at each step; inexact ones with provenance, and with an interval where only they are uncertain."""
        if category == ROUNDING:
            return self._rounding
        found: list[Quantity | int] = [*self.by_category[category]]
        for step in self.uncertain.get(category, ()):
            size = self.by_category[category][step]
            rest = self._asked(step) - size
            alone = sum(step in steps for steps in self.uncertain.values()) == 1
            found[step] = Quantity(size, Provenance.MODELLED) if not alone else self._within(size, step, rest)
        return found

    @cached_property
    def _rounding(self) -> list[Quantity | int]:
        return self.counted([allocated - self._asked(step) for step, allocated in enumerate(self.allocated)])

    def columns(self) -> dict[str, list[Quantity | int]]:
        """Return all categories; at each step they add up to what is allocated."""
        return {category: self.column(category) for category in (*self.by_category, ROUNDING)}

    def requested(self) -> list[Quantity]:
        """Return the most requested bytes at each step."""
        modelled = frozenset[int]().union(*self.uncertain.values())
        return [self._within(size, step, 0) if step in modelled else Quantity(size) for step, size in enumerate(self.total)]

    def at_peak(self, category: str) -> Quantity:
        """Return the bytes of a category at the peak."""
        return quantity(self.column(category)[self.peak_step]) if self.allocated else Quantity(0)

    @property
    def is_sure(self) -> bool:
        """Return whether the peak is at this step for all values of the inexact sizes: its lower bound exceeds every other step's upper
        bound.
        """
        low, high = self.ends
        if not any(self.uncertain.values()) or not low:
            return True
        return high is not None and all(low[self.peak_step] >= most for step, most in enumerate(high) if step != self.peak_step)

    def counted(self, column: Sequence[int]) -> list[Quantity | int]:
        """Return the allocator's counters at each step: from the first inexact size on they are inexact."""
        first = min((min(steps) for steps in self.uncertain.values() if steps), default=len(column))
        if self.stretch.follows and first < len(column):
            first = 0
        return [size if step < first else Quantity(size, Provenance.MODELLED) for step, size in enumerate(column)]

    def _asked(self, step: int) -> int:
        return sum(parts[step] for parts in self.by_category.values())

    def _within(self, size: int, step: int, rest: int) -> Quantity:
        # The bounds are those of the moment at which most is requested, which is this one in all but rare cases.
        low, high = self.ends
        most = None if high is None else max(high[step] - rest, size)
        return Quantity(size, Provenance.MODELLED, lo=min(low[step] - rest, size), hi=most)


def slots_and_changes(events: _Numbers, sizes: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Return the slot of each request, and by how much it changes what is in use, for a size of each slot."""
    slots = np.where(events >= 0, events, ~events)
    return slots, np.where(events >= 0, sizes[slots], -sizes[slots])


def moments(
    tape: Tape[Any],
    stretch: Stretch,
    categories: Sequence[str],
    sizes: Sequence[int],
    low: Sequence[int] | None,
    high: Sequence[int] | None,
) -> Moments:
    """Sum up a span; `low` and `high` are bounds of the sizes, None where sizes are exact, or unbounded."""
    events = np.array(stretch.events, dtype=np.int64)
    slots, changes = slots_and_changes(events, np.array(sizes, dtype=np.int64))
    number = {category: place for place, category in enumerate(categories)}
    kinds = np.array([number[kind] for kind in tape.kinds], dtype=np.int64)[slots]
    held = sum(stretch.held.values())
    total = held + _sums(changes)
    starts = np.array(stretch.starts, dtype=np.int64)
    blocks = stretch.allocated + _sums(np.array(stretch.blocks, dtype=np.int64))
    places, most = _highest(blocks, starts), _highest(total, starts)
    by_category = {
        category: _integers(stretch.held.get(category, 0) + _sums(np.where(kinds == place, changes, 0))[places])
        for place, category in enumerate(categories)
    }
    # Growth at event n takes effect after n + 1 events.
    grown = np.array([0, *(event + 1 for event, _ in stretch.reserved[1:])], dtype=np.int64)
    values = np.array([value for _, value in stretch.reserved], dtype=np.int64)
    reserved = values[np.searchsorted(grown, places, "right") - 1]
    modelled = [slot for slot, spread in tape.spreads.items() if spread.modelled]
    guessed = _sums(np.where(np.isin(slots, modelled), changes, 0)) if modelled else np.zeros_like(total)

    def tops(asked: Sequence[int]) -> list[int]:
        column = held + _sums(slots_and_changes(events, np.array(asked, dtype=np.int64))[1])
        return _integers(column[_highest(column, starts)])

    return Moments(
        stretch,
        sizes,
        by_category,
        _integers(blocks[places]),
        _integers(reserved),
        _integers(total[most]),
        _integers(blocks[starts[1:]]),
        _integers(places),
        int(np.argmax(blocks[places])) if len(places) else 0,
        int(guessed[most[int(np.argmax(total[most]))]]) if len(most) else 0,
        _uncertain(tape, events, starts),
        (tops(sizes if low is None else low), None if high is None else tops(high)),
    )


def phase_peaks(
    tape: Tape[Any],
    starts: Sequence[int],
    stretch: Stretch,
    categories: Sequence[str],
    sizes: Sequence[int],
    low: Sequence[int] | None = None,
    high: Sequence[int] | None = None,
) -> list[dict[str, Quantity]]:
    """Return the most that was allocated in each phase of adjacent steps, of which `starts` are the starts and the end, and `stretch` what
    an allocator did with them.
    """
    cuts: list[tuple[int, int, str]] = []
    """Beginnings of the phases of a step, with the number of the step."""
    begins = [at for at, _ in tape.phases]
    for number, (first, end) in enumerate(pairwise(starts)):
        at = bisect_right(begins, first)
        cuts.append((first, number, tape.phases[at - 1][1] if at else ""))
        cuts += [(begin, number, phase) for begin, phase in tape.phases[at : bisect_left(begins, end)]]
    places = [at - starts[0] for at in (*(at for at, _, _ in cuts), starts[-1])]
    steps = moments(tape, replace(stretch, starts=places), categories, sizes, low, high)
    found: list[dict[str, Quantity]] = [{} for _ in starts[1:]]
    for (_, number, phase), high_one in zip(cuts, steps.counted(steps.allocated), strict=True):
        if phase:
            peaks = found[number]
            peaks[phase] = largest([high_one, *([peaks[phase]] if phase in peaks else [])])
    return found


def highest_by_origin(tape: Tape[Any], first: int, end: int) -> dict[int, int]:
    """Return the most that is alive after requests between two places, for each set of blocks by what they are for and who asked for them.

    The number that stands for a set is the sum of random ones for its blocks, so that it does not depend on the order of requests.
    """
    events = np.array(tape.events[:end], dtype=np.int64)
    sizes = np.array(tape.numbers("central"), dtype=np.int64)
    # A request for nothing is no block.
    origins = np.array(
        [_number_of(kind, label, tape.owners.get(slot)) for slot, (kind, label) in enumerate(zip(tape.kinds, tape.labels, strict=True))],
        dtype=np.int64,
    ) * (sizes > 0)
    alive, sets = (np.cumsum(slots_and_changes(events, column)[1])[first:] for column in (sizes, origins))
    found: dict[int, int] = {}
    for one, size in zip(sets.tolist(), alive.tolist(), strict=True):
        if size > found.get(one, -1):
            found[one] = size
    return found


def _number_of(kind: str, label: str, owner: object) -> int:
    text = repr((kind, label, owner)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


def passes(born: int, died: int, backwards: Sequence[int]) -> bool:
    """Return whether what a forward made is gone before the next backward begins; where none follows it stays."""
    following = bisect_right(backwards, born)
    return following < len(backwards) and died < backwards[following]


def kinds_by_life(kinds: Sequence[str], events: Sequence[int], phases: Sequence[tuple[int, str]]) -> list[str]:
    """Return what each slot of a training program is for: of the activations, only what a forward makes and the next backward finds is
    kept; the rest is temporary. Where no backward follows, a forward's activations stay what they are."""
    found = list(kinds)
    places = [at for at, _ in phases]
    backwards = [at for at, phase in phases if phase == "backward"]
    gone = {~event: place for place, event in enumerate(events) if event < 0}
    for place, event in enumerate(events):
        if event < 0 or found[event] != ACTIVATION:
            continue
        at = bisect_right(places, place) - 1
        if (at >= 0 and phases[at][1] != "forward") or passes(place, gone.get(event, len(events)), backwards):
            found[event] = TEMPORARY
    return found


def _uncertain(tape: Tape[Any], events: _Numbers, starts: _Numbers) -> dict[str, frozenset[int]]:
    """Return the steps in which something of inexact size is allocated, by category."""
    slots = {slot for slot, spread in tape.spreads.items() if spread.low != spread.high}
    slots.update(slot for slot, size in enumerate(tape.sizes) if isinstance(size, SymDim))
    if not slots:
        return {}
    places = {event: place for place, event in enumerate(events.tolist())}
    found: dict[str, set[int]] = {}
    for slot in slots & places.keys():
        ends = (places[slot], places.get(~slot, len(events)))
        first, last = (int(np.searchsorted(starts, place, "right")) - 1 for place in ends)
        found.setdefault(tape.kinds[slot], set()).update(range(first, min(last, len(starts) - 2) + 1))
    return {kind: frozenset(steps) for kind, steps in found.items()}


def _sums(changes: _Numbers) -> _Numbers:
    """Totals before the first event, and after each."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(changes)))


def _highest(total: _Numbers, starts: _Numbers) -> _Numbers:
    """Return for each step the number of events after which the sum is highest, the first of several."""
    first, end = starts[:-1], starts[1:]
    places = first.copy()
    busy = np.flatnonzero(end > first)
    if not len(busy):
        return places
    tops = np.maximum.reduceat(total[1:], first[busy])
    owners = np.repeat(np.arange(len(busy)), (end - first)[busy])
    # Steps without events have empty windows, so the windows of the others are adjacent.
    hits = np.flatnonzero(total[1:] == tops[owners])
    _, at = np.unique(owners[hits], return_index=True)
    rises = tops > total[first[busy]]
    places[busy] = np.where(rises, hits[at] + 1, first[busy])
    return places


def _integers(column: _Numbers) -> list[int]:
    found: list[int] = column.tolist()
    return found


def shown_size(tape: Tape[Any], slot: int, size: int) -> Quantity | None:
    """Return the size of a slot as a quantity, where it is not exact."""
    asked, spread = tape.sizes[slot], tape.spreads.get(slot)
    if isinstance(asked, SymDim):
        low, high = bounds(asked)
        return Quantity(None, Provenance.UNKNOWN, lo=low, hi=high)
    return None if spread is None or spread.low == spread.high else Quantity(size, Provenance.MODELLED)
