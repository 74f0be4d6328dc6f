"""`irscope generate --engine`: the arithmetic of serving engines, on a model whose parts are written down here."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from irscope.devices import find_device
from irscope.errors import UsageError
from irscope.report.values import Provenance
from irscope.tools.engines import Engine, Serving, _groups, _partition, _stage, engine_of, serve

pytestmark = pytest.mark.torch
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None or sys.platform != "linux", reason="transformers is not installed"
)
GIB = 1 << 30


def _served(windows: list[int | None], **changes: Any) -> Any:
    from irscope.frontends.generation.serving import Kept, Served, Share

    layers = [Share(f"model.layers.{number}.weight", number, (1000, 1000), 2_000_000) for number in range(len(windows))]
    shares = [
        Share("model.embed_tokens.weight", None, (1000, 64), 128_000),
        *layers,
        Share("model.norm.weight", None, (64,), 128),
        Share("lm_head.weight", None, (1000, 64), 128_000),
    ]
    made: dict[str, Any] = {
        "shares": shares,
        "whole_bytes": sum(share.bytes for share in shares),
        "kept": [Kept(number, 2, 2 * 128, window, False) for number, window in enumerate(windows)],
        "layers": len(windows),
        "element": 2,
        "dtype": "bf16",
        "vocabulary": 1000,
        "rotary": 64_000,
        "forward_peak": 100 << 20,
        "is_tied": False,
        "ends": (["model.embed_tokens.weight"], ["model.norm.weight", "lm_head.weight"]),
    }
    return Served(**made | changes)


def _serving(served: Any, engine: Engine, prompt: int, new: int) -> Serving:
    groups = _groups(served, engine, "model")
    stages = [_stage(served, engine, 24 * GIB, layers, groups) for layers in _partition(served.layers, engine.whole("pp"))]
    wish: Any = SimpleNamespace(model="model", prompt=prompt, new=new)
    simulation: Any = SimpleNamespace(target=SimpleNamespace(device=SimpleNamespace(title="a card")))
    return Serving(wish, engine, simulation, served, 24 * GIB, stages, groups)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tgi", "no engine 'tgi'"),
        ("vllm{util=1.2}", "share of the memory"),
        ("vllm{utl=0.9}", "no setting 'utl'"),
        ("vllm{block=0}", "whole number"),
        ("vllm{tp=nan}", "whole number"),
        ("vllm{kv=int4}", "type of the cache"),
        ("vllm{version=new}", "not a version of vLLM"),
        ("sglang{version=0.5}", "no setting 'version'"),
        ("vllm{util=0.9", "expected an option"),
        ("vllm{util=0.9}x", "continues after its settings"),
    ],
)
def test_a_wrong_engine_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        engine_of(text)


def test_what_is_left_is_the_budget_less_every_part() -> None:
    serving = _serving(_served([None] * 4), engine_of("vllm{util=0.5}"), 1000, 24)
    (stage,) = serving.stages
    *parts, (name, left, _) = stage.parts
    assert name == "left for the cache"
    assert left.ends == (sum(one.ends[0] or 0 for _, one, _ in parts), sum(one.ends[1] or 0 for _, one, _ in parts))
    assert left.provenance is Provenance.ASSUMED
    assert dict((what, value.value) for what, value, _ in parts)["weights"] == -(4 * 2_000_000 + 2 * 128_000 + 128)
    # Keys and values of 2 heads of 64, 16 tokens, 2 bytes, in 4 layers.
    assert stage.block_bytes == 4 * 16 * 2 * 128 * 2
    assert serving.blocks == tuple(int(end // stage.block_bytes) for end in left.ends)  # type: ignore[operator]
    assert serving.blocks_of_a_request == 64
    assert serving.verdict.startswith("holds ")


def test_layers_of_two_kinds_come_in_groups_of_equal_numbers() -> None:
    windows = [None if number % 6 == 5 else 1024 for number in range(24)]
    serving = _serving(_served(windows), engine_of("vllm{max_tokens=2048}"), 30_000, 1000)
    assert sorted(len(group.layers) for group in serving.groups) == [4] * 6
    assert sum(group.window is None for group in serving.groups) == 1
    # 31,000 tokens in blocks of 16; in the windows 1,023 and what a step reads, and one block more.
    assert serving.blocks_of_a_request == 1938 + 5 * (-(-(1023 + 2048) // 16) + 1)
    close = _serving(_served([None] * 13 + [128] * 12), engine_of("vllm"), 100, 100)
    assert [len(group.layers) for group in close.groups] == [13, 12]
    assert close.stages[0].block_bytes == 13 * close.groups[0].page


def test_stages_hold_their_layers_and_the_least_counts() -> None:
    assert [len(one) for one in _partition(10, 4)] == [2, 3, 3, 2]
    serving = _serving(_served([None] * 10), engine_of("vllm{pp=4}"), 100, 100)
    weights = [next(value.value for what, value, _ in stage.parts if what == "weights") for stage in serving.stages]
    assert weights == [-(2 * 2_000_000 + 128_000), -6_000_000, -6_000_000, -(2 * 2_000_000 + 128_128)]
    assert serving.blocks[0] == min(stage.blocks[0] for stage in serving.stages)
    tied = _serving(_served([None] * 10, is_tied=True), engine_of("vllm{pp=4}"), 100, 100)
    assert next(value.value for what, value, _ in tied.stages[-1].parts if what == "weights") == -(2 * 2_000_000 + 2 * 128_000 + 128)
    with pytest.raises(UsageError, match="fewer than pp=11"):
        _partition(10, 11)


def test_a_cache_in_eight_bits_has_twice_the_tokens() -> None:
    served = _served([None] * 4)
    whole, half = (_serving(served, engine_of(text), 100, 100) for text in ("vllm{graphs=0}", "vllm{graphs=0, kv=fp8}"))
    assert whole.stages[0].block_bytes == 2 * half.stages[0].block_bytes
    assert "CUDA graphs" not in [what for what, _, _ in whole.stages[0].parts]


@needs_transformers
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_rank_has_its_share_of_the_weights_and_heads(tp: int) -> None:
    name = (
        "transformers:llama{num_hidden_layers=4,hidden_size=512,intermediate_size=1408,num_attention_heads=8,num_key_value_heads=2,"
        "vocab_size=1000,dtype=bf16}"
    )
    found = serve(name, f"vllm{{tp={tp}, max_tokens=512}}", prompt=100, new=28, device="h200")
    heads = max(1, 2 // tp)
    assert [one.heads for one in found.served.kept] == [heads] * 4
    assert found.groups[0].page == 16 * heads * 2 * 64 * 2
    layer = (2 * 512 * 512 // tp) + 2 * 512 * 64 * heads + 3 * 512 * 1408 // tp + 2 * 512
    # Rows of the vocabulary come in multiples of 64.
    assert -int(found.stages[0].parts[1][1].value or 0) == 2 * (4 * layer + 2 * 1024 * 512 // tp + 512)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "expected"), [("rtx4090", (2048, 256)), ("a100-80gb", (2048, 256)), ("h100", (8192, 1024)), ("h200", (8192, 1024))]
)
def test_vllm_takes_its_defaults_of_the_device(device: str, expected: tuple[int, int]) -> None:
    """`get_batch_defaults` of vLLM's arg_utils.py, for its server."""
    engine = engine_of("vllm{util=0.8}").on(find_device(device))
    assert (engine.whole("max_tokens"), engine.whole("max_seqs"), engine["util"]) == (*expected, 0.8)
    said = engine_of("vllm{max_tokens=4096}").on(find_device(device))
    assert said.whole("max_tokens") == 4096


