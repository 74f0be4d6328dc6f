"""The commands do what their help says."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from irscope.cli.doctor import diagnose
from irscope.cli.main import COMMANDS, main
from irscope.codes import CODES
from irscope.passkit.options import option_help, option_types
from irscope.passkit.registry import default_registry
from tests.cli.test_bad_input import MODEL

SAMPLE_PASS = Path(__file__).parents[2] / "samples" / "custom_pass.py"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.irs"
    path.write_text(MODEL)
    return path


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """What was printed, as JSON."""
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_json_has_what_scripts_rely_on(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--format", "json", "--bind", "batch=2", str(model)]) == 0
    found = document(capsys)
    assert found["schema"] == "irscope.report/1"
    about = found["model"]
    assert isinstance(about, dict)
    assert (about["format"], about["nodes"], about["parameters"], about["parameter_bytes"]) == ("irs", 2, 32, 128)
    reports = found["reports"]
    assert isinstance(reports, list)
    by_pass = {report["pass"]: report for report in reports}
    assert list(by_pass) == ["shapes", "params", "flops", "liveness"]
    assert by_pass["flops"]["summary"]["by_class"]["matmul"] == 2 * 2 * 4 * 8
    assert by_pass["flops"]["summary"]["total_flops"] == 2 * 2 * 4 * 8 + 2 * 4
    assert by_pass["liveness"]["summary"]["activation_peak_bytes"] == 2 * 2 * 4 * 4
    outputs = next(table for table in by_pass["shapes"]["tables"] if table["title"] == "outputs")
    assert outputs["rows"] == [["z", "f32", [2, 4]]]


def test_symbols_stay_formulas(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--format", "json", "--passes", "shapes,flops", str(model)]) == 0
    reports = document(capsys)["reports"]
    assert isinstance(reports, list)
    outputs = next(table for table in reports[0]["tables"] if table["title"] == "outputs")
    assert outputs["rows"] == [["z", "f32", ["batch", 4]]]
    assert reports[1]["summary"]["total_flops"] == "68*batch"


def test_an_input_type_replaces_the_declared_one(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--format", "json", "--passes", "shapes", "--input", "x=f32[5,8]", str(model)]) == 0
    reports = document(capsys)["reports"]
    assert isinstance(reports, list)
    assert reports[0]["tables"][1]["rows"] == [["z", "f32", [5, 4]]]


def test_strict_fails_on_what_is_unknown(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_text(MODEL.replace("nn.relu", "vendor.magic"), encoding="utf-8")
    assert main(["run", "--passes", "flops", str(model)]) == 0
    assert main(["run", "--passes", "flops", "--strict", str(model)]) == 5
    assert main(["run", "--passes", "flops", "--fail-on", "warning", str(model)]) == 1
    assert "vendor.magic" in capsys.readouterr().err


def test_a_script_pass_has_options_json_and_csv(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    convs = MODEL.replace("[batch,8]", "[batch,8,9,9]").replace("[4,8]", "[4,8,3,3]").replace("nn.linear", "nn.conv")
    model.write_text(convs, encoding="utf-8")
    reference = f"{SAMPLE_PASS}:NarrowConvs"
    assert main(["run", "--format", "json", "--passes", f"{reference}{{below=9}}", str(model)]) == 0
    reports = document(capsys)["reports"]
    assert isinstance(reports, list)
    assert (reports[0]["pass"], reports[0]["options"]) == ("narrow-convs", f"{reference}{{below=9}}")
    assert reports[0]["tables"][0]["rows"] == [["y", 8]]
    assert main(["run", "--format", "csv", "--passes", f"{reference}{{below=9}}", str(model)]) == 0
    assert list(csv.reader(capsys.readouterr().out.splitlines()))[-1] == ["y", "8"]
    assert main(["run", "--format", "csv", "-o", f"{model.parent}/tables/", "--passes", f"{reference},stats", str(model)]) == 0
    assert len(list((model.parent / "tables").iterdir())) >= 3


HALVE = """
from irscope.api import Table, analysis, transform

@transform("halve")
def Halve(graph, ctx):
    found = [node for node in graph.walk() if node.op == "nn.conv"]
    for node in found:
        node.op = "nn.relu"
    return bool(found)

@analysis("first-type", reads="types")
def FirstType(graph, ctx):
    return {"type": str(graph.first.outputs[0].type)}
