"""State dicts, nested checkpoints, pickled modules, safetensors: weights without a graph."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.files import checkpoint
from irscope.ir.places import FileRegion


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


@pytest.mark.torch
@pytest.mark.parametrize("form", ["zip", "legacy", "nested", "module"])
def test_what_torch_saves(form: str, tmp_path: Path) -> None:
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
