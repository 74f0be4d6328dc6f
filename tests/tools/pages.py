"""Pages, manual and JSON Schemas of docs/, and the table of helps, from the source: `python -m tests.tools.pages` writes them."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from benchmarks.page import performance_page
from irscope.cli.check import SCHEMA as CHECK
from irscope.cli.check import CheckJson
from irscope.cli.helptext import describe
from irscope.cli.main import COMMANDS, command_named, parser_of
from irscope.codes import CODES
from irscope.jsoncodec import Json
from irscope.recording.records import LINES, Header
from irscope.recording.records import SCHEMA as RECORDING
from irscope.report.jsonout import json_lines
from irscope.report.report import SCHEMA_NAME as REPORT
from irscope.report.schema import CELL, DocumentJson, ManyJson
from irscope.tools.compare.document import SCHEMA as COMPARE
from irscope.tools.compare.document import CompareJson
from irscope.tools.many import SCHEMA as MANY
from tests.tools.api_reference import api_page
from tests.tools.commands_page import commands_page, escaped
from tests.tools.manpage import man_page

ROOT = Path(__file__).parents[2]


def codes_page() -> str:
    """Return a table of all codes; what each means and what to do about it is what `irscope explain` prints."""
    head = "Every diagnostic and error has a code. `irscope explain CODE` prints what it means and what to do about it."
    rows = [f"|{code}|{escaped(doc.title)}|" for code, doc in CODES.items()]
    return "\n".join(["# Codes", "", head, "", "|code|meaning|", "|---|---|", *rows, ""])


def help_table() -> str:
    """What `irscope COMMAND --help` prints, for every command."""
    commands = {name: command_named(name) for name in COMMANDS}
    described = {
        name: describe(parser_of(name, command), command.examples, getattr(command, "common", ())) for name, command in commands.items()
    }
    return "".join(json_lines(described))


def report_schema() -> str:
    """The document of `irscope run --format json`."""
    return _document_schema(DocumentJson, REPORT)


def compare_schema() -> str:
    """The document of `irscope compare --format json`."""
    return _document_schema(CompareJson, COMPARE)


def table_schema() -> str:
    """The document of `irscope run --format json` with several models."""
    return _document_schema(ManyJson, MANY)


def check_schema() -> str:
    """The document of `irscope check --format json`."""
    return _document_schema(CheckJson, CHECK)


def recording_schema() -> str:
    """One line of a recording."""
    kinds: list[Json] = []
    for name, kind in LINES.items():
        line = object_schema(kind, None)
        properties, required = line["properties"], line["required"]
        assert isinstance(properties, dict) and isinstance(required, list)
        fixed: dict[str, Json] = {"schema": {"const": RECORDING}} if kind is Header else {}
        line["properties"] = {"line": {"const": name}, **properties, **fixed}
        line["required"] = ["line", *required, *fixed]
        kinds.append(line)
    return json.dumps({"$schema": DRAFT, "$id": RECORDING, "title": "one line of a recording", "oneOf": kinds}, indent=1) + "\n"


GENERATED: Mapping[str, Callable[[], str]] = {
    "docs/api.md": api_page, "docs/irscope.1": man_page, "docs/performance.md": performance_page, "docs/codes.md": codes_page,
    "docs/commands.md": commands_page, "docs/report.schema.json": report_schema, "docs/compare.schema.json": compare_schema,
    "docs/check.schema.json": check_schema, "docs/table.schema.json": table_schema, "docs/recording.schema.json": recording_schema,
    "irscope/cli/helptext.json": help_table,
}  # fmt: skip

_CELL: dict[str, Json] = {
    "description": "A raw value. null is unknown; a string where a number is expected is its formula, or nan, inf or -inf.",
    "anyOf": [
        {"type": ["null", "boolean", "integer", "number", "string"]},
        {"type": "array", "items": {"$ref": "#/$defs/Cell"}},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/Cell"}},
    ],
}


def _document_schema(type_: type, title: str) -> str:
    definitions: dict[str, Json] = {"Cell": _CELL}
    document = object_schema(type_, definitions, {CELL: "Cell"})
    return "".join(json_lines({"$schema": DRAFT, "title": title, **document, "$defs": dict(sorted(definitions.items()))}))


_SCALARS: Mapping[object, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def type_schema(hint: object, definitions: dict[str, Json] | None = None, marked: Mapping[object, str] | None = None) -> dict[str, Json]:
    """The schema of a type. Properties that it does not name are allowed: later versions may add some.

    Objects become `definitions`, referred to by name, or stand in place where there are none; what is `marked` so in `Annotated` is the
    definition of that name. A text in `Annotated` is the description, an enum there closes the set of its strings.
    """
    if isinstance(hint, type) and (is_typeddict(hint) or dataclasses.is_dataclass(hint)):
        if definitions is None:
            return object_schema(hint, definitions, marked)
        name = hint.__name__.removesuffix("Json")
        if name not in definitions:
            definitions[name] = object_schema(hint, definitions, marked)
        return {"$ref": f"#/$defs/{name}"}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is NotRequired:
        return type_schema(arguments[0], definitions, marked)
    if origin is Annotated:
        return _annotated_schema(arguments[0], arguments[1:], definitions, marked)
    if origin is Literal:
        return {"const": arguments[0]}
    if origin in (list, tuple):
        return {"type": "array", "items": type_schema(arguments[0], definitions, marked)}
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [type_schema(argument, definitions, marked) for argument in arguments]}
    if origin is not None:
        return {"type": "object", "additionalProperties": type_schema(arguments[1], definitions, marked)}
    return {"type": _SCALARS[hint]}


def object_schema(kind: type, definitions: dict[str, Json] | None, marked: Mapping[object, str] | None = None) -> dict[str, Json]:
    """The schema of one object."""
    hints = get_type_hints(kind, vars(sys.modules[kind.__module__]), include_extras=True)
    if not dataclasses.is_dataclass(kind):
        required: list[Json] = [key for key, hint in hints.items() if get_origin(hint) is not NotRequired]
        about: dict[str, Json] = {"type": "object", "description": kind.__doc__}
    else:
        fields = dataclasses.fields(kind)
        required = [field.name for field in fields if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING]
        hints = {field.name: hints[field.name] for field in fields}
        about = {"type": "object"}
    return {**about, "properties": {key: type_schema(hint, definitions, marked) for key, hint in hints.items()}, "required": required}


def _annotated_schema(
    hint: object, extras: tuple[object, ...], definitions: dict[str, Json] | None, marked: Mapping[object, str] | None
) -> dict[str, Json]:
    name = next((known for mark, known in (marked or {}).items() if mark in extras), "")
    result: dict[str, Json] = {"$ref": f"#/$defs/{name}"} if name else type_schema(hint, definitions, marked)
    for extra in extras:
        if isinstance(extra, str):
            result["description"] = extra
        elif isinstance(extra, type) and issubclass(extra, enum.Enum):
            result["enum"] = [_member_name(member) for member in extra]
    return result


def _member_name(member: enum.Enum) -> str:
    """How a document spells a member: by its value if that is text, else by its name in lower case."""
    return member.value if isinstance(member.value, str) else member.name.lower()


if __name__ == "__main__":
    for page, made in GENERATED.items():
        (ROOT / page).write_text(made(), encoding="utf-8")
