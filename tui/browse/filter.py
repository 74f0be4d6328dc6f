"""The filter language: words that must all match, as in `op:conv scope:layer3 mem>1MiB shape:[*,64,*] !/relu|gelu/`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from irscope.amounts import BYTES, FLOPS, RULE, parse_amount
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.graph import Node, Value
from irscope.ir.places import Scope, path_key
from irscope.ir.types import TensorType, Type
from irscope.tui.amounts import Column
from irscope.tui.browse.outline import AliasSets, Group, Mask, Outline, Rows
from irscope.tui.rows import RowTexts

K = TypeVar("K", bound=Hashable)

HELP: Final = (
    ("word", "operator, name, module or source operator contains the word"),
    ('"two words"', "the same with a blank in it"),
    ("/regex/", "the same as a regular expression"),
    ("op:conv", "operator contains"),
    ("name:fc1", "name of the node or of a result contains"),
    ("scope:layer3", "module path contains"),
    ("dtype:f16", "element type of a result begins with"),
    ("shape:[*,64,*]", "shape of a result; * is any one size, ... any number of them"),
    ("type:f16[1,", "type of a result as text contains"),
    ("flops>1G", "FLOPs above (or <, >=, <=) a number"),
    ("mem>1MiB", f"bytes of the results above or below; {RULE}"),
    ("alias:%h", "result shares its storage with this value: its views, what writes into it"),
    ("inplace", "writes into one of its inputs"),
    ("unknown", "cost or size of the results is unknown"),
    ("!word", "not: works before any of these"),
)
"""Syntax of a filter, for the help screen."""

_WORD = re.compile(r'!?(?:/(?:\\.|[^/\\])*/|(?:[a-z]+:)?"[^"]*"|\S+)', re.IGNORECASE)
_COMPARISON = re.compile(r"(flops|mem)([<>]=?)(.*)", re.IGNORECASE)
_FIELD_WORDS = frozenset({"op", "name", "scope", "type", "dtype", "shape", "alias"})
_SEPARATORS = frozenset("./")
_FLAGS = frozenset({"unknown", "inplace"})
_MEASURES = {"flops": FLOPS, "mem": BYTES}


@immutable
class Term:
    """One word of a filter: what it looks at, what it wants there, and whether it is negated."""

    field: str
    text: str
    negated: bool = False
    limit: float = 0


def parse_filter(text: str) -> tuple[Term, ...]:
    """Return the terms of a filter; raises UsageError with one clear line."""
    return tuple(_term(word) for word in _WORD.findall(text))


def _term(word: str) -> Term:
    negated = word.startswith("!") and len(word) > 1
    body = word[1:] if negated else word
    if len(body) > 2 and body[0] == body[-1] == "/":
        return Term("regex", _checked_regex(body[1:-1]), negated)
    comparison = _COMPARISON.fullmatch(body)
    if comparison is not None:
        field, sign, number = comparison.groups()
        return Term(field.lower(), sign, negated, parse_amount(number, _MEASURES[field.lower()]))
    field, colon, rest = body.partition(":")
    if colon and field.lower() in _FIELD_WORDS:
        return _field_term(field.lower(), rest.strip('"').lower(), negated)
    return Term(body if body in _FLAGS else "any", body.strip('"').lower(), negated)


def _field_term(field: str, text: str, negated: bool) -> Term:
    if field == "shape":
        _sizes(text)
    return Term(field, text, negated)


def _checked_regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"/{text}/ is not a regular expression: {error}", hint="a word without slashes is taken as it is") from None
    return text


@lru_cache(maxsize=64)
def _sizes(text: str) -> tuple[str, ...]:
    """Return the sizes that a pattern such as `[*,64,*]` asks for; while it is typed the closing bracket is missing, and more may come."""
    inner = text.removeprefix("[")
    if "[" in inner or "]" in inner.removesuffix("]"):
        raise UsageError(f"{text!r} is not a shape", hint="for example shape:[*,64,*] or shape:[...,768]")
    sizes = tuple(size.strip() for size in inner.removesuffix("]").split(",")) if inner.removesuffix("]") else ()
    if text.startswith("[") and text.endswith("]"):
        return sizes
    while sizes and not sizes[-1]:
        sizes = sizes[:-1]
    return (*sizes, "...") if text.startswith("[") else ("...", *sizes, "...")


def shape_matches(sizes: tuple[str, ...], shape: tuple[str, ...]) -> bool:
    """Return whether the texts of a shape's sizes match a pattern; `*` stands for one size, `...` for any number."""
    possible = {0}
    for size in sizes:
        if size == "...":
            possible = set(range(min(possible), len(shape) + 1))
        else:
            possible = {at + 1 for at in possible if at < len(shape) and size in ("*", shape[at])}
        if not possible:
            return False
    return len(shape) in possible


@immutable(slots=False)
class Kinds(Generic[K]):
    """Texts that many rows share, each kind looked at once however many rows are of it."""

    kinds: Sequence[K]
    rows: Rows
    """The number of the kind of each row, -1 for a row that is not a node."""

    def where(self, holds: Callable[[K], bool]) -> Mask:
        """Return the rows of those kinds for which something holds."""
        mask: Mask = np.array([*map(holds, self.kinds), False], dtype=np.bool_)[self.rows]
        return mask


