"""Two training programs side by side, eager and compiled ones too: captured steps, or documents of `irscope simulate`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from irscope.devices.catalogue import find_device
from irscope.errors import LoadError
from irscope.files import read_regular
from irscope.immutable import immutable
from irscope.ops.facts import OpRole
from irscope.passes.training.activations import StepTimes
from irscope.passes.training.memory import StepMemory, TrainingMemory
from irscope.report.card import UNKNOWN
from irscope.report.celltext import signed
from irscope.report.report import Document, ModelInfo, Report
from irscope.report.table import Table
from irscope.report.units import Kind
from irscope.report.values import Cell, Provenance, Quantity
from irscope.session import Model
from irscope.tools.compare.decides import bare_cell, share_of, side_by_side
from irscope.tools.compare.document import Measure
from irscope.training import StepOp

_BYTES: Final = ("first_step_allocated", "later_steps_allocated", "later_steps_requested", "later_steps_reserved", "kept_for_backward")
_ROWS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(_BYTES, Kind.BYTES),
    "saved_by_compiled_graphs": Kind.BYTES,
    "requests_of_a_step": Kind.COUNT,
    "operators": Kind.COUNT,
    "generated_kernels": Kind.COUNT,
    "calls_of_libraries": Kind.COUNT,
    "graph_breaks": Kind.COUNT,
    "least_time": Kind.SECONDS,
    "moved_bytes": Kind.BYTES,
}
TRAINING_MEASURES: Final[Mapping[str, str]] = {
    "peak": "later_steps_allocated",
    "reserved": "later_steps_reserved",
    "time": "least_time",
}
"""Names that `--fail-on` takes of two training programs."""
_SCHEMA: Final = '"schema": "irscope.simulation/'
_HEAD: Final = 200


@immutable(slots=False)
class TrainingSide:
    """One side of the comparison; of the last step unless stated otherwise."""

    title: str
    is_compiled: bool
    figures: Mapping[str, Quantity]
    """Under the names of rows; the others are not known."""
    phases: Mapping[str, Quantity] = field(default_factory=dict)
    """The most that is allocated in each phase."""
    parts: Mapping[str, Quantity] = field(default_factory=dict)
    """Bytes by category at the peak."""


# -- a captured step -------------------------------------------------------------------------------------------------------


def side_of_step(model: Model) -> TrainingSide:
    """Return a captured step."""
    memory: StepMemory = model.manager.get(TrainingMemory())
    trace, tape = memory.trace, memory.tape
    times = StepTimes(memory.target.device, trace)
    ops = [op for op in trace.in_step(trace.steady) if _runs(times, op)]
    span = next(span for span in tape.spans if span.name == trace.steady.name)
    moved = [_moved_bytes(times, op) for op in ops]
    generated = sum(op.call is not None and OpRole.GENERATED in op.call.spec.roles for op in ops)
    figures = {
        "first_step_allocated": memory.counter("allocated", 0),
        "later_steps_allocated": memory.counter("allocated"),
        "later_steps_requested": memory.counter("requested"),
        "later_steps_reserved": memory.counter("reserved"),
        "kept_for_backward": Quantity(_kept(memory)),
        "requests_of_a_step": Quantity(sum(1 for _ in tape.takes(tape.starts[span.first], tape.starts[span.end]))),
        "operators": Quantity(len(ops)),
        "generated_kernels": Quantity(generated),
        "calls_of_libraries": Quantity(len(ops) - generated),
        "least_time": Quantity(sum(map(times.of, ops)), Provenance.MODELLED),
        "moved_bytes": UNKNOWN if None in moved else Quantity(sum(one for one in moved if one is not None)),
    }
    run = trace.requests
    if run is not None and run.compiled is not None:
        from irscope.frontends.simulation.compilations import Compilations

        assert isinstance(run.compiled, Compilations)
        figures["graph_breaks"] = Quantity(sum(event.count for event in run.compiled.events if event.what == "graph break"))
    title = f"{model.program.path or trace.model} · {'compiled' if run is not None else 'eager'} · {trace.optimizer}"
    marked = {name: model.marked(Report("", summary={name: figure})).summary[name] for name, figure in figures.items()}
    return TrainingSide(
        title,
        run is not None,
        {name: one if isinstance(one, Quantity) else figures[name] for name, one in marked.items()},
        {phase: peak for phase, peak in memory.phase_peaks(-1).items()},
        memory.at_peak(-1),
    )


def _runs(times: StepTimes, op: StepOp) -> bool:
    """Return whether a kernel runs on the device: none does for a view, or where memory is only asked for."""
    return not op.is_view and any(piece.on_device for piece in (*op.reads, *op.writes)) and _moved_bytes(times, op) != 0


def _moved_bytes(times: StepTimes, op: StepOp) -> int | None:
    cost = times.cost(op)
    found = None if cost is None else (cost.read, cost.written)
    return sum(one for one in found if isinstance(one, int)) if found is not None and all(isinstance(one, int) for one in found) else None


def _kept(memory: StepMemory) -> int:
    """Activations that are there when the last backward begins."""
    tape = memory.tape
    begins = max((at for at, phase in tape.phases if phase == "backward"), default=0)
    (alive,) = tape.alive_at([begins])
    return sum(memory.sizes[slot] for slot in alive if tape.kinds[slot] == "activation")


# -- a document of `irscope simulate` --------------------------------------------------------------------------------------


def is_simulation(path: Path) -> bool:
    """Return whether a file is the JSON of `irscope simulate`."""
    if path.suffix != ".json" or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return _SCHEMA in file.read(_HEAD)


def side_of_document(path: Path) -> TrainingSide:
    """Return what `irscope simulate --format json` wrote; LoadError where that is not whole."""
    try:
        return _side_of_document(json.loads(read_regular(path, 1 << 30)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        said = f"it is not a whole document of irscope simulate ({type(error).__name__}: {error})"
        raise LoadError(said, code="IRS662", where=str(path), hint="`irscope simulate --format json SCRIPT` writes one") from None


def _side_of_document(document: Mapping[str, Any]) -> TrainingSide:
    steps: Sequence[Mapping[str, Any]] = document["steps"] or [document["rest"]]
    first, last = steps[0], steps[-1]
    figures = {
        "first_step_allocated": _number(first["allocated"]["peak"]),
        **{f"later_steps_{key}": _number(last[key]["peak"]) for key in ("allocated", "requested", "reserved")},
    }
    compiled: Mapping[str, Any] | None = document.get("compiled")
    graphs: Sequence[Mapping[str, Any]] = [] if compiled is None else compiled["graphs"]
    kernels: list[Mapping[str, Any]] = [node for graph in graphs for node in graph["kernels"]]
    if compiled is not None:
        figures["saved_by_compiled_graphs"] = _number(sum(node["bytes"] or 0 for graph in graphs for node in graph["saved"]))
        figures["generated_kernels"] = _number(sum(bool(kernel["generated"]) for kernel in kernels))
        figures["graph_breaks"] = _number(sum(one["count"] for one in compiled["events"] if one["what"] == "graph break"))
        figures["calls_of_libraries"] = _number(sum(not kernel["generated"] for kernel in kernels))
        figures["moved_bytes"] = UNKNOWN if None in [one["bytes"] for one in kernels] else _number(sum(one["bytes"] for one in kernels))
        figures["least_time"] = _least(kernels, str(document["device"]))
    phases = document["phases"][-1] if document["phases"] else {}
    said = "compiled" if compiled is not None else "eager"
    return TrainingSide(
        f"{document['script']} · {said} · simulated on {document['device']}",
        compiled is not None,
        figures,
        {str(phase): _number(one) for phase, one in phases.items()},
        {str(kind): _number(one) for kind, one in last["by_category"].items()},
    )


def _number(item: object) -> Quantity:
    if not isinstance(item, int):
        raise TypeError(f"{item!r} is not a number")
    return Quantity(item)


def _least(kernels: Sequence[Mapping[str, Any]], name: str) -> Quantity:
    """Return the least time of kernels once each, as the report of the simulation has it."""
    device = find_device(name)
    if device.bandwidth is None:
        return UNKNOWN
    seconds = 0.0
    for kernel in kernels:
        if kernel["bytes"] is None:
            return UNKNOWN
        rate = device.matrix.get(kernel["dtype"])
        seconds += max(kernel["bytes"] / device.bandwidth.hi, (kernel["flops"] or 0) / rate.hi if rate is not None else 0.0)
    return Quantity(seconds, Provenance.MODELLED)


# -- both ------------------------------------------------------------------------------------------------------------------


@immutable(slots=False)
class TrainingComparison:
    """Both, and their figures side by side."""

    a: TrainingSide
    b: TrainingSide

    @property
    def rows(self) -> dict[str, dict[str, Cell]]:
        """Return the figures that one of them has."""
        known = [name for name in _ROWS if name in self.a.figures or name in self.b.figures]
        return side_by_side(self.a.figures, self.b.figures, known)

    def measures(self) -> dict[str, Measure]:
        """Return by how much B is above A, for --fail-on."""
        measures: dict[str, Measure] = {}
        for name, key in TRAINING_MEASURES.items():
            a, b = (side.figures.get(key, UNKNOWN).value for side in (self.a, self.b))
            if isinstance(a, int | float) and isinstance(b, int | float):
                kind = _ROWS[key]
                measures[name] = Measure(b - a, share_of(a, b), f"A {signed(a, kind)}, B {signed(b, kind)}")
            else:
                measures[name] = Measure(None, None, "")
        return measures

    def document(self) -> Document:
        """Return the answer, and figures, phases and categories beside each other."""
        rows = self.rows
        shown = {name: {key: bare_cell(cell) for key, cell in cells.items()} for name, cells in rows.items()}
        units = {**{name: _ROWS[name] for name in rows}, **{f"{name}.change": Kind.RATIO for name in rows}}
        titles: dict[str, object] = {"A": self.a.title, "B": self.b.title}
        report = Report(
            "compare",
            headline=tuple(self._said()),
            summary={**titles, **shown},
            units=units,
            tables=tuple(self._tables()),
            notes=tuple(self._notes()),
        )
        return Document("", ModelInfo("", ""), (report,))

    def _notes(self) -> Iterator[str]:
        yield "the step is the last one, which stands for all later ones, unless it is said to be the first"
        if any("generated_kernels" in side.figures and "operators" not in side.figures for side in (self.a, self.b)):
            yield "kernels, their least time and their bytes are those of compiled graphs, each once; a document has no others"

    def _said(self) -> Iterator[str]:
        a, b = (side.figures["later_steps_allocated"] for side in (self.a, self.b))
        share = share_of(a.value, b.value)
        who = "compiled" if self.b.is_compiled and not self.a.is_compiled else "B"
        if share is None:
            yield "what a step needs is not known"
        else:
            more = f"{abs(share):.1%} {'less' if share < 0 else 'more'} memory" if round(abs(share), 3) else "as much memory"
            of_b, of_a = (signed(bare_cell(one), Kind.BYTES) for one in (b, a))
            yield f"{who} needs {more} in a step: {of_b} beside {of_a} allocated at the peak"
        first = self.b.figures["first_step_allocated"]
        if isinstance(first.value, int) and isinstance(b.value, int) and first.value > b.value:
            dearer = signed(bare_cell(first), Kind.BYTES)
            why = ": Inductor times candidates of its kernels there" if self.b.is_compiled else ""
            yield f"its first step takes {dearer}{why}"
        parts = [(abs(two - one), name, one, two) for name, one, two in self._numbers(self.a.parts, self.b.parts) if one != two]
        if parts:
            _, name, one, two = max(parts)
            yield f"most of the difference at the peak is {name}: {signed(two, Kind.BYTES)} beside {signed(one, Kind.BYTES)}"

    @staticmethod
    def _numbers(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> Iterator[tuple[str, int, int]]:
        for name in dict.fromkeys((*a, *b)):
            one, two = (side.get(name, Quantity(0)).value for side in (a, b))
            if isinstance(one, int) and isinstance(two, int) and (one or two):
                yield name, one, two

    def _tables(self) -> Iterator[Table]:
        columns = ["A:bytes", "B:bytes", "B beyond A:bytes"]
        for title, head, a, b in (
            ("allocated by phase", "phase", self.a.phases, self.b.phases),
            ("what the peak is made of", "category", self.a.parts, self.b.parts),
        ):
            rows: list[tuple[str, Quantity, Quantity, Quantity]] = []
            for name in dict.fromkeys((*a, *b)):
                one, two = (bare_cell(side.get(name, Quantity(0))) for side in (a, b))
                if any(isinstance(cell, Quantity) and cell.value for cell in (one, two)):
                    assert isinstance(one, Quantity) and isinstance(two, Quantity)
                    rows.append((name, one, two, two - one))
            if head == "category" and rows:
                a_sum, b_sum, more = (sum(column, Quantity(0)) for column in zip(*(row[1:] for row in rows), strict=True))
                rows.append(("allocated, the sum", a_sum, b_sum, more))
            if rows:
                yield Table.of(rows, [head, *columns], title)
