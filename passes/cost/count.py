"""The cost of every node by its operator's rule, how often it runs, and what it adds to the totals; all costs are counted here."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final, TypeAlias, TypeVar

from irscope.diagnostics import Diagnostic, Severity, few
from irscope.immutable import mutable
from irscope.ir.dims import Dim, SymDim, bounds, dim_max, dim_min
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Facet, Graph, Node, paused_gc
from irscope.ir.places import Scope
from irscope.ir.types import TensorType, Type
from irscope.ops.cost import FLOP_CLASSES, Cost
from irscope.ops.facts import Control, OpRole
from irscope.ops.registry import callee_of, control_of, find_op, has_bodies, plays, runs_bodies
from irscope.ops.spec import Absent, Family, Known, OpCall, OpSpec, WatchedValues
from irscope.passes.inference.engine import Inference, Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.base import Analysis, PassContext

MEASURES = ("flops", *FLOP_CLASSES, "macs", "masked", "read", "written")
"""The numbers of a cost that are summed up, as attributes of `Cost`."""


class Certainty(enum.Enum):
    """Certainty of a node's cost: exact, bounded or unknown."""

    EXACT = "exact"
    BOUNDED = "bounded"
    """It lies between two numbers: a branch, or a size that depends on data within limits."""
    FREE = "free"
    """Nothing is computed and nothing moves: views, questions about shapes."""
    UNKNOWN = "unknown"


class Arithmetic(enum.Enum):
    """The kind of numbers that a node computes with."""

    FLOAT = "float"
    INTEGER = "integer"
    QUANTISED = "quantised"
    UNKNOWN = "unknown"
    """The operator has no record, or which of several runs is not known."""


Bounds: TypeAlias = Mapping[str, "tuple[Dim, Dim | None]"]
"""By measure the least and the most it can be; None where it has no upper limit."""


@mutable(slots=True)
class Entry:
    """One node's share of the totals: `cost` as often as it `runs`. Never mutated: a frozen class takes three times as long to create."""

    node: Node
    certainty: Certainty
    cost: Cost
    """Of one run. Where it is bounded the upper limit, where it is unknown the part that is known."""
    arithmetic: Arithmetic = Arithmetic.FLOAT
    runs: Dim = 1
    bounds: Bounds | None = None
    """For one run, where it is not exact."""
    reason: str = ""
    """Why the cost is not exact."""

    def repeated(self, times: Dim) -> Entry:
        """Return the same node inside something that runs so many times."""
        return self if times == 1 else replace(self, runs=self.runs * times)

    @property
    def total(self) -> Cost:
        """Return the cost of all runs."""
        return self.cost if self.runs == 1 else self.cost.times(self.runs)

    def limits(self, measure: str) -> tuple[Dim, Dim | None]:
        """Return the least and the most of a measure, all runs together."""
        if self.bounds is None:
            exact = getattr(self.cost, measure) * self.runs
            return exact, exact
        low, high = self.bounds[measure]
        return low * self.runs, None if high is None else high * self.runs


# Bounds of inexact costs, the arithmetic class of a node, and sums over the iterations of a loop.


def arithmetic_of(spec: OpSpec | None, operands: Sequence[Type | None], results: Sequence[Type]) -> Arithmetic:
    """Return the arithmetic of a node: floats wherever an operand or result is one."""
    if spec is None:
        return Arithmetic.UNKNOWN
    if spec.family is Family.QUANTIZATION:
        return Arithmetic.QUANTISED
    dtypes = [type_.dtype for type_ in (*operands, *results) if isinstance(type_, TensorType)]
    if any(dtype.is_float or dtype.kind.value == "complex" for dtype in dtypes) or not dtypes:
        return Arithmetic.FLOAT
    if DType.UNKNOWN in dtypes:
        return Arithmetic.UNKNOWN
    small = spec.family in (Family.CONTRACTION, Family.CONVOLUTION)
    return Arithmetic.QUANTISED if small and any((dtype.bits or 64) <= 8 for dtype in dtypes) else Arithmetic.INTEGER


