"""The rows of a model as a tree: modules with their nodes, which are alike, which are visible, and which values share a storage."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.ir.graph import Graph, Node, Value
from irscope.ir.places import Scope
from irscope.ir.program import Program

if TYPE_CHECKING:
    from irscope.passes.graph.alias import Aliases


# The rows of a model as a tree: modules with their nodes, regions below the nodes that own them. Built once, never changed.

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

    def __init__(self, items: list[Item], parent: Rows, depth: Rows, end: Rows, nodes: Sequence[Node]) -> None:
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
        """Return the row of each node."""
        return {item: row for row, item in enumerate(self.items) if isinstance(item, Node)}

    @cached_property
    def row_of_scope(self) -> dict[Scope, int]:
        """Return the row of each call of a module."""
        return {item.scope: row for row, item in enumerate(self.items) if isinstance(item, Group) and item.scope is not None}

    @cached_property
    def program_order(self) -> Steps:
        """Return the nodes of the main graph as steps."""
        return Steps(self, self.nodes)

    def is_branch(self, row: int) -> bool:
        """Return whether there are rows below."""
        return bool(self.end[row] > row + 1)

    def ancestors(self, row: int) -> Iterator[int]:
        """Yield the rows above, from the nearest to the outermost."""
        above = int(self.parent[row])
        while above >= 0:
            yield above
            above = int(self.parent[above])

    def children(self, row: int) -> Ints:
        """Return the rows directly below a row."""
        ints: Ints = np.flatnonzero(self.parent[row + 1 : int(self.end[row])] == row) + (row + 1)
        return ints

    @cached_property
    def operators(self) -> tuple[Rows, Sequence[str]]:
        """Return the number of each row's operator, -1 for what is no node, and the operators by their numbers."""
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
        self._step[found[known[::-1]]] = known[::-1]  # the first, where a node runs at several
        # What a runtime runs and the model does not name stands where the step before it does.
        before = np.maximum.accumulate(np.where(found >= 0, np.arange(len(found), dtype=np.int32), 0))
        self.rows: Rows = np.maximum(found[before], 0)
        """The row of each step."""

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, step: int) -> int:
        """Return the row of a step; steps before the first or after the last are taken for those."""
        return int(self.rows[min(max(step, 0), len(self) - 1)])

    def step_of(self, node: Node) -> int | None:
        """Return the step of a node; None for one that never runs as a step."""
        row = self._outline.row_of.get(node)
        return int(self._step[row]) if row is not None and self._step[row] >= 0 else None

    def at(self, row: int) -> int | None:
        """Return the step at which a row runs: a module's first, for what is inside a region its owner's; None for what never runs as
        one."""
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
    """Return the rows of a program: its main graph at the top level, then a row for each function."""
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
            [items[number] for number in order], places[held], np.array(depths, dtype=np.int32), np.array(ends, dtype=np.int32), nodes
        )


# Adjacent modules of equal structure, such as the layers of a transformer: folded into one row until expanded.

_LEAST = 3
"""Fewer modules than this stay as they are: two rows say more than one and a number."""


@dataclass(frozen=True, eq=False)
class Folds:
    """Runs of alike modules; the first of each run is its leader."""

    leader: Ints
    """For each run the row of its first module, in order."""
    count: Ints
    end: Ints
    """Behind the last row of the last module."""
    run_of: Ints
    """For each row of a module in a run the number of the run, else -1."""

    def __len__(self) -> int:
        return len(self.leader)

    def members(self, run: int, outline: Outline) -> list[int]:
        """Return the rows of the modules of a run."""
        rows, row = [], int(self.leader[run])
        for _ in range(int(self.count[run])):
            rows.append(row)
            row = int(outline.end[row])
        return rows


def no_folds(outline: Outline) -> Folds:
    """Return the folds of a model in which nothing is folded."""
    nothing = np.zeros(0, dtype=np.int64)
    return Folds(nothing, nothing, nothing, np.full(len(outline), -1, dtype=np.int64))


