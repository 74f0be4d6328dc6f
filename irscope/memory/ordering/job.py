"""The search for the best order of one part of a problem: simple orders, bounds by minimum cuts, beam, exact and local search."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property

from irscope.memory.ordering.beam import beam
from irscope.memory.ordering.cut import Cut, least_while_running
from irscope.memory.ordering.exact import ExactSearch
from irscope.memory.ordering.layout import Layout
from irscope.memory.ordering.portfolio import simple_orders
from irscope.memory.ordering.problem import OrderProblem
from irscope.memory.ordering.resequence import search_windows, split_at_peaks

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
        self._deadline = 0.0
        self._floor = 0
        self._steps = self._search()

    @cached_property
    def part(self) -> OrderProblem:
        """The stretch as a problem of its own."""
        return self._layout.window(self.begin, self._end)

    def work(self, floor: int, deadline: float) -> bool:
        """Do the next step; False when there is none. What is below the floor makes no difference to the whole."""
        self._floor, self._deadline = floor, deadline
        return next(self._steps, False)

    def _search(self) -> Iterator[bool]:
        part = self.part
        self.bound = part.least
        yield True
        for name, order in simple_orders(part):
            self._offer(order, name)
        yield True
        yield from self._prove()
        if len(part) <= _BEAM_LIMIT:
            self._offer(beam(part, _BEAM_WIDTH), "beam")
            self._offer(part.reversed_order(beam(part.reverse, _BEAM_WIDTH)), "beam, backwards")
            yield True
        search = None
        if len(part) <= _EXACT_LIMIT:
            search = ExactSearch(part, self.order, max(self.bound, self._floor))
            yield self._exact(search, _EXACT_SHARE)
        share = 1.0 if search is None else _SHARE
        cuts: list[Cut] = []
        self._offer(split_at_peaks(part, self.order, self._stop(share), cuts), "minimum cuts")
        self._learn(cuts)
        yield True
        self._offer(search_windows(part, self.order, self._stop(share), self._seed, max(self.bound, self._floor)), "windows")
        yield True
        while search is not None and not search.gave_up:
            search.offer(self.order)
            yield self._exact(search, 1.0)

    def _prove(self) -> Iterator[bool]:
        part = self.part
        needs = part.needs(self.order)
        places = sorted(range(len(needs)), key=lambda at: -needs[at])[:_CUTS]
        alone = [room + sum(part.storages[number].size for number in part.touched[op]) for op, room in enumerate(part.workspace)]
        widest = sorted(range(len(part)), key=lambda op: -alone[op])[:_CUTS]
        for op in dict.fromkeys([*(self.order[at] for at in places), *widest]):
            self._learn([least_while_running(part, op)])
            yield True

    def _exact(self, search: ExactSearch, share: float) -> bool:
        search.run(self._stop(share))
        self._offer(search.order, "exact search")
        if search.bound > max(self.bound, self._floor):
            self.bound = search.bound
        return True

    def _stop(self, share: float) -> _Deadline:
        now = time.monotonic()
        return _Deadline(now + (self._deadline - now) * share)

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


class _Deadline:
    """Whether a moment has passed."""

    def __init__(self, moment: float) -> None:
        self._moment = moment

    def __call__(self) -> bool:
        return time.monotonic() > self._moment
