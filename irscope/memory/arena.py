"""The arena itself: malloc, free, reserve, shrink, and what ONNX Runtime's counters say."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, Literal, get_args

from irscope.errors import UsageError
from irscope.memory.caching.blocks import SHIFT, FreeList
from irscope.memory.caching.device import Counters, OutOfMemory

# Chunks of the arena: what a request gets, and what is left over of a region.

IN_USE: Final = 0
RELEASED: Final = -1
"""Given back to the device with its region, or part of the chunk before it."""
RESERVED: Final = -2
"""Came straight from the device and goes straight back."""


class Chunk:
    """A piece of a region. What malloc and reserve return is one of these, valid until it is freed."""

    __slots__ = ("address", "arena", "key", "next", "order", "prev", "requested", "size")

    def __init__(self, arena: object, size: int, address: int) -> None:
        self.arena = arena
        self.size = size
        """Bytes it takes."""
        self.address = address
        self.requested = 0
        """Bytes that were asked for."""
        self.order = 0
        self.key = IN_USE
        """Its place among the free chunks where positive, else why it is not among them."""
        self.prev: Chunk | None = None
        self.next: Chunk | None = None

    def __repr__(self) -> str:
        return f"Chunk(size={self.size}, requested={self.requested}, address={self.address:#x})"


class Region:
    """Memory that the device gave in one piece; its chunks tile it."""

    __slots__ = ("first", "number", "size")

    def __init__(self, first: Chunk, number: int) -> None:
        self.first = first
        self.size = first.size
        self.number = number
        """Number of regions of the arena when it got this one."""

    def chunks(self) -> list[Chunk]:
        """Its chunks by address."""
        chunks = []
        chunk: Chunk | None = self.first
        while chunk is not None:
            chunks.append(chunk)
            chunk = chunk.next
        return chunks


def split(chunk: Chunk, size: int) -> Chunk:
    """Keep the beginning of a chunk; the rest is a new chunk."""
    rest = Chunk(chunk.arena, chunk.size - size, chunk.address + size)
    rest.prev, rest.next = chunk, chunk.next
    if chunk.next is not None:
        chunk.next.prev = rest
    chunk.next = rest
    chunk.size = size
    return rest


def absorb(chunk: Chunk, after: Chunk) -> None:
    """Make the next chunk a part of this one."""
    chunk.size += after.size
    chunk.next = after.next
    if after.next is not None:
        after.next.prev = chunk
    after.key = RELEASED


# How much more the arena asks the device for when nothing free is large enough.

Strategy = Literal["next_power_of_two", "same_as_requested"]
"""ONNX Runtime's arena_extend_strategy: kNextPowerOfTwo (its default) or kSameAsRequested."""

MIB: Final = 1 << 20
GRAIN: Final = 256
"""Every chunk is a multiple of this."""
FIRST_REGION: Final = MIB
"""initial_chunk_size_bytes"""
AFTER_SHRINKING: Final = 2 * MIB
"""initial_growth_chunk_size_bytes"""
MOST_DOUBLED: Final = 1 << 30
"""max_power_of_two_extend_bytes"""
MOST_DEAD: Final = 128 * MIB
"""max_dead_bytes_per_chunk"""
_LEAST_RETRY: Final = 8 * 1024


def rounded(size: int) -> int:
    """Return a request as the arena counts it."""
    return (size + GRAIN - 1) & -GRAIN


class Growth:
    """The size of the next region."""

    __slots__ = ("after_shrinking", "most_doubled", "next_size", "strategy")

    def __init__(self, strategy: Strategy, first: int, after_shrinking: int, most_doubled: int) -> None:
        if strategy not in get_args(Strategy):
            known = ", ".join(get_args(Strategy))
            raise UsageError(f"there is no way to extend an arena called {strategy!r}", code="IRS321", hint=f"known: {known}")
        self.strategy = strategy
        self.next_size = rounded(first)
        self.after_shrinking = after_shrinking
        self.most_doubled = most_doubled

    def region_for(self, size: int, available: int) -> int:
        """Return the bytes to ask for on behalf of a request that no free chunk can serve."""
        if self.strategy == "same_as_requested":
            return size
        if size > self.next_size:
            while size > self.next_size:
                self.next_size *= 2
            return min(self.next_size, available)
        found = min(self.next_size, available)
        self.next_size = min(2 * self.next_size, self.most_doubled)
        return found


def less_after_failure(size: int, least: int) -> int | None:
    """Return what is tried when the device refused a region: nine tenths of it, as long as the request fits."""
    # ONNX Runtime computes this in single precision.
    smaller = rounded(int(_single(_single(float(size)) * _single(0.9))))
    return smaller if smaller >= max(least, _LEAST_RETRY) else None


