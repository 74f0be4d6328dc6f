"""The rows of a model as a tree: modules with their nodes, regions below the nodes that own them. Built once, never changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.ir.graph import Graph, Node
from irscope.ir.places import Scope
from irscope.ir.program import Program

Ints: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = NDArray[np.int32]
_NONE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A row that is no node: a module, the region of a node, or a function."""

    kind: Literal["module", "region", "function"]
    name: str
    scope: Scope | None = None


Item: TypeAlias = Node | Group


class Outline:
    """Rows in preorder: the rows below row `i` are those from `i + 1` up to `end[i]`."""

    def __init__(self, items: list[Item], parent: Rows, depth: Ints, end: Ints, nodes: Sequence[Node]) -> None:
        self.items = items
        self.parent = parent
        """The row above in the tree, -1 at the top."""
        self.depth = depth
        self.end = end
        self.nodes = nodes
        """The nodes of the main graph in program order."""

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def row_of(self) -> dict[Node, int]:
        """The row of each node."""
        return {item: row for row, item in enumerate(self.items) if isinstance(item, Node)}

    @cached_property
    def program_order(self) -> Steps:
        """The nodes of the main graph as steps."""
        return Steps(self, self.nodes)

    def is_branch(self, row: int) -> bool:
        """Whether there are rows below."""
        return bool(self.end[row] > row + 1)

    def ancestors(self, row: int) -> Iterator[int]:
        """The rows above, from the nearest to the outermost."""
        above = int(self.parent[row])
        while above >= 0:
            yield above
            above = int(self.parent[above])

    def children(self, row: int) -> Ints:
        """The rows directly below a row."""
        found: Ints = np.flatnonzero(self.parent[row + 1 : int(self.end[row])] == row) + (row + 1)
        return found

    def nodes_below(self, row: int) -> Iterator[Node]:
        """Nodes below a row, those of inner regions included."""
        for item in self.items[row + 1 : int(self.end[row])]:
            if isinstance(item, Node):
                yield item

    @cached_property
    def operators(self) -> tuple[Rows, Sequence[str]]:
        """The number of each row's operator, -1 for what is no node, and the operators by their numbers."""
        numbers: dict[str, int] = {}
        found = [numbers.setdefault(item.op, len(numbers)) if isinstance(item, Node) else _NONE for item in self.items]
        return np.array(found, dtype=np.int32), list(numbers)


class Steps:
    """Nodes in the order in which they run, which a runtime may have chosen and which may leave some out."""

    def __init__(self, outline: Outline, nodes: Sequence[Node]) -> None:
        self._outline = outline
        row_of = outline.row_of
        found = np.array([row_of.get(node, _NONE) for node in nodes], dtype=np.int32)
        self._step: Rows = np.full(len(outline), _NONE, dtype=np.int32)
        known = np.flatnonzero(found >= 0).astype(np.int32)
        self._step[found[known]] = known
        # What a runtime runs and the model does not name stands where the step before it does.
        before = np.maximum.accumulate(np.where(found >= 0, np.arange(len(found), dtype=np.int32), 0))
        self.rows: Rows = np.maximum(found[before], 0)
        """The row of each step."""

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, step: int) -> int:
        """The row of a step; steps before the first or after the last are taken for those."""
        return int(self.rows[min(max(step, 0), len(self) - 1)])

    def step_of(self, node: Node) -> int | None:
        """The step of a node; None for one that never runs as a step."""
        row = self._outline.row_of.get(node)
        return int(self._step[row]) if row is not None and self._step[row] >= 0 else None

    def at(self, row: int) -> int | None:
        """The step at which a row runs: a module's first, for what is inside a region its owner's; None for what never runs as one."""
        outline = self._outline
        for one in (row, *outline.ancestors(row)):
            own = int(self._step[one])
            if own >= 0:
                return own
            if one == row and isinstance(outline.items[one], Group):
                inside = self._step[one + 1 : int(outline.end[one])]
                inside = inside[inside >= 0]
                if len(inside):
                    return int(inside.min())
        return None


def build_outline(program: Program) -> Outline:
    """The rows of a program: its main graph at the top level, then a row for each function."""
    return _Builder().build(program)


class _Builder:
    """Collects items, each with its holder, first child and next sibling; modules come where their first node is."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.holders: list[int] = []
        self.first: list[int] = []
        self.next: list[int] = []
        self.last: list[int] = []
        """The last child so far."""
        self.top_first = self.top_last = _NONE

    def build(self, program: Program) -> Outline:
        nodes = list(program.graph)
        self.graph(program.graph, _NONE)
        for body in program.functions.values():
            self.graph(body, self.add(Group("function", body.name), _NONE))
        return self.flatten(nodes)

    def graph(self, graph: Graph, holder: int) -> None:
        """Add a graph with everything inside its regions."""
        todo = [(graph, holder, graph.scope)]
        while todo:
            self.body(*todo.pop(), todo)

    def add(self, item: Item, holder: int) -> int:
        number = len(self.items)
        self.items.append(item)
        self.holders.append(holder)
        self.first.append(_NONE)
        self.next.append(_NONE)
        self.last.append(_NONE)
        before = self.top_last if holder < 0 else self.last[holder]
        if before >= 0:
            self.next[before] = number
        elif holder >= 0:
            self.first[holder] = number
        else:
            self.top_first = number
        if holder < 0:
            self.top_last = number
        else:
            self.last[holder] = number
        return number

    def body(self, graph: Graph, holder: int, base: Scope, todo: list[tuple[Graph, int, Scope]]) -> None:
        """Add the nodes of a graph below `holder`, in modules relative to `base`."""
        holders: dict[Scope, int] = {base: holder}
        for node in graph:
            scope = node.scope
            within = holders.get(scope)
            number = self.add(node, self.open(scope, holders, holder) if within is None else within)
            for region in node.regions:
                todo.append((region, self.add(Group("region", region.name), number), scope))

    def open(self, scope: Scope, holders: dict[Scope, int], holder: int) -> int:
        """Add the modules that lead to a scope and are not there yet."""
        missing: list[Scope] = []
        above: Scope | None = scope
        while above is not None and above not in holders:
            missing.append(above)
            above = above.parent
        within = holder if above is None else holders[above]
        for one in reversed(missing):
            if one.parent is not None:
                name = f"{one.name}#{one.call}" if one.call else one.name
                within = self.add(Group("module", name, one), within)
            holders[one] = within
        return within

    def flatten(self, nodes: list[Node]) -> Outline:
        """Put everything in preorder."""
        first, following, holders = self.first, self.next, self.holders
        count = len(self.items)
        order: list[int] = []
        depths: list[int] = []
        rows, ends = [0] * count, [0] * count
        number, depth = self.top_first, 0
        while number >= 0:
            rows[number] = len(order)
            order.append(number)
            depths.append(depth)
            if first[number] >= 0:
                number = first[number]
                depth += 1
                continue
            while number >= 0:
                ends[rows[number]] = len(order)
                if following[number] >= 0:
                    number = following[number]
                    break
                number = holders[number]
                depth -= 1
        held = np.array(holders, dtype=np.int64)[order] if count else np.zeros(0, dtype=np.int64)
        places = np.array([*rows, _NONE], dtype=np.int32)
        items = self.items
        return Outline(
            [items[number] for number in order],
            places[held],
            np.array(depths, dtype=np.int64),
            np.array(ends, dtype=np.int64),
            nodes,
        )
