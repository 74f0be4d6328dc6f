"""Differences of neighbours along an axis."""

from __future__ import annotations

import numpy as np

from irscope.ir.dims import dim_max
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType
from irscope.ops import slicing
from irscope.ops.cost import Cost
from irscope.ops.scratch.picking import diff_rule
from irscope.ops.spec import Family, Known, OpCall, numel, op
from irscope.ops.values import is_symbolic


def _infer(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    axis = call.axis(call.int_attr("axis"), len(x.shape))
    size = x.shape[axis]
    for name in ("prepend", "append"):
        other = call.maybe(name)
        if other is not None:
            if other.shape is None:
                return x.with_shape(None)
            size = size + other.shape[axis]
    left = dim_max(size - call.int_attr("n"), 0)
    return x.with_shape((*x.shape[:axis], left, *x.shape[axis + 1 :]))


def _cost(call: OpCall) -> Cost:
    return Cost(elementwise=numel(call.results[0]) * call.int_attr("n"))


def _evaluate(call: OpCall) -> Known | None:
    x = call.value("x")
    if x is None or is_symbolic(x) or call.given("prepend") or call.given("append"):
        return None
    if call.dtype("x") is DType.BOOL:
        return np.diff(x, call.int_attr("n"), call.int_attr("axis"))
    return np.diff(x, call.int_attr("n"), call.int_attr("axis")).astype(x.dtype)


OPS = (
    op(
        "math.diff(Tensor x, Tensor? prepend, Tensor? append, *, int n=1, int axis=-1) -> Tensor",
        Family.ELEMENTWISE,
        infer=_infer,
        cost=_cost,
        evaluate=_evaluate,
        temporaries=diff_rule,
        summary="Differences of neighbours along an axis, taken `n` times.",
        slices=slicing.needs_all,
    ),
)
