"""Peak memory as a function of sizes: what an allocator asks for is derived once, and replayed at each point."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

from irscope.devices import Target, target_of
from irscope.errors import PassError
from irscope.ir.bind import type_binder
from irscope.ir.dim_arrays import Evaluator
from irscope.ir.dims import SymDim, unknown
from irscope.ir.graph import Facet, Graph, Node, Value
from irscope.ir.types import Type
from irscope.memory.caching import BOUNDLESS, CachingAllocator, OutOfMemory
from irscope.memory.tape import End, Replayed, Unbounded
from irscope.ops.registry import find_op
from irscope.ops.spec import MemoryEvent, memory_events
from irscope.passes.graph.alias import Strides
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.timeline import Timeline
from irscope.passes.memory.cuda import Basis, CudaMemory
from irscope.passes.memory.liveness import Liveness
from irscope.passes.memory.points import Peaks, Points, parse_points, peaks_at
from irscope.passes.memory.tapes import ForwardTape, operator_call
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance

LifetimeModel: TypeAlias = Literal["auto", "ssa", "eager", "jit", "ort"]
"""Lifetime model, as in liveness."""


class Simulator:
    """Replays one model at many bindings."""

    def __init__(self, target: Target, tape: ForwardTape, basis: Basis) -> None:
        self.target = target
        self._tape = tape
        self._basis = basis
        self._tapes: dict[Shape, ForwardTape] = {}
        """By what the kernels that are chosen by size ask for."""

    @property
    def events(self) -> int:
        """Number of events to replay."""
        return len(self._tape.events)

    @cached_property
    def is_settled(self) -> bool:
        """Whether only the sizes of requests depend on the symbols, not which requests are made."""
        return all(spread.modelled for spread in self._tape.spreads.values())

    def needed(self, points: Points) -> list[Replayed]:
        """What the allocator counts at each point where it never has to empty its cache."""
        return [counted for counted in self._boundless(points, "central") if counted is not None]

    def most(self, points: Points) -> list[Replayed | None]:
        """The same with everything that is not known or modelled at the upper end of its interval; None where nothing bounds it."""
        return self._boundless(points, "high")

    def _boundless(self, points: Points, end: End) -> list[Replayed | None]:
        device = _Loaded(self.target, BOUNDLESS, self._fixed)
        found: dict[int, Replayed | None] = {}
        for point, tape, sizes in self._requests(points, end):
            found[point] = None if sizes is None else device.count(tape, sizes)
        return [found[point] for point in range(len(points))]

    def under(self, points: Points, memory: int) -> list[Replayed | None]:
        """What it counts on a device that has just so much, emptying its cache where it must; None where memory runs out."""
        device = _Loaded(self.target, memory, self._fixed)
        found: dict[int, Replayed | None] = {}
        for point, tape, sizes in self._requests(points):
            assert sizes is not None
            found[point] = device.count(tape, sizes)
        return [found[point] for point in range(len(points))]

    def counted(self, points: Points) -> list[Replayed]:
        """What the allocator counts at each point; as on a boundless device where the model does not fit on its own."""
        device, boundless = (_Loaded(self.target, room, self._fixed) for room in (self.target.device.room_bytes, BOUNDLESS))
        found: dict[int, Replayed] = {}
        for point, tape, sizes in self._requests(points):
            assert sizes is not None
            counted = device.count(tape, sizes) or boundless.count(tape, sizes)
            assert counted is not None
            found[point] = counted
        return [found[point] for point in range(len(points))]

    @property
    def is_modelled(self) -> bool:
        """Whether something is counted of which the size is not exact."""
        return not self._tape.is_exact

    @cached_property
    def _fixed(self) -> int:
        """How many of what is loaded come before the first that depends on a symbol."""
        load = self._basis.load
        return next((place for place, one in enumerate(load) if isinstance(one.size, SymDim)), len(load))

    def _requests(self, points: Points, end: End = "central") -> Iterator[tuple[int, ForwardTape, list[int] | None]]:
        """For each point what is asked for, and how much; points with the same kernels come together."""
        if self.is_settled:
            yield from _sized(range(len(points)), self._tape, points.columns, end)
            return
        alike: dict[Shape, list[tuple[int, list[int]]]] = {}
        for point, sizes in enumerate(points):
            shape, amounts = _shape_of(self._chosen(sizes))
            alike.setdefault(shape, []).append((point, amounts))
        for shape, group in alike.items():
            tape = self._tapes.get(shape)
            if tape is None:
                known = dict(zip(self._unsettled, _templates(shape), strict=True))
                tape = self._tapes[shape] = self._basis.tape(self.target, known)
            columns = {name: [sizes[point] for point, _ in group] for name, sizes in points.columns.items()}
            columns.update(_placeholder_columns([amounts for _, amounts in group]))
            yield from _sized([point for point, _ in group], tape, columns, end)

    @cached_property
    def _unsettled(self) -> list[Node]:
        """Nodes whose kernels are chosen by size."""
        tape = self._tape
        slots = {slot for slot, spread in tape.spreads.items() if not spread.modelled}
        steps = {bisect_right(tape.starts, place) - 1 for place, event in enumerate(tape.events) if event in slots}
        return [self._basis.lifetimes.steps[step] for step in sorted(steps)]

    def _chosen(self, sizes: Mapping[str, int]) -> list[Sequence[MemoryEvent]]:
        """What these nodes ask for at one binding."""
        bound = type_binder(sizes)
        types, strides = _BoundTypes(self._basis.types, bound), _BoundStrides(self._basis.aliases.strides, bound)
        found: list[Sequence[MemoryEvent]] = []
        for node in self._unsettled:
            spec = find_op(node.op)
            assert spec is not None
            found.append(memory_events(operator_call(node, spec, types, strides), self.target))
        return found


def simulator(ctx: PassContext, model: LifetimeModel) -> Simulator | None:
    """What replays the model of a run; None where PyTorch's allocator does not run it, or sizes depend on data."""
    memory = ctx.get(CudaMemory(model=model))
    basis = memory.basis
    if memory.tape is None or basis is None or memory.is_open or basis.lifetimes.unsized:
        return None
    return Simulator(memory.target, memory.tape, basis)


