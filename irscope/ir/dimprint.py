"""Formula text of symbolic dimensions, which irscope.ir.dimtext reads back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from irscope.ir.dimpoly import Atom, Dim, Kind, Term


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
    """A symbol or an operation, as it reads alone."""
    if kind == "symbol":
        return name
    if kind == "unknown":
        return f"?{name}"
    if kind in ("max", "min"):
        return f"{kind}({', '.join(str(arg) for arg in args)})"
    return f"{_operand(args[0])}{'//' if kind == 'floordiv' else '%'}{_operand(args[1])}"


def _operand(dim: Dim) -> str:
    if isinstance(dim, int):
        return str(dim) if dim >= 0 else f"({dim})"
    mono, coeff = dim.terms[0]
    if len(dim.terms) == 1 and coeff == 1 and (len(mono.atoms) == 1 or mono.atoms[0] is mono.atoms[-1]):
        return mono.factor
    return f"({dim})"


def monomial_text(atoms: tuple[Atom, ...]) -> str:
    """A product of sorted atoms: `batch*(seq//2)**2`."""
    parts: list[str] = []
    at = 0
    while at < len(atoms):
        count = 1
        while at + count < len(atoms) and atoms[at + count] is atoms[at]:
            count += 1
        parts.append(atoms[at].factor if count == 1 else f"{atoms[at].factor}**{count}")
        at += count
    return "*".join(parts)
