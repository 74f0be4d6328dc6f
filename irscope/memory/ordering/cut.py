"""The least memory that any order can have while a given operator runs: one minimum cut.

Memory as a function of the set of operators already run is submodular, because each storage costs its size exactly where some of
its users have run and some have not. So the best set to have run before an operator is the source side of a minimum cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from irscope.memory.ordering.flow import INFINITE, FlowNetwork
from irscope.memory.ordering.problem import OrderProblem, Storage


@dataclass(frozen=True)
class Cut:
    """The least that is alive while an operator runs, and how that is reached."""

    op: int
    bytes: int
    done: frozenset[int]
    """Operators to have run before it."""


@dataclass(frozen=True)
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
    """The network for one operator; `before`, with what follows from it, may hold more than the problem demands."""
    network = FlowNetwork()
    source, sink = network.node(), network.node()
    side = [-1] * len(problem)
    for one in ancestors:
        side[one] = source
    for one in descendants:
        side[one] = sink
    side[op] = sink
    free = [one for one in range(len(problem)) if side[one] < 0]
    for one in free:
        side[one] = network.node()
    for one in free:
        for earlier in before[one]:
            if side[earlier] != source:
                network.edge(side[one], side[earlier], INFINITE)
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
