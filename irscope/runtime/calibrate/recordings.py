"""What recordings of this format tell a calibration: convolutions with their workspaces, and how long models took."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from irscope.recording.records import OpRecord, Recording
from irscope.runtime.calibrate.convolutions import Convolution
from irscope.runtime.calibrate.gpufolder import convolution_kind
from irscope.runtime.record.values import type_bytes

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


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded model: what it took and the least that it could have taken, in seconds."""

    model: str
    measured: float
    least: float

    @property
    def ratio(self) -> float:
        return self.measured / self.least


@dataclass(frozen=True, slots=True)
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
        """What predictions are made with."""
        return math.sqrt(self.low * self.high)


def fit_slowdown(runs: Sequence[Run], aside: frozenset[str]) -> Slowdown | None:
    """The factor for a device; None where there are too few models."""
    ratios = sorted(run.ratio for run in runs if run.model not in aside)
    if len(ratios) < _LEAST_MODELS:
        return None
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    middle = math.sqrt(low * high)
    other = [run for run in runs if run.model in aside]
    error = statistics.median(abs(middle * run.least / run.measured - 1) for run in other) if other else None
    below = tuple(sorted(run.model for run in runs if run.ratio < 1))
    return Slowdown(low, high, len(ratios), len(other), error, below)
