"""A program as boxes within boxes, for drawings that fold: nodes inside modules inside modules, and what flows between them.

`BoxTree.of(program)` makes the tree; `contents(group)` tells what a group shows when it is open: its children, the ports where values
enter and leave it, what runs between them, and the layers of all that (`irscope.report.layered`). Contents do not depend on what else is
open. `scene` places the visible boxes for a drawing: points of a picture or columns of a terminal, as its `Measure` says.
"""

from __future__ import annotations

import enum
import math
import re
from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby, islice
from typing import Final, NamedTuple, overload

from irscope.immutable import immutable
from irscope.ir.dims import Dim, total_of
from irscope.ir.graph import WEIGHT_ROLES, Graph, Node, Value
from irscope.ir.places import Scope, path_key
from irscope.ir.program import Program
from irscope.report.layered import Layers, Link, Segment, columns, layers_of
from irscope.report.names import span_name

MOST_CHILDREN: Final = 48
"""A group with more members gets sections of consecutive ones: no screen shows more, and layouts stay small."""
_SECTION: Final = 24
_MOST_ENDS: Final = 12
"""So many inputs and outputs stay outside of sections."""
_LEAST_ALIKE: Final = 3
"""So many modules alike beside one another are one box: two say more than one and a number."""
_DEEPEST: Final = 48
"""Modules nested deeper than this are shown on this level: a hostile file may nest thousands."""
_SEPARATOR: Final = re.compile(r"[./]")
READABLE: Final = 60
"""Boxes that a picture shows unless more are asked for."""


class BoxKind(enum.Enum):
    """Kinds of boxes."""

    MODEL = "model"
    MODULE = "module"
    SECTION = "section"
    """Consecutive members of a module that has many."""
    ALIKE = "alike"
    """Modules beside one another that are built alike, such as layers."""
    NODE = "node"
    """An operation; one with regions is a group."""
    REGION = "region"
    INPUT = "input"
    """An input of the model or of a region."""
    OUTPUT = "output"


@dataclass(slots=True)
class Box:
    """One box. Groups have children."""

    number: int
    kind: BoxKind
    name: str
    """Name shown on it: a module's name within the box around it, or a node's name."""
    detail: str
    """A module's class, how many of which class are alike, a node's operator."""
    parent: int
    """-1 for the model."""
    node: Node | None = None
    value: Value | None = None
    scope: Scope | None = None
    children: Sequence[int] = ()
    """Most boxes have none and share one empty tuple."""
    leaves: int = 1
    """Operations inside it, or 1 for what holds none."""

    @property
    def is_group(self) -> bool:
        return bool(self.children)


class Flow(NamedTuple):
    """A value that goes from one box to another."""

    value: Value
    source: int
    target: int


class Flows(Sequence[Flow]):
    """All flows, as columns: of a large model there are more than nodes."""

    def __init__(self, flows: Iterable[tuple[Value, int, int]]) -> None:
        self._values: list[Value] = []
        self._sources, self._targets = array("i"), array("i")
        for value, source, target in flows:
            self._values.append(value)
            self._sources.append(source)
            self._targets.append(target)

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, number: int) -> Flow: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Flow]: ...
    def __getitem__(self, number: int | slice) -> Flow | Sequence[Flow]:
        if isinstance(number, slice):
            return list(self)[number]
        return Flow(self._values[number], self._sources[number], self._targets[number])

    def __iter__(self) -> Iterator[Flow]:
        return map(Flow, self._values, self._sources, self._targets)


class Lane(NamedTuple):
    """A line for everything that flows from one member of a group to another."""

    source: int
    """Place among the members: children, then entries, then exits."""
    target: int
    trunk: int
    values: tuple[Value, ...]


@immutable(slots=False)
class Contents:
    """Contents of an open group."""

    children: tuple[int, ...]
    """Numbers of boxes."""
    entries: tuple[int, ...]
    """Ports at the upper border: for each, the member of the group around this one that the values come from."""
    exits: tuple[int, ...]
    """Ports at the lower border: for each, the trunk of the group around this one that goes on from it."""
    lanes: tuple[Lane, ...]
    layers: Layers
    """Of children, then entries, then exits."""
    trunks: Mapping[tuple[int, int], int] = field(repr=False)
    """Trunk of `layers` for each (member, trunk) of the lanes."""
    flows: Mapping[int, tuple[tuple[int, int, int], ...]] = field(repr=False)
    """For each child that is a group, what passes its border: the flow, the member it comes from or -1, the trunk it leaves by or -1."""


