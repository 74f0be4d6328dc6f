"""Canonical polynomials over symbols: their values at samples, their bounds, their text and their arithmetic."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NoReturn, TypeAlias
from weakref import WeakValueDictionary

from irscope.budget import spend
from irscope.errors import UsageError

# Values of formulas at a few bindings of their symbols: cheap evidence that a proof is not worth looking for.

Point: TypeAlias = "dict[Atom, int]"
Factored: TypeAlias = "Iterable[tuple[tuple[Atom, ...], int]]"

COMPUTE: dict[str, Callable[..., int]] = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}

NEAR, FAR = 1_000, 1_000_000
STEEP = 100_000
MAX_SYMBOLS = 6


def sample_points(symbols: Iterable[Atom]) -> list[Point]:
    """One corner of what is possible, then pairs of a near and a far point: all symbols together, and one by one."""
    ordered = sorted(symbols, key=_atom_rank)
    groups = [ordered, *([symbol] for symbol in ordered[:MAX_SYMBOLS] if len(ordered) > 1)]
    points = [_point(ordered, [], 0)]
    for group in groups:
        points += [_point(ordered, group, NEAR), _point(ordered, group, FAR)]
    return points


def _point(symbols: Sequence[Atom], moved: Sequence[Atom], distance: int) -> Point:
    return {symbol: _inside(symbol, distance if symbol in moved else 0) for symbol in symbols}


def _inside(symbol: Atom, distance: int) -> int:
    if symbol.lo is None:
        return (symbol.hi or 0) - distance
    return symbol.lo + distance if symbol.hi is None else min(symbol.lo + distance, symbol.hi)


def sample(terms: Factored, points: Iterable[Point]) -> tuple[int, ...] | None:
    """Return the values at some points; None where one of them divides by zero."""
    try:
        return tuple([evaluate(terms, point) for point in points])
    except ZeroDivisionError:
        return None


def evaluate(terms: Factored, point: Point) -> int:
    """Return the value at a binding of all symbols, which also remembers the operations met on the way."""
    total = 0
    for atoms, coeff in terms:
        for atom in atoms:
            value = point.get(atom)
            if value is None:
                value = point[atom] = COMPUTE[atom.kind](*[_evaluated(arg, point) for arg in atom.args])
            coeff *= value
        total += coeff
    return total


def _evaluated(dim: Dim, point: Point) -> int:
    return dim if isinstance(dim, int) else evaluate([(mono.atoms, coeff) for mono, coeff in dim.terms], point)


def falls(values: Sequence[int]) -> bool:
    """Return whether sampled values drop without end on the way to one of the far points."""
    return any(far < near - STEEP for near, far in zip(values[1::2], values[2::2], strict=True))


# Interval arithmetic for dimensions, and a small search that tightens the bounds of differences.

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
    """Return bounds of the product of two independent values."""
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
    """Return the smallest of some lower limits; None as soon as one of them is."""
    known = [limit for limit in limits if limit is not None]
    return min(known) if len(known) == len(limits) else None


def greatest(limits: list[int | None]) -> int | None:
    """Return the largest of some upper limits; None as soon as one of them is."""
    known = [limit for limit in limits if limit is not None]
    return max(known) if len(known) == len(limits) else None


def power_interval(a: Interval, exponent: int) -> Interval:
    """Return bounds of a value raised to a positive power."""
    lo, hi = a
    if lo is not None and lo >= 0:
        return lo**exponent, None if hi is None else hi**exponent
    if exponent % 2:
        return None if lo is None else lo**exponent, None if hi is None else hi**exponent
    smallest = hi**exponent if hi is not None and hi < 0 else 0
    return smallest, None if lo is None or hi is None else max(lo**exponent, hi**exponent)


def floordiv_interval(a: Interval, b: Interval) -> Interval:
    """Return bounds of a // b, leaving out b == 0, where there is no value."""
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
    """Return bounds of a % b, which has the sign of b."""
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
    """Return bounds of the largest of several values."""
    lows = [lo for lo, _ in parts if lo is not None]
    return max(lows) if lows else None, greatest([hi for _, hi in parts])


def min_interval(parts: list[Interval]) -> Interval:
    """Return bounds of the smallest of several values."""
    highs = [hi for _, hi in parts if hi is not None]
    return least([lo for lo, _ in parts]), min(highs) if highs else None


