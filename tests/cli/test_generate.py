"""`irscope generate`: what is said of wrong questions, and its figures beside the recorded ones where transformers is installed."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from irscope.errors import UsageError
from irscope.frontends.generation.program import Wish
from irscope.tools.generate import Capture, generate
from irscope.weights.schemes import parse_scheme
from tests.forked import python
from tests.tools.generate_jobs import ASSISTED, HIDING, VISION, compare, rows
from tests.unit.weights.test_packed import LAYOUTS, stored_bytes_of, write

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
needs_transformers = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("transformers", "accelerate")), reason="transformers is not installed"
)
TINY = (
    "transformers:llama{num_hidden_layers=2,hidden_size=64,intermediate_size=128,num_attention_heads=4,num_key_value_heads=2,"
    "vocab_size=1000,dtype=bf16}"
)
WIDE = (
    "transformers:llama{num_hidden_layers=4,hidden_size=2048,intermediate_size=5632,num_attention_heads=16,num_key_value_heads=4,"
    "vocab_size=32000,dtype=bf16}"
)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prompt": 0, "new": 1}, "at least 1"),
        ({"prompt": 1, "new": 1, "cache": "paged"}, "no cache 'paged'"),
        ({"prompt": 1, "new": 1, "dtype": "int4"}, "not an element type"),
        ({"prompt": 1, "new": 1, "cache_options": ["backend"]}, "key=value"),
        ({"prompt": 1, "new": 9, "accepted": 2}, "there is no assistant"),
        ({"prompt": 1, "new": 9, "assistant": "other", "batch": 2}, "one sequence"),
        ({"prompt": 1, "new": 9, "assistant": "other", "candidates": 3, "accepted": 4}, "4 cannot be accepted"),
        ({"prompt": 1, "new": 9, "assistant": "other", "cache": "static"}, "can be cut back"),
    ],
)
def test_a_wrong_question_is_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        generate("somewhere", **given)


def _irscope(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "irscope", *arguments], capture_output=True, text=True, check=False, timeout=300)


STRICT = """
import sys, torch
from irscope.errors import LoadError, UsageError
from irscope.frontends.generation.program import of_the_model
from irscope.tools.simulate import run_own
from irscope.tools.simulation import Options

def says(what):
    raise what

def model(raises):
    with of_the_model():
        raises()

def within_a_hook():
    with of_the_model():
        exec(compile("def _before_forward(): says(ValueError('ours'))\\n_before_forward()", f"{FOLDER}/program.py", "exec"), globals())

import irscope.frontends.generation as package
FOLDER = package.__path__[0]
kept = []
for program in (
    lambda: kept.append(torch.zeros(1 << 20, device="cuda")),
    lambda: torch.zeros(1 << 50, device="cuda"),
    lambda: model(lambda: torch.zeros(1 << 50, device="cuda")),
    lambda: says(KeyError("ours")),
    lambda: says(UsageError("asked wrongly")),
    lambda: model(lambda: says(IndexError("too long a prompt"))),
    within_a_hook,
):
    try:
        print(run_own(program, "model", Options("h200")).outcome)
    except Exception as error:
        print(type(error).__name__, getattr(error, "code", ""), str(error))
"""


@pytest.mark.slow
def test_what_fails_is_never_left_out_of_the_answer() -> None:
    assert python(STRICT).stdout.splitlines() == [
        "finished",
        "oom",
        "oom",
        "KeyError  'ours'",
        "UsageError IRS600 asked wrongly",
        "LoadError IRS697 <string>:9: it does not run: IndexError: too long a prompt",
        "ValueError  ours",
    ]


def test_a_generation_ends_where_it_is_told_to_even_where_values_are_known() -> None:
    program = """
import torch
from irscope.tools.simulate import current_process, run_own
from irscope.tools.simulation import Options

def program():
    for answer in (lambda frame, value: value + 4, None):
        current_process().answer_by = answer
        print(torch.tensor(3, device="cuda").item())

run_own(program, "own", Options("h100"))
"""
    done = python(program)
    assert done.stdout.splitlines() == ["7", "3"], done.stderr


@needs_transformers
@pytest.mark.parametrize("name", ["peak_formulas", "read_steps"])
def test_a_fault_after_the_real_run_is_an_error(name: str) -> None:
    program = f"""
import irscope.tools.generate as module
def fails(*args, **kwargs):
    raise ValueError("a fault of irscope's own")
