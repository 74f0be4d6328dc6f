"""Memory, arithmetic, traffic and time as functions of sizes: requests are derived once and replayed at each point, formulas evaluated."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias, TypeVar

from irscope.devices import Target, find_device, target_of
from irscope.devices.profile import DeviceProfile
from irscope.errors import PassError
from irscope.immutable import mutable
from irscope.ir.bind import type_binder
from irscope.ir.dim_arrays import Evaluator
from irscope.ir.dims import Dim, SymDim, unknown
from irscope.ir.graph import Facet, Graph, Node, Value
from irscope.ir.types import Type
from irscope.memory.caching import BOUNDLESS, CachingAllocator, OutOfMemory
from irscope.memory.tape import REPORTED, End, Replayed, Unbounded
from irscope.ops.registry import find_op
from irscope.ops.spec import MemoryEvent, OpSpec, memory_events
from irscope.passes.cost.count import NodeCosts
from irscope.passes.cost.roofline import Roofline
from irscope.passes.cost.tables import cell
from irscope.passes.cost.time import Time
from irscope.passes.graph.alias import Strides
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.timeline import Timeline, limits_of
from irscope.passes.lifetimes.xla import XlaMemory
from irscope.passes.memory.cuda import Basis, CudaMemory, asked_first
from irscope.passes.memory.liveness import Liveness
from irscope.passes.memory.points import Peaks, Points, parse_points, peaks_at
from irscope.passes.memory.tapes import ForwardTape, operator_call
from irscope.passes.ort.memory import OrtMemory, session_at
from irscope.passes.sizes import CONVENTION, at_least
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

LifetimeModel: TypeAlias = Literal["auto", "ssa", "eager", "jit", "ort", "xla"]
"""Lifetime model, as in liveness."""


class Simulator:
    """Replays one model at many bindings."""

    def __init__(self, target: Target, tape: ForwardTape, basis: Basis, longest: Simulator | None = None) -> None:
        self.target = target
        self._longest = longest
        """Simulator with the longest possible live ranges, where they are modelled."""
        self._tape = tape
        self._basis = basis
        self._tapes: dict[Shape, ForwardTape] = {}
        """By what the kernels that are chosen by size ask for."""
        self._devices: dict[int | None, _Loaded] = {}
        self._formulas: dict[tuple[int, End], tuple[list[int], list[Dim]] | None] = {}
        """For a tape the number of each slot's formula, and the formulas; none without an upper bound."""

    @property
    def events(self) -> int:
        """Number of events to replay."""
        return len(self._tape.events)

    @cached_property
    def is_settled(self) -> bool:
        """Return whether only the sizes of requests depend on the symbols, not which requests are made."""
        return all(spread.modelled for spread in self._tape.spreads.values())

    def needed(self, points: Points) -> list[Replayed]:
        """Return what the allocator counts at each point where it never has to empty its cache."""
        return [counted for counted in self._boundless(points, "central") if counted is not None]

    def most(self, points: Points) -> list[Replayed | None]:
        """Return the same with everything that is not known or modelled at the upper end of its interval; None where nothing bounds it."""
        found = self._boundless(points, "high")
        if self._longest is None:
            return found
        pairs = zip(found, self._longest.most(points), strict=True)
        return [None if one is None or other is None else max(one, other, key=asked_first) for one, other in pairs]

    def _boundless(self, points: Points, end: End) -> list[Replayed | None]:
        device = self._loaded(BOUNDLESS)
        found: dict[int, Replayed | None] = {}
        for point, tape, sizes in self._requests(points, end):
            found[point] = None if sizes is None else device.count(tape, sizes)
        return [found[point] for point in range(len(points))]

    def under(self, points: Points, memory: int) -> list[Replayed | None]:
        """Return what it counts on a device that has just so much, emptying its cache where it must; None where memory runs out."""
        device = self._loaded(memory)
        found: dict[int, Replayed | None] = {}
        for point, tape, sizes in self._requests(points):
            assert sizes is not None
            found[point] = device.count(tape, sizes)
        return [found[point] for point in range(len(points))]

    def counted(self, points: Points) -> list[Replayed]:
        """Return what the allocator counts at each point; as on a boundless device where the model does not fit on its own."""
        device, boundless = self._loaded(self.target.device.room_bytes), self._loaded(BOUNDLESS)
        found: dict[int, Replayed] = {}
        for point, tape, sizes in self._requests(points):
            assert sizes is not None
            counted = device.count(tape, sizes) or boundless.count(tape, sizes)
            assert counted is not None
            found[point] = counted
        return [found[point] for point in range(len(points))]

    def _loaded(self, memory: int | None) -> _Loaded:
        """Return the device with so much memory: what is loaded once stays for the next question."""
        if memory not in self._devices:
            self._devices[memory] = _Loaded(self.target, memory, self._fixed)
        return self._devices[memory]

    @property
    def is_modelled(self) -> bool:
        """Return whether something is counted of which the size is not exact."""
        return not self._tape.is_exact or self._longest is not None

    @cached_property
    def _fixed(self) -> int:
        """Return how many of what is loaded come before the first that depends on a symbol."""
        load = self._basis.load
        return next((place for place, one in enumerate(load) if isinstance(one.size, SymDim)), len(load))

    def _requests(self, points: Points, end: End = "central") -> Iterator[tuple[int, ForwardTape, list[int] | None]]:
        """Yield for each point what is asked for, and how much; points with the same kernels come together."""
        if self.is_settled:
            yield from self._sized(range(len(points)), self._tape, points.columns, end)
            return
        alike: dict[Shape, list[tuple[int, list[int]]]] = {}
        for point, sizes in enumerate(points):
            shape, amounts = _shape_of(self._chosen(sizes))
            alike.setdefault(shape, []).append((point, amounts))
        for shape, group in alike.items():
            tape = self._tapes.get(shape)
            if tape is None:
                known = {node: events for nodes, events in zip(self._unsettled, _templates(shape), strict=True) for node in nodes}
                tape = self._tapes[shape] = self._basis.tape(self.target, known)
            columns = {name: [sizes[point] for point, _ in group] for name, sizes in points.columns.items()}
            columns.update(_placeholder_columns([amounts for _, amounts in group]))
            yield from self._sized([point for point, _ in group], tape, columns, end)

    def _sized(
        self, places: Sequence[int], tape: ForwardTape, columns: Mapping[str, Sequence[int]], end: End
    ) -> Iterator[tuple[int, ForwardTape, list[int] | None]]:
        key = id(tape), end  # a simulator keeps its tapes
        if key not in self._formulas:
            try:
                numbers: dict[Dim, int] = {}
                self._formulas[key] = [numbers.setdefault(formula, len(numbers)) for formula in tape.formulas(end)], list(numbers)
            except Unbounded:
                self._formulas[key] = None
        formula = self._formulas[key]
        sizes = None if formula is None else Evaluator(columns).rows(formula[1])[formula[0]]
        for column, point in enumerate(places):
            yield point, tape, None if sizes is None else sizes[:, column].tolist()

    @cached_property
    def _unsettled(self) -> list[list[Node]]:
        """Nodes whose kernels are chosen by size; those of which the rules of operators see the same are together."""
        tape = self._tape
        slots = {slot for slot, spread in tape.spreads.items() if not spread.modelled}
        steps = {bisect_right(tape.starts, place) - 1 for place, slot, is_taken in tape.requests() if is_taken and slot in slots}
        alike: dict[object, list[Node]] = {}
        for step in sorted(steps):
            node = self._basis.lifetimes.steps[step]
            alike.setdefault(self._seen_of(node), []).append(node)
        return list(alike.values())

    def _seen_of(self, node: Node) -> object:
        """Return what tells apart what rules see of nodes; of one with known values, the node."""
        call = operator_call(node, _spec_of(node), self._basis.types, self._basis.aliases.strides)
        if any(value is not None for value in call.values):
            return node
        return node.op, call.source, tuple(call.types), tuple(call.results), call.parameters, repr(call.attrs)

    def _chosen(self, sizes: Mapping[str, int]) -> list[Sequence[MemoryEvent]]:
        """Return what these nodes ask for at one binding."""
        bound = type_binder(sizes)
        types, strides = _BoundTypes(self._basis.types, bound), _BoundStrides(self._basis.aliases.strides, bound)
        return [memory_events(operator_call(one, _spec_of(one), types, strides), self.target) for one, *_ in self._unsettled]


