"""Reading attribute values, literals, and the whole `{key=value, ...}` of a node."""

from __future__ import annotations

import re
from collections.abc import Callable

from irscope.ir.graph import Attr
from irscope.ir.payload import Scalar
from irscope.ir.scanner import STRING, TextProblem, integer, skip_gap, string_at, unquote
from irscope.ir.spelling import BARE_KEY, MAX_NESTING
from irscope.ir.types import UNKNOWN_TYPE, Type
from irscope.ir.typetext import TypeReader, dtype_named

# A number may also be followed by the next key, where a comma was forgotten: then it is not the start of a formula.
_BEHIND = rf"(?=[ \t]*(?:[,\]}})]|\Z)|[ \t]+{BARE_KEY}[ \t]*=)"
_FLOAT = r"-?(?:[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|inf|nan)"
_INT_AT = re.compile(rf"-?[0-9]+{_BEHIND}").match
_FLOAT_AT = re.compile(_FLOAT + _BEHIND).match
_WORD_AT = re.compile(rf"(none|true|false){_BEHIND}").match
_COMPLEX_AT = re.compile(rf"complex\(({_FLOAT}),[ \t]*({_FLOAT})\)").match
_DTYPE_AT = re.compile(r"<([a-z0-9?]+)>").match
_UNKNOWN_TYPE_AT = re.compile(r"<type[ ]\?>").match
_KEY_AT = re.compile(rf"({BARE_KEY}|{STRING})[ \t]*=[ \t]*").match

_WORDS: dict[str, bool | None] = {"none": None, "true": True, "false": False}
_SCALARS = (bool, int, float, complex, str)


class AttrReader:
    """Reads values; the types and sizes in them are read by the given reader."""

    def __init__(self, types: TypeReader) -> None:
        self._types = types

    def attrs_at(self, text: str, at: int) -> tuple[dict[str, Attr], int]:
        """The attributes that start with a brace at a column, and the column behind them."""
        attrs: dict[str, Attr] = {}
        opened = at
        at = skip_gap(text, at + 1)
        while text[at : at + 1] != "}":
            match = _KEY_AT(text, at)
            if match is None:
                if at >= len(text):
                    raise TextProblem("this brace is never closed", opened)
                raise TextProblem("an attribute is missing, such as axis=1", at)
            key = unquote(match[1], at) if match[1][0] == '"' else match[1]
            if key in attrs:
                raise TextProblem(f"the attribute {key!r} was given before", at)
            attrs[key], at = self.value_at(text, match.end())
            at = _separated(text, at, "}", opened)
        return attrs, at + 1

    def value_at(self, text: str, at: int, depth: int = 0) -> tuple[Attr, int]:
        """The value that starts at a column, and the column behind it."""
        match = _INT_AT(text, at)
        if match is not None:
            return integer(match[0], at), match.end()
        special = _BY_FIRST_CHARACTER.get(text[at : at + 1])
        if special is not None:
            return special(self, text, at, depth)
        match = _FLOAT_AT(text, at)
        if match is not None:
            return float(match[0]), match.end()
        match = _WORD_AT(text, at)
        if match is not None:
            return _WORDS[match[1]], match.end()
        match = _COMPLEX_AT(text, at)
        if match is not None:
            return complex(float(match[1]), float(match[2])), match.end()
        return self._size_at(text, at, depth)

    def scalars_at(self, text: str, at: int) -> tuple[tuple[Scalar, ...], int]:
        """The list of numbers or strings that starts with a bracket at a column."""
        values, end = self._tuple_at(text, at, 0)
        for value in values:
            if not isinstance(value, _SCALARS):
                raise TextProblem("a list of values may only hold numbers, strings, true and false", at)
        return values, end

    def _tuple_at(self, text: str, at: int, depth: int) -> tuple[tuple[Attr, ...], int]:
        if depth >= MAX_NESTING:
            raise TextProblem(f"values are nested more than {MAX_NESTING} deep", at)
        items: list[Attr] = []
        opened = at
        at = skip_gap(text, at + 1)
        while text[at : at + 1] != "]":
            item, at = self.value_at(text, at, depth + 1)
            items.append(item)
            at = _separated(text, at, "]", opened)
        return tuple(items), at + 1

    def _string_at(self, text: str, at: int, depth: int) -> tuple[str, int]:
        return string_at(text, at)

    def _type_at(self, text: str, at: int, depth: int) -> tuple[Attr, int]:
        match = _DTYPE_AT(text, at)
        if match is not None:
            return dtype_named(match[1], at + 1), match.end()
        match = _UNKNOWN_TYPE_AT(text, at)
        if match is not None:
            return UNKNOWN_TYPE, match.end()
        found: Type
        found, end = self._types.type_at(text, at + 1)
        if text[end : end + 1] != ">":
            raise TextProblem("> is missing after this type", end)
        return found, end + 1

    def _size_at(self, text: str, at: int, depth: int) -> tuple[Attr, int]:
        size, end = self._types.dim_at(text, at)
        return size, end


_BY_FIRST_CHARACTER: dict[str, Callable[[AttrReader, str, int, int], tuple[Attr, int]]] = {
    '"': AttrReader._string_at,
    "[": AttrReader._tuple_at,
    "<": AttrReader._type_at,
    "(": AttrReader._size_at,
}


def _separated(text: str, at: int, closing: str, opened: int) -> int:
    """The column of the next item, or of the closing mark; a comma must stand between items."""
    at = skip_gap(text, at)
    char = text[at : at + 1]
    if char == closing:
        return at
    if char == ",":
        return skip_gap(text, at + 1)
    if not char:
        raise TextProblem(f"this is never closed with {closing}", opened)
    raise TextProblem(f"a comma or {closing} is missing", at)
