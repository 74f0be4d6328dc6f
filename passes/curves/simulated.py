"""What PyTorch's allocator counts at any binding of the symbols: its requests are derived once and replayed for each binding."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Literal, TypeAlias

from irscope.devices import Target
from irscope.ir.bind import type_binder
from irscope.ir.dim_arrays import Evaluator, Numbers
from irscope.ir.dims import SymDim
from irscope.ir.graph import Node, Value
from irscope.ir.types import Type
from irscope.memory.caching import BOUNDLESS
from irscope.ops.registry import find_op
from irscope.ops.spec import MemoryEvent, memory_events
from irscope.passes.cuda.result import Basis
from irscope.passes.cuda.scripts import Load
from irscope.passes.cuda.stream import Stream, forward_stream, operator_call
from irscope.passes.cuda.tape import End, Unbounded
from irscope.passes.cuda_memory import CudaMemory
from irscope.passes.curves.points import Points
from irscope.passes.curves.replaying import Counted, Replayer
from irscope.passes.curves.templates import Shape, placeholder_columns, shape_of, templates
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.strides import Strides
from irscope.passkit.base import PassContext

LifetimeModel: TypeAlias = Literal["auto", "ssa", "eager", "jit", "ort"]
"""Lifetime model, as in liveness."""


class Simulator:
    """Replays one model at many bindings."""

    def __init__(self, target: Target, load: Load, stream: Stream, basis: Basis) -> None:
        self.target = target
        self._load = load
        self._stream = stream
        self._lifetimes = basis.lifetimes
        self._aliases = basis.aliases
        self._types = basis.types
        self._streams: dict[Shape, Stream] = {}
        """By what the kernels that are chosen by size ask for."""

    @property
    def events(self) -> int:
        """Number of events to replay."""
        return len(self._stream.events)

    @cached_property
    def is_settled(self) -> bool:
        """Whether only the sizes of requests depend on the symbols, not which requests are made."""
        return all(spread.modelled for spread in self._stream.spreads.values())

    def needed(self, points: Points) -> list[Counted]:
        """What the allocator counts at each point where it never has to empty its cache."""
        return [counted for counted in self._boundless(points, "central") if counted is not None]

    def most(self, points: Points) -> list[Counted | None]:
        """The same with everything that is not known or modelled at the upper end of its interval; None where nothing bounds it."""
        return self._boundless(points, "high")

    def _boundless(self, points: Points, end: End) -> list[Counted | None]:
        device = Replayer(self.target, BOUNDLESS)
        found: dict[int, Counted | None] = {}
        for point, resident, stream, sizes in self._requests(points, end):
            found[point] = None if sizes is None else device.count(resident, self._fixed, stream, sizes)
        return [found[point] for point in range(len(points))]

    def under(self, points: Points, memory: int) -> list[Counted | None]:
        """What it counts on a device that has just so much, emptying its cache where it must; None where memory runs out."""
        device = Replayer(self.target, memory)
        found: dict[int, Counted | None] = {}
        for point, resident, stream, sizes in self._requests(points):
            assert sizes is not None
            found[point] = device.count(resident, self._fixed, stream, sizes)
        return [found[point] for point in range(len(points))]

    def counted(self, points: Points) -> list[Counted]:
        """What the allocator counts at each point; as on a boundless device where the model does not fit on its own."""
        device, boundless = Replayer(self.target, self.target.device.room_bytes), Replayer(self.target, BOUNDLESS)
        found: dict[int, Counted] = {}
        for point, resident, stream, sizes in self._requests(points):
            assert sizes is not None
            counted = device.count(resident, self._fixed, stream, sizes) or boundless.count(resident, self._fixed, stream, sizes)
            assert counted is not None
            found[point] = counted
        return [found[point] for point in range(len(points))]

    @property
    def is_modelled(self) -> bool:
        """Whether something is counted of which the size is not exact."""
        return not self._stream.is_exact

    @cached_property
    def _fixed(self) -> int:
        """How many of what is loaded come before the first that depends on a symbol."""
        return next((place for place, size in enumerate(self._load.sizes) if isinstance(size, SymDim)), len(self._load.sizes))

    def _requests(self, points: Points, end: End = "central") -> Iterator[tuple[int, list[int], Stream, Numbers | None]]:
        """For each point what is loaded, what is asked for, and how much; points with the same kernels come together."""
        if self.is_settled:
            yield from self._sized(range(len(points)), self._stream, points.columns, end)
            return
        alike: dict[Shape, list[tuple[int, list[int]]]] = {}
        for point, sizes in enumerate(points):
            shape, amounts = shape_of(self._chosen(sizes))
            alike.setdefault(shape, []).append((point, amounts))
        for shape, group in alike.items():
            stream = self._streams.get(shape)
            if stream is None:
                known = dict(zip(self._unsettled, templates(shape), strict=True))
                stream = self._streams[shape] = forward_stream(self._lifetimes, self._aliases, self._types, self.target, known)
            columns = {name: [sizes[point] for point, _ in group] for name, sizes in points.columns.items()}
            columns.update(placeholder_columns([amounts for _, amounts in group]))
            yield from self._sized([point for point, _ in group], stream, columns, end)

    def _sized(
        self, places: Sequence[int], stream: Stream, columns: Mapping[str, Sequence[int]], end: End
    ) -> Iterator[tuple[int, list[int], Stream, Numbers | None]]:
        evaluator = Evaluator(columns)
        resident, sizes = evaluator.rows(self._load.sizes), None
        with suppress(Unbounded):
            sizes = evaluator.rows(stream.formulas(end))
        for column, point in enumerate(places):
            yield point, resident[:, column].tolist(), stream, None if sizes is None else sizes[:, column]

    @cached_property
    def _unsettled(self) -> list[Node]:
        """Nodes whose kernels are chosen by size."""
        stream = self._stream
        slots = {slot for slot, spread in stream.spreads.items() if not spread.modelled}
        steps = {bisect_right(stream.starts, place) - 1 for place, event in enumerate(stream.events) if event in slots}
        return [self._lifetimes.steps[step] for step in sorted(steps)]

    def _chosen(self, sizes: Mapping[str, int]) -> list[Sequence[MemoryEvent]]:
        """What these nodes ask for at one binding."""
        bound = type_binder(sizes)
        types, strides = _BoundTypes(self._types, bound), _BoundStrides(self._aliases.strides, bound)
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
    if memory.stream is None or memory.load is None or basis is None or memory.is_open or basis.lifetimes.unsized:
        return None
    return Simulator(memory.target, memory.load, memory.stream, basis)


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
