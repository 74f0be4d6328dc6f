"""Plans of what a training step recomputes: the captured step as a problem, and the pass that solves it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from irscope.amounts import SHARE, Seconds, parse_bytes, read_amount
from irscope.devices import target_of
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.graph import Facet, Graph
from irscope.passes.sizes import CONVENTION
from irscope.passes.training.activations import StepTimes
from irscope.passes.training.memory import trace_in
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity
from irscope.solvers.checkpoint.problem import CheckpointProblem, Phase, Repeat, StepOperator, StepStorage, checkpoint_problem
from irscope.solvers.checkpoint.simulate import AGAIN, KEEP
from irscope.solvers.checkpoint.solve import CheckpointPlanner, CheckpointPlans, Planned
from irscope.training import Piece, StepOp, Trace


def decided_by_compiler(where: str) -> UsageError:
    """Return what is said of a plan for a compiled step: nobody could carry it out."""
    return UsageError(
        "what a compiled step recomputes is for torch.compile's partitioner to decide",
        code="IRS394",
        where=where,
        hint="`irscope simulate --try-compile SCRIPT` tries its activation memory budgets",
    )


@immutable(slots=False)
class StepProblem:
    """The problem of the steady step, and what its numbers stand for."""

    problem: CheckpointProblem
    ops: list[StepOp]
    pieces: list[Piece]


def step_problem(trace: Trace, seconds: Callable[[StepOp], float], *, replay_random: bool = True) -> StepProblem:
    """Return the steady step; what is not on the device does not count."""
    span = trace.steady
    captured = [op for op in trace.in_step(span) if any(piece.on_device for piece in op.writes)]
    place: list[int] = []
    count = 0
    for op in trace.in_step(span):
        if count < len(captured) and captured[count] is op:
            count += 1
        place.append(count - 1)
    pieces = [piece for piece in trace.pieces if piece.on_device and _is_in(piece, span.first, span.end)]
    number = {piece: at for at, piece in enumerate(pieces)}
    storages = []
    for piece in pieces:
        stays = piece.died is None or piece.died > span.end
        held = -1 if piece.died is None or stays else place[max(0, piece.died - 1 - span.first)]
        before = piece.born is None or piece.born < span.first
        storages.append(StepStorage(piece.name, piece.size, is_input=before, is_output=stays, held=held))
    operators = [
        StepOperator(
            op.name,
            tuple(number[piece] for piece in op.reads if piece in number),
            tuple(number[piece] for piece in op.writes if piece in number),
            seconds(op),
            Phase[op.phase.upper()],
            Repeat.REPLAYED if op.is_random else Repeat.FREELY,
            module=op.scope.module,
        )
        for op in captured
    ]
    return StepProblem(checkpoint_problem(operators, storages, replay_random=replay_random), captured, pieces)


def _is_in(piece: Piece, first: int, end: int) -> bool:
    """Return whether a piece is there at some time of a step."""
    return (piece.born is None or piece.born < end) and (piece.died is None or piece.died > first)


# What to recompute in a training step so that it fits into less memory, with the proof of how little any plan can need.

_MODELLED = Provenance.MODELLED


@dataclass
class Checkpointed:
    """Plans for a captured step."""

    step: StepProblem
    plans: CheckpointPlans
    times: StepTimes
    chosen: Planned | None
    """The plan for the budget that was asked for."""


@dataclass(frozen=True)
class Checkpoint(Analysis[Checkpointed]):
    """Choose the activations that a training step recomputes (checkpointing), under a memory budget or as a curve of peak against time."""

    name: ClassVar[str] = "checkpoint"
    reads: ClassVar[tuple[Facet, ...]] = ()

    budget: str = ""
    """Memory of the step, such as 24GiB, or a share of its peak, such as 60%; default: the whole curve."""
    points: int = 9
    """Budgets of the curve when none is given."""
    seconds: Seconds = 10
    """Time limit of the search."""
    steps: int = 0
    """Steps of the search for each budget, instead of a time limit, so that results are reproducible. 0: as many as the time allows."""
    seed: int = 0
    """Seed of the random part of the search."""
    random: Literal["replayed", "kept"] = "replayed"
    """Whether operators that draw random numbers may be recomputed, with the generator's state restored, or their results are kept."""
    top: int = 20
    """Rows of the table of what is recomputed, 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> Checkpointed:
        trace = trace_in(ctx.program)
        if trace.requests is not None:
            raise decided_by_compiler(ctx.program.path)
        times = StepTimes(target_of(ctx.settings).device, trace)
        step = step_problem(trace, times.of, replay_random=self.random == "replayed")
        planner = CheckpointPlanner(step.problem, seed=self.seed, watch=lambda what: ctx.tick(0, None, what))
        steps = self.steps or None
        if self.budget:
            planned = [planner.plan(budget_of(self.budget, planner.save_all.peak), seconds=self.seconds, steps=steps)]
            chosen: Planned | None = planned[0]
        else:
            planned = planner.curve(planner.even_budgets(max(2, self.points)), seconds=self.seconds, steps=steps)
            chosen = None
        return Checkpointed(step, planner.result(planned), times, chosen)

    def report(self, result: Checkpointed, ctx: PassContext) -> Report:
        plans = result.plans
        whole = plans.problem.seconds
        summary: dict[str, object] = {
            "peak_bytes": plans.save_all.peak,
            "step_seconds": Quantity(whole, _MODELLED),
            "least_possible_bytes": plans.floor,
            "stays_bytes": plans.problem.base,
            "choices": len(plans.problem.choices),
            "plans_simulated": plans.evaluations,
            "times": result.times.source,
            "device": result.times.device.name,
        }
        if result.chosen is not None:
            chosen = result.chosen
            summary |= {
                "budget_bytes": chosen.budget,
                "budget_met": chosen.met,
                "planned_peak_bytes": chosen.peak,
                "extra_seconds": Quantity(chosen.seconds, _MODELLED),
                "extra_ratio": Quantity(chosen.seconds / whole if whole else None, _MODELLED),
                "bound_seconds": Quantity(chosen.bound, _MODELLED),
                "proven_best": chosen.proven,
                "method": chosen.method,
                "says": _verdict(chosen, whole),
            }
        return Report(
            pass_name=self.name,
            options=self.text,
            summary=summary,
            tables=tuple(self._tables(result)),
            series=curve_of(plans),
            coverage=Coverage(len(plans.problem.operators), len(plans.problem.operators)),
            notes=(
                CONVENTION,
                "peaks are bytes of tensors that live at once, without workspaces of kernels and rounding by the allocator",
                result.times.note,
                "recomputed operators run right before their first use; batch normalisation does not update its statistics again",
                *(("random numbers: the generator's state is restored before recomputing",) if self.random == "replayed" else ()),
            ),
        )

    def _tables(self, result: Checkpointed) -> Iterator[Table]:
        plans, whole = result.plans, result.plans.problem.seconds
        rows = [
            (one.budget, one.met, one.peak, one.seconds, one.seconds / whole if whole else None, one.bound, one.proven, one.method)
            for one in plans.planned
        ]
        yield Table.of(rows, _PLANS, "plans by budget")
        if result.chosen is None:
            return
        budget = result.chosen.budget
        others = []
        for name, costs in plans.baselines.items():
            within = [cost.seconds for cost in costs if cost.peak <= budget]
            least = min((cost.peak for cost in costs), default=None)
            others.append((name, min(within, default=None), least))
        yield Table.of(others, _OTHERS, "baseline planners")
        recomputed = _recomputed(result.step, result.chosen)
        yield Table.of(recomputed[: self.top or None], _RECOMPUTED, "recomputed")


_PLANS = (
    Column("budget", Kind.BYTES),
    Column("met", Kind.BOOL),
    Column("peak", Kind.BYTES),
    Column("extra", Kind.SECONDS, provenance=_MODELLED),
    Column("extra_share", Kind.RATIO, provenance=_MODELLED),
    Column("least_extra", Kind.SECONDS, help="every plan within the budget takes at least so long", provenance=_MODELLED),
    Column("proven", Kind.BOOL, help="no plan is quicker"),
    Column("method"),
)
_OTHERS = (
    Column("planner"),
    Column("extra", Kind.SECONDS, help="unknown where none of its plans is within the budget", provenance=_MODELLED),
    Column("lowest_peak", Kind.BYTES),
)
_RECOMPUTED = (
    Column("tensor"),
    Column("count", Kind.COUNT),
    Column("size", Kind.BYTES, help="all together"),
    Column("how", help="once, or again for each use"),
)


def budget_of(text: str, peak: int) -> int:
    """Return the bytes that a budget names: an amount of memory, or a share of the peak."""
    if not text.endswith("%"):
        return parse_bytes(text)
    share = read_amount(text, SHARE)
    if share is None or not 0 < share <= 1:
        raise UsageError(f"{text!r} is not a share of the peak", code="IRS393", hint="budget=60% or budget=24GiB")
    return int(share * peak)


def _verdict(planned: Planned, whole: float) -> str:
    if not planned.met:
        if planned.bound is None:
            return "no plan is within the budget: proven"
        return "no plan within the budget was found; this one comes nearest"
    if not planned.seconds:
        return "nothing has to be recomputed"
    if planned.proven or planned.bound is None:
        return "no plan within the budget is quicker: proven"
    return f"the step takes {planned.seconds / whole:.1%} longer, and with no plan less than {planned.bound / whole:.1%}"


def _recomputed(step: StepProblem, planned: Planned) -> list[tuple[str, int, int, str]]:
    """Return what is given up, by name without numbers of layers, largest first."""
    saved = set(step.problem.saved)
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, state in enumerate(planned.plan):
        if state != KEEP and number in saved:
            name = ".".join("*" if part.isdigit() else part for part in step.pieces[number].name.split("."))
            found[name, "again for each use" if state == AGAIN else "once"].append(step.pieces[number].size)
    rows = [(name, len(sizes), sum(sizes), how) for (name, how), sizes in found.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def curve_of(plans: CheckpointPlans) -> tuple[Series, ...]:
    """Extra time over the peak."""
    points = plans.curve
    if len(points) < 2:
        return ()
    data: dict[str, list[object]] = {"peak": [point.cost.peak for point in points], "extra": [point.cost.seconds for point in points]}
    return (
        Series(
            "extra time by peak", Column("peak", Kind.BYTES), (Column("extra", Kind.SECONDS, provenance=_MODELLED),), data, stacked=False
        ),
    )
