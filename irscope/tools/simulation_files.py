"""A simulated program as a file for other viewers: a recording, PyTorch's memory snapshot, a Chrome trace."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy

import irscope
from irscope.devices.catalogue import SNAPSHOT_DEVICE
from irscope.files import write_binary, write_text
from irscope.memory.tape import COUNTERS, Bytes, Origin, Outcome, Replayed, Tape
from irscope.passes.exports import AllocatorLog, Refusal, allocations_of_program, chrome_trace, snapshot_bytes
from irscope.recording import (
    COLD,
    WARM,
    Alive,
    Counters,
    DeviceRecord,
    Header,
    Held,
    Level,
    MemoryEvent,
    ModelRecord,
    OpRecord,
    Problem,
    Recording,
    Said,
    SaidTable,
    write_recording,
)
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.report.values import Cell, Quantity, bare
from irscope.tools.simulation import Simulation
from irscope.tools.simulation_clock import timeline_events

KINDS: Final = (".jsonl", ".pickle", ".json")
"""Suffixes of file names."""
_MOST_ALIVE: Final = 100
_MOST_ROWS: Final = 5000
"""Of a table, so that its line stays well below what a reader takes."""


def write_simulation(path: Path, simulation: Simulation, tried: Iterable[Table] = ()) -> None:
    """Write what its name says; a recording begins with what settings that were tried save."""
    if path.suffix == ".jsonl":
        write_recording(path, recording_of(simulation, tried))
    elif path.suffix == ".pickle":
        write_binary(path, [snapshot_bytes(allocator_log(simulation))])
    else:
        write_text(path, [json.dumps(trace_of(simulation), separators=(",", ":")), "\n"])


def allocator_log(simulation: Simulation) -> AllocatorLog:
    """Return what the allocator did, event by event."""
    target = simulation.target
    replayed = simulation.replay(watch="all")
    log = allocations_of_program(simulation.tape, replayed, expandable=target.is_expandable, refusal=_refusal(simulation))
    log.settings = {**target.snapshot_settings(), SNAPSHOT_DEVICE: simulation.options.device or target.device.name}
    return log


def trace_of(simulation: Simulation) -> dict[str, Any]:
    """Return a Chrome trace: memory, and where times are predicted the host and each stream with what runs there, on one axis."""
    log, clock, starts = allocator_log(simulation), simulation.clock, simulation.tape.starts
    if not any(step.seconds for step in clock.steps):
        return chrome_trace(log)
    requests, seconds = zip(*clock.ends, strict=True)
    places = [starts[min(step, len(starts) - 1)] for step in range(log.length + 1)]
    log.begins = [1e6 * float(one) for one in numpy.interp(places, [0, *requests], [0.0, *seconds])]
    trace = chrome_trace(log)
    trace["traceEvents"] += timeline_events(clock)
    return trace


def _refusal(simulation: Simulation) -> Refusal | None:
    """Return the request for which the program ended."""
    if simulation.outcome != "oom":
        return None
    action = next((action for action in reversed(simulation.tape.actions) if action.verb == "refused"), None)
    return None if action is None else Refusal(action.at, action.what, action.other, simulation.left_at_refusal(), simulation.line)


def recording_of(simulation: Simulation, tried: Iterable[Table] = ()) -> Recording:
    """Return the last step as the warm run, the first one as the cold run; of a program without steps all of it."""
    replayed = simulation.replay()
    counted = [*replayed.outcomes[: len(simulation.steps)]] or replayed.outcomes
    tape = simulation.tape
    span = next(span for span in tape.spans if span.name == counted[-1].name)
    report = simulation.report()
    ops, events = _operators(tape, tape.starts[span.first], tape.starts[span.end])
    return Recording(
        _header(simulation),
        tuple(ops),
        tuple(events),
        tuple(_counters(replayed, counted)),
        problems=tuple(_problems(simulation)),
        complete=simulation.outcome in ("finished", "steps"),
        said=said_of(report),
        tables=tuple(map(table_said, (*tried, *report.tables))),
        held=tuple(_held(tape, tape.starts[span.first])),
    )


def said_of(report: Report) -> Said:
    """Return the numbers and texts that the report begins with."""
    cells = {key: _cell(cell) for key, cell in report.summary.items() if isinstance(cell, str | int | float | Quantity)}
    remarks = [f"{diagnostic.code}: {diagnostic.message}" for diagnostic in report.diagnostics]
    return Said({key: cell for key, cell in cells.items() if cell is not None}, (*report.notes, *remarks))


def table_said(table: Table) -> SaidTable:
    """Return a table as recordings have it: a column of texts holds nothing else, such as the number of a compiled graph."""
    columns = [f"{column.heading}:{column.kind.value}" for column in table.columns]
    are_texts = [not column.kind.is_number for column in table.columns]
    rows = [
        tuple(str(cell) if is_text and cell is not None else cell for is_text, cell in zip(are_texts, map(_cell, row), strict=True))
        for row in table.first(_MOST_ROWS).rows()
    ]
    return SaidTable(table.title, tuple(columns), tuple(rows))


def _cell(cell: Cell) -> str | int | float | None:
    found = bare(cell)
    return found if isinstance(found, str | int | float) else None


def _held(tape: Tape[Origin], end: int) -> Iterator[Held]:
    """Yield what is alive when the stretch begins."""
    sizes = tape.numbers("central")
    for slot in next(tape.alive_at([end])):
        if sizes[slot]:
            who = tape.origin(slot)
            yield Held(sizes[slot], slot, tape.kinds[slot], tape.labels[slot], who.module, who.line, tape.streams.get(slot, 0))


def _header(simulation: Simulation) -> Header:
    options, target = simulation.options, simulation.target
    settings: dict[str, str | int | float | bool] = {"simulated": True, "world": options.ranks, "rank": options.rank}
    if target.alloc_conf:
        settings["PYTORCH_CUDA_ALLOC_CONF"] = target.alloc_conf
    return Header(
        "torch-cuda",
        ModelRecord(Path(simulation.script).stem, "program", simulation.script),
        DeviceRecord("cuda", target.device.title, target.device.memory_bytes),
        f"irscope {irscope.__version__}",
        versions={"torch": target.release.name},
        settings=settings,
        warmup=max(len(simulation.steps) - 1, 0),
        repeats=1,
    )


def _operators(tape: Tape[Origin], first: int, end: int) -> tuple[list[OpRecord], list[MemoryEvent]]:
    """Return the requests of a stretch; those that one operator made one after the other belong to one."""
    ops: list[OpRecord] = []
    events: list[MemoryEvent] = []
    sizes = tape.numbers("central")
    asked: tuple[str, Origin] | None = None
    alive = made = 0

    def close(who: tuple[str, Origin] | None) -> None:
        if who is not None:
            label, origin = who
            scope = origin.module.replace(".", "/")
            ops.append(OpRecord(len(ops), label or origin.line or "program", scope, place="cuda", made=made, alive=alive))

    begins = [at for at, _ in tape.phases]
    for place, slot, is_taken in tape.requests(first, end):
        if not sizes[slot]:
            continue
        at = bisect_right(begins, place)
        # A phase that began before the stretch is not of it.
        phase = tape.phases[at - 1][1] if at and begins[at - 1] >= first else ""
        who = tape.labels[slot], tape.origin(slot)
        if is_taken and asked != who:
            close(asked)
            asked, made = who, 0
        change = sizes[slot] if is_taken else -sizes[slot]
        alive += change
        made += max(change, 0)
        number = len(ops) if asked is not None else None
        kind, stream = tape.kinds[slot], tape.streams.get(slot, 0)
        event = MemoryEvent(WARM, change, number, is_taken, slot, kind, who[0], who[1].module, source=who[1].line)
        events.append(replace(event, phase=phase, stream=stream))
    close(asked)
    return ops, events


def _counters(replayed: Replayed, counted: list[Outcome]) -> list[Counters]:
    places = {later.name: earlier.after for earlier, later in pairwise(replayed.outcomes)}
    before = places.get(counted[-1].name, replayed.before)
    found = [_levels("before", before, before)]
    if len(counted) > 1:
        found.append(_levels(COLD, counted[0].after, counted[0].peak))
    return [*found, _levels(WARM, counted[-1].after, counted[-1].peak)]


def _levels(run: str, now: Bytes, peak: Bytes) -> Counters:
    return Counters(run, *(Level(now[key], peak[key]) for key in COUNTERS))


def _problems(simulation: Simulation) -> list[Problem]:
    """Return the reason why the program ended, if not by itself."""
    if not simulation.error:
        return []
    text = f"{simulation.line}: {simulation.error}" if simulation.line else simulation.error
    if simulation.outcome != "oom":
        return [Problem("failed", text)]
    tape = simulation.tape
    sizes, held = tape.numbers("central"), simulation.replay(tape.until(simulation.fullest)).held
    found = [Alive(sizes[slot], None, tape.labels[slot], tape.origin(slot).module) for slot in held]
    found.sort(key=lambda one: -one.bytes)
    refused = next((action.what for action in reversed(tape.actions) if action.verb == "refused"), None)
    return [
        Problem("out_of_memory", text, requested=refused, alive=tuple(found[:_MOST_ALIVE]), alive_bytes=sum(one.bytes for one in found))
    ]
