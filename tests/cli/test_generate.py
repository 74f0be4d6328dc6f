"""`irscope generate`: what is said of wrong questions, and its figures beside the recorded ones where transformers is installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from irscope.errors import UsageError
from irscope.tools.generate import generate
from tests.tools.generate_jobs import compare, rows

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
TINY = (
    "transformers:llama{num_hidden_layers=2,hidden_size=64,intermediate_size=128,num_attention_heads=4,num_key_value_heads=2,"
    "vocab_size=1000,dtype=bf16}"
)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prompt": 0, "new": 1}, "at least 1"),
        ({"prompt": 1, "new": 1, "cache": "paged"}, "no cache 'paged'"),
        ({"prompt": 1, "new": 1, "dtype": "int4"}, "no element type"),
        ({"prompt": 1, "new": 1, "cache_options": ["backend"]}, "key=value"),
    ],
)
def test_a_wrong_question_is_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        generate("somewhere", **given)


def _irscope(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "irscope", *arguments], capture_output=True, text=True, check=False, timeout=300)


@needs_transformers
@pytest.mark.parametrize(
    "row", [row for row in rows() if row["job"]["new"] == 64 or row["job"]["config"] == "T5Config"][::6], ids=lambda row: row["job"]["id"]
)
def test_counters_are_those_of_the_recorded_call(row: dict[str, Any]) -> None:
    said = compare(row)
    if said is None:
        pytest.skip("a call that irscope generate has no option for")
    assert said == []


@needs_transformers
def test_the_document_says_what_the_text_says() -> None:
    asked = ("generate", TINY, "--prompt", "40", "--new", "60", "--batch", "3", "--device", "h200")
    document = json.loads(_irscope(*asked, "--format", "json").stdout)
    assert document["schema"] == "irscope.generation/1"
    assert list(document["phases"]) == ["load", "prefill", "decode"]
    for phase in document["phases"].values():
        assert sum(phase["by_category"].values()) == phase["requested"]["peak"]
    assert document["cache_bytes"] == sum(layer["bytes"] for layer in document["cache"])
    formula = document["formula"].replace("batch", "3").replace("prompt", "40").replace("new", "60")
    assert eval(formula) == document["cache_bytes"]  # numbers and signs
    assert len(document["captured_tokens"]) < 30
    text = _irscope(*asked).stdout
    assert text.splitlines()[2].split()[:2] == ["verdict", "fits"]


@needs_transformers
def test_what_does_not_fit_says_where() -> None:
    done = _irscope("generate", TINY, "--prompt", "100000", "--new", "20", "--batch", "500", "--device", "l4")
    assert done.returncode == 1
    assert "does not fit on NVIDIA L4" in done.stdout
