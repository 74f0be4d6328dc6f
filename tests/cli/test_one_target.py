"""One question has one answer: every surface tells the same peak, for the same device, of models of every format."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
import pytest

import irscope
from irscope.cli.main import main
from irscope.report.values import quantity
from irscope.tools import config
from irscope.tui.header import header_lines
from irscope.tui.text import UNICODE
from tests.cli import wild_models
from tests.tui.driving import drive, settle

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).mean((2, 3)))

def build(batch=4):
    return Net(), (torch.zeros(batch, 3, 16, 16),)
"""
FILES: dict[str, tuple[str, Mapping[str, int]]] = {
    "irs without a runtime": ("mlp.irs", {"batch": 3}),
    "irs of pt2": ("pyramid.irs", {"batch": 2}),
    "irs of pt2, two sizes": ("tagger.irs", {"batch": 2}),
    "onnx": ("models/cnn.onnx", {"batch": 4}),
    "onnx transformer": ("models/transformer.onnx", {"batch": 2, "length": 16}),
    "onnx recurrent": ("models/lstm.onnx", {"batch": 2, "length": 8}),
    "torchscript": ("models/net.pt", {}),
    "pt2": ("models/net.pt2", {}),
    "jax": ("../tests/data/jax/gpt_scan.mlir.gz", {}),
    "jax, open": ("../tests/data/jax/open_batch.jaxexport", {"b": 4}),
    "jax, donated": ("../tests/data/jax/mlp_sgd.mlir.gz", {}),
    "jax, sharded": ("../tests/data/jax/sharded/fsdp_step.mlir.gz", {}),
    "jax, compiled": ("../tests/data/jax/dump/retention.cpu_after_optimizations-buffer-assignment.txt", {}),
}
WILD = (
    "yolo_grid text_mask text_axes text_slices vad_arithmetic vad_flag vad_squeeze speech_reshape loop_trips scan_frames sequence_length "
    "one_hot_depth two_causes stated_in_part"
)
LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))
"""Networks that ONNX is tested with, without their weights."""


