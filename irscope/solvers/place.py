"""Addresses for buffers of known lifetimes in one arena, as low as they go: quick orders first, then a search as long as there is time."""

from __future__ import annotations

import heapq
import importlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from irscope.errors import UsageError
from irscope.memory.arena import BfcArena
from irscope.memory.caching import BOUNDLESS, CachingAllocator

Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """Buffers by index; each is alive from `lower` up to, not including, `upper`."""

    lower: Numbers
    upper: Numbers
    size: Numbers

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def moments(self) -> list[Numbers]:
        """Buffers alive together, for each moment that no other one includes."""
        return _moments(self.lower, self.upper)

    @cached_property
    def loads(self) -> Numbers:
        """Bytes alive at each of the moments."""
        return np.array([self.size[alive].sum() for alive in self.moments], dtype=np.int64)

    @cached_property
    def max_live(self) -> int:
        """Most bytes alive at once: no arena can be lower."""
        return max_live(self.lower, self.upper, self.size)

    def part(self, buffers: Numbers) -> Problem:
        """Only these buffers."""
        return Problem(self.lower[buffers], self.upper[buffers], self.size[buffers])

    def height(self, offsets: Numbers) -> int:
        """The height of an arena with these offsets."""
        return int((offsets + self.size).max(initial=0))


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


def max_live(lower: Numbers, upper: Numbers, size: Numbers) -> int:
    """Most bytes alive at once."""
    times = np.concatenate([upper, lower])
    changes = np.concatenate([-size, size])
    # What ends at a time makes room before what starts at it.
    order = np.lexsort((changes > 0, times))
    return int(np.cumsum(changes[order]).max(initial=0))


def apart(problem: Problem) -> list[Numbers]:
    """Groups of buffers that share no moment with one another, each in the order of its starts."""
    order = np.argsort(problem.lower, kind="stable")
    ends = np.maximum.accumulate(problem.upper[order])
    cuts = np.flatnonzero(problem.lower[order][1:] >= ends[:-1]) + 1
    return np.split(order, cuts)


def _moments(lower: Numbers, upper: Numbers) -> list[Numbers]:
    """The largest sets alive together: the moments just before an end that follows a start."""
    count = len(lower)
    times = np.concatenate([upper, lower])
    is_start = np.repeat([False, True], count)
    alive: dict[int, None] = {}
    found: list[Numbers] = []
    grew = False
    for event in np.lexsort((is_start, times)).tolist():
        if event >= count:
            alive[event - count] = None
            grew = True
            continue
        if grew:
            found.append(np.fromiter(alive, dtype=np.int64, count=len(alive)))
            grew = False
        del alive[event]
    return found


# ----------------------------------------------------------------------------------------------------
# Placing buffers one after the other, each into a gap that those already placed leave open.


class Gaps:
    """Buffers placed so far, sorted by offset, so that those that overlap in time are found in that order, too."""

    def __init__(self, problem: Problem) -> None:
        count = len(problem)
        self._lower = np.empty(count, dtype=np.int64)
        self._upper = np.empty(count, dtype=np.int64)
        self._bottom = np.empty(count, dtype=np.int64)
        self._top = np.empty(count, dtype=np.int64)
        self._placed = 0

    def find(self, lower: int, upper: int, size: int, *, tightest: bool) -> int:
        """The lowest offset where it fits, or the one in the smallest gap it fits into."""
        placed = self._placed
        together = np.flatnonzero((self._lower[:placed] < upper) & (self._upper[:placed] > lower))
        if not len(together):
            return 0
        ceilings = np.maximum.accumulate(self._top[together])
        floors = np.concatenate(([0], ceilings[:-1]))
        rooms = self._bottom[together] - floors
        fitting = np.flatnonzero(rooms >= size)
        if not len(fitting):
            return int(ceilings[-1])
        chosen = fitting[np.argmin(rooms[fitting])] if tightest else fitting[0]
        return int(floors[chosen])

    def put(self, lower: int, upper: int, size: int, offset: int) -> None:
        """Place a buffer."""
        placed = self._placed
        at = int(np.searchsorted(self._bottom[:placed], offset))
        for column, number in (
            (self._lower, lower),
            (self._upper, upper),
            (self._bottom, offset),
            (self._top, offset + size),
        ):
            column[at + 1 : placed + 1] = column[at:placed]
            column[at] = number
        self._placed += 1


