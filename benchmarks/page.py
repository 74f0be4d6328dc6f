"""docs/performance.md from kept figures: `python -m benchmarks --page` and `make pages` write it, and a test compares them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mode
from typing import Any, Final

from benchmarks.measurement import Measurement, amount

ROOT: Final = Path(__file__).parents[1]
RELEASES: Final = ROOT / "benchmarks"
SUITES: Final = ("start", "ir", "onnx_big", "live", "flops", "searches", "placement", "weights")
"""Modules of this package with a function `measure()` that gives measurements, and lines about what could not be measured.

The first paragraphs of their docstrings say what they measure.
"""
_INTRODUCTION: Final = """\
    make bench                                            # every suite, beside its peers
    make bench-compare                                    # the same, and what became slower
    make bench-keep                                       # the same, kept as benchmarks/VERSION.json, and on this page
    .venv/bin/python -m benchmarks --only ir,live --save --page      # some suites; the others stay as they are

The figures with a goal or a peer; `benchmarks/` has all. CPU seconds are of all processes. **ratio** is the measured figure divided by
that of a peer in the same run; a goal is for the ratio if there is one."""
_TITLES: Final = {
    "start": "Start", "ir": "The IR", "onnx_big": "Large ONNX graphs", "live": "Live code", "flops": "FLOPs", "searches": "Searches",
    "placement": "Addresses", "weights": "Weights",
}  # fmt: skip
_AFTER: Final = {
    "searches": "[scheduling.md](scheduling.md#how-good-it-is) and [training.md](training.md#what-to-recompute) have other graphs.",
    "weights": """\
`benchmarks/weights_big.py` makes checkpoints of 40 GB out of holes: their structure takes 0.1 CPU s, streaming all values 20 CPU s
and 112 MB at most, and a cancelled run ends within a second.""",
}
_HEADER: Final = "|figure|measured|ratio|goal|\n|---|---|---|---|"


def heading(suite: str) -> str:
    """What a suite measures, as its module says it."""
    # Read, not imported: a suite may need packages that whoever writes the page does not have.
    text = ast.get_docstring(ast.parse((Path(__file__).parent / f"{suite}.py").read_text(encoding="utf-8")))
    return str(text).split("\n\n")[0].replace("\n", " ")


def table(rows: Iterable[Measurement]) -> Iterator[str]:
    """Yield the rows as Markdown."""
    yield _HEADER
    for row in rows:
        peer = row.peer and f"{amount(row.ratio)} of {row.peer}"
        bound = "" if row.goal is None else f"{'at least' if row.is_rate else 'at most'} {amount(row.goal)}"
        yield f"|{row.name}|{amount(row.value)} {row.unit}|{peer}|{bound}{' **missed**' if row.is_reached is False else ''}|"


def newest(folder: Path = RELEASES) -> Path:
    """The figures of the newest version."""
    return max(folder.glob("*.json"), key=lambda path: [int(part) for part in path.stem.split(".") if part.isdigit()])


def performance_page() -> str:
    """The page of the documentation, from the newest kept figures."""
    return "\n".join(_page(json.loads(newest().read_text(encoding="utf-8")))) + "\n"


_AGAIN = "a CPU second"
"""The end of names of rows that repeat another by another clock."""


def _where(machine: dict[str, Any]) -> str:
    """Return what a suite ran on."""
    return f"Python {machine['python']}, {machine['processors']} processors, {machine['system']}"


def _page(kept: dict[str, Any]) -> Iterator[str]:
    yield "# Performance\n"
    yield _INTRODUCTION
    usual = mode(_where(found["machine"]) for found in kept["suites"].values())
    yield f"\nThese are the figures of irscope {kept['version']}, on {usual} unless others are named."
    for suite in SUITES:
        found = kept["suites"].get(suite)
        yield f"\n## {_TITLES[suite]}\n\n{heading(suite)}\n"
        if found is None:
            yield "Not measured yet."
            continue
        rows = [Measurement(*row) for row in found["rows"]]
        if suite == "placement" and all(row.is_reached for row in rows if row.goal is not None):
            yield "Every goal is reached; [scheduling.md](scheduling.md#how-good-it-is) has the arenas."
            continue
        yield from table(row for row in rows if row.goal is not None or (row.ratio is not None and not row.name.endswith(_AGAIN)))
        if found["notes"]:
            yield "\n" + "\n".join(f"* {note}" for note in found["notes"])
        if (where := _where(found["machine"])) != usual:
            yield f"\n{where}."
        if suite in _AFTER:
            yield "\n" + _AFTER[suite]
