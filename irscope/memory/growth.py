"""Steps that grow by a law: what a few captured steps asked of the allocator tells what any step asks.

While a model generates, each step asks for the same blocks in the same order; sizes grow with the number of tokens, up to where a window
is full. A step is read relative to the steps before it, so that two of them can be compared; between two steps that look alike every size
is a straight line, which is held against further captured steps before it is believed. Where it does not hold, the stretch is parted.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias, cast

from irscope.immutable import immutable
from irscope.memory.tape import Action, Tape, Verb

_PLACE: Final = attrgetter("at")
_MOST_CAPTURES: Final = 40
"""Stretches of steps to look at: a window that fills takes two for each halving of its place."""
_SHARE: Final = 8
"""Of so many steps one may be looked at where that is more: buffers of split attention change every few hundred tokens."""
_NEAR: Final = 3
"""Steps nearer than this are taken as they were captured."""


class Ref(NamedTuple):
    """An allocation as a step sees it: the how many-th of the step so many steps back, or with `back` -1 a slot from before all steps."""

    back: int
    place: int


Request: TypeAlias = "tuple[str, Any, Any]"
"""`take` with a stream, `free` with a reference, or an action's verb with what it is about and its other number."""


@immutable(slots=False)
class StepRequests:
    """Requests of one step to the allocator, without its place among the steps."""

    requests: tuple[Request, ...]
    sizes: tuple[int, ...]
    """Of what it took, in order."""
    places: tuple[int, ...]
    """Of its actions, in the work of their streams since the step began."""
    work: Mapping[int, int]
    """Number of events of each stream."""
    slots: tuple[int, ...]
    """Of the tape that it was read from."""


class Cut(NamedTuple):
    """The beginning of a step."""

    at: int
    """Requests of the tape before it."""
    work: Mapping[int, int]
    """Events of each stream before it."""


class Rhythm(NamedTuple):
    """Pattern by which steps are alike."""

    unit: int = 1
    """Steps that belong together: with so many steps between them, two are alike."""
    own: int = 6
    """Groups that are captured behind the real prompt; with hardly more than that, all are."""
    alike: int = 3
    """The first of these that is like later ones: the first gives back what the prompt's forward left, the second what the first left."""


def streams_between(tape: Tape[Any], begin: int, end: int) -> list[int]:
    """Streams besides the default one that requests and actions of a stretch are about, in order."""
    found = {tape.streams[event]: None for event in tape.events[begin:end] if event in tape.streams}
    for one in _actions(tape, begin, end):
        about = {"record": (one.other,), "event": (one.what,), "wait": (one.what, one.other), "synchronize": (one.what,)}.get(one.verb, ())
        found.update((stream, None) for stream in about if stream > 0)
    return list(found)


def read_steps(tape: Tape[Any], cuts: Sequence[Cut], names: Mapping[int, int] | None = None) -> list[StepRequests]:
    """Return the steps between places of a tape; `names` are other numbers for its streams, since each run may make streams of its own."""
    names = names or {}
    homes: dict[int, tuple[int, int]] = {}
    steps = []
    for number, (begin, over) in enumerate(itertools.pairwise(cuts)):
        first, end = begin.at, over.at
        requests: list[Request] = []
        slots: list[int] = []
        places: list[int] = []
        actions = _actions(tape, first, end)
        at = 0
        for event in range(first, end):
            while at < len(actions) and actions[at].at == event:
                requests.append(_action(actions[at], homes, number, names))
                place = actions[at].place
                places.append(place if place < 0 else place - begin.work.get(actions[at].other, 0))
                at += 1
            what = tape.events[event]
            if what >= 0:
                homes[what] = (number, len(slots))
                slots.append(what)
                stream = tape.streams.get(what, 0)
                requests.append(("take", names.get(stream, stream), None))
            else:
                requests.append(("free", _ref(~what, homes, number), None))
        sizes = tuple(size if isinstance(size := tape.sizes[slot], int) else 0 for slot in slots)
        grown = {stream: count - begin.work.get(stream, 0) for stream, count in over.work.items()}
        work = {names.get(stream, stream): count for stream, count in grown.items() if count}
        steps.append(StepRequests(tuple(requests), sizes, tuple(places), work, tuple(slots)))
    return steps


def _ref(slot: int, homes: dict[int, tuple[int, int]], number: int) -> Ref:
    home = homes.get(slot)
    return Ref(-1, slot) if home is None else Ref(number - home[0], home[1])


