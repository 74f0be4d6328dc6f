"""What a recording says in a report and in pictures, and named models for the process that records them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from irscope.frontends.base import LoadOptions
from irscope.ir.graph import Names
from irscope.ir.spelling import parse_type
from irscope.recording.records import OpRecord, Problem, Recording, Times, figures, peak_of, without_workspaces
from irscope.report.picture import Panel, largest_bars
from irscope.report.report import Document, ModelInfo, Report, Subject
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity

FACTORY = "irscope.tools.record:make"
"""How the recording process finds what makes a named model."""
_MEASURED = Provenance.MEASURED
_LONGEST = 10


def make(name: str, inputs: Mapping[str, str], bind: Mapping[str, int]) -> tuple[Any, tuple[Any, ...], dict[str, Any], tuple[str, ...]]:
    """A named model with random weights, its arguments by position and by name, and what the inputs are called."""
    from irscope.frontends.zoo.load import make_named  # it imports torch

    types = {key: parse_type(text) for key, text in inputs.items()}
    made = make_named(name, LoadOptions(inputs=types, bind=dict(bind)), hollow=False)
    arguments, keywords = made.arguments(real=True)
    return made.module, arguments, keywords, tuple(one.name for one in made.chosen.inputs if not one.is_plain)


def recording_document(recording: Recording) -> Document:
    """What ran, how long it took, what memory it needed, and what is odd."""
    model = recording.header.model
    inputs = ", ".join(f"{one.name}={one.type}" for one in model.inputs)
    subject = Subject("model", (model.name, inputs), tuple(f"assumed: {one}" for one in model.assumed))
    nodes = recording.mapping.nodes if recording.mapping is not None else 0
    info = ModelInfo(model.name, model.format, model.sha256, nodes, bind=model.bind)
    return Document(model=info, reports=(_recording_report(recording),), subjects=(subject,))


def _recording_report(recording: Recording) -> Report:
    header = recording.header
    summary: dict[str, object] = {"run_by": f"{_versions_text(recording)} on {header.device.name}", "operators": _operators(recording)}
    plain, profiled = recording.times("plain"), recording.times("profiled")
    if plain is not None:
        summary["latency"] = _measured_seconds(plain)
    if profiled is not None:
        beside = f", {profiled.median_us / plain.median_us:.2f} times the plain run" if plain is not None and plain.median_us else ""
        summary["profiled"] = _measured_seconds(profiled, beside)
    memory = {run: found for run in ("cold", "warm") if (found := _memory(recording, run))}
    summary |= {"memory": memory} if memory else {}
    if recording.energy is not None:
        summary["energy_joules"] = Quantity(recording.energy.joules_per_run, _MEASURED, note=f"a run ({recording.energy.sampling})")
    summary["written_to"] = recording.path
    return Report(
        "record",
        headline=(*_answer(recording, plain), *(f"problem: {problem_text(problem)}" for problem in recording.problems)),
        summary=summary,
        units={"latency": Kind.SECONDS, "profiled": Kind.SECONDS, "memory": Kind.BYTES, "energy_joules": Kind.NUMBER},
        tables=_longest(recording),
        series=(_alive_series(recording),),
        notes=recording.notes,
        pictures=lambda: _longest_panels(recording),
    )


def _longest_panels(recording: Recording) -> list[Panel]:
    """Times by operator."""
    ids = Names()
    names = [ids.unique(_operator_name(op)) for op in recording.ops]
    seconds = [None if op.time is None else op.time.median_us / 1e6 for op in recording.ops]
    words = f"time by operator, median of {recording.header.repeats} runs"
    times = largest_bars(words, names, [(Column("time", Kind.SECONDS, provenance=_MEASURED), seconds)])
    return [times] if times is not None else []


def problem_text(problem: Problem) -> str:
    """What happened, where, and what was in use."""
    parts = [problem.text if problem.kind == "out_of_memory" else f"{problem.kind}: {problem.text}"]
    if problem.requested is not None:
        parts = [f"out of memory: {humanise(problem.requested, Kind.BYTES)} could not be had"]
    place = " of ".join(part for part in (problem.op_name, problem.scope) if part)
    parts += [f"at {place}"] if place else []
    if problem.alive_bytes:
        parts.append(f"while {humanise(problem.alive_bytes, Kind.BYTES)} were in use beyond the model")
    return " ".join(parts)


def failure_text(recording: Recording) -> str:
    """Why a run did not come to its end."""
    return problem_text(recording.problems[-1]) if recording.problems else "the recording was cut short"


def _answer(recording: Recording, plain: Times | None) -> tuple[str, ...]:
    peaks = [found.peak for run in ("cold", "warm") if (found := figures(recording, run)).peak is not None]
    said = [] if plain is None else [f"a run takes {humanise(plain.median_us / 1e6, Kind.SECONDS)}"]
    said += [f"{'and needs' if said else 'a run needs'} {humanise(max(peaks), Kind.BYTES)} at its peak"] if peaks else []
    return (" ".join(said),) if said else ()


def _operators(recording: Recording) -> Quantity:
    found = recording.mapping
    if found is None:
        return Quantity(len(recording.ops))
    share = (found.mapped + len(found.folded)) / found.nodes if found.nodes else 1.0
    folded = f", {len(found.folded)} more were computed or removed before the run" if found.folded else ""
    return Quantity(len(recording.ops), note=f"for {found.mapped} of the file's {found.nodes} nodes{folded} ({100 * share:.1f} %)")


def _measured_seconds(times: Times, beside: str = "") -> Quantity:
    low, median, high = (value / 1e6 for value in (times.min_us, times.median_us, times.p95_us))
    return Quantity(median, _MEASURED, note=f"median, least and 95 % of {times.n} runs{beside}", lo=low, hi=high)


def _memory(recording: Recording, run: str) -> dict[str, object]:
    """Bytes of a run; nothing where the executor does not tell."""
    found = figures(recording, run)
    if found.peak is None:
        return {}
    events = recording.run(run)
    without = peak_of(without_workspaces(events)).bytes if events else None
    parts = {
        "peak": found.peak,
        "before": found.baseline,
        "run": found.delta,
        "run_without_workspaces": without,
        "reserved": found.reserved,
    }
    return {name: Quantity(size, _MEASURED if size is not None else Provenance.UNKNOWN) for name, size in parts.items()}


def _longest(recording: Recording) -> tuple[Table, ...]:
    """The operators that took longest."""
    timed = [(op.time.median_us, op) for op in recording.ops if op.time is not None]
    timed.sort(key=lambda pair: -pair[0])
    rows = [(op.op, op.scope.replace("/", "."), median / 1e6, op.made, op.workspace, op.alive) for median, op in timed[:_LONGEST]]
    numbers = (("time", Kind.SECONDS), ("made", Kind.BYTES), ("workspace", Kind.BYTES), ("alive", Kind.BYTES))
    columns = (Column("operator"), Column("module"), *(Column(key, kind, provenance=_MEASURED) for key, kind in numbers))
    return (Table.of(rows, columns, "operators that took longest"),) if rows else ()


def _alive_series(recording: Recording) -> Series:
    return Series(
        "bytes alive beyond the model",
        Column("operator", Kind.INDEX),
        (Column("alive", Kind.BYTES, provenance=_MEASURED),),
        {"operator": range(len(recording.ops)), "alive": [op.alive for op in recording.ops]},
        stacked=False,
    )


def _operator_name(op: OpRecord) -> str:
    """Where and what; ONNX Runtime knows no modules, but which nodes of the file an operator carries out."""
    kind = op.op.rpartition("::")[2]
    where = op.scope.replace("/", ".") or (op.sources[0] if op.sources else "")
    return f"{where}: {kind}" if where and where != kind else kind


def _versions_text(recording: Recording) -> str:
    versions = recording.header.versions
    names = ("torch", "onnxruntime")
    return ", ".join(f"{name} {versions[name]}" for name in names if name in versions) or recording.header.executor
