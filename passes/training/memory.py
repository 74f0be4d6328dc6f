"""What a training step needs: the allocator's counters for the first and for later steps, and bytes by category over the phases."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.devices import Target, target_of
from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import PassError
from irscope.immutable import mutable
from irscope.ir.graph import Facet, Graph, Node, paused_gc
from irscope.ir.program import Program
from irscope.memory.caching import BOUNDLESS, CachingAllocator, OutOfMemory
from irscope.memory.run import ROUNDED, ROUNDING, Moments, moments, phase_peaks, shown_size
from irscope.memory.tape import COUNTERS, REPORTED, Bytes, Counter, Outcome, Replayed, Stretch, changes_of
from irscope.passes.cost.time import Time, Timing
from irscope.passes.lifetimes.timeline import INSIDE, Footprint, Held, HeldOver, Of, limits_of
from irscope.passes.memory.cuda import bracketed, fitting
from irscope.passes.memory.tapes import StepTape, step_tape
from irscope.passes.sizes import CONVENTION
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.steps import CountedStep, counter_tables, parts_tables
from irscope.report.table import Mark, Series
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity, derived, largest, quantity
from irscope.training import PHASES, Phase, Piece, Span, StepOp, Trace


def trace_in(program: Program) -> Trace:
    """Return the captured training of a program; PassError where there is none."""
    training = program.training
    if isinstance(training, Trace):
        return training
    raise PassError(
        "the model holds no training step, only a forward",
        code="IRS381",
        where=program.path,
        hint="`irscope train-plan MODEL` for a model by name or a script, irscope.capture_training(module, ...) from Python",
    )


# What a training step needs: the allocator's counters for the first and for later steps, and bytes by category over the phases.

When: TypeAlias = Literal["peak", "after"]


@mutable
class StepMemory:
    """The memory of a captured training on a device."""

    trace: Trace
    target: Target
    tape: StepTape
    sizes: list[int]
    """Bytes of each slot, as predicted."""
    central: Replayed
    shown: int
    """The number of the step that needs most, the last of several: headline, parts, timeline and rows are of this one."""
    moments: Moments
    """That step operator by operator."""
    fits: bool
    low: Replayed | None = None
    """The least that is possible in each step, where sizes are not known or modelled; None where everything is exact."""
    high: Replayed | None = None
    """The most; None where nothing bounds it."""

    @property
    def reason(self) -> str:
        """Return why no allocator counts, so that only tensors as they are requested are known; empty where one does."""
        return self.target.device.lacks_cuda

    @property
    def counted(self) -> Counter:
        """Return the counter that the peak, its parts and the timeline are of."""
        return "requested" if self.reason else "allocated"

    @property
    def taken(self) -> Counter:
        """Return the counter that decides whether the steps fit."""
        return "requested" if self.reason else "reserved"

    @property
    def before(self) -> Bytes:
        """Once parameters, buffers and inputs are on the device."""
        return self.central.before

    @property
    def loaded(self) -> dict[Counter, Quantity]:
        """Return the counters of that moment, as far as there are any."""
        found = {counter: Quantity(self.before[counter]) for counter in REPORTED}
        return {counter: size if counter == "requested" or not self.reason else self._unknown for counter, size in found.items()}

    @property
    def steps(self) -> list[Outcome]:
        """Return what is counted in each step."""
        return self.central.outcomes

    @property
    def first(self) -> Outcome:
        """Return the first step, in which the optimizer makes its state."""
        return self.steps[0]

    @property
    def steady(self) -> Outcome:
        """Return the step that stands for all later ones."""
        return self.steps[-1]

    @property
    def alive(self) -> dict[str, NDArray[np.int64]]:
        """Return for each operator of the step that is shown, bytes by category at its highest moment: they add up to what is allocated."""
        columns = self.moments.columns()
        return {category: np.array([quantity(cell).value for cell in column], dtype=np.int64) for category, column in columns.items()}

    @property
    def total(self) -> NDArray[np.int64]:
        """Return for each operator of the step that is shown, the most that is allocated."""
        return np.array(self.moments.allocated, dtype=np.int64)

    @property
    def peak_step(self) -> int:
        """Return the operator of that step at which most is allocated, counted from the step's first."""
        return self.moments.peak_step

    @property
    def span(self) -> Span:
        """Return the step that is shown."""
        return self.trace.steps[self.shown]

    @property
    def ops(self) -> Sequence[StepOp]:
        """Return its operators."""
        return self.trace.in_step(self.span)

    @property
    def run(self) -> str:
        """Return the step that is shown in words: where later steps need no less, it is the one that stands for them."""
        return "steady step" if self.shown == len(self.steps) - 1 else f"step {self.shown + 1}"

    @property
    def peak(self) -> Quantity:
        """Return the most of all steps: what the headline says, and what the parts add up to."""
        return self.counter(self.counted, self.shown)

    def nodes_of(self, nodes: Sequence[Node]) -> list[Node]:
        """Return for each operator that is shown its node in the graph of the steady step; for one that only this step has, the one before
        it."""
        steady = self.trace.in_step(self.trace.steady)
        if len(steady) != len(nodes) or [one.name for one in steady] == [one.name for one in self.ops]:
            return list(nodes)
        by_name = {op.name: node for op, node in zip(steady, nodes, strict=True)}
        found: list[Node] = []
        for op in self.ops:
            found.append(by_name.get(op.name, found[-1] if found else nodes[0]))
        return found

    def counter(self, counter: Counter, step: int = -1, when: When = "peak") -> Quantity:
        """Return one of the allocator's counters for a step, with the interval it lies in; the last step stands for all later ones."""
        if self.reason and counter != "requested":
            return self._unknown

        def read(replayed: Replayed) -> int:
            outcome = replayed.outcomes[step]
            return (outcome.peak if when == "peak" else outcome.after)[counter]

        central = read(self.central)
        if self.low is None or (when == "after" and counter == "requested" and self.tape.is_passing):
            return Quantity(central)
        return bracketed(counter, central, (read(self.low), None if self.high is None else read(self.high)), self._why_open())

    def worst(self, counter: Counter) -> Quantity:
        """Return the most of all steps."""
        return largest(self.counter(counter, step) for step in range(len(self.steps)))

    @property
    def _unknown(self) -> Quantity:
        return Quantity(None, Provenance.UNKNOWN, note=self.reason)

    @property
    def verdict(self) -> Quantity:
        """Return whether the steps fit; modelled where it may be otherwise within what is possible, unknown where no allocator is."""
        if self.reason:
            return self._unknown
        low, high = (None if one is None else one.worst("reserved") for one in (self.low, self.high))
        return fitting(self.fits, self.target, low, high, self.worst("reserved"))

    def at_peak(self, step: int | None = None) -> dict[str, Quantity]:
        """Return the bytes by category at the peak, or at that of one step, the rounding of blocks too; they add up to it."""
        found = self.moments if step is None else self._moments(step)
        return {category: found.at_peak(category) for category in self.categories}

    @property
    def categories(self) -> tuple[str, ...]:
        """Return what memory is for, the rounding of blocks too where an allocator has any."""
        return self.trace.categories if self.reason else (*self.trace.categories, ROUNDING)

    def phase_peaks(self, step: int | None = None) -> dict[Phase, Quantity]:
        """Return the most that is allocated in each phase of the step that is shown, or of another one."""
        step = self.shown if step is None else step
        tape, stretch = self.tape, self._stretch(step)
        starts = [tape.starts[stretch.span.first], tape.starts[stretch.span.end]]
        least, most = (None, None) if tape.is_exact else (tape.numbers("low"), tape.most())
        (found,) = phase_peaks(tape, starts, stretch, self.trace.categories, self.sizes, least, most)
        return {phase: found.get(phase, Quantity(0)) for phase in PHASES}

    def _moments(self, step: int) -> Moments:
        least, most = (self.sizes, self.sizes) if self.tape.is_exact else (self.tape.numbers("low"), self.tape.most())
        return moments(self.tape, self._stretch(step), self.trace.categories, self.sizes, least, most)

    def _stretch(self, step: int) -> Stretch:
        stretch = self.steps[step].stretch
        assert stretch is not None
        return stretch

    def counted_steps(self) -> list[CountedStep]:
        """Return each step's counters, what its peak is made of, and the peaks of its phases."""
        return [
            CountedStep(
                str(number + 1),
                {key: self.counter(key, number) for key in COUNTERS},
                {key: self.counter(key, number, "after") for key in COUNTERS},
                self.at_peak(number),
                self.phase_peaks(number),
            )
            for number in range(len(self.steps))
        ]

    def _why_open(self) -> str:
        spreads = list(self.tape.spreads.values())
        return next((spread.reason for spread in spreads if self.high is None and spread.high is None), spreads[0].reason)


