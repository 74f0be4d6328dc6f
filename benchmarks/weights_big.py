"""Checkpoints of 40 GB made of holes: how soon their structure is known, memory while values are streamed, and how soon that stops."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import torch_big

ROOT = Path(__file__).parents[1]
LARGE = 40_000_000_000
LIMIT_MB = 600
LIMIT_SECONDS = 0.5
_RESERVE = 2 << 30

_PROGRAM = """
import json, sys, threading, time
from pathlib import Path
from irscope.errors import Cancelled
from irscope.frontends.base import LoadOptions
from irscope.session import open_model

def rss():
    # Not ru_maxrss: a process that was forked from a large one starts with the peak of that one.
    (peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(peak.split()[1]) / 1024

path, what = Path(sys.argv[1]), sys.argv[2]
started, cpu = time.perf_counter(), time.process_time()
model = open_model(path, LoadOptions())
made = model.run("params")["params"].value.totals
found = {"bytes": made.bytes, "structure_cpu": time.process_time() - cpu, "structure_wall": time.perf_counter() - started}
started, cpu = time.perf_counter(), time.process_time()
if what == "stream":
    look = model.run("params{values}")["params"].value.values
    found |= {"read": look.bytes_read, "zeros": sum(one.zeros for one in look.statistics.values())}
elif what == "cancel":
    # Machine code that is compiled for the first time cannot be interrupted, which takes some seconds once.
    import numpy as np
    from irscope.weights.powers import sums, sums_about, tally
    from irscope.weights.result import WORDS

    sums(np.ones(4096, np.float32), np.float32(1e-6))
    tally(np.ones(4096, np.uint32), np.zeros(WORDS, np.int64))
    sums_about(np.ones(4096, np.float32), 0.5)
    asked = []
    def stop():
        asked.append(time.perf_counter())
        model.manager.cancelled.set()
    threading.Timer(0.5, stop).start()
    try:
        model.run("params{values}")
    except Cancelled:
        found["cancelled_after"] = time.perf_counter() - asked[0]
found |= {"wall": time.perf_counter() - started, "cpu": time.process_time() - cpu, "mb": rss()}
print(json.dumps(found))
"""


def write_safetensors(path: Path, size: int) -> None:
    """As many square matrices as a PyTorch file of `torch_big` has."""
    count = 4 * size * size
    header: dict[str, Any] = {
        f"w{index}": {"dtype": "F32", "shape": [size, size], "data_offsets": [index * count, (index + 1) * count]}
        for index in range(torch_big.LAYERS)
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + torch_big.LAYERS * count)


FORMATS: dict[str, Callable[[Path, int], None]] = {"safetensors": write_safetensors, "state dict": torch_big.write_state_dict}


def features(total: int) -> int:
    """The side of each matrix, so that all have about so many bytes."""
    return math.isqrt(total // (4 * torch_big.LAYERS))


def measure(form: str, folder: Path, total: int, what: str) -> dict[str, Any]:
    """Make a file, read it in a process of its own, and say what that took. `what` is "structure", "stream" or "cancel"."""
    path = folder / f"{form.replace(' ', '_')}.bin"
    FORMATS[form](path, features(total))
    try:
        done = subprocess.run([sys.executable, "-c", _PROGRAM, str(path), what], cwd=ROOT, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    finally:
        path.unlink()


def has_room(folder: Path) -> bool:
    """Holes take no space, but a disk without holes would need it."""
    probe = folder / "probe"
    with probe.open("wb") as file:
        file.truncate(1 << 24)
    sparse = probe.stat().st_blocks * 512 < 1 << 24
    probe.unlink()
    return sparse and shutil.disk_usage(folder).free > _RESERVE
