"""Memory as one sequence of operations: what is taken and given back, on which stream, in which pool, what for, and by whom.

A lifetime model, a capture or a simulated program writes a tape; everything else reads it: replays through an allocator, categories and
peaks, what is alive and why, addresses, searches for sizes that fit, exports.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Iterator, MutableMapping, MutableSequence, Sequence
from dataclasses import field, replace
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, SymDim, bounds
from irscope.memory.caching import Block, CachingAllocator, Counters, MemPool, OutOfMemory, Segment
from irscope.memory.caching.allocator import PendingFrees
from irscope.memory.caching.device import Event
from irscope.memory.repeats import Repeat, repeats_in, step_over

if TYPE_CHECKING:
    from irscope.ops.spec import OpCall

ACTIVATION, OUTPUT, TEMPORARY, WORKSPACE = "activation", "output", "temporary", "workspace"
LOADING: Final = "loading"
"""The stretch in which what is there before the first step is taken."""
End: TypeAlias = Literal["central", "low", "high"]
Owner = TypeVar("Owner")
Other = TypeVar("Other")
_PLACE = attrgetter("at")
_REPLAYED_BEFORE: Final = 2
"""Number of replays of a stretch before it is searched for repeats."""


class Unbounded(Exception):
    """A size has no upper bound."""


@immutable
class Spread:
    """The interval of sizes of an allocation whose size is unknown."""

    low: Dim
    high: Dim | None
    """None without an upper bound."""
    reason: str
    modelled: bool = False
    """True where the counted size is modelled, and not the lower bound."""


class Origin(NamedTuple):
    """Place in a program that asked for memory; empty where unknown."""

    module: str = ""
    """The path of the module that was running."""
    line: str = ""
    """The innermost line of the program, as file:line."""


_NOWHERE: Final = Origin()


Verb: TypeAlias = Literal[
    "record", "event", "wait", "synchronize", "begin pool", "end pool", "release pool", "empty cache", "refused", "limit"
]


@immutable
class Action:
    """An operation on streams or pools between two requests."""

    at: int
    """The number of requests before it."""
    verb: Verb
    what: int = 0
    """The slot that is recorded, the stream that waits or is waited for, the number of the pool, the bytes that were refused."""
    other: int = 0
    """The stream that uses the slot, that is waited for, or for which bytes were refused."""
    place: int = -1
    """Up to where in the work of a stream is waited; -1 for all of it so far."""
    share: float = 0
    """Of the device's memory, to which the process is limited from here on."""


@immutable
class Ran:
    """Kernels of one call of an operator, as they are queued on a stream."""

    label: str
    call: OpCall | None = None
    """The call as the operator's record sees it; None where there is no record, and only bytes are known."""
    moved: int = 0
    """Bytes of its operands and results."""
    is_known: bool = True
    is_generated: bool = False
    """True where a compiler generated the kernel."""


@immutable
class Sent:
    """A collective, or what is sent between two ranks, as it is queued on a stream."""

    label: str
    group: str
    members: tuple[int, ...]
    bytes: int


class Queued(NamedTuple):
    """An entry of a stream's queue."""

    actions: int
    """Number of actions of the tape before it: waits and events order it among the streams."""
    events: int
    """Number of requests before it."""
    stream: int
    what: Ran | Sent | Event


@immutable
class Span:
    """Steps of a tape that are replayed together: a forward, a training step, or what is between two of them."""

    name: str
    first: int
    end: int
    """One past the last."""
    counted: bool = True
    """True where its peaks are asked for: peaks are reset at its beginning."""
    again: bool = False
    """True where the same requests were replayed before, so that memory that is kept is already there."""


Counter: TypeAlias = Literal["requested", "allocated", "active", "reserved"]
COUNTERS: Final[tuple[Counter, ...]] = ("requested", "allocated", "active", "reserved")
"""Counters of PyTorch's allocator in bytes, as torch.cuda.memory_stats() calls them."""
REPORTED: Final[tuple[Counter, ...]] = ("requested", "allocated", "reserved")
"""Those that reports have: `active` differs from `allocated` only while other streams use what was freed."""


