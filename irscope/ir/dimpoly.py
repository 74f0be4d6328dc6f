"""Symbolic dimensions: interned integer polynomials over symbols, floor divisions, remainders, maxima and minima."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable
from typing import Literal, NoReturn, TypeAlias
from weakref import WeakValueDictionary

from irscope.budget import spend
from irscope.errors import UsageError
from irscope.ir.dimbounds import (
    Interval,
    monomial_interval,
    product_interval,
    refine,
)
from irscope.ir.dimprint import atom_text, monomial_text, polynomial_text

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
    """What polynomials are made of: a symbol, or an operation that is no polynomial. Interned."""

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
        """Whether it never falls where one of its symbols grows."""
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
    """Whether it mentions a size that depends on the data."""
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
            number = _number(other)
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
            number = _number(other)
            return NotImplemented if number is None else _add_number(self.terms, -number)
        if other is self:
            return 0
        total = dict(self.terms)
        for mono, coeff in other.terms:
            total[mono] = total.get(mono, 0) - coeff
        return from_terms(total)

    def __rsub__(self, other: Dim) -> Dim:
        number = _number(other)
        return NotImplemented if number is None else -self + number

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, SymDim):
            return _multiply(self, other)
        number = _number(other)
        if number is None:
            return NotImplemented
        if number == 0 or number == 1:
            return self if number else 0
        return intern_terms(tuple([(mono, coeff * number) for mono, coeff in self.terms]))

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Dim:
        number = _number(exponent)
        if number is None:
            return NotImplemented
        if not 0 <= number <= MAX_DEGREE:
            raise UsageError(f"a dimension can only be raised to a power from 0 to {MAX_DEGREE}, not {number}", code="IRS622")
        result: Dim = 1
        for _ in range(number):
            result = self * result
        return result

    # The division rules live above this module, which they need for everything they build.
    def __floordiv__(self, other: Dim) -> Dim:
        from irscope.ir.dimdiv import floordiv

        return floordiv(self, other) if isinstance(other, SymDim) or _number(other) is not None else NotImplemented

    def __rfloordiv__(self, other: Dim) -> Dim:
        from irscope.ir.dimdiv import floordiv

        return NotImplemented if _number(other) is None else floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        from irscope.ir.dimdiv import mod

        return mod(self, other) if isinstance(other, SymDim) or _number(other) is not None else NotImplemented

    def __rmod__(self, other: Dim) -> Dim:
        from irscope.ir.dimdiv import mod

        return NotImplemented if _number(other) is None else mod(other, self)

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
        """Whether it certainly never falls where one of its symbols grows."""
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
        """Names of the symbols it mentions, sorted; unknown ones with their question mark."""
        return tuple(sorted(self.names))

    def symbols(self) -> tuple[SymDim, ...]:
        """The symbols it mentions, sorted by name."""
        return tuple(atom_dim(atom) for atom in sorted(self.leaves, key=_atom_rank))


def _number(value: object) -> int | None:
    """An integer from anything that is one (bool, numpy integers); None for other types."""
    if type(value) is int:
        return value
    if isinstance(value, SymDim):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def as_dim(value: Dim) -> Dim:
    """A Dim from an int, a bool, a numpy integer or a SymDim; TypeError for anything else."""
    return value if type(value) is int or isinstance(value, SymDim) else operator.index(value)


def intern_atom(kind: Kind, name: str, args: tuple[Dim, ...], bounds: Interval) -> Atom:
    """The symbol or operation with this name or these arguments."""
    key = (kind, args) if args else (kind, name, *bounds)
    found = _ATOMS.get(key)
    if found is None:
        made = Atom(kind, name, args, bounds, next(_SERIALS))
        with _LOCK:
            found = _ATOMS.setdefault(key, made)
    return found


def known_atom(kind: Kind, args: tuple[Dim, ...]) -> Atom | None:
    """The operation on these arguments, if it is in use already."""
    return _ATOMS.get((kind, args))


def atom_dim(atom: Atom) -> SymDim:
    """The polynomial that is just this atom."""
    result = intern_terms(((monomial((atom,)), 1),))
    assert isinstance(result, SymDim)
    return result


def monomial(atoms: tuple[Atom, ...]) -> Monomial:
    """The interned product of sorted atoms."""
    found = _MONOMIALS.get(atoms)
    if found is None:
        made = Monomial(atoms)
        with _LOCK:
            found = _MONOMIALS.setdefault(atoms, made)
    return found


ONE = monomial(())


def monomial_product(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials."""
    if a is ONE:
        return b
    if b is ONE:
        return a
    return monomial(tuple(sorted(a.atoms + b.atoms, key=_atom_rank)))


def from_terms(terms: dict[Monomial, int]) -> Dim:
    """The polynomial with these coefficients, some of which may be zero."""
    kept = [term for term in terms.items() if term[1]]
    if len(kept) > 1:
        kept.sort(key=_term_order)
    return intern_terms(tuple(kept))


def intern_terms(terms: tuple[Term, ...]) -> Dim:
    """The polynomial with these sorted terms and no zero coefficient; a number where only a constant is left."""
    found = _POLYNOMIALS.get(terms)
    if found is not None:
        return found
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