ANYTHING: Bounds = dict.fromkeys(MEASURES, (0, None))
"""The limits of a node of which nothing is known."""


def limits_of(value: Dim | None) -> tuple[Dim, Dim | None]:
    """Return the least and the most a number can be; what depends on data is limited by the bounds of its sizes."""
    if value is None:
        return 0, None
    if isinstance(value, SymDim) and value.is_unknown:
        low, high = bounds(value)
        return max(low or 0, 0), high
    return value, value


def shown_cost(limits: Bounds) -> Cost:
    """Return the upper limits where there are some, else what is there at least."""
    values = {measure: low if high is None else high for measure, (low, high) in limits.items() if measure != "flops"}
    for measure in ("read", "written"):
        if limits[measure][1] is None:
            values[measure] = 0
    return Cost(**values)


def within(node: Node, limits: Bounds, arithmetic: Arithmetic, reason: str) -> Entry:
    """Return a node whose cost lies between two limits."""
    if all(low is high or low == high for low, high in limits.values()):
        is_free = all(low == 0 for low, _ in limits.values())
        return Entry(node, Certainty.FREE if is_free else Certainty.EXACT, shown_cost(limits), arithmetic)
    certainty = Certainty.UNKNOWN if limits["flops"][1] is None else Certainty.BOUNDED
    return Entry(node, certainty, shown_cost(limits), arithmetic, 1, limits, reason)


def joint(entries: Iterable[Entry]) -> Arithmetic:
    """Return the joint arithmetic of nodes of which some run."""
    kinds = {entry.arithmetic for entry in entries if entry.cost.flops != 0 or entry.bounds is not None}
    return kinds.pop() if len(kinds) == 1 else Arithmetic.UNKNOWN if kinds else Arithmetic.FLOAT


def summed(steps: Sequence[list[Entry]]) -> list[Entry]:
    """Return the entries of all steps of a loop, those of one node with one cost as one."""
    merged: dict[tuple[Node, Cost], Entry] = {}
    for step in steps:
        for entry in step:
            key = (entry.node, entry.cost)
            before = merged.get(key)
            if before is None:
                merged[key] = entry
            else:
                merged[key] = Entry(
                    entry.node, entry.certainty, entry.cost, entry.arithmetic, before.runs + entry.runs, entry.bounds, entry.reason
                )
    return list(merged.values())


# Sums over many entries, fast where most numbers are integers and where many formulas are the same.


class Sum:
    """One sum: integers are added up at once, formulas are collected, so that each distinct one is added once."""

    __slots__ = ("_formulas", "_number")

    def __init__(self) -> None:
        self._number = 0
        self._formulas: dict[SymDim, Dim] | None = None

    @property
    def _terms(self) -> dict[SymDim, Dim]:
        # Most sums hold numbers only: there is no dictionary before the first formula.
        if self._formulas is None:
            self._formulas = {}
        return self._formulas

    def add(self, value: Dim, times: Dim = 1) -> None:
        if isinstance(value, int) and isinstance(times, int):
            self._number += value * times
        elif isinstance(value, SymDim):
            self._terms[value] = self._terms.get(value, 0) + times
        else:
            self.add(times, value)

    def merge(self, other: Sum) -> None:
        self._number += other._number
        for formula, times in (other._formulas or {}).items():
            self._terms[formula] = self._terms.get(formula, 0) + times

    @property
    def value(self) -> Dim:
        total: Dim = self._number
        for formula, times in (self._formulas or {}).items():
            total = total + formula * times
        return total