def place_in_order(problem: Problem, order: Numbers, *, tightest: bool) -> Numbers:
    """Offsets when buffers are placed in this order."""
    gaps = Gaps(problem)
    offsets = np.zeros(len(problem), dtype=np.int64)
    lower, upper, size = problem.lower.tolist(), problem.upper.tolist(), problem.size.tolist()
    for buffer in order.tolist():
        offset = gaps.find(lower[buffer], upper[buffer], size[buffer], tightest=tightest)
        gaps.put(lower[buffer], upper[buffer], size[buffer], offset)
        offsets[buffer] = offset
    return offsets


# ----------------------------------------------------------------------------------------------------
# Offsets for buffers in one arena: quick orders first, then a search as long as there is time.

# ----------------------------------------------------------------------------------------------------
# Search for a placement below a given height, from the bottom up.
#
# Every placement can be pushed down until each buffer stands on the floor or on another one, and be told in the order of its offsets.
# So it is enough to place, again and again, one of the buffers that could now stand lowest; what stands must leave, at every
# moment, enough room for all that is still to come. (The idea is that of MiniMalloc, Moffitt, ASPLOS 2023.)

_PLACED = np.int64(1 << 60)
"""Stands for the lowest possible offset of a buffer that needs no place any more."""


Attempt: TypeAlias = Generator["Attempt", bool, bool]
"""Part of a search; it may hand over to another part and is told whether that succeeded. There can be more levels than calls may nest."""


class OutOfSteps(Exception):
    """The search was stopped before it knew."""


class Floors:
    """What of a problem stays the same from search to search."""

    def __init__(self, problem: Problem) -> None:
        count, moments = len(problem), len(problem.moments)
        self.problem = problem
        self.members = np.concatenate(problem.moments)
        self.starts = np.cumsum([0, *map(len, problem.moments)])
        self.first = np.full(count, moments, dtype=np.int64)
        self.last = np.zeros(count, dtype=np.int64)
        for moment, alive in enumerate(problem.moments):
            self.first[alive] = np.minimum(self.first[alive], moment)
            self.last[alive] = moment
        together = (problem.lower[:, None] < problem.upper) & (problem.upper[:, None] > problem.lower)
        np.fill_diagonal(together, False)
        self.together: NDArray[np.bool_] = together
        self.neighbours = [np.flatnonzero(row) for row in together]
        ends = np.zeros(moments + 1, dtype=np.int64)
        np.add.at(ends, self.first, 1)
        np.add.at(ends, self.last, -1)
        self.crossing = np.cumsum(ends)[: moments - 1]
        """Buffers that live across the border after each moment but the last."""


