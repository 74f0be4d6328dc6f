"""The best order that is found in a given time, and a lower bound for every order."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from irscope.memory.ordering.cut import Cut
from irscope.memory.ordering.job import Job
from irscope.memory.ordering.latency import LatencyLimit
from irscope.memory.ordering.layout import Layout
from irscope.memory.ordering.portfolio import simple_orders
from irscope.memory.ordering.problem import OrderProblem


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
        """Whether the order is proven optimal."""
        return self.peak <= self.bound


def best_order(
    problem: OrderProblem,
    seconds: float = 10,
    seed: int = 0,
    limit: LatencyLimit | None = None,
    watch: Callable[[str], None] | None = None,
) -> Ordering:
    """Search until the best order is proven best or time is up; never worse than the order as written.

    `watch` is called now and then with what is being done, and may raise to end the search.
    """
    return _Solver(problem, seconds, seed, limit, watch).solve()


class _Solver:
    def __init__(
        self, problem: OrderProblem, seconds: float, seed: int, limit: LatencyLimit | None, watch: Callable[[str], None] | None
    ) -> None:
        self.problem = problem
        self.deadline = time.monotonic() + seconds
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
            if -height <= bound or not job.work(bound, self.deadline):
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
        return time.monotonic() > self.deadline

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
    last_needed = [max((place[one] for one in problem.before[op]), default=-1) for op in order]
    first_used = [min((place[one] for one in problem.after[op]), default=count) for op in order]
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
