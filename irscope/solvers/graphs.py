"""Topological orders and disjoint sets: algorithms on plain graphs, whose nodes are 0, 1, ... with those that come before each."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


def turned(edges: Sequence[Iterable[int]]) -> list[list[int]]:
    """Return the edges against their direction: for each node those that name it, lower ones first."""
    users: list[list[int]] = [[] for _ in edges]
    for node, others in enumerate(edges):
        for other in others:
            users[other].append(node)
    return users


def in_order(before: Sequence[Collection[int]], after: Sequence[Iterable[int]] | None = None) -> list[int]:
    """Return the nodes after all that come before them, as they become ready; those that wait for a cycle are missing."""
    after = turned(before) if after is None else after
    missing = [len(earlier) for earlier in before]
    order = [node for node, count in enumerate(missing) if not count]
    for node in order:  # grows while it is walked
        for later in after[node]:
            missing[later] -= 1
            if not missing[later]:
                order.append(later)
    return order


def sorted_by(keys: Sequence[float], before: Sequence[Collection[int]]) -> list[int]:
    """Return the nodes after all that come before them, of the ready ones the one with the least key first; cycles are missing."""
    after = turned(before)
    missing = [len(earlier) for earlier in before]
    ready = [(keys[node], node) for node, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)[1]
        order.append(node)
        for later in after[node]:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(ready, (keys[later], later))
    return order


def waiting_for_one_another(before: Sequence[Collection[int]]) -> list[int]:
    """Return the nodes that have no place in an order, as each waits for another one of them; empty where an order is possible."""
    after = turned(before)
    stuck = set(range(len(before))).difference(in_order(before, after))
    # Nodes that are only downstream of a cycle are not part of it.
    inner_after = [[user for user in users if user in stuck] if node in stuck else [] for node, users in enumerate(after)]
    return sorted(set(range(len(before))).difference(in_order(inner_after)))


def backwards(makers: Sequence[Sequence[int]]) -> list[int]:
    """Return the reverse depth-first search from the nodes that none needs, later ones first: ONNX Runtime's order.

    `makers` are, for each node, those that it needs, in their own order.
    """
    is_read = bytearray(len(makers))
    for needed in makers:
        for index in needed:
            is_read[index] = 1
    order: list[int] = []
    seen = bytearray(len(makers))
    # A negative number stands for a node whose predecessors have all been visited.
    pending = [index for index in range(len(makers)) if not is_read[index]]
    while pending:
        index = pending.pop()
        if index < 0:
            order.append(~index)
        elif not seen[index]:
            seen[index] = 1
            pending.append(~index)
            pending.extend(other for other in makers[index] if not seen[other])
    return order


class DisjointSets(Generic[T]):
    """Sets that are joined step by step (union-find)."""

    def __init__(self, members: Iterable[T]) -> None:
        self._above = {member: member for member in members}

    def root(self, member: T) -> T:
        """Return the member that stands for a set."""
        above = self._above
        while above[member] != member:
            above[member] = member = above[above[member]]
        return member

    def join(self, member: T, other: T) -> None:
        """Make two sets one."""
        self._above[self.root(other)] = self.root(member)

    def groups(self, members: Iterable[T] | None = None) -> list[list[T]]:
        """Return the sets, or what of these members is in each, by their first member."""
        groups: dict[T, list[T]] = {}
        for member in self._above if members is None else members:
            groups.setdefault(self.root(member), []).append(member)
        return list(groups.values())
