"""The allocator itself: malloc, free and the counters of torch.cuda.memory_stats()."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Container, Hashable, Iterable
from itertools import chain, count, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from irscope.devices.releases import DEFAULT_RELEASE, release_named
from irscope.errors import UsageError
from irscope.memory.caching.blocks import (
    IN_USE,
    MERGED,
    NO_SPLIT,
    PENDING,
    SHIFT,
    UNMAPPED,
    Block,
    Kind,
    Pool,
    Segment,
    absorb,
    insert_after,
    join_free,
    segments,
)
from irscope.memory.caching.conf import (
    DEFAULT_MEMORY,
    GRAIN,
    MIB,
    NO_DIVISIONS,
    SMALL_REQUEST,
    SMALL_SEGMENT,
    TOO_MUCH,
    UNLIMITED,
    divided_size,
    parse_alloc_conf,
    segment_size,
)
from irscope.memory.caching.device import Counters, Device, Event, OutOfMemory, Streams

if TYPE_CHECKING:
    from irscope.devices import Target

# Expandable segments: address space for all of the device, and memory mapped behind it page by page as blocks need it.

_ADDRESS = attrgetter("address")


class ExpandableSegments:
    """Finds, grows and shrinks expandable segments."""

    def __init__(self, device: Device, heads: dict[Block, None], large_page: int, reserve: int) -> None:
        self._device = device
        self._heads = heads
        self._large_page = large_page
        self._reserve = reserve
        """Bytes of address space that a segment asks for."""

    def best(self, pool: Pool, size: int) -> int:
        """Return the key of the free block to use, or 0: the one that could grow least, beginning with the smallest that is large
        enough.
        """
        free = pool.free
        key = free.first(size << SHIFT)
        while key:
            other = free.first(key + 1)
            if not other or _growable(free.blocks[other]) >= _growable(free.blocks[key]):
                return key
            key = other
        return 0

    def grow(self, pool: Pool, size: int) -> Block | None:
        """Return a block of at least this size with new memory behind it, or None where the device has too little."""
        block = self._space(pool, size) or self._new_segment(pool, size)
        if block is None:
            return None
        if block.key == UNMAPPED and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            rest = block.next
            if rest is None or not self._map(rest, min(size - block.size, rest.size)):
                return None
        pool.free.remove(block.key)
        block.key = IN_USE
        return block

    def release(self, pools: Iterable[Pool]) -> None:
        """Give back every page that lies wholly in free blocks."""
        for pool in pools:
            for block in list(pool.free.ascending()):
                self._unmap(block)

    def _page(self, pool: Pool) -> int:
        return SMALL_SEGMENT if pool.kind.small else self._large_page

    def _space(self, pool: Pool, size: int) -> Block | None:
        """Return the lowest free addresses that are wide enough: unmapped ones, perhaps with a free block before them."""
        for unmapped in pool.unmapped:
            before = unmapped.prev
            block = before if before is not None and before.key > 0 else unmapped
            if _room(block, size):
                return block
        return None

    def _new_segment(self, pool: Pool, size: int) -> Block | None:
        """Return the addresses of a new segment, unless even a whole segment is too small: blocks cannot span two."""
        page = self._page(pool)
        width = -(-self._reserve // page) * page
        if width < size:
            return None
        block = pool.new_block(width, self._device.address_range(width, page))
        block.key = UNMAPPED
        pool.unmapped.append(block)
        self._heads[block] = None
        return block

    def _map(self, block: Block, size: int) -> bool:
        """Put memory behind the beginning of an unmapped block and make it a free one, joined with its neighbours."""
        pool = block.pool
        page = self._page(pool)
        mapped = -(-size // page) * page
        if not self._device.take(mapped):
            return False
        del pool.unmapped[_place_by_address(pool.unmapped, block)]
        if mapped < block.size:
            rest = pool.new_block(block.size - mapped, block.address + mapped)
            rest.key = UNMAPPED
            insert_after(block, rest)
            block.size = mapped
            pool.unmapped.insert(_place_by_address(pool.unmapped, rest), rest)
        block.key = IN_USE
        pool.free.add(join_free(block))
        return True

    def _unmap(self, block: Block) -> None:
        """Take the memory from behind the whole pages of a free block."""
        pool = block.pool
        page = self._page(pool)
        begin = -(-block.address // page) * page
        end = (block.address + block.size) // page * page
        if begin >= end:
            return
        pool.free.remove(block.key)
        head, tail = begin - block.address, block.address + block.size - end
        middle = block
        if head:
            middle = pool.new_block(end - begin, begin)
            insert_after(block, middle)
            middle.order, block.order = block.order, middle.order
        if tail:
            after = pool.new_block(tail, end)
            insert_after(middle, after)
            pool.free.add(after)
        if head:
            block.size = head
            pool.free.add(block)
        middle.size = end - begin
        middle.key = UNMAPPED
        self._device.give_back(end - begin)
        self._join_unmapped(middle)

    def _join_unmapped(self, block: Block) -> None:
        """Join an unmapped block with unmapped neighbours, and forget the segment if nothing else is left of it."""
        unmapped = block.pool.unmapped
        before, after = block.prev, block.next
        if before is not None and before.key == UNMAPPED:
            del unmapped[_place_by_address(unmapped, before)]
            before.order = block.order
            absorb(before, block)
            block = before
        if after is not None and after.key == UNMAPPED:
            del unmapped[_place_by_address(unmapped, after)]
            absorb(block, after)
        if block.whole:
            del self._heads[block]
        else:
            unmapped.insert(_place_by_address(unmapped, block), block)


def _place_by_address(unmapped: list[Block], block: Block) -> int:
    """Return the index of a block, or the one at which to insert it, in a list sorted by address."""
    return bisect_left(unmapped, block.address, key=_ADDRESS)


def _growable(block: Block) -> int:
    """Return the size that a free block has or could get."""
    after = block.next
    return block.size + (after.size if after is not None and after.key == UNMAPPED else 0)


def _room(block: Block | None, size: int) -> bool:
    """Return whether free and unmapped blocks from here on make up this size."""
    found = 0
    while found < size and block is not None and (block.key > 0 or block.key == UNMAPPED):
        found += block.size
        block = block.next
    return found >= size


# Giving cached memory back to the device: all of it, the oldest of it, or just enough of the largest.


def release_whole(pools: Iterable[Pool], device: Device, heads: dict[Block, None]) -> None:
    """Free every cached segment that no block in use is part of."""
    for pool in pools:
        for block in list(pool.whole):
            _free_segment(block, device, heads)


def release_oversize(pool: Pool, size: int, max_split: int, device: Device, heads: dict[Block, None]) -> bool:
    """Free one segment too large to be split that could have held the request, or several smaller of them; whether that is enough."""
    wanted = max(size, max_split)
    key = pool.free.first(wanted << SHIFT)
    if key:
        _free_segment(pool.free.blocks[key], device, heads)
        return True
    chosen: list[Block] = []
    found = 0
    for block in pool.free.descending():
        if found >= wanted or block.size < max_split:
            break
        chosen.append(block)
        found += block.size
    for block in chosen:
        _free_segment(block, device, heads)
    return found >= wanted


def collect_garbage(large: Kind, threshold: int, device: Device, heads: dict[Block, None]) -> None:
    """Beyond the threshold, free segments that were not used for longer than the average, until the excess is gone."""
    excess = device.reserved - threshold
    if excess <= 0:
        return
    ages = {block: large.searches - since for pool in large.pools.values() for block, since in pool.whole.items()}
    while ages and excess > 0:
        average = sum(ages.values()) / len(ages)
        old = [block for block, age in ages.items() if age >= average]
        for block in old:
            excess -= block.size
            del ages[block]
            _free_segment(block, device, heads)


def _free_segment(block: Block, device: Device, heads: dict[Block, None]) -> None:
    pool = block.pool
    pool.free.remove(block.key)
    pool.drop_whole(block)
    block.key = MERGED
    device.give_back(block.size)
    device.segments -= 1
    del heads[block]


# The allocator itself: malloc, free and the counters of torch.cuda.memory_stats().

PendingFrees = Literal["next_malloc", "synchronize"]


class MemPool:
    """A private pool, as torch.cuda.MemPool: what is allocated inside `with pool:` is cut from its own segments, and returns to them.

    `release` is the end of the MemPool object: what nobody uses goes back to the device then, and the rest with a later empty_cache.
    The end of a CUDA graph (`empty=False`) leaves all of it to the later empty_cache.
    """

    def __init__(self, allocator: CachingAllocator, number: int, *, no_split: bool) -> None:
        self._allocator = allocator
        self.number = number
        self.small = Kind(small=True, private=number, splits=not no_split)
        self.large = Kind(small=False, private=number, splits=not no_split)
        self.users = 1
        """Who holds it: the object, and each stretch of allocations into it."""

    def __repr__(self) -> str:
        return f"MemPool({self.number})"

    def begin(self, streams: Container[int] | None = None, *, capture: bool = False) -> None:
        """Allocations go to this pool from here on, those of the given streams where some are named.

        With `capture` a CUDA graph is captured meanwhile: no event can be asked for, so what other streams used waits for the end,
        and nothing can be given back to the device.
        """
        self._allocator._open_scope(self, streams, capture)

    def end(self) -> None:
        """Allocations no longer go to this pool."""
        self._allocator._close_scope(self)

    def release(self, *, empty: bool = True) -> None:
        """Let go of the pool."""
        if self.users:
            self.users -= 1
            if empty:
                self._allocator._empty_pool(self)

    def __enter__(self) -> MemPool:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class _Scope(NamedTuple):
    """A private pool that takes the allocations of some streams until the scope is left."""

    pool: MemPool
    streams: Container[int] | None
    capture: bool


class CachingAllocator:
    """PyTorch's caching allocator for one CUDA device.

    `torch` is a release such as "2.13", `alloc_conf` what PYTORCH_CUDA_ALLOC_CONF holds, `total_memory` the device's bytes (None stands for
    144 GiB), `memory_fraction` what torch.cuda.set_per_process_memory_fraction was given. `pending_frees` is when work on a stream counts
    as done, and with it a freed block that `record_stream` gave to that stream: "next_malloc" as soon as it is queued, "synchronize" once
    the host has waited for it. A real device is somewhere between the two. `others` is what the device has given besides: the CUDA context.
    """

    def __init__(
        self,
        torch: str = DEFAULT_RELEASE.name,
        alloc_conf: str = "",
        total_memory: int | None = None,
        *,
        memory_fraction: float | None = None,
        pending_frees: PendingFrees = "next_malloc",
        others: int = 0,
    ) -> None:
        release = release_named(torch)
        conf = parse_alloc_conf(alloc_conf, release)
        total = _checked_total(total_memory)
        limit = _limit(total, conf.memory_fraction, memory_fraction, release.old_fraction)
        self._conf = conf
        self._orders = count(1) if release.order == "block" else repeat(0)
        self._device = Device(total, limit, others)
        self._heads: dict[Block, None] = {}
        self._small = Kind(small=True)
        self._large = Kind(small=False)
        self._expandable: ExpandableSegments | None = None
        if conf.expandable_segments:
            reserve = _address_space(total, conf.expandable_reserve)
            self._expandable = ExpandableSegments(self._device, self._heads, conf.large_segment_size, reserve)
        self._divisions = conf.roundup_divisions
        self._divides = conf.roundup_divisions != NO_DIVISIONS
        self._old_fraction = release.old_fraction
        self._collect_from = self._garbage_limit()
        self._refuse_from = int(conf.memory_fraction * total) if conf.throw_on_oom else UNLIMITED
        self._first_fit = self._expandable is None and conf.max_split_size == UNLIMITED and self._collect_from is None
        self._streams = Streams(lazy=pending_frees == "synchronize")
        self._pending: dict[int, deque[tuple[int, Block]]] = {}
        """By stream, in the order of their events, the freed blocks that wait for it."""
        self._news = False
        """True where some of those events may have completed since the last check."""
        self._scopes: list[_Scope] = []
        self._private: dict[int, MemPool] = {}
        self._last_resorts: list[MemPool] = []
        self._pools_made = 0
        self._deferred: list[Block] = []
        """Freed while a graph was captured, with other streams to wait for."""
        self._captured_uses: dict[Block, set[int]] = {}
        self._pending_bytes = 0
        self._pending_peak = 0
        self._allocated = 0
        self._allocated_peak = 0
        self._requested = 0
        self._requested_peak = 0
        self._retries = 0
        self._ooms = 0

    @classmethod
    def of(cls, target: Target, total_memory: int | None, pending_frees: PendingFrees = "next_malloc", others: int = 0) -> Self:
        """Return an allocator of the version of torch, with the options, that a prediction is for."""
        return cls(target.release.name, target.alloc_conf, total_memory, pending_frees=pending_frees, others=others)

    def malloc(self, size: int, stream: int = 0) -> Block:
        """Allocate so many bytes for work on a stream. OutOfMemory is raised where PyTorch would raise it."""
        if not 0 < size < TOO_MUCH:
            return self._unusual(size)
        if self._news:
            self._settle()
        rounded = divided_size(size, self._divisions) if self._divides else (size + 511) & -512
        kind = self._small if rounded <= SMALL_REQUEST else self._large
        if self._scopes:
            kind = self._kind_in_scope(kind, stream)
        pool = kind.pools.get(stream) or self._new_pool(kind, stream)
        block = pool.free.take(rounded) if self._first_fit else self._find(pool, rounded)
        if block is None:
            block = self._grow(pool, rounded)
            pool = block.pool
        elif block.prev is None and block.next is None:
            pool.drop_whole(block)
        rest = block.size - rounded
        if rest >= pool.least_rest and rounded < pool.split_below:
            _split(block, rounded, rest)
        block.key = IN_USE
        block.requested = size
        self._requested += size
        self._allocated += block.size
        if self._allocated > self._allocated_peak:
            self._allocated_peak = self._allocated
        if self._requested > self._requested_peak:
            self._requested_peak = self._requested
        if self._pending_bytes and self._allocated + self._pending_bytes > self._pending_peak:
            self._pending_peak = self._allocated + self._pending_bytes
        return block

    def free(self, block: Block) -> None:
        """Give a block back to the cache."""
        if block.key != IN_USE or block.pool.owner is not self:
            raise _not_in_use(block)
        self._allocated -= block.size
        if block.uses:
            block.key = PENDING
            self._pending_bytes += block.size
            if self._capturing:
                self._deferred.append(block)
                self._news = True
            else:
                self._record_uses(block)
        elif block.size:
            self._cache(block)

    def record_stream(self, block: Block, stream: int) -> None:
        """Note that another stream uses a block, as Tensor.record_stream does: freed, it stays taken until that stream is done with it."""
        if block.key != IN_USE or block.pool.owner is not self:
            raise _not_in_use(block)
        if block.size and stream != block.stream:
            if self._capturing:
                self._captured_uses.setdefault(block, set()).add(stream)
            if stream not in block.uses:
                block.uses = (*block.uses, stream)

    def record_event(self, stream: int = 0) -> Event:
        """Return an event behind all work of a stream so far, as torch.cuda.Event.record makes one."""
        return self._streams.record(stream)

    def issued(self) -> dict[int, int]:
        """Return how many events each stream was given so far."""
        return {event.stream: event.at for event in self._streams.all()}

    def wait(self, stream: int, other: int | Event) -> None:
        """Let a stream wait for all work of another one so far, or for an event, as Stream.wait_stream and wait_event do."""
        self._streams.wait(stream, self._streams.record(other) if isinstance(other, int) else other)

    def finished(self, event: Event) -> bool:
        """Return whether an event is known to be done, as torch.cuda.Event.query says."""
        return self._streams.done(event.stream) >= event.at

    def synchronize(self, what: int | Event | None = None) -> None:
        """Let the host wait for a stream, for an event, or for the whole device.

        What had been freed while a stream used it returns with the next malloc.
        """
        if what is None:
            found = self._streams.all()
        else:
            found = [self._streams.record(what) if isinstance(what, int) else what]
        for event in found:
            self._streams.finish(event)
        self._news = bool(self._pending)

    def pool(self, *, use_on_oom: bool = False, no_split: bool = False) -> MemPool:
        """Return a private pool, as torch.cuda.MemPool or the capture of a CUDA graph makes one."""
        self._pools_made += 1
        pool = MemPool(self, self._pools_made, no_split=no_split)
        self._private[pool.number] = pool
        if use_on_oom:
            self._last_resorts.append(pool)
        return pool

    def empty_cache(self) -> None:
        """Give everything back to the device that no block in use stands in the way of, as torch.cuda.empty_cache does."""
        if self._capturing:
            return
        self._await_uses(None)
        self._release((self._large, self._small))
        for pool in [pool for pool in self._private.values() if not pool.users]:
            self._empty(pool)

    def reset_peaks(self) -> None:
        """Reset the peaks to the current values, as torch.cuda.reset_peak_memory_stats does."""
        self._allocated_peak = self._allocated
        self._requested_peak = self._requested
        self._pending_peak = self._allocated + self._pending_bytes
        self._device.reserved_peak = self._device.reserved

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit what this process may reserve, as torch.cuda.set_per_process_memory_fraction does."""
        self._device.limit = _limit(self._device.total, 1.0, fraction, self._old_fraction)
        self._collect_from = self._garbage_limit()
        self._first_fit = self._first_fit and self._collect_from is None

    @property
    def reserved(self) -> int:
        """Return the bytes that the device gave."""
        return self._device.reserved

    @property
    def device_free(self) -> int:
        """Return the free bytes of the device, as torch.cuda.mem_get_info without other users."""
        return self._device.total - self._device.physical

    def counters(self) -> Counters:
        """Return what torch.cuda.memory_stats() says, in bytes and numbers."""
        active = self._allocated + self._pending_bytes
        reserved = self._device.reserved
        whole = sum(pool.whole_bytes for pool in chain(self._small.pools.values(), self._large.pools.values()))
        for private in self._private.values():
            whole += sum(pool.whole_bytes for pool in chain(private.small.pools.values(), private.large.pools.values()))
        return Counters(
            allocated=self._allocated,
            allocated_peak=self._allocated_peak,
            reserved=reserved,
            reserved_peak=self._device.reserved_peak,
            active=active,
            active_peak=max(self._allocated_peak, self._pending_peak),
            requested=self._requested,
            requested_peak=self._requested_peak,
            inactive_split=reserved - active - whole if self._expandable is None else 0,
            segments=self._device.segments,
            retries=self._retries,
            ooms=self._ooms,
        )

    def segments(self) -> list[Segment]:
        """Return all segments with their blocks, by address: what torch.cuda.memory_snapshot() shows."""
        return segments(self._heads, expandable=self._expandable is not None)

    def standing(self) -> Hashable:
        """Return what is free and where, and what was reserved: with equal blocks in use, equal ones answer all requests alike.

        None where options, pools or other streams decide too.
        """
        if not self._first_fit or self._pending or self._news or self._scopes or self._private:
            return None
        free = [tuple(chunk) for kind in (self._small, self._large) for pool in kind.pools.values() for chunk in pool.free.chunks]
        return self._allocated, self._requested, self._device.reserved, self._device.segments, self._retries, tuple(free)

    def _cache(self, block: Block) -> None:
        """Free a block that is no longer in use."""
        self._requested -= block.requested
        pool = block.pool
        block = join_free(block)
        pool.free.add(block)
        if block.prev is None and block.next is None:
            pool.add_whole(block)

    def _garbage_limit(self) -> int | None:
        """Return the reserved bytes from which garbage is collected."""
        limit, threshold = self._device.limit, self._conf.garbage_collection_threshold
        return int(threshold * limit) if limit is not None and threshold > 0 else None

    # What other streams use

    def _record_uses(self, block: Block) -> None:
        """Let a freed block wait for the streams that use it."""
        block.waits = len(block.uses)
        for stream in block.uses:
            self._pending.setdefault(stream, deque()).append((self._streams.record(stream).at, block))
        self._news = self._news or not self._streams.lazy

    def _settle(self) -> None:
        """Make the pending blocks free whose events are done."""
        if self._capturing:  # a stream that is captured cannot be asked
            return
        self._news = False
        self._end_deferral()
        for stream, waiting in list(self._pending.items()):
            done = self._streams.done(stream)
            while waiting and waiting[0][0] <= done:
                self._one_done(waiting.popleft()[1])
            if not waiting:
                del self._pending[stream]

    def _await_uses(self, private: MemPool | None) -> None:
        """Wait for all streams that pending blocks wait for, or for those of one private pool's, and make the blocks free."""
        self._end_deferral()
        for stream, waiting in list(self._pending.items()):
            left: deque[tuple[int, Block]] = deque()
            for at, block in waiting:
                if private is not None and block.pool.kind.private != private.number:
                    left.append((at, block))
                    continue
                self._streams.finish(Event(stream, at))
                self._one_done(block)
            if left:
                self._pending[stream] = left
            else:
                del self._pending[stream]
        self._news = bool(self._pending)

    def _one_done(self, block: Block) -> None:
        """Note that one event of a pending block is done."""
        block.waits -= 1
        if not block.waits:
            block.uses = ()
            self._pending_bytes -= block.size
            self._cache(block)

    def _end_deferral(self) -> None:
        """After a capture: streams that used a block inside it have joined, so only what used it before is left to wait for."""
        for block in self._deferred:
            inside = self._captured_uses.pop(block, ())
            block.uses = tuple(stream for stream in block.uses if stream not in inside)
            if block.uses:
                self._record_uses(block)
            else:
                block.waits = 1
                self._one_done(block)
        self._deferred.clear()

    # Private pools

    @property
    def _capturing(self) -> bool:
        return bool(self._scopes) and any(scope.capture for scope in self._scopes)

    def _open_scope(self, pool: MemPool, streams: Container[int] | None, capture: bool) -> None:
        if any(scope.pool is pool for scope in self._scopes):
            raise UsageError(f"{pool!r} is already allocated to", code="IRS642", hint="end it first")
        if not pool.users:
            raise UsageError(f"{pool!r} was released", code="IRS642", hint="make another one")
        pool.users += 1
        self._scopes.append(_Scope(pool, streams, capture))

    def _close_scope(self, pool: MemPool) -> None:
        if not any(scope.pool is pool for scope in self._scopes):
            raise UsageError(f"{pool!r} is not allocated to", code="IRS642", hint="begin it first")
        self._scopes = [scope for scope in self._scopes if scope.pool is not pool]
        pool.users -= 1

    def _kind_in_scope(self, kind: Kind, stream: int) -> Kind:
        """Return the kind of an allocation: that of the innermost private pool that takes its stream, or of the default pools."""
        for scope in reversed(self._scopes):
            if scope.streams is None or stream in scope.streams:
                return scope.pool.small if kind.small else scope.pool.large
        return kind

    def _empty_pool(self, pool: MemPool) -> None:
        """Give back what a private pool holds, if nobody uses it any longer."""
        if not pool.users:
            self._await_uses(pool)
            self._empty(pool)

    def _empty(self, pool: MemPool) -> None:
        self._release((pool.small, pool.large))
        if not any(head.pool.kind.private == pool.number for head in self._heads):
            del self._private[pool.number]

    def _release(self, kinds: Iterable[Kind]) -> None:
        """Give back to the device what can be given back."""
        pools = [pool for kind in kinds for pool in kind.pools.values()]
        if self._expandable is not None:
            self._expandable.release(pools)
        else:
            release_whole(pools, self._device, self._heads)

    def _last_resort(self, kind: Kind, stream: int, size: int) -> Block | None:
        """Return a free block of a private pool that was made for times when the device has no more."""
        for private in self._last_resorts if not kind.private else ():
            pool = (private.small if kind.small else private.large).pools.get(stream)
            block = self._find(pool, size) if pool is not None and private.users else None
            if block is not None:
                block.pool.drop_whole(block)
                return block
        return None

    # New memory

    def _new_pool(self, kind: Kind, stream: int) -> Pool:
        fine = kind.small or self._expandable is not None
        least = NO_SPLIT if not kind.splits else GRAIN if fine else MIB + 1
        pool = Pool(self, kind, stream, least, UNLIMITED if fine else self._conf.max_split_size, self._orders)
        kind.pools[stream] = pool
        return pool

    def _find(self, pool: Pool, size: int) -> Block | None:
        """Return a free block for this size where an option makes it more than the smallest that is large enough."""
        pool.kind.searches += 1
        key = pool.free.first(size << SHIFT) if self._expandable is None else self._expandable.best(pool, size)
        if not key:
            return None
        found, limit = key >> SHIFT, self._conf.max_split_size
        if size < limit <= found or (size >= limit and found >= size + self._conf.max_non_split_rounding):
            return None
        return pool.free.remove(key)

    def _grow(self, pool: Pool, size: int) -> Block:
        """Return a block from the device, if need be after giving back what is cached."""
        if self._collect_from is not None:
            collect_garbage(self._large, self._collect_from, self._device, self._heads)
        block = self._new_memory(pool, size) or self._last_resort(pool.kind, pool.stream, size)
        capturing = self._capturing
        if block is None and not capturing and self._conf.max_split_size < UNLIMITED and self._expandable is None:
            released = release_oversize(pool, size, self._conf.max_split_size, self._device, self._heads)
            block = self._new_memory(pool, size) if released else None
        if block is None and not capturing:
            self.empty_cache()
            self._retries += 1
            block = self._new_memory(pool, size)
        if block is None:
            self._ooms += 1
            raise self._out_of_memory(segment_size(size, self._conf.large_segment_size))
        return block

    def _new_memory(self, pool: Pool, size: int) -> Block | None:
        """Return a block with new memory behind it, or None where the device or the limit of this process has too little."""
        segment = segment_size(size, self._conf.large_segment_size)
        device = self._device
        if not device.within_limit(segment):
            return None
        if device.reserved + segment > self._refuse_from:
            raise self._out_of_memory(segment)
        if self._expandable is not None:
            return self._expandable.grow(pool, size)
        if not device.take(segment):
            return None
        device.segments += 1
        block = pool.new_block(segment, device.address_range(segment))
        self._heads[block] = None
        return block

    def _unusual(self, size: int) -> Block:
        """Return what malloc does with nothing, less than nothing, and more than anybody has."""
        if size == 0:
            return Block(self._new_pool(Kind(small=True), 0), 0, 0, 0)
        if size < 0:
            raise UsageError(f"a block cannot have {size} bytes", code="IRS642")
        raise self._out_of_memory(size)

    def _out_of_memory(self, size: int) -> OutOfMemory:
        return OutOfMemory(self._device.describe(size, self._allocated))