module.{name} = fails
from irscope.cli.main import main
sys.exit(main(["generate", {TINY!r}, "--prompt", "20", "--new", "30"]))
"""
    done = python(f"import sys{program}")
    assert done.returncode == 4, done.stderr
    assert done.stdout == "" and "IRS900: ValueError: a fault of irscope's own" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@needs_transformers
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row["job"]["id"], marks=pytest.mark.slow if number else [])
        for number, row in enumerate(
            [row for row in rows() if row["job"]["new"] == 64 or row["job"]["config"] in ("T5Config", "FalconConfig", "Olmo3Config")][::8]
        )
    ],
)
def test_counters_are_those_of_the_recorded_call(row: dict[str, Any]) -> None:
    said = compare(row)
    if said is None:
        pytest.skip("a call that irscope generate has no option for")
    assert said == []


@needs_transformers
@pytest.mark.parametrize("row", [*rows(ASSISTED)[::2], *rows(VISION)], ids=lambda row: row["job"]["id"])
def test_counters_with_an_assistant_or_without_images_are_those_of_the_recorded_call(row: dict[str, Any]) -> None:
    assert compare(row) == []


def test_rounds_end_with_the_last_token() -> None:
    for accepted in range(6):
        wish = Wish("model", prompt=10, new=31, assistant="draft", candidates=5, accepted=accepted)
        starts = wish.starts()
        assert starts[0] == 10
        grown = [start + min(accepted, wish.proposed(start)) + 1 for start in starts]
        assert [*starts[1:], 41] == grown
        alike = starts[1 : 1 + wish.alike()]
        assert all(wish.proposed(start) == 5 for start in alike)
        assert len(alike) < len(starts) - 1
    assert list(Wish("model", prompt=10, new=4).starts()) == [10, 11, 12, 13]


@needs_transformers
def test_without_a_number_of_accepted_tokens_both_ends_are_told() -> None:
    asked = ("generate", TINY, "--assistant", TINY, "--candidates", "4", "--prompt", "40", "--new", "24", "--device", "h200")
    document = json.loads(_irscope(*asked, "--format", "json").stdout)
    helped = document["assistant"]
    assert {helped["accepted"], helped["other"]["accepted"]} == {0, 4}
    assert max(one["reserved"]["peak"] for one in document["phases"].values()) >= helped["other"]["peak"]["reserved"]
    # Both begin on an empty device: what was loaded first is gone.
    alone = json.loads(_irscope(*asked, "--accepted", str(helped["other"]["accepted"]), "--format", "json").stdout)
    assert max(one["requested"]["peak"] for one in alone["phases"].values()) == helped["other"]["peak"]["requested"]
    alone = json.loads(_irscope(*asked, "--accepted", str(helped["accepted"]), "--format", "json").stdout)
    assert alone["phases"] == document["phases"]
    text = _irscope(*asked).stdout
    assert "peaks by how many proposed tokens are right" in text


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
    assert "model.layers.0-1.self_attn" in text.partition("alive at the peak")[2], "equal layers are one row"


def _times(*more: str) -> dict[str, Any]:
    return json.loads(_irscope("generate", WIDE, "--device", "h100", "--format", "json", *more).stdout)


@needs_transformers
def test_decoding_reads_all_weights_for_each_token_and_longer_prompts_take_longer() -> None:
    short, long, many = (
        _times("--new", "20", "--prompt", prompt, "--batch", batch) for prompt, batch in (("500", "1"), ("4000", "1"), ("500", "8"))
    )
    for one in (short, long, many):
        times = one["times"]
        read = one["parameter_bytes"] - 2 * 32000 * 2048  # of the embedding only a row
        assert times["token_seconds"] >= times["token_kernel_seconds"] >= read / 3.35e12  # the bandwidth of an H100's data sheet
        for name in ("first_token_seconds", "token_seconds", "tokens_per_second"):
            low, high = times[f"{name}_interval"]
            assert low < times[name] < high
        assert times["tokens_per_second"] == pytest.approx(one["batch"] / times["token_seconds"])
        assert times["unknown"] == {}
    in_layers = long["parameters"] - 2 * 32000 * 2048  # which read all tokens; logits are those of the last one
    assert long["times"]["first_token_seconds"] > 2 * in_layers * 4000 / 989e12  # the peak of an H100's data sheet
    assert long["times"]["first_token_seconds"] > short["times"]["first_token_seconds"]
    assert long["times"]["token_kernel_seconds"] > short["times"]["token_kernel_seconds"]
    assert many["times"]["tokens_per_second"] > 4 * short["times"]["tokens_per_second"]


@needs_transformers
def test_kernels_of_weights_in_few_bits_have_no_time() -> None:
    times = json.loads(_irscope("generate", TINY, "--prompt", "40", "--new", "10", "--as", "nf4", "--format", "json").stdout)["times"]
    for name in ("first_token_seconds", "token_seconds"):
        assert times[name] is None
        assert times[f"{name}_interval"][0] > 0
        assert times[f"{name}_interval"][1] is None
    assert times["tokens_per_second"] is None
    assert [name for name in times["unknown"] if "nf4" in name]


@needs_transformers
def test_what_is_refused_has_no_times() -> None:
    document = json.loads(
        _irscope("generate", TINY, "--prompt", "100000", "--new", "20", "--batch", "500", "--device", "l4", "--format", "json").stdout
    )
    assert document["outcome"] == "oom"
    assert document["times"] is None


@needs_transformers
def test_what_does_not_fit_says_where() -> None:
    done = _irscope("generate", TINY, "--prompt", "100000", "--new", "20", "--batch", "500", "--device", "l4")
    assert done.returncode == 1
    assert "does not fit on NVIDIA L4" in done.stdout


@needs_transformers
@pytest.mark.parametrize("scheme", ["int8", "nf4{double}", "fp8", "awq{group=64}"])
def test_weights_in_few_bits_take_what_the_scheme_stores(scheme: str) -> None:
    plain, packed = (
        json.loads(_irscope("generate", TINY, "--prompt", "20", "--new", "4", "--format", "json", *more).stdout)
        for more in ((), ("--as", scheme))
    )
    layers = 2 * [(64, 64), (32, 64), (32, 64), (64, 64), (128, 64), (128, 64), (64, 128)]
    before = sum(2 * outputs * inputs for outputs, inputs in layers)
    after = sum(parse_scheme(scheme).bytes(*sizes) for sizes in layers)
    assert packed["parameters"] == plain["parameters"]
    assert plain["parameter_bytes"] - packed["parameter_bytes"] == before - after
    assert packed["phases"]["load"]["by_category"]["parameter"] == packed["parameter_bytes"]
    assert packed["cache"] == plain["cache"]
    assert [one["scheme"] for one in packed["quantised"]] == [scheme] and plain["quantised"] == []


@needs_transformers
def test_a_scheme_that_stores_no_layer_is_one_line() -> None:
    done = _irscope(
        "generate", TINY.replace("hidden_size=64", "hidden_size=40").replace("=128", "=72"), "--prompt", "20", "--new", "4", "--as", "mxfp4"
    )
    assert done.returncode == 2 and "no linear layer can be stored as mxfp4" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@needs_transformers
@pytest.mark.parametrize("layout", ["nf4 double", "int8", "gptq", "compressed-tensors", "torchao int8"])
def test_a_quantised_checkpoint_holds_the_bytes_of_its_file(layout: str, tmp_path: Path) -> None:
    header, config, metadata, _ = LAYOUTS[layout]
    settings = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 256, "vocab_size": 64}
    settings |= {"intermediate_size": 384, "num_attention_heads": 4, "num_key_value_heads": 4, "dtype": "bfloat16"}
    down = {name.replace("l.", "model.layers.0.mlp.down_proj.", 1): cell for name, cell in header.items()}
    plain = {f"model.layers.0.self_attn.{one}_proj.weight": ("BF16", [256, 256]) for one in "qkvo"}
    plain |= {f"model.layers.0.mlp.{one}_proj.weight": ("BF16", [384, 256]) for one in ("gate", "up")}
    plain |= {f"model.layers.0.{one}_layernorm.weight": ("BF16", [256]) for one in ("input", "post_attention")}
    plain |= {"model.norm.weight": ("BF16", [256]), "model.embed_tokens.weight": ("BF16", [64, 256]), "lm_head.weight": ("BF16", [64, 256])}
    names = {name.replace("l.", "model.layers.0.mlp.down_proj.", 1): one for name, one in metadata.items()}
    write(tmp_path / "model.safetensors", {**plain, **down}, names)
    (tmp_path / "config.json").write_text(json.dumps({**settings, "quantization_config": config}))
    done = _irscope("generate", str(tmp_path), "--prompt", "20", "--new", "4", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    held = stored_bytes_of({**plain, **{name: one for name, one in down.items() if "quant_state" not in name and "format" not in name}})
    assert found["parameter_bytes"] == held
    assert found["parameters"] == sum(math.prod(shape) for _, shape in plain.values()) + 256 * 384
    assert found["phases"]["load"]["by_category"]["parameter"] == held
    again = _irscope("generate", str(tmp_path), "--prompt", "20", "--new", "4", "--as", "nf4")
    assert again.returncode == 2 and "its weights are quantised already" in again.stderr


@needs_transformers
@pytest.mark.parametrize("name", ["gemma3n", "minimax", "rwkv", "zamba2", "qwen3_next", "deepseek_v3", "t5"])
def test_the_cache_is_what_the_model_holds_after_it_has_generated(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools.generate_caches", name, "--lengths=5,40"], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[0].split()[:2] == [name, "equal"], done.stderr[-500:]


@needs_transformers
def test_formulas_of_peaks_hold_at_other_sizes() -> None:
    model = "transformers:llama{num_hidden_layers=4,hidden_size=512,intermediate_size=1408,num_attention_heads=8,num_key_value_heads=2,"
    model += "vocab_size=32000,dtype=bf16,max_position_embeddings=100000}"
    found = generate(model, prompt=400, new=60, batch=4, device="h200")
    assert list(found.peak_formulas) == ["prefill", "decode"]
    assert found.peak_formula == str(found.peak_formulas["prefill"])
    other = generate(model, prompt=1500, new=40, batch=3, device="h200")
    for name in ("prefill", "decode"):
        assert found.peak_formulas[name](3, 1500, 40) == other.phases[name].peak.requested


@needs_transformers
def test_formulas_of_a_model_with_windows_hold_below_and_above() -> None:
    model = "transformers:mistral{num_hidden_layers=2,hidden_size=64,intermediate_size=128,num_attention_heads=4,num_key_value_heads=2,"
    model += "vocab_size=1000,dtype=bf16,sliding_window=1024}"
    found = generate(model, prompt=4096, new=40, device="h200")
    formula = found.peak_formulas["decode"]
    assert len(formula.held) == 2 and " if prompt + new <= 1024 else " in str(formula)
    for prompt, new in ((720, 50), (6000, 30)):
        other = generate(model, prompt=prompt, new=new, batch=3, device="h200")
        assert formula(3, prompt, new) == other.phases["decode"].peak.requested


@needs_transformers
def test_why_there_is_no_formula_is_said() -> None:
    model = "transformers:llama{num_hidden_layers=1,hidden_size=64,intermediate_size=128,num_attention_heads=4,vocab_size=1000,dtype=bf16}"
    found = generate(model, prompt=40, new=6, cache="static", device="h200")
    assert not found.peak_formulas and "static cache" in found.without_formula


T5 = "transformers:t5{d_model=64,d_kv=16,d_ff=96,num_layers=3,num_heads=4,vocab_size=500,dtype=bf16}"
BART = (
    "transformers:bart{d_model=64,encoder_layers=2,decoder_layers=2,encoder_attention_heads=4,decoder_attention_heads=4,encoder_ffn_dim=96,"
    "decoder_ffn_dim=96,vocab_size=500,dtype=bf16}"
)


@needs_transformers
@pytest.mark.parametrize("model", [T5, BART])
def test_a_decoder_beside_an_encoder_is_continued_as_it_would_have_run(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = generate(model, prompt=40, new=110, batch=2, device="h200")
    assert 0 < len(found.captured) < 60
    # The same with a law that is not found, which is also what runs all of its steps.
    monkeypatch.setattr(Capture, "_law", lambda *_, **__: None)
    whole = generate(model, prompt=40, new=110, batch=2, device="h200")
    assert not whole.captured and "all 109 were run" in str(whole.report().summary["steps"])
    assert found.to_json()["phases"] == whole.to_json()["phases"]
    assert found.cache == whole.cache and found.formula == whole.formula


@needs_transformers
def test_accelerate_need_not_be_installed() -> None:
    """Without it transformers refuses a device_map; programs put the model onto the device themselves."""
    model = "transformers:llama{hidden_size=512,num_hidden_layers=4,num_attention_heads=8,num_key_value_heads=8,vocab_size=8000}"
    asked = ("generate", model, "--prompt", "8", "--new", "4", "--device", "h100", "--format", "json")
    done = subprocess.run([sys.executable, "-c", HIDING, "accelerate", *asked], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    without, given = json.loads(done.stdout), json.loads(_irscope(*asked).stdout)
    assert (without["packages"], given["packages"]) == ({"accelerate": False}, {"accelerate": True})
    # What a checkpoint's weights take in one piece (caching_allocator_warmup) is taken only by a device_map.
    assert without["phases"]["load"]["reserved"] != given["phases"]["load"]["reserved"]