def replay_steps(trace: Trace, target: Target) -> StepMemory:
    """Run the steps through the allocator; on a boundless device where they do not fit. Where there is none, tensors are added up."""
    tape = step_tape(trace, target)
    sizes, steps = tape.numbers("central"), [span.name for span in trace.steps]

    def replay(sizes: Sequence[int], room: int | None, watch: Collection[str] = ()) -> Replayed:
        replayed = tape.replay(CachingAllocator.of(target, room), sizes, watch)
        if target.device.lacks_cuda:
            for outcome in replayed.outcomes:
                outcome.stretch = None if outcome.stretch is None else _of_tensors(outcome.stretch, sizes)
        return replayed

    try:
        central, fits = replay(sizes, BOUNDLESS if target.device.lacks_cuda else target.device.room_bytes, steps), True
    except OutOfMemory:
        central, fits = replay(sizes, BOUNDLESS, steps), False
    least, most = (sizes, sizes) if tape.is_exact else (tape.numbers("low"), tape.most())
    counted = "requested" if target.device.lacks_cuda else "allocated"
    shown = max(range(len(steps)), key=lambda step: (getattr(central.outcomes[step].peak, counted), step))
    stretch = central.outcomes[shown].stretch
    assert stretch is not None
    memory = StepMemory(trace, target, tape, sizes, central, shown, moments(tape, stretch, trace.categories, sizes, least, most), fits)
    if not tape.is_exact:
        memory.low, memory.high = (None if ends is None else replay(ends, BOUNDLESS) for ends in (least, most))
    return memory


