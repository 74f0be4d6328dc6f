"""Timelines for other viewers: PyTorch's memory snapshot, a Chrome trace, a table of steps."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

from irscope.memory.caching import Segment
from irscope.passes.exports.recording import LOADING, Event, Owner, Recording, check_numbers, frames
from irscope.passes.lifetimes.frames import call_spans
from irscope.passes.lifetimes.lives import LiveRange
from irscope.passes.lifetimes.timeline import Timeline
from irscope.passes.memory.cuda import DeviceMemory
from irscope.report.table import Column, Table
from irscope.report.units import Kind

_PROTOCOL = 4
"""The newest that the viewer reads; it knows no more than plain dictionaries, lists, numbers and text."""
_DEVICE = 0


def snapshot_bytes(recording: Recording) -> bytes:
    """The pickle file."""
    return pickle.dumps(snapshot(recording), protocol=_PROTOCOL)


def snapshot(recording: Recording) -> dict[str, Any]:
    """The dictionary that torch.cuda.memory._snapshot() would return."""
    return {
        "segments": [_segment(segment, recording.owners) for segment in recording.segments],
        "device_traces": [[entry for number, event in enumerate(recording.events) for entry in _entries(number, event)]],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _segment(segment: Segment, owners: dict[int, Owner]) -> dict[str, Any]:
    blocks = [
        {
            "address": block.address,
            "size": block.size,
            "requested_size": block.requested if block.state != "inactive" else block.size,
            "state": block.state,
            "frames": _frames(owners.get(block.address) if block.state != "inactive" else None),
        }
        for block in segment.blocks
    ]
    used = [block for block in segment.blocks if block.state != "inactive"]
    return {
        "device": _DEVICE,
        "address": segment.address,
        "total_size": segment.size,
        "allocated_size": sum(block.size for block in used),
        "active_size": sum(block.size for block in used),
        "requested_size": sum(block.requested for block in used),
        "stream": segment.stream,
        "segment_type": "small" if segment.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": segment.expandable,
        "frames": [],
        "blocks": blocks,
    }


def _entries(number: int, event: Event) -> list[dict[str, Any]]:
    """A free is two actions: it is asked for, and it is done."""
    actions = ["free_requested", "free_completed"] if event.action == "free" else [event.action]
    return [
        {
            "action": action,
            "addr": event.address,
            "size": event.size,
            "stream": 0,
            "time_us": number,
            "compile_context": "N/A",
            "user_metadata": event.owner.group if event.owner is not None else "",
            "pool_id": (0, 0),
            "frames": _frames(event.owner),
        }
        for action in actions
    ]


def _frames(owner: Owner | None) -> list[dict[str, object]]:
    if owner is None:
        return []
    first = {"name": f"{owner.group} {owner.label}".strip(), "filename": owner.category, "line": 0}
    return [first, *map(dict, frames(owner.node))]


# ----------------------------------------------------------------------------------------------------
# A recording as a Chrome trace: counters over module calls and nodes, which ui.perfetto.dev and chrome://tracing open.

_STEP = 1_000
"""Microseconds that stand for one step: a prediction of memory knows no time."""
_CALLS, _NODES = 1, 2


def chrome_trace(recording: Recording) -> dict[str, Any]:
    """The document of a trace; one step is a millisecond."""
    events = [*_track_names(), *_slices(recording), *_counter_events(recording)]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"time": "one node of the model is one millisecond"}}


def _track_names() -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "predicted memory"}}
    for thread, name in ((_CALLS, "module calls"), (_NODES, "nodes")):
        yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": thread, "args": {"name": name}}


def _slices(recording: Recording) -> Iterator[dict[str, Any]]:
    """Module calls and nodes of each run."""
    steps = recording.steps
    spans = sorted(call_spans(steps).items(), key=lambda item: (item[1][0], item[0].depth))
    for run in range(1, recording.runs + 1):
        for scope, (first, last) in spans:
            if scope.parent is not None:
                start, length = _time(run, first, len(steps)), (last - first + 1) * _STEP
                yield {"ph": "X", "name": scope.path, "cat": scope.cls or "module", "pid": 0, "tid": _CALLS, "ts": start, "dur": length}
        for step, node in enumerate(steps):
            place = {"op": node.op, "module": node.scope.path, "where": str(node.loc) if node.loc is not None else ""}
            start = _time(run, step, len(steps))
            yield {"ph": "X", "name": node.name, "cat": "node", "pid": 0, "tid": _NODES, "ts": start, "dur": _STEP, "args": place}


def _counter_events(recording: Recording) -> Iterator[dict[str, Any]]:
    """Bytes by category, and what the allocator counts, after each event."""
    by_category: dict[str, int] = {}
    counts = {"requested": 0, "allocated": 0, "reserved": 0}
    for event, time in zip(recording.events, _times(recording), strict=True):
        sign = -1 if event.action in ("free", "segment_free", "segment_unmap") else 1
        if event.owner is None:
            counts["reserved"] += sign * event.size
            yield {"ph": "C", "name": "reserved", "pid": 0, "ts": time, "args": {"bytes": counts["reserved"]}}
            continue
        category = event.owner.group
        by_category[category] = by_category.get(category, 0) + sign * event.size
        counts["requested"] += sign * event.size
        counts["allocated"] += sign * event.block
        yield {"ph": "C", "name": "requested by category", "pid": 0, "ts": time, "args": dict(by_category)}
        yield {"ph": "C", "name": "allocated", "pid": 0, "ts": time, "args": {"bytes": counts["allocated"]}}


def _times(recording: Recording) -> list[float]:
    """When each event happens: those of one step one after another within its millisecond."""
    groups: dict[tuple[int, int], list[Event]] = {}
    for event in recording.events:
        groups.setdefault((event.run, event.step), []).append(event)
    times: list[float] = []
    for (run, step), events in groups.items():
        start = _time(run, step, len(recording.steps))
        times.extend(start + place * _STEP / (len(events) + 1) for place in range(1, len(events) + 1))
    return times


def _time(run: int, step: int, steps: int) -> int:
    """Loading takes the first millisecond."""
    return 0 if step == LOADING else (1 + (run - 1) * steps + step) * _STEP


# ----------------------------------------------------------------------------------------------------
# The timeline as a table: one row for each step of the run with the higher peak.


def steps_table(timeline: Timeline, memory: DeviceMemory | None) -> Table:
    """Step, node, where it stands, bytes by category and what they add up to; with what the allocator counts where that is known."""
    moments = memory.highest if memory is not None else None
    if memory is not None and moments is not None and memory.basis is not None:
        # The allocator sees the program as Python runs it, whose nodes may be fewer than the file's.
        lifetimes = memory.basis.lifetimes
        steps, ranges, alive = lifetimes.steps, lifetimes.ranges, lifetimes.alive()
    else:
        steps, ranges, alive = timeline.steps, timeline.ranges, timeline.alive
    check_numbers(alive)
    data: dict[Column, list[object]] = {
        Column("step", Kind.INDEX): list(range(len(steps))),
        Column("node", Kind.NODE): [node.name for node in steps],
        Column("op"): [node.op for node in steps],
        Column("module"): [node.scope.path for node in steps],
        Column("where"): [str(node.loc) if node.loc is not None else "" for node in steps],
        Column("alive_bytes", Kind.BYTES): [*alive],
        Column("storages", Kind.COUNT): [*_counts(ranges, len(steps))],
    }
    found = timeline.footprint
    if found is not None:
        for category, column in found.parts.items():
            data[Column(f"{category}_bytes", Kind.BYTES)] = [*column]
        data[Column("total_bytes", Kind.BYTES)] = [found.height(step) for step in range(len(steps))]
    if moments is not None:
        data[Column("allocated_bytes", Kind.BYTES)] = [*moments.counted(moments.allocated)]
        data[Column("reserved_bytes", Kind.BYTES)] = [*moments.counted(moments.reserved)]
    return Table("timeline", tuple(data), {column.key: cells for column, cells in data.items()})


def _counts(ranges: Sequence[LiveRange], steps: int) -> list[int]:
    """How many storages are alive at each step."""
    change = [0] * (steps + 1)
    for one in ranges:
        change[one.born] += 1
        change[min(one.dies + 1, steps)] -= 1
    found: list[int] = []
    alive = 0
    for step in range(steps):
        alive += change[step]
        found.append(alive)
    return found
