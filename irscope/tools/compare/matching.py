"""The models that are compared, and which of their nodes are counterparts.

Nodes are matched by order-preserving matching of sequences, and in rounds by weights, names and data.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from irscope.immutable import immutable
from irscope.ir.dims import Dim
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.places import Scope
from irscope.ir.types import TensorType
from irscope.ops.facts import OpRole
from irscope.ops.registry import plays
from irscope.passes.cost.count import Certainty, Costs, NodeCosts
from irscope.passes.lifetimes.timeline import Timeline
from irscope.passes.memory.cuda import CudaMemory, DeviceMemory
from irscope.passes.memory.liveness import Liveness
from irscope.passes.weights.storages import ParameterTotals, count_parameters
from irscope.session import Model

WEIGHTS = frozenset({Role.PARAMETER, Role.BUFFER, Role.CONSTANT})


@immutable(slots=False)
class Side:
    """A model with the analyses that a comparison needs, each computed on first use."""

    model: Model
    lifetime: str = "auto"
    """Lifetime model, as in `liveness`."""

    @property
    def has_graph(self) -> bool:
        """Return whether there is a graph; of weights alone cost and memory are unknown."""
        return self.model.program.has_graph

    @property
    def is_compiled(self) -> bool:
        """Return whether it is what torch.compile made of a model."""
        return "compiled" in self.model.program.metadata

    @cached_property
    def nodes(self) -> list[Node]:
        """Return every node in order, those inside regions and functions included."""
        program = self.model.program
        return [node for body in (program.graph, *program.functions.values()) for node in body.walk()]

    @cached_property
    def number(self) -> dict[Node, int]:
        """Return the place of each node among `nodes`."""
        return {node: number for number, node in enumerate(self.nodes)}

    @cached_property
    def costs(self) -> Costs:
        return self.model.manager.get(NodeCosts())

    @cached_property
    def timeline(self) -> Timeline:
        return self.model.manager.get(Liveness(model=self.lifetime))  # type: ignore[arg-type]  # one of the names that `liveness` takes

    @cached_property
    def device_memory(self) -> DeviceMemory | None:
        """Return what PyTorch's allocator counts; None where ONNX Runtime runs the model."""
        model = self.timeline.model
        return None if model == "ort" else self.model.manager.get(CudaMemory(model=self.lifetime))  # type: ignore[arg-type]

    @cached_property
    def totals(self) -> ParameterTotals:
        return count_parameters(self.model.program)

    @cached_property
    def step(self) -> dict[Node, int]:
        """Return the steps of the timeline by node; nodes inside regions have none."""
        return {node: step for step, node in enumerate(self.timeline.steps)}

    @cached_property
    def weights(self) -> dict[str, Value]:
        """Parameters, buffers and constants that have a name."""
        return {weight.name: weight for weight in self.model.program.weights() if weight.name is not None}

    @cached_property
    def modules(self) -> dict[Node, str]:
        """Return the dotted path of the module that each node belongs to."""
        known: dict[Scope, str] = {}
        modules: dict[Node, str] = {}
        for node in self.nodes:
            module = known.get(node.scope)
            if module is None:
                module = known[node.scope] = node.scope.module
            modules[node] = module
        return modules

    @cached_property
    def places(self) -> dict[Node, tuple[str, ...]]:
        """Return the regions around each node by name, outermost first."""
        of_graph: dict[Graph, tuple[str, ...]] = {}
        places: dict[Node, tuple[str, ...]] = {}
        for node in self.nodes:
            graph = node.graph
            assert graph is not None
            place = of_graph.get(graph)
            if place is None:
                # An outer graph comes before its regions, so that the owner's place is known.
                place = () if graph is self.model.graph else (*(places[graph.owner] if graph.owner is not None else ()), graph.name)
                of_graph[graph] = place
            places[node] = place
        return places

    def flops(self, node: Node) -> Dim | None:
        """Return the FLOPs of one execution of a node; None where they are unknown."""
        cost = self.costs.by_node.get(node)
        if cost is None or node in self.costs.partial:
            return 0 if self.costs.certainty.get(node) is Certainty.FREE else None
        return cost.flops

    def moved(self, node: Node) -> Dim | None:
        """Return the bytes that one execution of a node reads and writes; None where they are unknown."""
        cost = self.costs.by_node.get(node)
        return None if cost is None or cost.read is None or cost.written is None else cost.read + cost.written

    def alive(self, node: Node) -> Dim | None:
        """Return the bytes alive at a node's step; None inside regions."""
        step = self.step.get(node)
        return None if step is None else self.timeline.alive[step]


