"""Steps that are continued by a law are the steps that would have been run."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irscope.memory.caching import CachingAllocator
from irscope.memory.growth import Cut, Growth, NoLaw, StepRequests, continued, read_steps, streams_between
from irscope.memory.tape import Span, Tape, TapedAllocator

Size = Callable[[int], int]
"""Of a kept block, by the number of tokens."""


class Decoder:
    """A program that keeps a block for each size, replaces it in each step, and takes others for the time of a step."""

    def __init__(self, sizes: list[Size], side: bool = False) -> None:
        self.gpu = TapedAllocator("2.13", "", None, pending_frees="next_malloc")
        self._sizes = sizes
        self._side = side
        self._streams = 0

    def cut(self) -> Cut:
        return Cut(self.gpu.tape.cut(), self.gpu.issued())

    def run(self, tokens: int, steps: int) -> tuple[int, list[Cut], int]:
        """A prompt and steps after it: where it begins, where steps begin, where it ends."""
        begin = self.gpu.tape.cut()
        self._streams += self._side
        stream = self._streams
        kept = [self.gpu.malloc(size(tokens)) for size in self._sizes]
        work = self.gpu.malloc(1000 * tokens)
        cuts = []
        for step in range(1, steps + 1):
            cuts.append(self.cut())
            scratch = self.gpu.malloc(4096, stream)
            for number, size in enumerate(self._sizes):
                grown = self.gpu.malloc(size(tokens + step))
                self.gpu.free(kept[number])
                kept[number] = grown
            if stream:
                self.gpu.record_stream(kept[0], stream)
                event = self.gpu.record_event(stream)
                self.gpu.wait(0, event)
            self.gpu.free(scratch)
            if step == 1:
                self.gpu.free(work)
        for block in kept:
            self.gpu.free(block)
        return begin, cuts, self.gpu.tape.cut()


def _law(program: Decoder, prompt: int, last: int, names: list[int]) -> Growth:
    def capture(tokens: int) -> list[StepRequests]:
        begin, cuts, end = program.run(tokens - 2, 5)
        tape = program.gpu.tape
        own = dict(zip(streams_between(tape, begin, end), names, strict=False))
        return read_steps(tape, cuts, own)[1:]

    growth = Growth(capture)
    growth.cover(prompt + 3, prompt + last)
    return growth


def _sizes_and_streams(tape: Tape[Any], starts: list[int]) -> list[list[tuple[int, int] | int]]:
    """What each step takes, with its stream, and how often it gives back."""
    return [
        [
            (tape.sizes[event], tape.streams.get(event, 0)) if event >= 0 else -1
            for event in tape.events[first:end]
            if event < 0 or tape.sizes[event]
        ]
        for first, end in pairwise(starts)
    ]


@given(
    prompt=st.integers(1, 50),
    last=st.integers(12, 90),
    rates=st.lists(st.integers(1, 5000), min_size=1, max_size=4),
    window=st.integers(1, 120),
    side=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_continued_steps_are_those_that_would_have_run(prompt: int, last: int, rates: list[int], window: int, side: bool) -> None:
    sizes: list[Size] = [lambda tokens, rate=rate: rate * tokens for rate in rates]  # type: ignore[misc]  # the default binds it
    sizes.append(lambda tokens: 700 * min(tokens, window))
    program = Decoder(sizes, side)
    begin, cuts, end = program.run(prompt, 7)
    names = streams_between(program.gpu.tape, begin, end)
    growth = _law(program, prompt, last, names)
    tape, starts, _ = continued(program.gpu.tape, cuts[:6], growth, last, prompt)

    whole = Decoder(sizes, side)
    _, wanted, _ = whole.run(prompt, last + 1)
    assert _sizes_and_streams(tape, starts)[: last - 1] == _sizes_and_streams(whole.gpu.tape, [one.at for one in wanted])[: last - 1]
    # The allocator counts the same, whoever asks.
    tape.starts, tape.spans = [0, starts[-1]], [Span("all", 0, 1)]
    true = whole.gpu.tape.until((wanted[-1].at, sum(action.at < wanted[-1].at for action in whole.gpu.tape.actions)))
    counted = [one.replay(CachingAllocator("2.13"), one.numbers("central")).outcomes for one in (tape, true)]
    assert [(count.peak, count.after) for count in counted[0]] == [(count.peak, count.after) for count in counted[1]]
    assert len(growth.captured) < 40


def test_steps_without_a_law_are_not_guessed() -> None:
    program = Decoder([lambda tokens: 1000 + tokens * tokens])
    program.run(5, 7)
    with pytest.raises(NoLaw):
        _law(program, 5, 400, [])


def test_few_captures_show_a_straight_line() -> None:
    program = Decoder([lambda tokens: 512 * tokens])
    program.run(5, 7)
    growth = _law(program, 5, 100_000, [])
    assert len(growth.captured) <= 3
    assert len(growth.pieces) == 1
    assert growth.piece(50_005).sizes(50_005)[1] == 512 * 50_005
