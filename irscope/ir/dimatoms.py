"""Making what polynomials consist of: symbols, and operations whose bounds follow from their arguments."""

from __future__ import annotations

import re

from irscope.errors import UsageError
from irscope.ir.dimbounds import floordiv_interval, interval_of, max_interval, min_interval, mod_interval
from irscope.ir.dimpoly import Atom, Dim, Kind, SymDim, atom_dim, intern_atom, known_atom

MAX_NAME_LENGTH = 200

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def symbol(name: str, lo: int | None = 1, hi: int | None = None) -> SymDim:
    """A named size such as the batch; at least 1 unless told otherwise."""
    return _leaf("symbol", name, lo, hi)


def unknown(name: str, lo: int | None = 0, hi: int | None = None) -> SymDim:
    """A size that depends on the data, printed with a question mark in front."""
    return _leaf("unknown", name.removeprefix("?"), lo, hi)


def _leaf(kind: Kind, name: str, lo: int | None, hi: int | None) -> SymDim:
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        hint = f"a name starts with a letter or underscore and goes on with letters, digits, _ and ., up to {MAX_NAME_LENGTH}"
        raise UsageError(f"{name[:MAX_NAME_LENGTH]!r} cannot name a dimension", code="IRS621", hint=hint)
    if lo is not None and hi is not None and lo > hi:
        raise UsageError(f"the dimension {name} has no possible size: at least {lo} and at most {hi}", code="IRS620")
    return atom_dim(intern_atom(kind, name, (), (lo, hi)))


def known_operation(kind: Kind, args: tuple[Dim, ...]) -> SymDim | None:
    """The operation if it exists already, which proves that it cannot be simplified."""
    found = known_atom(kind, args)
    return None if found is None else atom_dim(found)


def operation(kind: Kind, args: tuple[Dim, ...]) -> Dim:
    """An operation on arguments that are already as simple as they get; a number where its bounds leave just one."""
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
    """The atom a polynomial consists of, if it is just one."""
    if isinstance(dim, SymDim) and len(dim.terms) == 1:
        mono, coeff = dim.terms[0]
        if coeff == 1 and len(mono.atoms) == 1:
            return mono.atoms[0]
    return None