def test_a_wide_answer_says_by_what_and_a_start_up_log_narrows_it() -> None:
    wide = _serving(_served([None] * 4), engine_of("vllm{util=0.2}"), 30_000, 1000)
    assert wide.why_wide.startswith("by CUDA graphs 307.20 MiB to 1.00 GiB and outside of torch")
    earlier = {
        text: _serving(_served([None] * 4), engine_of(f"vllm{{version={text}}}"), 30_000, 1000) for text in ("0.6.5", "0.20", "0.21")
    }
    parts = {text: {what: value.ends for what, value, _ in predecessor.stages[0].parts} for text, predecessor in earlier.items()}
    assert [ends["CUDA graphs"] == (0, 0) for ends in parts.values()] == [True, True, False]
    assert [str(before.engine).startswith(f"vllm{{version={text[:4].rstrip('.')}, util=") for text, before in earlier.items()] == [True] * 3
    assert [predecessor.engine["util"] for predecessor in earlier.values()] == [0.9, 0.9, 0.92]
    assert parts["0.6.5"]["outside of torch"][0] == -int(1.8 * GIB) < parts["0.20"]["outside of torch"][0] == -int(0.4 * GIB)
    narrow = _serving(_served([None] * 4), engine_of("vllm{util=0.2, outside=0.5, captured=0.25}"), 30_000, 1000)
    told = {what: value for what, value, _ in narrow.stages[0].parts}
    assert not narrow.why_wide
    assert told["outside of torch"].ends == (-(1 << 29), -(1 << 29)) and told["CUDA graphs"].value == -(1 << 28)
    with pytest.raises(UsageError, match="start-up log"):
        engine_of("vllm{outside=-1}")
