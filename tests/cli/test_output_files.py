"""Files that a user names, schedules among them: replaced as a whole and said so, never through a link unless --force is given."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import irscope
from irscope.cli.main import COMMANDS, command_named, main

# Files that a user names: replaced as a whole and said so, never through a link unless --force is given.

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
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
    "simulate -o TARGET MODEL",
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
    assert "fits" in victim.read_text() and target.is_symlink()
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
        command_named(name).add_arguments(parser)
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


# `irscope export --schedule` from the command line: what it writes, and what it refuses.

SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture
def branching(tmp_path: Path) -> Path:
    """Two large results that are both made before either is reduced."""
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Neg", ["x"], ["b"]),
        helper.make_node("ReduceMax", ["a"], ["c"]),
        helper.make_node("ReduceMax", ["b"], ["d"]),
        helper.make_node("Add", ["c", "d"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1024])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])]
    path = tmp_path / "model.onnx"
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def export(branching: Path, target: Path, *arguments: str) -> int:
    return main(["export", str(branching), "-o", str(target), *arguments])


def test_a_reordered_file_with_what_that_is_worth(branching: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "better.onnx"
    assert export(branching, target, "--schedule=seconds=1,seed=3", "--bind", "n=4") == 0
    out, said = capsys.readouterr()
    assert not out
    assert "no order needs less: proven" in said and f"wrote {target}" in said
    assert "in ONNX Runtime without graph optimisations: default: a reordered file changes nothing" in said
    assert "in a default session, after its optimisations: " in said and "no less" in said
    onnx.checker.check_model(str(target), full_check=True)
    first, second = (irscope.load(path, bind={"n": 4}).run("schedule{seconds=0}") for path in (branching, target))
    before, after = (one["schedule"].report().summary["peak_before_bytes"] for one in (first, second))
    assert after < before and f"{before / 1024:.2f} KiB, reordered {after / 1024:.2f} KiB" in said


def test_any_model_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "better.irs"
    assert export(SAMPLES / "pyramid.irs", target, "--schedule", "--bind", "batch=8") == 0
    assert "peak as written 245.00 MiB, reordered 98.00 MiB; 9 of 14 nodes" in capsys.readouterr().err
    assert irscope.load(target).run("schedule{seconds=0}")["schedule"].report().summary["peak_before_bytes"] == 102_763_520


def test_unknown_sizes_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(SAMPLES / "models" / "control_flow.onnx", tmp_path / "copy.onnx", "--schedule", "--bind", "batch=2") == 0
    assert "no known size and do not count" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("better.pt2", ["--schedule"], "IRS357"),
        ("model.onnx", ["--schedule"], "IRS361"),
        ("better.onnx", ["--schedule=model=eager"], "IRS359"),
        ("better.onnx", ["--schedule=nope=1"], "IRS605"),
        ("better.onnx", ["--schedule=latency=-5%"], "IRS354"),
        ("better.onnx", ["--schedule", "--plan"], "IRS339"),
        ("gone/better.onnx", ["--schedule"], "IRS610"),
    ],
)
def test_refusals(branching: Path, tmp_path: Path, name: str, arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = branching.read_bytes()
    assert export(branching, tmp_path / name, *arguments, "--bind", "n=4") == 2
    assert f"error {code}" in capsys.readouterr().err
    assert branching.read_bytes() == before and list(tmp_path.iterdir()) == [branching]


def test_sizes_have_to_be_numbers(branching: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(branching, tmp_path / "better.onnx", "--schedule") == 4
    assert "IRS352" in capsys.readouterr().err


def test_a_trace_has_no_nodes_to_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(SAMPLES / "models" / "net.pt", tmp_path / "better.pt", "--schedule") == 2
    assert "IRS357" in capsys.readouterr().err


# A disk that is full: one line, what was there before stays, and nothing is left that is cut short.

TINY = """
import torch
x = torch.ones(1024, 1024, device="cuda")
for _ in range(300):
    y = x + 1
"""


def with_files_of(most: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the end of a command whose files may not grow above `most` bytes."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))"
    program = f"{limit}; import sys; from irscope.cli.main import main; sys.exit(main(sys.argv[1:]))"
    where = Path(__file__).parents[2]
    return subprocess.run([sys.executable, "-B", "-c", program, *arguments], capture_output=True, text=True, cwd=where)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("simulate", "--device", "h100", "-o", "TARGET", "SCRIPT"), marks=needs_torch),
        pytest.param(("record", "--trust", "-o", "TARGET", "samples/models/net.pt2"), marks=needs_torch),
        ("run", "--format", "json", "-o", "TARGET", "samples/mlp.irs"),
    ],
    ids=["simulate", "record", "run"],
)
def test_a_full_disk_leaves_the_file_that_was_there(command: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("resource")
    target, script = tmp_path / "old.jsonl", tmp_path / "tiny.py"
    target.write_text("old")
    script.write_text(TINY)
    names = {"TARGET": str(target), "SCRIPT": str(script)}
    ended = with_files_of(1000, *(names.get(word, word) for word in command))
    assert ended.returncode == 2 and "IRS610" in ended.stderr and "File too large" in ended.stderr and "Traceback" not in ended.stderr
    assert target.read_text() == "old" and {path.name for path in tmp_path.iterdir()} == {"old.jsonl", "tiny.py"}


@pytest.mark.parametrize("most", [1000, 30_000, 70_000])
def test_an_audit_on_a_full_disk_says_so_in_a_line_and_goes_on_later(most: int, tmp_path: Path) -> None:
    pytest.importorskip("resource")
    pytest.importorskip("pyarrow")
    results = tmp_path / "results"
    ended = with_files_of(most, "audit", "samples/models", "-o", str(results))
    lines = [line for line in ended.stderr.splitlines() if "error" in line]
    assert ended.returncode == 2 and len(lines) == 1 and "IRS610" in lines[0] and "the same command goes on" in lines[0]
    assert main(["audit", "samples/models", "-o", str(results)]) == 0
    assert not list(results.rglob("*.tmp"))
