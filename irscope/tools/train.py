"""Training steps: their memory at several sizes of the batch, the largest that fits, pictures, and plans of what to recompute."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from irscope.amounts import read_size
from irscope.errors import UsageError
from irscope.files import write_text
from irscope.immutable import immutable
from irscope.memory.tape import REPORTED
from irscope.passes.cost.time import Time
from irscope.passes.training.activations import ActivationList, Activations, StepTimes, activations_csv, nodes_csv
from irscope.passes.training.checkpoint import Checkpoint, Checkpointed, budget_of, curve_of, step_problem
from irscope.passes.training.memory import StepMemory, TrainingMemory, trace_in
from irscope.report.celltext import signed
from irscope.report.chart import line_chart
from irscope.report.picture import Curve, Panel, Style, bars, panels_of
from irscope.report.report import ModelInfo, Report
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity, derived, largest
from irscope.session import Model
from irscope.solvers.checkpoint.simulate import Simulator
from irscope.solvers.checkpoint.solve import CheckpointPlanner, CheckpointPlans, Planned
from irscope.training import LiveStep, Trace

if TYPE_CHECKING:
    from irscope.devices import Target
    from irscope.frontends.eager.checkpointing import ModulePlan
    from irscope.frontends.eager.record import Record


def memory_of(model: Model) -> StepMemory:
    """Return the step's memory."""
    memory: StepMemory = model.manager.get(TrainingMemory())
    return memory


def kept_of(model: Model, link: float) -> ActivationList:
    """Return what the step keeps."""
    activations: ActivationList = model.manager.get(Activations(link=link))
    return activations


def plans_of(model: Model, seconds: float) -> CheckpointPlans:
    """Plans of what to recompute, for budgets from everything kept to the least."""
    checkpointed: Checkpointed = model.manager.get(Checkpoint(seconds=seconds))
    return checkpointed.plans


def compiled_report(model: Model) -> Report | None:
    """Return what torch.compile made of the step; None where it runs eagerly."""
    run = trace_in(model.program).requests
    if run is None or run.compiled is None:
        return None
    from irscope.frontends.simulation.compilations import Compilations
    from irscope.tools.simulation import compiled_tables, whole

    assert isinstance(run.compiled, Compilations)
    generated = [kernel for graph in run.compiled.graphs for kernel in graph.kernels]
    summary: dict[str, object] = {
        "how": model.program.metadata["compiled"],
        "graphs_count": len(run.compiled.graphs),
        "kernels_count": sum(one.generated for one in generated),
        "calls_count": sum(not one.generated for one in generated),
        "saved_bytes": whole(one.bytes for graph in run.compiled.graphs for one in graph.saved),
        "stops_count": sum(event.count for event in run.compiled.events),
    }
    return Report("compiled", summary=summary, tables=tuple(compiled_tables(run.compiled, memory_of(model).target)))


def node_lines(model: Model, link: float) -> str:
    """Return the CSV of operators."""
    return nodes_csv(memory_of(model), kept_of(model, link).times)


def activation_lines(model: Model, link: float) -> str:
    """Return the CSV of kept activations."""
    activations = kept_of(model, link)
    return activations_csv(memory_of(model), activations.kept, activations.times)


# Peaks by size of the batch, and the largest that fits, with and without recomputing.

MOST: Final = 1 << 16
"""No batch is looked for above this."""
_MOST_PLANS = 10
"""Sizes that are planned at most; each is captured and searched."""
_STRETCH = 64
"""Largest factor from a size that fits to the next guess."""


@immutable(slots=False)
class Size:
    """A size of the batch when something is recomputed."""

    batch: int
    kept: Quantity
    """Reserved bytes when everything is kept."""
    step_seconds: float
    planned: Planned | None
    """None where no plan can be within the budget."""
    room: Quantity
    """Bytes for tensors: the memory without what the allocator and workspaces take besides."""
    needed: Quantity
    """Bytes that it needs at least, besides included: by the plan found, or by the bound."""

    @property
    def least(self) -> int:
        """Return the same as a number to search by."""
        assert isinstance(self.needed.value, int)
        return self.needed.value

    @property
    def fits(self) -> bool:
        """Return whether a plan was found."""
        return self.planned is not None and self.planned.met