class CanonicalSearch:
    """One search, with one order of preference among buffers that could stand equally low."""

    def __init__(self, floors: Floors, capacity: int, order: Numbers, steps: int) -> None:
        self._floors = floors
        self._capacity = capacity
        self._rank = np.empty(len(order), dtype=np.int64)
        self._rank[order] = np.arange(len(order))
        self._size = floors.problem.size
        self._sizes = self._size.tolist()
        self._first, self._last = floors.first.tolist(), floors.last.tolist()
        self._steps_left = steps
        self._offsets = np.zeros(len(order), dtype=np.int64)

    def run(self) -> Numbers | None:
        """Offsets below the capacity, or None where there are none."""
        problem = self._floors.problem
        if problem.max_live > self._capacity:
            return None
        lowest = np.zeros(len(problem), dtype=np.int64)
        found = _run(self._fill(0, len(problem.moments), lowest, problem.loads, self._floors.crossing, 0, -1))
        return self._offsets if found else None

    def _fill(self, begin: int, end: int, lowest: Numbers, loads: Numbers, crossing: Numbers, level: int, previous: int) -> Attempt:
        """Place all buffers of the moments from `begin` to `end` that still need a place, none of them below `level`."""
        for buffer in self._candidates(lowest):
            offset = int(lowest[buffer])
            # Two that stand equally high and side by side are told in one order only.
            if offset == level and self._comes_before(buffer, previous):
                continue
            if self._steps_left == 0:
                raise OutOfSteps
            self._steps_left -= 1
            raised, left = self._after(buffer, offset, lowest, loads)
            if not self._has_room(begin, end, raised, left):
                continue
            self._offsets[buffer] = offset
            if (yield self._fill_parts(buffer, begin, end, raised, left, crossing, offset)):
                return True
        return False

    def _comes_before(self, buffer: int, previous: int) -> bool:
        """Whether it could have been placed before the previous one, and would have been preferred."""
        return previous >= 0 and bool(self._rank[buffer] < self._rank[previous] and not self._floors.together[buffer, previous])

    def _candidates(self, lowest: Numbers) -> list[int]:
        """Buffers that could be next, lowest first: below the lowest top, else another one would fit underneath."""
        found = np.flatnonzero(lowest < (lowest + self._size).min())
        if len(found) > 1:
            found = found[np.lexsort((self._rank[found], lowest[found]))]
        order: list[int] = found.tolist()
        return order

    def _after(self, buffer: int, offset: int, lowest: Numbers, loads: Numbers) -> tuple[Numbers, Numbers]:
        """Lowest offsets, and bytes to come at each moment, once a buffer is placed."""
        raised = np.maximum(lowest, offset)
        raised[buffer] = _PLACED
        neighbours = self._floors.neighbours[buffer]
        raised[neighbours] = np.maximum(raised[neighbours], offset + self._sizes[buffer])
        left = loads.copy()
        left[self._first[buffer] : self._last[buffer] + 1] -= self._sizes[buffer]
        return raised, left

    def _has_room(self, begin: int, end: int, lowest: Numbers, loads: Numbers) -> bool:
        """Whether at every moment what is to come fits between the lowest place for any of it and the top."""
        starts = self._floors.starts
        members = self._floors.members[starts[begin] : starts[end]]
        floors = np.minimum.reduceat(lowest[members], starts[begin:end] - starts[begin])
        to_come = loads[begin:end]
        return not bool(((floors + to_come > self._capacity) & (to_come > 0)).any())

    def _fill_parts(self, buffer: int, begin: int, end: int, lowest: Numbers, loads: Numbers, crossing: Numbers, level: int) -> Attempt:
        """Go on, apart for each stretch of time that no waiting buffer connects with another one."""
        first, last = self._first[buffer], self._last[buffer]
        if last > first:
            crossing = crossing.copy()
            crossing[first:last] -= 1
        borders = (np.flatnonzero(crossing[begin : end - 1] == 0) + begin + 1).tolist()
        cuts = [begin, *borders, end]
        parts = [(low, high) for low, high in pairwise(cuts) if loads[low:high].any()]
        if len(parts) == 1:
            return (yield self._fill(*parts[0], lowest, loads, crossing, level, buffer))
        # Short stretches first: where there is no way at all, that is known soonest.
        for low, high in sorted(parts, key=lambda part: part[1] - part[0]):
            inside = (self._floors.first >= low) & (self._floors.last < high)
            if not (yield self._fill(low, high, np.where(inside, lowest, _PLACED), loads, crossing, level, -1)):
                return False
        return True


def _run(attempt: Attempt) -> bool:
    """The answer of an attempt and of all that it hands over to."""
    waiting = [attempt]
    answer: bool | None = None
    while waiting:
        try:
            waiting.append(next(waiting[-1]) if answer is None else waiting[-1].send(answer))
            answer = None
        except StopIteration as done:
            waiting.pop()
            answer = bool(done.value)
    return bool(answer)


# ----------------------------------------------------------------------------------------------------
# Offsets for buffers in one arena: quick orders first, then a search as long as there is time.

