"""Sizes that may be symbolic: everything passes and frontends do with a `Dim`.

A `Dim` is an int or a `SymDim`. Comparisons are three-valued: None means undecidable until the symbols are bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial
from typing import NoReturn, TypeVar

from irscope.errors import UsageError
from irscope.immutable import immutable, mutable
from irscope.ir.dim_algebra import (
    broadcast,
    ceildiv,
    dim_max,
    dim_min,
    equal,
    exact_div,
    floordiv,
    less,
    less_equal,
    mod,
    substitute,
    symbol,
    unknown,
)
from irscope.ir.dim_poly import MAX_DEGREE, Atom, Dim, Interval, SymDim, as_dim, atom_dim, interval_of

__all__ = [
    "Dim",
    "SymDim",
    "bind",
    "bounds",
    "broadcast",
    "ceildiv",
    "dim_max",
    "dim_min",
    "equal",
    "exact_div",
    "floordiv",
    "int_or_zero",
    "less",
    "less_equal",
    "mod",
    "parse_dim",
    "product",
    "ratio",
    "round_up",
    "symbol",
    "total_of",
    "unknown",
]


def bounds(d: Dim) -> Interval:
    """Return the smallest and largest possible size, both included; None where there is no limit."""
    return interval_of(as_dim(d))


def product(dims: Iterable[Dim]) -> Dim:
    """Return all sizes multiplied: the number of elements of a shape."""
    number = 1
    formula: Dim = 1
    for dim in dims:
        if isinstance(dim, SymDim):
            formula = dim * formula
        else:
            number *= dim
    return formula * as_dim(number)


def total_of(sizes: Iterable[Dim | None]) -> Dim | None:
    """Return all sizes added up; None where one of them is unknown."""
    dim: Dim = 0
    for size in sizes:
        if size is None:
            return None
        dim = dim + size
    return dim


def round_up(size: int, multiple: int) -> int:
    """Return the least multiple that is not smaller."""
    return -(-size // multiple) * multiple


def int_or_zero(size: Dim | None) -> int:
    """Return the size where it is a number; nothing where it is a formula or unknown, for sums of what is known."""
    return size if isinstance(size, int) else 0


def ratio(a: Dim, b: Dim) -> Fraction | None:
    """Return what a divided by b is, where that is one number at every binding; None where it depends on one, or b may be nothing."""
    if a == b and b != 0:
        return Fraction(1)
    if isinstance(b, int):
        if isinstance(a, SymDim) or b == 0:
            return None
        return Fraction(a, b)
    if not isinstance(a, SymDim):
        return Fraction(0) if a == 0 else None
    over, under = dict(a.terms), dict(b.terms)
    if over.keys() != under.keys():
        return None
    shares = {Fraction(number, under[factors]) for factors, number in over.items()}
    return shares.pop() if len(shares) == 1 else None


def only_size(left: Dim, right: Dim) -> tuple[str, int | None] | None:
    """Return the one named symbol in which two sizes that have to be equal differ, with the only size of it for which they are, None where
    there is none; nothing where more than one size of the symbol, or of several, may make them equal."""
    difference = left - right
    if not isinstance(difference, SymDim) or difference.is_unknown:
        return None
    constant = factor = 0
    name = ""
    for mono, coefficient in difference.terms:
        if not mono.atoms:
            constant = coefficient
        elif name or len(mono.atoms) != 1 or mono.atoms[0].kind != "symbol":
            return None
        else:
            (atom,) = mono.atoms
            name, factor, low, high = atom.name, coefficient, atom.lo, atom.hi
    size, rest = divmod(-constant, factor)
    is_possible = not rest and (low is None or size >= low) and (high is None or size <= high)
    return name, size if is_possible else None


def bind(d: Dim, env: Mapping[str, Dim]) -> Dim:
    """Return the size with symbols replaced by name, unknown ones with their question mark; names it does not mention are ignored."""
    d = as_dim(d)
    if isinstance(d, int) or d.names.isdisjoint(env):
        return d
    return _Binding(env).dim(d)


class _Binding:
    """One replacement of symbols; what occurs more than once is computed once."""

    def __init__(self, env: Mapping[str, Dim]) -> None:
        self._env = env
        self._done: dict[Atom, Dim] = {}

    def dim(self, d: Dim) -> Dim:
        return substitute(d, self._atom)

    def _atom(self, atom: Atom) -> Dim:
        value = self._done.get(atom)
        if value is None:
            value = self._done[atom] = self._operation(atom) if atom.args else self._symbol(atom)
        return value

    def _symbol(self, atom: Atom) -> Dim:
        if atom.text not in self._env:
            return atom_dim(atom)
        value = as_dim(self._env[atom.text])
        low, high = interval_of(value)
        if (atom.lo is not None and high is not None and high < atom.lo) or (atom.hi is not None and low is not None and low > atom.hi):
            raise UsageError(f"the dimension {atom.text} cannot be {value}: {_limits(atom)}", code="IRS620")
        return value

    def _operation(self, atom: Atom) -> Dim:
        if atom.names.isdisjoint(self._env):
            return atom_dim(atom)
        args = [self.dim(arg) for arg in atom.args]
        if atom.kind == "max":
            return dim_max(*args)
        if atom.kind == "min":
            return dim_min(*args)
        over, under = args
        if isinstance(under, int) and under == 0:
            bound = ", ".join(f"{name} = {self._env[name]}" for name in sorted(atom.names & self._env.keys()))
            raise UsageError(f"{atom.text} is divided by zero where {bound}", code="IRS622")
        return floordiv(over, under) if atom.kind == "floordiv" else mod(over, under)


def _limits(atom: Atom) -> str:
    if atom.lo is None or atom.hi is None:
        return f"it is at most {atom.hi}" if atom.lo is None else f"it is at least {atom.lo}"
    return f"it is from {atom.lo} to {atom.hi}"


# Reading dimension formulas, as irscope prints them and as exporters write them. Nothing is evaluated as code.

T = TypeVar("T")

MAX_LENGTH = 10_000
MAX_NESTING = 200
MAX_BITS = 4_000
SHOWN_AROUND_ERROR = 60

_ROUNDINGS: dict[str, Callable[[Dim, Dim], Dim]] = {"floor": floordiv, "ceil": ceildiv, "ceiling": ceildiv}
_PAIRS: dict[str, Callable[[Dim, Dim], Dim]] = {"mod": mod, "floordiv": floordiv, "ceildiv": ceildiv}
_EXTREMES: dict[str, Callable[..., Dim]] = {"max": dim_max, "min": dim_min}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)"
    rf"|(?P<call>(?i:{'|'.join((*_ROUNDINGS, *_PAIRS, *_EXTREMES))}))\s*\("
    r"|(?P<name>\??[A-Za-z_][A-Za-z0-9_.]*)"
    r"|(?P<mark>\*\*|//|[-+*/%(),]))"
)
_STRENGTH = {"+": 1, "-": 1, "*": 2, "//": 2, "/": 2, "%": 2, "negate": 3, "**": 4}


def parse_dim(text: str, symbols: Callable[[str], Dim] | None = None) -> Dim:
    """Return the size a formula stands for; `symbols` finds the Dim of a name, which starts with ? for unknown sizes.

    A single slash is a true quotient until a whole number is needed; then it rounds down, or up inside ceil().
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"a dimension formula of {len(text)} characters is too long; up to {MAX_LENGTH} are read", code="IRS621")
    return _Reader(text, symbols or _default_symbol).read()


