"""JSON in and out by the types of dataclasses: strict decoding with errors that name the path, and encoding.

Every document that comes from outside (recordings, folders of measurements, device files, what two processes tell each other) is read
by it. Counts are bounded, NaN and infinities are refused, and nothing is converted on the way, except that a number may be whole.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Never, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Decoder: TypeAlias = Callable[[object], object]
LARGEST = 1 << 62
"""No count of bytes is larger; what is, is a mistake or an attack."""


class Misfit(Exception):
    """A document that is not JSON, or a value of another type than its field; the text says where and what."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(f"{path}: {text}" if path else text)
        self.text = text
        self.path = path

    def below(self, name: str) -> Misfit:
        """Return the same within something of that name, or at `[3]` in a list."""
        return Misfit(self.text, name + ("." if self.path and self.path[0] != "[" else "") + self.path)


def loads(text: bytes | str) -> object:
    """Return the value of a JSON text. Raises Misfit, for texts that are nested too deeply as well."""
    try:
        found: object = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise Misfit("values nested too deeply") from None
    except ValueError as error:
        raise Misfit(f"no JSON: {error}") from error
    return found


def _no_constant(name: str) -> Never:
    raise ValueError(f"{name} is not a JSON number")


def decode(kind: type[T], value: object, *, closed: bool = False) -> T:
    """Return a dataclass from what JSON says. Raises Misfit.

    Fields that a dataclass does not have are left out, since later versions may have them; where the form is `closed` they are mistakes.
    """
    of_kind: type = kind
    return typing.cast("T", _dataclass(of_kind, closed)(value))


def encode(value: object) -> object:
    """Return what JSON has for a dataclass; fields that say nothing (their default) are left out."""
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
def _dataclass(kind: type, closed: bool) -> Decoder:
    hints = get_type_hints(kind)
    fields = dataclasses.fields(kind)
    decoders = {field.name: _decoder(hints[field.name], closed) for field in fields}
    required = [field.name for field in fields if field.default is field.default_factory is dataclasses.MISSING]

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise Misfit(f"an object is wanted, not {_shown(value)}")
        for name in required:
            if name not in value:
                raise Misfit(f"{name!r} is missing")
        if closed and not value.keys() <= decoders.keys():
            unknown = next(name for name in value if name not in decoders)
            raise Misfit(f"there is no such field; there are {', '.join(decoders)}", str(unknown)[:60])
        found: dict[str, object] = {}
        for name, decoder in decoders.items():
            if name in value:
                try:
                    found[name] = decoder(value[name])
                except Misfit as misfit:
                    raise misfit.below(name) from None
        return kind(**found)

    return read


def _decoder(hint: object, closed: bool) -> Decoder:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _dataclass(hint, closed)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return _list(_decoder(arguments[0], closed))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_decoder(arguments[1], closed))
    if origin in (types.UnionType, typing.Union):
        ways = [_decoder(argument, closed) for argument in arguments]
        return _either(ways, " or ".join(_NAMES.get(argument, "an object") for argument in arguments))
    return _PLAIN[typing.cast("type", hint)]


def _list(item: Decoder) -> Decoder:
    def read(value: object) -> object:
        if not isinstance(value, list):
            raise Misfit(f"a list is wanted, not {_shown(value)}")
        try:
            return tuple(map(item, value))
        except Misfit:
            _raise_at(item, ((f"[{place}]", part) for place, part in enumerate(value)))

    return read


def _mapping(item: Decoder) -> Decoder:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise Misfit(f"an object is wanted, not {_shown(value)}")
        try:
            return {key: item(part) for key, part in value.items()}
        except Misfit:
            _raise_at(item, ((key[:60], part) for key, part in value.items()))

    return read


def _raise_at(item: Decoder, parts: typing.Iterable[tuple[str, object]]) -> Never:
    """Look again for the part that does not fit, and say where it is."""
    for place, part in parts:
        try:
            item(part)
        except Misfit as misfit:
            raise misfit.below(place) from None
    raise AssertionError


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


_PLAIN: Mapping[object, Decoder] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _truth,
    type(None): _nothing,
    object: lambda value: value,
}
_NAMES: Mapping[object, str] = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
