"""Joins the history of PyTorch's caching allocator (requested sizes) with the profiler's trace (operators that requested them)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from irscope.runtime.record.trace import Allocation, Trace

_COUNTED = ("alloc", "free_completed")


def match_history(trace: Trace, events: Sequence[Mapping[str, Any]]) -> None:
    """Give the run's blocks on the GPU their requested sizes; where both sources disagree, the history and its clock decide."""
    wanted = [event for event in events if event["action"] in _COUNTED]
    others = [one for one in trace.allocations if one.device != "cuda"]
    seen = [one for one in trace.allocations if one.device == "cuda"]
    # The history continues until the result is freed.
    wanted = [event for event in wanted if event["time_us"] * 1000 <= trace.end]
    if not _same(seen, wanted):
        seen = [_made(event) for event in wanted]
    blocks: dict[int, int] = {}
    for number, (one, event) in enumerate(zip(seen, wanted, strict=True)):
        size = int(event["size"])
        if event["action"] == "alloc":
            one.bytes, one.block = size, number
            blocks[event["addr"]] = number
        else:
            one.bytes, one.block = -size, blocks.pop(event["addr"], -1 - number)
    trace.allocations = [*others, *seen]
    trace.settle()


def _same(seen: Sequence[Allocation], wanted: Sequence[Mapping[str, Any]]) -> bool:
    return len(seen) == len(wanted) and all(
        one.address == event["addr"] and (one.bytes > 0) == (event["action"] == "alloc") for one, event in zip(seen, wanted, strict=True)
    )


def _made(event: Mapping[str, Any]) -> Allocation:
    """A block that only the history knows: the operator is the one that ran at the time."""
    return Allocation(int(event["time_us"]) * 1000, 0, 0, device="cuda", address=int(event["addr"]))
