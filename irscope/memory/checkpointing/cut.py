"""Lagrangian relaxation: which storages to keep when a byte has a price, by one minimum cut."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from irscope.memory.checkpointing.problem import CheckpointProblem
from irscope.memory.ordering.flow import INFINITE, FlowNetwork

PICOSECOND = 1e-12
"""Unit in which times and prices are integers."""


@dataclass(frozen=True)
class Priced:
    """The cheapest set of storages to keep at given prices."""

    kept: frozenset[int]
    price: int
    """What keeping costs."""
    picoseconds: int
    """Time of the operators that run again."""

    @property
    def total(self) -> int:
        """Both together: no other way is cheaper."""
        return self.price + self.picoseconds


class Network:
    """What to keep, in addition to what is free, so that all of `needed` can be had; for one set of needs and any prices.

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
        """What to keep at these prices, with times multiplied by `scale`."""
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
    one = problem.storages[number]
    return one.is_input and one.is_output
