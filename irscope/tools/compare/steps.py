"""Lays a captured training step beside a recording of a real one: bytes, operators, and times as ratios."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from irscope import processes
from irscope.devices.catalogue import all_devices, calibration_file, catalogued
from irscope.errors import LoadError, PassError
from irscope.files import TemporaryFolder
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo.names import is_script
from irscope.ir.spelling import parse_type
from irscope.jsoncodec import decode, loads
from irscope.memory.run import Lives
from irscope.passes.training.activations import StepTimes
from irscope.passes.training.memory import StepMemory, TrainingMemory, trace_in
from irscope.passkit.settings import Settings
from irscope.recording import COLD, WARM, OpRecord, Recording, figures, peak_of, without_workspaces
from irscope.report.picture import Panel, largest_bars
from irscope.report.report import Coverage, Document, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity
from irscope.session import Model
from irscope.tools.capture import open_training
from irscope.tools.compare.document import Measure, comparison_document
from irscope.tools.compare.matching import align
from irscope.tools.compare.memory import MemoryComparison, compare_runs, read_run
from irscope.tools.compare.run_report import (
    ERRORS,
    figure_cells,
    figure_units,
    measures_of,
    overhead_of,
    recording_json,
    recording_parts,
    said_of,
)
from irscope.tools.compare.runs import Figure, figures_of, settings_of
from irscope.tools.recorded import PHASES, beside_least, peak_parts, trust_lines, trust_of
from irscope.training import StepOp, StepOptions, StepSetup

_MEASURED, _MODELLED = Provenance.MEASURED, Provenance.MODELLED
_FEW: Final = 0.5
"""A recording of whose operators less than this share is found is not of this step."""
_AT_PEAK: Final = "at the peak of a later step"
_RUNS: Final = ((COLD, 0), (WARM, -1))


def is_step(recording: Recording) -> bool:
    """Return whether a recording is one of a real training step of a model, which can be captured."""
    return recording.is_step and recording.header.model.format != "program"


def open_step_for(name: str, recording: Recording, options: LoadOptions, settings: Settings) -> Model:
    """Return the training step of a model as it was recorded: its inputs, sizes, optimizer, loss, and a device of its kind."""
    header = recording.header
    inputs, bind = dict(options.inputs), dict(options.bind)
    if not inputs and not bind:
        bind = dict(header.model.bind)
        if not is_script(name) and header.model.inputs:
            inputs = {one.name: parse_type(one.type) for one in header.model.inputs}
            # Types that were recorded have numbers where the sizes were bound: nothing is left to bind there.
            open_ = {str(size) for type_ in inputs.values() for size in type_.shape or ()}
            bind = {symbol: size for symbol, size in bind.items() if symbol in open_}
    return open_training(name, replace(options, inputs=inputs, bind=bind), step_setup(recording), device_settings(recording, settings))


def step_setup(recording: Recording) -> StepSetup:
    """Return how the recorded step was made."""
    text = recording.header.settings.get("step_options", "")
    return (decode(StepOptions, loads(text)) if isinstance(text, str) and text else StepOptions()).setup()


def device_settings(recording: Recording, given: Settings) -> Settings:
    """Return the device that was recorded. Bytes of tensors are the same on all processors: one stands for those that irscope does not
    know.
    """
    if recording.header.device.kind != "cpu" or given.device:
        return settings_of(recording, given)
    return replace(given, device=known_processor(recording) or next(one.name for one in all_devices() if one.kind == "cpu"))


def known_processor(recording: Recording) -> str:
    """Return the name of the processor that was recorded, where its figures are known: as it was measured here, or in the catalogue."""
    if calibration_file("this").is_file():
        return "this"
    found = catalogued(recording.header.device.name)
    return found.name if found is not None and found.kind == "cpu" else ""


# Operators of a captured step and of a recorded one.


def matched(ops: Sequence[StepOp], recorded: Sequence[OpRecord]) -> dict[int, int]:
    """Return the positions of recorded operators by those of captured ones: the same calls in the same order."""
    keys: dict[str, int] = {}
    first = [keys.setdefault(op.source.split(".")[0], len(keys)) for op in ops]
    second = [keys.setdefault(op.op, len(keys)) for op in recorded]
    return dict(align(first, second))


def measured_seconds(ops: Sequence[StepOp], recording: Recording) -> dict[int, float]:
    """Return the seconds that operators of a captured step took, by their number. Raises PassError for a recording of another step."""
    found = matched(ops, recording.ops)
    if not recording.is_step or len(found) < _FEW * len(ops):
        part = f"only {len(found)} of the step's {len(ops)} operators are in it" if recording.is_step else "it has no training step"
        hint = "`irscope record --train MODEL` with the same options makes one"
        raise PassError(f"this recording is of a different step: {part}", code="IRS661", where=recording.path, hint=hint)
    times = {at: recording.ops[other].time for at, other in found.items()}
    return {ops[at].number: time.median_us / 1e6 for at, time in times.items() if time is not None}


@dataclass
class StepComparison:
    """A captured step and a recorded one."""

    model: Model
    recording: Recording
    memory: StepMemory
    times: StepTimes | None
    """Predicted times; None where the recorded device is not known."""
    found: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def ops(self) -> Sequence[StepOp]:
        """Return the operators of the steady step."""
        trace = trace_in(self.model.program)
        return trace.in_step(trace.steady)

    @property
    def is_cpu(self) -> bool:
        return self.recording.header.device.kind == "cpu"

    # -- bytes -------------------------------------------------------------------------------------------------

    def figures(self, run: str) -> list[Figure]:
        """Baseline, peak, delta and reserved of the first step, or of a later one."""
        step = dict(_RUNS)[run]
        counter = "requested" if self.is_cpu else "allocated"
        memory = self.memory
        before = Quantity(memory.before.requested if self.is_cpu else memory.before.allocated)
        if run == WARM and len(memory.steps) > 1:
            before = memory.counter(counter, -2, "after")  # type: ignore[arg-type]  # one of the counters
        peak = memory.counter(counter, step)  # type: ignore[arg-type]
        measured = figures(self.recording, run, counter)
        baseline, top = measured.baseline, measured.peak
        if run == WARM and self.recording.held:
            baseline = sum(one.bytes for one in self.recording.held) if self.is_cpu else baseline
        events = self.recording.run(run)
        if self.is_cpu and events and baseline is not None:
            top = baseline + peak_of(without_workspaces(events)).bytes
        if not self.is_cpu and run == WARM and baseline is not None and self.recording.run(WARM):
            known = self.recording.counter(WARM)
            end = sum(event.bytes for event in events)
            baseline = known.allocated.current - end if known is not None and known.allocated is not None else baseline
        delta = top - baseline if top is not None and baseline is not None else None
        made = figures_of(before, peak, baseline, top, delta)
        if not self.is_cpu:
            made.append(Figure("reserved", memory.counter("reserved", step), measured.reserved))
        return made

    def runs(self) -> list[str]:
        """Return those that were recorded."""
        return [run for run in (COLD, WARM) if self.recording.run(run) or self.recording.counter(run) is not None]

    # -- times -------------------------------------------------------------------------------------------------

    def least(self, ops: Sequence[StepOp]) -> float | None:
        """Return what the device needs at least."""
        return None if self.times is None else sum(map(self.times.of, ops))

    def measured(self, ops: Sequence[StepOp]) -> float | None:
        """Return what matched operators took."""
        found = [self.record_of(op) for op in ops]
        known = [one.time.median_us for one in found if one is not None and one.time is not None]
        return sum(known) / 1e6 if known else None

    def record_of(self, op: StepOp) -> OpRecord | None:
        """Return the recorded operator of a captured one."""
        other = self.found.get(op.number - self.ops[0].number)
        return None if other is None else self.recording.ops[other]

    # -- what is printed ---------------------------------------------------------------------------------------

    def measures(self) -> dict[str, Measure]:
        """Return how far the later step's figures are off, for --fail-on."""
        return measures_of(self.figures(self.runs()[-1]), len(self.ops) - len(self.found), len(self.ops), "operators")

    def document(self) -> Document:
        """Return what is the same and what is not."""
        report = self.model.marked(self.report())
        return comparison_document("recording", self.model.info(), recording_json(self.recording), report, recording_parts(self.recording))

    def report(self) -> Report:
        """Return the same as a report."""
        recording = self.recording
        plain, profiled = recording.times("plain"), recording.times("profiled")
        summary: dict[str, object] = {run: {one.name: figure_cells(one) for one in self.figures(run)} for run in self.runs()}
        trust = trust_of(recording)
        least = self.least(self.ops)
        time: dict[str, object] = {}
        if plain is not None:
            time["step"] = trust.seconds(plain, f"median of {plain.n}")
        if profiled is not None:
            time["recorded"] = trust.seconds(profiled, f"median of {profiled.n}, each operator timed")
        if plain is not None and profiled is not None:
            time["overhead"] = overhead_of(plain, profiled, "of recording")
        time["operators"] = Quantity(self.measured(self.ops), _MEASURED, note="those that are matched")
        time["least"] = Quantity(least, _MODELLED)
        summary["time"] = time
        summary["matched"] = {"operators": len(self.found), "of_operators": len(self.ops), "recorded": len(recording.ops)}
        return Report(
            "compare",
            headline=tuple(self._headline()),
            summary=summary,
            units={
                **figure_units(self.runs()),
                "time": Kind.SECONDS,
                "time.overhead": Kind.RATIO,
            },
            tables=tuple(self._tables()),
            pictures=self._pictures,
            coverage=Coverage(len(self.found), len(self.ops)),
            notes=tuple(self._notes()),
        )

    def _headline(self) -> Iterator[str]:
        yield from said_of(self.figures(self.runs()[-1]), self.runs()[-1])
        yield f"{len(self.found):,} of {len(self.ops):,} operators matched; {len(self.recording.ops):,} were recorded"
        plain, least = self.recording.times("plain"), self.least(self.ops)
        if plain is not None:
            beside = beside_least(plain.median_us / 1e6, least, self.memory.target.device.title)
            yield f"a step took {humanise(plain.median_us / 1e6, Kind.SECONDS)}{beside}"
        yield from trust_lines(self.recording)

    def _notes(self) -> Iterator[str]:
        yield ERRORS.format("step")
        if self.is_cpu:
            yield "bytes are those of tensors: what kernels of a processor take for themselves is left out on both sides"
        if self.times is None:
            yield (
                f"no least times: the figures of {self.recording.header.device.name} are not known; --device names a profile, "
                "irscope calibrate makes one"
            )
        held = [one for one in self.figures(self.runs()[-1]) if one.name == "baseline" and one.difference]
        if held and held[0].difference is not None and held[0].difference < 0:
            more = humanise(-held[0].difference, Kind.BYTES)
            yield f"before the step {more} more were there: tensors that neither the model nor its inputs hold, such as labels of a loss"
        yield from self.recording.notes

    def _tables(self) -> Iterator[Table]:
        measured = peak_parts(self.recording, workspaces=not self.is_cpu)
        if measured:
            predicted = self._predicted_parts()
            rows = []
            for name in dict.fromkeys([*predicted, *measured]):
                one, other = predicted.get(name, 0), measured.get(name, 0)
                rows.append((name, one, other, one - other))
            predicted_sum, measured_sum = sum(predicted.values()), sum(measured.values())
            rows.append(("sum", predicted_sum, measured_sum, predicted_sum - measured_sum))
            columns = ("category", "predicted:bytes", Column("measured", Kind.BYTES, provenance=_MEASURED), "difference:bytes")
            yield Table.of(rows, columns, _AT_PEAK)
        yield self._by("phase", {phase: [op for op in self.ops if op.phase == phase] for phase in PHASES})
        modules: dict[str, list[StepOp]] = {}
        for op in self.ops:
            modules.setdefault(op.scope.module or "(model)", []).append(op)
        yield self._by("module", modules)
        yield self._nodes()
        yield self._unmatched()

    def _pictures(self) -> list[Panel]:
        """Return bars of what `--plot` draws: memory by category at the peak, and the times of modules, each beside its prediction."""
        pictures: list[Panel] = []
        for table in self._tables():
            if table.title == _AT_PEAK or table.title == "time by module":
                name, *rest = table.columns
                names = [str(cell) for cell in table.cells(name.key)[:-1]]
                drawn = [
                    (one, table.cells(one.key)[:-1]) for one in rest if one.kind in (Kind.BYTES, Kind.SECONDS) and one.key != "difference"
                ]
                picture = largest_bars(table.title, names, drawn)
                pictures += [picture] if picture is not None else []
        return pictures

    def _predicted_parts(self) -> dict[str, int]:
        """Return the bytes that are asked for, by category, at the highest moment of the steady step; kernels' own are left out on a
        processor.
        """
        tape, lives = self.memory.tape, Lives.of(self.memory.tape)
        span = trace_in(self.model.program).steady
        begin, end = tape.starts[span.first], tape.starts[span.end]
        moment = begin + 1 + int(lives.total[begin + 1 : end + 1].argmax()) if end > begin else 0
        return {kind: size for kind, heights in lives.heights(tape.kinds) if (size := int(heights[moment]))}

    def _by(self, name: str, groups: Mapping[str, Sequence[StepOp]]) -> Table:
        rows = []
        for key, ops in groups.items():
            if ops:
                least, seconds = self.least(ops), self.measured(ops)
                rows.append((key, len(ops), *self._times_of(least, seconds)))
        rows.sort(key=lambda row: -(row[3] or 0) if isinstance(row[3], float | int) else 0)
        rows.append(("sum", len(self.ops), *self._times_of(self.least(self.ops), self.measured(self.ops))))
        return Table.of(rows, (Column(name), Column("count", Kind.COUNT), *_TIMES), f"time by {name}")

    @staticmethod
    def _times_of(least: float | None, seconds: float | None) -> tuple[float | None, float | None, float | None]:
        return least, seconds, seconds / least if least and seconds is not None else None

    def _nodes(self) -> Table:
        rows = []
        for op in self.ops:
            record = self.record_of(op)
            made = sum(piece.size for _, piece in op.makes if piece.on_device)
            seconds = record.time.median_us / 1e6 if record is not None and record.time is not None else None
            least = None if self.times is None else self.times.of(op)
            rows.append(
                (
                    op.name,
                    op.phase,
                    op.scope.module,
                    record.code if record is not None else "",
                    made,
                    None if record is None else record.made,
                    *self._times_of(least, seconds),
                )
            )
        columns = (
            Column("node", Kind.NODE),
            Column("phase"),
            Column("module", detail=True),
            Column("line", detail=True),
            Column("predicted_made", Kind.BYTES, "made predicted"),
            Column("measured_made", Kind.BYTES, "measured", provenance=_MEASURED),
            *_TIMES,
        )
        return Table.of(rows, columns, "operators")

    def _unmatched(self) -> Table:
        taken = set(self.found.values())
        rows: list[tuple[str, str, str]] = [("predicted", op.name, op.phase) for at, op in enumerate(self.ops) if at not in self.found]
        rows += [("recorded", f"{one.scope or '(model)'}: {one.op}", one.phase) for one in self.recording.ops if one.index not in taken]
        return Table.of(rows, ["side", "operator", "phase"], "not matched")


