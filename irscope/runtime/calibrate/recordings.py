"""What recordings of this format tell a calibration: convolutions with their workspaces, and how long models took."""

from __future__ import annotations

import re
from collections.abc import Iterator

from irscope.recording.records import OpRecord, Recording
from irscope.runtime.calibrate.convolutions import Convolution
from irscope.runtime.calibrate.gpufolder import convolution_kind
from irscope.runtime.record.sizes import type_bytes

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
