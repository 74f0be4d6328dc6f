"""Two models side by side: rows of nodes, differences, groups that were fused or split, and totals."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from irscope.immutable import immutable
from irscope.ir.bind import substitute_symbols
from irscope.ir.dim_poly import Interval
from irscope.ir.dims import Dim, SymDim, ratio, total_of
from irscope.ir.graph import Attr, Node, Role, Value, paused_gc
from irscope.ir.program import Program
from irscope.ir.spelling import attr_text
from irscope.ir.types import TensorType, Type
from irscope.memory.tape import Counter as MemoryCounter
from irscope.ops.registry import find_op
from irscope.passes.memory.cuda import Moment
from irscope.passes.sizes import dim_cell
from irscope.report.celltext import signed
from irscope.report.units import Kind
from irscope.report.values import Quantity, derived
from irscope.session import Model
from irscope.solvers.graphs import DisjointSets
from irscope.tools.compare.matching import How, Matching, Side, common_axis, match, rising, weight_operands
from irscope.weights.differences import Difference
from irscope.weights.result import Unread

_MOST_NAMED = 6


class Fate(enum.Enum):
    """Change of a group of nodes from the first model to the second."""

    FUSED = "fused"
    """Several became fewer."""
    SPLIT = "split"
    """They became more."""
    REPLACED = "replaced"
    """They became as many others."""
    REMOVED = "removed"
    ADDED = "added"


@immutable
class Group:
    """Nodes of the first model and their replacements in the second, by index."""

    kind: Fate
    a: tuple[int, ...]
    b: tuple[int, ...]
    keeps: bool = False
    """True where the first nodes of both sides are matched: one absorbed the others."""


def groups(a: Side, b: Side, matching: Matching, changed: Callable[[int, int], bool]) -> list[Group]:
    """Return all unmatched nodes, in program order; `changed` tells whether matched nodes differ in their operation."""
    return _Grouper(a, b, matching, changed).run()


class _Grouper:
    def __init__(self, a: Side, b: Side, found: Matching, changed: Callable[[int, int], bool]) -> None:
        self.a, self.b, self.found, self.changed = a, b, found, changed
        unmatched = ((which, at) for which, mates in enumerate((found.mate_a, found.mate_b)) for at, mate in enumerate(mates) if mate < 0)
        self._sets = DisjointSets(unmatched)
        """Nodes: (0, index) of the first model, (1, index) of the second."""
        self._absorbed: dict[tuple[int, int], tuple[int, int]] = {}
        """The matched pair that absorbed a group, by a node of the group."""

    def run(self) -> list[Group]:
        for which, side, mates in ((0, self.a, self.found.mate_a), (1, self.b, self.found.mate_b)):
            for number, mate in enumerate(mates):
                if mate < 0:
                    for value in side.nodes[number].inputs:
                        if value is not None and value.node is not None and mates[side.number[value.node]] < 0:
                            self._sets.join((which, number), (which, side.number[value.node]))
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
            self._sets.join((0, a), (1, b))
        elif lonely_a and a is not None and b is not None and self.found.mate_b[b] >= 0:
            self._absorbed.setdefault((0, a), (self.found.mate_b[b], b))
        elif lonely_b and b is not None and a is not None and self.found.mate_a[a] >= 0:
            self._absorbed.setdefault((1, b), (a, self.found.mate_a[a]))

    def _collect(self) -> list[Group]:
        found: list[Group] = []
        for members in self._sets.groups():
            a, b = ([number for which, number in members if which == side] for side in (0, 1))
            found.append(self._group(a, b, next((self._absorbed[node] for node in members if node in self._absorbed), None)))
        # A group that only the second model has comes after the match of its predecessor.
        return sorted(found, key=lambda group: (group.a[0], 0) if group.a else (self._before(group.b[0]), group.b[0] + 1))

    def _before(self, number: int) -> int:
        while number >= 0 and self.found.mate_b[number] < 0:
            number -= 1
        return self.found.mate_b[number] if number >= 0 else -1

    def _group(self, a: list[int], b: list[int], taker: tuple[int, int] | None) -> Group:
        if a and b:
            kind = Fate.FUSED if len(a) > len(b) else Fate.SPLIT if len(a) < len(b) else Fate.REPLACED
            return Group(kind, tuple(a), tuple(b))
        if taker is not None and self.changed(*taker):
            if a and self._feeds(self.a, taker[0], a):
                return Group(Fate.FUSED, (taker[0], *a), (taker[1],), keeps=True)
            if b and self._feeds(self.b, taker[1], b):
                return Group(Fate.SPLIT, (taker[0],), (taker[1], *b), keeps=True)
        return Group(Fate.REMOVED if a else Fate.ADDED, tuple(a), tuple(b))

    @staticmethod
    def _feeds(side: Side, maker: int, readers: list[int]) -> bool:
        made = set(side.nodes[maker].outputs)
        return any(value in made for number in readers for value in side.nodes[number].inputs)


def ops_text(side: Side, numbers: tuple[int, ...]) -> str:
    """Return the operators of some nodes, in order, of many how often each occurs."""
    ops = [side.nodes[number].op for number in numbers]
    if len(ops) <= _MOST_NAMED:
        return " + ".join(ops)
    return " + ".join(f"{count} {op}" if count > 1 else op for op, count in Counter(ops).most_common())


# Differences of two models: nodes, modules, weights, totals and timelines.

# Differences of two matched nodes: shapes, element types, attributes, weights, FLOPs.

_ARROW = " -> "
_LONGEST = 60


@immutable
class Change:
    """One difference between two matched nodes."""

    aspect: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """Return the difference in words."""
        return f"{_cut_text(self.before)}{_ARROW}{_cut_text(self.after)}"


def changes(a: Side, b: Side, node: Node, other: Node) -> list[Change]:
    """Return every difference between two matched nodes except their module."""
    found = [*_types(node, other), *_attribute_changes(node, other), *_weight_changes(node, other)]
    flops = a.flops(node), b.flops(other)
    if flops[0] != flops[1]:
        found.append(Change("flops", _known_or_unknown(flops[0]), _known_or_unknown(flops[1])))
    return found


def does_the_same(node: Node, other: Node) -> bool:
    """Return whether two matched nodes have the same attributes and weights, apart from sizes."""
    return not any(_attribute_changes(node, other)) and [_weight_key(value) for value in weight_operands(node)] == [
        _weight_key(value) for value in weight_operands(other)
    ]


def _types(node: Node, other: Node) -> Iterator[Change]:
    for left, right in zip(node.outputs, other.outputs, strict=False):
        if left.type is right.type:
            continue
        first, second = left.type, right.type
        if isinstance(first, TensorType) and isinstance(second, TensorType):
            if first.shape != second.shape:
                yield Change("shape", _shape_of(first), _shape_of(second))
            if first.dtype is not second.dtype:
                yield Change("dtype", first.dtype.text, second.dtype.text)
        elif first.text != second.text:
            yield Change("dtype", first.text, second.text)


def _attribute_changes(node: Node, other: Node) -> Iterator[Change]:
    if node.attrs == other.attrs:
        return
    for key in dict.fromkeys((*node.attrs, *other.attrs)):
        left, right = node.attrs.get(key, _MISSING), other.attrs.get(key, _MISSING)
        before, after = _attr_text(node, key, left), _attr_text(other, key, right)
        if before != after:
            yield Change("attributes", f"{key} {before or 'unset'}", after or "unset")


_MISSING = object()


def _attr_text(node: Node, key: str, value: Attr) -> str:
    """Return the text of an attribute; empty where it is not set, or has its default."""
    if value is _MISSING or value is None:
        return ""
    if isinstance(value, tuple) and value and (all(one == _IDLE.get(key) for one in value) or _follows(node, key, value)):
        return ""
    return "" if value == _default(node.op, key) else attr_text(value)


def _follows(node: Node, key: str, value: Attr) -> bool:
    """Return whether an attribute is redundant with the shape of the weight."""
    weight = node.inputs[1] if key == "kernel_shape" and len(node.inputs) > 1 else None
    return weight is not None and weight.type.shape is not None and weight.type.shape[2:] == value


_IDLE = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
"""Default of every entry of such an attribute."""


def _default(op: str, key: str) -> object:
    spec = find_op(op)
    found = () if spec is None else (parameter.default for parameter in spec.schema.attrs if parameter.name == key)
    default = next(iter(found), None)
    return tuple(default) if isinstance(default, list) else default


def _weight_changes(node: Node, other: Node) -> Iterator[Change]:
    left, right = weight_operands(node), weight_operands(other)
    if [_weight_key(value) for value in left] == [_weight_key(value) for value in right]:
        return
    names_left, names_right = {value.name: value for value in left}, {value.name: value for value in right}
    for name, value in names_left.items():
        twin = names_right.get(name)
        if twin is not None and _weight_key(twin) != _weight_key(value):
            yield Change("weights", f"{name} {value.type}", str(twin.type))
    gone = [value for name, value in names_left.items() if name not in names_right]
    new = [value for name, value in names_right.items() if name not in names_left]
    for place in range(max(len(gone), len(new))):
        before = gone[place] if place < len(gone) else None
        after = new[place] if place < len(new) else None
        if before is not None and after is not None and before.type is after.type:
            continue  # only the name is another one
        yield Change("weights", _weight(before), _weight(after))


def _weight(value: Value | None) -> str:
    return "none" if value is None else f"{value.name or 'unnamed'} {value.type}"


def _weight_key(value: Value) -> tuple[str | None, Type]:
    return value.name, value.type


def _shape_of(type_: TensorType) -> str:
    return "[*]" if type_.shape is None else f"[{','.join(map(str, type_.shape))}]"


def _known_or_unknown(value: object) -> str:
    return "unknown" if value is None else str(value)


def _cut_text(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


# Unifies symbols of two models that stand for the same size, such as the batch, so that formulas of both are comparable.


def share_symbols(a: Program, b: Program) -> dict[str, str]:
    """Give the symbols of B the names and limits of those of A that stand at the same places of the same inputs; returns what was renamed.

    Exporters number nameless sizes as they like, and give one size other limits in other files.
    """
    pairs = _consistent(a, b)
    substitute_symbols(b, {own: a.symbols[name] for own, name in pairs.items() if b.symbols[own] is not a.symbols[name]})
    return {own: name for own, name in pairs.items() if own != name}


def _consistent(a: Program, b: Program) -> dict[str, str]:
    """Return, for symbols of B, the one of A that it stands for: the only one beside it, and beside no other."""
    pairs = list(dict.fromkeys(_by_inputs(a, b)))
    paired = {own for own, _ in pairs}, {name for _, name in pairs}
    pairs += [(name, name) for name in b.symbols if name in a.symbols and name not in paired[0] and name not in paired[1]]
    times = Counter(own for own, _ in pairs), Counter(name for _, name in pairs)
    found = {
        own: name
        for own, name in pairs
        if times[0][own] == times[1][name] == 1 and not _disjoint(a.symbols[name].bounds, b.symbols[own].bounds)
    }
    # A name that a symbol of B keeps for itself cannot be given to another one.
    while clashing := [own for own, name in found.items() if name in b.symbols and name not in found]:
        for own in clashing:
            del found[own]
    return found


def _by_inputs(a: Program, b: Program) -> Iterator[tuple[str, str]]:
    """Yield the symbols at the same axis of the same input: of B, then of A."""
    for one, other in _inputs(a.graph.inputs, b.graph.inputs):
        left, right = one.type, other.type
        if left.shape and right.shape and len(left.shape) == len(right.shape):
            for size, own in zip(left.shape, right.shape, strict=True):
                if _is_symbol(size, a.symbols) and _is_symbol(own, b.symbols):
                    yield str(own), str(size)


def _inputs(a: Sequence[Value], b: Sequence[Value]) -> Iterator[tuple[Value, Value]]:
    """Yield the inputs of the same name, or in their order where no names are the same."""
    named = {value.name: value for value in b}
    alike = [(value, named[value.name]) for value in a if value.name in named]
    yield from alike or zip(a, b, strict=False)


def _is_symbol(size: Dim, symbols: Mapping[str, SymDim]) -> bool:
    return isinstance(size, SymDim) and symbols.get(str(size)) is size


def _disjoint(a: Interval, b: Interval) -> bool:
    (low_a, high_a), (low_b, high_b) = a, b
    return (high_a is not None and low_b is not None and high_a < low_b) or (high_b is not None and low_a is not None and high_b < low_a)


# Differences of two models: nodes, modules, weights, totals and timelines.

SAME, CHANGED = "same", "changed"


@immutable
class Row:
    """Matched nodes, or a group of unmatched ones, by index on each side."""

    kind: str
    """same, changed, or the kind of a group: fused, split, replaced, removed, added."""
    a: tuple[int, ...]
    b: tuple[int, ...]
    how: How | None = None
    """The evidence for the match."""
    changes: tuple[Change, ...] = ()


@dataclass
class ModuleSums:
    """Sums of one side over a module, inner ones included."""

    nodes: int = 0
    flops: Dim = 0
    unknown: int = 0
    """Nodes whose FLOPs are unknown."""
    weight_bytes: Dim = 0
    alive: int | None = None
    """The most bytes alive at any of its steps; None where sizes are open."""


@immutable
class WeightRow:
    """A weight on both sides; None where it is not there."""

    a: Value | None
    b: Value | None

    @property
    def change(self) -> str:
        """Return what changed, in one word; empty where nothing did."""
        if self.a is None or self.b is None:
            return "added" if self.a is None else "removed"
        words = ["renamed"] if self.a.name != self.b.name else []
        words += ["retyped"] if self.a.type.dtype != self.b.type.dtype else []
        words += ["reshaped"] if self.a.type.shape != self.b.type.shape else []
        return ", ".join(words)


@dataclass
class ModelComparison:
    """Two models side by side."""

    a: Side
    b: Side
    matching: Matching
    rows: list[Row]
    """All nodes in the order of the first model; those that only the second has at their position there."""
    own: tuple[Side, Side] | None = None
    """Each model under the lifetimes of its own runtime, where these are not the same."""
    notes: list[str] = field(default_factory=list)
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names that the second model's symbols have in its file, with those of the first that they have now."""
    values: Mapping[WeightRow, Difference | Unread] | None = None
    """Differences in the values of weights that have the same shape on both sides; None where values were not read."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.a, self.b

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return how many rows there are of each kind."""
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row.kind] = counts.get(row.kind, 0) + 1
        return counts

    @property
    def has_graph(self) -> bool:
        """Return whether there is a graph on a side; of two checkpoints the weights are all there is to compare."""
        return self.a.has_graph or self.b.has_graph

    @property
    def matched(self) -> tuple[int, int]:
        """Return the number of nodes of each side that have a partner or a group on the other side."""
        alone_a = sum(len(row.a) for row in self.rows if row.kind == Fate.REMOVED.value)
        alone_b = sum(len(row.b) for row in self.rows if row.kind == Fate.ADDED.value)
        return len(self.a.nodes) - alone_a, len(self.b.nodes) - alone_b

    # -- what a row says ---------------------------------------------------------------------------------------

    def flops(self, row: Row) -> tuple[Dim | None, Dim | None]:
        """Return the FLOPs of the nodes of a row on each side; None where they are unknown."""
        return _total_over_nodes(self.a.flops, self.a, row.a), _total_over_nodes(self.b.flops, self.b, row.b)

    def moved(self, row: Row) -> tuple[Dim | None, Dim | None]:
        """Return the bytes that the nodes of a row read and write on each side."""
        return _total_over_nodes(self.a.moved, self.a, row.a), _total_over_nodes(self.b.moved, self.b, row.b)

    def alive(self, row: Row) -> tuple[Dim | None, Dim | None]:
        """Return the most bytes alive at the steps of a row on each side."""
        return _alive_of_group(self.a, row.a), _alive_of_group(self.b, row.b)

    def weight_bytes(self, row: Row) -> tuple[Dim | None, Dim | None]:
        """Return the bytes of the weights that the nodes of a row read."""
        return _weight_bytes(self.a, row.a), _weight_bytes(self.b, row.b)

    def module(self, row: Row) -> str:
        """Return the module that a row belongs to: where partners stand in different ones, that of their weights, else the first side's."""
        first = self.a.modules[self.a.nodes[row.a[0]]] if row.a else ""
        second = self.b.modules[self.b.nodes[row.b[0]]] if row.b else ""
        if first == second or not row.b or not row.a:
            return first or second
        return second if not first or (_owner(self.b, row.b[0]) and not _owner(self.a, row.a[0])) else first

    @cached_property
    def places(self) -> tuple[dict[int, str], dict[int, str]]:
        """Return the module of each node on each side; partners have one, so that what an exporter moved does not count as a difference."""
        places: tuple[dict[int, str], dict[int, str]] = ({}, {})
        for row in self.rows:
            shared = self.module(row) if row.how is not None else None
            for side, numbers, into in zip(self.sides, (row.a, row.b), places, strict=True):
                for number in numbers:
                    into[number] = side.modules[side.nodes[number]] if shared is None else shared
        return places

    # -- modules and weights -----------------------------------------------------------------------------------

    @cached_property
    def modules(self) -> dict[str, tuple[ModuleSums, ModuleSums]]:
        """Sums by dotted path, in the order in which modules come; an empty path is the model."""
        first, second = _module_sums(self, 0), _module_sums(self, 1)
        return {path: (first.get(path, ModuleSums()), second.get(path, ModuleSums())) for path in dict.fromkeys((*first, *second))}

    @cached_property
    def weights(self) -> list[WeightRow]:
        """Weights by name; those with names of one side alone are paired where partners read them at the same place."""
        named_a, named_b = self.a.weights, self.b.weights
        renamed: dict[Value, Value] = {}
        taken: set[Value] = set()
        for number, mate in self.matching.pairs():
            one, other = self.a.nodes[number], self.b.nodes[mate]
            for left, right in zip(one.inputs, other.inputs, strict=False):
                if (
                    left is not None
                    and right is not None
                    and named_a.get(left.name or "") is left
                    and named_b.get(right.name or "") is right
                    and left.name not in named_b
                    and right.name not in named_a
                    and right not in taken
                    and left not in renamed
                ):
                    renamed[left] = right
                    taken.add(right)
        rows = [WeightRow(weight, named_b.get(name) or renamed.get(weight)) for name, weight in named_a.items()]
        rows += [WeightRow(None, weight) for name, weight in named_b.items() if name not in named_a and weight not in taken]
        return rows

    # -- time --------------------------------------------------------------------------------------------------

    @cached_property
    def axis(self) -> list[tuple[int, int]]:
        """Return the steps of both models along one axis: partners share a place, what lies between them is spread over as many as it
        needs.
        """
        step_a, step_b = self.a.step, self.b.step
        pairs = [
            (step_a[node], step_b[other])
            for number, mate in self.matching.pairs()
            if (node := self.a.nodes[number]) in step_a and (other := self.b.nodes[mate]) in step_b
        ]
        return common_axis(rising(sorted(pairs)), len(step_a), len(step_b))


