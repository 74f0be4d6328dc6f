"""The recording's lines as a JSON schema, made from the dataclasses: docs/recording.schema.json holds the same."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping

from irscope.recording.records import LINES, SCHEMA, Header

Json: typing.TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
_PLAIN: Mapping[object, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def line_schema() -> dict[str, Json]:
    """The schema of one line. Further fields are allowed: readers leave them out."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA,
        "title": "one line of a recording",
        "oneOf": [_object(kind, name) for name, kind in LINES.items()],
    }


def _object(kind: type, name: str = "") -> dict[str, Json]:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    properties: dict[str, Json] = {"line": {"const": name}} if name else {}
    properties |= {field.name: _schema(hints[field.name]) for field in fields}
    required: list[Json] = ["line"] if name else []
    required += [field.name for field in fields if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING]
    if kind is Header:
        properties["schema"] = {"const": SCHEMA}
        required.append("schema")
    return {"type": "object", "properties": properties, "required": required}


def _schema(hint: object) -> dict[str, Json]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _object(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_schema(argument) for argument in arguments]}
    if origin is not None:
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    return {"type": _PLAIN[hint]}