@immutable(slots=False)
class BatchSweep:
    """The step at several sizes of the batch, and the largest that fits."""

    report: Report
    models: Mapping[int, Model]
    """Those of the sizes that were asked for, or that of the largest batch that fits."""

    @property
    def model(self) -> Model:
        """Return the first of them."""
        return next(iter(self.models.values()))


def sweep_batches(
    capture: Callable[[int], Model], batches: Sequence[int] = (), memory: int | None = None, start: int = 4, seconds: float = 10
) -> BatchSweep:
    """Return the step at several sizes of the batch, each captured anew by `capture`; with `memory` the largest batch that fits into it.

    That is searched for from `start` on where no sizes are named, without recomputing and with plans of what to recompute, each found
    within so many seconds.
    """
    wanted = sorted(set(batches))
    captures = Captures(capture, wanted)
    for batch in wanted or (start, 2 * start):
        captures.needs(batch)
    is_planned = memory is not None and captures.is_eager
    summary: dict[str, object] = {}
    tables: list[Table] = []
    shown = wanted
    headline: tuple[str, ...] = ()
    if memory is not None:
        most, above = search_batches(memory, captures.needs, captures.known())
        summary |= {
            "memory_bytes": memory,
            "largest_batch": derived(most, *captures.decisive(most, above)),
            f"largest_batch_{captures.memory(most or above).taken}_bytes": captures.reserved(most or above),
        }
        if is_planned:
            sizes = _planned_sizes(captures, memory, most, seconds)
            tables.append(_plans(sizes))
            summary |= _with_recomputing(sizes, most)
        headline = (_largest_said(memory, summary),)
        shown = wanted or [most or above]
    models = {batch: captures.model(batch) for batch in shown}
    model = next(iter(models.values()))
    trace = trace_in(model.program)
    summary = {"optimizer": trace.optimizer, "device": memory_of(model).target.device.name, **summary}
    table, series = _peaks({batch: captures.found[batch] for batch in wanted or sorted(captures.found)}, captures.seconds)
    notes = (
        "with recomputing: peaks of tensors by plans, plus workspaces and rounding of the kept step",
        "a size for which no plan was found may still have one; --seconds gives the search more time",
    )
    report = Report(
        "training",
        options="training",
        headline=headline,
        summary=summary,
        tables=(*tables, table),
        series=(series,),
        notes=() if memory is None else notes if is_planned else (_BY_PARTITIONER,),
    )
    return BatchSweep(model.marked(report), models)


def _largest_said(memory: int, summary: Mapping[str, object]) -> str:
    most, *recomputing = (
        signed(summary[key], Kind.COUNT)  # type: ignore[arg-type]
        for key in ("largest_batch", "largest_batch_recomputing")
        if key in summary
    )
    said = f"batch {most} is the largest that fits {humanise(memory, Kind.BYTES)}"
    return f"{said}, {recomputing[0]} with recomputing" if recomputing else said


_BY_PARTITIONER: Final = (
    "what a compiled step recomputes is for torch.compile's partitioner to decide; `irscope simulate --try-compile` tries its budgets"
)


