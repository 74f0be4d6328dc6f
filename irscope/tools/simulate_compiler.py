"""`irscope simulate --try-compile`: what torch.compile would do to memory with other settings of its own, each compiled and simulated,
beside what irscope's solvers prove about the kernels as they are."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.memory.tape import COUNTERS
from irscope.report.table import Column, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance
from irscope.solvers.checkpoint.solve import CheckpointPlanner
from irscope.solvers.order.solve import best_order

if TYPE_CHECKING:
    from irscope.frontends.simulation.compilations import Compilations
    from irscope.solvers.checkpoint.problem import CheckpointProblem
    from irscope.solvers.order.solve import Ordering

BUDGET: Final = "compile.activation_memory_budget"
BUDGETS: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Shares that are tried of what the partitioner keeps by itself."""
FEW_BUDGETS: Final = (0.25, 0.5)
"""Those that are tried beside settings of other kinds: each takes as long as to compile the program."""
SWITCHES: Final = {
    "donated_buffer": "torch._functorch.config.donated_buffer = {}",
    "reorder_for_peak_memory": "torch._inductor.config.reorder_for_peak_memory = {}",
    "cudagraphs": "torch._inductor.config.triton.cudagraphs = {}  # as mode='reduce-overhead' does",
}
"""Settings that are on or off, and how they are written."""
_SEARCH: Final = 1000
"""Steps of the search for a plan: the same plan every time."""
_ORDER_SECONDS: Final = 10.0
"""For the search of orders of all graphs together."""
_MODELLED: Final = Provenance.MODELLED


