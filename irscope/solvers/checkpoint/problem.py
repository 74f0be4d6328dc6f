"""The checkpointing problem of a training step: operators in order, the storages they read and write, and which may be recomputed."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from irscope.immutable import immutable
from irscope.solvers.graphs import INFINITE, FlowNetwork


class Phase(enum.IntEnum):
    """The part of the step that an operator belongs to."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2


class Repeat(enum.IntEnum):
    """Permission to run an operator of the forward a second time."""

    FREELY = 0
    REPLAYED = 1
    """It draws random numbers, and gives the same result only where the generator's state is put back."""
    NEVER = 2
    """It changes state that persists, or its effects are unknown."""


@immutable
class StepStorage:
    """Bytes that tensors of one step share: a tensor with its views and what is written over it."""

    name: str
    size: int
    is_input: bool = False
    """True where it is live before the first operator."""
    is_output: bool = False
    """True where it is live after the last operator; with `is_input`, it is never freed."""
    held: int = -1
    """The operator after which Python or autograd let go of it, where that is known: it lives so long even if nothing reads it."""


@immutable
class StepOperator:
    """One operator; storages are named by number."""

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    seconds: float
    phase: Phase = Phase.FORWARD
    repeat: Repeat = Repeat.FREELY
    workspace: int = 0
    """Bytes that exist only while it runs."""
    module: str = ""
    """Path of the module that called it."""


@immutable(slots=False)
class CheckpointProblem:
    """Operators in the order in which they run, and their storages."""

    operators: Sequence[StepOperator]
    storages: Sequence[StepStorage]
    replay_random: bool = True
    """True where operators that draw random numbers may run again, with the generator's state restored."""

    def __len__(self) -> int:
        return len(self.operators)

    @cached_property
    def seconds(self) -> float:
        """Time of the step when nothing is recomputed."""
        return sum(op.seconds for op in self.operators)

    @cached_property
    def base(self) -> int:
        """Bytes that are there all the time, such as parameters."""
        return sum(storage.size for storage in self.storages if storage.is_input and storage.is_output)

    @cached_property
    def writers(self) -> list[list[int]]:
        """Operators that make or change each storage, in order."""
        writers: list[list[int]] = [[] for _ in self.storages]
        for at, op in enumerate(self.operators):
            for storage in op.writes:
                writers[storage].append(at)
        return writers

    @cached_property
    def readers(self) -> list[list[int]]:
        """Operators that read each storage, in order."""
        readers: list[list[int]] = [[] for _ in self.storages]
        for at, op in enumerate(self.operators):
            for storage in op.reads:
                readers[storage].append(at)
        return readers

    @cached_property
    def first_touch(self) -> list[int]:
        """Step at which each storage begins; -1 for inputs and for storages that no operator uses."""
        return [
            -1 if storage.is_input else min((*self.writers[number][:1], *self.readers[number][:1]), default=-1)
            for number, storage in enumerate(self.storages)
        ]

    @cached_property
    def last_touch(self) -> list[int]:
        """Step of the last operator that reads or writes each storage; the number of operators where it stays."""
        return [
            len(self) if storage.is_output else max(storage.held, *self.writers[number][-1:], *self.readers[number][-1:], -1)
            for number, storage in enumerate(self.storages)
        ]

    @cached_property
    def last_forward(self) -> list[int]:
        """Step of the last operator of the forward that reads or writes each storage, -1 without one."""
        found = [-1] * len(self.storages)
        for at, op in enumerate(self.operators):
            if op.phase is Phase.FORWARD:
                for storage in (*op.reads, *op.writes):
                    found[storage] = at
        return found

    @cached_property
    def later_readers(self) -> list[tuple[int, ...]]:
        """Operators after the forward that read what the forward made."""
        return [tuple(at for at in readers if self.operators[at].phase is not Phase.FORWARD) for readers in self.readers]

    @cached_property
    def last_backward(self) -> int:
        """Step of the last operator of the backward, -1 without one."""
        return max((at for at, op in enumerate(self.operators) if op.phase is Phase.BACKWARD), default=-1)

    @cached_property
    def can_repeat(self) -> list[bool]:
        """Return whether each operator can run again between the end of the forward and the end of the backward with the same result."""
        return [self._repeats(at, op) for at, op in enumerate(self.operators)]

    def _repeats(self, at: int, op: StepOperator) -> bool:
        if op.phase is not Phase.FORWARD or op.repeat is Repeat.NEVER:
            return False
        if op.repeat is Repeat.REPLAYED and not self.replay_random:
            return False
        for storage in op.writes:
            writers = self.writers[storage]
            if self.storages[storage].is_input:
                # A second run would change what stays a second time.
                return False
            if any(self.operators[writer].phase is not Phase.FORWARD for writer in writers):
                return False
            if writers[0] != at and sum(self.storages[write].size > 0 for write in op.writes) > 1:
                # Begun anew for one of its results, the storage that it changes would have to be begun anew as well.
                return False
        written = set(op.writes)
        return not any(
            at < writer < self.last_backward for storage in op.reads if storage not in written for writer in self.writers[storage]
        )

    @cached_property
    def droppable(self) -> list[bool]:
        """Return whether each storage may be freed after the forward and made again when the backward needs it."""
        return [
            not storage.is_input
            and not storage.is_output
            and bool(self.writers[number])
            and all(self.can_repeat[at] for at in self.writers[number])
            and all(at > self.last_forward[number] for at in self.later_readers[number][:1])
            for number, storage in enumerate(self.storages)
        ]

    @cached_property
    def saved(self) -> list[int]:
        """Storages that the forward makes and something later reads: what is kept when nothing is recomputed."""
        return [
            number
            for number, storage in enumerate(self.storages)
            if not storage.is_input and not storage.is_output and self.later_readers[number] and self._is_forward(number)
        ]

    @cached_property
    def choices(self) -> list[int]:
        """Storages for which keeping or making again is a choice: what later operators read, and what that is made from."""
        wanted = [number for number in self.saved if self.droppable[number]]
        seen = set(wanted)
        for number in wanted:
            for writer in self.writers[number]:
                for source in (*self.operators[writer].reads, *self.operators[writer].writes):
                    if source not in seen and self.droppable[source] and self.storages[source].size:
                        seen.add(source)
                        wanted.append(source)
        return sorted(number for number in seen if self.storages[number].size)

    def _is_forward(self, storage: int) -> bool:
        return bool(self.writers[storage]) and self.operators[self.writers[storage][0]].phase is Phase.FORWARD


