"""Names of models in installed packages, such as `timm:resnet18{num_classes=10}`."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from irscope.errors import UsageError
from irscope.optiontext import OptionsError, items, read_options

PACKAGES: Final = ("torchvision", "timm", "transformers")
_NAME: Final = re.compile(rf"(?P<package>{'|'.join(PACKAGES)}):(?P<model>[^{{}}]+)(?:\{{(?P<options>.*)\}})?", re.DOTALL)
_ALIKE: Final = re.compile(r"(?P<package>[A-Za-z][A-Za-z_-]{2,}):(?P<model>[\w./-]+)(?:\{.*\})?", re.DOTALL)

_OPTIONS_EXAMPLE: Final = "for example {num_hidden_layers=2,hidden_size=256}"

OptionValue: TypeAlias = object
"""What an option is worth: a number, a truth value, None, a text, or a list of these."""


@dataclass(frozen=True)
class Name:
    """A model of a package, with options of its own."""

    text: str
    package: str
    model: str
    options: tuple[tuple[str, OptionValue], ...] = ()


def is_name(text: str) -> bool:
    """Whether a text names a model rather than a file; a file of that name wins."""
    return _NAME.fullmatch(text) is not None and not os.path.lexists(text)


def looks_like_name(text: str) -> str:
    """The package that a text seems to mean where there is neither such a file nor such a package; else empty."""
    match = _ALIKE.fullmatch(text)
    return match["package"] if match is not None and not os.path.lexists(text) else ""


def parse_name(text: str) -> Name:
    """The parts of a name; UsageError where its options do not parse."""
    match = _NAME.fullmatch(text)
    if match is None:
        hint = f"for example torchvision:resnet50; packages: {', '.join(PACKAGES)}"
        raise UsageError(f"{text!r} names no model", code="IRS670", hint=hint)
    return Name(text, match["package"], match["model"].strip(), tuple(_parsed_options(text, match["options"] or "").items()))


def _parsed_options(text: str, options: str) -> dict[str, OptionValue]:
    try:
        given, _ = read_options(f"{options}}}")
    except OptionsError as error:
        raise UsageError(str(error), code="IRS670", where=text, hint=_OPTIONS_EXAMPLE) from None
    found: dict[str, OptionValue] = {}
    for key, value in given.items():
        first, *more = (None,) if value is None else items(value)
        if first is None or more or not key.isidentifier():
            wrong = key if first is None or not more else more[0]
            raise UsageError(f"{wrong!r} is not of the form option=value", code="IRS670", where=text, hint=_OPTIONS_EXAMPLE)
        found[key] = _option_value(first)
    return found


def _option_value(text: str) -> OptionValue:
    plain = {"true": True, "false": False, "none": None}.get(text.lower(), text)
    if plain is not text:
        return plain
    try:
        value: OptionValue = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value
