"""The timeline as a table: one row for each step of the run with the higher peak."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.passes.exports.plain import check_numbers
from irscope.passes.lifetimes.lives import LiveRange
from irscope.passes.lifetimes.timeline import Timeline
from irscope.passes.memory.cuda import DeviceMemory
from irscope.report.table import Column, Table
from irscope.report.units import Kind


def steps_table(timeline: Timeline, memory: DeviceMemory | None) -> Table:
    """Step, node, where it stands, bytes by category and what they add up to; with what the allocator counts where that is known."""
    moments = memory.highest if memory is not None else None
    if memory is not None and moments is not None and memory.basis is not None:
        # The allocator sees the program as Python runs it, whose nodes may be fewer than the file's.
        lifetimes = memory.basis.lifetimes
        steps, ranges, alive = lifetimes.steps, lifetimes.ranges, lifetimes.alive()
    else:
        steps, ranges, alive = timeline.steps, timeline.ranges, timeline.alive
    check_numbers(alive)
    data: dict[Column, list[object]] = {
        Column("step", Kind.INDEX): list(range(len(steps))),
        Column("node", Kind.NODE): [node.name for node in steps],
        Column("op"): [node.op for node in steps],
        Column("module"): [node.scope.path for node in steps],
        Column("where"): [str(node.loc) if node.loc is not None else "" for node in steps],
        Column("alive_bytes", Kind.BYTES): [*alive],
        Column("storages", Kind.COUNT): [*_counts(ranges, len(steps))],
    }
    found = timeline.footprint
    if found is not None:
        for category, column in found.parts.items():
            data[Column(f"{category}_bytes", Kind.BYTES)] = [*column]
        data[Column("total_bytes", Kind.BYTES)] = [found.height(step) for step in range(len(steps))]
    if moments is not None:
        data[Column("allocated_bytes", Kind.BYTES)] = [*moments.counted(moments.allocated)]
        data[Column("reserved_bytes", Kind.BYTES)] = [*moments.counted(moments.reserved)]
    return Table("timeline", tuple(data), {column.key: cells for column, cells in data.items()})


def _counts(ranges: Sequence[LiveRange], steps: int) -> list[int]:
    """How many storages are alive at each step."""
    change = [0] * (steps + 1)
    for one in ranges:
        change[one.born] += 1
        change[min(one.dies + 1, steps)] -= 1
    found: list[int] = []
    alive = 0
    for step in range(steps):
        alive += change[step]
        found.append(alive)
    return found
