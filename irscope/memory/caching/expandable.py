"""Expandable segments: address space for all of the device, and memory mapped behind it page by page as blocks need it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from irscope.memory.caching.blocks import IN_USE, UNMAPPED, Block, Pool, absorb, insert_after, join_free
from irscope.memory.caching.device import Device
from irscope.memory.caching.freelist import SHIFT
from irscope.memory.caching.sizes import SMALL_SEGMENT

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
        """The key of the free block to use, or 0: the one that could grow least, beginning with the smallest that is large enough."""
        free = pool.free
        key = free.first(size << SHIFT)
        while key:
            other = free.first(key + 1)
            if not other or _growable(free.blocks[other]) >= _growable(free.blocks[key]):
                return key
            key = other
        return 0

    def grow(self, pool: Pool, size: int) -> Block | None:
        """A block of at least this size with new memory behind it, or None where the device has too little."""
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
        """The lowest free addresses that are wide enough: unmapped ones, perhaps with a free block before them."""
        for unmapped in pool.unmapped:
            before = unmapped.prev
            block = before if before is not None and before.key > 0 else unmapped
            if _room(block, size):
                return block
        return None

    def _new_segment(self, pool: Pool, size: int) -> Block | None:
        """The addresses of a new segment, unless even a whole segment is too small: blocks cannot span two."""
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
        del pool.unmapped[_place(pool.unmapped, block)]
        if mapped < block.size:
            rest = pool.new_block(block.size - mapped, block.address + mapped)
            rest.key = UNMAPPED
            insert_after(block, rest)
            block.size = mapped
            pool.unmapped.insert(_place(pool.unmapped, rest), rest)
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
            del unmapped[_place(unmapped, before)]
            before.order = block.order
            absorb(before, block)
            block = before
        if after is not None and after.key == UNMAPPED:
            del unmapped[_place(unmapped, after)]
            absorb(block, after)
        if block.whole:
            del self._heads[block]
        else:
            unmapped.insert(_place(unmapped, block), block)


def _place(unmapped: list[Block], block: Block) -> int:
    """Where a block stands, or belongs, in a list by address."""
    return bisect_left(unmapped, block.address, key=_ADDRESS)


def _growable(block: Block) -> int:
    """The size that a free block has or could get."""
    after = block.next
    return block.size + (after.size if after is not None and after.key == UNMAPPED else 0)


def _room(block: Block | None, size: int) -> bool:
    """Whether free and unmapped blocks from here on make up this size."""
    found = 0
    while found < size and block is not None and (block.key > 0 or block.key == UNMAPPED):
        found += block.size
        block = block.next
    return found >= size
