"""A model beside a recording of a real run: figures, nodes, modules, and whether the recording is one of this model at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from irscope.comparing.axis import common_axis
from irscope.comparing.expected import COLD, WARM, Expected, expected, flops_by_node, lifetime_of
from irscope.comparing.matching import How
from irscope.comparing.runmatch import RunMatching, Unmatched, folded, match_recording, spine, unmatched
from irscope.comparing.side import Side
from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import LoadError
from irscope.ir.graph import Node
from irscope.recording import MemoryEvent, OpRecord, Recording, figures, peak_of, without_workspaces
from irscope.report.values import Quantity
from irscope.session import Model, file_digest

_FEW = 0.5
"""A recording in which less than this share of the operators is found is not of this model."""
_SECOND_COPY = 0.9
"""More than this share of the parameters above what is expected, and a second copy of the model is there."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the four figures of a run."""

    name: str
    """baseline, peak, delta or reserved."""
    predicted: Quantity
    measured: int | None
    of: int | None
    """The measured delta, of which the error is a share."""

    @property
    def difference(self) -> int | None:
        """Predicted less measured."""
        value = self.predicted.value
        return value - self.measured if isinstance(value, int) and self.measured is not None else None

    @property
    def error(self) -> float | None:
        """The difference as a share of the measured delta; None where one of them is not known."""
        if self.difference is None or self.of is None:
            return None
        return self.difference / self.of if self.of else (0.0 if self.difference == 0 else None)


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of some operators together; None where the recording has none."""

    ops: int
    seconds: float | None
    made: int | None
    alive: int | None
    """The most bytes alive while one of them ran, without kernels' workspaces."""
    workspace: int | None


