"""Convolutions."""

from __future__ import annotations

from irscope.ir.dims import Dim, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, Type, tensor
from irscope.ops import slicing
from irscope.ops.cost import Cost
from irscope.ops.ort import FUSED_CONVOLUTION, copies_weight, packs, packs_quantized_filter, takes, takes_convolution
from irscope.ops.rules import dtype_attr
from irscope.ops.scratch.images import conv_rule
from irscope.ops.spec import SIZES, CodedOperand, Family, OpCall, OpRole, RuleError, numel, op, sizes
from irscope.ops.windows import Layout, image_layout, slid, spread, window_axes
from irscope.ops.work import products

_WINDOW = "int[] kernel_shape=[], int[] strides=[], int[] pads=[], int[] dilations=[], int groups=1, str auto_pad='NOTSET'"


def _kernel(call: OpCall) -> tuple[Dim, ...] | None:
    """Spatial sizes of the weights, from the attribute where their type does not say."""
    weights = call.shape("w")
    given = tuple(call.attr("kernel_shape"))
    if weights is None:
        return given or None
    if len(weights) < 3:
        raise RuleError(f"{call.spec.name} needs weights with spatial axes, not {call.tensor('w')}")
    for left, right in zip(weights[2:], given, strict=bool(given)):
        call.same(left, right, "kernel_shape must be that of the weights")
    return weights[2:]


def _image(call: OpCall) -> tuple[Layout | None, tuple[Dim, ...] | None]:
    kernel = _kernel(call)
    if kernel is not None:
        return image_layout(call, "x", len(kernel)), kernel
    return None, None


def conv_shape(call: OpCall) -> Shape:
    """Sizes of a convolution's result."""
    image, kernel = _image(call)
    if image is None or kernel is None:
        return None
    weights, groups = call.shape("w"), call.int_attr("groups")
    if weights is not None:
        call.same(image.channels, weights[1] * groups, "input channels must be those of the weights")
        channels = weights[0]
    else:
        channels = call.unknown("the number of filters is not known", SIZES, 1)
    axes = window_axes(call, kernel)
    return image.shape(channels, [slid(call, size, axis) for size, axis in zip(image.spatial, axes, strict=True)])


