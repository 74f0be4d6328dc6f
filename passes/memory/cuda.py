"""What torch.cuda.memory_stats() will say: before the first forward, and at the peaks of the first and the second."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias, cast

import numpy as np

from irscope.devices import DeviceProfile, Target, target_of
from irscope.devices.catalogue import all_devices
from irscope.diagnostics import Diagnostic, Severity
from irscope.immutable import immutable, mutable
from irscope.ir.bind import bind_option, input_option, possible_sizes, typed
from irscope.ir.graph import Facet, Graph, Node, Value, paused_gc
from irscope.ir.program import Runtime, is_unstated
from irscope.memory.caching import BOUNDLESS, CachingAllocator, OutOfMemory
from irscope.memory.run import CATEGORIES, RESIDENT, ROUNDED, ROUNDING, Moments, moments, shown_size
from irscope.memory.tape import ACTIVATION, OUTPUT, REPORTED, Counter, DeviceRun, End, Replayed, Tape, Unbounded
from irscope.ops.spec import MemoryEvent
from irscope.passes.graph.alias import Alias, Aliases
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passes.lifetimes.lives import label_of
from irscope.passes.lifetimes.timeline import (
    INSIDE,
    Footprint,
    Held,
    HeldOver,
    ShownRun,
    limits_of,
    resident_row,
    shown_steps,
    tensor_row,
    unsized_row,
)
from irscope.passes.lifetimes.traced import MODELLED_LIVES, Lifetimes, Ranges, other_lives
from irscope.passes.memory.as_run import as_run
from irscope.passes.memory.tapes import COLD, WARM, ForwardTape, Load, forward_tape, loaded
from irscope.passes.sizes import CONVENTION, scale
from irscope.passkit.base import Analysis, Pass, PassContext
from irscope.passkit.manager import Manager
from irscope.report.celltext import signed
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity, derived, quantity

Moment: TypeAlias = Literal["before", "cold", "warm"]
Run: TypeAlias = Literal["first", "second"]


def bracketed(counter: str, central: int, ends: tuple[int, int | None], note: str) -> Quantity:
    """Return a counter of a replay with inexact sizes, between its values for their lower and upper bounds.

    What is asked for never falls where a size rises, so that it is exact where both ends are the same. What is allocated and
    reserved depends on the order of sizes: where a size is modelled these are modelled too, whatever the ends say.
    """
    low, high = min(central, ends[0]), None if ends[1] is None else max(central, ends[1])
    if low == high:
        return Quantity(central) if counter == "requested" else Quantity(central, Provenance.MODELLED, note=note)
    return Quantity(central, Provenance.MODELLED, note=note, lo=low, hi=high)


def fitting(fits: bool, target: Target, low: int | None, high: int | None, reserved: Quantity) -> Quantity:
    """Return whether something fits on a device; modelled where the answer differs within the interval of reserved memory."""
    room = target.device.room_bytes
    is_sure = room is None or low is None or all(end is not None and (end <= room) == fits for end in (low, high))
    return Quantity(fits) if is_sure else derived(fits, reserved)


@immutable(slots=False)
class Shortage:
    """A model that is too large for the device."""

    needed: Quantity
    """Bytes that it needs, the CUDA context included."""
    missing: Quantity
    fitting: tuple[DeviceProfile, ...]
    """Known devices with enough memory, the smallest first."""


@immutable(slots=False)
class Basis:
    """The program that the requests are derived from: as Python runs it, which may differ from the one in the file."""

    load: list[Load]
    lifetimes: Lifetimes
    aliases: Aliases
    types: Inferred

    def tape(self, target: Target, known: Mapping[Node, Sequence[MemoryEvent]] | None = None) -> ForwardTape:
        """Return what it asks for; `known` has precomputed requests of some nodes."""
        return forward_tape(self.load, self.lifetimes, self.aliases, self.types, target, known)


@mutable
class DeviceMemory:
    """Counters of a CUDA device's allocator for a model, as far as they can be predicted."""

    model: str
    """Lifetime model."""
    target: Target
    steps: list[Node]
    reason: str = ""
    """Why there are no numbers."""
    fix: str = ""
    """Advice on how to make the counters known."""
    basis: Basis | None = None
    tape: ForwardTape | None = None
    sizes: list[int] | None = None
    """Bytes of each slot, as predicted; None where they depend on symbols."""
    central: Replayed | None = None
    lows: tuple[Replayed, ...] = ()
    """Replays for the lower bound, where something is unknown or modelled; empty where everything is exact. A counter's lower bound is the
    least of them: fewer requested bytes may well be more reserved bytes."""
    high: Replayed | None = None
    """Upper bound; None where there is none."""
    is_open: bool = False
    """True where sizes are data-dependent, so that there is only an interval."""
    unbounded: str = ""
    """Why there is no upper end."""
    shortage: Shortage | None = None
    findings: list[Diagnostic] = field(default_factory=list)
    most_of_kernels: Replayed | None = None
    """Upper bound where only what kernels take is uncertain."""
    other_lives: list[Basis] = field(default_factory=list)
    """The same with the shortest and with the longest live ranges that there may be, where nothing but lines of source says which."""

    def counter(self, moment: Moment, counter: Counter) -> Quantity:
        """Return one of the allocator's counters, with its interval."""
        if self.central is None:
            hint = f"; {typed(self.fix)} makes it known" if self.fix else ""
            return Quantity(None, Provenance.UNKNOWN, note=f"{self.reason}{hint}")
        if moment == "before":
            return Quantity(self.central.at(moment, counter))
        return self._between(counter, lambda replayed: replayed.at(moment, counter))

    def _between(self, counter: Counter, read: Callable[[Replayed], int]) -> Quantity:
        """Return what a counter of the replay says, between what it says of its ends."""
        assert self.central is not None
        central = read(self.central)
        if not self.lows:
            return Quantity(central)
        ends = (min(map(read, self.lows)), None if self.high is None else read(self.high))
        found = bracketed(counter, central, ends, self._why_open())
        return replace(found, value=None, provenance=Provenance.UNKNOWN) if self.is_open else found

    def worst(self, counter: Counter) -> Quantity:
        """Return the larger peak of the first and the second forward."""
        return self.counter("cold", counter) if self.central is None else self._between(counter, lambda replayed: replayed.worst(counter))

    def computed(self, value: object) -> Quantity:
        """Return a quantity derived from the whole replay, such as the free part of a segment."""
        return derived(None if self.is_open else value, self.counter("cold", "allocated"), self.counter("cold", "reserved"))

    @property
    def fits(self) -> Quantity:
        """Return whether the device has enough memory; modelled where the answer differs within the interval."""
        low = min((replayed.worst("reserved") for replayed in self.lows), default=None)
        high = None if self.high is None else self.high.worst("reserved")
        return fitting(self.shortage is None, self.target, low, high, self.worst("reserved"))

    def _why_open(self) -> str:
        """Return why there is an interval: the first reason."""
        if self.unbounded:
            return self.unbounded
        if self.other_lives:
            return MODELLED_LIVES
        spreads = self.tape.spreads if self.tape is not None else {}
        return next((spread.reason for spread in spreads.values()), "some results are either views or copies of their operand")

    def replay(self, total_memory: int | None, watch: Collection[str] | Literal["all"] = (), *, addresses: bool = False) -> Replayed:
        """Return the prediction once more, on a device with so much memory; raises OutOfMemory where PyTorch would."""
        assert self.tape is not None and self.sizes is not None
        return self.tape.replay(CachingAllocator.of(self.target, total_memory), self.sizes, watch, addresses=addresses)

    @property
    def run(self) -> Run:
        """Return the forward with the higher peak of allocated bytes."""
        central = self.central
        return "second" if central is not None and central.at(WARM, "allocated") > central.at(COLD, "allocated") else "first"

    @cached_property
    def moments(self) -> Moments | None:
        """Return the first forward step by step, computed on first use."""
        return self._moments(COLD)

    @cached_property
    def highest(self) -> Moments | None:
        """Return the forward with the higher peak, step by step."""
        return self.moments_of(self.run)

    def moments_of(self, run: Run) -> Moments | None:
        """Return one of the two forwards, step by step."""
        return self.moments if run == "first" else self._moments(WARM)

    def _moments(self, moment: Moment) -> Moments | None:
        tape, sizes, central = self.tape, self.sizes, self.central
        stretch = None if central is None else central[moment].stretch
        if tape is None or sizes is None or stretch is None:
            return None
        categories = (*CATEGORIES, *sorted(set(tape.kinds) - set(CATEGORIES)))
        return moments(tape, stretch, categories, sizes, tape.numbers("low"), tape.most())

    @cached_property
    def footprint(self) -> Footprint | None:
        """Return the device's memory over the steps of the forward with the higher peak."""
        return self.footprint_of("worst")

    def footprint_of(self, run: ShownRun) -> Footprint | None:
        """Return the device's memory over the steps of one forward; None where it is unknown."""
        if run == "worst":
            return _footprint(self, self.run, self.worst("allocated"), ", the higher of the first two")
        if run == "first":
            return _footprint(self, "first", self.counter("cold", "allocated"))
        return _footprint(self, "second", self.counter("warm", "allocated"))