@mutable
class Tally:
    """Sums of costs, with the limits they lie in."""

    count: int = 0
    _sums: dict[str, Sum] = field(default_factory=dict)
    """Sums by measure; one that is not there is zero."""
    _slack: list[Entry] = field(default_factory=list)
    """Entries that are not exact."""
    _flops: dict[Arithmetic, Sum] = field(default_factory=dict)

    def add(self, entry: Entry, times: int = 1) -> None:
        """Add an entry, or so many with its cost and runs."""
        self.count += times
        cost = entry.cost
        runs = entry.runs if times == 1 else entry.runs * times
        if entry.bounds is not None:
            self._slack.append(entry)
        flops = cost.flops
        if type(flops) is not int or flops:
            _sum_at(self._sums, "flops").add(flops, runs)
            _sum_at(self._flops, entry.arithmetic).add(flops, runs)
            for measure in _ARITHMETIC:
                part = getattr(cost, measure)
                if type(part) is not int or part:
                    _sum_at(self._sums, measure).add(part, runs)
        if cost.read is not None:
            _sum_at(self._sums, "read").add(cost.read, runs)
        if cost.written is not None:
            _sum_at(self._sums, "written").add(cost.written, runs)

    def merge(self, other: Tally) -> None:
        """Add everything that another tally holds."""
        self.count += other.count
        self._slack += other._slack
        for measure, found in other._sums.items():
            _sum_at(self._sums, measure).merge(found)
        for kind, found in other._flops.items():
            _sum_at(self._flops, kind).merge(found)

    def value(self, measure: str) -> Dim:
        """Return the sum; what is bounded counts with its upper limit, what is unknown with the part that is known."""
        found = self._sums.get(measure)
        return 0 if found is None else found.value

    def flops_in(self, arithmetic: Arithmetic) -> Dim:
        found = self._flops.get(arithmetic)
        return 0 if found is None else found.value

    def limits(self, measure: str) -> tuple[Dim, Dim | None]:
        """Return the least and the most the sum can be; None where it has no upper limit."""
        total = self.value(measure)
        if not self._slack:
            return total, total
        low, high = Sum(), Sum()
        open_ended = False
        for entry in self._slack:
            least, most = entry.limits(measure)
            shown = getattr(entry.cost, measure)
            counted = shown * entry.runs if shown is not None else 0
            low.add(least - counted)
            open_ended = open_ended or most is None
            high.add(0 if most is None else most - counted)
        return total + low.value, None if open_ended else total + high.value

    @property
    def moved(self) -> Dim:
        """Bytes read and written."""
        return self.value("read") + self.value("written")

    @property
    def moved_limits(self) -> tuple[Dim, Dim | None]:
        """Return the least and the most of them."""
        (low, high), (least, most) = self.limits("read"), self.limits("written")
        return low + least, None if high is None or most is None else high + most

    def flops_limits(self, arithmetic: Arithmetic) -> tuple[Dim, Dim | None]:
        """Return the least and the most FLOPs of one kind of arithmetic; what may be of any kind counts towards the most."""
        total, low, high = self.flops_in(arithmetic), Sum(), Sum()
        high.add(self.flops_in(Arithmetic.UNKNOWN))
        open_ended = False
        for entry in self._slack:
            if entry.arithmetic not in (arithmetic, Arithmetic.UNKNOWN):
                continue
            least, most = entry.limits("flops")
            counted = entry.cost.flops * entry.runs
            open_ended = open_ended or most is None
            high.add(0 if most is None else most - counted)
            if entry.arithmetic is arithmetic:
                low.add(least - counted)
        return total + low.value, None if open_ended else total + high.value

    @property
    def is_exact(self) -> bool:
        return not self._slack

    def cost(self) -> Cost:
        """Return the sums as one cost."""
        return Cost(**{measure: self.value(measure) for measure in MEASURES if measure != "flops"})


_ARITHMETIC = tuple(measure for measure in MEASURES if measure not in ("flops", "read", "written"))


K = TypeVar("K")


def _sum_at(sums: dict[K, Sum], key: K) -> Sum:
    found = sums.get(key)
    if found is None:
        found = sums[key] = Sum()
    return found


