"""A recording beside a model as a report: what every renderer and the UI show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from irscope.errors import IrscopeError
from irscope.ir.graph import Node
from irscope.ops.registry import find_op
from irscope.passes.cost.energy import Energy, Spent
from irscope.passes.sizes import CONVENTION
from irscope.recording import Recording, Times
from irscope.report.celltext import signed
from irscope.report.picture import Panel, largest_bars
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Number, Provenance, Quantity, bare, derived
from irscope.tools.compare.document import Measure, RecordingJson
from irscope.tools.compare.matching import How
from irscope.tools.compare.runs import COLD, WARM, Figure, Measured, RunComparison
from irscope.tools.recorded import beside_least, trust_lines, trust_of

ERRORS = "error: predicted less measured, as a share of what was measured; delta is what the {} adds to the baseline"
_RECURRENT = "a recurrent layer on a processor: oneDNN makes tensors for each layer, which no operator shows and no prediction has"
_ALIVE = "alive: bytes beyond the baseline, kernels' workspaces left out on both sides"
_LEAST = (
    "least: a lower bound from the device's peaks; efficiency: least time as a share of the measured one; "
    "predicted: what kernels of that class were measured to reach, over: by how much the measured time is longer"
)
_TINY = 0.0001
_MEASURED, _MODELLED = Provenance.MEASURED, Provenance.MODELLED


def run_report(compared: RunComparison) -> Report:
    """Return the report."""
    nodes, ops = compared.matched
    return Report(
        pass_name="compare",
        options="compare",
        headline=tuple(run_headline(compared)),
        summary={
            **{run: {figure.name: figure_cells(figure) for figure in compared.figures(run)} for run in _runs(compared)},
            "workspaces": {run: _workspace(compared, run) for run in _runs(compared)},
            "time": _times(compared),
            "matched": {"nodes": nodes, "of_nodes": compared.ran, "folded": len(compared.folded), "recorded": ops},
        },
        units={**figure_units((COLD, WARM)), "workspaces": Kind.BYTES, **_TIME_UNITS},
        tables=(unmatched_table(compared), modules_table(compared), nodes_table(compared), *energy_tables(compared)),
        series=run_series(compared),
        pictures=lambda: run_panels(compared),
        coverage=Coverage(nodes, compared.ran, _not_run(compared)),
        notes=(CONVENTION, ERRORS.format("run"), _ALIVE, *((_LEAST,) if compared.expected.seconds else ()), *compared.expected.notes),
        diagnostics=tuple(compared.diagnostics),
    )


def _not_run(compared: RunComparison) -> tuple[str, ...]:
    """Return the operators of nodes that nothing recorded carries out."""
    lonely = (step for step in range(len(compared.steps)) if step not in compared.matching.ops_of and step not in compared.folded)
    return tuple(dict.fromkeys(compared.steps[step].op for step in lonely))


def run_headline(compared: RunComparison) -> list[str]:
    """Return the headline, in a few lines."""
    run = _runs(compared)[-1]
    lines = said_of(compared.figures(run), run)
    if compared.expected.caveat:
        lines.append(compared.expected.caveat)
    left_out = compared.workspaces(run)
    if left_out and compared.recording.header.executor == "torch-cpu":
        lines.append(f"left out on both sides: temporary memory of kernels, {humanise(left_out, Kind.BYTES)} more at the measured peak")
    if compared.is_recurrent:
        lines.append(_RECURRENT)
    nodes, ops = compared.matched
    total, recorded = compared.ran, len(compared.recording.ops)
    gone = f", {len(compared.folded):,} more were computed or taken out before the first run" if compared.folded else ""
    lines.append(f"{nodes:,} of {total:,} nodes matched ({_share(nodes, total)}){gone}; {ops:,} of {recorded:,} recorded operators")
    plain = compared.recording.times("plain")
    if plain is not None:
        seconds = plain.median_us / 1e6
        least = least_seconds(compared)
        device = compared.expected.device
        text = f"a run took {humanise(seconds, Kind.SECONDS)}"
        text += beside_least(seconds, least, device.title if device is not None else "the device")
        timing = compared.expected.timing
        if timing is not None and timing.seconds:
            text += f"; predicted {humanise(timing.quantity(), Kind.SECONDS)}"
        lines.append(text)
        lines += _furthest(compared)
    lines += trust_lines(compared.recording)
    return lines


_SHOWN_OFF = 3


def _furthest(compared: RunComparison) -> list[str]:
    """Say which nodes took much longer or shorter than predicted, those of the largest difference first."""
    table = nodes_table(compared)
    columns = [table.cells(key) for key in ("node", "measured_time", "predicted_time")]
    rows = [
        (abs(measured - predicted), f"{node} {humanise(measured, Kind.SECONDS)} for {humanise(predicted, Kind.SECONDS)}")
        for node, measured, predicted in zip(*(map(bare, cells) for cells in columns), strict=True)
        if isinstance(measured, float) and isinstance(predicted, float) and predicted
    ]
    rows.sort(key=lambda row: -row[0])
    return ["furthest from their predicted time: " + ", ".join(text for _, text in rows[:_SHOWN_OFF])] if rows else []


def recording_parts(recording: Recording) -> list[str]:
    """Return what a line about the recording says."""
    header = recording.header
    versions = " ".join(f"{name} {version}" for name, version in header.versions.items() if name in ("torch", "onnxruntime"))
    parts = [recording.path, header.executor, header.device.name, versions, f"{len(recording.ops):,} operators"]
    if header.repeats:
        parts.append(f"{header.repeats} {'steps' if recording.is_step else 'runs'}")
    if not recording.complete:
        parts.append("incomplete")
    return parts


def recording_json(recording: Recording) -> RecordingJson:
    """Return what the recording says of itself."""
    header = recording.header
    return {
        "path": recording.path,
        "schema": header.schema,
        "executor": header.executor,
        "model": header.model.name,
        "sha256": header.model.sha256,
        "device": header.device.name,
        "versions": dict(header.versions),
        "created": header.created,
        "operators": len(recording.ops),
        "complete": recording.complete,
    }


def least_seconds(compared: RunComparison) -> float | None:
    """Return the least time of the whole model on the recorded device."""
    return sum(compared.expected.seconds.values()) if compared.expected.seconds else None


def _runs(compared: RunComparison) -> list[str]:
    """Return the runs with data in the recording; both where there is none."""
    known = {event.run for event in compared.recording.events} | {counter.run for counter in compared.recording.counters}
    return [run for run in (COLD, WARM) if run in known] or [COLD, WARM]


def said_of(figures: Sequence[Figure], run: str) -> list[str]:
    """Return what a run adds and what is reserved, predicted and measured, where one of both is known."""
    known = (figure for figure in figures if figure.predicted.value is not None or figure.measured is not None)
    return [_said(one, run) for one in known if one.name in ("delta", "reserved")]


def _said(figure: Figure, run: str) -> str:
    predicted, measured = signed(figure.predicted, Kind.BYTES), humanise(figure.measured, Kind.BYTES)
    error = "" if figure.error is None else f", error {_signed(figure.error)}"
    low, high = figure.predicted.ends
    span = "" if low is None or high is None or low == high else f" [{humanise(low, Kind.BYTES)} to {humanise(high, Kind.BYTES)}]"
    return f"{figure.name} ({run}): predicted {predicted}{span}, measured {measured}{error}"


def _signed(value: float) -> str:
    if 0 < abs(value) < _TINY:
        return f"less than {_TINY:.2%}"
    return f"{'+' if value > 0 else ''}{value:.2%}"


def _share(part: int, whole: int) -> str:
    return humanise(part / whole, Kind.RATIO) if whole else "none"


def figure_cells(figure: Figure) -> dict[str, object]:
    """Return a figure as predicted and as measured, with their difference."""
    measured = Quantity(figure.measured, _MEASURED)
    return {
        "predicted": figure.predicted,
        "measured": measured,
        "difference": derived(figure.difference, figure.predicted, measured),
        "error": derived(figure.error, figure.predicted, measured),
    }


def figure_units(runs: Sequence[str]) -> dict[str, Kind]:
    """Return the units of the figures of some runs, in a summary."""
    errors = {f"{run}.{name}.error": Kind.RATIO for run in runs for name in ("baseline", "peak", "delta", "reserved")}
    return {**dict.fromkeys(runs, Kind.BYTES), **errors}


def _workspace(compared: RunComparison, run: str) -> Quantity:
    return Quantity(compared.workspaces(run), _MEASURED, note="temporary memory of kernels, added to the peak")


_TIME_UNITS = {
    "time": Kind.SECONDS,
    "time.flop_rate": Kind.FLOPS_PER_SECOND,
    "time.overhead": Kind.RATIO,
    "time.energy_joules": Kind.NUMBER,
    "time.energy_predicted_joules": Kind.NUMBER,
}


def _times(compared: RunComparison) -> dict[str, object]:
    recording = compared.recording
    plain, profiled = recording.times("plain"), recording.times("profiled")
    trust = trust_of(recording)
    times: dict[str, object] = {
        name: Quantity(None, _MEASURED) if one is None else trust.seconds(one, f"median of {one.n}")
        for name, one in (("plain", plain), ("profiled", profiled))
    }
    if plain is not None and profiled is not None:
        times["overhead"] = overhead_of(plain, profiled, "of profiling")
    times["least"] = Quantity(least_seconds(compared), _MODELLED)
    if compared.expected.timing is not None:
        times["predicted"] = compared.expected.timing.quantity()
    flops = sum(compared.flops.values())
    if plain is not None and plain.median_us and flops:
        times["flop_rate"] = Quantity(flops / (plain.median_us / 1e6), _MEASURED)
    if recording.energy is not None:
        times["energy_joules"] = Quantity(recording.energy.joules_per_run, _MEASURED, note=f"a run; {recording.energy.sampling}")
    spent = _predicted_energy(compared)
    if spent is not None:
        times["energy_predicted_joules"] = _modelled_interval(*spent.joules)
        if recording.energy is None:
            times["energy_joules"] = Quantity(None, Provenance.UNKNOWN, note="no counter of energy could be read")
    return times


def overhead_of(plain: Times, profiled: Times, what: str) -> Quantity:
    """Return by what share runs took longer in which every operator was timed; unknown where the machine's other work hides it."""
    if not plain.median_us or profiled.median_us < plain.median_us:
        return Quantity(
            None, Provenance.UNKNOWN, note=f"{what}: the runs that were timed from outside took longer, so the machine was not quiet"
        )
    return Quantity(profiled.median_us / plain.median_us - 1, _MEASURED, note=what)


