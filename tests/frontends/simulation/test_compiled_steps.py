"""Optimizers' steps that are compiled: Dynamo makes of them what it makes without irscope, and each is a step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FULL
from tests.forked import irscope
from tests.tools.compiled_jobs import FOLDER

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
SCRIPT = str(FOLDER / "steps.py")
WAYS = ("method", "called", "full", "cut", "scheduled", "clipped", "scaled") if FULL else ("called", "cut", "scheduled")
STEPS = 3


def counted(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("counted")]


@pytest.fixture(scope="module")
def plain() -> list[str]:
    """What Dynamo counts without irscope."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "cpu", ",".join(WAYS), str(STEPS)], capture_output=True, text=True, check=True, timeout=300
    )
    return counted(done.stdout)


@pytest.mark.slow
def test_graphs_and_breaks_of_compiled_steps_are_those_of_the_program(plain: list[str], tmp_path: Path) -> None:
    assert len(plain) == len(WAYS)
    done = irscope("simulate", "--device", "h200", SCRIPT, "cuda", ",".join(WAYS), str(STEPS), folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert counted(done.stdout) == plain


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", "full", "scheduled", "cut"])
def test_a_compiled_step_is_a_step(way: str, tmp_path: Path) -> None:
    line = ["simulate", "--device", "h200", "--steps", "2", "--format", "json", "-o", "found.json", SCRIPT, "cuda", way, "50"]
    done = irscope(*line, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["steps"]) == 2 and not counted(done.stdout), "it is stopped after the second"
    assert all("optimizer" in phases for phases in found["phases"][1:])


@pytest.mark.slow
def test_a_program_with_compiled_steps_is_recorded(plain: list[str], tmp_path: Path) -> None:
    """A profile begins and ends outside compiled code, which opens ranges of its own."""
    line = ["record", "--warmup", "0", "--repeats", "1", "--device", "cpu", "-o", "found.jsonl", SCRIPT, "cpu", "called", "9"]
    done = irscope(*line, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    recording = (tmp_path / "found.jsonl").read_text()
    assert '"problem"' not in recording and recording.count("_foreach_") > 0, recording[-500:]
    assert counted(done.stdout + done.stderr) == [line for line in plain if line.split()[1] == "called"]