def _default_symbol(name: str) -> Dim:
    return unknown(name) if name.startswith("?") else symbol(name)


@immutable
class _Ratio:
    """A quotient that has not been rounded yet."""

    over: Dim
    under: Dim = 1

    def whole(self) -> Dim:
        return floordiv(self.over, self.under)


@mutable(slots=True)
class _Pending:
    """An operator, call or parenthesis that waits for what stands right of it."""

    mark: str
    column: int
    arguments: int = 1

    @property
    def strength(self) -> int:
        return _STRENGTH.get(self.mark, 0)


class _Reader:
    """Precedence parser with stacks of its own, so that nesting costs no Python frames."""

    def __init__(self, text: str, symbols: Callable[[str], Dim]) -> None:
        self._text = text
        self._symbols = symbols
        self._known: dict[str, Dim] = {}
        self._values: list[_Ratio] = []
        self._pending: list[_Pending] = []
        self._nesting = 0

    def read(self) -> Dim:
        text = self._text
        end = len(text.rstrip())
        at = 0
        wants_operand = True
        while at < end:
            token = _TOKEN.match(text, at)
            if token is None or token.lastgroup is None:
                column = end - len(text[at:end].lstrip())
                self._fail(column, f"{text[column]!r} means nothing here")
            column = token.start(token.lastgroup)
            content = token[token.lastgroup]
            wants_operand = (self._operand if wants_operand else self._operator)(token.lastgroup, content, column)
            at = token.end()
        if wants_operand:
            self._fail(end, "a number, a name or ( is missing at the end" if end else "there is nothing to read")
        self._reduce(1)
        if self._pending:
            self._fail(self._pending[-1].column, "this is never closed with )")
        return self._guarded(end, self._values.pop().whole)

    def _operand(self, kind: str, content: str, column: int) -> bool:
        """Take a token where an operand may start; tells whether one may still follow."""
        if kind == "number":
            self._values.append(self._number(content, column))
            return False
        if kind == "name":
            self._values.append(_Ratio(self._symbol(content, column)))
            return False
        if kind == "call" or content == "(":
            self._nesting += 1
            if self._nesting > MAX_NESTING:
                self._fail(column, f"parentheses are nested more than {MAX_NESTING} deep")
            self._pending.append(_Pending(content.lower(), column))
        elif content == "-":
            self._pending.append(_Pending("negate", column))
        elif content != "+":
            self._fail(column, f"a number, a name or ( is missing before {content}")
        return True

    def _operator(self, kind: str, content: str, column: int) -> bool:
        """Take a token where an operand has just ended; tells whether another one must follow."""
        if kind != "mark" or content == "(":
            what = "what stands before this is not a function; there are floor, ceil, max, min and mod"
            self._fail(column, what if content == "(" else "an operator is missing")
        if content in _STRENGTH:
            # Powers group from the right: a tower is only worked out once it ends.
            self._reduce(_STRENGTH[content] + (content == "**"))
            self._pending.append(_Pending(content, column))
            return True
        self._reduce(1)
        if not self._pending or (content == "," and self._pending[-1].mark == "("):
            self._fail(column, f"{content} has no call or ( that it belongs to")
        if content == ",":
            self._pending[-1].arguments += 1
            return True
        self._close(self._pending.pop())
        return False

    def _close(self, opened: _Pending) -> None:
        self._nesting -= 1
        if opened.mark == "(":
            return
        args = self._values[-opened.arguments :]
        del self._values[-opened.arguments :]
        if opened.mark not in _EXTREMES and len(args) != (1 if opened.mark in _ROUNDINGS else 2):
            wanted = "one argument" if opened.mark in _ROUNDINGS else "two arguments"
            self._fail(opened.column, f"{opened.mark} takes {wanted}, not {len(args)}")
        self._push(self._guarded(opened.column, partial(_called_function, opened.mark, args)), opened.column)

    def _reduce(self, strength: int) -> None:
        while self._pending and self._pending[-1].strength >= strength:
            operator = self._pending.pop()
            right = self._values.pop()
            if operator.mark == "negate":
                self._values.append(_Ratio(-right.over, right.under))
                continue
            left = self._values.pop()
            if operator.mark == "**":
                self._check_power(left, right, operator.column)
            self._push(self._guarded(operator.column, partial(_apply, operator.mark, left, right)), operator.column)

    def _push(self, value: _Ratio, column: int) -> None:
        if any(isinstance(part, int) and part.bit_length() > MAX_BITS for part in (value.over, value.under)):
            self._fail(column, "the number becomes too large here")
        self._values.append(value)

    def _number(self, content: str, column: int) -> _Ratio:
        if len(content) * 3 > MAX_BITS:
            self._fail(column, f"a number of {len(content)} digits is too large")
        whole, _, fraction = content.partition(".")
        return _Ratio(int(whole + fraction), 10 ** len(fraction))

    def _symbol(self, name: str, column: int) -> Dim:
        if name not in self._known:
            try:
                self._known[name] = as_dim(self._guarded(column, partial(self._symbols, name)))
            except KeyError:
                self._fail(column, f"there is no dimension named {name}")
        return self._known[name]

    def _check_power(self, base: _Ratio, exponent: _Ratio, column: int) -> None:
        power = exponent.over
        if not isinstance(power, int) or exponent.under != 1 or not 0 <= power <= MAX_DEGREE:
            self._fail(column, f"a power must be a number from 0 to {MAX_DEGREE}")
        bits = max(part.bit_length() if isinstance(part, int) else 0 for part in (base.over, base.under))
        if bits * power > MAX_BITS:
            self._fail(column, "the number becomes too large here")

    def _guarded(self, column: int, compute: Callable[[], T]) -> T:
        try:
            return compute()
        except UsageError as error:
            self._fail(column, error.message)

    def _fail(self, column: int, what: str) -> NoReturn:
        start = max(0, column - SHOWN_AROUND_ERROR)
        shown = "".join(char if char.isprintable() else " " for char in self._text[start : column + SHOWN_AROUND_ERROR])
        caret = " " * (column - start) + "^"
        raise UsageError(f"cannot read the dimension, column {column + 1}: {what}\n  {shown}\n  {caret}", code="IRS621")


def _called_function(name: str, args: list[_Ratio]) -> _Ratio:
    if name in _ROUNDINGS:
        return _Ratio(_ROUNDINGS[name](args[0].over, args[0].under))
    whole = [arg.whole() for arg in args]
    return _Ratio(_EXTREMES[name](*whole) if name in _EXTREMES else _PAIRS[name](*whole))


def _apply(mark: str, a: _Ratio, b: _Ratio) -> _Ratio:
    if mark == "*":
        return _Ratio(a.over * b.over, a.under * b.under)
    if mark == "/":
        if isinstance(b.over, int) and b.over == 0:
            raise UsageError("this divides by zero", code="IRS622")
        return _Ratio(a.over * b.under, a.under * b.over)
    if mark == "//":
        return _Ratio(floordiv(a.over * b.under, a.under * b.over))
    if mark == "%":
        return _Ratio(mod(a.whole(), b.whole()))
    if mark == "**":
        assert isinstance(b.over, int)
        return _Ratio(a.over**b.over, a.under**b.over)
    sign = -1 if mark == "-" else 1
    if a.under == b.under:
        return _Ratio(a.over + sign * b.over, a.under)
    return _Ratio(a.over * b.under + sign * b.over * a.under, a.under * b.under)
