"""`irscope simulate --try` and `--set`: a setting from outside does what the program would do if it said so itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_simulate import simulate

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

JOB = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

class Net(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(count))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if CHECKPOINT else block(x)
        return x

CHECKPOINT = "checkpoint" in sys.argv
WRAP = [one for one in sys.argv[1:] if "(" in one]
dist.init_process_group("nccl")
torch.manual_seed(0)
net = Net(768, 6).cuda()
kind = sys.argv[1]
if kind == "ddp":
    net = eval(next((one for one in WRAP if one.startswith("DDP")), "DDP(net)"), {"DDP": nn.parallel.DistributedDataParallel, "net": net})
elif kind == "fsdp":
    options = eval(next((one for one in WRAP if one.startswith("dict")), "dict()"))
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    for block in net.blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(net, mesh=mesh, **{key: value for key, value in options.items() if key == "mp_policy"})
given = eval(next((one for one in WRAP if one.startswith("opt")), "opt()"), {"opt": dict})
optimizer = torch.optim.AdamW(net.parameters(), **given)
for step in range(3):
    net(torch.randn(int(sys.argv[2]) if sys.argv[2:3] and sys.argv[2].isdecimal() else 256, 768, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none="keep" not in sys.argv)
dist.destroy_process_group()
"""


def figures(folder: Path, *options: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    done = simulate(folder, JOB, "--world", "8", "--format", "json", *options, arguments=arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "program", "own"),
    [
        ("ddp.gradient_as_bucket_view=True", ("ddp", "keep"), "DDP(net, gradient_as_bucket_view=True)"),
        ("ddp.bucket_cap_mb=5", ("ddp",), "DDP(net, bucket_cap_mb=5)"),
        ("fsdp.reshard_after_forward=False", ("fsdp",), "dict(reshard_after_forward=False)"),
        ("fsdp.reshard_after_forward=2", ("fsdp",), "dict(reshard_after_forward=2)"),
        ("fsdp.param_dtype=bf16", ("fsdp",), "dict(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))"),
        ("optimizer.fused=True", ("plain",), "opt(fused=True)"),
        ("optimizer.foreach=False", ("plain",), "opt(foreach=False)"),
        ("checkpoint=__main__.Block", ("ddp",), "checkpoint"),
        ("checkpoint=__main__.Block", ("fsdp",), "checkpoint"),
    ],
)
def test_a_setting_from_outside_is_one_in_the_program(tmp_path: Path, setting: str, program: tuple[str, ...], own: str) -> None:
    outside = figures(tmp_path, "--set", setting, arguments=program)
    inside = figures(tmp_path, arguments=(*program, own))
    [applied] = outside["settings"]
    assert applied["setting"] == setting and applied["applied"]
    assert outside["steps"] == inside["steps"] and outside["collectives"] == inside["collectives"]


@pytest.mark.slow
def test_gradients_that_the_program_keeps(tmp_path: Path) -> None:
    kept = figures(tmp_path, arguments=("plain", "8192", "keep"))
    assert kept["uses"]["set_to_none"] is False
    outside = figures(tmp_path, "--set", "zero_grad.set_to_none=True", arguments=("plain", "8192", "keep"))
    assert outside["steps"] == figures(tmp_path, arguments=("plain", "8192"))["steps"] != kept["steps"]


@pytest.mark.slow
def test_what_would_lower_the_peak_is_simulated(tmp_path: Path) -> None:
    """The first lines of the report have the answer; the document has each trial, the one that saves most first."""
    done = simulate(tmp_path, JOB, "--world", "8", "--try", "--format", "json", arguments=("plain", "8192", "keep"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    trials = found["tried"]["trials"]
    assert [trial["error"] for trial in trials if trial.get("error")] == []
    saved = [trial["saved"]["reserved"] for trial in trials]
    assert saved == sorted(saved, reverse=True) and saved[0] > 0
    by_name = {" + ".join(part["name"] for part in trial["settings"]): trial for trial in trials}
    assert {"checkpoint Block", "foreach=False", "fused=True", "zero_grad(set_to_none=True)"} < set(by_name)
    assert any(" + " in name for name in by_name)
    for trial in trials:
        assert trial["saved"]["reserved"] == found["tried"]["before"]["reserved"] - trial["peak"]["reserved"]
        assert trial["outcome"] in ("finished", "steps") and trial["fits"] and trial["applied"]


@pytest.mark.slow
def test_a_program_that_does_not_fit_is_compared_with_what_it_needs(tmp_path: Path) -> None:
    text = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4096, 4096), nn.Linear(4096, 4096)
    def forward(self, x):
        return torch.relu(self.two(torch.relu(self.one(x))))
with torch.device("cuda"):
    net = nn.Sequential(*[Block() for _ in range(20)])
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for _ in range(2):
    net(torch.randn(120000, 4096, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    done = simulate(tmp_path, text, "--device", "h100", "--try")
    assert done.returncode == 1, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    first = " ".join(" ".join(lines[2:8]).split())
    assert first.startswith("verdict does not fit on NVIDIA H100 SXM by 1.17 GiB: it needs 79.77 GiB best setting checkpoint Block: ")
    assert " GiB less, fits ran " in first
    row = next(line for line in lines if line.startswith("checkpoint Block "))
    assert row.split()[2:5] == ["yes", "44.96", "GiB"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("fast=True", "'fast=True' is not a setting"),
        ("ddp.static_graph=5", "'5' is not a value of ddp.static_graph"),
        ("fsdp.param_dtype=f8", "FSDP does not compute with 'f8'"),
    ],
)
def test_a_setting_that_there_is_not(tmp_path: Path, setting: str, said: str) -> None:
    done = simulate(tmp_path, "", "--set", setting)
    assert done.returncode == 2 and said in done.stderr and "IRS648" in done.stderr


def test_a_setting_that_the_program_never_comes_to(tmp_path: Path) -> None:
    done = simulate(tmp_path, "import torch\ntorch.zeros(4, device='cuda')", "--set", "ddp.static_graph=True", "--format", "json")
    [said] = json.loads(done.stdout)["diagnostics"]
    assert said["code"] == "IRS648" and "changed nothing" in said["message"]
