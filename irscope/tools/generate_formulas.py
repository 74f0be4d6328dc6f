"""Peaks of what is asked for as formulas of the batch, the prompt and new tokens, from a few runs of a model that is loaded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from irscope.memory.formulas import BY_BOTH, BY_PROMPT, Moments, PeakFormula, Piece, Polynomial, Sizes, joined, moments_formula
from irscope.memory.run import highest_by_origin
from irscope.memory.tape import Tape

if TYPE_CHECKING:
    from irscope.frontends.generation.program import Generator, Wish

_REFUSED: Final = (RuntimeError, IndexError, ValueError)
"""Errors of a model at a prompt that is longer than it can be."""
_FEW: Final = 3
"""New tokens of a run: the first step that decodes still reads what reading the prompt left, the second is like all that follow."""
_MORE: Final = 5
_ALIGNED: Final = 8
"""Masks have rows of multiples of so many, so that lengths of prompts differ by these."""
_REQUESTS: Final = 30_000
"""Runs of large models take long: where they ask for more, only the side of a window on which the prompt is is looked at."""
_USED: Final = 8
"""Runs from which polynomials are made; those behind them are what they are held against."""


@dataclass
class _Stretch:
    """A part of all runs: reading the prompt, the first step that decodes, or the last."""

    counted: dict[Sizes, Moments] = field(default_factory=dict)

    def add(self, at: Sizes, tape: Tape[Any], first: int, end: int) -> None:
        self.counted[at] = highest_by_origin(tape, first, end)

    def peaks(self) -> dict[Sizes, int]:
        """Return the moment of each run at which most is alive."""
        return {at: max(count, key=count.__getitem__) for at, count in self.counted.items()}

    def formula(self, powers: Sequence[tuple[int, int, int]]) -> dict[int, Polynomial]:
        return moments_formula(self.counted, _USED, powers, self.peaks().values())


def peak_formulas(made: Generator, wish: Wish, windows: Collection[int]) -> tuple[dict[str, PeakFormula], str]:
    """By phase, those that were found, and why others were not. Lengths below and above `windows` are looked at apart."""
    if "static" in wish.cache:
        return {}, "not searched with a static cache, whose masks are laid out by prompt and new tokens together"
    if made.loaded.is_encoder_decoder or wish.assistant or wish.new < 3:
        return {}, "not searched where an encoder or an assistant runs, or fewer than three tokens are made"
    edges = [0, *sorted(window for window in windows if window > 16 * _ALIGNED)]
    found: dict[str, list[Piece]] = {"prefill": [], "decode": []}
    regions = [(low, high) for low, high in zip(edges, [*edges[1:], None], strict=True)]
    asked = next(region for region in regions if region[1] is None or wish.prompt <= region[1])
    start = made.tape().cut()
    for low, high in [asked, *(region for region in regions if region != asked)]:
        if (low, high) != asked and made.tape().cut() - start > _REQUESTS:
            continue
        lengths = _lengths(wish.prompt, low, high, _most_positions(made))
        runs = _runs(made, wish, lengths) if lengths else None
        if runs is None:
            return {}, "there are too few lengths of prompts that the model can read"
        prefill, first, last = runs
        for name, moments in (("prefill", prefill.formula(BY_PROMPT)), ("decode", _decoding(first, last))):
            new = _MORE if name == "decode" else 0
            found[name].append(Piece(moments, lengths[0] + min(new, _FEW), lengths[-1] + new, low + 1 if low else 0, high))
    made.asked(wish)
    whole = {name: sorted((piece for piece in pieces if piece.moments), key=lambda piece: piece.since) for name, pieces in found.items()}
    of = {"prefill": "prompt", "decode": "prompt + new"}
    return {
        name: PeakFormula(joined(pieces), of[name]) for name, pieces in whole.items() if pieces
    }, "what is alive is not a polynomial of batch, prompt and new tokens"


def _decoding(first: _Stretch, last: _Stretch) -> dict[int, Polynomial]:
    """Return the highest moments of the last step, and those of the first where more is alive in a run."""
    highest = last.formula(BY_BOTH)
    if not _tells(last, highest):
        return {}
    tops, before = last.peaks(), first.peaks()
    if any(first.counted[at][moment] > last.counted[at][tops[at]] for at, moment in before.items()):
        earlier = first.formula(BY_BOTH)
        if not _tells(first, earlier):
            return {}
        highest |= {~moment: predecessor for moment, predecessor in earlier.items()}  # moments of the first step are others
    return highest


def _tells(stretch: _Stretch, found: dict[int, Polynomial]) -> bool:
    """Return whether the highest of the moments is the peak of each run."""
    tops = stretch.peaks()
    return bool(found) and all(max(one(at) for one in found.values()) == stretch.counted[at][tops[at]] for at in tops)


def _most_positions(made: Generator) -> int | None:
    found = getattr(made.loaded.module.config.get_text_config(), "max_position_embeddings", None)
    return found if isinstance(found, int) else None


def _lengths(prompt: int, low: int, high: int | None, most: int | None) -> list[int]:
    """Five lengths of prompts above `low` and up to `high` or the most positions, from the one that is asked for on where there is room."""
    ends = [one - _MORE for one in (high, most) if one is not None]
    base = prompt if low < prompt else low + _ALIGNED + (prompt - low) % _ALIGNED
    end = min([*ends, 5 * base])
    if end - base < 4 * _ALIGNED:
        base = max(low + _ALIGNED, end // 4)
        base += (prompt - base) % _ALIGNED
    step = (end - base) // 4 // _ALIGNED * _ALIGNED
    return [base + number * step for number in range(5)] if step > 0 else []


def _runs(made: Generator, wish: Wish, lengths: Sequence[int]) -> tuple[_Stretch, _Stretch, _Stretch] | None:
    """Return what is alive while the prompt is read, in the first step that decodes and in the last, at such lengths of prompts."""
    from irscope.frontends.generation.program import ModelFails

    batch, (first, *_, last) = wish.batch, lengths
    used = [Sizes(many, length, _FEW) for many in (batch, 2 * batch) for length in lengths[:3]]
    used += [Sizes(many, first, _MORE) for many in (batch, 2 * batch)]
    runs = (_Stretch(), _Stretch(), _Stretch())
    for at in (*used, Sizes(3 * batch, last, _FEW), Sizes(batch, lengths[3], _MORE - 1)):
        begin = made.asked(replace(wish, batch=at.batch, prompt=at.prompt, new=at.new))
        try:
            run = made.run(at.prompt, at.new)
        except ModelFails as failure:
            if not isinstance(failure.__cause__, _REFUSED):
                raise
            return None
        tape = made.tape()
        places = [begin, run.cuts[0].at], [run.cuts[0].at, run.cuts[1].at], [run.cuts[-1].at, run.end]
        for stretch, (start, end) in zip(runs, places, strict=True):
            stretch.add(at, tape, start, end)
    return runs
