"""Maximum flow and minimum cut by Dinic's algorithm."""

from __future__ import annotations

from collections.abc import Iterable

INFINITE = 1 << 62


class FlowNetwork:
    """Nodes and directed edges with capacities; an edge and its reverse are neighbours in the lists."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = []
        self._target: list[int] = []
        self._room: list[int] = []

    def node(self) -> int:
        """A new node."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, start: int, end: int, capacity: int) -> None:
        """A new edge."""
        self._edges[start].append(len(self._target))
        self._target.append(end)
        self._room.append(capacity)
        self._edges[end].append(len(self._target))
        self._target.append(start)
        self._room.append(0)

    def any_of(self, nodes: Iterable[int]) -> int:
        """A node that is on the source's side as soon as one of these is."""
        return self._joined(nodes, towards=True)

    def all_of(self, nodes: Iterable[int]) -> int:
        """A node that is on the source's side only when all of these are."""
        return self._joined(nodes, towards=False)

    def _joined(self, nodes: Iterable[int], *, towards: bool) -> int:
        several = sorted(nodes)
        if len(several) == 1:
            return several[0]
        joint = self.node()
        for one in several:
            self.edge(*((one, joint) if towards else (joint, one)), INFINITE)
        return joint

    def push(self, source: int, sink: int) -> int:
        """Push as much as possible from source to sink; how much that was."""
        total = 0
        while levels := self._levels(source, sink):
            next_edge = [0] * len(self._edges)
            while pushed := self._augment(source, sink, levels, next_edge):
                total += pushed
        return total

    def source_side(self, source: int) -> list[bool]:
        """Which nodes can still be reached, once no more can be pushed."""
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
        """What every edge can still take, to be put back later."""
        return self._room.copy()

    def put_back(self, rooms: list[int]) -> None:
        """Undo all that was pushed since `rooms` was taken."""
        self._room = rooms.copy()

    def _levels(self, source: int, sink: int) -> list[int]:
        """Distance of each node from the source over edges with room; empty when the sink is out of reach."""
        levels = [-1] * len(self._edges)
        levels[source] = 0
        queue = [source]
        for node in queue:
            for edge in self._edges[node]:
                end = self._target[edge]
                if self._room[edge] and levels[end] < 0:
                    levels[end] = levels[node] + 1
                    queue.append(end)
            if levels[sink] >= 0:
                return levels
        return []

    def _augment(self, source: int, sink: int, levels: list[int], next_edge: list[int]) -> int:
        """Push along one shortest path; 0 when there is none left."""
        path: list[int] = []
        node = source
        while node != sink:
            edges = self._edges[node]
            while next_edge[node] < len(edges):
                edge = edges[next_edge[node]]
                end = self._target[edge]
                if self._room[edge] and levels[end] == levels[node] + 1:
                    path.append(edge)
                    node = end
                    break
                next_edge[node] += 1
            else:
                if not path:
                    return 0
                node = self._target[path.pop() ^ 1]
                next_edge[node] += 1
        pushed = min(self._room[edge] for edge in path)
        for edge in path:
            self._room[edge] -= pushed
            self._room[edge ^ 1] += pushed
        return pushed
