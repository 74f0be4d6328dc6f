"""A recording of models that PyTorch's allocator does not run: sizes as they are asked for, each tensor at an address of its own."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.errors import PassError
from irscope.ir.bind import bind_option, typed
from irscope.ir.dims import Dim, SymDim
from irscope.memory.caching import Segment
from irscope.memory.caching.blocks import BlockState
from irscope.passes.exports.recording import LOADING, Event, Owner, Recording
from irscope.passes.inference.remedies import SHAPES_HINT
from irscope.passes.lifetimes.lives import LiveRange, label_of
from irscope.passes.lifetimes.timeline import Timeline

_GRAIN = 512
_MOST_NAMES = 3
"""Tensors of one buffer that are named."""


def record_requests(timeline: Timeline) -> Recording:
    """One run, without segments. Raises PassError where a size is no number."""
    check_numbers([*timeline.alive, *(size for size in timeline.resident.values() if size is not None)])
    return _Recorder(timeline).run()


def check_numbers(sizes: Sequence[Dim]) -> None:
    """Raise PassError, with what would help, where a size is no number."""
    symbols = {symbol for size in sizes if isinstance(size, SymDim) for symbol in size.symbols()}
    names = sorted(str(symbol) for symbol in symbols if not symbol.is_unknown)
    if names:
        hint = f"{typed(bind_option(symbols))} gives them"
        raise PassError(f"the timeline has no numbers: sizes depend on {', '.join(names)}", code="IRS339", hint=hint)
    if symbols:
        raise PassError("the timeline has no numbers: sizes depend on data", code="IRS339", hint=SHAPES_HINT)


class _Recorder:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._found = Recording(timeline.steps, runs=1)
        self._next = 0
        self._alive: dict[int, tuple[int, int]] = {}

    def run(self) -> Recording:
        for role, size in self._timeline.resident.items():
            self._take(_number(size), Owner(f"all {role}s", role, None), 0, LOADING)
        dying: dict[int, list[tuple[int, Owner]]] = {}
        births: dict[int, list[LiveRange]] = {}
        for one in self._timeline.ranges:
            births.setdefault(one.born, []).append(one)
        for step, node in enumerate(self._timeline.steps):
            for one in births.get(step, ()):
                owner = Owner(_tensors_of(one), "output" if one.is_output else "activation", one.value.node)
                dying.setdefault(one.dies, []).append((self._take(_number(one.size), owner, 1, step), owner))
            inside = _number(self._timeline.inside.get(step))
            if inside:
                owner = Owner("inside", "temporary", node)
                self._drop(self._take(inside, owner, 1, step), owner, step)
            for address, owner in dying.pop(step, ()):
                self._drop(address, owner, step)
        self._found.segments = [_segment(address, size, block) for address, (size, block) in sorted(self._alive.items())]
        return self._found

    def _take(self, size: int, owner: Owner, run: int, step: int) -> int:
        address, block = self._next, -(-size // _GRAIN) * _GRAIN
        self._next += max(block, _GRAIN)
        if size:
            self._alive[address] = size, block
            self._found.owners[address] = owner
            self._found.events.append(Event("alloc", address, size, size, run, step, owner))
        return address

    def _drop(self, address: int, owner: Owner, step: int) -> None:
        found = self._alive.pop(address, None)
        if found is not None:
            del self._found.owners[address]
            self._found.events.append(Event("free", address, found[0], found[0], 1, step, owner))


def _tensors_of(one: LiveRange) -> str:
    """The tensor in a buffer, or those that have it in turn."""
    names = [label_of(tensor.value) for tensor in one.tenants] or [label_of(one.value)]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', then '.join(names[:_MOST_NAMES])}{more}"


def _number(size: Dim | None) -> int:
    return size if isinstance(size, int) else 0


def _segment(address: int, size: int, block: int) -> Segment:
    return Segment(address, block, 0, False, False, (BlockState(address, block, size, "active_allocated"),))
