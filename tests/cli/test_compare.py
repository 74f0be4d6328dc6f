"""`irscope compare` prints, fails where it should, and says what is wrong in one line."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import pickle
from pathlib import Path

import pytest

import irscope
from irscope.cli.main import main
from irscope.recording import Energy, read_recording, write_recording
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
    lines = [line.strip() for line in out.splitlines()]
    # What decides comes first, then where they differ, then how they were matched.
    assert lines[5] == "both fit on NVIDIA H200 SXM"
    assert lines[6].startswith("B beside A: memory ") and "FLOPs +" in lines[6]
    places = [
        next(at for at, line in enumerate(lines) if line.startswith(start))
        for start in ("least time", "nodes that differ", "activation peak +100.0%, FLOPs +", "matched")
    ]
    assert places == sorted(places) and places[0] < 16
    assert "fc1.weight" in out


def test_equal_models_are_said_to_be(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = output(["a.irs", "same.irs"], capsys)
    assert "memory the same, time the same, FLOPs the same, parameters the same" in out
    assert "peak the same, FLOPs the same, parameters the same, nodes the same" in out
    assert "nodes that differ" not in out
    assert "nodes" in output(["a.irs", "same.irs", "--all"], capsys)[1]


OPEN = MLP.replace("graph @main", "symbol batch [1,128]\ngraph @main").replace("f32[4,", "f32[batch,")


def _decides(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, float]]:
    report = json.loads(output([*arguments, "--format", "json"], capsys)[1])["reports"][0]
    found: dict[str, dict[str, float]] = report["summary"]["decides"]
    return found


def test_what_decides_is_in_json_besides_the_totals(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _decides(["a.irs", "wide.irs"], capsys)
    for side, name in (("a", "a.irs"), ("b", "wide.irs")):
        fields = irscope.card(irscope.load(name), device="h200").fields()
        for key, field in {"least_time": "least_time", "flops": "flops", "moved_bytes": "bytes", "size_on_disk": "size_on_disk"}.items():
            assert found[key][side] == fields[field]
        assert found["size_on_disk"][side] == (folder / name).stat().st_size
    for row in (one for key, one in found.items() if key not in ("device", "sizes", "fits")):
        assert row["difference"] == pytest.approx(row["b"] - row["a"])
        assert row["change"] == pytest.approx(row["b"] / row["a"] - 1)


def test_both_have_the_same_sizes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Other names and limits of the same size, and one side that states it: both are compared at one size.
    (folder / "open.irs").write_text(OPEN)
    (folder / "named.irs").write_text(OPEN.replace("[1,128]", "[2,64]").replace("symbol batch", "symbol n").replace("f32[batch,", "f32[n,"))
    found = _decides(["open.irs", "open.irs"], capsys)
    assert found["sizes"] == {"a": "batch=1", "b": "batch=1"} and found["flops"]["difference"] == 0
    found = _decides(["named.irs", "open.irs"], capsys)
    assert found["sizes"] == {"a": "n=2", "b": "batch=2"} and found["flops"]["difference"] == 0
    found = _decides(["open.irs", "open.irs", "--bind", "batch=3"], capsys)
    assert found["sizes"] == {"a": "batch=3", "b": "batch=3"}
    found = _decides(["open.irs", "open.irs", "--bind", "batch=2", "--bind-b", "batch=4"], capsys)
    assert found["sizes"] == {"a": "batch=2", "b": "batch=4"} and found["flops"]["change"] == 1
    # What the first one's size does not admit is said.
    out = output(["open.irs", "named.irs"], capsys)[1]
    assert "B is not at these sizes: " in out
    assert "numbers are for batch=1 (assumed)" in out


def test_what_does_not_fit_is_said_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "huge.irs").write_text(
        MLP.replace("f32[16", "f32[9000000000").replace("[8,16]", "[8,9000000000]").replace("[4,16]", "[4,9000000000]")
    )
    lines = output(["a.irs", "huge.irs"], capsys)[1].splitlines()
    assert lines[5].strip().startswith("A fits; B does not fit: ") and lines[5].endswith("are missing on NVIDIA H200 SXM")


def test_weights_alone_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "deep").mkdir()
    (folder / "deep" / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    found = _decides(["deep/w.safetensors", "a.irs"], capsys)
    assert (found["parameters"]["a"], found["size_on_disk"]["a"]) == (2, 16 + len(header))
    assert found["flops"]["a"] is None and found["flops"]["change"] is None


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
    [
        ("peak>5%", 1),
        ("peak>200%", 0),
        ("flops>1G", 0),
        ("nodes>0,changed>0", 1),
        ("unmatched>0", 0),
        ("reserved>5%", 5),
        ("peak>1KiB", 0),
        ("disk>50%,time>1s", 0),
        ("energy>0%", 1),
        ("time>-1%", 1),
    ],
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
        (["run.pickle", "a.irs"], 2, "IRS662"),
        (["a.irs", "nothing.irs"], 3, "nothing.irs"),
        (["a.irs", "wide.irs", "--fail-on", "peak"], 2, "IRS660"),
        (["a.irs", "wide.irs", "--fail-on", "colour>3"], 2, "limits: peak"),
        (["a.irs", "wide.irs", "--fail-on", "peak>many"], 2, "IRS660"),
        (["a.irs", "wide.irs", "--sort", "nonsense"], 2, "IRS450"),
        (["a.irs", "other.jsonl"], 3, "IRS661"),
        (["a.irs", "new.jsonl"], 3, "IRS476"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    arguments: list[str], code: int, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
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


def test_the_machines_gpu_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plain = output(["a.irs", "wide.irs", "--format", "json"], capsys)[1]
    monkeypatch.setattr("irscope.tools.config.local_gpu", lambda: "NVIDIA L4")
    assert output(["a.irs", "wide.irs", "--format", "json"], capsys)[1] == plain
    monkeypatch.setattr("irscope.tools.config.read_config", lambda: {"device": "rtx4090"})
    found = _decides(["a.irs", "wide.irs"], capsys)
    assert found["device"] == "rtx-4090"
    assert _decides(["a.irs", "wide.irs", "--device", "l4"], capsys)["device"] == "l4"


def test_a_pass_that_fails_leaves_the_rest(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from irscope.errors import PassError
    from irscope.passes.cost.energy import Energy

    def fails(*_: object) -> object:
        raise PassError("no energy today")

    monkeypatch.setattr(Energy, "compute", fails)
    code, out, _ = output(["a.irs", "wide.irs"], capsys)
    assert code == 0 and "a pass failed for A: " in out and "nodes that differ" in out


def test_energy_measured_lies_beside_energy_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The device has one counter, so joules by class are shared out by time; without a counter they are unknown, not zero."""
    samples = Path(__file__).parents[2] / "samples"
    model, path = str(samples / "models" / "net.pt2"), samples / "recordings" / "net_pt2.torch-cpu.jsonl"
    code, out, _ = output(["--device", "epyc-7763", model, str(path)], capsys)
    assert code == 0 and "no counter of energy could be read" in out and "joules by class" not in out
    target = tmp_path / "energy.jsonl"
    write_recording(target, dataclasses.replace(read_recording(path), energy=Energy(0.5, 20, 2.0, "RAPL")))
    folder = tmp_path / "tables"
    code, _, _ = output(["--device", "epyc-7763", "--format", "csv", "-o", f"{folder}/", model, str(target)], capsys)
    (table,) = folder.glob("*joules*class*.csv")
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert code == 0 and rows[-1]["class"] == "sum" and float(rows[-1]["measured"]) == 0.5
    assert sum(float(row["measured"]) for row in rows[:-1]) == pytest.approx(0.5)
    assert all(row["predicted"] for row in rows)


def test_a_session_that_was_optimised_lies_beside_the_graph_that_it_ran(capsys: pytest.CaptureFixture[str]) -> None:
    samples = Path(__file__).parents[2] / "samples"
    files = [str(samples / "models" / "cnn.onnx"), str(samples / "recordings" / "cnn_onnx.ort-cpu.jsonl")]
    code, out, _ = output(files, capsys)
    assert code == 0 and "ort-level=all" in out and "ran another one" not in out
    code, out, _ = output(["--ort-level", "off", *files], capsys)
    assert code == 0 and "23 of 23 nodes matched (100.0%)" in out and "ran another one (--ort-level" in " ".join(out.split())