def compare_models(a: Model, b: Model, lifetime: str = "auto") -> ModelComparison:
    """Lay two models side by side. `lifetime` is the lifetime model, as in `liveness`; auto is that of the files where it is the same.

    Symbols of the second that are the same sizes as some of the first get the names of those.
    """
    renamed = share_symbols(a.program, b.program)
    one, other = Side(a, lifetime), Side(b, lifetime)
    own = None
    notes: list[str] = []
    if renamed:
        notes.append(f"sizes of B under the names of A: {', '.join(f'{own} is {name}' for own, name in renamed.items())}")
    if lifetime == "auto" and one.timeline.model != other.timeline.model:
        own = (one, other)
        notes.append(
            f"A is run as {one.timeline.model}, B as {other.timeline.model}: "
            "steps and peaks are compared with tensors freed after their last use"
        )
        one, other = Side(a, "ssa"), Side(b, "ssa")
    # A hundred thousand new small objects would trigger many full garbage collections.
    with paused_gc():
        found = match(one, other)
        rows = _matched_rows(one, other, found)
    return ModelComparison(one, other, found, rows, own, notes, renamed)


def _matched_rows(a: Side, b: Side, matching: Matching) -> list[Row]:
    made = groups(a, b, matching, lambda one, other: not does_the_same(a.nodes[one], b.nodes[other]))
    kept = {group.a[0]: group for group in made if group.keeps}
    before: dict[int, list[Row]] = {}
    """Groups by the node of the first model that they stand at or behind."""
    for group in made:
        if group.keeps:
            continue
        place = group.a[0] if group.a else _nearest_matched(matching, group.b[0])
        before.setdefault(place, []).append(Row(group.kind.value, group.a, group.b))
    rows = before.get(-1, [])
    for number, mate in enumerate(matching.mate_a):
        if number in kept:
            group = kept[number]
            rows.append(Row(group.kind.value, group.a, group.b, matching.how[number], tuple(changes(a, b, a.nodes[number], b.nodes[mate]))))
        elif mate >= 0:
            differences = tuple(changes(a, b, a.nodes[number], b.nodes[mate]))
            rows.append(Row(CHANGED if differences else SAME, (number,), (mate,), matching.how[number], differences))
        rows += before.get(number, [])
    return rows


