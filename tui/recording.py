"""A recording alone in the terminal: what was found, memory over the recorded step, what is alive there, and the tables of the run."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeAlias

import numpy as np
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.screen import Screen

from irscope.devices import DeviceProfile
from irscope.devices.catalogue import all_devices
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.passkit.registry import PassRegistry
from irscope.recording import WARM, Level, MemoryEvent, Recording, figures, peak_of
from irscope.report.report import Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import bare
from irscope.tools.recorded import machine_tables, trust_lines, unread_notes
from irscope.tools.simulation import grouped
from irscope.tui.actions import ACTIONS, Action, actions_of, bindings, key_text
from irscope.tui.charts import Floats, Ints, Limit, Stack
from irscope.tui.command import Source
from irscope.tui.context import device_text
from irscope.tui.memory.views import StepStack
from irscope.tui.reports import Item, Reports
from irscope.tui.start import PlainScreen
from irscope.tui.terminal import TerminalApp
from irscope.tui.text import Line, Span, Symbols, note_lines
from irscope.tui.widgets.charts import EventsPane
from irscope.tui.widgets.dialogs import TextDialog, choose
from irscope.tui.widgets.paint import DetailPane, Keys, Prompt
from irscope.tui.widgets.table import RowsPane, VirtualTable

_BEFORE: Final = "before"
_REFUSED: Final = "out_of_memory"
_HELD: Final = "before the run"
"""What is there when the run begins, where the recording does not tell its blocks."""
_OTHER: Final = "other"
_ORDER: Final = (
    "parameter",
    "buffer",
    "input",
    "optimizer state",
    "gradient",
    "communication",
    "cache",
    _HELD,
    "activation",
    "output",
    "temporary",
    "workspace",
)
"""Categories from the axis up: what stays from step to step is lowest."""
RunBy: TypeAlias = Literal["category", "module", "line", "stream"]
RUN_GROUPINGS: Final[tuple[RunBy, ...]] = ("category", "module", "line", "stream")
_TRIED: Final = "settings, each simulated"
"""How the table of settings that were tried is called."""
_BUDGETS: Final = "activation memory budgets"
"""How the table of what the compiler's budgets do begins."""
_MOST_PARTS: Final = 7
"""As many as there are looks."""


