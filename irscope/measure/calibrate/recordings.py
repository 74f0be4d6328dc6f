"""Recordings and folders of measurements as the input of a calibration.

Workspaces of convolutions with a rule fitted to them and validated on held-out models, and how long models take.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from irscope.errors import LoadError
from irscope.immutable import immutable
from irscope.jsoncodec import Misfit, decode, loads
from irscope.measure.record.request import type_bytes
from irscope.recording.records import OpRecord, Recording

KEPT_OUT = 3
"""Of this many models in alphabetical order, the last is held out of the fit."""
_CANDIDATES = tuple(itertools.product((0, 1, 2), (0, 1, 2), (0, 1, 2)))
"""Factors of input, filter and result."""
_EXACT = 512
"""The allocator's rounding."""


@immutable
class Convolution:
    """One recorded convolution, in bytes."""

    model: str
    kind: str
    """convolution, pointwise or depthwise."""
    dtype: str
    input: int
    filter: int
    output: int
    workspace: int

    @property
    def touched(self) -> int:
        return self.input + self.filter + self.output


@immutable
class Errors:
    """Errors of a rule, as fractions of the bytes that each convolution touches."""

    count: int
    exact: int
    """Convolutions whose workspace is right up to rounding."""
    median: float
    worst: float
    mean: float
    without: float
    """The mean error of predicting nothing (the baseline)."""

    @property
    def explains(self) -> bool:
        """Return whether the rule halves the baseline error."""
        return self.mean <= self.without / 2


@immutable
class FittedRule:
    """The rule of one kind and element type."""

    kind: str
    dtype: str
    factors: tuple[int, int, int]
    """Of input, filter and result."""
    fitted: Errors
    kept_out: Errors | None
    """On the held-out models; None where they have no such convolution."""

    @property
    def useful(self) -> bool:
        """Return whether it improves predictions, also of held-out models."""
        return self.fitted.explains and (self.kept_out is None or self.kept_out.explains)


def kept_out_models(models: Iterable[str]) -> frozenset[str]:
    """Return a third of the models, chosen by their names alone."""
    return frozenset(sorted(set(models))[KEPT_OUT - 1 :: KEPT_OUT])


def fit_rules(convolutions: Sequence[Convolution], aside: frozenset[str]) -> list[FittedRule]:
    """Return a rule for each kind and element type that the models of the fit have."""
    found: list[FittedRule] = []
    for kind, dtype in sorted({(one.kind, one.dtype) for one in convolutions}):
        alike = [one for one in convolutions if (one.kind, one.dtype) == (kind, dtype)]
        seen = _distinct(one for one in alike if one.model not in aside)
        if not seen:
            continue
        factors = min(_CANDIDATES, key=lambda factors: (_total(factors, seen), sum(factors), factors))
        other = [one for one in alike if one.model in aside]
        found.append(FittedRule(kind, dtype, factors, errors_of(factors, seen), errors_of(factors, other) if other else None))
    return found


def errors_of(factors: tuple[int, int, int], convolutions: Sequence[Convolution]) -> Errors:
    """Return how a rule does on these convolutions."""
    off = [abs(_predicted(factors, one) - one.workspace) for one in convolutions]
    shares = [miss / one.touched for miss, one in zip(off, convolutions, strict=True)]
    without = statistics.fmean(one.workspace / one.touched for one in convolutions)
    exact = sum(miss <= _EXACT for miss in off)
    return Errors(len(off), exact, statistics.median(shares), max(shares), statistics.fmean(shares), without)


def _predicted(factors: tuple[int, int, int], one: Convolution) -> int:
    return factors[0] * one.input + factors[1] * one.filter + factors[2] * one.output


def _total(factors: tuple[int, int, int], convolutions: Sequence[Convolution]) -> float:
    """Sum of the errors as shares, so that a few large convolutions do not decide alone."""
    return sum(abs(_predicted(factors, one) - one.workspace) / one.touched for one in convolutions)