def _nearest_matched(matching: Matching, number: int) -> int:
    """Return the match of the nearest matched predecessor; -1 where there is none."""
    while number >= 0 and matching.mate_b[number] < 0:
        number -= 1
    return matching.mate_b[number] if number >= 0 else -1


def _total_over_nodes(read: Callable[[Node], Dim | None], side: Side, numbers: Iterable[int]) -> Dim | None:
    return total_of(read(side.nodes[number]) for number in numbers)


def _alive_of_group(side: Side, numbers: Sequence[int]) -> Dim | None:
    sizes = [size for number in numbers if (size := side.alive(side.nodes[number])) is not None]
    if len(sizes) == 1:
        return sizes[0]
    whole = [size for size in sizes if isinstance(size, int)]
    return max(whole) if whole and len(whole) == len(sizes) else None


def _weight_bytes(side: Side, numbers: Iterable[int]) -> Dim | None:
    weights = dict.fromkeys(weight for number in numbers for weight in weight_operands(side.nodes[number]))
    return total_of(weight.type.nbytes for weight in weights)


def _module_sums(compared: ModelComparison, which: int) -> dict[str, ModuleSums]:
    side = compared.sides[which]
    module_sums: dict[str, ModuleSums] = {"": ModuleSums()}
    counted: set[Value] = set()
    for number, path in compared.places[which].items():
        node = side.nodes[number]
        new = [weight for weight in weight_operands(node) if weight not in counted]
        counted.update(new)
        size: Dim = 0
        for weight in new:
            size = size + (weight.type.nbytes or 0)
        flops, alive = side.flops(node), side.alive(node)
        for name in _outwards(path):
            sums = module_sums.get(name)
            if sums is None:
                sums = module_sums[name] = ModuleSums()
            sums.nodes += 1
            sums.weight_bytes = sums.weight_bytes + size
            if flops is None:
                sums.unknown += 1
            else:
                sums.flops = sums.flops + flops
            if isinstance(alive, int):
                sums.alive = max(sums.alive or 0, alive)
    return module_sums


