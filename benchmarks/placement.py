"""How low arenas get in 20 CPU seconds: `python -m benchmarks.placement [challenge|cut|generated] [SECONDS] [NAMES]`.

The challenge instances are those of MiniMalloc; others are cut from a square in their style, without room to spare; the generated sets
look like the buffers of long networks.
"""

from __future__ import annotations

import csv
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from benchmarks.measurement import Measurement
from irscope.solvers.place import greedy_by_size, make_plan, while_running

INSTANCES = Path(__file__).parents[1] / "tests" / "data" / "minimalloc"
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
        yield Measurement(f"MiniMalloc's {path.name[0]}: height", plan.height, "bytes", "its capacity", plan.height / capacity, 1.0)
        yield Measurement(f"MiniMalloc's {path.name[0]}: time", taken, "CPU s")


Cut: TypeAlias = tuple[int, int, int, int]
"""Left, bottom, width and height of a rectangle."""


def cut_square(count: int, seed: int, low: float, high: float, sharp: float, wheels: float) -> Buffers:
    """A square of 1,024 moments and 1 MiB cut into about so many rectangles: where is a share between `low` and `high` of a side.

    The more area to the power of `sharp` a rectangle has, the likelier it is cut next; a share of the cuts are pinwheels of five, which no
    cut from side to side makes.
    """
    rng = random.Random(seed)
    cuts: list[Cut] = [(0, 0, _SIDE, _SIDE)]
    while len(cuts) < count:
        weights = [(width * height) ** sharp if width > 1 or height > 1 else 0.0 for _, _, width, height in cuts]
        cut = cuts.pop(rng.choices(range(len(cuts)), weights)[0])
        cuts += _wheel(cut, rng, low, high) if min(cut[2:]) >= 8 and rng.random() < wheels else _halves(cut, rng, low, high)
    rng.shuffle(cuts)
    left, _, width, height = (list(column) for column in zip(*cuts, strict=True))
    return left, [begin + size for begin, size in zip(left, width, strict=True)], [size << 10 for size in height]


def _halves(one: Cut, rng: random.Random, low: float, high: float) -> list[Cut]:
    left, bottom, width, height = one
    across, share = rng.random() < width / (width + height), rng.uniform(low, high)
    if (across and width > 1) or height < 2:
        cut = min(width - 1, max(1, round(width * share)))
        return [(left, bottom, cut, height), (left + cut, bottom, width - cut, height)]
    cut = min(height - 1, max(1, round(height * share)))
    return [(left, bottom, width, cut), (left, bottom + cut, width, height - cut)]


def _wheel(cut: Cut, rng: random.Random, low: float, high: float) -> list[Cut]:
    left, bottom, width, height = cut
    (a, b), (c, d) = (_two(side, rng, low, high) for side in (width, height))
    middle = (left + a, bottom + c, b - a, d - c)
    if rng.random() < 0.5:
        return [
            (left, bottom, b, c),
            (left + b, bottom, width - b, d),
            (left + a, bottom + d, width - a, height - d),
            (left, bottom + c, a, height - c),
            middle,
        ]
    return [
        (left, bottom, a, d),
        (left + a, bottom, width - a, c),
        (left + b, bottom + c, width - b, height - c),
        (left, bottom + d, b, height - d),
        middle,
    ]


def _two(side: int, rng: random.Random, low: float, high: float) -> tuple[int, int]:
    first = rng.randint(max(1, int(side * low)), side // 2 - 1)
    return first, rng.randint(first + 1, max(first + 1, min(side - 1, int(side * high))))


_SIDE = 1024
STYLES = {
    "anywhere": (0.05, 0.95, 0.6, 0.0),
    "near the middle": (0.35, 0.65, 1.5, 0.0),
    "many small": (0.1, 0.9, 0.35, 0.0),
    "anywhere, half pinwheels": (0.05, 0.95, 0.6, 0.5),
    "mostly pinwheels": (0.2, 0.8, 1.2, 0.8),
}
"""Where cuts are, how much area decides, and the share of pinwheels."""


def cut_sets(seconds: float, names: str) -> Iterator[str]:
    """Rows of the table of squares that were cut: what is reached, over the height that is known to be possible."""
    yield "| cuts | buffers | height / capacity | proven | s |\n|---|---|---|---|---|"
    for style, (name, numbers) in enumerate(STYLES.items()):
        for count in (150, 200, 250, 300, 350, 400):
            if str(count) not in (names or str(count)).split(","):
                continue
            lower, upper, size = cut_square(count, 100 * style + count, *numbers)
            began = time.thread_time()
            plan = make_plan(lower, upper, size, seconds=seconds)
            taken = time.thread_time() - began
            yield f"| {name} | {len(size)} | {plan.height / (_SIDE << 10):.3f} | {'yes' if plan.proven else 'no'} | {taken:.1f} |"


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
    for line in {"challenge": challenge, "cut": cut_sets, "generated": sets}[what](float(seconds), names):
        print(line, flush=True)


if __name__ == "__main__":
    main()
