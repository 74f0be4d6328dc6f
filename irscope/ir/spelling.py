"""Spelling of names, strings, attributes, types, scopes and locations in the text form, and how such spellings are read back.

Everything is ASCII, so nothing can hide."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import NoReturn

from irscope.errors import LoadError, UsageError
from irscope.ir.dims import Dim, SymDim, parse_dim
from irscope.ir.dtypes import DTYPES_BY_TEXT, DType
from irscope.ir.graph import Attr
from irscope.ir.places import Blob, Computed, FileRegion, Literal, Loc, Payload, Scope
from irscope.ir.types import UNKNOWN_TYPE, Layout, Shape, Type, map_of, optional, scalar, sequence, tensor, tuple_of

TEXT_VERSION = 1

BARE_NAME = r"[A-Za-z0-9_.$/-]+"
BARE_LABEL = r"[A-Za-z0-9_.$/:-]+"
BARE_OP = r"[A-Za-z_][A-Za-z0-9_.:-]*"
BARE_KEY = r"[A-Za-z_][A-Za-z0-9_.]*"
BARE_SCOPE = r"[A-Za-z0-9_.$/#=~:-]+"
BARE_FUNCTION = r"[A-Za-z_<][A-Za-z0-9_.<>]*"

MAX_NESTING = 50
"""Deepest nesting of types and attribute values."""

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
    """Return a string in double quotes with JSON escapes for everything that is not printable ASCII."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def name_text(name: str) -> str:
    """Return the token of a named value, with its percent sign."""
    return f"%{name}" if _is_plain_name(name) else f"%{quote(name)}"


def label_text(label: str) -> str:
    """Return the name of a graph or region."""
    return label if _is_plain_label(label) else quote(label)


def op_text(op: str) -> str:
    """Return the name of an operator."""
    return op if _is_plain_op(op) else quote(op)


def attr_text(value: Attr | complex, depth: int = 0) -> str:
    """Return an attribute's value. What the IR does not allow as an attribute is spelled as a string."""
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
    """Return all attributes of a node in braces."""
    parts = [f"{_key_text(str(key))}={attr_text(value)}" for key, value in attrs.items()]
    return f"{{{', '.join(parts)}}}"


def _key_text(key: str) -> str:
    return key if _is_plain_key(key) else quote(key)


def scope_text(scope: Scope) -> str:
    """Return the way from the root to a scope. Slashes, hashes and tildes inside names are written ~1, ~2 and ~0."""
    path = "/".join([_component(part) for part in scope.chain])
    return path if _is_plain_scope(path) else quote(path)


def _component(scope: Scope) -> str:
    name = scope.name.replace("~", "~0").replace("/", "~1").replace("#", "~2") or "~"
    return f"{name}#{scope.call}" if scope.call else name


def scope_component(text: str) -> tuple[str, int]:
    """Return the name and the call number that a part of a scope's path stands for."""
    name, _, call = text.partition("#")
    name = "" if name == "~" else name.replace("~2", "#").replace("~1", "/").replace("~0", "~")
    return name, int(call) if call else 0


def loc_text(loc: Loc) -> str:
    """Return a place in the source with the calls that led to it."""
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
    """Return where a weight's values are; bytes that came with the model are not part of the text form."""
    if isinstance(data, Literal):
        return f" = [{', '.join(map(attr_text, data.values))}]"
    if isinstance(data, FileRegion):
        storage = f", {quote(data.storage)}" if data.storage else ""
        return f" = file({quote(data.path)}, {data.offset}, {data.length}{storage})"
    assert isinstance(data, Blob | Computed)
    return ""


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
    """Return the string that starts with the double quote at a column, and the column behind it."""
    match = _STRING_AT(text, at)
    if match is None:
        raise TextProblem("this string is never closed" if text[at : at + 1] == '"' else "a string in double quotes is missing", at)
    return unquote(match[0], at), match.end()


def unquote(quoted: str, at: int = 0) -> str:
    """Return what a quoted string stands for."""
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
    """Return the column behind blanks and tabs."""
    match = _GAP_AT(text, at)
    assert match is not None
    return match.end()


