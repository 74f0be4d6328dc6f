"""What a language model takes to generate as a run that the screens show: loading, the prompt and every token, and its cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from irscope.memory.run import Lives
from irscope.memory.tape import REPORTED
from irscope.report.table import Table
from irscope.tools.generate import Generation
from irscope.tui.charts import Floats, Ints
from irscope.tui.memory.run import Pieces, ShownRun
from irscope.tui.memory.views import Counters

_MOST_MOMENTS: Final = 2_000
"""Of loading, and of reading the prompt; a token that is decoded is one."""
_PHASES: Final[Mapping[str, str]] = {"load": "loading", "inputs": "prompt", "prefill": "prompt", "end": "end"}
_DECODING: Final = "decoding"
_PARTS: Final[Mapping[str, float]] = {"loading": 0.15, "prompt": 0.35, _DECODING: 0.47, "end": 0.03}
"""Of the chart."""
_COUNTED: Final[Mapping[str, str]] = {"load": "loading", "prefill": "prompt", "decode": _DECODING}


def run_of_generation(made: Generation) -> ShownRun:
    """Return what the screens show of a language model that generates."""
    wish, target, report = made.wish, made.simulation.target, made.report()
    lives = Lives.of(made.tape)
    moments, places, phases = _moments(made, lives.total)
    refused = f", token {made.refused_token:,}" if made.refused_token else f", {_PHASES.get(made.refused_at, _DECODING)}"
    counts: dict[tuple[str, str], object] = {
        (name, counter): getattr(phase.peak, counter) for name, phase in made.phases.items() for counter in REPORTED
    }
    tables = [table for table in report.tables if not table.title.startswith(("alive at the peak", "the cache after"))]
    return ShownRun(
        (wish.model, f"prompt of {wish.prompt:,}, {wish.new:,} new, batch {wish.batch:,}", target.device.name),
        wish.model,
        "The sizes are those that were requested: irscope generate --batch, --prompt and --new request others.",
        f"Memory requested{f', refused at{refused[1:]}' if made.refused_at else ''}",
        _requests(made, lives, moments, places, phases),
        device=target.device.name,
        summary={**report.summary, "reserved_peak_bytes": made.peak("reserved")},
        notes=tuple(f"{diagnostic.code}: {diagnostic.message}" for diagnostic in made.diagnostics),
        tables=[*_cache(made), *tables],
        was_refused=bool(made.refused_at),
        counters=Counters(target.device.name, counts, moments={name: _COUNTED[name] for name in made.phases}) if counts else None,
        room=target.device.room_bytes,
        shares=_widths(phases),
    )


def _moments(made: Generation, total: Ints) -> tuple[Ints, list[str], list[str]]:
    """Return numbers of requests after which the chart looks, with the name of each, and its phase: each stands for its stretch."""
    tape = made.tape
    moments: list[int] = []
    names: list[str] = []
    phases: list[str] = []
    for number, span in enumerate(tape.spans):
        first, end = tape.starts[number], tape.starts[number + 1]
        is_token = span.name.startswith("token ")
        phase = _DECODING if is_token else _PHASES.get(span.name, span.name)
        pieces = 1 if is_token or end == first else min(end - first, _MOST_MOMENTS)
        borders = first + np.arange(pieces + 1, dtype=np.int64) * (end - first) // pieces
        for begin, stop in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            moments.append(begin + (1 + int(np.argmax(total[begin + 1 : stop + 1])) if stop > begin else 0))
            named = f"{span.name} of {made.wish.new:,}" if is_token else f"{phase}, request {moments[-1] - first:,} of {end - first:,}"
            names.append(named)
            phases.append(phase)
    return np.array(moments, dtype=np.int64), names, phases


def _requests(made: Generation, lives: Lives, moments: Ints, places: Sequence[str], phases: Sequence[str]) -> Pieces:
    """Return what the tape asks for, each piece from the first moment after its request to that after it is given back."""
    tape, count = made.tape, len(lives.sizes)
    owners = [tape.origin(slot) for slot in range(count)]
    return Pieces(
        lives.sizes,
        np.searchsorted(moments, lives.begins),
        np.searchsorted(moments, lives.ends),
        list(tape.kinds),
        {"module": [owner.module for owner in owners], "line": [owner.line for owner in owners]},
        np.ones(count, dtype=np.bool_),
        places,
        phases,
    )


def _cache(made: Generation) -> Iterator[Table]:
    """Return the cache layer by layer, after the last token."""
    layers = [*made.cache, *made.draft_cache]
    if not layers:
        return
    rows = [
        (
            layer.layer,
            layer.kind,
            layer.bytes,
            "all" if layer.window is None else f"{layer.window:,} tokens",
            "grows" if layer.capacity is None else f"{layer.capacity:,} tokens",
            layer.held_bytes,
            layer.host_bytes,
        )
        for layer in layers
    ]
    columns = ["layer:index", "kind", "bytes", "looks back on", "room for", "with memory behind views:bytes", "on the host:bytes"]
    yield Table.of(rows, columns, "the cache by layer, after the last token", whole="bytes")


def _widths(phases: Sequence[str]) -> Floats:
    """Return how wide each moment is: each phase has a part of its own, however many requests there are in it."""
    names = np.array(phases)
    widths = np.zeros(len(phases), dtype=np.float64)
    for phase, part in _PARTS.items():
        of_phase = names == phase
        widths[of_phase] = part / max(int(of_phase.sum()), 1)
    return widths