def steady(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Counters of the last step, or of all where there are no steps: what timing kernels takes in the first one is over."""
    steps = document.get("steps") or []
    return steps[-1] if steps else document.get("rest")


@dataclass(frozen=True)
class BudgetRow:
    """One budget: what a run with it showed."""

    budget: float
    document: Mapping[str, Any]

    @property
    def partitions(self) -> Sequence[Mapping[str, Any]]:
        """Return how joint graphs were divided."""
        found: Sequence[Mapping[str, Any]] = self.document.get("compiled", {}).get("partitions", ())
        return found

    def peak(self, key: str = "allocated") -> int | None:
        """Of the last step."""
        found = steady(self.document)
        return None if found is None else found[key]["peak"]

    @property
    def runs_once(self) -> bool:
        """Return whether each graph runs once a step: what is kept for the backward adds up then."""
        return set(self.document["compiled"]["calls"]) == {len(self.document["steps"])}

    @property
    def saved(self) -> int:
        """Return the bytes that the forwards keep for the backward besides inputs and parameters, of each graph once."""
        graphs = self.document.get("compiled", {}).get("graphs", ())
        return sum(one["bytes"] or 0 for graph in graphs for one in graph["saved"])

    @property
    def how(self) -> str:
        """Return what decided, where it is the same for all graphs."""
        return ", ".join(dict.fromkeys(str(one["how"]) for one in self.partitions))

    @property
    def extra(self) -> int | None:
        """FLOPs of what is recomputed."""
        return _sum_of_known(one["extra_flops"] for one in self.partitions)

    @property
    def whole(self) -> int | None:
        """FLOPs of all graphs where nothing is recomputed."""
        return _sum_of_known(one["flops"] for one in self.partitions)

    @property
    def recomputed(self) -> dict[tuple[str, str], tuple[int, int | None]]:
        """By operator and line: how often, and FLOPs."""
        found: dict[tuple[str, str], tuple[int, int | None]] = {}
        for row in (row for one in self.partitions for row in one["recomputed"]):
            count, flops = found.get((row["operator"], row["line"]), (0, 0))
            found[row["operator"], row["line"]] = count + row["count"], _sum_of_known((flops, row["flops"]))
        return found


@immutable(slots=False)
class Planned:
    """irscope's plan for the kernels as they are, where the buffers of each graph take no more at once than they do with a budget."""

    buffers: int
    """The most that they take at once with that budget."""
    extra: int | None
    """FLOPs of what is recomputed in all; None where no plan is as low."""
    bound: int | None
    """Every plan within that memory recomputes at least so many."""
    least: int
    """Bytes that every plan needs."""


@immutable(slots=False)
class CompilerTried:
    """Effect of the compiler's settings on a program."""

    rows: Sequence[BudgetRow]
    """Lowest budget first; the program's own is among them."""
    own: float | None
    """The budget of the program as it is."""
    plans: Mapping[float, Planned]
    orders: Sequence[tuple[Mapping[str, Any], Ordering]]
    """Each graph's kernels, and the best order of them that was found."""

    @property
    def base(self) -> BudgetRow | None:
        """Return the program as it is."""
        return next((one for one in self.rows if one.budget == self.own), None)

    def best(self) -> BudgetRow | None:
        """Return the budget with the lowest peak of those that lower it; of equal ones the one that recomputes least."""
        base = self.base
        now = None if base is None else base.peak()
        if now is None:
            return None
        lower = [(one.peak() or 0, one.extra or 0, -one.budget, one) for one in self.rows if (one.peak() or now) < now]
        return min(lower, key=lambda row: row[:3])[3] if lower else None

    @property
    def verdict(self) -> str:
        """In a line; empty where no budget was tried."""
        base, best = self.base, self.best()
        if base is None or len(self.rows) < 2:
            return ""
        if best is None:
            phases = (base.document.get("phases") or [{}])[-1]
            where = max(phases, key=lambda phase: phases[phase], default="")
            return "no activation memory budget lowers the peak" + (f", which is in the {where}" if where else "")
        now, then = base.peak() or 0, best.peak() or 0
        said = f"budget {best.budget:g} lowers the peak by {humanise(now - then, Kind.BYTES)} ({(now - then) / now:.0%})"
        whole, extra, before = best.whole, best.extra, base.extra
        if whole and extra is not None and before is not None:
            said += f" for {_share((extra - before) / whole)} more FLOPs"
            planned, as_it_is = self.plans.get(best.budget), self.plans.get(base.budget)
            # Where buffers as they are modelled take no less with the budget, a plan that is as low says nothing.
            sees_it = planned is not None and as_it_is is not None and planned.buffers < as_it_is.buffers
            if sees_it and planned is not None and planned.extra is not None and planned.bound is not None:
                said += f"; irscope's plan would need {_share((planned.extra - before) / whole)}"
                said += f", no plan less than {_share((planned.bound - before) / whole)} (modelled)"
        return said

    def tables(self) -> Iterator[Table]:
        """Budgets as they ran, beside plans; what is recomputed with each; orders of kernels beside the best ones."""
        if self.rows:
            yield Table.of(
                [
                    (f"{one.budget:g}", one.how, *(one.peak(key) for key in COUNTERS if key != "active"), one.saved, one.extra, one.part)
                    for one in map(_Shown, self.rows)
                ],
                [
                    "budget",
                    "decided by",
                    *(f"{key}:bytes" for key in COUNTERS if key != "active"),
                    "saved:bytes",
                    "recomputed:flops",
                    "of all:ratio",
                ],
                "activation memory budgets, each compiled and simulated (exact): peaks of the last step",
            )
        if self.plans:
            shown = [(one, self.plans[one.budget]) for one in self.rows if one.budget in self.plans]
            yield Table.of(
                [(f"{one.budget:g}", plan.buffers, one.extra, plan.extra, plan.bound, _remark(one, plan)) for one, plan in shown],
                [
                    Column("budget"),
                    Column("buffers", Kind.BYTES, provenance=_MODELLED),
                    Column("recomputed", Kind.FLOPS),
                    Column("planned", Kind.FLOPS, "irscope's plan", provenance=_MODELLED),
                    Column("least", Kind.FLOPS, "no plan less than", provenance=_MODELLED),
                    Column("note"),
                ],
                "irscope's plans for the same kernels, as low as each budget: what would be recomputed",
            )
        counted = {key for one in self.rows for key, (_, flops) in one.recomputed.items() if flops != 0}
        if counted:
            budgets = [f"{one.budget:g}" for one in self.rows]
            total = {key: [one.recomputed.get(key, (0, 0))[0] for one in self.rows] for key in counted}
            yield Table.of(
                [(*key, *total[key]) for key in sorted(counted, key=lambda key: ([-one for one in total[key]], key))],
                [Column("operator"), Column("line"), *(Column(f"at {one}", Kind.COUNT) for one in budgets)],
                "operators that the backward computes once more, by budget",
            )
        if self.orders:
            yield Table.of(
                [
                    (number, one["part"], one["line"], one["kernels"], one["before"], one["after"], found.peak, found.bound)
                    for number, (one, found) in enumerate(self.orders)
                ],
                [
                    Column("graph", Kind.INDEX),
                    Column("part"),
                    Column("line"),
                    Column("kernels", Kind.COUNT),
                    Column("before", Kind.BYTES, "as written", provenance=_MODELLED),
                    Column("after", Kind.BYTES, "reordered", provenance=_MODELLED),
                    Column("best", Kind.BYTES, "best found", provenance=_MODELLED),
                    Column("bound", Kind.BYTES, "no order less", provenance=_MODELLED),
                ],
                "orders of kernels: the most that buffers of a graph take at once",
            )

    @property
    def notes(self) -> Iterator[str]:
        """Yield what the tables mean."""
        if self.rows:
            graphs = max(len(one.partitions) for one in self.rows)
            yield (
                "a budget is a share of what the default keeps beyond inputs, and holds for each graph by itself"
                + (f": {graphs} graphs with a backward, sums count each once" if graphs > 1 else "")
            )
            yield (
                "decided by: a minimum cut of bytes recomputes what fuses into other kernels, and more of it the less a budget leaves; "
                "where that is not enough, a knapsack keeps what has most FLOPs of what is left; at 0 inputs alone are kept"
            )
            unknown = dict.fromkeys(name for one in self.rows for part in one.partitions for name in part["unknown"])
            if unknown:
                yield f"FLOPs of {', '.join(unknown)} are not known, nor sums that they are in, nor plans"
            if self.base is not None and not self.base.runs_once:
                yield "no plans: graphs do not run once a step each"
            peaks = [one.peak() for one in self.rows]
            if any(a is not None and b is not None and a > b for a, b in itertools.pairwise(peaks)):
                yield "peaks do not fall with the budget: what is not kept is there again while the backward computes it"
        if self.rows and not self.orders:
            yield "plans and orders of irscope's own are made for a rank that is simulated by itself: --rank R"
        if self.plans:
            yield (
                "plans run kernels of the program as it is once more, as a whole; modelled: buffers live from first to last use, and none "
                "is written over by a kernel that reads it"
            )

    def to_json(self) -> dict[str, Any]:
        """`compiler` of what was tried."""
        return {
            "budget": self.own,
            "budgets": [
                {
                    "budget": one.budget,
                    "how": one.how,
                    "peak": {key: one.peak(key) for key in COUNTERS},
                    "saved_bytes": one.saved,
                    "flops": one.whole,
                    "extra_flops": one.extra,
                    "plan": None if one.budget not in self.plans else vars(self.plans[one.budget]),
                }
                for one in self.rows
            ],
            "orders": [
                {**one, "best": found.peak, "bound": found.bound, "proven": found.proven, "method": found.method}
                for one, found in self.orders
            ],
        }


class _Shown(BudgetRow):
    """A row of the table."""

    def __init__(self, row: BudgetRow) -> None:
        super().__init__(row.budget, row.document)

    @property
    def part(self) -> float | None:
        """Return what is recomputed, of all FLOPs."""
        return None if self.extra is None or not self.whole else self.extra / self.whole


def compiler_tried(
    runs: Iterable[tuple[float | None, Mapping[str, Any]]], own: float | None, compiled: Compilations | None
) -> CompilerTried:
    """`runs` are documents by their budget; the program's own is among them. `compiled` is what the program as it is was made into."""
    from irscope.frontends.simulation.partitions import step_problem

    rows = sorted((BudgetRow(budget, found) for budget, found in runs if budget is not None), key=lambda one: one.budget)
    rows = [one for one in rows if one.partitions]
    base = next((one for one in rows if one.budget == own), None)
    partitions = compiled.partitions if compiled is not None else []
    plans = _plans(step_problem(partitions), base, rows) if base is not None and partitions else {}
    kernels = [one for both in partitions for one in (both.forward, both.backward) if one is not None]
    orders = [(one.to_json(), best_order(one.problem, _ORDER_SECONDS / len(kernels))) for one in kernels]
    return CompilerTried(rows, own, plans, orders)


def _plans(problem: CheckpointProblem | None, base: BudgetRow, rows: Sequence[BudgetRow]) -> dict[float, Planned]:
    before = base.extra
    if before is None or problem is None or not base.runs_once:
        return {}
    planner = CheckpointPlanner(problem)
    peaks = {row.budget: row.document["compiled"]["buffers_peak"] for row in rows}
    return {budget: _planned(planner, peak, before) for budget, peak in peaks.items() if peak is not None}


def _planned(planner: CheckpointPlanner, peak: int, before: int) -> Planned:
    from irscope.frontends.simulation.partitions import FLOP

    least = planner.bounds.floor.bytes
    try:
        plan = planner.plan(min(peak, planner.save_all.peak), steps=_SEARCH)
    except UsageError:
        return Planned(peak, None, None, least)
    if not plan.met:
        return Planned(peak, None, None, least)
    bound = plan.seconds if plan.proven else plan.bound or 0
    return Planned(peak, before + round(plan.seconds / FLOP), before + round(bound / FLOP), least)


def _remark(row: BudgetRow, plan: Planned) -> str:
    if plan.extra is None:
        return f"no plan found; each needs {humanise(plan.least, Kind.BYTES)} or more"
    if row.extra is not None and plan.bound is not None and row.extra < plan.bound:
        return "parts of kernels are recomputed"
    return ""


def _sum_of_known(several: Iterable[int | None]) -> int | None:
    total = 0
    for one in several:
        if one is None:
            return None
        total += one
    return total


def _share(part: float) -> str:
    return f"{part:.1%}" if abs(part) >= 0.001 or not part else f"{part:.2%}"
