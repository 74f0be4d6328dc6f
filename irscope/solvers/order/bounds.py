"""Lower bounds of the memory of every order: minimum cuts, and an exact search for small problems."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TypeAlias

from irscope.immutable import immutable
from irscope.solvers.graphs import INFINITE, FlowNetwork, in_order, turned
from irscope.solvers.order.problem import OrderProblem, Storage


@immutable(slots=False)
class Cut:
    """The least that is alive while an operator runs, and how that is reached."""

    op: int
    bytes: int
    done: frozenset[int]
    """Operators to have run before it."""


@immutable(slots=False)
class CutNetwork:
    """A network whose minimum cuts are the best sets of operators to have run before one of them."""

    flow: FlowNetwork
    source: int
    sink: int
    side: list[int]
    """The network's node of each operator; those that must come first are at the source, those that must not at the sink."""
    free: list[int]
    """Operators that may run before or after."""
    constant: int
    """Bytes that are alive in any case."""


def cut_network(
    problem: OrderProblem, op: int, before: Sequence[Iterable[int]], ancestors: Collection[int], descendants: Collection[int]
) -> CutNetwork:
    """Return the network for one operator; `before`, with what follows from it, may hold more than the problem demands."""
    network = FlowNetwork()
    source, sink = network.node(), network.node()
    side = [-1] * len(problem)
    for ancestor in ancestors:
        side[ancestor] = source
    for ancestor in descendants:
        side[ancestor] = sink
    side[op] = sink
    free = [index for index in range(len(problem)) if side[index] < 0]
    for ancestor in free:
        side[ancestor] = network.node()
    for ancestor in free:
        for earlier in before[ancestor]:
            if side[earlier] != source:
                network.edge(side[ancestor], side[earlier], INFINITE)
        # Later ones that are forced to come later need no edge: they never run before.
    own = set(problem.touched[op])
    constant = problem.base + problem.workspace[op] + sum(problem.storages[number].size for number in own)
    for number, storage in enumerate(problem.storages):
        if number not in own:
            constant += _pay(network, storage, side, source, sink)
    return CutNetwork(network, source, sink, side, free, constant)


def least_while_running(problem: OrderProblem, op: int) -> Cut:
    """Over all valid orders, the fewest bytes alive while `op` runs."""
    ancestors = _reach(problem.before, op)
    made = cut_network(problem, op, problem.before, ancestors, _reach(problem.after, op))
    flow = made.flow.push(made.source, made.sink)
    reached = made.flow.source_side(made.source)
    done = frozenset((*ancestors, *(one for one in made.free if reached[made.side[one]])))
    return Cut(op, made.constant + flow, done)


def _pay(network: FlowNetwork, storage: Storage, side: list[int], source: int, sink: int) -> int:
    """Make a storage cost its size where it is alive; what it costs anyway is the answer instead."""
    users = {side[op] for op in storage.touches}
    begun = storage.is_input or source in users
    kept = storage.is_output or sink in users
    if begun and kept:
        return storage.size
    users -= {source, sink}
    if not users:
        return 0
    first, last = source, sink
    if not begun:
        first = network.any_of(users)
    if not kept:
        last = network.all_of(users)
    network.edge(first, last, storage.size)
    return 0


def _reach(edges: list[tuple[int, ...]] | list[list[int]], start: int) -> set[int]:
    found: set[int] = set()
    stack = list(edges[start])
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack.extend(edges[op])
    return found


# Exact search (dynamic programming over sets of operators that have run) for the order of least peak of a small problem.

# Precedence constraints that every order within a limit satisfies.
#
# Take two operators of which the graph does not say which comes first. Where the least memory while the one runs, with the other
# before it, is more than the limit, the other comes after it in every order that stays within. What is found that way raises other
# minimum cuts, so that more follows, and at times that there is no such order at all.


_Lived: TypeAlias = tuple[int, int, bool, bool]
"""Operators that touch a storage, as a bit mask, its size, and whether it is there from the start and stays to the end."""


