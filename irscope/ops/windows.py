"""Convolutions and pooling: operators whose kernel moves over a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim, ceildiv, dim_max, dim_min, exact_div, floordiv, less, product
from irscope.ir.dtypes import DType
from irscope.ir.program import Relation
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.facts import CodedOperand, OpRole
from irscope.ops.ort import (
    FUSED_CONVOLUTION,
    copies_weight,
    packs,
    packs_quantized_filter,
    takes,
    takes_convolution,
    takes_integer_patches,
    takes_operand,
    takes_quantized_convolution,
    takes_transposed_convolution,
)
from irscope.ops.rules import dtype_attr, moved, products, sized
from irscope.ops.scratch.composites import max_pool_indices
from irscope.ops.scratch.images import adaptive_avg_pool_rule, avg_pool_rule, conv_rule, conv_transpose_rule, max_pool_rule, roi_align_rule
from irscope.ops.spec import SIZES, Absent, CostRule, Family, OpCall, RuleError, UnknownCost, numel, op, sizes

# Sizes of sliding windows: how far a convolution or pooling reaches along each spatial axis.


@immutable
class Axis:
    """One spatial axis of a window operator."""

    kernel: Dim
    stride: int = 1
    dilation: int = 1
    before: Dim = 0
    after: Dim = 0

    @property
    def reach(self) -> Dim:
        """Elements from the first to the last that a window covers."""
        return (self.kernel - 1) * self.dilation + 1


def window_axes(call: OpCall, kernel: Sequence[Dim]) -> list[Axis]:
    """Return the spatial axes of a call, from its attributes strides, dilations and pads (all begins, then all ends)."""
    count = len(kernel)
    strides = _each(call, "strides", count, 1)
    dilations = _each(call, "dilations", count, 1)
    pads = _each(call, "pads", 2 * count, 0) if call.attr("auto_pad") in (None, "", "NOTSET") else (0,) * (2 * count)
    return [Axis(kernel[i], strides[i], dilations[i], pads[i], pads[count + i]) for i in range(count)]


def _each(call: OpCall, name: str, count: int, default: int) -> tuple[int, ...]:
    """Return a list attribute with one entry an axis; a missing one means the default everywhere."""
    found = call.attr(name)
    if not found:
        return (default,) * count
    if len(found) != count:
        raise RuleError(f"{name} of {call.spec.name} has {len(found)} entries, not {count}")
    return tuple(found)


def slid(call: OpCall, size: Dim, axis: Axis) -> Dim:
    """Return how many windows fit along an axis."""
    auto_pad = call.attr("auto_pad")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return ceildiv(size, axis.stride)
    if axis.stride < 1 or axis.dilation < 1:
        raise RuleError(f"strides and dilations of {call.spec.name} must be at least 1")
    padded = size + axis.before + axis.after
    hangs_over = bool(call.attr("ceil_mode")) and auto_pad != "VALID"
    # Where a last window may hang over, the first one may too, by less than a step.
    inside = max(axis.reach - axis.stride + 1, 1) if hangs_over else axis.reach
    is_short = less(padded, inside)
    if is_short:
        raise RuleError(f"a window of {axis.reach} does not fit into {padded} elements ({call.spec.name})")
    if is_short is None:
        call.context.assume(inside, padded, f"{call.spec.name}: a window fits", Relation.FITS)
    room = padded - axis.reach
    if not hangs_over:
        return call.context.note_size(floordiv(room, axis.stride) + 1)
    return call.context.note_size(_rounded_up(size, axis, room))


def _rounded_up(size: Dim, axis: Axis, room: Dim) -> Dim:
    """Windows that may hang over the end, but not start beyond the elements (and the padding in front of them)."""
    count = ceildiv(room, axis.stride) + 1
    starts = ceildiv(size + axis.before, axis.stride)
    capped = dim_min(count, starts)
    # Only one window is ever left out; two could start beyond the end where the padding is longer than the window.
    return capped if less(axis.after, axis.reach) is True else dim_max(capped, count - 1)


def spread(call: OpCall, size: Dim, axis: Axis, extra: int) -> Dim:
    """Return elements that windows starting at every one of `size` positions cover: the inverse of `slid`."""
    if call.attr("auto_pad") in ("SAME_UPPER", "SAME_LOWER"):
        return size * axis.stride
    result = (size - 1) * axis.stride + axis.reach + extra - axis.before - axis.after
    if not isinstance(result, SymDim) and result < 0:
        raise RuleError(f"{call.spec.name} crops more than there is: the result would have {result} elements")
    return call.context.note_size(result)


@immutable
class Layout:
    """Places of batch, channels and spatial axes of an image tensor."""

    batch: tuple[Dim, ...]
    channels: Dim
    spatial: tuple[Dim, ...]
    channels_last: bool = False

    def shape(self, channels: Dim, spatial: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return sizes of a tensor laid out likewise."""
        if self.channels_last:
            return (*self.batch, *spatial, channels)
        return (*self.batch, channels, *spatial)


