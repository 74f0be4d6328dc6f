"""From JSON to dataclasses and back, by the types of their fields. Fields that a dataclass does not have are left out."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")
Decoder = Callable[[object], object]
LARGEST = 1 << 62
"""No count of bytes is larger; what is, is a mistake or an attack."""


class Misfit(Exception):
    """A value that is not what the field holds; the text says which and what."""


def decode(kind: type[T], value: object) -> T:
    """A dataclass from what JSON says. Raises Misfit."""
    of_kind: type = kind
    return typing.cast("T", _dataclass(of_kind)(value))


def encode(value: object) -> object:
    """What JSON has for a dataclass; fields that say nothing (their default) are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: encode(item) for field, item in fields if not _is_default(field, item)}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return value


def _is_default(field: dataclasses.Field[object], item: object) -> bool:
    if field.name == "schema":
        return False
    if field.default is not dataclasses.MISSING:
        return bool(item == field.default) and type(item) is type(field.default)
    return field.default_factory is not dataclasses.MISSING and item == field.default_factory()


@functools.cache
def _dataclass(kind: type) -> Decoder:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    decoders = {field.name: _decoder(hints[field.name]) for field in fields}
    required = [field.name for field in fields if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING]

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise Misfit(f"an object is wanted, not {_shown(value)}")
        for name in required:
            if name not in value:
                raise Misfit(f"{name!r} is missing")
        found: dict[str, object] = {}
        for name, decoder in decoders.items():
            if name in value:
                try:
                    found[name] = decoder(value[name])
                except Misfit as misfit:
                    raise Misfit(f"{name}: {misfit}") from None
        return kind(**found)

    return read


def _decoder(hint: object) -> Decoder:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _dataclass(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return _list(_decoder(arguments[0]))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_decoder(arguments[1]))
    if origin in (types.UnionType, typing.Union):
        return _either([_decoder(argument) for argument in arguments], " or ".join(_name(argument) for argument in arguments))
    return _PLAIN[typing.cast("type", hint)]


def _list(item: Decoder) -> Decoder:
    def read(value: object) -> object:
        if not isinstance(value, list):
            raise Misfit(f"a list is wanted, not {_shown(value)}")
        return tuple(map(item, value))

    return read


def _mapping(item: Decoder) -> Decoder:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise Misfit(f"an object is wanted, not {_shown(value)}")
        return {key: item(part) for key, part in value.items()}

    return read


def _either(ways: list[Decoder], wanted: str) -> Decoder:
    def read(value: object) -> object:
        failures: list[Misfit] = []
        for way in ways:
            try:
                return way(value)
            except Misfit as misfit:
                failures.append(misfit)
        if isinstance(value, dict):
            raise failures[0]
        raise Misfit(f"{wanted} is wanted, not {_shown(value)}")

    return read


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise Misfit(f"text is wanted, not {_shown(value)}")
    return value


def _whole(value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool) or not -LARGEST <= value <= LARGEST:
        raise Misfit(f"a whole number is wanted, not {_shown(value)}")
    return value


def _number(value: object) -> object:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= LARGEST or not math.isfinite(value):
        raise Misfit(f"a number is wanted, not {_shown(value)}")
    return float(value)


def _truth(value: object) -> object:
    if not isinstance(value, bool):
        raise Misfit(f"true or false is wanted, not {_shown(value)}")
    return value


def _nothing(value: object) -> object:
    if value is not None:
        raise Misfit(f"null is wanted, not {_shown(value)}")
    return value


_PLAIN: Mapping[type, Decoder] = {str: _text, int: _whole, float: _number, bool: _truth, type(None): _nothing}
_NAMES: Mapping[object, str] = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}


def _name(hint: object) -> str:
    return _NAMES.get(hint, "an object")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