class ShownRun(ABC):
    """What the screen of a run needs: a chart over its moments, what is alive at each, and the tables of the whole run."""

    symbols: Symbols
    stack: Stack
    step: int
    what: ClassVar[str]
    """What it is, in words."""
    fixed: ClassVar[str]
    """Why its sizes cannot be changed here, and what changes them."""
    other: DeviceProfile | None = None
    """A device that was chosen to lay its memory over the chart."""

    def begin(self, path: str, first: Sequence[Table], others: Sequence[Table]) -> None:
        """Show the tables; `first` are those before what is alive at the cursor."""
        self._first, self._others = list(first), list(others)
        self.stem = Path(path).name or self.what.rpartition(" ")[2]
        """What files begin with that are written of it."""
        self.reports = Reports(PassRegistry({}, {}), Source(path), self.symbols)
        self._item = Item(self.what, "")
        self.reports.set_items([self._item])
        self._show_alive()

    @property
    @abstractmethod
    def summary(self) -> Mapping[str, object]:
        """What is said above all."""

    @property
    @abstractmethod
    def notes(self) -> Sequence[str]:
        """What is said below that."""

    @property
    @abstractmethod
    def was_refused(self) -> bool:
        """Return whether it ended because there was no more memory: it needs more than its peak."""

    def lay_over(self, device: DeviceProfile) -> None:
        """Draw the memory of another device over the chart, and say first whether the run would fit there."""
        self.other = device
        self.draw_other()
        self._show_alive()

    def draw_other(self) -> None:
        """Draw the memory of the chosen device over the chart, where one is chosen that says what it has."""
        if self.other is not None:
            room = self.other.room_bytes
            self.stack.limit = None if room is None else Limit(float(room), f"capacity of {self.other.name}")

    def said_of_other(self) -> str:
        """Return whether the run would fit on the chosen device: what was reserved, or asked for, against what there is room for."""
        assert self.other is not None
        room, reserved = self.other.room_bytes, bare(self.summary.get("reserved_peak_bytes"))  # type: ignore[arg-type]  # a number
        needed, counter = (reserved, "reserved") if isinstance(reserved, int) else (int(self.stack.highest), "asked for")
        name, amount = self.other.title, f"{humanise(needed, Kind.BYTES)} {counter} in this run"
        if room is None:
            return f"{self.symbols.unknown} {name} has no memory of its own that is known; {amount}"
        spare, there = f"{humanise(abs(room - needed), Kind.BYTES)}", f"{amount}, of {humanise(room, Kind.BYTES)} on {name}"
        if needed > room:
            return f"does NOT fit as it ran: {there}, {spare} too much"
        if self.was_refused:
            return f"{self.symbols.unknown} memory was refused in this run, so that it needs more than it had: {there}"
        return f"fits as it ran: {there}, {spare} left"

    @abstractmethod
    def alive(self, step: int) -> Table:
        """What is alive at a step of the chart: the bytes add up to the chart there."""

    @abstractmethod
    def chart_title(self) -> str:
        """What stands above the chart."""

    @abstractmethod
    def title(self) -> str:
        """What stands above all."""

    def toggle_axis(self) -> str:
        """Make the axis the time that was measured, or moments of equal width again; returns why that is not possible."""
        return "There is no time to draw."

    def next_grouping(self) -> None:  # noqa: B027 - most have one
        """Stack the chart by something else, where there is something."""

    @property
    def tables(self) -> list[Table]:
        """Those of the whole run."""
        return [*self._first, *self._others]

    def name(self) -> str:
        """What tells it from others beside it."""
        return self.title()

    def show_settings(self) -> bool:
        """Show what settings save that were tried, where some were."""
        found = next((place for place, table in enumerate(self._others) if table.title.startswith(_TRIED)), None)
        if found is not None:
            self._show_alive()
            self._item.part = len(self._first) + bool(len(self.stack)) + found
        return found is not None

    def go_to(self, step: int) -> None:
        """Put the cursor on a moment; the table is then that of what is alive there."""
        if not len(self.stack):
            return
        self.step = min(max(step, 0), len(self.stack) - 1)
        self.stack.follow(self.step)
        self._show_alive()
        self._item.part = len(self._first)

    def chart_lines(self, width: int, height: int) -> list[Line]:
        """The chart with what the moment at the cursor is made of, or a word on why there is none."""
        if not len(self.stack):
            return note_lines("nothing to draw: the recording tells of no memory that was asked for", height)
        legend = self.stack.legend_at(self.step, width, 3 if height >= 12 else 2, self.symbols) if height >= 5 else []
        return [*legend, *self.stack.lines(width, height - len(legend), self.step, self.symbols)]

    def _show_alive(self) -> None:
        tables = (*self._first, *([self.alive(self.step)] if len(self.stack) else []), *self._others)
        other = {} if self.other is None else {f"on_{self.other.name}": self.said_of_other()}
        self.reports.take(self._item, Report("recording", summary={**other, **self.summary}, tables=tables, notes=tuple(self.notes)))
        self.reports.set_filter("")


