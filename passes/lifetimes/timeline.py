"""Bytes alive at each step: storages, their peak, and why each is alive there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import add
from typing import TYPE_CHECKING

from irscope.ir.dims import Dim, bounds, dim_max
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.places import Scope
from irscope.passes.alias import Aliases
from irscope.passes.lifetimes.lives import UNUSED, LiveRange, Tenant, label_of
from irscope.passes.lifetimes.windows import Windows, windows
from irscope.passes.ranges import Lifetimes
from irscope.passes.sizes import largest_size

if TYPE_CHECKING:
    from irscope.passes.lifetimes.footprint import Footprint


@dataclass
class ModuleShare:
    """Bytes that one module call has allocated."""

    scope: Scope
    own: Dim = 0
    """Allocated by the call itself."""
    total: Dim = 0
    """Allocated by it or by calls inside it."""
    storages: int = 0
    """Storages in the total."""


@dataclass
class Timeline:
    """Storages, and bytes alive at each step of the main graph."""

    model: str
    """Lifetime model."""
    steps: list[Node]
    ranges: list[LiveRange]
    alive: list[Dim]
    inside: dict[int, Dim]
    """Bytes that only exist within a step; `alive` counts them."""
    peak: Dim
    """Formulas where sizes are symbolic; a maximum of several where none is the largest for every binding."""
    peak_step: int
    lower_bound: Dim
    resident: dict[str, Dim | None]
    """Resident bytes: parameter, buffer, constant, input."""
    unsized: list[Value]
    undecided: int = 0
    """Results that are views or copies depending on unknown strides; they are counted as copies."""
    peak_if_shared: Dim | None = None
    """The peak where all of these share."""
    unsized_ranges: list[LiveRange] = field(default_factory=list)
    """Live ranges of storages of unknown size, which no sum counts."""
    declared: dict[str, list[str]] = field(default_factory=dict)
    """Names of what `resident` counts, by role."""
    find_footprint: Callable[[], Footprint] | None = field(default=None, repr=False)

    @cached_property
    def footprint(self) -> Footprint | None:
        """All memory over the steps, a device's where an allocator is simulated; computed on first use."""
        return None if self.find_footprint is None else self.find_footprint()

    @cached_property
    def windows(self) -> Windows:
        """The index of what is alive at each step; built on first use."""
        return windows(self.ranges, len(self.steps))

    def living(self, step: int) -> list[LiveRange]:
        """Storages alive at a step, in order of birth, in time logarithmic in the steps and linear in the answer."""
        return self.windows.living(step)

    def unsized_at(self, step: int) -> list[LiveRange]:
        """Storages of unknown size alive at a step."""
        return [one for one in self.unsized_ranges if one.born <= step <= one.dies]

    def peak_limits(self) -> tuple[Dim, Dim | None]:
        """Lower and upper bound of the peak where sizes are unknown; None where there is no upper bound."""
        most: Dim | None = self.peak
        if len(self.unsized_ranges) < len(self.unsized):
            return self.peak, None
        for step in sorted({one.born for one in self.unsized_ranges}):
            above = [bounds(one.size)[1] for one in self.unsized_at(step)]
            highs = [high for high in above if high is not None]
            most = None if most is None or len(highs) < len(above) else dim_max(most, self.peak + sum(highs))
        return self.peak, most

    def why(self, one: LiveRange, step: int) -> str:
        """Why the tensor in a storage is alive at a step."""
        return why_alive(self.steps, one, step)


def why_alive(steps: Sequence[Node], one: LiveRange, step: int) -> str:
    """Why the tensor in a storage is alive at a step: its next use, the reference that keeps it after the last use, or that it is
    returned. Where another tensor had the storage first, in whose buffer it is."""
    tenant = one.at(step)
    where = "" if tenant.value is one.value else f", in the buffer of {label_of(one.value)}"
    return f"{_why(steps, one, tenant, step)}{where}"


def _why(steps: Sequence[Node], one: LiveRange, tenant: Tenant, step: int) -> str:
    if tenant.born == step:
        return "made here"
    following = one.after(step) if tenant.dies < step else None
    if following is not None:
        return f"dead, its buffer is kept for {label_of(following.value)}"
    at = bisect_left(one.uses, step, key=_step_of)
    if at < len(one.uses):
        return _use_text(steps, tenant.value, *one.uses[at], step)
    return f"held by {one.held_by}" if one.held_by != UNUSED else "nothing reads it"


def shares(parts: Iterable[tuple[Scope, Dim]]) -> list[ModuleShare]:
    """Bytes by the module call that allocated them, outer calls before inner, each with the calls inside it."""
    found: dict[Scope, ModuleShare] = {}
    for made_in, size in parts:
        for scope in (*_outside(made_in), made_in):
            share = found.setdefault(scope, ModuleShare(scope))
            share.total = share.total + size
            share.storages += 1
        found[made_in].own = found[made_in].own + size
    return list(found.values())


def _outside(scope: Scope) -> list[Scope]:
    """The calls around a call, outermost first."""
    above: list[Scope] = []
    parent = scope.parent
    while parent is not None:
        above.append(parent)
        parent = parent.parent
    return above[::-1]


def _step_of(use: tuple[int, Value]) -> int:
    return use[0]


def measure(graph: Graph, lifetimes: Lifetimes, aliases: Aliases) -> Timeline:
    """The timeline of given live ranges."""
    alive = lifetimes.alive()
    peak, at = largest_size(alive)
    bound = lower_bound(lifetimes, aliases)
    return Timeline(
        lifetimes.model,
        lifetimes.steps,
        lifetimes.ranges,
        alive,
        lifetimes.inside,
        peak,
        at,
        bound,
        _resident(graph),
        lifetimes.unsized,
        declared=_declared(graph),
        unsized_ranges=lifetimes.unsized_ranges,
    )


def lower_bound(lifetimes: Lifetimes, aliases: Aliases) -> Dim:
    """A lower bound for every order: the node with the largest sum of results, operands and bytes inside it."""
    sizes = {one.value: one.size for one in lifetimes.ranges}
    needs: list[Dim] = []
    for step, node in enumerate(lifetimes.steps):
        operands = (value for value in node.inputs if value is not None)
        touched = dict.fromkeys(aliases.storage(value) for value in (*node.outputs, *operands))
        needs.append(reduce(add, (sizes.get(storage, 0) for storage in touched), lifetimes.inside.get(step, 0)))
    return largest_size([*needs, *_returned(lifetimes)])[0]


def _returned(lifetimes: Lifetimes) -> list[Dim]:
    """All that the model returns is alive at its end."""
    return [reduce(add, (one.size for one in lifetimes.ranges if one.is_output), 0)]


def _use_text(steps: Sequence[Node], tenant: Value, used: int, value: Value, step: int) -> str:
    through = "" if value is tenant or not value.name else f" through {value.name}, a view of it"
    if used == len(steps):
        return f"output{through}"
    node = steps[used].name
    return f"read here{through}" if used == step else f"used later by {node}{through}"


def _declared(graph: Graph) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for value in (*graph.weights, *graph.inputs):
        names.setdefault(value.role.value, []).append(value.name or "")
    return names


def _resident(graph: Graph) -> dict[str, Dim | None]:
    """Bytes by role of what the graph declares, None where one of them has no known size."""
    totals: dict[str, Dim | None] = {}
    for value in (*graph.weights, *graph.inputs):
        role = value.role.value
        size = value.type.tensor_bytes
        before = totals.get(role, 0)
        totals[role] = None if size is None or before is None else before + size
    return totals
