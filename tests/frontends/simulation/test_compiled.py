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
    done = irscope("simulate", "--all", "--device", "h200", str(FOLDER / "job.py"), str(FOLDER / "truth.jsonl"), name, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert found["events"] == TRUTH[name]["events"]
    assert not list(differences(TRUTH[name], found, (0, 1, 2)))
    if "infer" in name:
        assert "tuning" in done.stdout, "what timing candidates takes in the first iteration is a category of its own"


VARIANTS = json.loads((FOLDER / "variants.json").read_text())
QUICK_VARIANTS = ("graph_break", "own_kernel", "reduce_overhead", "captured", "targets_with_gaps")
WITHOUT_KERNELS = {"graph_break", "aot_eager", "captured", "eager_flash_attention", "targets_with_gaps"}
"""Variants that Inductor compiles nothing of."""


@pytest.mark.parametrize("name", [name if name in QUICK_VARIANTS else pytest.param(name, marks=pytest.mark.full) for name in VARIANTS])
def test_what_is_compiled_otherwise_is_equal_too(name: str, tmp_path: Path) -> None:
    """Graph breaks, dynamic shapes, compiled optimizers and autograd, single blocks, trees of CUDA graphs, kernels of the program's own."""
    done = irscope("simulate", "--all", "--device", "h200", str(FOLDER / "variants.py"), name, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    printed, _, report = done.stdout.partition("simulate\n")
    assert printed.splitlines() == VARIANTS[name]
    assert ("triton::add" in report) == (name == "own_kernel")
    assert ("left as it is" in report) == (name == "graph_break")
    assert ("what was compiled" in report) == (name not in WITHOUT_KERNELS)


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
BREAKS = """
@torch.compile(fullgraph=True)
def f(x):
    torch._dynamo.graph_break()
    return x
f(torch.zeros(4, device="cuda"))
"""
BRANCHES = """
@torch.compile(fullgraph=True)
def f(x):
    if x.sum() > 0:
        return x
    return x + 1
f(torch.zeros(4, device="cuda"))
"""
UNBACKED = """
torch._dynamo.config.capture_scalar_outputs = True
@torch.compile(fullgraph=True)
def f(x):
    return x if x[0].item() > 3 else x * 2
f(torch.zeros(4, device="cuda", dtype=torch.int64))
"""
SHAPES = """
@torch.compile
def f(x, y):
    return x @ y
f(torch.zeros(4, 5, device="cuda"), torch.zeros(4, 5, device="cuda"))
"""
CONSTANT = """
@torch.compile
def f(x):
    return x.view(4, 4) + 1
x = torch.zeros(16, device="cuda")
torch._dynamo.mark_dynamic(x, 0)
f(x)
"""
INTERNAL = """
import torch._dynamo.output_graph
def broken(*args, **kwargs):
    raise LookupError("something of Dynamo's own")
torch._dynamo.output_graph.OutputGraph.compile_and_call_fx_graph = broken
torch.compile(lambda x: x + 1)(torch.zeros(4, device="cuda"))
"""
LOWERING = """
import torch._inductor.lowering
def broken(*args, **kwargs):
    raise RuntimeError("no rule")
torch._inductor.lowering.lowerings[torch.ops.aten.cosh.default] = broken
torch.compile(lambda x: x.cosh())(torch.zeros(4, device="cuda"))
"""
WRONG = {
    PRINTS: ("builtin operator `print`", 5),
    FAULT: ("backend='mine' raised: ValueError: a fault", 4),
    BREAKS: ("Call to `torch._dynamo.graph_break()`", 5),
    BRANCHES: ("Data-dependent branching", 5),
    UNBACKED: ("Could not guard on data-dependent expression u0 > 3", 6),
    SHAPES: ("a and b must have same reduction dim, but got [4, 5] X [4, 5]", 5),
    CONSTANT: ("but your code specialized it to be a constant (16)", 5),
    INTERNAL: ("InternalTorchDynamoError: LookupError: something of Dynamo's own", 7),
    LOWERING: ("InductorError: LoweringException: RuntimeError: no rule. target: aten.cosh.default", 7),
}


@pytest.mark.slow
@pytest.mark.parametrize("program", WRONG)
def test_an_error_of_the_compiler_is_one_line_with_the_program_s_own(program: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(f"import torch\n{program}\n")
    done = irscope("simulate", "--device", "h200", "wrong.py", folder=tmp_path)
    text, line = WRONG[program]
    *shown, last = done.stderr.splitlines()
    assert done.returncode == 4 and text in last and f"wrong.py:{line}: " in last
    assert (
        "irscope/" not in last
        and "torch/_" not in last
        and not any("irscope/" in file or "_dynamo" in file for file in shown if "File" in file)
    )