@dataclass
class RunComparison:
    """A model and a recording."""

    side: Side
    recording: Recording
    matching: RunMatching
    expected: Expected
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def steps(self) -> list[Node]:
        return self.side.timeline.steps

    @property
    def run(self) -> str:
        """The run that is compared with the prediction: the warm one, on ONNX Runtime the first, which allocates tensors one by one."""
        first, second = (COLD, WARM) if self.recording.header.executor.startswith("ort") else (WARM, COLD)
        return first if self.recording.run(first) or not self.recording.run(second) else second

    @cached_property
    def events(self) -> list[MemoryEvent]:
        """Events of that run without kernels' workspaces."""
        return without_workspaces(self.recording.run(self.run))

    @cached_property
    def unmatched(self) -> list[Unmatched]:
        return list(unmatched(self.side, self.recording, self.matching))

    @property
    def matched(self) -> tuple[int, int]:
        """Numbers of matched nodes and of matched recorded operators."""
        return len(self.matching.ops_of), len(self.matching.nodes_of)

    @cached_property
    def folded(self) -> frozenset[int]:
        """Steps of nodes that ONNX Runtime constant-folded or removed before the first run, so that they have no recording."""
        return folded(self.steps, self.recording) - self.matching.ops_of.keys()

    @property
    def ran(self) -> int:
        """Nodes for which a recorded operator is expected."""
        return len(self.steps) - len(self.folded)

    # -- figures -----------------------------------------------------------------------------------------------

    def figures(self, run: str) -> list[Figure]:
        """Baseline, peak, delta and reserved of a run."""
        measured = figures(self.recording, run, self.expected.counter)
        delta = measured.delta
        peak = measured.peak
        if self.recording.header.executor == "torch-cpu" and self.recording.run(run):
            # The counters of a processor are the sum of the events, workspaces included; what is predicted is without these.
            delta = peak_of(without_workspaces(self.recording.run(run))).bytes
            peak = None if measured.baseline is None else measured.baseline + delta
        predicted = self.expected.runs[run]
        baseline = self.expected.baseline
        return [
            Figure("baseline", baseline, measured.baseline, delta),
            Figure("peak", predicted.peak, peak, delta),
            Figure("delta", predicted.peak - baseline, delta, delta),
            Figure("reserved", predicted.reserved, measured.reserved, delta),
        ]

    def workspaces(self, run: str) -> int | None:
        """By how much kernels' workspaces raised the peak; None where the recording has no events."""
        events = self.recording.run(run)
        return peak_of(events).bytes - peak_of(without_workspaces(events)).bytes if events else None

    # -- nodes -------------------------------------------------------------------------------------------------

    @cached_property
    def flops(self) -> dict[Node, int]:
        return dict(flops_by_node(self.side))

    @cached_property
    def levels(self) -> list[int | None]:
        """By operator the most bytes alive while it ran; None where the recording has no events."""
        if not self.events:
            return [None] * len(self.recording.ops)
        found: list[int | None] = [None] * len(self.recording.ops)
        alive, reached = 0, -1
        for event in self.events:
            if event.op is None:
                alive += event.bytes
                continue
            while reached < event.op:
                # What is alive when an operator begins; those without events keep it.
                reached += 1
                found[reached] = alive
            alive += event.bytes
            if event.inside:
                found[event.op] = max(found[event.op] or 0, alive)
        for index in range(reached + 1, len(found)):
            found[index] = alive
        return found

    def share(self, op: OpRecord) -> int:
        """How many nodes an operator carries out."""
        return max(1, len(self.matching.nodes_of.get(op.index, ())))

    def measured(self, steps: list[int]) -> Measured:
        """Measurements of the operators of some nodes; a fused one counts once."""
        indices = sorted({index for step in steps for index in self.matching.ops_of.get(step, ())})
        return self.of_ops([self.recording.ops[index] for index in indices])

    def of_ops(self, ops: list[OpRecord]) -> Measured:
        """The same for operators."""
        times = [op.time.median_us for op in ops if op.time is not None]
        made = [op.made for op in ops if op.made is not None]
        spaces = [op.workspace for op in ops if op.workspace is not None]
        levels = [level for op in ops if (level := self.levels[op.index]) is not None]
        return Measured(
            len(ops),
            sum(times) / 1e6 if times else None,
            sum(made) if made else None,
            max(levels, default=None),
            max(spaces, default=None),
        )

    @cached_property
    def groups(self) -> list[list[int]]:
        """Steps that one operator carries out together; every other step is alone."""
        found: list[list[int]] = []
        of_op: dict[int, list[int]] = {}
        for step in range(len(self.steps)):
            ops = self.matching.ops_of.get(step, [])
            shared = next((op for op in ops if len(self.matching.nodes_of[op]) > 1), None)
            if shared is None:
                found.append([step])
            elif shared in of_op:
                of_op[shared].append(step)
            else:
                of_op[shared] = [step]
                found.append(of_op[shared])
        return found

    def how(self, steps: list[int]) -> How | None:
        """What the first operator of some nodes was matched by."""
        ops = [op for step in steps for op in self.matching.ops_of.get(step, ())]
        return self.matching.how[ops[0]] if ops else None

    # -- time --------------------------------------------------------------------------------------------------

    @cached_property
    def axis(self) -> list[tuple[int, int]]:
        """Steps and operators along one axis."""
        return common_axis(spine(self.matching), len(self.steps), len(self.recording.ops))

    @cached_property
    def lines(self) -> tuple[list[int], list[int]] | None:
        """Bytes predicted and measured as alive at each place of the axis; None where one of them is not known."""
        predicted = [self.expected.alive.get(node) for node in self.steps]
        if not self.events or not predicted or any(size is None for size in predicted):
            return None
        levels = [level or 0 for level in self.levels]
        first = [predicted[place] or 0 if place >= 0 else 0 for place, _ in self.axis]
        second = [levels[place] if 0 <= place < len(levels) else 0 for _, place in self.axis]
        return first, second


def compare_recording(model: Model, recording: Recording, lifetime: str = "auto") -> RunComparison:
    """Lay a recording beside a model that was opened with its inputs. Raises LoadError where it is of another model."""
    side = Side(model, lifetime_of(recording) if lifetime == "auto" else lifetime)
    found = match_recording(side, recording)
    _check_model(side, recording, found)
    compared = RunComparison(side, recording, found, expected(side, recording))
    compared.diagnostics += _remarks(compared)
    return compared


