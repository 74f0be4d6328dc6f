"""Recorded sequences, and how they are run on the simulator."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from irscope.memory.caching import Block, CachingAllocator, MemPool, OutOfMemory

DATA = Path(__file__).parents[2] / "data" / "allocator"
Row = list[Any]

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "2GiB-device": {"total_memory": 2 << 30},
    "expandable": {"alloc_conf": "expandable_segments:True"},
    "gc": {"alloc_conf": "garbage_collection_threshold:0.5,per_process_memory_fraction:0.02", "total_memory": 144 << 30},
    "max_split_128_3GiB": {"alloc_conf": "max_split_size_mb:128", "total_memory": 3 << 30},
    "roundup_8": {"alloc_conf": "roundup_power2_divisions:8"},
}
"""What the names in traces.json.gz stand for."""


def recorded(name: str) -> list[dict[str, Any]]:
    """The entries of a file of recordings."""
    entries: list[dict[str, Any]] = json.loads(gzip.decompress((DATA / name).read_bytes()))
    return entries


def play(allocator: CachingAllocator, operations: list[list[Any]]) -> list[Row]:
    """The counters after every operation, behind "OOM" where memory ran out."""
    live: dict[int, Block] = {}
    pools: dict[int, MemPool] = {}
    rows: list[Row] = []
    for operation in operations:
        failed = [] if step(allocator, live, operation, pools) else ["OOM"]
        rows.append([*failed, *allocator.counters().values()])
    return rows


def rows_of(changes: list[Any]) -> list[Any]:
    """Counters after each operation from their changes."""
    row, rows = [0] * 12, []
    for change in changes:
        if change != "OOM":
            row = list(row)
            for counter, more in zip(change[::2], change[1::2], strict=True):
                row[counter] += more
        rows.append(change if change == "OOM" else row)
    return rows


def step(allocator: CachingAllocator, live: dict[int, Block], operation: list[Any], pools: dict[int, MemPool]) -> bool:
    """Do one operation; false where memory ran out. Blocks that were never had are not freed."""
    match operation:
        case ["a", name, size, *stream]:
            try:
                live[name] = allocator.malloc(size, *stream)
            except OutOfMemory:
                return False
        case ["f", name] if name in live:
            allocator.free(live.pop(name))
        case ["r", name, stream] if name in live:
            allocator.record_stream(live[name], stream)
        case ["e"]:
            allocator.empty_cache()
        case ["s" | "d"]:
            allocator.synchronize()
        case ["w", stream]:
            allocator.synchronize(stream)
        case ["p"]:
            allocator.reset_peaks()
        case _:
            _use_pool(allocator, pools, operation)
    return True


def _use_pool(allocator: CachingAllocator, pools: dict[int, MemPool], operation: list[Any]) -> None:
    match operation:
        case ["p", name]:
            pools[name] = allocator.pool()
        case ["b", name]:
            pools[name].begin()
        case ["n", name]:
            pools[name].end()
        case ["x", name]:
            pools.pop(name).release()
