"""cuDNN's workspace for a convolution: a model, since the sizes come from a closed library that asks the device.

Under TF32, cuDNN computes convolutions of row-major (NCHW) tensors with kernels for the channels-last order, and lays input and
filter out anew in its workspace. This is what a card of architecture 8.x shows in recordings: the peak of VGG-16 to 0.001 MiB,
those of ResNet-50 and ResNet-101 within 0.15 %. No recording tells what other architectures take, nor what kernels for gradients take
anywhere (a transposed convolution is such a kernel): there nothing is added to the prediction, and the interval says what may come on
top. A device file may hold rules that were fitted to recordings of that device (`irscope calibrate --from`): where it has one for the
kind of convolution, that one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from irscope.ir.dims import Dim
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType
from irscope.ops.layouts import has_memory_format
from irscope.ops.spec import Workspace

if TYPE_CHECKING:
    from irscope.devices.target import Target
    from irscope.ir.graph import Attr

Kernel: TypeAlias = Literal["forward", "input", "filters"]
"""What is computed: the convolution, the gradient of its input (as a transposed convolution), or that of its filters."""
_LABELS: dict[Kernel, str] = {
    "forward": "cuDNN workspace",
    "input": "cuDNN workspace, gradient of the input",
    "filters": "cuDNN workspace, gradient of the filters",
}
_CLOSED = "cuDNN chooses the kernels of a convolution, and their workspace, on the device"
_RECORDED = 8
"""The major version of the architecture that was recorded."""


def convolution_workspace(
    target: Target, kernel: Kernel, x: TensorType, w: TensorType, y: TensorType, strides: Sequence[int], groups: Attr
) -> Workspace | None:
    """The workspace of one kernel over input, filters and result, two of which it reads; None where a size is not known."""
    parts = (x.nbytes, w.nbytes, y.nbytes)
    factors = _factors(target, x, w, strides, groups) if kernel == "forward" else (0, 0, 0)
    size: Dim = 0
    most: Dim = 0
    for factor, part in zip(factors, parts, strict=True):
        if part is None:
            return None
        size, most = size + factor * part, most + max(1, factor) * part
    return Workspace(_LABELS[kernel], size, most, _CLOSED)


def _factors(target: Target, x: TensorType, w: TensorType, strides: Sequence[int], groups: Attr) -> tuple[int, int, int]:
    """How many times the bytes of input, filters and result a convolution is taken to need."""
    device = target.device
    rule = device.workspaces.get(_kernel_kind(w, strides, groups), {}).get(x.dtype.text)
    if rule is not None:
        return rule.input, rule.filter, rule.output
    recorded = device.capability is not None and device.capability[0] == _RECORDED
    relays = x.dtype is DType.F32 and len(x.shape or ()) == 4 and has_memory_format(x, "channels_last") is not True
    return (1, 1, 0) if recorded and relays else (0, 0, 0)


def _kernel_kind(w: TensorType, strides: Sequence[int], groups: Attr) -> str:
    """The kind of kernel, as device files call it."""
    if groups != 1 and w.shape is not None and w.shape[1] == 1:
        return "depthwise"
    is_product = groups == 1 and w.shape is not None and all(size == 1 for size in (*w.shape[2:], *strides))
    return "pointwise" if is_product else "convolution"
