"""The best order of a small problem, by a search through which operators have run."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from irscope.memory.ordering.problem import OrderProblem

_FIRST_PATIENCE = 4_000
_MOST_PATIENCE = 1_000_000
"""States looked at in one attempt."""
_STATES_A_TURN = 250
_FAVOURED = 8


@dataclass(slots=True)
class _State:
    """A set of operators that have run, with the way there."""

    done: int
    live: int
    ready: int
    way: tuple[_State | None, list[int]]
    """The state before, and the operators run since."""

    def order(self) -> list[int]:
        """All operators run, in order."""
        parts: list[list[int]] = []
        state: _State | None = self
        while state is not None:
            parts.append(state.way[1])
            state = state.way[0]
        return [op for part in reversed(parts) for op in part]


class Attempt:
    """Asks for an order that needs no more than a limit.

    An operator that frees at least what it takes and stays within the limit runs at once: because memory is submodular,
    nothing that comes later is worse for it.
    """

    def __init__(self, problem: OrderProblem, limit: int) -> None:
        self.limit = limit
        self.order: list[int] | None = None
        """An order within the limit, once found."""
        self.least_beyond = 0
        """What the next higher limit has to be to make a difference; 0 where nothing was too much."""
        self._workspace = problem.workspace
        masks = [sum(1 << op for op in storage.touches) for storage in problem.storages]
        self._touched = [
            [
                (masks[number], 0 if storage.is_input else storage.size, 0 if storage.is_output else storage.size)
                for number in numbers
                for storage in (problem.storages[number],)
            ]
            for numbers in problem.touched
        ]
        self._later = [[(later, sum(1 << one for one in problem.before[later])) for later in after] for after in problem.after]
        self._all = (1 << len(problem)) - 1
        self._seen: set[int] = set()
        self._open: list[tuple[int, int, int, _State]] = []
        ready = sum(1 << op for op, earlier in enumerate(problem.before) if not earlier)
        self._put(_State(0, problem.at_start, ready, (None, [])))

    @property
    def is_over(self) -> bool:
        """Whether there is an order, or none is left to try."""
        return self.order is not None or not self._open

    def run(self, states: int) -> int:
        """Go on for so many states at most; how many were looked at."""
        looked = 0
        while looked < states and not self.is_over:
            state = heapq.heappop(self._open)[3]
            if state.done == self._all:
                self.order = state.order()
                break
            looked += 1
            for op, needed, live, ready in self.moves(state.done, state.live, state.ready):
                if needed <= self.limit:
                    self._put(_State(state.done | 1 << op, live, ready, (state, [op])))
                elif not self.least_beyond or needed < self.least_beyond:
                    self.least_beyond = needed
        return looked

    def _put(self, state: _State) -> None:
        """Run what can safely run at once, and keep the state unless it is known."""
        if state.done in self._seen:
            return
        self._seen.add(state.done)
        if self._run_safe_moves(state):
            if state.done in self._seen:
                return
            self._seen.add(state.done)
        heapq.heappush(self._open, (-state.done.bit_count(), state.live, len(self._seen), state))

    def _run_safe_moves(self, state: _State) -> bool:
        limit, ran = self.limit, state.way[1]
        known = len(ran)
        waiting = state.ready
        while waiting:
            low = waiting & -waiting
            op = low.bit_length() - 1
            waiting ^= low
            needed, after = self._step(state.done, state.live, op)
            if after <= state.live and needed <= limit:
                state.done |= low
                state.live = after
                state.ready = state.ready ^ low | self._opened(state.done, op)
                ran.append(op)
                # What took more than it freed may free something now.
                waiting = state.ready
        return len(ran) > known

    def moves(self, done: int, live: int, ready: int) -> Iterator[tuple[int, int, int, int]]:
        """What can run next: the operator, bytes alive while it runs and after it, and what is ready then."""
        left = ready
        while left:
            low = left & -left
            left ^= low
            op = low.bit_length() - 1
            needed, after = self._step(done, live, op)
            yield op, needed, after, ready ^ low | self._opened(done | low, op)

    def _opened(self, done: int, op: int) -> int:
        """What has become ready by running an operator."""
        opened = 0
        for later, needs in self._later[op]:
            if needs & ~done == 0:
                opened |= 1 << later
        return opened

    def _step(self, done: int, live: int, op: int) -> tuple[int, int]:
        """Bytes alive while an operator runs, and after it."""
        left = ~(done | 1 << op)
        freed = 0
        for mask, taken, given in self._touched[op]:
            if mask & done == 0:
                live += taken
            if mask & left == 0:
                freed += given
        return live + self._workspace[op], live - freed


class ExactSearch:
    """Attempts from both ends of time, each halving the distance between the best known order and the least that any needs."""

    def __init__(self, problem: OrderProblem, order: Sequence[int], bound: int = 0) -> None:
        self._problem = problem
        self.order = list(order)
        """The best one known."""
        self.peak = problem.peak(order)
        self.bound = min(self.peak, max(bound, problem.least))
        """No order needs less, or less than the bound that was given."""
        self.gave_up = False
        """Whether going on would take more memory than it is worth."""
        self._patience = _FIRST_PATIENCE
        self._too_hard = self.peak
        """The lowest limit that ran out of patience, or that is known to be met."""
        self._shares = [1, 1]
        """States looked at in a turn, forwards and backwards: the direction that first shows that there is no order gets more."""

    @property
    def is_over(self) -> bool:
        """Whether the order is proven best."""
        return self.peak <= self.bound

    def offer(self, order: Sequence[int]) -> None:
        """Take over an order that was found elsewhere, where it is better."""
        peak = max(self.bound, self._problem.peak(order))
        if peak < self.peak:
            self.order, self.peak = list(order), peak

    def run(self, stop: Callable[[], bool]) -> None:
        """Go on until the best order is proven best or told to stop."""
        while not self.is_over and not self.gave_up and not stop():
            self._too_hard = min(self._too_hard, self.peak)
            limit = (self.bound + self._too_hard) // 2
            if self.bound < self._too_hard and self._attempt(limit, stop):
                continue
            # What is far below the best order is sooner known to be impossible.
            self._too_hard = limit
            if limit <= self.bound and not stop():
                self.gave_up = self._patience >= _MOST_PATIENCE
                self._patience *= 4
                self._too_hard = self.peak

    def _attempt(self, limit: int, stop: Callable[[], bool]) -> bool:
        """Find out whether there is an order within a limit; False where patience ran out."""
        attempts = (Attempt(self._problem, limit), Attempt(self._problem.reverse, limit))
        looked = 0
        while looked < self._patience and not stop():
            for backwards, attempt in enumerate(attempts):
                looked += attempt.run(_STATES_A_TURN * self._shares[backwards])
                if attempt.is_over:
                    if attempt.order is None:
                        self._shares[backwards], self._shares[1 - backwards] = _FAVOURED, 1
                    self._learn(attempt, bool(backwards))
                    return True
        return False

    def _learn(self, attempt: Attempt, backwards: bool) -> None:
        if attempt.order is None:
            self.bound = min(self.peak, attempt.least_beyond)
            return
        self.order = self._problem.reversed_order(attempt.order) if backwards else attempt.order
        self.peak = max(self.bound, self._problem.peak(self.order))