class RecordedRun(ShownRun):
    """What a recording says: the chart of its warm run."""

    what = "the recording"
    fixed = "The sizes are those of the recorded run: record or simulate it again with others."

    def __init__(self, recording: Recording, symbols: Symbols) -> None:
        self.recording = recording
        self.symbols = symbols
        self.held = [
            MemoryEvent(
                _BEFORE, one.bytes, None, False, one.block, one.category, one.kernel, one.scope, source=one.source, stream=one.stream
            )
            for one in recording.held
        ]
        self.events = recording.run(WARM)
        self.has_lines = any(one.source for one in (*self.held, *self.events))
        """Whether it is told which line of the program asked; else it is the kernel that did."""
        self.by: RunBy = "category"
        self.budgets: Table | None = None
        """Activation memory budgets of the compiler that were tried, while they are what is drawn."""
        self.stack = self._stacked()
        self.step = self.stack.peak or 0
        tables = [*self._said_tables(), *_own_tables(recording)]
        # What a program that ran out of memory is asked first.
        first = [table for table in tables if table.title.lower().startswith("alive where memory was refused")]
        self.begin(recording.path, first, [table for table in tables if table not in first])

    def _stacked(self) -> Stack:
        """The chart, stacked as is chosen, with the phases of the step where they are told."""
        if not self.events:
            return Stack({})
        items, begins, ends = self._items
        keys = [self._key(one) for one in items]
        # One moment more than there are events: that before the first.
        phases = ["", *(one.phase for one in self.events)]
        return _stack(items, keys, (begins, ends), phases if any(phases) else None)

    def _key(self, one: MemoryEvent) -> str:
        """What something that is alive is stacked under."""
        if self.by == "category" or one.category == _HELD:
            return one.category
        if self.by == "stream":
            return f"stream {one.stream}" if one.stream else "default stream"
        if self.by == "module":
            return one.scope.replace("/", ".") or one.category
        return (one.source if self.has_lines else one.kernel) or one.category

    def chart_lines(self, width: int, height: int) -> list[Line]:
        """The chart, and below it the machine over the whole recording where there is room."""
        told = machine_lines(self.recording, width, self.symbols) if height >= _ROOM_FOR_LINES else []
        return [*super().chart_lines(width, height - len(told)), *told]

    def toggle_budgets(self) -> bool:
        """Draw peaks by activation memory budget, or memory of the run again; False where no budgets were tried."""
        if self.budgets is None:
            self.budgets = next((table for table in self._others if table.title.startswith(_BUDGETS)), None)
            if self.budgets is None:
                return False
            self.stack = BudgetStack(self.budgets)
            self.go_to(self.stack.least)
        else:
            self.budgets = None
            self.stack = self._stacked()
            self.draw_other()
            self.go_to(self.stack.peak or 0)
        return True

    def toggle_axis(self) -> str:
        if self.budgets is not None:
            return "Budgets have no time; B shows the run."
        times = [one.time_us for one in self.events]
        if self.stack.time:
            self.stack.use_time(None)
        elif not times or None in times:
            return "The recording does not tell when memory was asked for."
        else:
            ends = np.maximum.accumulate(np.array([0.0, *(float(time or 0) for time in times)])) / 1e6
            self.stack.use_time(np.append(np.diff(ends), 0.0), "as it was measured")
        return ""

    def next_grouping(self) -> None:
        if self.budgets is not None:
            return
        names = [by for by in RUN_GROUPINGS if by != "stream" or any(one.stream for one in (*self.held, *self.events))]
        self.by = names[(names.index(self.by) + 1) % len(names)]
        before, self.stack = self.stack, self._stacked()
        self.stack.start, self.stack.stop, self.stack.limit, self.stack.scale = before.start, before.stop, before.limit, before.scale
        if before.time:
            self.toggle_axis()

    def chart_title(self) -> str:
        if isinstance(self.stack, BudgetStack):
            return self.symbols.clean(self.symbols.glyphs.separator.join(["Peak by budget", self.stack.said(self.step)]))
        parts = [f"Memory asked for in {self._what()}", f"{self.stack.text_at(self.step)} at {self.stack.place(self.step)}"]
        if not self.held and _in_use_before(self.recording) is None:
            parts.append("beyond what was there before")
        parts += [] if self.by == "category" else [f"by {self.by}"]
        return self.symbols.glyphs.separator.join(parts if self.events else parts[:1])

    def _what(self) -> str:
        """What the events are those of."""
        said, recording = self.recording.said, self.recording
        if recording.header.model.format == "snapshot":
            return "the history"
        if said is None or not said.summary.get("steps_count"):
            return "the recorded run"
        return f"step {recording.header.warmup + 1}" + (", the last one that ended" if self.was_refused else "")

    # -- tables ------------------------------------------------------------------------------------------------

    def alive(self, step: int) -> Table:
        """What is alive at a step of the chart, by category, module and line: the bytes add up to the chart there."""
        if self.budgets is not None:
            return self.budgets
        found: dict[tuple[str, str, str], list[int]] = {}
        items, begins, ends = self._items
        for number in np.flatnonzero((begins <= step) & (ends > step)).tolist():
            one = items[number]
            row = found.setdefault((one.category, one.scope.replace("/", "."), one.source if self.has_lines else one.kernel), [0, 0])
            row[0] += one.bytes
            row[1] += one.block is not None
        rows = [(*key, size, count) for key, (size, count) in found.items() if size]
        where = "at the recorded peak" if step == self.stack.peak else f"at {self.stack.place(step)}"
        columns = ["category", "module", "line" if self.has_lines else "kernel", "bytes", "blocks:count"]
        shown = [(*row[:4], row[4] or None) for row in grouped(rows, self._modules)]
        return Table.of(shown, columns, f"Alive {where}: {self.stack.text_at(step)}")

    @cached_property
    def _items(self) -> tuple[list[MemoryEvent], Ints, Ints]:
        """What adds to the chart, with the first step at which it does, and the first at which it does no longer."""
        last = len(self.events) + 1
        items = [*self.held]
        begins, ends = [0] * len(items), [last] * len(items)
        if not self.held and (baseline := _in_use_before(self.recording)):
            items, begins, ends = [MemoryEvent(_BEFORE, baseline, category=_HELD)], [0], [last]
        place = {one.block: number for number, one in enumerate(items) if one.block is not None}
        for step, event in enumerate(self.events, 1):
            if event.bytes < 0 and event.block in place:
                ends[place.pop(event.block)] = step
                continue
            # What ends without having begun was there before, where only its sum is known.
            is_gone = event.bytes < 0 and event.block is not None
            if event.block is not None and not is_gone:
                place[event.block] = len(items)
            items.append(MemoryEvent(_BEFORE, event.bytes, category=_HELD) if is_gone else event)
            begins.append(step)
            ends.append(last)
        return items, np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64)

    @cached_property
    def _modules(self) -> Mapping[str, str]:
        """Modules that memory was asked for in, and those around them, each with its class, which no recording tells."""
        scopes = {one.scope.replace("/", ".") for one in (*self.held, *self.events)}
        return {above: "" for scope in scopes for above in itertools.accumulate(scope.split("."), "{}.{}".format)}

    def _said_tables(self) -> Iterator[Table]:
        """The tables of the whole run; what was alive at its peak is left out where the recorded run reaches that, as it comes first."""
        peak = sorted(self.alive(self.step).rows(), key=str) if self.events else []
        for said in self.recording.tables:
            columns = [Column(str(number), *_kind_and_title(text)) for number, text in enumerate(said.columns)]
            for row in said.rows:
                for cell, column in zip(row, columns, strict=True):
                    if cell is not None and isinstance(cell, str) is column.kind.is_number:
                        raise ValueError(f"{cell!r} is no {column.kind.value}")
            if not peak or sorted(said.rows, key=str) != peak:
                yield Table.of(said.rows, columns, said.title)

    # -- what is said above ------------------------------------------------------------------------------------

    @cached_property
    def summary(self) -> Mapping[str, object]:
        said = self.recording.said
        return said.summary if said is not None and said.summary else _summary_of(self.recording)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        recording = self.recording
        own = recording.said.notes if recording.said is not None else ()
        problems = [f"{one.kind.replace('_', ' ')}: {one.text}" for one in recording.problems]
        return (*problems, *trust_lines(recording), *own, *recording.notes, *unread_notes(recording))

    def title(self) -> str:
        header = self.recording.header
        how = "simulated" if header.settings.get("simulated") is True else f"recorded with {header.executor}"
        parts = (header.model.name or "recording", how, header.device.name, *([self._rank] if self._rank else []))
        return self.symbols.clean(self.symbols.glyphs.separator.join(parts))

    @property
    def was_refused(self) -> bool:
        return any(one.kind == _REFUSED for one in self.recording.problems)

    @property
    def _rank(self) -> str:
        settings = self.recording.header.settings
        world = settings.get("world", 1)
        return f"rank {settings.get('rank', 0)} of {world}" if isinstance(world, int) and world > 1 else ""

    def name(self) -> str:
        return self.symbols.clean(self._rank or self.recording.path.replace("\\", "/").rpartition("/")[2] or self.title())


