"""Profiles of a step as CSV: the columns that planners of checkpointing read, then the module of each row and whose time it is.

Those planners call the time a median of runs. Here nothing runs: it is a roofline's, which the column `time_source` says. Where a peak
contains a modelled workspace, a last column says which are `exact` and which `modelled`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from irscope.passes.memory.steps import StepMemory
from irscope.passes.training.idle import Kept
from irscope.passes.training.times import StepTimes
from irscope.report.csvout import csv_lines
from irscope.report.table import Table
from irscope.report.values import Quantity
from irscope.training import StepOp

NODES: Final = "rank,node_name,node_type,gtype,median_run_time_s,median_peak_mem_bytes,median_active_mem_bytes,device,module,time_source"
ACTIVATIONS: Final = (
    "activation_name,creation_rank,last_fw_use_rank,first_bw_use_rank,last_bw_use_rank,median_mem_size_bytes,inactive_time_s,"
    "recomp_time_s,recomp_memory_bytes,module,time_source"
)
_TYPES: Final = {"activation": "activation", "gradient": "gradient", "optimizer state": "optimizer_state", "parameter": "parameter"}
NEVER: Final = -1
"""Stands where the backward does not read an activation, or nothing can compute it again: the columns hold numbers only."""
WHOLE: Final = "(model)"
"""Stands for the module of what belongs to no single one below the model, such as the loss and an optimizer's step over all parameters."""


def nodes_csv(memory: StepMemory, times: StepTimes) -> str:
    """A line for each operator of the steady step: its time, the most bytes alive while it runs, and those alive after it."""
    device = memory.target.device.name
    ops = memory.trace.in_step(memory.trace.steady)
    rows = (
        (
            *(
                rank,
                op.name,
                _type_of(op),
                op.phase,
                _seconds(times.of(op)),
                Quantity(peak.value, peak.provenance),
                left,
                device,
                _module(op),
            ),
            times.said_of(op),
        )
        for rank, (op, peak, left) in enumerate(zip(ops, memory.moments.requested(), memory.moments.remaining, strict=True))
    )
    return _written(NODES, rows)


def activations_csv(memory: StepMemory, kept: list[Kept], times: StepTimes) -> str:
    """A line for each activation that is kept for the backward."""
    ops = memory.trace.in_step(memory.trace.steady)
    rows = (
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
            _module(ops[one.created]),
            times.said,
        )
        for one in kept
    )
    return _written(ACTIVATIONS, rows)


def _module(op: StepOp) -> str:
    return op.scope.module or WHOLE


def _type_of(op: StepOp) -> str:
    """What an operator makes or changes that outlives it."""
    for piece in op.writes:
        found = _TYPES.get(piece.category)
        if found is not None:
            return found
    return "other"


def _seconds(value: float) -> float:
    """Nine digits are more than a time has."""
    return float(f"{value:.9g}")


def _written(header: str, rows: Iterable[Sequence[object]]) -> str:
    return "".join(csv_lines(Table.of(rows, header.split(","))))
