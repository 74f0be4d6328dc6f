"""Memory of a fused program: which buffers there are and when, and where they are placed, as XLA's CPU compiler does.

Dead parts of the memory of results and of donated arguments hold temporaries; the rest is placed in one block of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from itertools import accumulate
from typing import Final

from irscope.immutable import mutable
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.program import Assignment
from irscope.passes.lifetimes.lives import OUTPUT, LiveRange, Tenant
from irscope.passes.lifetimes.sharded import Exchange
from irscope.report.values import Provenance, Quantity

ALIGNMENT: Final = 64
"""Bytes of which offsets inside the memory of temporaries are multiples (cpu_function_runtime::MinAlign of XLA)."""
_MODELLED: Final = "temporaries are modelled by XLA's rules of fusion; the interval is from its largest product to no fusion at all"
_ASSIGNED: Final = "memory is what the compiler assigned, with its own first and last step of each buffer"
_PLACED: Final = 1000
"""Blocks that are placed, at most: of more the bytes that are there at once are taken."""


@mutable
class Storage:
    """Memory of one size that one value after another has."""

    size: int
    born: int
    dies: int
    tenants: list[tuple[Value, int]]
    is_output: bool = False
    is_shared: bool = False
    """True where it lies in memory of results, or of donated arguments, that is not used then."""
    is_passed: bool = False
    """True where the last kernel that reads it may write over it, and so may have its result in the same memory."""


@mutable
class FusedPlan:
    """Buffers of the main graph, and what the compiler would say of its memory."""

    steps: list[Node]
    storages: list[Storage] = field(default_factory=list)
    inside: dict[int, int] = field(default_factory=dict)
    """Bytes that regions of a node take while it runs, or what it works in."""
    nested: dict[int, list[FusedPlan]] = field(default_factory=dict)
    """Plans of the regions of a node."""
    over: dict[object, Value] = field(default_factory=dict)
    """Results that lie where an argument did."""
    busy: dict[Value, tuple[int, int]] = field(default_factory=dict)
    """The last step that reads such an argument, and the one that makes the result: memory between them is free."""
    unsized: list[Value] = field(default_factory=list)
    arguments: int = 0
    constants: int = 0
    outputs: int = 0
    aliased: int = 0
    temporary: int = 0
    low: int = 0
    high: int | None = 0
    """None where an operation is not known, which may take anything."""
    kernels: int = 0
    devices: int = 1
    is_exact: bool = False
    """True where the compiler itself says it."""
    exchanges: list[Exchange] = field(default_factory=list)
    """Exchanges between the devices of a sharded program."""

    @property
    def note(self) -> str:
        """Return where the numbers come from."""
        return _ASSIGNED if self.is_exact else _MODELLED

    @property
    def total(self) -> Quantity:
        """Memory while the program runs: arguments, constants, results and temporaries."""
        there = self.arguments + self.constants + self.outputs - self.aliased
        return self.modelled(there)

    def modelled(self, there: int) -> Quantity:
        """Return the bytes of temporaries beside others, with their interval."""
        if self.is_exact:
            return Quantity(there + self.temporary, Provenance.EXACT)
        high = None if self.high is None else there + self.high
        note = "" if self.high is not None else "what an operation that is not known takes is not known"
        return Quantity(there + self.temporary, Provenance.MODELLED, note=note, lo=there + self.low, hi=high)

    def summary(self) -> dict[str, object]:
        """Return the summary that corresponds to the compiler's own analysis."""
        return {
            "argument_bytes": self.arguments,
            "output_bytes": self.outputs,
            "alias_bytes": self.aliased,
            "temp_bytes": self.modelled(0),
            "kernels": self.kernels,
            **({"devices": self.devices} if self.devices > 1 else {}),
            **({"exchanged_bytes": Quantity(sum(one.nbytes for one in self.exchanges), Provenance.MODELLED)} if self.exchanges else {}),
        }

    def ranges(self) -> list[LiveRange]:
        """Return the same as live ranges. Memory of results is there before anything runs; what lies in it, or in a donated argument, takes
        none of its own."""
        found: list[LiveRange] = []
        for one in self.storages:
            if one.is_shared:
                continue
            by = OUTPUT if one.is_output else self.steps[min(one.dies, len(self.steps) - 1)].name
            tenants = tuple(
                Tenant(value, born, one.tenants[place + 1][1] if place + 1 < len(one.tenants) else one.dies, by)
                for place, (value, born) in enumerate(one.tenants)
            )
            born, dies = (0, len(self.steps)) if one.is_output else (one.born, one.dies)
            found.append(LiveRange(one.tenants[0][0], one.size, born, dies, by, dies, tenants=tenants if len(tenants) > 1 else ()))
        return found


