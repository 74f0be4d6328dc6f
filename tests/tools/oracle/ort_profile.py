"""Runs a model in ONNX Runtime and reads the memory fields of its profile."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

OFF = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
ON = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
_TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
    "tensor(int32)": np.int32, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_,
}  # fmt: skip


@dataclass(frozen=True)
class KernelMemory:
    """What the profile says after one kernel, in bytes."""

    name: str
    op_type: str
    requested: int
    in_use: int
    peak: int
    held: int


@dataclass(frozen=True)
class Measured:
    """Runs of one session."""

    runs: list[list[KernelMemory]]
    """Kernels of the main graph."""
    inside: list[list[KernelMemory]]
    """All kernels, also those of graphs inside nodes."""
    saved: Path | None
    """The graph that ran, where it is not that of the file."""
    results: list[Any]
    """Of the second run."""


def measure(
    model: Path,
    optimise: bool,
    folder: Path,
    sizes: Mapping[str, int] | None = None,
    pattern: bool = True,
    execution: onnxruntime.ExecutionOrder = onnxruntime.ExecutionOrder.DEFAULT,
    feeds: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> Measured:
    """Run a model twice on the CPU provider. `sizes` fixes its free dimensions, for the session as for the inputs; `feeds` are inputs, with
    which the session learns sizes only from them."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ON if optimise else OFF
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = pattern
    options.enable_profiling = True
    options.execution_order = execution
    for name, size in (sizes or {}).items():
        options.add_free_dimension_override_by_name(name, size)
    saved = folder / "optimised.onnx" if optimise else None
    if saved is not None:
        options.optimized_model_filepath = str(saved)
        # Weights of large models do not fit into the file itself.
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimised.onnx.data")
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    with tempfile.TemporaryDirectory() as profiles:
        options.profile_file_prefix = str(Path(profiles) / "profile")
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        given = feeds or {one.name: _array(one, sizes or {}) for one in session.get_inputs()}
        results: list[Any] = []
        for _ in range(2):
            # What an earlier run has returned would count in the next one.
            results = []
            results = session.run(None, given)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    found = list(_runs(events))
    return Measured(
        [[_kernel(one) for one in _outermost(run)] for run in found], [list(map(_kernel, run)) for run in found], saved, results
    )


def _array(one: Any, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
    """Ones: valid as pixels, as token ids, as masks and as counts."""
    shape = [dim if isinstance(dim, int) else sizes.get(dim, 2) for dim in one.shape]
    return np.ones(shape, _TYPES[one.type])


def _runs(events: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Kernels by run."""
    run: list[dict[str, Any]] = []
    for event in events:
        if event["cat"] == "Node":
            run.append(event)
        elif event["name"] == "model_run":
            yield run
            run = []


def _outermost(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the main graph. Kernels of graphs inside a node run while that node runs."""
    ordered = sorted(events, key=lambda event: (event["ts"], -event["dur"]))
    owners = {"If", "Loop", "Scan"}
    if not any(one["args"]["op_name"] in owners for one in ordered):
        return events
    found: list[dict[str, Any]] = []
    end = -1
    for one in ordered:
        if one["ts"] >= end:
            found.append(one)
            if one["args"]["op_name"] in owners:
                end = one["ts"] + one["dur"]
    return found


def _kernel(event: dict[str, Any]) -> KernelMemory:
    args = event["args"]
    fields = ("mem_bytes_requested_in_use", "mem_bytes_in_use", "mem_in_use_peak", "mem_arena_held")
    return KernelMemory(event["name"].removesuffix("_kernel_time"), args["op_name"], *(int(args[field]) for field in fields))
