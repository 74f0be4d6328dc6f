"""ONNX Runtime's arena: regions as they were observed, and each rule on its own."""

from __future__ import annotations

import random

import pytest

from irscope.errors import UsageError
from irscope.memory import BfcArena, OutOfMemory
from irscope.memory.arena import Chunk, likeness_of
from tests.tables import every

KIB = 1 << 10
MIB = 1 << 20


def alloc(arena: BfcArena, size: int) -> Chunk:
    chunk = arena.malloc(size)
    assert chunk is not None
    return chunk


def region_sizes(arena: BfcArena) -> list[int]:
    return [region.size for region in arena.regions()]


def test_regions_as_onnxruntime_logs_them() -> None:
    """onnxruntime 1.31.1 printed these extensions; every request stays alive."""
    arena = BfcArena()
    for mib in (0.1, 0.9, 1.5, 3, 20, 40, 200, 600, 600, 700, 1200, 2500):
        alloc(arena, int(mib * MIB))
    assert [size // MIB for size in region_sizes(arena)] == [1, 2, 4, 8, 32, 64, 256, 1024, 1024, 1024, 2048, 4096]


def test_what_is_left_of_a_large_region_serves_later_requests() -> None:
    """Also observed: 1024 MiB fit behind 2500 MiB in the region of 4096 MiB."""
    arena = BfcArena()
    for mib in (700, 1200, 2500, 1024):
        alloc(arena, mib * MIB)
    assert [size // MIB for size in region_sizes(arena)] == [1024, 2048, 4096]
    assert arena.in_use == (700 + 1200 + 2500 + 1024) * MIB


def test_after_a_region_that_did_not_double_the_next_is_at_most_one_gibibyte() -> None:
    arena = BfcArena()
    for mib in (2500, 3000, 3500, 900):
        alloc(arena, mib * MIB)
    # 4096 because of 2500; 4096 again, after which it falls to 1024; 3500 doubles to 4096; 900 fits behind 3000.
    assert [size // MIB for size in region_sizes(arena)] == [4096, 4096, 4096]


def test_same_as_requested_takes_what_is_asked() -> None:
    arena = BfcArena("same_as_requested")
    for size in (1, 1000, 5 * MIB + 1):
        alloc(arena, size)
    assert region_sizes(arena) == [256, 1024, 5 * MIB + 256]


def test_a_chunk_is_split_when_half_of_it_is_left_over() -> None:
    arena = BfcArena("same_as_requested")
    arena.free(alloc(arena, 1024))
    assert alloc(arena, 768).size == 1024
    arena = BfcArena("same_as_requested")
    arena.free(alloc(arena, 1024))
    assert alloc(arena, 512).size == 512


def test_a_chunk_is_split_when_too_much_is_left_over() -> None:
    arena = BfcArena("same_as_requested", most_dead=64 * KIB)
    arena.free(alloc(arena, 200 * KIB))
    assert alloc(arena, 140 * KIB).size == 200 * KIB
    arena = BfcArena("same_as_requested", most_dead=60 * KIB)
    arena.free(alloc(arena, 200 * KIB))
    assert alloc(arena, 140 * KIB).size == 140 * KIB


def test_the_smallest_free_chunk_that_fits_is_taken() -> None:
    arena = BfcArena("same_as_requested")
    large, small = alloc(arena, 8 * KIB), alloc(arena, 6 * KIB)
    arena.free(large)
    arena.free(small)
    assert alloc(arena, 5 * KIB) is small


def test_neighbours_are_joined() -> None:
    arena = BfcArena()
    parts = [alloc(arena, 100 * KIB) for _ in range(3)]
    for index in (0, 2, 1):
        arena.free(parts[index])
    assert [chunk.size for chunk in arena.regions()[0].chunks()] == [MIB]


def test_counters() -> None:
    arena = BfcArena()
    first = alloc(arena, 1000)
    packed = arena.reserve(5000)
    arena.free(first)
    counters = arena.counters()
    assert (counters.requested, counters.in_use, counters.held) == (5000, 5000, MIB + 5000)
    assert (counters.requested_peak, counters.in_use_peak, counters.held_peak) == (6000, 6024, MIB + 5000)
    assert (counters.allocs, counters.reserves, counters.extensions, counters.shrinkages, counters.largest) == (2, 1, 1, 0, 5000)
    arena.free(packed)
    assert (arena.requested, arena.in_use, arena.held) == (0, 0, MIB)
    arena.reset_peaks()
    assert arena.counters().in_use_peak == 0


def test_nothing_is_nothing() -> None:
    arena = BfcArena()
    assert arena.malloc(0) is None
    assert arena.reserve(0) is None
    arena.free(None)
    assert arena.counters().held == 0


def test_shrinking_keeps_the_first_region_of_powers_of_two() -> None:
    arena = BfcArena()
    chunks = [alloc(arena, size) for size in (MIB, 3 * MIB, 9 * MIB)]
    assert [size // MIB for size in region_sizes(arena)] == [1, 4, 16]
    arena.free(chunks[0])
    arena.free(chunks[1])
    assert arena.shrink() == 4 * MIB
    assert [size // MIB for size in region_sizes(arena)] == [1, 16]
    # Regions begin at 2 MiB again, where they would have gone on with 32.
    alloc(arena, 8 * MIB)
    assert region_sizes(arena)[-1] == 8 * MIB
    assert arena.counters().shrinkages == 1


def test_shrinking_same_as_requested_keeps_nothing() -> None:
    arena = BfcArena("same_as_requested")
    arena.free(alloc(arena, MIB))
    assert arena.shrink() == MIB
    assert arena.regions() == []


def test_a_limit_cuts_the_region_and_then_refuses() -> None:
    arena = BfcArena(limit=10 * MIB)
    alloc(arena, 5 * MIB)
    assert arena.held == 8 * MIB
    alloc(arena, MIB + 512 * KIB)
    assert region_sizes(arena) == [8 * MIB, 2 * MIB]
    with pytest.raises(OutOfMemory) as caught:
        arena.malloc(3 * MIB)
    assert caught.value.code == "IRS322"
    assert "10.00 MiB" in str(caught.value)


def test_a_full_device_is_asked_for_less() -> None:
    arena = BfcArena(device_memory=100 * MIB)
    alloc(arena, 70 * MIB)
    # 128 MiB are refused, then nine tenths of what was tried before, until it fits.
    assert 70 * MIB <= arena.held <= 100 * MIB
    with pytest.raises(OutOfMemory):
        arena.reserve(101 * MIB)
    with pytest.raises(OutOfMemory):
        arena.malloc(90 * MIB)


def test_misuse_is_refused() -> None:
    arena = BfcArena()
    chunk = alloc(arena, 10)
    arena.free(chunk)
    for wrong in (chunk, alloc(BfcArena(), 10)):
        with pytest.raises(UsageError) as caught:
            arena.free(wrong)
        assert caught.value.code == "IRS642"
    for call in (lambda: arena.malloc(-1), lambda: arena.reserve(-1), lambda: BfcArena(limit=-1)):
        with pytest.raises(UsageError):
            call()
    with pytest.raises(UsageError, match="next_power_of_two, same_as_requested"):
        BfcArena("kNextPowerOfTwo")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        BfcArena(first_region=0)


@every("seed", range(40))
def test_what_is_loaded_at_once_leaves_the_arena_as_one_request_after_another(seed: int) -> None:
    chance = random.Random(seed)
    limits = {"limit": chance.choice([None, 4 * MIB]), "device_memory": chance.choice([None, 8 * MIB])}
    settings = {"first_region": chance.choice([4 * KIB, MIB]), "most_dead": chance.choice([KIB, 128 * MIB])}
    arenas = [BfcArena(**limits, **settings) for _ in range(2)]
    for arena in arenas:
        held = [alloc(arena, size) for size in (5000, 300, 70_000, 1000)]
        arena.free(held[0])
        arena.free(held[2])
    sizes = [chance.choice([0, chance.randrange(300), chance.randrange(1 << chance.randrange(1, 18))]) for _ in range(150)]
    ends: list[str] = []
    for arena, load in zip(arenas, (lambda arena: [arena.malloc(size) for size in sizes], lambda arena: arena.load(sizes)), strict=True):
        try:
            load(arena)
            ends.append("")
        except OutOfMemory as error:
            ends.append(str(error))
    assert ends[0] == ends[1]
    for size in (700, 30_000, 256):
        assert arenas[0].counters() == arenas[1].counters()
        assert likeness_of(arenas[0]) == likeness_of(arenas[1])
        if not ends[0]:
            for arena in arenas:
                alloc(arena, size)
