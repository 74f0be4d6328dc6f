"""docs/performance.md from kept figures: `python -m tests.tools.bench --page` and `make pages` write it, and a test compares them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.tools.bench.measurement import Measurement, amount

ROOT: Final = Path(__file__).parents[3]
RELEASES: Final = ROOT / "benchmarks"
SUITES: Final = ("start", "ir", "onnx_big", "live", "flops", "searches", "placement", "weights")
"""Modules of this package with a function `measure()` that gives measurements, and lines about what could not be measured.

The first paragraphs of their docstrings say what they measure.
"""
_INTRODUCTION: Final = """\
    make bench                                            # every suite, beside its peers
    make bench-compare                                    # the same, and what became slower
    make bench-keep                                       # the same, kept as benchmarks/VERSION.json, and on this page
    .venv/bin/python -m tests.tools.bench --only ir,live --save --page      # some suites; the others stay as they are

`make bench-keep` writes this page, with the figures that have a goal or a peer; `benchmarks/` has all. CPU seconds are those of all
processes. Machines differ and are noisy: **ratio** is the measured figure divided by that of a peer in the same run, and a goal is for
the ratio where there is one. Each suite names its machine, and how long a fixed loop of plain Python took there, by which
`make bench-compare` divides seconds."""
_TITLES: Final = {
    "start": "Start",
    "ir": "The IR",
    "onnx_big": "Large ONNX graphs",
    "live": "Live code",
    "flops": "FLOPs",
    "searches": "Searches",
    "placement": "Addresses",
    "weights": "Weights",
}
_AFTER: Final = {
    "start": """\
None of the commands imports torch, onnx, onnxruntime, textual, rich, sympy or networkx; those that read no model not even numpy.
`tests/hygiene/test_imports.py` looks.""",
    "ir": "What exceeds 10 times at a million nodes is memory that no longer fits the processor's caches.",
    "onnx_big": """\
[conformance.md](conformance.md) has more of these graphs. `python -m tests.tools.bench.torch_big` makes torch archives of 3.2 GB in
every format: they take at most 0.01 CPU s and no memory more than their small twins.""",
    "live": """\
Calls that look alike are dispatched once; what is left is torch's own dispatch and the optimizer's Python. The first step of a
simulation loads modules of torch; under FSDP2 most of it is DTensor's sharding of the optimizer's lists, as on a real device.""",
    "searches": "[scheduling.md](scheduling.md#figures) and [training.md](training.md#figures) say what other graphs gave.",
    "placement": """\
Where a height below the capacity is not excluded, the search goes on until its time is over.""",
    "weights": """\
Counting bit patterns (`np.add.at`) holds Python's lock, so a second thread adds less there than for sums.
`tests/tools/bench/weights_big.py` makes checkpoints of 40 GB out of holes, as safetensors and as a state dict: their structure takes 0.1
CPU s, streaming all values 20 CPU s and 112 MB at most, and a cancelled run ends within a second. Machine code is compiled in
about 2 CPU s when weights of 2 GB or more are first read.""",
}
_END: Final = """\
## What keeps it so

* The garbage collector is paused while graphs are built (`paused_gc`): it would scan objects that all stay.
* Types, scopes and operator names are interned; comparing them is comparing addresses.
* No recursion over nodes; a chain of 100,000 is a test.
* Weights are never read where a shape does not depend on them, and once for all passes of a run that look at their values."""
_HEADER: Final = "| figure | measured | ratio | goal |\n|---|---|---|---|"


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
        yield f"| {row.name} | {amount(row.value)} {row.unit} | {peer} | {bound}{' **missed**' if row.is_reached is False else ''} |"


def newest(folder: Path = RELEASES) -> Path:
    """The figures of the newest version."""
    return max(folder.glob("*.json"), key=lambda one: [int(part) for part in one.stem.split(".") if part.isdigit()])


def performance_page() -> str:
    """The page of the documentation, from the newest kept figures."""
    return "\n".join(_page(json.loads(newest().read_text(encoding="utf-8")))) + "\n"


def _page(kept: dict[str, Any]) -> Iterator[str]:
    yield "# Performance\n"
    yield _INTRODUCTION
    yield f"\nThese are the figures of irscope {kept['version']}."
    for suite in SUITES:
        found = kept["suites"].get(suite)
        yield f"\n## {_TITLES[suite]}\n\n{heading(suite)}\n"
        if found is None:
            yield "Not measured yet."
            continue
        rows = [Measurement(*row) for row in found["rows"]]
        yield from table(row for row in rows if row.goal is not None or row.ratio is not None)
        if found["notes"]:
            yield "\n" + "\n".join(f"* {note}" for note in found["notes"])
        machine = found["machine"]
        where = f"Python {machine['python']}, {machine['processors']} processors, {machine['system']}"
        yield f"\n{where}; the loop took {found['loop']:.3f} CPU s."
        if suite in _AFTER:
            yield "\n" + _AFTER[suite]
    yield "\n" + _END