def _spec_of(node: Node) -> OpSpec:
    spec = find_op(node.op)
    assert spec is not None
    return spec


def simulator(ctx: PassContext, model: LifetimeModel) -> Simulator | None:
    """Return what replays the model of a run; None where PyTorch's allocator does not run it, or sizes depend on data."""
    memory = ctx.get(CudaMemory(model=model))
    basis = memory.basis
    if memory.tape is None or basis is None or memory.is_open or basis.lifetimes.unsized:
        return None
    longest = memory.other_lives[-1] if memory.other_lives else None
    beside = None if longest is None else Simulator(memory.target, longest.tape(memory.target), longest)
    return Simulator(memory.target, memory.tape, basis, beside)


class _Loaded:
    """One device, on which a model is loaded once and run twice for each of many sizes; the first `fixed` tensors are those that stay."""

    def __init__(self, target: Target, total_memory: int | None, fixed: int) -> None:
        self._target = target
        self._total_memory = total_memory
        self._fixed = fixed
        self._weights: list[int] = []
        self._gpu: CachingAllocator | None = None

    def count(self, tape: ForwardTape, sizes: list[int]) -> Replayed | None:
        """Return what is counted for one size, None where memory runs out."""
        try:
            gpu = self._with([sizes[slot] for slot in tape.resident[: self._fixed]])
            replayed = tape.replay(gpu, sizes, loaded=self._fixed)
        except OutOfMemory:
            self._gpu = None
            return None
        # Where free blocks are ordered by their segment, emptying the cache leaves the allocator as it was.
        if self._target.release.order == "segment" and not self._target.alloc_conf:
            for block in replayed.held.values():
                gpu.free(block)
            gpu.empty_cache()
        else:
            self._gpu = None
        replayed.held.clear()
        return replayed

    def _with(self, weights: list[int]) -> CachingAllocator:
        if self._gpu is None or weights != self._weights:
            self._gpu = CachingAllocator.of(self._target, self._total_memory)
            self._weights = weights
            for size in weights:
                self._gpu.malloc(size)
        return self._gpu


