"""How the text form spells names, strings, attributes, scopes and locations, and how such spellings are read back.

Everything is ASCII, so nothing can hide."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import NoReturn

from irscope.errors import LoadError
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr
from irscope.ir.payload import Blob, FileRegion, Literal, Payload
from irscope.ir.places import Loc, Scope
from irscope.ir.types import UNKNOWN_TYPE, Type

TEXT_VERSION = 1

BARE_NAME = r"[A-Za-z0-9_.$/-]+"
BARE_LABEL = r"[A-Za-z0-9_.$/:-]+"
BARE_OP = r"[A-Za-z_][A-Za-z0-9_.:-]*"
BARE_KEY = r"[A-Za-z_][A-Za-z0-9_.]*"
BARE_SCOPE = r"[A-Za-z0-9_.$/#=~:-]+"
BARE_FUNCTION = r"[A-Za-z_<][A-Za-z0-9_.<>]*"

MAX_NESTING = 50
"""How deep types and attribute values may be nested."""

WORDS = frozenset({"none", "true", "false", "inf", "nan", "-inf", "-nan"})
"""Attribute values that a formula of the same spelling must not be taken for."""

# Unnamed values are printed as numbers, so a real name of digits is quoted.
_is_plain_name = re.compile(rf"(?![0-9]+\Z){BARE_NAME}").fullmatch
_is_plain_label = re.compile(BARE_LABEL).fullmatch
_is_plain_op = re.compile(BARE_OP).fullmatch
_is_plain_key = re.compile(BARE_KEY).fullmatch
_is_plain_scope = re.compile(BARE_SCOPE).fullmatch
_is_plain_function = re.compile(BARE_FUNCTION).fullmatch


def quote(text: str) -> str:
    """A string in double quotes with JSON escapes for everything that is not printable ASCII."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def name_text(name: str) -> str:
    """The token of a named value, with its percent sign."""
    return f"%{name}" if _is_plain_name(name) else f"%{quote(name)}"


def label_text(label: str) -> str:
    """The name of a graph or region."""
    return label if _is_plain_label(label) else quote(label)


def op_text(op: str) -> str:
    """The name of an operator."""
    return op if _is_plain_op(op) else quote(op)


def attr_text(value: Attr | complex, depth: int = 0) -> str:
    """An attribute's value. What the IR does not allow as an attribute is spelled as a string."""
    spell = _SPELLINGS.get(type(value))
    if spell is not None:
        return spell(value)
    if isinstance(value, tuple | list):
        if depth >= MAX_NESTING:
            return '"..."'
        return f"[{', '.join([attr_text(item, depth + 1) for item in value])}]"
    if isinstance(value, Type):
        return "<type ?>" if value is UNKNOWN_TYPE else f"<{value.text}>"
    return quote(repr(value))


def _complex_text(value: complex) -> str:
    return f"complex({value.real!r},{value.imag!r})"


def _dim_text(value: SymDim) -> str:
    text = str(value)
    return f"({text})" if text in WORDS else text


def _bool_text(value: bool) -> str:
    return "true" if value else "false"


def _none_text(value: None) -> str:
    return "none"


def _dtype_text(value: DType) -> str:
    return f"<{value.text}>"


_SPELLINGS: dict[type, Callable[[Attr], str]] = {
    int: repr,
    float: repr,
    bool: _bool_text,
    str: quote,
    type(None): _none_text,
    complex: _complex_text,
    SymDim: _dim_text,
    DType: _dtype_text,
}


def attrs_text(attrs: Mapping[str, Attr]) -> str:
    """All attributes of a node in braces."""
    parts = [f"{_key_text(str(key))}={attr_text(value)}" for key, value in attrs.items()]
    return f"{{{', '.join(parts)}}}"


def _key_text(key: str) -> str:
    return key if _is_plain_key(key) else quote(key)


def scope_text(scope: Scope) -> str:
    """The way from the root to a scope. Slashes, hashes and tildes inside names are written ~1, ~2 and ~0."""
    path = "/".join([_component(part) for part in scope.chain])
    return path if _is_plain_scope(path) else quote(path)


def _component(scope: Scope) -> str:
    name = scope.name.replace("~", "~0").replace("/", "~1").replace("#", "~2") or "~"
    return f"{name}#{scope.call}" if scope.call else name


