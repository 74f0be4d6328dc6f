"""Unifies symbols of two models that stand for the same size, such as the batch, so that formulas of both are comparable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from irscope.ir.bind import substitute_symbols
from irscope.ir.dim_poly import Interval
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Value
from irscope.ir.program import Program
from irscope.ir.types import TensorType


def share_symbols(a: Program, b: Program) -> dict[str, str]:
    """Give the symbols of B the names and limits of those of A that stand at the same places of the same inputs; returns what was renamed.

    Exporters number nameless sizes as they like, and give one size other limits in other files.
    """
    pairs = _consistent(a, b)
    substitute_symbols(b, {own: a.symbols[name] for own, name in pairs.items() if b.symbols[own] is not a.symbols[name]})
    return {own: name for own, name in pairs.items() if own != name}


def _consistent(a: Program, b: Program) -> dict[str, str]:
    """For symbols of B the one of A that it stands for: the only one beside it, and beside no other."""
    pairs = list(dict.fromkeys(_by_inputs(a, b)))
    paired = {own for own, _ in pairs}, {name for _, name in pairs}
    pairs += [(name, name) for name in b.symbols if name in a.symbols and name not in paired[0] and name not in paired[1]]
    times = Counter(own for own, _ in pairs), Counter(name for _, name in pairs)
    found = {
        own: name
        for own, name in pairs
        if times[0][own] == times[1][name] == 1 and not _disjoint(a.symbols[name].bounds, b.symbols[own].bounds)
    }
    # A name that a symbol of B keeps for itself cannot be given to another one.
    while clashing := [own for own, name in found.items() if name in b.symbols and name not in found]:
        for own in clashing:
            del found[own]
    return found


def _by_inputs(a: Program, b: Program) -> Iterator[tuple[str, str]]:
    """Symbols at the same axis of the same input: of B, then of A."""
    for one, other in _inputs(a.graph.inputs, b.graph.inputs):
        left, right = one.type, other.type
        if (
            isinstance(left, TensorType)
            and isinstance(right, TensorType)
            and left.shape
            and right.shape
            and len(left.shape) == len(right.shape)
        ):
            for size, own in zip(left.shape, right.shape, strict=True):
                if _is_symbol(size, a.symbols) and _is_symbol(own, b.symbols):
                    yield str(own), str(size)


def _inputs(a: Sequence[Value], b: Sequence[Value]) -> Iterator[tuple[Value, Value]]:
    """Inputs of the same name, or in their order where no names are the same."""
    named = {value.name: value for value in b}
    alike = [(value, named[value.name]) for value in a if value.name in named]
    yield from alike or zip(a, b, strict=False)


def _is_symbol(size: Dim, symbols: Mapping[str, SymDim]) -> bool:
    return isinstance(size, SymDim) and symbols.get(str(size)) is size


def _disjoint(a: Interval, b: Interval) -> bool:
    (low_a, high_a), (low_b, high_b) = a, b
    return (high_a is not None and low_b is not None and high_a < low_b) or (high_b is not None and low_a is not None and high_b < low_a)