def _actions(tape: Tape[Any], begin: int, end: int) -> Sequence[Action]:
    return tape.actions[bisect_left(tape.actions, begin, key=_PLACE) : bisect_left(tape.actions, end, key=_PLACE)]


def _action(action: Action, homes: dict[int, tuple[int, int]], number: int, names: Mapping[int, int]) -> Request:
    about = _ref(action.what, homes, number) if action.verb == "record" else names.get(action.what, action.what)
    return action.verb, about, (names.get(action.other, action.other), action.share, action.place < 0)


class NoLaw(Exception):
    """The steps do not grow by lines that few captures show."""


@immutable(slots=False)
class Piece:
    """A stretch of steps in which every size is a straight line."""

    first: int
    last: int
    base: StepRequests
    """The first step."""
    rates: tuple[int, ...]
    """Growth of each size per step."""

    def sizes(self, step: int) -> list[int]:
        """Return the sizes of what `step` takes."""
        far = step - self.first
        return [size + far * rate for size, rate in zip(self.base.sizes, self.rates, strict=True)]


class Growth:
    """Growth of steps; `capture` gives a step and the two after it, from a run of their own."""

    def __init__(self, capture: Callable[[int], Sequence[StepRequests]], before: int = 0) -> None:
        """Take `before` tokens more than a step's number: kernels change at round numbers of tokens."""
        self._capture = capture
        self._before = before
        self._known: dict[int, StepRequests] = {}
        self._most = self._least = 0
        self.captured: list[int] = []
        """Steps that were captured, each with the two after it, in order of asking."""
        self.pieces: list[Piece] = []
        """In order; what is between two of them was not asked for."""

    def cover(self, first: int, last: int) -> None:
        """Find the law of steps from `first` to `last`, as far as it is not known."""
        self._least = min(first, self._least or first)
        self._most = len(self.captured) + max(_MOST_CAPTURES, (last - first) // _SHARE)
        while (gap := self._gap(first, last)) is not None:
            low, high = gap
            before = next((piece for piece in self.pieces if piece.last == low - 1 and piece.first < piece.last), None)
            if before is not None and self._longer(before, high):
                continue
            self.pieces = sorted([*self.pieces, *self._cover(low, high)], key=attrgetter("first"))

    def _gap(self, first: int, last: int) -> tuple[int, int] | None:
        for piece in self.pieces:
            if piece.first > first:
                return (first, min(last, piece.first - 1)) if first <= last else None
            first = max(first, piece.last + 1)
        return (first, last) if first <= last else None

    def _longer(self, piece: Piece, last: int) -> bool:
        """Return whether a piece goes on to there; it does from then on."""
        if not _holds(piece, last, self._step(last, last - 2)) or not _holds(piece, last - 1, self._step(last - 1, last - 2)):
            return False
        if last - piece.last > _NEAR and not _holds(piece, middle := (piece.last + last) // 2, self._step(middle)):
            return False
        self.pieces[self.pieces.index(piece)] = replace(piece, last=last)
        return True

    def _step(self, number: int, of: int | None = None) -> StepRequests:
        """Return a step, captured with others from `of` on, itself if nothing is said."""
        cached = self._known.get(number)
        if cached is None:
            if len(self.captured) >= self._most:
                raise NoLaw
            start = number if of is None else of
            self.captured.append(start)
            self._known.update(enumerate(self._capture(start), start))
            cached = self._known[number]
        return cached

    def _cover(self, low: int, high: int) -> Iterator[Piece]:
        todo = [(low, high)]
        while todo:
            low, high = todo.pop()
            if high - low < _NEAR:
                for number in range(low, high + 1):
                    yield self._alone(number, max(high - 2, self._least))
                continue
            first, second, third = (self._step(low + ahead, low) for ahead in range(3))
            if _line(low, high, first, second, third) is None:
                yield self._alone(low, low)
                todo.append((low + 1, high))
                continue
            ends = [self._step(number, high - 2) for number in range(high - 2, high + 1)]
            if _line(high - 2, high, *ends) is None:
                yield self._alone(high, high)
                todo.append((low, high - 1))
                continue
            piece = _line(low, high, first, second, third)
            assert piece is not None
            split = _roundest(low + self._before, high + self._before) - self._before
            if all(_holds(piece, number, end) for number, end in enumerate(ends, high - 2)) and _holds(
                piece, split, self._step(split, split - 1)
            ):
                yield piece
            else:
                todo += [(split, high), (low, split - 1)]

    def _alone(self, number: int, of: int) -> Piece:
        base = self._step(number, of)
        return Piece(number, number, base, (0,) * len(base.sizes))

    def holds(self, step: int, requests: StepRequests) -> bool:
        """Return whether a step that was captured otherwise is what the law says."""
        return _holds(self.piece(step), step, requests)

    def piece(self, step: int) -> Piece:
        """Return the stretch that a step is in."""
        return self.pieces[bisect_left(self.pieces, step, key=attrgetter("last"))]


def _roundest(low: int, high: int) -> int:
    """Return the number of the middle half that most powers of two divide: kernels cut what they read into such parts."""
    quarter = (high - low) // 4
    first, last = low + quarter, high - quarter
    for power in range(last.bit_length(), 0, -1):
        found = -(-first >> power) << power
        if low + 2 <= found <= last:
            return found
    return (low + high) // 2


def _line(low: int, high: int, base: StepRequests, second: StepRequests, third: StepRequests) -> Piece | None:
    """Return the line through three steps that follow one another, if there is one."""
    if not (_alike(second, base) and _alike(third, base)):
        return None
    rates = tuple(then - now for now, then in zip(base.sizes, second.sizes, strict=True))
    piece = Piece(low, high, base, rates)
    return piece if _holds(piece, low + 2, third) else None


def _holds(piece: Piece, number: int, requests: StepRequests) -> bool:
    """Return whether a captured step is on the line."""
    return _alike(requests, piece.base) and list(requests.sizes) == piece.sizes(number)


def _alike(requests: StepRequests, other: StepRequests) -> bool:
    """Return whether two steps ask for the same in the same order, but for sizes."""
    return requests.requests == other.requests and requests.places == other.places and requests.work == other.work


def continued(
    tape: Tape[Any], cuts: Sequence[Cut], growth: Growth, last: int, before: int = 0
) -> tuple[Tape[Any], list[int], Sequence[int]]:
    """Return a tape with further steps behind those that it has, up to the `last` one; where steps start and the last ends; the slots of
    the last.

    The law numbers steps from `before` + 1 on.
    """
    end = cuts[-1].at
    made = replace(
        tape,
        events=tape.events[:end],
        sizes=list(tape.sizes),
        kinds=list(tape.kinds),
        labels=list(tape.labels),
        owners=dict(tape.owners),
        streams=dict(tape.streams),
        blocks=[],
        actions=tape.actions[: bisect_left(tape.actions, end, key=_PLACE)],
    )
    own = read_steps(tape, cuts)
    slots: dict[int, Sequence[int]] = {number: step.slots for number, step in enumerate(own, 1)}
    starts = [cut.at for cut in cuts]
    work = dict(cuts[-1].work)
    for number in range(len(own) + 1, last + 1):
        _append(made, tape, growth.piece(before + number), number, slots, work, before)
        starts.append(made.cut())
    return made, starts, slots[last]


def _append(
    made: Tape[Any], tape: Tape[Any], piece: Piece, number: int, slots: dict[int, Sequence[int]], work: dict[int, int], before: int
) -> None:
    """Append one more step."""
    base = piece.base
    first = len(made.sizes)
    made.sizes += piece.sizes(before + number)
    mine = slots[number] = range(first, len(made.sizes))
    made.kinds += [tape.kinds[slot] for slot in base.slots]
    made.labels += [tape.labels[slot] for slot in base.slots]
    made.owners.update((slot, tape.owners[like]) for slot, like in zip(mine, base.slots, strict=True) if like in tape.owners)
    taken = acted = 0
    for verb, what, other in base.requests:
        if verb == "take":
            if what:
                made.streams[first + taken] = what
            made.events.append(first + taken)
            taken += 1
        elif verb == "free":
            made.events.append(~_slot(what, number, slots))
        else:
            whole, share, is_open = other
            place = -1 if is_open else base.places[acted] + work.get(whole, 0)
            made.act(cast("Verb", verb), _slot(what, number, slots) if verb == "record" else what, whole, place, share)
            acted += 1
    for stream, count in base.work.items():
        work[stream] = work.get(stream, 0) + count


def _slot(ref: Ref, number: int, slots: dict[int, Sequence[int]]) -> int:
    return ref.place if ref.back < 0 else slots[number - ref.back][ref.place]
