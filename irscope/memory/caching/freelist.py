"""The free blocks of a pool, smallest first: what PyTorch keeps in a balanced tree."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

_FULL: Final = 256
"""Chunks are halved beyond this many keys. It changes only how long insertion takes."""

SHIFT: Final = 64
"""Keys are size * 2**64 + tie: one integer orders blocks by size, then by what decides between equal sizes."""


class Sized(Protocol):
    """What can stand in a free list."""

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
        """The smallest key that is at least this one, or 0."""
        at = bisect_right(self.starts, floor) - 1
        chunk = self.chunks[at]
        place = bisect_left(chunk, floor)
        if place < len(chunk):
            return chunk[place]
        return self.chunks[at + 1][0] if at + 1 < len(self.chunks) else 0

    def ascending(self) -> Iterator[B]:
        """All blocks, smallest first."""
        for chunk in self.chunks:
            for key in chunk:
                yield self.blocks[key]

    def descending(self) -> Iterator[B]:
        """All blocks, largest first."""
        for chunk in reversed(self.chunks):
            for key in reversed(chunk):
                yield self.blocks[key]

    def _drop(self, at: int) -> None:
        """Remove an empty chunk; the keys of its range go to the one before it, or to the new first one."""
        if len(self.chunks) > 1:
            del self.chunks[at]
            del self.starts[at]
            self.starts[0] = 0
