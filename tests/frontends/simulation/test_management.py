"""NVIDIA's management tools answer for the simulated device, not for the machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from irscope.frontends.simulation import smi
from tests.cli.test_simulate import simulate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")
GIB = 1 << 30
STATE = {
    "count": 2,
    "played": 1,
    "name": "NVIDIA H100 SXM",
    "total": 80 * GIB,
    "used": 3 * GIB,
    "driver": "580.95.05",
    "cuda": "13.0",
    "capability": (9, 0),
    "pid": 7,
    "command": "train.py",
}


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        (["-L"], 0, "GPU 0: NVIDIA H100 SXM (UUID: {0})\nGPU 1: NVIDIA H100 SXM (UUID: {1})\n"),
        (["--query-gpu=memory.total,memory.used,compute_cap", "--format=csv,noheader,nounits", "-i", "1"], 0, "81920, 3072, 9.0\n"),
        (["--query-gpu", "index,memory.free", "--format", "csv", "--id=0"], 0, "index, memory.free [MiB]\n0, 78848 MiB\n"),
        (["--query-gpu=temperature.gpu,power.draw", "--format=csv,noheader", "-i", "0"], 0, "[N/A], [N/A]\n"),
        (["--query-compute-apps=pid,name,used_memory", "--format=csv,noheader"], 0, "7, train.py, 3072 MiB\n"),
        (["topo", "-m"], 0, "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"),
        (["--query-gpu=name"], 2, '"--query-gpu" needs --format=csv\n'),
        (["-i", "5"], 6, "No devices were found\n"),
    ],
)
def test_what_nvidia_smi_prints(arguments: list[str], code: int, printed: str) -> None:
    assert smi.answer(STATE, arguments) == (printed.format(smi.uuid(0), smi.uuid(1)), code)


def test_the_table_has_a_row_for_each_device() -> None:
    lines = smi.answer(STATE, [])[0].splitlines()
    assert len({len(line) for line in lines[1:]}) == 1
    assert "Driver Version: 580.95.05" in lines[2] and "CUDA Version: 13.0" in lines[2]
    assert sum("3072MiB / 81920MiB" in line for line in lines) == 2


PROGRAM = """
import os, subprocess, torch
import pynvml
query = "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0"
before = subprocess.run(query.split(), capture_output=True, text=True).stdout
kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
used = int(os.popen(query).read())
free, total = torch.cuda.mem_get_info()
pynvml.nvmlInit()
memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
card = torch.cuda.get_device_properties(0)
print(pynvml.nvmlDeviceGetPowerUsage(0), 2 * card.memory_clock_rate * card.memory_bus_width // 8e6, card.clock_rate)
print(before.strip(), used == (total - free) >> 20, (memory.used, memory.total) == (total - free, total))
try:
    pynvml.nvmlDeviceGetFanSpeed(0)
except pynvml.NVMLError as error:
    print("refused", error)
"""
PYNVML = """
class NVMLError(Exception):
    pass
def nvmlInit():
    raise NVMLError("there is no libnvidia-ml.so")
nvmlDeviceGetPowerUsage = nvmlDeviceGetHandleByIndex = nvmlDeviceGetMemoryInfo = nvmlDeviceGetFanSpeed = lambda *args: nvmlInit()
"""


@pytest.mark.torch
def test_programs_ask_for_what_is_used_now(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(PYNVML)
    done = simulate(tmp_path, PROGRAM, "--device", "h100")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == ["700000 3352.0 1980000", "0 True True", "refused 3"]
