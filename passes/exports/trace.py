"""A recording as a Chrome trace: counters over module calls and nodes, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from irscope.passes.exports.recording import LOADING, Event, Recording
from irscope.passes.lifetimes.frames import call_spans

_STEP = 1_000
"""Microseconds that stand for one step: a prediction of memory knows no time."""
_CALLS, _NODES = 1, 2


def chrome_trace(recording: Recording) -> dict[str, Any]:
    """The document of a trace; one step is a millisecond."""
    events = [*_names(), *_slices(recording), *_counters(recording)]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"time": "one node of the model is one millisecond"}}


def _names() -> Iterator[dict[str, Any]]:
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


def _counters(recording: Recording) -> Iterator[dict[str, Any]]:
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