class Necessary:
    """Precedences that hold in any order that needs no more than a limit."""

    def __init__(self, problem: OrderProblem, limit: int, higher: Necessary | None = None) -> None:
        self.limit = limit
        self.impossible = False
        """True where there is no order within the limit."""
        self.least_beyond: int = higher.least_beyond if higher is not None else 0
        """Below this limit the same would have been found; 0 where nothing was."""
        self.before: list[set[int]] = [set(earlier) for earlier in (problem if higher is None else higher).before]
        """For each operator those that come before it: what the problem demands, and what was found."""
        self._problem = problem
        self._storages: list[_Lived] = [
            (sum(1 << op for op in storage.touches), storage.size, storage.is_input, storage.is_output) for storage in problem.storages
        ]
        self._ancestors: list[int] = []
        self._descendants: list[int] = []
        self._least: list[int] = [limit] * len(problem) if higher is None else higher._least.copy()
        """Bytes that each operator is known to need."""
        self._unseen = list(range(len(problem))) if higher is None else []
        self._waiting = dict.fromkeys(range(len(problem)))
        """Operators still to be processed (the worklist)."""
        self._close()

    @property
    def is_over(self) -> bool:
        """Return whether nothing more can be found this way."""
        return self.impossible or not self._waiting

    def strengthened(self) -> OrderProblem:
        """Return the problem with all that was found; its numbering need not be an order of it."""
        before = [tuple(sorted(earlier)) for earlier in self.before]
        return OrderProblem(before, self._problem.storages, self._problem.workspace, self._problem.base)

    def run(self, stop: Callable[[], bool], most: int | None = None) -> None:
        """Go on until nothing more is found, so many operators were looked at, or told to stop."""
        while self._unseen and not self.impossible and not stop():
            self._least_at(self._unseen.pop())
        looked = 0
        while not self.is_over and looked != most and not stop():
            looked += 1
            op = max(self._waiting, key=lambda one: (self._least[one], -one))
            del self._waiting[op]
            look = self._look_at(op, stop)
            if self.impossible or not look:
                continue
            for first, second in look:
                if not self._ancestors[second] >> first & 1:
                    self.before[second].add(first)
            self._close()

    def _close(self) -> None:
        """Work out all that comes before and after each operator; those for which that is new are looked at again."""
        after = turned(self.before)
        order = in_order(self.before, after)
        if len(order) < len(after):
            # Each of two would have to come before the other.
            self.impossible = True
            return
        ancestors, descendants = [0] * len(after), [0] * len(after)
        for op in order:
            for earlier in self.before[op]:
                ancestors[op] |= ancestors[earlier] | 1 << earlier
        for op in reversed(order):
            for later in after[op]:
                descendants[op] |= descendants[later] | 1 << later
        for op, (old, new) in enumerate(zip(self._ancestors, ancestors, strict=False)):
            if old != new or self._descendants[op] != descendants[op]:
                self._waiting[op] = None
        self._ancestors, self._descendants = ancestors, descendants

    def _look_at(self, op: int, stop: Callable[[], bool]) -> list[tuple[int, int]]:
        """Return the pairs with this operator whose order is now known, the first one first."""
        made = self._least_at(op)
        if self.impossible:
            return []
        least, ancestors = self._least[op], self._ancestors[op]
        rooms = made.flow.rooms()
        best = self._run_before(made, made.source, ancestors)
        free = sum(1 << one for one in made.free)
        can_precede, can_follow = best, free & ~best
        variable = self._variable(op, free)
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
            if made.constant + _alive(variable, changed) > self.limit:
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
        made = cut_network(self._problem, op, self.before, _members_of_mask(self._ancestors[op]), _members_of_mask(self._descendants[op]))
        self._least[op] = made.constant + made.flow.push(made.source, made.sink)
        if self._least[op] > self.limit:
            self._note(self._least[op])
            self.impossible = True
        return made

    def _run_before(self, made: CutNetwork, start: int, ancestors: int) -> int:
        reached = made.flow.source_side(start)
        return ancestors | sum(1 << one for one in made.free if reached[made.side[one]])

    def _variable(self, op: int, free: int) -> list[_Lived]:
        """Storages of which it is open whether they are alive while an operator runs: that depends on what of the free ones ran before."""
        own, ancestors = 1 << op, self._ancestors[op]
        later = self._descendants[op]
        return [
            slot
            for slot in self._storages
            if slot[0] & free and not slot[0] & own and not ((slot[2] or slot[0] & ancestors) and (slot[3] or slot[0] & later))
        ]

    def _note(self, needed: int) -> None:
        if not self.least_beyond or needed < self.least_beyond:
            self.least_beyond = needed


def _alive(storages: list[_Lived], done: int) -> int:
    """Return bytes of the storages that are alive between all of `done` and all the others."""
    total, left = 0, ~done
    for mask, size, is_input, is_output in storages:
        if (is_input or mask & done) and (is_output or mask & left):
            total += size
    return total


def _members_of_mask(mask: int) -> list[int]:
    members: list[int] = []
    while mask:
        low = mask & -mask
        members.append(low.bit_length() - 1)
        mask ^= low
    return members


# Exact search (dynamic programming over sets of operators that have run) for the order of least peak of a small problem.

_FIRST_PATIENCE = 4_000
_MOST_PATIENCE = 1_000_000
"""States expanded in one attempt."""
_GLANCE = 1_000
"""States expanded where only part of what is necessary is known; it is doubled how many operators are looked at between two attempts."""
_FIRST_LOOKS = 64
_STATES_A_TURN = 250
_FAVOURED = 8
_PARTS = 8


