"""Sizes that come as values of operands: what they say, and what is left where they are unknown."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.ir.dims import Dim, SymDim, bounds, dim_max
from irscope.ir.types import Shape
from irscope.ops.spec import OpCall, RuleError

MOST_AXES = 64
MOST_COMBINED = 8
"""Tensors of up to so many axes are looked at with every choice of axes, where the choice is not known."""


def length_of(call: OpCall, name: str) -> int | None:
    """How many numbers a list holds, even where their values are unknown."""
    known = call.dims(name)
    if known is not None:
        return len(known)
    operand = call.maybe(name) if name in call.spec.operand_index else None
    if operand is None or operand.shape is None or len(operand.shape) > 1:
        return None
    count = operand.shape[0] if operand.shape else 1
    return None if isinstance(count, SymDim) else count


def check_rank(call: OpCall, count: int) -> None:
    """Refuse a number of axes that no tensor has: a list of sizes that is as long is damaged."""
    if count > MOST_AXES:
        raise RuleError(f"{call.spec.name}: a tensor cannot have {count} axes")


def unknown_sizes(call: OpCall, name: str, count: int | None) -> Shape:
    """Sizes that depend on the values of an operand; None where even their number is unknown."""
    if count is None:
        call.context.explain(f"the number of axes depends on operand {name!r}", name)
        return None
    check_rank(call, count)
    return tuple(call.unknown(f"it depends on the values of operand {name!r}", name) for _ in range(count))


def as_size(call: OpCall, dim: Dim, name: str, *, special: bool = False) -> Dim:
    """A given number as a size; `special` says that a negative one has a meaning of its own, so that a symbol says little."""
    if isinstance(dim, float):
        if dim != int(dim):
            raise RuleError(f"{name!r} of {call.spec.name} holds {dim}, not a whole number")
        dim = int(dim)
    low = bounds(dim)[0]
    if low is not None and low >= 0:
        return dim
    if isinstance(dim, SymDim):
        if special and dim not in call.context.sizes:
            return call.unknown(f"it depends on the values of operand {name!r}", name)
        return at_least(call, 0, dim)
    raise RuleError(f"{name!r} of {call.spec.name} holds the negative size {dim}")


def at_least(call: OpCall, low: Dim, dim: Dim) -> Dim:
    """The larger of two numbers; a size of an axis is never below 0."""
    return dim if not isinstance(low, SymDim) and low <= 0 and dim in call.context.sizes else dim_max(low, dim)


def given_shape(call: OpCall, name: str = "shape") -> Shape:
    """A result's shape that is given as a list of sizes."""
    known = call.dims(name)
    if known is None:
        return unknown_sizes(call, name, length_of(call, name))
    check_rank(call, len(known))
    return tuple(as_size(call, dim, name) for dim in known)


def given_axes(call: OpCall, name: str, rank: int) -> tuple[int, ...] | None:
    """Axes counted from the front; None where they are not given or not known."""
    known = call.ints(name)
    if known is None:
        return None
    axes = tuple(call.axis(axis, rank) for axis in known)
    if len(set(axes)) < len(axes):
        raise RuleError(f"{call.spec.name}: axes {list(known)} name one axis twice")
    return axes


def any_of(call: OpCall, name: str, shapes: Sequence[Sequence[Dim]]) -> Shape:
    """A shape that is one of several of one rank, by the values of an operand: what they agree on is known."""
    if not shapes:
        raise RuleError(f"{call.spec.name}: no values of {name!r} fit the operand's shape")
    return tuple(_any_size(call, name, sizes) for sizes in zip(*shapes, strict=True))


def _any_size(call: OpCall, name: str, sizes: Sequence[Dim]) -> Dim:
    chosen = sorted(set(sizes), key=str)
    if len(chosen) == 1:
        return chosen[0]
    lows = [bounds(size)[0] for size in chosen]
    least = min(low for low in lows if low is not None) if None not in lows else 0
    among = " or ".join(str(size) for size in chosen[:4])
    return call.unknown(f"it is {among}, by the values of operand {name!r}", name, least, dim_max(*chosen))


def axis_attr(call: OpCall, rank: int, name: str = "axis") -> int:
    """A single axis counted from the front; tensors without axes pass as if they had one."""
    return call.axis(call.int_attr(name), max(rank, 1))


def replaced(shape: Sequence[Dim], axis: int, *sizes: Dim) -> tuple[Dim, ...]:
    """The shape with one axis replaced by any number of sizes."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])
