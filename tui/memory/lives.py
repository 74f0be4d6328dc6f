"""Live ranges of storages as arrays, and all memory over the steps, on the axis of the steps that the screens show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Node, Value
from irscope.report.names import fold_paths
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity
from irscope.tui.amounts import Amounts, Binding, Floats, numbers_of
from irscope.tui.browse.outline import Ints, Mask, Outline, Rows, Steps

if TYPE_CHECKING:
    from irscope.passes.lifetimes.lives import LiveRange, Tenant
    from irscope.passes.lifetimes.timeline import Footprint, Held, HeldOver, Timeline


# Live ranges and sizes of storages as arrays, so that what is alive at a step is found and summed without a loop over tensors.


class Lives:
    """The storages of one answer of the liveness pass."""

    def __init__(self, live: Timeline, outline: Outline) -> None:
        # No sum counts storages of unknown size, but they are alive.
        ranges = (*live.ranges, *live.unsized_ranges)
        self.live = live
        self.ranges: Sequence[LiveRange] = ranges
        self.steps = Steps(outline, live.steps)
        count = len(live.steps)
        self.born: Rows = np.array([one.born for one in ranges], dtype=np.int32)
        self.dies: Rows = np.minimum(np.array([one.dies for one in ranges], dtype=np.int64), count).astype(np.int32)
        self.is_output: Mask = np.array([one.is_output for one in ranges], dtype=np.bool_)
        self.sizes = Amounts.of((*(one.size for one in live.ranges), *(None for _ in live.unsized_ranges)))
        self._inside_steps: Ints = np.array(list(live.inside), dtype=np.int64)
        self._inside = Amounts.of(live.inside.values())
        self._by_birth: Rows = np.argsort(self.born, kind="stable").astype(np.int32)

    def __len__(self) -> int:
        return len(self.ranges)

    @property
    def formulas(self) -> int:
        """Return the number of distinct formulas among the sizes."""
        return self.sizes.formulas + self._inside.formulas

    def depends(self, binding: Binding) -> bool:
        """Return whether some size is still a formula with these sizes put in."""
        bound = (*self.sizes.bound(binding).distinct, *self._inside.bound(binding).distinct)
        return any(isinstance(size, SymDim) for size in bound)

    def bound(self, binding: Binding) -> Floats:
        """Return the size of each storage; NaN where it has none with these sizes put in."""
        return self.sizes.bound(binding).numbers

    def over_steps(self, amounts: Floats, chosen: Mask | None = None) -> Floats:
        """Return the sum of what is alive at each step, of the chosen storages."""
        count = len(self.steps)
        born, dies = (self.born, self.dies) if chosen is None else (self.born[chosen], self.dies[chosen])
        sizes = np.nan_to_num(amounts if chosen is None else amounts[chosen])
        change = np.bincount(born, sizes, minlength=count + 2) - np.bincount(dies + 1, sizes, minlength=count + 2)
        total: Floats = np.cumsum(change[:count])
        return total

    def inside(self, binding: Binding) -> Floats:
        """Return the bytes at each step that only exist within it."""
        floats: Floats = np.zeros(len(self.steps), dtype=np.float64)
        if len(self._inside_steps):
            floats[self._inside_steps] = np.nan_to_num(self._inside.bound(binding).numbers)
        return floats

    def heights(self, binding: Binding) -> Floats:
        """Return the bytes alive at each step; NaN where a size has no value."""
        sizes = self.bound(binding)
        total = self.over_steps(sizes) + self.inside(binding)
        lacking = np.isnan(sizes)
        lacking[len(self.live.ranges) :] = False
        if lacking.any():
            total[self.over_steps(np.ones(len(sizes), dtype=np.float64), lacking) > 0] = np.nan
        return total

    def resident(self, binding: Binding, roles: Sequence[str] | None = None) -> int:
        """Return the bytes that are live all the time, of all or some roles, as far as they are known."""
        sizes: Mapping[str, Dim | None] = self.live.resident
        return sum(size for role in (sizes if roles is None else roles) if isinstance(size := binding.of(sizes.get(role, 0)), int))

    def alive(self, first: int, last: int | None = None) -> Ints:
        """Return the storages alive at a step, or at any of several, by their number."""
        ints: Ints = np.flatnonzero((self.born <= (first if last is None else last)) & (self.dies >= first))
        return ints

    @cached_property
    def _moved_in(self) -> Mapping[Value, tuple[LiveRange, Tenant]]:
        """Tensors that took over the storage of another."""
        return {tenant.value: (one, tenant) for one in self.ranges for tenant in one.tenants if tenant.value is not one.value}

    def of(self, value: Value) -> tuple[LiveRange, Tenant] | None:
        """Return the storage whose elements a value is, and its own time there; None for views of another value, and where it has none."""
        node = value.node
        step = None if node is None else self.steps.step_of(node)
        if step is None:
            return None
        place = int(np.searchsorted(self.born, step, side="left", sorter=self._by_birth))
        while place < len(self.ranges) and self.born[self._by_birth[place]] == step:
            one = self.ranges[int(self._by_birth[place])]
            if one.value is value:
                return one, one.at(step)
            place += 1
        return self._moved_in.get(value)


def category_of(life: LiveRange) -> str:
    """Return the category of a tensor in the model."""
    return "output" if life.is_output else "activation"


def maker_of(tensor: LiveRange | Tenant) -> str:
    """Return the module that made it, else the operator."""
    node = tensor.value.node
    if node is None:
        return ""
    return node.scope.path or node.op


# All memory over the steps, from the liveness pass, on the axis of the steps that the screens show.

_RESIDENT_ROLES = (("parameter", "param"), ("buffer", "buffer"), ("constant", "const"), ("input", "input"))
"""Categories of what a graph declares, with its roles."""
RESIDENT: Mapping[str, Sequence[str]] = {"weights": ("parameter", "buffer", "constant", "packed"), "inputs": ("input",)}
"""Resident memory, by the categories of the chart."""
_OTHERS: Mapping[str, Sequence[str]] = {
    "gradients": ("gradient",),
    "optimizer": ("optimizer state",),
    "outputs": ("output",),
    "activations": ("activation",),
    "temporary": ("temporary",),
    "workspace": ("workspace",),
    "rounding": ("rounding", "block"),
}


class Measured:
    """A sum whose sizes are all numbers, over the steps of the program that is shown."""

    def __init__(self, footprint: Footprint, steps: Sequence[Node]) -> None:
        self.found = footprint
        self.place = _places(footprint.steps, steps)
        self.heights: Floats = np.array([float(str(size)) for size in footprint.heights], dtype=np.float64)[self.place]
        columns = {key: numbers_of(column) for key, column in footprint.parts.items()}
        unsure = {key: _modelled(column) for key, column in footprint.parts.items()}
        self.parts: dict[str, Floats] = {}
        self.modelled: dict[str, Mask] = {}
        """Of parts that are modelled at some step: at which."""
        for name, categories in (*RESIDENT.items(), *_OTHERS.items()):
            known = [category for category in categories if category in columns]
            if known and (name in RESIDENT or any(columns[category].any() for category in known)):
                self.parts[name] = np.sum([columns[category] for category in known], axis=0)[self.place]
                masks = [mask for category in known if (mask := unsure[category]) is not None]
                if masks:
                    self.modelled[name] = np.any(masks, axis=0)[self.place]

    @property
    def title(self) -> str:
        """Whose memory it is, and in which run."""
        return f"{self.found.of} memory{f', {self.found.run}' if self.found.run else ''}"

    def living(self, step: int) -> Sequence[Held]:
        """Return what is in use at a step: sizes add up to its total."""
        return self.found.living(int(self.place[step]))


def _modelled(column: Sequence[object]) -> Mask | None:
    """Return where a column is not exact; None for nowhere."""
    found = np.array([isinstance(cell, Quantity) and cell.provenance is not Provenance.EXACT for cell in column], dtype=np.bool_)
    return found if found.any() else None


def measured(live: Timeline, steps: Sequence[Node] | None = None) -> Measured | None:
    """Return the sum of an answer, over the steps of another program of the same nodes; None where some size is no number."""
    footprint = live.footprint
    if footprint is None or not footprint.steps or not all(isinstance(size, int) for size in footprint.heights):
        return None
    return Measured(footprint, live.steps if steps is None else steps)


# The same stacked by module or by tensor: the largest by name, and what is left.

By: TypeAlias = Literal["category", "module", "tensor"]
GROUPINGS: Mapping[By, str] = {
    "category": "category: weights, activations, workspaces",
    "module": "the module that made it",
    "tensor": "tensor: the largest at the peak by name",
}
OTHERS, REST = "others", "rounding"
_MOST_NAMED = 10
"""Parts with a name of their own, besides weights, inputs and what is left: as many as a legend can list."""
_LATER = 3
"""Of them, those that are not the largest at the peak but of all."""
_RESIDENT_OF: Mapping[str, str] = {category: name for name, categories in RESIDENT.items() for category in categories}


class Occupants:
    """Everything that is in use at some step as arrays, over the steps of the program that is shown."""

    def __init__(self, held: HeldOver, place: Ints, count: int) -> None:
        self._place = place
        self._count = count
        self.sizes: Floats = np.array(held.sizes, dtype=np.float64)
        self._first: Ints = np.array(held.first, dtype=np.int64)
        self._last: Ints = np.array(held.last, dtype=np.int64)
        self._paths = held.modules
        categories = held.categories
        self._fixed = [_RESIDENT_OF.get(category, "") for category in categories]
        """Weights and inputs, which stand for themselves however the rest is stacked."""
        self._names = held.names
        self._labels: dict[By, tuple[Ints, list[str]]] = {}

    def over(self, chosen: Mask) -> Floats:
        """Return the bytes of some of them at each step that is shown."""
        first, last, sizes = self._first[chosen], self._last[chosen], self.sizes[chosen]
        change = np.bincount(first, sizes, minlength=self._count + 1) - np.bincount(last + 1, sizes, minlength=self._count + 1)
        total: Floats = np.cumsum(change[: self._count])
        return total[self._place]

    def labels(self, by: By) -> tuple[Ints, list[str]]:
        """Return for each of them the number of what it is stacked under, and what these are called."""
        if by not in self._labels:
            texts = self._folded() if by == "module" else self._names
            numbers: dict[str, int] = {}
            found = [
                numbers.setdefault(fixed or f"{text or '(model)'}", len(numbers)) for fixed, text in zip(self._fixed, texts, strict=True)
            ]
            self._labels[by] = np.array(found, dtype=np.int64), list(numbers)
        return self._labels[by]

    def _folded(self) -> list[str]:
        """Return the module of each, equal layers under one name."""
        sizes: dict[str, list[float]] = {}
        for path, size in zip(self._paths, self.sizes.tolist(), strict=True):
            sizes.setdefault(path, []).append(size)
        names = fold_paths({path: tuple(sorted(own)) for path, own in sizes.items()})
        return [names[path] for path in self._paths]

    def parts(self, by: By, total: Floats, peak: int) -> dict[str, Floats]:
        """Return the parts of the total, the lowest first: weights and inputs, the largest by name, others, and rounding."""
        labels, names = self.labels(by)
        own = int(self._place[peak]) if len(self._place) else 0
        here = (self._first <= own) & (self._last >= own)
        at_peak = np.bincount(labels[here], self.sizes[here], minlength=len(names)).astype(np.float64)
        most = np.zeros(len(names), dtype=np.float64)
        np.maximum.at(most, labels, self.sizes)
        fixed = [name for name in RESIDENT if name in names]
        if by == "module":
            groups = module_groups(names, fixed, at_peak)
        else:
            groups = {name: [number] for number, name in enumerate(names) if name not in fixed}
        ranks = {name: (sum(at_peak[number] for number in group), max(most[number] for number in group)) for name, group in groups.items()}
        largest = sorted(groups, key=lambda name: ranks[name], reverse=True)
        if len(largest) > _MOST_NAMED:
            kept = largest[: _MOST_NAMED - _LATER]
            largest = [*kept, *sorted(largest[len(kept) :], key=lambda name: -ranks[name][1])[:_LATER]]
        found: dict[str, Floats] = {}
        everything: Floats = np.zeros(len(self._place), dtype=np.float64)
        for name in fixed:
            found[name] = self.over(labels == names.index(name))
            everything = everything + found[name]
        for name in largest:
            found[name] = self.over(np.isin(labels, groups[name]))
            everything = everything + found[name]
        left = set(groups) - set(largest)
        if left:
            number = [group for name in left for group in groups[name]]
            found[OTHERS] = self.over(np.isin(labels, number))
            everything = everything + found[OTHERS]
        found[REST] = total - everything
        return {name: column for name, column in found.items() if name in fixed or column.any()}


def module_groups(names: Sequence[str], fixed: Sequence[str], at_peak: Floats, separator: str = "/") -> dict[str, list[int]]:
    """Return the modules as deep as there may be names: what holds most at the peak is taken apart first."""
    paths = {number: tuple(name.split(separator)) for number, name in enumerate(names) if name not in fixed}
    groups: dict[tuple[str, ...], list[int]] = {(): list(paths)}
    closed: set[tuple[str, ...]] = set()
    while len(closed) < len(groups):
        prefix = max((group for group in groups if group not in closed), key=lambda group: sum(at_peak[number] for number in groups[group]))
        inner: dict[tuple[str, ...], list[int]] = {}
        for number in groups[prefix]:
            inner.setdefault(paths[number][: len(prefix) + 1], []).append(number)
        if (prefix in inner and len(inner) == 1) or len(groups) - 1 + len(inner) > max(_MOST_NAMED, 2 if not prefix else 0):
            closed.add(prefix)
            continue
        del groups[prefix]
        groups |= inner
        if prefix in inner:
            closed.add(prefix)
    return {separator.join(prefix) or "modules": group for prefix, group in groups.items()}


def occupants_of(live: Timeline, measured: Measured | None, lives: Lives, binding: Binding) -> Occupants:
    """Return all that is in use at some step, of an allocator where one is simulated."""
    if measured is not None and measured.found.over is not None:
        return Occupants(measured.found.over(), measured.place, len(measured.found.steps))
    from irscope.passes.lifetimes.lives import label_of
    from irscope.passes.lifetimes.timeline import HeldOver

    count, found = len(live.steps), HeldOver()
    for category, role in _RESIDENT_ROLES:
        size = lives.resident(binding, (role,))
        if size:
            found.add_slot(category, category, size, (0, count - 1), None)
    for one, size in zip(lives.ranges, np.nan_to_num(lives.bound(binding)).tolist(), strict=True):
        if size:
            found.add_slot(label_of(one.value), category_of(one), int(size), (one.born, min(one.dies, count - 1)), one.value.node)
    for step, inside in enumerate(lives.inside(binding).tolist()):
        if inside:
            node = live.steps[step]
            found.add_slot(f"temporary of {node.name}", "temporary", int(inside), (step, step), node)
    return Occupants(found, np.arange(count, dtype=np.int64), count)


def peak_text(footprint: Footprint, sign: str, at_least: str) -> str:
    """Return the largest total of any step; its limits where it is unknown."""
    value = footprint.peak.value
    if isinstance(value, int):
        return f"{sign}{humanise(value, Kind.BYTES)}"
    low, high = footprint.peak.lo, footprint.peak.hi
    if isinstance(low, int) and isinstance(high, int):
        return f"{humanise(low, Kind.BYTES)} to {humanise(high, Kind.BYTES)}"
    return f"{at_least}{humanise(low, Kind.BYTES)}" if isinstance(low, int) else ""


def _places(own: Sequence[Node], shown: Sequence[Node]) -> Ints:
    """Return for each step that is shown the one that stands for it: of nodes that do not run as they are, the one before."""
    if own is shown or (len(own) == len(shown) and all(node.name == other.name for node, other in zip(own, shown, strict=True))):
        return np.arange(len(shown), dtype=np.int64)
    number = {node.name: place for place, node in enumerate(own)}
    ints: Ints = np.array([number.get(node.name, -1) for node in shown], dtype=np.int64)
    return np.maximum.accumulate(np.maximum(ints, 0)) if len(ints) else ints
