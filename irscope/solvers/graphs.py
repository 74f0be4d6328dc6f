"""Topological orders, disjoint sets and minimum cuts: algorithms on plain graphs, whose nodes are 0, 1, ..."""

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


INFINITE = 1 << 62


class FlowNetwork:
    """Nodes and directed edges with capacities; an edge and its reverse are neighbours in the lists."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = []
        self._target: list[int] = []
        self._room: list[int] = []

    def node(self) -> int:
        """Return a new node."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, start: int, end: int, capacity: int) -> None:
        """Add an edge."""
        self._edges[start].append(len(self._target))
        self._target.append(end)
        self._room.append(capacity)
        self._edges[end].append(len(self._target))
        self._target.append(start)
        self._room.append(0)

    def any_of(self, nodes: Iterable[int]) -> int:
        """Return a node that is on the source's side as soon as one of these is."""
        return self._joined(nodes, towards=True)

    def all_of(self, nodes: Iterable[int]) -> int:
        """Return a node that is on the source's side only when all of these are."""
        return self._joined(nodes, towards=False)

    def _joined(self, nodes: Iterable[int], *, towards: bool) -> int:
        several = sorted(nodes)
        if len(several) == 1:
            return several[0]
        joint = self.node()
        for member in several:
            self.edge(*((member, joint) if towards else (joint, member)), INFINITE)
        return joint

    def push(self, source: int, sink: int) -> int:
        """Push as much as possible from source to sink; how much that was."""
        total = 0
        while distances := self._distances(source, sink):
            total += self._push_along_shortest(source, sink, distances)
        return total

    def source_side(self, source: int) -> list[bool]:
        """Return which nodes can still be reached, once no more can be pushed."""
        reached = [False] * len(self._edges)
        reached[source] = True
        stack = [source]
        while stack:
            for edge in self._edges[stack.pop()]:
                end = self._target[edge]
                if self._room[edge] and not reached[end]:
                    reached[end] = True
                    stack.append(end)
        return reached

    def rooms(self) -> list[int]:
        """Return what every edge can still take, to be put back later."""
        return self._room.copy()

    def put_back(self, rooms: list[int]) -> None:
        """Undo all that was pushed since `rooms` was taken."""
        self._room = rooms.copy()

    def _distances(self, source: int, sink: int) -> list[int]:
        """Distance of nodes to the sink over edges with room; empty when it is out of the source's reach.

        Told from the sink, so that a path that comes closer step by step never leads to a dead end but where an edge was filled since.
        """
        distances = [-1] * len(self._edges)
        distances[sink] = 0
        edges, target, room = self._edges, self._target, self._room
        queue = [sink]
        for node in queue:
            further = distances[node] + 1
            for edge in edges[node]:
                start = target[edge]
                if distances[start] < 0 and room[edge ^ 1]:
                    distances[start] = further
                    if start == source:
                        return distances
                    queue.append(start)
        return []

    def _push_along_shortest(self, source: int, sink: int, distances: list[int]) -> int:
        """Push along paths on which every edge leads closer to the sink, until there is none left."""
        edges, target, room = self._edges, self._target, self._room
        next_edge = [0] * len(edges)
        path: list[int] = []
        node, total = source, 0
        while True:
            closer = distances[node] - 1
            around, at = edges[node], next_edge[node]
            count = len(around)
            while at < count and not (room[around[at]] and distances[target[around[at]]] == closer):
                at += 1
            next_edge[node] = at
            if at == count:
                if not path:
                    return total
                node = target[path.pop() ^ 1]
                next_edge[node] += 1
                continue
            path.append(around[at])
            node = target[around[at]]
            if node == sink:
                rooms = [room[edge] for edge in path]
                pushed = min(rooms)
                total += pushed
                for edge in path:
                    room[edge] -= pushed
                    room[edge ^ 1] += pushed
                # Go on from where the first edge is filled.
                filled = rooms.index(pushed)
                node = target[path[filled] ^ 1]
                del path[filled:]
