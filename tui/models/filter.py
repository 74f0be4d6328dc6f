"""The filter language: words that must all match, as in `op:conv scope:layer3 mem>1MiB !relu`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from irscope.errors import UsageError
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Node
from irscope.tui.models.columns import Column
from irscope.tui.models.outline import Outline
from irscope.tui.models.tree import Mask

HELP: Final = (
    ("word", "operator, name, module or source operator contains the word"),
    ("op:conv", "operator contains"),
    ("scope:layer3", "module path contains"),
    ("type:f16", "type of a result contains"),
    ("flops>1G", "FLOPs above (or < below) a number; k, M, G, T"),
    ("mem>1MiB", "bytes of the results above or below; KiB, MiB, GiB or KB, MB, GB"),
    ("unknown", "cost or size of the results is unknown"),
    ("!word", "not: works before any of these"),
)
"""What may stand in a filter, for the help screen."""

_COMPARISON = re.compile(r"(flops|mem)([<>])(.*)", re.IGNORECASE)
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]*)", re.IGNORECASE)
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True, slots=True)
class Term:
    """One word of a filter: what it looks at, what it wants there, and whether it is negated."""

    field: str
    text: str
    negated: bool = False
    limit: float = 0


def parse_filter(text: str) -> tuple[Term, ...]:
    """The terms of a filter; raises UsageError with one clear line."""
    return tuple(_term(word) for word in text.split())


def _term(word: str) -> Term:
    negated = word.startswith("!") and len(word) > 1
    body = word[1:] if negated else word
    comparison = _COMPARISON.fullmatch(body)
    if comparison is not None:
        field, sign, number = comparison.groups()
        return Term(field.lower(), sign, negated, _number(number, field.lower()))
    field, colon, rest = body.partition(":")
    if colon and field.lower() in ("op", "scope", "type", "dtype"):
        return Term(field.lower().removeprefix("d"), rest.lower(), negated)
    return Term("unknown" if body == "unknown" else "any", body.lower(), negated)


def _number(text: str, field: str) -> float:
    found = _NUMBER.fullmatch(text)
    unit = found[2].lower() if found is not None else "-"
    decimal = field == "flops" or (unit.endswith("b") and not unit.endswith("ib") and len(unit) == 2)
    factor = (_DECIMAL if decimal else _BINARY).get(_prefix(unit, field))
    if found is None or factor is None:
        raise UsageError(f"{text!r} is not a number of {'FLOPs' if field == 'flops' else 'bytes'}", hint="for example flops>1G, mem>10MiB")
    return float(found[1]) * factor


def _prefix(unit: str, field: str) -> str:
    if field == "flops":
        return unit.removesuffix("flops").removesuffix("flop")
    return unit.removesuffix("ib") if unit.endswith("ib") else unit.removesuffix("b")


class Matcher:
    """Finds the rows that a filter matches. Only nodes match; the tree adds what is above them."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline

    @cached_property
    def _texts(self) -> list[str]:
        return [_search_text(item) if isinstance(item, Node) else "" for item in self._outline.items]

    @cached_property
    def _is_node(self) -> Mask:
        return np.array([isinstance(item, Node) for item in self._outline.items], dtype=np.bool_)

    def prepare(self) -> None:
        """Do the work of the first match beforehand; may run in any thread."""
        assert len(self._texts) == len(self._is_node)

    def matches(self, terms: tuple[Term, ...], flops: Column | None, size: Column | None) -> Mask:
        """Which rows match all terms; comparisons match nothing as long as their column is not there."""
        found = self._is_node.copy()
        for term in terms:
            hit = self._term(term, flops, size)
            found &= ~hit if term.negated else hit
        return found

    def _term(self, term: Term, flops: Column | None, size: Column | None) -> Mask:
        if term.field == "any":
            return np.array([term.text in text for text in self._texts], dtype=np.bool_)
        if term.field in ("flops", "mem"):
            return self._compared(term, flops if term.field == "flops" else size)
        if term.field == "unknown":
            return self._unknown(flops) | self._unknown(size)
        wanted = _FIELDS[term.field]
        return np.array([isinstance(item, Node) and wanted(item, term.text) for item in self._outline.items], dtype=np.bool_)

    def _compared(self, term: Term, column: Column | None) -> Mask:
        values: list[Dim | None] = column.values if column is not None else [None] * len(self._outline)
        above = term.text == ">"
        return np.array(
            [
                value is not None and not isinstance(value, SymDim) and (value > term.limit if above else value < term.limit)
                for value in values
            ],
            dtype=np.bool_,
        )

    def _unknown(self, column: Column | None) -> Mask:
        if column is None:
            return np.zeros(len(self._outline), dtype=np.bool_)
        return np.array([missing > 0 for missing in column.missing], dtype=np.bool_)


def _search_text(item: Node) -> str:
    return f"{item.op} {item.name} {item.scope.path} {item.source}".lower()


def _type_contains(node: Node, text: str) -> bool:
    return any(text in output.type.text for output in node.outputs)


def _op_contains(node: Node, text: str) -> bool:
    return text in node.op.lower()


def _scope_contains(node: Node, text: str) -> bool:
    return text in node.scope.path.lower()


_FIELDS: dict[str, Callable[[Node, str], bool]] = {"op": _op_contains, "scope": _scope_contains, "type": _type_contains}
