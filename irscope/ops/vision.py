"""Images: resizing, decoding, boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from irscope.ir.dims import Dim, SymDim, bounds, dim_min, exact_div, floordiv, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops import layouts
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.indexing import plain
from irscope.ops.matmul import plain_arrays
from irscope.ops.reals import PRECISION, Real, floor, multiply, real_of
from irscope.ops.rules import as_size, moved, products
from irscope.ops.scratch.images import resize_rule
from irscope.ops.spec import SIZES, Family, Known, OpCall, RuleError, numel, op, sizes
from irscope.ops.values import Array

# Height and width of an encoded image, read from its header without decoding it.

_JPEG_2000 = b"\x00\x00\x00\x0cjP  \r\n\x87\n"
_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257


def encoded_size(data: bytes) -> tuple[int, int] | None:
    """Height and width of a PNG, BMP, JPEG, JPEG 2000, WebP, TIFF or portable image; None for anything else."""
    try:
        return _image_size(data)
    except (IndexError, ValueError):
        return None


def _image_size(data: bytes) -> tuple[int, int] | None:
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return _header_integer(data, 20, 4, "big"), _header_integer(data, 16, 4, "big")
    if data[:2] == b"BM":
        height = int.from_bytes(data[22:26], "little", signed=True)
        return abs(height), _header_integer(data, 18, 4, "little")
    if data[:2] == b"\xff\xd8":
        return _jpeg(data)
    if data[:12] == _JPEG_2000:
        header = data.index(b"ihdr")
        return _header_integer(data, header + 4, 4, "big"), _header_integer(data, header + 8, 4, "big")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data[:4] in (b"II*\x00", b"MM\x00*"):
        return _tiff(data)
    return _portable(data) if data[:2] in (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6") else None


def _header_integer(data: bytes, place: int, count: int, order: str) -> int:
    if place + count > len(data):
        raise IndexError("the header ends too early")
    return int.from_bytes(data[place : place + count], "big" if order == "big" else "little")


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """From the first frame header (SOF0 to SOF15, without the tables whose markers lie between)."""
    place = 2
    while data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _header_integer(data, place + 5, 2, "big"), _header_integer(data, place + 7, 2, "big")
        place += 2 + _header_integer(data, place + 2, 2, "big")
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8 ":
        return _header_integer(data, 28, 2, "little") & 0x3FFF, _header_integer(data, 26, 2, "little") & 0x3FFF
    if kind == b"VP8L":
        bits = _header_integer(data, 21, 4, "little")
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if kind == b"VP8X":
        return _header_integer(data, 27, 3, "little") + 1, _header_integer(data, 24, 3, "little") + 1
    return None


def _tiff(data: bytes) -> tuple[int, int] | None:
    order = "little" if data[:2] == b"II" else "big"
    directory = _header_integer(data, 4, 4, order)
    found: dict[int, int] = {}
    for entry in range(_header_integer(data, directory, 2, order)):
        place = directory + 2 + 12 * entry
        short = _header_integer(data, place + 2, 2, order) == 3
        found[_header_integer(data, place, 2, order)] = _header_integer(data, place + 8, 2 if short else 4, order)
    if _TIFF_WIDTH in found and _TIFF_HEIGHT in found:
        return found[_TIFF_HEIGHT], found[_TIFF_WIDTH]
    return None


def _portable(data: bytes) -> tuple[int, int] | None:
    """Return numbers separated by white space, with comments up to the end of a line."""
    fields = b" ".join(line.split(b"#")[0] for line in data[2:4096].split(b"\n")[:64]).split()
    return int(fields[1]), int(fields[0])


# Resizing images and sampling them at given places.

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
    """Return a short fraction that gives the same sizes as the scale for every axis of at most some 100,000 elements.

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
    known = call.value("scales") if call.given("scales") else None
    if known is not None and known.size:
        _check_count(call, known.size, len(old))
        return [_scaled_size(call, size, factor) for size, factor in zip(old, known.reshape(-1).tolist(), strict=True)]
    reason = "the result's size is computed by the model"
    return [call.unknown(reason, "sizes,scales") for _ in old]


def _scaled_size(call: OpCall, size: Dim, factor: object) -> Dim:
    if not isinstance(factor, Real | SymDim):
        return scaled_size(call, size, np.float32(factor))  # type: ignore[arg-type]  # numbers are left
    bits = PRECISION[DType.F32]
    scale = real_of(factor, bits)
    made = multiply(real_of(size, bits), scale, bits)
    if made.is_known:
        call.note_limits(made)
        return as_size(call, floor(made, bits).over, "scales")
    # The product of a size and the rounded quotient of another one by it may fall just short of the other.
    whole = exact_div(size * scale.over, scale.under) if scale.is_known else None
    if whole is not None:
        reason = f"it is {whole} or one less, as the runtime rounds {size} times {scale}"
        return call.unknown(reason, SIZES, max((bounds(whole)[0] or 0) - 1, 0), whole)
    return call.unknown(f"{size} times a scale that the model computes is rounded as the runtime does it", SIZES)


def _check_count(call: OpCall, given: int, needed: int) -> None:
    if given != needed:
        raise RuleError(f"{call.spec.name}: {given} sizes or scales for {needed} axes")


def _kept_ratio(call: OpCall, old: Sequence[Dim], wanted: Sequence[Dim], not_larger: bool) -> Sequence[Dim]:
    """Return all axes scaled by the smallest (or largest) ratio, halves rounded up."""
    if any(isinstance(size, SymDim) for size in (*old, *wanted)) or not all(old):
        reason = "the axis that decides the common scale depends on sizes"
        return [call.unknown(reason, SIZES) for _ in old]
    ratios = [Fraction(_int(new), _int(size)) for new, size in zip(wanted, old, strict=True)]
    scale = min(ratios) if not_larger else max(ratios)
    return [math.floor(scale * _int(size) + Fraction(1, 2)) for size in old]


