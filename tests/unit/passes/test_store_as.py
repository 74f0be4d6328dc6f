"""What weights would take in few bits: bytes by matrix and in sum, what stays, what rounding loses, the peak of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irscope
from irscope.cli.main import main
from irscope.errors import UsageError
from irscope.passes.weights.store_as import StoreAs, Storing
from irscope.weights.losses import Noise, choice_of, measure_rounding
from irscope.weights.schemes import SCHEMES, parse_scheme
from tests.frontends.gguf_files import small
from tests.unit.weights.test_packed import NF4, write

SAMPLE = Path("samples/models/transformer.onnx")
LINEAR = {"attn.q.weight": (128, 128), "attn.k.weight": (128, 128), "attn.v.weight": (128, 128), "attn.o.weight": (128, 128)}
LINEAR |= {"mlp.up.weight": (512, 128), "mlp.down.weight": (128, 512)}
"""Outputs and inputs; the file has (inputs, outputs)."""
LLAMA = {
    "model.embed_tokens.weight": ("BF16", [100, 64]),
    "model.layers.0.mlp.up_proj.weight": ("BF16", [128, 64]),
    "model.layers.0.mlp.experts.up": ("BF16", [4, 128, 64]),
    "model.layers.0.conv.weight": ("BF16", [8, 8, 3]),
    "model.norm.weight": ("BF16", [64]),
    "lm_head.weight": ("BF16", [100, 64]),
}


def _under(model: Any, scheme: str, **options: Any) -> Storing:
    opened = irscope.load(model) if isinstance(model, str | Path) else model
    storing: Storing = opened.manager.get(StoreAs(scheme=scheme, **options))
    return storing


@pytest.mark.parametrize("name", SCHEMES)
def test_bytes_of_each_matrix_and_in_sum(name: str) -> None:
    found, scheme = _under(SAMPLE, name), parse_scheme(name)
    assert {one.weight.name: (one.outputs, one.inputs) for one in found.stored} == LINEAR
    assert all(one.after == scheme.bytes(one.outputs, one.inputs) for one in found.stored)
    saved = sum(4 * outputs * inputs - scheme.bytes(outputs, inputs) for outputs, inputs in LINEAR.values())
    assert found.before - found.after == saved
    assert [(stored.weight.name, stored.kept) for stored in found.matrices if stored.kept] == [("embed.weight", "a table of embeddings")]


def test_embeddings_too_where_they_are_asked_for() -> None:
    assert "embed.weight" in {one.weight.name for one in _under(SAMPLE, "nf4{embeddings}").stored}


def test_the_error_is_the_one_that_quantize_error_measures() -> None:
    model = irscope.load(SAMPLE)
    errors = irscope.run(model, "quantize-error{formats=int8,int4,mxfp4}")["quantize-error"].value
    wanted = {tensor.weight.name: tensor.decibels for tensor in errors.tensors}
    for scheme, key in (("int8", "int8_channel"), ("int4", "int4_g128"), ("int4{group=32}", "int4_g32"), ("mxfp4", "mxfp4_g32")):
        for one in _under(model, scheme).stored:
            assert one.decibels == wanted[str(one.weight.name)][key]


def test_formats_that_quantize_error_does_not_list() -> None:
    values = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    found = {}
    for form, granularity in (("nf4", "g64"), ("fp4", "g64"), ("int3", "g128"), ("int2", "g128")):
        noise = Noise((choice_of(form, granularity),))
        measure_rounding(values, 0.0, noise)
        found[form] = next(iter(noise.decibels().values()))
    assert found["nf4"] == pytest.approx(20.7, abs=0.3), "as nf4 in blocks of 64 of a normal distribution"
    assert found["nf4"] > found["fp4"] > found["int3"] > found["int2"]
    table = np.array([0, 1 / 192, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 1], np.float32)
    exact = np.concatenate([table, -table, table, -table, table, -table, table, -table]).reshape(1, 64)
    noise = Noise((choice_of("fp4", "g64"),))
    measure_rounding(exact, 0.0, noise)
    assert noise.errors == [0.0], "bitsandbytes' own codes lose nothing"


def test_a_checkpoint_is_told_by_names(tmp_path: Path) -> None:
    file = write(tmp_path / "model.safetensors", LLAMA)
    kept = {str(stored.weight.name): stored.kept for stored in _under(file, "nf4").matrices}
    assert kept == {
        "model.embed_tokens.weight": "a table of embeddings",
        "model.layers.0.mlp.up_proj.weight": "",
        "model.layers.0.mlp.experts.up": "experts in one tensor are not a linear layer",
        "model.layers.0.conv.weight": "it has 3 axes",
        "lm_head.weight": "it gives the logits",
    }
    whole = _under(file, "mxfp4{head embeddings}")
    assert len(whole.stored) == 4, "experts too: MXFP4 is for them"
    experts = next(one for one in whole.stored if "experts" in str(one.weight.name))
    assert experts.after == 4 * parse_scheme("mxfp4").bytes(128, 64)


def test_groups_that_do_not_divide_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = {"a.weight": ("BF16", [64, 200]), "b.weight": ("BF16", [64, 256])}
    file = write(tmp_path / "model.safetensors", shapes)
    kept = {str(stored.weight.name): stored.kept for stored in _under(file, "int4").matrices}
    assert kept == {"a.weight": "groups of 128 do not divide 200 inputs", "b.weight": ""}
    write(file, {"a.weight": ("BF16", [64, 200])})
    assert main(["run", "--passes", "store-as{scheme=int4}", str(file)]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert "IRS432" in line and "no matrix can be stored as int4: groups of 128 do not divide 200 inputs" in line


def test_weights_that_are_quantised_already(tmp_path: Path) -> None:
    file = write(tmp_path / "model.safetensors", NF4)
    with pytest.raises(UsageError, match=r"its weights are quantised already \(nf4\)"):
        _under(file, "int8")


def test_gguf_is_quantised_already(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = small().write(tmp_path / "small.gguf")
    assert main([str(file), "--as", "nf4"]) == 2
    assert "its weights are quantised already (q" in capsys.readouterr().err


def test_the_peak_is_modelled_with_what_kernels_take_besides() -> None:
    model = irscope.load(SAMPLE, bind={"batch": 2, "length": 64})
    for scheme in ("nf4", "int4", "int8", "fp8"):
        found = _under(model, scheme)
        low, high = found.after_peak.ends
        assert low == found.peak.ends[0] - (found.before - found.after)
        if scheme == "int4":
            assert high is None, "nobody read what a fused kernel's workspace takes"
        else:
            saved, value = found.before - found.after, found.after_peak.value
            besides = value - (found.peak.value - saved)
            assert low < value <= high < found.peak.ends[1] and value < found.peak.value and high == found.peak.ends[1] - saved + besides
            assert scheme != "nf4" or besides == 4 * 128 * 512


def test_weights_beyond_a_gibibyte_are_not_read_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irscope.passes.weights.store_as._READ_AT_MOST", 1000)
    assert not _under(SAMPLE, "nf4").measured
    assert _under(SAMPLE, "nf4", measure="yes").measured
    report = irscope.run(irscope.load(SAMPLE), "store-as{scheme=nf4}")["store-as"].report()
    assert any(note.startswith("not measured: 768.00 KiB would have to be read") for note in report.notes)


def test_sums_add_up() -> None:
    report = irscope.run(irscope.load(SAMPLE), 'store-as{scheme="int4{group=64}"}')["store-as"].report()
    *parts, whole = report.table("in sum").to_dicts()
    for key in ("weights", "before", "after"):
        assert sum(part[key] for part in parts) == whole[key]
    assert whole["after"] == report.summary["weights_after_bytes"]


def test_the_card_and_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(SAMPLE), "--as", "nf4", "--device", "l4"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "as nf4: bitsandbytes 4 bit, normal float; weights 1.24 MiB -> 610.43 KiB, 6 matrices in 4.52 bits each" in text
    assert "fits on NVIDIA L4: at most" in text
    assert main(["run", str(SAMPLE), "--as", "int8", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (report,) = [one for one in document["reports"] if one["pass"] == "store-as"]
    stored = {name: parse_scheme("int8").bytes(*sizes) for name, sizes in LINEAR.items()}
    table = next(one for one in report["tables"] if one["title"] == "matrices")
    assert {row[0]: row[3] for row in table["rows"] if row[0] in stored} == stored
    assert main(["run", str(SAMPLE), "--as", "nf4", "--passes", "params"]) == 0
    assert "store-as" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["int5", "nf4{group=3}", "int4{group"])
def test_a_scheme_that_is_not_known_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "no-such-file.onnx", "--as", text]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "IRS432" in lines[0]


def test_several_models_have_no_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(SAMPLE), "samples/models/cnn.onnx", "--as", "nf4"]) == 2
    assert "IRS691" in capsys.readouterr().err
