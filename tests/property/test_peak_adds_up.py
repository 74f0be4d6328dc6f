"""One peak, and it adds up: the headline, its parts, what is alive at it, charts and exports say the same number everywhere."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.frontends.base import LoadOptions
from irscope.ir.program import Program
from irscope.passes.exports.steps import steps_table
from irscope.passes.liveness import Liveness
from irscope.passes.memory.cuda import CudaMemory
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.report.values import Cell, bare
from irscope.session import open_model
from tests.property.strategies import programs

SAMPLES = Path(__file__).parents[2] / "samples"
MODELS = sorted(
    path for folder in (SAMPLES, SAMPLES / "models") for path in folder.iterdir() if path.suffix in (".irs", ".onnx", ".pt", ".pt2")
)
SETTINGS = [
    Settings(),
    Settings(device="xeon-8480"),
    Settings(device="rtx3090", torch="2.11"),
    Settings(device="h100", torch="2.15"),
    Settings(device="rtx4090", torch="2.13", alloc_conf="expandable_segments:True"),
]
LIFETIMES = ("auto", "ssa", "jit")


def number(cell: object) -> int:
    found = bare(cell)  # type: ignore[arg-type]  # cells of a table are plain
    assert isinstance(found, int)
    return found


def headline(report: Report) -> tuple[str, Cell]:
    """Whose peak the report names first, and what it is."""
    of = "tensor" if "tensor_peak_bytes" in report.summary else "device"
    return of, report.summary[f"{of}_peak_bytes"]  # type: ignore[return-value]  # a cell


def check(manager: Manager, lifetimes: str) -> None:
    """All that a reader may add up."""
    model = "" if lifetimes == "auto" else f"{{model={lifetimes}}}"
    whole = manager.run_one(Liveness(model=lifetimes, top=0))  # type: ignore[arg-type]  # one of those it takes
    report = whole.report()
    of, peak = headline(report)
    footprint = whole.value.footprint
    for step in range(len(footprint.steps)):
        assert reduce(add, (one.size for one in footprint.living(step)), 0) == footprint.heights[step], step
    if not isinstance(bare(peak), int):
        return
    summary = report.summary
    parts = summary[f"{of}_peak"]
    assert isinstance(parts, dict)
    assert sum(map(number, parts.values())) == number(peak)
    tables = [_alive(report), _alive(manager.run_one(Liveness(model=lifetimes, top=3)).report())]  # type: ignore[arg-type]
    for table in (*tables, tables[0].first(2), tables[1].first(2), tables[0].first(1)):
        assert sum(map(number, table.cells("size"))) == number(peak)
    chart = next((one for one in report.series if f"{of} memory by category" in one.title), None)
    if chart is not None:
        heights = [sum(map(number, row[1:])) for row in chart.table().rows()]
        (mark,) = chart.marks
        assert max(heights) == heights[int(mark.x)] == number(peak)
        assert number(report.tables[2].cells("bytes")[0]) == number(peak)
    if footprint.steps and None not in whole.value.resident.values():
        (explained,) = manager.run(f"explain-peak{model}")
        assert headline(explained.report()) == (of, peak)
        memory = manager.get(CudaMemory(model=lifetimes)) if footprint.of == "device" and whole.value.model != "ort" else None  # type: ignore[arg-type]
        exported = steps_table(whole.value, memory)
        assert max(map(number, exported.cells("total_bytes"))) == number(peak)
    if of == "device" and whole.value.model != "ort":
        counters = [number(summary[run]["allocated"]) for run in ("cold", "warm")]  # type: ignore[index]  # a mapping
        assert number(peak) == max(counters)
        (alone,) = manager.run(f"cuda-memory{model}")
        assert headline(alone.report()) == (of, peak)
        assert sum(map(number, _alive(alone.report()).cells("size"))) == number(peak)


def _alive(report: Report) -> Table:
    return next(table for table in report.tables if table.title == "alive at the peak")


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: f"{one.device or 'default'}-{one.torch or 'torch'}")
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_samples(path: Path, settings: Settings) -> None:
    model = open_model(path, LoadOptions())
    for opened in (model, model.rebound(dict.fromkeys(model.program.symbols, 4)) if model.program.symbols else model):
        opened.manager.settings = settings
        for lifetimes in LIFETIMES:
            check(opened.manager, lifetimes)


@given(programs(), st.sampled_from(SETTINGS), st.sampled_from(("ssa", "eager", "jit", "ort")))
def test_random_programs(program: Program, settings: Settings, lifetimes: str) -> None:
    check(Manager(program, settings=settings), lifetimes)
