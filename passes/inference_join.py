"""The most precise type that covers several: for branches, steps of a loop, and elements of a list."""

from __future__ import annotations

from irscope.ir.dims import Dim, bounds
from irscope.ir.dtypes import DType
from irscope.ir.types import (
    UNKNOWN_TYPE,
    OptionalType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    optional,
    sequence,
    tensor,
    tuple_of,
)
from irscope.passes.inference import Inference


def join(engine: Inference, left: Type, right: Type, why: str, widened: set[Dim] | None = None, fix: str = "") -> Type:
    """The most precise type that covers both. With `widened`, sizes made unknown once stay as they are: a loop's fixpoint ends."""
    if left is right:
        return left
    if isinstance(left, TensorType) and isinstance(right, TensorType):
        dtype = left.dtype if left.dtype is right.dtype else DType.UNKNOWN
        if left.shape is None or right.shape is None or len(left.shape) != len(right.shape):
            engine.explain(why, fix)
            return tensor(dtype, None, left.device)
        return tensor(
            dtype, [_join_dim(engine, a, b, why, widened, fix) for a, b in zip(left.shape, right.shape, strict=True)], left.device
        )
    if isinstance(left, SequenceType) and isinstance(right, SequenceType):
        return sequence(join(engine, left.element, right.element, why, widened, fix))
    if isinstance(left, OptionalType) and isinstance(right, OptionalType):
        return optional(join(engine, left.element, right.element, why, widened, fix))
    if isinstance(left, TupleType) and isinstance(right, TupleType) and len(left.elements) == len(right.elements):
        return tuple_of(join(engine, a, b, why, widened, fix) for a, b in zip(left.elements, right.elements, strict=True))
    engine.explain(why, fix)
    return UNKNOWN_TYPE


def _join_dim(engine: Inference, left: Dim, right: Dim, why: str, widened: set[Dim] | None, fix: str) -> Dim:
    if left == right:
        return left
    if widened is not None:
        if left not in widened:
            left = engine.fresh(why, "", 0, None)
            widened.add(left)
        return left
    (low, high), (other_low, other_high) = bounds(left), bounds(right)
    lo = min(low, other_low) if low is not None and other_low is not None else 0
    hi = max(high, other_high) if high is not None and other_high is not None else None
    return engine.fresh(why, fix, max(lo, 0), hi)
