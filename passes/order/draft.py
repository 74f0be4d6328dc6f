"""A model's nodes as a scheduling problem: precedence constraints, and the storages that each node uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from irscope.errors import PassError
from irscope.immutable import immutable
from irscope.ir.bind import bind_option, typed
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ops.registry import find_op
from irscope.passes.cost.count import Costs
from irscope.passes.graph.alias import Aliases, written_operand
from irscope.passes.lifetimes.lives import is_unknown, read_values
from irscope.passes.lifetimes.ranges import Lifetimes
from irscope.passes.order.effects import Order
from irscope.solvers.graphs import waiting_for_one_another
from irscope.solvers.order.problem import OrderProblem, Storage, order_problem
from irscope.solvers.order.recompute import Recipe

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
    """The scheduling problem of a graph; its order as written is one solution. Raises PassError where sizes are formulas."""
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
    found = {symbol for size in sizes if isinstance(size, SymDim) and not is_unknown(size) for symbol in size.symbols()}
    names = sorted(str(symbol) for symbol in found)
    if names:
        hint = f"{typed(bind_option(found))} gives them"
        raise PassError(f"orders and places need numbers: sizes depend on {', '.join(names)}", code="IRS352", hint=hint)


def _predecessors(nodes: Sequence[Node], place: dict[Node, int], order: Order) -> list[set[int]]:
    """For each node those that must run before it: producers of what it reads, and those that shared storage or side effects require."""
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
    spec = find_op(node.op)
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
    """The model's inputs as storages that the caller gives away."""
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


# ----------------------------------------------------------------------------------------------------
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
    """Storages that some node writes over: what was read from them may be gone."""
    found: set[Value] = set()
    for node in nodes:
        operand = written_operand(node)
        if operand is not None:
            found.update(aliases.storages(operand))
    return found


def _cost_of_repeat(node: Node, aliases: Aliases, written: set[Value], costs: Costs) -> int | None:
    """FLOPs of running a node once more; None where it must run exactly once or its cost is unknown."""
    spec = find_op(node.op)
    if spec is None or spec.has_effect or spec.random or node.regions or written_operand(node) is not None or len(node.outputs) != 1:
        return None
    touched = [storage for value in (*read_values(node), *node.outputs) for storage in aliases.storages(value)]
    if any(storage in written for storage in touched) or len(aliases.storages(node.outputs[0])) != 1:
        return None
    known = costs.by_node.get(node)
    flops = None if known is None else known.flops
    return flops if isinstance(flops, int) else None
