"""Laws that follow from captured steps of generation: peaks as formulas of batch, prompt and new tokens, and times."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy

from irscope.devices import DeviceProfile
from irscope.immutable import immutable
from irscope.memory.formulas import BY_BOTH, BY_PROMPT, Moments, PeakFormula, Piece, Polynomial, Sizes, joined, moments_formula
from irscope.memory.run import highest_by_origin
from irscope.memory.tape import Tape
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity
from irscope.tools.simulation_clock import BEFORE, ClockedStep, clocked

if TYPE_CHECKING:
    from irscope.frontends.generation.program import Generator, Run, Wish

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
    """Return the formulas by phase, and why some are missing. Lengths below and above `windows` are fitted separately."""
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
        lengths = _prompt_lengths(wish.prompt, low, high, _most_positions(made))
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


def _prompt_lengths(prompt: int, low: int, high: int | None, most: int | None) -> list[int]:
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


# Times: until the first token, and for each one after it.

UNITS: Final = {"time_to_first_token": Kind.SECONDS, "time_a_token": Kind.SECONDS, "tokens_a_second": Kind.NUMBER}
"""Of the rows of a report."""
_NOT_KNOWN: Final = Quantity(None, Provenance.UNKNOWN)
_PYTHON: Final = 2.5
"""Largest ratio of the host's time to that of its operators, as the package runs Python between them. A step of a Llama of 32 layers
and 2,347 operators took a processor 10.4 to 20.4 ms, five times, with next to nothing to compute; predicted are 8.1 ms: docs/time.md."""

_SHOWN: Final = 0.05
"""Of a token's time the part spent waiting for the host that is worth a word."""


@immutable(slots=False)
class GenerationTimes:
    """Predicted times of one call of `generate`; loading is not among them."""

    first: Quantity = _NOT_KNOWN
    """Seconds until the prompt is read and the first token is made; with an assistant until its first round is over."""
    token: Quantity | None = _NOT_KNOWN
    """Seconds of a further token of each sequence, on average over all; None where there is none."""
    rate: Quantity | None = _NOT_KNOWN
    """Tokens that all sequences together get in a second of these."""
    kernels: float | None = None
    """Seconds of such a token in which kernels run: what is left where the host is never waited for."""
    missing: str = ""
    """The figure of the device without which there are no times."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Operators whose kernels are not known, with the number of calls."""

    def rows(self) -> Iterator[tuple[str, object]]:
        """Yield the rows of a report."""
        yield "time_to_first_token", self.first
        if self.token is not None:
            yield "time_a_token", self.token
            yield "tokens_a_second", self.rate
        if self.missing:
            yield "no_times", f"the device's {self.missing} is not known"
        if self.unknown:
            yield "no_time_of", f"{', '.join(sorted(self.unknown))}: these kernels are not known and count as nothing"

    def to_json(self) -> dict[str, Any]:
        """Return the times as a part of a document; null where they are not known, or there is no such token."""
        found: dict[str, Any] = {}
        for name, time in (("first_token_seconds", self.first), ("token_seconds", self.token), ("tokens_per_second", self.rate)):
            interval = None if time is None else time.interval
            found |= {name: None if time is None else time.value, f"{name}_interval": None if interval is None else list(interval)}
        return {**found, "token_kernel_seconds": self.kernels, "missing": self.missing or None, "unknown": dict(self.unknown)}


def generation_times(
    wish: Wish, tape: Tape[Any], main: Run, runs: Sequence[tuple[int, Run]], device: DeviceProfile, packed: Sequence[str] = ()
) -> GenerationTimes:
    """Return the times of a wish from the steps that were captured of it; those between two of them lie on the line between their times.

    `runs` are calls of `generate`, each with the tokens before it, among them the `main` one, which reads the wish's own prompt. Kernels of
    layers with `packed` weights are not among what is queued: with them only the lower ends are known.
    """
    stretches: list[tuple[int, int, int | None]] = []  # with the tokens that there are when a step begins, None for a prompt
    for before, run in sorted(runs, key=lambda each: each[1].begin):
        # The end of an assistant's last round is marked, that of a last step is where `generate` returns.
        places = [cut.at for cut in run.cuts] if wish.assistant and run.cuts else [*(cut.at for cut in run.cuts), run.end]
        if run is main:
            stretches.append((run.begin, places[0], None))
        tokens = before
        for begin, end in itertools.pairwise(places):
            tokens += min(wish.accepted, wish.proposed(tokens)) + 1
            stretches.append((begin, end, tokens))
    ends: list[tuple[str, int]] = []
    for number, (begin, end, _) in enumerate(stretches):
        ends += [(BEFORE, begin), (str(number), end)]
    times = clocked(tape, device, ends, 0.0)
    if times.missing:
        return GenerationTimes(missing=times.missing)
    steps = [step for step in times.steps if step.name != BEFORE]
    for step in steps:
        # Layers have weights of their own, of which the cache keeps no more than it holds.
        read = max(step.weights - device.cache_bytes, 0.0) / device.bandwidth.hi if device.bandwidth is not None else 0.0
        step.low = max(step.low, read)
        step.seconds = max(step.seconds, read)
        step.high = math.inf if packed else max(step.high, read)
    layers = {f"layers in {name}": 1 for name in packed}
    unknown = {**times.unknown, **layers} if any(math.isinf(step.high) for step in steps) else {}
    known = {tokens: step for step, (_, _, tokens) in zip(steps, stretches, strict=True)}
    prompt = known.pop(None)
    first = _quantity(prompt.seconds, prompt.low, _high(prompt), f"a prompt of {wish.prompt:,}, batch {wish.batch}")
    starts = wish.starts()
    if len(starts) < 2 or not known:
        return GenerationTimes(first, None, None, unknown=unknown)
    # A decoder beside an encoder has tokens of its own before it.
    own = next(before for before, run in runs if run is main) - wish.prompt
    made = wish.prompt + wish.new - starts[1]
    places = sorted(tokens for tokens in known if tokens is not None)
    captured = [known[tokens] for tokens in places]

    def mean(values: Sequence[float]) -> float:
        """Return a token's part of what steps take, of which those captured take so much."""
        if any(map(math.isinf, values)):
            return math.inf
        return float(numpy.interp([start + own for start in starts[1:]], places, values).sum()) / made

    seconds, low = mean([step.seconds for step in captured]), mean([step.low for step in captured])
    high = mean([_high(step) for step in captured])
    waits = mean([step.waits_for_host for step in captured]) / seconds if seconds else 0.0
    note = f"on average over {made:,}" + (f"; for {waits:.0%} of it the device waits for the host" if waits > _SHOWN else "")
    is_open = math.isinf(high)
    rate = Quantity(
        None if is_open else wish.batch / seconds,
        Provenance.MODELLED,
        note=f"in decoding, batch {wish.batch}",
        lo=None if is_open else wish.batch / high,
        hi=wish.batch / low if low else None,
    )
    kernels = None if is_open else mean([step.compute for step in captured])
    return GenerationTimes(first, _quantity(seconds, low, high, note), rate, kernels, unknown=unknown)


def _high(step: ClockedStep) -> float:
    """Return the upper end of a step's time: at least what the host takes with the package's own Python."""
    return max(step.high, _PYTHON * step.host)


def _quantity(seconds: float, low: float, high: float, note: str) -> Quantity:
    """Return a time with its interval; its lower end alone where the time of a kernel is not known."""
    if math.isinf(high):
        return Quantity(None, Provenance.MODELLED, note=note, lo=low or None)
    return Quantity(seconds, Provenance.MODELLED, note=note, lo=low, hi=high)
