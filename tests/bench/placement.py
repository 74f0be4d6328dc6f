"""How low an arena gets: `python -m tests.bench.placement [SECONDS]` over the challenge instances of MiniMalloc."""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

from irscope.memory.placement.plan import make_plan

INSTANCES = Path(__file__).parent.parent / "data" / "minimalloc"


def buffers(path: Path) -> tuple[list[int], list[int], list[int]]:
    """Starts, ends and sizes."""
    with path.open(newline="") as file:
        rows = [(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in csv.DictReader(file)]
    lower, upper, size = (list(column) for column in zip(*rows, strict=True))
    return lower, upper, size


def main() -> None:
    """Print a table; nothing here passes or fails."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    print("| instance | buffers | max-live / capacity | height / capacity | s |\n|---|---|---|---|---|")
    for path in sorted(INSTANCES.glob("?.*.csv")):
        name, capacity = path.name.split(".")[0], int(path.name.split(".")[1])
        lower, upper, size = buffers(path)
        began = time.monotonic()
        plan = make_plan(lower, upper, size, seconds=seconds)
        taken = time.monotonic() - began
        print(f"| {name} | {len(size)} | {plan.max_live / capacity:.3f} | {plan.height / capacity:.3f} | {taken:.1f} |", flush=True)


if __name__ == "__main__":
    main()
