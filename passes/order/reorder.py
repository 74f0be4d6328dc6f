"""The order that `schedule` found, applied to the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from irscope.amounts import Seconds
from irscope.ir.graph import Graph
from irscope.passes.order.schedule import Schedule, ScheduleModel
from irscope.passkit.base import PassContext, Transform


@dataclass(frozen=True)
class Reorder(Transform):
    """Put the nodes into the topological order of least peak memory, if it is better than the present one."""

    name: ClassVar[str] = "reorder"

    model: ScheduleModel = "ssa"
    """Lifetime model, as in schedule."""
    seconds: Seconds = 10
    """Time limit of the search."""
    seed: int = 0
    """Seed of the random part of the search."""
    latency: str = ""
    """By how much the time of overlapping nodes may grow, such as 5%."""
    inputs: Literal["held", "freed"] = "held"
    """Whether the caller keeps the model's inputs or gives them away."""

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        schedule = Schedule(model=self.model, seconds=self.seconds, seed=self.seed, latency=self.latency, inputs=self.inputs)
        found = ctx.get(schedule)
        if not found.is_new:
            return False
        order = found.nodes
        moved = sum(old is not new for old, new in zip(graph, order, strict=True))
        graph.reorder(order)
        ctx.stat("moved", moved)
        ctx.stat("bytes_saved", found.ordering.as_written - found.ordering.peak)
        return True
