"""The peak of a model's memory as a sum that adds up, the same over the steps of a run, and what is alive at each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Literal, TypeAlias

from irscope.ir.dims import Dim
from irscope.ir.graph import Node, Value
from irscope.passes.lifetimes.lives import LiveRange, label_of
from irscope.passes.lifetimes.timeline import Timeline, shares, why_alive
from irscope.passes.sizes import largest, plain, scale
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity, derived, least_sure

Of: TypeAlias = Literal["device", "tensor"]
"""Whose peak it is: that of a device's allocator, or of tensors alone, where no allocator's is known."""
INSIDE = "only exists while the node runs"
_MOST_POINTS = 10_000
_RUNNERS_UP = 5
_WHY_RESIDENT = {"input": "given by the caller", "constant": "stored in the model"}
ROLES = {"param": "parameter", "const": "constant"}
"""Categories of what a graph declares, where they are called otherwise than its role."""


@dataclass(frozen=True, slots=True)
class Held:
    """Something that is alive at a step: a tensor, what a kernel takes for itself, or what is there all the time."""

    name: str
    category: str
    size: Dim
    """What it adds to the height of the step."""
    born: int
    dies: int
    """The last step that needs it; the number of steps for what outlives the run."""
    why: str
    held_by: str = ""
    node: Node | None = None
    """What made it."""
    value: Value | None = None
    shown: Quantity | None = None
    """The size where it is not exact."""

    @property
    def cell(self) -> object:
        """The size as a report holds it."""
        return plain(self.size) if self.shown is None else self.shown


@dataclass(frozen=True)
class Footprint:
    """Memory over the steps of one run: at each step parts that add up to its height, the highest of which is the peak."""

    of: Of
    what: str
    """The quantity in words: whose counter, in which run."""
    run: str
    """Such as "second forward"; empty where there is but one."""
    steps: Sequence[Node]
    parts: Mapping[str, Sequence[object]]
    """Cells by category, one for each step."""
    heights: Sequence[Dim]
    peak: Quantity
    """The most that there is at any step of any run."""
    peak_step: int
    living: Callable[[int], list[Held]]
    """What is alive at a step: sizes add up to its height."""
    is_sure: bool = True
    """Whether the peak is at this step whatever those sizes are that are not exact."""

    @property
    def peak_node(self) -> Node | None:
        """The node that runs at the peak."""
        return self.steps[self.peak_step] if self.steps else None

    @property
    def note(self) -> str:
        """What the peak is the peak of."""
        return f"{self.of} peak: {self.what}"

    @cached_property
    def at_peak(self) -> list[Held]:
        """What is alive at the peak, the largest first."""
        return sorted(self.living(self.peak_step), key=lambda one: -scale(one.size))

    def summary(self) -> dict[str, object]:
        """The peak, its parts and where it is, under names that say whose it is."""
        node = self.peak_node
        parts = {category: self._part(column) for category, column in self.parts.items()}
        found: dict[str, object] = {f"{self.of}_peak_bytes": self.peak, f"{self.of}_peak": parts}
        where = self.peak.provenance if self.peak.provenance is not Provenance.UNKNOWN else Provenance.EXACT
        for key, text in (("node", "" if node is None else node.name), ("run", self.run)):
            if text:
                found[f"{self.of}_peak_{key}"] = text if where is Provenance.EXACT else Quantity(text, where)
        return found

    def _part(self, column: Sequence[object]) -> object:
        """A part at the peak: where it is not sure which step that is, parts that are others elsewhere are not sure either."""
        cell = column[self.peak_step] if len(column) else 0
        if self.is_sure or isinstance(cell, Quantity) or all(one == cell for one in column):
            return cell
        return derived(cell, self.peak)

    def alive(self, top: int) -> Table:
        """What is alive at the peak, with all that adds up to it; what has no row of its own is counted in the last one."""
        rows = [(one.name, one.cell, one.category, one.born, one.dies, one.why, one.held_by) for one in self.at_peak]
        columns = ["tensor:value", "size:bytes", "category", "born:index", "dies:index", "why:text", "held_by:text"]
        return Table.of(rows, columns=columns, title="alive at the peak", whole="size").first(top)

    def by_module(self, top: int) -> Table:
        """What the run has made and is alive at the peak, by the module call that made it; calls that only pass on are left out."""
        made = shares((one.node.scope, one.size) for one in self.at_peak if one.node is not None)
        found = [share for share in made if share.own != 0]
        found.sort(key=lambda share: -scale(share.total))
        rows = [
            (share.scope.path or "(model)", share.scope.cls, plain(share.own), plain(share.total), share.storages)
            for share in found[: top or None]
        ]
        where = Provenance.EXACT if self.is_sure else self.peak.provenance
        kinds = (("own", Kind.BYTES), ("with_inner", Kind.BYTES), ("storages", Kind.COUNT))
        columns = [Column("module"), Column("class"), *(Column(key, kind, provenance=where) for key, kind in kinds)]
        return Table.of(rows, columns=columns, title="at the peak by module")

    def runners_up(self) -> Table:
        """The highest points over the steps, one for each hill."""
        heights = [scale(size) for size in self.heights]
        hills = [
            step
            for step, height in enumerate(heights)
            if (step == 0 or heights[step - 1] < height) and (step + 1 == len(heights) or _falls_after(heights, step))
        ]
        hills.sort(key=lambda step: (-heights[step], step))
        rows = [(self.steps[step].name, step, self.height(step)) for step in hills[:_RUNNERS_UP]]
        return Table.of(rows, columns=["node", "step:index", "bytes"], title="highest steps")

    def height(self, step: int) -> object:
        """What there is at a step, as sure as its parts."""
        cells = (column[step] for column in self.parts.values())
        where = least_sure(cell.provenance for cell in cells if isinstance(cell, Quantity))
        height = plain(self.heights[step])
        return height if where is Provenance.EXACT else Quantity(height, where)

    def series(self) -> tuple[Series, ...]:
        """The parts over the steps, one upon the other; with symbols there is no one height to draw."""
        numbers = [size for size in self.heights if isinstance(size, int)]
        if not numbers or len(numbers) < len(self.heights):
            return ()
        steps = shown_steps(numbers)
        data: dict[str, Sequence[object]] = {"step": steps}
        data.update({category: [column[step] for step in steps] for category, column in self.parts.items()})
        columns = tuple(Column(category, Kind.BYTES) for category in self.parts)
        title = f"{self.of} memory by category{f', {self.run}' if self.run else ''}"
        return (Series(title, Column("step", Kind.COUNT), columns, data, marks=(Mark(self.peak_step, "peak"),)),)


def shown_steps(heights: Sequence[int]) -> list[int]:
    """All steps, or of many the highest in each stretch."""
    count = len(heights)
    if count <= _MOST_POINTS:
        return list(range(count))
    width = -(-count // _MOST_POINTS)
    return [max(range(first, min(first + width, count)), key=heights.__getitem__) for first in range(0, count, width)]


def _falls_after(heights: list[int], step: int) -> bool:
    # By index: a slice would copy the rest of the timeline for every rise.
    for later in range(step + 1, len(heights)):
        if heights[later] != heights[step]:
            return heights[later] < heights[step]
    return True


def tensor_row(steps: Sequence[Node], one: LiveRange, step: int, size: Dim, shown: Quantity | None = None) -> Held:
    """A tensor that is alive at a step."""
    tenant = one.at(step)
    held_by = tenant.held_by.removeprefix("the ").replace("call of module ", "call of ").removeprefix("local variable ")
    category = "output" if one.is_output else "activation"
    why = why_alive(steps, one, step)
    return Held(label_of(tenant.value), category, size, tenant.born, tenant.dies, why, held_by, tenant.value.node, tenant.value, shown)


def resident_row(category: str, names: Sequence[str], size: Dim, steps: int) -> Held:
    """What is there all the time, of one category."""
    name = names[0] if len(names) == 1 else f"{len(names):,} {category}s"
    return Held(name, category, size, 0, steps, _WHY_RESIDENT.get(category, "loaded with the model"))


def of_tensors(timeline: Timeline, why: str) -> Footprint:
    """Weights, inputs and activations as they are asked for, where no allocator's peak is known."""
    steps, count = timeline.steps, len(timeline.steps)
    resident = {ROLES.get(role, role): 0 if size is None else size for role, size in timeline.resident.items()}
    names = {ROLES.get(role, role): given for role, given in timeline.declared.items()}
    there: Dim = reduce(add, resident.values(), 0)
    outputs = _outputs(timeline)
    inside = [timeline.inside.get(step, 0) for step in range(count)]
    parts: dict[str, Sequence[Dim]] = {role: [size] * count for role, size in resident.items()}
    parts["output"] = outputs
    parts["activation"] = [alive - out - within for alive, out, within in zip(timeline.alive, outputs, inside, strict=True)]
    parts["temporary"] = inside
    heights = [there + alive for alive in timeline.alive]

    def living(step: int) -> list[Held]:
        rows = [resident_row(category, names[category], size, count) for category, size in resident.items() if size != 0]
        rows += [tensor_row(steps, one, step, one.size) for one in timeline.living(step)] if count else []
        if timeline.inside.get(step, 0) != 0:
            node = steps[step]
            rows.append(Held("", "temporary", timeline.inside[step], step, step, INSIDE, node.name, node))
        return rows

    total, at = largest(heights) if heights else (there, 0)
    lacking = bool(timeline.unsized) or None in timeline.resident.values()
    peak = Quantity(None, Provenance.UNKNOWN, lo=plain(total)) if lacking else Quantity(plain(total))
    what = f"weights, inputs and activations as asked for, without an allocator: {why}" if why else "tensors as asked for"
    return Footprint(
        "tensor", what, "", steps, {key: [plain(size) for size in column] for key, column in parts.items()}, heights, peak, at, living
    )


def _outputs(timeline: Timeline) -> list[Dim]:
    """Bytes of results of the model at each step."""
    count = len(timeline.steps)
    change: list[Dim] = [0] * (count + 1)
    for one in timeline.ranges:
        if one.is_output:
            change[one.born] = change[one.born] + one.size
    found: list[Dim] = []
    alive: Dim = 0
    for step in range(count):
        alive = alive + change[step]
        found.append(alive)
    return found