def _of_tensors(stretch: Stretch, sizes: Sequence[int]) -> Stretch:
    """Return the same requests where blocks are as large as what is asked for."""
    return replace(stretch, allocated=sum(stretch.held.values()), blocks=changes_of(stretch.events, sizes))


# The device's memory at each operator of the step that needs most: the parts that add up to the allocated bytes.

_WHY = {
    "parameter": "loaded with the model",
    "buffer": "loaded with the model",
    "input": "given by the caller",
    "optimizer state": "kept by the optimizer",
}


def step_footprint(memory: StepMemory, nodes: Sequence[Node]) -> Footprint:
    """Return the memory over the operators of the step that needs most; those of the steady step are the nodes of the program's graph."""
    moments = memory.moments
    later = ": every step after the first few" if memory.run == "steady step" else ", which needs most"
    what = f"torch.cuda.max_memory_allocated() of the {memory.run} on {memory.target.text}{later}"
    if memory.reason:
        what = f"tensors of the {memory.run} as requested, without an allocator: {memory.reason}"
    nodes = memory.nodes_of(nodes)
    rows = _Rows(memory, nodes)
    at, limits = moments.peak_step, limits_of(memory.target.device)
    columns = {category: moments.column(category) for category in memory.categories}
    of: Of = "tensor" if memory.reason else "device"
    return Footprint(of, what, memory.run, nodes, columns, moments.allocated, memory.peak, at, rows.at, limits=limits, over=rows.over)


