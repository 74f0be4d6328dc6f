"""What PyTorch's allocator counts at any binding of the symbols: its requests are derived once and replayed for each binding."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from irscope.devices import Target
from irscope.errors import PassError
from irscope.ir.bind import type_binder
from irscope.ir.dim_arrays import Evaluator
from irscope.ir.dims import SymDim, unknown
from irscope.ir.graph import Node, Value
from irscope.ir.types import Type
from irscope.memory.caching import BOUNDLESS, CachingAllocator, OutOfMemory
from irscope.memory.tape import End, Replayed, Unbounded
from irscope.ops.registry import find_op
from irscope.ops.spec import MemoryEvent, memory_events
from irscope.passes.curves.points import Points
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.strides import Strides
from irscope.passes.memory.cuda import Basis, CudaMemory
from irscope.passes.memory.tapes import ForwardTape, operator_call
from irscope.passkit.base import PassContext

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