@dataclass(frozen=True)
class CudaMemory(Analysis[DeviceMemory]):
    """Predict the counters of PyTorch's CUDA allocator for loading a model and running it twice."""

    name: ClassVar[str] = "cuda-memory"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    model: Literal["auto", "ssa", "eager", "jit", "ort", "xla"] = "auto"
    """Lifetime model, as in `liveness`."""

    def compute(self, graph: Graph, ctx: PassContext) -> DeviceMemory:
        target, sink = target_of(ctx.settings), ctx.sink
        lifetimes = ctx.get(Ranges(model=self.model))
        watched = ctx.program.watched if lifetimes.model == "eager" else None
        requests = watched.requests if watched is not None and isinstance(watched.requests, DeviceRun) else None
        program = as_run(ctx.program, ctx.get(Shapes), target) if lifetimes.model == "eager" and requests is None else None
        if program is not None:
            graph, ctx = program.graph, Manager(program, settings=ctx.settings)
            lifetimes = ctx.get(Ranges(model=self.model))
        result = DeviceMemory(lifetimes.model, target, lifetimes.steps)
        if ctx.program.training is not None:
            result.reason = "the graph is a training step and no forward: liveness and training have its counters"
        elif target.device.lacks_cuda:
            result.reason = target.device.lacks_cuda
        elif lifetimes.model not in ("eager", "jit") and ctx.program.traits.runtime is not Runtime.TORCH:
            result.reason = f"PyTorch's allocator does not run a model of the kind {lifetimes.model}"
            result.fix = "--passes 'liveness{model=eager}'"
        elif requests is not None and (requests.device, requests.torch) != (target.device.name, target.torch):
            what = f"{requests.device} and torch {'{}.{}'.format(*requests.torch)}"
            result.reason = f"it was compiled for {what}: for another one it is another program"
            result.fix = f"--device {requests.device}"
        else:
            with paused_gc():
                if requests is not None:
                    result.tape = _with_ranges(requests.tape, lifetimes)
                    self._replay(result, None, ctx)
                else:
                    self._predict(graph, ctx, lifetimes, result)
        for finding in result.findings:
            sink.add(finding)
        return result

    def report(self, result: DeviceMemory, ctx: PassContext) -> Report:
        return _allocator_report(self, result)

    def _predict(self, graph: Graph, ctx: PassContext, lifetimes: Lifetimes, result: DeviceMemory) -> None:
        load = loaded(graph)
        if load is None:
            result.reason = "the size of a parameter or an input is not known"
            result.fix = " ".join(input_option(value) for value in graph.inputs if value.name and is_unstated(value.type))
            return
        basis = result.basis = Basis(load, lifetimes, ctx.get(Alias()), ctx.get(Shapes))
        result.other_lives = [
            Basis(load, lifetimes, basis.aliases, basis.types) for lifetimes in other_lives(ctx, self.model, basis.lifetimes)
        ]
        result.tape = basis.tape(result.target)
        self._replay(result, basis, ctx)

    def _replay(self, result: DeviceMemory, basis: Basis | None, ctx: PassContext) -> None:
        """Make the requests of an allocator."""
        tape = result.tape
        assert tape is not None
        symbols = tape.symbols()
        named = [symbol for symbol in symbols if not symbol.is_unknown]
        if named:
            result.reason = f"sizes depend on {', '.join(map(str, named))}"
            result.fix = bind_option(named, possible_sizes(ctx.program, named))
            return
        result.is_open = bool(symbols or (basis is not None and basis.lifetimes.unsized))
        result.sizes = tape.numbers("central")
        device = result.target.device
        try:
            result.central, fits = result.replay(device.room_bytes, (COLD, WARM)), True
        except OutOfMemory:
            result.central, fits = result.replay(BOUNDLESS, (COLD, WARM)), False
        self._bracket(ctx, basis, result)
        if not fits:
            result.shortage = _shortage(device, result.worst("reserved"))
            result.findings.append(_does_not_fit(device, result.shortage))

    def _bracket(self, ctx: PassContext, basis: Basis | None, result: DeviceMemory) -> None:
        """Find the least and the most, where something is not known."""
        assert result.tape is not None
        tapes = [result.tape]
        if basis is not None and basis.lifetimes.undecided:
            other = Basis(basis.load, ctx.get(Ranges(model=self.model, undecided="share")), ctx.get(Alias(undecided="share")), basis.types)
            tapes.append(other.tape(result.target))
        if basis is not None:
            tapes += [other.tape(result.target) for other in result.other_lives]
        if len(tapes) == 1 and result.tape.is_exact and not result.is_open:
            return
        result.lows = tuple([_end(result, tape, end) for tape in tapes for end in _LOWER])
        if basis is not None and basis.lifetimes.unsized:
            result.unbounded = f"the size of {basis.lifetimes.unsized[0].name or 'a tensor'} is not known"
            return
        try:
            ends = [_end(result, tape, "high") for tape in tapes]
            result.high, result.most_of_kernels = max(ends, key=asked_first), ends[0]
        except Unbounded as error:
            result.unbounded = str(error)