class _Rows:
    """Rows of what is alive at an operator."""

    def __init__(self, memory: StepMemory, nodes: Sequence[Node]) -> None:
        self._memory = memory
        self._nodes = nodes
        self._first = memory.span.first
        self._ops = memory.ops
        self._uses: dict[Piece, list[int]] = {}
        for step, op in enumerate(self._ops):
            for piece in dict.fromkeys((*op.reads, *op.writes)):
                self._uses.setdefault(piece, []).append(step)

    def at(self, step: int) -> list[Held]:
        """Return all that adds up to what is allocated at the highest moment of an operator."""
        moments, sizes = self._memory.moments, self._memory.sizes
        if not len(moments.allocated):
            return []
        taken = [slot for slot in moments.alive(step) if sizes[slot]]
        rows = [self._row(slot, step) for slot in taken]
        rounding = moments.column(ROUNDING)[step]
        size = moments.allocated[step] - sum(sizes[slot] for slot in taken)
        if size:
            rows.append(Held(ROUNDING, ROUNDING, size, step, step, ROUNDED, shown=rounding if isinstance(rounding, Quantity) else None))
        return rows

    def over(self) -> HeldOver:
        """Return all that is allocated at some operator, but for rounding."""
        found, sizes = HeldOver(), self._memory.sizes
        for slot, first, last in self._memory.moments.held_over():
            if sizes[slot]:
                one = self._row(slot, first)
                found.add_slot(one.name, one.category, sizes[slot], (first, last), one.node)
        return found

    def _row(self, slot: int, step: int) -> Held:
        tape, size = self._memory.tape, self._memory.sizes[slot]
        shown = shown_size(tape, slot, size)
        piece = tape.owners.get(slot)
        if piece is None:
            return self._own(slot, step, size, shown)
        end = len(self._ops)
        born = 0 if piece.born is None else max(piece.born - self._first, 0)
        dies = end if piece.died is None else min(piece.died - 1 - self._first, end)
        made = None if piece.born is None or piece.born < self._first else self._node(born)
        why: str | partial[str] = _WHY.get(piece.category) or partial(self._why, piece, born, step)
        return Held(piece.name, piece.category, size, born, dies, why, node=made, shown=shown)

    def _own(self, slot: int, step: int, size: int, shown: Quantity | None) -> Held:
        """Return what a kernel or a library takes for itself."""
        moments, label, category = self._memory.moments, self._memory.tape.labels[slot], self._memory.tape.kinds[slot]
        end = len(self._ops)
        if slot in moments.stretch.before:
            return Held(label, category, size, 0, end, "kept from an earlier step", shown=shown)
        if moments.lives.ends[slot] < moments.lives.moments:
            return Held(label, category, size, step, step, INSIDE, self._ops[step].name, self._node(step), None, shown)
        born = bisect_left(moments.stretch.starts, int(moments.lives.begins[slot])) - 1
        return Held(
            label, category, size, born, end, f"kept once {self._ops[born].name} has requested it", "", self._node(born), None, shown
        )

    def _why(self, piece: Piece, born: int, step: int) -> str:
        if born == step and piece.born is not None and piece.born >= self._first:
            return "made here"
        uses = self._uses.get(piece, [])
        at = bisect_left(uses, step)
        if at == len(uses):
            return "held by autograd or by Python"
        return "read here" if uses[at] == step else f"used later by {self._ops[uses[at]].name}"

    def _node(self, step: int) -> Node | None:
        return self._nodes[step] if step < len(self._nodes) else None


_MOST_POINTS = 10_000