@lru_cache(maxsize=100_000)
def _outwards(path: str) -> tuple[str, ...]:
    """Return the model, then every module on the way to this one."""
    parts = path.split(".") if path else []
    return ("", *(".".join(parts[: length + 1]) for length in range(len(parts))))


def _owner(side: Side, number: int) -> bool:
    """Return whether a node stands in the module that its first weight belongs to by name."""
    node = side.nodes[number]
    names = [weight.name for weight in weight_operands(node) if weight.name]
    return bool(names) and names[0].rpartition(".")[0] == side.modules[node]


# The numbers of a whole comparison: one line a measure, with the difference and how large it is.


@immutable
class Total:
    """One measure of both models."""

    key: str
    kind: Kind
    a: Dim | None
    b: Dim | None
    counters: tuple[Quantity, Quantity] | None = None
    """Both where they are an allocator's, with where they come from."""

    @property
    def difference(self) -> Dim | None:
        """B less A; None where one of them is unknown."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def change(self) -> float | None:
        """Return the difference as a share of A, infinite where A has none; None where it is not known, or another one at every size."""
        if self.a is None or self.b is None:
            return None
        if self.a == 0 and isinstance(self.b, int):
            return 0.0 if self.b == 0 else math.inf
        found = ratio(self.b, self.a)
        return None if found is None else float(found - 1)

    def cells(self) -> dict[str, object]:
        """Return the cells of a report's summary."""
        if self.counters is not None:
            a, b = self.counters
            return {"a": a, "b": b, "difference": b - a, "change": derived(self.change, a, b)}
        return {
            **{name: dim_cell(value) for name, value in (("a", self.a), ("b", self.b), ("difference", self.difference))},
            "change": self.change,
        }

    @property
    def said(self) -> tuple[str, str]:
        """Both for a sentence."""
        a, b = self.counters or (dim_cell(self.a), dim_cell(self.b))
        return signed(a, self.kind), signed(b, self.kind)


