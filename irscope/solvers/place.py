"""Addresses for buffers of known lifetimes in one arena, as low as they go: quick orders first, then a search as long as there is time."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from irscope.compiled import can_compile, is_kept
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.memory.arena import BfcArena
from irscope.memory.caching import BOUNDLESS, CachingAllocator
from irscope.memory.caching.blocks import FreeList
from irscope.solvers.canonical import CompiledSearch, Floors, Numbers, OutOfSteps, PlainSearch, Problem
from irscope.solvers.gaps import Gaps
from irscope.solvers.worktime import WorkTime


def placement_problem(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], alignment: int) -> Problem:
    """Checked buffers with sizes rounded up, so that offsets that only add sizes stay aligned."""
    if not len(lower) == len(upper) == len(size):
        raise UsageError(
            f"buffers need as many starts as ends and sizes: {len(lower)}, {len(upper)} and {len(size)} were given", code="IRS350"
        )
    if alignment < 1:
        raise UsageError(f"an alignment of {alignment} bytes is not possible: it must be at least 1", code="IRS351")
    starts, ends, sizes = (np.asarray(numbers, dtype=np.int64).reshape(-1) for numbers in (lower, upper, size))
    for index in np.flatnonzero((ends < starts) | (sizes < 0))[:1].tolist():
        raise UsageError(
            f"buffer {index} lives from {starts[index]} to {ends[index]} and has {sizes[index]} bytes: it must not end before it starts, "
            "nor have less than 0 bytes",
            code="IRS350",
        )
    return Problem(starts, ends, -(-sizes // alignment) * alignment)


def apart(problem: Problem) -> list[Numbers]:
    """Return groups of buffers that share no moment with one another, each in the order of its starts."""
    order = np.argsort(problem.lower, kind="stable")
    ends = np.maximum.accumulate(problem.upper[order])
    cuts = np.flatnonzero(problem.lower[order][1:] >= ends[:-1]) + 1
    return np.split(order, cuts)


# Placing buffers one after the other, each into a gap that those already placed leave open.


def place_in_order(problem: Problem, order: Numbers, *, tightest: bool) -> Numbers:
    """Return offsets when buffers are placed in this order."""
    gaps = Gaps(problem)
    offsets = np.zeros(len(problem), dtype=np.int64)
    for buffer in order.tolist():
        offset = gaps.find(buffer, tightest=tightest)
        gaps.put(buffer, offset)
        offsets[buffer] = offset
    return offsets


# Orders in which buffers may be placed: which of them matters most.

_SHARPNESS = 4
"""Steps into which a disturbed criterion falls for each doubling, about: within one, the next criterion decides."""


class Preferences:
    """Orders of a problem's buffers by criteria: (T)otal of bytes alive with it, (W)idth in time, (A)rea, si(Z)e, (D)egree, (L)ower end.

    An order is a word: "TAW" sorts by total, then area, then width, all largest first; the lower end is earliest first.
    """

    def __init__(self, problem: Problem) -> None:
        width = problem.upper - problem.lower
        self.count = len(problem)
        self._criteria: dict[str, Numbers] = {"W": -width, "A": -width * problem.size, "Z": -problem.size, "L": problem.lower}
        self._problem = problem

    def order(self, word: str) -> Numbers:
        """Return the buffers by the criteria of a word; equal ones stay in their order."""
        return np.lexsort([self._criterion(letter) for letter in reversed(word)])

    def disturbed(self, word: str, noise: float, random: np.random.Generator, blame: NDArray[np.float64] | None = None) -> Numbers:
        """Return the same with criteria that are blurred and shaken: buffers about equally important change places.

        What was to blame for failures becomes more important by the first criterion.
        """
        keys: list[NDArray[np.float64]] = []
        for letter in reversed(word):
            steps = np.log(np.abs(self._criterion(letter)) + 1.0) * _SHARPNESS
            if blame is not None and letter == word[0] and blame.any():
                steps += np.log1p(blame / blame.mean()) * _SHARPNESS
            keys.append(-np.floor(steps + random.random(self.count) * noise * 2 * _SHARPNESS))
        return np.lexsort(keys)

    def _criterion(self, letter: str) -> Numbers:
        if letter not in self._criteria:
            self._criteria[letter] = -(self._totals() if letter == "T" else self._problem.degrees)
        return self._criteria[letter]

    def _totals(self) -> Numbers:
        """Return, for each buffer, the most bytes that are alive with it at one moment."""
        total = np.zeros(self.count, dtype=np.int64)
        for alive, load in zip(self._problem.moments, self._problem.loads.tolist(), strict=True):
            total[alive] = np.maximum(total[alive], load)
        return total


# Better orders for many buffers: what came to lie too high is placed earlier the next time.

_SHAKE = 0.002
"""By how much of the order's length others change places, every other time."""


