"""Every request of loading a model and running it twice, with the addresses that the simulated allocator gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

from irscope.errors import PassError
from irscope.ir.bind import typed
from irscope.ir.graph import Node
from irscope.memory.caching import BOUNDLESS, OutOfMemory, Segment
from irscope.memory.tape import LOADING as LOADED
from irscope.memory.tape import Replayed, Stretch
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
        replayed = memory.replay(None if memory.shortage is not None else memory.target.device.room_bytes, "all", segments=True)
    except OutOfMemory:
        replayed = memory.replay(BOUNDLESS, "all", segments=True)
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
