"""cuDNN's workspace for a convolution: a model, since the sizes come from a closed library that asks the device.

Under TF32, cuDNN computes convolutions of row-major (NCHW) tensors with kernels for the channels-last order, and lays input and
filter out anew in its workspace. This is what a card of architecture 8.x shows in recordings: the peak of VGG-16 to 0.001 MiB,
those of ResNet-50 and ResNet-101 within 0.15 %. No recording tells what other architectures take: there nothing is added to the
prediction, and the interval says what may come on top. A device file may hold rules that were fitted to recordings of that device
(`irscope calibrate --from`): where it has one for the kind of convolution, that one counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from irscope.devices import Target
from irscope.ir.dims import Dim
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType
from irscope.ops.call import OpCall
from irscope.ops.layouts import has_memory_format
from irscope.ops.spec import Family

LABEL = "cuDNN workspace"
_RECORDED = 8
"""The major version of the architecture that was recorded."""


@dataclass(frozen=True, slots=True)
class ConvolutionWorkspace:
    """What a convolution is taken to need besides its result, and the most it may."""

    size: Dim
    most: Dim


def convolution_workspace(call: OpCall, target: Target) -> ConvolutionWorkspace | None:
    """The workspace of a call, None where no library computes it or a size is not known."""
    if call.spec.family is not Family.CONVOLUTION or not call.source.startswith("aten::") or len(call.types) < 2 or not call.results:
        return None
    x, weight, y = call.types[0], call.types[1], call.results[0]
    if not isinstance(x, TensorType) or not isinstance(weight, TensorType) or not isinstance(y, TensorType):
        return None
    given, filters, made = x.nbytes, weight.nbytes, y.nbytes
    if given is None or filters is None or made is None or _is_depthwise(call, x, weight):
        return None
    most = given + filters + made
    rule = target.device.workspaces.get(_kind(call, weight), {}).get(x.dtype.text)
    if rule is not None:
        size = rule.input * given + rule.filter * filters + rule.output * made
        return ConvolutionWorkspace(size, max(1, rule.input) * given + max(1, rule.filter) * filters + max(1, rule.output) * made)
    recorded = target.device.capability is not None and target.device.capability[0] == _RECORDED
    relays = x.dtype is DType.F32 and len(x.shape or ()) == 4 and has_memory_format(x, "channels_last") is not True
    return ConvolutionWorkspace(given + filters if recorded and relays else 0, most)


def _kind(call: OpCall, weight: TensorType) -> str:
    """The kind of kernel, as device files call it."""
    groups, strides = call.attrs.get("groups", 1), call.attrs.get("strides") or ()
    if groups != 1 and weight.shape is not None and weight.shape[1] == 1:
        return "depthwise"
    is_product = groups == 1 and weight.shape is not None and all(size == 1 for size in (*weight.shape[2:], *strides))
    return "pointwise" if is_product else "convolution"


def _is_depthwise(call: OpCall, x: TensorType, weight: TensorType) -> bool:
    """PyTorch has kernels of its own for one filter a channel."""
    groups = call.attrs.get("groups")
    return x.dtype in (DType.F32, DType.F64) and isinstance(groups, int) and groups > 1 and x.shape is not None and x.shape[1] == groups
