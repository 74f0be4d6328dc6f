"""Who starts a simulated program: python, torchrun, or the program itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from irscope.errors import UsageError
from irscope.tools.simulation import Options, world_of
from tests.cli.test_simulate import simulate

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID")
VARIABLES = f"import json, os, torch\nprint('told', json.dumps([os.environ.get(one) for one in {NAMES}]), torch.cuda.device_count())\n"
# As PyTorch's tutorials begin, with a choice that depends on RANK as nanoGPT makes it.
SPAWNS = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
def main(rank, world):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="12355")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(8, 64, device=rank)).sum().backward()
    optimizer.step()
    print("rank", rank, "of", dist.get_world_size())
    dist.destroy_process_group()
if __name__ == "__main__":
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else torch.cuda.device_count()
    mp.spawn(main, args=(ranks,), nprocs=ranks)
    context = mp.start_processes(main, args=(ranks,), nprocs=ranks, join=False, start_method="fork")
    while not context.join():
        pass
"""


def told(text: str) -> list[str]:
    """What the program printed."""
    return [line.removeprefix("told ") for line in text.splitlines() if line.startswith("told ")]


@pytest.mark.slow
def test_python_sets_nothing_and_torchrun_does(tmp_path: Path) -> None:
    done = simulate(tmp_path, VARIABLES, "--format", "json")
    assert told(done.stderr) == [json.dumps([None] * len(NAMES)) + " 1"]
    found = json.loads(done.stdout)
    assert (found["launched_as"], found["world"], found["rank"]) == ("python", 1, 0)
    done = simulate(tmp_path, VARIABLES, "--world", "1", "--all")
    assert told(done.stdout) == ['["0", "1", "0", "1", "127.0.0.1", "none"] 1']
    assert "launched as          torchrun --nproc-per-node 1" in done.stdout
    done = simulate(tmp_path, VARIABLES, "--world", "16", "--rank", "9", "--all")
    assert told(done.stdout) == ['["9", "16", "1", "8", "127.0.0.1", "none"] 8']
    assert "launched as          torchrun --nnodes 2 --nproc-per-node 8" in done.stdout


def test_a_process_group_misses_what_python_does_not_set(tmp_path: Path) -> None:
    done = simulate(tmp_path, "import torch.distributed as dist\ndist.init_process_group('nccl')\n")
    assert done.returncode == 4
    assert "rendezvous: environment variable RANK expected, but not set" in " ".join(done.stdout.split())
    text = "import torch.distributed as dist\ndist.init_process_group('nccl', 'tcp://10.0.0.1:23456', rank=3, world_size=8)\n"
    done = simulate(tmp_path, text + "print(dist.get_rank(), dist.get_world_size())\n")
    assert done.stdout.startswith("3 8\n")


