"""Every figure about speed in one run: `python -m benchmarks [--only NAMES] [--save] [--page] [--against FILE]`.

Nothing here passes or fails. Each suite runs in a process of its own, so that none pays for what another left in memory; peers and
ceilings are measured in the same run, since machines differ and are noisy. `--page` alone writes the page from what is kept.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks import clock
from benchmarks.measurement import Measurement, amount
from benchmarks.page import RELEASES, ROOT, SUITES, heading, newest, performance_page, table
from irscope import __version__

KEPT: Final = RELEASES / f"{__version__}.json"
_SLOWER: Final = 1.25
"""From this change of a figure on it is named: repeated runs on a busy machine differ by a fifth."""


def measured(suite: str) -> dict[str, Any]:
    """The figures of a suite, from a process of its own, with the machine they are from and how fast it is right now."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    machine = {"python": platform.python_version(), "processors": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}
    loop = clock.calibrate()
    command = [sys.executable, "-m", "benchmarks", "--measure", suite]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    return {"machine": machine, "loop": loop, **json.loads(done.stdout.splitlines()[-1])}


def save(suite: str, found: dict[str, Any]) -> None:
    """Keep the figures of a suite; those of others stay."""
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {"version": __version__, "suites": {}}
    kept["suites"] = {name: found if name == suite else kept["suites"][name] for name in SUITES if name == suite or name in kept["suites"]}
    RELEASES.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def slower(found: dict[str, Any], before: dict[str, Any]) -> Iterator[str]:
    """Figures of suites that changed for the worse or the better: ratios where there are any, seconds by the loop of plain Python."""
    changes: list[tuple[float, str]] = []
    for suite in found.keys() & before.keys():
        loops = found[suite]["loop"] / before[suite]["loop"]
        old = {(row[0], row[3]): Measurement(*row) for row in before[suite]["rows"]}
        for row in map(Measurement._make, found[suite]["rows"]):
            other = old.get((row.name, row.peer))
            if other is None or not other.compared or not row.compared or (row.ratio is None) != (other.ratio is None):
                continue
            change = row.compared / other.compared
            if row.ratio is None and row.unit.endswith("s"):
                change = change * loops if row.is_rate else change / loops
            change = 1 / change if row.is_rate else change
            changes.append((change, f"{suite}: {row.name}  {amount(other.compared)} -> {amount(row.compared)}"))
    changes.sort(reverse=True)
    for change, line in changes:
        if change >= _SLOWER:
            yield f"  {change:5.2f} times slower  {line}"
        elif change <= 1 / _SLOWER:
            yield f"  {1 / change:5.2f} times faster  {line}"
    yield f"{sum(change >= _SLOWER for change, _ in changes)} of {len(changes)} figures became slower by {_SLOWER:.2f} times or more"


def measure_here(suite: str) -> str:
    """The figures of a suite as JSON, from this process."""
    made = list(importlib.import_module(f"benchmarks.{suite}").measure())
    return json.dumps({"rows": [row for row in made if not isinstance(row, str)], "notes": [row for row in made if isinstance(row, str)]})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", help="suites, with commas between them; all of them by default")
    parser.add_argument("--save", action="store_true", help=f"keep the figures in {KEPT.relative_to(ROOT)}, beside those of other suites")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md from what is kept; alone it measures nothing")
    parser.add_argument("--against", type=Path, help="show what became slower than in this file; a folder stands for its newest")
    parser.add_argument("--measure", choices=SUITES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(measure_here(arguments.measure))
        return
    before: dict[str, Any] = {}
    if arguments.against:
        path = newest(arguments.against) if arguments.against.is_dir() else arguments.against
        before = json.loads(path.read_text(encoding="utf-8"))
    measures = not arguments.page or arguments.only or arguments.save or arguments.against
    found: dict[str, Any] = {}
    for suite in (arguments.only.split(",") if arguments.only else SUITES) if measures else ():
        found[suite] = measured(suite)
        print(f"\n{suite}: {heading(suite)}\n")
        print("\n".join(table(Measurement(*row) for row in found[suite]["rows"])))
        print("\n".join(found[suite]["notes"]), flush=True)
        if arguments.save:
            save(suite, found[suite])
    if arguments.page:
        (ROOT / "docs" / "performance.md").write_text(performance_page(), encoding="utf-8")
    if arguments.against:
        print(f"\nirscope {__version__} beside {before['version']}")
        print("\n".join(slower(found, before["suites"])))


if __name__ == "__main__":
    main()