def weight_operands(node: Node) -> list[Value]:
    """Return the weights that a node reads, in the order of its operands."""
    return [value for value in node.inputs if value is not None and value.role in WEIGHTS]


_MOST_EDITS = 64
"""After this many consecutive differences the furthest-reaching path found so far is taken (Myers' heuristic)."""
_SPLIT_ROUNDS = 3
"""Recursion limit of splitting at keys that occur once on both sides (patience diff)."""


def align(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    """Index pairs with equal keys, increasing on both sides: a longest common subsequence, approximate where much differs."""
    in_a, in_b = set(a), set(b)
    places_a = [place for place, key in enumerate(a) if key in in_b]
    places_b = [place for place, key in enumerate(b) if key in in_a]
    keys_a = [a[place] for place in places_a]
    keys_b = [b[place] for place in places_b]
    found = _aligned(keys_a, keys_b)
    return [(places_a[left], places_b[right]) for left, right in found]


def rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest increasing subsequence of index pairs."""
    tails: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        at = bisect_left(tails, place)
        before.append(last[at - 1] if at else -1)
        if at == len(tails):
            tails.append(place)
            last.append(number)
        else:
            tails[at], last[at] = place, number
    found: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]


def _aligned(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    """Match equal ends, then split at keys that occur once on both sides, then search a shortest edit path between."""
    found: list[tuple[int, int]] = []
    pending = [(0, len(a), 0, len(b), 0)]
    while pending:
        start_a, stop_a, start_b, stop_b, depth = pending.pop()
        while start_a < stop_a and start_b < stop_b and a[start_a] == b[start_b]:
            found.append((start_a, start_b))
            start_a, start_b = start_a + 1, start_b + 1
        while start_a < stop_a and start_b < stop_b and a[stop_a - 1] == b[stop_b - 1]:
            stop_a, stop_b = stop_a - 1, stop_b - 1
            found.append((stop_a, stop_b))
        if start_a == stop_a or start_b == stop_b:
            continue
        anchors = _anchors(a, b, start_a, stop_a, start_b, stop_b) if depth < _SPLIT_ROUNDS else []
        if not anchors:
            found.extend((start_a + x, start_b + y) for x, y in _shortest(a[start_a:stop_a], b[start_b:stop_b]))
            continue
        found.extend(anchors)
        edges = [(start_a - 1, start_b - 1), *anchors, (stop_a, stop_b)]
        for (left_a, left_b), (right_a, right_b) in pairwise(edges):
            if left_a + 1 < right_a and left_b + 1 < right_b:
                pending.append((left_a + 1, right_a, left_b + 1, right_b, depth + 1))
    found.sort()
    return found


def _anchors(a: Sequence[int], b: Sequence[int], start_a: int, stop_a: int, start_b: int, stop_b: int) -> list[tuple[int, int]]:
    """Return the keys that occur once in both ranges, as far as their order agrees."""
    count_a, count_b = Counter(a[start_a:stop_a]), Counter(b[start_b:stop_b])
    place_b = {b[place]: place for place in range(start_b, stop_b)}
    pairs = [(place, place_b[key]) for place in range(start_a, stop_a) if count_a[key := a[place]] == 1 and count_b.get(key) == 1]
    return rising(pairs)


def _shortest(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Matches on a shortest edit path (Myers); where it is long, found in pieces."""
    at_a = at_b = 0
    while at_a < len(a) and at_b < len(b):
        kept, moved_a, moved_b = _stretch(a, b, at_a, at_b)
        yield from kept
        at_a, at_b = moved_a, moved_b


def _stretch(a: Sequence[int], b: Sequence[int], from_a: int, from_b: int) -> tuple[list[tuple[int, int]], int, int]:
    """Return a shortest edit path from here of bounded length: its matches, and where it ends."""
    length_a, length_b = len(a) - from_a, len(b) - from_b
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(_MOST_EDITS + 1):
        history.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1))
            x = reach.get(diagonal + 1, 0) if down else reach.get(diagonal - 1, -1) + 1
            y = x - diagonal
            while x < length_a and y < length_b and a[from_a + x] == b[from_b + y]:
                x, y = x + 1, y + 1
            reach[diagonal] = x
            if x >= length_a and y >= length_b:
                return _way_back(history, diagonal, x, from_a, from_b), from_a + x, from_b + y
    ends = [
        diagonal
        for diagonal in range(-_MOST_EDITS, _MOST_EDITS + 1, 2)
        if reach[diagonal] <= length_a and 0 <= reach[diagonal] - diagonal <= length_b
    ]
    furthest = max(ends, key=lambda diagonal: 2 * reach[diagonal] - diagonal, default=None)
    if furthest is None:
        return [], len(a), len(b)
    x = reach[furthest]
    return _way_back(history, furthest, x, from_a, from_b), from_a + x, from_b + x - furthest


