"""The report of `irscope simulate`: the answer first, and sums that add up; the document of --format json."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from irscope.amounts import RATE, parse_amount
from irscope.errors import UsageError
from tests.cli.test_simulate import LOOP, simulate

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

COUNTERS = {"requested", "allocated", "active", "reserved"}
SUMS = """
import irscope

def work():
    import torch
    import torch.distributed as dist
    dist.init_process_group("nccl")
    net = torch.nn.Linear(1024, 1024, device="cuda")
    optimizer = torch.optim.Adam(net.parameters())
    side = torch.cuda.Stream()
    kept = []
    for size in (100, 5000, 20_000, 300, 400):
        x = torch.randn(size, 1024, device="cuda")
        kept.append(torch.empty(1 << 20, pin_memory=True))
        with torch.cuda.stream(side):
            y = x * 2
        torch.cuda.current_stream().wait_stream(side)
        net(x).sum().backward()
        dist.all_reduce(net.weight.grad)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()

found = irscope.simulate(work, device="h100", world=8, link=LINK)
tables = {table.title.partition(":")[0]: table.to_dicts() for table in found.report().tables}
"""


def run(text: str) -> None:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


def test_sums_add_up() -> None:
    run(
        SUMS.replace("LINK", "1e9")
        + """
made = tables["what the peak of allocated is made of"]
assert len(made[0]) == 4 and made[-1]["category"] == "allocated, the sum"
worst = max(step.peak["allocated"] for step in found.steps)
for column in list(made[0])[1:]:
    assert sum(row[column] for row in made[:-1]) == made[-1][column]
assert max(made[-1][column] for column in list(made[0])[1:]) == worst
assert sum(row["bytes"] for row in tables["alive at the peak"]) <= worst

held = tables["what reserved is made of at its peak"]
assert sum(row["bytes"] for row in held) == found.peak("reserved")
assert {row["stream"] for row in held} == {0, 1} and {"free parts of segments in use"} < {row["what"] for row in held}

[reduced] = [row for row in tables["collectives"] if row["collective"] == "all_reduce"]
assert reduced["bytes"] == 5 * (4 << 20) and abs(reduced["least time"] - 2 * 7 / 8 * reduced["bytes"] / 1e9) < 1e-12

host = tables["host memory"]
assert [row["pinned after"] for row in host] == [number * (4 << 20) for number in range(1, 6)]
assert {row["pageable"] for row in host} == {None}
"""
    )


def test_without_a_link_times_are_unknown() -> None:
    run(SUMS.replace("LINK", "0") + "assert {row['least time'] for row in tables['collectives']} == {None}\n")


def test_the_verdict_comes_first(tmp_path: Path) -> None:
    done = simulate(tmp_path, LOOP, "--device", "h100")
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[]")]
    assert "fits on NVIDIA H100 SXM: 78.5" in lines[2] and lines[2].endswith("of 78.60 GiB left")
    text = "import torch\nkept = []\nwhile True:\n    kept.append(torch.zeros(1 << 30, device='cuda'))\n"
    done = simulate(tmp_path, text, "--device", "h100")
    [verdict] = [line for line in done.stdout.splitlines() if line.startswith("  verdict ")]
    # The card has 85,027,979,264 bytes, which twenty blocks of 4 GiB exceed by 871,366,656.
    assert verdict.endswith("does not fit on NVIDIA H100 SXM by 831.00 MiB or more")
    assert "  outcome              out of memory: Tried to allocate 4.00 GiB" in done.stdout.splitlines()


def test_memory_that_was_refused_is_accounted_for() -> None:
    run(
        """
import irscope

def work():
    import torch
    from torch import nn
    net = nn.Sequential(*[nn.Linear(16384, 16384, device="cuda") for _ in range(30)])
    for _ in range(3):
        net(torch.randn(16384, 16384, device="cuda")).sum().backward()

found = irscope.simulate(work, device="h100")
assert found.outcome == "oom" and not found.steps
tables = {table.title: table.to_dicts() for table in found.report().tables}
made = {row["category"]: row["bytes"] for row in tables["allocated where memory was refused"]}
assert made["parameter"] == 30 * 4 * (16384**2 + 16384) and made["gradient"] > 0
whole = made.pop("allocated, the sum")
assert whole == sum(made.values())
[held] = [row for row in tables["what reserved is made of where memory was refused"] if row["what"] == "allocated"]
assert held["bytes"] == whole
alive = tables["alive where memory was refused"]
assert sum(row["bytes"] for row in alive) == whole - made["rounding"] and {row["module"] for row in alive} >= {"0", "1"}
"""
    )


def test_the_document_has_the_keys_of_the_contract(tmp_path: Path) -> None:
    done = simulate(tmp_path, "import torch\ntorch.cuda.reset_peak_memory_stats()\n" + LOOP, "--device", "h100", "--format", "json")
    found = json.loads(done.stdout)
    promised = {
        "schema",
        "script",
        "device",
        "world",
        "rank",
        "torch",
        "outcome",
        "steps",
        "marks",
        "collectives",
        "answers",
        "diagnostics",
    }
    assert set(found) - promised == {"error", "line", "peak", "pinned_peak_bytes", "uses", "blocks", "settings"} and promised < set(found)
    assert found["schema"] == "irscope.simulation/1" and found["torch"] == "2.13"
    for step in found["steps"]:
        assert set(step) == COUNTERS | {"by_category"}
        assert all(set(step[key]) == {"peak", "after"} for key in COUNTERS)
        assert sum(step["by_category"].values()) == step["allocated"]["peak"]
    [mark] = found["marks"]
    assert set(mark) == COUNTERS | {"name", "line"} and mark["name"] == "reset_peak_memory_stats" and mark["line"].endswith("train.py:2")
    [answer] = found["answers"]
    assert set(answer) == {"line", "count", "value"}


def test_collectives_in_the_document(tmp_path: Path) -> None:
    text = """
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
dist.all_reduce(torch.zeros(1000, device="cuda"))
"""
    done = simulate(tmp_path, text, "--world", "4", "--rank", "1", "--format", "json")
    [sent] = json.loads(done.stdout)["collectives"]
    assert sent == {"op": "all_reduce", "group": "default_pg", "ranks": "0-3", "calls": 1, "bytes": 4000}


def test_bandwidths_are_bytes_or_bits() -> None:
    assert (parse_amount("450GB/s", RATE), parse_amount("400Gbit/s", RATE)) == (450 * 10**9, 50 * 10**9)
    for text in ("400Gb/s", "450", "fast"):
        with pytest.raises(UsageError, match="is not a bandwidth"):
            parse_amount(text, RATE)
