"""Damaged copies of every kind of PyTorch file, through the command line: one clear line each, little memory, no hang."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch

from tests.frontends.torch.helpers import save_exported, save_scripted, save_traced
from tests.frontends.torch.models import SAMPLES, Choice
from tests.frontends.torch.test_higher_order import older

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

FORMS = ("pt2", "older pt2", "decomposed pt2", "traced", "scripted", "state dict", "legacy", "module", "safetensors", "index")
MOST_MB = 200
ROOT = Path(__file__).parents[3]


def write(form: str, folder: Path) -> Path:
    """A file of the form."""
    path = folder / "model"
    sample = SAMPLES["mlp"]
    model, args = sample.model(), sample.inputs()
    if form == "older pt2":
        return older(path, torch.export.export(model, args))
    if form.endswith("pt2"):
        return save_exported(folder / "model.pt2", model, args, sample.dynamic, form == "decomposed pt2")
    if form == "traced":
        return save_traced(path, SAMPLES["cnn"].model(), SAMPLES["cnn"].inputs())
    if form == "scripted":
        return save_scripted(path, Choice().eval())
    if form in ("safetensors", "index"):
        shard = folder / "m-1.safetensors"
        text = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"format": "pt"}}).encode()
        shard.write_bytes(struct.pack("<Q", len(text)) + text + bytes(24))
        if form == "safetensors":
            return shard
        path.write_text(json.dumps({"metadata": {"total_size": 24}, "weight_map": {"a": "m-1.safetensors"}}))
        return path
    torch.save(model if form == "module" else {"model": model.state_dict()}, path, _use_new_zipfile_serialization=form != "legacy")
    return path


def check(form: str, cases: int, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.frontends.torch.mutate", str(write(form, folder)), str(cases), "7"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=3000)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["refused"] > cases / 4
    assert found["mb"] < MOST_MB


@pytest.mark.parametrize("form", FORMS)
def test_damaged_files_get_one_line(form: str, tmp_path: Path) -> None:
    check(form, 60, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
def test_damaged_files_get_one_line_many_times(form: str, tmp_path: Path) -> None:
    check(form, 2000, tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_cut_off_at_fifty_places(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the end is missing of, the file is refused; only padding at the end may go."""
    import random

    from irscope.cli.main import main

    whole = write(form, tmp_path).read_bytes()
    source = random.Random(11)
    path = tmp_path / "cut"
    for _ in range(50):
        length = source.randrange(len(whole) - 1)
        path.write_bytes(whole[:length])
        code = main(["run", "--passes", "params", str(path)])
        err = capsys.readouterr().err
        assert code == 3, (length, len(whole), err)
        assert err.startswith("irscope: error IRS1") and err.count("\n") == 1, err