_TIMES: Final = (
    Column("least", Kind.SECONDS, provenance=_MODELLED),
    Column("measured_time", Kind.SECONDS, "measured", provenance=_MEASURED),
    Column("times_the_least", Kind.NUMBER, "times the least", provenance=_MODELLED),
)


def compare_step(model: Model, recording: Recording, *, is_chosen: bool = False) -> StepComparison:
    """Lay a recorded step beside a captured one; `is_chosen` where the user named the device. Raises LoadError for another model's."""
    if not recording.ops:
        raise LoadError("no step was recorded", code="IRS661", where=recording.path, hint="`irscope run` says why")
    memory: StepMemory = model.manager.get(TrainingMemory())
    device = memory.target.device
    is_known = is_chosen or recording.header.device.kind != "cpu" or device.kind != "cpu" or bool(known_processor(recording))
    made = StepComparison(model, recording, memory, StepTimes(device) if is_known else None)
    made.found = matched(made.ops, recording.ops)
    if len(made.found) < _FEW * max(len(made.ops), len(recording.ops)):
        name = recording.header.model.name or "another model"
        message = f"this recording is of a different step ({name}): only {len(made.found)} of {len(made.ops)} operators are in it"
        raise LoadError(message, code="IRS661", where=recording.path, hint="give the model that was recorded, and its options")
    return made


def simulated_beside(script: Path, recording: Recording, device: str = "") -> MemoryComparison:
    """Return a script as `irscope simulate` runs it, in a process of its own, beside a recording of it."""
    arguments = shlex.split(str(recording.header.settings.get("arguments", "")))
    steps = max(3, recording.header.warmup + 1)
    with TemporaryFolder() as folder:
        target = Path(folder) / f"{script.stem}.simulated.jsonl"
        chosen = ["--device", device] if device else []
        line = ["simulate", *chosen, "--steps", str(steps), "--no-limit", "-o", str(target), str(script), *arguments]
        ended = processes.run(processes.irscope(line))
        if not target.is_file():
            said = ended.complaints or [f"its process {ended.how}"]
            raise PassError(f"it cannot be simulated: {said[-1]}", code="IRS660", where=str(script))
        simulated = read_run(target)
        simulated.path = str(script)
    return compare_runs(simulated, read_run(Path(recording.path)))