class _BoundTypes(Inferred):
    """Inferred types with numbers for symbols."""

    def __init__(self, inferred: Inferred, bound: Callable[[Type], Type]) -> None:
        super().__init__(values=inferred.values)
        self._found = inferred
        self._bound = bound

    def type_of(self, value: Value | None) -> Type:
        return self._bound(self._found.type_of(value))


class _BoundStrides(Strides):
    """Types with strides, with numbers for symbols."""

    def __init__(self, strides: Strides, bound: Callable[[Type], Type]) -> None:
        self._found = strides
        self._bound = bound

    def type_of(self, value: Value | None) -> Type:
        return self._bound(self._found.type_of(value))


# Templates of requests: their sequence is shared by many sizes, only the amounts differ.

_AMOUNTS = frozenset({"size", "low", "high", "most"})
_IGNORED = frozenset({"reason"})

_Part: TypeAlias = "tuple[MemoryEvent, tuple[str, ...]]"
Shape: TypeAlias = "tuple[tuple[_Part, ...], ...]"
"""For each node its events without amounts, each with the fields that hold one."""


def _shape_of(nodes: Sequence[Sequence[MemoryEvent]]) -> tuple[Shape, list[int]]:
    """Return what nodes ask for, and the amounts in order. Raises PassError where an amount is not a number."""
    amounts: list[int] = []
    return tuple([tuple([_part(event, amounts) for event in events]) for events in nodes]), amounts