def checkpoint_problem(
    operators: Iterable[StepOperator], storages: Iterable[StepStorage], *, replay_random: bool = True
) -> CheckpointProblem:
    """Return a problem of operators and storages, with each operator's reads and writes in order and once."""
    tidy = [
        StepOperator(
            op.name, tuple(sorted(set(op.reads))), tuple(sorted(set(op.writes))), op.seconds, op.phase, op.repeat, op.workspace, op.module
        )
        for op in operators
    ]
    return CheckpointProblem(tidy, list(storages), replay_random)


# Lower bounds for every plan: of the peak, and of the time under a memory budget.

# Lagrangian relaxation: which storages to keep when a byte has a price, by one minimum cut.

PICOSECOND = 1e-12
"""Unit in which times and prices are integers."""


@immutable(slots=False)
class Priced:
    """The cheapest set of storages to keep at given prices."""

    kept: frozenset[int]
    price: int
    """Price of keeping them."""
    picoseconds: int
    """Time of the operators that run again."""

    @property
    def total(self) -> int:
        """Both together: no other way is cheaper."""
        return self.price + self.picoseconds


class Network:
    """Minimum cut that says what to keep, beyond `free`, to have all of `needed`; for one set of needs and any prices.

    An operator on the sink's side of the cut runs again, a storage there is wanted after the forward. The price of a
    storage is cut where it is wanted and its writers do not run again.
    """

    def __init__(self, problem: CheckpointProblem, needed: Collection[int], free: Collection[int]) -> None:
        self.problem = problem
        self.needed = sorted(set(needed) - set(free))
        self.storages: list[int] = []
        self.operators: list[int] = []
        free_set = set(free)
        seen: set[int] = set(self.needed)
        stack = list(self.needed)
        seen_ops: set[int] = set()
        while stack:
            number = stack.pop()
            self.storages.append(number)
            if not problem.droppable[number]:
                continue
            for writer in problem.writers[number]:
                if writer in seen_ops:
                    continue
                seen_ops.add(writer)
                self.operators.append(writer)
                for source in (*problem.operators[writer].reads, *problem.operators[writer].writes):
                    own = source in problem.operators[writer].writes and problem.writers[source][0] == writer
                    if source not in seen and source not in free_set and not own and not _there(problem, source):
                        seen.add(source)
                        stack.append(source)
        self.storages.sort()
        self.operators.sort()
        self.free = free_set

        self.times = {op: max(0, round(problem.operators[op].seconds / PICOSECOND)) for op in self.operators}
        self.most_picoseconds = sum(self.times.values())

    def solve(self, prices: Mapping[int, int], scale: int = 1) -> Priced:
        """Return what to keep at these prices, with times multiplied by `scale`."""
        problem = self.problem
        network = FlowNetwork()
        source, sink = network.node(), network.node()
        runs = {op: network.node() for op in self.operators}
        for op, node in runs.items():
            network.edge(source, node, self.times[op] * scale)
        wanted = {number: network.node() for number in self.storages}
        for number, node in wanted.items():
            price = prices.get(number, 0)
            if problem.droppable[number]:
                there = network.any_of(runs[op] for op in problem.writers[number])
                network.edge(there, node, price)
            else:
                network.edge(source, node, price)
        for op, node in runs.items():
            for read in problem.operators[op].reads:
                if read in wanted and read not in problem.operators[op].writes:
                    network.edge(wanted[read], node, INFINITE)
        for number in self.needed:
            network.edge(wanted[number], sink, INFINITE)
        network.push(source, sink)
        reached = network.source_side(source)
        again = {op for op, node in runs.items() if not reached[node]}
        kept = [
            number
            for number, node in wanted.items()
            if not reached[node] and not (problem.droppable[number] and all(op in again for op in problem.writers[number]))
        ]
        return Priced(frozenset(kept), sum(prices.get(number, 0) for number in kept), sum(self.times[op] for op in again))


