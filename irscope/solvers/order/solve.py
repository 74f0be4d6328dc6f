"""The best order that is found in a given time: list scheduling heuristics, limits of the latency, and a search with a lower bound."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from irscope.solvers.graphs import in_order
from irscope.solvers.order.bounds import Attempt, Cut, ExactSearch, least_while_running
from irscope.solvers.order.problem import OrderProblem, Storage
from irscope.solvers.worktime import WorkTime

_SCANNED = 256
"""Operators looked at when the one that needs least is chosen; the ones that have been ready for longest come first."""


def least_memory(problem: OrderProblem) -> list[int]:
    """List scheduling: among ready operators, below the peak so far the one that frees most, else the one that takes least (LPMF)."""
    waiting = [len(earlier) for earlier in problem.before]
    touches = [len(storage.touches) for storage in problem.storages]
    begun = [storage.is_input for storage in problem.storages]
    live = highest = problem.at_start
    ready = [op for op, count in enumerate(waiting) if count == 0]
    order: list[int] = []

    def change(op: int) -> tuple[int, int]:
        taken, freed = problem.workspace[op], problem.workspace[op]
        for number in problem.touched[op]:
            storage = problem.storages[number]
            taken += 0 if begun[number] else storage.size
            freed += storage.size if touches[number] == 1 and not storage.is_output else 0
        return taken, taken - freed

    while ready:
        room = highest - live
        best, at, net = (1, 0, 0), 0, 0
        for place, op in enumerate(ready[:_SCANNED]):
            taken, after = change(op)
            key = (0, after, op) if taken <= room else (1, taken, op)
            if place == 0 or key < best:
                best, at, net = key, place, after
                highest_here = live + taken
        op = ready.pop(at)
        highest = max(highest, highest_here)
        for number in problem.touched[op]:
            begun[number] = True
            touches[number] -= 1
        live += net
        order.append(op)
        for later in problem.after[op]:
            waiting[later] -= 1
            if waiting[later] == 0:
                ready.append(later)
    return order


def breadth_first(problem: OrderProblem) -> list[int]:
    """Breadth first: operators run in the order in which they become ready."""
    return in_order(problem.before, problem.after)


def depth_first(problem: OrderProblem) -> list[int]:
    """Return each operator right before the first that needs it; what touches most bytes is prepared first."""
    weight = [sum(problem.storages[number].size for number in touched) for touched in problem.touched]
    return _postorder(problem, lambda op: (-weight[op], op))


def by_need(problem: OrderProblem) -> list[int]:
    """Return the same, but what needs most memory while it is prepared comes first (Sethi and Ullman's rule for trees)."""
    made = [0] * len(problem)
    for storage in problem.storages:
        if not storage.is_input:
            made[storage.touches[0]] += storage.size
    need = [0] * len(problem)
    for op, earlier in enumerate(problem.before):
        held = 0
        for predecessor in sorted(earlier, key=lambda predecessor: made[predecessor] - need[predecessor]):
            need[op] = max(need[op], held + need[predecessor])
            held += made[predecessor]
        need[op] = max(need[op], held + made[op] + problem.workspace[op])
    return _postorder(problem, lambda op: (made[op] - need[op], op))


def newest_first(problem: OrderProblem) -> list[int]:
    """Depth first: the operator that became ready last runs first."""
    waiting = [len(earlier) for earlier in problem.before]
    clock = 0
    ready = [(0, op) for op, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, op = heapq.heappop(ready)
        order.append(op)
        clock -= 1
        for later in problem.after[op]:
            waiting[later] -= 1
            if waiting[later] == 0:
                heapq.heappush(ready, (clock, later))
    return order


def _postorder(problem: OrderProblem, key: Callable[[int], tuple[int, int]]) -> list[int]:
    done = [False] * len(problem)
    order: list[int] = []
    roots = sorted((op for op, later in enumerate(problem.after) if not later), key=key)
    for root in roots:
        stack: list[tuple[int, Iterator[int]]] = [(root, iter(sorted(problem.before[root], key=key)))]
        done[root] = True
        while stack:
            op, earlier = stack[-1]
            for predecessor in earlier:
                if not done[predecessor]:
                    done[predecessor] = True
                    stack.append((predecessor, iter(sorted(problem.before[predecessor], key=key))))
                    break
            else:
                stack.pop()
                order.append(op)
    return order


SIMPLE_ORDERS: dict[str, Callable[[OrderProblem], list[int]]] = {
    "least memory": least_memory,
    "breadth first": breadth_first,
    "depth first": depth_first,
    "by need": by_need,
    "newest first": newest_first,
}
INDUCTOR_ORDERS = ("as written", "least memory", "breadth first", "depth first")
"""Those among which torch.compile's Inductor chooses."""


def simple_orders(problem: OrderProblem) -> Iterator[tuple[str, list[int]]]:
    """Yield every simple order by name, forwards and on the reversed graph."""
    yield "as written", list(range(len(problem)))
    for name, make in SIMPLE_ORDERS.items():
        yield name, make(problem)
        yield f"{name}, backwards", problem.reversed_order(make(problem.reverse))


# How long an order takes where operators may overlap, and orders that do not take much longer than the one as written.

_BLENDS = 32


@dataclass
class LatencyLimit:
    """A limit on the time that an order takes on a machine that starts operators in that order, each as soon as its operands are there.

    The least time of any order is the critical path. An order that puts a long chain behind other work starts it late.
    """

    problem: OrderProblem
    seconds: Sequence[float]
    """Seconds that each operator runs."""
    share: float
    """By how much the time of the order as written may grow."""
    as_written: float = field(init=False)
    most: float = field(init=False)

    def __post_init__(self) -> None:
        self.as_written = self.length(range(len(self.problem)))
        # A little room for sums in another order.
        self.most = self.as_written * (1 + self.share) * (1 + 1e-9)

    def length(self, order: Sequence[int]) -> float:
        """Return the time until the last operator has finished."""
        start = 0.0
        finished = [0.0] * len(order)
        for op in order:
            for earlier in self.problem.before[op]:
                start = max(start, finished[earlier])
            finished[op] = start + self.seconds[op]
        return max(finished, default=0.0)

    @property
    def critical_path(self) -> float:
        """Return the least time of any order."""
        return self.length(self.earliest())

    def allows(self, order: Sequence[int]) -> bool:
        return self.length(order) <= self.most

    def earliest(self) -> list[int]:
        """Return operators by the time at which they could start at the earliest: no order takes less time."""
        starts = [0.0] * len(self.problem)
        depth = [0] * len(self.problem)
        for op, before in enumerate(self.problem.before):
            for earlier in before:
                starts[op] = max(starts[op], starts[earlier] + self.seconds[earlier])
                depth[op] = max(depth[op], depth[earlier] + 1)
        # Where operators take no time, depth keeps one after the other.
        return sorted(range(len(starts)), key=lambda op: (starts[op], depth[op], op))

    def closest(self, order: Sequence[int]) -> list[int]:
        """Return what of an order the limit allows: mixed with the quick orders as far as that is needed, whichever needs least memory.

        Operators sorted by a mean of their places in two valid orders are in a valid order.
        """
        written = list(range(len(order)))
        best = written
        place = _places(order)
        for quick in (written, self.earliest()):
            other = _places(quick)
            for part in range(_BLENDS + 1):
                found = sorted(written, key=lambda op: ((_BLENDS - part) * place[op] + part * other[op], other[op]))
                if self.allows(found) and self.problem.peak(found) < self.problem.peak(best):
                    best = found
        return best


def _places(order: Sequence[int]) -> list[int]:
    places = [0] * len(order)
    for at, op in enumerate(order):
        places[op] = at
    return places


# The best order that is found in a given time, and a lower bound for every order.

# Beam search over sets of operators that have run: of all sets of one size, only the most promising are expanded.


class _Way(NamedTuple):
    """Way in which a set of operators was reached; ways are compared by the memory that they needed."""

    peak: int
    live: int
    ready: int
    op: int
    earlier: _Way | None


def beam(problem: OrderProblem, width: int) -> list[int]:
    """Return a good order by beam search; a wider beam is better and slower."""
    search = Attempt(problem, 0)
    ready = sum(1 << op for op, earlier in enumerate(problem.before) if not earlier)
    front: dict[int, _Way] = {0: _Way(problem.at_start, problem.at_start, ready, -1, None)}
    for _ in range(len(problem)):
        following: dict[int, _Way] = {}
        for done, way in front.items():
            for op, needed, live, opened in search.moves(done, way.live, way.ready):
                known = following.get(done | 1 << op)
                peak = max(way.peak, needed)
                if known is None or (peak, live) < (known.peak, known.live):
                    following[done | 1 << op] = _Way(peak, live, opened, op, way)
        best = sorted(following.items(), key=lambda item: (item[1].peak, item[1].live))[:width]
        front = dict(best)
    (last,) = list(front.values())[:1]
    return _order(last)


def _order(last: _Way) -> list[int]:
    order: list[int] = []
    way: _Way | None = last
    while way is not None and way.earlier is not None:
        order.append(way.op)
        way = way.earlier
    return order[::-1]


# An order with the bytes alive along it, so that windows of it can be evaluated and changed in time proportional to the window.


class Layout:
    """An order, the place of each operator, and bytes alive at each place."""

    def __init__(self, problem: OrderProblem, order: Sequence[int]) -> None:
        self.problem = problem
        self.order = list(order)
        self.needs, self.standing = problem.levels(order)
        self._place = [0] * len(self.order)
        for at, op in enumerate(self.order):
            self._place[op] = at

    @property
    def peak(self) -> int:
        return max(self.problem.at_start, self.problem.at_end, max(self.needs, default=0))

    def window(self, begin: int, end: int) -> OrderProblem:
        """Return the operators of a stretch, numbered by place, with all others where they are."""
        problem, place = self.problem, self._place
        ops = self.order[begin:end]
        before = [tuple(place[earlier] - begin for earlier in problem.before[op] if begin <= place[earlier] < end) for op in ops]
        storages: list[Storage] = []
        base = self.standing[begin] if begin < end else 0
        for number in dict.fromkeys(number for op in ops for number in problem.touched[op]):
            storage = problem.storages[number]
            places = [place[op] for op in storage.touches]
            came = storage.is_input or min(places) < begin
            stays = storage.is_output or max(places) >= end
            storages.append(Storage(storage.size, tuple(sorted(at - begin for at in places if begin <= at < end)), came, stays))
            base -= storage.size if came else 0
        return OrderProblem(before, storages, [problem.workspace[op] for op in ops], base)

    def put(self, begin: int, part: OrderProblem, order: Sequence[int]) -> None:
        """Give the stretch from `begin`, whose window `part` is, another order."""
        stretch = self.order[begin : begin + len(order)]
        needs, standing = part.levels(order)
        for at, (local, need, alive) in enumerate(zip(order, needs, standing, strict=True), begin):
            self.order[at] = stretch[local]
            self._place[stretch[local]] = at
            self.needs[at], self.standing[at] = need, alive


# The best order that is found in a given time, and a lower bound for every order.

# Local search for orders of large graphs: moves found by minimum cuts, then exact search of small windows.

Stop = Callable[[], bool]

_SHORTEST, _LONGEST = 24, 96
_PATIENCE = 60


def around_cut(order: Sequence[int], cut: Cut) -> list[int]:
    """Return an order in which exactly the cut's operators run before its operator; otherwise as it was."""
    rest = [op for op in order if op not in cut.done and op != cut.op]
    return [*(op for op in order if op in cut.done), cut.op, *rest]


def split_at_peaks(problem: OrderProblem, order: Sequence[int], stop: Stop, cuts: list[Cut]) -> list[int]:
    """Move everything to its side of the cut at the peak, as long as that lowers the peak, and go on with both sides.

    The cuts found on the whole problem are added to `cuts`: each is a bound for any order.
    """
    best = list(order)
    peak = problem.peak(best)
    tried: set[int] = set()
    while not stop():
        needs = problem.needs(best)
        at = max(range(len(needs)), key=needs.__getitem__)
        op = best[at]
        if needs[at] < peak or op in tried:
            break
        tried.add(op)
        cut = least_while_running(problem, op)
        cuts.append(cut)
        if cut.bytes >= peak:
            break
        layout = Layout(problem, around_cut(best, cut))
        place = len(cut.done)
        _improve(layout, 0, place, peak, stop)
        _improve(layout, place + 1, len(best), peak, stop)
        if layout.peak >= peak:
            break
        best, peak = layout.order, layout.peak
    return best


def _improve(layout: Layout, begin: int, end: int, goal: int, stop: Stop) -> None:
    """Lower what lies at or above the goal within a stretch, by cuts within it."""
    waiting = [(begin, end)]
    while waiting and not stop():
        begin, end = waiting.pop()
        if end - begin < 2:
            continue
        at = max(range(begin, end), key=layout.needs.__getitem__)
        if layout.needs[at] < goal:
            continue
        part = layout.window(begin, end)
        cut = least_while_running(part, at - begin)
        if cut.bytes >= layout.needs[at]:
            continue
        layout.put(begin, part, around_cut(range(end - begin), cut))
        place = begin + len(cut.done)
        waiting += [(begin, place), (place + 1, end)]


def search_windows(problem: OrderProblem, order: Sequence[int], stop: Stop, seed: int, goal: int) -> list[int]:
    """Solve short stretches around the peak again and again, until the goal is reached or told to stop."""
    chance = random.Random(seed)
    layout = Layout(problem, order)
    length, failures = _SHORTEST, 0
    while layout.peak > goal and not stop() and failures < _PATIENCE:
        top = max(layout.needs)
        at = chance.choice([at for at, need in enumerate(layout.needs) if need == top])
        begin = max(0, at - chance.randrange(length))
        end = min(len(layout.order), begin + length)
        part = layout.window(begin, end)
        found = _best_within(part)
        if sorted(part.needs(found), reverse=True) < sorted(layout.needs[begin:end], reverse=True):
            layout.put(begin, part, found)
            failures = 0
        else:
            failures += 1
            length = min(_LONGEST, length + 2)
    return layout.order


def _best_within(part: OrderProblem) -> list[int]:
    backwards = part.reversed_order(beam(part.reverse, 24))
    forwards = beam(part, 24)
    best = min((list(range(len(part))), forwards, backwards), key=part.peak)
    for direction in (part, part.reverse):
        attempt = Attempt(direction, part.peak(best) - 1)
        attempt.run(400)
        if attempt.order is not None:
            return attempt.order if direction is part else part.reversed_order(attempt.order)
    return best


# The search for the best order of one part of a problem: simple orders, bounds by minimum cuts, beam, exact and local search.

_CUTS = 3
"""Cuts at the highest places, and at the operators that touch most."""
_BEAM_LIMIT = 1_000
_BEAM_WIDTH = 64
_EXACT_LIMIT = 1_500
"""Operators up to which a part is searched exactly: sets of operators are bit masks of that length."""
_EXACT_SHARE, _SHARE = 0.5, 0.2
"""Of the time that is left, for one step of a search that could go on."""


class Job:
    """The operators between two that are comparable with all others in the partial order: they can be ordered on their own."""

    def __init__(self, layout: Layout, begin: int, end: int, seed: int) -> None:
        self.begin = begin
        self._layout = layout
        self._end = end
        self._seed = seed
        self.peak = max(layout.needs[begin:end], default=0)
        self.order: list[int] = list(range(end - begin))
        self.bound = 0
        self.method = "as written"
        self.has_new_order = False
        self.witness: Cut | None = None
        """The highest cut of the whole that was found; a search may have proven more than it does."""
        self._clock = WorkTime(0)
        self._floor = 0
        self._steps = self._search()

    @cached_property
    def part(self) -> OrderProblem:
        """Return the stretch as a problem of its own."""
        return self._layout.window(self.begin, self._end)

    def work(self, floor: int, clock: WorkTime) -> bool:
        """Do the next step; False when there is none. What is below the floor makes no difference to the whole."""
        self._floor, self._clock = floor, clock
        return next(self._steps, False)

    def _search(self) -> Iterator[bool]:
        part = self.part
        self.bound = part.least
        yield True
        for name, order in simple_orders(part):
            self._offer(order, name)
        yield True
        yield from self._prove()
        search = None
        if len(part) <= _EXACT_LIMIT:
            search = ExactSearch(part, self.order, max(self.bound, self._floor))
            yield self._exact(search, search.run_while_easy, _SHARE)
        if len(part) <= _BEAM_LIMIT:
            self._offer(beam(part, _BEAM_WIDTH), "beam")
            yield True
            self._offer(part.reversed_order(beam(part.reverse, _BEAM_WIDTH)), "beam, backwards")
            yield True
        if search is not None:
            yield self._exact(search, search.run, _EXACT_SHARE)
        share = 1.0 if search is None else _SHARE
        cuts: list[Cut] = []
        self._offer(split_at_peaks(part, self.order, self._stop(share), cuts), "minimum cuts")
        self._learn(cuts)
        yield True
        self._offer(search_windows(part, self.order, self._stop(share), self._seed, max(self.bound, self._floor)), "windows")
        yield True
        while search is not None and not search.gave_up:
            yield self._exact(search, search.run, 1.0)

    def _prove(self) -> Iterator[bool]:
        part = self.part
        needs = part.needs(self.order)
        places = sorted(range(len(needs)), key=lambda at: -needs[at])[:_CUTS]
        alone = [room + sum(part.storages[number].size for number in part.touched[op]) for op, room in enumerate(part.workspace)]
        widest = sorted(range(len(part)), key=lambda op: -alone[op])[:_CUTS]
        for op in dict.fromkeys([*(self.order[at] for at in places), *widest]):
            self._learn([least_while_running(part, op)])
            yield True

    def _exact(self, search: ExactSearch, run: Callable[[Stop], None], share: float) -> bool:
        search.offer(self.order, max(self.bound, self._floor))
        run(self._stop(share))
        self._offer(search.order, "exact search")
        if search.bound > max(self.bound, self._floor):
            self.bound = search.bound
        return True

    def _stop(self, share: float) -> Stop:
        return self._clock.part(share).over

    def _offer(self, order: Sequence[int], method: str) -> None:
        peak = max(self.part.needs(order), default=0)
        if peak < self.peak:
            self.order, self.peak, self.method, self.has_new_order = list(order), peak, method, True

    def _learn(self, cuts: list[Cut]) -> None:
        """Take a higher bound from cuts of this stretch; everything before it has run in every order."""
        for cut in cuts:
            self.bound = max(self.bound, cut.bytes)
            if self.witness is None or cut.bytes > self.witness.bytes:
                ops = self._layout.order
                done = frozenset([*ops[: self.begin], *(ops[self.begin + one] for one in cut.done)])
                self.witness = Cut(ops[self.begin + cut.op], cut.bytes, done)


# The best order that is found in a given time, and a lower bound for every order.


@dataclass
class Ordering:
    """An order, its peak, and the best known lower bound."""

    order: list[int]
    peak: int
    bound: int
    as_written: int
    method: str = "as written"
    baselines: dict[str, int] = field(default_factory=dict)
    """Peaks of the simple orders."""
    witness: Cut | None = None
    """The highest cut that was found; where it is lower than the bound, a search has proven more."""

    @property
    def proven(self) -> bool:
        """Return whether the order is proven optimal."""
        return self.peak <= self.bound


def best_order(
    problem: OrderProblem, seconds: float = 10, seed: int = 0, limit: LatencyLimit | None = None, watch: Callable[[str], None] | None = None
) -> Ordering:
    """Search until the best order is proven best or so many CPU seconds of this thread are used; never worse than the order as written.

    `watch` is called now and then with what is being done, and may raise to end the search.
    """
    return _Solver(problem, seconds, seed, limit, watch).solve()


class _Solver:
    def __init__(
        self, problem: OrderProblem, seconds: float, seed: int, limit: LatencyLimit | None, watch: Callable[[str], None] | None
    ) -> None:
        self.problem = problem
        self.clock = WorkTime(seconds)
        self.seed = seed
        self.limit = limit
        self.watch = watch
        order = list(range(len(problem)))
        peak = problem.peak(order)
        self.best = Ordering(order, peak, problem.least, peak)

    def solve(self) -> Ordering:
        for name, order in simple_orders(self.problem):
            self.best.baselines[name] = self._offer(order, name)
            self._tell("simple orders")
            if self._finished():
                return self.best
        self._by_stretches()
        return self.best

    def _by_stretches(self) -> None:
        """Work on the stretch that is highest: what is lower than another one's bound need not be looked at."""
        layout = Layout(self.problem, self.best.order)
        jobs = [Job(layout, begin, end, self.seed) for begin, end in waists(self.problem, layout.order)]
        heap = [(-job.peak, at) for at, job in enumerate(jobs)]
        heapq.heapify(heap)
        bound = self.best.bound
        while heap and not self._late():
            height, at = heap[0]
            job = jobs[at]
            if -height <= bound or not job.work(bound, self.clock):
                break
            bound = max(bound, job.bound)
            self._tell(job.method)
            heapq.heapreplace(heap, (-job.peak, at))
        worked = [job for job in jobs if job.has_new_order]
        for job in worked:
            layout.put(job.begin, job.part, job.order)
        if worked:
            self._offer(layout.order, max(worked, key=lambda job: job.peak).method)
        self.best.bound = bound
        self.best.witness = max((job.witness for job in jobs if job.witness is not None), key=lambda cut: cut.bytes, default=None)

    def _tell(self, what: str) -> None:
        if self.watch is not None:
            self.watch(what)

    def _finished(self) -> bool:
        return self.best.proven or self._late()

    def _late(self) -> bool:
        return self.clock.over()

    def _offer(self, order: list[int], method: str) -> int:
        peak = self.problem.peak(order)
        if peak < self.best.peak and self.limit is not None and not self.limit.allows(order):
            order = self.limit.closest(order)
            peak = self.problem.peak(order)
        if peak < self.best.peak:
            self.best.order, self.best.peak, self.best.method = order, peak, method
        return peak


def waists(problem: OrderProblem, order: list[int]) -> list[tuple[int, int]]:
    """Stretches of an order between operators that come after everything before them and before everything after."""
    count = len(order)
    place = {op: at for at, op in enumerate(order)}
    last_needed = [max((place[earlier] for earlier in problem.before[op]), default=-1) for op in order]
    first_used = [min((place[later] for later in problem.after[op]), default=count) for op in order]
    from_here = count
    depends = [False] * count
    for at in range(count - 1, -1, -1):
        # Everything later has something at or after this place before it.
        depends[at] = from_here >= at
        from_here = min(from_here, last_needed[at])
    until_here = -1
    found: list[tuple[int, int]] = []
    begin = 0
    for at in range(count):
        if depends[at] and until_here <= at:
            found += [(begin, at), (at, at + 1)]
            begin = at + 1
        until_here = max(until_here, first_used[at])
    found.append((begin, count))
    return [(begin, end) for begin, end in found if end > begin]