def totals(compared: ModelComparison) -> list[Total]:
    """Return every measure that both sides have, and those that one of them has."""
    found = [
        _both(compared, "nodes", Kind.COUNT, lambda side: len(side.nodes) if side.has_graph else None),
        _both(compared, "parameters", Kind.COUNT, lambda side: side.totals.known_count),
        _both(compared, "parameter_bytes", Kind.BYTES, lambda side: side.totals.known(Role.PARAMETER, side.totals.bytes)),
        _both(compared, "buffer_bytes", Kind.BYTES, lambda side: side.totals.known(Role.BUFFER, side.totals.buffer_bytes)),
        _both(compared, "constant_bytes", Kind.BYTES, lambda side: side.totals.known(Role.CONSTANT, side.totals.constant_bytes)),
        _both(compared, "flops", Kind.FLOPS, _flops),
        _both(compared, "moved_bytes", Kind.BYTES, _exact_traffic),
        _both(compared, "peak_bytes", Kind.BYTES, _sized_peak),
        _both(compared, "lower_bound_bytes", Kind.BYTES, lambda side: side.timeline.lower_bound if _is_sized(side) else None),
    ]
    if compared.own is not None:
        first, second = compared.own
        found.append(Total("peak_as_run_bytes", Kind.BYTES, _sized_peak(first), _sized_peak(second)))
    return [*found, *_device_totals(compared)]