def _way_back(history: Sequence[dict[int, int]], diagonal: int, x: int, from_a: int, from_b: int) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        reach = history[edits]
        down = diagonal == -edits or (diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1))
        before = diagonal + 1 if down else diagonal - 1
        start = reach.get(before, 0) if down else reach.get(before, -1) + 1
        while x > start:
            x -= 1
            kept.append((from_a + x, from_b + x - diagonal))
        diagonal, x = before, reach.get(before, 0)
    kept.reverse()
    return kept


# One axis for two sequences: matched elements share a position.


def common_axis(pairs: Iterable[tuple[int, int]], length_a: int, length_b: int) -> list[tuple[int, int]]:
    """Return the positions of both sequences on one axis, from index pairs that increase on both sides.

    What lies between two pairs is spread over as many places as the longer side needs; -1 stands for "not begun".
    """
    places: list[tuple[int, int]] = []
    at_a = at_b = 0
    for next_a, next_b in (*pairs, (length_a, length_b)):
        places += _spread(at_a, next_a, at_b, next_b)
        if next_a < length_a and next_b < length_b:
            places.append((next_a, next_b))
        at_a, at_b = next_a + 1, next_b + 1
    return places


def _spread(from_a: int, to_a: int, from_b: int, to_b: int) -> list[tuple[int, int]]:
    longer = max(to_a - from_a, to_b - from_b)
    return [
        (
            from_a + place * (to_a - from_a) // longer if to_a > from_a else from_a - 1,
            from_b + place * (to_b - from_b) // longer if to_b > from_b else from_b - 1,
        )
        for place in range(longer)
    ]


# Matching of the nodes of two models: by weights and names, then along the data flow, then by order.

_ROUNDS = 10


class How(enum.Enum):
    """The evidence for a match, strongest first."""

    WEIGHTS = "weights"
    """They read weights of the same names."""
    NAME = "name"
    """Their results have the same name, and their operands do not contradict it."""
    DATA = "data"
    """They apply the same operator to matched values, or define operands of matched nodes."""
    ORDER = "order"
    """They are equal in operator, types or module and lie between the same matched neighbours."""


# Modules of two programs of different libraries: by what their names have in common, then by their place and work.


def _share_modules(a: Side, b: Side) -> None:
    """Give modules of the second model the paths of those of the first that they are, where paths differ: GPT.h_0 is h.0."""
    known, own = _module_work(a), _module_work(b)
    if not known.keys() - own.keys() or not own.keys() - known.keys():
        return
    by_name = {parts: path for path, parts in reversed(_common_names(known))}
    path_of = {path: path if path in known else by_name[parts] for path, parts in _common_names(own) if path in known or parts in by_name}
    taken = set(path_of.values())
    around_a, around_b = _around(a), _around(b)
    for parent in sorted(dict.fromkeys(around_b.values()), key=lambda path: path.count(".") + bool(path)):
        outer = path_of.get(parent)
        alone = [path for path, around in around_b.items() if around == parent and path not in path_of]
        others = [path for path, around in around_a.items() if around == outer and path not in taken]
        for work in dict.fromkeys(own[path] for path in alone):
            mine, theirs = ([path for path in paths if of[path] == work] for paths, of in ((alone, own), (others, known)))
            if len(mine) == len(theirs):
                path_of.update(zip(mine, theirs, strict=True))
    modules = b.modules
    for node, path in modules.items():
        inner = path
        while inner and inner not in path_of:
            inner = inner.rpartition(".")[0]
        modules[node] = ".".join(filter(None, (path_of.get(inner, inner), path[len(inner) :].strip("."))))


