"""What `irscope record` says about a recording when it is done, and what it draws."""

from __future__ import annotations

from collections.abc import Iterator

from irscope.ir.graph import Names
from irscope.recording.records import OpRecord, Problem, Recording, Times, figures, peak_of, without_workspaces
from irscope.report.picture import Panel, largest_bars, panels_of
from irscope.report.table import Column, Series
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance

_WIDTH = 11


def summary_lines(recording: Recording) -> Iterator[str]:
    """A few lines: what ran, how long it took, what memory it needed, and what is odd."""
    header = recording.header
    inputs = ", ".join(f"{one.name}={one.type}" for one in header.model.inputs)
    yield _line("model", f"{header.model.name}{f'  ({inputs})' if inputs else ''}")
    for one in header.model.assumed:
        yield _line("assumed", one)
    yield _line("run by", f"{_versions(recording)} on {header.device.name}")
    yield _line("operators", f"{len(recording.ops)}{_mapping(recording)}")
    yield from _times(recording)
    yield from _memory(recording)
    if recording.energy is not None:
        yield _line("energy", f"{recording.energy.joules_per_run:.4g} J a run ({recording.energy.sampling})")
    for problem in recording.problems:
        yield _line("problem", problem_text(problem))
    for note in recording.notes:
        yield _line("note", note)
    yield _line("written to", recording.path)


def recording_panels(recording: Recording) -> list[Panel]:
    """Times by operator, and bytes alive after each."""
    ids = Names()
    names = [ids.unique(_operator_name(op)) for op in recording.ops]
    seconds = [None if op.time is None else op.time.median_us / 1e6 for op in recording.ops]
    measured = Provenance.MEASURED
    words = f"time by operator, median of {recording.header.repeats} runs"
    times = largest_bars(words, names, [(Column("time", Kind.SECONDS, provenance=measured), seconds)])
    alive = Series(
        "bytes alive beyond the model",
        Column("operator", Kind.INDEX),
        (Column("alive", Kind.BYTES, provenance=measured),),
        {"operator": range(len(names)), "alive": [op.alive for op in recording.ops]},
        stacked=False,
    )
    return [*([times] if times is not None else []), *panels_of(alive)]


def _operator_name(op: OpRecord) -> str:
    """Where and what; ONNX Runtime knows no modules, but which nodes of the file an operator carries out."""
    kind = op.op.rpartition("::")[2]
    where = op.scope.replace("/", ".") or (op.sources[0] if op.sources else "")
    return f"{where}: {kind}" if where and where != kind else kind


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


def _versions(recording: Recording) -> str:
    versions = recording.header.versions
    names = ("torch", "onnxruntime")
    return ", ".join(f"{name} {versions[name]}" for name in names if name in versions) or recording.header.executor


def _mapping(recording: Recording) -> str:
    found = recording.mapping
    if found is None:
        return ""
    share = (found.mapped + len(found.folded)) / found.nodes if found.nodes else 1.0
    folded = f", {len(found.folded)} more were computed or removed before the run" if found.folded else ""
    return f" for {found.mapped} of the file's {found.nodes} nodes{folded} ({100 * share:.1f} %)"


def _times(recording: Recording) -> Iterator[str]:
    plain, profiled = recording.times("plain"), recording.times("profiled")
    if plain is not None:
        yield _line("latency", _time_text(plain))
    if profiled is not None:
        beside = f", {profiled.median_us / plain.median_us:.2f} times the plain run" if plain is not None and plain.median_us else ""
        yield _line("profiled", _time_text(profiled) + beside)


def _time_text(times: Times) -> str:
    least, median, high = (humanise(value / 1e6, Kind.SECONDS) for value in (times.min_us, times.median_us, times.p95_us))
    return f"median {median}, least {least}, 95 % {high} ({times.n} runs)"


def _memory(recording: Recording) -> Iterator[str]:
    for run in ("cold", "warm"):
        found = figures(recording, run)
        if found.peak is None:
            continue
        parts = [f"peak {humanise(found.peak, Kind.BYTES)}"]
        if found.baseline is not None:
            parts.append(f"= {humanise(found.baseline, Kind.BYTES)} before + {humanise(found.delta, Kind.BYTES)}")
        events = recording.run(run)
        blocks = without_workspaces(events)
        if len(blocks) != len(events):
            parts.append(f"(without workspaces {humanise(peak_of(blocks).bytes, Kind.BYTES)})")
        if found.reserved is not None:
            parts.append(f", reserved {humanise(found.reserved, Kind.BYTES)}")
        yield _line(f"{run} memory", " ".join(parts).replace(" ,", ","))


def _line(name: str, text: str) -> str:
    return f"{name:{_WIDTH}}  {text}"
