"""Replaying many sizes of one model through the allocator: the weights are loaded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from irscope.devices import Target
from irscope.ir.dim_arrays import Numbers
from irscope.memory.caching import Block, CachingAllocator, OutOfMemory
from irscope.passes.cuda.replay import Bytes
from irscope.passes.cuda.stream import Stream

_SEGMENTS_FIRST = (2, 13)
"""Since then free blocks are ordered by their segment, so that emptying the cache leaves the allocator as it was."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Peaks of the first and the second forward pass."""

    cold: Bytes
    warm: Bytes
    retries: tuple[int, int] = (0, 0)
    """How often either forward found no memory and got it once the allocator had given its cache back to the device."""

    def worst(self, counter: str) -> int:
        """The larger of both for requested, allocated or reserved."""
        found: list[int] = [getattr(self.cold, counter), getattr(self.warm, counter)]
        return max(found)


class Replayer:
    """One device, on which a model is loaded and run twice for each of many sizes."""

    def __init__(self, target: Target, total_memory: int | None) -> None:
        self._target = target
        self._total_memory = total_memory
        self._weights: list[int] = []
        self._gpu: CachingAllocator | None = None

    def count(self, resident: Sequence[int], fixed: int, stream: Stream, sizes: Numbers) -> Counted | None:
        """What is counted for one size, None where memory runs out. The first `fixed` residents are the same as the last time, or new."""
        try:
            return self._count(resident, fixed, stream, sizes)
        except OutOfMemory:
            self._gpu = None
            return None

    def _count(self, resident: Sequence[int], fixed: int, stream: Stream, sizes: Numbers) -> Counted:
        gpu = self._loaded(list(resident[:fixed]))
        inputs = [gpu.malloc(size) for size in resident[fixed:]]
        blocks: dict[int, Block] = {}
        events = np.array(stream.events, dtype=np.int64)
        # What takes nothing leaves no trace in the allocator.
        events = events[sizes[np.where(events < 0, ~events, events)] != 0]
        asked: list[int] = sizes.tolist()
        gpu.reset_peaks()
        retries = [gpu.counters().retries]
        cold = _forward(gpu, events.tolist(), asked, blocks)
        retries.append(gpu.counters().retries)
        _free(gpu, blocks, stream.outputs)
        gpu.reset_peaks()
        if stream.kept:
            events = events[~np.isin(events, stream.kept)]
        warm = _forward(gpu, events.tolist(), asked, blocks)
        retries.append(gpu.counters().retries)
        if self._is_reusable:
            _free(gpu, blocks, list(blocks))
            for block in inputs:
                gpu.free(block)
            gpu.empty_cache()
        else:
            self._gpu = None
        return Counted(cold, warm, (retries[1] - retries[0], retries[2] - retries[1]))

    def _loaded(self, weights: list[int]) -> CachingAllocator:
        if self._gpu is None or weights != self._weights:
            self._gpu = CachingAllocator("{}.{}".format(*self._target.torch), self._target.alloc_conf, self._total_memory)
            self._weights = weights
            for size in weights:
                self._gpu.malloc(size)
        return self._gpu

    @property
    def _is_reusable(self) -> bool:
        return self._target.torch >= _SEGMENTS_FIRST and not self._target.alloc_conf


def _forward(gpu: CachingAllocator, events: list[int], sizes: list[int], blocks: dict[int, Block]) -> Bytes:
    malloc, free = gpu.malloc, gpu.free
    for event in events:
        if event >= 0:
            blocks[event] = malloc(sizes[event])
        else:
            free(blocks.pop(~event))
    found = gpu.counters()
    return Bytes(found.requested_peak, found.allocated_peak, found.reserved_peak)


def _free(gpu: CachingAllocator, blocks: dict[int, Block], slots: Sequence[int]) -> None:
    for slot in slots:
        block = blocks.pop(slot, None)
        if block is not None:
            gpu.free(block)