class Captures:
    """Steps by size of the batch, each captured once."""

    def __init__(self, capture: Callable[[int], Model], wanted: Collection[int] = ()) -> None:
        self.found: dict[int, StepMemory] = {}
        self.seconds: dict[int, Quantity] = {}
        """Predicted time of a step."""
        self.info: ModelInfo | None = None
        """Facts of the first capture about the model."""
        self._capture = capture
        self._wanted = wanted
        self._models: dict[int, Model] = {}

    def memory(self, batch: int) -> StepMemory:
        """Return the step's memory at a size."""
        if batch not in self.found:
            model = self._capture(batch)
            self.found[batch] = memory_of(model)
            self.info = self.info or model.info()
            timing = model.manager.get(Time())
            self.seconds[batch] = timing.quantity() if timing.seconds else Quantity(None, Provenance.UNKNOWN)
            trace_in(model.program).live = None  # the module of each size would stay
            if batch in self._wanted:
                self._models[batch] = model
        return self.found[batch]

    def model(self, batch: int) -> Model:
        """Return the step at a size; one that was only tried on the way to another is captured again."""
        return self._models.get(batch) or self._capture(batch)

    @property
    def is_eager(self) -> bool:
        """Return whether the steps run as Python runs them, so that somebody else can say what they recompute."""
        return all(memory.trace.requests is None for memory in self.found.values())

    def needs(self, batch: int) -> int:
        """Return the bytes that it takes of the device, reserved where an allocator is: the most of all steps."""
        memory = self.memory(batch)
        return memory.central.worst(memory.taken)

    def reserved(self, batch: int) -> Quantity:
        """Return the same with where it comes from."""
        memory = self.memory(batch)
        return memory.worst(memory.taken)

    def decisive(self, *batches: int) -> list[Quantity]:
        """Return what the search for the largest batch hung on: what was needed on both sides of the limit."""
        return [self.reserved(batch) for batch in batches if batch in self.found]

    def known(self) -> dict[int, int]:
        """Return what was captured so far."""
        return {batch: self.needs(batch) for batch in self.found}


def read_batches(text: str) -> list[int]:
    """Return the sizes of the batch as a user lists them."""
    sizes = [read_size(part) or 0 for part in text.split(",")]
    if not all(0 < size <= MOST for size in sizes):
        raise UsageError(f"--batches needs numbers such as 4,8,16, not {text!r}", code="IRS386")
    return sorted(set(sizes))


def _peaks(found: dict[int, StepMemory], seconds: Mapping[int, Quantity]) -> tuple[Table, Series]:
    first = next(iter(found.values()))
    categories = first.categories
    rows = [
        (
            batch,
            *[memory.worst(counter) for counter in REPORTED],
            seconds[batch],
            *[memory.at_peak().get(category, 0) for category in categories],
        )
        for batch, memory in found.items()
    ]
    columns = (
        Column("batch", Kind.COUNT),
        *[Column(name, Kind.BYTES) for name in REPORTED],
        Column("step_seconds", Kind.SECONDS, help="predicted for a step"),
        *[Column(category.replace(" ", "_"), Kind.BYTES, help=f"of what is {first.counted} at the peak") for category in categories],
    )
    series = Series(
        "Peak by batch",
        Column("batch", Kind.COUNT),
        tuple(Column(counter, Kind.BYTES) for counter in REPORTED),
        {"batch": list(found), **{counter: [memory.worst(counter) for memory in found.values()] for counter in REPORTED}},
        stacked=False,
        sampled=True,
    )
    return Table.of(rows, columns, "Peak by batch"), series