def heights(storages: Iterable[Storage], inside: dict[int, int], steps: int) -> list[int]:
    """Return the bytes at each step."""
    change = [0] * (steps + 2)
    for one in storages:
        size = -(-one.size // ALIGNMENT) * ALIGNMENT
        change[one.born] += size
        change[min(one.dies, steps) + 1] -= size
    found = list(accumulate(change))[: steps + 1]
    for step, size in inside.items():
        found[step] += size
    return found


def assigned(graph: Graph, given: Assignment) -> FusedPlan:
    """Return the buffers that a compiler's own account has."""
    steps = list(graph)
    plan = FusedPlan(steps, kernels=len(steps), is_exact=True)
    plan.arguments, plan.constants, plan.outputs = given.arguments, given.constants, given.outputs
    plan.aliased, plan.temporary = given.aliased, given.temporary
    for one in given.buffers:
        value = steps[one.step].outputs[one.output]
        plan.storages.append(Storage(one.nbytes, one.step, one.dies, [(value, one.step)], one.lies == "result", one.lies == "inside"))
    return plan


@mutable
class _Block:
    """Memory of a program whose regions are laid out before the nodes that run them."""

    size: int
    born: int
    dies: int
    changes: tuple[int, ...] = ()
    """Places at which one value after another takes it over."""
    storage: Storage | None = None

    __hash__ = object.__hash__


def _blocks(plan: FusedPlan, at: int = 0) -> tuple[list[_Block], list[int]]:
    """Return the memory of a plan and of the plans of its regions, and where its steps lie; the last place is behind them."""
    found: list[_Block] = []
    first: list[int] = []
    places: list[int] = []
    for step in range(len(plan.steps)):
        first.append(at)
        for inner in plan.nested.get(step, ()):
            more, inside = _blocks(inner, at)
            found.extend(more)
            at = inside[-1]
        places.append(at)
        if step in plan.inside:
            found.append(_Block(plan.inside[step], at, at))
        at += 1
    places.append(at)
    for one in plan.storages:
        born = first[one.born] if one.born < len(first) else at
        changes = tuple(places[min(step, len(plan.steps))] for _, step in one.tenants[1:])
        found.append(_Block(one.size, born, places[min(one.dies, len(plan.steps))], changes, one))
    return found, places


def sum_nested(plan: FusedPlan) -> None:
    """Note what the regions of each node take."""
    for step, plans in plan.nested.items():
        for inner in plans:
            sum_nested(inner)
        own = [
            heights((one for one in inner.storages if not (one.is_output or one.is_shared)), inner.inside, len(inner.steps))
            for inner in plans
        ]
        plan.inside[step] = max(0, *(max(one, default=0) for one in own))


def height(blocks: Sequence[_Block]) -> int:
    """Return bytes of the memory of temporaries: the better of two orders of placing them (ChooseBestHeapAlgorithm of XLA). The time
    of a block counts in events: one for each value that gets memory, one for each that leaves it."""
    if len(blocks) > _PLACED:
        steps = max(one.dies for one in blocks)
        return max(heights((Storage(one.size, one.born, one.dies, []) for one in blocks), {}, steps))
    events: list[tuple[int, bool, int, int]] = []
    for number, one in enumerate(blocks):
        starts = (one.born, *one.changes)
        events.extend((place, False, number, turn) for turn, place in enumerate(starts))
        events.extend((place, True, number, turn) for turn, place in enumerate((*one.changes, one.dies)))
    clock = {event[1:]: time for time, event in enumerate(sorted(events))}
    first = {id(one): clock[True, number, 0] - clock[False, number, 0] for number, one in enumerate(blocks)}
    whole = {id(one): clock[True, number, len(one.changes)] - clock[False, number, 0] for number, one in enumerate(blocks)}
    by_size = sorted(blocks, key=lambda one: (-one.size, -first[id(one)]))
    by_time = sorted(blocks, key=lambda one: (-whole[id(one)], -one.size))
    return min(_placed(by_size), _placed(by_time))


def _placed(blocks: Iterable[_Block]) -> int:
    """Return where the last block ends, each in the smallest gap that is free while it is there (GlobalDecreasingSizeBestFitHeap)."""
    placed: list[tuple[int, int, int, int]] = []
    exact = 0
    for one in blocks:
        at, best, end = 0, None, 0
        for start, stop in sorted((start, stop) for start, stop, first, last in placed if first <= one.dies and one.born <= last):
            if start - end >= one.size and (best is None or start - end < best):
                at, best = end, start - end
            end = max(end, stop)
        if best is None:
            at = end
        placed.append((at, -(-(at + one.size) // ALIGNMENT) * ALIGNMENT, one.born, one.dies))
        exact = max(exact, at + one.size)
    return exact


def packed(plan: FusedPlan, size: Callable[[Value], int]) -> list[_Block]:
    """Put temporaries into memory of results and of donated arguments that is not used then, large ones first. Return those that stay."""
    blocks, places = _blocks(plan)
    results = {id(one) for one in plan.storages if one.is_output}
    homes = [(one.size, [(one.born, places[-1])]) for one in blocks if id(one.storage) in results]
    homes.extend((size(argument), [(0, places[read]), (places[made], places[-1])]) for argument, (read, made) in plan.busy.items())
    homes.sort(key=lambda home: -home[0])
    kept: list[_Block] = []
    for one in sorted(blocks, key=lambda one: -one.size):
        if not one.size or (one.storage is not None and one.storage.is_output):
            continue
        for room, busy in reversed(homes):
            until = one.dies - (one.storage is not None and one.storage.is_passed)
            if room >= one.size and all(until < born or dies < one.born for born, dies in busy):
                busy.append((one.born, until))
                if one.storage is not None:
                    one.storage.is_shared = True
                break
        else:
            kept.append(one)
    left = set(map(id, kept))
    return [one for one in blocks if id(one) in left]