class BoxTree:
    """All boxes of a program, and what flows between them."""

    def __init__(self) -> None:
        self.boxes: list[Box] = []
        self.flows = Flows(())
        self._depth: list[int] = []
        self._contents: dict[int, Contents] = {}

    @classmethod
    def of(
        cls,
        program: Program,
        keep: Collection[Node] | None = None,
        *,
        order: Callable[[Node], int] | None = None,
        is_single: Callable[[Scope], bool] = lambda scope: True,
    ) -> BoxTree:
        """Return the boxes of a program, or of some of its nodes alone. With `order`, where each stands in the program, the others are not
        looked at; `is_single` tells which of the modules with one member have only that in the program, and are drawn as it.
        """
        tree = cls()
        builder = _Builder(tree, None if keep is None else set(keep))
        if keep is not None and order is not None:
            for node in sorted(keep, key=order):
                builder.kept_of.setdefault(node.graph, []).append(node)
        builder.body(program.graph, tree._add(BoxKind.MODEL, "model", "", -1), program.root)
        tree._finish(builder, is_single, folds=keep is None)
        return tree

    def _add(self, kind: BoxKind, name: str, detail: str, parent: int, **more: object) -> int:
        number = len(self.boxes)
        self.boxes.append(Box(number, kind, name, detail, parent, **more))  # type: ignore[arg-type]  # fields of a box
        if parent >= 0:
            around = self.boxes[parent]
            if isinstance(around.children, list):
                around.children.append(number)
            else:
                around.children = [*around.children, number]
        return number

    def _group(self, kind: BoxKind, name: str, detail: str, around: Box, members: Sequence[int]) -> None:
        """Put some members of a group into one within it."""
        number = self._add(kind, name, detail, around.number)
        self.boxes[number].children = members
        for member in members:
            self.boxes[member].parent = number

    def _finish(self, builder: _Builder, is_single: Callable[[Scope], bool], *, folds: bool) -> None:
        where = _merged(self, is_single)
        if folds:
            _fold_alike(self)
        _cut_into_sections(self)
        _number_anew(self, where)
        for box in reversed(self.boxes):
            if box.children:
                box.leaves = sum(self.boxes[child].leaves for child in box.children)
        self._depth = [0] * len(self.boxes)
        for box in self.boxes[1:]:
            self._depth[box.number] = self._depth[box.parent] + 1
        pairs = [(value, where[source], where[target]) for value, source, target in builder.flows]
        self.flows = Flows(pair for pair in dict.fromkeys(pairs) if pair[1] != pair[2])

    # -- folding ----------------------------------------------------------------------------------------------

    def visible(self, opened: Collection[int]) -> Iterator[Box]:
        """Boxes that are shown, outer before inner: the members of open groups."""
        todo = [0]
        while todo:
            box = self.boxes[todo.pop()]
            yield box
            if box.number in opened:
                todo.extend(reversed(box.children))

    def opened_to(self, depth: int) -> set[int]:
        """Return the groups to open so that modules are shown down to a depth; 0 opens the model alone."""
        return {box.number for box in self.boxes if box.is_group and self._depth[box.number] <= depth}

    def groups_by_depth(self) -> list[set[int]]:
        """Return the groups of each depth."""
        groups: list[set[int]] = []
        for box in self.boxes:
            if box.is_group:
                depth = self._depth[box.number]
                groups.extend(set() for _ in range(depth + 1 - len(groups)))
                groups[depth].add(box.number)
        return groups

    def around(self, number: int) -> set[int]:
        """Return the groups that are around a box."""
        found: set[int] = set()
        while (number := self.boxes[number].parent) >= 0:
            found.add(number)
        return found

    def readable(self, most: int = READABLE) -> tuple[set[int], int]:
        """Return the groups to open so that as many levels as possible are shown in so many boxes, and the depth that is."""
        closed: set[int] = set()  # modules alike, and what is in them: whoever wants to see each opens them
        counts: dict[int, int] = {}
        for box, depth in zip(self.boxes, self._depth, strict=True):
            if box.parent in closed:
                closed.add(box.number)
            else:
                counts[depth] = counts.get(depth, 0) + 1
                closed.update([box.number] if box.kind is BoxKind.ALIKE else [])
        shown, level = counts.get(1, 0), 0
        while counts.get(level + 2, 0) and shown + counts[level + 2] <= most:
            level += 1
            shown += counts[level + 1]
        return self.opened_to(level) - closed, level

    @property
    def deepest(self) -> int:
        """Return the depth that shows everything."""
        return max((self._depth[box.number] for box in self.boxes if box.is_group), default=0)

    # -- what an open group shows --------------------------------------------------------------------------

    def contents(self, group: int) -> Contents:
        """Return what a group shows when it is open."""
        missing = []
        while group not in self._contents:
            missing.append(group)
            group = self.boxes[group].parent
            if group < 0:
                break
        for one in reversed(missing):
            self._contents[one] = self._contents_of(one)
        return self._contents[missing[0] if missing else group]

    def _inner_flows(self, group: int) -> list[tuple[int, int, int]]:
        """Flows with an end inside the group: number, the member of the group around it that they come from, the trunk they leave by."""
        parent = self.boxes[group].parent
        passing = list(self._contents[parent].flows.get(group, ())) if parent >= 0 else []
        return [*((flow, -1, -1) for flow in self._own_flows.get(group, ())), *passing]

    @cached_property
    def _own_flows(self) -> Mapping[int, list[int]]:
        """Flows by the innermost group that holds both ends."""
        flows: dict[int, list[int]] = {}
        for number, flow in enumerate(self.flows):
            flows.setdefault(self._common(flow.source, flow.target), []).append(number)
        return flows

    def _common(self, a: int, b: int) -> int:
        """Return the innermost group around both boxes; a group is around what flows from it to its own members."""
        boxes, depth = self.boxes, self._depth
        a, b = boxes[a].parent, boxes[b].parent
        while a != b:
            if depth[a] >= depth[b]:
                a = boxes[a].parent
            else:
                b = boxes[b].parent
        return a

    def _member(self, box: int, group: int) -> int:
        """Return the child of the group that holds a box, or is it."""
        while self.boxes[box].parent != group:
            box = self.boxes[box].parent
        return box

    def _contents_of(self, group: int) -> Contents:
        children = tuple(self.boxes[group].children)
        place = {child: at for at, child in enumerate(children)}
        passing = self._inner_flows(group)
        entries = list(dict.fromkeys(origin for _, origin, _ in passing if origin >= 0))
        exits = list(dict.fromkeys(trunk for _, _, trunk in passing if trunk >= 0))
        entry_at = {origin: len(children) + at for at, origin in enumerate(entries)}
        exit_at = {trunk: len(children) + len(entries) + at for at, trunk in enumerate(exits)}
        between: dict[tuple[int, int], list[int]] = {}
        for flow, origin, trunk in passing:
            source = entry_at[origin] if origin >= 0 else place[self._member(self.flows[flow].source, group)]
            target = exit_at[trunk] if trunk >= 0 else place[self._member(self.flows[flow].target, group)]
            between.setdefault((source, target), []).append(flow)
        lanes: list[Lane] = []
        by_lane: list[list[int]] = []
        trunk_of: dict[tuple[int, tuple[Value, ...]], int] = {}
        for (source, target), flows in sorted(between.items()):
            values = tuple(dict.fromkeys(self.flows[flow].value for flow in flows))
            trunk = trunk_of.setdefault((source, values), len(trunk_of))
            lanes.append(Lane(source, target, trunk, values))
            by_lane.append(flows)
        count = len(children) + len(entries) + len(exits)
        links = [Link(lane.source, lane.target, lane.trunk) for lane in lanes]
        layers = layers_of(count, links, tuple(entry_at.values()), tuple(exit_at.values()))
        trunks: dict[tuple[int, int], int] = {}
        for link in dict.fromkeys(links):
            trunks.setdefault((link.source, link.trunk), len(trunks))
        return Contents(children, tuple(entries), tuple(exits), tuple(lanes), layers, trunks, self._borders(children, lanes, by_lane))

    def _borders(
        self, children: Sequence[int], lanes: Sequence[Lane], by_lane: Sequence[Sequence[int]]
    ) -> Mapping[int, tuple[tuple[int, int, int], ...]]:
        """Return what passes the border of each child that is a group."""
        found: dict[int, dict[tuple[int, int, int], None]] = {}
        for lane, flows in zip(lanes, by_lane, strict=True):
            for flow in flows:
                _, source, target = self.flows[flow]
                # An end that is the group itself, an operation with regions, is at its border and not inside.
                if lane.target < len(children) and (child := children[lane.target]) != target and self.boxes[child].children:
                    found.setdefault(child, {})[flow, lane.source, -1] = None
                if lane.source < len(children) and (child := children[lane.source]) != source and self.boxes[child].children:
                    found.setdefault(child, {})[flow, -1, lane.trunk] = None
        # A value that several places outside read leaves a group once.
        return {child: tuple(self._once(passing)) for child, passing in found.items()}

    def _once(self, passing: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
        seen: set[tuple[Value, int, int, int]] = set()
        for flow, origin, trunk in passing:
            value, source, target = self.flows[flow]
            key = (value, source if trunk >= 0 else target, origin, trunk)
            if key not in seen:
                seen.add(key)
                yield flow, origin, trunk


def nodes_near(start: Iterable[Node], hops: int, graph: Graph, most: int | None = None) -> list[Node]:
    """Return the nodes of a graph that are at most so many edges away from some, with what is inside their regions; no more than `most` if
    given.
    """
    found = dict.fromkeys(one for one in (outermost(node, graph) for node in start) if one is not None)
    edge = list(found)
    for _ in range(hops):
        reached: dict[Node, None] = {}
        for node in edge:
            reads = [value for one in (node, *(inner for region in node.regions for inner in region.walk())) for value in one.inputs]
            reached.update((value.node, None) for value in reads if value is not None and value.node is not None)
            users = (user for output in node.outputs for user in output.users or () if isinstance(user, Node))
            reached.update((user, None) for user in islice(users, most))
        edge = [one for one in dict.fromkeys(outermost(node, graph) for node in reached) if one is not None and one not in found]
        edge = edge if most is None else edge[: max(most - len(found), 0)]
        found.update(dict.fromkeys(edge))
    return [*found, *(one for node in found for region in node.regions for one in region.walk())]


def outermost(node: Node, graph: Graph) -> Node | None:
    """Return the node of a graph that holds a node, or is it."""
    at: Node | None = node
    while at is not None and at.graph is not graph:
        at = at.graph.owner if at.graph is not None else None
    return at


class _Builder:
    """Boxes for the nodes of a program, module by module."""

    def __init__(self, tree: BoxTree, keep: set[Node] | None) -> None:
        self.tree = tree
        self.keep = keep
        self.flows: list[tuple[Value, int, int]] = []
        self.made: dict[Value, int] = {}
        """Source of each value."""
        self.modules: dict[tuple[int, Scope], int] = {}
        self.kept_of: dict[Graph | None, list[Node]] = {}
        """The nodes to keep by the graph they are in, where that is known beforehand."""

    def body(self, graph: Graph, box: int, base: Scope) -> None:
        """Return the nodes of a graph and of its regions, the regions after what is around them."""
        todo = [(graph, box, base)]
        reads: list[tuple[Value, int]] = []
        for graph, box, base in todo:  # grows while it is walked
            add = self.tree._add
            for value in graph.inputs:
                if self._is_kept(value):
                    self.made[value] = add(BoxKind.INPUT, value.name or "input", "input", box, value=value)
            for node in self.kept_of.get(graph, ()) if self.kept_of else graph:
                if self.keep is not None and node not in self.keep:
                    continue
                number = add(BoxKind.NODE, node.name, node.op, self._module(box, node.scope, base), node=node, scope=node.scope)
                reads += [(value, number) for value in node.inputs if value is not None]
                for value in node.outputs:
                    self.made[value] = number
                for region in node.regions:
                    inner = number if len(node.regions) == 1 else add(BoxKind.REGION, region.name, "region", number)
                    todo.append((region, inner, node.scope))
            for value in dict.fromkeys(graph.outputs):
                if self._is_kept(value) and (self.keep is None or value in self.made):
                    reads.append((value, add(BoxKind.OUTPUT, value.name or "output", "output", box, value=value)))
        self.flows = [(value, self.made[value], number) for value, number in reads if value in self.made]

    def _is_kept(self, value: Value) -> bool:
        if self.keep is None:
            return True
        return value.node in self.keep or any(isinstance(user, Node) and user in self.keep for user in value.users or ())

    def _module(self, box: int, scope: Scope, base: Scope) -> int:
        """Return the box of a module call, made with those around it when it is new."""
        missing: list[Scope] = []
        at: Scope | None = scope
        while at is not None and at is not base and at.parent is not None and (box, at) not in self.modules:
            missing.append(at)
            at = at.parent
        module = self.modules.get((box, at), box) if at is not None else box
        for one in reversed(missing[-_DEEPEST:]):
            name = f"{one.name}#{one.call}" if one.call else one.name
            module = self.tree._add(BoxKind.MODULE, name, one.cls, module, scope=one)
            self.modules[box, one] = module
        for one in missing[:-_DEEPEST]:
            self.modules[box, one] = module
        return module


def _merged(tree: BoxTree, is_single: Callable[[Scope], bool]) -> list[int]:
    """Take out modules with one member: the member has its name too. Returns for each box the one that stands for it."""
    boxes = tree.boxes
    where = list(range(len(boxes)))
    for box in reversed(boxes[1:]):
        if box.kind is not BoxKind.MODULE or len(box.children) != 1 or (box.scope is not None and not is_single(box.scope)):
            continue
        # Inner boxes come later, so that they were merged before.
        child = boxes[where[box.children[0]]]
        if child.kind is BoxKind.MODULE:
            child.name = f"{box.name}/{child.name}"
        elif child.kind is BoxKind.NODE:
            child.name = box.name
        where[box.number] = child.number
        box.children = ()
    for box in boxes:
        if box.children:
            box.children = [where[child] for child in box.children]
        for one in box.children:
            boxes[one].parent = box.number
    return where


def _fold_alike(tree: BoxTree) -> None:
    """Put modules beside one another that are built alike into a group: as long as it is closed, they are one box with their number."""
    shapes: dict[int, int] = {}
    numbers: dict[Hashable, int] = {}
    around = list(tree.visible(range(len(tree.boxes))))
    for box in reversed(around):
        key = (box.kind, box.detail, tuple([shapes[child] for child in box.children]))
        shapes[box.number] = numbers.setdefault(key, len(numbers))
    for box in around:
        children, box.children = box.children, ()
        for _, run in groupby(children, shapes.__getitem__):
            members = list(run)
            first, last = tree.boxes[members[0]], tree.boxes[members[-1]]
            if len(members) < _LEAST_ALIKE or first.kind is not BoxKind.MODULE:
                box.children = [*box.children, *members]
            else:
                tree._group(BoxKind.ALIKE, span_name(first.name, last.name), f"{len(members)} {first.detail or 'alike'}", box, members)


def _cut_into_sections(tree: BoxTree) -> None:
    """Give groups with very many members sections of consecutive ones, and those sections of their own. Modules alike stay outside."""
    for box in list(tree.boxes):
        ends = [child for child in box.children if tree.boxes[child].value is not None]
        ends = ends if len(ends) <= _MOST_ENDS else []
        alike = {child for child in box.children if tree.boxes[child].kind is BoxKind.ALIKE}
        count = sum(len(tree.boxes[child].children) if child in alike else 1 for child in box.children)
        while count - len(ends) > MOST_CHILDREN:
            members, box.children = [child for child in box.children if child not in ends], ()
            for is_alike, stretch in groupby(members, alike.__contains__):
                _cut_stretch(tree, box, list(stretch), is_whole=is_alike)
            # What goes in and comes out is shown where it is few.
            before = [child for child in ends if tree.boxes[child].kind is BoxKind.INPUT]
            box.children = [*before, *box.children, *(child for child in ends if child not in before)]
            alike, count = set(), len(box.children)


def _cut_stretch(tree: BoxTree, box: Box, members: Sequence[int], *, is_whole: bool) -> None:
    """Give a group sections of these members of it, or all of them as they are."""
    count = -(-len(members) // _SECTION)
    if is_whole or len(members) < 2:
        box.children = [*box.children, *members]
        return
    for at in range(count):
        part = members[at * len(members) // count : (at + 1) * len(members) // count]
        first, last = tree.boxes[part[0]], tree.boxes[part[-1]]
        tree._group(BoxKind.SECTION, f"{first.name.split(' … ')[0]} … {last.name.split(' … ')[-1]}", "section", box, part)


def _number_anew(tree: BoxTree, where: list[int]) -> None:
    """Number the boxes that are left in the order in which they are drawn, outer before inner."""
    order = [box.number for box in tree.visible(range(len(tree.boxes)))]
    number = {old: new for new, old in enumerate(order)}
    boxes = [tree.boxes[old] for old in order]
    for box in boxes:
        box.number = number[box.number]
        box.parent = number.get(box.parent, -1)
        if box.children:
            box.children = tuple([number[child] for child in box.children])
    tree.boxes = boxes
    where[:] = [number.get(place, 0) for place in where]


@immutable(slots=False)
class Measure:
    """Sizes of things, in the unit of a drawing."""

    width: Callable[[Box], float]
    """Of a folded box, or of the heading of an open one."""
    height: float
    """Of a folded box."""
    heading: float
    """Between the upper border of an open group and what is in it."""
    gap: float
    """Between neighbours."""
    rows: float
    """Between layers."""
    border: float
    """Around what is in an open group."""
    bend: float = 2.0
    turns: Callable[[Sequence[tuple[float, float]]], float] | None = None
    """The room that lines between two layers need to turn, told where each begins and ends; with it everything stands on whole columns, and
    widths are odd. Without it `rows` is room enough."""


class Placed(NamedTuple):
    """A box in a drawing."""

    box: Box
    left: float
    top: float
    width: float
    height: float
    is_open: bool


class Line(NamedTuple):
    """A part of an edge: down from a box or bend, through the space between two layers, down to a box or past it."""

    points: tuple[tuple[float, float], ...]
    """Points at which it begins, leaves its layer, enters the next one, and ends."""
    values: tuple[Value, ...]
    has_head: bool
    """It ends at a box, not at a bend or a port."""
    has_label: bool
    """It is where the values come from."""
    is_back: bool
    gap: tuple[int, int]
    """The group, and the layer below which it turns."""


@immutable(slots=False)
class Scene:
    """Everything that is visible, placed; outer boxes before inner ones."""

    boxes: list[Placed]
    lines: list[Line]
    width: float
    height: float


@dataclass
class _Room:
    """An open group with its members placed within it."""

    contents: Contents
    middle: list[float] = field(default_factory=list)
    top: list[float] = field(default_factory=list)
    """Of each layer."""
    deep: list[float] = field(default_factory=list)
    """The height of each layer."""
    width: float = 0.0
    height: float = 0.0


def scene(tree: BoxTree, opened: Collection[int], measure: Measure) -> Scene:
    """Return the visible boxes and the lines between them."""
    order = [box.number for box in tree.visible(opened) if box.number in opened and box.is_group]
    rooms = {group: _Room(tree.contents(group)) for group in order}
    for group in reversed(order):
        _lay_out(rooms[group], tree, rooms, measure, tree.boxes[group])
    boxes: list[Placed] = []
    lines: list[Line] = []
    left = {0: 0.0}
    top = {0: 0.0}
    for group in order:
        room = rooms[group]
        boxes.append(Placed(tree.boxes[group], left[group], top[group], room.width, room.height, True))
        for at, child in enumerate(room.contents.children):
            wide, high = _size(tree.boxes[child], rooms, measure)
            layer = room.contents.layers.layer[at]
            left[child] = left[group] + room.middle[at] - wide / 2
            top[child] = top[group] + room.top[layer] + (room.deep[layer] - high) / 2
            if child not in rooms:
                boxes.append(Placed(tree.boxes[child], left[child], top[child], wide, high, False))
        lines += _lines(room, tree, rooms, left, top, group, measure)
    whole = rooms.get(0)
    return Scene(boxes, lines, whole.width if whole else 0.0, whole.height if whole else 0.0)


def _size(box: Box, rooms: Mapping[int, _Room], measure: Measure) -> tuple[float, float]:
    room = rooms.get(box.number)
    return (measure.width(box), measure.height) if room is None else (room.width, room.height)


def _port(room: _Room, rooms: Mapping[int, _Room], member: int, *, entry: int = -1, exit: int = -1) -> float:
    """Return how far from the middle of a member a line begins or ends: at a port where the member is open."""
    children = room.contents.children
    inner = rooms.get(children[member]) if member < len(children) else None
    if inner is None:
        return 0.0
    contents = inner.contents
    if entry in contents.entries:
        return inner.middle[len(contents.children) + contents.entries.index(entry)] - inner.width / 2
    if exit in contents.exits:
        return inner.middle[len(contents.children) + len(contents.entries) + contents.exits.index(exit)] - inner.width / 2
    return 0.0


def _origins(contents: Contents) -> dict[int, tuple[int, int]]:
    """Return for each trunk of the layers the (member, trunk) of the lanes."""
    return {number: key for key, number in contents.trunks.items()}


def _lay_out(room: _Room, tree: BoxTree, rooms: Mapping[int, _Room], measure: Measure, box: Box) -> None:
    """Place the members of a group within it; groups inside it have been."""
    contents, layers = room.contents, room.contents.layers
    sizes = [_size(tree.boxes[child], rooms, measure) for child in contents.children]
    ports = layers.count - len(sizes)
    origins = _origins(contents)

    def shift(segment: Segment) -> tuple[float, float]:
        source, trunk = origins[segment.trunk]
        begin = _port(room, rooms, segment.upper, exit=trunk) if segment.upper == source else 0.0
        return begin, _port(room, rooms, segment.lower, entry=source) if segment.lower < layers.count else 0.0

    middle = columns(layers, [*(wide for wide, _ in sizes), *([measure.bend] * ports)], measure.gap, measure.bend, shift)
    if measure.turns is not None:
        middle = [math.floor(at) + 0.5 for at in middle]
    width = [*(wide for wide, _ in sizes), *([measure.bend] * (len(middle) - len(sizes)))]
    inner = max((at + wide / 2 for at, wide in zip(middle, width, strict=True)), default=0.0)
    room.width = max(inner + 2 * measure.border, measure.width(box))
    spare = (room.width - inner) / 2
    if measure.turns is not None:
        room.width += 1 - room.width % 2
        spare = (room.width - inner) // 2
    room.middle = [at + spare for at in middle]
    turns = _turns(room, _spread_segments(room, tree, rooms, origins, measure), measure)
    y = measure.heading
    for at, row in enumerate(layers.rows):
        high = max((sizes[number][1] for number in row if number < len(sizes)), default=0.0)
        is_port = all(number >= len(sizes) and number < layers.count for number in row)
        # Ports lie on the border itself.
        room.top.append(0.0 if is_port and not room.top else y)
        room.deep.append(0.0 if is_port else high)
        # From ports at the upper border the heading is room enough for lines to turn.
        y += (measure.border if is_port and len(room.top) == 1 else high + measure.rows) + turns[at]
    room.height = y - measure.rows + measure.border if layers.rows else measure.heading + measure.border
    if contents.exits:
        room.height = y - measure.rows
        room.top[-1] = room.height


def _turns(room: _Room, spread: Sequence[tuple[float, float]], measure: Measure) -> list[float]:
    """Return the room below each layer in which lines turn."""
    layers = room.contents.layers
    turns = [0.0] * len(layers.rows)
    if measure.turns is None:
        return turns
    between: dict[int, list[tuple[float, float]]] = {}
    for segment, (begin, end) in zip(layers.segments, spread, strict=True):
        between.setdefault(layers.layer[segment.upper], []).append((room.middle[segment.upper] + begin, room.middle[segment.lower] + end))
    for at, lines in between.items():
        turns[at] = measure.turns(lines)
    if room.contents.exits and len(turns) > 1:
        # The border itself.
        turns[-2] += measure.border
    return turns


def _lines(
    room: _Room,
    tree: BoxTree,
    rooms: Mapping[int, _Room],
    left: Mapping[int, float],
    top: Mapping[int, float],
    group: int,
    measure: Measure,
) -> Iterator[Line]:
    """Yield the lines within a group."""
    contents, layers = room.contents, room.contents.layers
    count, children = layers.count, contents.children
    origins = _origins(contents)
    values: dict[tuple[int, int], tuple[Value, ...]] = {(lane.source, lane.trunk): lane.values for lane in contents.lanes}
    dx, dy = left[group], top[group]
    spread = _spread_segments(room, tree, rooms, origins, measure)

    def border(number: int, lower: bool) -> float:
        """Return where a box begins or ends; a bend passes its whole layer."""
        layer = layers.layer[number]
        begin, end = room.top[layer], room.top[layer] + room.deep[layer]
        if number < len(children):
            high = _size(tree.boxes[children[number]], rooms, measure)[1]
            begin += (room.deep[layer] - high) / 2
            end = begin + high
        return dy + (end if lower else begin)

    for at, segment in enumerate(layers.segments):
        source, trunk = origins[segment.trunk]
        upper, lower = layers.layer[segment.upper], layers.layer[segment.lower]
        x0, x1 = dx + room.middle[segment.upper] + spread[at][0], dx + room.middle[segment.lower] + spread[at][1]
        y0 = border(segment.upper, True)
        y1 = border(segment.lower, False) if segment.lower < count else dy + room.top[lower] + room.deep[lower]
        points = ((x0, y0), (x0, dy + room.top[upper] + room.deep[upper]), (x1, dy + room.top[lower]), (x1, y1))
        inner = rooms.get(children[segment.lower]) if segment.lower < len(children) else None
        has_head = segment.lower < len(children) and (inner is None or source not in inner.contents.entries)
        begins = segment.upper < len(children) and segment.upper == source and children[segment.upper] not in rooms
        yield Line(points, values[source, trunk], has_head, begins, segment.is_back, (group, upper))


def _spread_segments(
    room: _Room, tree: BoxTree, rooms: Mapping[int, _Room], origins: Mapping[int, tuple[int, int]], measure: Measure
) -> list[tuple[float, float]]:
    """Return how far from the middles of its ends each segment begins and stops: lines that meet at one box stand side by side there."""
    contents, layers = room.contents, room.contents.layers
    children = contents.children
    begins: list[float] = []
    ends: list[float] = []
    into: dict[int, list[int]] = {}
    out: dict[int, dict[int, list[int]]] = {}
    for at, segment in enumerate(layers.segments):
        source, trunk = origins[segment.trunk]
        begins.append(_port(room, rooms, segment.upper, exit=trunk) if segment.upper == source else 0.0)
        ends.append(_port(room, rooms, segment.lower, entry=source) if segment.lower < layers.count else 0.0)
        if segment.lower < len(children) and children[segment.lower] not in rooms:
            into.setdefault(segment.lower, []).append(at)
        if segment.upper < len(children) and children[segment.upper] not in rooms:
            out.setdefault(segment.upper, {}).setdefault(segment.trunk, []).append(at)
    for number, group in into.items():
        step = min(measure.gap, measure.width(tree.boxes[children[number]]) * 0.7 / len(group))
        for place, at in enumerate(sorted(group, key=lambda at: room.middle[layers.segments[at].upper])):
            ends[at] = (place - (len(group) - 1) / 2) * step
    for number, trunks in out.items():
        step = min(measure.gap * 2, measure.width(tree.boxes[children[number]]) * 0.7 / len(trunks))
        first = {trunk: min(room.middle[layers.segments[at].lower] for at in group) for trunk, group in trunks.items()}
        for place, trunk in enumerate(sorted(trunks, key=first.__getitem__)):
            for at in trunks[trunk]:
                begins[at] = (place - (len(trunks) - 1) / 2) * step
    if measure.turns is not None:
        begins, ends = [float(round(at)) for at in begins], [float(round(at)) for at in ends]
    return list(zip(begins, ends, strict=True))


def bytes_of(values: Iterable[Value]) -> Dim | None:
    """Return the bytes of some values together; None where a size is not known."""
    return total_of(value.type.tensor_bytes for value in values)


def within_module(box: Box) -> str:
    """Return a node's name without the path of the module that it is drawn in."""
    return box.name if box.kind is not BoxKind.NODE or box.scope is None else name_within(box.name, box.scope)


def name_within(name: str, scope: Scope) -> str:
    """Return a name without the path of the module that it stands in: exporters put that in front."""
    return _name_within(name, (path_key(scope.path), path_key(scope.module)))


@lru_cache(maxsize=4096)
def _name_within(name: str, paths: tuple[str, str]) -> str:
    if paths[0]:
        for match in islice(_SEPARATOR.finditer(name), _DEEPEST):
            if match.end() < len(name) and path_key(name[: match.start()]) in paths:
                return name[match.end() :]
    return name


def weights_of(node: Node) -> list[Value]:
    """Return weights that a node reads, each once."""
    return list(dict.fromkeys(value for value in node.inputs if value is not None and value.role in WEIGHT_ROLES))