def image_layout(call: OpCall, name: str, spatial: int) -> Layout | None:
    """Return the axes of an operand with this many spatial ones, with or without a batch; None where its rank is unknown."""
    shape: Shape = call.shape(name)
    if shape is None:
        return None
    if len(shape) not in (spatial + 1, spatial + 2):
        raise RuleError(f"{call.spec.name} with {spatial} spatial axes cannot take {call.tensor(name)}")
    batch, image = shape[: len(shape) - spatial - 1], shape[len(shape) - spatial - 1 :]
    if call.attr("channels_last"):
        return Layout(batch, image[-1], image[:-1], True)
    return Layout(batch, image[0], image[1:])


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
    """Return sizes of a convolution's result."""
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
    """Return every element of the result sums over the input channels of its group and the window."""
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
    """Return a convolution whose inputs are interpolated between 2^n neighbours, for each channel and window element."""
    weights, x = sizes(call.types[1]), sizes(call.types[0])
    result = sizes(call.results[0])
    samples = product([x[0], x[1], *weights[2:], *result[2:]])
    corners: int = 2 ** len(weights[2:])
    return conv_cost(call) + Cost(elementwise=samples * (2 * corners - 1 + int(call.given("mask"))))


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


_CONV = (
    op(
        f"nn.conv(Tensor x, Tensor w, Tensor? b, *, {_WINDOW}, bool channels_last=False, dtype? dtype) -> Tensor",
        Family.CONVOLUTION,
        infer=_infer_conv,
        cost=conv_cost,
        temporaries=conv_rule,
        summary="Convolution over any number of spatial axes; weights are (outputs, inputs of a group, window), a batch axis is optional.",
        ort=takes(takes_convolution, "Conv"),
    ),
    op(
        f"nn.conv_transpose(Tensor x, Tensor w, Tensor? b, *, {_WINDOW}, int[] output_padding=[], int[] output_shape=[], "
        "bool channels_last=False, dtype? dtype) -> Tensor",
        Family.CONVOLUTION,
        infer=_infer_transposed,
        cost=_cost_transposed,
        temporaries=conv_transpose_rule,
        summary="Transposed convolution; weights are (inputs, outputs of a group, window).",
        ort=packs(copies_weight, "ConvTranspose", takes=takes_transposed_convolution),
        roles=frozenset({OpRole.UPSAMPLE, OpRole.OVER_FIRST}),
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
        infer=lambda call: tensor(DType.I32, conv_shape(call), call.tensor("x").device),
        cost=conv_cost,
        summary="Convolution of 8-bit integers with 32-bit sums.",
        ort=takes(takes_integer_patches, "ConvInteger"),
        roles=frozenset({OpRole.FILTERS}),
    ),
    op(
        "nn.qlinear_conv(Tensor x, Tensor x_scale, Tensor x_zero_point, Tensor w, Tensor w_scale, Tensor w_zero_point, Tensor y_scale, "
        f"Tensor y_zero_point, Tensor? b, *, {_WINDOW}, bool channels_last=False) -> Tensor",
        Family.QUANTIZATION,
        infer=lambda call: tensor(call.dtype("y_zero_point"), conv_shape(call), call.tensor("x").device),
        cost=lambda call: conv_cost(call) + Cost(elementwise=numel(call.results[0]) * 2),
        summary="Convolution of quantized tensors with a quantized result.",
        ort=packs(packs_quantized_filter, "QLinearConv", takes=takes_quantized_convolution),
        codes=CodedOperand(3, 4, 5, axis=0),
        roles=frozenset({OpRole.FILTERS}),
    ),
    op(
        "nn.causal_conv(Tensor x, Tensor w, Tensor? b, Tensor? past_state, *, str activation='none') -> (Tensor y, Tensor? present_state)",
        Family.CONVOLUTION,
        infer=_infer_causal,
        cost=_cost_causal,
        summary="Convolution of each channel over time that looks only backward, and the inputs the next call needs.",
    ),
)