def _distinct(convolutions: Iterable[Convolution]) -> list[Convolution]:
    """Return each convolution once: deep networks repeat the same one many times."""
    return list({(one.input, one.filter, one.output, one.workspace): one for one in convolutions}.values())


# ----------------------------------------------------------------------------------------------------
# Folders of measurements of a physical GPU on a suite of models: machine.json, models.jsonl and kernels.jsonl.

T = TypeVar("T")

_SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_MAX_LINE = 64 << 20
_MAX_FILE = 1 << 30


@immutable
class Machine:
    """The GPU that was recorded."""

    name: str
    torch: str
    capability: tuple[int, ...] = ()
    context_bytes: int | None = None
    copy_bytes_per_s: float | None = None
    launch_s: float | None = None


@immutable
class Milliseconds:
    """Durations of runs."""

    median: float
    min: float
    p95: float
    n: int


@immutable
class Counter:
    """A counter of a run."""

    peak: int
    after: int


@immutable
class Spec:
    """Name and element type of a model."""

    model: str
    dtype: str = "float32"
    config: str = ""


@immutable
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


@immutable
class GpuFolder:
    """Everything in a folder."""

    path: Path
    machine: Machine
    models: tuple[ModelRun, ...]
    convolutions: tuple[Convolution, ...]
    failed: tuple[str, ...]
    """Models that were tried and did not come to an end."""


def is_gpu_folder(path: Path) -> bool:
    """Return whether a folder holds such recordings."""
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
        for convolution in _list_or_empty(line.get("convs")):
            owners.setdefault(_convolution_key(found.spec.dtype, _list_or_empty(convolution)), []).append(found.name)
    kernels = path / "kernels.jsonl"
    rows = _objects(kernels) if kernels.is_file() else iter(())
    convolutions = tuple(itertools.chain.from_iterable(_convolutions(row, owners) for _, row in rows))
    return GpuFolder(path, machine, tuple(models), convolutions, tuple(failed))


def workspace_of(events: Sequence[int], output: int) -> int:
    """Return the peak of an operator's temporary memory, from its signed allocation sizes."""
    most = max(itertools.accumulate(events), default=0)
    return max(0, most - output)


def _convolutions(row: Mapping[str, object], owners: Mapping[str, list[str]]) -> Iterator[Convolution]:
    """Yield a convolution for each model that has it; what it takes warm counts."""
    if row.get("op") != "conv2d" or "error" in row:
        return
    dtype = str(row.get("dtype"))
    x, w, output = _ints(row.get("x")), _ints(row.get("w")), row.get("out")
    runs = [_ints(events) for events in _list_or_empty(row.get("events"))]
    size = _SIZES.get(dtype)
    if size is None or len(x) < 3 or len(w) < 3 or not runs or not isinstance(output, int):
        return
    shape = [row.get(name) for name in ("x", "w", "stride", "padding", "dilation", "groups")]
    taken = workspace_of(runs[-1], output)
    kind = convolution_kind(w, _ints(row.get("stride")), row.get("groups"))
    for model in owners.get(_convolution_key(dtype, shape), []):
        yield Convolution(model, kind, _DTYPES[dtype], size * math.prod(x), size * math.prod(w), output, taken)


def convolution_kind(weight: Sequence[int], strides: Sequence[int], groups: object) -> str:
    """Return which kind of kernel a convolution is computed by."""
    if isinstance(groups, int) and groups > 1 and weight[1] == 1:
        return "depthwise"
    is_product = groups == 1 and all(size == 1 for size in weight[2:]) and all(step == 1 for step in strides)
    return "pointwise" if is_product else "convolution"


def _convolution_key(dtype: str, parts: Sequence[object]) -> str:
    return json.dumps([dtype, *parts])


def _failed_name(line: Mapping[str, object]) -> str:
    payload = line.get("payload")
    model = payload.get("model") if isinstance(payload, dict) else None
    return str(model or "?")[:200]


