"""What the simulated allocator does for a model, as events with addresses; sizes as asked for where PyTorch does not run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

from irscope.errors import PassError
from irscope.ir.bind import bind_option, typed
from irscope.ir.dims import Dim, SymDim, int_or_zero
from irscope.ir.graph import Node
from irscope.memory.caching import BOUNDLESS, OutOfMemory, Segment
from irscope.memory.caching.blocks import BlockState
from irscope.memory.tape import LOADING as LOADED
from irscope.memory.tape import Replayed, Stretch
from irscope.passes.inference.remedies import SHAPES_HINT
from irscope.passes.lifetimes.lives import LiveRange, label_of
from irscope.passes.lifetimes.timeline import Timeline
from irscope.passes.memory.cuda import DeviceMemory
from irscope.passes.memory.tapes import ForwardTape

Action: TypeAlias = Literal["segment_alloc", "segment_map", "segment_free", "segment_unmap", "alloc", "free"]
LOADING = -1
"""In place of a step while the model is loaded."""


@dataclass(frozen=True, slots=True)
class Owner:
    """What asked for memory."""

    label: str
    category: str
    node: Node | None
    """None for weights and inputs."""
    modelled: bool = False
    """Whether its size is a model's."""

    @property
    def group(self) -> str:
        """The category, apart where it is modelled."""
        return f"{self.category} (modelled)" if self.modelled else self.category


@dataclass(frozen=True, slots=True)
class Event:
    """One action of the allocator."""

    action: Action
    address: int
    size: int
    """Bytes as asked for; of segments what the device gives."""
    block: int
    """Bytes of the block."""
    run: int
    """0 while the model is loaded, then 1 and 2."""
    step: int
    owner: Owner | None
    """None for segments."""


@dataclass
class Recording:
    """What the allocator did."""

    steps: list[Node]
    events: list[Event] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    """As they are at the end."""
    owners: dict[int, Owner] = field(default_factory=dict)
    """Of the blocks in use at the end, by address."""
    runs: int = 2
    """Forward passes."""


def record(memory: DeviceMemory) -> Recording:
    """Replay the prediction once more, with notes. Raises PassError where there is nothing to replay."""
    if memory.tape is None or memory.sizes is None:
        fix = memory.fix.replace("--passes 'liveness{model=eager}'", "--lifetimes eager")
        hint = f"{typed(fix)} makes it known" if fix else "a table of the timeline can be written: a name that ends in .csv"
        raise PassError(f"there are no addresses to write: {memory.reason}", code="IRS339", hint=hint)
    try:
        replayed = memory.replay(None if memory.shortage is not None else memory.target.device.room_bytes, "all", addresses=True)
    except OutOfMemory:
        replayed = memory.replay(BOUNDLESS, "all", addresses=True)
    return _Recorder(memory, memory.tape, memory.sizes, replayed).run()


