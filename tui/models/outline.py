"""The rows of a model as a tree: modules with their nodes, regions below the nodes that own them. Built once, never changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.ir.graph import Graph, Node
from irscope.ir.places import Scope
from irscope.ir.program import Program

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A row that is no node: a module, the region of a node, or a function."""

    kind: Literal["module", "region", "function"]
    name: str
    scope: Scope | None = None


Item: TypeAlias = Node | Group


class Outline:
    """Rows in preorder: the rows below row `i` are those from `i + 1` up to `end[i]`."""

    def __init__(self, items: list[Item], parent: list[int], steps: dict[Node, int]) -> None:
        self.items = items
        self.parent = parent
        """The row above in the tree, -1 at the top."""
        count = len(items)
        depth = [0] * count
        size = [1] * count
        for row, above in enumerate(parent):
            if above >= 0:
                depth[row] = depth[above] + 1
        for row in range(count - 1, -1, -1):
            if parent[row] >= 0:
                size[parent[row]] += size[row]
        self.depth: Ints = np.array(depth, dtype=np.int64)
        self.end: Ints = np.arange(count, dtype=np.int64) + np.array(size, dtype=np.int64)
        self.row_of: dict[Node, int] = {item: row for row, item in enumerate(items) if isinstance(item, Node)}
        self.step = self._steps(steps)
        """The step of the main graph at which a row runs (a module's: its first), None for what is inside functions."""
        self.row_of_step = [self.row_of[node] for node in steps]

    def __len__(self) -> int:
        return len(self.items)

    def _steps(self, steps: dict[Node, int]) -> list[int | None]:
        found: list[int | None] = [steps.get(item) if isinstance(item, Node) else None for item in self.items]
        for row, above in enumerate(self.parent):
            if above >= 0 and found[row] is None:
                found[row] = found[above]
        for row in range(len(self) - 1, -1, -1):
            above = self.parent[row]
            if above >= 0 and isinstance(self.items[above], Group) and found[row] is not None:
                # Rows are visited from the last on, so the first child has the last word.
                found[above] = found[row]
        return found

    def is_branch(self, row: int) -> bool:
        """Whether there are rows below."""
        return bool(self.end[row] > row + 1)

    def ancestors(self, row: int) -> Iterator[int]:
        """The rows above, from the nearest to the outermost."""
        above = self.parent[row]
        while above >= 0:
            yield above
            above = self.parent[above]

    def nodes_below(self, row: int) -> Iterator[Node]:
        """Nodes below a row, those of inner regions included."""
        for item in self.items[row + 1 : int(self.end[row])]:
            if isinstance(item, Node):
                yield item


def build_outline(program: Program) -> Outline:
    """The rows of a program: its main graph at the top level, then a row for each function."""
    return _Builder().build(program)


class _Builder:
    """Collects items with their children; modules come where their first node is."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.top: list[int] = []
        self.below: dict[int, list[int]] = {}

    def build(self, program: Program) -> Outline:
        steps = {node: step for step, node in enumerate(program.graph)}
        self.graph(program.graph, -1)
        for body in program.functions.values():
            self.graph(body, self.add(Group("function", body.name), -1))
        return self.flatten(steps)

    def graph(self, graph: Graph, holder: int) -> None:
        """Add a graph with everything inside its regions."""
        todo = [(graph, holder, graph.scope)]
        while todo:
            self.body(*todo.pop(), todo)

    def add(self, item: Item, holder: int) -> int:
        number = len(self.items)
        self.items.append(item)
        (self.top if holder < 0 else self.below.setdefault(holder, [])).append(number)
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

    def flatten(self, steps: dict[Node, int]) -> Outline:
        items: list[Item] = []
        parent: list[int] = []
        pending = [(number, -1) for number in reversed(self.top)]
        while pending:
            number, above = pending.pop()
            row = len(items)
            items.append(self.items[number])
            parent.append(above)
            pending.extend((child, row) for child in reversed(self.below.get(number, ())))
        return Outline(items, parent, steps)