def tallied(entries: Iterable[Entry]) -> Tally:
    """Return the sum of entries."""
    found = _tallies_by(entries, lambda entry: None)
    return found.get(None, Tally())


def by_place(entries: Iterable[Entry]) -> dict[tuple[Scope, str], Tally]:
    """Return the sums by module call and operator, from which those of modules and operators follow."""
    return _tallies_by(entries, lambda entry: (entry.node.scope, entry.node.op))


def _tallies_by(entries: Iterable[Entry], place_of: Callable[[Entry], K]) -> dict[K, Tally]:
    counts: dict[tuple[object, ...], int] = {}
    samples: list[tuple[K, Entry]] = []
    tallies: dict[K, Tally] = {}
    for entry in entries:
        place = place_of(entry)
        if entry.bounds is not None:
            tallies.setdefault(place, Tally()).add(entry)
            continue
        # Equal nodes share one cost: most entries only raise a count.
        key = (place, id(entry.cost), id(entry.arithmetic), entry.runs)
        found = counts.get(key)
        if found is None:
            counts[key] = 1
            samples.append((place, entry))
        else:
            counts[key] = found + 1
    for (place, entry), count in zip(samples, counts.values(), strict=True):
        tallies.setdefault(place, Tally()).add(entry, count)
    return tallies


Answer: TypeAlias = "tuple[Certainty, Cost, Arithmetic, Dim, Bounds | None, str]"
"""The fields of an entry behind its node."""
_NOTHING = Cost(read=0, written=0)


@mutable
class Costs:
    """Costs of all nodes, and their sums."""

    entries: list[Entry] = field(default_factory=list)
    """Entries of the totals: nodes outside branches that may or may not run, each with the number of its runs."""
    by_node: dict[Node, Cost] = field(default_factory=dict)
    """Cost of one run of each node that has a known one, with what is inside its regions; the upper limit where it is bounded."""
    certainty: dict[Node, Certainty] = field(default_factory=dict)
    """Of every node looked at, those inside regions included."""
    reasons: dict[Node, str] = field(default_factory=dict)
    """Why the cost of a node is not exact."""
    unknown: dict[str, list[Node]] = field(default_factory=dict)
    """Nodes without a known cost by operator."""
    partial: set[Node] = field(default_factory=set)
    """Nodes whose regions hold nodes without a known cost: theirs is only the part that is known."""
    tally: Tally = field(default_factory=Tally)
    """The sum of everything."""

    @cached_property
    def places(self) -> dict[tuple[Scope, str], Tally]:
        """Sums by module call and operator; made when a table first asks for them."""
        with paused_gc():
            return by_place(self.entries)

    @property
    def counted(self) -> int:
        """Nodes looked at, those inside regions included."""
        return len(self.certainty)

    @property
    def missing(self) -> int:
        """Nodes without a known cost."""
        return sum(len(nodes) for nodes in self.unknown.values())

    @cached_property
    def total(self) -> Cost:
        """Everything together; what is bounded with its upper limit, what is unknown not at all."""
        return self.tally.cost()


_MOST_NAMED: Final = 8


