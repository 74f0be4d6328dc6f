"""`irscope compare` prints, fails where it should, and says what is wrong in one line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.recording import write_recording
from tests.unit.tools.test_compare_runs import recording
from tests.unit.tools.texts import MLP, renamed

WIDER = MLP.replace("[16,8]", "[32,8]").replace("f32[16]", "f32[32]").replace("[8,16]", "[8,32]").replace("[4,16]", "[4,32]")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", MLP), ("same", renamed(MLP)), ("wide", WIDER)):
        (tmp_path / f"{name}.irs").write_text(text)
    write_recording(tmp_path / "run.jsonl", recording())
    return tmp_path


def output(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["compare", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_two_models_as_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = output(["a.irs", "wide.irs"], capsys)
    assert (code, err) == (0, "")
    assert any(line.strip().startswith("peak +100.0%, FLOPs +") for line in out.splitlines()[:6])
    assert "fc1.weight" in out and "nodes that differ" in out


def test_equal_models_are_said_to_be(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = output(["a.irs", "same.irs"], capsys)
    assert "peak the same, FLOPs the same, parameters the same, nodes the same" in out
    assert "nodes that differ" not in out
    assert "nodes" in output(["a.irs", "same.irs", "--all"], capsys)[1]


def test_json_and_csv_have_the_same_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = output(["a.irs", "wide.irs", "--format", "json"], capsys)
    document = json.loads(out)
    assert (document["schema"], document["kind"], document["b"]["path"]) == ("irscope.compare/1", "models", "wide.irs")
    report = document["reports"][0]
    assert report["summary"]["flops"]["change"] == pytest.approx(1, abs=0.1)
    nodes = next(table for table in report["tables"] if table["title"] == "nodes that differ")
    code, out, _ = output(["a.irs", "wide.irs", "--format", "csv", "-o", "tables/"], capsys)
    assert (code, out) == (0, "")
    rows = list(csv.reader(io.StringIO((folder / "tables" / "compare-nodes-that-differ.csv").read_text())))
    assert rows[0][: len(nodes["columns"])] == [column["key"] for column in nodes["columns"]]
    assert [row[0] for row in rows[1:]] == [row[0] for row in nodes["rows"]]


def test_tables_are_sorted_filtered_and_cut(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["a.irs", "wide.irs", "--format", "json", "--sort", "flops_b", "--filter", 'operator ~ "linear"', "--top", "1"]
    document = json.loads(output(arguments, capsys)[1])
    nodes = next(table for table in document["reports"][0]["tables"] if table["title"] == "nodes that differ")
    assert [row[0] for row in nodes["rows"]] == ["hidden"]


@pytest.mark.parametrize(
    ("limit", "code"),
    [("peak>5%", 1), ("peak>200%", 0), ("flops>1G", 0), ("nodes>0,changed>0", 1), ("unmatched>0", 0), ("reserved>5%", 5), ("peak>1KiB", 0)],
)
def test_limits_decide_the_exit_code(limit: str, code: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, _, err = output(["a.irs", "wide.irs", "--fail-on", limit], capsys)
    assert found == code
    assert ("IRS490" in err, "IRS491" in err) == (code == 1, code == 5)


def test_a_recording_beside_its_model_in_either_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A text model is run as Python would: the recorded one let go of tensors after their last use.
    for names in (["a.irs", "run.jsonl"], ["run.jsonl", "a.irs"]):
        code, out, _ = output([*names, "--lifetime", "ssa"], capsys)
        assert code == 0
        assert "delta (warm): predicted 512 B, measured 512 B, error 0.00%" in out
        assert "4 of 4 nodes matched (100.0%)" in out
        assert "= measured" in out


def test_limits_of_a_recording(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["a.irs", "run.jsonl", "--lifetime", "ssa", "--fail-on"]
    assert output([*arguments, "peak>0.5%,unmatched>0"], capsys)[0] == 0
    assert output([*arguments, "reserved>3%"], capsys)[0] == 5


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run.jsonl", "run.jsonl"], 2, "IRS662"),
        (["a.irs", "nothing.irs"], 3, "nothing.irs"),
        (["a.irs", "wide.irs", "--fail-on", "peak"], 2, "IRS660"),
        (["a.irs", "wide.irs", "--fail-on", "colour>3"], 2, "there are peak"),
        (["a.irs", "wide.irs", "--fail-on", "peak>many"], 2, "IRS660"),
        (["a.irs", "wide.irs", "--sort", "nonsense"], 2, "IRS450"),
        (["a.irs", "other.jsonl"], 3, "IRS661"),
        (["a.irs", "new.jsonl"], 3, "IRS476"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    arguments: list[str], code: int, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "run.jsonl").read_text()
    (folder / "new.jsonl").write_text(text.replace("irscope.recording/1", "irscope.recording/99"))
    for old in ("hidden", "active", "back", '"y"'):
        text = text.replace(old, '"z"' if old == '"y"' else "z")
    (folder / "other.jsonl").write_text(text.replace("aten::", "acme::un").replace('"scope": "fc', '"scope": "elsewhere'))
    found, out, err = output(arguments, capsys)
    assert (found, out) == (code, "")
    assert said in err
    assert len(err.splitlines()) <= 3


def test_a_cut_short_recording_is_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "run.jsonl").read_text()
    (folder / "short.jsonl").write_text(text[: len(text) // 2])
    code, out, _ = output(["a.irs", "short.jsonl"], capsys)
    assert code == 0
    assert "IRS494" in out and "incomplete" in out