# ----------------------------------------------------------------------------------------------------
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
        self._criteria: dict[str, Numbers] = {
            "W": -width,
            "A": -width * problem.size,
            "Z": -problem.size,
            "L": problem.lower,
        }
        self._problem = problem

    def order(self, word: str) -> Numbers:
        """Buffers by the criteria of a word; equal ones stay in their order."""
        return np.lexsort([self._criterion(letter) for letter in reversed(word)])

    def disturbed(self, word: str, noise: float, random: np.random.Generator) -> Numbers:
        """The same with criteria that are blurred and shaken: buffers about equally important change places."""
        keys: list[NDArray[np.float64]] = []
        for letter in reversed(word):
            steps = np.log(np.abs(self._criterion(letter)) + 1.0) * _SHARPNESS
            keys.append(-np.floor(steps + random.random(self.count) * noise * 2 * _SHARPNESS))
        return np.lexsort(keys)

    def _criterion(self, letter: str) -> Numbers:
        if letter not in self._criteria:
            self._criteria[letter] = -(self._totals() if letter == "T" else self._degrees())
        return self._criteria[letter]

    def _totals(self) -> Numbers:
        """For each buffer, the most bytes that are alive with it at one moment."""
        total = np.zeros(self.count, dtype=np.int64)
        for alive, load in zip(self._problem.moments, self._problem.loads.tolist(), strict=True):
            total[alive] = np.maximum(total[alive], load)
        return total

    def _degrees(self) -> Numbers:
        """For each buffer, how many are alive at some time of its life."""
        problem = self._problem
        began = np.searchsorted(np.sort(problem.lower), problem.upper, side="left")
        ended = np.searchsorted(np.sort(problem.upper), problem.lower, side="right")
        return began - ended


# ----------------------------------------------------------------------------------------------------
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
        """Offsets of another order."""
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


# ----------------------------------------------------------------------------------------------------
# The question whether an arena of a given height is possible, asked of Google's CP-SAT. Optional: nothing else needs it.

_MOST_WORKERS = 8


class Impossible(Exception):
    """No arena of that height exists."""


def find_solver() -> Any:
    """CP-SAT's module. Raises UsageError, with what would help, where it is not installed."""
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError:
        raise UsageError(
            "engine=cpsat needs OR-tools, which is not installed",
            code="IRS365",
            hint="pip install 'irscope[solver]', or leave the engine out: irscope's own search needs nothing",
        ) from None