def _part(event: MemoryEvent, amounts: list[int]) -> _Part:
    changed: dict[str, Any] = {}
    filled: list[str] = []
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name in _AMOUNTS and value is not None:
            if not isinstance(value, int):
                raise PassError(f"a kernel's memory is not a number but {value}", code="IRS333")
            amounts.append(value)
            changed[field.name] = 0
            filled.append(field.name)
        elif field.name in _IGNORED:
            changed[field.name] = "" if isinstance(value, str) else None
    return replace(event, **changed), tuple(filled)


def _templates(shape: Shape) -> list[list[MemoryEvent]]:
    """Return the events again, with a placeholder for each amount, numbered in order."""
    number = 0
    found: list[list[MemoryEvent]] = []
    for parts in shape:
        events: list[MemoryEvent] = []
        for event, filled in parts:
            amounts: dict[str, Any] = {}
            for name in filled:
                amounts[name] = unknown(_placeholder(number))
                number += 1
            events.append(replace(event, **amounts))
        found.append(events)
    return found


def _placeholder_columns(amounts: Sequence[Sequence[int]]) -> Mapping[str, list[int]]:
    """Return the value of each placeholder, for points with these amounts."""
    return {f"?{_placeholder(number)}": list(column) for number, column in enumerate(zip(*amounts, strict=True))}


def _placeholder(number: int) -> str:
    return f"scratch_{number}"


class AtPoints(Protocol):
    """A result with an entry for each point."""

    def take(self, number: int, other: Self) -> None:
        """Put the one point of another result in the place of one of these."""


R = TypeVar("R", bound=AtPoints)


def at_points(ctx: PassContext, over: str, compute: Callable[[PassContext, Points], R]) -> R:
    """Return one analysis for all points; those at which the model is another one have their own."""
    points = parse_points([over], ctx.program)
    found = compute(ctx, points)
    for number, point in points.apart(ctx.program).items():
        own = ctx.at(next(iter(point)))
        if own is not None:
            found.take(number, compute(own, point))
    return found


def size_columns(points: Points) -> dict[Column, Sequence[object]]:
    """Return the sizes of each point, to begin a table with."""
    return {Column(points.names[symbol], Kind.COUNT): sizes for symbol, sizes in points.columns.items()}


# Peak memory over the sizes of symbols: the whole curve from one analysis.


@mutable
class PeakCurve:
    """Peaks at every point, with the timeline they come from."""

    points: Points
    peaks: Peaks
    nodes: list[str]
    """The node at each peak of activations."""
    timeline: Timeline
    counted: list[Replayed] | None
    """Counters of PyTorch's allocator at each point; None where it does not run such a model."""
    is_modelled: bool = False
    """True where the counters contain sizes that are not exact, as the workspaces of cuDNN."""

    @property
    def origin(self) -> Provenance:
        """Return where what is counted comes from."""
        return Provenance.MODELLED if self.is_modelled else Provenance.EXACT

    def take(self, number: int, other: PeakCurve) -> None:
        """Put the one point of another curve in the place of one of these."""
        self.peaks.activation[number], self.peaks.resident[number] = other.peaks.activation[0], other.peaks.resident[0]
        self.nodes[number] = other.nodes[0]
        if self.counted is not None and other.counted is not None:
            self.counted[number] = other.counted[0]


