"""`irscope export --schedule` from the command line: what it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import irscope
from irscope.cli.main import main

SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture
def model(tmp_path: Path) -> Path:
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


def export(model: Path, target: Path, *arguments: str) -> int:
    return main(["export", str(model), "-o", str(target), *arguments])


def test_a_reordered_file_with_what_that_is_worth(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "better.onnx"
    assert export(model, target, "--schedule=seconds=1,seed=3", "--bind", "n=4") == 0
    out, said = capsys.readouterr()
    assert not out
    assert "no order needs less: proven" in said and f"wrote {target}" in said
    assert "in ONNX Runtime: default: a reordered file changes nothing" in said
    onnx.checker.check_model(str(target), full_check=True)
    first, second = (irscope.load(path, bind={"n": 4}).run("schedule{seconds=0}") for path in (model, target))
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
def test_refusals(model: Path, tmp_path: Path, name: str, arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = model.read_bytes()
    assert export(model, tmp_path / name, *arguments, "--bind", "n=4") == 2
    assert f"error {code}" in capsys.readouterr().err
    assert model.read_bytes() == before and list(tmp_path.iterdir()) == [model]


def test_sizes_have_to_be_numbers(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(model, tmp_path / "better.onnx", "--schedule") == 4
    assert "IRS352" in capsys.readouterr().err


def test_a_trace_has_no_nodes_to_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(SAMPLES / "models" / "net.pt", tmp_path / "better.pt", "--schedule") == 2
    assert "IRS357" in capsys.readouterr().err
