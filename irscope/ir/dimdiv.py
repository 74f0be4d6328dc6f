"""Division of symbolic dimensions: floor division, remainder, exact quotients."""

from __future__ import annotations

import math
from collections.abc import Callable

from irscope.errors import UsageError
from irscope.ir.dimatoms import known_operation, lone_atom, operation
from irscope.ir.dimbounds import floordiv_interval, interval_of
from irscope.ir.dimpoly import (
    ONE,
    Atom,
    Dim,
    Monomial,
    SymDim,
    Term,
    as_dim,
    atom_dim,
    from_terms,
    intern_terms,
    monomial,
    monomial_product,
)

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
        mono = min(work, key=_order)
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


def _order(mono: Monomial) -> tuple[int, tuple[tuple[str, int], ...]]:
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
    """The greatest number and product of atoms in every term of a and b, and both without it."""
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
    """The only division in a, if (x // c + y) // b may become (x + c*y) // (c*b)."""
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
    """Whether a remainder is among the factors of its terms."""
    return isinstance(a, SymDim) and any(atom.kind == "mod" for mono, _ in a.terms for atom in mono.atoms)


def expand_mods(a: Dim) -> Dim:
    """The same size with x % y written as x - y * (x // y)."""

    def expanded(atom: Atom) -> Dim:
        if atom.kind != "mod":
            return atom_dim(atom)
        over, under = atom.args
        return over - under * floordiv(over, under)

    return substitute(a, expanded)


def substitute(a: Dim, value: Callable[[Atom], Dim]) -> Dim:
    """The polynomial with every atom replaced."""
    if isinstance(a, int):
        return a
    result: Dim = 0
    for mono, coeff in a.terms:
        product: Dim = coeff
        for atom in mono.atoms:
            product = product * value(atom)
        result = result + product
    return result
