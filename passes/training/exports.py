"""Profiles of a step as CSV, with the columns that planners of checkpointing read."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Final

from irscope.passes.training.idle import Kept
from irscope.passes.training.replayed import StepMemory
from irscope.passes.training.times import StepTimes
from irscope.training.trace import StepOp

NODES: Final = "rank,node_name,node_type,gtype,median_run_time_s,median_peak_mem_bytes,median_active_mem_bytes,device"
ACTIVATIONS: Final = (
    "activation_name,creation_rank,last_fw_use_rank,first_bw_use_rank,last_bw_use_rank,median_mem_size_bytes,inactive_time_s,"
    "recomp_time_s,recomp_memory_bytes"
)
_TYPES: Final = {"activation": "activation", "gradient": "gradient", "optimizer state": "optimizer_state", "parameter": "parameter"}
NEVER: Final = -1
"""Stands where the backward does not read an activation, or nothing can compute it again: the columns hold numbers only."""


def nodes_csv(memory: StepMemory, times: StepTimes) -> str:
    """A line for each operator of the steady step: its time, the most bytes alive while it runs, and those alive after it."""
    rows = [
        (rank, op.name, _type_of(op), op.phase, _seconds(times.of(op)), int(peak), int(left), memory.target.device.name)
        for rank, (op, peak, left) in enumerate(zip(memory.trace.in_step(memory.trace.steady), memory.total, memory.remaining, strict=True))
    ]
    return _written(NODES, rows)


def activations_csv(kept: list[Kept]) -> str:
    """A line for each activation that is kept for the backward."""
    rows = [
        (
            one.piece.name,
            one.created,
            one.last_forward,
            NEVER if one.first_backward is None else one.first_backward,
            NEVER if one.last_backward is None else one.last_backward,
            one.piece.size,
            _seconds(one.idle_seconds),
            NEVER if one.recompute_seconds is None else _seconds(one.recompute_seconds),
            one.recompute_bytes,
        )
        for one in kept
    ]
    return _written(ACTIVATIONS, rows)


def _type_of(op: StepOp) -> str:
    """What an operator makes or changes that outlives it."""
    for piece in op.writes:
        found = _TYPES.get(piece.category)
        if found is not None:
            return found
    return "other"


def _seconds(value: float) -> str:
    return f"{value:.9g}"


def _written(header: str, rows: Sequence[tuple[object, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header.split(","))
    writer.writerows(rows)
    return text.getvalue()
