"""Transforms that lower the peak: another order of the nodes, and results recomputed instead of kept, with the extra arithmetic."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar, Literal

from irscope.amounts import Seconds
from irscope.errors import PassError
from irscope.immutable import immutable
from irscope.ir.graph import Facet, Graph
from irscope.passes.cost.count import NodeCosts
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes, size_hint
from irscope.passes.order.schedule import Draft, Schedule, Scheduled, ScheduleModel, read_share, recipe_of
from irscope.passes.sizes import CONVENTION
from irscope.passkit.base import Analysis, PassContext, Transform
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.solvers.order.recompute import Recipe, Repeated, lower, start
from irscope.solvers.order.solve import Ordering, best_order

_ROUNDS = 4


@immutable(slots=False)
class Recomputed:
    """The order found, in which some nodes run more than once."""

    draft: Draft
    ordering: Ordering
    """The best order in which none does."""
    repeated: Repeated
    flops: int
    """Of all nodes whose arithmetic is known, each once."""

    @property
    def bound(self) -> int:
        """No order needs less, whatever runs again."""
        return self.draft.problem.least


@dataclass(frozen=True)
class Recompute(Analysis[Recomputed]):
    """Rematerialization: recompute results instead of keeping them alive over the peak, within a budget of extra arithmetic."""

    name: ClassVar[str] = "recompute"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    flops: str = "10%"
    """Extra arithmetic that is allowed, as a share of the model's."""
    model: Literal["ssa", "jit"] = "ssa"
    """Lifetime model: tensors are freed right after the last use, in both cases."""
    seconds: Seconds = 10
    """Time to search, half of it for the order without recomputing."""
    seed: int = 0
    """Seed of the random part of the search."""
    top: int = 20
    """Rows of the table, 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> Recomputed:
        share = read_share(self.flops, "the arithmetic", "flops=10% or flops=0.1")
        scheduled = ctx.get(Schedule(model=self.model, seconds=self.seconds / 2, seed=self.seed))
        draft = scheduled.draft
        if draft.unsized:
            raise PassError(
                f"{len(draft.unsized)} tensors have no known size, so what recomputing them saves is unknown; "
                f"the first is {draft.unsized[0].name or 'unnamed'}",
                code="IRS364",
                hint=size_hint(ctx.get(Shapes), draft.unsized),
            )
        recipe = recipe_of(draft, ctx.get(Alias()), ctx.get(NodeCosts()))
        total = sum(cost.flops for node in draft.nodes if (cost := ctx.get(NodeCosts()).by_node.get(node)) and isinstance(cost.flops, int))
        deadline = time.monotonic() + self.seconds / 2
        repeated = search(scheduled, recipe, round(total * share), deadline, self.seed)
        return Recomputed(draft, scheduled.ordering, repeated, total)

    def report(self, result: Recomputed, ctx: PassContext) -> Report:
        ordering, repeated = result.ordering, result.repeated
        again = [op for op, again in enumerate(repeated.again) if again]
        needs = repeated.needs
        recipe, problem = repeated.recipe, repeated.problem
        rows = [
            (
                result.draft.nodes[repeated.source[op]].name,
                result.draft.nodes[repeated.source[op]].op,
                op,
                problem.storages[recipe.makes[op]].size if recipe.makes[op] >= 0 else 0,
                recipe.cost[op],
                needs[op],
            )
            for op in again
        ]
        columns = [
            Column("node", Kind.NODE),
            Column("op"),
            Column("step", Kind.INDEX),
            Column("size", Kind.BYTES),
            Column("flops", Kind.FLOPS),
            Column("alive", Kind.BYTES),
        ]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "peak_before_bytes": ordering.as_written,
                "peak_scheduled_bytes": ordering.peak,
                "peak_after_bytes": repeated.peak,
                "lower_bound_bytes": result.bound,
                "gain_ratio": 1 - repeated.peak / ordering.peak if ordering.peak else 0.0,
                "recomputed_nodes": len(again),
                "extra_flops": repeated.spent,
                "extra_flops_ratio": repeated.spent / result.flops if result.flops else 0.0,
                "says": _recompute_verdict(result),
            },
            units={"recomputed_nodes": Kind.COUNT, "extra_flops": Kind.FLOPS},
            tables=(Table.of(rows[: self.top or None], columns=columns, title="run once more"),),
            coverage=Coverage(len(rows), len(rows)),
            notes=(
                CONVENTION,
                "the bound is the memory of the largest node by itself: no order needs less, whatever is recomputed",
                "nodes that draw random numbers, write in place or have side effects, and those of unknown arithmetic, run once",
            ),
        )


def search(scheduled: Scheduled, recipe: Recipe, most: int, deadline: float, seed: int) -> Repeated:
    """Recompute, put into a better order, and again, as long as that helps."""

    def stop() -> bool:
        return time.monotonic() > deadline

    best = lower(start(scheduled.draft.problem, recipe, scheduled.ordering.order), most, stop)
    for _ in range(_ROUNDS):
        left = deadline - time.monotonic()
        if left <= 0 or not any(best.again):
            break
        order = best_order(best.problem, left / _ROUNDS, seed)
        found = lower(best.reordered(order.order), most, stop) if order.peak < best.peak else best
        if found.peak >= best.peak:
            break
        best = found
    return best


def _recompute_verdict(result: Recomputed) -> str:
    if result.repeated.peak >= result.ordering.peak:
        if result.ordering.peak <= result.bound:
            return "recomputing cannot help here: one node needs all that is alive at the peak"
        return "nothing that may be recomputed lowers the peak"
    if result.repeated.peak <= result.bound:
        return "no order needs less, whatever is recomputed"
    return "recomputing lowers the peak"


# The order that `schedule` found, applied to the graph.


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