class Matcher:
    """Finds the rows that a filter matches. Only nodes match; the tree adds what is above them."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self.aliases: AliasSets | None = None
        """Which values share a storage, once that is known."""

    @cached_property
    def texts(self) -> RowTexts:
        """Return all that a plain word is looked for in."""
        return RowTexts(_search_text(item) if isinstance(item, Node) else "" for item in self._outline.items)

    @cached_property
    def names(self) -> RowTexts:
        """Names of nodes and of their results."""
        return RowTexts(_names_of(item) if isinstance(item, Node) else "" for item in self._outline.items)

    @cached_property
    def modules(self) -> RowTexts:
        """Paths of modules, names of functions and regions."""
        groups = (item if isinstance(item, Group) else None for item in self._outline.items)
        return RowTexts("" if group is None else group.scope.path if group.scope is not None else group.name for group in groups)

    @cached_property
    def _is_node(self) -> Mask:
        mask: Mask = self._outline.operators[0] >= 0
        return mask

    @cached_property
    def _ops(self) -> Kinds[str]:
        rows, ops = self._outline.operators
        return Kinds(ops, rows)

    @cached_property
    def _scopes(self) -> Kinds[Scope]:
        return self._kinds(lambda node: node.scope)

    @cached_property
    def _types(self) -> Kinds[tuple[Type, ...]]:
        return self._kinds(lambda node: tuple([output.type for output in node.outputs]))

    @cached_property
    def _inplace(self) -> Mask:
        return np.array([isinstance(item, Node) and "inplace" in item.attrs for item in self._outline.items], dtype=np.bool_)

    def prepare(self) -> None:
        """Do the work of the first match beforehand; may run in any thread."""
        assert len(self.texts) == len(self.names) == len(self._is_node) == len(self._inplace)
        assert len(self._ops.rows) == len(self._scopes.rows) == len(self._types.rows)

    def matches(self, terms: tuple[Term, ...], flops: Column | None, size: Column | None) -> Mask:
        """Return which rows match all terms; comparisons match nothing as long as their column is not there."""
        mask = self._is_node.copy()
        for term in terms:
            hit = self._term(term, flops, size)
            mask &= ~hit if term.negated else hit
        return mask

    def _term(self, term: Term, flops: Column | None, size: Column | None) -> Mask:
        if term.field in ("flops", "mem"):
            return self._compared(term, flops if term.field == "flops" else size)
        if term.field == "unknown":
            return self._unknown(flops) | self._unknown(size)
        if term.field in ("any", "regex", "name"):
            return self._worded(term)
        if term.field == "alias":
            return self._sharing(term.text.removeprefix("%"))
        return self._of_kind(term.field, term.text)

    def _worded(self, term: Term) -> Mask:
        if term.field == "regex":
            return self.texts.matching(re.compile(term.text, re.IGNORECASE))
        if term.field == "name":
            return self.names.containing(term.text.removeprefix("%")) & self._is_node
        return self.texts.containing(term.text) & self._is_node

    def _sharing(self, name: str) -> Mask:
        mask = np.zeros(len(self._outline), dtype=np.bool_)
        if self.aliases is not None and name:
            mask[self.aliases.rows_of(self._named(name))] = True
        return mask

    def _named(self, name: str) -> Iterator[Value]:
        """Yield the values of exactly this name, those that the model is given included."""
        items = self._outline.items
        nodes = [item for row in np.flatnonzero(self.names.containing(name)).tolist() if isinstance(item := items[row], Node)]
        graph = next((node.graph for node in self._outline.nodes), None)
        given = () if graph is None else (*graph.inputs, *graph.weights)
        for value in (*(output for node in nodes for output in node.outputs), *given):
            if value.name is not None and value.name.lower() == name:
                yield value

    def _of_kind(self, field: str, text: str) -> Mask:
        if field == "op":
            return self._ops.where(lambda op: text in op.lower())
        if field == "scope":
            wanted = f"{'.' * (text[:1] in _SEPARATORS)}{path_key(text)}{'.' * (text[-1:] in _SEPARATORS)}" if path_key(text) else ""
            return self._scopes.where(
                lambda scope: any(wanted in f".{path_key(path)}." for path in (scope.path.lower(), scope.module.lower()))
            )
        if field == "inplace":
            return self._inplace
        holds = _TYPES[field]
        return self._types.where(lambda types: any(holds(type_, text) for type_ in types))

    def _kinds(self, kind_of: Callable[[Node], K]) -> Kinds[K]:
        numbers: dict[K, int] = {}
        rows = [numbers.setdefault(kind_of(item), len(numbers)) if isinstance(item, Node) else -1 for item in self._outline.items]
        return Kinds(list(numbers), np.array(rows, dtype=np.int32))

    def _compared(self, term: Term, column: Column | None) -> Mask:
        if column is None:
            return np.zeros(len(self._outline), dtype=np.bool_)
        # A formula, which is NaN here, is above and below nothing.
        mask: Mask = _COMPARE[term.text](column.values.numbers, term.limit)
        return mask

    def _unknown(self, column: Column | None) -> Mask:
        if column is None:
            return np.zeros(len(self._outline), dtype=np.bool_)
        return np.asarray(column.missing > 0)


_COMPARE: dict[str, Callable[[NDArray[np.float64], float], Mask]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def _search_text(item: Node) -> str:
    return f"{item.op} {item.name} {item.scope.path} {item.source}".lower()


def _names_of(node: Node) -> str:
    return " ".join([node.name, *(output.name for output in node.outputs if output.name is not None)]).lower()


def _type_contains(type_: Type, text: str) -> bool:
    return text in type_.text.lower()


def _dtype_begins(type_: Type, text: str) -> bool:
    return isinstance(type_, TensorType) and str(type_.dtype).startswith(text)


def _shape_is(type_: Type, text: str) -> bool:
    if type_.shape is None:
        return False
    return shape_matches(_sizes(text), tuple(str(size).lower() for size in type_.shape))


_TYPES: dict[str, Callable[[Type, str], bool]] = {"type": _type_contains, "dtype": _dtype_begins, "shape": _shape_is}
