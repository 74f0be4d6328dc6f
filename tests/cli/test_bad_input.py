"""Bad input of every kind: one clear line, a code that `explain` knows, the exit code of the table, no traceback, no half-written file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.codes import CODES

MODEL = """irscope 1
symbol batch [1,*]
graph @main {
  input %x: f32[batch,8]
  param %w: f32[4,8]
  %y: f32[batch,4] = nn.linear(%x, %w, _)
  %z: f32[batch,4] = nn.relu(%y)
  return %z
}
"""
CRASHING = """
from irscope.api import analysis, transform
@analysis("crashing")
def Crashing(graph, ctx):
    "Raises."
    return 1 / 0
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IRSCOPE_CRASH_DIR", str(tmp_path))
    path = tmp_path / "model.irs"
    path.write_text(MODEL)
    (tmp_path / "crash.py").write_text(CRASHING)
    (tmp_path / "raises.py").write_text("raise ValueError('no')\n")
    return path


CASES = {
    "no command": ("", 2),
    "unknown command": ("rnu MODEL", 2),
    "unknown flag": ("run --frobnicate MODEL", 2),
    "unknown format": ("run --format yaml MODEL", 2),
    "unknown pass": ("run --passes livness MODEL", 2),
    "unknown option": ("run --passes liveness{modle=ssa} MODEL", 2),
    "option of the wrong type": ("run --passes liveness{top=many} MODEL", 2),
    "choice that is none": ("run --passes liveness{model=magic} MODEL", 2),
    "broken pipeline": ("run --passes shapes,, MODEL", 2),
    "script that is not there": ("run --passes DIR/none.py:P MODEL", 2),
    "script without that pass": ("run --passes DIR/crash.py:Other MODEL", 2),
    "script that raises": ("run --passes DIR/raises.py:P MODEL", 2),
    "pass that raises": ("run --passes DIR/crash.py:Crashing MODEL", 4),
    "no such file": ("run DIR/none.onnx", 3),
    "a folder": ("run DIR", 3),
    "an empty file": ("run DIR/empty", 3),
    "no model": ("run DIR/crash.py", 3),
    "bad type": ("run --input x=g32[1] MODEL", 2),
    "bad input": ("run --input x MODEL", 2),
    "unknown input": ("run --input y=f32[1,8] MODEL", 2),
    "wrong rank": ("run --input x=f32[8] MODEL", 2),
    "bad binding": ("run --bind batch=big MODEL", 2),
    "unknown symbol": ("run --bind bach=8 MODEL", 2),
    "size out of bounds": ("run --bind batch=0 MODEL", 2),
    "unknown operator": ("ops nn.cnov", 2),
    "unknown family": ("ops --family magic", 2),
    "unknown code": ("explain IRS999", 2),
    "unknown pass explained": ("passes livness", 2),
    "unwritable output": ("run -o DIR/none/out.json MODEL", 2),
    "output is a folder": ("run --format json -o DIR MODEL", 2),
    "reproducer that is none": ("repro MODEL", 3),
    "no terminal": ("tui MODEL", 2),
}


def run(command: str, model: Path) -> int:
    """Run a command line in which MODEL and DIR stand for paths."""
    (model.parent / "empty").touch()
    words = command.replace("MODEL", str(model)).replace("DIR", str(model.parent)).split()
    return main(words)


@pytest.mark.parametrize(("command", "exit_code"), CASES.values(), ids=CASES.keys())
def test_bad_input_gets_one_clear_line(command: str, exit_code: int, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name for path in model.parent.iterdir()} | {"empty"}
    assert run(command, model) == exit_code
    out, err = capsys.readouterr()
    if not command:
        return
    assert "Traceback" not in err
    first = err.splitlines()[0]
    found = re.match(r"irscope: error (IRS\d{3}): \S", first)
    assert found, err
    assert found[1] in CODES
    # Only a caret under the pipeline may follow.
    assert len(err.splitlines()) == 1 or err.splitlines()[-1].strip().startswith("^")
    left = {path.name for path in model.parent.iterdir()} - before
    assert not {name for name in left if not name.startswith(("irscope-crash-", "__pycache__"))}
    assert "{" not in out


