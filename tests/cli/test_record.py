"""`irscope record` from the command line: what it runs, what it refuses, and what it says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.recording import read_recording

MODELS = Path(__file__).parents[2] / "samples" / "models"


@pytest.mark.ort
@pytest.mark.parametrize("sizes", [["--bind", "batch=4,seq=8"], ["--input", "tokens=i64[4,8]"]], ids=["by the session", "with inputs"])
def test_the_peak_of_a_session_is_predicted_as_it_learned_its_sizes(sizes: list[str], tmp_path: Path) -> None:
    files = [str(MODELS / "transformer.onnx"), str(tmp_path / "run.jsonl")]
    assert main(["record", "--trust", files[0], "-o", files[1], *sizes, "--repeats", "1", "--threads", "1"]) == 0
    # Eight bytes of a folded constant are missing beside the weights.
    assert main(["compare", "--fail-on", "peak>0.001%", *files]) == 0


@pytest.mark.ort
def test_a_model_is_run_and_told_about(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "run.jsonl"
    code = main(
        ["record", "--trust", str(MODELS / "transformer.onnx"), "-o", str(target), "--bind", "length=4", "--repeats", "2", "--threads", "1"]
    )
    said = capfd.readouterr()
    assert code == 0, said.err
    assert "running transformer.onnx with onnxruntime on cpu" in said.err
    told = "".join(said.out.split())  # however the lines are broken
    assert "ofthefile's31nodes" in told and "(100.0%)" in told and str(target) in told
    recording = read_recording(target)
    assert recording.header.executor == "ort-cpu" and recording.complete
    # A size that nobody chose is a usual one, and said to be.
    assert dict(recording.header.model.bind) == {"batch": 1, "length": 4}
    assert recording.header.model.assumed == ("batch=1 (a usual size; --bind batch=N)",)
    assert "assumed: batch=1 (a usual size; --bind batch=N)" in said.out
    assert [(value.name, value.type) for value in recording.header.model.inputs] == [("tokens", "i64[1,4]")]
    assert len(recording.header.model.sha256) == 64
    assert any(op.scope == "attn" for op in recording.ops)


@pytest.mark.slow
@pytest.mark.torch
def test_a_program_is_run_in_a_process_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "run.jsonl"
    assert (
        main(["record", "--trust", str(MODELS / "net.pt2"), "-o", str(target), "--repeats", "2", "--warmup", "0", "--format", "json"]) == 0
    )
    recording = read_recording(target)
    assert recording.header.executor == "torch-cpu" and len(recording.ops) == 15
    assert all(op.sources and op.scope is not None for op in recording.ops)
    assert recording.ops[0].scope == "stem"
    document = json.loads(capfd.readouterr().out)
    (report,) = document["reports"]
    assert (document["model"]["path"], document["model"]["sha256"]) == ("net.pt2", recording.header.model.sha256)
    warm = report["summary"]["memory"]["warm"]
    assert warm["peak"] == warm["before"] + warm["run"] > warm["run_without_workspaces"] > 0 and warm["reserved"] is None
    assert report["provenance"]["latency"] == "measured" and report["headline"][0].startswith("a run takes ")
    assert report["summary"]["written_to"] == str(target) and len(report["series"][0]["data"]["alive"]) == 15


@pytest.mark.parametrize(
    ("name", "stake"), [("net.pt", "it is a program"), ("net.pt2", "any Python code"), ("cnn.onnx", "ONNX Runtime takes whatever memory")]
)
def test_a_file_is_run_only_with_trust(name: str, stake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not (MODELS / name).exists():
        pytest.skip("the sample needs torch")
    target = tmp_path / "run.jsonl"
    assert main(["record", str(MODELS / name), "-o", str(target)]) == 2
    said = capsys.readouterr().err
    assert "IRS482" in said and "--trust" in said and stake in said and said.count("\n") == 1
    assert not target.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["net.pt2", "--executor", "ort"], "files of kind pt2 are run with --executor torch"),
        (["cnn.onnx", "--executor", "torch"], "files of kind onnx are run with --executor ort"),
        (["cnn.onnx", "--device", "tpu"], "'tpu' is neither cpu nor cuda"),
        (["cnn.onnx", "--repeats", "0"], "--repeats is 1 to 10000"),
        (["cnn.onnx", "--threads", "-1"], "--threads is 0 to 1024"),
        (["none.onnx"], "none.onnx"),
        (["cnn.onnx", "--bind", "colour=3"], "there is no symbol 'colour' to bind"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if arguments[0] == "net.pt2" and not (MODELS / "net.pt2").exists():
        pytest.skip("the sample needs torch")
    target = tmp_path / "run.jsonl"
    assert main(["record", "--trust", str(MODELS / arguments[0]), *arguments[1:], "-o", str(target)]) in (2, 3)
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1
    assert not target.exists()


def test_files_that_hold_no_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.irs"
    path.write_text("irscope 1\ngraph @main {\n  input %x: f32[2]\n  %y = nn.relu(%x)\n  return %y\n}\n")
    assert main(["record", str(path)]) == 2
    assert "nothing in a file of kind irs can be run" in capsys.readouterr().err


@pytest.mark.ort
def test_values_that_do_not_fit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    target, values = tmp_path / "run.jsonl", tmp_path / "values.npz"
    np.savez(values, x=np.zeros((2, 2), np.float32))
    lstm = ["record", "--trust", str(MODELS / "lstm.onnx"), "-o", str(target), "--repeats", "1"]
    assert main([*lstm, "--values", str(values)]) == 2
    assert "--values has (2, 2) for x, which is f32[128,1,32]" in capfd.readouterr().err
    np.savez(values, z=np.zeros((128, 1, 32), np.float32))
    assert main([*lstm, "--values", str(values)]) == 2
    assert "the model has no input 'z'" in capfd.readouterr().err
    np.savez(values, x=np.zeros((128, 1, 32), np.float32))
    assert main([*lstm, "--values", str(values)]) == 0


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed")
def test_a_named_model(tmp_path: Path) -> None:
    target = tmp_path / "run.jsonl"
    assert main(["record", "torchvision:mobilenet_v3_small", "-o", str(target), "--repeats", "1", "--bind", "batch=2"]) == 0
    recording = read_recording(target)
    assert [(value.name, value.type) for value in recording.header.model.inputs] == [("x", "f32[2,3,224,224]")]
    assert recording.header.model.name == "torchvision:mobilenet_v3_small"