@immutable
class Bytes:
    """A value of each counter."""

    requested: int = 0
    allocated: int = 0
    active: int = 0
    reserved: int = 0

    def __getitem__(self, counter: str) -> int:
        found: int = getattr(self, counter)
        return found

    @classmethod
    def now(cls, counters: Counters) -> Bytes:
        """Return the current values."""
        return cls(*(counters[key] for key in COUNTERS))

    @classmethod
    def peaks(cls, counters: Counters) -> Bytes:
        """Return the highest values since peaks were reset."""
        return cls(*(counters[f"{key}_peak"] for key in COUNTERS))

    @classmethod
    def highest(cls, parts: Iterable[Bytes]) -> Bytes:
        """Return the highest value of each counter."""
        listed = list(parts)
        return cls(*(max(entry[key] for entry in listed) for key in COUNTERS))


def counters_json(peak: Bytes, after: Bytes) -> dict[str, dict[str, int]]:
    """Return the counters as documents have them."""
    return {key: {"peak": peak[key], "after": after[key]} for key in COUNTERS}


@mutable
class Stretch:
    """The allocator's answers to the requests of a span, one by one."""

    span: Span
    events: Sequence[int]
    starts: Sequence[int]
    """The first event of each step, and the end."""
    allocated: int
    """Allocated bytes before the first event."""
    held: dict[str, int]
    """Bytes that are there before the first event, by category."""
    before: frozenset[int]
    """Slots that were taken before the first event."""
    follows: bool
    """True where another interval of the same tape was replayed before it, so that blocks depend on its sizes from the beginning."""
    blocks: list[int] = field(default_factory=list)
    """By how many bytes `allocated` changed at each event."""
    addresses: list[int] = field(default_factory=list)
    """Of the block that each event takes or gives back, 0 where it has no size; where addresses are asked for."""
    reserved: list[tuple[int, int]] = field(default_factory=list)
    """Events at which `reserved` changed, with the new value; the first entry is the initial value."""
    segments: list[tuple[int, list[Segment]]] = field(default_factory=list)
    """The same with the segments as they were then, where addresses are asked for."""


class PeakAfter(NamedTuple):
    """Highest value of a counter in a span, and its value at the end."""

    peak: int
    after: int


@mutable
class Outcome:
    """Counters of the allocator over one span."""

    name: str
    peak: Bytes
    after: Bytes
    retries: int
    """Number of requests that succeeded only once the allocator had returned its cache to the device."""
    stretch: Stretch | None = None
    """Request by request, where that is asked for."""
    inactive_split: int = 0
    """Free parts of segments that are partly in use, at its end; where the span is watched."""
    segments: list[Segment] = field(default_factory=list)
    """The allocator's segments at its end, where the span is watched."""

    @property
    def requested(self) -> PeakAfter:
        """Return what was asked for."""
        return PeakAfter(self.peak.requested, self.after.requested)

    @property
    def allocated(self) -> PeakAfter:
        """Return what blocks in use had."""
        return PeakAfter(self.peak.allocated, self.after.allocated)

    @property
    def reserved(self) -> PeakAfter:
        """Return what segments had."""
        return PeakAfter(self.peak.reserved, self.after.reserved)


@mutable
class Replayed:
    """Counters of an allocator over a tape."""

    before: Bytes
    """Once what is there before the first step is loaded."""
    outcomes: list[Outcome] = field(default_factory=list)
    """One for each span that is counted."""
    stretches: list[Stretch] = field(default_factory=list)
    """Every stretch that was watched, those that are not counted too, in order."""
    held: dict[int, Block] = field(default_factory=dict)
    """Blocks in use at the end, by slot."""
    segments: list[Segment] = field(default_factory=list)
    """The allocator's segments at the end, where addresses are noted."""

    def __getitem__(self, name: str) -> Outcome:
        return next(outcome for outcome in self.outcomes if outcome.name == name)

    def at(self, moment: str, counter: str) -> int:
        """Return one counter before the first span, or at the peak of one."""
        return (self.before if moment == "before" else self[moment].peak)[counter]

    def worst(self, counter: str) -> int:
        """Return the highest peak of a counter in any span."""
        return max(outcome.peak[counter] for outcome in self.outcomes)

    @property
    def retries(self) -> tuple[int, ...]:
        """Return those of each span."""
        return tuple(outcome.retries for outcome in self.outcomes)