def place_below(problem: Problem, height: int, hint: Numbers, seconds: float, seed: int) -> Numbers | None:
    """Offsets in an arena of that height, None where time ran out. Raises Impossible where there are none."""
    cp_model = find_solver()
    grain = int(np.gcd.reduce(problem.size)) or 1
    top = height // grain
    model = cp_model.CpModel()
    across, up, starts = [], [], []
    columns = zip(problem.lower.tolist(), problem.upper.tolist(), (problem.size // grain).tolist(), (hint // grain).tolist(), strict=True)
    for buffer, (lower, upper, size, near) in enumerate(columns):
        if size > top:
            raise Impossible
        start = model.new_int_var(0, top - size, f"offset{buffer}")
        model.add_hint(start, min(near, top - size))
        across.append(model.new_fixed_size_interval_var(lower, upper - lower, f"time{buffer}"))
        up.append(model.new_fixed_size_interval_var(start, size, f"place{buffer}"))
        starts.append(start)
    model.add_no_overlap_2d(across, up)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = min(_MOST_WORKERS, os.cpu_count() or 1)
    answer = solver.solve(model)
    if answer == cp_model.INFEASIBLE:
        raise Impossible
    if answer not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return np.array([solver.value(start) for start in starts], dtype=np.int64) * grain


# ----------------------------------------------------------------------------------------------------
# Offsets for buffers in one arena: quick orders first, then a search as long as there is time.

_QUICK_ORDERS = ("Z", "TAW", "TZ", "WAT", "WZ", "AW", "LZ")
_SEARCH_ORDERS = ("WAT", "TAW", "TWA", "TDW", "DTW", "ZTW", "AWT", "DW")
_MOST_SEARCHED = 4_000
"""Buffers up to which a search pays; its tables grow with their square."""
_FIRST_STEPS = 60_000
_RESTART_STEPS = 500
_MOST_NOISE = 0.25
_FIRST_SHARE = 0.5
_LEAST_SHARE = 1 / 64
_PATIENCE = 30_000
_ASKED_SHARE = 0.5
"""Of the time that is left, for one question to the solver."""
Engine: TypeAlias = Literal["search", "cpsat"]


@dataclass(frozen=True)
class OffsetPlan:
    """Where each buffer lies, how high the arena is, and that no arena can be lower than `max_live`."""

    offsets: list[int]
    height: int
    max_live: int


def make_plan(
    lower: Sequence[int],
    upper: Sequence[int],
    size: Sequence[int],
    alignment: int = 1,
    seconds: float = 10,
    seed: int = 0,
    engine: Engine = "search",
) -> OffsetPlan:
    """Offsets such that two buffers alive together never overlap; `seed` makes the search repeatable as far as time allows.

    The engine cpsat asks Google's CP-SAT for what the quick orders leave open, first whether the bound can be reached.
    """
    if engine == "cpsat":
        find_solver()
    problem = placement_problem(lower, upper, size, alignment)
    deadline = time.monotonic() + seconds
    offsets = np.zeros(len(problem), dtype=np.int64)
    matters = np.flatnonzero((problem.size > 0) & (problem.upper > problem.lower))
    placed = problem.part(matters)
    if len(matters):
        offsets[matters] = _stacked(placed, deadline, seed, engine)
    return OffsetPlan(offsets.tolist(), placed.height(offsets[matters]), placed.max_live)


def _stacked(problem: Problem, deadline: float, seed: int, engine: Engine) -> Numbers:
    """Buffers that live together with all others go to the bottom, where they cost nothing; the rest lies above them."""
    first_end, last_start = problem.upper.min(), problem.lower.max()
    always = (problem.lower < first_end) & (problem.upper > last_start)
    offsets = np.zeros(len(problem), dtype=np.int64)
    bottom = np.flatnonzero(always)
    offsets[bottom] = np.cumsum(problem.size[bottom]) - problem.size[bottom]
    rest = np.flatnonzero(~always)
    if len(rest):
        part = problem.part(rest)
        offsets[rest] = _lowest(part, deadline, seed, engine) + problem.size[bottom].sum()
    return offsets


def _lowest(problem: Problem, deadline: float, seed: int, engine: Engine) -> Numbers:
    """Offsets for each stretch of time apart; a stretch need not be lower than the highest load of all of them."""
    offsets = np.zeros(len(problem), dtype=np.int64)
    groups = apart(problem)
    jobs = [_Job(problem.part(group), problem.max_live, seed) for group in groups]
    for job in jobs:
        job.quick(deadline)
    # What is highest decides, so that is always where to go on.
    while (highest := max(jobs, key=lambda job: job.height)).can_improve(deadline):
        if engine == "cpsat":
            highest.ask(deadline)
        else:
            highest.attempt()
    for group, job in zip(groups, jobs, strict=True):
        offsets[group] = job.offsets
    return offsets


@dataclass
class _Job:
    """The best offsets known for one stretch of time."""

    problem: Problem
    goal: int
    """A height that no placement can improve on."""
    seed: int
    offsets: Numbers = field(init=False)
    height: int = field(init=False, default=-1)
    pace: float = field(init=False, default=0.0)
    """Seconds that placing all buffers takes."""
    _asked: int = field(init=False, default=0)
    _best_order: tuple[Numbers, bool] = field(init=False)

    def quick(self, deadline: float) -> None:
        """Place in several orders and keep the best; the first one always runs."""
        preferences = Preferences(self.problem)
        for tightest, word in product((True, False), _QUICK_ORDERS):
            began = time.monotonic()
            order = preferences.order(word)
            if self._keep(place_in_order(self.problem, order, tightest=tightest)):
                self._best_order = order, tightest
            self.pace = max(self.pace, time.monotonic() - began)
            if self.height <= self.goal or not self._has_time(deadline):
                return

    def can_improve(self, deadline: float) -> bool:
        """Whether a search may still find something lower."""
        if self.height <= self.goal or not self._has_time(deadline):
            return False
        return len(self.problem) > _MOST_SEARCHED or not self._targets.closed

    def attempt(self) -> None:
        """Search once below the best known height."""
        if len(self.problem) > _MOST_SEARCHED:
            self._keep(self._promotion.next())
            return
        order, steps = next(self._attempts)
        target = self._targets.next(steps)
        try:
            found = CanonicalSearch(self._floors, target, order, steps).run()
        except OutOfSteps:
            self._targets.missed(target, steps)
            return
        if found is None:
            self._targets.impossible(target)
        else:
            self._keep(found)
            self._targets.reached(self.height)

    def ask(self, deadline: float) -> None:
        """Let the solver look for what is as low as can be, and for something in between where that takes too long."""
        target = self._targets.goal if self._asked == 0 else self._targets.goal + (self.height - self._targets.goal) // 2
        left = deadline - time.monotonic()
        self._asked += 1
        try:
            found = place_below(self.problem, target, self.offsets, left * _ASKED_SHARE, self.seed)
        except Impossible:
            self._targets.impossible(target)
            return
        if found is not None:
            self._keep(found)
            self._targets.reached(self.height)

    @cached_property
    def _floors(self) -> Floors:
        return Floors(self.problem)

    @cached_property
    def _targets(self) -> _Targets:
        return _Targets(self.goal, self.height)

    @cached_property
    def _attempts(self) -> Iterator[tuple[Numbers, int]]:
        return _attempts(Preferences(self.problem), self.seed)

    @cached_property
    def _promotion(self) -> Promotion:
        order, tightest = self._best_order
        return Promotion(self.problem, order, self.offsets, self.seed, tightest=tightest)

    def _has_time(self, deadline: float) -> bool:
        needed = self.pace if len(self.problem) > _MOST_SEARCHED else 0.0
        return time.monotonic() + needed < deadline

    def _keep(self, offsets: Numbers) -> bool:
        """Take over offsets that are lower than those known."""
        height = self.problem.height(offsets)
        if 0 <= self.height <= height:
            return False
        self.offsets, self.height = offsets, height
        return True


class _Targets:
    """Which height to try next: the goal and, as often, one between it and what is reached, so that something gets better anyway."""

    def __init__(self, goal: int, best: int) -> None:
        self.goal = goal
        self._best = best
        self._share = _FIRST_SHARE
        """Of what separates the best from the goal, the share that is asked for."""
        self._misses = 0
        self._spent = {True: 0, False: 0}
        """Steps spent on the goal, and on heights in between."""

    @property
    def closed(self) -> bool:
        """Nothing lower is left to try."""
        return self._best <= self.goal

    def next(self, steps: int) -> int:
        """A height to try in so many steps; long searches are kept for the goal."""
        if steps >= _FIRST_STEPS:
            return self.goal
        between = self._best - max(1, int((self._best - self.goal) * self._share))
        return max(self.goal, between) if self._spent[False] <= self._spent[True] else self.goal

    def missed(self, target: int, steps: int) -> None:
        """Steps ran out before a height was reached."""
        self._spent[target == self.goal] += steps
        if target > self.goal:
            self._misses += steps
            if self._misses >= _PATIENCE:
                # Too much to ask; after the smallest share it may well have been bad luck.
                self._share = self._share / 2 if self._share > _LEAST_SHARE else _FIRST_SHARE
                self._misses = 0

    def reached(self, height: int) -> None:
        """A lower placement was found."""
        self._best = min(self._best, height)
        self._misses = 0

    def impossible(self, target: int) -> None:
        """There is no placement at or below this height."""
        self.goal = max(self.goal, target + 1)


def _attempts(preferences: Preferences, seed: int) -> Iterator[tuple[Numbers, int]]:
    """Orders, each with the steps it may take: known good ones for long, then disturbed ones, mostly for a short while.

    How long a search takes varies without bound from order to order, so many short
    ones with now and then a longer one win (Luby's sequence).
    """
    random = np.random.default_rng(seed)
    for word in _SEARCH_ORDERS:
        yield preferences.order(word), _RESTART_STEPS
    for word in _SEARCH_ORDERS:
        yield preferences.order(word), _FIRST_STEPS
    attempt = 0
    while True:
        attempt += 1
        for word in _SEARCH_ORDERS:
            noise = _MOST_NOISE * random.random()
            yield preferences.disturbed(word, noise, random), _RESTART_STEPS * _luby(attempt)


def _luby(position: int) -> int:
    """1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ..., counted from 1."""
    while True:
        length = position.bit_length()
        if position == (1 << length) - 1:
            return 1 << (length - 1)
        position -= (1 << (length - 1)) - 1


# ----------------------------------------------------------------------------------------------------
# What other planners would do with the same buffers, and whether a plan holds.

T = TypeVar("T")


def while_running(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], alignment: int) -> int:
    """Arena bytes where each buffer gets the tightest gap open at its birth, as ONNX Runtime does when it traces its first run."""
    problem = placement_problem(lower, upper, size, alignment)
    used: list[tuple[int, int, int]] = []
    height = 0
    order = sorted(range(len(size)), key=lambda buffer: lower[buffer])
    sizes = problem.size.tolist()
    for buffer in order:
        if not sizes[buffer] or upper[buffer] == lower[buffer]:
            continue
        used = [one for one in used if one[2] > lower[buffer]]
        offset = _tightest(used, sizes[buffer])
        used.append((offset, offset + sizes[buffer], upper[buffer]))
        used.sort()
        height = max(height, offset + sizes[buffer])
    return height


def _tightest(used: list[tuple[int, int, int]], size: int) -> int:
    floor, best, best_room = 0, -1, 0
    for bottom, top, _ in used:
        room = bottom - floor
        if room >= size and (best < 0 or room < best_room):
            best, best_room = floor, room
        floor = max(floor, top)
    return best if best >= 0 else floor


def greedy_by_size(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], alignment: int) -> int:
    """Arena bytes where the largest buffers come first and each gets the tightest gap, as TensorFlow Lite plans."""
    problem = placement_problem(lower, upper, size, alignment)
    matters = np.flatnonzero((problem.size > 0) & (problem.upper > problem.lower))
    part = problem.part(matters)
    order = np.lexsort((part.lower, -part.size))
    return part.height(place_in_order(part, order, tightest=True))


