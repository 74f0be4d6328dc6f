"""The published JSON Schema is fresh, and documents keep to it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given

from irscope.report import RenderOptions, Report, Table, renderer
from irscope.report.schema import schema_text
from tests.unit.report import examples

PUBLISHED = Path(__file__).parents[3] / "docs" / "report.schema.json"


def closed(schema: Any) -> Any:
    """The schema, but refusing properties that it does not name: what irscope itself writes must all be described."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(item) for key, item in schema.items()}
    return {**result, "additionalProperties": False} if "properties" in schema and schema.get("type") == "object" else result


STRICT = jsonschema.Draft202012Validator(closed(json.loads(schema_text())))


def written(*reports: Report) -> Any:
    return json.loads("".join(renderer("json")(examples.document(*reports), RenderOptions())))


def test_the_published_copy_is_fresh() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema_text(), "run: make pages"


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text()))


def test_documents_validate() -> None:
    STRICT.validate(written())
    STRICT.validate(written(Report("empty"), examples.liveness(), Report("all", tables=(examples.everything(),))))


@given(examples.tables())
def test_random_documents_validate(table: Table) -> None:
    STRICT.validate(written(Report("random", tables=(table,))))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["schema"], "irscope.report/2"),
        (["tool", "version"], 1),
        (["model", "nodes"], "many"),
        (["reports", 0, "coverage"], None),
        (["reports", 0, "provenance"], {"a": "guessed"}),
        (["reports", 0, "tables", 0, "columns", 0, "kind"], "octets"),
        (["reports", 0, "diagnostics", 0, "severity"], "fatal"),
        (["reports", 0, "new"], 1),
    ],
)
def test_a_broken_document_does_not(path: list[str | int], value: object) -> None:
    document = copy.deepcopy(written(examples.liveness()))
    STRICT.validate(document)
    inside = document
    for part in path[:-1]:
        inside = inside[part]
    inside[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        STRICT.validate(document)


@pytest.mark.parametrize("key", ["pass", "options", "summary", "tables", "coverage", "diagnostics"])
def test_the_contracts_keys_are_required(key: str) -> None:
    document = written(examples.liveness())
    del document["reports"][0][key]
    with pytest.raises(jsonschema.ValidationError):
        STRICT.validate(document)