def _split(block: Block, size: int, rest: int) -> None:
    """Keep the beginning of a block, and make the rest a free one that inherits its order."""
    pool = block.pool
    remainder = Block(pool, rest, block.address + size, block.order)
    insert_after(block, remainder)
    block.size = size
    block.order = next(pool.orders)
    pool.free.add(remainder)


def _not_in_use(block: Block) -> UsageError:
    return UsageError(f"{block!r} is not in use", code="IRS642", hint="it was freed before, or another allocator made it")


def _checked_total(total: int | None) -> int:
    if total is None:
        return DEFAULT_MEMORY
    if total < 0:
        raise UsageError(f"a device cannot have {total} bytes of memory", code="IRS642")
    return total


def _limit(total: int, configured: float, given: float | None, old: bool) -> int | None:
    """Return what the process may reserve, or None where only the device limits it."""
    fraction = configured if given is None else given
    if not 0 <= fraction <= 1:
        raise UsageError(f"a process cannot have {fraction} of a device", code="IRS642", hint="the fraction goes from 0 to 1")
    if old and given is not None:
        return int(fraction * total)
    return math.floor(fraction * total + 0.5) if fraction < 1 else None


def _address_space(total: int, wanted: float | int | None) -> int:
    """Return how many addresses an expandable segment takes: an eighth more than the device has, unless an option asks for fewer."""
    full = total + total // 8
    if wanted is None:
        return full
    return min(full, wanted if isinstance(wanted, int) else int(wanted * total))