def _int(size: Dim) -> int:
    if isinstance(size, SymDim):
        raise TypeError(f"{size} is not a number")
    return size


_TAPS = {"nearest": 1, "nearest-exact": 1, "linear": 2, "bilinear": 2, "trilinear": 2, "cubic": 4, "bicubic": 4, "area": 1}


def _cost_resize(call: OpCall) -> Cost:
    """Return each element weighs the neighbours of the axes that change: 2 an axis for linear, 4 for cubic."""
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
    """Return every point (x, y, 1) is multiplied with a matrix."""
    grid = sizes(call.results[0])
    rank = len(grid) - 2
    return products(product(grid[:-1]) * rank * (rank + 1))


def _infer_decoder(call: OpCall) -> Type:
    channels = 1 if call.attr("pixel_format") == "Grayscale" else 3
    reason = "height and width are in the encoded image"
    arrays = plain_arrays(call, "encoded") if call.given("encoded") else None
    size = encoded_size(arrays[0].astype(np.uint8).tobytes()) if arrays is not None else None
    rows, columns = size if size is not None else (call.unknown(reason), call.unknown(reason))
    return tensor(DType.U8, (rows, columns, channels), call.tensor("encoded").device)


_RESIZE = (
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


# Non-maximum suppression: boxes that overlap a better one are dropped.


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as (low, low, high, high), whichever corners or centre and size they are given by."""
    boxes = boxes.astype(np.float64)
    if centred:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of one box with others."""
    sides = np.maximum(np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]), 0)
    shared = sides.prod(axis=1)
    union = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(axis=1) - shared
    return np.where(union > 0, shared / np.where(union > 0, union, 1), 0)


def _suppress(boxes: Array, scores: Array, limit: float, most: int) -> list[int]:
    """Return positions of the boxes that are kept, best first."""
    kept: list[int] = []
    for place in np.argsort(-scores.astype(np.float64), kind="stable"):
        if len(kept) >= most:
            break
        if not kept or not (_overlaps(boxes[place], boxes[kept]) > limit).any():
            kept.append(int(place))
    return kept


def _kept_boxes(call: OpCall) -> Known | None:
    boxes, scores = plain(call, "boxes"), plain(call, "scores")
    if boxes is None or scores is None:
        return None
    kept = _suppress(_corners(boxes, False), scores, float(call.attr("iou_threshold")), len(boxes))
    return np.array(kept, dtype=np.int64)


def _infer_nms(call: OpCall) -> TensorType:
    boxes = call.tensor("boxes")
    known = _kept_boxes(call)
    count: Dim = len(known) if known is not None else _unknown_count(call, None if boxes.shape is None else boxes.shape[0])
    return tensor(DType.I64, (count,), boxes.device)


def _unknown_count(call: OpCall, limit: Dim | None) -> Dim:
    return call.unknown("how many boxes are kept depends on their overlaps and scores", "boxes,scores", 0, limit)


def _threshold(call: OpCall, name: str, default: float) -> float | None:
    if not call.given(name):
        return default
    known = plain(call, name)
    return None if known is None else float(known.reshape(-1)[0])


def _selected(call: OpCall) -> Known | None:
    """Return rows of batch, class and box."""
    boxes, scores = plain(call, "boxes"), plain(call, "scores")
    most = _threshold(call, "max_output_boxes_per_class", 0)
    overlap = _threshold(call, "iou_threshold", 0)
    least = _threshold(call, "score_threshold", -np.inf)
    if most == 0:
        return np.zeros((0, 3), dtype=np.int64)
    if boxes is None or scores is None or most is None or overlap is None or least is None:
        return None
    rows: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]):
        corners = _corners(boxes[batch], bool(call.attr("center_point_box")))
        for klass in range(scores.shape[1]):
            wanted = np.flatnonzero(scores[batch, klass] > least)
            kept = _suppress(corners[wanted], scores[batch, klass][wanted], overlap, int(most))
            rows.extend((batch, klass, int(wanted[place])) for place in kept)
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _infer_selected(call: OpCall) -> TensorType:
    scores = call.tensor("scores")
    known = _selected(call)
    if known is not None:
        return tensor(DType.I64, (len(known), 3), scores.device)
    most = _threshold(call, "max_output_boxes_per_class", 0)
    limit: Dim | None = None
    if scores.shape is not None:
        batches, classes, boxes = scores.shape
        limit = batches * classes * (boxes if most is None else dim_min(boxes, int(most)))
    return tensor(DType.I64, (_unknown_count(call, limit), 3), scores.device)


_DETECTION = (
    op(
        "vision.nms(Tensor boxes, Tensor scores, *, float iou_threshold) -> Tensor",
        Family.SORTING,
        infer=_infer_nms,
        cost=moved,
        evaluate=_kept_boxes,
        summary="Positions of boxes that overlap no better one by more than a threshold.",
        roles=frozenset({OpRole.BOXES}),
    ),
    op(
        "vision.non_max_suppression(Tensor boxes, Tensor scores, Tensor? max_output_boxes_per_class, Tensor? iou_threshold,"
        " Tensor? score_threshold, *, bool center_point_box=False) -> Tensor",
        Family.SORTING,
        infer=_infer_selected,
        cost=moved,
        evaluate=_selected,
        summary="Rows of batch, class and box for the boxes that overlap no better one of their class.",
        roles=frozenset({OpRole.BOXES}),
    ),
)


OPS = (*_RESIZE, *_DETECTION)
