"""A run on the Memory screen, recorded, simulated or generated: memory over its moments, what is alive at each, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Final, Protocol

import numpy as np

from irscope.devices import DeviceProfile, find_device
from irscope.immutable import immutable
from irscope.memory.run import Lives, stack_place, summed
from irscope.report.names import fold_paths
from irscope.report.table import Table
from irscope.report.units import Kind, humanise
from irscope.report.values import bare
from irscope.tools.simulation import grouped
from irscope.tui.charts import Floats, Ints, Limit, Mask, Stack
from irscope.tui.header import line_of
from irscope.tui.memory.lives import module_groups
from irscope.tui.memory.view import TALL, MemoryView
from irscope.tui.memory.views import Counters, StepStack, Verdict, View
from irscope.tui.rows import ReportTable, TableModel
from irscope.tui.text import Line, Span, Symbols, cut_line, filled, note_lines

_OTHER: Final = "other"
_MOST_PARTS: Final = 9
"""Parts with a name of their own: with the others as many as there are colours."""
_TRIED: Final = "settings, each simulated"
"""The beginning of the title of the table of settings that were tried."""


class Run(Protocol):
    """Memory over the moments of a run."""

    @property
    def places(self) -> Sequence[str]:
        """Return the name of each moment."""

    @property
    def phases(self) -> Sequence[str]:
        """Return the phase of each moment; nothing where none is known."""

    @property
    def groupings(self) -> Sequence[str]:
        """Return what heights can be told by, `category` first."""

    def heights(self, by: str) -> Mapping[str, Floats]:
        """Return bytes at each moment, which add up to all that is alive."""

    def alive(self, first: int, last: int) -> Sequence[tuple[str, str, str, int, int]]:
        """Return what is alive at some moment from the first to the last: category, module, line, bytes and number of blocks."""


@immutable(slots=False)
class Pieces:
    """Memory as pieces that a run asked for, each alive from a moment until another."""

    sizes: Ints
    begins: Ints
    """The first moment at which each is there."""
    ends: Ints
    """The first moment at which it is there no longer."""
    categories: Sequence[str]
    owners: Mapping[str, Sequence[str]]
    """By `module`, `line` and `stream` the name of each piece's owner; empty for none. Without an entry nobody knows."""
    is_block: Mask
    """Which of them are blocks, and not sums of what nobody tells."""
    places: Sequence[str]
    phases: Sequence[str] = ()

    @property
    def groupings(self) -> Sequence[str]:
        return ("category", *(by for by, names in self.owners.items() if by != "stream" or any(names)))

    @cached_property
    def _lives(self) -> Lives:
        return Lives(self.sizes, self.begins, self.ends, len(self.places))

    def _labels(self, by: str) -> list[str]:
        """Return what each piece is stacked under."""
        if by == "category":
            return list(self.categories)
        if by == "stream":
            return [name or "default stream" for name in self.owners[by]]
        names = [name or category for name, category in zip(self.owners[by], self.categories, strict=True)]
        return self._grouped(names) if by == "module" else names

    def _grouped(self, names: Sequence[str]) -> list[str]:
        """Return the module of each piece, equal layers under one name, and as deep as there may be names."""
        sizes: dict[str, list[int]] = {}
        for name, size in zip(names, self.sizes.tolist(), strict=True):
            sizes.setdefault(name, []).append(size)
        folded = fold_paths({name: tuple(sorted(own)) for name, own in sizes.items()})
        numbers = {name: number for number, name in enumerate(dict.fromkeys(folded.values()))}
        peak = int(np.argmax(self._lives.total)) if self.places else 0
        codes = np.array([numbers[folded[name]] for name in names], dtype=np.int64)
        here = self._lives.alive(peak)
        at_peak = np.bincount(codes[here], self.sizes[here], minlength=len(numbers)).astype(np.float64)
        groups = module_groups(list(numbers), (), at_peak, ".")
        shown = {number: name for name, group in groups.items() for number in group}
        return [shown[code] for code in codes.tolist()]

    def heights(self, by: str) -> Mapping[str, Floats]:
        codes: dict[str, int] = {}
        number = np.array([codes.setdefault(label, len(codes)) for label in self._labels(by)], dtype=np.int64)
        order = np.argsort(number, kind="stable")
        edges = np.searchsorted(number[order], np.arange(len(codes) + 1))

        def column(code: int) -> Floats:
            return self._lives.over(order[edges[code] : edges[code + 1]]).astype(np.float64)

        # Each column is made again rather than kept: there may be hundreds of owners of a hundred thousand moments.
        most = {name: float(np.abs(column(code)).max(initial=0)) for name, code in codes.items()}
        named = sorted((name for name in most if most[name]), key=lambda name: -most[name])
        shown = named if len(named) <= _MOST_PARTS + 1 else named[:_MOST_PARTS]
        found = {name: column(codes[name]) for name in sorted(shown, key=stack_place)}
        if len(shown) < len(named):
            found[_OTHER] = np.sum([column(codes[name]) for name in named[len(shown) :]], axis=0)
        return found

    def alive(self, first: int, last: int) -> Sequence[tuple[str, str, str, int, int]]:
        unknown = [""] * len(self.categories)
        modules, lines = (self.owners.get(by, unknown) for by in ("module", "line"))
        places = self._lives.alive(first, last).tolist()
        rows = summed(((self.categories[at], modules[at], lines[at]), int(self.sizes[at]), bool(self.is_block[at])) for at in places)
        return grouped(rows, self._classes)

    @cached_property
    def _classes(self) -> Mapping[str, str]:
        """Return modules that memory was asked for in, and those around them, each with its class, which no recording tells."""
        names = {name for name in self.owners.get("module", ()) if name}
        return {".".join(parts[:depth]): "" for parts in (name.split(".") for name in names) for depth in range(1, len(parts) + 1)}