_LOWER: tuple[End, ...] = ("low", "central")


def _with_ranges(tape: Tape[Value], lifetimes: Lifetimes) -> ForwardTape:
    """Return the requests of a run with the live ranges that they belong to."""
    ranges = {one.value: one for one in lifetimes.ranges}
    owners = {slot: ranges[value] for slot, value in tape.owners.items() if value in ranges}
    kinds = list(tape.kinds)
    for slot, owner in owners.items():
        kinds[slot] = OUTPUT if owner.is_output else ACTIVATION
    return replace(cast("ForwardTape", tape), owners=owners, kinds=kinds)


def _end(result: DeviceMemory, tape: ForwardTape, end: End) -> Replayed:
    """Return one end of what is possible; nothing is run again where it is what is predicted."""
    assert result.central is not None
    sizes = tape.numbers(end)
    if tape is result.tape and sizes == result.sizes:
        return result.central
    return tape.replay(CachingAllocator.of(result.target, BOUNDLESS), sizes)


def asked_first(outcome: Replayed) -> int:
    """Return what the order of ends goes by: bytes that are asked for, which never fall where sizes rise or tensors live longer."""
    return outcome.at(COLD, "requested")


def _shortage(device: DeviceProfile, reserved: Quantity) -> Shortage:
    wanted = reserved.value if isinstance(reserved.value, int) else reserved.ends[0] or 0
    larger = [profile for profile in all_devices() if not profile.lacks_cuda and (profile.room_bytes or 0) >= wanted]
    larger.sort(key=lambda one: (one.memory_bytes or 0, one.name))
    return Shortage(reserved + device.context_most, reserved - (device.room_bytes or 0), tuple(larger))


