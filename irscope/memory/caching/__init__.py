"""PyTorch's CUDA caching allocator: the same decisions in the same order, without a GPU and without PyTorch."""

from __future__ import annotations

from irscope.memory.caching.allocator import CachingAllocator, MemPool, PendingFrees
from irscope.memory.caching.blocks import Block, BlockState, Segment
from irscope.memory.caching.conf import AllocConf, parse_alloc_conf
from irscope.memory.caching.device import BOUNDLESS, PLENTY, Counters, Event, OutOfMemory

__all__ = [
    "BOUNDLESS",
    "PLENTY",
    "AllocConf",
    "Block",
    "BlockState",
    "CachingAllocator",
    "Counters",
    "Event",
    "MemPool",
    "OutOfMemory",
    "PendingFrees",
    "Segment",
    "parse_alloc_conf",
]
