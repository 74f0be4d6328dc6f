"""What a build of torch with CUDA has is there while a program is simulated: answered, or refused by its name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.test_simulate import simulate

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
LISTS = Path(__file__).parents[2] / "data" / "cuda_names.json"
UNKNOWN = {"torch._C": ["_cudnn", "_cusparselt"]}
"""Modules that torch looks for when it is imported."""
MISSING = f"""
import json, torch, torch.distributed as dist
lists = json.load(open({str(LISTS)!r}))["versions"]
names = lists[".".join(torch.__version__.split(".")[:2])]
options = dist.ProcessGroupNCCL.Options()
places = {{
    "torch._C": torch._C, "torch._C._distributed_c10d": torch._C._distributed_c10d, "ProcessGroupNCCL": dist.ProcessGroupNCCL,
    "ProcessGroupNCCL.Options": options, "ProcessGroupNCCL.NCCLConfig": options.config,
    "_CudaDeviceProperties": torch.cuda.get_device_properties(0),
}}
missing = {{key: [one for one in names[key] if not hasattr(place, one) and "pybind11" not in one] for key, place in places.items()}}
print("missing", json.dumps({{key: found for key, found in missing.items() if found}}))
dist.init_process_group("nccl")
import copy
from datetime import timedelta
from torch.distributed import distributed_c10d
group = dist.new_group(pg_options=copy.deepcopy(options), timeout=timedelta(seconds=5))
distributed_c10d._add_ephemeral_timeout_for_all_pgs(timedelta(seconds=1))
distributed_c10d._set_pg_timeout(timedelta(seconds=9), group)
print("nccl", dist.ProcessGroupNCCL.get_build_nccl_version(), dist.get_backend(group))
with torch.cuda.nvtx.range("nothing"):
    pass
print("types", torch.cuda.FloatTensor(3, 1).fill_(1.0).device, torch.cuda.LongTensor([1, 2]).tolist(), torch.randn(4, device="cuda").dtype)
torch.set_default_tensor_type("torch.cuda.DoubleTensor")
print("types", torch.zeros(2).device, torch.randn(4, device="cuda").dtype, (torch.arange(4) / 2).dtype)
try:
    torch._C._nccl_init_rank(1, b"", 0)
except NotImplementedError as error:
    print(error)
"""
PARALLEL = """
import torch
model = torch.nn.DataParallel(torch.nn.Linear(64, 64)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).sum().backward()
    optimizer.step()
print(model.device_ids, torch.cuda.max_memory_allocated())
"""
OBSERVED = """
import torch
def observe(device, asked, allocated, free):
    print("observed", device, asked >> 30, allocated, free >> 30)
torch._C._cuda_attach_out_of_memory_observer(observe)
torch.empty(1 << 33, device="cuda")
"""


def test_names_of_a_build_with_cuda_are_there(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if ".".join(torch.__version__.split(".")[:2]) not in json.loads(LISTS.read_text())["versions"]:
        pytest.skip("no list of this version")
    done = simulate(tmp_path, MISSING, "--world", "2")
    assert done.returncode == 0, done.stderr
    [missing] = [json.loads(line.removeprefix("missing ")) for line in done.stdout.splitlines() if line.startswith("missing ")]
    assert missing == UNKNOWN
    assert "nccl (2, 29, 7) nccl" in done.stdout
    # As the CUDA build prints, but for the numbers, which it does not compute.
    types = [line for line in done.stdout.splitlines() if line.startswith("types ")]
    assert types == ["types cuda:0 [1, 2] torch.float32", "types cuda:0 torch.float64 torch.float64"]
    assert "torch._C._nccl_init_rank of a build with CUDA is not simulated" in done.stdout


@pytest.mark.slow
def test_data_parallel_has_the_device_that_is_simulated(tmp_path: Path) -> None:
    done = simulate(tmp_path, PARALLEL, "--device", "h200")
    # What PyTorch's own CUDA host code says over stand-ins for its libraries.
    assert done.stdout.startswith("[0] 33605120\n"), done.stderr
    done = simulate(tmp_path, PARALLEL, "--device", "h200", "--world", "8")
    assert done.returncode == 4 and "one process simulates one device, here cuda:0" in done.stderr


def test_observers_are_told_of_memory_that_is_refused(tmp_path: Path) -> None:
    done = simulate(tmp_path, OBSERVED, "--device", "h100:16GiB")
    assert done.returncode == 1 and done.stdout.startswith("observed 0 32 0 15\n")