def scope_component(text: str) -> tuple[str, int]:
    """The name and the call number that a part of a scope's path stands for."""
    name, _, call = text.partition("#")
    name = "" if name == "~" else name.replace("~2", "#").replace("~1", "/").replace("~0", "~")
    return name, int(call) if call else 0


def loc_text(loc: Loc) -> str:
    """A place in the source with the calls that led to it."""
    parts: list[str] = []
    here: Loc | None = loc
    while here is not None:
        parts.append(_one_loc_text(here))
        here = here.caller
    return " < ".join(parts)


def _one_loc_text(loc: Loc) -> str:
    text = f"{quote(loc.file)}:{loc.line}"
    if loc.function:
        plain = _is_plain_function(loc.function)
        text += f" {loc.function if plain else quote(loc.function)}"
        # One string alone is a statement.
        if loc.statement or not plain:
            text += f" {quote(loc.statement)}"
    elif loc.statement:
        text += f" {quote(loc.statement)}"
    return f"({text})"


def payload_text(data: Payload) -> str:
    """Where a weight's values are; bytes that came with the model are not part of the text form."""
    if isinstance(data, Literal):
        return f" = [{', '.join(map(attr_text, data.values))}]"
    if isinstance(data, FileRegion):
        storage = f", {quote(data.storage)}" if data.storage else ""
        return f" = file({quote(data.path)}, {data.offset}, {data.length}{storage})"
    assert isinstance(data, Blob)
    return ""


# ----------------------------------------------------------------------------------------------------
# What all readers of the text form share: where an error is, quoted strings, and names of sizes.

STRING = r'"(?:[^"\\]++|\\.)*+"'
END = re.compile(r"[ \t\r]*+(?:#.*)?\Z", re.DOTALL).match
"""Matches where nothing but a comment is left of a line."""
_GAP_AT = re.compile(r"[ \t]*+").match
_STRING_AT = re.compile(STRING).match
_SHOWN_AROUND_ERROR = 60


class TextProblem(ValueError):
    """Something unreadable at a column of the text that was given; the parser adds file and line."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what = what
        self.at = at


def string_at(text: str, at: int) -> tuple[str, int]:
    """The string that starts with the double quote at a column, and the column behind it."""
    match = _STRING_AT(text, at)
    if match is None:
        raise TextProblem("this string is never closed" if text[at : at + 1] == '"' else "a string in double quotes is missing", at)
    return unquote(match[0], at), match.end()


def unquote(quoted: str, at: int = 0) -> str:
    """What a quoted string stands for."""
    if "\\" not in quoted:
        return quoted[1:-1]
    try:
        content = json.loads(quoted, strict=False)
    except ValueError as error:
        # The decoder tells "... at column": the column is worth pointing at, its wording is not needed.
        raise TextProblem("this escape is unknown; strings are written as in JSON", at + getattr(error, "pos", 0)) from None
    assert isinstance(content, str)
    return content


def skip_gap(text: str, at: int) -> int:
    """The column behind blanks and tabs."""
    match = _GAP_AT(text, at)
    assert match is not None
    return match.end()


def integer(digits: str, at: int) -> int:
    """A whole number; Python itself refuses to read thousands of digits."""
    try:
        return int(digits)
    except ValueError:
        raise TextProblem(f"a number of {len(digits)} digits is too large", at) from None


def fail_at(path: str, line: int, text: str, problem: TextProblem) -> NoReturn:
    """Raise the error that a user sees: file, line and column, the line itself and a caret."""
    at = min(problem.at, len(text))
    start = max(0, at - _SHOWN_AROUND_ERROR)
    before = _visible(text[start:at].replace("\t", " "))
    behind = _visible(text[at : at + _SHOWN_AROUND_ERROR].replace("\t", " "))
    left = "..." if start else ""
    right = "..." if at + _SHOWN_AROUND_ERROR < len(text) else ""
    shown = f"  {left}{before}{behind}{right}".rstrip()
    caret = " " * (2 + len(left) + len(before)) + "^"
    raise LoadError(f"{problem.what}\n{shown}\n{caret}", code="IRS121", where=f"{path}:{line}:{at + 1}") from None


def _visible(text: str) -> str:
    """The text with everything that could confuse a terminal spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
