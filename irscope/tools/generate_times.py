"""Time that a language model takes to generate: until its first token, and for each one after it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

import numpy

from irscope.devices import DeviceProfile
from irscope.immutable import immutable
from irscope.memory.tape import Tape
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity
from irscope.tools.simulation_clock import BEFORE, ClockedStep, clocked

if TYPE_CHECKING:
    from irscope.frontends.generation.program import Run, Wish

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