def machine_lines(recording: Recording, width: int, symbols: Symbols) -> list[Line]:
    """A line for each of use, clock and power that was read while it was recorded: its course, and its least and most."""
    lines: list[Line] = []
    marks = "▁▂▃▄▅▆▇█" if symbols.has_braille else "._-~=+*#"
    for name, keys, unit in _LINES_OF_MACHINE:
        read = [next((value for key in keys if (value := getattr(one, key)) is not None), None) for one in recording.samples]
        known = [value for value in read if value is not None]
        if len(known) < 2:
            continue
        factor = 100 if unit == "%" else 1
        said = f" {factor * min(known):,.0f} to {factor * max(known):,.0f} {unit} while it was recorded"
        room = max(4, min(len(known), width - len(said) - _NAME_OF_LINE))
        top = 1.0 if unit == "%" else max(known) or 1.0
        ends = [at * len(known) // room for at in range(room + 1)]
        means = [sum(part) / len(part) for start, end in itertools.pairwise(ends) if (part := known[start : max(end, start + 1)])]
        drawn = "".join(marks[min(7, int(8 * mean / top))] for mean in means)
        lines.append((Span(name.ljust(_NAME_OF_LINE), "faint"), Span(drawn), Span(said, "faint")))
    return lines


_ROOM_FOR_LINES: Final = 12
_NAME_OF_LINE: Final = 12
_LINES_OF_MACHINE: Final = (
    ("GPU busy", ("gpu",), "%"),
    ("CPU busy", ("cpu",), "%"),
    ("clock", ("gpu_mhz", "mhz"), "MHz"),
    ("power", ("gpu_watts", "watts"), "W"),
)


def _kind_and_title(text: str) -> tuple[Kind, str]:
    heading, _, kind = text.rpartition(":")
    return Kind(kind), heading


def _in_use_before(recording: Recording) -> int | None:
    """Bytes asked for that are there when the warm run begins. A first run leaves more than the model: workspaces that libraries keep."""
    before, after = recording.counter(_BEFORE), recording.counter(WARM)
    if after is not None and after.requested is not None:
        return max(after.requested.peak - peak_of(recording.run(WARM)).bytes, 0)
    return before.requested.current if before is not None and before.requested is not None else None


def _stack(items: Sequence[MemoryEvent], keys: Sequence[str], steps: tuple[Ints, Ints], phases: Sequence[str] | None) -> Stack:
    """Bytes by key before the first event and after each one."""
    codes: dict[str, int] = {}
    number = np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=np.int64)
    sizes = np.array([one.bytes for one in items], dtype=np.float64)
    begins, ends = steps
    count = int(ends.max(initial=1))
    found: dict[str, Floats] = {}
    for key in sorted(codes, key=stack_place):
        chosen = number == codes[key]
        change = np.bincount(begins[chosen], sizes[chosen], count + 1) - np.bincount(ends[chosen], sizes[chosen], count + 1)
        found[key] = np.cumsum(change[:count])
    places = ["the start", *(f"event {number:,}" for number in range(1, count))]
    few = _few(found)
    return Stack(few, places=places) if phases is None else StepStack(few, phases, places=places)