def _infer_conv(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(dtype_attr(call, x.dtype), conv_shape(call), x.device)


def conv_cost(call: OpCall) -> Cost:
    """Every element of the result sums over the input channels of its group and the window."""
    weights = sizes(call.types[call.spec.operand_index["w"]])
    count = numel(call.results[0])
    return products(count * product(weights[1:]), count if call.given("b") else 0)


def _cost_fused(call: OpCall) -> Cost:
    count = numel(call.results[0])
    return conv_cost(call) + Cost(elementwise=count * (int(call.given("z")) + int(bool(call.attr("activation")))))


def _infer_transposed(call: OpCall) -> Type:
    x = call.tensor("x")
    dtype = dtype_attr(call, x.dtype)
    image, kernel = _image(call)
    if image is None or kernel is None:
        return tensor(dtype, None, x.device)
    weights = call.shape("w")
    if weights is not None:
        call.same(image.channels, weights[0], "input channels must be those of the weights")
        channels = weights[1] * call.int_attr("groups")
    else:
        channels = call.unknown("the number of filters is not known", SIZES, 1)
    wanted = call.attr("output_shape")
    extra = tuple(call.attr("output_padding")) or (0,) * len(kernel)
    if wanted:
        spatial = tuple(wanted[-len(kernel) :])
    else:
        axes = window_axes(call, kernel)
        spatial = tuple(spread(call, size, axis, more) for size, axis, more in zip(image.spatial, axes, extra, strict=True))
    return tensor(dtype, image.shape(channels, spatial), x.device)


def _cost_transposed(call: OpCall) -> Cost:
    """Every element of the input is multiplied with a window of each output channel of its group."""
    weights = sizes(call.types[1])
    macs = numel(call.types[0]) * product(weights[1:])
    return products(macs, numel(call.results[0]) if call.given("b") else 0)


def _infer_deformable(call: OpCall) -> Type:
    x, shape, offset = call.tensor("x"), conv_shape(call), call.shape("offset")
    if shape is not None and offset is not None:
        for left, right in zip(shape[2:], offset[2:], strict=True):
            call.same(left, right, "offsets must be given for each window")
    return tensor(x.dtype, shape, x.device)


def _cost_deformable(call: OpCall) -> Cost:
    """A convolution whose inputs are interpolated between 2^n neighbours, for each channel and window element."""
    weights, x = sizes(call.types[1]), sizes(call.types[0])
    result = sizes(call.results[0])
    samples = product([x[0], x[1], *weights[2:], *result[2:]])
    corners: int = 2 ** len(weights[2:])
    return conv_cost(call) + Cost(elementwise=samples * (2 * corners - 1 + int(call.given("mask"))))


def _infer_integer(call: OpCall) -> Type:
    return tensor(DType.I32, conv_shape(call), call.tensor("x").device)


def _infer_quantized(call: OpCall) -> Type:
    return tensor(call.dtype("y_zero_point"), conv_shape(call), call.tensor("x").device)


def _cost_quantized(call: OpCall) -> Cost:
    return conv_cost(call) + Cost(elementwise=numel(call.results[0]) * 2)


def _infer_causal(call: OpCall) -> tuple[Type, ...]:
    x, weights = call.tensor("x"), call.shape("w")
    state: Shape = None
    if x.shape is not None and weights is not None:
        batch, channels, _ = x.shape
        call.same(channels, weights[0], "there must be one filter a channel")
        state = (batch, channels, weights[2] - 1)
    elif call.given("past_state"):
        state = call.shape("past_state")
    return call.fit(x, tensor(x.dtype, state, x.device))


def _cost_causal(call: OpCall) -> Cost:
    weights, count = sizes(call.types[1]), numel(call.results[0])
    active = call.attr("activation") not in (None, "", "none")
    work = products(count * weights[-1], count * (int(call.given("b")) + int(active)))
    return work + Cost(transcendental=count) if active else work


OPS = (
    op(
        f"nn.conv(Tensor x, Tensor w, Tensor? b, *, {_WINDOW}, bool channels_last=False, dtype? dtype) -> Tensor",
        Family.CONVOLUTION,
        infer=_infer_conv,
        cost=conv_cost,
        temporaries=conv_rule,
        summary="Convolution over any number of spatial axes; weights are (outputs, inputs of a group, window), a batch axis is optional.",
        ort=takes(takes_convolution, "Conv"),
        slices=slicing.convolution,
    ),
    op(
        f"nn.conv_transpose(Tensor x, Tensor w, Tensor? b, *, {_WINDOW}, int[] output_padding=[], int[] output_shape=[], "
        "bool channels_last=False, dtype? dtype) -> Tensor",
        Family.CONVOLUTION,
        infer=_infer_transposed,
        cost=_cost_transposed,
        temporaries=conv_rule,
        summary="Transposed convolution; weights are (inputs, outputs of a group, window).",
        ort=packs(copies_weight, "ConvTranspose"),
        roles=frozenset({OpRole.UPSAMPLE, OpRole.OVER_FIRST}),
        slices=slicing.transposed_convolution,
    ),
    op(
        f"nn.fused_conv(Tensor x, Tensor w, Tensor? b, Tensor? z, *, {_WINDOW}, str activation='', float[] activation_params=[], "
        "bool channels_last=False, dtype? dtype) -> Tensor",
        Family.CONVOLUTION,
        infer=_infer_conv,
        cost=_cost_fused,
        summary="Convolution that adds `z` and applies an activation.",
        ort=FUSED_CONVOLUTION,
    ),
    op(
        f"nn.deform_conv(Tensor x, Tensor w, Tensor offset, Tensor? b, Tensor? mask, *, {_WINDOW}, int offset_group=1) -> Tensor",
        Family.CONVOLUTION,
        infer=_infer_deformable,
        cost=_cost_deformable,
        summary="Convolution that reads its inputs at learned offsets, interpolated.",
    ),
    op(
        f"nn.conv_integer(Tensor x, Tensor w, Tensor? x_zero_point, Tensor? w_zero_point, *, {_WINDOW}) -> Tensor",
        Family.QUANTIZATION,
        infer=_infer_integer,
        cost=conv_cost,
        summary="Convolution of 8-bit integers with 32-bit sums.",
    ),
    op(
        "nn.qlinear_conv(Tensor x, Tensor x_scale, Tensor x_zero_point, Tensor w, Tensor w_scale, Tensor w_zero_point, Tensor y_scale, "
        f"Tensor y_zero_point, Tensor? b, *, {_WINDOW}, bool channels_last=False) -> Tensor",
        Family.QUANTIZATION,
        infer=_infer_quantized,
        cost=_cost_quantized,
        summary="Convolution of quantized tensors with a quantized result.",
        ort=packs(packs_quantized_filter, "QLinearConv"),
        codes=CodedOperand(3, 4, 5, axis=0),
    ),
    op(
        "nn.causal_conv(Tensor x, Tensor w, Tensor? b, Tensor? past_state, *, str activation='none') -> (Tensor y, Tensor? present_state)",
        Family.CONVOLUTION,
        infer=_infer_causal,
        cost=_cost_causal,
        summary="Convolution of each channel over time that looks only backward, and the inputs the next call needs.",
    ),
)
