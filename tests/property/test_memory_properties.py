"""What must hold for the storages, lifetimes and peaks of every model: one peak that adds up, formulas at many bindings."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.frontends.base import LoadOptions
from irscope.ir.bind import bind_program
from irscope.ir.dim_arrays import Evaluator
from irscope.ir.dims import bind
from irscope.ir.graph import Graph
from irscope.ir.program import EXPORTED, FORMAT_TRAITS, Program, Traits
from irscope.ir.types import UNKNOWN_TENSOR
from irscope.passes.exports import steps_table
from irscope.passes.graph.alias import Alias
from irscope.passes.lifetimes.lives import LiveRange
from irscope.passes.lifetimes.timeline import windows
from irscope.passes.lifetimes.traced import Ranges
from irscope.passes.memory.cuda import CudaMemory
from irscope.passes.memory.liveness import Liveness
from irscope.passes.order.effects import Effects
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.report.values import Cell, bare
from irscope.session import open_model
from tests.property.strategies import programs, tensor_programs
from tests.property.symbolic_models import symbolic_models

# What must hold for the storages, lifetimes and peaks of every model.

formats = st.sampled_from(["pt2", "torchscript", "onnx", "irs"])


@given(tensor_programs() | symbolic_models(), formats)
def test_every_format_has_an_answer(program: Program, format_: str) -> None:
    program.traits = FORMAT_TRAITS.get(format_, Traits())
    results = Manager(program).run("alias,effects,ranges{model=eager},liveness{model=eager},liveness{model=ssa}")
    assert [result.report().pass_name for result in results] == ["alias", "effects", "ranges", "liveness", "liveness"]


@given(tensor_programs() | symbolic_models())
def test_a_storage_is_named_by_a_value_that_shares_none(program: Program) -> None:
    aliases = Manager(program).get(Alias())
    for node in program.graph.walk():
        for value in (*node.inputs, *node.outputs):
            if value is not None:
                assert aliases.storage(aliases.storage(value)) is aliases.storage(value)


@given(tensor_programs() | symbolic_models())
def test_program_order_keeps_every_edge(program: Program) -> None:
    for edge in Manager(program).get(Effects()).edges:
        assert edge.before.order < edge.after.order


@given(symbolic_models(), st.integers(1, 4))
def test_eager_holds_at_least_what_ssa_holds(program: Program, cut: int) -> None:
    bind_program(program, {"batch": 3, "length": 5})
    root = program.graph.scope
    for number, node in enumerate(program.graph):
        node.scope = root.child(f"m{number // cut}")
    program.traits = EXPORTED
    manager = Manager(program)
    eager, ssa = manager.get(Ranges(model="eager")), manager.get(Ranges(model="ssa"))
    for held, used in zip(eager.ranges, ssa.ranges, strict=True):
        assert (held.value, held.born, held.size) == (used.value, used.born, used.size)
        assert held.dies >= used.dies >= held.born
    timeline = manager.get(Liveness(model="ssa"))
    assert isinstance(timeline.lower_bound, int) and isinstance(timeline.peak, int)
    assert timeline.lower_bound <= timeline.peak <= int(str(manager.get(Liveness(model="eager")).peak))
    for one in timeline.ranges:
        assert all(a <= b for a, b in pairwise(one.used_at))


# What is alive when, and formulas at many bindings, against the plain way to compute them.

STEPS = 40


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[LiveRange], int]:
    """Ranges in order of birth over some steps; some last beyond the end, as outputs do."""
    steps = draw(st.integers(1, STEPS))
    spans = draw(st.lists(st.tuples(st.integers(0, steps - 1), st.integers(0, steps)), max_size=60))
    value = Graph().add_input(UNKNOWN_TENSOR, "x")
    ordered = sorted((min(a, b), max(a, b)) for a, b in spans)
    return [LiveRange(value, 1, born, dies, "", born) for born, dies in ordered], steps


@given(lives())
def test_the_living_are_those_whose_range_holds_the_step(found: tuple[list[LiveRange], int]) -> None:
    ranges, steps = found
    index = windows(ranges, steps)
    for step in range(-1, steps):
        living = [one for one in ranges if one.born <= step <= one.dies]
        assert [id(one) for one in index.living(step)] == [id(one) for one in living]


@given(lives())
def test_a_search_looks_at_little_more_than_it_finds_and_little_is_kept(found: tuple[list[LiveRange], int]) -> None:
    ranges, steps = found
    index = windows(ranges, steps)
    ends = [*index.starts[1:], steps]
    for start, end, members in zip(index.starts, ends, index.members, strict=True):
        for step in range(start, end):
            assert len(members) <= 2 * max(1, sum(one.born <= step <= one.dies for one in ranges))
    assert sum(map(len, index.members)) <= 4 * len(ranges)


@given(symbolic_models(), st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=6))
def test_formulas_have_the_same_values_one_by_one_and_all_at_once(program: Program, points: list[tuple[int, int]]) -> None:
    timeline = Manager(program).get(Liveness(model="ssa"))
    sizes = [*timeline.alive, timeline.peak, *(one.size for one in timeline.ranges)]
    rows = Evaluator({"batch": [point[0] for point in points], "length": [point[1] for point in points]}).rows(sizes)
    for size, row in zip(sizes, rows.tolist(), strict=True):
        assert row == [bind(size, {"batch": batch, "length": length}) for batch, length in points]


@given(st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=4), st.integers(-(2**40), 2**40))
def test_numbers_of_any_size_stay_exact(sizes: list[int], factor: int) -> None:
    from irscope.ir.dims import dim_max, floordiv, mod, symbol

    n = symbol("n", None)
    formulas = [n * n * factor + n, dim_max(n * 3, -n), floordiv(n * factor, 7) + mod(n, 1000)]
    rows = Evaluator({"n": sizes}).rows(formulas)
    for formula, row in zip(formulas, rows.tolist(), strict=True):
        assert row == [bind(formula, {"n": size}) for size in sizes]


# One peak, and it adds up: the headline, its parts, what is alive at it, charts and exports say the same number everywhere.

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


@pytest.mark.slow
@given(programs(), st.sampled_from(SETTINGS), st.sampled_from(("ssa", "eager", "jit", "ort")))
def test_random_programs(program: Program, settings: Settings, lifetimes: str) -> None:
    check(Manager(program, settings=settings), lifetimes)
