"""The cache of keys and values as arithmetic over what a file says of its model, and why it is not known where the file says too little."""

from __future__ import annotations

import pytest

from irscope.passes.weights.described import Described, described
from irscope.report.values import Provenance

BASE = {
    "block_count": "4",
    "context_length": "1000",
    "embedding_length": "256",
    "attention.head_count": "8",
    "attention.head_count_kv": "2",
}


def _told(architecture: str = "llama", **changed: str) -> Described:
    own = {**BASE, **{key.replace("__", "."): text for key, text in changed.items()}}
    metadata = {f"{architecture}.{key}": text for key, text in own.items() if text}
    found = described({"general.architecture": architecture, **metadata})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("changed", "each", "at_context"),
    [
        ({}, 4 * 2 * 64 * 2, 4 * 2 * 64 * 2 * 1000),
        ({"attention__head_count_kv": ""}, 4 * 8 * 64 * 2, 4 * 8 * 64 * 2 * 1000),
        ({"attention__key_length": "128", "attention__value_length": "64"}, 4 * 2 * 192 * 2, 4 * 2 * 192 * 2 * 1000),
        ({"attention__head_count_kv": "[2, 0, 4, 0]"}, 6 * 64 * 2, 6 * 64 * 2 * 1000),
        ({"nextn_predict_layers": "1"}, 3 * 2 * 64 * 2, 3 * 2 * 64 * 2 * 1000),
        ({"attention__shared_kv_layers": "1"}, 3 * 2 * 64 * 2, 3 * 2 * 64 * 2 * 1000),
        (
            {"attention__sliding_window": "100", "attention__sliding_window_pattern": "[true, true, true, false]"},
            4 * 2 * 64 * 2,
            (3 * 100 + 1000) * 2 * 64 * 2,
        ),
        ({"attention__sliding_window": "100", "attention__sliding_window_pattern": "2"}, 1024, (2 * 100 + 2 * 1000) * 256),
        (
            {
                "attention__sliding_window": "100",
                "attention__sliding_window_pattern": "[true, false, true, false]",
                "attention__key_length": "32",
                "attention__value_length": "32",
                "attention__key_length_swa": "16",
                "attention__value_length_swa": "16",
            },
            2 * 2 * 2 * (64 + 32),
            2 * 2 * 2 * (64 * 1000 + 32 * 100),
        ),
        ({"ssm__state_size": "16", "full_attention_interval": "4"}, 2 * 64 * 2, 2 * 64 * 2 * 1000),
        ({"attention__head_count": "0", "attention__head_count_kv": "0", "ssm__state_size": "16"}, 0, 0),
    ],
)
def test_bytes_of_a_token_and_of_the_context(changed: dict[str, str], each: int, at_context: int) -> None:
    told = _told(**changed)
    assert told.why == ""
    assert (told.cache.value, told.cache_at_context.value) == (each, at_context)
    assert told.cache.provenance is Provenance.MODELLED
    assert told.cache.interval is None


def test_latent_attention_may_keep_one_tensor() -> None:
    lengths = {"attention__key_length": "576", "attention__value_length": "512"}
    told = _told("deepseek2", attention__head_count_kv="1", attention__kv_lora_rank="512", rope__dimension_count="64", **lengths)
    assert told.cache.interval == (4 * 576 * 2, 4 * (576 + 512) * 2)
    assert "values are a part of the keys" in told.law


def test_a_window_of_unknown_layers_is_an_interval() -> None:
    told = _told(attention__sliding_window="100")
    assert told.cache.value == 4 * 2 * 64 * 2
    assert told.cache_at_context.interval == (4 * 2 * 64 * 2 * 100, 4 * 2 * 64 * 2 * 1000)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"block_count": ""}, "does not say llama.block_count"),
        ({"block_count": "0"}, "no number of layers that can be"),
        ({"block_count": "99999999999"}, "no number of layers that can be"),
        ({"embedding_length": ""}, "does not say llama.embedding_length"),
        ({"attention__head_count": "", "attention__head_count_kv": ""}, "does not say llama.attention.head_count"),
        ({"attention__head_count_kv": "[2, 2]"}, "another length than there are layers"),
        ({"attention__causal": "false"}, "looks both ways"),
        ({"decoder_start_token_id": "0"}, "what its encoder read"),
        ({"ssm__state_size": "16"}, "does not say which"),
    ],
)
def test_what_the_file_does_not_say_is_not_known(changed: dict[str, str], why: str) -> None:
    told = _told(**changed)
    assert why in told.why
    assert told.cache.value is None
    assert told.cache_at_context.value is None
    assert told.law == ""


def test_files_that_say_nothing_have_no_description() -> None:
    assert described({"format": "pt"}) is None


def test_elements_of_the_cache_are_as_the_metadata_says() -> None:
    assert _told(cache_type="f32").cache.value == 2 * int(str(_told().cache.value)) and "4 bytes of f32" in _told(cache_type="f32").law
    assert _told(cache_type="bf16").law.startswith("2 bytes of bf16")
    unknown = _told(cache_unknown="it keeps a state")
    assert unknown.cache.value is None and unknown.why == "it keeps a state"
