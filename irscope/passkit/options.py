"""Options of passes: dataclass fields from text, and back."""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
import json
import re
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from irscope.amounts import COUNT, Measure, read_amount
from irscope.errors import PipelineError
from irscope.optiontext import Form, OptionsError, settled

_BARE = re.compile(r"^[A-Za-z0-9_./:+~-]+$")


class BadValue(ValueError):
    """A text that is not a value of an option's type; the message says what would be."""


def option_types(cls: type) -> Mapping[str, Any]:
    """Return types of the options of a pass class by name."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


def option_help(cls: type) -> Mapping[str, str]:
    """Return what each option of a pass class is for: the string below its field, in one line. Options without one are left out."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):
            continue
        statements = body[0].body if body and isinstance(body[0], ast.ClassDef) else []
        for field_, text in itertools.pairwise(statements):
            if isinstance(field_, ast.AnnAssign) and isinstance(field_.target, ast.Name):
                match text:
                    case ast.Expr(value=ast.Constant(value=str(said))):
                        found[field_.target.id] = " ".join(said.split())
    return found


def convert(text: str | None, type_: Any) -> Any:
    """Return an option's value from its text; None is a bare flag. Raises BadValue."""
    origin, arguments = get_origin(type_), get_args(type_)
    if type_ is bool:
        return _boolean(text)
    if origin is Annotated:
        return _annotated(text, type_, arguments)
    if origin in (Union, types.UnionType):
        if text == "none" and type(None) in arguments:
            return None
        return _first_that_fits(text, [kind for kind in arguments if kind is not type(None)])
    if text is None:
        raise BadValue(f"needs a value: {describe(type_)}")
    if origin is tuple:
        return () if text == "[]" else tuple(convert(part, arguments[0]) for part in split_list(text))
    return _scalar(unquote(text), type_)


def _scalar(text: str, type_: Any) -> Any:
    choices = _choices(type_)
    if choices is not None:
        if text not in choices:
            raise BadValue(f"must be {describe(type_)}, not {text!r}")
        return choices[text]
    try:
        return _PLAIN[type_](text)
    except KeyError:
        raise BadValue(f"has a type that cannot be written as text: {type_}") from None
    except ValueError:
        raise BadValue(f"must be {describe(type_)}, not {text!r}") from None


def _annotated(text: str | None, type_: Any, arguments: tuple[Any, ...]) -> Any:
    """Return what may be annotated is a number, with the measure it is read by; other annotations mean nothing here."""
    measure = _measure(arguments)
    if measure is None or text is None:
        return convert(text, arguments[0])
    amount = read_amount(unquote(text), measure)
    if amount is None:
        raise BadValue(f"must be {describe(type_)}, not {text!r}")
    return arguments[0](amount)


def _measure(arguments: tuple[Any, ...]) -> Measure | None:
    return next((extra for extra in arguments[1:] if isinstance(extra, Measure)), None)


def _whole_number(text: str) -> int:
    amount = read_amount(text, COUNT)
    if amount is None:
        raise ValueError(text)
    return int(amount)


_PLAIN: Mapping[Any, Callable[[str], Any]] = {str: str, Path: Path, int: _whole_number, float: float}


def _choices(type_: Any) -> dict[str, Any] | None:
    """Return what may be written for a Literal or an Enum, None for other types."""
    if get_origin(type_) is Literal:
        return {str(choice): choice for choice in get_args(type_)}
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        return {text: member for member in type_ for text in (member.name.lower(), str(member.value))}
    return None


def _boolean(text: str | None) -> bool:
    if text in (None, "true", "yes", "1"):
        return True
    if text in ("false", "no", "0"):
        return False
    raise BadValue(f"must be true or false, not {text!r}")


def _first_that_fits(text: str | None, kinds: list[Any]) -> Any:
    problem: BadValue | None = None
    for kind in kinds:
        try:
            return convert(text, kind)
        except BadValue as error:
            problem = problem or error
    raise problem or BadValue("has no possible value")


def describe(type_: Any) -> str:
    """Return a type in words, for messages and help."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is tuple:
        return f"a list of {describe(arguments[0])} separated by commas"
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is Annotated:
        measure = _measure(arguments)
        return describe(arguments[0]) if measure is None else f"{measure.what} such as {measure.example}"
    if origin in (Union, types.UnionType):
        return " or ".join("none" if kind is type(None) else describe(kind) for kind in arguments)
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in type_)
    return {int: "an integer", float: "a number", bool: "true or false", str: "a text", Path: "a path"}.get(type_, str(type_))


def to_text(value: Any) -> str:
    """Return an option's value as text that `convert` reads back."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(to_text(item) for item in value) or "[]"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    return text if _BARE.match(text) and text != "none" else json.dumps(text)


def unquote(text: str) -> str:
    """Return a text without the quotes it may have."""
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            raise BadValue(f"is a broken quotation: {text}") from None
    return text


def split_list(text: str) -> list[str]:
    """Return the items separated by commas; commas inside quotes do not count."""
    return re.findall(r'(?:"(?:\\.|[^"\\])*"|[^,])+', text)


def spelled(option: str) -> str:
    """Return an option's name as it is written: words are joined by `-`, though `_` is read too."""
    return option.replace("_", "-")


def options_text(owner: Any) -> str:
    """Options that differ from their defaults as `{key=value key}`, empty when none does."""
    parts = []
    for field in fields(owner):
        value = getattr(owner, field.name)
        if field.name == "body" or _is_default(field, value):
            continue
        name = spelled(field.name)
        parts.append(name if value is True else f"{name}={to_text(value)}")
    return "{" + " ".join(parts) + "}" if parts else ""


def _form(type_: Any) -> Form:
    """Return what the text of an option of a type holds."""
    kinds = [kind for kind in get_args(type_)] if get_origin(type_) in (Union, types.UnionType, Annotated) else [type_]
    if any(get_origin(kind) is tuple for kind in kinds):
        return "list"
    return "flag" if bool in kinds else "value"


def _is_default(field: Field[Any], value: Any) -> bool:
    if field.default is not MISSING:
        return bool(value == field.default and type(value) is type(field.default))
    return field.default_factory is not MISSING and bool(value == field.default_factory())


def build(cls: type, given: Mapping[str, str | None], **extra: Any) -> Any:
    """Return an instance of a pass class from texts of options. Raises PipelineError naming the option and what is valid."""
    known = option_types(cls)
    values: dict[str, Any] = dict(extra)
    name = getattr(cls, "name", cls.__name__)
    try:
        apart = settled(given, {option: _form(type_) for option, type_ in known.items()})
    except OptionsError as error:
        raise PipelineError(f"{error} to pass {name!r}") from None
    for written, text in apart.items():
        key = written.replace("-", "_")
        if key not in known or key == "body":
            valid = ", ".join(spelled(option) for option in known if option != "body") or "it has none"
            raise PipelineError(f"pass {name!r} has no option {written!r}", code="IRS605", hint=f"options: {valid}")
        try:
            values[key] = convert(text, known[key])
        except BadValue as error:
            raise PipelineError(f"option {written!r} of pass {name!r} {error}", code="IRS606") from None
    missing = [f.name for f in fields(cls) if f.name not in values and f.default is MISSING and f.default_factory is MISSING]
    if missing:
        raise PipelineError(f"pass {name!r} needs option {spelled(missing[0])!r}: {describe(known[missing[0]])}", code="IRS606")
    return cls(**values)