def _does_not_fit(device: DeviceProfile, shortage: Shortage) -> Diagnostic:
    names = ", ".join(one.title for one in shortage.fitting[:3])
    return Diagnostic(
        Severity.WARNING,
        "IRS302",
        f"the model does not fit on {device.title}: it needs {signed(shortage.needed, Kind.BYTES)} with the CUDA context, "
        f"{signed(shortage.missing, Kind.BYTES)} more than there are",
        hint=f"it fits on {names}" if names else "no device that irscope knows has as much; a smaller batch or a smaller type needs less",
    )


# The device's memory at each step of a forward: the parts that add up to the allocated bytes.

_RUNS = {"first": "first forward", "second": "second forward"}


def _footprint(memory: DeviceMemory, shown: Run, peak: Quantity, which: str = "") -> Footprint | None:
    """Allocated bytes in one forward, with its peak; None where unknown."""
    moments, tape, sizes = memory.moments_of(shown), memory.tape, memory.sizes
    if moments is None or tape is None or sizes is None:
        return None
    rows = _Rows(memory, moments, tape, sizes, is_second=shown == "second")
    run = _RUNS[shown]
    what = f"torch.cuda.max_memory_allocated() of the {run} on {memory.target.text}{which}"
    columns: dict[str, list[Quantity | int]] = moments.columns()
    if not memory.steps:
        # A model without steps has its weights all the same.
        held = moments.stretch.held
        columns = {category: [held.get(category, 0)] for category in columns}
        columns[ROUNDING] = [moments.stretch.allocated - sum(held.values())]
    is_sure = moments.is_sure and not memory.other_lives
    if memory.other_lives:
        for category in (OUTPUT, ACTIVATION, ROUNDING):
            columns[category] = [replace(quantity(size), provenance=Provenance.MODELLED) for size in columns[category]]
    at, limits, heights = moments.peak_step, limits_of(memory.target.device), moments.allocated
    return Footprint("device", what, run, memory.steps, columns, heights, peak, at, rows.at, is_sure, limits=limits, over=rows.over)