@dataclass(frozen=True)
class Curve(Analysis[PeakCurve]):
    """Compute peak memory as a function of the sizes of symbols, from one analysis."""

    name: ClassVar[str] = "curve"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    over: str = "batch=1..64"
    """Symbols and sizes, such as "batch=1..128" or "batch=1,2,4,seq=128..1024..128": every combination."""
    model: LifetimeModel = "auto"
    """Lifetime model, as in liveness."""
    allocator: bool = True
    """Also replay PyTorch's allocator at every point, for models that it runs."""

    def compute(self, graph: Graph, ctx: PassContext) -> PeakCurve:
        return at_points(ctx, self.over, self._curve)

    def _curve(self, ctx: PassContext, points: Points) -> PeakCurve:
        timeline = ctx.get(Liveness(model=self.model))
        peaks = peaks_at(timeline, points)
        replayed = simulator(ctx, self.model) if self.allocator else None
        counted = None if replayed is None else replayed.counted(points)
        nodes = [timeline.steps[step].name if timeline.steps else "" for step in peaks.step]
        is_modelled = timeline.peak_by_lives is not None or (replayed is not None and replayed.is_modelled)
        return PeakCurve(points, peaks, nodes, timeline, counted, is_modelled)

    def report(self, result: PeakCurve, ctx: PassContext) -> Report:
        points = result.points
        columns = _curve_columns(result)
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "model": result.timeline.model,
                "points": len(points),
                "symbols": ", ".join(f"{name} ({own})" if name != own else own for own, name in points.names.items()),
            },
            tables=(Table("peak by size", tuple(columns), {column.key: cells for column, cells in columns.items()}),),
            series=_series(result),
            notes=(*_notes(result, target_of(ctx.settings).text), *_undecided_notes(result.timeline)),
        )


def _curve_columns(result: PeakCurve) -> dict[Column, Sequence[object]]:
    """Return what is known at each point."""
    points, peaks = result.points, result.peaks
    columns = size_columns(points)
    columns[Column("activation_peak_bytes", Kind.BYTES, "activation peak")] = peaks.activation
    columns[Column("resident_bytes", Kind.BYTES, "weights and inputs")] = peaks.resident
    if result.counted is None:
        columns[Column("requested_bytes", Kind.BYTES, "together")] = peaks.total
    else:
        for counter in REPORTED:
            cells = [count.worst(counter) for count in result.counted]
            columns[Column(f"{counter}_bytes", Kind.BYTES, counter, provenance=result.origin)] = cells
    columns[Column("peak_node", Kind.NODE, "activation peak at")] = result.nodes
    return columns


def _notes(result: PeakCurve, target: str) -> Iterator[str]:
    if result.counted is None:
        yield "sizes as requested: no rounding by an allocator"
        return
    if result.is_modelled:
        yield "memory of unknown size, such as cuDNN's workspaces, is modelled: liveness at one size has the interval"
    yield f"requested, allocated and reserved are peaks of PyTorch's allocator on {target}, of the worse of two forward passes"


def _series(result: PeakCurve) -> tuple[Series, ...]:
    """Return the curve, where it is one: over several symbols it would be a surface."""
    if len(result.points.columns) != 1 or len(result.points) < 2:
        return ()
    ((symbol, sizes),) = result.points.columns.items()
    x = Column(result.points.names[symbol], Kind.COUNT)
    parts: dict[Column, list[int]] = {Column("resident", Kind.BYTES, "weights and inputs"): result.peaks.resident}
    if result.counted is None:
        parts[Column("activation", Kind.BYTES, "activation peak")] = result.peaks.activation
    else:
        worst = [count.worst("reserved") for count in result.counted]
        rest = [reserved - resident for reserved, resident in zip(worst, result.peaks.resident, strict=True)]
        parts[Column("working", Kind.BYTES, "reserved for everything else", provenance=result.origin)] = rest
    data = {x.key: sizes, **{column.key: cells for column, cells in parts.items()}}
    return (Series("memory by size", x, tuple(parts), data, sampled=True),)


def _undecided_notes(timeline: Timeline) -> Iterator[str]:
    if timeline.undecided:
        yield f"{timeline.undecided} results share or copy depending on strides that only bound sizes decide; they count as copies"


# The device's peak at many sizes: what the card, `run` and every other surface say at each of them.

_MOST_REPLAYED = 2_000
_MOST_READ_AGAIN = 64
"""Points that are replayed, or analysed one by one, at most: above that sizes are told as they are requested."""


@mutable
class DevicePeaks:
    """Peak of a device's allocated bytes, point by point."""

    bytes: list[int]
    what: str
    """Whose counter it is."""
    is_modelled: bool

    @property
    def origin(self) -> Provenance:
        """Return where they come from."""
        return Provenance.MODELLED if self.is_modelled else Provenance.EXACT


