"""Options in braces, as passes and models by name have them: `{top=5 model=eager}`, `{num_layers=2, dtype=bf16}`.

Blanks separate them, and commas do. A comma also stands between the items of a list, `names=a,b`: it ends a value where another option
begins behind it. A value may be an object or a list of JSON, `{rope_scaling={"factor": 2.0}}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Given: TypeAlias = dict[str, "str | None"]
"""Options as they are written; None is a flag, which stands alone."""
Form: TypeAlias = Literal["value", "list", "flag"]
"""What an option takes: one value, several separated by commas, or nothing."""

_KEY: Final = re.compile(r"[A-Za-z_][\w-]*")
_NEXT: Final = re.compile(r",(?:\s*[A-Za-z_][\w-]*\s*=|\s|\}|$)")
"""A comma that ends a value."""
_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\'{}]*\'')
_CLOSED_BY: Final = {"[": "]", "(": ")"}
_BETWEEN: Final = re.compile(r"[\s,]*")


class OptionsError(ValueError):
    """Options that do not parse; `column` is where."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(message)
        self.column = column


def read_options(text: str, at: int = 0) -> tuple[Given, int]:
    """Return the options up to the brace that closes them, and the place behind it; the opening brace stands before `at`."""
    given: Given = {}
    while True:
        at = _behind(_BETWEEN, text, at)
        if text[at : at + 1] == "}":
            return given, at + 1
        key = _KEY.match(text, at)
        if key is None:
            raise OptionsError(f"expected an option or '}}', found {_found(text, at)}", at)
        after = _behind(_BLANKS, text, key.end())
        value = None
        end = key.end()
        if text[after : after + 1] == "=":
            start = _behind(_BLANKS, text, after + 1)
            end = _end_of_value(text, start)
            if end == start:
                raise OptionsError(f"expected a value for {key.group()!r}, found {_found(text, start)}", start)
            value = text[start:end]
        if key.group() in given:
            raise OptionsError(f"option {key.group()!r} is given twice", end)
        given[key.group()] = value
        at = end


_BLANKS: Final = re.compile(r"\s*")


def _behind(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _found(text: str, at: int) -> str:
    return repr(text[at]) if at < len(text) else "the end"


def json_value(text: str, start: int = 0) -> tuple[object, int] | None:
    """Return a value in JSON's braces or brackets that begins there, with the place behind it; None where none does."""
    if text[start : start + 1] not in ("{", "["):
        return None
    try:
        found: tuple[object, int] = _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return found if found[1] == len(text) or text[found[1]] in ",}" or text[found[1]].isspace() else None


_JSON: Final = json.JSONDecoder()


def _end_of_value(text: str, start: int) -> int:
    if (value := json_value(text, start)) is not None:
        return value[1]
    at = start
    while at < len(text):
        char = text[at]
        if char.isspace() or char in "{}" or (char == "," and "=" not in text[start:at] and _NEXT.match(text, at)):
            break
        group = _end_of_group(text, at)
        if char == '"' and group == at:
            break
        at = max(group, at + 1)
    return at


def _end_of_group(text: str, at: int) -> int:
    """Behind the quotation or the brackets that begin there; `at` itself where none do, or where they are not closed."""
    if quoted := _QUOTED.match(text, at):
        return quoted.end()
    if text[at] not in _CLOSED_BY:
        return at
    open_ = [_CLOSED_BY[text[at]]]
    here = at + 1
    while here < len(text) and text[here] not in "{}":
        if quoted := _QUOTED.match(text, here):
            here = quoted.end()
            continue
        if text[here] in _CLOSED_BY:
            open_.append(_CLOSED_BY[text[here]])
        elif text[here] == open_[-1]:
            open_.pop()
            if not open_:
                return here + 1
        here += 1
    return at


def items(value: str) -> list[str]:
    """Return the parts of a value between its commas; those in quotes and brackets do not count."""
    found: list[str] = []
    start = at = 0
    while at < len(value):
        if value[at] == ",":
            found.append(value[start:at])
            start = at + 1
        at = max(_end_of_group(value, at), at + 1)
    return [*found, value[start:]]


def settled(given: Mapping[str, str | None], known: Mapping[str, Form]) -> Given:
    """The same with the options apart that only their owner can tell from items of a list or parts of a text; `known` are its options."""
    found: Given = {}
    for key, value in given.items():
        current: str = key
        parts = items(value) if value is not None and "," in value else []
        if not parts:
            _put(found, key, value)
            continue
        kept: list[str] = []
        for part in parts:
            name, equals, rest = part.strip().partition("=")
            form = known.get(name.strip().replace("-", "_"))
            is_flag = form == "flag" and not equals and known.get(current.replace("-", "_")) != "list"
            if kept and form is not None and (equals or is_flag):
                _put(found, current, ",".join(kept))
                current, kept = name.strip(), [rest.strip() if equals else ""]
                if is_flag:
                    _put(found, current, None)
                    current, kept = "", []
            elif current:
                kept.append(part)
            else:
                _put(found, part.strip(), None)  # behind a flag, and no option: its owner says so
        if current:
            _put(found, current, ",".join(kept))
    return found


def _put(found: Given, key: str, value: str | None) -> None:
    if key in found:
        raise OptionsError(f"option {key!r} is given twice", 0)
    found[key] = value
