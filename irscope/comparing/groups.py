"""Unmatched nodes, grouped along the data flow: added, removed, fused, split up or replaced."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from irscope.comparing.matching import Matching
from irscope.comparing.side import Side
from irscope.ir.graph import Value

_MOST_NAMED = 6


class Kind(enum.Enum):
    """What happened to a group of nodes from the first model to the second."""

    FUSED = "fused"
    """Several became fewer."""
    SPLIT = "split"
    """They became more."""
    REPLACED = "replaced"
    """They became as many others."""
    REMOVED = "removed"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of the first model and their replacements in the second, by index."""

    kind: Kind
    a: tuple[int, ...]
    b: tuple[int, ...]
    keeps: bool = False
    """Whether the first nodes of both sides are matched: one absorbed the others."""


def groups(a: Side, b: Side, found: Matching, changed: Callable[[int, int], bool]) -> list[Group]:
    """All unmatched nodes, in program order; `changed` tells whether matched nodes differ in their operation."""
    return _Grouper(a, b, found, changed).run()


class _Grouper:
    def __init__(self, a: Side, b: Side, found: Matching, changed: Callable[[int, int], bool]) -> None:
        self.a, self.b, self.found, self.changed = a, b, found, changed
        self._parent: dict[tuple[int, int], tuple[int, int]] = {}
        """Union-find of nodes: (0, index) of the first model, (1, index) of the second."""
        self._absorbed: dict[tuple[int, int], tuple[int, int]] = {}
        """The matched pair that absorbed a group, by a node of the group."""

    def run(self) -> list[Group]:
        for which, side, mates in ((0, self.a, self.found.mate_a), (1, self.b, self.found.mate_b)):
            for number, mate in enumerate(mates):
                if mate < 0:
                    self._parent[which, number] = (which, number)
            for number, mate in enumerate(mates):
                if mate < 0:
                    for value in side.nodes[number].inputs:
                        if value is not None and value.node is not None and mates[side.number[value.node]] < 0:
                            self._join((which, number), (which, side.number[value.node]))
        for left, right in self._same_places():
            self._link(left, right)
        return self._collect()

    def _same_places(self) -> Iterator[tuple[Value, Value]]:
        """Corresponding values: the same operand of matched nodes, the same output, or the same name."""
        yield from zip(self.a.model.graph.outputs, self.b.model.graph.outputs, strict=False)
        for number, mate in self.found.pairs():
            one, other = self.a.nodes[number], self.b.nodes[mate]
            yield from (
                (left, right) for left, right in zip(one.inputs, other.inputs, strict=False) if left is not None and right is not None
            )
        names = {
            output.name: output
            for number, mate in enumerate(self.found.mate_b)
            if mate < 0
            for output in self.b.nodes[number].outputs
            if output.name is not None
        }
        for number, mate in enumerate(self.found.mate_a):
            if mate < 0:
                yield from ((output, names[output.name]) for output in self.a.nodes[number].outputs if output.name in names)

    def _link(self, left: Value, right: Value) -> None:
        """Two corresponding values: if unmatched nodes define both, these nodes belong to one group."""
        a = None if left.node is None else self.a.number[left.node]
        b = None if right.node is None else self.b.number[right.node]
        lonely_a, lonely_b = a is not None and self.found.mate_a[a] < 0, b is not None and self.found.mate_b[b] < 0
        if lonely_a and lonely_b and a is not None and b is not None:
            self._join((0, a), (1, b))
        elif lonely_a and a is not None and b is not None and self.found.mate_b[b] >= 0:
            self._absorbed.setdefault((0, a), (self.found.mate_b[b], b))
        elif lonely_b and b is not None and a is not None and self.found.mate_a[a] >= 0:
            self._absorbed.setdefault((1, b), (a, self.found.mate_a[a]))

    def _root(self, node: tuple[int, int]) -> tuple[int, int]:
        parent = self._parent
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    def _join(self, one: tuple[int, int], other: tuple[int, int]) -> None:
        first, second = sorted((self._root(one), self._root(other)))
        self._parent[second] = first

    def _collect(self) -> list[Group]:
        members: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        takers: dict[tuple[int, int], tuple[int, int]] = {}
        for node in self._parent:
            root = self._root(node)
            members.setdefault(root, ([], []))[node[0]].append(node[1])
            if node in self._absorbed:
                takers.setdefault(root, self._absorbed[node])
        found = [self._group(sorted(a), sorted(b), takers.get(root)) for root, (a, b) in members.items()]
        # A group that only the second model has comes after the match of its predecessor.
        return sorted(found, key=lambda group: (group.a[0], 0) if group.a else (self._before(group.b[0]), group.b[0] + 1))

    def _before(self, number: int) -> int:
        while number >= 0 and self.found.mate_b[number] < 0:
            number -= 1
        return self.found.mate_b[number] if number >= 0 else -1

    def _group(self, a: list[int], b: list[int], taker: tuple[int, int] | None) -> Group:
        if a and b:
            kind = Kind.FUSED if len(a) > len(b) else Kind.SPLIT if len(a) < len(b) else Kind.REPLACED
            return Group(kind, tuple(a), tuple(b))
        if taker is not None and self.changed(*taker):
            if a and self._feeds(self.a, taker[0], a):
                return Group(Kind.FUSED, (taker[0], *a), (taker[1],), keeps=True)
            if b and self._feeds(self.b, taker[1], b):
                return Group(Kind.SPLIT, (taker[0],), (taker[1], *b), keeps=True)
        return Group(Kind.REMOVED if a else Kind.ADDED, tuple(a), tuple(b))

    @staticmethod
    def _feeds(side: Side, maker: int, readers: list[int]) -> bool:
        made = set(side.nodes[maker].outputs)
        return any(value in made for number in readers for value in side.nodes[number].inputs)


def ops_text(side: Side, numbers: tuple[int, ...]) -> str:
    """The operators of some nodes, in order, repeated ones counted; of many the most frequent."""
    ops = [side.nodes[number].op for number in numbers]
    if len(ops) <= _MOST_NAMED:
        return " + ".join(ops)
    counts = Counter(ops).most_common()
    shown = " + ".join(f"{count} {op}" if count > 1 else op for op, count in counts[:_MOST_NAMED])
    return f"{shown} + {sum(count for _, count in counts[_MOST_NAMED:])} more" if len(counts) > _MOST_NAMED else shown
