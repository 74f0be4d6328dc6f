"""The question whether an arena of a given height is possible, asked of Google's CP-SAT. Optional: nothing else needs it."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

from irscope.errors import UsageError
from irscope.memory.placement.problem import Numbers, Problem

_MOST_WORKERS = 8


class Impossible(Exception):
    """No arena of that height exists."""


def find_solver() -> Any:
    """CP-SAT's module. Raises UsageError, with what would help, where it is not installed."""
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError:
        raise UsageError(
            "engine=cpsat needs OR-tools, which is not installed",
            code="IRS365",
            hint="pip install 'irscope[solver]', or leave the engine out: irscope's own search needs nothing",
        ) from None


def place_below(problem: Problem, height: int, hint: Numbers, seconds: float, seed: int) -> Numbers | None:
    """Offsets in an arena of that height, None where time ran out. Raises Impossible where there are none."""
    cp_model = find_solver()
    grain = int(np.gcd.reduce(problem.size)) or 1
    top = height // grain
    model = cp_model.CpModel()
    across, up, starts = [], [], []
    columns = zip(problem.lower.tolist(), problem.upper.tolist(), (problem.size // grain).tolist(), (hint // grain).tolist(), strict=True)
    for buffer, (lower, upper, size, near) in enumerate(columns):
        if size > top:
            raise Impossible
        start = model.new_int_var(0, top - size, f"offset{buffer}")
        model.add_hint(start, min(near, top - size))
        across.append(model.new_fixed_size_interval_var(lower, upper - lower, f"time{buffer}"))
        up.append(model.new_fixed_size_interval_var(start, size, f"place{buffer}"))
        starts.append(start)
    model.add_no_overlap_2d(across, up)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = min(_MOST_WORKERS, os.cpu_count() or 1)
    answer = solver.solve(model)
    if answer == cp_model.INFEASIBLE:
        raise Impossible
    if answer not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return np.array([solver.value(start) for start in starts], dtype=np.int64) * grain
