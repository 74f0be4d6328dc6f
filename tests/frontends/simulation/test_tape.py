"""The tape of a simulation: replayed through another allocator, every counter is the simulation's."""

from __future__ import annotations

import sys

import pytest

from tests.forked import python
from tests.tools.distributed_jobs import FOLDER

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

SAME = """
def same(found):
    replayed = found.replay()
    spans = {one.name: one for one in replayed.outcomes}
    assert len(found.steps) > 1
    for number, step in enumerate(found.steps, 1):
        for when, counters in (("peak", step.peak), ("after", step.after)):
            told = getattr(spans[f"step {number}"], when)
            assert told == counters, (number, when)
    last = spans["rest"].after
    assert {key: getattr(last, key) for key in ("requested", "allocated", "active", "reserved")} == {
        key: found.now[key] for key in ("requested", "allocated", "active", "reserved")
    }
    assert sum(one.retries for one in replayed.outcomes) == found.now["retries"]
    return replayed
"""
JOB = """
import sys
from irscope.tools.simulate import simulate_script
from irscope.tools.simulation import Options
folder, name, world, frees = sys.argv[1:]
same(simulate_script(f"{folder}/job.py", [f"{folder}/jobs.json", name], Options("h200", world=int(world), pending_frees=frees)))
"""
TIGHT = """
import irscope

def work():
    import torch
    from torch import nn
    net = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(4)]).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    side = torch.cuda.Stream()
    for size in (300, 20_000, 40_000, 700):
        x = torch.randn(size, 1024, device="cuda")
        with torch.cuda.stream(side):
            y = x * 2
        x.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        del x
        net(y).sum().backward()
        optimizer.step()
        try:
            torch.empty(1 << 40, device="cuda")
        except torch.OutOfMemoryError:
            pass
        torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.01)
    kept = []
    try:
        while True:
            kept.append(torch.empty(100 << 20, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    kept.clear()
    torch.cuda.empty_cache()

found = irscope.simulate(work, device="h100", alloc_conf=ALLOC)
replayed = same(found)
tape = found.tape
assert {"parameter", "gradient", "optimizer state"} <= set(tape.kinds)
places = {origin.line.rpartition(":")[2] for origin in tape.owners.values()}
assert len(places) > 3 and {"0", "1"} <= {origin.module for origin in tape.owners.values()}
again = irscope.simulate(work, device="h100", alloc_conf=ALLOC)
# The first program left nothing, so that the second one's tape begins anew, and its limit does not hold any more.
assert list(again.tape.starts) == list(tape.starts) and again.replay().outcomes[-1].after.reserved == again.now["reserved"]
assert len(found.tape.events) == len(tape.events)
"""


def run(text: str, *arguments: str) -> None:
    done = python(SAME + text, *arguments)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize(("job", "world", "frees"), [("fsdp1_small_hybrid_w16", 16, "synchronize"), ("pp_gpipe_w2", 2, "next_malloc")])
def test_a_job_of_many_streams(job: str, world: int, frees: str) -> None:
    run(JOB, str(FOLDER), job, str(world), frees)


@pytest.mark.slow
@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_refusals_limits_and_caches_are_on_the_tape_too(conf: str) -> None:
    run(f"ALLOC = {conf!r}\n{TIGHT}")
