"""What starting irscope costs: CPU seconds above an empty Python, by command."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measurement import Measurement

COMMANDS = {
    "import irscope": ["-c", "import irscope"],
    "irscope --help": ["-m", "irscope", "--help"],
    "irscope passes": ["-m", "irscope", "passes"],
    "irscope run --help": ["-m", "irscope", "run", "--help"],
    "irscope run mlp.irs": ["-m", "irscope", "run", "samples/mlp.irs"],
    "irscope run control_flow.onnx": ["-m", "irscope", "run", "samples/models/control_flow.onnx"],
    "irscope run net.pt2": ["-m", "irscope", "run", "samples/models/net.pt2"],
}
LIMIT = 0.1
"""CPU seconds above an empty Python for what reads no model."""
LIMITS = {"irscope run control_flow.onnx": 0.33, "irscope run net.pt2": 0.53}
"""The same for small models."""
ROOT = Path(__file__).parents[1]


def seconds(arguments: list[str], runs: int = 7) -> float:
    """CPU seconds of a Python process, user and system, the best of several runs."""
    fastest = float("inf")
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        fastest = min(fastest, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return fastest


def measure() -> Iterator[Measurement]:
    """CPU seconds above an empty Python by command."""
    empty = seconds(["-c", "pass"])
    for name, arguments in COMMANDS.items():
        yield Measurement(name, seconds(arguments) - empty, "CPU s", goal=LIMITS.get(name, None if name.endswith(".irs") else LIMIT))