def held_by_arena(lower: Sequence[int], upper: Sequence[int], size: Sequence[int]) -> int:
    """Bytes that ONNX Runtime's arena takes from the device where each buffer is asked for when it is made."""
    arena = BfcArena()
    for alive in _replay(lower, upper, size, arena.malloc):
        arena.free(alive)
    return arena.counters().held_peak


def reserved_by_torch(lower: Sequence[int], upper: Sequence[int], size: Sequence[int]) -> int:
    """Bytes that PyTorch's CUDA allocator reserves where each buffer is asked for when it is made."""
    allocator = CachingAllocator(total_memory=BOUNDLESS)
    for block in _replay(lower, upper, size, allocator.malloc):
        allocator.free(block)
    return allocator.counters().reserved_peak


def _replay(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], take: Callable[[int], T]) -> Iterator[T]:
    """Ask for buffers in the order of their starts; yields what is to be let go of, before what starts at its end is asked for."""
    alive: list[tuple[int, int]] = []
    taken: dict[int, T] = {}
    for buffer in sorted(range(len(size)), key=lambda one: lower[one]):
        if not size[buffer] or upper[buffer] == lower[buffer]:
            continue
        while alive and alive[0][0] <= lower[buffer]:
            yield taken.pop(heapq.heappop(alive)[1])
        taken[buffer] = take(size[buffer])
        heapq.heappush(alive, (upper[buffer], buffer))


def overlap(lower: Sequence[int], upper: Sequence[int], size: Sequence[int], offsets: Sequence[int]) -> tuple[int, int] | None:
    """Two buffers that are alive together and share a byte; None where there are none."""
    # A sweep over offsets per moment would do more work: at each birth only those alive can be in the way.
    alive: list[int] = []
    for buffer in sorted(range(len(size)), key=lambda one: lower[one]):
        if not size[buffer] or upper[buffer] == lower[buffer]:
            continue
        alive = [one for one in alive if upper[one] > lower[buffer]]
        start, end = offsets[buffer], offsets[buffer] + size[buffer]
        for one in alive:
            if offsets[one] < end and start < offsets[one] + size[one]:
                return one, buffer
        alive.append(buffer)
    return None