def _single(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


# The arena itself: malloc, free, reserve, shrink, and what ONNX Runtime's counters say.

_PAGE: Final = 4096


class BfcArena:
    """ONNX Runtime's arena for one device and one stream: best fit with coalescing, in regions that are given back only by shrinking.

    `strategy` is its arena_extend_strategy, `limit` the most it may take from the device (gpu_mem_limit), `device_memory` what the
    device has; None stands for no bound. The sizes are those of OrtArenaCfg.
    """

    def __init__(
        self,
        strategy: Strategy = "next_power_of_two",
        limit: int | None = None,
        *,
        device_memory: int | None = None,
        first_region: int = FIRST_REGION,
        after_shrinking: int = AFTER_SHRINKING,
        most_doubled: int = MOST_DOUBLED,
        most_dead: int = MOST_DEAD,
    ) -> None:
        _check_not_negative(limit=limit, device_memory=device_memory)
        if min(first_region, after_shrinking, most_doubled) <= 0:
            raise UsageError("an arena's regions need a size", code="IRS321")
        self._limit = limit
        self._device_memory = device_memory
        self._growth = Growth(strategy, first_region if limit is None else max(min(first_region, limit), 1), after_shrinking, most_doubled)
        self._most_dead = most_dead
        self._free: FreeList[Chunk] = FreeList()
        self._regions: list[Region] = []
        self._next_address = _PAGE
        self.held = 0
        """Bytes that the device gave."""
        self._held_peak = 0
        self.in_use = 0
        """Bytes of chunks in use."""
        self._in_use_peak = 0
        self.requested = 0
        """Bytes in use as asked for."""
        self._requested_peak = 0
        self._largest = 0
        self._allocs = 0
        self._reserves = 0
        self._extensions = 0
        self._shrinkages = 0

    # -- what a session calls ----------------------------------------------------------------------------------

    def malloc(self, size: int) -> Chunk | None:
        """Return a chunk of at least so many bytes, None for zero. OutOfMemory is raised where ONNX Runtime would fail."""
        if size <= 0:
            _check_not_negative(size=size)
            return None
        want = (size + 255) & -256
        chunk = self._free.take(want)
        if chunk is None:
            self._extend(want)
            chunk = self._free.take(want)
            assert chunk is not None
        found = chunk.size
        if found >= 2 * want or found - want >= self._most_dead:
            self._free.add(split(chunk, want))
            found = want
        chunk.key = IN_USE
        chunk.requested = size
        self._count(found, size)
        return chunk

    def load(self, sizes: Iterable[int]) -> None:
        """Memory for each size, as `malloc` takes it, of what stays as long as the arena does: neighbours become one chunk, which nobody
        gets. Where only the largest free chunk is large enough, its beginning is taken without a look at the others."""
        grain, most_dead = GRAIN - 1, self._most_dead
        kept: Chunk | None = None
        rest, other = self._largest_free()
        allocs = in_use = requested = 0
        for size in sizes:
            want = (size + grain) & ~grain
            if rest is not None and size > 0 and want > other and (rest.size >= 2 * want or rest.size - want >= most_dead):
                if kept is None:
                    kept, rest = rest, split(rest, want)
                    kept.key = IN_USE
                else:
                    kept.size += want
                    rest.size -= want
                    rest.address += want
                kept.requested += size
                allocs += 1
                in_use += want
                requested += size
                if want > self._largest:
                    self._largest = want
                continue
            if rest is not None:
                self._free.add(rest)
            self._count_all(allocs, in_use, requested)
            allocs = in_use = requested = 0
            self.malloc(size)
            kept = None
            rest, other = self._largest_free()
        if rest is not None:
            self._free.add(rest)
        self._count_all(allocs, in_use, requested)

    def reserve(self, size: int) -> Chunk | None:
        """Return memory that comes straight from the device and does not become part of a region: packed weights, initializers."""
        if size <= 0:
            _check_not_negative(size=size)
            return None
        if not self._fits_device(size):
            raise self._out_of_memory(size)
        chunk = Chunk(self, size, self._new_addresses(size))
        chunk.key = RESERVED
        chunk.requested = size
        self._reserves += 1
        self._hold(size)
        self._count(size, size)
        return chunk

    def free(self, chunk: Chunk | None) -> None:
        """Give a chunk back to the arena; what was reserved goes back to the device."""
        if chunk is None:
            return
        if chunk.arena is not self or chunk.key not in (IN_USE, RESERVED):
            raise UsageError(f"{chunk!r} is not in use", code="IRS642", hint="it was freed before, or another arena made it")
        self.in_use -= chunk.size
        self.requested -= chunk.requested
        if chunk.key == RESERVED:
            chunk.key = RELEASED
            self.held -= chunk.size
            return
        after = chunk.next
        if after is not None and after.key > 0:
            self._free.remove(after.key)
            absorb(chunk, after)
        before = chunk.prev
        if before is not None and before.key > 0:
            self._free.remove(before.key)
            absorb(before, chunk)
            chunk = before
        self._free.add(chunk)

    def shrink(self) -> int:
        """Give wholly free regions back, as memory.enable_memory_arena_shrinkage asks after a run; the bytes given back.

        The first region stays where regions grow by powers of two.
        """
        kept: list[Region] = []
        before = self.held
        for region in self._regions:
            first = region.first
            may_go = region.number > 0 or self._growth.strategy == "same_as_requested"
            if may_go and first.key > 0 and first.next is None:
                self._free.remove(first.key)
                first.key = RELEASED
                self.held -= region.size
                self._shrinkages += 1
                self._extensions -= 1
            else:
                kept.append(region)
        self._regions = kept
        self._growth.next_size = self._growth.after_shrinking
        return before - self.held

    # -- what it says of itself --------------------------------------------------------------------------------

    def counters(self) -> Counters:
        """Return what ONNX Runtime's profile and AllocatorGetStats say, in bytes and numbers.

        requested are bytes in use as asked for (mem_bytes_requested_in_use), in_use as chunks (mem_bytes_in_use, peak
        mem_in_use_peak), held what the device gave (mem_arena_held).
        """
        return Counters(
            requested=self.requested,
            requested_peak=self._requested_peak,
            in_use=self.in_use,
            in_use_peak=self._in_use_peak,
            held=self.held,
            held_peak=self._held_peak,
            largest=self._largest,
            allocs=self._allocs,
            reserves=self._reserves,
            extensions=self._extensions,
            shrinkages=self._shrinkages,
        )

    def reset_peaks(self) -> None:
        """Reset the peaks to the current values. ONNX Runtime itself never does."""
        self._requested_peak, self._in_use_peak, self._held_peak = self.requested, self.in_use, self.held

    def regions(self) -> list[Region]:
        """Regions in the order in which the device gave them."""
        return list(self._regions)

    # -- inside ------------------------------------------------------------------------------------------------

    def _count(self, size: int, requested: int) -> None:
        self._allocs += 1
        self.in_use += size
        self.requested += requested
        if self.in_use > self._in_use_peak:
            self._in_use_peak = self.in_use
        if self.requested > self._requested_peak:
            self._requested_peak = self.requested
        if size > self._largest:
            self._largest = size

    def _count_all(self, allocs: int, size: int, requested: int) -> None:
        """Several at once, one after the other."""
        self._allocs += allocs
        self.in_use += size
        self.requested += requested
        self._in_use_peak = max(self._in_use_peak, self.in_use)
        self._requested_peak = max(self._requested_peak, self.requested)

    def _largest_free(self) -> tuple[Chunk | None, int]:
        """Return the largest free chunk, taken out, and the size of the next smaller one."""
        if not len(self._free):
            return None, 0
        found = self._free.remove(self._free.last())
        return found, self._free.last() >> SHIFT

    def _extend(self, want: int) -> None:
        """Add a new region with room for a request."""
        available = self._available()
        if want > available:
            raise self._out_of_memory(want)
        size: int | None = self._growth.region_for(want, available)
        while size is not None and not self._fits_device(size):
            size = less_after_failure(size, want)
        if size is None:
            raise self._out_of_memory(want)
        self._hold(size)
        chunk = Chunk(self, size, self._new_addresses(size))
        self._regions.append(Region(chunk, self._extensions))
        self._extensions += 1
        self._free.add(chunk)

    def _hold(self, size: int) -> None:
        self.held += size
        self._held_peak = max(self._held_peak, self.held)

    def _available(self) -> int:
        """Return what the limit leaves, in whole grains."""
        if self._limit is None:
            return 1 << 62
        return max(self._limit - self.held, 0) // GRAIN * GRAIN

    def _fits_device(self, size: int) -> bool:
        return self._device_memory is None or self.held + size <= self._device_memory

    def _new_addresses(self, size: int) -> int:
        address = self._next_address
        self._next_address += -(-size // _PAGE) * _PAGE
        return address

    def _out_of_memory(self, size: int) -> OutOfMemory:
        bounds = [bound for bound in (self._limit, self._device_memory) if bound is not None]
        allowed = f"{min(bounds) / MIB:.2f} MiB" if bounds else "the device"
        held = f"{self.in_use / MIB:.2f} MiB are in use and {(self.held - self.in_use) / MIB:.2f} MiB held but free"
        return OutOfMemory(f"{rounded(size) / MIB:.2f} MiB more do not fit into {allowed}: {held}", code="IRS322")


def likeness_of(arena: BfcArena) -> tuple[object, ...]:
    """Equal for arenas that treat the same further requests alike, as long as nothing that is in use now is freed: chunks in use keep
    free ones apart, of which then only the sizes matter."""
    growth = arena._growth.next_size, arena._limit, arena._device_memory, arena._extensions
    whole = sorted((region.size, region.number) for region in arena._regions if region.first.key > 0 and region.first.next is None)
    sizes = tuple([key >> SHIFT for key in sorted(arena._free.blocks)])
    return (sizes, tuple(whole), growth, arena.held, arena._held_peak, arena.in_use, arena._in_use_peak, arena.requested)


def dissolve(arena: BfcArena) -> None:
    """Take all links of an arena apart that is not needed any more: its chunks go with it, and no garbage collector has to find them."""
    for region in arena._regions:
        for chunk in region.chunks():
            chunk.prev = chunk.next = chunk.arena = None
    arena._regions.clear()
    arena._free = FreeList()


def _check_not_negative(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 0:
            raise UsageError(f"{name} cannot be {size} bytes", code="IRS642")
