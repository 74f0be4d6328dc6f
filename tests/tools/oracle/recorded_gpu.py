"""Predicted against measured on a physical GPU: `python -m tests.tools.oracle.recorded_gpu FOLDER [--device NAME]`.

FOLDER is one of tests/data/cuda. Models are exported where they were not before; with `--device FILE` the prediction is for a device file.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import irscope
from irscope.passes.cost.roofline import Roofline
from irscope.passkit.manager import Manager
from tests.tools.oracle.eager_cuda import COUNTERS, MOMENTS, Case, errors, exported, predicted


@dataclass(frozen=True)
class Measured:
    """One model with its errors, as fractions of the measured delta's peak counters, and its time over the least time."""

    name: str
    errors: dict[tuple[str, str], float]
    times_the_least: float | None


def cases_of(folder: Path) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Recorded models in the form of the other oracle."""
    for number, text in enumerate((folder / "models.jsonl").read_text(encoding="utf-8").splitlines()):
        line = json.loads(text)
        if "error" not in line:
            line["spec"].setdefault("dtype", "float32")
            yield Case(f"{folder.name}-{number:02d}", {**line, "base": line["before"]}), line


def machine_of(folder: Path) -> dict[str, Any]:
    """The machine that was recorded."""
    found: dict[str, Any] = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    return found


def measured(folder: Path, device: str) -> Iterator[Measured]:
    """Every model that can be built here."""
    torch_version = ".".join(machine_of(folder)["torch"].split(".")[:2])
    for case, line in cases_of(folder):
        if not case.installed:
            continue
        path = exported(case)
        latency = line.get("latency_ms", {}).get("min")
        least = Manager(irscope.load(path).program).get(Roofline(device=device)).seconds
        ratio = latency / 1e3 / least if latency and least else None
        yield Measured(case.name, errors(case, predicted(path, device, torch_version)), ratio)


def summary(rows: list[Measured]) -> Iterator[str]:
    """Median and worst error of each counter at each moment, and how the lower bound of the latency holds."""
    yield "| counter | moment | median error | worst |"
    yield "|---|---|---|---|"
    for counter in COUNTERS:
        for moment in MOMENTS:
            found = [abs(row.errors[moment, counter]) for row in rows if (moment, counter) in row.errors]
            if found:
                yield f"| {counter} | {moment} | {100 * statistics.median(found):.2f} % | {100 * max(found):.2f} % |"
    ratios = [row.times_the_least for row in rows if row.times_the_least is not None]
    yield f"\n{sum(ratio >= 1 for ratio in ratios)} of {len(ratios)} models take at least the least time"


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="", help="default: the one that was recorded")
    chosen = parser.parse_args()
    rows = list(measured(chosen.folder, chosen.device or machine_of(chosen.folder)["name"]))
    for row in rows:
        print(row.name, {" ".join(key): f"{100 * off:+.2f} %" for key, off in row.errors.items()}, row.times_the_least)
    print(*summary(rows), sep="\n")


if __name__ == "__main__":
    main()
