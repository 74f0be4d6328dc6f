"""The order of a model's nodes that needs least memory, as a scheduling problem, with the proof of how little any can need."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from irscope.amounts import SHARE, Seconds, read_amount
from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import PassError, UsageError
from irscope.immutable import immutable
from irscope.ir.bind import bind_option, typed
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Facet, Graph, Node, Role, Value
from irscope.ir.types import TensorType
from irscope.ops.facts import OpRole
from irscope.ops.registry import plays, spec_of
from irscope.ops.spec import Family
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passes.cost.roofline import Roofline
from irscope.passes.graph.alias import Alias, Aliases, written_operand
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes, size_hint
from irscope.passes.lifetimes.lives import is_unknown, label_of, read_values
from irscope.passes.lifetimes.traced import Lifetimes, Ranges
from irscope.passes.order.effects import Effects, Order
from irscope.passes.sizes import CONVENTION
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity
from irscope.solvers.graphs import DisjointSets, waiting_for_one_another
from irscope.solvers.order.bounds import Cut
from irscope.solvers.order.problem import OrderProblem, Storage, order_problem
from irscope.solvers.order.recompute import Recipe, lower, start
from irscope.solvers.order.solve import INDUCTOR_ORDERS, SIMPLE_ORDERS, LatencyLimit, Ordering, best_order

_NAMED = 8


@immutable(slots=False)
class Draft:
    """The problem, and what its numbers stand for."""

    nodes: list[Node]
    """Operators by number, in the order as written."""
    problem: OrderProblem
    values: list[Value]
    """The value that has each of the problem's storages first."""
    unsized: list[Value]
    """Values without a known size, which are not counted."""


def draft(graph: Graph, lifetimes: Lifetimes, aliases: Aliases, order: Order, *, free_inputs: bool) -> Draft:
    """Return the scheduling problem of a graph; its order as written is one solution. Raises PassError where sizes are formulas."""
    nodes = lifetimes.steps
    place = {node: at for at, node in enumerate(nodes)}
    end = len(nodes)
    storages: list[Storage] = []
    values: list[Value] = []
    unsized = list(lifetimes.unsized)
    unsized += [one.value for one in lifetimes.ranges if is_unknown(one.size)]
    unsized += [nodes[step].outputs[0] for step, size in lifetimes.inside.items() if is_unknown(size) and nodes[step].outputs]
    check_sizes([*(one.size for one in lifetimes.ranges), *lifetimes.inside.values()])
    for one in lifetimes.ranges:
        if is_unknown(one.size):
            continue
        # What a call or a variable holds stays until the node after which that lets go.
        steps = {one.born, *(step for step in one.used_at if step < end), *((one.dies,) if one.dies < end else ())}
        storages.append(Storage(_bound_size(one.size), tuple(sorted(steps)), is_output=one.dies >= end or one.is_output))
        values.append(one.value)
    if free_inputs:
        for value, storage in _input_storages(graph, nodes, aliases, unsized):
            storages.append(storage)
            values.append(value)
    kept = [at for at, storage in enumerate(storages) if storage.size and storage.touches and not (storage.is_input and storage.is_output)]
    base = sum(storage.size for storage in storages if storage.is_input and storage.is_output)
    inside = {step: size for step, size in lifetimes.inside.items() if not is_unknown(size)}
    workspace = [_bound_size(inside.get(step, 0)) for step in range(end)]
    before = _predecessors(nodes, place, order)
    if cycle := waiting_for_one_another(before):
        names = ", ".join(nodes[op].name for op in cycle[:_NAMED])
        raise PassError(f"{len(cycle)} nodes form a cycle of dependences, so that there is no topological order: {names}", code="IRS366")
    problem = order_problem(before, [storages[at] for at in kept], workspace)
    problem = OrderProblem(problem.before, problem.storages, problem.workspace, base)
    return Draft(nodes, problem, [values[at] for at in kept], unsized)


