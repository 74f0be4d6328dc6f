"""`irscope fit` of language models that generate: what is found is what `irscope generate` counts at that size and at the next."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

import pytest

from irscope.cli.main import main
from irscope.errors import UsageError
from irscope.tools.fit_generation import fit_generation
from irscope.tools.generate import generate

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
MODEL = (
    "transformers:llama{num_hidden_layers=2,hidden_size=64,intermediate_size=128,num_attention_heads=4,num_key_value_heads=2,"
    "vocab_size=1000,dtype=bf16,max_position_embeddings=1000000}"
)
MEMORY = 96 << 20


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"free": "length"}, "not a size to look for"),
        ({"free": "batch,new", "prompt": 3}, "not a size to look for"),
        ({"free": "batch"}, "how long the prompt is"),
        ({"free": "context", "new": 0, "batch": 0}, "no cache"),
    ],
)
def test_a_wrong_question_is_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit_generation("somewhere", "1GiB", **given, cache="paged" if said == "no cache" else "dynamic")


def _reserved(**sizes: Any) -> int:
    return generate(MODEL, device="h200", **sizes).peak("reserved")


@needs_transformers
@pytest.mark.parametrize(
    ("free", "given"),
    [
        ("context", {"new": 12}),
        pytest.param("batch", {"prompt": 500, "new": 12}, marks=pytest.mark.slow),
        pytest.param("new", {"prompt": 20, "cache": "static", "batch": 64}, marks=pytest.mark.slow),
        pytest.param("batch", {"prompt": 300, "new": 3, "cache": "static"}, marks=pytest.mark.slow),
        pytest.param("context", {"new": 12, "store_as": "nf4", "attention": "eager"}, marks=pytest.mark.slow),
        pytest.param("batch", {"prompt": 300, "new": 9, "beams": 3, "dtype": "f32", "chunk": 100}, marks=pytest.mark.slow),
    ],
)
def test_the_largest_size_fits_and_the_next_does_not(free: str, given: dict[str, Any]) -> None:
    fit = fit_generation(MODEL, MEMORY, free, device="h200", **given)
    assert fit.limit == "memory" and fit.at is not None and fit.following is not None
    sizes = given | {"prompt": fit.wish.prompt, "new": fit.wish.new, "batch": fit.wish.batch, "cache": fit.wish.cache}
    assert _reserved(**sizes) == fit.at.reserved <= MEMORY
    grown = {"context": "prompt", "batch": "batch", "new": "new"}[free]
    sizes[grown] += fit.following.size - fit.largest
    assert _reserved(**sizes) == fit.following.reserved > MEMORY


@pytest.mark.slow
@needs_transformers
def test_new_tokens_that_were_not_replayed_are_said() -> None:
    fit = fit_generation(MODEL, "64MiB", "new", prompt=100, device="h200")
    assert fit.limit == "replays" and fit.fits and fit.most > fit.largest
    assert f"more than {fit.most:,} does not" in fit.report().headline[0]


@pytest.mark.slow
@needs_transformers
def test_a_table_of_contexts() -> None:
    fit = fit_generation(MODEL, MEMORY, "batch,context", new=4, batch=64, device="h200")
    assert [row.wish.batch for row in fit.rows[:3]] == [64, 128, 256]
    contexts = [row.largest for row in fit.rows]
    assert contexts == sorted(contexts, reverse=True)
    (curve,) = fit.report().pictures()
    assert list(curve.data["context"]) == contexts
    assert [row["largest"] for row in json.loads(json.dumps(fit.to_json()))["frontier"]] == contexts


@pytest.mark.slow
@needs_transformers
def test_how_it_is_stored_is_asked_for_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    plain, coded = (fit_generation(MODEL, MEMORY, "context", new=4, store_as=scheme, attention="eager").loaded for scheme in ("", "nf4"))
    assert plain is not None and coded is not None and coded.parameter_bytes < plain.parameter_bytes
    assert main(["fit", MODEL, "--memory", "96MiB", "--free", "context", "--new", "4", "--as", "nf4", "--attention", "eager"]) == 0
    shown = capsys.readouterr().out
    assert "in nf4" in shown and "bitsandbytes" in shown and "eager attention" in shown


@pytest.mark.parametrize("option", [["--as", "nf4"], ["--beams", "2"], ["--sample"], ["--attention", "eager"], ["--batch", "2"]])
def test_options_of_generation_are_refused_where_nothing_is_generated(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "somewhere", *option]) == 2
    assert f"{option[0]} is for a model that generates" in capsys.readouterr().err


@needs_transformers
def test_what_does_not_fit_at_all() -> None:
    fit = fit_generation(MODEL, "1MiB", "context", device="h200")
    assert not fit.fits and "does not fit" in fit.report().headline[0]