class BudgetStack(Stack):
    """Peaks of the last step over activation memory budgets, each compiled and simulated."""

    def __init__(self, table: Table) -> None:
        cells = {column.heading: [bare(cell) for cell in table.cells(column.key)] for column in table.columns}

        def numbers(name: str) -> Floats:
            return np.array([one if isinstance(one, int | float) else np.nan for one in cells[name]], dtype=np.float64)

        requested, allocated, reserved = (numbers(name) for name in ("requested", "allocated", "reserved"))
        parts = {"requested": requested, "rounding": allocated - requested, "reserved beyond": reserved - allocated}
        super().__init__(parts, places=[f"budget {one}" for one in cells["budget"]])
        self.allocated = allocated
        self.recomputed, self.share = numbers("recomputed"), numbers("of all")
        # Of equal peaks the one that recomputes least; what is not known comes last.
        self.least = int(np.lexsort((self.recomputed, allocated))[0]) if len(allocated) else 0

    def said(self, step: int) -> str:
        """What a budget does: the peak, and what it costs."""
        if not 0 <= step < len(self) or np.isnan(self.allocated[step]):
            return "not known"
        flops, share = self.recomputed[step], self.share[step]
        costs = "" if np.isnan(flops) else f", {humanise(int(flops), Kind.FLOPS)} again"
        costs += "" if np.isnan(share) else f" ({share:.1%})"
        return f"{self.place(step)}: {humanise(int(self.allocated[step]), Kind.BYTES)} allocated{costs}"

    def mark_lines(self, count: int, symbols: Symbols) -> list[Line]:
        return [self.mark_line(self.least, f"lowest: {self.said(self.least)}", count, symbols)]


def stack_place(name: str) -> tuple[int, str]:
    """By what categories are sorted from the axis up."""
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _few(parts: Mapping[str, Floats]) -> dict[str, Floats]:
    """No more categories than there are looks: the smallest are one."""
    found = {name: part for name, part in parts.items() if part.any()}
    if len(found) <= _MOST_PARTS:
        return found
    small = sorted(found, key=lambda name: float(np.abs(found[name]).max()))[: len(found) - _MOST_PARTS + 1]
    rest: Floats = np.sum([found.pop(name) for name in small], axis=0)
    return {**found, _OTHER: rest}