def find_folds(outline: Outline) -> Folds:
    """Return the runs of a model: modules of one class with the same operators on the same types, whatever their names."""
    shapes = _shapes(outline)
    end, parent = outline.end.tolist(), outline.parent.tolist()
    leaders: list[int] = []
    counts: list[int] = []
    ends: list[int] = []
    run_of = np.full(len(outline), -1, dtype=np.int64)
    for row, item in enumerate(outline.items):
        if not isinstance(item, Group) or item.kind != "module" or run_of[row] >= 0:
            continue
        members, following = [row], end[row]
        while following < len(outline) and shapes[following] == shapes[row] and parent[following] == parent[row]:
            members.append(following)
            following = end[following]
        if len(members) >= _LEAST:
            run_of[members] = len(leaders)
            leaders.append(row)
            counts.append(len(members))
            ends.append(following)
    rows, numbers, behind = (np.array(found, dtype=np.int64) for found in (leaders, counts, ends))
    return Folds(rows, numbers, behind, run_of)


def _shapes(outline: Outline) -> list[int]:
    """Return a number for each row that is equal where two rows are built alike."""
    numbers: dict[Hashable, int] = {}
    inside: dict[int, list[int]] = {}
    shapes = [0] * len(outline)
    parents = outline.parent.tolist()
    for row in range(len(outline) - 1, -1, -1):
        item = outline.items[row]
        below = inside.pop(row, None)
        key: Hashable
        if isinstance(item, Node):
            outputs = item.outputs
            types = id(outputs[0].type) if len(outputs) == 1 else tuple([id(one.type) for one in outputs])
            key = (item.op, len(item.inputs), types, str(item.attrs) if item.attrs else "")
        else:
            key = (item.kind, item.scope.cls if item.scope is not None else item.name)
        if below is not None:
            key = (key, tuple(below))
        shapes[row] = number = numbers.setdefault(key, len(numbers))
        above = parents[row]
        if above >= 0:
            inner = inside.get(above)
            if inner is None:
                inside[above] = [number]
            else:
                inner.append(number)
    return shapes


# Which rows of an outline are visible: expanding, collapsing and filtering are array operations, no row is ever rebuilt.

Mask: TypeAlias = NDArray[np.bool_]
_MOST_TRIED = 8
"""Modules that are found to have no room before the others are left closed."""
_FIRST_ROWS = 40
"""As far as so many rows a model is opened until it is known how many there is room for."""


