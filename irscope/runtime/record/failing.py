"""Failures of a run: at which operator, and what was alive."""

from __future__ import annotations

import re
from collections.abc import Sequence

from irscope.amounts import BYTES, read_amount
from irscope.recording.derive import alive_at
from irscope.recording.records import Alive, MemoryEvent, OpRecord, Problem

_MOST = 20
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "failed to allocate", "bad_alloc", "not enough memory", "bad allocation")
_WANTED = (
    re.compile(r"tried to allocate ([\d.]+) ?(bytes|[KMGTP]iB)", re.IGNORECASE),
    re.compile(r"requested (?:buffer of )?(?:bytes|size)\D{0,3}(\d+)", re.IGNORECASE),
)
_ORT_NODE = re.compile(r"while running (\S+) node\. Name:'([^']*)'")
"""How ONNX Runtime says where an error happened."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is an out-of-memory error of any library."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or any(part in text for part in _OUT_OF_MEMORY)


def problem_of(
    error: BaseException, ops: Sequence[OpRecord], events: Sequence[MemoryEvent], in_use: Sequence[Alive] | None = None
) -> Problem:
    """The problem a run ended with; the operator that ran last is where it happened, where the error names none."""
    last = ops[-1] if ops else None
    named = _ORT_NODE.search(str(error))
    alive = in_use if in_use is not None else [_alive(event, ops) for event in alive_at(events, len(events) - 1)]
    kind = "out_of_memory" if is_out_of_memory(error) else "failed"
    requested = _requested(str(error)) if kind == "out_of_memory" else None
    return Problem(
        kind,
        f"out of memory: {requested} bytes could not be had" if requested is not None else first_line(error),
        last.index if last and (named is None or last.op == named[1]) else None,
        named[1] if named is not None else last.op if last else "",
        named[2] if named is not None else last.scope if last else "",
        requested,
        tuple(sorted(alive, key=lambda one: -one.bytes)[:_MOST]),
        sum(one.bytes for one in alive),
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's text, with its kind."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:500] if lines else ''}".rstrip(": ")


def _alive(event: MemoryEvent, ops: Sequence[OpRecord]) -> Alive:
    # Between two operators Python itself may make a tensor, such as one of a number.
    op = ops[event.op] if event.op is not None and event.inside else None
    return Alive(event.bytes, op.index if op else None, op.op if op else "", op.scope if op else event.scope)


def _requested(text: str) -> int | None:
    for pattern in _WANTED:
        match = pattern.search(text)
        if match:
            amount = read_amount("".join(match.groups()), BYTES)
            return None if amount is None else int(amount)
    return None