def _summary_of(recording: Recording) -> dict[str, object]:
    """What follows from the counters, where the tool said nothing of its own."""
    header = recording.header
    found = figures(recording)
    is_cut = any("cut short" in note for note in recording.notes)
    ended = (
        "the run came to its end" if recording.complete else "the recording was cut short" if is_cut else "the run did not come to its end"
    )
    refused = next((one for one in recording.problems if one.kind == _REFUSED), None)
    summary: dict[str, object] = {"verdict": f"does not fit on {header.device.name}: {refused.text}"} if refused is not None else {}
    summary |= {
        "model": header.model.path or header.model.name,
        "outcome": ended,
        "allocated_peak_bytes": found.peak,
        "allocated_before_bytes": found.baseline,
        "allocated_by_the_run_bytes": found.delta,
        "reserved_peak_bytes": found.reserved,
        "device_bytes": header.device.memory,
    }
    if (latency := recording.times("plain")) is not None:
        summary["latency_median_seconds"] = latency.median_us / 1e6
    return summary


def _own_tables(recording: Recording) -> Iterator[Table]:
    """What was alive when the run failed, counters and operators."""
    for problem in recording.problems:
        if problem.alive and not recording.tables:
            found = [(one.name, one.scope, one.bytes) for one in problem.alive]
            yield Table.of(found, ["made by", "module", "bytes"], "Alive where memory was refused, the largest")
    levels = [
        (one.run, name, level.current, level.peak)
        for one in recording.counters
        for name in ("requested", "allocated", "active", "reserved")
        if isinstance(level := getattr(one, name), Level)
    ]
    if levels:
        yield Table.of(levels, ["run", "counter", "current:bytes", "peak:bytes"], "Counters of the allocator")
    yield from machine_tables(recording)
    if recording.ops:
        ops = [
            (op.index, op.op, op.scope, None if op.time is None else op.time.median_us / 1e6, op.made, op.workspace) for op in recording.ops
        ]
        columns = ["number:index", "operator", "module", "time:seconds", "made:bytes", "workspace:bytes"]
        is_told = [True, True, True, *(any(row[place] is not None for row in ops) for place in (3, 4, 5))]
        kept = [tuple(cell for cell, told in zip(row, is_told, strict=True) if told) for row in ops]
        yield Table.of(kept, [column for column, told in zip(columns, is_told, strict=True) if told], "Operators of the recorded run")


# ----------------------------------------------------------------------------------------------------
# The app.


class _Rows(VirtualTable, inherit_bindings=False):
    """A table of a recording, whose rows lead nowhere."""

    ACTIONS: ClassVar[tuple[Action, ...]] = tuple(action for action in actions_of("table") if action.name != "open")
    BINDINGS: ClassVar[list[BindingType]] = bindings("table", ACTIONS)


RECORDING_ACTIONS: Final = (
    Action(
        "recording", "next_part(1)", ("n",), "Next table", "Show the next table: steps, categories, collectives, operators.", footer=True
    ),
    Action("recording", "next_part(-1)", ("N",), "Table before", "Show the table before."),
    Action("recording", "peak", ("p",), "Peak", "Go to the event after which most bytes are alive.", footer=True),
    Action(
        "recording", "grouping", ("o",), "By", "Stack by category, by module, by line, or by stream where there are several.", footer=True
    ),
    Action(
        "recording",
        "budgets",
        ("B",),
        "Budgets",
        "Draw peaks by activation memory budget of torch.compile, where simulate --try-compile tried them, or the run again.",
    ),
    Action(
        "recording",
        "axis",
        ("a",),
        "Axis",
        "Make each event as wide as it took, where the recording tells when it was, or equally wide again.",
    ),
    Action(
        "recording",
        "device",
        ("D",),
        "Device",
        "Lay the memory of another device over the chart, and say whether what this run reserved fits there.",
        footer=True,
    ),
    Action("recording", "sizes", ("c",), "Sizes are fixed", "Say what changes the sizes, which are those of the run.", footer=True),
    Action("recording", "zoom_steps(0.5)", ("plus", "equals_sign"), "Closer", "Show fewer events, around the cursor."),
    Action("recording", "zoom_steps(2)", ("minus",), "Farther", "Show more events."),
    Action("recording", "fit", ("0",), "All", "Show all events."),
    Action("recording", "filter", ("slash",), "Filter", "Show only the rows in which all words occur.", footer=True),
    Action("recording", "zoom", ("z",), "Zoom", "Maximise the focused pane, or restore the others."),
    Action("recording", "back", ("escape",), "Back", "Leave the maximised pane, else drop the filter."),
    Action("recording", "save", ("S",), "Save", "Write the screen as SVG and the table that is shown as CSV."),
    *(action for action in ACTIONS if action.name in ("next_pane", "previous_pane")),
    *(action for action in actions_of("app") if action.name in ("look", "help", "suspend_process", "quit", "stop")),
)


