"""Folders of measurements of a physical GPU on a suite of models: machine.json, models.jsonl and kernels.jsonl.

models.jsonl has a line a model: "spec" (the model and its inputs), "before" and "runs" (counters of the caching allocator), "events"
(signed sizes of the first run), "latency_ms" and "convs". kernels.jsonl has a line an operator alone, with its events cold and warm. See
docs/recording.md.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from irscope.errors import LoadError
from irscope.recording.decode import Misfit, decode
from irscope.runtime.calibrate.convolutions import Convolution

T = TypeVar("T")

_SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_MAX_LINE = 64 << 20
_MAX_FILE = 1 << 30


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPU that was recorded."""

    name: str
    torch: str
    capability: tuple[int, ...] = ()
    context_bytes: int | None = None
    copy_bytes_per_s: float | None = None
    launch_s: float | None = None


@dataclass(frozen=True, slots=True)
class Milliseconds:
    """How long runs took."""

    median: float
    min: float
    p95: float
    n: int


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter of a run."""

    peak: int
    after: int


@dataclass(frozen=True, slots=True)
class Spec:
    """Which model, with which element type."""

    model: str
    dtype: str = "float32"
    config: str = ""


@dataclass(frozen=True, slots=True)
class ModelRun:
    """One model on the GPU: runs are the first one, and two that are warm."""

    spec: Spec
    before: Mapping[str, int]
    runs: tuple[Mapping[str, Counter], ...]
    events: tuple[int, ...] = ()
    latency_ms: Milliseconds | None = None
    energy_j_per_run: float | None = None

    @property
    def name(self) -> str:
        return f"{self.spec.model} {self.spec.dtype}"


@dataclass(frozen=True, slots=True)
class GpuFolder:
    """Everything in a folder."""

    path: Path
    machine: Machine
    models: tuple[ModelRun, ...]
    convolutions: tuple[Convolution, ...]
    failed: tuple[str, ...]
    """Models that were tried and did not come to an end."""


def is_gpu_folder(path: Path) -> bool:
    """Whether a folder holds such recordings."""
    return (path / "machine.json").is_file() and (path / "models.jsonl").is_file()


def read_gpu_folder(path: Path) -> GpuFolder:
    """Read a folder. Raises LoadError with file and line."""
    machine = _decoded(Machine, next(_objects(path / "machine.json"), (1, {}))[1], path / "machine.json", 1)
    models: list[ModelRun] = []
    failed: list[str] = []
    owners: dict[str, list[str]] = {}
    for number, line in _objects(path / "models.jsonl"):
        if "error" in line:
            failed.append(_failed_name(line))
            continue
        found = _decoded(ModelRun, line, path / "models.jsonl", number)
        models.append(found)
        for convolution in _list(line.get("convs")):
            owners.setdefault(_key(found.spec.dtype, _list(convolution)), []).append(found.name)
    kernels = path / "kernels.jsonl"
    rows = _objects(kernels) if kernels.is_file() else iter(())
    convolutions = tuple(itertools.chain.from_iterable(_convolutions(row, owners) for _, row in rows))
    return GpuFolder(path, machine, tuple(models), convolutions, tuple(failed))


def workspace_of(events: Sequence[int], output: int) -> int:
    """The peak of an operator's temporary memory, from its signed allocation sizes."""
    most = max(itertools.accumulate(events), default=0)
    return max(0, most - output)


def _convolutions(row: Mapping[str, object], owners: Mapping[str, list[str]]) -> Iterator[Convolution]:
    """A convolution for each model that has it; what it takes warm counts."""
    if row.get("op") != "conv2d" or "error" in row:
        return
    dtype = str(row.get("dtype"))
    x, w, output = _ints(row.get("x")), _ints(row.get("w")), row.get("out")
    runs = [_ints(events) for events in _list(row.get("events"))]
    size = _SIZES.get(dtype)
    if size is None or len(x) < 3 or len(w) < 3 or not runs or not isinstance(output, int):
        return
    shape = [row.get(name) for name in ("x", "w", "stride", "padding", "dilation", "groups")]
    taken = workspace_of(runs[-1], output)
    kind = convolution_kind(w, _ints(row.get("stride")), row.get("groups"))
    for model in owners.get(_key(dtype, shape), []):
        yield Convolution(model, kind, _DTYPES[dtype], size * math.prod(x), size * math.prod(w), output, taken)


def convolution_kind(weight: Sequence[int], strides: Sequence[int], groups: object) -> str:
    """Which kind of kernel a convolution is computed by."""
    if isinstance(groups, int) and groups > 1 and weight[1] == 1:
        return "depthwise"
    is_product = groups == 1 and all(size == 1 for size in weight[2:]) and all(step == 1 for step in strides)
    return "pointwise" if is_product else "convolution"


def _key(dtype: str, parts: Sequence[object]) -> str:
    return json.dumps([dtype, *parts])


def _failed_name(line: Mapping[str, object]) -> str:
    payload = line.get("payload")
    model = payload.get("model") if isinstance(payload, dict) else None
    return str(model or "?")[:200]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _ints(value: object) -> list[int]:
    return [item for item in _list(value) if isinstance(item, int) and not isinstance(item, bool)]


def _objects(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    try:
        if path.stat().st_size > _MAX_FILE:
            raise LoadError(f"has more than {_MAX_FILE} bytes", code="IRS650", where=str(path))
        if path.suffix == ".json":
            yield 1, _object(path.read_bytes(), path, 1)
            return
        with path.open("rb") as stream:
            number = 0
            while text := stream.readline(_MAX_LINE + 1):
                number += 1
                if text.strip():
                    yield number, _object(text, path, number)
    except OSError as error:
        raise LoadError(f"cannot be read: {error.strerror or error}", code="IRS650", where=str(path)) from error


def _object(text: bytes, path: Path, number: int) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"is not JSON: {error}", code="IRS650", where=f"{path}:{number}") from error
    if not isinstance(found, dict):
        raise LoadError("an object is wanted", code="IRS650", where=f"{path}:{number}")
    return found


def _decoded(kind: type[T], value: object, path: Path, number: int) -> T:
    try:
        return decode(kind, value)
    except Misfit as misfit:
        raise LoadError(str(misfit), code="IRS650", where=f"{path}:{number}") from None
