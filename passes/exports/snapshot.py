"""A recording as PyTorch's memory snapshot: what https://pytorch.org/memory_viz and torch.cuda._memory_viz open."""

from __future__ import annotations

import pickle
from typing import Any

from irscope.memory.caching import Segment
from irscope.passes.exports.recording import Event, Owner, Recording, frames

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
