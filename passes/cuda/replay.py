"""Replays a model's loading and two forward passes through the simulated allocator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from irscope.devices import Target
from irscope.memory.caching import Block, CachingAllocator, Segment


@dataclass(frozen=True, slots=True)
class Bytes:
    """Three counters of torch.cuda.memory_stats()."""

    requested: int
    allocated: int
    reserved: int


@dataclass(frozen=True)
class Script:
    """Requests with numeric sizes: event `n` allocates `sizes[n]` bytes, event `~n` frees them."""

    resident: Sequence[int]
    """Parameters, buffers and inputs, in the order in which they are moved to the device."""
    events: Sequence[int]
    sizes: Sequence[int]
    kept: frozenset[int]
    """Slots that only the first forward allocates."""
    outputs: Sequence[int]
    """Slots freed after a forward."""

    @property
    def again(self) -> Sequence[int]:
        """The events of every later forward."""
        return [event for event in self.events if event not in self.kept] if self.kept else self.events


@dataclass
class Watched:
    """What the allocator did in one forward."""

    begins: int = 0
    """Bytes allocated before it."""
    blocks: list[int] = field(default_factory=list)
    """For each event by how many bytes `allocated` changed."""
    reserved: list[tuple[int, int]] = field(default_factory=list)
    """Events at which `reserved` grew, with the new value; the first entry is the initial value."""


@dataclass
class Outcome:
    """What the allocator counted."""

    before: Bytes
    """Before the first forward."""
    cold: Bytes
    """The peaks of the first forward."""
    warm: Bytes
    """The peaks of the second."""
    retries: tuple[int, int] = (0, 0)
    """How often either forward succeeded only after the allocator had returned its cache to the device."""
    first: Watched = field(default_factory=Watched)
    """The first forward, event by event."""
    second: Watched = field(default_factory=Watched)
    inactive_split: int = 0
    """Free parts of segments that are partly in use, when the first forward is over."""
    segments: list[Segment] = field(default_factory=list)
    """The allocator's segments when the first forward is over."""

    def at(self, moment: str, counter: str) -> int:
        """One counter before, or at the peak of, a forward."""
        found: int = getattr(getattr(self, moment), counter)
        return found


def replay(script: Script, target: Target, total_memory: int | None) -> Outcome:
    """Load the model, run it twice; raises OutOfMemory where PyTorch would."""
    gpu = CachingAllocator("{}.{}".format(*target.torch), target.alloc_conf, total_memory)
    for size in script.resident:
        gpu.malloc(size)
    before = gpu.counters()
    found = Outcome(Bytes(before.requested, before.allocated, before.reserved), _NOTHING, _NOTHING)
    blocks: list[Block | None] = [None] * len(script.sizes)
    found.cold = _forward(gpu, script, blocks, script.events, found.first)
    middle = gpu.counters().retries
    found.inactive_split, found.segments = gpu.counters().inactive_split, gpu.segments()
    _give_back(gpu, script, blocks)
    gpu.reset_peaks()
    found.warm = _forward(gpu, script, blocks, script.again, found.second)
    found.retries = (middle - before.retries, gpu.counters().retries - middle)
    return found


_NOTHING = Bytes(0, 0, 0)


def _forward(gpu: CachingAllocator, script: Script, blocks: list[Block | None], events: Sequence[int], note: Watched) -> Bytes:
    malloc, free, sizes = gpu.malloc, gpu.free, script.sizes
    changes = note.blocks
    reserved = gpu.reserved
    note.begins = gpu.counters().allocated
    note.reserved.append((0, reserved))
    for event in events:
        if event >= 0:
            size = sizes[event]
            if size:
                block = blocks[event] = malloc(size)
                changes.append(block.size)
                if gpu.reserved != reserved:
                    reserved = gpu.reserved
                    note.reserved.append((len(changes) - 1, reserved))
            else:
                blocks[event] = None
                changes.append(0)
        else:
            taken = blocks[~event]
            if taken is None:
                changes.append(0)
            else:
                changes.append(-taken.size)
                free(taken)
    found = gpu.counters()
    return Bytes(found.requested_peak, found.allocated_peak, found.reserved_peak)


def _give_back(gpu: CachingAllocator, script: Script, blocks: list[Block | None]) -> None:
    for slot in script.outputs:
        block = blocks[slot]
        if block is not None:
            gpu.free(block)
