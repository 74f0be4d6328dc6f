"""Weights without a graph: state dicts, nested checkpoints, pickled modules, safetensors; and what the command line says of them."""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.files import checkpoint
from irscope.ir.places import FileRegion

# `irscope run` on files without a graph: the table of parameters, and a plain word that there is no graph.


def report(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[dict[str, Any], str]:
    """The JSON document of a run, and what stands on stderr."""
    assert main(["run", "--format", "json", *options, str(path)]) == 0
    out, err = capsys.readouterr()
    found: dict[str, Any] = json.loads(out)
    return found, err


def rows(document: dict[str, Any]) -> list[list[Any]]:
    (params,) = [item for item in document["reports"] if item["pass"] == "params"]
    return [[row[0], row[2], row[3]] for row in params["tables"][0]["rows"]]


def test_sharded_safetensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for index in (1, 2):
        header = json.dumps({f"w{index}": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}).encode()
        (tmp_path / f"m-{index}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"w1": "m-1.safetensors", "w2": "m-2.safetensors"}}))
    document, err = report(path, capsys)
    assert document["model"]["format"] == "checkpoint"
    assert (document["model"]["parameters"], document["model"]["parameter_bytes"], document["model"]["nodes"]) == (8, 16, 0)
    assert rows(document) == [["w1", "bf16", [2, 2]], ["w2", "bf16", [2, 2]]]
    assert "IRS165" in err and "no graph" in err


@pytest.mark.torch
@pytest.mark.parametrize("form", ["zip", "legacy", "nested", "module", "legacy module"])
def test_what_torch_saves(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    state = model.state_dict()
    saved: Any = state
    if form == "nested":
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        options = argparse.Namespace(rate=0.1)
        saved = {"epoch": 3, "model": state, "optimizer": optimizer.state_dict(), "options": options}
    elif "module" in form:
        saved = model
    path = tmp_path / "m.pt"
    torch.save(saved, path, _use_new_zipfile_serialization="legacy" not in form)
    document, err = report(path, capsys)
    assert [item["pass"] for item in document["reports"]] == ["params"], "passes that need a graph are left out"
    prefix = "model." if form == "nested" else ""
    found = rows(document)
    assert [name for name, _, _ in found][: len(state)] == [f"{prefix}{name}" for name in state]
    assert document["model"]["parameters"] == 4 * 3 + 3 + 3 + 3, "an optimizer's state is not a parameter"
    if "module" in form:
        assert "IRS162" in err and "torch.nn.modules.container.Sequential" in err and "torch.export" in err
    else:
        assert "IRS165" in err
    assert ("IRS166: 12 tensors" in err) == (form == "nested")


@pytest.mark.torch
def test_passes_that_need_a_graph_run_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.zeros(3)}, tmp_path / "m.pt")
    assert main(["run", "--format", "json", "--passes", "shapes,liveness", str(tmp_path / "m.pt")]) == 5, "nothing of it is known"
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert [item["pass"] for item in document["reports"]] == ["shapes", "liveness"]
    assert "no graph: shapes, cost and the memory of a run do not follow from it" in err


@pytest.mark.torch
def test_objects_of_other_libraries_are_named_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    import numpy as np

    torch.save({"w": torch.zeros(3), "n": np.zeros(3)}, tmp_path / "m.pt")
    document, err = report(tmp_path / "m.pt", capsys, "-v")
    assert rows(document) == [["w", "f32", [3]]]
    assert "IRS163" in err and "numpy" in err


# State dicts, nested checkpoints, pickled modules, safetensors: weights without a graph.


def safetensors(path: Path, header: object, data: bytes) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_safetensors(tmp_path: Path) -> None:
    header = {
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]},
    }
    path = safetensors(tmp_path / "m.safetensors", header, bytes(26))
    graph = checkpoint.load(path, LoadOptions(), DiagnosticSink()).graph
    assert [(weight.name, str(weight.type)) for weight in graph.weights] == [("a", "f32[2,3]"), ("b", "bf16[]")]
    place = graph.data[graph.weights[1]]
    assert isinstance(place, FileRegion)
    assert (place.offset + place.length, place.length) == (path.stat().st_size, 2)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 20]},
        {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 24]},
        {"dtype": "F32", "shape": "x", "data_offsets": [0, 24]},
        {"dtype": "F32", "shape": [6], "data_offsets": [24, 0]},
        [],
    ],
)
def test_safetensors_that_do_not_fit(entry: object, tmp_path: Path) -> None:
    path = safetensors(tmp_path / "m.safetensors", {"a": entry}, bytes(24))
    with pytest.raises(LoadError):
        checkpoint.load(path, LoadOptions(), DiagnosticSink())


def test_sharded(tmp_path: Path) -> None:
    for index in (1, 2):
        entry = {"dtype": "I8", "shape": [4], "data_offsets": [0, 4]}
        safetensors(tmp_path / f"m-{index}.safetensors", {f"w{index}": entry}, bytes(4))
    path = tmp_path / "m.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"w1": "m-1.safetensors", "w2": "m-2.safetensors"}}))
    program = checkpoint.load(path, LoadOptions(), DiagnosticSink())
    assert [weight.name for weight in program.weights()] == ["w1", "w2"]
    path.write_text(json.dumps({"weight_map": {"w1": "../m-1.safetensors"}}))
    with pytest.raises(LoadError, match="outside its own folder"):
        checkpoint.load(path, LoadOptions(), DiagnosticSink())
    for name in ("m\0.safetensors", "m\ud800.safetensors"):
        path.write_text(json.dumps({"weight_map": {"w1": name}}))
        with pytest.raises(LoadError, match="a name that no file can have"):
            checkpoint.load(path, LoadOptions(), DiagnosticSink())


@pytest.mark.torch
@pytest.mark.parametrize("form", ["zip", "legacy", "nested", "module"])
def test_what_is_read_of_what_torch_saves(form: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    path = tmp_path / "m.pt"
    state = model.state_dict()
    saved = {"zip": state, "legacy": state, "nested": {"epoch": 3, "model": state}, "module": model}[form]
    torch.save(saved, path, _use_new_zipfile_serialization=form != "legacy")
    sink = DiagnosticSink()
    graph = checkpoint.load(path, LoadOptions(), sink).graph
    prefix = "model." if form == "nested" else ""
    assert [weight.name for weight in graph.weights] == [f"{prefix}{name}" for name in state]
    assert [d.code for d in sink if d.code == "IRS162"] == (["IRS162"] if form == "module" else [])
    content = path.read_bytes()
    for weight, value in zip(graph.weights, state.values(), strict=True):
        place = graph.data[weight]
        assert isinstance(place, FileRegion)
        assert content[place.offset : place.offset + place.length] == value.numpy().tobytes()