def _beside(runs: Sequence[ShownRun]) -> Table:
    """Runs beside one another: what each takes, and whether it fits."""
    rows = [
        (
            run.name(),
            int(run.stack.highest),
            "" if run.stack.peak is None else run.stack.place(run.stack.peak),
            bare(run.summary.get("reserved_peak_bytes")),  # type: ignore[arg-type]  # a number
            str(bare(run.summary.get("verdict", "")) or bare(run.summary.get("outcome", "")) or ""),  # type: ignore[arg-type]  # a text
        )
        for run in runs
    ]
    return Table.of(rows, ["run", "requested peak:bytes", "at", "reserved peak:bytes", "verdict"], f"the runs side by side{_apart(runs)}")


def _apart(runs: Sequence[ShownRun]) -> str:
    """By how much the peak of the second of two differs, such as of a compiled program beside eager."""
    if len(runs) != 2 or not runs[0].stack.highest:
        return ""
    share = runs[1].stack.highest / runs[0].stack.highest - 1
    more = f"needs {abs(share):.1%} {'less' if share < 0 else 'more'} than" if round(abs(share), 3) else "needs as much as"
    return f": {runs[1].name()} {more} {runs[0].name()}"


def _pane(run: ShownRun, number: int) -> EventsPane:
    """The chart of one of them."""
    pane = EventsPane(run.chart_lines, lambda: run.stack, lambda: run.step, run.go_to, id=f"stack{number or ''}")
    pane.add_class("frame")
    return pane