class TreeModel:
    """The visible rows. While a filter is set, what it matches is shown with the rows above, and has its own expansion."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        following: Rows = np.arange(1, len(outline) + 1, dtype=np.int32)
        self._below: Rows = outline.end - following
        self._collapsed: Mask = self._below > 0
        self._unfiltered = self._collapsed
        self._matches: Mask | None = None
        self._kept: Mask | None = None
        self.folds: Folds = no_folds(outline)
        self._folded: Mask = np.zeros(0, dtype=np.bool_)
        """The runs of alike modules that are shown as one row."""
        self.visible: Ints = np.zeros(0, dtype=np.int64)
        """Rows of the outline that are shown, in order."""
        self._merge()
        self._fitted: tuple[int, int] | None = None
        self._is_touched = False
        """True where somebody has opened or closed something: the open rows then stay as they are."""
        self.fit(_FIRST_ROWS)

    def __len__(self) -> int:
        return len(self.visible)

    def row(self, index: int) -> int:
        """Return the row of the outline that is shown at an index."""
        return int(self.visible[index])

    def index(self, row: int) -> int:
        """Return where a row is shown; for one that is not, the nearest shown row above it in the list, 0 if there is none."""
        return max(0, int(np.searchsorted(self.visible, row, side="right")) - 1)

    def is_visible(self, row: int) -> bool:
        """Return whether a row is shown."""
        return bool(len(self)) and self.row(self.index(row)) == row

    def is_expanded(self, row: int) -> bool:
        """Return whether the rows below a row are shown with it."""
        return not self._collapsed[row] and not self.is_folded(row)

    def is_match(self, row: int) -> bool:
        """Return whether the filter matches a row, rather than a row below it."""
        return self._matches is not None and bool(self._matches[row])

    def matching(self) -> Mask:
        """Return which of the rows that are shown the filter matches."""
        return np.ones(len(self), dtype=np.bool_) if self._matches is None else self._matches[self.visible]

    @property
    def matches(self) -> int | None:
        """Return the number of rows that the filter matches, None without a filter."""
        return None if self._matches is None else int(self._matches.sum())

    def toggle(self, row: int) -> None:
        """Expand a collapsed row, collapse an expanded one; rows with nothing below stay as they are."""
        self.set_expanded(row, not self.is_expanded(row))

    def set_expanded(self, row: int, expanded: bool) -> None:
        """Show or hide the rows below a row; what stands for several modules alike shows these first."""
        self._is_touched = True
        if self.is_folded(row):
            if expanded:
                self._folded[self.folds.run_of[row]] = False
                self._update()
        elif self._below[row] > 0 and self.is_expanded(row) != expanded:
            self._collapsed[row] = not expanded
            self._update()

    def expand_all(self) -> None:
        """Show everything."""
        self._is_touched = True
        self._collapsed[:] = False
        self._folded[:] = False
        self._update()

    def collapse_all(self) -> None:
        """Show the top level only."""
        self._is_touched = True
        np.greater(self._below, 0, out=self._collapsed)
        self._folded[:] = True
        self._update()

    def reveal(self, row: int) -> None:
        """Expand what hides a row; a filter that leaves the row out is dropped."""
        if self._kept is not None and not self._kept[row]:
            self.set_filter(None)
        above = list(self.outline.ancestors(row))
        self._is_touched |= bool(self._collapsed[above].any())
        self._collapsed[above] = False
        for one in (row, *above):
            run = int(self.folds.run_of[one])
            # The first of a run may be selected while it stands for all of them.
            if run >= 0 and not (one == row and row == self.folds.leader[run]):
                self._folded[run] = False
        self._update()

    def fit(self, rows: int) -> None:
        """Open modules as far as their rows have room, level by level, then one by one. What somebody has opened stays as it is."""
        if self._is_touched or self._matches is not None or self._fitted == (rows, id(self.folds)):
            return
        self._fitted = (rows, id(self.folds))
        depth = self.outline.depth
        deepest = int(depth.max(initial=0))
        np.greater(self._below, 0, out=self._collapsed)
        self._update()
        for level in range(deepest):
            before = self._collapsed.copy()
            # Of modules alike the first is opened when somebody wants to see them all.
            self._collapsed[(depth == level) & (self.folds.run_of < 0)] = False
            self._update()
            if len(self) > rows:
                self._collapsed[:] = before
                self._update()
                break
        else:
            return
        failed = 0
        for row in self.visible.tolist():
            if not self._collapsed[row] or self.folds.run_of[row] >= 0:
                continue
            self._collapsed[row] = False
            self._update()
            if len(self) > rows:
                self._collapsed[row] = True
                self._update()
                failed += 1
            if failed > _MOST_TRIED or len(self) >= rows:
                break

    def _merge(self) -> None:
        """Find the modules that hold one node and nothing else: they and the node are one row, that of the node."""
        outline = self.outline
        rows = np.arange(len(outline), dtype=np.int32)
        leaf = outline.end - 1
        is_node = outline.operators[0] >= 0
        single = ~is_node & (leaf > rows) & is_node[leaf] & (outline.depth[leaf] - outline.depth == leaf - rows) & (self.folds.run_of < 0)
        single &= np.array([isinstance(item, Group) and item.kind == "module" for item in outline.items], dtype=np.bool_)
        # A run of modules alike may stand between; then nothing above it is one row with the node.
        in_run = np.concatenate(([0], np.cumsum(self.folds.run_of >= 0)))
        single &= in_run[leaf] == in_run[rows]
        self._merged: Mask = single
        top = rows.copy()
        np.minimum.at(top, leaf[single], rows[single])
        self._top: Rows = top

    def top_of(self, row: int) -> int:
        """Return the outermost of the modules that stand in one row with a node; the row itself where there is none."""
        return int(self._top[row])

    def row_for(self, row: int) -> int:
        """Return the row that is shown for a row: of a module with one node that node's."""
        return int(self.outline.end[row]) - 1 if self._merged[row] else row

    def above(self, row: int) -> int:
        """Return the row above in the tree as it is shown, -1 at the top."""
        return int(self.outline.parent[self.top_of(row)])

    def set_folds(self, folds: Folds) -> None:
        """Show each of these runs as one row."""
        self.folds, self._folded = folds, np.ones(len(folds), dtype=np.bool_)
        self._merge()
        # Opened, a run shows its modules, not all that is in them.
        self._unfiltered[(folds.run_of >= 0) & (self._below > 0)] = True
        self._update()

    def is_folded(self, row: int) -> bool:
        """Return whether a row stands for several modules alike."""
        run = int(self.folds.run_of[row])
        return run >= 0 and self._kept is None and bool(self._folded[run]) and int(self.folds.leader[run]) == row

    def alike(self, row: int) -> list[int]:
        """Return the modules that a folded row stands for; nothing for other rows."""
        return self.folds.members(int(self.folds.run_of[row]), self.outline) if self.is_folded(row) else []

    def fold(self, row: int) -> int | None:
        """Show the run that a module belongs to as one row again; the row that stands for it, None where there is no run."""
        run = int(self.folds.run_of[row])
        if run < 0 or self._folded[run] or self._kept is not None:
            return None
        self._folded[run] = True
        self._update()
        return int(self.folds.leader[run])

    def set_filter(self, matches: Mask | None) -> None:
        """Show only the rows that match and those above them; None shows all again, expanded as before."""
        if matches is None:
            if self._matches is not None:
                self._collapsed = self._unfiltered
            self._matches = self._kept = None
        else:
            if self._matches is None:
                self._unfiltered = self._collapsed
            self._collapsed = np.zeros(len(self.outline), dtype=np.bool_)
            self._matches = matches
            before = np.concatenate(([0], np.cumsum(matches)))
            self._kept = before[self.outline.end] > before[:-1]
        self._update()

    def _update(self) -> None:
        count = len(self.outline)
        closed = np.flatnonzero(self._collapsed & (self._below > 0) & ~self._merged)
        starts = np.bincount(closed + 1, minlength=count + 1)
        ends = np.bincount(self.outline.end[closed], minlength=count + 1)
        if self._kept is None and len(self.folds):
            starts += np.bincount(self.folds.leader[self._folded] + 1, minlength=count + 1)
            ends += np.bincount(self.folds.end[self._folded], minlength=count + 1)
        shown = (np.cumsum(starts - ends)[:count] == 0) & ~self._merged
        self.visible = np.flatnonzero(shown if self._kept is None else shown & self._kept)


# Which values share a storage: views, and what writes into it.


class AliasSets:
    """The values of each storage that more than one value has."""

    def __init__(self, outline: Outline, aliases: Aliases) -> None:
        self._outline = outline
        self._found = aliases
        self._members: dict[Value, list[Value]] = {}
        for value in list(aliases.parents):
            self._members.setdefault(aliases.storage(value), []).append(value)

    def storage(self, value: Value) -> Value:
        """Return the value that defines a value's storage."""
        return self._found.storage(value)

    def others(self, value: Value) -> Sequence[Value]:
        """Return other values of the same storage, its definition first."""
        storage = self._found.storage(value)
        members = self._members.get(storage, ())
        return [one for one in (storage, *members) if one is not value] if members else ()

    def rows_of(self, values: Iterable[Value]) -> list[int]:
        """Return the rows of the nodes whose results share a storage with one of these values."""
        row_of = self._outline.row_of
        rows = {row_of[one.node] for value in values for one in (value, *self.others(value)) if one.node is not None}
        return sorted(rows)


def writes_in_place(node: Node) -> bool:
    """Return whether a node writes into one of its inputs."""
    return "inplace" in node.attrs