@dataclass(slots=True)
class _State:
    """A search state: a set of operators that have run, and how it was reached."""

    done: int
    live: int
    ready: int
    way: tuple[_State | None, list[int]]
    """The state before, and the operators run since."""
    next: Sequence[tuple[int, int]] = ()
    """Operators that could run next within the limit, and bytes live after each."""

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
        """The lowest limit above this one with which more states can be reached; 0 where no state exceeded the limit."""
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
        self._later = [[(later, sum(1 << earlier for earlier in problem.before[later])) for later in after] for after in problem.after]
        self._all = (1 << len(problem)) - 1
        self._seen: set[int] = set()
        self._open: list[tuple[int, int, int, _State]] = []
        ready = sum(1 << op for op, earlier in enumerate(problem.before) if not earlier)
        self._put(_State(0, problem.at_start, ready, (None, [])))

    @property
    def is_over(self) -> bool:
        """Return whether an order was found or all states were expanded."""
        return self.order is not None or not self._open

    @property
    def waiting(self) -> int:
        """States that have not been expanded."""
        return len(self._open)

    def run(self, states: int) -> int:
        """Expand at most so many states; returns how many were."""
        looked = 0
        while looked < states and not self.is_over:
            state = heapq.heappop(self._open)[3]
            if state.done == self._all:
                self.order = state.order()
                break
            looked += 1
            done, ready = state.done, state.ready
            for op, live in state.next:
                if done | 1 << op not in self._seen:
                    self._put(_State(done | 1 << op, live, ready ^ 1 << op | self._opened(done | 1 << op, op), (state, [op])))
            state.next = ()
        return looked

    def _put(self, state: _State) -> None:
        """Run the operators that can safely run at once, and keep the state unless it is known or a dead end."""
        if state.done in self._seen:
            return
        self._seen.add(state.done)
        while (op := self._safe_move(state)) >= 0:
            state.done |= 1 << op
            state.ready = state.ready ^ 1 << op | self._opened(state.done, op)
            state.way[1].append(op)
            if state.done in self._seen:
                return
            self._seen.add(state.done)
        if state.next or state.done == self._all:
            heapq.heappush(self._open, (-state.done.bit_count(), state.live, len(self._seen), state))

    def _safe_move(self, state: _State) -> int:
        """An operator that can run at once without loss, with bytes alive after it noted; -1 where there is none, with what could run."""
        done, live = state.done, state.live
        waiting = state.ready
        least_beyond, possible = 0, []
        while waiting:
            low = waiting & -waiting
            op = low.bit_length() - 1
            waiting ^= low
            needed, after = self._step(done, live, op)
            if needed > self.limit:
                if not least_beyond or needed < least_beyond:
                    least_beyond = needed
            elif after <= live:
                state.live = after
                return op
            else:
                possible.append((op, after))
        state.next = possible
        if least_beyond and (not self.least_beyond or least_beyond < self.least_beyond):
            self.least_beyond = least_beyond
        return -1

    def moves(self, done: int, live: int, ready: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield what can run next: the operator, bytes alive while it runs and after it, and what is ready then."""
        left = ready
        while left:
            low = left & -left
            left ^= low
            op = low.bit_length() - 1
            needed, after = self._step(done, live, op)
            yield op, needed, after, ready ^ low | self._opened(done | low, op)

    def _opened(self, done: int, op: int) -> int:
        """Return what has become ready by running an operator."""
        opened = 0
        for later, needs in self._later[op]:
            if needs & ~done == 0:
                opened |= 1 << later
        return opened

    def _step(self, done: int, live: int, op: int) -> tuple[int, int]:
        """Return bytes alive while an operator runs, and after it."""
        left = ~(done | 1 << op)
        freed = 0
        for mask, taken, given in self._touched[op]:
            if not mask & done:
                live += taken
            if not mask & left:
                freed += given
        return live + self._workspace[op], live - freed


class ExactSearch:
    """Bidirectional search, with bisection between the best known order and the lower bound."""

    def __init__(self, problem: OrderProblem, order: Sequence[int], bound: int = 0) -> None:
        self._problem = problem
        self.order = list(order)
        """The best order known."""
        self.peak = problem.peak(order)
        self.bound = min(self.peak, max(bound, problem.least))
        """No order needs less, or less than the bound that was given."""
        self.gave_up = False
        """True where the search should stop because its states take too much memory."""
        # Memory only takes values that are sums of sizes.
        self._grain = gcd(*(storage.size for storage in problem.storages), *problem.workspace) or 1
        self._patience = _FIRST_PATIENCE
        self._too_hard = self.peak
        """The lowest limit whose search was given up, or that is known to be feasible."""
        self._necessary: list[Necessary] = []
        """Unfinished searches by limit, to be continued."""

    @property
    def is_over(self) -> bool:
        """Return whether the order is proven best."""
        return self.peak <= self.bound

    @property
    def _step(self) -> int:
        """Return by how much less to request than the best order needs."""
        return max(self._grain, (self.peak - self.bound) // _PARTS // self._grain * self._grain)

    def offer(self, order: Sequence[int], bound: int) -> None:
        """Take over an order and a bound that were found elsewhere, where they are better."""
        self.bound = min(self.peak, max(self.bound, bound))
        peak = max(self.bound, self._problem.peak(order))
        if peak < self.peak:
            self.order, self.peak = list(order), peak

    def run_while_easy(self, stop: Callable[[], bool]) -> None:
        """Look for what a short search finds: an order as good as the bound, or, again and again, one a little better than the best."""
        if not self.is_over:
            self._short(self.bound, stop)
        while not self.is_over and not stop() and self._short(max(self.bound, self.peak - self._step), stop):
            pass

    def run(self, stop: Callable[[], bool]) -> None:
        """Go on until the best order is proven best or told to stop."""
        self.run_while_easy(stop)
        while not self.is_over and not self.gave_up and not stop():
            self._too_hard = min(self._too_hard, self.peak)
            limit = self._between()
            if self.bound < self._too_hard and self._attempt(limit, stop):
                continue
            # What is far below the best order is sooner known to be impossible.
            self._too_hard = limit
            if limit <= self.bound and not stop():
                self.gave_up = self._patience >= _MOST_PATIENCE
                self._patience *= 4
                self._too_hard = self.peak

    def _between(self) -> int:
        """Half way to the bound, then the bound itself, which is easiest to rule out; with more patience a bit below the best first."""
        step = self._step
        if self._patience > _FIRST_PATIENCE and self._too_hard == self.peak and self._too_hard - self.bound > step:
            return self.peak - step
        half = (self._too_hard - self.bound) // 2
        return self.bound if half < step // 2 else self.bound + half // self._grain * self._grain

    def _attempt(self, limit: int, stop: Callable[[], bool]) -> bool:
        """Decide whether there is an order within a limit; False where the search was given up."""
        if self._short(limit, stop):
            return True
        if stop():
            return False
        necessary = self._necessary_within(limit)
        looks = _FIRST_LOOKS
        while not stop():
            necessary.run(stop, looks)
            if necessary.is_over:
                break
            # A part of what is necessary is often enough to find an order, and to look is cheap.
            if self._search(necessary.strengthened(), limit, necessary.least_beyond, _GLANCE, stop):
                return True
            looks *= 2
        if necessary.impossible:
            self.bound = min(self.peak, necessary.least_beyond or limit + 1)
            return True
        return self._search(necessary.strengthened(), limit, necessary.least_beyond, self._patience, stop)

    def _short(self, limit: int, stop: Callable[[], bool]) -> bool:
        return self._search(self._problem, limit, 0, min(self._patience, _FIRST_PATIENCE), stop)

    def _necessary_within(self, limit: int) -> Necessary:
        """Precedence constraints that every order within a limit satisfies; those of a higher limit hold for this one, too."""
        higher = min((known for known in self._necessary if known.limit >= limit), key=lambda known: known.limit, default=None)
        if higher is not None and higher.limit == limit:
            return higher
        necessary = Necessary(self._problem, limit, higher)
        self._necessary.append(necessary)
        return necessary

    def _search(self, problem: OrderProblem, limit: int, least_beyond: int, patience: int, stop: Callable[[], bool]) -> bool:
        """Look for an order within a limit from both ends; nothing else is known up to `least_beyond`, where that is not 0."""
        attempts = (Attempt(problem, limit), Attempt(problem.reverse, limit))
        looked = 0
        while looked < patience and not stop():
            ahead = attempts[1].waiting < attempts[0].waiting
            for backwards, attempt in enumerate(attempts):
                # Where fewer states wait, there is sooner nothing left to try.
                looked += attempt.run(_STATES_A_TURN * (_FAVOURED if backwards == ahead else 1))
                if attempt.is_over:
                    self._learn(attempt, bool(backwards), least_beyond)
                    return True
        return False

    def _learn(self, attempt: Attempt, backwards: bool, least_beyond: int) -> None:
        if attempt.order is None:
            self.bound = min(self.peak, attempt.least_beyond, least_beyond or self.peak)
            return
        self.order = self._problem.reversed_order(attempt.order) if backwards else attempt.order
        self.peak = max(self.bound, self._problem.peak(self.order))