def negate(a: Interval) -> Interval:
    """Return bounds of -a."""
    return None if a[1] is None else -a[1], None if a[0] is None else -a[0]


def refine(poly: Raw, interval: Interval) -> Interval:
    """Tighten interval bounds where terms that rise and terms that fall depend on the same symbols, as in x - x//2."""
    if len(poly) > SEARCH_TERMS or not _tangled(poly):
        return interval
    values = sample(poly.items(), sample_points({leaf for mono in poly for atom in mono for leaf in atom.leaves or (atom,)}))
    mirrored = None if values is None else tuple(-value for value in values)
    return _raised(poly, interval[0], values), negate((_raised(_raw_scaled(poly, -1), negate(interval)[0], mirrored), None))[1]


def _raised(poly: Raw, lo: int | None, values: tuple[int, ...] | None) -> int | None:
    """Return the best lower limit that is found, unless values of the polynomial show that there is no better one."""
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
            cofactor, rest = _split_by_atom(poly, atom)
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
        low = self.lower(_raw_scaled(poly, -1))
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
        low = self.lower(_add_raw(_raw_product(cofactor, value), 0, rest if divisor == 1 else _raw_product(rest, scale)))
        if low is None or divisor == 1:
            return low
        smallest, largest = interval_of(divisor)
        if low > 0:
            return 1 if largest is None else -(-low // largest)
        return -(-low // (smallest or 1))


def _replacements(atom: Atom, sign: int) -> list[list[tuple[Raw, Dim]]]:
    """Return what may stand for an atom under a cofactor of this sign: every inner list is sound where its least result is taken."""
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
        return [(_add_raw(raw(over), 1, _raw_scaled(raw(under), -1)) if sign > 0 else raw(over), under)]
    if sign > 0:
        return []
    smallest = interval_of(over)[0]
    largest = (_add_raw(raw(under), -1), 1)
    return [largest] if smallest is None or smallest < 0 else [largest, (raw(over), 1)]


def _add_raw(poly: Raw, constant: int, *others: Raw) -> Raw:
    """Add a constant and other polynomials in place to a polynomial that is not shared."""
    _accumulate(poly, (), constant)
    for other in others:
        for mono, coeff in other.items():
            _accumulate(poly, mono, coeff)
    return poly


def interval_of(dim: Dim) -> Interval:
    """Return bounds of a dimension, symbolic or not."""
    return (dim, dim) if isinstance(dim, int) else dim.bounds


def raw(dim: Dim) -> Raw:
    """Return the terms of a dimension, in a dictionary of its own."""
    if isinstance(dim, int):
        return {(): dim} if dim else {}
    return {mono.atoms: coeff for mono, coeff in dim.terms}


def _raw_scaled(poly: Raw, scale: int) -> Raw:
    return {mono: coeff * scale for mono, coeff in poly.items()}


def _accumulate(poly: Raw, mono: Factors, coeff: int) -> None:
    total = poly.get(mono, 0) + coeff
    if total:
        poly[mono] = total
    else:
        poly.pop(mono, None)


def _raw_product(a: Raw, b: Raw) -> Raw:
    result: Raw = {}
    for left, coeff in a.items():
        for right, other in b.items():
            mono = tuple(sorted(left + right, key=_atom_rank)) if left and right else left or right
            _accumulate(result, mono, coeff * other)
    return result


def _split_by_atom(poly: Raw, atom: Atom) -> tuple[Raw, Raw]:
    """Return a and B of poly = atom * A + B."""
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
    """Return bounds of a product of atoms; a repeated atom counts as a power of one value."""
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


# Formula text of symbolic dimensions, which irscope.ir.dims reads back.


def polynomial_text(terms: tuple[Term, ...]) -> str:
    """Formula text that Python evaluates to the right number: `2*batch*seq + 3*batch - 1`."""
    parts: list[str] = []
    for mono, coeff in terms:
        size = abs(coeff)
        sign = ("-" if coeff < 0 else "") if not parts else (" - " if coeff < 0 else " + ")
        if not mono.atoms:
            body = str(size)
        elif size == 1:
            # A leading minus would otherwise become part of the numerator.
            body = mono.factor if sign == "-" else mono.text
        else:
            body = f"{size}*{mono.factor}"
        parts.append(sign + body)
    return "".join(parts)


def atom_text(kind: Kind, name: str, args: tuple[Dim, ...]) -> str:
    """Return a symbol or an operation, as it reads alone."""
    if kind == "symbol":
        return name
    if kind == "unknown":
        return f"?{name}"
    if kind in ("max", "min"):
        return f"{kind}({', '.join(str(arg) for arg in args)})"
    return f"{_factor_text(args[0])}{'//' if kind == 'floordiv' else '%'}{_factor_text(args[1])}"


def _factor_text(dim: Dim) -> str:
    if isinstance(dim, int):
        return str(dim) if dim >= 0 else f"({dim})"
    mono, coeff = dim.terms[0]
    if len(dim.terms) == 1 and coeff == 1 and (len(mono.atoms) == 1 or mono.atoms[0] is mono.atoms[-1]):
        return mono.factor
    return f"({dim})"


def monomial_text(atoms: tuple[Atom, ...]) -> str:
    """Return a product of sorted atoms: `batch*(seq//2)**2`."""
    parts: list[str] = []
    at = 0
    while at < len(atoms):
        count = 1
        while at + count < len(atoms) and atoms[at + count] is atoms[at]:
            count += 1
        parts.append(atoms[at].factor if count == 1 else f"{atoms[at].factor}**{count}")
        at += count
    return "*".join(parts)


# Symbolic dimensions: interned integer polynomials over symbols, floor divisions, remainders, maxima and minima.

Dim: TypeAlias = "int | SymDim"
"""A size: a number, or a formula over symbols."""

Kind: TypeAlias = Literal["symbol", "unknown", "floordiv", "mod", "max", "min"]
Term: TypeAlias = "tuple[Monomial, int]"

MAX_TERMS = 1_000
MAX_DEGREE = 64
MAX_DEPTH = 60
MAX_LENGTH = 9_000
MAX_COEFFICIENT_BITS = 4_000
MAX_PRODUCT_TERMS = 20_000
HUGE = 2**1_000
_FORMULA = "a formula of sizes"

# Reentrant, because the collector may run somebody's finaliser in the middle of an insertion.
_LOCK = threading.RLock()


class Atom:
    """An indeterminate of polynomials: a symbol, or an operation that is no polynomial. Interned."""

    __slots__ = (
        "__weakref__",
        "args",
        "depth",
        "factor",
        "hi",
        "is_unknown",
        "kind",
        "leaves",
        "lo",
        "name",
        "names",
        "rank",
        "rising",
        "text",
    )

    def __init__(self, kind: Kind, name: str, args: tuple[Dim, ...], bounds: Interval, serial: int) -> None:
        self.kind = kind
        self.name = name
        self.args = args
        self.lo, self.hi = bounds
        self.text = atom_text(kind, name, args)
        self.factor = f"({self.text})" if kind in ("floordiv", "mod") else self.text
        self.rank = (self.text, serial)
        """Sort key; the serial number only matters between symbols of one name with different bounds."""
        self.leaves: frozenset[Atom] = frozenset()
        """The symbols inside of an operation; a symbol itself has none, as it would keep itself alive."""
        self.is_unknown = kind == "unknown"
        self.rising = kind != "mod" and not (kind == "floordiv" and isinstance(args[1], SymDim))
        """True where it never falls as one of its symbols grows."""
        self.depth = 1
        for arg in args:
            if isinstance(arg, SymDim):
                self.leaves |= arg.leaves
                self.is_unknown = self.is_unknown or arg.is_unknown
                self.rising = self.rising and arg.rising
                self.depth = max(self.depth, 1 + arg.depth)
        self.names = frozenset([leaf.text for leaf in self.leaves]) if args else frozenset((self.text,))

    def __repr__(self) -> str:
        return f"Atom({self.text})"

    def __copy__(self) -> Atom:
        return self

    def __deepcopy__(self, memo: object) -> Atom:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return intern_atom, (self.kind, self.name, self.args, (self.lo, self.hi))


class Monomial:
    """A product of atoms, sorted. Interned."""

    __slots__ = ("__weakref__", "atoms", "depth", "factor", "hi", "is_unknown", "lo", "order", "rising", "text")

    def __init__(self, atoms: tuple[Atom, ...]) -> None:
        self.atoms = atoms
        self.order = (-len(atoms), tuple([atom.rank for atom in atoms]))
        if len(atoms) == 1:
            atom = atoms[0]
            self.lo, self.hi = atom.lo, atom.hi
            self.text, self.factor = atom.text, atom.factor
            self.depth, self.is_unknown, self.rising = atom.depth, atom.is_unknown, atom.rising
            return
        self.lo, self.hi = monomial_interval(atoms)
        self.text = self.factor = monomial_text(atoms)
        self.depth = max((atom.depth for atom in atoms), default=0)
        self.is_unknown = any(atom.is_unknown for atom in atoms)
        self.rising = all(atom.rising and atom.lo is not None and atom.lo >= 0 for atom in atoms)

    def __repr__(self) -> str:
        return f"Monomial({self.text})"


_ATOMS: WeakValueDictionary[tuple[object, ...], Atom] = WeakValueDictionary()
_MONOMIALS: WeakValueDictionary[tuple[Atom, ...], Monomial] = WeakValueDictionary()
_POLYNOMIALS: WeakValueDictionary[tuple[Term, ...], SymDim] = WeakValueDictionary()
_SERIALS = iter(range(2**63))


class SymDim:
    """A size that is not a plain number: a canonical integer polynomial with proven bounds.

    Equal formulas are one object, so `==` compares identity and is always True or False. Ordering and truth need the
    functions of irscope.ir.dims, which may answer that it is undecidable.
    """

    __slots__ = ("__weakref__", "_bounds", "_text", "_tight", "depth", "is_unknown", "terms")

    terms: tuple[Term, ...]
    is_unknown: bool
    """True where it mentions a data-dependent size."""
    depth: int
    _bounds: Interval
    _tight: bool
    _text: str | None

    @property
    def bounds(self) -> Interval:
        """Smallest and largest possible value, both included; None where there is no limit."""
        if not self._tight:
            # Most intermediate results are never asked, and this is the expensive part.
            self._bounds = refine({mono.atoms: coeff for mono, coeff in self.terms}, self._bounds)
            self._tight = True
        return self._bounds

    @property
    def lo(self) -> int | None:
        """The smallest possible value; None where there is no limit."""
        return self.bounds[0]

    @property
    def hi(self) -> int | None:
        """The largest possible value; None where there is no limit."""
        return self.bounds[1]

    def __add__(self, other: Dim) -> Dim:
        if not isinstance(other, SymDim):
            number = _as_integer(other)
            return NotImplemented if number is None else _add_number(self.terms, number)
        total = dict(self.terms)
        for mono, coeff in other.terms:
            total[mono] = total.get(mono, 0) + coeff
        return from_terms(total)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return intern_terms(tuple([(mono, -coeff) for mono, coeff in self.terms]))

    def __pos__(self) -> Dim:
        return self

    def __sub__(self, other: Dim) -> Dim:
        if not isinstance(other, SymDim):
            number = _as_integer(other)
            return NotImplemented if number is None else _add_number(self.terms, -number)
        if other is self:
            return 0
        total = dict(self.terms)
        for mono, coeff in other.terms:
            total[mono] = total.get(mono, 0) - coeff
        return from_terms(total)

    def __rsub__(self, other: Dim) -> Dim:
        number = _as_integer(other)
        return NotImplemented if number is None else -self + number

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, SymDim):
            return _multiply(self, other)
        number = _as_integer(other)
        if number is None:
            return NotImplemented
        if number == 0 or number == 1:
            return self if number else 0
        return intern_terms(tuple([(mono, coeff * number) for mono, coeff in self.terms]))

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Dim:
        number = _as_integer(exponent)
        if number is None:
            return NotImplemented
        if not 0 <= number <= MAX_DEGREE:
            raise UsageError(f"a dimension can only be raised to a power from 0 to {MAX_DEGREE}, not {number}", code="IRS622")
        result: Dim = 1
        for _ in range(number):
            result = self * result
        return result

    def __floordiv__(self, other: Dim) -> Dim:
        return _DIVISION["//"](self, other) if isinstance(other, SymDim) or _as_integer(other) is not None else NotImplemented

    def __rfloordiv__(self, other: Dim) -> Dim:
        return NotImplemented if _as_integer(other) is None else _DIVISION["//"](other, self)

    def __mod__(self, other: Dim) -> Dim:
        return _DIVISION["%"](self, other) if isinstance(other, SymDim) or _as_integer(other) is not None else NotImplemented

    def __rmod__(self, other: Dim) -> Dim:
        return NotImplemented if _as_integer(other) is None else _DIVISION["%"](other, self)

    def __bool__(self) -> NoReturn:
        raise TypeError(f"whether {self} is zero cannot be known; ask dims.equal(size, 0), which may answer None")

    def __lt__(self, other: object) -> NoReturn:
        raise TypeError(f"{self} has no fixed order; use dims.less or dims.less_equal, which may answer None, or dims.dim_max")

    __le__ = __gt__ = __ge__ = __lt__

    def __str__(self) -> str:
        if self._text is None:
            self._text = polynomial_text(self.terms)
        return self._text

    def __repr__(self) -> str:
        return f"SymDim({self})"

    def __copy__(self) -> SymDim:
        return self

    def __deepcopy__(self, memo: object) -> SymDim:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (tuple((mono.atoms, coeff) for mono, coeff in self.terms),)

    @property
    def rising(self) -> bool:
        """Return whether it certainly never falls where one of its symbols grows."""
        return all(coeff > 0 and mono.rising for mono, coeff in self.terms if mono is not ONE)

    @property
    def leaves(self) -> frozenset[Atom]:
        """The symbols it depends on, also inside of operations."""
        return frozenset([leaf for mono, _ in self.terms for atom in mono.atoms for leaf in atom.leaves or (atom,)])

    @property
    def names(self) -> frozenset[str]:
        """Names of the symbols it depends on, unknown ones with their question mark."""
        return frozenset([leaf.text for leaf in self.leaves])

    def symbol_names(self) -> tuple[str, ...]:
        """Return names of the symbols it mentions, sorted; unknown ones with their question mark."""
        return tuple(sorted(self.names))

    def symbols(self) -> tuple[SymDim, ...]:
        """Return the symbols it mentions, sorted by name."""
        return tuple(atom_dim(atom) for atom in sorted(self.leaves, key=_atom_rank))


_DIVISION: dict[str, Callable[[Dim, Dim], Dim]] = {}


def define_division(floordiv: Callable[[Dim, Dim], Dim], mod: Callable[[Dim, Dim], Dim]) -> None:
    """Define `//` and `%` of sizes. The rules of division need everything above: their module calls this when it is imported."""
    _DIVISION.update({"//": floordiv, "%": mod})


def _as_integer(value: object) -> int | None:
    """Return an integer from anything that is one (bool, numpy integers); None for other types."""
    if type(value) is int:
        return value
    if isinstance(value, SymDim):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def as_dim(value: Dim) -> Dim:
    """Return a Dim from an int, a bool, a numpy integer or a SymDim; TypeError for anything else."""
    return value if type(value) is int or isinstance(value, SymDim) else operator.index(value)


def intern_atom(kind: Kind, name: str, args: tuple[Dim, ...], bounds: Interval) -> Atom:
    """Return the symbol or operation with this name or these arguments."""
    key = (kind, args) if args else (kind, name, *bounds)
    atom = _ATOMS.get(key)
    if atom is None:
        made = Atom(kind, name, args, bounds, next(_SERIALS))
        with _LOCK:
            atom = _ATOMS.setdefault(key, made)
    return atom


def known_atom(kind: Kind, args: tuple[Dim, ...]) -> Atom | None:
    """Return the operation on these arguments, if it is in use already."""
    return _ATOMS.get((kind, args))


def atom_dim(atom: Atom) -> SymDim:
    """Return the polynomial that is just this atom."""
    result = intern_terms(((monomial((atom,)), 1),))
    assert isinstance(result, SymDim)
    return result


def monomial(atoms: tuple[Atom, ...]) -> Monomial:
    """Return the interned product of sorted atoms."""
    found = _MONOMIALS.get(atoms)
    if found is None:
        made = Monomial(atoms)
        with _LOCK:
            found = _MONOMIALS.setdefault(atoms, made)
    return found


ONE = monomial(())


def monomial_product(a: Monomial, b: Monomial) -> Monomial:
    """Return the product of two monomials."""
    if a is ONE:
        return b
    if b is ONE:
        return a
    return monomial(tuple(sorted(a.atoms + b.atoms, key=_atom_rank)))


def from_terms(terms: dict[Monomial, int]) -> Dim:
    """Return the polynomial with these coefficients, some of which may be zero."""
    kept = [term for term in terms.items() if term[1]]
    if len(kept) > 1:
        kept.sort(key=_term_order)
    return intern_terms(tuple(kept))


def intern_terms(terms: tuple[Term, ...]) -> Dim:
    """Return the polynomial with these sorted terms and no zero coefficient; a number where only a constant is left."""
    dim = _POLYNOMIALS.get(terms)
    if dim is not None:
        return dim
    if not terms:
        return 0
    if terms[0][0] is ONE:
        return terms[0][1]
    made = _create(terms)
    if made.terms is not terms:
        return made
    with _LOCK:
        return _POLYNOMIALS.setdefault(terms, made)


def _create(terms: tuple[Term, ...]) -> SymDim:
    spend(4 + len(terms), _FORMULA)
    lo: int | None = 0
    hi: int | None = 0
    rising = falling = is_unknown = False
    depth = length = 0
    for mono, coeff in terms:
        if coeff > 0:
            low, high = mono.lo, mono.hi
        else:
            low, high = mono.hi, mono.lo
        lo = None if lo is None or low is None else lo + coeff * low
        hi = None if hi is None or high is None else hi + coeff * high
        if mono is not ONE:
            rising = rising or coeff > 0 or not mono.rising
            falling = falling or coeff < 0 or not mono.rising
        depth = max(depth, mono.depth)
        is_unknown = is_unknown or mono.is_unknown
        length += len(mono.factor) + 5 + coeff.bit_length() // 3
    if length > MAX_LENGTH or depth > MAX_DEPTH or _too_large(terms):
        return collapsed("sum", [f"{coeff:x}*{mono.text}" for mono, coeff in terms], (lo, hi))
    made = object.__new__(SymDim)
    made.terms = terms
    made._bounds = (lo, hi)
    made._tight = not (rising and falling)
    made.is_unknown = is_unknown
    made.depth = depth
    made._text = None
    return made


def _too_large(terms: tuple[Term, ...]) -> bool:
    too_many = len(terms) > MAX_TERMS or len(terms[0][0].atoms) > MAX_DEGREE
    return too_many or any(coeff.bit_length() > MAX_COEFFICIENT_BITS for _, coeff in terms)


def collapsed(what: str, texts: Iterable[str], bounds: Interval) -> SymDim:
    """An unknown size in place of a formula too large to keep; the same formula always gets the same name."""
    # Formulas this large are rare, and most runs need no hashing at all.
    from hashlib import blake2b

    digest = blake2b("\n".join((what, *texts)).encode(), digest_size=8).hexdigest()
    lo, hi = bounds
    # Weaker limits, or the digits of repeated squares would outgrow the formula that was given up.
    lo = None if lo is None or lo < -HUGE else min(lo, HUGE)
    hi = None if hi is None or hi > HUGE else max(hi, -HUGE)
    return atom_dim(intern_atom("unknown", f"large_{digest}", (), (lo, hi)))


def _add_number(terms: tuple[Term, ...], number: int) -> Dim:
    if terms[-1][0] is ONE:
        number += terms[-1][1]
        terms = terms[:-1]
    return intern_terms((*terms, (ONE, number)) if number else terms)


def _multiply(a: SymDim, b: SymDim) -> Dim:
    few, many = (a, b) if len(a.terms) <= len(b.terms) else (b, a)
    if len(few.terms) == 1:
        # Multiplying by a monomial keeps the order of the terms.
        factor, scale = few.terms[0]
        return intern_terms(tuple([(monomial_product(factor, mono), scale * coeff) for mono, coeff in many.terms]))
    if len(few.terms) * len(many.terms) > MAX_PRODUCT_TERMS:
        return collapsed("product", sorted((str(a), str(b))), product_interval(a.bounds, b.bounds))
    total: dict[Monomial, int] = {}
    spend(2 * len(few.terms) * len(many.terms), _FORMULA)
    for left, scale in few.terms:
        for right, coeff in many.terms:
            mono = monomial_product(left, right)
            total[mono] = total.get(mono, 0) + scale * coeff
    return from_terms(total)


def _restore(terms: tuple[tuple[tuple[Atom, ...], int], ...]) -> Dim:
    return from_terms({monomial(tuple(sorted(atoms, key=_atom_rank))): coeff for atoms, coeff in terms})


def _atom_rank(atom: Atom) -> tuple[str, int]:
    return atom.rank


def _term_order(term: Term) -> tuple[int, tuple[tuple[str, int], ...]]:
    return term[0].order