def check_sizes(sizes: Iterable[Dim]) -> None:
    """Raise PassError, with what would help, where a size is a formula."""
    symbols = {symbol for size in sizes if isinstance(size, SymDim) and not is_unknown(size) for symbol in size.symbols()}
    names = sorted(str(symbol) for symbol in symbols)
    if names:
        hint = f"{typed(bind_option(symbols))} gives them"
        raise PassError(f"orders and places need numbers: sizes depend on {', '.join(names)}", code="IRS352", hint=hint)


def _predecessors(nodes: Sequence[Node], place: dict[Node, int], order: Order) -> list[set[int]]:
    """Return for each node those that must run before it: producers of what it reads, and those that shared storage or side effects
    require."""
    before: list[set[int]] = [set() for _ in nodes]
    last_fixed = -1
    for at, node in enumerate(nodes):
        for value in read_values(node):
            maker = -1 if value.node is None else place.get(value.node, -1)
            if maker >= 0 and maker != at:
                before[at].add(maker)
        if _is_fixed(node):
            if last_fixed >= 0:
                before[at].add(last_fixed)
            last_fixed = at
    for edge in order.edges:
        if edge.before in place and edge.after in place:
            before[place[edge.after]].add(place[edge.before])
    return before


def _is_fixed(node: Node) -> bool:
    """Return whether a node must keep its place among others like it: it draws random numbers, has side effects, or is foreign."""
    return any(_acts(one) for one in (node, *(inner for region in node.regions for inner in region.walk())))


def _acts(node: Node) -> bool:
    spec = spec_of(node)
    if spec is None:
        return True
    if spec.has_effect:
        return True
    if not spec.random:
        return False
    # A dropout that drops nothing draws nothing.
    given = len(node.inputs) > 2 and node.inputs[2] is not None
    return given or "training" not in spec.defaults or bool(node.attrs.get("training", spec.defaults["training"]))


def _input_storages(graph: Graph, nodes: Sequence[Node], aliases: Aliases, unsized: list[Value]) -> Iterator[tuple[Value, Storage]]:
    """Yield the model's inputs as storages that the caller gives away."""
    users: dict[Value, list[int]] = {}
    for at, node in enumerate(nodes):
        for value in read_values(node):
            for storage in aliases.storages(value):
                users.setdefault(storage, []).append(at)
    returned = {storage for value in graph.outputs for storage in aliases.storages(value)}
    for value in graph.inputs:
        size = value.type.tensor_bytes
        if value.role is not Role.INPUT or value not in users:
            continue
        if size is None or is_unknown(size):
            unsized.append(value)
            continue
        check_sizes([size])
        yield value, Storage(_bound_size(size), tuple(dict.fromkeys(users[value])), is_input=True, is_output=value in returned)


def _bound_size(size: Dim) -> int:
    assert isinstance(size, int)
    return size


# Which nodes of a model can run again with the same result, and what that costs.


def recipe_of(draft: Draft, aliases: Aliases, costs: Costs) -> Recipe:
    """Return how the results of a draft's nodes are made."""
    place = {node: op for op, node in enumerate(draft.nodes)}
    numbers = {value: number for number, value in enumerate(draft.values)}
    written = _overwritten_storages(draft.nodes, aliases)
    reads: list[tuple[int, ...]] = []
    makes: list[int] = []
    cost: list[int | None] = []
    for node in draft.nodes:
        makers = (place.get(value.node, -1) for value in read_values(node) if value.node is not None)
        reads.append(tuple(dict.fromkeys(maker for maker in makers if maker >= 0 and draft.nodes[maker] is not node)))
        makes.append(numbers.get(aliases.storage(node.outputs[0]), -1) if node.outputs else -1)
        cost.append(_cost_of_repeat(node, aliases, written, costs))
    return Recipe(reads, makes, cost)


def _overwritten_storages(nodes: list[Node], aliases: Aliases) -> set[Value]:
    """Return the storages that some node writes over: what was read from them may be gone."""
    values: set[Value] = set()
    for node in nodes:
        operand = written_operand(node)
        if operand is not None:
            values.update(aliases.storages(operand))
    return values


