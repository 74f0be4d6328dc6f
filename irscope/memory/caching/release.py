"""Giving cached memory back to the device: all of it, the oldest of it, or just enough of the largest."""

from __future__ import annotations

from collections.abc import Iterable

from irscope.memory.caching.blocks import MERGED, Block, Kind, Pool
from irscope.memory.caching.device import Device
from irscope.memory.caching.freelist import SHIFT


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
