"""`torch.compile` on the simulated device: jobs of `tests/data/compiled` beside what the real host code of PyTorch counted for them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.forked import irscope
from tests.tools.compiled_jobs import FOLDER, differences

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
TRUTH = {row["job"]["id"]: row for row in map(json.loads, (FOLDER / "truth.jsonl").read_text().splitlines())}
QUICK = ("mlp/train/adamw/compiled", "gpt/infer/bfloat16/compiled", "depth/train/sgd/bfloat16/eager")
"""What the others show at greater length is run only with all tests: each compilation takes seconds."""


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in TRUTH])
def test_counters_and_events_are_those_of_the_real_host_code(name: str, tmp_path: Path) -> None:
    done = irscope("simulate", "--device", "h200", str(FOLDER / "job.py"), str(FOLDER / "truth.jsonl"), name, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert found["events"] == TRUTH[name]["events"]
    assert not list(differences(TRUTH[name], found, (0, 1, 2)))
    if "infer" in name:
        assert "tuning" in done.stdout, "what timing candidates takes in the first iteration is a category of its own"


VARIANTS = json.loads((FOLDER / "variants.json").read_text())
QUICK_VARIANTS = ("graph_break", "own_kernel", "reduce_overhead")


@pytest.mark.parametrize("name", [name if name in QUICK_VARIANTS else pytest.param(name, marks=pytest.mark.full) for name in VARIANTS])
def test_what_is_compiled_otherwise_is_equal_too(name: str, tmp_path: Path) -> None:
    """Graph breaks, dynamic shapes, compiled optimizers and autograd, single blocks, trees of CUDA graphs, kernels of the program's own."""
    done = irscope("simulate", "--device", "h200", str(FOLDER / "variants.py"), name, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    printed, _, report = done.stdout.partition("simulate\n")
    assert printed.splitlines() == VARIANTS[name]
    assert ("triton::add" in report) == (name == "own_kernel")
    assert ("left as it is" in report) == (name == "graph_break")
    assert ("what was compiled" in report) == (name != "graph_break" and name != "aot_eager")


PRINTS = """
@torch.compile(fullgraph=True)
def f(x):
    print(x)
    return x * 2
f(torch.zeros(4, device="cuda"))
"""
FAULT = """
def mine(graph, inputs):
    raise ValueError("a fault")
torch.compile(lambda x: x + 1, backend=mine)(torch.zeros(4, device="cuda"))
"""
WRONG = {PRINTS: ("builtin operator `print`", 5), FAULT: ("backend='mine' raised: ValueError: a fault", 4)}


@pytest.mark.parametrize("program", WRONG)
def test_an_error_of_the_compiler_is_one_line_with_the_program_s_own(program: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(f"import torch\n{program}\n")
    done = irscope("simulate", "--device", "h200", "wrong.py", folder=tmp_path)
    text, line = WRONG[program]
    assert done.returncode == 4 and text in done.stderr and f"wrong.py:{line}: " in done.stderr
    assert len(done.stderr.splitlines()) == 1 and "irscope/" not in done.stderr