class _Recorder:
    """Lists what the allocator did, stretch by stretch."""

    def __init__(self, memory: DeviceMemory, tape: ForwardTape, sizes: list[int], replayed: Replayed) -> None:
        self._tape = tape
        self._sizes = sizes
        self._replayed = replayed
        self._expandable = "expandable_segments:true" in memory.target.alloc_conf.lower()
        self._found = Recording(memory.steps, segments=replayed.segments)
        self._owners: dict[int, Owner] = {}
        self._known: dict[int, int] = {}

    def run(self) -> Recording:
        """Loading, then each forward with the release of its outputs, which counts to its last step."""
        found, last = self._found, len(self._found.steps) - 1
        run = 0
        for stretch in self._replayed.stretches:
            run += stretch.span.counted
            steps = self._steps_of(stretch)
            given = dict(stretch.segments)
            for place, (event, step) in enumerate(zip(stretch.events, steps, strict=True)):
                if not self._sizes[event if event >= 0 else ~event]:
                    continue
                if place in given:
                    self._note_segments(given[place], run, min(step, last))
                self._note(event, stretch.addresses[place], abs(stretch.blocks[place]), run, min(step, last))
        found.owners = {block.address: self._owners[slot] for slot, block in self._replayed.held.items()}
        return found

    def _steps_of(self, stretch: Stretch) -> list[int]:
        """The step of each request."""
        if stretch.span.name == LOADED:
            return [LOADING] * len(stretch.events)
        counts = (after - before for before, after in pairwise(stretch.starts))
        return [stretch.span.first + at for at, count in enumerate(counts) for _ in range(count)]

    def _note(self, event: int, address: int, block: int, run: int, step: int) -> None:
        tape, slot = self._tape, event if event >= 0 else ~event
        if event >= 0:
            node = None if step == LOADING else self._found.steps[step]
            self._owners[slot] = Owner(tape.labels[slot], tape.kinds[slot], node, slot in tape.spreads)
        action: Action = "alloc" if event >= 0 else "free"
        self._found.events.append(Event(action, address, self._sizes[slot], block, run, step, self._owners[slot]))

    def _note_segments(self, segments: list[Segment], run: int, step: int) -> None:
        """What the device gave or got back since the last look."""
        now = {segment.address: segment.size for segment in segments}
        names: tuple[Action, Action] = ("segment_unmap", "segment_map") if self._expandable else ("segment_free", "segment_alloc")
        gone, more = names
        for address, size in self._known.items():
            left = now.get(address, 0)
            if left < size:
                self._found.events.append(Event(gone, address + left, size - left, size - left, run, step, None))
        for address, size in now.items():
            before = self._known.get(address, 0)
            if before < size:
                self._found.events.append(Event(more, address + before, size - before, size - before, run, step, None))
        self._known = now


def frames(node: Node | None) -> list[Mapping[str, object]]:
    """Where a node stands, innermost first: the operator, then the lines that led to it."""
    if node is None:
        return []
    found: list[Mapping[str, object]] = [{"name": f"{node.op} {node.name}", "filename": node.scope.path or "model", "line": 0}]
    loc = node.loc
    while loc is not None:
        found.append({"name": loc.function or loc.statement, "filename": loc.file, "line": loc.line})
        loc = loc.caller
    return found


# ----------------------------------------------------------------------------------------------------
# A recording of models that PyTorch's allocator does not run: sizes as they are asked for, each tensor at an address of its own.

_GRAIN = 512
_MOST_NAMES = 3
"""Tensors of one buffer that are named."""


def record_requests(timeline: Timeline) -> Recording:
    """One run, without segments. Raises PassError where a size is no number."""
    check_numbers([*timeline.alive, *(size for size in timeline.resident.values() if size is not None)])
    return _RequestRecorder(timeline).run()


def check_numbers(sizes: Sequence[Dim]) -> None:
    """Raise PassError, with what would help, where a size is no number."""
    symbols = {symbol for size in sizes if isinstance(size, SymDim) for symbol in size.symbols()}
    names = sorted(str(symbol) for symbol in symbols if not symbol.is_unknown)
    if names:
        hint = f"{typed(bind_option(symbols))} gives them"
        raise PassError(f"the timeline has no numbers: sizes depend on {', '.join(names)}", code="IRS339", hint=hint)
    if symbols:
        raise PassError("the timeline has no numbers: sizes depend on data", code="IRS339", hint=SHAPES_HINT)


class _RequestRecorder:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._found = Recording(timeline.steps, runs=1)
        self._next = 0
        self._alive: dict[int, tuple[int, int]] = {}

    def run(self) -> Recording:
        for role, size in self._timeline.resident.items():
            self._take(int_or_zero(size), Owner(f"all {role}s", role, None), 0, LOADING)
        dying: dict[int, list[tuple[int, Owner]]] = {}
        births: dict[int, list[LiveRange]] = {}
        for one in self._timeline.ranges:
            births.setdefault(one.born, []).append(one)
        for step, node in enumerate(self._timeline.steps):
            for one in births.get(step, ()):
                owner = Owner(_tensors_of(one), "output" if one.is_output else "activation", one.value.node)
                dying.setdefault(one.dies, []).append((self._take(int_or_zero(one.size), owner, 1, step), owner))
            inside = int_or_zero(self._timeline.inside.get(step))
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


def _segment(address: int, size: int, block: int) -> Segment:
    return Segment(address, block, 0, False, False, (BlockState(address, block, size, "active_allocated"),))
