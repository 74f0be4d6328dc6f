"""Relaxations of the scheduling problem that could lower the peak further; the best order of each is searched."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from irscope.ir.graph import Node, Value
from irscope.ir.types import TensorType
from irscope.memory.ordering.problem import OrderProblem, Storage
from irscope.memory.ordering.recompute import lower, start
from irscope.memory.ordering.solve import Ordering, best_order
from irscope.ops.registry import find_op
from irscope.ops.spec import Family
from irscope.passes.alias import Aliases, written_operand
from irscope.passes.costs.count import Costs
from irscope.passes.inference.engine import Inferred
from irscope.passes.schedules.draft import Draft
from irscope.passes.schedules.recipe import recipe_of

_CONCAT = "tensor.concat"
_MOST_NODES = 5_000
_MORE_ARITHMETIC = 0.1
_GIVEN_AWAY = "let the model free its inputs after their last use"
_RECOMPUTED = "recompute what is needed again instead of keeping it"


@dataclass(frozen=True)
class Lever:
    """One kind of change with what it makes possible."""

    what: str
    places: int
    """How often it can be done."""
    peak: int | None
    """Reached by the best order found; None where only a bound is known."""
    bound: int
    """No order needs less then."""


@dataclass(frozen=True)
class Known:
    """What else is known about the model."""

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
    root: list[int] = field(init=False)
    places: int = 0

    def __post_init__(self) -> None:
        self.before = [set(earlier) for earlier in self.draft.problem.before]
        self.root = list(range(len(self.draft.values)))

    def find(self, number: int) -> int:
        while self.root[number] != number:
            number = self.root[number]
        return number

    def merge(self, into: int, other: int) -> None:
        self.root[self.find(other)] = self.find(into)

    def problem(self) -> OrderProblem:
        """The problem with what was merged; the larger size counts."""
        old = self.draft.problem
        parts: dict[int, list[Storage]] = {}
        for number, storage in enumerate(old.storages):
            parts.setdefault(self.find(number), []).append(storage)
        storages = [
            Storage(
                max(part.size for part in group),
                tuple(sorted({op for part in group for op in part.touches})),
                any(part.is_input for part in group),
                any(part.is_output for part in group),
            )
            for group in parts.values()
        ]
        return OrderProblem([tuple(sorted(earlier)) for earlier in self.before], storages, old.workspace, old.base)


def levers(draft: Draft, ordering: Ordering, known: Known, seconds: float, seed: int) -> list[Lever]:
    """The peak that each kind of change makes possible; empty for models that are too large for the search."""
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


def _numbers(draft: Draft) -> dict[Value, int]:
    return {value: number for number, value in enumerate(draft.values)}


def _in_place(draft: Draft, aliases: Aliases, types: Inferred) -> _Merging:
    """Elementwise results take the place of an operand that nothing reads afterwards."""
    merging, numbers = _Merging(draft), _numbers(draft)
    storages = draft.problem.storages
    for op, node in enumerate(draft.nodes):
        spec = find_op(node.op)
        if spec is None or spec.family is not Family.ELEMENTWISE or len(node.outputs) != 1 or written_operand(node) is not None:
            continue
        made = numbers.get(node.outputs[0])
        for operand in node.inputs:
            taken = None if operand is None else numbers.get(aliases.storage(operand))
            if operand is None or made is None or taken is None or not _alike(types, operand, node.outputs[0]):
                continue
            one = storages[taken]
            # Whatever else reads the operand comes before this node in the order as written; from now on it has to.
            if one.is_output or one.touches[-1] != op or one.size != storages[made].size:
                continue
            merging.merge(taken, made)
            merging.before[op].update(reader for reader in one.touches if reader != op)
            merging.places += 1
            break
    return merging


def _without_concat(draft: Draft, aliases: Aliases) -> _Merging:
    """Operands of a concatenation lie in its result from the start."""
    merging, numbers = _Merging(draft), _numbers(draft)
    storages = draft.problem.storages
    taken: set[int] = set()
    for node in draft.nodes:
        if node.op != _CONCAT:
            continue
        result = numbers.get(node.outputs[0])
        parts = _own_parts(node, numbers, aliases)
        if result is None or any(part in taken or storages[part].is_output or storages[part].is_input for part in parts):
            continue
        if not parts or sum(storages[part].size for part in parts) > storages[result].size:
            continue
        for part in parts:
            merging.merge(result, part)
        taken.update(parts)
        merging.places += 1
    return merging


def _own_parts(node: Node, numbers: dict[Value, int], aliases: Aliases) -> list[int]:
    """Storages that hold nothing but an operand each."""
    operands = [value for value in node.inputs if value is not None]
    if len(set(operands)) < len(operands):
        return []
    return [numbers[value] for value in operands if value in numbers and aliases.storage(value) is value]


def _alike(types: Inferred, one: Value, other: Value) -> bool:
    a, b = types.type_of(one), types.type_of(other)
    return isinstance(a, TensorType) and (a.dtype, a.shape) == (b.dtype, b.shape)