class _Rows:
    """Rows of what is allocated at a step."""

    def __init__(self, memory: DeviceMemory, moments: Moments, tape: ForwardTape, sizes: list[int], *, is_second: bool) -> None:
        self._basis = memory.basis
        self._moments = moments
        self._is_second = is_second
        self._tape = tape
        self._sizes = sizes
        self._steps = memory.steps
        self._resident = frozenset(tape.resident)
        self._names: dict[str, list[str]] = {}
        for slot in tape.resident:
            self._names.setdefault(tape.kinds[slot], []).append(tape.labels[slot])
        starts = np.searchsorted(np.array(tape.starts, dtype=np.int64), np.arange(len(tape.events)), side="right") - 1
        self._taken_at = {slot: step for (_, slot, is_taken), step in zip(tape.requests(), starts.tolist(), strict=True) if is_taken}

    def at(self, step: int) -> list[Held]:
        """Return all that adds up to what is allocated at the highest moment of the step."""
        moments, count = self._moments, len(self._steps)
        held = moments.stretch.held
        rows = [resident_row(category, self._names[category], held[category], count) for category in RESIDENT if held.get(category)]
        if not count:
            rounding = moments.stretch.allocated - sum(held.values())
            return [*rows, Held("rounding", ROUNDING, rounding, 0, 0, ROUNDED)] if rounding else rows
        rows += [self._row(slot, step) for slot in moments.alive(step) if self._sizes[slot] and slot not in self._resident]
        unsized = self._basis.lifetimes.unsized_ranges if self._basis is not None else ()
        rows += [unsized_row(self._steps, one, step) for one in unsized if one.born <= step <= one.dies]
        uncertain = moments.column(ROUNDING)[step]
        size = moments.allocated[step] - sum(scale(row.size) for row in rows)
        if size:
            shown = uncertain if isinstance(uncertain, Quantity) else None
            rows.append(Held("rounding", ROUNDING, size, step, step, ROUNDED, shown=shown))
        return rows

    def over(self) -> HeldOver:
        """Return all that is allocated at some step, but for rounding."""
        tape, sizes, count, held_over = self._tape, self._sizes, len(self._steps), HeldOver()
        if not count:
            return held_over
        held = self._moments.stretch.held
        for category in RESIDENT:
            if held.get(category):
                held_over.add(resident_row(category, self._names[category], held[category], count), 0, count - 1)
        for slot, first, last in self._moments.held_over():
            if not sizes[slot] or slot in self._resident:
                continue
            owner = tape.owners.get(slot)
            if owner is None:
                node = self._steps[self._taken_at[slot]] if slot in self._taken_at else None
                held_over.add_slot(tape.labels[slot], tape.kinds[slot], sizes[slot], (first, last), node)
            else:
                category = "output" if owner.is_output else "activation"
                held_over.add_slot(label_of(owner.value), category, sizes[slot], (first, last), owner.value.node)
        return held_over

    def _row(self, slot: int, step: int) -> Held:
        tape, size = self._tape, self._sizes[slot]
        shown = shown_size(tape, slot, size)
        owner = tape.owners.get(slot)
        if owner is not None:
            return tensor_row(self._steps, owner, step, size, shown)
        born = self._taken_at[slot]
        node = self._steps[born]
        label, category = tape.labels[slot], tape.kinds[slot]
        if slot not in tape.kept:
            return Held(label, category, size, step, step, INSIDE, node.name, node, None, shown)
        if self._is_second:
            return Held(label, category, size, 0, len(self._steps), "kept from the first forward", "", node, None, shown)
        return Held(label, category, size, born, len(self._steps), f"kept once {node.name} has requested it", "", node, None, shown)