def integer(digits: str, at: int) -> int:
    """Return a whole number; Python itself refuses to read thousands of digits."""
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
    """Return the text with everything that could confuse a terminal spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


# Reading the spelling of types: `f32[2,3]`, `i64[*]`, `f32[2,3]<3,1>@cuda:0`, `seq(f32[])`, `map(i64, f32[2])`.

Symbols = Callable[[str], Dim] | None
"""Finds the size that a name stands for; None: every name is a symbol with the usual bounds."""

_TENSOR = re.compile(r"([?a-z][a-z0-9_]*)\[([^\]]*)\](?:<([^>]*)>)?(?:@([A-Za-z0-9_.:/-]+|(?=\")))?", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_]+|\?", re.ASCII)
_DIM_ERROR = re.compile(r"cannot read the dimension, column ([0-9]+): (.*)")
_CHARACTERS_OF_DIM = re.compile(r"[A-Za-z0-9_.?+*/% \t-]*", re.ASCII)


class TypeReader:
    """Reads types and sizes out of lines; remembers each spelling, for models repeat few types many times."""

    def __init__(self, symbols: Symbols = None) -> None:
        self._symbols = symbols
        self._tensors: dict[str, Type] = {}
        self._dims: dict[str, Dim] = {}

    def type_at(self, text: str, at: int, depth: int = 0) -> tuple[Type, int]:
        """Return the type that starts at a column, and the column behind it."""
        match = _TENSOR.match(text, at)
        if match is None:
            return self._other_type_at(text, at, depth)
        found = self._tensors.get(match[0])
        if found is not None:
            return found, match.end()
        dtype = dtype_named(match[1], at)
        shape = self._shape(match[2], match.start(2))
        layout = self._layout(match[3], match.start(3))
        if shape is not None and isinstance(layout, tuple) and len(layout) != len(shape):
            raise TextProblem("a tensor has a stride for each axis", match.start(3))
        if match[4] == "":
            device, end = string_at(text, match.end())
            return tensor(dtype, shape, device, layout), end
        made = self._tensors[match[0]] = tensor(dtype, shape, match[4] or "", layout)
        return made, match.end()

    def _other_type_at(self, text: str, at: int, depth: int) -> tuple[Type, int]:
        if depth > MAX_NESTING:
            raise TextProblem(f"types are nested more than {MAX_NESTING} deep", at)
        word = _WORD.match(text, at)
        if word is None:
            raise TextProblem("a type is missing, such as f32[2,3]", at)
        kind, here = word[0], word.end()
        if kind == "?":
            return UNKNOWN_TYPE, here
        if text[here : here + 1] != "(":
            if kind in DTYPES_BY_TEXT:
                raise TextProblem(f"the sizes of this {kind} tensor are missing: {kind}[] is a scalar, {kind}[*] has any rank", here)
            raise TextProblem(f"there is no type {kind!r}", at)
        here += 1
        made: Type
        if kind == "scalar":
            dtype, here = self._dtype_at(text, here)
            made = scalar(dtype)
        elif kind == "map":
            key, here = self._dtype_at(text, here)
            element, here = self.type_at(text, _expect(text, here, ","), depth + 1)
            made = map_of(key, element)
        elif kind in ("seq", "optional"):
            element, here = self.type_at(text, here, depth + 1)
            made = sequence(element) if kind == "seq" else optional(element)
        elif kind == "tuple":
            members, here = self._members_at(text, here, depth)
            made = tuple_of(members)
        else:
            raise TextProblem(f"there is no type {kind}(...); there are seq, optional, tuple, map and scalar", at)
        return made, _expect(text, here, ")")

    def _members_at(self, text: str, at: int, depth: int) -> tuple[list[Type], int]:
        members: list[Type] = []
        if text[at : at + 1] == ")":
            return members, at
        while True:
            member, at = self.type_at(text, at, depth + 1)
            members.append(member)
            if text[at : at + 1] != ",":
                return members, at
            at = _expect(text, at, ",")

    def _dtype_at(self, text: str, at: int) -> tuple[DType, int]:
        word = _WORD.match(text, at)
        if word is None:
            raise TextProblem("an element type is missing, such as f32", at)
        return dtype_named(word[0], at), word.end()

    def _shape(self, inner: str, at: int) -> Shape:
        if inner == "*":
            return None
        sizes = self._sizes(inner, at)
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise TextProblem("a size cannot be negative", at)
        return sizes

    def _layout(self, inner: str | None, at: int) -> Layout:
        if inner is None:
            return None
        return "sparse" if inner == "sparse" else self._sizes(inner, at)

    def _sizes(self, inner: str, at: int) -> tuple[Dim, ...]:
        if not inner:
            return ()
        sizes: list[Dim] = []
        for part in _split_at_commas(inner):
            sizes.append(self.dim(part, at))
            at += len(part) + 1
        return tuple(sizes)

    def dim(self, part: str, at: int) -> Dim:
        """Return the size that a formula stands for."""
        if len(part) < 20 and part.isdigit() and part.isascii():
            return int(part)
        found = self._dims.get(part)
        if found is None:
            try:
                found = self._dims[part] = parse_dim(part, self._symbols)
            except UsageError as error:
                # The message may end with a line and a caret of its own, which would not fit this line's.
                match = _DIM_ERROR.match(error.message)
                what, column = (match[2], int(match[1]) - 1) if match else (error.message.partition("\n")[0], 0)
                raise TextProblem(f"this is not a size: {what}", at + column) from None
        return found

    def dim_at(self, text: str, at: int) -> tuple[Dim, int]:
        """Return the size that starts at a column and reaches to a comma or bracket outside parentheses."""
        here, opened = at, 0
        while True:
            match = _CHARACTERS_OF_DIM.match(text, here)
            assert match is not None
            here = match.end()
            char = text[here : here + 1]
            if char == "(":
                opened += 1
            elif char == ")" and opened:
                opened -= 1
            elif char != "," or not opened:
                break
            here += 1
        if here == at:
            raise TextProblem("a value is missing", at)
        return self.dim(text[at:here], at), here


def parse_type(text: str, symbols: Symbols = None) -> Type:
    """Return the type that a whole text spells, as in `--input x=f32[batch,3,224,224]`."""
    try:
        found, end = TypeReader(symbols).type_at(text, skip_gap(text, 0))
        if text[end:].strip():
            raise TextProblem("nothing may follow the type", end)
    except TextProblem as problem:
        raise UsageError(
            f"cannot read the type {text[:80]!r}, column {problem.at + 1}: {problem.what}",
            code="IRS629",
            hint="a type looks like f32[1,3,224,224]",
        ) from None
    return found


_SIZES = re.compile(r"\[?\s*([\w*+/() -]+(?:,[\w*+/() -]+)+|\d+(?:x\d+)+)\s*\]?|\[\s*([\w*+/() -]*)\s*\]")


def parse_input_type(text: str) -> Type:
    """Return what a user says about an input: a type, or its sizes alone, `1,3,224,224`, which leave the element type as it is."""
    sizes = _SIZES.fullmatch(text.strip())
    if sizes is None:
        return parse_type(text)
    inner = sizes[1] or sizes[2] or ""
    return parse_type(f"?[{inner.replace('x', ',') if _CROSSED.fullmatch(inner) else inner}]")


def typed_input(name: str, type_: Type) -> str:
    """Return what `--input` takes for the type of an input, as a user types it: without a name for the only one, sizes alone where no
    element type was said."""
    text = str(type_)
    if text.startswith("?[") and text.endswith("]"):
        text = sizes if _SIZES.fullmatch(sizes := text[2:-1]) else text[1:]
    return f"{name}={text}" if name else text


_CROSSED = re.compile(r"\d+(?:x\d+)+")


def dtype_named(name: str, at: int) -> DType:
    """Return the element type of that name."""
    dtype = DTYPES_BY_TEXT.get(name)
    if dtype is None:
        raise TextProblem(f"there is no element type {name!r}; there are {', '.join(DTYPES_BY_TEXT)}", at)
    return dtype


def _split_at_commas(inner: str) -> list[str]:
    """Return the parts between commas that are not inside parentheses."""
    if "(" not in inner:
        return inner.split(",")
    parts: list[str] = []
    opened = start = 0
    for at, char in enumerate(inner):
        if char == "(":
            opened += 1
        elif char == ")":
            opened -= 1
        elif char == "," and opened <= 0:
            parts.append(inner[start:at])
            start = at + 1
    parts.append(inner[start:])
    return parts


def _expect(text: str, at: int, mark: str) -> int:
    """Return the column behind a mark that must stand here, and behind the blanks that follow a comma."""
    if text[at : at + 1] != mark:
        raise TextProblem(f"{mark} is missing", at)
    return skip_gap(text, at + 1) if mark == "," else at + 1