def _predicted_energy(compared: RunComparison) -> Spent | None:
    """Return what the recorded device is predicted to take; None where its figures are not known."""
    device = compared.expected.device
    if device is None:
        return None
    try:
        found: Spent = compared.side.model.manager.get(Energy(device=device.name))
    except IrscopeError:
        return None
    return found


def _modelled_interval(low: float, high: float | None) -> Quantity:
    value = math.sqrt(low * high) if high is not None else low or None
    return Quantity(value, _MODELLED, note="from stated constants", lo=low, hi=high)


def energy_tables(compared: RunComparison) -> Iterator[Table]:
    """Joules by class of operator, predicted and measured. The device has one counter: what was measured is shared out by time."""
    spent, energy = _predicted_energy(compared), compared.recording.energy
    if spent is None or energy is None:
        return
    seconds: dict[str, float] = {}
    for steps in compared.groups:
        found = compared.measured(steps).seconds
        spec = find_op(compared.steps[steps[0]].op)
        name = "unknown" if spec is None else spec.family.value
        seconds[name] = seconds.get(name, 0.0) + (found or 0.0)
    whole = sum(seconds.values())
    rows: list[tuple[object, ...]] = []
    for one in spent.shares:
        share = seconds.get(one.family, 0.0) / whole if whole else None
        joules = None if share is None else share * energy.joules_per_run
        rows.append((one.family, one.nodes, _modelled_interval(*one.joules), share, joules))
    rows.append(("sum", spent.nodes, _modelled_interval(*spent.joules), 1.0 if whole else None, energy.joules_per_run if whole else None))
    columns = (
        Column("class"),
        Column("nodes", Kind.COUNT),
        Column("predicted", Kind.NUMBER, "predicted J", provenance=_MODELLED),
        Column("share", Kind.RATIO, "share of time", provenance=_MEASURED),
        Column("measured", Kind.NUMBER, "measured J", provenance=_MODELLED, help="the device's counter, shared out by time"),
    )
    yield Table.of(rows, columns, "joules by class of operator")


