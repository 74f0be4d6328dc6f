"""`irscope train-plan` with a script of the user's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.errors import ExitCode

pytest.importorskip("torch")

SCRIPT = """
import torch
from torch import nn

def build():
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10))
    return net, (torch.zeros(16, 32),), lambda out: out.logsumexp(1).mean(), lambda p: torch.optim.AdamW(p, fused=True)

def empty():
    return 5
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_document_and_files(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, kept, picture = (tmp_path / name for name in ("nodes.csv", "kept.csv", "memory.svg"))
    arguments = ["train-plan", f"{script}:build", "--format", "json", "--nodes-csv", str(nodes), "--activations-csv", str(kept)]
    assert main([*arguments, "--plot", str(picture)]) == ExitCode.OK
    reports = {one["pass"]: one for one in json.loads(capsys.readouterr().out)["reports"]}
    summary = reports["training"]["summary"]
    assert summary["optimizer"] == "AdamW"
    assert sum(summary["at_peak"].values()) == summary["steady_step"]["requested"]
    assert reports["activations"]["summary"]["activations_count"] > 0
    assert nodes.read_text("utf-8").startswith("rank,node_name,") and kept.read_text("utf-8").startswith("activation_name,")
    assert picture.read_text("utf-8").startswith("<svg xmlns=")


@pytest.mark.parametrize(
    ("text", "code", "status"),
    [
        ("{}:nothing", "IRS385", ExitCode.LOAD),
        ("{}:empty", "IRS385", ExitCode.LOAD),
        ("model.onnx", "IRS384", ExitCode.USAGE),
        ("absent.py:build", "IRS385", ExitCode.LOAD),
    ],
)
def test_what_gives_no_step(script: Path, text: str, code: str, status: ExitCode, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train-plan", text.format(script)]) == status
    said = capsys.readouterr().err
    assert code in said and len(said.strip().splitlines()) == 1