def device_peaks(ctx: PassContext, points: Points, model: LifetimeModel) -> DevicePeaks | None:
    """Return the peak that `liveness` tells at each point; None where only tensors are known, or points are too many."""
    if len(points) > _MOST_REPLAYED:
        return None
    timeline = ctx.get(Liveness(model=model))
    if timeline.model == "ort":
        return _session_peaks(ctx, points, model)
    if ctx.program.traits.lifetimes == "xla" and model in ("auto", "xla"):
        return _compiled_peaks(ctx, points)
    replayed = simulator(ctx, model)
    if replayed is None:
        return None
    counted = [one.worst("allocated") for one in replayed.counted(points)]
    what = f"torch.cuda.max_memory_allocated() on {target_of(ctx.settings).text}, of the worse of two forward passes"
    return DevicePeaks(counted, what, timeline.peak_by_lives is not None or replayed.is_modelled)


def _compiled_peaks(ctx: PassContext, points: Points) -> DevicePeaks | None:
    """Return the peaks of a program that XLA compiles: what it fuses is planned anew at each point."""
    if len(points) > _MOST_READ_AGAIN:
        return None
    bound = [ctx.at(sizes) for sizes in ctx.each(list(points), "planning", len(points))]
    totals = [None if one is None else one.get(XlaMemory()).total.value for one in bound]
    found = [total for total in totals if isinstance(total, int)]
    return DevicePeaks(found, "arguments, results and temporaries, by XLA's rules of fusion", True) if len(found) == len(points) else None


def _session_peaks(ctx: PassContext, points: Points, model: LifetimeModel) -> DevicePeaks | None:
    """Return the peaks of a session of ONNX Runtime."""
    plan, found = ctx.get(OrtMemory()), list[Quantity]()
    if plan.cuda is None and len(points) > _MOST_READ_AGAIN:
        return None
    for sizes in ctx.each(list(points), "replaying", len(points)):
        if plan.cuda is not None:
            session = session_at(ctx, OrtMemory(), sizes)
            peak = None if session is None else session[0].worst(session[1], "allocated")
        else:
            bound = ctx.at(sizes)
            footprint = None if bound is None else bound.get(Liveness(model=model)).footprint
            peak = None if footprint is None or footprint.of != "device" else footprint.peak
        if peak is None or not isinstance(peak.value, int):
            return None
        found.append(peak)
    where = "" if plan.cuda is None else f" on {plan.cuda.device.title}"
    beside = "weights and inputs, and " if plan.cuda is None else ""
    what = f"{beside}the most that ONNX Runtime's arena{where} has in use, in the higher of the first two runs"
    modelled = any(one.provenance is not Provenance.EXACT for one in found)
    return DevicePeaks([one.value for one in found if isinstance(one.value, int)], what, modelled)


# Memory, arithmetic, traffic and least time over the sizes of symbols, in one table from one analysis.

_ORIGINS = dict.fromkeys(("seconds", "least_seconds", "per_second"), Provenance.MODELLED)
MOST_TIMED = 2_000
"""Each point of the time costs a walk over the nodes; the other columns are formulas."""


@mutable
class Swept:
    """Everything by point, and the formulas it comes from. A column is None where it depends on something unknown."""

    device: DeviceProfile
    points: Points
    peaks: Peaks
    flops: list[int] | None
    bytes: list[int] | None
    times: list[Quantity] | None
    """Predicted, with their intervals."""
    least: list[float] | None
    totals: dict[str, object]
    model: str
    missing: int
    """Nodes without a known cost."""
    on_device: DevicePeaks | None = None
    """The device's peaks; None where only tensors are known."""

    @property
    def peak(self) -> tuple[Column, list[int]]:
        """Return the peaks that are told: the device's, or those of tensors under a name of their own."""
        if self.on_device is None:
            return Column("tensor_peak_bytes", Kind.BYTES, "tensor peak"), self.peaks.total
        return Column("peak_bytes", Kind.BYTES, "peak memory", provenance=self.on_device.origin), self.on_device.bytes

    def take(self, number: int, other: Swept) -> None:
        """Put the one point of another sweep in the place of one of these."""
        peaks, own = self.peaks, other.peaks
        if self.on_device is not None and other.on_device is not None:
            self.on_device.bytes[number] = other.on_device.bytes[0]
        else:
            self.on_device = None
        for column, found in (
            *((peaks.activation, own.activation), (peaks.step, own.step), (peaks.resident, own.resident)),
            *((self.flops, other.flops), (self.bytes, other.bytes), (self.times, other.times), (self.least, other.least)),
        ):
            if column is not None and found is not None:
                column[number] = found[0]  # type: ignore[assignment]