def _sized(
    places: Sequence[int], tape: ForwardTape, columns: Mapping[str, Sequence[int]], end: End
) -> Iterator[tuple[int, ForwardTape, list[int] | None]]:
    sizes = None
    with suppress(Unbounded):
        sizes = Evaluator(columns).rows(tape.formulas(end))
    for column, point in enumerate(places):
        yield point, tape, None if sizes is None else sizes[:, column].tolist()


_SEGMENTS_FIRST = (2, 13)
"""Since then free blocks are ordered by their segment, so that emptying the cache leaves the allocator as it was."""


class _Loaded:
    """One device, on which a model is loaded once and run twice for each of many sizes; the first `fixed` tensors are those that stay."""

    def __init__(self, target: Target, total_memory: int | None, fixed: int) -> None:
        self._target = target
        self._total_memory = total_memory
        self._fixed = fixed
        self._weights: list[int] = []
        self._gpu: CachingAllocator | None = None

    def count(self, tape: ForwardTape, sizes: list[int]) -> Replayed | None:
        """What is counted for one size, None where memory runs out."""
        try:
            gpu = self._with([sizes[slot] for slot in tape.resident[: self._fixed]])
            found = tape.replay(gpu, sizes, loaded=self._fixed)
        except OutOfMemory:
            self._gpu = None
            return None
        if self._target.torch >= _SEGMENTS_FIRST and not self._target.alloc_conf:
            for block in found.held.values():
                gpu.free(block)
            gpu.empty_cache()
        else:
            self._gpu = None
        found.held.clear()
        return found

    def _with(self, weights: list[int]) -> CachingAllocator:
        if self._gpu is None or weights != self._weights:
            self._gpu = CachingAllocator.of(self._target, self._total_memory)
            self._weights = weights
            for size in weights:
                self._gpu.malloc(size)
        return self._gpu


class _BoundTypes(Inferred):
    """Inferred types with numbers for symbols."""

    def __init__(self, found: Inferred, bound: Callable[[Type], Type]) -> None:
        super().__init__(values=found.values)
        self._found = found
        self._bound = bound

    def type_of(self, value: Value | None) -> Type:
        return self._bound(self._found.type_of(value))


class _BoundStrides(Strides):
    """Types with strides, with numbers for symbols."""

    def __init__(self, found: Strides, bound: Callable[[Type], Type]) -> None:
        self._found = found
        self._bound = bound

    def type_of(self, value: Value | None) -> Type:
        return self._bound(self._found.type_of(value))


# ----------------------------------------------------------------------------------------------------
# Templates of requests: their sequence is shared by many sizes, only the amounts differ.

_AMOUNTS = frozenset({"size", "low", "high", "most"})
_IGNORED = frozenset({"reason"})

_Part: TypeAlias = "tuple[MemoryEvent, tuple[str, ...]]"
Shape: TypeAlias = "tuple[tuple[_Part, ...], ...]"
"""For each node its events without amounts, each with the fields that hold one."""


def _shape_of(nodes: Sequence[Sequence[MemoryEvent]]) -> tuple[Shape, list[int]]:
    """What nodes ask for, and the amounts in order. Raises PassError where an amount is no number."""
    amounts: list[int] = []
    return tuple([tuple([_part(event, amounts) for event in events]) for events in nodes]), amounts