def output(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    code = main(arguments)
    found = capsys.readouterr().out
    assert code == 0, arguments
    return found


def of_liveness(report: Mapping[str, object]) -> tuple[object, object]:
    summary = report["summary"]
    assert isinstance(summary, dict)
    return of_summary(summary), summary["device"]


def of_summary(summary: Mapping[str, object]) -> object:
    """The peak, where it is a number."""
    found = summary.get("device_peak_bytes") or summary.get("tensor_peak_bytes")
    return found if isinstance(found, int) else None


def answers(
    path: str, sizes: Mapping[str, int], options: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[tuple[str, object]]:
    """What each surface says is the peak, with the device where it tells it."""
    bind = ["--bind", ",".join(f"{name}={size}" for name, size in sizes.items())] if sizes else []
    asked = [*options, *bind, path]
    whole = json.loads(output(["run", "--format", "json", *asked], capsys))
    fields = whole["card"]["fields"]
    yield "card", (fields["peak"], fields["device"])
    reports = {one["pass"]: one for one in whole["reports"]}
    yield "reports beside the card", of_liveness(reports["liveness"])
    for passes in ("liveness", "default", *(["liveness,explain-peak"] if fields["peak"] is not None else [])):
        found = json.loads(output(["run", "--format", "json", "--passes", passes, *asked], capsys))
        yield f"--passes {passes}", of_liveness(next(one for one in found["reports"] if one["pass"] == "liveness"))
    if fields["peak"] is not None:
        yield "explain-peak", (of_summary(found["reports"][-1]["summary"]), fields["device"])
    table = json.loads(output(["run", "--format", "json", *options, *bind, path, path], capsys))
    yield "table of models", (table["rows"][0]["fields"]["peak"], table["device"])
    beside = {key: value for key, value in table["rows"][0]["fields"].items() if not key.startswith("largest")}
    assert {key: (value, fields[key]) for key, value in beside.items() if value != fields[key]} == {}
    rows = {row[0]: row[1] for row in csv.reader(io.StringIO(output(["run", "--format", "csv", *asked], capsys))) if len(row) > 1}
    yield "CSV", (int(rows["peak"]) if rows["peak"] else None, rows["device"])
    texts = {key: "" if value is None else json.dumps(value).strip('"') for key, value in fields.items()}
    assert {key: (text, rows.get(key)) for key, text in texts.items() if rows.get(key) != text} == {}
    page = folder / "page.html"
    output(["run", "--format", "html", "-o", str(page), *asked], capsys)
    matches = re.findall(r'<dt title="(?:device|tensor)_peak_bytes">[^<]*</dt><dd data-value="(\d+)"', page.read_text(encoding="utf-8"))
    yield "HTML", (int(matches[0]) if matches else None, fields["device"])
    if sizes and "wild" not in path:
        over = [word for name, size in sizes.items() for word in ("--over", f"{name}={size}")]
        (swept,) = json.loads(output(["sweep", "--format", "json", *options, *over, path], capsys))["reports"]
        keys = [column["key"] for column in swept["tables"][0]["columns"]]
        key = "peak_bytes" if "peak_bytes" in keys else "tensor_peak_bytes"
        yield "sweep", (swept["tables"][0]["rows"][0][keys.index(key)], fields["device"])
        free, *others = sizes
        kept = [word for name in others for word in ("--bind", f"{name}={sizes[name]}")]
        fit = json.loads(output(["fit", "--format", "json", "--memory", "4GiB", "--free", free, *options, *kept, path], capsys))
        most = ",".join(f"{name}={size}" for name, size in {**sizes, free: fit["largest"]}.items())
        there = json.loads(output(["run", "--format", "json", *options, "--bind", most, path], capsys))["card"]["fields"]["peak"]
        same = there == (fit["device_peak_bytes"] or fit["peak_bytes"])
        yield "fit, as the card at its size", (fields["peak"] if same else there, fields["device"])


def python_answers(path: str, sizes: Mapping[str, int], device: str) -> Iterator[tuple[str, object]]:
    model = irscope.load(path, bind=sizes)
    made = irscope.card(model, device=device or None)
    yield "irscope.card", (made.memory.peak.value, made.device.name)
    summary = irscope.run(model, "liveness", device=device)["liveness"].report().summary
    cells = {key: quantity(summary[key]).value for key in ("device_peak_bytes", "tensor_peak_bytes") if key in summary}  # type: ignore[arg-type]
    yield "irscope.run", (of_summary(cells), summary["device"])
    if made.memory.peak.value is not None and not device:
        results = drive(irscope.load(path, bind=sizes), settle).session.results
        summed = results.sum_for(results.binding)
        assert summed is not None and results.context.profile is not None
        yield "UI", (summed.found.peak.value, results.context.profile.name)


@pytest.fixture(params=[*FILES, "module", *WILD.split(), *(pytest.param(file.stem, marks=pytest.mark.slow) for file in LIGHT)])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Mapping[str, int]]:
    if request.param in FILES:
        name, sizes = FILES[request.param]
        return str(SAMPLES / name), sizes
    if request.param == "module":
        pytest.importorskip("torch")
        (tmp_path / "net.py").write_text(MODULE, encoding="utf-8")
        return f"{tmp_path / 'net.py'}:build", {}
    for file in LIGHT:
        if request.param == file.stem:
            return str(file), {}
    (tmp_path / "wild.onnx").write_bytes(getattr(wild_models, request.param)().SerializeToString())
    opened = irscope.load(tmp_path / "wild.onnx")
    return str(tmp_path / "wild.onnx"), {size.symbol: size.size for size in irscope.card(opened).sizes if size.is_open}


def test_every_surface_has_the_same_peak_for_the_same_device(
    model: tuple[str, Mapping[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, sizes = model
    found = dict([*answers(path, sizes, [], tmp_path, capsys), *python_answers(path, sizes, "")])
    assert {name: one for name, one in found.items() if one != found["card"]} == {}, found["card"]


@pytest.mark.parametrize("device", ["l4", "epyc-7763"])
@pytest.mark.parametrize("name", ["onnx", "onnx recurrent", "irs of pt2", "torchscript"])
def test_so_it_is_for_a_device_that_is_named(name: str, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, sizes = FILES[name]
    path = str(SAMPLES / file)
    found = dict([*answers(path, sizes, ["--device", device], tmp_path, capsys), *python_answers(path, sizes, device)])
    assert {name: one for name, one in found.items() if one != found["card"]} == {}, found["card"]


@pytest.mark.parametrize("name", ["onnx", "irs of pt2"])
def test_so_it_is_for_the_gpu_that_is_here(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config, "local_gpu", lambda: "NVIDIA L4")
    file, sizes = FILES[name]
    found = dict([*answers(str(SAMPLES / file), sizes, [], tmp_path, capsys), *python_answers(str(SAMPLES / file), sizes, "")])
    assert found["card"][1] == "l4"  # type: ignore[index]
    assert {name: one for name, one in found.items() if one != found["card"]} == {}, found["card"]


@pytest.mark.parametrize("name", ["onnx", "onnx recurrent", "irs of pt2", "torchscript", "pt2"])
def test_the_first_lines_of_the_ui_are_the_cards(name: str) -> None:
    file, sizes = FILES[name]
    opened = irscope.load(SAMPLES / file, bind=sizes)
    made = irscope.card(opened)
    results = drive(opened, settle).session.results
    first, second = ("".join(span.text for span in line) for line in header_lines(opened.program, 1, results, 160, UNICODE))
    assert made.device.name in first and "host" not in first
    assert second.startswith("fits") and "fits ?" not in second and "0 B" not in second


def test_the_text_form_has_the_same_answers(
    model: tuple[str, Mapping[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = model
    text = tmp_path / "shown.irs"
    assert main(["show", "-o", str(text), path]) == 0
    asked = ["run", "--format", "json", "--passes", "liveness,flops,params"]
    main([*asked, path])
    of_file = json.loads(capsys.readouterr().out)["reports"]
    main([*asked, str(text)])
    of_text = json.loads(capsys.readouterr().out)["reports"]
    for known, again in zip(of_file, of_text, strict=True):
        assert again["summary"] == known["summary"], known["pass"]
    programs = [irscope.load(one).program for one in (path, text)]
    first, second = ({one.name: str(getattr(type_, "shape", "")) for one, type_ in program.declared.items()} for program in programs)
    assert first == second and programs[0].metadata == programs[1].metadata
