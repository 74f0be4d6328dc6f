"""Files that a user names: replaced as a whole and said so, never through a link unless --force is given."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import pytest

from irscope.cli.main import COMMANDS, main

MODEL = """irscope 1
graph @main {
  input %x: f32[2,8]
  %y: f32[2,8] = nn.relu(%x)
  return %y
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.irs"
    path.write_text(MODEL)
    return path


WRITING = (
    "run -o TARGET MODEL",
    "show -o TARGET MODEL",
    "compare -o TARGET MODEL MODEL",
    "devices -o TARGET",
    "zoo -o TARGET",
    "export --kind csv -o TARGET MODEL",
    "export --plan --kind json -o TARGET MODEL",
    "sweep -o TARGET --over batch=1 MODEL",
    "train-plan --nodes-csv TARGET MODEL",
    "record -o TARGET MODEL",
)


@pytest.mark.parametrize("command", WRITING)
def test_a_link_is_refused_before_any_work(command: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim, target = model.parent / "victim", model.parent / "target.csv"
    victim.write_text("precious")
    target.symlink_to(victim)
    assert main(command.replace("TARGET", str(target)).replace("MODEL", str(model)).split()) == 2
    err = capsys.readouterr().err
    assert "IRS610" in err and "is a link to" in err and "--force" in err
    assert victim.read_text() == "precious" and target.is_symlink()


def test_force_writes_where_the_link_leads(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim, target = model.parent / "victim", model.parent / "target.json"
    victim.write_text("old")
    target.symlink_to(victim)
    assert main(["run", "--force", "-o", str(target), str(model)]) == 0
    assert "nodes" in victim.read_text() and target.is_symlink()
    assert "will be replaced" in capsys.readouterr().err


def test_replacing_a_file_is_said(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = model.parent / "report.txt"
    assert main(["run", "-o", str(target), str(model)]) == 0
    assert "replaced" not in capsys.readouterr().err
    assert main(["run", "-o", str(target), str(model)]) == 0
    assert "report.txt is there already and will be replaced" in capsys.readouterr().err


def test_every_option_that_names_a_file_to_write_is_looked_at() -> None:
    """An option called output, plot, csv or out that does not come from `add_output_file` would write through links."""
    for name in COMMANDS:
        parser = argparse.ArgumentParser()
        importlib.import_module(f"irscope.cli.{name.replace('-', '_')}").Command().add_arguments(parser)
        named = set(parser.get_default("output_files") or ())
        for action in parser._actions:
            words = set(action.dest.split("_"))
            if words & {"output", "plot", "csv", "out"} and action.metavar == "FILE":
                assert action.dest in named, (name, action.dest)


def test_the_working_folder_gets_no_reproducer(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    home = model.parent / "home"
    monkeypatch.setenv("IRSCOPE_HOME", str(home))
    monkeypatch.delenv("IRSCOPE_CRASH_DIR", raising=False)
    monkeypatch.chdir(model.parent)
    crash = model.parent / "crash.py"
    crash.write_text("from irscope.api import analysis\n@analysis('crash')\ndef Crash(graph, ctx):\n    'Raises.'\n    return 1 / 0\n")
    before = set(model.parent.iterdir())
    assert main(["run", "--passes", f"{crash}:Crash", str(model)]) == 4
    (written,) = (home / "cache").glob("irscope-crash-*.irs")
    assert str(written) in capsys.readouterr().err
    assert {path.name for path in set(model.parent.iterdir()) - before} <= {"home", "__pycache__"}