def _check_model(side: Side, recording: Recording, found: RunMatching) -> None:
    """Raise LoadError where few operators are matched, or those matched by name have results of other types than the model's nodes."""
    ops, nodes = recording.ops, side.timeline.steps
    if not ops or _same_file(side, recording):
        return
    shares = [(len(found.nodes_of), len(ops), "of its operators are in the model")]
    if recording.complete:
        shares.append((len(found.ops_of.keys() | folded(nodes, recording)), len(nodes), "of the model's nodes are in it"))
    if not _other_inputs(side, recording):
        alike, known = _alike(nodes, ops, found)
        shares.append((alike, known, "of its operators make what the model's nodes make"))
    for part, whole, text in shares:
        if whole and part / whole < _FEW:
            name = recording.header.model.name or "another model"
            message = f"this recording is of another model ({name}): only {part} of {whole} {text}"
            raise LoadError(message, code="IRS661", where=recording.path, hint="give the model that was recorded")


def _alike(nodes: Sequence[Node], ops: Sequence[OpRecord], found: RunMatching) -> tuple[int, int]:
    """Of the operators with one node and recorded result types: how many agree with the node, and how many there are."""
    alike = known = 0
    for index, steps in found.nodes_of.items():
        made = ops[index].outputs
        if made and len(steps) == 1 and len(found.ops_of[steps[0]]) == 1:
            known += 1
            alike += made[0] == nodes[steps[0]].outputs[0].type.text if nodes[steps[0]].outputs else 0
    return alike, known


def _other_inputs(side: Side, recording: Recording) -> list[tuple[str, str, str]]:
    """Inputs whose type is another one than it was when the model was recorded: name, type then, type now."""
    inputs = {value.name: value.type.text for value in side.model.graph.inputs}
    return [(one.name, one.type, inputs[one.name]) for one in recording.header.model.inputs if inputs.get(one.name, one.type) != one.type]


def _same_file(side: Side, recording: Recording) -> bool:
    digest = recording.header.model.sha256
    path = side.model.program.path
    if not digest or not path:
        return False
    return file_digest(Path(path)) == digest


def _remarks(compared: RunComparison) -> Iterator[Diagnostic]:
    recording, side = compared.recording, compared.side
    for note in recording.notes:
        yield Diagnostic(Severity.WARNING, "IRS494", note)
    if not recording.complete and not any(problem.op is not None for problem in recording.problems) and not recording.notes:
        yield Diagnostic(Severity.WARNING, "IRS494", "the run failed; what was recorded before stands")
    for problem in recording.problems:
        place = " ".join(part for part in (problem.op_name, problem.scope) if part)
        yield Diagnostic(Severity.WARNING, "IRS493", problem.text, place)
    if recording.header.model.sha256 and side.model.program.path and not _same_file(side, recording):
        yield Diagnostic(Severity.NOTE, "IRS495", "the file is not the very one that was recorded; nodes match by name or structure")
    yield from _types_differ(compared)
    yield from _second_copy(compared)
    yield from _open_sizes(compared)


def _types_differ(compared: RunComparison) -> Iterator[Diagnostic]:
    for name, recorded, held in _other_inputs(compared.side, compared.recording):
        message = f"input {name} was {recorded} when it was recorded, and the prediction is for {held}"
        yield Diagnostic(Severity.WARNING, "IRS496", message, hint="leave --input and --bind away to predict what was recorded")


def _second_copy(compared: RunComparison) -> Iterator[Diagnostic]:
    """More than the model and its inputs on the device: most often a second copy of the model."""
    predicted, side = compared.expected.baseline.value, compared.side
    held = figures(compared.recording, COLD, compared.expected.counter).baseline
    weights = side.totals.bytes
    if not isinstance(predicted, int) or held is None or not isinstance(weights, int) or not weights:
        return
    copies = (held - predicted) / weights
    if copies >= _SECOND_COPY:
        message = (
            f"before the run {held - predicted:,} bytes more were in use than the model and its inputs take, "
            f"{copies:.1f} times its parameters: more than one copy of the model was on the device"
        )
        yield Diagnostic(Severity.WARNING, "IRS492", message, hint="record in a process that holds the model once")


def _open_sizes(compared: RunComparison) -> Iterator[Diagnostic]:
    timeline = compared.side.timeline
    if timeline.unsized:
        yield Diagnostic(Severity.WARNING, "IRS301", f"{len(timeline.unsized)} tensors have no known size and are not counted")
