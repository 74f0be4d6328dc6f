"""Chunks of the arena: what a request gets, and what is left over of a region."""

from __future__ import annotations

from typing import Final

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
        """How many regions the arena had when it got this one."""

    def chunks(self) -> list[Chunk]:
        """Its chunks by address."""
        found = []
        chunk: Chunk | None = self.first
        while chunk is not None:
            found.append(chunk)
            chunk = chunk.next
        return found


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
