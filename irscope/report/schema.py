"""The JSON Schema of a document, generated from the types in `jsontypes`.

`python -m irscope.report.schema` prints it; docs/report.schema.json is a copy.
"""

from __future__ import annotations

import enum
import sys
import types
from typing import Annotated, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from irscope.report import jsontypes
from irscope.report.jsonout import json_lines
from irscope.report.report import SCHEMA_NAME
from irscope.report.values import Json

_SCALARS: dict[object, dict[str, Json]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}
_CELL: dict[str, Json] = {
    "description": "A raw value. null is unknown; a string where a number is expected is its formula, or nan, inf or -inf.",
    "anyOf": [
        {"type": ["null", "boolean", "integer", "number", "string"]},
        {"type": "array", "items": {"$ref": "#/$defs/Cell"}},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/Cell"}},
    ],
}


def document_schema() -> dict[str, Json]:
    """The schema. Properties that it does not name are allowed: later versions of irscope may add some."""
    return schema_of(jsontypes.DocumentJson, SCHEMA_NAME)


def schema_of(type_: type, title: str) -> dict[str, Json]:
    """The schema of a document that is described by a TypedDict."""
    definitions: dict[str, Json] = {"Cell": _CELL}
    document = _object(type_, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **document,
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text() -> str:
    """The schema as it is published."""
    return "".join(json_lines(document_schema()))


def _object(type_: type, definitions: dict[str, Json]) -> dict[str, Json]:
    names = {**vars(jsontypes), **vars(sys.modules[type_.__module__])}
    hints = get_type_hints(type_, names, include_extras=True)
    properties: dict[str, Json] = {key: _schema(hint, definitions) for key, hint in hints.items()}
    required: list[Json] = [key for key, hint in hints.items() if get_origin(hint) is not NotRequired]
    return {"type": "object", "description": type_.__doc__, "properties": properties, "required": required}


def _schema(hint: object, definitions: dict[str, Json]) -> dict[str, Json]:
    """The schema of one type; objects become definitions, referred to by name."""
    if is_typeddict(hint):
        assert isinstance(hint, type)
        name = hint.__name__.removesuffix("Json")
        if name not in definitions:
            definitions[name] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{name}"}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is NotRequired:
        return _schema(arguments[0], definitions)
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:], definitions)
    if origin is Literal:
        return {"const": arguments[0]}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(argument, definitions) for argument in arguments]}
    return dict(_SCALARS[hint])


def _annotated(hint: object, extras: tuple[object, ...], definitions: dict[str, Json]) -> dict[str, Json]:
    free = jsontypes.CELL in extras
    result: dict[str, Json] = {"$ref": "#/$defs/Cell"} if free else _schema(hint, definitions)
    for extra in extras:
        if isinstance(extra, str):
            result["description"] = extra
        elif isinstance(extra, type) and issubclass(extra, enum.Enum):
            result["enum"] = [_name(member) for member in extra]
    return result


def _name(member: enum.Enum) -> str:
    """How the document spells a member: by its value if that is text, else by its name in lower case."""
    return member.value if isinstance(member.value, str) else member.name.lower()


if __name__ == "__main__":
    sys.stdout.write(schema_text())
