"""The report of `irscope simulate`: the answer first, and sums that add up; the document of --format json."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from irscope.amounts import RATE, parse_amount
from irscope.errors import UsageError
from irscope.tools.fit_runs import _run_tried
from tests.cli.test_simulate import LOOP, simulate
from tests.forked import irscope, python

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
    done = python(text)
    assert done.returncode == 0, done.stderr[-2000:]


def test_sums_add_up() -> None:
    run(
        SUMS.replace("LINK", "1e9")
        + """
made = tables["what the peaks of allocated and reserved are made of"]
assert len(made[0]) == 4 and [row["category"] for row in made[-3:]] == ["allocated, the sum", "reserved beyond that", "reserved, the sum"]
worst = max(step.peak["allocated"] for step in found.steps)
for column in list(made[0])[1:]:
    assert sum(row[column] for row in made[:-3]) == made[-3][column]
    assert made[-3][column] + made[-2][column] == made[-1][column]
assert max(made[-3][column] for column in list(made[0])[1:]) == worst
assert max(made[-1][column] for column in list(made[0])[1:]) == found.peak("reserved")
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
    run(SUMS.replace("LINK", "0") + "assert all('least time' not in row for row in tables['collectives'])\n")


def test_the_verdict_comes_first(tmp_path: Path) -> None:
    done = simulate(tmp_path, LOOP, "--device", "h100")
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[]")]
    assert "fits on NVIDIA H100 SXM: 78.5" in lines[2] and lines[2].endswith("of 78.60 GiB left")
    text = "import torch\nkept = []\nwhile True:\n    kept.append(torch.zeros(1 << 30, device='cuda'))\n"
    done = simulate(tmp_path, text, "--device", "h100")
    [verdict] = [line for line in done.stdout.splitlines() if line.startswith("  verdict ")]
    # The card has 85,027,979,264 bytes, of which the context takes 629,145,600 at most: twenty blocks of 4 GiB exceed the rest by 1431 MiB.
    assert verdict.endswith("does not fit on NVIDIA H100 SXM by 1.40 GiB or more")
    assert "  outcome   out of memory: Tried to allocate 4.00 GiB" in done.stdout.splitlines()


@pytest.mark.slow
def test_the_short_report_has_what_decides_and_all_has_the_tables(tmp_path: Path) -> None:
    short, whole, plain = (
        simulate(tmp_path, LOOP, "--device", "h100", *options).stdout.partition("simulate\n")[2]
        for options in ((), ("--all",), ("-o", "r.txt"))
    )
    names = [
        line.split("  ")[1]
        for line in short.splitlines()[1:]
        if line.startswith("  ") and not line.startswith(("   ", "  note", "  warning", "  ~"))
    ]
    assert names == ["verdict", "ran", "peak", "made of", "the most", "step"]
    said = "".join(short.split())  # long paths are broken anywhere
    assert "train.py,4steps,aspython,torch" in said and "workspace32.00MiBin1blockinmodule0at" in said
    assert len(short.splitlines()) <= 20 < len(whole.splitlines())
    for title in ("peak of each step", "alive at the peak", "what reserved is made of at its peak"):
        heading = f"\n  {title}\n"
        assert heading in whole and heading not in short and heading in (tmp_path / "r.txt").read_text()
    assert not plain


def test_a_device_has_one_capacity(tmp_path: Path) -> None:
    # Of 8 GiB the context takes 600 MiB at most: seven blocks of 1 GiB fit; another size fits once the cache has given them back.
    text = (
        "import torch\ngib = 1 << 28\nkept = [torch.empty(gib, device='cuda') for _ in range(7)]\nfree, total = torch.cuda.mem_get_info()\n"
    )
    text += "print(total - free, total)\ndel kept\nkept = torch.empty(gib + gib // 2, device='cuda')\n"
    text += "print(torch.cuda.memory_stats()['num_alloc_retries'])\n"
    done = simulate(tmp_path, text, "--device", "h100", "--memory", "8GiB")
    assert done.stdout.splitlines()[:2] == [f"{(7 << 30) + (600 << 20)} {8 << 30}", "1"]
    assert "fits on NVIDIA H100 SXM with 8GiB: 424.00 MiB of 7.41 GiB left" in done.stdout
    done = simulate(tmp_path, "import torch\ntorch.empty(7600 << 18, device='cuda')\n", "--device", "h100:8GiB")
    assert done.returncode == 1 and "does not fit on NVIDIA H100 SXM with 8GiB by 8.00 MiB or more" in done.stdout


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
assert list(found.report().summary)[0] == "verdict"
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
        "exposed_communication_seconds",
    }
    [low, high] = found["steps"][0]["seconds_interval"]
    assert 0 < low < found["steps"][0]["seconds"] < high and found["exposed_communication_seconds"] == 0
    assert set(found) - promised == {
        "error",
        "line",
        "peak",
        "pinned_peak_bytes",
        "beside_peak_bytes",
        "uses",
        "blocks",
        "settings",
        "rest",
        "lazy",
        "in_flight",
        "fewest",
        "skewed",
        "missing_bytes",
        "phases",
        "launched_as",
        "files",
        "traceback",
    } and promised < set(found)
    assert found["schema"] == "irscope.simulation/1" and found["torch"] == "2.13"
    for step in found["steps"]:
        assert set(step) == COUNTERS | {"by_category", "seconds", "seconds_interval"}
        assert all(set(step[key]) == {"peak", "after"} for key in COUNTERS)
        assert sum(step["by_category"].values()) == step["allocated"]["peak"]
    for step, peaks in zip(found["steps"], found["phases"], strict=True):
        assert set(peaks) == {"forward", "backward", "optimizer"} and max(peaks.values()) == step["allocated"]["peak"]
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