def _cost_of_repeat(node: Node, aliases: Aliases, written: set[Value], costs: Costs) -> int | None:
    """Return the FLOPs of running a node once more; None where it must run exactly once or its cost is unknown."""
    spec = spec_of(node)
    if spec is None or spec.has_effect or spec.random or node.regions or written_operand(node) is not None or len(node.outputs) != 1:
        return None
    touched = [storage for value in (*read_values(node), *node.outputs) for storage in aliases.storages(value)]
    if any(storage in written for storage in touched) or len(aliases.storages(node.outputs[0])) != 1:
        return None
    known = costs.by_node.get(node)
    flops = None if known is None else known.flops
    return flops if isinstance(flops, int) else None


ScheduleModel: TypeAlias = Literal["ssa", "jit", "eager"]
_LEVER_SECONDS = 1.0
_NOTES = {
    "ssa": "model ssa: a tensor is freed right after its last use",
    "jit": "model jit: a tensor is freed right after its last use, as TorchScript's interpreter does",
    "eager": "model eager: what a call or a variable holds is freed after the same node as in the order as written",
}


@dataclass
class Scheduled:
    """The best order found, and what is known about it."""

    model: str
    draft: Draft
    ordering: Ordering
    limit: LatencyLimit | None
    weights: str
    """Kind of the nodes' times: "roofline", "one each", or empty without a limit."""
    node: str
    """At which node every order needs most."""
    shown: int
    """Bytes that are alive there in every order; the bound may be more, where a search has proven it."""
    held: list[Held] = field(default_factory=list)
    levers: list[Lever] = field(default_factory=list)

    @property
    def nodes(self) -> list[Node]:
        """Return all nodes of the main graph in the new order."""
        return [self.draft.nodes[op] for op in self.ordering.order]

    @property
    def is_new(self) -> bool:
        """Return whether the order is another one than as written."""
        return self.ordering.peak < self.ordering.as_written


