"""What starting irscope costs: CPU seconds above an empty Python, by command."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.tools.bench.measurement import Measurement

COMMANDS = {
    "import irscope": ["-c", "import irscope"],
    "irscope --help": ["-m", "irscope", "--help"],
    "irscope passes": ["-m", "irscope", "passes"],
    "irscope run mlp.irs": ["-m", "irscope", "run", "samples/mlp.irs"],
}
LIMIT = 0.1
"""CPU seconds above an empty Python that `--help` and `passes` may take."""
ROOT = Path(__file__).parents[3]


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
        yield Measurement(name, seconds(arguments) - empty, "CPU s", goal=None if "run" in name else LIMIT)