class Promotion:
    """One order, changed as long as it gets better or stays as good."""

    def __init__(self, problem: Problem, order: Numbers, offsets: Numbers, seed: int, *, tightest: bool) -> None:
        self._problem = problem
        self._random = np.random.default_rng(seed)
        self._tightest = tightest
        self._rank = np.empty(len(order))
        self._rank[order] = np.arange(len(order))
        self._tops = offsets + problem.size
        self._steady = True

    def next(self) -> Numbers:
        """Return offsets of another order."""
        random, height = self._random, int(self._tops.max())
        count = len(self._rank)
        limit = self._problem.max_live + (height - self._problem.max_live) * random.random()
        rank = self._rank.copy()
        high = np.flatnonzero(self._tops >= min(limit, height))
        rank[high] *= random.random(len(high))
        if not self._steady:
            rank += random.random(count) * (count * _SHAKE)
        self._steady = not self._steady
        offsets = place_in_order(self._problem, np.argsort(rank, kind="stable"), tightest=self._tightest)
        tops = offsets + self._problem.size
        if tops.max() <= height:
            self._rank, self._tops = rank, tops
        return offsets


# Offsets for buffers in one arena: quick orders first, then a search as long as there is time.

_SIMPLE = "simple orders"
_COMPILED_MODULE = "irscope.solvers.fill"
_SLOWEST = 5_000.0
"""Steps a second before any were timed."""
_QUICK_ORDERS = ("Z", "TAW", "TZ", "WAT", "WZ", "AW", "LZ")
_SEARCH_ORDERS = ("WAT", "TAW", "TWA", "TDW", "DTW", "ZTW", "AWT", "DW")
_DISTURBED_ORDERS = ("WAT", "TWA", "TAW", "TDW", "TWA", "DTW", "DW", "TWA")
"""Those that, disturbed, succeed on most instances and squares; ZTW and AWT do so on easy ones only."""
_MOST_SEARCHED = 4_000
"""Buffers up to which a search pays; its tables grow with their square."""
_LEAST_NOISE = 0.01
_MOST_NOISE = 0.25
_MOST_FAR = 8
_MOST_SHIFT = 0.03
_MOST_FORWARD = 0.15
"""Number of orders that got far and are remembered, and how far buffers shift in them, as shares of the length of the order."""
_FIRST_SHARE = 0.5
_LEAST_SHARE = 1 / 64
_COMPILING = 8.0
"""CPU seconds that must be left where the search has to be compiled, which takes 3 to 5 of them."""
_LOADING = 1.0
"""The same where its machine code lies in the cache."""


@immutable(slots=False)
class _Pace:
    """Division of a search's steps: numbers for the plain search, and for the one that is compiled and fast."""

    restart: int
    """Steps of a short attempt, a buffer."""
    first: int
    """Short attempts whose steps each order gets as it is, before any is disturbed."""
    patience: int
    """Steps without success after which less is asked for."""


_PLAIN = _Pace(restart=2, first=120, patience=30_000)
_COMPILED = _Pace(restart=3, first=4, patience=16_000)


