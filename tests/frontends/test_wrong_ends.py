"""Whatever goes wrong while a file is read is the file's fault: exit code 3 and the file's place, never an error of irscope."""

from __future__ import annotations

import importlib
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main

MODELS = Path(__file__).parents[2] / "samples" / "models"
FRONTENDS = {"onnx": "cnn.onnx", "exported": "net.pt2", "torchscript": "net.pt", "files.text": "../tagger.irs"}


@pytest.mark.parametrize(("frontend", "name"), FRONTENDS.items())
def test_an_unexpected_error_of_a_reader(
    frontend: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not (MODELS / name).exists():
        pytest.skip("the sample needs torch")

    def load(*args: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(importlib.import_module(f"irscope.frontends.{frontend}"), "load", load)
    assert main(["run", str(MODELS / name)]) == 3
    err = capsys.readouterr().err
    assert "IRS107" in err and "ZeroDivisionError" in err and str(MODELS / name) in err and "test_wrong_ends:" in err


def _mutated(item: Any, chance: random.Random) -> Any:
    """The same JSON with one place, found by going down at random, replaced by something of another kind."""
    if isinstance(item, dict) and item and chance.random() < 0.85:
        key = chance.choice(list(item))
        if chance.random() < 0.1:
            return {other: value for other, value in item.items() if other != key}
        return {**item, key: _mutated(item[key], chance)}
    if isinstance(item, list) and item and chance.random() < 0.85:
        at = chance.randrange(len(item))
        return [*item[:at], _mutated(item[at], chance), *item[at + 1 :]]
    return chance.choice([None, -1, 10**30, "x", "", [], {}, [[]], {"as_int": None}, True, 1.5, "9" * 50])


@pytest.mark.parametrize("seed", range(60))
def test_configs_of_exported_programs_are_checked(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not (MODELS / "net.pt2").exists():
        pytest.skip("the sample needs torch")
    chance = random.Random(seed)
    target = tmp_path / "net.pt2"
    with zipfile.ZipFile(MODELS / "net.pt2") as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("_config.json"):
                data = json.dumps(_mutated(json.loads(data), chance)).encode()
            copy.writestr(name, data)
    assert main(["run", "--passes", "params{values}", str(target)]) in (0, 3, 5)
    err = capsys.readouterr().err
    assert "IRS900" not in err and "IRS107" not in err
