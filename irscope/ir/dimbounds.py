"""Interval arithmetic for dimensions, and a small search that tightens the bounds of differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from irscope.budget import spend
from irscope.ir.dimsample import falls, sample, sample_points

if TYPE_CHECKING:
    from irscope.ir.dimpoly import Atom, Dim

Interval: TypeAlias = "tuple[int | None, int | None]"
"""Smallest and largest value, both included; None where there is no limit."""

Factors: TypeAlias = "tuple[Atom, ...]"
Raw: TypeAlias = "dict[Factors, int]"
"""A polynomial that is only looked at, never kept: coefficients by sorted atoms."""

SEARCH_WORK = 100
SEARCH_TERMS = 100


def times(a: int | None, b: int | None) -> int | None:
    """Product of two limits of the same direction; zero times no limit is zero."""
    if a is None or b is None:
        return 0 if a == 0 or b == 0 else None
    return a * b


def product_interval(a: Interval, b: Interval) -> Interval:
    """Bounds of the product of two independent values."""
    (alo, ahi), (blo, bhi) = a, b
    if alo is not None and alo >= 0 and blo is not None and blo >= 0:
        return alo * blo, times(ahi, bhi)
    a_positive, a_negative = ahi is None or ahi > 0, alo is None or alo < 0
    b_positive, b_negative = bhi is None or bhi > 0, blo is None or blo < 0
    highs: list[int | None] = [0] if _has_zero(a) or _has_zero(b) else []
    lows: list[int | None] = list(highs)
    if a_positive and b_positive:
        highs.append(times(ahi, bhi))
        lows.append(max(1, alo or 1) * max(1, blo or 1))
    if a_negative and b_negative:
        highs.append(times(alo, blo))
        lows.append(min(-1, ahi or -1) * min(-1, bhi or -1))
    if a_positive and b_negative:
        lows.append(times(ahi, blo))
        highs.append(max(1, alo or 1) * min(-1, bhi or -1))
    if a_negative and b_positive:
        lows.append(times(alo, bhi))
        highs.append(min(-1, ahi or -1) * max(1, blo or 1))
    return least(lows), greatest(highs)


def _has_zero(a: Interval) -> bool:
    return (a[0] is None or a[0] <= 0) and (a[1] is None or a[1] >= 0)


def least(limits: list[int | None]) -> int | None:
    """The smallest of some lower limits; None as soon as one of them is."""
    known = [limit for limit in limits if limit is not None]
    return min(known) if len(known) == len(limits) else None


def greatest(limits: list[int | None]) -> int | None:
    """The largest of some upper limits; None as soon as one of them is."""
    known = [limit for limit in limits if limit is not None]
    return max(known) if len(known) == len(limits) else None


def power_interval(a: Interval, exponent: int) -> Interval:
    """Bounds of a value raised to a positive power."""
    lo, hi = a
    if lo is not None and lo >= 0:
        return lo**exponent, None if hi is None else hi**exponent
    if exponent % 2:
        return None if lo is None else lo**exponent, None if hi is None else hi**exponent
    smallest = hi**exponent if hi is not None and hi < 0 else 0
    return smallest, None if lo is None or hi is None else max(lo**exponent, hi**exponent)


def floordiv_interval(a: Interval, b: Interval) -> Interval:
    """Bounds of a // b, leaving out b == 0, where there is no value."""
    lows: list[int | None] = []
    highs: list[int | None] = []
    if b[1] is None or b[1] > 0:
        low, high = _floordiv_positive(a, (max(1, b[0] or 1), b[1]))
        lows.append(low)
        highs.append(high)
    if b[0] is None or b[0] < 0:
        low, high = _floordiv_positive(negate(a), (max(1, -b[1]) if b[1] is not None else 1, None if b[0] is None else -b[0]))
        lows.append(low)
        highs.append(high)
    return (least(lows), greatest(highs)) if lows else (None, None)


def _floordiv_positive(a: Interval, b: tuple[int, int | None]) -> Interval:
    lo, hi = a
    small, large = b
    if lo is not None:
        lo = lo // small if lo < 0 else 0 if large is None else lo // large
    if hi is not None:
        hi = hi // small if hi >= 0 else -1 if large is None else hi // large
    return lo, hi


def mod_interval(a: Interval, b: Interval) -> Interval:
    """Bounds of a % b, which has the sign of b."""
    lo: int | None = 0
    hi: int | None = 0
    if b[1] is None or b[1] > 0:
        hi = None if b[1] is None else b[1] - 1
        if a[0] is not None and a[0] >= 0 and a[1] is not None and (hi is None or a[1] < hi):
            hi = a[1]
    if b[0] is None or b[0] < 0:
        lo = None if b[0] is None else b[0] + 1
    return lo, hi


