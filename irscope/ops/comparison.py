"""Comparisons: two tensors, or a tensor and a number, give truth values."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from irscope.ir.dtypes import DType
from irscope.ir.types import Type
from irscope.ops.binary import OnArrays, OnDims, numbers, pair
from irscope.ops.dimrules import is_equal, is_less, is_less_equal, is_not_equal
from irscope.ops.promotion import result_dtype
from irscope.ops.rules import broadcast_type, fixed, operands, per_element, with_dtype
from irscope.ops.spec import Facts, Family, Known, OpCall, OpRole, OpSpec, op
from irscope.ops.values import apply, is_symbolic, settle


def _infer(call: OpCall) -> Type:
    return broadcast_type(call, operands(call), DType.BOOL)


def _compare(name: str, summary: str, on_arrays: OnArrays, on_dims: OnDims, **facts: Unpack[Facts]) -> OpSpec:
    def evaluate(call: OpCall) -> Known | None:
        sides = pair(call)
        if sides is None or (any(map(is_symbolic, sides)) and any(side.dtype.kind not in "iubO" for side in sides)):
            return None
        common = result_dtype(operands(call), numbers(call, "value"))
        if common not in (DType.UNKNOWN, DType.STR) and not any(map(is_symbolic, sides)):
            sides = settle(sides[0], common), settle(sides[1], common)
        return apply(sides, on_arrays, lambda a, b: on_dims(call, a, b), DType.BOOL)

    return op(
        f"compare.{name}(Tensor x, Tensor? y, *, any? value) -> Tensor",
        Family.COMPARISON,
        infer=_infer,
        cost=per_element(1),
        evaluate=evaluate,
        summary=summary,
        **facts,
    )


def _evaluate_all_equal(call: OpCall) -> Known | None:
    x, y = call.values[0], call.values[1]
    if x is None or y is None or is_symbolic(x) or is_symbolic(y):
        return None
    return np.asarray(np.array_equal(x, y))


def _evaluate_isin(call: OpCall) -> Known | None:
    x, elements = call.values[0], call.values[1]
    if x is None or elements is None or is_symbolic(x) or is_symbolic(elements):
        return None
    return np.isin(x, elements, invert=bool(call.attr("invert")))


def _as_text(x: Any, y: Any, equal: bool) -> Any:
    found = np.equal(x, y)
    return found.astype(np.bool_) if equal else ~found.astype(np.bool_)


OPS = (
    _compare(
        "equal",
        "Whether both sides are equal.",
        lambda a, b: _as_text(a, b, True),
        is_equal,
        roles=frozenset({OpRole.COMMUTES, OpRole.EQUAL}),
    ),
    _compare(
        "not_equal", "Whether the sides differ.", lambda a, b: _as_text(a, b, False), is_not_equal, roles=frozenset({OpRole.COMMUTES})
    ),
    _compare("less", "Whether the first side is smaller.", np.less, is_less, roles=frozenset({OpRole.ORDER})),
    _compare("less_equal", "Whether the first side is smaller or equal.", np.less_equal, is_less_equal, roles=frozenset({OpRole.ORDER})),
    _compare(
        "greater", "Whether the first side is larger.", np.greater, lambda call, a, b: is_less(call, b, a), roles=frozenset({OpRole.ORDER})
    ),
    _compare(
        "greater_equal",
        "Whether the first side is larger or equal.",
        np.greater_equal,
        lambda call, a, b: is_less_equal(call, b, a),
        roles=frozenset({OpRole.ORDER}),
    ),
    op(
        "compare.isclose(Tensor x, Tensor y, *, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
        Family.COMPARISON,
        infer=_infer,
        cost=per_element(4),
        summary="Whether both sides are equal up to a tolerance.",
    ),
    op(
        "compare.isin(Tensor x, Tensor elements, *, bool invert=False) -> Tensor",
        Family.COMPARISON,
        infer=lambda call: with_dtype(call.tensor("x"), DType.BOOL),
        cost=per_element(1),
        evaluate=_evaluate_isin,
        summary="Whether each element is among some others.",
    ),
    op(
        "compare.all_equal(Tensor x, Tensor y) -> Tensor",
        Family.COMPARISON,
        infer=fixed(DType.BOOL),
        cost=per_element(1),
        evaluate=_evaluate_all_equal,
        summary="Whether two tensors have the same shape and elements.",
    ),
)
