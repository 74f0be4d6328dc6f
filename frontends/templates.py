"""Lowering rules as text: what an operator of a file becomes, on one line.

    operator operands ; attributes

Operands are words that the frontend gives a meaning. An attribute is `ours=theirs` (only `name` where both are called the same), with
`?literal` behind it for what stands where the file has none, or `!` where it must be there; `ours=[theirs]` makes a list of a single
one, `ours=(one,two)` a tuple of several, `ours=theirs{zero,one,two}` takes the word that a number or flag counts to, and `ours:literal`
is a value that the rule itself gives.
"""

from __future__ import annotations

import ast
import re

from irscope.immutable import immutable
from irscope.ir.dtypes import DTYPES_BY_TEXT
from irscope.ir.graph import Attr

_ATTRIBUTE = re.compile(
    r"(?P<ours>\w+)(?:=(?P<list>\[)?(?P<theirs>\w+|\([\w,]+\))\]?(?:\{(?P<words>[\w,]+)\})?)?"
    r"(?:(?P<required>!)|(?P<mark>[?:])(?P<literal>\S+))?"
)


@immutable
class Attribute:
    """One attribute of the operator that is made."""

    ours: str
    theirs: str | None
    """Name of the attribute in the file; None for a value that the rule gives."""
    value: Attr = None
    """The value that the rule gives, or that stands where the file has none; None leaves it out."""
    required: bool = False
    as_list: bool = False
    """True where a single value counts as a list."""
    words: tuple[str, ...] = ()
    """Words that a number or flag stands for, by index."""


@immutable
class Template:
    """A rule that was read."""

    op: str
    operands: tuple[str, ...]
    attributes: tuple[Attribute, ...]


def parse_template(text: str) -> Template:
    """Read "operator operands ; attributes"; raises ValueError for an attribute that has not that form."""
    head, _, tail = text.partition(";")
    op, *operands = head.split()
    return Template(op, tuple(operands), tuple([_attribute(part) for part in tail.split()]))


def _attribute(part: str) -> Attribute:
    match = _ATTRIBUTE.fullmatch(part)
    if match is None:
        raise ValueError(f"{part!r} is not an attribute of a lowering rule")
    value = None if match["literal"] is None else _literal(match["literal"])
    if match["mark"] == ":":
        return Attribute(match["ours"], None, value)
    words = tuple(match["words"].split(",")) if match["words"] else ()
    return Attribute(
        match["ours"], match["theirs"] or match["ours"], value, match["required"] is not None, match["list"] is not None, words
    )


_WORDS: dict[str, Attr] = {"true": True, "false": False, **DTYPES_BY_TEXT}


def _literal(text: str) -> Attr:
    if text in _WORDS:
        return _WORDS[text]
    try:
        value: Attr = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value
