"""The most precise type that covers several: for branches, steps of a loop, and elements of a list."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.ir.dims import Dim, SymDim, bind, bounds
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
from irscope.passes.inference.engine import DecidedBy, Inference


def join(engine: Inference, left: Type, right: Type, why: str, widened: set[Dim] | None = None, decided_by: DecidedBy = "") -> Type:
    """The most precise type that covers both. With `widened`, sizes made unknown once stay as they are: a loop's fixpoint ends."""
    if left is right:
        return left
    if isinstance(left, TensorType) and isinstance(right, TensorType):
        dtype = left.dtype if left.dtype is right.dtype else DType.UNKNOWN
        if left.shape is None or right.shape is None or len(left.shape) != len(right.shape):
            engine.explain(why, decided_by)
            return tensor(dtype, None, left.device)
        return tensor(
            dtype, [_join_dim(engine, a, b, why, widened, decided_by) for a, b in zip(left.shape, right.shape, strict=True)], left.device
        )
    if isinstance(left, SequenceType) and isinstance(right, SequenceType):
        return sequence(join(engine, left.element, right.element, why, widened, decided_by))
    if isinstance(left, OptionalType) and isinstance(right, OptionalType):
        return optional(join(engine, left.element, right.element, why, widened, decided_by))
    if isinstance(left, TupleType) and isinstance(right, TupleType) and len(left.elements) == len(right.elements):
        return tuple_of(join(engine, a, b, why, widened, decided_by) for a, b in zip(left.elements, right.elements, strict=True))
    engine.explain(why, decided_by)
    return UNKNOWN_TYPE


def _join_dim(engine: Inference, left: Dim, right: Dim, why: str, widened: set[Dim] | None, decided_by: DecidedBy) -> Dim:
    if left == right:
        return left
    if widened is not None:
        if left not in widened:
            left = engine.fresh(why, decided_by, 0, None)
            widened.add(left)
        return left
    (low, high), (other_low, other_high) = bounds(left), bounds(right)
    lo = min(low, other_low) if low is not None and other_low is not None else 0
    hi = max(high, other_high) if high is not None and other_high is not None else None
    return engine.fresh(why, decided_by, max(lo, 0), hi)


def renewed(engine: Inference, types: Sequence[Type], since: int = 0) -> list[Type]:
    """The types with new unknowns in place of those made after the first `since`: what was the same within one step of a loop,
    or for one element of a list, need not be the same for another."""
    names: dict[str, Dim] = {}
    return [_renewed(engine, type_, since, names) for type_ in types]


def _renewed(engine: Inference, type_: Type, since: int, names: dict[str, Dim]) -> Type:
    if isinstance(type_, TensorType):
        if type_.shape is None or type_.is_static:
            return type_
        return type_.with_shape([_renewed_dim(engine, dim, since, names) for dim in type_.shape])
    if isinstance(type_, SequenceType):
        return sequence(_renewed(engine, type_.element, since, names))
    if isinstance(type_, OptionalType):
        return optional(_renewed(engine, type_.element, since, names))
    if isinstance(type_, TupleType):
        return tuple_of([_renewed(engine, member, since, names) for member in type_.elements])
    return type_


def _renewed_dim(engine: Inference, dim: Dim, since: int, names: dict[str, Dim]) -> Dim:
    if not isinstance(dim, SymDim) or not dim.is_unknown:
        return dim
    for old in dim.symbols():
        name = str(old)
        if name not in names and old.is_unknown and engine.is_made_since(name, since):
            reason = engine.found.reasons.get(name)
            made = engine.fresh(reason.text if reason else "", "", *bounds(old))
            if reason is not None:
                engine.found.reasons[str(made)] = reason
            names[name] = made
    return bind(dim, names)