def decoded(events: Iterable[int]) -> Iterator[tuple[int, bool]]:
    """Yield the slot of each request, and whether it is taken or given back."""
    return ((event, True) if event >= 0 else (~event, False) for event in events)


def changes_of(events: Iterable[int], sizes: Sequence[int]) -> list[int]:
    """Return by how much each request changes what is in use, for a size of each slot."""
    return [sizes[event] if event >= 0 else -sizes[~event] for event in events]


@mutable
class Tape(Generic[Owner]):
    """Requests in order. Each is a slot with a size; event `n` allocates slot n, event `~n` frees it.

    A size is a number, a formula, or a number of a model's with its interval in `spreads`.
    """

    events: MutableSequence[int] = field(default_factory=list)
    sizes: list[Dim] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    """Category of each slot."""
    labels: list[str] = field(default_factory=list)
    owners: MutableMapping[int, Owner] = field(default_factory=dict)
    """Whose each slot is; the others are what kernels and libraries take for themselves."""
    spreads: dict[int, Spread] = field(default_factory=dict)
    """Slots of unknown size, with intervals; the size in `sizes` is the one that is counted."""
    streams: dict[int, int] = field(default_factory=dict)
    """Slots on other streams than the default one."""
    blocks: MutableSequence[int] = field(default_factory=list)
    """Bytes of the block that each slot got, where the tape was written beside an allocator."""
    phases: list[tuple[int, str]] = field(default_factory=list)
    """Beginnings of a program's phases, by number of events: forward, backward, optimizer."""
    calls: list[tuple[int, str]] = field(default_factory=list)
    """Where a program calls a module that no other one calls, by number of events, with the line; an empty one where it returns."""
    actions: list[Action] = field(default_factory=list)
    """In order."""
    resident: list[int] = field(default_factory=list)
    """Slots that are taken before the first step, in order."""
    kept: list[int] = field(default_factory=list)
    """Slots that are taken once and never freed: workspaces."""
    starts: list[int] = field(default_factory=list)
    """The first event of each step, and the end."""
    spans: list[Span] = field(default_factory=list)
    """Spans to replay, in order."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Operators without a record, with how many there are: what their kernels take besides their results is not known."""

    queue: list[Queued] = field(default_factory=list, repr=False, compare=False)
    """Work that a simulated program queued on its streams, in order."""

    _repeats: dict[object, list[Repeat] | int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Repeats of each stretch; for a stretch that was not searched yet, the number of its replays."""

    # Writing

    def slot(self, size: Dim, kind: str, label: str, stream: int = 0) -> int:
        """Return a new slot; `take` allocates it."""
        self.sizes.append(size)
        self.kinds.append(kind)
        self.labels.append(label)
        if stream:
            self.streams[len(self.sizes) - 1] = stream
        return len(self.sizes) - 1

    def load(self, size: Dim, kind: str, label: str) -> int:
        """Return a slot that is taken before the first step."""
        self.resident.append(self.slot(size, kind, label))
        return self.resident[-1]

    def act(self, verb: Verb, what: int = 0, other: int = 0, place: int = -1, share: float = 0) -> None:
        """Note what happens to streams or pools here."""
        self.actions.append(Action(len(self.events), verb, what, other, place, share))

    def take(self, *slots: int) -> None:
        """Allocate slots."""
        self.events.extend(slots)

    def free(self, *slots: int) -> None:
        """Give slots back."""
        self.events.extend(~slot for slot in slots)

    def cut(self) -> int:
        """Return the number of events so far, where a step may begin: actions before it belong to what was before."""
        if self.actions and self.actions[-1].at == len(self.events):
            # Actions stand before the event of their number; a request for nothing leaves no trace in an allocator.
            self.events.append(self.slot(0, TEMPORARY, ""))
            self.blocks.append(0)
        return len(self.events)

    # Sizes

    @property
    def is_exact(self) -> bool:
        """Return whether every size is exact."""
        return not any(spread.low != spread.high for spread in self.spreads.values())

    @property
    def is_passing(self) -> bool:
        """Return whether every slot of inexact size is freed."""
        return self.spreads.keys() <= self.given_back().keys()

    def symbols(self) -> list[SymDim]:
        """Return symbols that some size depends on, those that stand for what depends on data among them."""
        return list(dict.fromkeys(symbol for size in self.sizes if isinstance(size, SymDim) for symbol in size.symbols()))

    def numbers(self, end: End) -> list[int]:
        """Return every size as a number: the counted one, the lower or the upper bound; raises Unbounded without an upper bound."""
        return [size if type(size) is int else _as_number(size, end) for size in self.formulas(end)]

    def number_of(self, slot: int) -> int:
        """Return the size of a slot that is counted."""
        return _as_number(self.sizes[slot], "central")

    def formulas(self, end: End) -> list[Dim]:
        """Return every size: the counted one, the lower or the upper bound; raises Unbounded without an upper bound."""
        sizes = list(self.sizes)
        if end != "central":
            for slot, spread in self.spreads.items():
                if end == "high" and spread.high is None:
                    raise Unbounded(spread.reason)
                sizes[slot] = spread.low if end == "low" or spread.high is None else spread.high
        return sizes

    def most(self) -> list[int] | None:
        """Upper bounds of every size; None where one is unbounded."""
        try:
            return self.numbers("high")
        except Unbounded:
            return None

    # Reading

    def origin(self: Tape[Origin], slot: int) -> Origin:
        """Return where a program asked for a slot."""
        return self.owners.get(slot, _NOWHERE)

    def requests(self, first: int = 0, end: int | None = None) -> Iterator[tuple[int, int, bool]]:
        """Yield the place of each request between two, its slot, and whether it is taken."""
        return ((place, *request) for place, request in enumerate(decoded(self.events[first:end]), first))

    def takes(self, first: int = 0, end: int | None = None) -> Iterator[int]:
        """Yield the slots that requests between two places take."""
        return (slot for slot, is_taken in decoded(self.events[first:end]) if is_taken)

    def given_back(self) -> dict[int, int]:
        """Return the slots that are given back, each with the place of the request that does it."""
        return {slot: place for place, slot, is_taken in self.requests() if not is_taken}

    def alive_at(self, places: Iterable[int]) -> Iterator[list[int]]:
        """Yield the slots that are taken after so many requests, for ascending numbers of requests."""
        alive: dict[int, None] = {}
        done = 0
        for place in places:
            for event in self.events[done:place]:
                if event >= 0:
                    alive[event] = None
                else:
                    alive.pop(~event, None)
            done = place
            yield list(alive)

    def noted(self, starts: Sequence[int]) -> Stretch:
        """Return what the allocator beside which the tape was written did with the requests of adjacent steps; `starts` are their starts
        and the end.
        """
        first, end = starts[0], starts[-1]
        (alive,) = self.alive_at([first])
        held: dict[str, int] = {}
        for slot in alive:
            held[self.kinds[slot]] = held.get(self.kinds[slot], 0) + self.number_of(slot)
        blocks = self.blocks
        events = self.events[first:end]
        stretch = Stretch(
            Span("steps", 0, len(starts) - 1),
            events,
            [start - first for start in starts],
            sum(blocks[slot] for slot in alive),
            held,
            frozenset(alive),
            follows=False,
            blocks=changes_of(events, blocks),
        )
        stretch.reserved.append((0, 0))
        return stretch

    def section(self, begin: int, end: int) -> Tape[Any]:
        """Return the requests between two places, behind what is taken before; without spans, and without owners."""
        return Tape(
            events=list(self.events[begin:end]),
            sizes=list(self.sizes),
            kinds=list(self.kinds),
            labels=list(self.labels),
            streams=dict(self.streams),
            phases=[(max(at - begin, 0), phase) for at, phase in self.phases if at >= begin],
            actions=[replace(action, at=action.at - begin) for action in self.actions if begin <= action.at <= end],
            resident=next(self.alive_at([begin])),
        )

    def until(self, moment: tuple[int, int]) -> Tape[Owner]:
        """Return the first requests and actions, so many of each, as one span."""
        events, actions = moment
        return replace(self, events=self.events[:events], actions=self.actions[:actions], starts=[0, events], spans=[Span("until", 0, 1)])

    def repeats(self, span: Span, events: Sequence[int]) -> list[Repeat]:
        """Return the repeats of a span. They are searched for at its third replay, because the search takes as long as a replay."""
        key = span.first, span.end, span.again, len(events)
        repeat = self._repeats.get(key, 0)
        if isinstance(repeat, list):
            return repeat
        self._repeats[key] = repeat + 1
        if repeat < _REPLAYED_BEFORE:
            return []
        marks = [(size, spread.high) if (spread := self.spreads.get(slot)) else size for slot, size in enumerate(self.sizes)]
        made = self._repeats[key] = repeats_in(events, marks)
        return made

    def with_later(self, moves: Sequence[tuple[int, int, int]]) -> Tape[Owner]:
        """Return the same requests with some of them later: those from a first number up to a second stand before the one of a third."""
        order = list(range(1, 2 * len(self.events), 2))
        for first, end, place in moves:
            order[first:end] = [2 * place] * (end - first)
        chosen = sorted(range(len(order)), key=order.__getitem__)
        order.sort()

        def moved(place: int) -> int:
            return bisect_right(order, 2 * place)

        return replace(
            self,
            events=[self.events[number] for number in chosen],
            actions=[replace(action, at=moved(action.at)) for action in self.actions],
            starts=[moved(place) for place in self.starts],
        )

    def replay(
        self,
        device: CachingAllocator,
        sizes: Sequence[int],
        watch: Collection[str] | Literal["all"] = (),
        *,
        addresses: bool = False,
        loaded: int = 0,
    ) -> Replayed:
        """Make all requests of a device's allocator, with a number for each slot; raises OutOfMemory where PyTorch would.

        Spans whose names are in `watch` are noted request by request; with `addresses` also where each block lies, and the segments
        whenever these change.
        The first `loaded` residents are on the device already.
        """
        return _Replay(self, device, sizes, watch, addresses).run(loaded)

    def replay_as_far_as_fits(self, device: CachingAllocator, sizes: Sequence[int]) -> list[Outcome]:
        """Replay the spans that are counted, up to the first in which memory is refused."""
        replay = _Replay(self, device, sizes, (), addresses=False)
        try:
            return replay.run(0).outcomes
        except OutOfMemory:
            return replay.done


@immutable(slots=False)
class DeviceRun(Generic[Owner]):
    """Requests of a program that was loaded and run, to one device's allocator."""

    tape: Tape[Owner]
    device: str
    torch: tuple[int, int]
    compiled: object = None
    """Work of torch's compiler for it (irscope.frontends.simulation.compilations.Compilations)."""


def _as_number(size: Dim, end: End) -> int:
    """Return one size as a number; for a data-dependent one its lower bound."""
    if not isinstance(size, SymDim):
        return size
    low, high = bounds(size)
    if end == "high":
        if high is None:
            raise Unbounded(f"{size} has no upper bound")
        return high
    return max(low or 0, 0)


class _Replay:
    def __init__(
        self, tape: Tape[Owner], gpu: CachingAllocator, sizes: Sequence[int], watch: Collection[str] | Literal["all"], addresses: bool
    ) -> None:
        self._tape = tape
        self._gpu = gpu
        self._sizes = sizes
        self._watch = watch
        self._with_addresses = addresses
        self._blocks: dict[int, Block] = {}
        self._pools: dict[int, MemPool] = {}
        self.done: list[Outcome] = []
        """Before memory was refused."""

    def run(self, loaded: int) -> Replayed:
        """Replay all that is on the tape."""
        tape, gpu = self._tape, self._gpu
        stretches: list[Stretch] = []
        residents = tape.resident[loaded:]
        if self._is_watched(LOADING):
            stretches.append(self._watched(Span(LOADING, 0, 1, counted=False), residents, [0, len(residents)], [], follows=False))
        else:
            self._take_and_free(residents)
        replayed = Replayed(Bytes.now(gpu.counters()), stretches=stretches, held=self._blocks)
        for span in tape.spans:
            if span.counted:
                gpu.reset_peaks()
            before = gpu.counters().retries
            try:
                stretch = self._replayed(span, follows=bool(replayed.outcomes))
            except OutOfMemory:
                self.done = replayed.outcomes
                raise
            if stretch is not None:
                stretches.append(stretch)
            if span.counted:
                now = gpu.counters()
                outcome = Outcome(span.name, Bytes.peaks(now), Bytes.now(now), now.retries - before, stretch)
                if stretch is not None:
                    outcome.inactive_split, outcome.segments = now.inactive_split, gpu.segments()
                replayed.outcomes.append(outcome)
        if self._with_addresses:
            replayed.segments = gpu.segments()
        return replayed

    def _is_watched(self, name: str) -> bool:
        return self._watch == "all" or name in self._watch

    def _replayed(self, span: Span, *, follows: bool) -> Stretch | None:
        """Make the requests of a span."""
        tape = self._tape
        first, end = tape.starts[span.first], tape.starts[span.end]
        events: Sequence[int] = tape.events[first:end]
        starts = [start - first for start in tape.starts[span.first : span.end + 1]]
        begins = bisect_left(tape.actions, first, key=_PLACE)
        ends = len(tape.actions) if end == len(tape.events) else bisect_left(tape.actions, end, key=_PLACE)
        actions = [replace(action, at=action.at - first) for action in tape.actions[begins:ends]]
        if span.again and tape.kept:
            kept = frozenset(tape.kept)
            gone = [0, *accumulate(event in kept for event in events)]
            starts = [start - gone[start] for start in starts]
            actions = [replace(action, at=action.at - gone[action.at]) for action in actions]
            events = [event for event in events if event not in kept]
        if self._is_watched(span.name):
            return self._watched(span, events, starts, actions, follows=follows)
        if not actions and not tape.streams:
            self._take_repeating(events, tape.repeats(span, events))
            return None
        for part, action in _between(events, actions):
            self._take_and_free(part)
            if action is not None:
                self._act(action)
        return None

    def _take_repeating(self, events: Sequence[int], repeats: Sequence[Repeat]) -> None:
        """Make requests without looking; of periods that leave the allocator as it was, only as many as show it."""
        at = 0
        for repeat in repeats:
            sizes = [self._sizes[slot] for slot in repeat.takes]
            if sizes[repeat.per_period :] != sizes[: -repeat.per_period]:
                continue
            self._take_and_free(events[at : repeat.begin])
            at = repeat.begin
            before: dict[object, int] = {}
            while at < repeat.end:
                self._take_and_free(events[at : at + repeat.period])
                at = step_over(repeat, at + repeat.period, before, self._gpu, events, self._blocks)
        self._take_and_free(events[at:] if at else events)

    def _take_and_free(self, events: Sequence[int]) -> None:
        """Make requests without looking; what takes nothing leaves no trace in an allocator."""
        malloc, free, sizes, blocks, streams = self._gpu.malloc, self._gpu.free, self._sizes, self._blocks, self._tape.streams
        for event in events:
            if event >= 0:
                size = sizes[event]
                if size:
                    blocks[event] = malloc(size, streams[event]) if event in streams else malloc(size)
            else:
                block = blocks.pop(~event, None)
                if block is not None:
                    free(block)

    def _watched(self, span: Span, events: Sequence[int], starts: Sequence[int], actions: Sequence[Action], *, follows: bool) -> Stretch:
        """Make the requests of a span, and note what each does."""
        gpu = self._gpu
        held: dict[str, int] = {}
        for slot in self._blocks:
            held[self._tape.kinds[slot]] = held.get(self._tape.kinds[slot], 0) + self._sizes[slot]
        stretch = Stretch(span, events, starts, gpu.counters().allocated, held, frozenset(self._blocks), follows)
        stretch.reserved.append((0, gpu.reserved))
        for part, action in _between(events, actions):
            self._note(part, stretch)
            if action is not None:
                self._act(action)
        return stretch

    def _note(self, events: Sequence[int], stretch: Stretch) -> None:
        gpu, sizes, blocks, streams = self._gpu, self._sizes, self._blocks, self._tape.streams
        malloc, free, changes = gpu.malloc, gpu.free, stretch.blocks
        note_address = stretch.addresses.append if self._with_addresses else None
        reserved = stretch.reserved[-1][1]
        for event in events:
            if event >= 0:
                size = sizes[event]
                block = (malloc(size, streams[event]) if event in streams else malloc(size)) if size else None
                if block is not None:
                    blocks[event] = block
                    if gpu.reserved != reserved:
                        reserved = gpu.reserved
                        stretch.reserved.append((len(changes), reserved))
                        if note_address is not None:
                            stretch.segments.append((len(changes), gpu.segments()))
                changes.append(0 if block is None else block.size)
            else:
                block = blocks.pop(~event, None)
                changes.append(0 if block is None else -block.size)
                if block is not None:
                    free(block)
            if note_address is not None:
                note_address(0 if block is None else block.address)

    def _act(self, action: Action) -> None:
        gpu, what = self._gpu, action.what
        match action.verb:
            case "record":
                if what in self._blocks:
                    gpu.record_stream(self._blocks[what], action.other)
            case "event":
                gpu.record_event(what)
            case "wait":
                gpu.wait(what, action.other if action.place < 0 else Event(action.other, action.place))
            case "synchronize":
                gpu.synchronize(None if what < 0 else what if action.place < 0 else Event(what, action.place))
            case "refused":
                with contextlib.suppress(OutOfMemory):
                    gpu.free(gpu.malloc(what, action.other))
            case "limit":
                gpu.set_memory_fraction(action.share)
            case "empty cache":
                gpu.empty_cache()
            case "begin pool" | "end pool" | "release pool":
                self._act_on_pool(action.verb, what)

    def _act_on_pool(self, verb: Verb, number: int) -> None:
        if verb == "release pool":
            pool = self._pools.pop(number, None)
            if pool is not None:
                pool.release()
        elif verb == "end pool":
            self._pools[number].end()
        else:
            if number not in self._pools:
                self._pools[number] = self._gpu.pool()
            self._pools[number].begin()


def _between(events: Sequence[int], actions: Sequence[Action]) -> Iterator[tuple[Sequence[int], Action | None]]:
    """Yield the requests with the action that follows them."""
    at = 0
    for action in actions:
        yield events[at : action.at], action
        at = action.at
    yield (events[at:] if at else events), None


# -- writing while an allocator is used ------------------------------------------------------------------------------------


class Slots(MutableMapping[int, Owner]):
    """Objects by slot, of which most slots have one: a list, a tenth of what a dictionary takes."""

    def __init__(self, owners: Iterable[Owner | None] = ()) -> None:
        self._found: list[Owner | None] = list(owners)

    def __getitem__(self, slot: int) -> Owner:
        owner = self._found[slot] if 0 <= slot < len(self._found) else None
        if owner is None:
            raise KeyError(slot)
        return owner

    def __setitem__(self, slot: int, owner: Owner) -> None:
        if slot >= len(self._found):
            self._found.extend([None] * (slot + 1 - len(self._found)))
        self._found[slot] = owner

    def __delitem__(self, slot: int) -> None:
        if slot not in self:
            raise KeyError(slot)
        self._found[slot] = None

    def __iter__(self) -> Iterator[int]:
        return (slot for slot, one in enumerate(self._found) if one is not None)

    def __len__(self) -> int:
        return sum(one is not None for one in self._found)

    def mapped(self, other: Callable[[Owner], Other]) -> Slots[Other]:
        """Return the same slots, each with what belongs to it put otherwise."""
        return Slots(None if one is None else other(one) for one in self._found)


class TapedAllocator(CachingAllocator):
    """An allocator that writes on a tape what it is asked for, so that the same can be asked of another one."""

    def __init__(self, torch: str, alloc_conf: str, total_memory: int | None, *, pending_frees: PendingFrees, others: int = 0) -> None:
        super().__init__(torch, alloc_conf, total_memory, pending_frees=pending_frees, others=others)
        self.tape = self._empty_tape()
        self._sizes: dict[int, int] = {}
        self.slots: dict[Block, int] = {}
        """Of what is in use."""
        self.refused: tuple[int, int] | None = None
        """Numbers of requests and of actions when memory was refused last."""
        self.fullest = (0, 0)
        """The same when most was reserved."""
        self._most = 0

    @staticmethod
    def _empty_tape() -> Tape[Any]:
        # A long program asks a million times: numbers lie in arrays, and equal sizes are one object.
        return Tape(events=array("q"), blocks=array("q"), owners=Slots())

    def begin_again(self) -> None:
        """Reset the highest moment; where nothing is reserved any more, forget the requests too."""
        if not self._device.reserved:
            self.tape = self._empty_tape()
        self.refused, self._most = None, self._device.reserved
        self.fullest = len(self.tape.events), len(self.tape.actions)

    def malloc(self, size: int, stream: int = 0) -> Block:
        """Allocate, and note it."""
        tape = self.tape
        try:
            block = super().malloc(size, stream)
        except OutOfMemory:
            tape.act("refused", size, stream)
            self.refused = len(tape.events), len(tape.actions)
            raise
        slot = self.slots[block] = tape.slot(self._sizes.setdefault(size, size), ACTIVATION, "", stream)
        tape.events.append(slot)
        tape.blocks.append(block.size)
        if self._device.reserved > self._most:
            self._most = self._device.reserved
            self.fullest = len(tape.events), len(tape.actions)
        return block

    def free(self, block: Block) -> None:
        """Give a block back, and note it."""
        super().free(block)
        self.tape.events.append(~self.slots.pop(block))

    def record_stream(self, block: Block, stream: int) -> None:
        """Note that another stream uses a block."""
        super().record_stream(block, stream)
        self.tape.act("record", self.slots[block], stream)

    def record_event(self, stream: int = 0) -> Event:
        """Return an event behind all work of a stream so far."""
        self.tape.act("event", stream)
        event = super().record_event(stream)
        self.queued(stream, event)
        return event

    def queued(self, stream: int, what: Ran | Sent | Event) -> None:
        """Note what stands in the queue of a stream."""
        tape = self.tape
        tape.queue.append(Queued(len(tape.actions), len(tape.events), stream, what))

    def wait(self, stream: int, other: int | Event) -> None:
        """Let a stream wait for another one, or for an event."""
        super().wait(stream, other)
        self.tape.act("wait", stream, *((other,) if isinstance(other, int) else other))

    def synchronize(self, what: int | Event | None = None) -> None:
        """Note that the host waits."""
        super().synchronize(what)
        if isinstance(what, Event):
            self.tape.act("synchronize", what.stream, place=what.at)
        else:
            self.tape.act("synchronize", -1 if what is None else what)

    def empty_cache(self) -> None:
        """Give back to the device what is free."""
        super().empty_cache()
        self.tape.act("empty cache")

    def _open_scope(self, pool: MemPool, streams: Container[int] | None, capture: bool) -> None:
        super()._open_scope(pool, streams, capture)
        self.tape.act("begin pool", pool.number)

    def _close_scope(self, pool: MemPool) -> None:
        super()._close_scope(pool)
        self.tape.act("end pool", pool.number)

    def _empty_pool(self, pool: MemPool) -> None:
        super()._empty_pool(pool)
        if not pool.users:
            self.tape.act("release pool", pool.number)

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit what the process may reserve."""
        super().set_memory_fraction(fraction)
        self.tape.act("limit", share=fraction)