_MOMENTS: tuple[Moment, ...] = ("before", "cold", "warm")
UNITS = {group: Kind.BYTES for group in ("device_peak", "before", "cold", "warm", "fragmentation")}


def _allocator_report(subject: Pass, memory: DeviceMemory) -> Report:
    """Return everything about the allocator."""
    return Report(
        pass_name=subject.name,
        options=subject.text,
        headline=headline(memory),
        summary={"model": memory.model, **verdict_summary(memory), **peak_summary(memory), **counters_summary(memory)},
        units=UNITS,
        tables=(*_alive_tables(memory), *_segments(memory)),
        series=_series(memory),
        inferred=inferred_lives(subject.name) if memory.other_lives else "",
        coverage=Coverage(1 if memory.central is not None and not memory.is_open else 0, 1),
        notes=(CONVENTION, *(() if memory.footprint is None else (memory.footprint.note,)), *counters_notes(memory)),
    )


def headline(memory: DeviceMemory) -> tuple[str, ...]:
    """Return whether the model fits, in a line; nothing where that is not known."""
    return () if memory.central is None else verdict_line(memory.fits, memory.worst("reserved"), memory.target.device)


def verdict_line(fits: Quantity, reserved: Quantity, device: DeviceProfile) -> tuple[str, ...]:
    """Return the verdict with what it rests on; nothing where one of it is not known."""
    if device.room_bytes is None or reserved.value is None or fits.value is None:
        return ()
    room = humanise(device.room_bytes, Kind.BYTES)
    return (f"{'fits' if fits.value else 'does NOT fit'}: {signed(reserved, Kind.BYTES)} reserved of {room} on {device.title}",)


def verdict_summary(memory: DeviceMemory) -> dict[str, object]:
    """Return whether the model fits, and what is missing where it does not."""
    if memory.central is None or memory.moments is None:
        return {}
    missing = {} if memory.shortage is None else {"missing_bytes": memory.shortage.missing}
    return {"fits": memory.fits, **missing}


def peak_summary(memory: DeviceMemory) -> dict[str, object]:
    """Return the device's peak with its parts and what it adds to the memory before the run; where it is unknown, why."""
    footprint = memory.footprint
    if footprint is None:
        return {"device_peak_bytes": memory.worst("allocated")}
    return {**footprint.summary(), "device_peak_delta_bytes": memory.worst("allocated") - memory.counter("before", "allocated")}


def _alive_tables(memory: DeviceMemory) -> tuple[Table, ...]:
    """Return what is alive at the device's peak."""
    footprint = memory.footprint
    return () if footprint is None else (footprint.alive(0),)