# -- tables ----------------------------------------------------------------------------------------------------


def unmatched_table(compared: RunComparison) -> Table:
    """Return what has no counterpart, with the reason."""
    rows = [(unmatched.side, unmatched.name, unmatched.operator, unmatched.module, unmatched.reason) for unmatched in compared.unmatched]
    return Table.of(rows, columns=["side:text", "name:node", "operator:text", "module:text", "reason:text"], title="not matched")


_NUMBERS = (
    Column("predicted_alive", Kind.BYTES, "alive predicted"),
    Column("measured_alive", Kind.BYTES, "measured", provenance=_MEASURED),
    Column("predicted_made", Kind.BYTES, "made predicted", detail=True),
    Column("measured_made", Kind.BYTES, "measured", provenance=_MEASURED, detail=True),
    Column("measured_time", Kind.SECONDS, "time", provenance=_MEASURED),
    Column("predicted_time", Kind.SECONDS, "predicted", provenance=_MODELLED),
    Column("over", Kind.RATIO, provenance=_MODELLED, detail=True, help="by how much the measured time is longer than the predicted one"),
    Column("least_time", Kind.SECONDS, "least", provenance=_MODELLED),
    Column("efficiency", Kind.RATIO, provenance=_MODELLED, detail=True),
    Column("flops", Kind.FLOPS, detail=True),
    Column("flop_rate", Kind.FLOPS_PER_SECOND, "FLOPs/s", provenance=_MEASURED),
    Column("workspace", Kind.BYTES, help="the largest temporary memory of the kernels", provenance=_MEASURED, detail=True),
)