@dataclass(frozen=True)
class Sweep(Analysis[Swept]):
    """Compute memory, FLOPs, bytes and time at many sizes of symbols."""

    name: ClassVar[str] = "sweep"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    over: str = "batch=1,2,4,8,16"
    """Symbols and sizes, such as "batch=1..16,seq=128..1024..128": every combination."""
    device: str = ""
    """A device, "this" or a device file; default: what --device says, else h200."""
    dtype: str = ""
    """Element type that the least time takes every floating-point tensor to have; default: as the model has them."""
    model: LifetimeModel = "auto"
    """Lifetime model, as in liveness."""

    def compute(self, graph: Graph, ctx: PassContext) -> Swept:
        return at_points(ctx, self.over, self._swept)

    def _swept(self, ctx: PassContext, points: Points) -> Swept:
        timeline = ctx.get(Liveness(model=self.model))
        costs = ctx.get(NodeCosts())
        device = find_device(self.device) if self.device else target_of(ctx.settings).device
        tally = costs.tally
        # The upper limits; where there are none, what is known, unless that is nothing.
        flops = _unless_open(tally.value("flops"), tally.limits("flops"))
        moved = _unless_open(tally.moved, tally.moved_limits)
        evaluator = Evaluator(points.columns)
        return Swept(
            device,
            points,
            peaks_at(timeline, points),
            _column(evaluator, flops),
            _column(evaluator, moved),
            *(self._times(points, ctx) if len(points) <= MOST_TIMED else (None, None)),
            {"flops": cell(tally.value("flops"), tally.limits("flops")), "bytes": cell(tally.moved, tally.moved_limits)},
            timeline.model,
            costs.missing,
            # Requests are those of the run's own device.
            device_peaks(ctx, points, self.model) if device == target_of(ctx.settings).device else None,
        )

    def _times(self, points: Points, ctx: PassContext) -> tuple[list[Quantity] | None, list[float] | None]:
        """Return the predicted and the least time at each point; None where it is unknown for every node, or nothing is predicted for
        another element type."""
        roofline, timer = Roofline(device=self.device, dtype=self.dtype), Time(device=self.device)
        times, least = list[Quantity](), list[float]()
        for sizes in ctx.each(list(points), "timing", len(points)):
            bounds = roofline.at(ctx, sizes)
            if len(bounds.unknown) < len(bounds.nodes) or not bounds.nodes:
                least.append(bounds.least)
            timing = None if self.dtype else timer.at(ctx.program.graph, ctx, sizes, bounds)
            if timing is not None and timing.seconds:
                times.append(timing.quantity())
        return times if len(times) == len(points) else None, least if len(least) == len(points) else None

    def report(self, result: Swept, ctx: PassContext) -> Report:
        columns = _swept_columns(result)
        notes = [
            CONVENTION,
            *([] if result.on_device is None else [f"peak memory: {result.on_device.what}"]),
            f"{'tensor peak and ' if result.on_device is None else ''}activations: freed as {result.model} does, sizes as requested, "
            "without an allocator's rounding",
            f"time: predicted for {result.device.title}{'' if not result.times else f', {result.times[0].note}'}; least: no run is quicker",
        ]
        if result.missing:
            notes.append(f"the cost of {result.missing} nodes is unknown: FLOPs, bytes and time are those of the others")
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "points": len(result.points),
                "device": result.device.title,
                "total_flops": result.totals["flops"],
                "moved_bytes": result.totals["bytes"],
            },
            units={"points": Kind.COUNT},
            tables=(Table("sweep", tuple(columns), {column.key: cells for column, cells in columns.items()}),),
            series=curves(result),
            notes=tuple(notes),
        )