@immutable(slots=False)
class OffsetPlan:
    """Offsets of buffers, the height of the arena, and what was proven about lower ones."""

    offsets: list[int]
    height: int
    max_live: int
    """Most bytes alive at once."""
    bound: int
    """No arena can be lower: `max_live`, or more where a search has tried all there is."""
    solver: str
    """Solver that found the plan or looked for a better one: "simple orders", "search" or "compiled search"."""

    @property
    def proven(self) -> bool:
        """Return whether no arena can be lower."""
        return self.height <= self.bound


def make_plan(
    lower: Sequence[int],
    upper: Sequence[int],
    size: Sequence[int],
    alignment: int = 1,
    seconds: float = 10,
    seed: int = 0,
) -> OffsetPlan:
    """Return offsets such that two buffers alive together never overlap; `seed` makes the search repeatable as far as time allows."""
    problem = placement_problem(lower, upper, size, alignment)
    clock = WorkTime(seconds)
    offsets = np.zeros(len(problem), dtype=np.int64)
    matters = np.flatnonzero((problem.size > 0) & (problem.upper > problem.lower))
    placed = problem.part(matters)
    bound, solver = 0, _SIMPLE
    if len(matters):
        offsets[matters], bound, solver = _stacked(placed, clock, seed)
    return OffsetPlan(offsets.tolist(), placed.height(offsets[matters]), placed.max_live, bound, solver)


def _stacked(problem: Problem, clock: WorkTime, seed: int) -> tuple[Numbers, int, str]:
    """Buffers that live together with all others go to the bottom, where they cost nothing; the rest lies above them."""
    first_end, last_start = problem.upper.min(), problem.lower.max()
    always = (problem.lower < first_end) & (problem.upper > last_start)
    offsets = np.zeros(len(problem), dtype=np.int64)
    bottom = np.flatnonzero(always)
    offsets[bottom] = np.cumsum(problem.size[bottom]) - problem.size[bottom]
    rest = np.flatnonzero(~always)
    floor = int(problem.size[bottom].sum())
    if not len(rest):
        return offsets, floor, _SIMPLE
    above, bound, solver = _lowest(problem.part(rest), clock, seed)
    offsets[rest] = above + floor
    return offsets, bound + floor, solver


def _lowest(problem: Problem, clock: WorkTime, seed: int) -> tuple[Numbers, int, str]:
    """Return offsets for each stretch of time apart; a stretch need not be lower than the highest load of all of them."""
    offsets = np.zeros(len(problem), dtype=np.int64)
    groups = apart(problem)
    jobs = [_Job(problem.part(group), problem.max_live, seed) for group in groups]
    for job in jobs:
        job.quick(clock)
    # What is highest decides, so that is always where to go on.
    while (highest := max(jobs, key=lambda job: job.height)).can_improve(clock):
        highest.attempt(clock)
    for group, job in zip(groups, jobs, strict=True):
        offsets[group] = job.offsets
    return offsets, max(job.goal for job in jobs), highest.solver


