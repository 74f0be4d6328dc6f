"""Pooling: windows, whole images, fixed result sizes, regions."""

from __future__ import annotations

from irscope.ir.dims import Dim, SymDim, exact_div, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops import slicing
from irscope.ops.cost import Cost
from irscope.ops.rules import moved
from irscope.ops.scratch.composites import max_pool_indices
from irscope.ops.scratch.images import adaptive_avg_pool_rule, avg_pool_rule, max_pool_rule, roi_align_rule
from irscope.ops.spec import SIZES, Absent, CostRule, Family, OpCall, OpRole, RuleError, UnknownCost, numel, op, sizes
from irscope.ops.windows import image_layout, slid, spread, window_axes
from irscope.ops.work import sized

WINDOW = "int[] kernel_shape, int[] strides=[], int[] pads=[], int[] dilations=[], str auto_pad='NOTSET', bool ceil_mode=False"


def pooled_shape(call: OpCall) -> Shape:
    """Sizes of a result with one element a window."""
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
    """Cost of reducing a window for each element of the result, and of what follows once an element."""

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
    """Elements read along an axis by windows that are spread evenly; they overlap where the sizes do not divide."""
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
    """The pooled regions, and where their elements come from."""
    result = _infer_regions(call)
    return call.fit(result, tensor(DType.I32, result.shape, result.device))


def _cost_regions(call: OpCall) -> Cost:
    """Each result averages (or takes the largest of) samples, each interpolated between four neighbours."""
    ratio = call.int_attr("sampling_ratio")
    if ratio <= 0:
        raise UnknownCost
    samples = numel(call.results[0]) * ratio * ratio
    return Cost(elementwise=samples * 7 + numel(call.results[0]), reduction=samples)


OPS = (
    op(
        f"nn.max_pool(Tensor x, *, {WINDOW}, int storage_order=0, bool channels_last=False) -> (Tensor y, Tensor? indices)",
        Family.POOLING,
        infer=_infer_max_pool,
        cost=window_cost(),
        temporaries=max_pool_rule,
        intermediates=max_pool_indices,
        summary="Largest element of each window, and optionally where it is.",
        slices=slicing.pool,
    ),
    op(
        f"nn.avg_pool(Tensor x, *, {WINDOW}, bool count_include_pad=False, int? divisor, bool channels_last=False) -> Tensor",
        Family.POOLING,
        infer=_infer_pool,
        cost=window_cost(elementwise=1),
        temporaries=avg_pool_rule,
        summary="Mean of each window.",
        slices=slicing.pool,
    ),
    op(
        f"nn.lp_pool(Tensor x, *, {WINDOW}, float p=2.0, bool channels_last=False) -> Tensor",
        Family.POOLING,
        infer=_infer_pool,
        cost=window_cost(transcendental=1, of_window=1),
        summary="p-norm of each window.",
        slices=slicing.pool,
    ),
    op(
        "nn.global_max_pool(Tensor x, *, bool channels_last=False) -> Tensor",
        Family.POOLING,
        infer=infer_global,
        cost=_global_cost(),
        summary="Largest element of each channel.",
        slices=slicing.pool,
    ),
    op(
        "nn.global_avg_pool(Tensor x, *, bool channels_last=False) -> Tensor",
        Family.POOLING,
        infer=infer_global,
        cost=_global_cost(elementwise=1),
        summary="Mean of each channel.",
        slices=slicing.pool,
    ),
    op(
        "nn.global_lp_pool(Tensor x, *, float p=2.0, bool channels_last=False) -> Tensor",
        Family.POOLING,
        infer=infer_global,
        cost=_global_cost(transcendental=1, of_window=1),
        summary="p-norm of each channel.",
        slices=slicing.pool,
    ),
    op(
        "nn.adaptive_avg_pool(Tensor x, Dims output_size, *, int? spatial) -> Tensor",
        Family.POOLING,
        infer=lambda call: _infer_adaptive(call)[0],
        cost=_adaptive_cost(elementwise=1),
        temporaries=adaptive_avg_pool_rule,
        summary="Means of windows spread so that the result has the wanted sizes; None keeps a size.",
        slices=slicing.pool,
    ),
    op(
        "nn.adaptive_max_pool(Tensor x, Dims output_size, *, int? spatial) -> (Tensor y, Tensor? indices)",
        Family.POOLING,
        infer=_infer_adaptive,
        cost=_adaptive_cost(elementwise=0),
        temporaries=max_pool_rule,
        summary="Largest elements of windows spread so that the result has the wanted sizes, and optionally where they are.",
        slices=slicing.pool,
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
)