@dataclass(frozen=True)
class Schedule(Analysis[Scheduled]):
    """Find the topological order of least peak memory, and a proven lower bound for every order."""

    name: ClassVar[str] = "schedule"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    model: ScheduleModel = "ssa"
    """Lifetime model, which says when tensors are freed: ssa and jit after the last use, eager as Python's frames do
    in the order as written."""
    seconds: Seconds = 10
    """Time to search; it ends sooner where the best order is proven best."""
    seed: int = 0
    """Seed of the random part of the search."""
    latency: str = ""
    """By how much the time of overlapping nodes may grow, such as 5%; default: without limit."""
    inputs: Literal["held", "freed"] = "held"
    """Whether the caller keeps the model's inputs, which then do not count, or gives them away, to be freed after their last use."""
    top: int = 20
    """Rows of each table, 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> Scheduled:
        if self.seconds < 0:
            raise UsageError(f"a search of {self.seconds:g} seconds is not possible", code="IRS354", hint="seconds=0 keeps what is quick")
        share = read_share(self.latency, "latency", "latency=5% or latency=0.05") if self.latency else None
        aliases = ctx.get(Alias())
        lifetimes = ctx.get(Ranges(model=self.model))
        found = draft(graph, lifetimes, aliases, ctx.get(Effects()), free_inputs=self.inputs == "freed")
        limit, weights = None, ""
        if share is not None:
            seconds, weights = _seconds_of(found.nodes, ctx)
            limit = LatencyLimit(found.problem, seconds, share)
        ordering = best_order(found.problem, self.seconds, self.seed, limit, lambda what: ctx.tick(0, None, what))
        if found.unsized:
            _say_unsized(found, ctx)
        scheduled = Scheduled(self.model, found, ordering, limit, weights, *reason(found, ordering))
        if self.seconds:
            spare = min(_LEVER_SECONDS, self.seconds / 5)
            freed = draft(graph, lifetimes, aliases, ctx.get(Effects()), free_inputs=True) if self.inputs == "held" else found
            known = Known(aliases, ctx.get(Shapes), ctx.get(NodeCosts()), freed)
            scheduled.levers = levers(found, ordering, known, spare, self.seed)
        return scheduled

    def report(self, result: Scheduled, ctx: PassContext) -> Report:
        ordering = result.ordering
        missing = len(result.draft.unsized)
        summary: dict[str, object] = {
            "model": result.model,
            "peak_before_bytes": _at_least(ordering.as_written, missing),
            "peak_after_bytes": _at_least(ordering.peak, missing),
            "lower_bound_bytes": _at_least(ordering.bound, missing),
            "proven_optimal": ordering.proven and not missing,
            "gain_ratio": None if missing else _gain(ordering),
            "above_bound_ratio": None if missing else _excess_over_bound(ordering.peak, ordering.bound),
            "method": ordering.method,
            "inductor_peak_bytes": _at_least(inductor_peak(result), missing),
            "says": _schedule_verdict(result),
        }
        if result.limit is not None:
            before, after, least = result.limit.as_written, result.limit.length(ordering.order), result.limit.critical_path
            where = Provenance.MODELLED if result.weights == "roofline" else Provenance.EXACT
            figures = {"before": before, "after": after, "critical_path": least}
            summary["latency"] = {"weights": result.weights, **{key: Quantity(figure, where) for key, figure in figures.items()}}
        storages = len(result.draft.values)
        return Report(
            pass_name=self.name,
            options=self.text,
            summary=summary,
            units={"latency": Kind.SECONDS if result.weights == "roofline" else Kind.NUMBER},
            tables=tuple(self._tables(result)),
            series=_before_and_after(result),
            coverage=Coverage(storages, storages + missing),
            notes=(CONVENTION, _NOTES[result.model], *self._remarks(result)),
            partial=bool(missing),
        )

    def _tables(self, result: Scheduled) -> Iterator[Table]:
        ordering = result.ordering
        orders = {**ordering.baselines, "found": ordering.peak}
        missing = len(result.draft.unsized)
        rows = [
            (name, name in INDUCTOR_ORDERS, _at_least(peak, missing), None if missing else _excess_over_bound(peak, ordering.bound))
            for name, peak in orders.items()
        ]
        above = Column("above_bound", Kind.RATIO)
        yield Table.of(rows, columns=["order", "inductor:bool", "peak:bytes", above], title="orders tried")
        held = [(holding.name, holding.size, holding.why) for holding in result.held[: self.top or None]]
        where = f"alive in every order at {result.node}" if result.node else "alive in every order"
        yield Table.of(held, columns=["tensor:value", "size:bytes", "why:text"], title=where)
        helping = [lever for lever in result.levers if (lever.bound if lever.peak is None else lever.peak) < ordering.peak]
        changes = [(one.what, one.places or None, one.peak, one.bound) for one in helping]
        columns = [Column("change"), Column("places", Kind.COUNT), Column("peak", Kind.BYTES), Column("bound", Kind.BYTES)]
        yield Table.of(changes, columns=columns, title="possible changes and their peaks")
        needs = result.draft.problem.needs(ordering.order)
        moved = [(result.draft.nodes[op].name, at, op, needs[at]) for at, op in enumerate(ordering.order)] if result.is_new else []
        columns = [Column("node", Kind.NODE), Column("step", Kind.INDEX), Column("before", Kind.INDEX), Column("alive", Kind.BYTES)]
        yield Table.of(moved[: self.top or None], columns=columns, title="new order")

    def _remarks(self, result: Scheduled) -> Iterator[str]:
        ordering = result.ordering
        if self.inputs == "held":
            yield "the caller keeps the inputs, which do not count; inputs=freed lets go of them after their last use"
        if result.shown < ordering.bound:
            more = ordering.bound - result.shown
            yield f"a search through all orders that could do with less shows that {more} bytes more are needed than those in the table"
        if not self.seconds:
            yield "without time to search the order is the one as written"
        if result.limit is not None:
            yield (
                "latency: nodes start in order, each as soon as its operands are there, and overlap; "
                f"times are {'the least on the device' if result.weights == 'roofline' else 'one for each node'}"
            )
        if any(lever.what.startswith("recompute") and lever.peak is not None for lever in result.levers):
            yield "recomputing here costs at most 10% more arithmetic; the pass recompute shows which nodes, and how much"
        if any("inputs" in lever.what and lever.peak is not None and lever.peak < ordering.peak for lever in result.levers):
            yield "where the model frees its inputs, the peak is what it needs beyond them"


def _schedule_verdict(result: Scheduled) -> str:
    ordering = result.ordering
    if result.draft.unsized:
        return f"{len(result.draft.unsized)} tensors have no known size: the order is for the others"
    if ordering.proven and not result.is_new:
        return "reordering cannot help here: the order as written is proven best"
    if ordering.proven:
        return "no order needs less: proven"
    if not ordering.bound:
        return "no lower bound is known"
    gap = ordering.peak / ordering.bound - 1
    return f"{'less than 0.1%' if gap < 0.001 else f'at most {gap:.1%}'} above the lower bound of every order"


def _at_least(size: int, missing: int) -> object:
    if not missing:
        return size
    return Quantity(None, note=f"{missing} tensors have no known size; the others need this much", lo=size)


def _gain(ordering: Ordering) -> float:
    return 1 - ordering.peak / ordering.as_written if ordering.as_written else 0.0


def _excess_over_bound(peak: int, bound: int) -> float | None:
    if not bound:
        return None if peak else 0.0
    return peak / bound - 1


def _before_and_after(result: Scheduled) -> tuple[Series, ...]:
    """Return the bytes alive before and after, over the places in the order."""
    problem, order = result.draft.problem, result.ordering.order
    if not order:
        return ()
    missing = bool(result.draft.unsized)

    def heights(needs: Sequence[int]) -> list[int | None]:
        return [None if missing and not size else size for size in needs]

    data: dict[str, Sequence[object]] = {"step": [*range(len(order))], "as_written": heights(problem.needs(range(len(order))))}
    if result.is_new:
        data["scheduled"] = heights(problem.needs(order))
    columns = tuple(Column(key, Kind.BYTES) for key in data if key != "step")
    what = ", tensors of unknown size not counted" if result.draft.unsized else ""
    return (Series(f"bytes alive by step{what}", Column("step", Kind.COUNT), columns, data, stacked=False),)


def _say_unsized(found: Draft, ctx: PassContext) -> None:
    first = found.unsized[0]
    message = f"{len(found.unsized)} tensors have no known size and are not counted in the order; the first is {first.name or 'unnamed'}"
    hint = size_hint(ctx.get(Shapes), found.unsized)
    where = first.node.name if first.node is not None else ""
    ctx.sink.add(Diagnostic(Severity.WARNING, "IRS353", message, where, hint=hint))


def read_share(text: str, what: str, example: str) -> float:
    """Return the share by which something may grow that a text such as 5% or 0.05 names."""
    share = read_amount(text, SHARE)
    if share is None:
        raise UsageError(f"{text!r} is not a share by which {what} may grow", code="IRS354", hint=f"write {example}")
    return share


def _seconds_of(nodes: list[Node], ctx: PassContext) -> tuple[list[float], str]:
    """Return the least time of each node on the device; one each where the time of some node is not known."""
    bounds = ctx.get(Roofline())
    totals = dict.fromkeys(nodes, 0.0)
    for one in bounds.nodes:
        node = one.node
        while node.graph is not None and node.graph.owner is not None:
            node = node.graph.owner
        if node in totals:
            totals[node] += bounds.seconds_of(one)
    if bounds.unknown or not any(totals.values()):
        return [1.0] * len(nodes), "one each"
    return [totals[node] for node in nodes], "roofline"


def inductor_peak(result: Scheduled) -> int:
    """Return the least peak of the orders among which Inductor chooses; those that the search could do without are made now."""
    peaks = dict(result.ordering.baselines)
    problem = result.draft.problem
    for name in INDUCTOR_ORDERS:
        if name not in peaks:
            order = SIMPLE_ORDERS[name](problem) if name in SIMPLE_ORDERS else list(range(len(problem)))
            peaks[name] = problem.peak(order)
    return min(peaks[name] for name in INDUCTOR_ORDERS)


# Relaxations of the scheduling problem that could lower the peak further; the best order of each is searched.

_MOST_NODES = 5_000
_MORE_ARITHMETIC = 0.1
_GIVEN_AWAY = "let the model free its inputs after their last use"
_RECOMPUTED = "recompute what is needed again instead of keeping it"


@immutable(slots=False)
class Lever:
    """One kind of change with what it makes possible."""

    what: str
    places: int
    """Number of places where it can be done."""
    peak: int | None
    """Reached by the best order found; None where only a bound is known."""
    bound: int
    """No order needs less then."""


@immutable(slots=False)
class Known:
    """Further knowledge about the model."""

    aliases: Aliases
    types: Inferred
    costs: Costs
    freed: Draft
    """The problem where the caller gives the inputs away."""


@dataclass
class _Merging:
    """Storages that become one."""

    draft: Draft
    before: list[set[int]] = field(init=False)
    sets: DisjointSets[int] = field(init=False)
    places: int = 0

    def __post_init__(self) -> None:
        self.before = [set(earlier) for earlier in self.draft.problem.before]
        self.sets = DisjointSets(range(len(self.draft.values)))

    def problem(self) -> OrderProblem:
        """Return the problem with what was merged; the larger size counts."""
        old = self.draft.problem
        storages = [
            Storage(
                max(part.size for part in group),
                tuple(sorted({op for part in group for op in part.touches})),
                any(part.is_input for part in group),
                any(part.is_output for part in group),
            )
            for group in ([old.storages[number] for number in members] for members in self.sets.groups())
        ]
        return OrderProblem([tuple(sorted(earlier)) for earlier in self.before], storages, old.workspace, old.base)


def levers(draft: Draft, ordering: Ordering, known: Known, seconds: float, seed: int) -> list[Lever]:
    """Return the peak that each kind of change makes possible; empty for models that are too large for the search."""
    if len(draft.nodes) > _MOST_NODES:
        return []
    found: list[Lever] = []
    for what, merging in (
        ("write elementwise results over their operands", _in_place(draft, known.aliases, known.types)),
        ("write operands of a concatenation into its result", _without_concat(draft, known.aliases)),
    ):
        if merging.places:
            best = best_order(merging.problem(), seconds, seed)
            found.append(Lever(what, merging.places, best.peak, best.bound))
    given = known.freed.problem.at_start - draft.problem.at_start
    if given:
        best = best_order(known.freed.problem, seconds, seed)
        places = sum(storage.is_input for storage in known.freed.problem.storages)
        found.append(Lever(_GIVEN_AWAY, places, best.peak - given, best.bound - given))
    found.append(_recomputing(draft, ordering, known, seconds))
    return found


def _recomputing(draft: Draft, ordering: Ordering, known: Known, seconds: float) -> Lever:
    deadline = time.monotonic() + seconds
    recipe = recipe_of(draft, known.aliases, known.costs)
    most = round(sum(cost or 0 for cost in recipe.cost) * _MORE_ARITHMETIC)
    first = start(draft.problem, recipe, ordering.order)
    found = lower(first, most, lambda: time.monotonic() > deadline)
    return Lever(_RECOMPUTED, sum(found.again), found.peak if found.peak < first.peak else None, draft.problem.least)


def _storage_numbers(draft: Draft) -> dict[Value, int]:
    return {value: number for number, value in enumerate(draft.values)}


def _in_place(draft: Draft, aliases: Aliases, types: Inferred) -> _Merging:
    """Elementwise results take the place of an operand that nothing reads afterwards."""
    merging, numbers = _Merging(draft), _storage_numbers(draft)
    storages = draft.problem.storages
    for op, node in enumerate(draft.nodes):
        spec = spec_of(node)
        if spec is None or spec.family is not Family.ELEMENTWISE or len(node.outputs) != 1 or written_operand(node) is not None:
            continue
        made = numbers.get(node.outputs[0])
        for operand in node.inputs:
            taken = None if operand is None else numbers.get(aliases.storage(operand))
            if operand is None or made is None or taken is None or not _have_same_type(types, operand, node.outputs[0]):
                continue
            storage = storages[taken]
            # Whatever else reads the operand comes before this node in the order as written; from now on it has to.
            if storage.is_output or storage.touches[-1] != op or storage.size != storages[made].size:
                continue
            merging.sets.join(taken, made)
            merging.before[op].update(reader for reader in storage.touches if reader != op)
            merging.places += 1
            break
    return merging


def _without_concat(draft: Draft, aliases: Aliases) -> _Merging:
    """Operands of a concatenation lie in its result from the start."""
    merging, numbers = _Merging(draft), _storage_numbers(draft)
    storages = draft.problem.storages
    taken: set[int] = set()
    for node in draft.nodes:
        if not plays(node, OpRole.CONCATENATE):
            continue
        result = numbers.get(node.outputs[0])
        parts = _own_parts(node, numbers, aliases)
        if result is None or any(part in taken or storages[part].is_output or storages[part].is_input for part in parts):
            continue
        if not parts or sum(storages[part].size for part in parts) > storages[result].size:
            continue
        for part in parts:
            merging.sets.join(result, part)
        taken.update(parts)
        merging.places += 1
    return merging


def _own_parts(node: Node, numbers: dict[Value, int], aliases: Aliases) -> list[int]:
    """Return the storages that hold nothing but an operand each."""
    operands = [value for value in node.inputs if value is not None]
    if len(set(operands)) < len(operands):
        return []
    return [numbers[value] for value in operands if value in numbers and aliases.storage(value) is value]


def _have_same_type(types: Inferred, value: Value, other: Value) -> bool:
    a, b = types.type_of(value), types.type_of(other)
    return isinstance(a, TensorType) and (a.dtype, a.shape) == (b.dtype, b.shape)


# Explains the lower bound of a schedule, in the model's own names.

USED_HERE = "read or made here"
WAITED_FOR = "made before, read later"
KEPT = "kept to the end"
INSIDE = "only exists while the node runs"


@immutable(slots=False)
class Held:
    """Bytes that are alive in every order, at the node where the bound is reached."""

    name: str
    size: int
    why: str


def reason(draft: Draft, ordering: Ordering) -> tuple[str, int, list[Held]]:
    """Return the node at which every order needs most, how much, and what is alive then; the bound is more where a search has proven
    more."""
    greediest = _greediest(draft)
    cut = ordering.witness
    if cut is None or (greediest is not None and greediest.bytes > cut.bytes):
        cut = greediest
    if cut is None:
        return "", 0, []
    return draft.nodes[cut.op].name, cut.bytes, _held(draft, cut)


def _greediest(draft: Draft) -> Cut | None:
    """Return the node that needs most by itself."""
    problem = draft.problem
    alone = [
        problem.base + room + sum(problem.storages[number].size for number in problem.touched[op])
        for op, room in enumerate(problem.workspace)
    ]
    return Cut(alone.index(max(alone)), max(alone), frozenset()) if alone else None


def _held(draft: Draft, cut: Cut) -> list[Held]:
    problem = draft.problem
    found: list[Held] = []
    for storage, value in zip(problem.storages, draft.values, strict=True):
        done = [op in cut.done for op in storage.touches]
        begun, over = storage.is_input or any(done), all(done) and not storage.is_output
        if cut.op in storage.touches:
            found.append(Held(label_of(value), storage.size, USED_HERE))
        elif begun and not over and cut.done:
            found.append(Held(label_of(value), storage.size, KEPT if all(done) else WAITED_FOR))
    if problem.workspace[cut.op]:
        found.append(Held("", problem.workspace[cut.op], INSIDE))
    return sorted(found, key=lambda one: (-one.size, one.name))