@dataclass(frozen=True)
class NodeCosts(Analysis[Costs]):
    """Work out what every node costs."""

    name: ClassVar[str] = "costs"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    def compute(self, graph: Graph, ctx: PassContext) -> Costs:
        counter = _Counter(ctx.get(Shapes), ctx.program.functions)
        bodies = [graph, *ctx.program.functions.values()]
        if any((kind := control_of(node)) and kind.is_stepwise for body in bodies for inner in _with_regions(body) for node in inner):
            counter.listen(Inference(ctx.program))
        costs = counter.costs
        # A hundred thousand small objects at once would make the collector look at everything again and again.
        with paused_gc():
            costs.entries = counter.body(graph, lambda nodes: ctx.each(nodes, "counting", len(graph)))
            costs.tally = tallied(costs.entries)
        for op, nodes in costs.unknown.items():
            if plays(nodes[0], OpRole.GENERATED):
                # Each is an operator of its own, so their names tell more than one reason would.
                kernels = list(dict.fromkeys(node.source or str(node.attrs.get("kernel", "")) for node in nodes))
                what = "1 generated kernel" if len(kernels) == 1 else f"{len(kernels)} generated kernels"
                names = few(kernels, _MOST_NAMED, "--passes layers --rows 0")
                message = f"the cost of {what} is unknown and not part of the totals: {names}"
                ctx.sink.add(Diagnostic(Severity.WARNING, "IRS401", message), about=op)
                continue
            message = f"the cost of {op} is unknown and not part of the totals: {costs.reasons[nodes[0]]}"
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS401", message, nodes[0].name, count=len(nodes)), about=op)
        return costs


def _with_regions(graph: Graph) -> Iterator[Graph]:
    # A body without control flow has no regions to look for.
    return graph.graphs() if has_bodies(graph) else iter(())


