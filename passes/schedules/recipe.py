"""Which nodes of a model can run again with the same result, and what that costs."""

from __future__ import annotations

from irscope.ir.graph import Node, Value
from irscope.memory.ordering.recompute import Recipe
from irscope.ops.registry import find_op
from irscope.passes.alias import Aliases, written_operand
from irscope.passes.costs.count import Costs
from irscope.passes.lifetimes.lives import read_values
from irscope.passes.schedules.draft import Draft


def recipe_of(draft: Draft, aliases: Aliases, costs: Costs) -> Recipe:
    """How the results of a draft's nodes are made."""
    place = {node: op for op, node in enumerate(draft.nodes)}
    numbers = {value: number for number, value in enumerate(draft.values)}
    written = _written(draft.nodes, aliases)
    reads: list[tuple[int, ...]] = []
    makes: list[int] = []
    cost: list[int | None] = []
    for node in draft.nodes:
        makers = (place.get(value.node, -1) for value in read_values(node) if value.node is not None)
        reads.append(tuple(dict.fromkeys(maker for maker in makers if maker >= 0 and draft.nodes[maker] is not node)))
        makes.append(numbers.get(aliases.storage(node.outputs[0]), -1) if node.outputs else -1)
        cost.append(_cost(node, aliases, written, costs))
    return Recipe(reads, makes, cost)


def _written(nodes: list[Node], aliases: Aliases) -> set[Value]:
    """Storages that some node writes over: what was read from them may be gone."""
    found: set[Value] = set()
    for node in nodes:
        operand = written_operand(node)
        if operand is not None:
            found.update(aliases.storages(operand))
    return found


def _cost(node: Node, aliases: Aliases, written: set[Value], costs: Costs) -> int | None:
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
