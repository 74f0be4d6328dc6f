"""Jobs of `tests/data/distributed` under simulation, beside what the real host code of PyTorch counted for the same script."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.forked import irscope, python
from tests.tools.distributed_jobs import FOLDER, differences, truths

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

ROOT = Path(__file__).parents[3]
JOBS = (
    ("ddp_tiny_bucketview_w8", 5, "done"),
    ("ddp_small_zero_w8", 7, "done"),
    ("fsdp1_small_hybrid_w16", 0, "done"),
    ("fsdp2_tiny_w2", 1, "lazy"),
    ("fsdp2_small_offload_w8", 0, "done"),
    ("fsdp2_small_acop_w64", 0, "done"),
    ("tp_fsdp2_small_w64", 63, "done"),
    ("ep_moe_shard_w32", 0, "done"),
    ("pp_1f1b_w8", 1, "done"),
    ("pp_1f1b_dynamic_w4", 0, "lazy"),
    ("pp_gpipe_w2", 0, "lazy"),
    ("pp_interleaved_w4", 2, "done"),
    ("pp_fsdp2_1f1b_w64", 24, "done"),
    ("cp_fsdp2_small_w8", 0, "lazy"),
    ("cp_small_allgather_w4", 3, "done"),
    ("ddp_small_autocast_w8", 0, "done"),
    ("ddp_small_bf16hook_w8", 0, "lazy"),
    ("pp_1f1b_dynamic_w4", 2, "lazy"),
    ("zero_fp16hook", 4, "lazy"),
    ("hsdp_tp_3d", 13, "done"),
    ("ep_uneven_fsdp", 3, "done"),
    ("zbv_fsdp", 3, "done"),
)
RUN = """
import sys
from irscope.tools.simulate import simulate_script
from irscope.tools.simulation import Options
folder, name, world, rank, frees = sys.argv[1:]
options = Options("h200", world=int(world), rank=int(rank), pending_frees=frees)
found = simulate_script(f"{folder}/job.py", [f"{folder}/jobs.json", name], options)
assert found.outcome == "finished", found.error
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rank", "events"), JOBS)
def test_counters_are_those_of_the_real_host_code(name: str, rank: int, events: str) -> None:
    runs = truths()[name, rank, events]
    frees = "synchronize" if events == "lazy" else "next_malloc"
    done = python(RUN, str(FOLDER), name, str(runs[0]["world"]), str(rank), frees)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert len(found["steps"]) == len(runs[0]["steps"])
    assert not list(differences(runs, found))


LOOKS = """
import collections, sys
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor._op_schema import OpSchema

looks = collections.Counter()
args_spec = OpSchema.args_spec.fget
OpSchema.args_spec = property(lambda schema: looks.update([str(schema.op)]) or args_spec(schema))

def train():
    torch.distributed.init_process_group("nccl")
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(int(sys.argv[1])))).cuda()
    for layer in model:
        fully_shard(layer, mesh=init_device_mesh("cuda", (2,)))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()

import irscope
found = irscope.simulate(train, world=2)
assert found.outcome == "finished", found.error
print(max(count for op, count in looks.items() if "_foreach" in op))
"""


@pytest.mark.slow
def test_the_first_step_of_sharded_parameters_is_linear_in_their_number() -> None:
    few, many = (int(python(LOOKS, str(layers)).stdout.split()[-1]) for layers in (3, 24))
    assert many == few


WITHOUT_SHIM = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
import world
world._pipeline_shim = lambda: None
sys.argv = ["job.py", f"{sys.argv[1]}/jobs.json", "pp_1f1b_dynamic_w4"]
runpy.run_path(sys.path[0] + "/job.py", run_name="__main__")
"""


def test_a_stage_is_told_by_the_next_one_what_its_gradients_are_like(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(WITHOUT_SHIM)
    program = RUN.replace('f"{folder}/job.py", [f"{folder}/jobs.json", name]', f"{str(tmp_path / 'plain.py')!r}, [folder]")
    done = python(program, str(FOLDER), "", "4", "0", "synchronize")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert not list(differences(truths()["pp_1f1b_dynamic_w4", 0, "lazy"], found))


def test_a_stage_that_only_another_rank_can_tell_its_inputs_says_so(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(WITHOUT_SHIM)
    program = RUN.replace('f"{folder}/job.py", [f"{folder}/jobs.json", name]', f"{str(tmp_path / 'plain.py')!r}, [folder]")
    done = python(program, str(FOLDER), "", "4", "2", "synchronize")
    assert "stage 2 of the pipeline asks stage 1, on another rank" in done.stderr and "give PipelineStage its input_args" in done.stderr


def test_a_received_tensor_has_not_the_values_that_it_was_made_with() -> None:
    """A stage that knows its shapes votes for that with zeros which its neighbour overwrites: 1 is answered, and no zero read."""
    done = irscope("simulate", "--device", "h100", "--world", "4", "--rank", "1", "samples/train_pipeline.py", folder=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
