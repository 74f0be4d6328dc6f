"""Every request of loading a model and running it twice, with the addresses that the simulated allocator gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from irscope.errors import PassError
from irscope.ir.bind import typed
from irscope.ir.graph import Node
from irscope.memory.caching import BOUNDLESS, Block, CachingAllocator, OutOfMemory, Segment
from irscope.passes.cuda.replay import Script
from irscope.passes.cuda.result import DeviceMemory
from irscope.passes.cuda.scripts import Load
from irscope.passes.cuda.stream import Stream

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
    load, stream, script = memory.load, memory.stream, memory.script
    if load is None or stream is None or script is None:
        fix = memory.fix.replace("--passes 'liveness{model=eager}'", "--lifetimes eager")
        hint = f"{typed(fix)} makes it known" if fix else "a table of the timeline can be written: a name that ends in .csv"
        raise PassError(f"there are no addresses to write: {memory.reason}", code="IRS339", hint=hint)
    device = memory.target.device
    room = None if memory.shortage is not None else device.room_bytes
    try:
        return _Recorder(memory, room).run(load, stream, script)
    except OutOfMemory:
        return _Recorder(memory, BOUNDLESS).run(load, stream, script)


class _Recorder:
    def __init__(self, memory: DeviceMemory, room: int | None) -> None:
        self._gpu = CachingAllocator("{}.{}".format(*memory.target.torch), memory.target.alloc_conf, room)
        self._expandable = "expandable_segments:true" in memory.target.alloc_conf.lower()
        self._found = Recording(memory.steps)
        self._known: dict[int, int] = {}
        self._reserved = 0
        self._run = 0
        self._step = LOADING
        self._blocks: dict[int, tuple[Block, Owner]] = {}

    def run(self, load: Load, stream: Stream, script: Script) -> Recording:
        resident = zip(script.resident, load.kinds, load.names, strict=True)
        kept = [self._take(size, Owner(name, kind, None)) for size, kind, name in resident]
        for run in (1, 2):
            self._run = run
            self._forward(stream, script, again=run == 2)
            self._step = len(self._found.steps) - 1
            for slot in script.outputs:
                self._drop(slot)
        self._found.segments = self._gpu.segments()
        in_use = [*kept, *self._blocks.values()]
        self._found.owners = {block.address: owner for found in in_use if found is not None for block, owner in (found,)}
        return self._found

    def _forward(self, stream: Stream, script: Script, *, again: bool) -> None:
        for step, event in _by_step(stream.starts, script.events):
            self._step = step
            if event < 0:
                self._drop(~event)
            elif not (again and event in script.kept):
                owner = Owner(stream.labels[event], stream.kinds[event], self._found.steps[step], event in stream.spreads)
                found = self._take(script.sizes[event], owner)
                if found is not None:
                    self._blocks[event] = found

    def _take(self, size: int, owner: Owner) -> tuple[Block, Owner] | None:
        if not size:
            return None
        block = self._gpu.malloc(size)
        self._note_segments()
        self._note("alloc", block.address, size, block.size, owner)
        return block, owner

    def _drop(self, slot: int) -> None:
        found = self._blocks.pop(slot, None)
        if found is not None:
            block, owner = found
            self._note("free", block.address, block.requested, block.size, owner)
            self._gpu.free(block)

    def _note_segments(self) -> None:
        """What the device gave or got back since the last look."""
        if self._gpu.reserved == self._reserved:
            return
        self._reserved = self._gpu.reserved
        now = {segment.address: segment.size for segment in self._gpu.segments()}
        for address, size in self._known.items():
            left = now.get(address, 0)
            if left < size:
                self._note("segment_unmap" if self._expandable else "segment_free", address + left, size - left, size - left, None)
        for address, size in now.items():
            before = self._known.get(address, 0)
            if before < size:
                self._note("segment_map" if self._expandable else "segment_alloc", address + before, size - before, size - before, None)
        self._known = now

    def _note(self, action: Action, address: int, size: int, block: int, owner: Owner | None) -> None:
        self._found.events.append(Event(action, address, size, block, self._run, self._step, owner))


def _by_step(starts: Sequence[int], events: Sequence[int]) -> Iterator[tuple[int, int]]:
    for step, start in enumerate(starts):
        end = starts[step + 1] if step + 1 < len(starts) else len(events)
        for event in events[start:end]:
            yield step, event


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