@dataclass
class _Job:
    """The best offsets known for one stretch of time."""

    problem: Problem
    goal: int
    """A height that no placement can improve on; it rises where a search has tried all there is."""
    seed: int
    offsets: Numbers = field(init=False)
    height: int = field(init=False, default=-1)
    pace: float = field(init=False, default=0.0)
    """Seconds that placing all buffers takes."""
    solver: str = field(init=False, default=_SIMPLE)
    _asked: int = field(init=False, default=0)
    _tries: int = field(init=False, default=0)
    _steps_a_second: float = field(init=False, default=_SLOWEST)
    _search: PlainSearch | CompiledSearch = field(init=False)
    _targets: _Targets = field(init=False)
    _attempts: _Attempts = field(init=False)
    _best_order: tuple[Numbers, bool] = field(init=False)

    def quick(self, clock: WorkTime) -> None:
        """Place in several orders and keep the best; the first one always runs."""
        preferences = Preferences(self.problem)
        for tightest, word in product((True, False), _QUICK_ORDERS):
            before = clock.left
            order = preferences.order(word)
            if self._keep(place_in_order(self.problem, order, tightest=tightest)):
                self._best_order = order, tightest
            self.pace = max(self.pace, before - clock.left)
            if self.height <= self.goal or not self._has_time(clock):
                return

    def can_improve(self, clock: WorkTime) -> bool:
        """Return whether a search may still find something lower."""
        return self.height > self.goal and self._has_time(clock)

    def attempt(self, clock: WorkTime) -> None:
        """Search once below the best known height."""
        if len(self.problem) > _MOST_SEARCHED:
            self._keep(self._promotion.next())
            return
        self._choose(clock)
        order, steps = self._attempts.next()
        target = self._targets.next(steps, self.goal)
        before = clock.left
        # The last attempt ends with the time, as far as is known how long a step takes.
        steps = max(1, min(steps, int(before * self._steps_a_second)))
        try:
            found = self._search.run(target, order, steps)
        except OutOfSteps:
            self._steps_a_second = steps / max(before - clock.left, 1e-6)
            self._targets.missed(steps, is_goal=target == self.goal)
            if target == self.goal:
                self._attempts.missed(order)
            return
        if found is None:
            self.goal = max(self.goal, target + 1)
        else:
            self._keep(found)
            self._targets.reached(self.height)

    def _choose(self, clock: WorkTime) -> None:
        """Take the search that is compiled as soon as there is time to load it, or to compile it where the plain one did not do."""
        if self.solver == _SIMPLE:
            self._search, self._targets = PlainSearch(self._floors), _Targets(self.height, _PLAIN, len(self.problem))
            self._attempts = _Attempts(Preferences(self.problem), self.seed, _PLAIN, self._search)
            self.solver = "search"
        if self.solver != "search" or not can_compile():
            return
        kept = is_kept(_COMPILED_MODULE)
        self._tries += 1
        if clock.left < (_LOADING if kept else _COMPILING) or not (kept or self._tries > len(_SEARCH_ORDERS)):
            return
        self._search, self._targets = CompiledSearch(self._floors), _Targets(self.height, _COMPILED, len(self.problem))
        self._attempts = _Attempts(Preferences(self.problem), self.seed, _COMPILED, self._search)
        with suppress(OutOfSteps):
            self._search.run(self.goal, np.arange(len(self.problem)), 0)
        self._steps_a_second = _SLOWEST
        self.solver = "compiled search"

    @cached_property
    def _floors(self) -> Floors:
        return Floors(self.problem)

    @cached_property
    def _promotion(self) -> Promotion:
        order, tightest = self._best_order
        return Promotion(self.problem, order, self.offsets, self.seed, tightest=tightest)

    def _has_time(self, clock: WorkTime) -> bool:
        return clock.left > (self.pace if len(self.problem) > _MOST_SEARCHED else 0.0)

    def _keep(self, offsets: Numbers) -> bool:
        """Take over offsets that are lower than those known."""
        height = self.problem.height(offsets)
        if 0 <= self.height <= height:
            return False
        self.offsets, self.height = offsets, height
        return True


class _Targets:
    """The height to try next: the goal and, half as often, one between it and what is reached, so that something gets better anyway."""

    def __init__(self, best: int, pace: _Pace, count: int) -> None:
        self._best = best
        self._pace = pace
        self._long = pace.first * pace.restart * count
        self._share = _FIRST_SHARE
        """Of what separates the best from the goal, the share that is asked for."""
        self._misses = 0
        self._spent = {True: 0, False: 0}
        """Steps spent on the goal, and on heights in between."""

    def next(self, steps: int, goal: int) -> int:
        """Return a height to try in so many steps; long searches are kept for the goal."""
        if steps >= self._long:
            return goal
        between = self._best - max(1, int((self._best - goal) * self._share))
        return max(goal, between) if 2 * self._spent[False] <= self._spent[True] else goal

    def missed(self, steps: int, *, is_goal: bool) -> None:
        """Note that steps ran out before a height was reached."""
        self._spent[is_goal] += steps
        if not is_goal:
            self._misses += steps
            if self._misses >= self._pace.patience:
                # Too much to ask; after the smallest share it may well have been bad luck.
                self._share = self._share / 2 if self._share > _LEAST_SHARE else _FIRST_SHARE
                self._misses = 0

    def reached(self, height: int) -> None:
        """Note that a lower placement was found."""
        self._best = min(self._best, height)
        self._share = min(_FIRST_SHARE, self._share * 2)
        self._misses = 0


