"""ONNX Runtime's arena under any sequence of calls: chunks tile their regions, counters add up, and nothing is lost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from irscope.memory import BfcArena, OutOfMemory
from irscope.memory.arena import Chunk

KIB = 1 << 10
SCALED: dict[str, Any] = {"first_region": KIB, "after_shrinking": 2 * KIB, "most_doubled": 1 << 20, "most_dead": 128 * KIB}
CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    SCALED,
    {"strategy": "same_as_requested"},
    {**SCALED, "limit": 3 << 20},
    {**SCALED, "device_memory": 2 << 20},
    {"strategy": "same_as_requested", "limit": 1 << 20},
]
sizes = st.one_of(st.integers(0, 3000), st.integers(0, 100_000), st.integers(0, 900_000))
operations = st.lists(
    st.one_of(
        st.tuples(st.just("malloc"), sizes),
        st.tuples(st.just("reserve"), sizes),
        st.tuples(st.sampled_from(["free", "shrink"]), st.integers(0, 50)),
    ),
    max_size=120,
)


def check(arena: BfcArena, live: list[Chunk]) -> None:
    held = in_use = 0
    for region in arena.regions():
        chunks = region.chunks()
        at = chunks[0].address
        for before, after in pairwise(chunks):
            assert before.key == 0 or after.key == 0, "free neighbours are joined"
        for chunk in chunks:
            assert chunk.address == at
            assert chunk.size > 0 and chunk.size % 256 == 0
            at += chunk.size
            in_use += 0 if chunk.key else chunk.size
        assert at - chunks[0].address == region.size
        held += region.size
    reserved = sum(chunk.size for chunk in live if chunk.key < 0)
    assert arena.held == held + reserved
    assert arena.in_use == in_use + reserved == sum(chunk.size for chunk in live)
    assert arena.requested == sum(chunk.requested for chunk in live)
    counters = arena.counters()
    assert counters.in_use_peak >= arena.in_use
    assert counters.held_peak >= arena.held
    assert counters.requested <= counters.in_use <= counters.held


@given(st.sampled_from(CONFIGURATIONS), operations)
def test_any_sequence(configuration: dict[str, Any], plan: list[tuple[str, int]]) -> None:
    arena = BfcArena(**configuration)
    live: list[Chunk] = []
    for name, number in plan:
        if name == "free":
            if live:
                arena.free(live.pop(number % len(live)))
        elif name == "shrink":
            arena.shrink()
        else:
            before = arena.counters()
            try:
                made = arena.malloc(number) if name == "malloc" else arena.reserve(number)
            except OutOfMemory:
                assert (arena.requested, arena.in_use, arena.held) == (before.requested, before.in_use, before.held)
            else:
                if made is not None:
                    assert made.requested == number <= made.size
                    assert made.size < 2 * number + 512 or made.size - number < 128 << 20
                    live.append(made)
        check(arena, live)
    for chunk in live:
        arena.free(chunk)
    check(arena, [])
    arena.shrink()
    assert all(region.number == 0 for region in arena.regions())


@given(st.lists(sizes, max_size=60))
def test_what_is_freed_is_used_again(wanted: list[int]) -> None:
    """The same requests a second time need no more from the device."""
    arena = BfcArena()
    chunks = [arena.malloc(size) for size in wanted]
    held = arena.held
    for chunk in chunks:
        arena.free(chunk)
    for size in sorted(wanted, reverse=True):
        arena.malloc(size)
    if len(arena.regions()) == 1:
        assert arena.held == held
