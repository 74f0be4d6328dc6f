"""Resizing images and sampling them at given places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from irscope.ir.dims import Dim, SymDim, floordiv, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, Type, tensor
from irscope.ops import layouts, slicing
from irscope.ops.cost import Cost
from irscope.ops.imagesizes import encoded_size
from irscope.ops.matmul import plain
from irscope.ops.scratch.images import resize_rule
from irscope.ops.spec import SIZES, Family, OpCall, OpRole, RuleError, numel, op, sizes
from irscope.ops.work import products

_MAX_DENOMINATOR = 1 << 12
_MAX_SIMPLE = 16


def scaled_size(call: OpCall, size: Dim, scale: float | np.float32) -> Dim:
    """floor(size * scale) as it is computed: with a 32-bit scale of a file in 32 bits, else in double precision."""
    if not isinstance(size, SymDim):
        return int(np.floor(np.float32(size) * scale)) if isinstance(scale, np.float32) else math.floor(size * scale)
    ratio = _simple_ratio(Fraction(float(scale)))
    if ratio is not None:
        return floordiv(size * ratio.numerator, ratio.denominator)
    return call.unknown(f"{size} times {float(scale)} is rounded as the runtime computes it", SIZES)


def _simple_ratio(scale: Fraction) -> Fraction | None:
    """A short fraction that gives the same sizes as the scale for every axis of at most some 100,000 elements.

    A short binary fraction is exact. One that a float rounded up, as 0.6, gives no product just below an integer; one that
    was rounded down does, and then runtimes differ.
    """
    if scale.denominator <= _MAX_DENOMINATOR and scale.numerator <= _MAX_DENOMINATOR:
        return scale
    near = scale.limit_denominator(_MAX_SIMPLE)
    return near if near <= scale <= near * (1 + Fraction(1, 1 << 23)) else None


def _infer_resize(call: OpCall) -> Type:
    x = call.tensor("x")
    if x.shape is None:
        return x
    axes = call.attr("axes") or range(len(x.shape))
    chosen = [call.axis(axis, len(x.shape)) for axis in axes]
    result = list(x.shape)
    for axis, size in zip(chosen, _new_sizes(call, [x.shape[axis] for axis in chosen]), strict=True):
        result[axis] = size
    return tensor(x.dtype, result, x.device)


def _new_sizes(call: OpCall, old: Sequence[Dim]) -> Sequence[Dim]:
    wanted = call.dims("sizes")
    if wanted is not None and (wanted or not old):
        _check_count(call, len(wanted), len(old))
        if any(not isinstance(size, SymDim) and size < 0 for size in wanted):
            raise RuleError(f"{call.spec.name}: {list(wanted)} holds a negative size")
        policy = call.attr("keep_aspect_ratio_policy")
        return wanted if policy == "stretch" else _kept_ratio(call, old, wanted, policy == "not_larger")
    factors = call.attr("scale_factors")
    if factors:
        _check_count(call, len(factors), len(old))
        return [scaled_size(call, size, float(factor)) for size, factor in zip(old, factors, strict=True)]
    known = plain(call, "scales") if call.given("scales") else None
    if known is not None and known[0].size:
        _check_count(call, known[0].size, len(old))
        return [scaled_size(call, size, np.float32(factor)) for size, factor in zip(old, known[0].reshape(-1), strict=True)]
    reason = "the result's size is computed by the model"
    return [call.unknown(reason, "sizes,scales") for _ in old]


def _check_count(call: OpCall, given: int, needed: int) -> None:
    if given != needed:
        raise RuleError(f"{call.spec.name}: {given} sizes or scales for {needed} axes")


def _kept_ratio(call: OpCall, old: Sequence[Dim], wanted: Sequence[Dim], not_larger: bool) -> Sequence[Dim]:
    """All axes scaled by the smallest (or largest) ratio, halves rounded up."""
    if any(isinstance(size, SymDim) for size in (*old, *wanted)) or not all(old):
        reason = "the axis that decides the common scale depends on sizes"
        return [call.unknown(reason, SIZES) for _ in old]
    ratios = [Fraction(_int(new), _int(size)) for new, size in zip(wanted, old, strict=True)]
    scale = min(ratios) if not_larger else max(ratios)
    return [math.floor(scale * _int(size) + Fraction(1, 2)) for size in old]


def _int(size: Dim) -> int:
    if isinstance(size, SymDim):
        raise TypeError(f"{size} is no number")
    return size


_TAPS = {"nearest": 1, "nearest-exact": 1, "linear": 2, "bilinear": 2, "trilinear": 2, "cubic": 4, "bicubic": 4, "area": 1}


def _cost_resize(call: OpCall) -> Cost:
    """Each element weighs the neighbours of the axes that change: 2 an axis for linear, 4 for cubic."""
    mode, count = str(call.attr("mode")), numel(call.results[0])
    if mode == "area":
        return Cost(reduction=numel(call.types[0]), elementwise=count)
    changed = sum(old != new for old, new in zip(sizes(call.types[0]), sizes(call.results[0]), strict=True))
    taps = _TAPS.get(mode, 1) ** changed
    return Cost(elementwise=count * (2 * taps - 1)) if taps > 1 else Cost()


def _infer_grid_sample(call: OpCall) -> Type:
    x, grid = call.tensor("x"), call.shape("grid")
    shape: Shape = None
    if x.shape is not None and grid is not None:
        if len(grid) != len(x.shape):
            raise RuleError(f"vision.grid_sample: a grid with {len(grid)} axes for {x}")
        shape = (call.same(x.shape[0], grid[0], "there must be one grid an image"), x.shape[1], *grid[1:-1])
    return tensor(x.dtype, shape, x.device)


def _cost_grid_sample(call: OpCall) -> Cost:
    count, spatial = numel(call.results[0]), len(sizes(call.types[0])) - 2
    taps = _TAPS.get(str(call.attr("mode")), 1) ** spatial
    return Cost(elementwise=count * (2 * taps - 1) if taps > 1 else 0)


def _infer_affine_grid(call: OpCall) -> Type:
    theta, size = call.tensor("theta"), call.dims("size")
    if size is None:
        rank = theta.shape[1] if theta.shape is not None else None
        if not isinstance(rank, int):
            return tensor(theta.dtype, None, theta.device)
        reason = "the grid's size is computed by the model"
        size = tuple(call.unknown(reason, "size") for _ in range(rank + 2))
    if len(size) not in (4, 5):
        raise RuleError(f"vision.affine_grid makes grids for 4 or 5 axes, not {len(size)}")
    return tensor(theta.dtype, (size[0], *size[2:], len(size) - 2), theta.device)


def _cost_affine_grid(call: OpCall) -> Cost:
    """Every point (x, y, 1) is multiplied with a matrix."""
    grid = sizes(call.results[0])
    rank = len(grid) - 2
    return products(product(grid[:-1]) * rank * (rank + 1))


def _infer_decoder(call: OpCall) -> Type:
    channels = 1 if call.attr("pixel_format") == "Grayscale" else 3
    reason = "height and width are in the encoded image"
    found = plain(call, "encoded") if call.given("encoded") else None
    size = encoded_size(found[0].astype(np.uint8).tobytes()) if found is not None else None
    rows, columns = size if size is not None else (call.unknown(reason), call.unknown(reason))
    return tensor(DType.U8, (rows, columns, channels), call.tensor("encoded").device)


OPS = (
    op(
        "vision.resize(Tensor x, Tensor? roi, Tensor? scales, Dims? sizes, *, int[] axes=[], float[] scale_factors=[], str mode='nearest', "
        "str coordinates='half_pixel', str keep_aspect_ratio_policy='stretch', bool antialias=False) -> Tensor",
        Family.MOVE,
        infer=_infer_resize,
        cost=_cost_resize,
        temporaries=resize_rule,
        summary="Resizes axes to given sizes, or by factors with the result rounded down.",
        strides=layouts.KEEPS_CHANNELS_LAST,
        roles=frozenset({OpRole.UPSAMPLE}),
        slices=slicing.resized,
    ),
    op(
        "vision.grid_sample(Tensor x, Tensor grid, *, str mode='linear', str padding_mode='zeros', bool align_corners=False) -> Tensor",
        Family.INDEXING,
        infer=_infer_grid_sample,
        cost=_cost_grid_sample,
        summary="Reads images at places that a grid names, interpolated.",
    ),
    op(
        "vision.affine_grid(Tensor theta, Dims size, *, bool align_corners=False) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_affine_grid,
        cost=_cost_affine_grid,
        summary="A grid of places for vision.grid_sample from affine matrices.",
    ),
    op(
        "vision.decode_image(Tensor encoded, *, str pixel_format='RGB') -> Tensor",
        Family.CREATION,
        infer=_infer_decoder,
        cost=lambda call: Cost(),
        summary="Decodes an image file to (height, width, channels).",
    ),
)
