"""Integer functions of sizes that may be symbolic. What cannot be decided becomes an unknown with the bounds it has."""

from __future__ import annotations

from collections.abc import Callable

from irscope.ir.dims import Dim, SymDim, bounds, ceildiv, dim_max, dim_min, equal, exact_div, floordiv, less, less_equal, mod
from irscope.ops.spec import SIZES, OpCall

DimFunction = Callable[..., Dim]


def truth(call: OpCall, verdict: bool | None, what: str) -> Dim:
    """1, 0, or an unknown of the two."""
    if verdict is not None:
        return int(verdict)
    return call.unknown(f"whether {what} depends on sizes that are not bound", SIZES, 0, 1)


def is_equal(call: OpCall, left: Dim, right: Dim) -> Dim:
    return truth(call, equal(left, right), f"{left} = {right}")


def is_not_equal(call: OpCall, left: Dim, right: Dim) -> Dim:
    verdict = equal(left, right)
    return truth(call, None if verdict is None else not verdict, f"{left} differs from {right}")


def is_less(call: OpCall, left: Dim, right: Dim) -> Dim:
    return truth(call, less(left, right), f"{left} < {right}")


def is_less_equal(call: OpCall, left: Dim, right: Dim) -> Dim:
    return truth(call, less_equal(left, right), f"{left} <= {right}")


def negate(call: OpCall, value: Dim) -> Dim:
    """Logical not of 0, 1 or a symbol of the two."""
    return 1 - value


def both(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Logical and."""
    return left * right


def either(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Logical or."""
    return dim_max(left, right)


def select(call: OpCall, condition: Dim, chosen: Dim, other: Dim) -> Dim:
    """The second where the condition holds, else the third."""
    if not isinstance(condition, SymDim):
        return chosen if condition else other
    if equal(chosen, other) is True:
        return chosen
    low, high = bounds(dim_min(chosen, other))[0], bounds(dim_max(chosen, other))[1]
    return call.unknown(f"it is {chosen} or {other}, by a condition that depends on sizes", SIZES, low, high)


def absolute(call: OpCall, value: Dim) -> Dim:
    return dim_max(value, value * -1)


def sign(call: OpCall, value: Dim) -> Dim:
    return dim_max(dim_min(value, 1), -1)


def floor_div(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Division rounded down."""
    if _is_zero_possible(right):
        return call.unknown(f"{left} is divided by {right}, which may be 0", SIZES, None)
    return floordiv(left, right)


def trunc_div(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Division rounded toward zero, as ONNX and C divide integers."""
    if _is_zero_possible(right):
        exact = exact_div(left, right)
        return call.unknown(f"{left} is divided by {right}, which may be 0", SIZES, None) if exact is None else exact
    if less(right, 0) is True:
        left, right = -left, -right
    # One of the two is 0, by the sign of the dividend.
    return dim_max(floordiv(left, right), 0) + dim_min(ceildiv(left, right), 0)


def floor_mod(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Remainder with the divisor's sign."""
    if _is_zero_possible(right):
        return call.unknown(f"{left} is divided by {right}, which may be 0", SIZES, None)
    return mod(left, right)


def trunc_mod(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Remainder with the dividend's sign."""
    return left - trunc_div(call, left, right) * right


def power(call: OpCall, base: Dim, exponent: Dim) -> Dim:
    if isinstance(exponent, SymDim) or not 0 <= exponent <= 8:
        return call.unknown(f"{base} to the power {exponent} is no polynomial", SIZES, None)
    result: Dim = 1
    for _ in range(exponent):
        result = result * base
    return result


def _is_zero_possible(value: Dim) -> bool:
    low, high = bounds(value)
    return (low is None or low <= 0) and (high is None or high >= 0)
