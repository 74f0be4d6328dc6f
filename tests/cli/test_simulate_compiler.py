"""`irscope simulate --try-compile`, and settings of torch.compile from outside: what they do is what the program's own would do."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from irscope.errors import UsageError
from irscope.tools.simulate_many import candidates
from irscope.tools.simulation import Options
from tests.cli.test_simulate import simulate

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

JOB = """
import sys
import torch
import torch._functorch.config
import torch._inductor.config
from torch import nn

for one in sys.argv[2:]:
    exec(one)
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))
torch.compiler.reset()
net = nn.Sequential(*[Block(128) for _ in range(int(sys.argv[1]))]).cuda()
run = torch.compile(net, **globals().get("options", {}))
optimizer = torch.optim.SGD(net.parameters())
for _ in range(3):
    run(torch.zeros(2048, 128, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def figures(folder: Path, *options: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    done = simulate(folder, JOB, "--device", "h100", "--format", "json", *options, arguments=arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


_OWN = {
    "compile.activation_memory_budget=0.5": "torch._functorch.config.activation_memory_budget = 0.5",
    "compile.donated_buffer=False": "torch._functorch.config.donated_buffer = False",
    "compile.reorder_for_peak_memory=False": "options = {'options': {'reorder_for_peak_memory': False}}",
    "compile.cudagraphs=True": "options = {'mode': 'reduce-overhead'}",
}


@pytest.mark.full
@pytest.mark.parametrize("setting", _OWN)
def test_a_setting_from_outside_is_one_in_the_program(tmp_path: Path, setting: str) -> None:
    outside = figures(tmp_path, "--set", setting, arguments=("2",))
    inside = figures(tmp_path, arguments=("2", _OWN[setting]))
    assert outside["settings"][0]["applied"] and outside["steps"] == inside["steps"]
    assert outside["uses"]["compile"] == inside["uses"]["compile"]
    assert outside["compiled"]["graphs"] == inside["compiled"]["graphs"]


@pytest.mark.full
def test_what_the_program_says_does_not_come_before(tmp_path: Path) -> None:
    setting = "compile.reorder_for_peak_memory=True"
    found = figures(tmp_path, "--set", setting, arguments=("1", _OWN["compile.reorder_for_peak_memory=False"]))
    assert found["uses"]["compile"]["reorder_for_peak_memory"] is True


@pytest.mark.full
def test_settings_of_the_compiler_are_tried(tmp_path: Path) -> None:
    """Every budget is a run of its own."""
    found = figures(tmp_path, "--try-compile", arguments=("2",))
    names = {part["name"] for one in found["tried"]["trials"] for part in one["settings"]}
    budgets = (0, 0.1, 0.25, 0.5, 0.75, 0.9)
    assert names == {*(f"budget {one:g}" for one in budgets), "donated_buffer=False", "reorder_for_peak_memory=False", "cudagraphs=True"}
    alone = figures(tmp_path, "--set", "compile.activation_memory_budget=0.25", arguments=("2",))
    [peak] = [one["peak"] for one in found["tried"]["trials"] if [part["name"] for part in one["settings"]] == ["budget 0.25"]]
    assert peak["requested"] == max(step["requested"]["peak"] for step in alone["steps"])
    [nothing] = [
        graph
        for graph in figures(tmp_path, "--set", "compile.activation_memory_budget=0", arguments=("1",))["compiled"]["graphs"]
        if graph["part"] == "forward"
    ]
    assert nothing["saved"] == [], "at 0 the backward has inputs alone"


def test_a_program_that_compiles_nothing(tmp_path: Path) -> None:
    done = simulate(tmp_path, "import torch\nx = torch.zeros(1 << 20, device='cuda')", "--try-compile")
    assert done.returncode == 0 and "the program compiles nothing" in done.stdout


@pytest.mark.parametrize("value", ["1.5", "-0.1", "nan", "half"])
def test_a_budget_that_there_is_not(tmp_path: Path, value: str) -> None:
    done = simulate(tmp_path, "", "--set", f"compile.activation_memory_budget={value}")
    assert done.returncode == 2 and f"'{value}' is not an activation memory budget" in done.stderr and "IRS648" in done.stderr


def test_a_version_without_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = importlib.import_module("irscope.frontends.simulation.settings")
    monkeypatch.setitem(settings._INDUCTOR, "cudagraphs", "triton.what_no_version_has")
    with pytest.raises(UsageError, match=r"torch .* has no setting triton\.what_no_version_has"):
        settings.Changes(["compile.cudagraphs=True"]).install()


def test_what_cannot_be_tried_is_said() -> None:
    options, nothing = Options(), {"outcome": "finished", "uses": {}, "peak": {}, "steps": []}
    assert candidates(nothing, options, compiler_alone=True) == ([], ["torch.compile: the program compiles nothing"])
    inference = {
        **nothing,
        "compiled": {"graphs": [{"part": "inference"}]},
        "uses": {"compile": {"cudagraphs": False, "donated_buffer": True}},
    }
    found, left = candidates(inference, options, compiler_alone=True)
    assert [one.change for one in found] == ["compile.cudagraphs=True"]
    assert left == [
        "activation_memory_budget, donated_buffer: no graph that was compiled has a backward",
        "reorder_for_peak_memory: this version of torch has no such setting",
    ]
    training = {**nothing, "compiled": {"graphs": [{"part": "forward"}, {"part": "backward"}]}, "uses": {"compile": {}}}
    found, left = candidates(training, options, compiler_alone=True)
    assert not found and left[0] == "activation_memory_budget: this version of torch has no such setting"
