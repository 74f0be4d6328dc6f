"""What was guessed about a run is said in every format, marks every number that depends on it, and fails --strict."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from irscope.cli.main import main
from tests.cli.test_bad_input import MODEL

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


def test_comparisons_say_it_of_the_side_that_it_is_about(guessed: str, usual: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--strict", "--bind", "batch=2", usual, guessed]) == 5
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip()[:10] for line in lines[:4]] == ["A  " + usual[:7], "taken: bat", "B  " + guessed[:7], "assumed: x"]
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
    assert "taken: batch=1 (--bind batch=N)" in capsys.readouterr().out


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
        return [f"{one['what']}={one['value']}" for one in json.loads(capsys.readouterr().out)["model"]["assumed"][1:]]

    assert said("--passes", "liveness") == ["device=h200", "torch=2.13"]
    assert said("--passes", "liveness", "--device", "a100") == ["torch=2.13"]
    assert said("--passes", "roofline") == ["device=h200"]
    # What does not depend on them, or names its own, says nothing.
    assert said("--passes", "roofline{device=h200}") == []
    assert said("--passes", "flops,params") == []
