"""Precedence constraints that every order within a limit satisfies.

Take two operators of which the graph does not say which comes first. Where the least memory while the one runs, with the other
before it, is more than the limit, the other comes after it in every order that stays within. What is found that way raises other
minimum cuts, so that more follows, and at times that there is no such order at all.
"""

from __future__ import annotations

from collections.abc import Callable

from irscope.memory.ordering.cut import CutNetwork, cut_network
from irscope.memory.ordering.problem import OrderProblem, in_order


class Necessary:
    """What must come before what in any order that needs no more than a limit."""

    def __init__(self, problem: OrderProblem, limit: int, higher: Necessary | None = None) -> None:
        self.limit = limit
        self.impossible = False
        """Whether there is no order within the limit."""
        self.least_beyond: int = higher.least_beyond if higher is not None else 0
        """Below this limit the same would have been found; 0 where nothing was."""
        self.before: list[set[int]] = [set(earlier) for earlier in (problem if higher is None else higher).before]
        """For each operator those that come before it: what the problem demands, and what was found."""
        self._problem = problem
        self._storages = [
            (sum(1 << op for op in storage.touches), storage.size, storage.is_input, storage.is_output) for storage in problem.storages
        ]
        self._ancestors: list[int] = []
        self._descendants: list[int] = []
        self._least = [limit] * len(problem)
        """What each operator is known to need."""
        self._unseen = list(range(len(problem)))
        self._waiting = dict.fromkeys(range(len(problem)))
        """Operators still to be processed (the worklist)."""
        self._close()

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be found this way."""
        return self.impossible or not self._waiting

    def strengthened(self) -> OrderProblem:
        """The problem with all that was found; its numbering need not be an order of it."""
        before = [tuple(sorted(earlier)) for earlier in self.before]
        return OrderProblem(before, self._problem.storages, self._problem.workspace, self._problem.base)

    def run(self, stop: Callable[[], bool]) -> None:
        """Go on until nothing more is found or told to stop."""
        while self._unseen and not self.impossible and not stop():
            self._least_at(self._unseen.pop())
        while not self.is_over and not stop():
            op = max(self._waiting, key=lambda one: (self._least[one], -one))
            del self._waiting[op]
            found = self._look_at(op, stop)
            if self.impossible or not found:
                continue
            for first, second in found:
                if not self._ancestors[second] >> first & 1:
                    self.before[second].add(first)
            self._close()

    def _close(self) -> None:
        """Work out all that comes before and after each operator; those for which that is new are looked at again."""
        after: list[list[int]] = [[] for _ in self.before]
        for op, earlier in enumerate(self.before):
            for one in earlier:
                after[one].append(op)
        order = in_order(self.before, after)
        if len(order) < len(after):
            # Each of two would have to come before the other.
            self.impossible = True
            return
        ancestors, descendants = [0] * len(after), [0] * len(after)
        for op in order:
            for one in self.before[op]:
                ancestors[op] |= ancestors[one] | 1 << one
        for op in reversed(order):
            for later in after[op]:
                descendants[op] |= descendants[later] | 1 << later
        for op, (old, new) in enumerate(zip(self._ancestors, ancestors, strict=False)):
            if old != new or self._descendants[op] != descendants[op]:
                self._waiting[op] = None
        self._ancestors, self._descendants = ancestors, descendants

    def _look_at(self, op: int, stop: Callable[[], bool]) -> list[tuple[int, int]]:
        """Pairs with this operator whose order is now known, the first one first."""
        made = self._least_at(op)
        if self.impossible:
            return []
        least, ancestors = self._least[op], self._ancestors[op]
        rooms = made.flow.rooms()
        best = self._run_before(made, made.source, ancestors)
        free = sum(1 << one for one in made.free)
        can_precede, can_follow = best, free & ~best
        found: list[tuple[int, int]] = []
        for one in made.free:
            bit = 1 << one
            first = not can_precede & bit
            if not first and can_follow & bit:
                continue
            if stop():
                self._waiting[op] = None
                break
            # The best set with the smallest change is often good enough, which is quickly seen.
            changed = best | self._ancestors[one] | bit if first else best & ~(self._descendants[one] | bit)
            if self._needs(op, changed) > self.limit:
                start, end = (made.side[one], made.sink) if first else (made.source, made.side[one])
                needed = least + made.flow.push(start, end)
                if needed > self.limit:
                    self._note(needed)
                    found.append((op, one) if first else (one, op))
                    made.flow.put_back(rooms)
                    continue
                changed = self._run_before(made, start, ancestors) if first else self._run_before(made, made.source, ancestors)
                changed = changed | best if first else changed
                made.flow.put_back(rooms)
            can_precede |= changed
            can_follow |= free & ~changed
        return found

    def _least_at(self, op: int) -> CutNetwork:
        """Find out what an operator needs at least."""
        made = cut_network(self._problem, op, self.before, _members(self._ancestors[op]), _members(self._descendants[op]))
        self._least[op] = made.constant + made.flow.push(made.source, made.sink)
        if self._least[op] > self.limit:
            self._note(self._least[op])
            self.impossible = True
        return made

    def _run_before(self, made: CutNetwork, start: int, ancestors: int) -> int:
        reached = made.flow.source_side(start)
        return ancestors | sum(1 << one for one in made.free if reached[made.side[one]])

    def _needs(self, op: int, done: int) -> int:
        """Bytes alive while an operator runs after all of `done`."""
        total = self._problem.base + self._problem.workspace[op]
        own = 1 << op
        left = ~done
        for mask, size, is_input, is_output in self._storages:
            if mask & own or ((is_input or mask & done) and (is_output or mask & left)):
                total += size
        return total

    def _note(self, needed: int) -> None:
        if not self.least_beyond or needed < self.least_beyond:
            self.least_beyond = needed


def _members(mask: int) -> list[int]:
    found: list[int] = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