@immutable(slots=False)
class ShownRun:
    """A run with what is said of it."""

    about: tuple[str, ...]
    """Its name first, then how and on what it ran."""
    name: str
    """A name that differs from those of runs beside it."""
    fixed: str
    """Why its sizes cannot be changed here, and what changes them."""
    asked: str
    """Title of the drawing, such as `Memory requested in step 3`."""
    memory: Run | None = None
    """None where nothing tells of memory that was asked for."""
    path: str = ""
    command: str = ""
    """The command line that prints the same."""
    device: str = ""
    summary: Mapping[str, object] = field(default_factory=dict)
    more: Sequence[str] = ()
    """Lines that stand above the chart where there is room: what was found in the run, and what would mend it."""
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    first: Table | None = None
    """A table that comes before what is alive at the cursor: what was alive where memory was refused."""
    was_refused: bool = False
    """True where it ended because there was no more memory: it needs more than its peak."""
    counters: Counters | None = None
    room: int | None = None
    """Memory of its device."""
    seconds: tuple[Floats, str] | str = "There is no time to draw."
    """Duration of each moment, and the kind of time; or why that is not known."""
    shares: Floats | None = None
    """Width of each moment where the axis is not time; None for equal widths."""
    owner: str = "line"
    """Title of the column of lines."""
    machine: Callable[[int, Symbols], list[Line]] = lambda width, symbols: []
    """Lines about the machine while it ran."""
    again: Callable[[], ShownRun] | None = None
    """Reads it again."""


