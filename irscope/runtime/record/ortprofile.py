"""ONNX Runtime's profile: which kernels each run had, how long they took, and the allocator's state after each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OWNERS = ("If", "Loop", "Scan")
_SUFFIX = "_kernel_time"
_TYPES = {
    "float": "f32",
    "double": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "bool",
    "string": "str",
}


@dataclass(frozen=True, slots=True)
class Memory:
    """The allocator after a kernel, in bytes."""

    requested: int
    allocated: int
    peak: int
    held: int
    change: int
    """Of what is requested, by this kernel."""
    allocated_change: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a run."""

    name: str
    op: str
    provider: str
    started: float
    microseconds: float
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    memory: Memory | None


@dataclass(frozen=True, slots=True)
class Profile:
    """All runs of a session."""

    runs: tuple[tuple[Kernel, ...], ...]
    unfinished: tuple[Kernel, ...]
    """Kernels of a run that did not come to its end."""
    has_device_times: bool
    """Whether kernels on a GPU were timed there; else their times are those of starting them."""


def read_profile(path: Path) -> Profile:
    """Read the file that ending the profiling wrote."""
    return parse_profile(json.loads(path.read_text(encoding="utf-8")))


def parse_profile(events: Iterable[Mapping[str, Any]]) -> Profile:
    """Kernels of the main graph by run; those of graphs inside a node run while that node runs."""
    runs: list[tuple[Kernel, ...]] = []
    pending: list[Mapping[str, Any]] = []
    on_device = False
    for event in events:
        if event["cat"] == "Kernel":
            on_device = True
        elif event["cat"] == "Node" and str(event["name"]).endswith(_SUFFIX):
            pending.append(event)
        elif event["name"] == "model_run":
            runs.append(tuple(_kernels(pending)))
            pending = []
    return Profile(tuple(runs), tuple(_kernels(pending)), on_device)


def _kernels(events: list[Mapping[str, Any]]) -> Iterator[Kernel]:
    ordered = sorted(events, key=lambda event: (event["ts"], -event["dur"]))
    end = -1.0
    for event in ordered:
        if event["ts"] < end:
            continue
        if event["args"].get("op_name") in OWNERS:
            end = event["ts"] + event["dur"]
        yield _kernel(event)


def _kernel(event: Mapping[str, Any]) -> Kernel:
    args = event["args"]
    return Kernel(
        str(event["name"]).removesuffix(_SUFFIX),
        str(args.get("op_name", "")),
        str(args.get("provider", "")),
        float(event["ts"]),
        float(event["dur"]),
        _types(args.get("input_type_shape")),
        _types(args.get("output_type_shape")),
        _memory(args),
    )


def _types(items: object) -> tuple[str, ...]:
    """Types from what versions write as a list or as the text of one."""
    if isinstance(items, str):
        try:
            items = json.loads(items)
        except ValueError:
            return ()
    if not isinstance(items, list):
        return ()
    return tuple(f"{_TYPES.get(kind, '?')}[{','.join(map(str, shape))}]" for item in items for kind, shape in item.items())


def _memory(args: Mapping[str, Any]) -> Memory | None:
    names = (
        "mem_bytes_requested_in_use",
        "mem_bytes_in_use",
        "mem_in_use_peak",
        "mem_arena_held",
        "mem_requested_in_use_delta",
        "mem_in_use_delta",
    )
    if any(name not in args for name in names):
        return None
    return Memory(*(int(args[name]) for name in names))