def number_cells(compared: RunComparison, steps: Sequence[int], measured: Measured | None = None) -> tuple[object, ...]:
    """Return the cells of `_NUMBERS` for some nodes."""
    nodes = [compared.steps[step] for step in steps]
    found = compared.measured(list(steps)) if measured is None else measured
    expected = compared.expected
    alive = [size for node in nodes if (size := expected.alive.get(node)) is not None]
    made = [expected.made.get(node, 0) for node in nodes]
    least = _sum_of_known(expected.seconds, nodes)
    predicted = _sum_if_all(expected.timing.by_node, nodes) if expected.timing is not None else None
    flops = _sum_if_all(compared.flops, nodes)
    seconds = found.seconds
    return (
        max(alive, default=None),
        found.alive,
        sum(made),
        found.made,
        seconds,
        predicted,
        seconds / predicted - 1 if predicted and seconds is not None else None,
        least,
        least / seconds if least is not None and seconds else None,
        flops,
        flops / seconds if flops is not None and seconds else None,
        found.workspace,
    )


def _sum_of_known(values: Mapping[Node, float], keys: Sequence[Node]) -> float | None:
    known = [values[key] for key in keys if key in values]
    return sum(known) if known else None


def _sum_if_all(values: Mapping[Node, float], keys: Sequence[Node]) -> float | None:
    return sum(values[key] for key in keys) if all(key in values for key in keys) else None


def nodes_table(compared: RunComparison) -> Table:
    """Predicted and measured by node; nodes that one operator carries out together are one row."""
    rows: list[tuple[object, ...]] = []
    for steps in compared.groups:
        first = compared.steps[steps[0]]
        how = compared.how(steps)
        ops = dict.fromkeys(compared.recording.ops[op].op for step in steps for op in compared.matching.ops_of.get(step, ()))
        rows.append(
            (
                ", ".join(compared.steps[step].name for step in steps),
                ", ".join(dict.fromkeys(compared.steps[step].op for step in steps)),
                ", ".join(ops),
                first.scope.module,
                *number_cells(compared, steps),
                "" if how is None else _HOW[how],
            )
        )
    columns = [
        Column("node", Kind.NODE),
        Column("operator"),
        Column("recorded", detail=True),
        Column("module"),
        *_NUMBERS,
        Column("matched_by", detail=True),
    ]
    return Table.of(rows, columns, "nodes", [compared.steps[steps[0]].name for steps in compared.groups])


_HOW = {How.NAME: "name", How.ORDER: "order", How.DATA: "data", How.WEIGHTS: "weights"}