@pytest.mark.parametrize(
    ("options", "arguments", "printed", "said"),
    [
        (("--world", "4", "--rank", "2"), (), "rank 2 of 4", "torchrun --nproc-per-node 4; rank 2 of the 4 that it starts"),
        ((), ("8",), "rank 0 of 8", "python; rank 0 of the 8 that it starts"),
    ],
)
def test_ranks_that_the_program_starts_itself(
    tmp_path: Path, options: tuple[str, ...], arguments: tuple[str, ...], printed: str, said: str
) -> None:
    done = simulate(tmp_path, SPAWNS, *options, "--format", "json", arguments=arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(printed) == 2
    found = json.loads(done.stdout)
    assert found["launched_as"] == said and found["steps"]
    [reduced] = [one for one in found["collectives"] if one["op"] == "all_reduce"]
    assert reduced["ranks"] == f"0-{printed.split()[-1]}".replace("4", "3").replace("8", "7")


def test_torchrun_started_by_the_program(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text(VARIABLES)
    text = "from torch.distributed.run import main\nimport sys\nmain(['--nproc-per-node', '2', 'inner.py', *sys.argv[1:]])\n"
    done = simulate(tmp_path, text, "--world", "2", "--rank", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert told(done.stderr) == ['["1", "2", "1", "2", "127.0.0.1", "none"] 2']


def test_worlds_without_ranks_are_refused() -> None:
    assert world_of(None) == 0 and world_of(8) == 8
    with pytest.raises(UsageError, match="a world of 0 ranks has none"):
        world_of(0)
    with pytest.raises(UsageError, match=r"no rank 1 in a world of 1 .*--world N says how many"):
        Options(rank=1)


# As `accelerate launch` starts a script, and a trainer the ranks beside its own.
LAUNCHES = """
import os, subprocess, sys
environ = {**os.environ, "PRECISION": "bf16"}
process = subprocess.Popen([sys.executable, "-u", "child.py", "--lr", "1"], env=environ)
process.wait()
print("ended", process.poll(), process.returncode, os.environ.get("PRECISION"))
print("code", subprocess.run([sys.executable, "child.py", "fail"]).returncode)
beside = subprocess.Popen([sys.executable, __file__], env={**os.environ, "LOCAL_RANK": "1"})
print("beside", beside.wait())
print("tool", subprocess.run([sys.executable, "child.py", "tool"], capture_output=True, text=True).stdout.strip())
"""
CHILD = """
import os, sys
if sys.argv[1] == "tool":
    print("answers", os.environ.get("PRECISION"))
    sys.exit()
import torch
x = torch.ones(1000, device="cuda")
print("told", sys.argv[1:], os.environ.get("PRECISION"), x.device, torch.cuda.memory_allocated() > 0)
if sys.argv[1] == "fail":
    sys.exit(3)
"""


def test_programs_that_the_program_starts_are_played(tmp_path: Path) -> None:
    """Only those that are no tools: what one prints is read."""
    (tmp_path / "child.py").write_text(CHILD)
    done = simulate(tmp_path, LAUNCHES, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert told(done.stderr) == ["['--lr', '1'] bf16 cuda:0 True", "['fail'] None cuda:0 True"]
    lines = done.stderr.splitlines()
    assert [line for line in lines if not line.startswith("told")] == ["ended 0 0 None", "code 3", "beside 0", "tool answers None"]
    assert json.loads(done.stdout)["launched_as"] == "python; child.py, which it starts"


# As PyTorch's tutorial of distributed programs starts its ranks, beside a process that is none and a loader with a worker.
STARTS = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.utils.data import DataLoader
def train(rank, world, model):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="12355")
    dist.init_process_group("nccl", rank=rank, world_size=world)
    for batch in DataLoader(torch.ones(4, 64), batch_size=4, num_workers=1, multiprocessing_context="spawn"):
        model(batch.cuda()).sum().backward()
    print("rank", rank, "of", dist.get_world_size(), [one.grad.device.type for one in model.parameters()])
def feed(number, queue):
    queue.put(number + 41)
if __name__ == "__main__":
    mp.set_start_method("spawn")
    queue = mp.Queue()
    feeder = mp.Process(target=feed, args=(0, queue))
    feeder.start()
    print("fed", queue.get())
    feeder.join()
    model = torch.nn.Linear(64, 64).cuda()
    model.share_memory()
    processes = [mp.Process(target=train, args=(rank, 3, model)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print([process.exitcode for process in processes], any(process.is_alive() for process in processes))
"""


@pytest.mark.slow
def test_processes_that_are_ranks_are_played_and_others_started(tmp_path: Path) -> None:
    done = simulate(tmp_path, STARTS, "--world", "3", "--rank", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stderr.splitlines() if line.startswith(("fed", "rank", "["))]
    assert printed == ["fed 41", "rank 1 of 3 ['cuda', 'cuda']", "[0, 0, 0] False"]
    assert json.loads(done.stdout)["launched_as"] == "torchrun --nproc-per-node 3; rank 1 of those that it starts with train"
