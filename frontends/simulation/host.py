"""Pinned host memory: real memory of the plain allocator, known by its address and counted."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from irscope.frontends.eager.pretend import Deaths, pinned

_ALLOCATE: Final = 2
"""The place of `allocate` in the table of c10::Allocator, after two destructors."""
_METHODS: Final = 16


class _DataPtr(ctypes.Structure):
    """c10::DataPtr: the memory, the deleter, what it gets, the device."""

    _fields_ = (("data", ctypes.c_uint64), ("deleter", ctypes.c_uint64), ("context", ctypes.c_uint64), ("device", ctypes.c_uint64))


class PinnedMemory:
    """An allocator as torch's plain one that remembers what it gave."""

    def __init__(self) -> None:
        self.bytes = self.peak = 0
        self._high = 0
        """The most since the last interval ended."""
        self._kept: list[Any] = []
        # A method that returns an object gets the address for it as its first argument on x86-64, the only machine that is simulated on.
        plain = pinned.plain()
        methods = (ctypes.c_uint64 * _METHODS).from_address(ctypes.c_uint64.from_address(plain).value)
        table = (ctypes.c_uint64 * _METHODS)(*methods)
        signature = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t)
        self._allocate = signature(methods[_ALLOCATE])
        self._plain = plain
        self._delete: dict[int, tuple[int, int]] = {}
        self._deaths = Deaths()
        callback = signature(self._give)
        table[_ALLOCATE] = ctypes.cast(callback, ctypes.c_void_p).value or 0
        made = (ctypes.c_uint64 * 4)(ctypes.addressof(table))
        self._kept += [table, callback, made]
        pinned.allocator = ctypes.addressof(made)

    def _give(self, into: int, allocator: int, size: int) -> int:
        self.settle()
        self._allocate(into, self._plain, size)
        found = _DataPtr.from_address(into)
        if found.data:
            self._delete[found.context] = (found.deleter, found.data)
            pinned.sizes[found.data] = size
            found.deleter = self._deaths.deleter
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
            self._high = max(self._high, self.bytes)
        return into

    def end_of_interval(self) -> tuple[int, int]:
        """The most bytes since the last call, and those there are."""
        self.settle()
        high, self._high = self._high, self.bytes
        return high, self.bytes

    def settle(self) -> None:
        """Give back what is no longer used."""
        for context in self._deaths.take():
            deleter, data = self._delete.pop(context)
            self.bytes -= pinned.sizes.pop(data)
            ctypes.CFUNCTYPE(None, ctypes.c_uint64)(deleter)(context)