def _part(event: MemoryEvent, amounts: list[int]) -> _Part:
    changed: dict[str, Any] = {}
    filled: list[str] = []
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name in _AMOUNTS and value is not None:
            if not isinstance(value, int):
                raise PassError(f"a kernel's memory is no number but {value}", code="IRS333")
            amounts.append(value)
            changed[field.name] = 0
            filled.append(field.name)
        elif field.name in _IGNORED:
            changed[field.name] = "" if isinstance(value, str) else None
    return replace(event, **changed), tuple(filled)


def _templates(shape: Shape) -> list[list[MemoryEvent]]:
    """The events again, with a placeholder for each amount, numbered in order."""
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
    """The value of each placeholder, for points with these amounts."""
    return {f"?{_placeholder(number)}": list(column) for number, column in enumerate(zip(*amounts, strict=True))}


def _placeholder(number: int) -> str:
    return f"scratch_{number}"


# ----------------------------------------------------------------------------------------------------
# Peak memory over the sizes of symbols: the whole curve from one analysis.


@dataclass
class PeakCurve:
    """Peaks at every point, with the timeline they come from."""

    points: Points
    peaks: Peaks
    nodes: list[str]
    """The node at each peak of activations."""
    timeline: Timeline
    counted: list[Replayed] | None
    """What PyTorch's allocator counts at each point; None where it does not run such a model."""
    is_modelled: bool = False
    """Whether what is counted contains sizes that are not exact, as the workspaces of cuDNN."""

    @property
    def origin(self) -> Provenance:
        """Where what is counted comes from."""
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
        points = parse_points([self.over], ctx.program)
        found = self._curve(ctx, points)
        for number, point in points.apart(ctx.program).items():
            own = ctx.at(next(iter(point)))
            if own is not None:
                found.take(number, self._curve(own, point))
        return found

    def _curve(self, ctx: PassContext, points: Points) -> PeakCurve:
        timeline = ctx.get(Liveness(model=self.model))
        peaks = peaks_at(timeline, points)
        replayed = simulator(ctx, self.model) if self.allocator else None
        counted = None if replayed is None else replayed.counted(points)
        nodes = [timeline.steps[step].name if timeline.steps else "" for step in peaks.step]
        return PeakCurve(points, peaks, nodes, timeline, counted, replayed is not None and replayed.is_modelled)

    def report(self, result: PeakCurve, ctx: PassContext) -> Report:
        points = result.points
        columns = _columns(result)
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
            notes=(*_notes(result, target_of(ctx.settings).text), *_undecided(result.timeline)),
        )


def _columns(result: PeakCurve) -> dict[Column, Sequence[object]]:
    """What is known at each point."""
    points, peaks = result.points, result.peaks
    found: dict[Column, Sequence[object]] = {Column(points.names[symbol], Kind.COUNT): sizes for symbol, sizes in points.columns.items()}
    found[Column("activation_peak_bytes", Kind.BYTES, "activation peak")] = peaks.activation
    found[Column("resident_bytes", Kind.BYTES, "weights and inputs")] = peaks.resident
    if result.counted is None:
        found[Column("requested_bytes", Kind.BYTES, "together")] = peaks.total
    else:
        for counter in ("requested", "allocated", "reserved"):
            cells = [one.worst(counter) for one in result.counted]
            found[Column(f"{counter}_bytes", Kind.BYTES, counter, provenance=result.origin)] = cells
    found[Column("peak_node", Kind.NODE, "activation peak at")] = result.nodes
    return found


def _notes(result: PeakCurve, target: str) -> Iterator[str]:
    if result.counted is None:
        yield "sizes as asked for: no rounding by an allocator"
        return
    if result.is_modelled:
        yield "memory of unknown size, such as cuDNN's workspaces, is modelled: liveness at one size has the interval"
    yield f"requested, allocated and reserved are peaks of PyTorch's allocator on {target}, of the worse of two forward passes"


def _series(result: PeakCurve) -> tuple[Series, ...]:
    """The curve, where it is one: over several symbols it would be a surface."""
    if len(result.points.columns) != 1 or len(result.points) < 2:
        return ()
    ((symbol, sizes),) = result.points.columns.items()
    x = Column(result.points.names[symbol], Kind.COUNT)
    parts: dict[Column, list[int]] = {Column("resident", Kind.BYTES, "weights and inputs"): result.peaks.resident}
    if result.counted is None:
        parts[Column("activation", Kind.BYTES, "activation peak")] = result.peaks.activation
    else:
        worst = [one.worst("reserved") for one in result.counted]
        rest = [reserved - resident for reserved, resident in zip(worst, result.peaks.resident, strict=True)]
        parts[Column("working", Kind.BYTES, "reserved for everything else", provenance=result.origin)] = rest
    data = {x.key: sizes, **{column.key: cells for column, cells in parts.items()}}
    return (Series("memory by size", x, tuple(parts), data, sampled=True),)


def _undecided(timeline: Timeline) -> Iterator[str]:
    if timeline.undecided:
        yield f"{timeline.undecided} results share or copy depending on strides that only bound sizes decide; they count as copies"
