"""Memory of a session at each step of a run: weights, inputs, and what adds up to what its arena has in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from irscope.passes.lifetimes.lives import LiveRange, alive_bytes
from irscope.passes.lifetimes.timeline import (
    INSIDE,
    ROLES,
    Footprint,
    Held,
    HeldOver,
    ShownRun,
    Timeline,
    resident_row,
    tensor_row,
    windows,
)
from irscope.passes.ort.model import OrtPlan
from irscope.passes.sizes import scale
from irscope.report.values import Quantity

PACKED, BLOCK, ROUNDING = "packed", "block", "rounding"
_ROUNDED = "chunks of 256 bytes, not split where little is left"
_BLOCK = "the second run's block has room for tensors of other steps"


def arena(plan: OrtPlan, timeline: Timeline, shown: ShownRun = "worst") -> Footprint | None:
    """Memory in use by a session on the CPU in one run; None where sizes or kernels are unknown."""
    figures = plan.figures
    sizes = {ROLES.get(role, role): size for role, size in timeline.resident.items()}
    numbers = {category: size for category, size in sizes.items() if isinstance(size, int)}
    if figures is None or not plan.on_cpu or len(numbers) < len(sizes):
        return None
    first, second = figures.cold, figures.warm
    is_second = second.peak.allocated > first.peak.allocated if shown == "worst" else shown == "steady"
    rows = _Rows(plan, numbers, {ROLES.get(role, role): given for role, given in timeline.declared.items()}, is_second=is_second)
    run = "second run" if is_second else "first run"
    there = sum(numbers.values())
    chosen = second if is_second else first
    heights = [there + size for size in chosen.highest]
    peak = there + chosen.peak.allocated
    which = ", the higher of the first two" if shown == "worst" else ""
    what = f"weights and inputs, and the most that ONNX Runtime's arena has in use in the {run}{which}"
    at = heights.index(max(heights)) if heights else 0
    return Footprint("device", what, run, plan.steps, rows.columns(), heights, Quantity(peak), at, rows.at, over=rows.over)


class _Rows:
    """Everything in use at a step, as rows."""

    def __init__(self, plan: OrtPlan, resident: Mapping[str, int], names: Mapping[str, Sequence[str]], *, is_second: bool) -> None:
        assert plan.figures is not None
        self._plan = plan
        self._figures = figures = plan.figures
        self._resident = resident
        self._names = names
        self._run = figures.warm if is_second else figures.cold
        self._block = figures.pattern if is_second else 0
        found, buffers = plan.found, plan.buffers
        owners = [number for taken in buffers.taken for number in taken if found.sizes[number] is not None and found.is_tensor[number]]
        self._in_block = {
            (one.born, one.value)
            for one, number in zip(plan.ranges, owners, strict=True)
            if self._block and found.traced[number] and not buffers.is_output[number]
        }
        self._windows = windows(plan.ranges, len(plan.order))

    def columns(self) -> dict[str, list[object]]:
        """Bytes by category at each step; of a model without steps, what there is anyway."""
        plan, count = self._plan, len(self._plan.order)
        if not count:
            before = self._figures.before
            rounding = self._run.peak.allocated - before.requested
            return {**{key: [size] for key, size in self._resident.items()}, PACKED: [before.requested], ROUNDING: [rounding]}
        outputs = [one for one in plan.ranges if one.is_output]
        others = [one for one in plan.ranges if not one.is_output]
        found: dict[str, list[int]] = {category: [size] * count for category, size in self._resident.items()}
        found[PACKED] = [self._figures.before.requested] * count
        found["output"], found["activation"] = _heights(outputs, count), _heights(others, count)
        found["temporary"] = [*self._figures.takes]
        if self._block:
            inside = _heights([one for one in plan.ranges if (one.born, one.value) in self._in_block], count)
            found[BLOCK] = [self._block - size for size in inside]
        there = sum(self._resident.values())
        asked = [sum(sizes) - there for sizes in zip(*found.values(), strict=True)]
        found[ROUNDING] = [highest - size for highest, size in zip(self._run.highest, asked, strict=True)]
        return {category: [*column] for category, column in found.items()}

    def over(self) -> HeldOver:
        """Everything in use at some step, but for rounding and for what the block of the second run has besides."""
        plan, count, found = self._plan, len(self._plan.order), HeldOver()
        for category, size in self._resident.items():
            found.add(resident_row(category, self._names[category], size, count), 0, count - 1)
        found.add(Held("packed weights", PACKED, self._figures.before.requested, 0, count, ""), 0, count - 1)
        found.add_ranges(plan.ranges, count)
        for step, size in enumerate(self._figures.takes):
            found.add(Held("", "temporary", size, step, step, INSIDE, plan.steps[step].name, plan.steps[step]), step, step)
        return found

    def at(self, step: int) -> list[Held]:
        """Everything that adds up to the total of a step."""
        steps, figures = self._plan.steps, self._figures
        count = len(steps)
        rows = [resident_row(category, self._names[category], size, count) for category, size in self._resident.items() if size]
        there = sum(self._resident.values())
        if figures.before.requested:
            why = "weights that kernels have in another order, and small ones"
            rows.append(Held("packed weights", PACKED, figures.before.requested, 0, count, why))
        if not count:
            rounding = self._run.peak.allocated - figures.before.requested
            return [*rows, Held(ROUNDING, ROUNDING, rounding, 0, 0, _ROUNDED)] if rounding else rows
        living = self._windows.living(step)
        rows += [tensor_row(steps, one, step, one.size) for one in living]
        if figures.takes[step]:
            rows.append(Held("", "temporary", figures.takes[step], step, step, INSIDE, steps[step].name, steps[step]))
        if self._block:
            unused = self._block - sum(scale(one.size) for one in living if (one.born, one.value) in self._in_block)
            rows.append(Held("unused part of the block", BLOCK, unused, 0, count, _BLOCK))
        rounding = there + self._run.highest[step] - sum(scale(row.size) for row in rows)
        if rounding:
            rows.append(Held(ROUNDING, ROUNDING, rounding, step, step, _ROUNDED))
        return rows


def _heights(ranges: Sequence[LiveRange], steps: int) -> list[int]:
    return [scale(size) for size in alive_bytes(ranges, {}, steps)]