def max_interval(parts: list[Interval]) -> Interval:
    """Bounds of the largest of several values."""
    lows = [lo for lo, _ in parts if lo is not None]
    return max(lows) if lows else None, greatest([hi for _, hi in parts])


def min_interval(parts: list[Interval]) -> Interval:
    """Bounds of the smallest of several values."""
    highs = [hi for _, hi in parts if hi is not None]
    return least([lo for lo, _ in parts]), min(highs) if highs else None


def negate(a: Interval) -> Interval:
    """Bounds of -a."""
    return None if a[1] is None else -a[1], None if a[0] is None else -a[0]


def refine(poly: Raw, found: Interval) -> Interval:
    """Tighten interval bounds where terms that rise and terms that fall depend on the same symbols, as in x - x//2."""
    if len(poly) > SEARCH_TERMS or not _tangled(poly):
        return found
    values = sample(poly.items(), sample_points({leaf for mono in poly for atom in mono for leaf in atom.leaves or (atom,)}))
    mirrored = None if values is None else tuple(-value for value in values)
    return _raised(poly, found[0], values), negate((_raised(_scaled(poly, -1), negate(found)[0], mirrored), None))[1]


def _raised(poly: Raw, lo: int | None, values: tuple[int, ...] | None) -> int | None:
    """The best lower limit that is found, unless values of the polynomial show that there is no better one."""
    if values is not None and (falls(values) if lo is None else lo == min(values)):
        return lo
    low = _Search().lower(poly)
    return low if lo is None else lo if low is None else max(lo, low)


