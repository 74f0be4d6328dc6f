"""Non-maximum suppression: boxes that overlap a better one are dropped."""

from __future__ import annotations

import numpy as np

from irscope.ir.dims import Dim, dim_min
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor
from irscope.ops.indexing import plain
from irscope.ops.rules import moved
from irscope.ops.spec import Family, Known, OpCall, OpRole, op
from irscope.ops.values import Array


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
    """Positions of the boxes that are kept, best first."""
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
    """Rows of batch, class and box."""
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


OPS = (
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
