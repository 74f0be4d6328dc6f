"""Peaks of what is asked for as formulas of the batch, the prompt and new tokens, from a few runs of a model that is loaded."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from irscope.memory.formulas import PeakFormula, Samples, peak_formula, polynomial_through
from irscope.memory.growth import Cut, read_steps
from irscope.memory.moments import alive_at

if TYPE_CHECKING:
    from irscope.frontends.generation.program import Generator, Wish

_STEPS: Final = 4
"""New tokens of a run for decoding."""
_REFUSED: Final = (RuntimeError, IndexError, ValueError)
"""What a model says of a prompt that is longer than it can be."""


def peak_formulas(made: Generator, wish: Wish) -> dict[str, PeakFormula]:
    """By phase, those that were found: none where other sizes make it ask for other things, or for what is no polynomial of them."""
    found: dict[str, PeakFormula | None] = {}
    length = _most_positions(made)
    is_static = "static" in wish.cache
    if not is_static:  # what a static cache takes goes by both lengths
        found["prefill"] = _first_that_holds(made, wish, wish.prompt, length, 2, "prompt")
    if not made.loaded.is_encoder_decoder and wish.new > 2 and not wish.assistant:
        found["decode"] = _first_that_holds(made, wish, wish.prompt + wish.new, length, 1, "prompt + new")
    made.asked(wish)
    return {name: one for name, one in found.items() if one is not None}


def _most_positions(made: Generator) -> int | None:
    found = getattr(made.loaded.module.config.get_text_config(), "max_position_embeddings", None)
    return found if isinstance(found, int) else None


def _first_that_holds(made: Generator, wish: Wish, at: int, most: int | None, degree: int, name: str) -> PeakFormula | None:
    """Held against lengths of several times this one where the model has such, else against those next to it."""
    for step in (at, max(at // 64 * 8, 1)):
        lengths = [at + number * step for number in range(degree + 1)]
        further = lengths[-1] + 2 * step
        if most is not None and further > most:
            continue
        sizes = [*itertools.product((wish.batch, 2 * wish.batch), lengths), (3 * wish.batch, further), (wish.batch, lengths[-1] + step)]
        samples, besides = _samples(made, wish, sizes, is_decoding=degree == 1)
        if len(samples) < len(sizes):
            continue
        count = 2 * len(lengths)
        used, further_on = (dict(list(samples.items())[part]) for part in (slice(count), slice(count, None)))
        found = peak_formula(used, further_on, degree, name)
        if found is not None and degree > 1:
            return found
        kept = polynomial_through(dict(itertools.islice(besides.items(), count)), degree) if besides else None
        if found is not None and kept is not None and all(kept(*place) == size for place, size in besides.items()):
            return replace(found, besides=kept)
    return None


def _samples(made: Generator, wish: Wish, sizes: list[tuple[int, int]], *, is_decoding: bool) -> tuple[Samples, dict[tuple[int, int], int]]:
    """What is alive after each request of reading the prompt, by batch and length, as far as all ask alike.

    Of decoding it is that of the last token, less what is there from reading the prompt, which is told by batch and prompt.
    """
    from irscope.frontends.generation.program import ModelFails

    found: dict[tuple[int, int], list[int]] = {}
    besides: dict[tuple[int, int], int] = {}
    like: object = None
    for batch, length in sizes:
        prompt, new = (length - _STEPS, _STEPS) if is_decoding else (length, wish.new)
        if prompt < 1:
            break
        begin = made.asked(replace(wish, batch=batch, prompt=prompt, new=new))
        try:
            run = made.run(prompt, new, 0 if is_decoding or new == 1 else 1)
        except ModelFails as failure:
            if not isinstance(failure.__cause__, _REFUSED):
                raise
            break
        tape = made.tape()
        read = run.cuts[0].at if run.cuts else run.end
        first, end = (run.cuts[-1].at, run.end) if is_decoding else (begin, read)
        (step,) = read_steps(tape, [Cut(first, {}), Cut(end, {})])
        asked = [(verb, what.back >= 0 and what.place) if verb == "free" else verb for verb, what, _ in step.requests]
        if like is not None and asked != like:
            break
        like = asked
        (alive,) = alive_at(tape, [first])
        there = {*alive}
        old = {event for event in tape.events[begin:read] if event >= 0} if is_decoding else set()
        kept = sum(tape.number_of(slot) for slot in old & there)
        held = sum(tape.number_of(slot) for slot in there - old)
        sums = []
        for event in tape.events[first:end]:
            if event >= 0 or ~event not in old:
                held += tape.number_of(event) if event >= 0 else -tape.number_of(~event)
            sums.append(held)
        found[batch, length] = sums
        if is_decoding:
            besides[batch, prompt] = kept
    return found, besides
