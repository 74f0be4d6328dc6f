"""Replays that step over repeated layers count what replays of every request count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irscope.memory import tape as tapes
from irscope.memory.caching import CachingAllocator, OutOfMemory
from irscope.memory.repeats import repeats_in
from irscope.memory.tape import Span, Tape

MIB = 1 << 20
SIZES = st.sampled_from([1, 512, 4_000, 600_000, MIB, 3 * MIB, 9 * MIB, 10 * MIB, 25 * MIB, 64 * MIB + 1])
LAYERS = st.lists(st.tuples(SIZES, st.integers(1, 30)), min_size=1, max_size=14)
"""Of each tensor its size, and how many requests later it is given back."""


def layered(before: list[tuple[int, int]], layer: list[tuple[int, int]], count: int, after: list[tuple[int, int]], kept: int) -> Tape[Any]:
    """Layers that are alike between others that are not; every so many layers a tensor stays."""
    tape: Tape[Any] = Tape()
    for size in (5 * MIB, 700, 40 * MIB):
        tape.load(size, "parameter", "")
    due: dict[int, list[int]] = {}
    tensors = [*before, *(layer * count), *after]
    for number, (size, lasts) in enumerate(tensors):
        for slot in due.pop(number, ()):
            tape.events.append(~slot)
        slot = tape.slot(size, "activation", "")
        tape.events.append(slot)
        if not kept or number % kept:
            due.setdefault(number + lasts, []).append(slot)
    for slots in due.values():
        tape.events.extend(~slot for slot in slots)
    tape.starts = [0, len(tape.events)]
    tape.spans = [Span("cold", 0, 1), Span("warm", 0, 1)] if not kept else [Span("cold", 0, 1)]
    return tape


def said(tape: Tape[Any], make: Callable[[], CachingAllocator]) -> object:
    gpu = make()
    try:
        found = tape.replay(gpu, tape.numbers("central"))
    except OutOfMemory:
        return gpu.counters().retries
    held = {slot: (block.address, block.size, block.requested) for slot, block in found.held.items()}
    return found.outcomes, held, gpu.counters(), gpu.segments()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    LAYERS,
    LAYERS,
    st.integers(3, 40),
    LAYERS,
    st.sampled_from([0, 0, 7, 50]),
    st.sampled_from(["2.13", "2.11", "2.8"]),
    st.sampled_from(["", "", "expandable_segments:True", "max_split_size_mb:32"]),
    st.sampled_from([None, 400 * MIB, 150 * MIB]),
)
def test_periods_that_are_stepped_over_count(
    before: list[tuple[int, int]],
    layer: list[tuple[int, int]],
    count: int,
    after: list[tuple[int, int]],
    kept: int,
    torch: str,
    conf: str,
    memory: int | None,
) -> None:
    tape = layered(before, layer, count, after, kept)

    def make() -> CachingAllocator:
        return CachingAllocator(torch, conf, memory)

    expected = said(tape, make)
    for _ in range(4):
        assert said(tape, make) == expected


def test_most_of_alike_layers_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = layered([(MIB, 3)], [(3 * MIB, 2), (25 * MIB, 1), (9 * MIB, 4), (4_000, 3)], 100, [(MIB, 1)], 0)
    (repeat,) = repeats_in(tape.events, tape.sizes)
    assert repeat.period == 16 and repeat.end - repeat.begin > 700
    taken: list[int] = []
    real = CachingAllocator.malloc

    def counted(gpu: CachingAllocator, size: int, stream: int = 0) -> Any:
        taken.append(size)
        return real(gpu, size, stream)

    monkeypatch.setattr(CachingAllocator, "malloc", counted)
    for _ in range(tapes._REPLAYED_BEFORE + 1):
        taken.clear()
        said(tape, CachingAllocator)
    assert len(taken) < 150 < len(tape.sizes)


def test_other_sizes_than_those_on_the_tape_are_not_taken_to_repeat() -> None:
    tape = layered([], [(3 * MIB, 2), (25 * MIB, 1)], 60, [], 0)
    sizes = [size + 512 * place for place, size in enumerate(tape.numbers("central"))]
    expected = tape.replay(CachingAllocator(), sizes).outcomes
    for _ in range(3):
        assert tape.replay(CachingAllocator(), sizes).outcomes == expected
