"""Reading the spelling of types: `f32[2,3]`, `i64[*]`, `f32[2,3]<3,1>@cuda:0`, `seq(f32[])`, `map(i64, f32[2])`."""

from __future__ import annotations

import re
from collections.abc import Callable

from irscope.errors import UsageError
from irscope.ir.dims import Dim, parse_dim
from irscope.ir.dtypes import DTYPES_BY_TEXT, DType
from irscope.ir.spelling import MAX_NESTING, TextProblem, skip_gap, string_at
from irscope.ir.types import UNKNOWN_TYPE, Layout, Shape, Type, map_of, optional, scalar, sequence, tensor, tuple_of

Symbols = Callable[[str], Dim] | None
"""Finds the size that a name stands for; None: every name is a symbol with the usual bounds."""

_TENSOR = re.compile(r"([?a-z][a-z0-9]*)\[([^\]]*)\](?:<([^>]*)>)?(?:@([A-Za-z0-9_.:/-]+|(?=\")))?", re.ASCII)
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
        """The type that starts at a column, and the column behind it."""
        match = _TENSOR.match(text, at)
        if match is None:
            return self._other_type_at(text, at, depth)
        found = self._tensors.get(match[0])
        if found is not None:
            return found, match.end()
        dtype = dtype_named(match[1], at)
        shape = self._shape(match[2], match.start(2))
        layout = self._layout(match[3], match.start(3))
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
        for part in _split(inner):
            sizes.append(self.dim(part, at))
            at += len(part) + 1
        return tuple(sizes)

    def dim(self, part: str, at: int) -> Dim:
        """The size that a formula stands for."""
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
        """The size that starts at a column and reaches to a comma or bracket outside parentheses."""
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
    """The type that a whole text spells, as in `--input x=f32[batch,3,224,224]`."""
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


def dtype_named(name: str, at: int) -> DType:
    """The element type of that name."""
    dtype = DTYPES_BY_TEXT.get(name)
    if dtype is None:
        raise TextProblem(f"there is no element type {name!r}; there are {', '.join(DTYPES_BY_TEXT)}", at)
    return dtype


def _split(inner: str) -> list[str]:
    """Parts between commas that are not inside parentheses."""
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
    """The column behind a mark that must stand here, and behind the blanks that follow a comma."""
    if text[at : at + 1] != mark:
        raise TextProblem(f"{mark} is missing", at)
    return skip_gap(text, at + 1) if mark == "," else at + 1
