"""Templates of allocator requests: the sequence is shared by many sizes, only the amounts differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias

from irscope.errors import PassError
from irscope.ir.dims import unknown
from irscope.ops.spec import MemoryEvent

_AMOUNTS = frozenset({"size", "low", "high", "most"})
_IGNORED = frozenset({"reason"})

_Part: TypeAlias = "tuple[MemoryEvent, tuple[str, ...]]"
Shape: TypeAlias = "tuple[tuple[_Part, ...], ...]"
"""For each node its events without amounts, each with the fields that hold one."""


def shape_of(nodes: Sequence[Sequence[MemoryEvent]]) -> tuple[Shape, list[int]]:
    """What nodes ask for, and the amounts in order. Raises PassError where an amount is no number."""
    amounts: list[int] = []
    return tuple([tuple([_part(event, amounts) for event in events]) for events in nodes]), amounts


def _part(event: MemoryEvent, amounts: list[int]) -> _Part:
    changed: dict[str, Any] = {}
    filled: list[str] = []
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name in _AMOUNTS and value is not None:
            if not isinstance(value, int):
                raise PassError(f"a kernel's memory is no number but {value}", code="IRS333")
            amounts.append(value)
            changed[field.name] = 0
            filled.append(field.name)
        elif field.name in _IGNORED:
            changed[field.name] = "" if isinstance(value, str) else None
    return replace(event, **changed), tuple(filled)


def templates(shape: Shape) -> list[list[MemoryEvent]]:
    """The events again, with a placeholder for each amount, numbered in order."""
    number = 0
    found: list[list[MemoryEvent]] = []
    for parts in shape:
        events: list[MemoryEvent] = []
        for event, filled in parts:
            amounts: dict[str, Any] = {}
            for name in filled:
                amounts[name] = unknown(_name(number))
                number += 1
            events.append(replace(event, **amounts))
        found.append(events)
    return found


def placeholder_columns(amounts: Sequence[Sequence[int]]) -> Mapping[str, list[int]]:
    """The value of each placeholder, for points with these amounts."""
    return {f"?{_name(number)}": list(column) for number, column in enumerate(zip(*amounts, strict=True))}


def _name(number: int) -> str:
    return f"scratch_{number}"