def search_batches(room: int, needs: Callable[[int], int], known: dict[int, int], most: int = 0) -> tuple[int, int]:
    """Return the largest size that needs no more than the room, and the smallest known one that needs more.

    0 stands for none. Memory grows nearly in proportion, so the next size is where the line through two known ones meets the limit.
    """
    known = dict(known)
    turn = 0
    while not most or turn < most:
        low = max((batch for batch in known if known[batch] <= room), default=0)
        high = min((batch for batch in known if known[batch] > room and batch > low), default=0)
        if (high and high - low <= 1) or low >= MOST:
            break
        guess = (low + high) // 2 if high else 2 * low
        # What is reserved grows in steps: where lines mislead, the middle gets there.
        near = [low, high] if high else sorted(known)[-2:]
        if all(batch in known for batch in near) and len(near) == 2 and turn % 2 == 0:
            slope = (known[near[1]] - known[near[0]]) / (near[1] - near[0])
            if slope > 0:
                guess = near[0] + int((room - known[near[0]]) // slope)
        guess = max(guess, low + 1)
        guess = min(guess, high - 1) if high else min(guess, _STRETCH * max(1, low), MOST)
        known[guess] = needs(guess)
        turn += 1
    low = max((batch for batch in known if known[batch] <= room), default=0)
    return low, min((batch for batch in known if known[batch] > room and batch > low), default=0)


def _planned_sizes(captures: Captures, room: int, kept: int, seconds: float) -> list[Size]:
    """Return sizes for which plans were searched, from the largest that fits without; the last that fits is as large as could be found."""
    sizes: dict[int, Size] = {}

    def needs(batch: int) -> int:
        sizes[batch] = _planned_size(captures, batch, room, seconds)
        # A size whose plan is within its budget fits, whatever lower peaks there are.
        return min(sizes[batch].least, room) if sizes[batch].fits else max(sizes[batch].least, room + 1)

    first = max(1, kept)
    known = {first: needs(first)}
    if sizes[first].fits:
        known[2 * first] = needs(2 * first)
        known = {batch: sizes[batch].least if sizes[batch].fits else known[batch] for batch in known}
    search_batches(room, lambda batch: _lowest(needs, sizes, batch), known, _MOST_PLANS - len(known))
    return [sizes[batch] for batch in sorted(sizes)]


def _lowest(needs: Callable[[int], int], sizes: dict[int, Size], batch: int) -> int:
    value = needs(batch)
    return sizes[batch].least if sizes[batch].fits else value


def _planned_size(captures: Captures, batch: int, room: int, seconds: float) -> Size:
    """Plan a size: first with baseline planners find, then with the time that is allowed."""
    memory = captures.memory(batch)
    problem = step_problem(memory.trace, StepTimes(memory.target.device, memory.trace).of).problem
    planner = CheckpointPlanner(problem)
    kept = captures.reserved(batch)
    besides = largest([0, kept - planner.save_all.peak])
    budget, floor = room - max(0, captures.needs(batch) - planner.save_all.peak), planner.bounds.floor.bytes
    if budget < floor:
        return Size(batch, kept, problem.seconds, None, room - besides, floor + besides)
    planned = planner.plan(budget, seconds=seconds)
    return Size(batch, kept, problem.seconds, planned, room - besides, planner.archive.lowest.cost.peak + besides)


def _with_recomputing(sizes: list[Size], kept: int) -> dict[str, object]:
    best = max((size for size in sizes if size.fits), key=lambda size: size.batch, default=None)
    reasons = [size.kept for size in sizes]
    if best is None or best.planned is None:
        return {"largest_batch_recomputing": derived(kept, *reasons)}
    above = min((size.batch for size in sizes if not size.fits and size.batch > best.batch), default=None)
    return {
        "largest_batch_recomputing": derived(best.batch, *reasons),
        "recomputing_peak_bytes": derived(best.planned.peak, *reasons),
        "recomputing_extra_seconds": Quantity(best.planned.seconds, Provenance.MODELLED),
        "recomputing_extra_ratio": Quantity(best.planned.seconds / best.step_seconds if best.step_seconds else None, Provenance.MODELLED),
        "no_plan_found_for_batch": derived(above, *reasons),
    }


def _plans(sizes: list[Size]) -> Table:
    modelled = Provenance.MODELLED
    columns = (
        Column("batch", Kind.COUNT),
        Column("fits", Kind.BOOL),
        Column("kept", Kind.BYTES, help="reserved when everything is kept"),
        Column("room", Kind.BYTES, help="for tensors: the memory without workspaces and rounding"),
        Column("planned_peak", Kind.BYTES, help="of tensors; unknown where no plan can be within the memory"),
        Column("extra", Kind.SECONDS, provenance=modelled),
        Column("extra_share", Kind.RATIO, provenance=modelled),
        Column("least_needed", Kind.BYTES, help="by the lowest plan found, or by the bound, with workspaces and rounding"),
        Column("method"),
    )
    rows = []
    for size in sizes:
        planned = size.planned
        share = planned.seconds / size.step_seconds if planned is not None and size.step_seconds else None
        rows.append(
            (
                size.batch,
                derived(size.fits, size.kept),
                size.kept,
                size.room,
                derived(planned.peak if planned is not None else None, size.room),
                planned.seconds if planned is not None else None,
                share,
                size.needed,
                derived(planned.method if planned is not None else "the bound", size.room),
            )
        )
    return Table.of(rows, columns, "Sizes that were planned")


# Pictures of a step, in a file or in the terminal.

PICTURES = {
    "memory": "memory over a training step",
    "categories": "memory at the peak of a training step",
    "idle": "kept activations that lie idle longest",
    "batch": "peak of a training step by batch",
    "recompute": "peak against recompute time",
}
"""Pictures of a plan or a step, with the words of their titles."""
_MOST_IDLE = 15
_MOST_STRETCH = 4
"""Slowdown against the slowest plan found, up to which a simpler one is still drawn."""


def picture_title(picture: str, model: Model) -> str:
    """Return what stands above a picture of a step."""
    name = model.program.path or model.program.metadata.get("class", "")
    return f"{name}: {PICTURES[picture]} on {memory_of(model).target.device.title}"


def picture_lines(picture: str, steps: Mapping[str, Model], swept: Sequence[Series], seconds: float, encoding: str) -> Iterator[str]:
    """Yield a picture in the terminal."""
    if picture in ("categories", "idle"):
        raise UsageError(f"the picture {picture!r} has bars and is drawn into a file", code="IRS387", hint="`--plot FILE.svg`")
    if picture == "batch":
        for series in _of_batches(swept):
            yield from _chart_lines(series, series.y, encoding)
        return
    for label, model in steps.items():
        if label:
            yield from ("", label)
        if picture == "recompute":
            for series in curve_of(plans_of(model, seconds)):
                yield from _chart_lines(series, series.y, encoding)
            continue
        for series in _of_memory(model):
            data: dict[str, Sequence[object]] = {series.x.key: series.cells(series.x.key), "total": series.totals(series.y)}
            total = Column("total", Kind.BYTES)
            yield from _chart_lines(Series(series.title, series.x, (total,), data, stacked=False), [total], encoding)


def _chart_lines(series: Series, columns: Sequence[Column], encoding: str) -> Iterator[str]:
    for column in columns:
        yield from ("", *line_chart(Series(series.title, series.x, (column,), _data(series, column), stacked=False), encoding))


def _data(series: Series, column: Column) -> dict[str, Sequence[object]]:
    return {key: series.data[key] for key in (series.x.key, column.key)}


def _of_batches(swept: Sequence[Series]) -> Sequence[Series]:
    if not swept:
        raise UsageError("the picture of batches needs --batches", code="IRS386", hint="`--batches 4,8,16,32,64`")
    return swept


def step_panels(picture: str, steps: Mapping[str, Model], swept: Sequence[Series], seconds: float) -> list[Panel]:
    """Return one picture of steps, which have names where they are several. A search for plans gets some seconds."""
    if picture == "batch":
        return [panel for series in _of_batches(swept) for panel in panels_of(series)]
    if picture == "categories":
        return [_category_bars(steps)]
    if picture == "idle":
        return [_idle(label, model) for label, model in steps.items()]
    if picture == "recompute":
        return [recompute_panel(label, plans_of(model, seconds)) for label, model in steps.items()]
    return [panel for label, model in steps.items() for panel in _timeline(label, model)]


def _of_memory(model: Model) -> Sequence[Series]:
    return model.marked(TrainingMemory().report(memory_of(model), model.manager)).series


def _timeline(label: str, model: Model) -> list[Panel]:
    return [panel for series in _of_memory(model) for panel in panels_of(series, label or series.title)]


def _category_bars(steps: Mapping[str, Model]) -> Panel:
    found = {label: memory_of(model).at_peak() for label, model in steps.items()}
    known = dict.fromkeys(name for sizes in found.values() for name in sizes)
    names = [name for name in known if any(name in sizes and (sizes[name].value or sizes[name].interval) for sizes in found.values())]
    peaks = [signed(sum(sizes.values(), Quantity(0)), Kind.BYTES) for sizes in found.values()]
    columns = [
        (
            Column(label or "bytes", Kind.BYTES, f"{label}, peak {peak}" if label else "bytes"),
            [sizes.get(name, Quantity(0)) for name in names],
        )
        for (label, sizes), peak in zip(found.items(), peaks, strict=True)
    ]
    counter = memory_of(next(iter(steps.values()))).counted
    return bars("bytes by category" if len(found) > 1 else f"bytes by category, together the peak of {peaks[0]} {counter}", names, columns)


def _idle(label: str, model: Model) -> Panel:
    kept = sorted(kept_of(model, 55.0).kept, key=lambda one: -one.idle_seconds * one.piece.size)[:_MOST_IDLE]
    names = [f"{one.piece.name}, {humanise(one.piece.size, Kind.BYTES)}" for one in kept]
    column = Column("idle", Kind.SECONDS, provenance=Provenance.MODELLED)
    words = f"time between forward and backward use, the {len(kept)} with most byte-seconds"
    return bars(f"{label}: {words}" if label else words, names, [(column, [one.idle_seconds for one in kept])])


def recompute_panel(label: str, plans: CheckpointPlans) -> Panel:
    """Extra time by peak: the plans found, what no plan can beat, and simpler planners."""
    found = [(point.cost.peak, point.cost.seconds) for point in plans.curve]
    others = {name: sorted({(cost.peak, cost.seconds) for cost in costs}) for name, costs in sorted(plans.baselines.items())}
    slowest = max(seconds for _, seconds in found)
    # Simpler plans take longer. The quickest of each are to be seen, unless they would leave the curve at the bottom of the picture.
    quickest = [min(seconds for _, seconds in points) for points in others.values() if points]
    top = max([2 * slowest, *(1.1 * seconds for seconds in quickest if seconds <= _MOST_STRETCH * slowest)]) or 1e-6
    kept = plans.save_all.peak
    left, right = min(plans.floor, *(peak for peak, _ in found)), max([kept, *(peak for points in others.values() for peak, _ in points)])
    bound = sorted((one.budget, one.bound) for one in plans.planned if one.bound is not None)
    curves = [_curve("plans found", found, Style.STEPS), _curve("no plan is quicker", bound, Style.LINE, dashed=True)]
    for name, points in others.items():
        inside = [point for point in points if point[1] <= top]
        beyond = len(points) - len(inside)
        curves.append(_curve(f"{name} ({beyond} slower)" if beyond else name, inside, Style.POINTS))
    ends = ((plans.floor, "no plan needs less than"), (kept, "everything kept:"))
    marks = tuple(Mark(peak, f"{words} {humanise(peak, Kind.BYTES)}") for peak, words in ends)
    x = Column("peak", Kind.BYTES, "peak of tensors")
    y = Column("extra", Kind.SECONDS, "extra time", provenance=Provenance.MODELLED)
    words = "extra time (modelled) by peak"
    return Panel(f"{label}: {words}" if label else words, x, y, tuple(curves), marks, left=left, right=right, top=top)


def _curve(name: str, points: Sequence[tuple[float, float]], style: Style, *, dashed: bool = False) -> Curve:
    return Curve(name, [x for x, _ in points], [y for _, y in points], style, dashed)


# The plan that `irscope.apply_checkpoints` carries out on the live module.


def write_plan(model: Model, budget_text: str, path: str, seconds: float = 10) -> Report:
    """Plan in whole modules with operators that are saved, as `torch.utils.checkpoint` can, and write it down."""
    from irscope.frontends.eager.steps import objective_of

    trace = trace_in(model.program)
    live = trace.live
    if not isinstance(live, LiveStep):
        raise UsageError(
            "there is no live module to plan for, only a graph", code="IRS394", hint="the checkpoint pass says what to recompute in a graph"
        )
    target = memory_of(model).target
    budget, others = _step_budget(trace, StepTimes(target.device, trace), budget_text)
    objective = objective_of(live.loss)  # type: ignore[arg-type]  # a name or a function, as capture took it
    plan = module_plan(live.module, live.args, objective, max(0, budget - others), live.kwargs, target=target, seconds=seconds)
    written = {**plan.document(), "model": trace.model, "step_budget_bytes": budget, "step_peak_bytes": plan.peak + others}
    write_text(Path(path), [json.dumps(written, indent=1), "\n"])
    return _plan_report(path, plan, budget, others)


def module_plan(
    module: Any,
    args: Sequence[Any],
    loss: Callable[[Any], Any],
    budget: int | Callable[[int], int],
    kwargs: Mapping[str, Any] | None = None,
    *,
    target: Target,
    seconds: float = 10.0,
    steps: int | None = None,
    seed: int = 0,
) -> ModulePlan:
    """Plan for an nn.Module on a device, whose times of operators count as in the checkpoint pass."""
    from irscope.frontends.eager.checkpointing import RecordedStep, plan_module
    from irscope.frontends.eager.steps import Recorded
    from irscope.frontends.eager.steptrace import trace_of

    times = StepTimes(target.device)

    def problem_of(record: Record) -> RecordedStep:
        end = len(record.ops), sum(storage.died is not None for storage in record.storages)
        step = step_problem(trace_of(Recorded(record, [(0, 0), end]), ""), times.of)
        return RecordedStep(step.problem, [record.ops[op.number] for op in step.ops], record)

    device = "cpu" if target.device.kind == "cpu" else "cuda"
    return plan_module(module, args, loss, budget, kwargs, problem_of=problem_of, seconds=seconds, steps=steps, seed=seed, device=device)


def _step_budget(trace: Trace, times: StepTimes, text: str) -> tuple[int, int]:
    """Return the bytes of the budget, and of what is there all the time and is neither activation nor gradient."""
    step = step_problem(trace, times.of)
    problem = step.problem
    simulator = Simulator(problem)
    budget = budget_of(text, simulator.cost(simulator.save_all()).peak)
    pairs = zip(problem.storages, step.pieces, strict=True)
    return budget, sum(one.size for one, piece in pairs if one.is_input and one.is_output and piece.category != "gradient")


def _plan_report(path: str, plan: ModulePlan, budget: int, others: int) -> Report:
    notes = ["the plan is in whole modules and operators of them that are saved, as torch.utils.checkpoint carries out"]
    if not plan.met:
        notes.append(
            f"no plan of this kind within {humanise(budget, Kind.BYTES)} was found: this one comes nearest; the checkpoint pass is freer"
        )
    return Report(
        "plan",
        options="plan",
        summary={
            "file": path,
            "modules_count": len(plan.policies),
            "budget_bytes": budget,
            "budget_met": plan.met,
            "planned_peak_bytes": plan.peak + others,
            "stays_bytes": others,
            "extra_seconds": Quantity(plan.seconds, Provenance.MODELLED),
            "extra_ratio": Quantity(plan.seconds / plan.step_seconds if plan.step_seconds else None, Provenance.MODELLED),
        },
        notes=tuple(notes),
    )
