"""Python files that lie beside a model are never imported, whatever they are called and whatever command runs there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from irscope.cli.main import COMMANDS

MODELS = Path(__file__).parents[2] / "samples" / "models"
PLANTED = (
    "torch",
    "numpy",
    "onnx",
    "onnxruntime",
    "textual",
    "sitecustomize",
    "usercustomize",
    "frontends",
    "passes",
    "json",
    "transformers",
)
COMMAND_LINES = {
    "run": "run --passes default,params{values} cnn.onnx",
    "show": "show net.pt2",
    "tui": "tui cnn.onnx",
    "passes": "passes liveness",
    "ops": "ops --coverage cnn.onnx",
    "compare": "compare cnn.onnx net.pt2",
    "compare-flops": "compare-flops net.pt2",
    "devices": "devices h200",
    "fit": "fit --memory 1GiB --bind length=8 transformer.onnx",
    "sweep": "sweep --over batch=1,2 --bind length=8 transformer.onnx",
    "train-plan": "train-plan ./own/train.py:build",
    "zoo": "zoo",
    "calibrate": "calibrate --help",
    "record": "record --trust --repeats 1 --warmup 0 net.pt2",
    "export": "export -o timeline.csv --bind batch=1 cnn.onnx",
    "explain": "explain IRS482",
    "repro": "repro cnn.onnx",
    "doctor": "doctor",
}
EXIT_CODES = {"tui": 2, "repro": 3}
"""There is no terminal; an ONNX file is no reproducer."""
STARTS = [("script", line) for line in COMMAND_LINES.values()] + [("module", COMMAND_LINES[name]) for name in ("run", "record")]
TRAIN = """import torch
def build():
    return torch.nn.Linear(4, 4), (torch.zeros(2, 4),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    for name in ("cnn.onnx", "net.pt2", "transformer.onnx"):
        if (MODELS / name).exists():
            shutil.copy(MODELS / name, folder)
    (folder / "own").mkdir()  # a script that the user names may import what lies beside it, as it may under python
    (folder / "own" / "train.py").write_text(TRAIN)
    for name in (*PLANTED, "irscope"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'imported')!r}, 'a').write({name!r} + '\\n')\nraise SystemExit(99)\n")
    return folder


def test_every_command_has_its_line() -> None:
    assert set(COMMAND_LINES) == set(COMMANDS)


@pytest.mark.torch
@pytest.mark.parametrize(("start", "command"), STARTS)
def test_nothing_beside_the_model_is_imported(start: str, command: str, folder: Path) -> None:
    program = Path(sys.executable).with_name("irscope")
    words = [str(program)] if start == "script" else [sys.executable, "-m", "irscope"]
    planted = folder / "irscope.py"
    kept = planted.read_text()
    if start == "module":  # Python itself looks for the module to run in the working folder: nothing of irscope has a say in that
        planted.unlink()
    try:
        environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [*words, *command.split()], cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    finally:
        planted.write_text(kept)
    assert not (folder / "imported").exists(), (folder / "imported").read_text()
    assert done.returncode == EXIT_CODES.get(command.split()[0], 0), done.stderr