def counters_summary(memory: DeviceMemory) -> dict[str, object]:
    """Return what reports of `liveness` and `cuda-memory` have in common."""
    target = memory.target
    found: dict[str, object] = {**target.to_json()}
    for moment in _MOMENTS:
        found[moment] = {counter: memory.counter(moment, counter) for counter in REPORTED}
    found["workspace_bytes"] = _workspace(memory)
    central, moments = memory.central, memory.moments
    if central is None or moments is None:
        return found
    found["fragmentation"] = {
        "reserved_not_allocated": memory.computed(central.at(COLD, "reserved") - central.at(COLD, "allocated")),
        "inactive_split": memory.computed(central[COLD].inactive_split),
    }
    return found


def inferred_lives(name: str) -> str:
    """Return what --strict says of live ranges that are modelled."""
    return f"{MODELLED_LIVES}; `--passes '{name}{{model=ssa}}'` is of running the file itself"


def counters_notes(memory: DeviceMemory) -> tuple[str, ...]:
    """Notes on the meaning of the numbers."""
    if memory.central is None:
        hint = f"; {typed(memory.fix)} makes them known" if memory.fix else ""
        return (f"no counters of the allocator: {memory.reason}{hint}",)
    return (
        f"before, cold and warm are torch.cuda.memory_stats() on {memory.target.text}: current once the model and its inputs are there, "
        "then the peaks of a first and a second forward under no_grad",
    )


def _workspace(memory: DeviceMemory) -> object:
    """Return the part of the first forward's peak that is modelled."""
    moments = memory.moments
    if moments is None:
        return Quantity(None, Provenance.UNKNOWN, note=memory.reason)
    spreads = memory.tape.spreads.values() if memory.tape is not None else ()
    reason = next((spread.reason for spread in spreads if spread.modelled), "")
    if not reason or memory.counter("cold", "requested").provenance is Provenance.EXACT:
        return 0
    assert memory.central is not None
    more = None if memory.most_of_kernels is None else asked_first(memory.most_of_kernels) - asked_first(memory.central)
    most = None if more is None else max(more + moments.modelled, 0)
    return Quantity(moments.modelled, Provenance.MODELLED, note=reason, lo=0, hi=most)


def _segments(memory: DeviceMemory) -> tuple[Table, ...]:
    """Return the segments of the allocator after the first forward."""
    if memory.central is None:
        return ()
    rows = [
        (
            number,
            "small" if segment.small else "large",
            segment.size,
            used,
            segment.size - used,
            max((block.size for block in segment.blocks if block.state == "inactive"), default=0),
            len(segment.blocks),
        )
        for number, segment in enumerate(memory.central[COLD].segments)
        for used in (sum(block.size for block in segment.blocks if block.state != "inactive"),)
    ]
    where = memory.computed(0).provenance
    sizes = [Column(key, Kind.BYTES, provenance=where) for key in ("size", "allocated", "free", "largest_free")]
    columns = [Column("segment", Kind.INDEX), Column("pool"), *sizes, Column("blocks", Kind.COUNT, provenance=where)]
    return (Table.of(rows, columns=columns, title="segments after the first forward"),)


def _series(memory: DeviceMemory) -> tuple[Series, ...]:
    """Allocated bytes by category over the steps of the forward with the higher peak, with the allocator's counters."""
    found, moments = memory.footprint, memory.highest
    if found is None or moments is None or not memory.steps:
        return ()
    steps = shown_steps(moments.allocated)
    columns: dict[str, Sequence[object]] = {}
    columns |= {
        "requested": moments.requested(),
        "allocated": moments.counted(moments.allocated),
        "reserved": moments.counted(moments.reserved),
    }
    data: dict[str, list[object]] = {"step": [*steps], **{key: [column[step] for step in steps] for key, column in columns.items()}}
    counters = tuple(Column(name, Kind.BYTES) for name in columns)
    mark = (Mark(moments.peak_step, "peak"),)
    return (*found.series(), Series(f"allocator, {found.run}", Column("step", Kind.COUNT), counters, data, marks=mark, stacked=False))
