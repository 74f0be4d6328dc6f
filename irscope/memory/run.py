"""Memory over the moments of a run: lives of blocks, rows and heights of what is alive, and what adds up at each step."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from irscope.immutable import immutable
from irscope.ir.dims import SymDim, bounds
from irscope.memory.tape import ACTIVATION, OUTPUT, TEMPORARY, WORKSPACE, Span, Stretch, Tape
from irscope.report.values import Provenance, Quantity, largest, quantity

Ints: TypeAlias = NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)
Row: TypeAlias = "tuple[str, str, str, int, int]"
"""Category, module, line, bytes and number of blocks."""


def summed(parts: Iterable[tuple[Key, int] | tuple[Key, int, bool]]) -> list[tuple[Any, ...]]:
    """Return a row for each key, with its bytes and the number of parts, or of those marked as blocks: the largest first, without those of
    no bytes."""
    sums: dict[tuple[object, ...], list[int]] = {}
    for key, size, *is_block in parts:
        row = sums.setdefault(key if isinstance(key, tuple) else (key,), [0, 0])
        row[0] += size
        row[1] += all(is_block)
    return [(*key, size, count) for key, (size, count) in sorted(sums.items(), key=lambda pair: -pair[1][0]) if size]


def rows_of(tape: Tape[Any], slots: Iterable[int]) -> list[Row]:
    """Return what is in some slots by category, module and line, with the bytes that were asked for and the number of blocks."""
    return summed(((tape.kinds[slot], *tape.origin(slot)), tape.number_of(slot)) for slot in slots)


def totals_of(rows: Iterable[Row]) -> dict[str, int]:
    """Return the bytes by category."""
    counter: Counter[str] = Counter()
    for category, _, _, size, _ in rows:
        counter[category] += size
    return dict(counter)


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

    def alive(self, first: int, last: int | None = None) -> Ints:
        """Return what is there at a moment, or at some moment from the first to the last."""
        return np.flatnonzero((self.begins <= (first if last is None else last)) & (self.ends > first))

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


# Step by step, where an allocator answered: parts that add up to what it counts, and the categories of a training program.

RESIDENT = ("parameter", "buffer", "input")
_STAYING = (*RESIDENT, "optimizer state", "gradient", "communication", "cache", "before the run")
_STACK_ORDER = (*_STAYING, ACTIVATION, OUTPUT, TEMPORARY, WORKSPACE)
"""Categories from the axis of a chart up: what stays from step to step is lowest."""
CATEGORIES = (*RESIDENT, OUTPUT, ACTIVATION, TEMPORARY, WORKSPACE)
ROUNDING = "rounding"
"""Category of the bytes by which blocks exceed the requests."""
ROUNDED = "blocks of 512 bytes, large ones with a rest"


def stack_place(name: str) -> tuple[int, str]:
    """Return by what categories are sorted from the axis up."""
    return (_STACK_ORDER.index(name) if name in _STACK_ORDER else len(_STACK_ORDER), name)


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


def slots_and_changes(events: Ints, sizes: Ints) -> tuple[Ints, Ints]:
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


def _uncertain(tape: Tape[Any], events: Ints, starts: Ints) -> dict[str, frozenset[int]]:
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


def _sums(changes: Ints) -> Ints:
    """Totals before the first event, and after each."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(changes)))


def _highest(total: Ints, starts: Ints) -> Ints:
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


def _integers(column: Ints) -> list[int]:
    integers: list[int] = column.tolist()
    return integers


def shown_size(tape: Tape[Any], slot: int, size: int) -> Quantity | None:
    """Return the size of a slot as a quantity, where it is not exact."""
    asked, spread = tape.sizes[slot], tape.spreads.get(slot)
    if isinstance(asked, SymDim):
        low, high = bounds(asked)
        return Quantity(None, Provenance.UNKNOWN, lo=low, hi=high)
    return None if spread is None or spread.low == spread.high else Quantity(size, Provenance.MODELLED)
