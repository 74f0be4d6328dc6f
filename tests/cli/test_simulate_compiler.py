"""`irscope simulate --try-compile`, and settings of torch.compile from outside: what they do is what the program's own would do."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from irscope.errors import UsageError
from tests.cli.test_simulate import simulate

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

JOB = """
import sys
import torch
import torch._functorch.config
import torch._inductor.config
import torch._inductor.memory
from torch import nn

for one in sys.argv[2:]:
    exec(one)
if sys.argv[1] == "estimates":
    estimate = torch._inductor.memory.estimate_peak_memory
    def told(*args):
        found = estimate(*args)
        print("estimate", found[0])
        return found
    torch._inductor.memory.estimate_peak_memory = told
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))
torch.compiler.reset()
net = nn.Sequential(*[Block(128) for _ in range(int(sys.argv[1]) if sys.argv[1].isdecimal() else 2)]).cuda()
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
    assert outside["compiled"]["partitions"] == inside["compiled"]["partitions"]


@pytest.mark.full
def test_what_the_program_says_does_not_come_before(tmp_path: Path) -> None:
    setting = "compile.reorder_for_peak_memory=True"
    found = figures(tmp_path, "--set", setting, arguments=("1", _OWN["compile.reorder_for_peak_memory=False"]))
    assert found["uses"]["compile"]["reorder_for_peak_memory"] is True


@pytest.mark.slow
def test_what_a_budget_recomputes_is_counted(tmp_path: Path) -> None:
    """At 0 the backward has inputs alone: it runs the forward again, but for the last product, whose result nothing needs."""
    found = figures(tmp_path, "--set", "compile.activation_memory_budget=0", arguments=("1",))
    [one] = found["compiled"]["partitions"]
    assert (one["budget"], one["how"]) == (0, "inputs alone")
    [graph] = [graph for graph in found["compiled"]["graphs"] if graph["part"] == "forward"]
    assert graph["saved"] == []
    rows = {row["operator"]: row for row in one["recomputed"]}
    # A product of 2048 x 128 by 128 x 512, and its bias.
    assert rows["addmm"]["count"] == 1 and rows["addmm"]["flops"] == 2 * 2048 * 128 * 512 + 2048 * 512
    assert one["extra_flops"] == sum(row["flops"] for row in one["recomputed"]) < one["flops"]


@pytest.mark.full
def test_orders_have_the_peaks_that_inductor_estimates(tmp_path: Path) -> None:
    done = simulate(tmp_path, JOB, "--device", "h100", "--format", "json", arguments=("estimates",))
    assert done.returncode == 0, done.stderr
    told = {int(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("estimate ")}
    orders = json.loads(done.stdout)["compiled"]["orders"]
    assert [one["part"] for one in orders] == ["forward", "backward"]
    assert all(one["after"] <= one["before"] and {one["before"], one["after"]} <= told for one in orders)


@pytest.mark.full
def test_settings_of_the_compiler_are_tried(tmp_path: Path) -> None:
    """Every budget is a run of its own, and is not lower than what is proven to be needed."""
    found = figures(tmp_path, "--try-compile", arguments=("2",))
    names = {part["name"] for one in found["tried"]["trials"] for part in one["settings"]}
    budgets = (0, 0.1, 0.25, 0.5, 0.75, 0.9)
    assert names == {*(f"budget {one:g}" for one in budgets), "donated_buffer=False", "reorder_for_peak_memory=False", "cudagraphs=True"}
    rows = {one["budget"]: one for one in found["tried"]["compiler"]["budgets"]}
    assert sorted(rows) == [*budgets, 1]
    alone = figures(tmp_path, "--set", "compile.activation_memory_budget=0.25", arguments=("2",))
    assert rows[0.25]["peak"]["requested"] == alone["steps"][-1]["requested"]["peak"]
    assert rows[0.25]["extra_flops"] == alone["compiled"]["partitions"][0]["extra_flops"]
    saved = [rows[one]["saved_bytes"] for one in sorted(rows)]
    assert saved == sorted(saved) and saved[0] == 0
    for one in rows.values():
        assert one["plan"] is None or one["plan"]["extra"] is None or one["plan"]["extra"] >= one["plan"]["bound"]
    for one in found["tried"]["compiler"]["orders"]:
        assert one["bound"] <= one["best"] <= one["after"] <= one["before"]


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
