"""What memory costs: simulators of the allocators that hand out device memory."""

from __future__ import annotations

from irscope.memory.caching import CachingAllocator, OutOfMemory

__all__ = ["CachingAllocator", "OutOfMemory"]