class _Attempts:
    """Orders, each with the steps it may take: known good ones, then disturbed ones, mostly for a short while.

    How long a search takes varies without bound from order to order. Those that succeed mostly do nearly without a step back, so there
    are many attempts of a few steps a buffer, and a third as many of twice the length, again and again. Every other disturbed order
    heeds what was to blame for failures. In turn with them come orders that got far, changed a little.
    """

    def __init__(self, preferences: Preferences, seed: int, pace: _Pace, search: PlainSearch | CompiledSearch) -> None:
        self._preferences, self._search = preferences, search
        self._random = np.random.default_rng(seed)
        self._restart = pace.restart * preferences.count
        self._given = self._known(pace)
        self._far: list[tuple[int, int, Numbers]] = []
        """Of the attempts that got farthest: buffers placed at one time, the attempt's number, the place of each buffer in its order."""
        self._missed = 0

    def next(self) -> tuple[Numbers, int]:
        """Return an order and steps."""
        return next(self._given)

    def missed(self, order: Numbers) -> None:
        """Note that the search with this order did not reach the goal."""
        self._missed += 1
        if self._search.most:
            place = np.empty(len(order), dtype=np.int64)
            place[order] = np.arange(len(order))
            heapq.heappush(self._far, (self._search.most, self._missed, place))
            if len(self._far) > _MOST_FAR:
                heapq.heappop(self._far)

    def _known(self, pace: _Pace) -> Iterator[tuple[Numbers, int]]:
        for times in (1, pace.first):
            for word in _SEARCH_ORDERS:
                yield self._preferences.order(word), times * self._restart
        for attempt in count(1):
            steps = self._restart * _restart_length(attempt)
            for place, word in enumerate(_DISTURBED_ORDERS):
                noise = _LEAST_NOISE * (_MOST_NOISE / _LEAST_NOISE) ** self._random.random()
                heeded = self._search.blame if (place + attempt) % 2 else None
                yield self._preferences.disturbed(word, noise, self._random, heeded), steps
                if self._far:
                    yield self._like_one_that_got_far(), steps

    def _like_one_that_got_far(self) -> Numbers:
        """Places in an order that got far shift by chance, and forward where a buffer was to blame since."""
        random, blame = self._random, self._search.blame
        place = self._far[random.integers(len(self._far))][2] / len(blame)
        place += random.standard_normal(len(blame)) * (_MOST_SHIFT * random.random())
        place -= blame * (_MOST_FORWARD * random.random() / max(blame.max(), 1e-9))
        return np.argsort(place, kind="stable")


def _restart_length(position: int) -> int:
    """1 1 2 1 1 2 1 1 4 ..., counted from 1: doubled for each time that 3 divides the position."""
    length = 1
    while position % 3 == 0:
        length *= 2
        position //= 3
    return length


# What other planners would do with the same buffers, and whether a plan holds.

T = TypeVar("T")


def while_running(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], alignment: int) -> int:
    """Arena bytes where each buffer gets the tightest gap open at its birth, as ONNX Runtime does when it traces its first run."""
    problem = placement_problem(lower, upper, size, alignment)
    arena = _BestFit()
    for alive in _replay(lower, upper, problem.size.tolist(), arena.malloc):
        arena.free(alive)
    return arena.height


@dataclass(eq=False, slots=True)
class _Room:
    """A piece of an arena, in use or free."""

    size: int
    address: int
    order: int = 0
    key: int = 0


