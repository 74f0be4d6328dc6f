"""`irscope opt`: text in, transforms, text out."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.ir.parser import parse_program
from irscope.ir.printer import print_program

_FOLDS = """irscope 1
graph @main {
  input %x: f32[2,3]
  const %c: f32[] = [1.0]
  const %d: f32[] = [2.0]
  %dead: f32[2,3] = nn.relu(%x)
  %s: f32[] = math.add(%c, %d)
  %y: f32[2,3] = math.mul(%x, %s)
  return %y
}
"""
_BROKEN = """irscope 1
graph @main {
  input %x: f32[2,3]
  %y: f32[2,3] = nn.reluu(%x)
  return %y
}
"""


@pytest.fixture
def folds(tmp_path: Path) -> Path:
    path = tmp_path / "folds.irs"
    path.write_text(_FOLDS)
    return path


def test_text_goes_through_transforms_to_stdout(folds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", "--passes", "fold,dce", "--verify-each", str(folds)]) == 0
    out, err = capsys.readouterr()
    assert [node.op for node in parse_program(out).graph] == ["math.mul"]
    assert "const %s: f32[] = [3.0]" in out and not err


def test_stdin_is_read_and_without_passes_printed(folds: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(_FOLDS.encode())))
    assert main(["opt"]) == 0
    assert capsys.readouterr().out == print_program(parse_program(_FOLDS))


def test_a_text_that_breaks_a_rule_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.irs"
    path.write_text(_BROKEN)
    assert main(["opt", "--passes", "dce", str(path)]) == 3
    out, err = capsys.readouterr()
    assert not out and "IRS206" in err and "nn.relu" in err
    assert main(["opt", "--no-verify", str(path)]) == 0


def test_parts_of_a_file_are_taken_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "parts.irs"
    path.write_text(
        f"{_FOLDS}# -----\n{_BROKEN.partition(chr(10))[2]}// -----\n{_FOLDS.partition(chr(10))[2]}# -----\ngraph @last {{\n  retur\n}}\n"
    )
    assert main(["opt", "--passes", "fold,dce", "--split-input-file", str(path)]) == 3
    out, err = capsys.readouterr()
    assert [part.count("math.mul") for part in out.split("# -----\n")] == [1, 1]
    assert "IRS206" in err and f"{path}:29:" in err
    assert main(["opt", str(path)]) == 3


def test_the_graph_is_printed_after_each_transform(folds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["opt", "--print-after-all"], ["run", "--dump-ir-after-all"]):
        assert main([*command, "--passes", "fold,dce,fold", str(folds)]) == 0
        err = capsys.readouterr().err
        said = [line for line in err.splitlines() if line.startswith("# -----")]
        assert said == [
            "# ----- after fold, which changed the graph",
            "# ----- after dce, which changed the graph",
            "# ----- after fold, which changed nothing",
        ]
        assert err.count("%y: f32[2,3] = math.mul") == 3


@pytest.mark.parametrize("broken", ["graph.replace(node, 'nn.reluu')", "node.op = 'nn.linear'"])
def test_each_transform_is_checked_by_the_rules_of_operators(
    broken: str, folds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "breaks.py"
    script.write_text(
        "from irscope.api import transform\n\n\n@transform('breaks')\ndef Breaks(graph, ctx):\n"
        f"    node = graph.last\n    {broken}\n    return True\n"
    )
    for command in ("opt", "run"):
        assert main([command, "--verify-each", "--passes", f"dce,{script}:Breaks", str(folds)]) == 4
        out, err = capsys.readouterr()
        assert (command == "run" or not out) and "IRS503" in err and "breaks" in err
    assert main(["opt", "--passes", f"{script}:Breaks", str(folds)]) == 4
    assert "the passes left a broken graph" in capsys.readouterr().err


def test_export_writes_a_changed_text_of_any_model(folds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "out.irs"
    assert main(["export", "--passes", "cleanup", str(folds), "-o", str(written)]) == 0
    assert [node.op for node in parse_program(written.read_text()).graph] == ["math.mul"]
    assert main(["export", str(folds), "-o", str(written)]) == 0
    assert written.read_text() == print_program(parse_program(_FOLDS))
