"""How low arenas get in 20 CPU seconds: `python -m tests.tools.bench.placement [challenge|generated] [SECONDS] [NAMES]`.

The challenge instances are those of MiniMalloc; the generated sets look like the buffers of long networks.
"""

from __future__ import annotations

import csv
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from irscope.solvers.place import greedy_by_size, make_plan, while_running
from tests.tools.bench.measurement import Measurement

INSTANCES = Path(__file__).parents[2] / "data" / "minimalloc"
Buffers: TypeAlias = tuple[list[int], list[int], list[int]]
"""Starts, ends and sizes."""


def buffers(path: Path) -> Buffers:
    """The buffers of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in csv.DictReader(file)]
    lower, upper, size = (list(column) for column in zip(*rows, strict=True))
    return lower, upper, size


def training_like(count: int, seed: int = 0) -> Buffers:
    """As in a training step: what the forward pass keeps is read again in reverse, between short-lived results; 1 KiB to 16 MiB."""
    rng = random.Random(seed)
    lower, upper, size = [], [], []
    for step in range(count):
        keeps = step < count // 2 and rng.random() < 0.4
        lower.append(step)
        upper.append(min(count, (count - step if keeps else step + 1) + rng.randint(1, 4)))
        size.append(int(2 ** rng.uniform(10, 24)) // 512 * 512)
    return lower, upper, size


def random_like(count: int, seed: int = 0) -> Buffers:
    """Random lives: most buffers are read soon, some after a while, one in ten much later; 1 KiB to 16 MiB."""
    rng = random.Random(seed)
    lower, upper, size = [], [], []
    for step in range(count):
        longest = rng.choices((6, count // 20, count // 2), (0.7, 0.2, 0.1))[0]
        lower.append(step)
        upper.append(min(count, step + 1 + rng.randint(1, max(1, longest))))
        size.append(int(2 ** rng.uniform(10, 24)) // 512 * 512)
    return lower, upper, size


def challenge(seconds: float, names: str) -> Iterator[str]:
    """Rows of the table of MiniMalloc's instances."""
    yield "| instance | buffers | max-live / capacity | height / capacity | s |\n|---|---|---|---|---|"
    for path in sorted(INSTANCES.glob("?.*.csv")):
        name, capacity = path.name.split(".")[0], int(path.name.split(".")[1])
        if name not in (names or name):
            continue
        lower, upper, size = buffers(path)
        began = time.process_time()
        plan = make_plan(lower, upper, size, seconds=seconds)
        taken = time.process_time() - began
        yield f"| {name} | {len(size)} | {plan.max_live / capacity:.3f} | {plan.height / capacity:.3f} | {taken:.1f} |"


def measure(seconds: float = 20) -> Iterator[Measurement]:
    """For the benchmark of everything: heights of MiniMalloc's instances beside their capacities."""
    for path in sorted(INSTANCES.glob("?.*.csv")):
        capacity = int(path.name.split(".")[1])
        began = time.thread_time()
        plan = make_plan(*buffers(path), seconds=seconds)
        taken = time.thread_time() - began
        name = f"addresses, MiniMalloc's {path.name[0]}: height in {taken:.1f} of {seconds:g} CPU s"
        yield Measurement(name, plan.height, "bytes", "its capacity", plan.height / capacity, 1.0)


def sets(seconds: float, names: str) -> Iterator[str]:
    """Rows of the table of generated sets."""
    yield "| lives | buffers | online best fit | largest first | planned | s |\n|---|---|---|---|---|---|"
    for name, make in (("like a training step", training_like), ("random", random_like)):
        for count in (1_000, 10_000, 100_000):
            if names and str(count) not in names.split(","):
                continue
            lower, upper, size = make(count)
            began = time.process_time()
            plan = make_plan(lower, upper, size, seconds=seconds)
            taken = time.process_time() - began
            others = [other(lower, upper, size, 1) / plan.max_live for other in (while_running, greedy_by_size)]
            row = " | ".join(f"{ratio:.4f}" for ratio in (*others, plan.height / plan.max_live))
            yield f"| {name} | {count:,} | {row} | {taken:.1f} |"


def main() -> None:
    """Print a table; nothing here passes or fails."""
    what, seconds, names = [*sys.argv[1:], *("challenge", "60", "")[len(sys.argv) - 1 :]][:3]
    for line in (challenge if what == "challenge" else sets)(float(seconds), names):
        print(line, flush=True)


if __name__ == "__main__":
    main()
