"""Documents follow the published schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from irscope.report.jsonout import json_lines
from irscope.tools.compare import compare_models, model_comparison
from tests.unit.comparing.texts import MLP, model

PUBLISHED = Path(__file__).parents[3] / "docs" / "compare.schema.json"


def test_a_document_follows_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    made = model_comparison(compare_models(model(MLP), model(MLP.replace("nn.relu", "nn.gelu"))))
    document = json.loads("".join(json_lines(made.to_json())))
    jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text())).validate(document)
