"""Floating-point numbers that are made of sizes: whole numbers and quotients of formulas, as shape arithmetic in floats has them.

A float of p bits holds whole numbers up to 2^p and their quotients by powers of two as they are. Any other quotient of two such
numbers is the float nearest to it. Rounded down or up to a whole number that is right all the same: between x = n/d and the next
whole number lie at least 1/d, half a unit in the last place of x is at most x * 2^-p, and that is less for n up to 2^p. What is
computed from a rounded number is not known, except its product with a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final, NoReturn

from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim, bounds, ceildiv, dim_max, dim_min, equal, exact_div, floordiv, less, less_equal
from irscope.ir.dtypes import DType

PRECISION: Final = {DType.F64: 53, DType.F32: 24, DType.F16: 11, DType.BF16: 8}
"""Bits of the significand, the hidden one included (IEEE 754; bfloat16 is the upper half of a 32-bit float)."""
_LEAST_LIMIT: Final = 1 << 16
"""A size may be taken to stay below a limit only where that is one that no axis reaches in practice; above it nothing is assumed."""
_BEYOND_MEMORY: Final = 1 << 48
"""Upper bound of every size: 48 bits are the addresses of a process."""
_MOST_LIMITS: Final = 8
_MOST_FACTORS: Final = 2
"""Nor is a product of more sizes than those of an image taken to stay below it."""

Limits = frozenset[tuple[SymDim, int]]


@immutable
class Real:
    """One float made of sizes: `over / under`, exactly or the nearest float; not known where `under` is 0."""

    over: Dim
    under: Dim = 1
    limits: Limits = frozenset()
    """Formulas with what they are at most where the number is right; only those whose bounds do not tell it."""

    @property
    def is_known(self) -> bool:
        """Return whether the number is a formula, not just something that depends on sizes."""
        return isinstance(self.under, SymDim) or self.under != 0

    @property
    def is_exact(self) -> bool:
        """Return whether the float is the quotient itself."""
        return not isinstance(self.under, SymDim) and self.under > 0 and self.under & (self.under - 1) == 0

    @property
    def is_whole(self) -> bool:
        return not isinstance(self.under, SymDim) and self.under == 1

    @property
    def sizes(self) -> tuple[SymDim, ...]:
        """The formulas it is made of."""
        found = (self.over, self.under, *(dim for dim, _ in self.limits))
        return tuple(dict.fromkeys(dim for dim in found if isinstance(dim, SymDim)))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"whether {self} is zero cannot be known")

    def __str__(self) -> str:
        return "?" if not self.is_known else str(self.over) if self.is_whole else f"({self.over})/({self.under})"


def not_known(*parts: Real) -> Real:
    """Return a number of which only that is known what it depends on."""
    symbols = sorted({symbol for part in parts for dim in part.sizes for symbol in dim.symbols()}, key=str)
    return Real(0, 0, frozenset((symbol, 0) for symbol in symbols[:_MOST_LIMITS]))


def real_of(item: object, bits: int) -> Real:
    """Return an element of a tensor as such a number in a float of so many bits."""
    if isinstance(item, Real):
        return item
    if isinstance(item, SymDim):
        return _made(item, 1, frozenset(), bits)
    number = float(item) if not isinstance(item, int) else int(item)  # type: ignore[arg-type]  # numbers are left
    if isinstance(number, float) and not math.isfinite(number):
        return Real(0, 0)
    exact = Fraction(number)
    return Real(exact.numerator, exact.denominator)


def converted(item: object, source: int, bits: int) -> Real:
    """Return an element of a tensor whose floats have so many bits in a float of other precision."""
    real = real_of(item, bits)
    if not real.is_known or bits >= source:
        return real
    # A quotient rounded to 53 bits and again to 24 may differ from the one rounded once.
    return _made(real.over, real.under, real.limits, bits) if real.is_exact else not_known(real)


def _made(over: Dim, under: Dim, limits: Limits, bits: int) -> Real:
    """`over / under` in lowest terms, where `over` is a number that a float of so many bits holds."""
    if isinstance(under, SymDim) or under != 1:
        low, _ = bounds(under)
        if low is None or low <= 0:
            return not_known(Real(over, 1, limits), Real(under))
        whole = exact_div(over, under)
        if whole is not None:
            over, under = whole, 1
        elif not isinstance(under, SymDim):
            common = math.gcd(under, *(coeff for _, coeff in over.terms)) if isinstance(over, SymDim) else math.gcd(under, over)
            over, under = exact_div(over, common), under // common  # type: ignore[assignment]  # it divides both
    limit = 1 << bits
    low, high = bounds(over)
    if low is not None and high is not None and -limit <= low and high <= limit:
        return Real(over, under, limits)
    if not isinstance(over, SymDim) or (low is not None and low > limit) or (high is not None and high < -limit):
        return not_known(Real(over, under, limits))
    sensible = limit // max(abs(coeff) for _, coeff in over.terms)
    if sensible < _LEAST_LIMIT or len(limits) >= _MOST_LIMITS or any(len(mono.atoms) > _MOST_FACTORS for mono, _ in over.terms):
        return not_known(Real(over, under, limits))
    if sensible >= _BEYOND_MEMORY:
        return Real(over, under, limits)
    implied = {one for one in limits if one[1] >= limit and low is not None and low >= 0 and less_equal(one[0], over) is True}
    return Real(over, under, (limits - implied) | {(over, limit)})


def _exactly(a: Real, b: Real) -> bool:
    return a.is_known and b.is_known and a.is_exact and b.is_exact


def add(a: Real, b: Real, bits: int) -> Real:
    """Return the sum."""
    if not _exactly(a, b):
        return not_known(a, b)
    return _made(a.over * b.under + b.over * a.under, a.under * b.under, a.limits | b.limits, bits)


def subtract(a: Real, b: Real, bits: int) -> Real:
    """Return the difference."""
    return add(a, negative(b, bits), bits)


def negative(a: Real, bits: int) -> Real:
    """Return the number with the other sign."""
    return Real(-a.over, a.under, a.limits)


def multiply(a: Real, b: Real, bits: int) -> Real:
    """Return the product; that of a rounded number only where the other is a power of two."""
    if _exactly(a, b):
        return _made(a.over * b.over, a.under * b.under, a.limits | b.limits, bits)
    for rounded, factor in ((a, b), (b, a)):
        if rounded.is_known and factor.is_known and _is_power_of_two(factor):
            return Real(rounded.over * factor.over, rounded.under * factor.under, rounded.limits | factor.limits)
    return not_known(a, b)


def _is_power_of_two(a: Real) -> bool:
    return a.is_exact and isinstance(a.over, int) and a.over > 0 and a.over & (a.over - 1) == 0


def divide(a: Real, b: Real, bits: int) -> Real:
    """Return the quotient, which is the nearest float where it is no whole number nor a short binary fraction."""
    if not _exactly(a, b):
        inverse = Real(b.under, b.over, b.limits) if b.is_known and _is_power_of_two(b) else None
        return not_known(a, b) if inverse is None or not a.is_known else multiply(a, inverse, bits)
    over, under = a.over * b.under, a.under * b.over
    if isinstance(under, int) and under < 0:
        over, under = -over, -under
    return _made(over, under, a.limits | b.limits, bits)


def largest(a: Real, b: Real, bits: int) -> Real:
    """Return the larger of two."""
    return _extreme(a, b, bits, dim_max)


def smallest(a: Real, b: Real, bits: int) -> Real:
    """Return the smaller of two."""
    return _extreme(a, b, bits, dim_min)


def _extreme(a: Real, b: Real, bits: int, chosen: Callable[[Dim, Dim], Dim]) -> Real:
    if not _exactly(a, b):
        return not_known(a, b)
    return _made(chosen(a.over * b.under, b.over * a.under), a.under * b.under, a.limits | b.limits, bits)


def absolute(a: Real, bits: int) -> Real:
    """Return the number without its sign."""
    return Real(dim_max(a.over, -a.over), a.under, a.limits)


def power(a: Real, b: Real, bits: int) -> Real:
    """Return a small whole power."""
    if not b.is_known or not b.is_whole or not isinstance(b.over, int) or not 1 <= b.over <= 4:
        return not_known(a, b)
    result = a
    for _ in range(b.over - 1):
        result = multiply(result, a, bits)
    return result


def floor(a: Real, bits: int) -> Real:
    """Rounded down."""
    return Real(floordiv(a.over, a.under), 1, a.limits) if a.is_known else a


def ceil(a: Real, bits: int) -> Real:
    """Rounded up."""
    return Real(ceildiv(a.over, a.under), 1, a.limits) if a.is_known else a


def trunc(a: Real, bits: int = 0) -> Real:
    """Rounded toward zero."""
    if not a.is_known or a.is_whole:
        return a
    # One of the two is 0, by the sign of the number.
    return Real(dim_max(floordiv(a.over, a.under), 0) + dim_min(ceildiv(a.over, a.under), 0), 1, a.limits)


def nearest(a: Real, bits: int) -> Real:
    """Rounded to the nearest whole number: known where no quotient lies halfway between two."""
    if not a.is_known or a.is_whole:
        return a
    if isinstance(a.under, SymDim) or a.under % 2 == 0:
        return not_known(a)
    return _made(floordiv(2 * a.over + a.under, 2 * a.under), 1, _made(2 * a.over, 1, a.limits, bits).limits, bits)


def is_less(a: Real, b: Real) -> bool | None:
    """Return whether it is smaller; None where that cannot be known."""
    return _compared(a, b, less)


def is_less_equal(a: Real, b: Real) -> bool | None:
    """Return whether it is smaller or equal."""
    return _compared(a, b, less_equal)


def is_equal(a: Real, b: Real) -> bool | None:
    """Return whether both are the same number."""
    return _compared(a, b, equal)


def _compared(a: Real, b: Real, decide: Callable[[Dim, Dim], bool | None]) -> bool | None:
    # Rounding keeps a quotient on its side of whole numbers, not of other quotients.
    if not a.is_known or not b.is_known or not (_exactly(a, b) or a.is_whole or b.is_whole):
        return None
    return decide(a.over * b.under, b.over * a.under)


def quotient(real: Real) -> float | None:
    """Return the number where it depends on no size."""
    return None if real.sizes or not real.is_known else float(Fraction(real.over, real.under))  # type: ignore[arg-type]  # numbers
