"""Costs on the command line: the explanation of a node, strictness, and JSON for other tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from irscope.cli.main import main
from tests.cli.test_bad_input import MODEL

UNKNOWN = "irscope 1\ngraph @main {\n  input %x: f32[2]\n  %y: f32[2] = foreign.op(%x)\n  return %y\n}\n"


def written(folder: Path, text: str = MODEL) -> str:
    path = folder / "model.irs"
    path.write_text(text)
    return str(path)


def test_explaining_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--passes", "flops", "--explain", "y", "--bind", "batch=2", written(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "values of the symbols" in shown
    assert "rule" in shown


def test_explaining_needs_a_pass_that_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--passes", "stats", "--explain", "y", written(tmp_path)]) == 2
    assert "IRS402" in capsys.readouterr().err


def test_explaining_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--passes", "flops", "--explain", "yy", written(tmp_path)]) == 2
    assert "did you mean y?" in capsys.readouterr().err


def test_strict_fails_on_unknown_operators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--passes", "flops", written(tmp_path, UNKNOWN)]) == 0
    assert main(["run", "--passes", "flops", "--strict", written(tmp_path, UNKNOWN)]) == 5
    assert "foreign.op" in capsys.readouterr().out


def test_layers_for_other_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    assert main(["run", "--format", "layers-json", "--bind", "batch=2", path]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["model", "total_flops", "total_memory", "layers"]
    assert found["model"] == path
    assert all(list(layer) == ["name", "type", "flops", "memory", "arithmetic_intensity", "bottleneck"] for layer in found["layers"])
    assert sum(layer["flops"] for layer in found["layers"]) == found["total_flops"]
    assert sum(layer["memory"] for layer in found["layers"]) == found["total_memory"]


MODULES = """irscope 1
graph @main {
  input %x: f32[2,8]
  param %w: f32[8,8]
  %a: ?[*] = nn.linear(%x, %w) @block/fc
  %b: ?[*] = nn.relu(%a) @block/relu
  %c: ?[*] = math.add(%b, %x) @block
  %d: ?[*] = nn.relu(%c) @block/relu#1
  %e: ?[*] = math.add(%d, %x) @block
  %f: ?[*] = math.neg(%e)
  return %f
}
"""


def test_layers_are_named_by_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, MODULES)
    wanted = ["block.fc", "block.relu", "block: add", "block.relu#1", "block: add.1", "f"]
    assert main(["run", "--format", "layers-json", path]) == 0
    assert [layer["name"] for layer in json.loads(capsys.readouterr().out)["layers"]] == wanted
    assert main(["run", "--passes", "layers", "--format", "csv", path]) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]] == wanted


def test_layers_json_needs_its_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--format", "layers-json", "--passes", "stats", written(tmp_path)]) == 2
    assert "--passes layers" in capsys.readouterr().err
