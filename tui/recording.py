"""Recordings as runs that the screens show: memory over the recorded step, its verdict, and the tables of the run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from shlex import join
from typing import Final

import numpy as np

from irscope.errors import IrscopeError, LoadError
from irscope.memory.tape import COUNTERS, REPORTED
from irscope.recording import WARM, Level, MemoryEvent, Recording, figures, peak_of, read_recording
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.tools.recorded import machine_tables, trust_lines, unread_notes
from irscope.tui.charts import Floats
from irscope.tui.memory.run import Pieces, ShownRun
from irscope.tui.memory.views import Counters
from irscope.tui.text import Line, Span, Symbols

_BEFORE: Final = "before"
_MORE: Final = ("found", "smallest change")
"""Keys that the explanation of a snapshot begins with, after its verdict."""
_REFUSED: Final = "out_of_memory"
_HELD: Final = "before the run"
"""Label of what is live when the run begins, where the recording does not tell its blocks."""


def run_of_recording(recording: Recording) -> ShownRun:
    """Return what the screens show of a recording; LoadError where its tables make no sense."""
    try:
        return _run_of(recording)
    except (ValueError, IrscopeError) as error:
        raise LoadError(f"a table that makes no sense: {error}", code="IRS477", where=recording.path) from error


def _run_of(recording: Recording) -> ShownRun:
    header, said = recording.header, recording.said
    events = recording.run(WARM)
    memory = _asked_for(recording, events) if events else None
    tables = [*_said_tables(recording, memory), *_own_tables(recording)]
    # What a program that ran out of memory is asked first.
    first = next((table for table in tables if table.title.lower().startswith("alive where memory was refused")), None)
    summary = said.summary if said is not None and said.summary else _summary_of(recording)
    problems = [f"{one.kind.replace('_', ' ')}: {one.text}" for one in recording.problems]
    how = "simulated" if header.settings.get("simulated") is True else f"recorded with {header.executor}"
    rank, was_refused = _rank_text(recording), any(one.kind == _REFUSED for one in recording.problems)
    name = header.model.name or "recording"
    has_before = any(one.bytes for one in recording.held) or _in_use_before(recording) is not None
    return ShownRun(
        (name, how, header.device.name, *([rank] if rank else [])),
        rank or recording.path.replace("\\", "/").rpartition("/")[2] or name,
        "The sizes are those of the recorded run: record or simulate it again with others.",
        f"Memory requested in {_what(recording, was_refused)}{'' if has_before else ', beyond what was there before'}",
        memory,
        recording.path,
        join(["irscope", "run", recording.path]) if recording.path and header.model.format != "snapshot" else "",
        header.device.name,
        summary,
        [str(summary[key]) for key in _MORE if key in summary],
        (*problems, *trust_lines(recording), *(said.notes if said is not None else ()), *recording.notes, *unread_notes(recording)),
        [table for table in tables if table is not first],
        first,
        was_refused,
        _counters(recording),
        header.device.memory,
        _seconds(events),
        owner="line" if _has_lines(recording) else "kernel",
        machine=partial(machine_lines, recording),
        again=partial(_read_again, recording.path) if recording.path and header.model.format != "snapshot" else None,
    )


def _read_again(path: str) -> ShownRun:
    return run_of_recording(read_recording(Path(path)))


def _what(recording: Recording, was_refused: bool) -> str:
    """Return what the events are those of."""
    said = recording.said
    if recording.header.model.format == "snapshot":
        return "the history"
    if said is None or not said.summary.get("steps_count"):
        return "the recorded run"
    return f"step {recording.header.warmup + 1}" + (", the last one that ended" if was_refused else "")


def _rank_text(recording: Recording) -> str:
    settings = recording.header.settings
    world = settings.get("world", 1)
    return f"rank {settings.get('rank', 0)} of {world}" if isinstance(world, int) and world > 1 else ""


def _has_lines(recording: Recording) -> bool:
    """Return whether it is told which line of the program asked; else it is the kernel that did."""
    return any(held.source for held in recording.held) or any(event.source for event in recording.run(WARM))


def _counters(recording: Recording) -> Counters | None:
    """Return what the allocator counted: what there was before, and the peaks of the first and of the recorded run."""
    numbers: dict[tuple[str, str], object] = {
        (counted.run, name): level.current if counted.run == _BEFORE else level.peak
        for counted in recording.counters
        for name in REPORTED
        if isinstance(level := getattr(counted, name), Level)
    }
    moments = {key: word for key, word in ((_BEFORE, "before"), ("cold", "first"), (WARM, "peak")) if any(one == key for one, _ in numbers)}
    return Counters(recording.header.device.name, numbers, moments=moments) if numbers else None


def _seconds(events: Sequence[MemoryEvent]) -> tuple[Floats, str] | str:
    """Return how long it was from each moment to the next, or why that is not known."""
    times = [one.time_us for one in events]
    if not times or None in times:
        return "The recording does not say when memory was requested."
    ends = np.maximum.accumulate(np.array([0.0, *(float(time or 0) for time in times)])) / 1e6
    return np.append(np.diff(ends), 0.0), "as it was measured"


def _asked_for(recording: Recording, events: Sequence[MemoryEvent]) -> Pieces:
    """Return what adds to the chart, with the first moment at which it does, and the first at which it does no longer."""
    last = len(events) + 1
    items = [
        MemoryEvent(_BEFORE, one.bytes, None, False, one.block, one.category, one.kernel, one.scope, source=one.source, stream=one.stream)
        for one in recording.held
    ]
    if not items and (baseline := _in_use_before(recording)):
        items = [MemoryEvent(_BEFORE, baseline, category=_HELD)]
    begins, ends = [0] * len(items), [last] * len(items)
    place = {one.block: number for number, one in enumerate(items) if one.block is not None}
    for step, event in enumerate(events, 1):
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
    has_lines = _has_lines(recording)
    # One moment more than there are events: that before the first.
    phases = ["", *(one.phase for one in events)]
    return Pieces(
        np.array([one.bytes for one in items], dtype=np.int64),
        np.array(begins, dtype=np.int64),
        np.array(ends, dtype=np.int64),
        [one.category for one in items],
        {
            "module": [one.scope.replace("/", ".") for one in items],
            "line": [one.source if has_lines else one.kernel for one in items],
            "stream": [f"stream {one.stream}" if one.stream else "" for one in items],
        },
        np.array([one.block is not None for one in items], dtype=np.bool_),
        ["the start", *(f"event {number:,}" for number in range(1, last))],
        phases,
    )


def _said_tables(recording: Recording, memory: Pieces | None) -> Iterator[Table]:
    """Return the tables of the whole run, without what was alive at its peak where the recorded run reaches that, as it comes first."""
    peak: list[str] = []
    if memory is not None:
        total = np.sum(list(memory.heights("category").values()), axis=0)
        at = int(np.argmax(total))
        peak = sorted(str((*row[:4], row[4] or None)) for row in memory.alive(at, at))
    for said in recording.tables:
        columns = [Column(str(number), *_kind_and_title(text)) for number, text in enumerate(said.columns)]
        for row in said.rows:
            for cell, column in zip(row, columns, strict=True):
                if cell is not None and isinstance(cell, str) is column.kind.is_number:
                    raise ValueError(f"{cell!r} is no {column.kind.value}")
        if not peak or sorted(str(tuple(row)) for row in said.rows) != peak:
            yield Table.of(said.rows, columns, said.title)


def machine_lines(recording: Recording, width: int, symbols: Symbols) -> list[Line]:
    """Return a line for each of use, clock and power that was read while it was recorded: its course, and its least and most."""
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


def _summary_of(recording: Recording) -> dict[str, object]:
    """Return the summary that follows from the counters, where the tool wrote none of its own."""
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
    """Yield the tables of what was alive when the run failed, of counters and of operators."""
    for problem in recording.problems:
        if problem.alive and not recording.tables:
            found = [(one.name, one.scope, one.bytes) for one in problem.alive]
            yield Table.of(found, ["made by", "module", "bytes"], "Alive where memory was refused, the largest")
    levels = [
        (one.run, name, level.current, level.peak)
        for one in recording.counters
        for name in COUNTERS
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