def _list_or_empty(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _ints(value: object) -> list[int]:
    return [item for item in _list_or_empty(value) if isinstance(item, int) and not isinstance(item, bool)]


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
        found = loads(text)
    except Misfit as misfit:
        raise LoadError(str(misfit), code="IRS650", where=f"{path}:{number}") from misfit
    if not isinstance(found, dict):
        raise LoadError("an object is wanted", code="IRS650", where=f"{path}:{number}")
    return found


def _decoded(kind: type[T], value: object, path: Path, number: int) -> T:
    try:
        return decode(kind, value)
    except Misfit as misfit:
        raise LoadError(str(misfit), code="IRS650", where=f"{path}:{number}") from None


# ----------------------------------------------------------------------------------------------------
# What recordings of this format tell a calibration: convolutions with their workspaces, and how long models took.

_CONVOLUTIONS = ("aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution")
_TYPE = re.compile(r"(\w+)\[([\d,]+)\]")


def convolutions_of(recording: Recording) -> Iterator[Convolution]:
    """Convolutions that ran on a GPU, each with the workspace of the warm run."""
    if recording.header.executor != "torch-cuda":
        return
    name = f"{recording.header.model.name} {recording.header.model.sha256[:8]}"
    for op in recording.ops:
        found = _convolution(op, name) if op.op in _CONVOLUTIONS else None
        if found is not None:
            yield found


def _convolution(op: OpRecord, model: str) -> Convolution | None:
    if len(op.inputs) < 2 or not op.outputs or op.workspace is None:
        return None
    types = [_TYPE.fullmatch(text) for text in (op.inputs[0], op.inputs[1], op.outputs[0])]
    sizes = [type_bytes(text) for text in (op.inputs[0], op.inputs[1], op.outputs[0])]
    x, w, y = ([int(size) for size in match[2].split(",")] if match else [] for match in types)
    given, filters, made = sizes
    if given is None or filters is None or made is None or len(x) < 3 or len(w) != len(x) or len(y) != len(x):
        return None
    # Steps are not recorded: a size that stays the same has steps of 1.
    strides = [1 if before == after else 2 for before, after in zip(x[2:], y[2:], strict=True)]
    kind = convolution_kind(w, strides, x[1] // w[1] if w[1] else 1)
    return Convolution(model, kind, op.inputs[0].partition("[")[0], given, filters, made, op.workspace)


# ----------------------------------------------------------------------------------------------------
# The ratio of real run times to the least time, fitted to recordings and validated on held-out models.

_LEAST_MODELS = 3


@immutable
class Run:
    """A recorded model: what it took and the least that it could have taken, in seconds."""

    model: str
    measured: float
    least: float

    @property
    def ratio(self) -> float:
        return self.measured / self.least


@immutable
class Slowdown:
    """The fitted factor with what lies between a quarter and three quarters of the models."""

    low: float
    high: float
    models: int
    kept_out: int
    error: float | None
    """Median error of the prediction on held-out models; None without such models."""
    below: tuple[str, ...]
    """Models that ran faster than the least time: a sign that the device's figures are too low."""

    @property
    def middle(self) -> float:
        """Return what predictions are made with."""
        return math.sqrt(self.low * self.high)


def fit_slowdown(runs: Sequence[Run], aside: frozenset[str]) -> Slowdown | None:
    """Return the factor for a device; None where there are too few models."""
    ratios = sorted(run.ratio for run in runs if run.model not in aside)
    if len(ratios) < _LEAST_MODELS:
        return None
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    middle = math.sqrt(low * high)
    other = [run for run in runs if run.model in aside]
    error = statistics.median(abs(middle * run.least / run.measured - 1) for run in other) if other else None
    below = tuple(sorted(run.model for run in runs if run.ratio < 1))
    return Slowdown(low, high, len(ratios), len(other), error, below)