class _Search:
    """Lower bounds by replacing one atom after another with something provably not larger; a fixed amount of work."""

    def __init__(self) -> None:
        self._work = SEARCH_WORK
        self._bounds: dict[Factors, Interval] = {}
        self._known: dict[frozenset[tuple[Factors, int]], int | None] = {}

    def lower(self, poly: Raw) -> int | None:
        """A value the polynomial never goes below, or None."""
        plain = self._interval(poly)[0]
        tangled = _tangled(poly)
        if not tangled or self._work <= 0:
            return plain
        key = frozenset(poly.items())
        if key not in self._known:
            self._known[key] = self._search(poly, tangled, plain)
        return self._known[key]

    def _search(self, poly: Raw, tangled: list[Atom], best: int | None) -> int | None:
        for atom in tangled:
            if self._work <= 0:
                break
            self._work -= len(poly)
            spend(10 * len(poly), "bounds of a formula of sizes")
            cofactor, rest = _split(poly, atom)
            sign = self._sign(cofactor)
            for alternatives in _replacements(atom, sign):
                limit = least([self._replaced(cofactor, rest, value, divisor) for value, divisor in alternatives])
                if limit is not None and (best is None or limit > best):
                    best = limit
            if sign and not atom.args and all(other is atom or other.names.isdisjoint(atom.names) for mono in poly for other in mono):
                # The polynomial is monotone in a symbol found nowhere else: no other order of steps does better.
                break
        return best

    def _sign(self, poly: Raw) -> int:
        lo, hi = self._interval(poly)
        if lo is not None and lo >= 0:
            return 1
        if hi is not None and hi <= 0:
            return -1
        low = self.lower(poly)
        if low is not None and low >= 0:
            return 1
        low = self.lower(_scaled(poly, -1))
        return -1 if low is not None and low >= 0 else 0

    def _interval(self, poly: Raw) -> Interval:
        lo: int | None = 0
        hi: int | None = 0
        for mono, coeff in poly.items():
            if mono not in self._bounds:
                self._bounds[mono] = monomial_interval(mono)
            low, high = self._bounds[mono]
            if coeff < 0:
                low, high = high, low
            lo = None if lo is None or low is None else lo + coeff * low
            hi = None if hi is None or high is None else hi + coeff * high
        return lo, hi

    def _replaced(self, cofactor: Raw, rest: Raw, value: Raw, divisor: Dim) -> int | None:
        """Lower bound of cofactor * value / divisor + rest, for a divisor of at least 1."""
        scale = raw(divisor)
        if len(cofactor) * len(value) + len(rest) * len(scale) > SEARCH_TERMS:
            return None
        low = self.lower(_sum(_product(cofactor, value), 0, rest if divisor == 1 else _product(rest, scale)))
        if low is None or divisor == 1:
            return low
        smallest, largest = interval_of(divisor)
        if low > 0:
            return 1 if largest is None else -(-low // largest)
        return -(-low // (smallest or 1))


def _replacements(atom: Atom, sign: int) -> list[list[tuple[Raw, Dim]]]:
    """What may stand for an atom under a cofactor of this sign: every inner list is sound where its least result is taken."""
    groups: list[list[tuple[Raw, Dim]]] = []
    ends: list[int | None] = [atom.lo] if sign > 0 else [atom.hi] if sign < 0 else [atom.lo, atom.hi]
    known = [end for end in ends if end is not None]
    if len(known) == len(ends):
        groups.append([(raw(end), 1) for end in known])
    if atom.kind in ("max", "min"):
        values: list[tuple[Raw, Dim]] = [(raw(arg), 1) for arg in atom.args]
        if sign and (sign > 0) == (atom.kind == "max"):
            groups.extend([value] for value in values)
        else:
            groups.append(values)
    elif atom.args and sign:
        groups.extend([pair] for pair in _division_replacements(atom, sign))
    return groups


def _division_replacements(atom: Atom, sign: int) -> list[tuple[Raw, Dim]]:
    """For b >= 1: a - b + 1 <= b * (a // b) <= a, and a % b is at most b - 1, and at most a where a >= 0."""
    over, under = atom.args
    if (interval_of(under)[0] or 0) < 1:
        return []
    if atom.kind == "floordiv":
        return [(_sum(raw(over), 1, _scaled(raw(under), -1)) if sign > 0 else raw(over), under)]
    if sign > 0:
        return []
    smallest = interval_of(over)[0]
    largest = (_sum(raw(under), -1), 1)
    return [largest] if smallest is None or smallest < 0 else [largest, (raw(over), 1)]


def _sum(poly: Raw, constant: int, *others: Raw) -> Raw:
    """Add a constant and other polynomials in place to a polynomial that is not shared."""
    _accumulate(poly, (), constant)
    for other in others:
        for mono, coeff in other.items():
            _accumulate(poly, mono, coeff)
    return poly


def interval_of(dim: Dim) -> Interval:
    """Bounds of a dimension, symbolic or not."""
    return (dim, dim) if isinstance(dim, int) else dim.bounds


def raw(dim: Dim) -> Raw:
    """The terms of a dimension, in a dictionary of its own."""
    if isinstance(dim, int):
        return {(): dim} if dim else {}
    return {mono.atoms: coeff for mono, coeff in dim.terms}


def _scaled(poly: Raw, scale: int) -> Raw:
    return {mono: coeff * scale for mono, coeff in poly.items()}


def _accumulate(poly: Raw, mono: Factors, coeff: int) -> None:
    total = poly.get(mono, 0) + coeff
    if total:
        poly[mono] = total
    else:
        poly.pop(mono, None)


def _product(a: Raw, b: Raw) -> Raw:
    result: Raw = {}
    for left, coeff in a.items():
        for right, other in b.items():
            mono = tuple(sorted(left + right, key=_rank)) if left and right else left or right
            _accumulate(result, mono, coeff * other)
    return result


def _rank(atom: Atom) -> tuple[str, int]:
    return atom.rank


def _split(poly: Raw, atom: Atom) -> tuple[Raw, Raw]:
    """A and B of poly = atom * A + B."""
    cofactor: Raw = {}
    rest: Raw = {}
    for mono, coeff in poly.items():
        if atom in mono:
            at = mono.index(atom)
            cofactor[mono[:at] + mono[at + 1 :]] = coeff
        else:
            rest[mono] = coeff
    return cofactor, rest


def monomial_interval(atoms: Factors) -> Interval:
    """Bounds of a product of atoms; a repeated atom counts as a power of one value."""
    if len(atoms) == 1:
        return atoms[0].lo, atoms[0].hi
    result: Interval = (1, 1)
    at = 0
    while at < len(atoms):
        atom = atoms[at]
        count = 1
        while at + count < len(atoms) and atoms[at + count] is atom:
            count += 1
        bounds: Interval = (atom.lo, atom.hi)
        result = product_interval(result, bounds if count == 1 else power_interval(bounds, count))
        at += count
    return result


def _tangled(poly: Raw) -> list[Atom]:
    """Atoms over symbols that pull the value up in one term and down in another."""
    rising: set[str] = set()
    falling: set[str] = set()
    repeated: set[str] = set()
    for mono, coeff in poly.items():
        for atom in mono:
            repeated |= atom.names & (rising | falling)
            if coeff > 0 or not atom.rising:
                rising |= atom.names
            if coeff < 0 or not atom.rising:
                falling |= atom.names
    shared = rising & falling & repeated
    if not shared:
        return []
    return list(dict.fromkeys(atom for mono in poly for atom in mono if not shared.isdisjoint(atom.names)))
