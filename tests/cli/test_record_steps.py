"""Recorded training steps from the command line: recorded, told again, compared with predictions, and their times given to planners."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]

from irscope.cli.main import main  # noqa: E402  # only where torch is installed
from irscope.recording import read_recording  # noqa: E402
from irscope.tools.recorded import beside_least  # noqa: E402
from tests.unit.measure.test_record_steps import LOOP, MODEL  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a loop, and a recording of a step of the model."""
    made = tmp_path_factory.mktemp("steps")
    (made / "model.py").write_text(MODEL)
    (made / "loop.py").write_text(LOOP)
    line = ["record", "--train", f"{made / 'model.py'}:build", "--repeats", "2", "--threads", "1", "-o", str(made / "step.jsonl")]
    assert main([*line, "--plot", str(made / "step.svg")]) == 0
    return made


@pytest.mark.slow
def test_a_recorded_step_lies_beside_the_captured_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes to the byte, cold and warm; a limit of nothing holds."""
    model, recording = f"{folder / 'model.py'}:build", str(folder / "step.jsonl")
    assert main(["compare", "--fail-on", "peak>0%,unmatched>50%", "--rows", "0", model, recording]) == 0
    said = capsys.readouterr().out
    assert main(["compare", "--plot", str(folder / "both.svg"), model, recording]) == 0
    drawn = (folder / "both.svg").read_text()
    assert all(text in drawn for text in ("at the peak of a later step", "time by module", "optimizer state", "measured"))
    capsys.readouterr()
    assert said.count("delta") >= 3 and "error 0.00%" in said and "time by phase" in said
    assert main(["compare", "--device", "epyc-7763", model, recording]) == 0
    assert "times the least time of AMD EPYC 7763" in capsys.readouterr().out
    assert "less than the least time of it, 2.00 s: its figures are too low" in beside_least(0.1, 2.0, "it")
    other = folder / "other.py"
    other.write_text(MODEL.replace("nn.BatchNorm2d(8), nn.ReLU(), ", "").replace("AdamW", "SGD"))
    assert main(["compare", f"{other}:build", recording]) == 3
    assert "is of a different step" in capsys.readouterr().err


def test_measured_times_go_to_profiles_and_plans(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, recording, target = f"{folder / 'model.py'}:build", str(folder / "step.jsonl"), folder / "nodes.csv"
    line = ["train-plan", model, "--times", recording, "--nodes-csv", str(target), "--budget", "100%", "--seconds", "0.5"]
    assert main([*line, "--passes", "activations"]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    device = read_recording(folder / "step.jsonl").header.device.name
    assert said.count(f"measured on {device}") >= 2
    rows = list(csv.DictReader(target.read_text().splitlines()))
    taken = {op.op.rpartition("::")[2]: op.time for op in read_recording(folder / "step.jsonl").ops}
    (row,) = (row for row in rows if row["node_name"] == "0: convolution")
    time = taken["convolution"]
    assert time is not None and float(row["median_run_time_s"]) == pytest.approx(time.median_us / 1e6)
    assert row["time_source"] == f"measured on {device}"
    forward = Path(__file__).parents[2] / "samples/recordings/net_pt2.torch-cpu.jsonl"
    assert main(["train-plan", model, "--device", "epyc-7763", "--times", str(forward)]) == 4
    assert "it has no training step" in capsys.readouterr().err


def test_a_recording_has_a_card_and_pictures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--rows", "0", str(folder / "step.jsonl")]) == 0
    said = capsys.readouterr().out
    for title in ("operators that took longest", "time by phase", "time by type of operator", "time by module", "between operators"):
        assert title in said
    picture = (folder / "step.svg").read_text()
    assert "time by operator" in picture and "memory over a step by category" in picture and "bytes by category" in picture
    assert main(["run", "--passes", "flops", str(folder / "step.jsonl")]) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("forked_recorder")
def test_several_sizes_of_the_batch_are_a_table_and_a_curve(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["record", "--train", f"{folder / 'model.py'}:build", "--batches", "2,4", "--repeats", "1", "--warmup", "0", "--threads", "1"]
    assert main([*line, "-o", str(folder / "sizes.jsonl"), "--plot", str(folder / "latency.svg"), "--format", "csv"]) == 0
    assert "a step by batch" in capsys.readouterr().out and "time of a step by batch" in (folder / "latency.svg").read_text()
    assert [read_recording(folder / f"sizes.b{batch}.jsonl").header.model.bind for batch in (2, 4)] == [{"batch": 2}, {"batch": 4}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--stop", "model.py:build"], "--stop ends a script"),
        (["--optimizer", "adamw", "loop.py"], "has a loop of its own"),
        (["--train", "model.onnx"], "training steps are those of a module"),
        (["--optimizer", "adamw", "torchvision:resnet18"], "add --train"),
        (["model.onnx", "more"], "one argument too many"),
    ],
)
def test_options_that_make_no_sense_are_one_line(
    words: list[str], said: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["record", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