def _there(problem: CheckpointProblem, number: int) -> bool:
    storage = problem.storages[number]
    return storage.is_input and storage.is_output


# Lower bounds for every plan: of the peak, and of the time under a memory budget.


@immutable(slots=False)
class Floor:
    """A lower bound of the peak, and why it holds."""

    bytes: int
    at: int
    """The operator that runs then."""
    storages: tuple[int, ...]
    """Storages that are live then in every plan, without those that are always live."""


class Bounds:
    """Bounds on the peak and on the time of all plans for one problem, however often they recompute."""

    def __init__(self, problem: CheckpointProblem) -> None:
        self.problem = problem
        self._must = self._forced()
        self.floor = self._floor()

    def _forced(self) -> list[int]:
        """Return bytes that are there while each operator runs, whatever the plan."""
        problem = self.problem
        steps = len(problem)
        change = [0] * (steps + 1)
        for number, storage in enumerate(problem.storages):
            span = self._span(number)
            if span is not None:
                change[span[0]] += storage.size
                change[span[1] + 1] -= storage.size
        must: list[int] = []
        live = 0
        for at, op in enumerate(problem.operators):
            live += change[at]
            again = 0
            if op.phase is not Phase.FORWARD:
                again = sum(problem.storages[read].size for read in op.reads if problem.droppable[read] and at > problem.last_forward[read])
            must.append(live + again + op.workspace)
        return must

    def _span(self, number: int) -> tuple[int, int] | None:
        """First and last operator during which a storage is there in every plan; what is read after that is counted there."""
        problem = self.problem
        storage = problem.storages[number]
        first, last = problem.first_touch[number], problem.last_touch[number]
        if not storage.size or (first < 0 and not storage.is_input):
            return None
        if problem.droppable[number]:
            last = problem.last_forward[number]
        return max(first, 0), min(last, len(problem) - 1)

    def _floor(self) -> Floor:
        problem = self.problem
        at_start = sum(storage.size for storage in problem.storages if storage.is_input)
        at_end = sum(storage.size for storage in problem.storages if storage.is_output)
        highest = max(range(len(problem)), key=lambda at: self._must[at], default=-1)
        most = self._must[highest] if highest >= 0 else 0
        if max(at_start, at_end) >= most:
            return Floor(max(at_start, at_end), -1, ())
        return Floor(most, highest, tuple(self.forced_at(highest)))

    def forced_at(self, at: int) -> Iterable[int]:
        """Return storages that are there while an operator runs, whatever the plan; largest first, without what stays all the time."""
        problem = self.problem
        reads = {read for read in problem.operators[at].reads if problem.storages[read].size}
        for number in range(len(problem.storages)):
            span = self._span(number)
            if span is not None and span[0] <= at <= span[1]:
                reads.add(number)
        lasting = [read for read in reads if not (problem.storages[read].is_input and problem.storages[read].is_output)]
        return sorted(lasting, key=lambda one: (-problem.storages[one].size, one))

    def moments(self, most: int) -> list[int]:
        """Operators at which to ask for the least time: where what is forced is highest once the forward has ended, and evenly between."""
        problem = self.problem
        wanting = [
            at
            for at, op in enumerate(problem.operators)
            if op.phase is not Phase.FORWARD and any(problem.droppable[read] for read in op.reads)
        ]
        if len(wanting) <= most:
            return wanting
        # The first third of the backward is where least has been freed.
        early = wanting[: max(most, len(wanting) // 3)]
        chosen = sorted(early, key=lambda at: (-self._must[at], at))[: most // 2]
        step = max(1, len(early) // (most - len(chosen)))
        return sorted({*chosen, *early[::step][: most - len(chosen)]})

    def seconds(self, budget: int, moments: int = 6) -> float | None:
        """Extra time that every plan within a budget needs; None where no plan is within it."""
        if budget < self.floor.bytes:
            return None
        best = 0.0
        for at in self.moments(moments):
            least = self._seconds_at(at, budget)
            if least is None:
                return None
            best = max(best, least)
        return best

    def _seconds_at(self, at: int, budget: int) -> float | None:
        """Return the same from the one fact that what lies there while an operator runs has to fit."""
        problem = self.problem
        room = budget - self._must[at]
        there = set(problem.operators[at].reads)
        needed = {
            number
            for number in range(len(problem.storages))
            if problem.droppable[number]
            and number not in there
            and problem.first_touch[number] < at
            and problem.last_forward[number] < at
            and problem.later_readers[number]
            and problem.later_readers[number][-1] > at
        }
        return self._dual(self._frontier(at, needed, there), room)

    def _frontier(self, at: int, needed: set[int], there: set[int]) -> Network:
        present = {
            number
            for number in range(len(self.problem.storages))
            if not self.problem.droppable[number] and (span := self._span(number)) is not None and span[0] <= at <= span[1]
        }
        return Network(self.problem, needed, there | present)

    def _dual(self, network: Network, room: int) -> float | None:
        """Return the best price per byte: the highest point of the lower envelope of all cuts."""
        size = {number: self.problem.storages[number].size for number in network.storages}
        everything = _point(network.solve({number: 0 for number in size}), size)
        if everything[0] <= room:
            return 0.0
        dear = max(1, network.most_picoseconds + 1)
        least = _point(network.solve({number: dear * bytes_ for number, bytes_ in size.items()}), size)
        if least[0] > room:
            return None
        left, right = everything, least
        while True:
            if left[0] <= right[0]:
                return right[1] * PICOSECOND
            # A price at which both ends cost the same, as a fraction: kept exact by scaling all times instead.
            rise, run = right[1] - left[1], left[0] - right[0]
            priced = network.solve({number: rise * bytes_ for number, bytes_ in size.items()}, scale=run)
            found = _point(priced, size)
            value = found[1] * run + rise * found[0]
            if value >= left[1] * run + rise * left[0]:
                return max(0.0, (value - rise * room) / run) * PICOSECOND
            if found[0] > room:
                left = found
            else:
                right = found


def _point(priced: Priced, size: dict[int, int]) -> tuple[int, int]:
    return sum(size[number] for number in priced.kept), priced.picoseconds
