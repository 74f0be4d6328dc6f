"""Every figure about speed in one run: `python -m tests.tools.bench [--only NAMES] [--page FILE] [--save FILE] [--against FILE]`.

Nothing here passes or fails. Each suite runs in a process of its own, so that none pays for what another left in memory; peers and
ceilings are measured in the same run, since machines differ and are noisy.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from irscope import __version__
from tests.tools.bench import clock
from tests.tools.bench.measurement import Measurement, amount

ROOT: Final = Path(__file__).parents[3]
RELEASES: Final = ROOT / "benchmarks"
SUITES: Final = ("start", "ir", "onnx_big", "live", "placement", "weights")
"""Modules of this package with a function `measure()` that gives measurements; the first lines of their docstrings are headings."""
_SLOWER: Final = 1.25
"""From this change of a figure on it is named: repeated runs on a busy machine differ by a fifth."""
_INTRODUCTION: Final = """\
This page is what `make bench` prints; `make bench-compare` runs it again and shows what became slower than at the last release, whose
figures lie in `benchmarks/`. CPU seconds are those of all processes; machines differ and are noisy, so that figures are held against
a peer or a ceiling of the same run where there is one: **ratio** is the measured figure divided by that beside it.
"""
_HEADER: Final = "| figure | measured | | beside | ratio | goal | |\n|---|---|---|---|---|---|---|"


def measured(suite: str) -> list[Measurement]:
    """The figures of a suite, from a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "tests.tools.bench", "--measure", suite]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    return [Measurement(*row) for row in json.loads(done.stdout.splitlines()[-1])]


def heading(suite: str) -> str:
    """What a suite measures, as its module says it."""
    return str(importlib.import_module(f"tests.tools.bench.{suite}").__doc__).split("\n\n")[0].replace("\n", " ")


def table(rows: Iterable[Measurement]) -> Iterator[str]:
    """The rows as Markdown."""
    yield _HEADER
    for row in rows:
        reached = {None: "", True: "reached", False: "**missed**"}[row.is_reached]
        bound = "" if row.goal is None else f"{'at least' if row.is_rate else 'at most'} {amount(row.goal)}"
        yield f"| {row.name} | {amount(row.value)} | {row.unit} | {row.peer} | {amount(row.ratio)} | {bound} | {reached} |"


def page(found: dict[str, Any]) -> Iterator[str]:
    """The whole as a page of the documentation."""
    machine = found["machine"]
    yield "# Performance\n"
    yield _INTRODUCTION
    system = f"{machine['processors']} processors, {machine['system']}"
    yield f"irscope {found['version']}, Python {machine['python']}, {system}; a fixed loop of plain Python takes {found['loop']:.3f} CPU s."
    for suite, rows in found["suites"].items():
        yield f"\n## {suite}\n\n{heading(suite)}\n"
        yield from table(Measurement(*row) for row in rows)


def slower(found: dict[str, Any], before: dict[str, Any]) -> Iterator[str]:
    """Figures that changed for the worse or the better: ratios where there are any, seconds by the loop of plain Python."""
    loops = found["loop"] / before["loop"]
    yield f"irscope {found['version']} beside {before['version']}; plain Python takes {loops:.2f} times what it took there"
    changes: list[tuple[float, str]] = []
    for suite, rows in found["suites"].items():
        old = {row[0]: Measurement(*row) for row in before["suites"].get(suite, ())}
        for row in map(Measurement._make, rows):
            other = old.get(row.name)
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench", description=__doc__)
    parser.add_argument("--only", default=",".join(SUITES), help="suites, with commas between them")
    parser.add_argument("--page", type=Path, help="write the page of the documentation here")
    parser.add_argument("--save", action="store_true", help=f"write the figures to benchmarks/{__version__}.json")
    parser.add_argument("--against", type=Path, help="show what became slower than in this file; a folder stands for its newest")
    parser.add_argument("--measure", choices=SUITES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(list(importlib.import_module(f"tests.tools.bench.{arguments.measure}").measure())))
        return
    machine = {"python": platform.python_version(), "processors": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}
    found: dict[str, Any] = {"version": __version__, "machine": machine, "loop": clock.calibrate(), "suites": {}}
    for suite in arguments.only.split(","):
        found["suites"][suite] = measured(suite)
        print(f"\n{suite}: {heading(suite)}\n")
        print("\n".join(table(found["suites"][suite])), flush=True)
    if arguments.page:
        arguments.page.write_text("\n".join(page(found)) + "\n", encoding="utf-8")
    if arguments.save:
        RELEASES.mkdir(exist_ok=True)
        (RELEASES / f"{__version__}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if arguments.against:
        path = arguments.against
        if path.is_dir():
            path = max(path.glob("*.json"), key=lambda one: [int(part) for part in one.stem.split(".") if part.isdigit()])
        print("\n" + "\n".join(slower(found, json.loads(path.read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
