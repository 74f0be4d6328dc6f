"""Recordings as snapshots, and snapshots as recordings, so that one explanation and one screen serve both."""

from __future__ import annotations

from typing import Final

import numpy as np

import irscope
from irscope.devices.catalogue import SNAPSHOT_TORCH
from irscope.frontends.files.snapshot import Annotation, Snapshot
from irscope.frontends.files.snapshotstream import Columns, Frame
from irscope.passes.exports import PHASE_MARK
from irscope.recording import (
    WARM,
    Counters,
    DeviceRecord,
    Header,
    Held,
    Level,
    MemoryEvent,
    ModelRecord,
    Problem,
    Recording,
)
from irscope.report.report import Report
from irscope.tools.explain.history import PHASES, History
from irscope.tools.simulation_files import said_of, table_said

_CONF: Final = "PYTORCH_CUDA_ALLOC_CONF"
_NAMES: Final = ("alloc", "free_requested")
_MOST_SHOWN: Final = 200_000
"""Entries of a history that are shown, the last ones before the moment that is explained and what comes then."""
_BEYOND: Final = 2_000


def snapshot_of(recording: Recording) -> Snapshot:
    """Return the recorded run as what the allocator did."""
    stacks: dict[tuple[str, str, str, str], int] = {}
    frames: dict[Frame, int] = {}
    listed: list[tuple[int, ...]] = []

    def stack(category: str, kernel: str, scope: str, source: str) -> int:
        key = category, kernel, scope, source
        if key not in stacks:
            file, _, line = source.rpartition(":")
            place = Frame(scope.replace("/", ".") or "program", file or source, int(line) if line.isdecimal() else 0)
            made = (Frame(f"{category} {kernel}".strip(), category, 0), place)
            listed.append(tuple(frames.setdefault(one, len(frames)) for one in made))
            stacks[key] = len(listed) - 1
        return stacks[key]

    rows: list[tuple[int, ...]] = []
    names: dict[int | tuple[int, int], tuple[int, int]] = {}
    phases: list[str] = []
    ops = {op.index: op for op in recording.ops}
    address = 1
    for held in recording.held:
        number = stack(held.category, held.kernel, held.scope, held.source)
        rows.append((0, address, held.bytes, held.stream, len(rows), number, 0, 0))
        phases.append("")
        if held.block is not None:
            names[held.block] = address, number
        address += 1
    for event in recording.run(WARM):
        op = ops.get(event.op) if event.op is not None else None
        scope, kernel = event.scope or (op.scope if op is not None else ""), event.kernel or (op.op if op is not None else "")
        if event.bytes >= 0:
            number = stack(event.category, kernel, scope, event.source)
            rows.append((0, address, event.bytes, event.stream, len(rows), number, 0, 0))
            if event.block is not None:
                names[event.block] = address, number
            address += 1
        else:
            known = names.pop(event.block, None) if event.block is not None else None
            where, number = known or (address, stack(event.category, kernel, scope, event.source))
            address += known is None
            rows.append((1, where, -event.bytes, event.stream, len(rows), number, 0, 0))
        phases.append(event.phase)
    table = np.array(rows, dtype=np.int64).reshape(-1, 8)
    action, address_, size, stream, time, stack_, note, pool = table.T
    columns = Columns(action, address_, size, stream, time, stack_, note, pool, list(_NAMES), [""], listed, list(frames), [(0, 0)])
    header = recording.header
    told = {SNAPSHOT_TORCH: header.versions.get("torch", ""), _CONF: header.settings.get(_CONF, "")}
    return Snapshot(recording.path, (), columns, (np.arange(len(rows), dtype=np.int64),), told, tuple(_phases(phases)))


def _phases(phases: list[str]) -> list[Annotation]:
    found: list[Annotation] = []
    now = ""
    for at, name in enumerate([*phases, ""]):
        if name == now:
            continue
        if now:
            found.append(Annotation(PHASE_MARK + now, False, at, 0))
        if name:
            found.append(Annotation(PHASE_MARK + name, True, at, 0))
        now = name
    return found


def recording_of_history(history: History, report: Report, verdict: str) -> Recording:
    """Return a snapshot as the screen of a recording shows it: its history around the moment that is explained, and the report's tables."""
    blocks = history.blocks
    end = min(history.length, max(history.moment + _BEYOND, _MOST_SHOWN))
    first = max(end - _MOST_SHOWN, 0)
    before = np.flatnonzero((blocks.born < first) & (blocks.died >= first))
    held = [
        Held(
            int(blocks.size[one]),
            int(one),
            str(history.category[one]),
            history.stack(int(one)).operator,
            history.module(int(one)),
            history.line(int(one)),
            int(blocks.stream[one]),
        )
        for one in before.tolist()
        if blocks.size[one]
    ]
    moments = [(int(at), 1, number) for number, at in enumerate(blocks.born.tolist()) if first <= at < end]
    moments += [(int(at), 0, number) for number, at in enumerate(blocks.died.tolist()) if first <= at < end]
    start = int(history.time[first]) if history.length else 0
    events = []
    for at, is_birth, number in sorted(moments):
        size = int(blocks.size[number])
        if size:
            events.append(
                MemoryEvent(
                    WARM,
                    size if is_birth else -size,
                    None,
                    bool(is_birth),
                    number,
                    str(history.category[number]),
                    history.stack(number).operator,
                    history.module(number),
                    float(max(int(history.time[at]) - start, 0)),
                    history.line(number),
                    PHASES[int(history.phase[at])],
                    int(blocks.stream[number]),
                )
            )
    problems = []
    if history.refused is not None:
        problems.append(Problem("out_of_memory", verdict, requested=int(history.size[history.refused])))
    peak = Level(int(history.totals[-1]), int(history.totals.max()))
    reserved = Level(int(history.reserved[-1]), int(history.reserved.max())) if len(history.reserved) else None
    header = Header(
        "torch-cuda",
        ModelRecord(history.snapshot.path.replace("\\", "/").rpartition("/")[2], "snapshot", history.snapshot.path),
        DeviceRecord("cuda", f"device {history.snapshot.device}", None),
        f"irscope {irscope.__version__}",
    )
    counters = (Counters(WARM, requested=peak, reserved=reserved),)
    return Recording(
        header,
        (),
        tuple(events),
        counters,
        problems=tuple(problems),
        said=said_of(report),
        tables=tuple(map(table_said, report.tables)),
        held=tuple(held),
        path=history.snapshot.path,
    )