LATE = """
import torch
from torch import nn
net = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
side = torch.cuda.Stream()
for step in range(3):
    x = torch.randn(4096, 1024, device="cuda")
    for layer in net:
        x = layer(x)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            copy = x.detach() * 2
        x.record_stream(side)
        copy.record_stream(torch.cuda.current_stream())
    x.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def verdict_in(text: str) -> str:
    """The verdict of a report, however its lines are broken."""
    found = re.search(r"^  verdict\s(.*?)^  (?:program|ran)\s", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return " ".join(found.group(1).split())


@pytest.mark.slow
def test_both_ends_of_when_work_is_done(tmp_path: Path) -> None:
    """The other end is what the program would have with it, without running it once more."""
    both, late, done = (
        json.loads(simulate(tmp_path, LATE, "--device", "h100", "--events", events, "--format", "json").stdout)
        for events in ("both", "lazy", "done")
    )
    assert both["lazy"]["steps"] == [{key: step[key] for key in COUNTERS} for step in late["steps"]]
    assert both["steps"] == done["steps"] != late["steps"] and done["lazy"] is None
    assert both["lazy"]["peak"]["reserved"] == late["peak"]["reserved"] > both["peak"]["reserved"]
    said = simulate(tmp_path, LATE, "--device", "h100", "--all").stdout
    verdict = verdict_in(said)
    assert " to " in verdict and verdict.endswith("of 78.60 GiB left")
    assert "memory that another stream uses too (record_stream)" in said


WATCHED = """
import sys
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
net = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(2048, 2048, bias=False) for _ in range(4)]).cuda())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.ones(8192, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if sys.argv[1:]:
        torch.cuda.synchronize()
"""


@pytest.mark.slow
def test_a_watchdog_that_is_late_holds_the_first_buckets_in_the_second_step(tmp_path: Path) -> None:
    """DDP sorts its buckets anew after the first step; the collective of that step holds the old ones."""
    found = json.loads(simulate(tmp_path, WATCHED, "--device", "h100", "--world", "8", "--format", "json").stdout)
    gradients = 4 * 4 * 2048 * 2048
    late = found["in_flight"]["steps"]
    more = [one["requested"]["peak"] - step["requested"]["peak"] for one, step in zip(late, found["steps"], strict=True)]
    assert more == [0, gradients, 0]
    most = found["in_flight"]["peak"]["reserved"]
    assert most > found["peak"]["reserved"] and found["lazy"] is None
    assert [_run_tried(1, found, room).outcome for room in (most, most - 1)] == ["fits", "perhaps"]
    said = " ".join(simulate(tmp_path, WATCHED, "--device", "h100", "--world", "8").stdout.split())
    assert " GiB to " in said and "NCCL's watchdog sees a step's collectives done only a step later" in said
    waits = json.loads(simulate(tmp_path, WATCHED, "--device", "h100", "--world", "8", "--format", "json", arguments=("wait",)).stdout)
    assert waits["in_flight"] is None and waits["peak"]["reserved"] == found["peak"]["reserved"]


def test_a_program_without_steps_is_accounted_for(tmp_path: Path) -> None:
    text = """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
with torch.no_grad():
    kept = [net(torch.randn(512, 1024, device="cuda")) for _ in range(3)]
"""
    done = simulate(tmp_path, text, "--device", "h100", "--format", "json")
    found = json.loads(done.stdout)
    rest = found["rest"]
    assert found["steps"] == [] and sum(rest["by_category"].values()) == rest["allocated"]["peak"] == found["peak"]["allocated"]
    assert rest["by_category"]["parameter"] == 4 * (2 * 1024 * 4096 + 4096 + 1024)
    lines = simulate(tmp_path, text, "--device", "h100", "--all").stdout.splitlines()
    assert {line.split()[1] for line in lines if line.startswith("  activation  ")} >= {"0", "1", "2"}


def test_layers_that_differ_in_their_number_are_one_row(tmp_path: Path) -> None:
    blocks = "*[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(9)], nn.Linear(256, 1024)"
    text = LOOP.replace("nn.Linear(256, 1024)", blocks).replace("randn(64", "randn(32768").replace("batch_size=16", "batch_size=16384")
    lines = simulate(tmp_path, text, "--device", "h100", "--all").stdout.splitlines()
    names = [line.split()[1] for line in lines if line.startswith("  activation  ")]
    assert {"0-8.1", "9", "10"} <= set(names) and len(names) == len(set(names))


def test_a_program_that_fails_has_no_verdict(tmp_path: Path) -> None:
    done = simulate(tmp_path, "import torch\nx = torch.zeros(1 << 20, device='cuda')\nraise ValueError('no data')", "--device", "h100")
    verdict = verdict_in(done.stdout)
    assert verdict.startswith("unknown: the program did not end by itself; until then 20.00 MiB of 78.60 GiB are reserved")


@pytest.mark.slow
def test_a_script_of_train_plan_is_simulated(tmp_path: Path) -> None:
    told = json.loads(simulate(tmp_path, LOOP, "--device", "h100", "--format", "json").stdout)
    command = ("train-plan", str(tmp_path / "train.py"), "--device", "h100")
    planned = irscope(*command, "--format", "json", folder=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout) == told
    refused = irscope(*command, "--optimizer", "adam", folder=tmp_path)
    assert refused.returncode == 2 and "--optimizer is about a captured step" in refused.stderr
