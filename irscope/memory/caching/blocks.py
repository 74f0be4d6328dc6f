"""Blocks of device memory, the pools that keep the free ones, and what the allocator holds, segment by segment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Final, Generic, Literal, Protocol, TypeVar

from irscope.immutable import immutable

# The free blocks of a pool, smallest first: what PyTorch keeps in a balanced tree.

_FULL: Final = 256
"""Chunks are halved beyond this many keys. It changes only how long insertion takes."""

SHIFT: Final = 64
"""Keys are size * 2**64 + tie: one integer orders blocks by size, then by what decides between equal sizes."""


class Sized(Protocol):
    """An entry of a free list."""

    size: int
    address: int
    order: int
    key: int


B = TypeVar("B", bound=Sized)


class FreeList(Generic[B]):
    """Free blocks ordered by size, then by the version's order. Looking up, adding and taking cost the logarithm of their number."""

    __slots__ = ("blocks", "chunks", "starts")

    def __init__(self) -> None:
        self.blocks: dict[int, B] = {}
        self.chunks: list[list[int]] = [[]]
        self.starts: list[int] = [0]
        """Chunk i holds the keys from starts[i] up to starts[i + 1]. No chunk is empty, except one that is alone."""

    def __len__(self) -> int:
        return len(self.blocks)

    def add(self, block: B) -> None:
        """Put a block in; its key says that it is free and where it stands."""
        key = block.key = (block.size << SHIFT) + (block.order or block.address)
        at = bisect_right(self.starts, key) - 1
        chunk = self.chunks[at]
        insort(chunk, key)
        self.blocks[key] = block
        if len(chunk) > _FULL:
            half = chunk[_FULL // 2 :]
            del chunk[_FULL // 2 :]
            self.chunks.insert(at + 1, half)
            self.starts.insert(at + 1, half[0])

    def remove(self, key: int) -> B:
        """Take the block with this key out."""
        at = bisect_right(self.starts, key) - 1
        chunk = self.chunks[at]
        del chunk[bisect_left(chunk, key)]
        if not chunk:
            self._drop(at)
        return self.blocks.pop(key)

    def take(self, size: int) -> B | None:
        """Take the smallest block of at least this size out."""
        floor = size << SHIFT
        chunks = self.chunks
        at = bisect_right(self.starts, floor) - 1
        chunk = chunks[at]
        place = bisect_left(chunk, floor)
        if place == len(chunk):
            at += 1
            if at == len(chunks):
                return None
            chunk, place = chunks[at], 0
        key = chunk.pop(place)
        if not chunk:
            self._drop(at)
        return self.blocks.pop(key)

    def first(self, floor: int) -> int:
        """Return the smallest key that is at least this one, or 0."""
        at = bisect_right(self.starts, floor) - 1
        chunk = self.chunks[at]
        place = bisect_left(chunk, floor)
        if place < len(chunk):
            return chunk[place]
        return self.chunks[at + 1][0] if at + 1 < len(self.chunks) else 0

    def last(self) -> int:
        """Return the largest key, or 0."""
        chunk = self.chunks[-1]
        return chunk[-1] if chunk else 0

    def ascending(self) -> Iterator[B]:
        """Yield all blocks, smallest first."""
        for chunk in self.chunks:
            for key in chunk:
                yield self.blocks[key]

    def descending(self) -> Iterator[B]:
        """Yield all blocks, largest first."""
        for chunk in reversed(self.chunks):
            for key in reversed(chunk):
                yield self.blocks[key]

    def _drop(self, at: int) -> None:
        """Remove an empty chunk; the keys of its range go to the one before it, or to the new first one."""
        if len(self.chunks) > 1:
            del self.chunks[at]
            del self.starts[at]
            self.starts[0] = 0


# Blocks of device memory, and the pools that keep the free ones.

IN_USE: Final = 0
UNMAPPED: Final = -1
"""Address space of an expandable segment without memory behind it."""
MERGED: Final = -2
"""Became part of the block before it."""
PENDING: Final = -3
"""Freed, but other streams have not finished with it."""
NO_SPLIT: Final = 1 << 100
"""More than is left over of any block."""


class Block:
    """A piece of a segment. What malloc returns is one of these, valid until it is freed."""

    __slots__ = ("address", "key", "next", "order", "pool", "prev", "requested", "size", "uses", "waits")

    def __init__(self, pool: Pool, size: int, address: int, order: int) -> None:
        self.pool = pool
        self.size = size
        """Bytes it takes, a multiple of 512."""
        self.address = address
        self.requested = 0
        """Bytes that were asked for."""
        self.order = order
        self.key = IN_USE
        """Its place among the free blocks where positive, else why it is not among them."""
        self.prev: Block | None = None
        self.next: Block | None = None
        self.uses: tuple[int, ...] = ()
        """Other streams that use it."""
        self.waits = 0
        """Events that have to be done before it can be used again, once it was freed."""

    def __repr__(self) -> str:
        return f"Block(size={self.size}, requested={self.requested}, address={self.address:#x})"

    @property
    def stream(self) -> int:
        """Return the stream it was allocated on, and can be used again on."""
        return self.pool.stream

    @property
    def whole(self) -> bool:
        """Return whether it is all of its segment."""
        return self.prev is None and self.next is None


class Kind:
    """The small or the large pools, one for each stream: of everybody, or of one private pool."""

    __slots__ = ("pools", "private", "searches", "small", "splits")

    def __init__(self, small: bool, private: int = 0, *, splits: bool = True) -> None:
        self.small = small
        self.private = private
        """The private pool's number, 0 for none."""
        self.splits = splits
        self.pools: dict[int, Pool] = {}
        self.searches = 0
        """Number of searches for a free block: the clock of the garbage collection."""


class Pool:
    """The free blocks of one kind on one stream. Streams never share blocks."""

    __slots__ = ("free", "kind", "least_rest", "orders", "owner", "split_below", "stream", "unmapped", "whole", "whole_bytes")

    def __init__(self, owner: object, kind: Kind, stream: int, least_rest: int, split_below: int, orders: Iterator[int]) -> None:
        self.owner = owner
        self.kind = kind
        self.stream = stream
        self.least_rest = least_rest
        """A block is split if at least this much is left over ..."""
        self.split_below = split_below
        """... and the request is smaller than this."""
        self.orders = orders
        self.free: FreeList[Block] = FreeList()
        self.whole: dict[Block, int] = {}
        """Free blocks that are all of their segment, with the kind's clock when they came to be."""
        self.whole_bytes = 0
        self.unmapped: list[Block] = []
        """Parts of expandable segments without memory, by address."""

    def new_block(self, size: int, address: int) -> Block:
        """Return a block that nothing is linked to yet."""
        return Block(self, size, address, next(self.orders))

    def add_whole(self, block: Block) -> None:
        """Note that a free block is all of its segment."""
        self.whole[block] = self.kind.searches
        self.whole_bytes += block.size

    def drop_whole(self, block: Block) -> None:
        """Forget that a block was free and all of its segment."""
        if self.whole.pop(block, None) is not None:
            self.whole_bytes -= block.size


def insert_after(block: Block, new: Block) -> None:
    """Link a new block in, to the right of another."""
    new.prev, new.next = block, block.next
    if block.next is not None:
        block.next.prev = new
    block.next = new


def absorb(block: Block, after: Block) -> None:
    """Make the next block a part of this one."""
    block.size += after.size
    block.next = after.next
    if after.next is not None:
        after.next.prev = block
    after.key = MERGED


def join_free(block: Block) -> Block:
    """Join a block that is to become free with its free neighbours; the leftmost object stays, under the order of the given one."""
    free = block.pool.free
    before, after = block.prev, block.next
    if before is not None and before.key > 0:
        free.remove(before.key)
        before.order = block.order
        absorb(before, block)
        block = before
    if after is not None and after.key > 0:
        free.remove(after.key)
        absorb(block, after)
    return block


# What the allocator holds, segment by segment.

State = Literal["active_allocated", "active_pending_free", "inactive"]


@immutable
class BlockState:
    """A block as it stands: in use, freed while another stream still uses it, or free."""

    address: int
    size: int
    requested: int
    state: State


@immutable
class Segment:
    """Memory that the device gave in one piece, or a mapped stretch of an expandable segment; its blocks tile it."""

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    blocks: tuple[BlockState, ...]
    pool: int = 0
    """The number of the private pool that it belongs to, 0 for none."""


_STATES: dict[int, State] = {IN_USE: "active_allocated", PENDING: "active_pending_free"}


def segments(heads: Iterable[Block], expandable: bool) -> list[Segment]:
    """Return the segments that begin with the given blocks, by address."""
    found = [_segment(run, expandable) for head in heads for run in _mapped_stretches(head)]
    return sorted(found, key=lambda segment: segment.address)


def _mapped_stretches(head: Block) -> Iterator[list[Block]]:
    """Yield the stretches of mapped blocks from a first block on."""
    run: list[Block] = []
    block: Block | None = head
    while block is not None:
        if block.key != UNMAPPED:
            run.append(block)
        elif run:
            yield run
            run = []
        block = block.next
    if run:
        yield run


def _segment(run: list[Block], expandable: bool) -> Segment:
    first, last = run[0], run[-1]
    blocks = tuple(_state(block) for block in run)
    size, kind = last.address + last.size - first.address, first.pool.kind
    return Segment(first.address, size, first.stream, kind.small, expandable, blocks, kind.private)


def _state(block: Block) -> BlockState:
    state = _STATES.get(block.key, "inactive")
    return BlockState(block.address, block.size, 0 if state == "inactive" else block.requested, state)