def modules_table(compared: RunComparison) -> Table:
    """Return the same by module, the longest time first; an operator that works for several modules counts for the first."""
    steps_of: dict[str, list[int]] = {}
    ops_of: dict[str, dict[int, None]] = {}
    taken: set[int] = set()
    for step, node in enumerate(compared.steps):
        ops = [op for op in compared.matching.ops_of.get(step, ()) if op not in taken]
        taken.update(ops)
        parts = node.scope.module.split(".") if node.scope.module else []
        for path in ("", *(".".join(parts[: length + 1]) for length in range(len(parts)))):
            steps_of.setdefault(path, []).append(step)
            ops_of.setdefault(path, {}).update(dict.fromkeys(ops))
    rows: list[tuple[object, ...]] = []
    for path, steps in steps_of.items():
        measured = compared.of_ops([compared.recording.ops[op] for op in ops_of[path]])
        rows.append((path or "(model)", len(steps), measured.ops, *number_cells(compared, steps, measured)))
    rows.sort(key=lambda row: -(row[7] if isinstance(row[7], float) else -1.0))
    columns = [Column("module"), Column("nodes", Kind.COUNT), Column("operators", Kind.COUNT), *_NUMBERS]
    return Table.of(rows, columns=columns, title="modules")


def run_series(compared: RunComparison) -> tuple[Series, ...]:
    """Return the bytes alive, predicted and measured, over one axis."""
    lines = compared.lines
    if lines is None or not lines[0]:
        return ()
    rows: dict[str, list[object]] = {"place": list(range(len(lines[0]))), "predicted": list(lines[0]), "measured": list(lines[1])}
    marks = tuple(
        Mark(line.index(max(line)), f"{name} peak") for name, line in zip(("predicted", "measured"), lines, strict=True) if max(line)
    )
    columns = (Column("predicted", Kind.BYTES), Column("measured", Kind.BYTES, provenance=_MEASURED))
    title = f"bytes alive beyond the baseline, {compared.run} run"
    return (Series(title, Column("place", Kind.COUNT), columns, rows, marks=marks, stacked=False),)


def run_panels(compared: RunComparison) -> list[Panel]:
    """Return a prediction and a recording: what the nodes took beside their predicted and their least time."""
    table = nodes_table(compared)
    pairs = zip(table.cells("module"), table.cells("node"), strict=True)
    names = [f"{module}: {node}" if module else str(node) for module, node in pairs]
    columns = [column for column in table.columns if column.key in ("measured_time", "predicted_time", "least_time")]
    cells = [[_figure_number(bare(cell)) for cell in table.cells(column.key)] for column in columns]
    times = largest_bars("time by node", names, list(zip(columns, cells, strict=True)))
    return [times] if times is not None else []


def _figure_number(value: object) -> Number | None:
    return value if isinstance(value, int | float) else None


RUN_MEASURES = ("peak", "delta", "reserved", "baseline", "unmatched")
"""Names that `--fail-on` takes for a model and a recording."""


def run_measures(compared: RunComparison) -> dict[str, Measure]:
    """Return how far figures of the last run are off, and how many nodes nothing carries out."""
    run = WARM if compared.recording.counter(WARM) is not None or compared.recording.run(WARM) else COLD
    return measures_of(compared.figures(run), compared.ran - compared.matched[0], compared.ran, "nodes")


def measures_of(figures: Sequence[Figure], lonely: int, total: int, what: str) -> dict[str, Measure]:
    """Return how far figures are off, and how many of a model's `what` are not matched."""
    made: dict[str, Measure] = {"reserved": Measure(None, None, "unknown")}
    for figure in figures:
        if figure.name in RUN_MEASURES:
            text = f"predicted {humanise(figure.predicted, Kind.BYTES)}, measured {humanise(figure.measured, Kind.BYTES)}"
            amount = None if figure.difference is None else float(abs(figure.difference))
            share = None if figure.error is None else abs(figure.error)
            made[figure.name] = Measure(amount, share, text if share is None else f"{text}, off by {share:.2%}")
    made["unmatched"] = Measure(lonely, lonely / total if total else 0.0, f"{lonely:,} of {total:,} {what} are not matched")
    return made
