"""The commands do what their help says: tables, explanations, strictness, what was assumed, plots."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from irscope.cli.doctor import diagnose
from irscope.cli.main import COMMANDS, main
from irscope.codes import CODES
from irscope.errors import ExitCode
from irscope.passkit.options import option_help, option_types
from irscope.passkit.registry import default_registry
from tests.cli.test_bad_input import MODEL

# The commands do what their help says.

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


def test_the_header_is_about_the_file_whatever_transforms_leave_of_it(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_text(MODEL.replace("return %z", "return %y"), encoding="utf-8")
    for passes, nodes in (("flops", "2 nodes ·"), ("flops,fold", "2 nodes ·"), ("flops,dce,stats", "2 nodes, 1 after the transforms ·")):
        assert main(["run", "--passes", passes, str(model)]) == 0
        assert f" · {nodes}" in " ".join(capsys.readouterr().out.split())
    assert main(["run", "--format", "json", "--passes", "dce,stats", str(model)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["model"]["nodes"] == 2 and document["reports"][-1]["summary"]["nodes"] == 1


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["doctor"], "doctor"),
        (["devices"], "devices"),
        (["devices", "h200"], "devices"),
        (["ops", "--coverage", "MODEL"], "ops"),
        (["zoo"], "zoo"),
    ],
)
def test_every_answer_is_a_report_in_every_format(arguments: list[str], name: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(model) if argument == "MODEL" else argument for argument in arguments]
    assert main([*given, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "irscope.report/1" and document["reports"][0]["pass"] == name
    assert main([*given, "--format", "html"]) == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")
    table = document["reports"][0]["tables"][0]
    assert main([*given, "--format", "csv"]) == 0
    assert table["columns"][0]["key"] in capsys.readouterr().out
    if len(table["rows"]) > 1:
        key = table["columns"][0]["key"]
        assert main([*given, "--format", "json", "--sort", f"{key}:down", "--top", "1"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["reports"][0]["tables"][0]["rows"]
        assert row[0] == max((one[0] for one in table["rows"]), key=str.casefold)


def test_control_characters_in_names_are_shown_escaped(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_text(MODEL.replace("%z", '%"z\\u001b[31m\\u202e"'), encoding="utf-8")
    assert main(["run", str(model)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\u202e" not in out and "\\x1b[31m" in out


@pytest.mark.slow
def test_every_option_of_every_pass_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    registry = default_registry()
    for name in registry.entries:
        assert main(["passes", name]) == 0
        shown = capsys.readouterr().out
        found = option_help(registry.find(name))
        for option in option_types(registry.find(name)):
            assert option == "body" or (found[option] and found[option].split()[0] in shown), (name, option)


# Costs on the command line: the explanation of a node, strictness, and JSON for other tools.

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


# What was guessed about a run is said in every format, marks every number that depends on it, and fails --strict.

GUESS = 'guess "x" "f32[2,8]" "guessed from its use; --input x=TYPE gives the real type"\n'
DEFAULT = 'default "batch" "1" "--bind batch=N"\n'


def write(path: Path, lines: str) -> str:
    """The model with lines of its head added."""
    first, rest = MODEL.split("\n", 1)
    path.write_text(f"{first}\n{lines}{rest}", encoding="utf-8")
    return str(path)


@pytest.fixture
def guessed(tmp_path: Path) -> str:
    return write(tmp_path / "guessed.irs", GUESS)


@pytest.fixture
def usual(tmp_path: Path) -> str:
    return write(tmp_path / "usual.irs", DEFAULT)


def test_json_says_what_was_guessed_and_what_depends_on_it(guessed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--format", "json", "--bind", "batch=2", guessed]) == 0
    found = json.loads(capsys.readouterr().out)
    told = [(one["what"], one["value"], one["guess"]) for one in found["model"]["assumed"]]
    # Nobody named a device or a version of torch either; their defaults are no guesses.
    assert told == [("x", "f32[2,8]", True), ("device", "h200", False), ("torch", "2.13", False)]
    reports = {report["pass"]: report for report in found["reports"]}
    # The numbers are the same ones; what is said about them is not.
    assert reports["flops"]["summary"]["total_flops"] == 2 * 2 * 4 * 8 + 2 * 4
    assert reports["flops"]["provenance"]["total_flops"] == "assumed"
    assert reports["liveness"]["provenance"]["activation_peak_bytes"] == "assumed"
    values = next(table for table in reports["shapes"]["tables"] if table["title"] == "values")
    columns = {column["key"]: column.get("provenance") for column in values["columns"]}
    assert columns["shape"] == "assumed"
    assert columns["name"] is None
    # Weights are in the file, whatever the inputs are.
    assert "assumed" not in reports["params"]["provenance"].values()


def test_text_and_html_mark_numbers_and_say_what_was_guessed(guessed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--passes", "flops,params", "--bind", "batch=2", guessed]) == 0
    text = capsys.readouterr().out
    assert "assumed: x=f32[2,8] (guessed from its use" in text
    assert "*136 FLOPs" in text
    assert "* assumed: it depends on a guess" in text
    assert "*128 B" not in text
    page = tmp_path / "report.html"
    assert main(["run", "--passes", "flops", "--bind", "batch=2", "--format", "html", "-o", str(page), guessed]) == 0
    assert "assumed: x=f32[2,8]" in page.read_text()
    assert "*136 FLOPs" in page.read_text()


def test_csv_has_a_column_for_it(guessed: str, tmp_path: Path) -> None:
    assert main(["run", "--passes", "flops", "--bind", "batch=2", "--format", "csv", "-o", f"{tmp_path}/tables/", guessed]) == 0
    rows = list(csv.DictReader((tmp_path / "tables" / "flops-nodes.csv").read_text().splitlines()))
    assert {row["flops.provenance"] for row in rows} == {"assumed"}


@pytest.mark.parametrize(
    "command",
    [
        ["run"],
        ["show"],
        ["sweep", "--over", "batch=1,2"],
        ["fit", "--memory", "1GiB", "--counter", "requested"],
        ["export", "--bind", "batch=2", "-o", "{}.csv"],
    ],
    ids=lambda command: str(command[0]),
)
def test_strict_fails_where_something_was_guessed(command: list[str], guessed: str, usual: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [part.replace("{}", guessed) for part in command]
    assert main([*arguments, guessed]) == 0
    assert "--strict" not in capsys.readouterr().err
    assert main([*arguments, "--strict", guessed]) == 5
    assert "IRS540: --strict: assumed x=f32[2,8]" in capsys.readouterr().err
    # A documented default is shown, and is no guess.
    assert main([*arguments, "--strict", usual]) == 0


def test_comparisons_say_it_of_the_side_that_it_is_about(
    guessed: str, usual: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # paths of temporary files are long
    assert main(["compare", "--strict", "--bind", "batch=2", usual, guessed]) == 5
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip()[:10] for line in lines[:4]] == ["A  " + usual[:7], "settings: ", "B  " + guessed[:7], "assumed: x"]
    assert main(["compare", "--format", "json", "--bind", "batch=2", usual, guessed]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["guess"] for side in ("a", "b") for one in found[side]["assumed"]] == [False, True]
    assert found["reports"][0]["provenance"]["peak_bytes.b"] == "assumed"


def test_defaults_are_said_and_numbers_stay_exact(usual: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--format", "json", "--passes", "flops", "--bind", "batch=2", usual]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"]["assumed"] == [{"what": "batch", "value": "1", "why": "--bind batch=N", "guess": False}]
    assert found["reports"][0]["provenance"] == {}
    assert main(["run", "--passes", "flops", "--bind", "batch=2", usual]) == 0
    assert "settings: batch=1 (--bind batch=N)" in capsys.readouterr().out


def test_what_was_said_on_reading_stands_in_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "m.pt"
    torch.jit.script(torch.nn.Conv2d(3, 8, 3)).save(str(path))
    assert main(["run", "--format", "json", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["code"] for one in found["model"]["diagnostics"]] == ["IRS186"]
    assert found["model"]["assumed"][0]["value"] == "f32[1,3,224,224]"
    assert main(["run", "--strict", str(path)]) == 5
    capsys.readouterr()
    target = ["--device", "h200", "--torch", "2.13"]
    assert main(["run", "--strict", *target, "--input", "input=f32[1,3,224,224]", "--format", "json", str(path)]) == 0
    given = json.loads(capsys.readouterr().out)
    assert given["model"]["assumed"] == []
    # Guessed or given, the numbers for these sizes are the same.
    assert [report["summary"] for report in given["reports"]] == [report["summary"] for report in found["reports"]]


def test_a_device_and_a_version_that_nobody_named_are_said(usual: str, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> list[str]:
        assert main(["run", "--format", "json", "--bind", "batch=2", *arguments, usual]) == 0
        return [f"{load['what']}={load['value']}" for load in json.loads(capsys.readouterr().out)["model"]["assumed"][1:]]

    assert said("--passes", "liveness") == ["device=h200", "torch=2.13"]
    assert said("--passes", "liveness", "--device", "a100") == ["torch=2.13"]
    assert said("--passes", "roofline") == ["device=h200"]
    # What does not depend on them, or names its own, says nothing.
    assert said("--passes", "roofline{device=h200}") == []
    assert said("--passes", "flops,params") == []


# `--plot` of commands that read models: live tensors, times by node, and what cannot be drawn.


def words(path: Path) -> str:
    return " ".join(ElementTree.parse(path).getroot().itertext())


def test_run_draws_the_live_tensors(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    assert main(["run", str(model), "--bind", "batch=8", "--plot", str(path)]) == ExitCode.OK
    text = words(path)
    assert all(word in text for word in ("activations alive", "output", "activation", "temporary", "peak ", "step"))


def test_run_says_what_has_no_curve(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.svg"
    assert main(["run", str(model), "--passes", "shapes", "--plot", str(path)]) == ExitCode.USAGE
    assert "IRS430" in capsys.readouterr().err and not path.exists()
    assert main(["run", str(model), "--plot", "x.gif"]) == ExitCode.USAGE


def test_compare_draws_least_times_of_two_models(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    assert main(["compare", str(model), str(model), "--bind", "batch=8", "--bind-b", "batch=8000000", "--plot", str(path)]) == ExitCode.OK
    text = words(path)
    assert all(word in text for word in ("least time by node, where it differs", "A (modelled)", "B (modelled)", "A, peak", "B, peak"))


@pytest.mark.slow
@pytest.mark.usefixtures("forked_recorder")
def test_record_and_compare_draw_times_by_node(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    source, recording = str(tmp_path / "net.pt2"), str(tmp_path / "net.jsonl")
    torch.export.save(torch.export.export(net, (torch.zeros(8, 16),)), source)
    drawn = tmp_path / "recorded.svg"
    assert main(["record", source, "-o", recording, "--trust", "--repeats", "2", "--warmup", "1", "--plot", str(drawn)]) == ExitCode.OK
    text = words(drawn)
    assert all(word in text for word in ("0: linear", "1: relu", "2: linear", "time by operator", "(measured)", "peak "))
    drawn = tmp_path / "compared.svg"
    assert main(["compare", source, recording, "--plot", str(drawn)]) == ExitCode.OK
    text = words(drawn)
    assert all(word in text for word in ("time by node", "(measured)", "predicted, peak", "measured, peak", "2: "))
