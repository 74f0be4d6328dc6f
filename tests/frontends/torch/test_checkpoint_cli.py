"""`irscope run` on files without a graph: the table of parameters, and a plain word that there is no graph."""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main


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
    assert document["model"]["parameters"] == 4 * 3 + 3 + 3 + 3, "an optimizer's state is no parameter"
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
    assert "no graph: shapes, cost and the memory of a run cannot be told" in err


@pytest.mark.torch
def test_objects_of_other_libraries_are_named_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    import numpy as np

    torch.save({"w": torch.zeros(3), "n": np.zeros(3)}, tmp_path / "m.pt")
    document, err = report(tmp_path / "m.pt", capsys, "-v")
    assert rows(document) == [["w", "f32", [3]]]
    assert "IRS163" in err and "numpy" in err