def _both(compared: ModelComparison, key: str, kind: Kind, read: Callable[[Side], Dim | None]) -> Total:
    return Total(key, kind, read(compared.a), read(compared.b))


def _flops(side: Side) -> Dim | None:
    return side.costs.tally.value("flops") if side.has_graph and side.costs.tally.is_exact else None


def _exact_traffic(side: Side) -> Dim | None:
    tally = side.costs.tally
    return tally.moved if side.has_graph and tally.is_exact else None


def _sized_peak(side: Side) -> Dim | None:
    return side.timeline.peak if _is_sized(side) else None


def _is_sized(side: Side) -> bool:
    return side.has_graph and not side.timeline.unsized


def _device_totals(compared: ModelComparison) -> Iterator[Total]:
    """Yield what an allocator counts on the device, where PyTorch runs both models."""
    memories = [side.device_memory for side in compared.own or compared.sides]
    first, second = memories
    if first is None or second is None:
        return
    for key, moment, counter in _COUNTERS:
        one, other = first.counter(moment, counter), second.counter(moment, counter)
        if isinstance(one.value, int) and isinstance(other.value, int):
            yield Total(key, Kind.BYTES, one.value, other.value, (one, other))


_COUNTERS: tuple[tuple[str, Moment, MemoryCounter], ...] = (
    ("device_before_bytes", "before", "allocated"),
    ("device_peak_bytes", "cold", "allocated"),
    ("device_reserved_bytes", "cold", "reserved"),
)