@pytest.mark.parametrize("cut", range(0, len(MODEL), 7))
def test_a_truncated_text_is_refused_or_whole(cut: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.irs"
    path.write_text(MODEL[:cut])
    code = main(["run", "--passes", "stats", str(path)])
    err = capsys.readouterr().err
    assert code == 3, err
    assert "Traceback" not in err and re.match(r"irscope: error IRS1\d\d: ", err)


MALFORMED = {
    "undefined value": MODEL.replace("nn.relu(%y)", "nn.relu(%nothing)"),
    "value defined twice": MODEL.replace("%z:", "%y:").replace("return %z", "return %y"),
    "cycle": MODEL.replace("nn.linear(%x, %w, _)", "nn.linear(%z, %w, _)"),
    "unknown type": MODEL.replace("f32[4,8]", "g32[4,8]"),
    "negative size": MODEL.replace("f32[4,8]", "f32[-4,8]"),
    "no return": MODEL.replace("  return %z\n", ""),
    "other version": MODEL.replace("irscope 1", "irscope 99"),
    "junk at the end": MODEL + "and so on\n",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_text_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.irs"
    path.write_text(text)
    assert main(["run", str(path)]) == 3
    err = capsys.readouterr().err
    assert re.match(r"irscope: error IRS12\d: ", err), err


@pytest.mark.parametrize("values", ["[1, 2, 3]", '["a", "b"]', "[nan, inf]", "[]", "[1.5, true]"])
def test_a_constant_that_contradicts_its_type_is_an_unknown_constant(
    values: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "constant.irs"
    path.write_text(
        f"irscope 1\ngraph @main {{\n  input %x: f32[4,4]\n  const %c: i64[2] = {values}\n"
        "  %y: ?[*] = view.reshape(%x, %c)\n  return %y\n}\n"
    )
    assert main(["run", "--format", "json", "--passes", "shapes", str(path)]) in (0, 3)
    assert "Traceback" not in capsys.readouterr().err


def test_a_failing_pass_leaves_a_reproducer_that_fails_again(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run --passes DIR/crash.py:Crashing MODEL", model) == 4
    err = capsys.readouterr().err
    assert "crash.py:6" in err
    (written,) = model.parent.glob("irscope-crash-*.irs")
    assert str(written) in err
    assert f"irscope repro --trust {written}" in err
    assert main(["repro", "--trust", str(written)]) == 4
    assert main(["repro", str(written), "--passes", "stats"]) == 0


def test_a_failing_pass_does_not_take_the_answers_before_it(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run --format json --passes stats,DIR/crash.py:Crashing MODEL", model) == 4
    assert '"pass": "stats"' in capsys.readouterr().out


def test_debug_shows_the_traceback(model: Path) -> None:
    with pytest.raises(Exception, match="livness"):
        run("run --debug --passes livness MODEL", model)


def test_an_existing_output_survives_a_failing_pass(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = model.parent / "report.json"
    target.write_text("old")
    assert run("run --format json -o DIR/report.json --passes livness MODEL", model) == 2
    assert target.read_text() == "old"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    assert main(["run", str(tmp_path / "pipe.onnx")]) == 3
    assert "no regular file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "passes", ["default", "liveness{model=eager}", "liveness{model=ort}", "plan{seconds=0.1}", "cuda-memory", "ort-memory"]
)
def test_what_no_device_holds_is_reported_and_no_failure(passes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large.irs"
    size = "100000000,100000000"
    path.write_text(
        f"irscope 1\ngraph @main {{\n  input %x: f32[{size}]\n  param %w: f32[{size}]\n"
        f"  %y: f32[{size}] = math.matmul(%x, %w)\n  %z: f32[{size}] = math.exp(%y)\n  return %z\n}}\n"
    )
    assert main(["run", "--passes", passes, "--device", "rtx-3060", str(path)]) == 0
    out = capsys.readouterr().out
    if "eager" in passes:
        assert re.search(r"fits +no", out)
