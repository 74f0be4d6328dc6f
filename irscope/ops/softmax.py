"""Softmax and its relatives, and normalisation to length one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from irscope.ir.types import Type, tensor
from irscope.ops import slicing
from irscope.ops.cost import Cost
from irscope.ops.elementwise import result_element
from irscope.ops.ort import in_place, takes_two
from irscope.ops.promotion import result_dtype, to_float
from irscope.ops.reduction import without_axes
from irscope.ops.rules import broadcast_shapes, device_of, dtype_attr, per_input
from irscope.ops.scratch.folding import SOFT
from irscope.ops.spec import CostRule, Facts, Family, Known, OpCall, OpRole, OpSpec, numel, op
from irscope.ops.values import Array, is_symbolic, settle


def _infer(call: OpCall) -> Type:
    x = call.tensor("x")
    if x.shape:
        call.axis(call.int_attr("axis"), len(x.shape))
    return tensor(dtype_attr(call, to_float(x.dtype)), x.shape, x.device)


def _exponentials(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Differences from the largest element, and their exponentials."""
    shifted = x - np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    return shifted, np.exp(shifted)


def _softmax(x: Array, axes: tuple[int, ...]) -> Any:
    _, powers = _exponentials(x, axes)
    return powers / powers.sum(axis=axes, keepdims=True)


def _log_softmax(x: Array, axes: tuple[int, ...]) -> Any:
    shifted, powers = _exponentials(x, axes)
    return shifted - np.log(powers.sum(axis=axes, keepdims=True))


def _hardmax(x: Array, axes: tuple[int, ...]) -> Any:
    rows = x.reshape(*x.shape[: axes[0]], -1, *x.shape[axes[-1] + 1 :])
    first = np.expand_dims(np.argmax(rows, axis=axes[0]), axes[0])
    places = np.arange(rows.shape[axes[0]]).reshape([-1 if axis == axes[0] else 1 for axis in range(rows.ndim)])
    return (places == first).astype(x.dtype).reshape(x.shape)


def _along(function: Callable[[Array, tuple[int, ...]], Any]) -> Callable[[OpCall], Known | None]:
    def evaluate(call: OpCall) -> Known | None:
        x = call.value("x")
        if x is None or is_symbolic(x) or not x.size:
            return x
        wide = (x if x.ndim else x.reshape(1)).astype(np.float64)
        axis = call.axis(call.int_attr("axis"), wide.ndim)
        axes = tuple(range(axis, wide.ndim)) if call.attr("from_axis") else (axis,)
        with np.errstate(all="ignore"):
            return settle(np.asarray(function(wide, axes)).reshape(x.shape), result_element(call))

    return evaluate


def _soft(name: str, summary: str, function: Callable[[Array, tuple[int, ...]], Any], cost: CostRule, **facts: Unpack[Facts]) -> OpSpec:
    return op(
        f"nn.{name}(Tensor x, *, int axis=-1, bool from_axis=False, dtype? dtype) -> Tensor",
        Family.SOFTMAX,
        infer=_infer,
        cost=cost,
        evaluate=_along(function),
        temporaries=SOFT.get(name),
        summary=summary,
        **facts,
    )


_SOFTMAX_COST = per_input(elementwise=2, transcendental=1, reduction=2)


def _length(x: Array, axes: tuple[int, ...], p: int) -> Any:
    return (np.abs(x) ** p).sum(axis=axes, keepdims=True) ** (1 / p)


def _evaluate_lp(call: OpCall) -> Known | None:
    p = call.int_attr("p")

    def normalised(x: Array, axes: tuple[int, ...]) -> Any:
        length = _length(x, axes, p)
        return np.where(length == 0, 0, x / length)

    return _along(normalised)(call)


def _infer_similarity(call: OpCall) -> Type:
    x, y = call.tensor("x"), call.tensor("y")
    shape = broadcast_shapes(call, [x.shape, y.shape])
    dtype = to_float(result_dtype([x, y]))
    if shape is None:
        return tensor(dtype, None, device_of([x, y]))
    axis = call.axis(call.int_attr("axis"), len(shape))
    return tensor(dtype, without_axes(shape, (axis,), False), device_of([x, y]))


def _cost_similarity(call: OpCall) -> Cost:
    x, y = call.tensor("x"), call.tensor("y")
    shape = broadcast_shapes(call, [x.shape, y.shape])
    count = numel(x.with_shape(shape))
    results = numel(call.results[0])
    return Cost(elementwise=count * 3 + results * 2, reduction=count * 3, transcendental=results * 2)


OPS = (
    _soft(
        "softmax",
        "Exponentials divided by their sum; `from_axis` sums over all axes from `axis` on.",
        _softmax,
        _SOFTMAX_COST,
        ort=in_place("Softmax", takes=takes_two),
        roles=frozenset({OpRole.SOFTMAX}),
        slices=slicing.along_axis,
    ),
    _soft("softmin", "Softmax of the negated elements.", lambda x, axes: _softmax(-x, axes), _SOFTMAX_COST),
    _soft(
        "log_softmax",
        "Logarithm of the softmax.",
        _log_softmax,
        _SOFTMAX_COST,
        ort=in_place("LogSoftmax", takes=takes_two),
        slices=slicing.along_axis,
    ),
    _soft("hardmax", "One where the first largest element stands, zero elsewhere.", _hardmax, per_input(reduction=1)),
    op(
        "nn.lp_normalize(Tensor x, *, int axis=-1, int p=2, float eps=0.0) -> Tensor",
        Family.NORMALIZATION,
        infer=_infer,
        cost=per_input(elementwise=2, reduction=1),
        evaluate=_evaluate_lp,
        summary="Divides by the norm of order `p` along an axis.",
    ),
    op(
        "nn.cosine_similarity(Tensor x, Tensor y, *, int axis=1, float eps=1e-08) -> Tensor",
        Family.REDUCTION,
        infer=_infer_similarity,
        cost=_cost_similarity,
        summary="Cosine of the angle between vectors along an axis.",
    ),
)