def _unless_open(value: Dim, limits: tuple[Dim, Dim | None]) -> Dim | None:
    return None if limits[1] is None and value == 0 else value


def _column(evaluator: Evaluator, amount: Dim | None) -> list[int] | None:
    """Return a formula at every point; None where part of it is unknown whatever is bound."""
    if amount is None or (isinstance(amount, SymDim) and amount.is_unknown):
        return None
    return [int(number) for number in evaluator.at(amount).tolist()]


def _swept_columns(result: Swept) -> dict[Column, Sequence[object]]:
    points, peaks = result.points, result.peaks
    nothing: list[None] = [None] * len(points)
    columns = size_columns(points)
    column, cells = result.peak
    columns[column] = cells
    columns[Column("activation_peak_bytes", Kind.BYTES, "activations")] = peaks.activation
    columns[Column("flops", Kind.FLOPS)] = _swept_cells(result.flops, result) or nothing
    columns[Column("moved_bytes", Kind.BYTES, "bytes moved")] = _swept_cells(result.bytes, result) or nothing
    columns[Column("seconds", Kind.SECONDS, "time", provenance=_ORIGINS["seconds"])] = _middles(result.times) or nothing
    for key, place in (("low_seconds", 0), ("high_seconds", 1)):
        ends = nothing if result.times is None else [time.ends[place] for time in result.times]
        columns[Column(key, Kind.SECONDS, provenance=Provenance.MODELLED, detail=True)] = ends
    columns[Column("least_seconds", Kind.SECONDS, "least time", provenance=_ORIGINS["least_seconds"])] = result.least or nothing
    return columns


def _swept_cells(amounts: Sequence[int] | None, result: Swept) -> Sequence[object] | None:
    """Amounts that are lower bounds where the cost of a node is unknown."""
    return amounts if amounts is None or not result.missing else [at_least(amount, False) for amount in amounts]


def curves(result: Swept) -> tuple[Series, ...]:
    """Return each quantity over the one symbol that was swept, and what follows from size and time; none where there were several."""
    if len(result.points.columns) != 1 or len(result.points) < 2:
        return ()
    ((symbol, sizes),) = result.points.columns.items()
    x = Column(result.points.names[symbol], Kind.COUNT)
    peak, heights = result.peak
    measures: list[tuple[str, Kind, str, Sequence[object] | None]] = [
        (peak.key, Kind.BYTES, peak.title, heights),
        ("flops", Kind.FLOPS, "FLOPs", result.flops),
        ("moved_bytes", Kind.BYTES, "bytes moved", result.bytes),
        ("seconds", Kind.SECONDS, "time", _middles(result.times)),
        ("per_second", Kind.COUNT, "throughput", _per_second(sizes, _middles(result.times))),
    ]
    origins = {**_ORIGINS, peak.key: peak.provenance}
    columns = {key: Column(key, kind, title, provenance=origins.get(key, Provenance.EXACT)) for key, kind, title, _ in measures}
    return tuple(
        Series(
            title,
            x,
            (columns[key],),
            {x.key: sizes, key: cells},
            stacked=False,
            sampled=True,
            limits=limits_of(result.device) if key == peak.key else (),
        )
        for key, _, title, cells in measures
        if cells is not None
    )


def _middles(times: Sequence[Quantity] | None) -> Sequence[float | None] | None:
    """Predicted times without their intervals; None where none is known."""
    return None if times is None else [time.value if isinstance(time.value, float) else None for time in times]


def _per_second(sizes: Sequence[int], seconds: Sequence[float | None] | None) -> Sequence[object] | None:
    """Return how many of the symbol a second has."""
    return None if seconds is None else [size / time if time else None for size, time in zip(sizes, seconds, strict=True)]