class _Counter:
    """Walks bodies in the order in which they run."""

    def __init__(self, types: Inferred, functions: Mapping[str, Graph]) -> None:
        self.types = types
        self.functions = functions
        self.costs = Costs()
        self._steps: dict[Node, list[list[Entry]]] = {}
        """Entries of a body by step, for what runs it with types of its own each time."""
        self._done: dict[Hashable, Answer] = {}
        self._by_kind: dict[int, Answer] = {}
        """Costs of nodes by kind, where they do not depend on the elements of operands; keyed by the kind's identity."""
        self._kept: list[WatchedValues] = []
        """Elements that keys of `_done` tell apart by identity, and which must therefore stay."""

    def listen(self, engine: Inference) -> None:
        """Infer once more and count bodies at every step, when their values have the types of that step."""
        self.types = engine.found

        def after(node: Node, number: int) -> None:
            callee = callee_of(node)
            body = node.regions[0] if callee is None else self.functions[callee]
            if number == 0:
                self._steps[node] = []
            self._steps[node].append(self.body(body))

        engine.after_body = after
        engine.run()
        # What was noted on the way is noted again where bodies are counted for good.
        self.costs = Costs()

    def body(self, graph: Graph, each: Callable[[Graph], Iterable[Node]] = iter) -> list[Entry]:
        """Return the costs of the nodes of a body, in order."""
        entries: list[Entry] = []
        by_node, certainty = self.costs.by_node, self.costs.certainty
        known = self._by_kind
        for node, kind in zip(each(graph), self.types.kinds_of(graph), strict=True):
            answer = known.get(id(kind))
            if answer is None:
                if runs_bodies(node):
                    entries.extend(self.control(node))
                    continue
                answer = self.answer(node, kind)
            entry = Entry(node, *answer)
            certainty[node] = entry.certainty
            if entry.certainty is Certainty.UNKNOWN:
                self._note_unknown(node, entry.reason)
            else:
                by_node[node] = entry.cost
                if entry.reason:
                    self.costs.reasons[node] = entry.reason
            entries.append(entry)
        return entries

    def _note_unknown(self, node: Node, reason: str) -> None:
        found = self.costs.unknown.setdefault(node.op, [])
        # A body that is counted more than once must not name its nodes twice.
        if node not in self.costs.reasons:
            found.append(node)
        self.costs.reasons[node] = reason

    # -- operators ---------------------------------------------------------------------------------------------

    def plain(self, node: Node) -> Entry:
        """Return a node without regions."""
        return Entry(node, *self.answer(node))

    def answer(self, node: Node, kind: object = None) -> Answer:
        """Return the cost of a node without regions, the same object for like nodes. It is kept by kind where no elements were looked
        at."""
        types = self.types.types
        operands = [None if value is None else types.get(value, value.type) for value in node.inputs]
        results = [types.get(value, value.type) for value in node.outputs]
        attrs = _hashable(node.attrs)
        key = (node.op, attrs, *operands, None, *results)
        answer = self._done.get(key)
        if answer is not None:
            if kind is not None:
                self._by_kind[id(kind)] = answer
            return answer
        values = self.types.values
        known = WatchedValues([None if value is None else values.get(value) for value in node.inputs])
        # Like nodes share the elements that are known of their operands, so that identity tells them apart.
        closer = (key, *map(id, known.items))
        answer = self._done.get(closer)
        if answer is None:
            answer = self._cost(node, find_op(node.op), operands, results, known)
            if attrs is not _UNHASHABLE:
                # What did not look at elements is the same for all of them.
                self._done[closer if known.is_looked_at else key] = answer
                self._kept.append(known)
                if kind is not None and not known.is_looked_at:
                    self._by_kind[id(kind)] = answer
        return answer

    def tally(self, nodes: Iterable[Node], kinds: Iterable[object]) -> Tally:
        """Return the sum over nodes without regions, without an entry for each."""
        groups: dict[int, tuple[Answer, list[Node]]] = {}
        known = self._by_kind
        for node, kind in zip(nodes, kinds, strict=True):
            answer = known.get(id(kind))
            if answer is None:
                answer = self.answer(node, kind)
            group = groups.get(id(answer))
            if group is None:
                groups[id(answer)] = answer, [node]
            else:
                group[1].append(node)
        total = Tally()
        for answer, alike in groups.values():
            entry = Entry(alike[0], *answer)
            if entry.bounds is None:
                total.add(entry, len(alike))
            else:
                for node in alike:
                    total.add(Entry(node, *answer))
        return total

    def _cost(
        self, node: Node, spec: OpSpec | None, operands: Sequence[Type | None], results: Sequence[Type], known: Sequence[Known | None]
    ) -> Answer:
        arithmetic = arithmetic_of(spec, operands, results)
        if spec is None:
            return Certainty.UNKNOWN, _NOTHING, arithmetic, 1, ANYTHING, f"irscope has no record of {node.op}"
        if isinstance(spec.cost, Absent):
            return Certainty.UNKNOWN, _NOTHING, arithmetic, 1, ANYTHING, spec.summary
        cost = spec.cost_of(OpCall(spec, operands, node.attrs, known, results))
        if cost is None:
            return Certainty.UNKNOWN, _NOTHING, arithmetic, 1, ANYTHING, self._missing_size([*operands, *results])
        limits = {measure: limits_of(getattr(cost, measure)) for measure in MEASURES}
        if all(low is high for low, high in limits.values()):
            is_free = all(part == 0 for part in (cost.flops, cost.read, cost.written))
            return Certainty.FREE if is_free else Certainty.EXACT, cost, arithmetic, 1, None, ""
        reason = self._missing_size([*operands, *results])
        is_known = limits["flops"][1] is not None
        if is_known and limits["flops"][0] is limits["flops"][1]:
            certainty = Certainty.EXACT
        else:
            certainty = Certainty.BOUNDED if is_known else Certainty.UNKNOWN
        return certainty, shown_cost(limits), arithmetic, 1, limits, reason

    def _missing_size(self, types: Sequence[Type | None]) -> str:
        """Return which size is unknown, and why."""
        for type_ in types:
            if not isinstance(type_, TensorType):
                continue
            if type_.shape is None:
                return "the number of axes of an operand or result is unknown"
            for size in type_.shape:
                for symbol in size.symbols() if isinstance(size, SymDim) and size.is_unknown else ():
                    found = self.types.reasons.get(str(symbol))
                    if found is not None:
                        return f"the size {symbol} is unknown: {found.text}"
        return "it depends on values or sizes that are unknown"

    # -- control flow ------------------------------------------------------------------------------------------

    def control(self, node: Node) -> list[Entry]:
        """Return a node that runs bodies: what they cost as often as they run, or within which limits."""
        missing = self.costs.missing
        kind = control_of(node)
        if kind is Control.BRANCH and len(node.regions) == 2:
            entries = self._branches(node)
        elif kind is Control.CALL:
            entries = self._call(node)
        elif kind is not None and kind.repeats:
            entries = self._loop(node)
        else:
            entries = [self.plain(node), *(entry for region in node.regions for entry in self.body(region))]
        tally = tallied(entries)
        alone = next((entry for entry in entries if entry.node is node), None)
        certainty = Certainty.FREE if alone is None else alone.certainty
        if self.costs.missing > missing:
            self.costs.partial.add(node)
            # The unknown operator is inside, and is reported there.
            certainty = Certainty.BOUNDED if certainty is Certainty.UNKNOWN else certainty
        self.costs.certainty[node] = certainty
        if alone is not None and certainty is Certainty.UNKNOWN:
            self._note_unknown(node, alone.reason)
        else:
            self.costs.by_node[node] = tally.cost()
            if alone is not None and alone.reason:
                self.costs.reasons[node] = alone.reason
        return entries

    def _branches(self, node: Node) -> list[Entry]:
        branch = self.types.branches.get(node)
        if branch is not None and branch.taken is not None:
            # What is unknown in the other does not matter.
            return self.body(node.regions[branch.taken])
        bodies = [self.body(region) for region in node.regions]
        tallies = [tallied(body) for body in bodies]
        limits: dict[str, tuple[Dim, Dim | None]] = {}
        for measure in MEASURES:
            each = [tally.limits(measure) for tally in tallies]
            highs = [high for _, high in each if high is not None]
            limits[measure] = dim_min(*(low for low, _ in each)), dim_max(*highs) if len(highs) == len(each) else None
        return [within(node, limits, joint(entry for body in bodies for entry in body), "it depends on which branch is taken")]

    def _call(self, node: Node) -> list[Entry]:
        steps = self._steps.get(node)
        if steps is not None:
            return steps[-1]
        return [Entry(node, Certainty.UNKNOWN, _NOTHING, bounds=ANYTHING, reason="the function it calls is not there")]

    def _loop(self, node: Node) -> list[Entry]:
        trips = self.types.trips.get(node)
        steps = self._steps.get(node, [])
        body = self.body(node.regions[0])
        if isinstance(trips, int) and len(steps) == trips and trips > 0:
            return summed(steps)
        if trips is not None and not (isinstance(trips, SymDim) and trips.is_unknown):
            return [entry.repeated(trips) for entry in body] if trips != 0 else []
        low, high = bounds(trips) if trips is not None else (0, None)
        tally = tallied(body)
        limits: dict[str, tuple[Dim, Dim | None]] = {}
        for measure in MEASURES:
            least, most = tally.limits(measure)
            limits[measure] = least * max(low or 0, 0), None if most is None or (high is None and most != 0) else most * (high or 0)
        return [within(node, limits, joint(body), "the number of iterations is unknown")]


def tally_of(ctx: PassContext) -> Tally:
    """Return the sum of all costs, where nobody needs those of each node."""
    graph = ctx.program.graph
    if has_bodies(graph):
        return ctx.get(NodeCosts()).tally
    with paused_gc():
        types = ctx.get(Shapes)
        return _Counter(types, {}).tally(ctx.each(graph, "counting", len(graph)), types.kinds_of(graph))


class _Unhashable:
    """Stands for attributes that cannot be told apart."""


_UNHASHABLE = _Unhashable()
_NO_ATTRS: tuple[object, ...] = ()


def _hashable(attrs: Mapping[str, Attr]) -> Hashable:
    if not attrs:
        return _NO_ATTRS
    items = tuple(attrs.items())
    try:
        hash(items)
    except TypeError:
        return _UNHASHABLE
    return items
