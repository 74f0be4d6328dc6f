"""Storages as buffers of one arena: from which step to which each lies there, as written or in the order that was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irscope.passes.schedules.draft import Draft
from irscope.passes.schedules.explain import label


@dataclass(frozen=True)
class Buffer:
    """One stretch of the arena, from step `lower` up to, not including, `upper`."""

    name: str
    lower: int
    upper: int
    size: int


def buffers(draft: Draft, order: Sequence[int]) -> list[Buffer]:
    """Buffers in the order of their births, with what only exists inside a step."""
    place = [0] * len(order)
    for at, op in enumerate(order):
        place[op] = at
    found: list[Buffer] = []
    for storage, value in zip(draft.problem.storages, draft.values, strict=True):
        steps = [place[op] for op in storage.touches]
        lower = 0 if storage.is_input else min(steps)
        upper = len(order) if storage.is_output else max(steps) + 1
        found.append(Buffer(label(value), lower, upper, storage.size))
    for op, size in enumerate(draft.problem.workspace):
        if size:
            found.append(Buffer(f"inside {draft.nodes[op].name}", place[op], place[op] + 1, size))
    return sorted(found, key=lambda one: (one.lower, one.upper, one.name))
