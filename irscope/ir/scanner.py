"""What all readers of the text form share: where an error is, quoted strings, and names of sizes."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from irscope.errors import LoadError

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
