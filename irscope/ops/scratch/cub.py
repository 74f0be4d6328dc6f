"""Temporary storage of the parallel primitives (scan, select, reduce, radix sort) that PyTorch takes from NVIDIA's CUB library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from irscope.ir.dtypes import DType
from irscope.ops.scratch.recorder import is_half, width
from irscope.ops.spec import NeedsNumbers

if TYPE_CHECKING:
    from irscope.devices.target import Target

_ALIGNMENT = 256
_PADDING_TILES = 32
"""States of tiles that are never reached, so that every look-back finds one."""
_DIGITS = 256
_SINGLE_TILE = 4096
_BLOCK = 256
_BLOCKS_PER_PROCESSOR = 5

_SORT_TILE = {2: 5632, 4: 5376, 8: 4608}
"""Pairs of a key of so many bytes and an index of eight that a block of threads sorts at once."""
_KEYS_TILE = 5760
_SELECT_TILE = 4224
_SCAN_TILE = 1920
_HALF_SCAN_TILE = 3840
_WIDE_SCAN_TILE = 896


def _storage(*parts: int) -> int:
    """Parts laid out one after another, each aligned, and room to align the whole."""
    return sum(-(-part // _ALIGNMENT) * _ALIGNMENT for part in parts) + _ALIGNMENT - 1


def scan(dtype: DType, count: int) -> int:
    """A running sum: a state for each tile that later ones look back to."""
    if is_half(dtype):
        tiles = _tiles(count, _HALF_SCAN_TILE)
        return _storage(1, tiles * 4, tiles * 2, tiles * 2)
    if width(dtype) == 4:
        return _storage(1, _tiles(count, _SCAN_TILE) * 8)
    if width(dtype) == 8 and not dtype.text.startswith("c"):
        return _storage(1, _tiles(count, _WIDE_SCAN_TILE) * 16)
    raise NeedsNumbers(f"the scratch memory of running sums of {dtype.text} is not known")


def _tiles(count: int, tile: int) -> int:
    return -(-count // tile) + _PADDING_TILES


def select(count: int) -> int:
    """Positions of the elements that hold."""
    return _storage(1, _tiles(count, _SELECT_TILE) * 8)


def reduce(target: Target, count: int) -> int:
    """A number of four bytes from each block; one block does a small input alone."""
    if count <= _SINGLE_TILE:
        return 1
    resident = (target.device.threads_per_multiprocessor or 2048) // _BLOCK
    return _storage((target.device.multiprocessors or 1) * resident * _BLOCKS_PER_PROCESSOR * 4)


def sort_pairs(count: int, key: int, value: int, bits: int | None = None) -> int:
    """Sorting by keys, eight bits at a time, with copies of both to swap with."""
    tile = _SORT_TILE.get(key)
    if tile is None:
        raise NeedsNumbers(f"the scratch memory of sorting keys of {key} bytes is not known")
    return _storage(count * key, count * value, *_passes(count, tile, bits or key * 8))


def sort_in_place(count: int, key: int, bits: int) -> int:
    """Pairs with buffers of the caller to swap with; few enough need only one block."""
    tile = _SORT_TILE[key]
    return 1 if count <= tile // 2 else _storage(*_passes(count, tile, bits))


def sort_keys(count: int, bits: int, swaps: int = 0) -> int:
    """Sorting keys alone; `swaps` are the bytes of a key where the caller gives no second buffer."""
    return _storage(count * swaps, *_passes(count, _KEYS_TILE, bits))


def segmented_sort(count: int, key: int, value: int) -> int:
    """Sorting many rows, each by itself."""
    return _storage(count * key, count * value)


def _passes(count: int, tile: int, bits: int) -> tuple[int, int, int]:
    """Look-back states, counts of digits for each pass, counters."""
    passes = -(-bits // 8)
    return -(-count // tile) * _DIGITS * 4, passes * _DIGITS * 8, passes * 4