@dataclass(frozen=True)
class TrainingMemory(Analysis[StepMemory]):
    """Predict what a training step needs: the counters of PyTorch's allocator step by step, and bytes by category over the phases."""

    name: ClassVar[str] = "training"
    reads: ClassVar[tuple[Facet, ...]] = ()

    top: int = 10
    """Rows of the table of what is largest at the peak."""

    def compute(self, graph: Graph, ctx: PassContext) -> StepMemory:
        with paused_gc():
            memory = replay_steps(trace_in(ctx.program), target_of(ctx.settings))
        for source, count in memory.tape.unknown.items():
            ctx.sink.add(
                Diagnostic(
                    Severity.WARNING,
                    "IRS382",
                    f"the temporary memory of {source} is not known and not counted",
                    source,
                    count=count,
                ),
                about=source,
            )
        if not memory.fits:
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS383", f"the step does not fit on {memory.target.device.title}"))
        return memory

    def report(self, result: StepMemory, ctx: PassContext) -> Report:
        return _step_report(self, result, list(ctx.program.graph), ctx.get(Time()))


def _step_report(subject: TrainingMemory, memory: StepMemory, nodes: list[Node], timing: Timing) -> Report:
    trace, ops = memory.trace, memory.ops
    peak_op = ops[memory.peak_step] if ops else None
    known = sum(op.call is not None or op.is_view for op in ops)
    found, steps = step_footprint(memory, nodes), memory.counted_steps()
    node, counter = f"{found.of}_peak_node", f"{found.of}_peak_counter"
    summary: dict[str, object] = {
        **{key: value for key, value in found.summary().items() if key != node},
        counter: memory.counted,
        node: derived(peak_op.name if peak_op is not None else "", found.peak),
        f"{found.of}_peak_phase": derived(peak_op.phase if peak_op is not None else "", found.peak),
        "optimizer": trace.optimizer,
        **{key: value for key, value in trace.settings.items() if value not in ("", None)},
        **memory.target.to_json(),
        "before": memory.loaded,
        "first_step": {counter: memory.counter(counter, 0) for counter in REPORTED},
        "steady_step": {counter: memory.counter(counter) for counter in REPORTED},
        "after": {counter: memory.counter(counter, when="after") for counter in REPORTED},
        "phase_peak": dict(memory.phase_peaks()),
        "step_seconds": timing.quantity() if timing.seconds else Quantity(None, Provenance.UNKNOWN),
        "operators_count": len(ops),
        "fits": memory.verdict,
    }
    units = {key: Kind.BYTES for key in ("device_peak", "tensor_peak", "before", "first_step", "steady_step", "after", "phase_peak")}
    units["step_seconds"] = Kind.SECONDS
    notes = [
        CONVENTION,
        found.note,
        counted_note(memory, "peaks of the first step and of every later one"),
    ]
    for reason in dict.fromkeys(spread.reason for spread in memory.tape.spreads.values()):
        labels = {memory.tape.labels[slot] for slot, spread in memory.tape.spreads.items() if spread.reason == reason}
        notes.append(f"modelled, as {reason}: {'; '.join(sorted(labels))}")
    return Report(
        pass_name=subject.name,
        options=subject.text,
        summary=summary,
        units=units,
        tables=(*counter_tables(steps), *parts_tables(steps), found.alive(subject.top)),
        series=_timeline(memory, found),
        coverage=Coverage(known, len(ops), tuple(memory.tape.unknown)),
        notes=tuple(notes),
    )


def counted_note(memory: StepMemory, when: str) -> str:
    """Whose counters they are, of which moments."""
    if memory.reason:
        return f"no counters of the allocator: {memory.reason}; requested are tensors as they are requested: {when}"
    return f"counters are those of torch.cuda.memory_stats() on {memory.target.text}: {when}"


def _timeline(memory: StepMemory, footprint: Footprint) -> tuple[Series, ...]:
    """Return the bytes by category at each operator of the step that is shown, with its phases."""
    ops = memory.ops
    marks: list[Mark] = []
    before = ""
    for at, op in enumerate(ops):
        if op.phase != before and op.phase == "backward":
            marks.append(Mark(at, "backward"))
        if op.phase != before and op.phase == "optimizer" and at > len(ops) // 2:
            marks.append(Mark(at, "optimizer"))
        before = op.phase
    return tuple(replace(one, marks=(*one.marks, *marks)) for one in footprint.series())
