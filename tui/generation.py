"""What a language model takes to generate, on the screen of a run: memory over loading, the prompt and every token, and its cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Final

import numpy as np

from irscope.memory.moments import slots_and_changes
from irscope.report.table import Table
from irscope.tools.generate import Generation
from irscope.tools.simulation import rows_of
from irscope.tui.charts import Floats, Ints, Limit
from irscope.tui.memory.views import StepStack
from irscope.tui.recording import RecordingApp, ShownRun, stack_place
from irscope.tui.text import Symbols

_MOST_MOMENTS: Final = 2_000
"""Of loading, and of reading the prompt; a token that is decoded is one."""
_PHASES: Final[Mapping[str, str]] = {"load": "loading", "inputs": "prompt", "prefill": "prompt", "end": "end"}
_DECODING: Final = "decoding"
_PARTS: Final[Mapping[str, float]] = {"loading": 0.15, "prompt": 0.35, _DECODING: 0.47, "end": 0.03}
"""Of the chart."""


class GeneratedRun(ShownRun):
    """Memory asked for while a model generates."""

    what = "the generation"
    fixed = "The sizes are those that were asked for: irscope generate --batch, --prompt and --new ask for others."

    def __init__(self, found: Generation, symbols: Symbols) -> None:
        self.found = found
        self.symbols = symbols
        places, names, phases = self._moments
        self._places = places
        self.stack = StepStack(self._parts(), phases, places=names)
        self.stack.use_time(_widths(phases))
        room = found.simulation.target.device.room_bytes
        if room is not None:
            self.stack.limit = Limit(float(room), f"capacity of {found.simulation.target.device.name}")
        self.step = self.stack.peak or 0
        report = found.report()
        self._report = report
        tables = [one for one in report.tables if not one.title.startswith(("alive at the peak", "the cache after"))]
        self.begin("", (), [*self._cache(), *tables])

    # -- the chart ---------------------------------------------------------------------------------------------

    @cached_property
    def _sizes(self) -> Ints:
        return np.array(self.found.tape.numbers("central"), dtype=np.int64)

    @cached_property
    def _events(self) -> Ints:
        return np.array(self.found.tape.events, dtype=np.int64)

    @cached_property
    def _changes(self) -> Ints:
        """By how much each request changes what is in use."""
        return slots_and_changes(self._events, self._sizes)[1]

    @cached_property
    def _moments(self) -> tuple[Ints, list[str], list[str]]:
        """Numbers of requests after which the chart looks, with what people call each, and its phase: each stands for its stretch."""
        tape, wish = self.found.tape, self.found.wish
        # After so many requests: one place more than there are requests.
        total = np.concatenate(([0], np.cumsum(self._changes)))
        places: list[int] = []
        names: list[str] = []
        phases: list[str] = []
        for number, span in enumerate(tape.spans):
            first, end = tape.starts[number], tape.starts[number + 1]
            is_token = span.name.startswith("token ")
            phase = _DECODING if is_token else _PHASES.get(span.name, span.name)
            pieces = 1 if is_token or end == first else min(end - first, _MOST_MOMENTS)
            borders = first + np.arange(pieces + 1, dtype=np.int64) * (end - first) // pieces
            for begin, stop in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
                places.append(begin + (1 + int(np.argmax(total[begin + 1 : stop + 1])) if stop > begin else 0))
                names.append(f"{span.name} of {wish.new:,}" if is_token else f"{phase}, request {places[-1] - first:,} of {end - first:,}")
                phases.append(phase)
        return np.array(places, dtype=np.int64), names, phases

    def _parts(self) -> dict[str, Floats]:
        """Bytes by category at each moment: they add up to what is asked for."""
        kinds: dict[str, int] = {}
        codes = np.array([kinds.setdefault(kind, len(kinds)) for kind in self.found.tape.kinds], dtype=np.int64)
        resident = np.array(self.found.tape.resident, dtype=np.int64)
        of_events = codes[slots_and_changes(self._events, self._sizes)[0]] if len(self._events) else self._events
        found: dict[str, Floats] = {}
        for kind, code in kinds.items():
            there = int(self._sizes[resident[codes[resident] == code]].sum()) if len(resident) else 0
            column = np.concatenate(([0], np.cumsum(np.where(of_events == code, self._changes, 0)))) + there
            found[kind] = column[self._places].astype(np.float64)
        return {kind: found[kind] for kind in sorted(found, key=stack_place) if found[kind].any()}

    @cached_property
    def _lives(self) -> tuple[Ints, Ints]:
        """For each slot the number of requests with which it begins, and that with which it ends."""
        events, count = self._events, len(self._sizes)
        begins, ends = np.full(count, len(events) + 1, dtype=np.int64), np.full(count, len(events) + 1, dtype=np.int64)
        begins[np.array(self.found.tape.resident, dtype=np.int64)] = 0
        places = np.arange(1, len(events) + 1, dtype=np.int64)
        begins[events[events >= 0]] = places[events >= 0]
        ends[~events[events < 0]] = places[events < 0]
        return begins, ends

    def alive(self, step: int) -> Table:
        begins, ends = self._lives
        place = int(self._places[step])
        slots = np.flatnonzero((begins <= place) & (ends > place)).tolist()
        where = "at the peak of requested, " if step == self.stack.peak else "at "
        columns = ["category", "module", "line", "bytes", "blocks:count"]
        return Table.of(rows_of(self.found.tape, slots), columns, f"Alive {where}{self.stack.place(step)}: {self.stack.text_at(step)}")

    # -- what is said ------------------------------------------------------------------------------------------

    def _cache(self) -> Iterator[Table]:
        """The cache layer by layer, after the last token."""
        layers = [*self.found.cache, *self.found.draft_cache]
        if not layers:
            return
        rows = [
            (
                one.layer,
                one.kind,
                one.bytes,
                "all" if one.window is None else f"{one.window:,} tokens",
                "grows" if one.capacity is None else f"{one.capacity:,} tokens",
                one.held_bytes,
                one.host_bytes,
            )
            for one in layers
        ]
        columns = ["layer:index", "kind", "bytes", "looks back on", "room for", "with memory behind views:bytes", "on the host:bytes"]
        yield Table.of(rows, columns, "the cache by layer, after the last token", whole="bytes")

    @property
    def was_refused(self) -> bool:
        return bool(self.found.refused_at)

    @property
    def summary(self) -> Mapping[str, object]:
        return self._report.summary

    @property
    def notes(self) -> Sequence[str]:
        return tuple(f"{one.code}: {one.message}" for one in self.found.diagnostics)

    def chart_title(self) -> str:
        parts = ["Memory asked for", f"{self.stack.text_at(self.step)} at {self.stack.place(self.step)}"]
        if self.found.refused_at:
            token = f"token {self.found.refused_token:,}" if self.found.refused_token else _PHASES.get(self.found.refused_at, _DECODING)
            parts.append(f"refused at {token}")
        return self.symbols.glyphs.separator.join(parts)

    def title(self) -> str:
        wish = self.found.wish
        asked = f"prompt of {wish.prompt:,}, {wish.new:,} new, batch {wish.batch:,}"
        return self.symbols.clean(self.symbols.glyphs.separator.join((wish.model, asked, self.found.simulation.target.device.name)))


def _widths(phases: Sequence[str]) -> Floats:
    """How wide each moment is: each phase has a part of its own, however many requests there are in it."""
    names = np.array(phases)
    found = np.zeros(len(phases), dtype=np.float64)
    for phase, part in _PARTS.items():
        of_phase = names == phase
        found[of_phase] = part / max(int(of_phase.sum()), 1)
    return found


def run_generation(found: Generation) -> None:
    """Show what a language model takes to generate, until the user leaves."""
    RecordingApp(partial(GeneratedRun, found)).finish()
