"""Objects that ranks exchange: others say what this rank says, and what only they know is None."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.test_simulate import simulate

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
EXCHANGE = """
import json, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
found = {}
for name, group in (("nccl", None), ("gloo", dist.new_group(backend="gloo"))):
    alike, told = [{"seed": 3}, "name"], [None]
    dist.broadcast_object_list(alike, src=0, group=group)
    dist.broadcast_object_list(told, src=1, group=group)
    every, sizes = [None] * world, [None] * world
    dist.all_gather_object(every, {"n": 7}, group=group)
    dist.all_gather_object(sizes, "x" * 3_000_000, group=group)
    mine, gathered = [None], [None] * world if rank == 0 else None
    dist.scatter_object_list(mine, [f"to {one}" for one in range(world)] if rank == 0 else None, src=0, group=group)
    dist.gather_object({"n": 7}, gathered, dst=0, group=group)
    received = [None]
    dist.send_object_list([1], dst=1 - rank, group=group)
    dist.recv_object_list(received, src=1 - rank, group=group)
    found[name] = [alike, told, every, [len(one) for one in sizes], mine, gathered, received]
print("found", json.dumps(found))
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_objects_of_other_ranks(tmp_path: Path, rank: int) -> None:
    done = simulate(tmp_path, EXCHANGE, "--world", "2", "--rank", str(rank), "--format", "json")
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("found ")]
    every = [{"n": 7}] * 2
    mine = ["to 0"] if rank == 0 else [None]
    expected = [[{"seed": 3}, "name"], [None], every, [3_000_000] * 2, mine, every if rank == 0 else None, [None]]
    assert json.loads(line.removeprefix("found ")) == {"nccl": expected, "gloo": expected}
    answered = {load["line"].rpartition(":")[2]: load["value"] for load in json.loads(done.stdout)["answers"]}
    lines = EXCHANGE.splitlines()
    assert answered[str(1 + next(place for place, text in enumerate(lines) if "recv_object_list" in text))] is None


STAGES = """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
dist.init_process_group("nccl")
rank = dist.get_rank()
layers = [nn.Linear(256, 256).cuda() for _ in range(2)]
stages = [PipelineStage(layer, rank + 2 * number, 4, torch.device("cuda")) for number, layer in enumerate(layers)]
schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4, loss_fn=lambda made, wanted: (made - wanted).sum())
schedule.step(torch.randn(32, 256, device="cuda"))
print("gradients", [tuple(layer.weight.grad.shape) for layer in layers])
"""


def test_what_a_stage_between_hands_on_is_taken_to_be_as_this_ranks_earlier_one(tmp_path: Path) -> None:
    done = simulate(tmp_path, STAGES, "--world", "2", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "gradients [(256, 256), (256, 256)]" in done.stderr
    assert "what an earlier stage of this rank hands on" in {load["value"] for load in json.loads(done.stdout)["answers"]}


SPLIT = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
torch.cuda.set_device(0)
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
group = dist.split_group(split_ranks=[[0, 2], [1, 3]])
dist.all_reduce(torch.ones(4, device="cuda"), group=group)
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
ranks = dist.get_process_group_ranks
print("groups", ranks(group), dist.split_group(split_ranks=[[2, 3]]), ranks(mesh["tp"].get_group()))
"""


def test_a_group_with_a_device_is_split(tmp_path: Path) -> None:
    """As meshes do, where the program binds its device."""
    done = simulate(tmp_path, SPLIT, "--world", "4", "--format", "json")
    assert "groups [0, 2] None [0, 1]" in done.stderr, done.stderr
    assert ("all_reduce", "0,2") in {(load["op"], load["ranks"]) for load in json.loads(done.stdout)["collectives"]}