def _around(side: Side) -> dict[str, str]:
    """Return the module around each one that has nodes of its own; lists of modules have none."""
    owners = dict.fromkeys(("", *side.modules.values()))
    found: dict[str, str] = {}
    for path in filter(None, owners):
        outer = path.rpartition(".")[0]
        while outer not in owners:
            outer = outer.rpartition(".")[0]
        found[path] = outer
    return found


def _module_work(side: Side) -> dict[str, tuple[bool, bool]]:
    """Return whether each module multiplies, and reads a weight or input, in the order in which modules come."""
    found = {"": (False, False)}
    declared = {*side.model.graph.inputs, *side.weights.values()}
    for node, path in side.modules.items():
        cost = side.costs.by_node.get(node)
        own = cost is not None and cost.macs != 0, not declared.isdisjoint(node.inputs)
        parts = path.split(".") if path else []
        for length in range(len(parts)):
            outer = ".".join(parts[: length + 1])
            before = found.get(outer, (False, False))
            found[outer] = before[0] or own[0], before[1] or own[1]
    return found


def _common_names(paths: Iterable[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return paths with what names of two libraries have in common: no class in front of all, no functions, one way to number."""
    tops = {path.partition(".")[0] for path in paths if path}
    found: list[tuple[str, tuple[str, ...]]] = []
    for path in paths:
        parts = path.split(".")[len(tops) == 1 :] if path else []
        spelled = ".".join(re.sub(r"_(\d+)$", r".\1", part).lower() for part in parts if not part.startswith("_"))
        found.append((path, tuple(spelled.split(".")) if spelled else ()))
    return found


@dataclass
class Matching:
    """Pairs of nodes by index on each side; -1 where a node is unmatched."""

    mate_a: list[int]
    mate_b: list[int]
    how: dict[int, How] = field(default_factory=dict)
    """By the place in the first model."""

    def pair(self, a: int, b: int, how: How) -> None:
        """Match two unmatched nodes."""
        self.mate_a[a], self.mate_b[b], self.how[a] = b, a, how

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Return all pairs in the order of the first model."""
        return ((a, b) for a, b in enumerate(self.mate_a) if b >= 0)

    def spine(self) -> list[tuple[int, int]]:
        """Return a longest list of pairs in the same order on both sides."""
        return rising(list(self.pairs()))


def match(a: Side, b: Side) -> Matching:
    """Match the nodes of two models."""
    _share_modules(a, b)
    return _Matcher(a, b).run()


class _Matcher:
    """The steps of matching, each with what those before it found."""

    def __init__(self, a: Side, b: Side) -> None:
        self.a, self.b = a, b
        self.found = Matching([-1] * len(a.nodes), [-1] * len(b.nodes))
        self._twin: dict[Value, Value] = {}
        """Declarations of both models, matched by name."""
        for name, weight in b.weights.items():
            if name in a.weights:
                self._twin[weight] = a.weights[name]
        inputs = {value.name: value for value in a.model.graph.inputs if value.name is not None}
        for place, value in enumerate(b.model.graph.inputs):
            if value.name in inputs:
                self._twin[value] = inputs[value.name]
            elif place < len(a.model.graph.inputs) and a.model.graph.inputs[place].name not in {one.name for one in b.model.graph.inputs}:
                self._twin[value] = a.model.graph.inputs[place]
        self._common = set(self._twin.values())

    def run(self) -> Matching:
        self._by_weights()
        self._by_names()
        for exact in (True, False):
            self._along(exact)
            for key in self._keys(exact):
                self._by_order(key)
        self._along(exact=False)
        return self.found

    # -- what has a name ---------------------------------------------------------------------------------------

    def _by_weights(self) -> None:
        """Nodes of one operator that read the same weights, where the weights have the same number of elements."""
        keys_a = self._weight_keys(self.a, lambda weight: weight if weight in self._common else None)
        keys_b = self._weight_keys(self.b, self._twin.get)
        for key, one in keys_b.items():
            other = keys_a.get(key)
            if other is not None:
                self.found.pair(other, one, How.WEIGHTS)

    @staticmethod
    def _weight_keys(side: Side, known: Callable[[Value], Value | None]) -> dict[Hashable, int]:
        """Return keys by operator, weights, and how many such nodes came before."""
        counts: dict[Hashable, int] = {}
        keys: dict[Hashable, int] = {}
        for number, node in enumerate(side.nodes):
            # Elements stay as many when a weight is transposed or its type changes.
            read = [(twin, weight.type.numel) for weight in weight_operands(node) if (twin := known(weight)) is not None]
            if read:
                key = (node.op, side.places[node], tuple(read))
                counts[key] = counts.get(key, 0) + 1
                keys[key, counts[key]] = number
        return keys

    def _by_names(self) -> None:
        """Nodes of one operator whose first results have the same name, unless most of their operands contradict it."""
        names_a, names_b = _unique_names(self.a), _unique_names(self.b)
        wanted: dict[int, int] = {}
        for name, number in names_b.items():
            other = names_a.get(name)
            if other is not None and self._may_match(other, number):
                wanted[number] = other
        for _ in range(_ROUNDS):
            wrong = [number for number, other in wanted.items() if self._votes(other, number, wanted) < 0]
            for number in wrong:
                del wanted[number]
            if not wrong:
                break
        for number, other in wanted.items():
            self.found.pair(other, number, How.NAME)

    def _may_match(self, a: int, b: int) -> bool:
        one, other = self.a.nodes[a], self.b.nodes[b]
        return (
            one.op == other.op
            and self.found.mate_a[a] < 0
            and self.found.mate_b[b] < 0
            and len(one.outputs) == len(other.outputs)
            and self.a.places[one] == self.b.places[other]
        )

    def _votes(self, a: int, b: int, wanted: dict[int, int]) -> int:
        """Return the operands that support a pair, less those that contradict it."""
        votes = 0
        for left, right in zip(self.a.nodes[a].inputs, self.b.nodes[b].inputs, strict=False):
            if left is None or right is None:
                votes -= left is not right
            elif left.node is not None and right.node is not None:
                maker = self.b.number[right.node]
                mate = self.found.mate_b[maker]
                mate = wanted.get(maker, -1) if mate < 0 else mate
                taken = self.found.mate_a[self.a.number[left.node]] >= 0
                votes += 1 if mate == self.a.number[left.node] else -1 if mate >= 0 or taken else 0
            elif left.node is None and right.node is None:
                twin = self._twin.get(right)
                votes += 1 if twin is left else -1 if twin is not None or left in self._common else 0
        return votes

    # -- along the data ----------------------------------------------------------------------------------------

    def _along(self, exact: bool) -> None:
        """Propagate matches forward along uses of matched values, then backward to the definitions of operands."""
        self._forward(exact)
        self._backward(exact)

    def _forward(self, exact: bool) -> None:
        a, b, found = self.a, self.b, self.found
        waiting: dict[Hashable, list[int]] = {}
        for number in range(len(a.nodes) - 1, -1, -1):
            if found.mate_a[number] < 0 and a.nodes[number].inputs:
                node = a.nodes[number]
                refs = [self._reference_a(value) for value in node.inputs]
                waiting.setdefault(self._key(a, node, refs, exact), []).append(number)
        if not waiting:
            return
        for number, node in enumerate(b.nodes):
            if found.mate_b[number] >= 0 or not node.inputs:
                continue
            refs_b = [self._reference_b(value) for value in node.inputs]
            if any(ref is None for ref in refs_b):
                continue
            candidates = waiting.get(self._key(b, node, refs_b, exact))
            if candidates:
                found.pair(candidates.pop(), number, How.DATA)

    def _reference_a(self, value: Value | None) -> Hashable:
        if value is None:
            return 0
        if value.node is not None:
            return (self.a.number[value.node], value.index)
        return value if value in self._common else value.type.text

    def _reference_b(self, value: Value | None) -> Hashable:
        """Return the value of the first model that corresponds to the operand; None where it is not known."""
        if value is None:
            return 0
        if value.node is not None:
            mate = self.found.mate_b[self.b.number[value.node]]
            return None if mate < 0 else (mate, value.index)
        return self._twin.get(value, value.type.text)

    @staticmethod
    def _key(side: Side, node: Node, refs: list[Hashable], exact: bool) -> Hashable:
        operands = frozenset(refs) if plays(node, OpRole.COMMUTES) else tuple(refs)
        types = tuple([output.type for output in node.outputs]) if exact else len(node.outputs)
        return (node.op, operands, types, side.places[node])

    def _backward(self, exact: bool) -> None:
        a, b, found = self.a, self.b, self.found
        for left, right in zip(a.model.graph.outputs, b.model.graph.outputs, strict=False):
            self._pair_makers(left, right, exact)
        for number in range(len(b.nodes) - 1, -1, -1):
            mate = found.mate_b[number]
            if mate >= 0:
                one, other = a.nodes[mate], b.nodes[number]
                if len(one.inputs) == len(other.inputs):
                    for left_value, right_value in zip(one.inputs, other.inputs, strict=True):
                        if left_value is not None and right_value is not None:
                            self._pair_makers(left_value, right_value, exact)

    def _pair_makers(self, left: Value, right: Value, exact: bool) -> None:
        if left.node is None or right.node is None or left.index != right.index:
            return
        a, b = self.a.number[left.node], self.b.number[right.node]
        if self._may_match(a, b) and (not exact or _types(left.node) == _types(right.node)):
            self.found.pair(a, b, How.DATA)

    # -- by order ----------------------------------------------------------------------------------------------

    def _keys(self, exact: bool) -> list[Callable[[Side, Node], Hashable]]:
        """Return the keys that two nodes must share to be matched by order, the strictest first."""
        if exact:
            return [
                lambda side, node: (node.op, _types(node), side.modules[node], side.places[node]),
                lambda side, node: (node.op, _types(node), side.places[node]),
            ]
        return [
            lambda side, node: (node.op, side.modules[node], len(node.outputs), side.places[node]),
            lambda side, node: (node.op, _ranks(node), side.places[node]),
        ]

    def _by_order(self, key: Callable[[Side, Node], Hashable]) -> None:
        """Align the nodes that are still unmatched between two matched neighbours, in order."""
        found = self.found
        keys: dict[Hashable, int] = {}

        def numbered(side: Side, places: list[int]) -> list[int]:
            return [keys.setdefault(key(side, side.nodes[place]), len(keys)) for place in places]

        edges = [(-1, -1), *found.spine(), (len(self.a.nodes), len(self.b.nodes))]
        for (low_a, low_b), (high_a, high_b) in pairwise(edges):
            if high_a - low_a < 2 or high_b - low_b < 2:
                continue
            left = [place for place in range(low_a + 1, high_a) if found.mate_a[place] < 0]
            right = [place for place in range(low_b + 1, high_b) if found.mate_b[place] < 0]
            if left and right:
                for x, y in align(numbered(self.a, left), numbered(self.b, right)):
                    found.pair(left[x], right[y], How.ORDER)


def _unique_names(side: Side) -> dict[str, int]:
    """Return the nodes by the name of their first result, where no other has it."""
    found: dict[str, int] = {}
    twice: set[str] = set()
    for number, node in enumerate(side.nodes):
        name = node.outputs[0].name if node.outputs else None
        if name is not None and found.setdefault(name, number) != number:
            twice.add(name)
    return {name: number for name, number in found.items() if name not in twice}


def _types(node: Node) -> tuple[object, ...]:
    return tuple([output.type for output in node.outputs])


def _ranks(node: Node) -> tuple[object, ...]:
    return tuple([(output.type.dtype, output.type.rank) if isinstance(output.type, TensorType) else None for output in node.outputs])
