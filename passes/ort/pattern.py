"""The memory pattern: the offset of each buffer in the one block that ONNX Runtime allocates from the second run on."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.memory.caching.blocks import FreeList
from irscope.passes.ort.plan import Buffers

ALIGNMENT = 256


def pattern_bytes(buffers: Buffers, sizes: Sequence[int], traced: Sequence[bool]) -> int:
    """The size of the block: each buffer goes into the smallest sufficient gap between live ones (best fit), or behind the last."""
    packing = _Packing()
    for taken, dropped in zip(buffers.taken, buffers.dropped, strict=True):
        for value in taken:
            if traced[value] and not buffers.is_output[value]:
                packing.take(value, aligned(sizes[value]))
        for value in dropped:
            packing.drop(value)
    return packing.height


def aligned(size: int) -> int:
    """Aligned bytes of a tensor in the block."""
    return (size + ALIGNMENT - 1) & -ALIGNMENT


class _Piece:
    """A buffer, or a gap between buffers."""

    __slots__ = ("address", "key", "next", "order", "prev", "size")

    def __init__(self, size: int, address: int, prev: _Piece | None, following: _Piece | None) -> None:
        self.size = size
        self.address = address
        self.order = 0
        self.key = 0
        self.prev = prev
        self.next = following
        if prev is not None:
            prev.next = self
        if following is not None:
            following.prev = self


class _Packing:
    """Buffers and gaps that tile the block up to the last live buffer; gaps also sorted by size."""

    def __init__(self) -> None:
        self.height = 0
        self.last: _Piece | None = None
        self.gaps: FreeList[_Piece] = FreeList()
        self.placed: dict[int, _Piece] = {}

    def take(self, value: int, size: int) -> None:
        if not size:
            return
        piece = self.gaps.take(size)
        if piece is None:
            last = self.last
            piece = self.last = _Piece(size, 0 if last is None else last.address + last.size, last, None)
            self.height = max(self.height, piece.address + size)
        elif piece.size > size:
            self.gaps.add(_Piece(piece.size - size, piece.address + size, piece, piece.next))
            piece.size = size
        piece.key = 0
        self.placed[value] = piece

    def drop(self, value: int) -> None:
        piece = self.placed.pop(value, None)
        if piece is None:
            return
        for other in (piece.prev, piece.next):
            if other is not None and other.key:
                self.gaps.remove(other.key)
                piece.size += other.size
                piece.address = min(piece.address, other.address)
                self._unlink(other)
        if piece is self.last:
            self._unlink(piece)
        else:
            self.gaps.add(piece)

    def _unlink(self, piece: _Piece) -> None:
        if piece.prev is not None:
            piece.prev.next = piece.next
        if piece.next is not None:
            piece.next.prev = piece.prev
        else:
            self.last = piece.prev