class _BestFit:
    """An arena that grows: a buffer gets the tightest gap, the lowest of several, or else lies above all that are in use."""

    def __init__(self) -> None:
        self.height = 0
        self._top = 0
        """The highest address in use; no gap touches it."""
        self._gaps: FreeList[_Room] = FreeList()
        self._by_start: dict[int, _Room] = {}
        self._by_end: dict[int, _Room] = {}

    def malloc(self, size: int) -> _Room:
        """Return a place for a buffer."""
        gap = self._gaps.take(size)
        if gap is None:
            self._top += size
            self.height = max(self.height, self._top)
            return _Room(size, self._top - size)
        del self._by_start[gap.address], self._by_end[gap.address + gap.size]
        if gap.size > size:
            self._add(gap.address + size, gap.address + gap.size)
        return _Room(size, gap.address)

    def free(self, room: _Room) -> None:
        """Let go of a buffer's place."""
        start, end = room.address, room.address + room.size
        before, after = self._by_end.pop(start, None), self._by_start.pop(end, None)
        if before is not None:
            start = before.address
            del self._by_start[start]
            self._gaps.remove(before.key)
        if after is not None:
            del self._by_end[after.address + after.size]
            end = after.address + after.size
            self._gaps.remove(after.key)
        if end == self._top:
            self._top = start
        else:
            self._add(start, end)

    def _add(self, start: int, end: int) -> None:
        gap = _Room(end - start, start)
        self._by_start[start] = self._by_end[end] = gap
        self._gaps.add(gap)


def greedy_by_size(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], alignment: int) -> int:
    """Arena bytes where the largest buffers come first and each gets the tightest gap, as TensorFlow Lite plans."""
    problem = placement_problem(lower, upper, size, alignment)
    matters = np.flatnonzero((problem.size > 0) & (problem.upper > problem.lower))
    part = problem.part(matters)
    order = np.lexsort((part.lower, -part.size))
    return part.height(place_in_order(part, order, tightest=True))


def held_by_arena(lower: Sequence[int], upper: Sequence[int], size: Sequence[int]) -> int:
    """Return bytes that ONNX Runtime's arena takes from the device where each buffer is asked for when it is made."""
    arena = BfcArena()
    for alive in _replay(lower, upper, size, arena.malloc):
        arena.free(alive)
    return arena.counters().held_peak


def reserved_by_torch(lower: Sequence[int], upper: Sequence[int], size: Sequence[int]) -> int:
    """Return bytes that PyTorch's CUDA allocator reserves where each buffer is asked for when it is made."""
    allocator = CachingAllocator(total_memory=BOUNDLESS)
    for block in _replay(lower, upper, size, allocator.malloc):
        allocator.free(block)
    return allocator.counters().reserved_peak


def _replay(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], take: Callable[[int], T]) -> Iterator[T]:
    """Ask for buffers in the order of their starts; yields what is to be let go of, before what starts at its end is asked for."""
    alive: list[tuple[int, int]] = []
    taken: dict[int, T] = {}
    for buffer in sorted(range(len(size)), key=lambda index: lower[index]):
        if not size[buffer] or upper[buffer] == lower[buffer]:
            continue
        while alive and alive[0][0] <= lower[buffer]:
            yield taken.pop(heapq.heappop(alive)[1])
        taken[buffer] = take(size[buffer])
        heapq.heappush(alive, (upper[buffer], buffer))


def overlap(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], offsets: Sequence[int]) -> tuple[int, int] | None:
    """Return two buffers that are alive together and share a byte; None where there are none."""
    # Those alive together are kept sorted by offset, so that only the neighbours of a new one can be in its way.
    alive: list[tuple[int, int, int]] = []
    ends: list[tuple[int, tuple[int, int, int]]] = []
    for buffer in sorted(range(len(size)), key=lambda index: lower[index]):
        if not size[buffer] or upper[buffer] == lower[buffer]:
            continue
        while ends and ends[0][0] <= lower[buffer]:
            del alive[bisect_left(alive, heapq.heappop(ends)[1])]
        new = (offsets[buffer], offsets[buffer] + size[buffer], buffer)
        at = bisect_left(alive, new)
        for start, end, other in alive[max(0, at - 1) : at + 1]:
            if start < new[1] and new[0] < end:
                return other, buffer
        alive.insert(at, new)
        heapq.heappush(ends, (upper[buffer], new))
    return None
