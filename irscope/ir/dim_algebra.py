"""Division, rounding and comparison of symbolic sizes: what is done beyond adding and multiplying."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from irscope.errors import UsageError
from irscope.ir.dim_poly import (
    ONE,
    Atom,
    Dim,
    Interval,
    Kind,
    Monomial,
    SymDim,
    Term,
    as_dim,
    atom_dim,
    collapsed,
    define_division,
    floordiv_interval,
    from_terms,
    intern_atom,
    intern_terms,
    interval_of,
    known_atom,
    max_interval,
    min_interval,
    mod_interval,
    monomial,
    monomial_product,
    raw,
    sample,
    sample_points,
)

# Making what polynomials consist of: symbols, and operations whose bounds follow from their arguments.

MAX_NAME_LENGTH = 200

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def symbol(name: str, lo: int | None = 1, hi: int | None = None) -> SymDim:
    """Return a named size such as the batch; at least 1 unless told otherwise."""
    return _leaf("symbol", name, lo, hi)


def unknown(name: str, lo: int | None = 0, hi: int | None = None) -> SymDim:
    """Return a size that depends on the data, printed with a question mark in front."""
    return _leaf("unknown", name.removeprefix("?"), lo, hi)


def _leaf(kind: Kind, name: str, lo: int | None, hi: int | None) -> SymDim:
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        hint = f"a name starts with a letter or underscore and goes on with letters, digits, _ and ., up to {MAX_NAME_LENGTH}"
        raise UsageError(f"{name[:MAX_NAME_LENGTH]!r} cannot name a dimension", code="IRS621", hint=hint)
    if lo is not None and hi is not None and lo > hi:
        raise UsageError(f"the dimension {name} has no possible size: at least {lo} and at most {hi}", code="IRS620")
    return atom_dim(intern_atom(kind, name, (), (lo, hi)))


def known_operation(kind: Kind, args: tuple[Dim, ...]) -> SymDim | None:
    """Return the operation if it exists already, which proves that it cannot be simplified."""
    atom = known_atom(kind, args)
    return None if atom is None else atom_dim(atom)


def operation(kind: Kind, args: tuple[Dim, ...]) -> Dim:
    """Return an operation on arguments that are already as simple as they get; a number where its bounds leave just one."""
    intervals = [interval_of(arg) for arg in args]
    if kind == "floordiv":
        bounds = floordiv_interval(*intervals)
    elif kind == "mod":
        bounds = mod_interval(*intervals)
    else:
        bounds = max_interval(intervals) if kind == "max" else min_interval(intervals)
    if bounds[0] is not None and bounds[0] == bounds[1]:
        return bounds[0]
    return atom_dim(intern_atom(kind, "", args, bounds))


def lone_atom(dim: Dim) -> Atom | None:
    """Return the atom a polynomial consists of, if it is just one."""
    if isinstance(dim, SymDim) and len(dim.terms) == 1:
        mono, coeff = dim.terms[0]
        if coeff == 1 and len(mono.atoms) == 1:
            return mono.atoms[0]
    return None


# Division of symbolic dimensions: floor division, remainder, exact quotients.

MAX_DIVISION_STEPS = 2_000


def floordiv(a: Dim, b: Dim) -> Dim:
    """a // b, rounding down as Python does. Simplified as if b were never zero, where division has no value."""
    if type(a) is int and type(b) is int and b:
        return a // b
    a, b = _with_positive_lead(as_dim(a), as_dim(b))
    if isinstance(b, int):
        return _floordiv_by_int(a, b)
    return _floordiv_by_formula(a, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """a / b rounded up."""
    if type(a) is int and type(b) is int and b:
        return -(-a // b)
    a, b = _with_positive_lead(as_dim(a), as_dim(b))
    if _is_positive(b):
        return floordiv(a + b - 1, b)
    return -floordiv(-a, b)


def mod(a: Dim, b: Dim) -> Dim:
    """a % b with the sign of b, as Python does. Simplified as if b were never zero."""
    if type(a) is int and type(b) is int and b:
        return a % b
    a, b = as_dim(a), as_dim(b)
    if _leads_negative(b):
        return -_mod(-a, -b)
    return _mod(a, b)


define_division(floordiv, mod)


def exact_div(a: Dim, b: Dim) -> Dim | None:
    """a / b where b divides a whatever the symbols are, else None."""
    if type(a) is int and type(b) is int:
        return a // b if b and a % b == 0 else None
    a, b = _with_positive_lead(as_dim(a), as_dim(b))
    if isinstance(b, int) and b == 0:
        return None
    quotient, rest = divide(a, b)
    if isinstance(rest, int):
        return quotient if rest == 0 else None
    if has_mods(a):
        quotient, rest = divide(expand_mods(a), b)
    return quotient if _is_zero(rest) else None


def divide(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Quotient and rest of the division of polynomials, a == b * quotient + rest; b leads with a positive coefficient."""
    if isinstance(a, int):
        return divmod(a, b) if isinstance(b, int) else (0, a)
    if isinstance(b, int):
        parts = [(mono, *divmod(coeff, b)) for mono, coeff in a.terms]
        quotient = intern_terms(tuple([(mono, count) for mono, count, _ in parts if count]))
        return quotient, intern_terms(tuple([(mono, left) for mono, _, left in parts if left]))
    if len(b.terms) == 1:
        return _divide_by_term(a, *b.terms[0])
    return _long_division(a, b)


def _divide_by_term(a: SymDim, divisor: Monomial, scale: int) -> tuple[Dim, Dim]:
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for mono, coeff in a.terms:
        part = _monomial_quotient(mono, divisor)
        if part is None:
            rest[mono] = coeff
        else:
            quotient[part], rest[mono] = divmod(coeff, scale)
    return from_terms(quotient), from_terms(rest)


def _long_division(a: SymDim, b: SymDim) -> tuple[Dim, Dim]:
    (lead, scale), *tail = b.terms
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    work = dict(a.terms)
    for _ in range(MAX_DIVISION_STEPS):
        if not work:
            return from_terms(quotient), from_terms(rest)
        mono = min(work, key=_monomial_order)
        coeff = work.pop(mono)
        part = _monomial_quotient(mono, lead)
        if part is None:
            rest[mono] = coeff
            continue
        count, rest[mono] = divmod(coeff, scale)
        if count:
            quotient[part] = count
            for other, factor in tail:
                product = monomial_product(part, other)
                work[product] = work.get(product, 0) - count * factor
    return 0, a


def _monomial_order(mono: Monomial) -> tuple[int, tuple[tuple[str, int], ...]]:
    return mono.order


def _monomial_quotient(a: Monomial, b: Monomial) -> Monomial | None:
    if a is b:
        return ONE
    if len(a.atoms) < len(b.atoms):
        return None
    atoms = list(a.atoms)
    for atom in b.atoms:
        if atom not in atoms:
            return None
        atoms.remove(atom)
    return monomial(tuple(atoms))


def _floordiv_by_int(a: Dim, b: int) -> Dim:
    if b == 0:
        raise UsageError(f"the dimension {a} is divided by zero", code="IRS622")
    whole, rest = divide(a, b)
    if isinstance(rest, int):
        return whole
    known = known_operation("floordiv", (rest, b))
    if known is not None:
        return whole + known
    coarse = _coarser(rest, b)
    if coarse is not None:
        return whole + floordiv(coarse[0], coarse[1])
    inner = _inner_floordiv(rest)
    if inner is not None:
        return whole + floordiv(inner.args[0] + inner.args[1] * (rest - atom_dim(inner)), inner.args[1] * b)
    constant = _constant_quotient(rest, b)
    return whole + (operation("floordiv", (rest, b)) if constant is None else constant)


def _floordiv_by_formula(a: Dim, b: Dim) -> Dim:
    total: Dim = 0
    while isinstance(b, SymDim):
        known = known_operation("floordiv", (a, b))
        if known is not None:
            return total + known
        _, a, b = _without_common_factor(a, b)
        if isinstance(b, int):
            break
        a, b = _without_common_number(a, b)
        quotient, rest = divide(a, b)
        if _is_zero(rest):
            return total + quotient
        constant = _constant_quotient(rest, b)
        if constant is not None:
            return total + quotient + constant
        if _is_single_term(b) and not _is_zero(quotient):
            total, a = total + quotient, rest
            continue
        constant = _constant_quotient(a, b)
        if constant is not None:
            return total + constant
        inner = lone_atom(a)
        if inner is None or inner.kind != "floordiv" or not _is_positive(b):
            return total + operation("floordiv", (a, b))
        a, b = inner.args[0], inner.args[1] * b
    return total + floordiv(a, b)


def _mod(a: Dim, b: Dim) -> Dim:
    """Remainder by a divisor that leads with a positive coefficient."""
    if isinstance(b, int) and b == 0:
        raise UsageError(f"the dimension {a} is divided by zero", code="IRS622")
    known = known_operation("mod", (a, b))
    if known is not None:
        return known
    if has_mods(a):
        # Before remainders are replaced one by one, which would hide that b divides them all together.
        if _is_zero(divide(a, b)[1]):
            return 0
        a = _without_inner_mods(a, b)
    return _mod_by_int(a, b) if isinstance(b, int) else _mod_by_formula(a, b)


def _mod_by_int(a: Dim, b: int) -> Dim:
    a = divide(a, b)[1]
    if isinstance(a, int):
        return a
    coarse = _coarser(a, b)
    if coarse is not None:
        over, under, offset = coarse
        return b // under * _mod(over, under) + offset
    return _settled_mod(a, b)


def _mod_by_formula(a: Dim, b: SymDim) -> Dim:
    common, over, under = _without_common_factor(a, b)
    if not (isinstance(common, int) and common == 1):
        return common * _mod(over, under)
    quotient, rest = divide(a, b)
    if _is_zero(rest):
        return 0
    constant = _constant_quotient(rest, b)
    if constant is not None:
        return rest - constant * b
    return _mod(rest, b) if _is_single_term(b) and not _is_zero(quotient) else _settled_mod(a, b)


def _settled_mod(a: Dim, b: Dim) -> Dim:
    constant = _constant_quotient(a, b)
    return operation("mod", (a, b)) if constant is None else a - constant * b


def _leads_negative(b: Dim) -> bool:
    return b < 0 if isinstance(b, int) else b.terms[0][1] < 0


def _with_positive_lead(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    return (-a, -b) if _leads_negative(b) else (a, b)


def _is_positive(b: Dim) -> bool:
    low = interval_of(b)[0]
    return low is not None and low >= 1


def _is_zero(a: Dim) -> bool:
    return isinstance(a, int) and a == 0


def _is_single_term(b: Dim) -> bool:
    return isinstance(b, SymDim) and len(b.terms) == 1


def _constant_quotient(a: Dim, b: Dim) -> int | None:
    """a // b where the bounds leave just one possibility."""
    over, under = interval_of(a), interval_of(b)
    if isinstance(b, int) and over[0] is not None and over[1] is None:
        return None
    low, high = floordiv_interval(over, under)
    if low is not None and low == high:
        return low
    if isinstance(b, int) or under[0] is None or under[0] < 1:
        return None
    if over[0] is not None and over[0] >= 0 and _is_positive(b - a):
        return 0
    if over[1] is not None and over[1] < 0 and _is_positive(a + b + 1):
        return -1
    return None


def _coarser(a: SymDim, b: int) -> tuple[Dim, int, Dim] | None:
    """p, c and r with a // b == p // c and a % b == b // c * (p % c) + r, for a smaller c.

    Where a is g*p + q with 0 <= q < g, and g divides b, the q never matters: (10*x + y) // 20 is x // 2 for y up to 9.
    """
    scales = {b}
    for _, coeff in a.terms:
        scales |= {math.gcd(scale, coeff) for scale in scales}
    for scale in sorted(scales - {1, b}, reverse=True):
        loose = intern_terms(tuple([term for term in a.terms if term[1] % scale]))
        constant = _constant_quotient(loose, scale)
        if constant is not None:
            return divide(a - loose, scale)[0] + constant, b // scale, loose - constant * scale
    return None


def _without_common_number(a: Dim, b: SymDim) -> tuple[Dim, Dim]:
    """(g*p + r) // (g*c) is p' // c with the constant rounded down, for a positive c."""
    if isinstance(a, int) or not _is_positive(b):
        return a, b
    common = math.gcd(*(coeff for _, coeff in b.terms), *(coeff for mono, coeff in a.terms if mono is not ONE))
    return (a, b) if common == 1 else (divide(a, common)[0], divide(b, common)[0])


def _without_common_factor(a: Dim, b: SymDim) -> tuple[Dim, Dim, Dim]:
    """Return the greatest number and product of atoms in every term of a and b, and both without it."""
    if isinstance(a, int):
        terms: tuple[Term, ...] = (*b.terms, (ONE, a)) if a else b.terms
    else:
        terms = b.terms + a.terms
    number = math.gcd(*(coeff for _, coeff in terms))
    common = list(terms[0][0].atoms)
    for mono, _ in terms:
        if not common:
            break
        left = list(mono.atoms)
        kept: list[Atom] = []
        for atom in common:
            if atom in left:
                left.remove(atom)
                kept.append(atom)
        common = kept
    if number == 1 and not common:
        return 1, a, b
    factor = intern_terms(((monomial(tuple(common)), number),))
    return factor, divide(a, factor)[0], divide(b, factor)[0]


def _inner_floordiv(a: SymDim) -> Atom | None:
    """Return the only division in a, if (x // c + y) // b may become (x + c*y) // (c*b)."""
    found: Atom | None = None
    for mono, coeff in a.terms:
        for atom in mono.atoms:
            if atom.kind == "floordiv":
                if found is not None or coeff != 1 or len(mono.atoms) != 1:
                    return None
                found = atom
    if found is None or (isinstance(found.args[1], SymDim) and len(a.terms) > 1):
        return None
    return found


def _without_inner_mods(a: Dim, b: Dim) -> Dim:
    """x % c may be replaced by x in a dividend whose divisor b divides c."""
    if not has_mods(a):
        return a

    assert isinstance(a, SymDim)
    result: Dim = 0
    changed = False
    for mono, coeff in a.terms:
        part: Dim = intern_terms(((mono, 1),))
        inner = lone_atom(part)
        if inner is not None and inner.kind == "mod" and exact_div(coeff * inner.args[1], b) is not None:
            part = inner.args[0]
            changed = True
        result = result + part * coeff
    return _without_inner_mods(result, b) if changed else a


def has_mods(a: Dim) -> bool:
    """Return whether a remainder is among the factors of its terms."""
    return isinstance(a, SymDim) and any(atom.kind == "mod" for mono, _ in a.terms for atom in mono.atoms)


def expand_mods(a: Dim) -> Dim:
    """Return the same size with x % y written as x - y * (x // y)."""

    def expanded(atom: Atom) -> Dim:
        if atom.kind != "mod":
            return atom_dim(atom)
        over, under = atom.args
        return over - under * floordiv(over, under)

    return substitute(a, expanded)


def substitute(a: Dim, value: Callable[[Atom], Dim]) -> Dim:
    """Return the polynomial with every atom replaced."""
    if isinstance(a, int):
        return a
    result: Dim = 0
    for mono, coeff in a.terms:
        product: Dim = coeff
        for atom in mono.atoms:
            product = product * value(atom)
        result = result + product
    return result


# Comparing symbolic dimensions: three-valued answers, maxima, minima and broadcasting.

MAX_ARGUMENTS = 64
FEW_ARGUMENTS = 8

Extreme: TypeAlias = Literal["max", "min"]


def equal(a: Dim, b: Dim) -> bool | None:
    """Return whether two sizes are the same; None where that depends on the symbols or cannot be proven."""
    if type(a) is int and type(b) is int:
        return a == b
    if a is b:
        return True
    difference = as_dim(a) - as_dim(b)
    lo, hi = _tightest(difference)
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return False
    if lo == 0 and hi == 0:
        return True
    return False if isinstance(difference, SymDim) and _never_zero(difference) else None


def less(a: Dim, b: Dim) -> bool | None:
    """Return whether a < b; None where that depends on the symbols or cannot be proven."""
    if type(a) is int and type(b) is int:
        return a < b
    return _at_least(as_dim(b) - as_dim(a), 1)


def less_equal(a: Dim, b: Dim) -> bool | None:
    """Return whether a <= b; None where that depends on the symbols or cannot be proven."""
    if type(a) is int and type(b) is int:
        return a <= b
    return _at_least(as_dim(b) - as_dim(a), 0)


def _at_least(difference: Dim, limit: int) -> bool | None:
    lo, hi = _tightest(difference)
    if lo is not None and lo >= limit:
        return True
    return False if hi is not None and hi < limit else None


def _tightest(dim: Dim) -> Interval:
    """Return bounds with and without remainders written as divisions, whichever are tighter."""
    lo, hi = interval_of(dim)
    if has_mods(dim):
        low, high = interval_of(expand_mods(dim))
        lo = low if lo is None else lo if low is None else max(lo, low)
        hi = high if hi is None else hi if high is None else min(hi, high)
    return lo, hi


def _never_zero(dim: SymDim) -> bool:
    """Return whether the constant is not a multiple of what divides all other terms."""
    mono, constant = dim.terms[-1]
    return mono is ONE and constant % math.gcd(*(coeff for _, coeff in dim.terms[:-1])) != 0


def dim_max(*dims: Dim) -> Dim:
    """Return the largest of some sizes; arguments that provably never win are left out."""
    return _extreme("max", dims)


def dim_min(*dims: Dim) -> Dim:
    """Return the smallest of some sizes; arguments that provably never win are left out."""
    return _extreme("min", dims)


def broadcast(a: Dim, b: Dim) -> Dim:
    """Return the size that two sizes broadcast to, for every pair of values that may be broadcast."""
    a, b = as_dim(a), as_dim(b)
    if a is b or b == 1:
        return a
    if a == 1:
        return b
    for size in (a, b):
        if isinstance(size, int):
            return size
    return dim_max(a, b) * dim_min(1, a, b)


def _extreme(kind: Extreme, dims: tuple[Dim, ...]) -> Dim:
    if not dims:
        raise TypeError(f"dim_{kind} needs at least one size")
    numbers: list[int] = []
    formulas: dict[SymDim, None] = {}
    for dim in _flattened(kind, dims):
        if isinstance(dim, int):
            numbers.append(dim)
        else:
            formulas[dim] = None
    arguments: list[Dim] = []
    if numbers:
        arguments.append(max(numbers) if kind == "max" else min(numbers))
    # In one fixed order, so that the same arguments always make the same object.
    ordered = sorted(formulas, key=_term_order)
    samples = _samples([*arguments, *ordered]) if len(formulas) > FEW_ARGUMENTS else {}
    for formula in ordered:
        arguments = _with_argument(kind, arguments, formula, samples)
        if len(arguments) > MAX_ARGUMENTS:
            return _too_many(kind, numbers, list(formulas))
    if len(arguments) == 1:
        return arguments[0]
    if isinstance(arguments[0], int):
        arguments.append(arguments.pop(0))
    return operation(kind, tuple(arguments))


def _too_many(kind: Extreme, numbers: list[int], formulas: list[SymDim]) -> Dim:
    dims: list[Dim] = [*numbers, *formulas]
    intervals = [interval_of(dim) for dim in dims]
    bounds = max_interval(intervals) if kind == "max" else min_interval(intervals)
    return collapsed(kind, sorted([*map(hex, numbers), *map(str, formulas)]), bounds)


def _flattened(kind: Extreme, dims: tuple[Dim, ...]) -> list[Dim]:
    flat: list[Dim] = []
    for dim in map(as_dim, dims):
        atom = lone_atom(dim)
        if atom is not None and atom.kind == kind:
            flat.extend(atom.args)
        else:
            flat.append(dim)
    return flat


def _with_argument(kind: Extreme, kept: list[Dim], new: Dim, samples: Mapping[Dim, tuple[int, ...] | None]) -> list[Dim]:
    rest: list[Dim] = []
    beaten = False
    for old in kept:
        if _undecided(samples.get(old), samples.get(new)):
            rest.append(old)
            continue
        lo, hi = _tightest(old - new if kind == "max" else new - old)
        if not beaten and lo is not None and lo >= 0:
            beaten = True
        elif hi is not None and hi <= 0:
            # An argument that is beaten itself still beats others, which its winner then beats too.
            continue
        rest.append(old)
    return rest if beaten else [*rest, new]


def _samples(dims: list[Dim]) -> dict[Dim, tuple[int, ...] | None]:
    """Return values at a few bindings, with which most pairs need no proof: each is larger somewhere."""
    points = sample_points({leaf for dim in dims if isinstance(dim, SymDim) for leaf in dim.leaves})
    return {dim: sample(raw(dim).items(), points) for dim in dims}


def _undecided(a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> bool:
    return a is not None and b is not None and any(map(operator.lt, a, b)) and any(map(operator.gt, a, b))


def _term_order(dim: SymDim) -> tuple[object, ...]:
    return tuple((mono.order, coeff) for mono, coeff in dim.terms)
