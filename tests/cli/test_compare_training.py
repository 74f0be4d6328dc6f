"""`irscope compare` of training: captured steps, eager beside compiled, and documents of `irscope simulate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main
from irscope.errors import ExitCode

SCRIPT = """
import torch
from torch import nn

def build(batch=32):
    net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))
    return net, torch.zeros(batch, 64)
"""


def step(peak: int) -> dict[str, Any]:
    counters = {key: {"peak": peak, "after": 1000} for key in ("requested", "allocated", "active", "reserved")}
    return {**counters, "by_category": {"parameter": 1000, "activation": peak - 1100, "rounding": 100}}


def kernel(name: str, generated: bool, moved: int | None) -> dict[str, Any]:
    return {"name": name, "generated": generated, "bytes": moved, "flops": None, "dtype": "f32"}


def write(folder: Path, name: str, peaks: tuple[int, ...], compiled: dict[str, Any] | None = None) -> str:
    document = {
        "schema": "irscope.simulation/1",
        "script": f"{name}.py",
        "device": "h200",
        "steps": [step(peak) for peak in peaks],
        "phases": [{"forward": peak - 100, "backward": peak} for peak in peaks],
        "rest": None,
        **({} if compiled is None else {"compiled": compiled}),
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, indent=2))
    return str(path)


@pytest.fixture
def both(tmp_path: Path) -> tuple[str, str]:
    """An eager run of 4,000 bytes, and one whose compiled graphs take 3,000 after a first step of 9,000."""
    graph = {"kernels": [kernel("triton_a", True, 480), kernel("extern_kernels.mm", False, 480)], "saved": [{"bytes": 700}]}
    events = [{"what": "graph break", "count": 2}, {"what": "recompilation", "count": 5}]
    eager = write(tmp_path, "eager", (4000, 4000))
    return eager, write(tmp_path, "compiled", (9000, 3000), {"graphs": [graph], "events": events})


def test_documents_of_simulate_are_laid_side_by_side(both: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--format", "json", *both]) == ExitCode.OK
    [report] = json.loads(capsys.readouterr().out)["reports"]
    found = report["summary"]
    assert found["later_steps_allocated"]["difference"] == -1000 and found["later_steps_allocated"]["change"] == -0.25
    assert found["first_step_allocated"]["b"] == 9000 and found["saved_by_compiled_graphs"]["b"] == 700
    assert found["generated_kernels"]["b"] == found["calls_of_libraries"]["b"] == 1 and found["graph_breaks"]["b"] == 2
    assert found["moved_bytes"]["b"] == 960 and found["moved_bytes"]["a"] is None, "unknown is never zero"
    assert main(["compare", *both]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "compiled needs 25.0% less memory in a step: 2.93 KiB beside 3.91 KiB allocated at the peak" in out
    assert "its first step takes 8.79 KiB" in out and "most of the difference at the peak is activation" in out
    sums = next(line for line in out.splitlines() if "allocated, the sum" in line)
    assert "3.91 KiB" in sums and "2.93 KiB" in sums


def test_limits_are_judged(both: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    eager, compiled = both
    assert main(["compare", "--fail-on", "peak>5%", eager, compiled]) == ExitCode.OK
    assert main(["compare", "--fail-on", "peak>5%", compiled, eager]) == ExitCode.FINDINGS
    assert main(["compare", "--fail-on", "time>5%", eager, compiled]) == ExitCode.PARTIAL
    capsys.readouterr()


def test_bad_input_is_one_line(both: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(Path(both[0]).read_text()[:400])
    short = tmp_path / "short.json"
    short.write_text('{\n  "schema": "irscope.simulation/1",\n  "steps": [{}]}')
    for arguments, code in (
        ([both[0], str(broken)], ExitCode.LOAD),
        ([both[0], str(short)], ExitCode.LOAD),
        (["--fail-on", "flops>5%", *both], ExitCode.USAGE),
        (["--optimizer", "adamw", "a.onnx", "b.onnx"], ExitCode.USAGE),
        (["--train", "a.onnx", "b.onnx"], ExitCode.USAGE),
    ):
        assert main(["compare", *arguments]) == code, arguments
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and error.startswith("irscope: error IRS")


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")
def test_an_eager_step_beside_a_compiled_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT)
    name = f"{tmp_path}/train.py:build"
    assert main(["compare", "--train", "--compile-b", "--optimizer", "adamw", "--format", "json", "-q", name, name]) == ExitCode.OK
    [report] = json.loads(capsys.readouterr().out)["reports"]
    found = report["summary"]
    assert "eager" in found["A"] and "compiled" in found["B"] and "AdamW" in found["A"]
    assert found["kept_for_backward"]["difference"] < 0 and found["generated_kernels"]["a"] == 0 < found["generated_kernels"]["b"]
    assert found["operators"]["b"] == found["generated_kernels"]["b"] + found["calls_of_libraries"]["b"] < found["operators"]["a"]
    assert found["moved_bytes"]["difference"] < 0
    tables = {table["title"]: table for table in report["tables"]}
    assert {"allocated by phase", "what the peak is made of"} <= tables.keys()