class RecordingApp(TerminalApp[None]):
    """A recording alone."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("recording", RECORDING_ACTIONS),
        *bindings("app", RECORDING_ACTIONS),
    ]

    def __init__(
        self, shown: Recording | Callable[[Symbols], ShownRun], symbols: Symbols | None = None, *, others: Sequence[Recording] = ()
    ) -> None:
        """A recording, or what makes a run of another kind; `others` stand beside it: other ranks of the same job, or other runs."""
        super().__init__(symbols)
        first = shown_run(shown, self.symbols) if isinstance(shown, Recording) else shown(self.symbols)
        self.runs = [first, *(shown_run(one, self.symbols) for one in others)]
        self._at = 0
        if others:
            table = _beside(self.runs)
            highest = max(run.stack.highest for run in self.runs)
            for run in self.runs:
                # Of one scale, so that heights can be compared.
                run.stack.scale = highest
                run.begin("", [], [table, *run.tables])

    @property
    def run_shown(self) -> ShownRun:
        """The run that the table is about."""
        return self.runs[self._at]

    def get_default_screen(self) -> Screen[None]:
        return PlainScreen()

    def compose(self) -> ComposeResult:
        reports = self.run_shown.reports
        yield DetailPane(id="said", classes="pane")
        with Container(id="runs"):
            for number, run in enumerate(self.runs):
                yield _pane(run, number)
        with RowsPane(id="alive"):
            if reports.rows is not None:
                yield _Rows(reports.rows.model, id="rows")
            yield Prompt("Filter", "words that occur in a row; !word: must not", id="filter")
        yield Keys()

    def on_mount(self) -> None:
        self.query_one("#stack").focus()
        self.show()

    # -- what is shown -----------------------------------------------------------------------------------------

    def show(self) -> None:
        """Refresh everything."""
        shown, reports = self.run_shown, self.run_shown.reports
        said = self.query_one("#said", DetailPane)
        said.border_title = Content(shown.title())
        said.show(reports.lines(max(said.size.width, 20)))
        for run, chart in zip(self.runs, self.query(EventsPane), strict=True):
            chart.border_title = Content(run.chart_title() if len(self.runs) == 1 else f"{run.name()}: {run.chart_title()}")
            chart.redraw()
        self.query_one("#alive").border_title = Content(reports.part_title())
        if reports.rows is not None:
            self.query_one("#rows", _Rows).set_model(reports.rows.model)

    def on_chart_pane_moved(self) -> None:
        self.show()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The table is about the run that has the focus."""
        panes = list(self.query(EventsPane))
        if event.widget in panes and panes.index(event.widget) != self._at:
            self._at = panes.index(event.widget)
            self.show()

    def on_resize(self) -> None:
        self.call_after_refresh(self.show)

    # -- what keys ask for -------------------------------------------------------------------------------------

    def action_next_part(self, by: int) -> None:
        self._filter("")
        self.run_shown.reports.next_part(by)
        self.show()

    def action_peak(self) -> None:
        self.run_shown.go_to(self.run_shown.stack.peak or 0)
        self.show()

    def action_device(self) -> None:
        def take(device: DeviceProfile) -> None:
            for run in self.runs:
                run.lay_over(device)
            self.show()

        if not isinstance(self.screen, TextDialog):
            choose(self, "Whether it fits on", all_devices(), device_text, take)

    def action_sizes(self) -> None:
        self.notify(self.run_shown.fixed, markup=False)

    def action_what_if(self) -> None:
        if not self.run_shown.show_settings():
            self.notify("No settings were tried: irscope simulate --try -o writes a recording that says what each saves.", markup=False)
        self.show()

    def action_budgets(self) -> None:
        shown = self.run_shown
        if not isinstance(shown, RecordedRun) or not shown.toggle_budgets():
            self.notify("No budgets were tried: irscope simulate --try-compile -o writes a recording that has them.", markup=False)
        self.show()

    def action_axis(self) -> None:
        problem = self.run_shown.toggle_axis()
        if problem:
            self.notify(problem, markup=False)
        self.show()

    def action_grouping(self) -> None:
        self.run_shown.next_grouping()
        self.show()

    def action_zoom_steps(self, factor: float) -> None:
        self.run_shown.stack.zoom(self.run_shown.step, factor)
        self.show()

    def action_fit(self) -> None:
        self.run_shown.stack.fit()
        self.show()

    def _filter(self, text: str) -> None:
        self.run_shown.reports.set_filter(text)
        self.show()

    def action_filter(self) -> None:
        self.query_one("#filter", Prompt).open(self.run_shown.reports.filter_text)

    def on_prompt_typed(self, message: Prompt.Typed) -> None:
        self._filter(message.prompt.value)

    def on_prompt_closed(self, message: Prompt.Closed) -> None:
        message.prompt.display = False
        if not message.keep:
            self._filter("")
        (self.query("#rows") or self.query("#stack")).first().focus()

    def action_zoom(self) -> None:
        pane = self.focused
        while pane is not None and not getattr(pane, "ALLOW_MAXIMIZE", None):
            pane = pane.parent if isinstance(pane.parent, Vertical) else None
        if self.screen.maximized is not None:
            self.screen.minimize()
        elif pane is not None:
            self.screen.maximize(pane, container=False)

    def action_save(self) -> None:
        # After the key has been handled, so that the picture is of the screen as it stands.
        self.call_after_refresh(self._save)

    def _save(self) -> None:
        from irscope.tui.screen import table_text, write_together

        table, texts = self.run_shown.reports.table(), {"svg": self.export_screenshot(title="irscope")}
        if table is not None:
            texts["csv"] = table_text(table, "csv")
        try:
            written = write_together(self.run_shown.stem, texts)
        except UsageError as error:
            self.notify(str(error), markup=False)
        else:
            self.notify(f"Written to {' and '.join(map(str, written))}", markup=False)

    async def action_back(self) -> None:
        if self.screen.maximized is not None:
            self.screen.minimize()
        else:
            self._filter("")

    def action_help(self) -> None:
        if isinstance(self.screen, TextDialog):
            return
        lines: list[Line] = []
        for title, actions in (
            ("A recording", RECORDING_ACTIONS),
            ("Memory", EventsPane.ACTIONS),
            ("Tables", _Rows.ACTIONS),
        ):
            lines.append((Span(title, "heading"),))
            lines += [(Span(f"  {', '.join(map(key_text, one.keys)):<22}", "name"), Span(one.help)) for one in actions]
            lines.append(())
        lines.append((Span("Bytes are those that were asked for; what the allocator reserves beyond stands in the tables.", "faint"),))
        self.push_screen(TextDialog("Keys", lines))

    async def action_quit(self) -> None:
        self.exit()

    async def action_stop(self) -> None:
        self.exit()


def shown_run(recording: Recording, symbols: Symbols) -> ShownRun:
    """What the screen shows; LoadError where the recording's tables make no sense."""
    try:
        return RecordedRun(recording, symbols)
    except (ValueError, IrscopeError) as error:
        raise LoadError(f"a table that makes no sense: {error}", code="IRS477", where=recording.path) from error


def run_recording(recording: Recording, *others: Recording) -> None:
    """Show a recording, others beside it, until the user leaves."""
    RecordingApp(recording, others=others).finish()
