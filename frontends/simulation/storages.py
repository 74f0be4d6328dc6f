"""Tensors on a device without memory: real tensors of torch whose storages have an address and a size, and nothing behind it.

They are made through DLPack, the only public way by which torch takes memory that somebody else manages: the address is the simulated
allocator's, and torch calls back when the last reference to a storage is gone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from irscope.frontends.eager.pretend import Deaths, kept_for_good

_CUDA: Final = 2
"""kDLCUDA."""
_CODES: Final[dict[torch.dtype, tuple[int, int]]] = {
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.bfloat16: (4, 16),
    torch.int8: (0, 8),
    torch.int16: (0, 16),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.uint8: (1, 8),
    torch.uint16: (1, 16),
    torch.uint32: (1, 32),
    torch.uint64: (1, 64),
    torch.complex64: (5, 64),
    torch.complex128: (5, 128),
    torch.bool: (6, 8),
}
"""DLPack's type code and bits. Other element types are made as bytes and viewed."""
_CHUNK: Final = 1024


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("axes", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_uint64),
        ("strides", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_uint64),
        ("deleter", ctypes.c_void_p),
    )


class Form:
    """Layout of a tensor with its own storage: one object for all tensors that look alike."""

    __slots__ = ("_kept", "axes", "bits", "bytes", "code", "dtype", "shape", "shape_at", "strides", "strides_at", "viewed")

    def __init__(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, size: int | None = None) -> None:
        self.shape, self.strides, self.dtype = tuple(shape), tuple(strides), dtype
        least = storage_bytes(self.shape, self.strides, dtype.itemsize)
        self.bytes = least if size is None else size
        """Bytes allocated; less than the elements need where a real kernel leaves a result in the host's memory."""
        known = _CODES.get(dtype)
        self.viewed = known is None or self.bytes > least
        """True where it is made as bytes and viewed: a type that DLPack lacks, or a storage with more bytes than the elements need."""
        made_shape, made_strides = ((max(self.bytes, least),), (1,)) if self.viewed else (self.shape, self.strides)
        self.code, self.bits = _CODES[torch.uint8] if known is None or self.viewed else known
        self.axes = axes = len(made_shape)
        self._kept = (ctypes.c_int64 * (2 * axes + 1))(*made_shape, *made_strides)
        self.shape_at = ctypes.addressof(self._kept)
        self.strides_at = self.shape_at + 8 * axes


def storage_bytes(shape: Sequence[int], strides: Sequence[int], item: int) -> int:
    """Return the size of the smallest storage for these elements."""
    last = 0
    for size, step in zip(shape, strides, strict=True):
        if not size:
            return 0
        last += (size - 1) * step
    return (last + 1) * item


class Storages:
    """Makes tensors and tells which storages have died."""

    def __init__(self, died: Callable[[Any], None]) -> None:
        """`died` is called with what the storage was made for."""
        self._died = died
        self.device = 0
        """The number of the device that tensors are made on."""
        self._owners: dict[int, Any] = {}
        """By the address of the structure that torch gives back."""
        self._free: list[_Managed] = []
        self._by_address: dict[int, _Managed] = {}
        self._deaths = Deaths()
        self._capsule: Any = ctypes.pythonapi.PyCapsule_New
        self._capsule.restype = ctypes.py_object
        self._capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self._fields = _StorageFields(self)

    def make(self, form: Form, address: int, owner: Any) -> torch.Tensor:
        """Return a tensor at an address; `owner` is what `died` is told."""
        managed = self._free.pop() if self._free else self._more()
        managed.data, managed.device_id = address, self.device
        managed.axes, managed.code, managed.bits = form.axes, form.code, form.bits
        managed.shape, managed.strides = form.shape_at, form.strides_at
        at = ctypes.addressof(managed)
        self._owners[at] = owner
        made: torch.Tensor = torch._C._from_dlpack(self._capsule(at, b"dltensor", None))
        if form.viewed:
            whole = made.numel() // form.dtype.itemsize * form.dtype.itemsize
            made = made[:whole].view(form.dtype).as_strided(form.shape, form.strides)
        return made

    def resize(self, storage: torch.UntypedStorage, size: int, address: int) -> None:
        """Give a storage another size and address, for all tensors that share it."""
        self._fields.write(storage, size, address)

    def address_of(self, storage: int) -> int:
        """Return the address that a `c10::StorageImpl` has."""
        return self._fields.address(storage)

    def _more(self) -> _Managed:
        chunk = kept_for_good((_Managed * _CHUNK)())
        for one in chunk:
            one.device_type, one.lanes, one.deleter = _CUDA, 1, self._deaths.deleter
            self._by_address[ctypes.addressof(one)] = one
            self._free.append(one)
        return self._free.pop()

    def settle(self) -> None:
        """Tell of the storages that have died since the last call."""
        if not self._deaths.waiting:
            return
        for at in self._deaths.take():
            self._free.append(self._by_address[at])
            owner = self._owners.pop(at)
            if owner is not None:
                self._died(owner)


class _StorageFields:
    """Places of address and size in `c10::StorageImpl`: known by looking at a storage whose values are known."""

    _ADDRESS, _SIZE, _WORDS = 0x7E5A5A5A5A00, 0x5A5A540, 24

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._places: tuple[int, int] | None = None

    def write(self, storage: torch.UntypedStorage, size: int, address: int) -> None:
        """Overwrite both."""
        at_address, at_size = self._places or self._find()
        words = (ctypes.c_uint64 * self._WORDS).from_address(storage._cdata)
        words[at_address], words[at_size] = address, size

    def address(self, storage: int) -> int:
        """Read the address."""
        at_address, _ = self._places or self._find()
        return int((ctypes.c_uint64 * self._WORDS).from_address(storage)[at_address])

    def _find(self) -> tuple[int, int]:
        probe = self._storages.make(Form((self._SIZE,), (1,), torch.uint8), self._ADDRESS, None)
        words = list((ctypes.c_uint64 * self._WORDS).from_address(probe.untyped_storage()._cdata))
        self._places = (words.index(self._ADDRESS), words.index(self._SIZE))
        return self._places