# Pooling: windows, whole images, fixed result sizes, regions.

WINDOW = "int[] kernel_shape, int[] strides=[], int[] pads=[], int[] dilations=[], str auto_pad='NOTSET', bool ceil_mode=False"


def pooled_shape(call: OpCall) -> Shape:
    """Return sizes of a result with one element a window."""
    kernel = call.attr("kernel_shape")
    image = image_layout(call, "x", len(kernel))
    if image is None:
        return None
    axes = window_axes(call, kernel)
    return image.shape(image.channels, [slid(call, size, axis) for size, axis in zip(image.spatial, axes, strict=True)])


def _infer_pool(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(x.dtype, pooled_shape(call), x.device)


def _infer_max_pool(call: OpCall) -> tuple[Type, ...]:
    x, shape = call.tensor("x"), pooled_shape(call)
    return call.fit(tensor(x.dtype, shape, x.device), tensor(DType.I64, shape, x.device))


def window_cost(elementwise: int = 0, transcendental: int = 0, of_window: int = 0) -> CostRule:
    """Return the cost of reducing a window for each element of the result, and of what follows once an element."""

    def cost(call: OpCall) -> Cost:
        count = numel(call.results[0])
        covered = count * product(call.attr("kernel_shape"))
        return Cost(reduction=covered, elementwise=count * elementwise + covered * of_window, transcendental=count * transcendental)

    return cost


def infer_global(call: OpCall) -> Type:
    """One element for each channel: spatial axes become 1."""
    x = call.tensor("x")
    if x.shape is None:
        return x
    if len(x.shape) < 2:
        raise RuleError(f"{call.spec.name} needs batch and channels, not {x}")
    ones = (1,) * (len(x.shape) - 2)
    shape = (x.shape[0], *ones, x.shape[-1]) if call.attr("channels_last") else (*x.shape[:2], *ones)
    return tensor(x.dtype, shape, x.device)


def _global_cost(elementwise: int = 0, transcendental: int = 0, of_window: int = 0) -> CostRule:
    def cost(call: OpCall) -> Cost:
        covered, count = numel(call.types[0]), numel(call.results[0])
        return Cost(reduction=covered, elementwise=count * elementwise + covered * of_window, transcendental=count * transcendental)

    return cost


def _adaptive_shape(call: OpCall) -> Shape:
    shape = call.shape("x")
    wanted: tuple[Dim | None, ...] | None = call.dims("output_size")
    if shape is None:
        return None
    if wanted is None:
        rank = call.attr("spatial")
        if not isinstance(rank, int):
            return None
        wanted = tuple(call.unknown("the result's size is computed by the model", "output_size") for _ in range(rank))
    if len(shape) not in (len(wanted) + 1, len(wanted) + 2):
        raise RuleError(f"{call.spec.name} to {len(wanted)} sizes cannot take {call.tensor('x')}")
    lead = len(shape) - len(wanted)
    # A size of None keeps that of the input.
    return (*shape[:lead], *(old if new is None else new for old, new in zip(shape[lead:], wanted, strict=True)))


def _infer_adaptive(call: OpCall) -> tuple[Type, ...]:
    x, shape = call.tensor("x"), _adaptive_shape(call)
    return call.fit(tensor(x.dtype, shape, x.device), tensor(DType.I64, shape, x.device))


def _adaptive_cost(elementwise: int) -> CostRule:
    def cost(call: OpCall) -> Cost:
        count = numel(call.results[0])
        covered = product(_covered(size, to) for size, to in zip(sizes(call.types[0]), sizes(call.results[0]), strict=True))
        return Cost(reduction=covered, elementwise=count * elementwise)

    return cost


def _covered(size: Dim, windows: Dim) -> Dim:
    """Return the elements read along an axis by windows that are spread evenly; they overlap where the sizes do not divide."""
    if exact_div(size, windows) is not None:
        return size
    if isinstance(size, SymDim) or isinstance(windows, SymDim):
        raise UnknownCost
    return sum(-(-(i + 1) * size // windows) - i * size // windows for i in range(windows))


def _infer_unpool(call: OpCall) -> Type:
    x = call.tensor("x")
    kernel = call.attr("kernel_shape")
    image, wanted = image_layout(call, "x", len(kernel)), call.dims("output_shape")
    if image is None:
        return tensor(x.dtype, None, x.device)
    if wanted is not None:
        spatial = tuple(wanted[-len(kernel) :])
    elif call.given("output_shape"):
        reason = "the result's size is computed by the model"
        spatial = tuple(call.unknown(reason, "output_shape") for _ in kernel)
    else:
        spatial = tuple(spread(call, size, axis, 0) for size, axis in zip(image.spatial, window_axes(call, kernel), strict=True))
    return tensor(x.dtype, image.shape(image.channels, spatial), x.device)


def _infer_regions(call: OpCall) -> TensorType:
    """Pooling regions of images: (regions, channels, height, width)."""
    x, shape, regions = call.tensor("x"), sized(call, "x", 4), call.shape("rois")
    wanted = call.dims("output_size")
    rows = regions[0] if regions is not None else call.unknown("the number of regions is not known", SIZES)
    if wanted is None or len(wanted) != 2:
        raise RuleError(f"{call.spec.name} needs a height and a width in output_size")
    channels = shape[1] if shape is not None else call.unknown("the number of channels is not known", SIZES, 1)
    if call.attr("position_sensitive"):
        share = exact_div(channels, wanted[0] * wanted[1])
        channels = share if share is not None else call.unknown("the number of channels is not known to divide", SIZES)
    return tensor(x.dtype, (rows, channels, *wanted), x.device)


def _infer_with_places(call: OpCall) -> tuple[Type, ...]:
    """Return the pooled regions, and where their elements come from."""
    result = _infer_regions(call)
    return call.fit(result, tensor(DType.I32, result.shape, result.device))


def _cost_regions(call: OpCall) -> Cost:
    """Return each result averages (or takes the largest of) samples, each interpolated between four neighbours."""
    ratio = call.int_attr("sampling_ratio")
    if ratio <= 0:
        raise UnknownCost
    samples = numel(call.results[0]) * ratio * ratio
    return Cost(elementwise=samples * 7 + numel(call.results[0]), reduction=samples)


_POOL = (
    op(
        f"nn.max_pool(Tensor x, *, {WINDOW}, int storage_order=0, bool channels_last=False) -> (Tensor y, Tensor? indices)",
        Family.POOLING,
        infer=_infer_max_pool,
        cost=window_cost(),
        temporaries=max_pool_rule,
        intermediates=max_pool_indices,
        summary="Largest element of each window, and optionally where it is.",
    ),
    op(
        f"nn.avg_pool(Tensor x, *, {WINDOW}, bool count_include_pad=False, int? divisor, bool channels_last=False) -> Tensor",
        Family.POOLING,
        infer=_infer_pool,
        cost=window_cost(elementwise=1),
        temporaries=avg_pool_rule,
        summary="Mean of each window.",
    ),
    op(
        f"nn.lp_pool(Tensor x, *, {WINDOW}, float p=2.0, bool channels_last=False) -> Tensor",
        Family.POOLING,
        infer=_infer_pool,
        cost=window_cost(transcendental=1, of_window=1),
        summary="p-norm of each window.",
    ),
    op(
        "nn.global_max_pool(Tensor x, *, bool channels_last=False) -> Tensor",
        Family.POOLING,
        infer=infer_global,
        cost=_global_cost(),
        summary="Largest element of each channel.",
    ),
    op(
        "nn.global_avg_pool(Tensor x, *, bool channels_last=False) -> Tensor",
        Family.POOLING,
        infer=infer_global,
        cost=_global_cost(elementwise=1),
        summary="Mean of each channel.",
    ),
    op(
        "nn.global_lp_pool(Tensor x, *, float p=2.0, bool channels_last=False) -> Tensor",
        Family.POOLING,
        infer=infer_global,
        cost=_global_cost(transcendental=1, of_window=1),
        summary="p-norm of each channel.",
    ),
    op(
        "nn.adaptive_avg_pool(Tensor x, Dims output_size, *, int? spatial) -> Tensor",
        Family.POOLING,
        infer=lambda call: _infer_adaptive(call)[0],
        cost=_adaptive_cost(elementwise=1),
        temporaries=adaptive_avg_pool_rule,
        summary="Means of windows spread so that the result has the wanted sizes; None keeps a size.",
    ),
    op(
        "nn.adaptive_max_pool(Tensor x, Dims output_size, *, int? spatial) -> (Tensor y, Tensor? indices)",
        Family.POOLING,
        infer=_infer_adaptive,
        cost=_adaptive_cost(elementwise=0),
        temporaries=max_pool_rule,
        summary="Largest elements of windows spread so that the result has the wanted sizes, and optionally where they are.",
    ),
    op(
        "nn.fractional_max_pool(Tensor x, Dims output_size, Tensor? samples, *, int[] kernel_shape, int? spatial) -> "
        "(Tensor y, Tensor? indices)",
        Family.POOLING,
        infer=_infer_adaptive,
        cost=window_cost(),
        summary="Largest elements of windows at random places, and optionally where they are.",
    ),
    op(
        "nn.max_unpool(Tensor x, Tensor indices, Dims? output_shape, *, int[] kernel_shape, int[] strides=[], int[] pads=[]) -> Tensor",
        Family.POOLING,
        infer=_infer_unpool,
        cost=moved,
        summary="Puts elements back where max pooling took them from, zeros elsewhere.",
    ),
    op(
        "vision.roi_pool(Tensor x, Tensor rois, *, Dims output_size, float spatial_scale=1.0) -> (Tensor y, Tensor? argmax)",
        Family.POOLING,
        infer=_infer_with_places,
        cost=Absent.UNKNOWN,
        summary="Largest elements of windows in regions; the regions' sizes, and so the cost, depend on values.",
        roles=frozenset({OpRole.BOXES}),
    ),
    op(
        "vision.roi_align(Tensor x, Tensor rois, Tensor? batch_indices, *, Dims output_size, float spatial_scale=1.0, "
        "int sampling_ratio=0, str mode='avg', str coordinates='half_pixel') -> Tensor",
        Family.POOLING,
        infer=_infer_regions,
        cost=_cost_regions,
        temporaries=roi_align_rule,
        summary="Pools interpolated samples of regions; without a sampling ratio the cost depends on the regions' sizes.",
        roles=frozenset({OpRole.BOXES}),
    ),
    op(
        "vision.ps_roi_align(Tensor x, Tensor rois, *, Dims output_size, float spatial_scale=1.0, int sampling_ratio=0, "
        "bool position_sensitive=True) -> (Tensor y, Tensor? mapping)",
        Family.POOLING,
        infer=_infer_with_places,
        cost=_cost_regions,
        summary="Pools regions, each place of the result from channels of its own.",
        roles=frozenset({OpRole.BOXES}),
    ),
    op(
        "quant.qlinear_avg_pool(Tensor x, Tensor x_scale, Tensor? x_zero_point, Tensor y_scale, Tensor? y_zero_point, *, "
        f"{WINDOW}, bool channels_last=False) -> Tensor",
        Family.QUANTIZATION,
        infer=_infer_pool,
        cost=window_cost(elementwise=4),
        summary="Mean of each window of a quantized tensor.",
        ort=takes(takes_operand(4, DType.I8, DType.U8), "QLinearAveragePool"),
    ),
    op(
        "quant.qlinear_global_avg_pool(Tensor x, Tensor x_scale, Tensor? x_zero_point, Tensor y_scale, Tensor? y_zero_point, *, "
        "bool channels_last=False) -> Tensor",
        Family.QUANTIZATION,
        infer=infer_global,
        cost=lambda call: Cost(reduction=numel(call.types[0]), elementwise=numel(call.results[0]) * 4),
        summary="Mean of each channel of a quantized tensor.",
    ),
)


OPS = (*_CONV, *_POOL)