class RunMemory(MemoryView):
    """The memory of a run: all that the screens show of it."""

    def __init__(self, run: ShownRun, symbols: Symbols) -> None:
        super().__init__(symbols)
        self.run = run
        self.by = "category"
        self.on_time = False
        self.scale = 0.0
        """The least height of the chart, so that several runs can be compared."""
        self.beside: RunMemory | None = None
        """A run whose total is a thin line over the chart."""
        self.other: DeviceProfile | None = None
        """A device that was chosen to lay its memory over the chart."""
        self._fixed: Table | None = run.first
        """A table that is listed until the cursor moves."""
        self._restack()
        self.step = 0 if self.stack is None else self.stack.peak or 0
        self.show_living()

    def _restack(self) -> None:
        """Make the chart for what is chosen."""
        before, memory, run = self.stack, self.run.memory, self.run
        if memory is None:
            self.stack = None
            return
        parts = memory.heights(self.by)
        self.stack = StepStack(parts, memory.phases, places=memory.places) if any(memory.phases) else Stack(parts, places=memory.places)
        if self.on_time and not isinstance(run.seconds, str):
            self.stack.use_time(*run.seconds)
        elif run.shares is not None:
            self.stack.use_time(run.shares)
        if before is not None and len(before) == len(self.stack):
            self.stack.start, self.stack.stop = before.start, before.stop
        self.draw_limit()

    def draw_limit(self) -> None:
        if self.stack is None:
            return
        self.stack.scale, self.stack.breaks = self.scale, self.breaks
        if self.beside is not None and self.beside.stack is not None:
            self.stack.beside = (self.beside.run.name, self.beside.stack)
        room, name = (self.run.room, self.run.device) if self.other is None else (self.other.room_bytes, self.other.name)
        self.stack.limit = None if room is None else Limit(float(room), f"capacity of {name}")

    @property
    def views(self) -> Sequence[View]:
        return ["steps"]

    def show_view(self, view: View) -> None:
        self.go_to(0 if self.stack is None else self.stack.peak or 0)

    def next_grouping(self) -> None:
        if self.run.memory is not None:
            names = self.run.memory.groupings
            self.by = names[(names.index(self.by) + 1) % len(names)]
            self._restack()

    def toggle_axis(self) -> str:
        if isinstance(self.run.seconds, str):
            return self.run.seconds
        self.on_time = not self.on_time
        self._restack()
        return ""

    def chart_lines(self, width: int, height: int) -> list[Line]:
        if self.stack is None or not len(self.stack):
            counters = self.run.counters
            said = [] if self.verdict is None else self.verdict.lines(width, 3, self.symbols)
            said += [] if counters is None else counters.lines(width, self.symbols)
            return filled([*said, *note_lines("The recording has no requests of memory, so there is no chart.", 1)], height)
        machine = self.run.machine(width, self.symbols) if height >= TALL else []
        more = self.run.more if height >= TALL + len(self.run.more) else ()
        above = [cut_line((Span(self.symbols.clean(text), "heading"),), width, self.symbols) for text in more]
        room = height - len(machine) - len(above)
        head = self.head(self.stack, self.step, width, room)
        return [*above, *head, *self.stack.lines(width, room - len(head), self.step, self.symbols, self.mark), *machine]

    def chart_title(self) -> str:
        separator = self.symbols.glyphs.separator
        parts = [self.run.asked]
        if self.stack is not None:
            parts.append(f"{self.stack.text_at(self.step)} at {self.stack.place(self.step)}")
            parts += [] if self.by == "category" else [f"by {self.by}"]
            parts += [f"over time {self.stack.time}"] if self.on_time else []
        return self.symbols.clean(separator.join(parts))

    def go_to(self, step: int) -> None:
        if self.stack is not None and len(self.stack):
            self.step = min(max(step, 0), len(self.stack) - 1)
            self.stack.follow(self.step)
            self._fixed = None
            self.show_living()

    def alive(self, first: int, last: int) -> Table:
        """Return what is alive at some of these moments; at one moment the bytes add up to the chart there."""
        columns = ["category", "module", self.run.owner, "bytes", "blocks:count"]
        assert self.run.memory is not None and self.stack is not None
        rows = [(*row[:4], row[4] or None) for row in self.run.memory.alive(first, last)]
        if first < last:
            return Table.of(rows, columns, f"Alive at some time from {self.stack.place(first)} to {self.stack.place(last)}")
        where = f"the peak, {self.stack.place(first)}" if first == self.stack.peak else self.stack.place(first)
        return Table.of(rows, columns, f"Alive at {where}: {self.stack.text_at(first)}")

    def show_living(self) -> None:
        if self._fixed is not None:
            table = self._fixed
        elif self.stack is None:
            table = Table.of([], ["category"], "Alive")
        else:
            table = self.alive(*(self.range or (self.step, self.step)))
        self.rows = ReportTable(table, self.symbols)
        self.set_filter(self.filter_text)

    def show_settings(self) -> bool:
        """List what settings save that were tried; False where none were."""
        table = next((table for table in self.run.tables if table.title.startswith(_TRIED)), None)
        if table is not None:
            self._fixed = table
            self.show_living()
        return table is not None

    @property
    def listed(self) -> TableModel:
        return self.rows.model

    def table_title(self) -> str:
        count, shown = self.rows.model.count, len(self.rows.model)
        rows = f"{shown:,} of {count:,} rows" if shown != count else f"{count:,} {'row' if count == 1 else 'rows'}"
        return self.symbols.glyphs.separator.join([self.symbols.clean(self.rows.table.title), rows])

    def set_filter(self, text: str) -> str:
        self.filter_text = text.strip()
        self.rows.filter(self.filter_text)
        return ""

    def export(self) -> Table:
        return self.rows.table

    def counters(self) -> Counters | None:
        return self.run.counters

    def lay_over(self, device: str) -> None:
        """Draw the memory of another device over the chart; the verdict is then about it."""
        self.other = find_device(device) if device else None
        self.draw_limit()

    @property
    def verdict(self) -> Verdict | None:
        if self.other is not None:
            return self._verdict_on(self.other)
        text = bare(self.run.summary.get("verdict"))  # type: ignore[arg-type]  # a text
        if not isinstance(text, str):
            return None
        is_short = self.run.was_refused or text.lower().startswith("does not fit")
        fits = True if text.startswith("fits") else False if is_short else None
        return Verdict(text, fits, self.run.device, self.run.room)

    def _verdict_on(self, device: DeviceProfile) -> Verdict:
        """Return whether the run would fit on a device: what was reserved, or asked for, against what there is room for."""
        room, reserved = device.room_bytes, bare(self.run.summary.get("reserved_peak_bytes"))  # type: ignore[arg-type]  # a number
        highest = 0.0 if self.stack is None else self.stack.highest
        if not isinstance(reserved, int) and not highest:
            return Verdict(f"nothing says what this run needed, to lay it over {device.title}", None, device.name, room)
        needed, counter = (reserved, "reserved") if isinstance(reserved, int) else (int(highest), "requested")
        amount = f"{humanise(needed, Kind.BYTES)} {counter} in this run"
        if room is None:
            return Verdict(f"{device.title} has no memory of its own that is known; {amount}", None, device.name, None)
        there = f"{amount}, of {humanise(room, Kind.BYTES)} on {device.title}"
        spare = f"{humanise(abs(room - needed), Kind.BYTES)} {'too much' if needed > room else 'left'}"
        if needed > room:
            return Verdict(f"does NOT fit as it ran: {there}, {spare}", False, device.name, room, needed, spare)
        if self.run.was_refused:
            text = f"memory was refused in this run, so that it needs more than it had: {there}"
            return Verdict(text, None, device.name, room)
        return Verdict(f"fits as it ran: {there}, {spare}", True, device.name, room, needed, spare)

    def place_named(self, text: str) -> int | None:
        """Return the moment that a text names: its number or its name."""
        wanted, places = text.strip().lower(), () if self.run.memory is None else self.run.memory.places
        if wanted.isascii() and wanted.isdigit() and int(wanted) < len(places):
            return int(wanted)
        return next((number for number, place in enumerate(places) if wanted and wanted in place.lower()), None)

    def header(self, width: int) -> list[Line]:
        """Return what ran; below, the verdict and the peaks."""
        clean, run = self.symbols.clean, self.run
        name, *about = run.about
        over = [] if self.other is None else [f"laid over {self.other.name}"]
        verdict = self.verdict
        totals = [] if verdict is None else [Span(clean(verdict.text), verdict.role)]
        peak = None if self.stack is None else self.stack.peak
        if self.stack is not None and peak is not None:
            totals.append(Span(f"peak {self.stack.text_at(peak)} requested at {self.stack.place(peak)}"))
        reserved = bare(run.summary.get("reserved_peak_bytes"))  # type: ignore[arg-type]  # a number
        totals += [Span(f"{humanise(reserved, Kind.BYTES)} reserved")] if isinstance(reserved, int) else []
        lines = ([Span(clean(name), "heading"), *(Span(clean(text), "name") for text in (*about, *over))], totals)
        return [line_of(line, width, self.symbols) for line in lines]


def memories_of(runs: Sequence[ShownRun], symbols: Symbols) -> list[RunMemory]:
    """Return what the Memory screen shows of runs side by side: to one scale, so that heights can be compared."""
    names = [run.name for run in runs]
    files = [run.path.replace("\\", "/").rpartition("/")[2] or run.name for run in runs]
    runs = [replace(run, name=file) if names.count(run.name) > 1 else run for run, file in zip(runs, files, strict=True)]
    memories = [RunMemory(run, symbols) for run in runs]
    memories[0].is_told_above = len(memories) == 1
    for memory in memories if len(memories) > 1 else ():
        memory.scale = max(0.0 if one.stack is None else one.stack.highest for one in memories)
        memory.beside = memories[memory is memories[0]]
        memory.draw_limit()
    return memories