"""


def test_results_follow_a_transform_that_writes_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "halve.py").write_text(HALVE)
    pipeline = "flops,FILE:FirstType,FILE:Halve,flops,FILE:FirstType".replace("FILE", str(tmp_path / "halve.py"))
    model = tmp_path / "conv.irs"
    model.write_text(
        "irscope 1\ngraph @main {\n  input %x: f32[1,3,8,8]\n  param %w: f32[5,3,1,1]\n"
        "  %y: f32[1,5,8,8] = nn.conv(%x, %w) {strides=[1, 1], dilations=[1, 1], groups=1, pads=[0, 0, 0, 0]}\n  return %y\n}\n"
    )
    assert main(["run", "--verify-each", "--format", "json", "--passes", pipeline, str(model)]) == 0
    reports = document(capsys)["reports"]
    assert isinstance(reports, list)
    before, first, _, after, then = [report["summary"] for report in reports]
    assert (before["total_flops"], after["total_flops"]) == (2 * 8 * 8 * 5 * 3, 8 * 8 * 3)
    assert (first["type"], then["type"]) == ("f32[1,5,8,8]", "f32[1,3,8,8]")


def test_show_prints_inferred_types_and_reads_back(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_text(MODEL.replace("%z: f32[batch,4]", "%z: ?[*]"), encoding="utf-8")
    assert main(["show", str(model)]) == 0
    text = capsys.readouterr().out
    assert "%z: f32[batch,4] = nn.relu(%y)" in text
    again = model.with_name("again.irs")
    assert main(["show", "-o", str(again), str(model)]) == 0
    assert again.read_text() == text
    assert main(["show", "--op", "nn.relu", str(model)]) == 0
    assert capsys.readouterr().out == "%z: f32[batch,4] = nn.relu(%y)\n"


def test_timing_and_dumps(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_text(MODEL.replace("return %z", "return %y"), encoding="utf-8")
    folder = model.parent / "dump"
    assert main(["run", "--passes", "cleanup,stats", "--timing", "--verify-each", "--dump-ir", str(folder), str(model)]) == 0
    captured = capsys.readouterr()
    assert "stats (A)" in captured.err and "fixpoint{max=4}(fold,dce)" in captured.err
    first, *_, last = sorted(folder.iterdir())
    assert first.name == "000_start.irs"
    assert "nn.relu" not in last.read_text()


def test_every_code_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for code in CODES:
        assert main(["explain", code]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"{code}: ") and len(out) > 60


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "usage: irscope" in capsys.readouterr().out


def test_ops_lists_explains_and_covers(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops"]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 120
    assert main(["ops", "view.reshape"]) == 0
    assert "may share" in capsys.readouterr().out
    model.write_text(MODEL.replace("nn.relu", "vendor.magic"), encoding="utf-8")
    assert main(["ops", "--coverage", str(model)]) == 0
    assert "no record" in capsys.readouterr().out


def test_passes_explains_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passes", "liveness"]) == 0
    assert "top=an integer; default 20" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("installed", "whole", "problem"),
    [
        ({"numpy": "2", "onnx": "1", "textual": "8"}, True, ""),
        ({"numpy": "2", "onnx": None, "textual": "8"}, True, "onnx is not installed"),
        ({"numpy": "2", "onnx": "1", "textual": "8", "onnxruntime": "1.31", "onnxruntime-gpu": "1.31"}, True, "overwrite"),
        ({"numpy": "2", "onnx": "1", "textual": "8", "onnxruntime-gpu": "1.31"}, False, "damaged"),
    ],
)
def test_doctor_names_a_broken_install(installed: dict[str, str | None], whole: bool, problem: str) -> None:
    findings = diagnose(installed, importable=whole)
    assert [problem in finding.problem for finding in findings] == ([True] if problem else [])


def test_control_characters_in_names_are_shown_escaped(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_text(MODEL.replace("%z", '%"z\\u001b[31m\\u202e"'), encoding="utf-8")
    assert main(["run", str(model)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\u202e" not in out and "\\x1b[31m" in out


def test_every_option_of_every_pass_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    registry = default_registry()
    for name in registry.entries:
        assert main(["passes", name]) == 0
        shown = capsys.readouterr().out
        found = option_help(registry.find(name))
        for option in option_types(registry.find(name)):
            assert option == "body" or (found[option] and found[option].split()[0] in shown), (name, option)
