"""Schedules and plans of any model: the order is valid, the peak is the one that liveness finds afterwards, no two buffers share a byte."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from irscope.ir.bind import bind_program
from irscope.ir.program import EXPORTED, TORCHSCRIPT, Program, Traits
from irscope.ir.verify import verify
from irscope.passes.lifetimes.lives import read_values
from irscope.passes.liveness import Liveness
from irscope.passes.order.effects import Effects
from irscope.passes.order.plan import Plan
from irscope.passes.order.schedule import Schedule, Scheduled, ScheduleModel
from irscope.passkit.manager import Manager
from irscope.solvers.order.problem import OrderProblem
from irscope.solvers.order.solve import LatencyLimit, best_order
from tests.property.strategies import tensor_programs
from tests.property.symbolic_models import symbolic_models
from tests.property.test_ordering_properties import problems

models = st.sampled_from(["ssa", "jit", "eager"])


@st.composite
def numeric_programs(draw: st.DrawFn) -> Program:
    """Models whose sizes are all numbers."""
    program = draw(tensor_programs(max_nodes=25) | symbolic_models())
    bind_program(program, {str(symbol): size for symbol, size in zip(program.symbols, (3, 5, 2, 1), strict=False)})
    program.traits = draw(st.sampled_from([EXPORTED, TORCHSCRIPT, Traits()]))
    return program


def scheduled(program: Program, model: ScheduleModel = "ssa") -> Scheduled:
    return Manager(program).get(Schedule(model=model, seconds=1))


@given(numeric_programs(), models)
def test_the_peak_as_written_is_that_of_liveness(program: Program, model: ScheduleModel) -> None:
    found = scheduled(program, model)
    assert found.ordering.as_written == Manager(program).get(Liveness(model=model)).peak
    assert found.ordering.bound <= found.ordering.peak <= found.ordering.as_written


@given(numeric_programs())
def test_every_edge_of_values_and_effects_is_kept(program: Program) -> None:
    found = scheduled(program)
    place = {node: at for at, node in enumerate(found.nodes)}
    assert set(place) == set(program.graph)
    for node in program.graph:
        for value in read_values(node):
            maker = value.node
            assert maker not in place or maker is node or place[maker] < place[node]
    for edge in Manager(program).get(Effects()).edges:
        assert place[edge.before] < place[edge.after]


@given(numeric_programs())
def test_after_reordering_liveness_finds_the_peak_that_was_predicted(program: Program) -> None:
    manager = Manager(program)
    expected = manager.get(Schedule(seconds=1)).ordering
    (changed,) = manager.run("reorder{seconds=1}")
    assert changed.value == (expected.peak < expected.as_written)
    verify(program)
    assert Manager(program).get(Liveness(model="ssa")).peak == expected.peak


@given(numeric_programs(), st.sampled_from([1, 64, 256]), st.sampled_from(["written", "scheduled"]))
def test_no_two_buffers_alive_at_once_share_a_byte(program: Program, alignment: int, order: str) -> None:
    planned = Manager(program).get(Plan(alignment=alignment, seconds=0.2, order=order))  # type: ignore[arg-type]
    assert planned.max_live <= planned.arena
    placed = list(zip(planned.buffers, planned.plan.offsets, strict=True))
    alive: dict[int, int] = {}
    for at, (one, offset) in enumerate(placed):
        assert offset % alignment == 0 and offset + one.size <= planned.arena
        for step in range(one.lower, one.upper):
            alive[step] = alive.get(step, 0) + one.size
        for other, below in placed[:at]:
            if one.lower < other.upper and other.lower < one.upper:
                assert offset + one.size <= below or below + other.size <= offset
    assert max(alive.values(), default=0) == planned.max_live


@given(problems(most=20), st.data())
@settings(max_examples=40)
def test_an_order_within_a_limit_of_latency_takes_no_longer(problem: OrderProblem, data: st.DataObject) -> None:
    seconds = [data.draw(st.integers(0, 4)) for _ in range(len(problem))]
    limit = LatencyLimit(problem, seconds, data.draw(st.sampled_from([0.0, 0.05, 0.5])))
    found = best_order(problem, seconds=0.5, limit=limit)
    assert problem.is_valid(found.order) and found.bound <= found.peak <= found.as_written
    assert limit.length(found.order) <= limit.as_written * (1 + limit.share) + 1e-6
    earliest = limit.earliest()
    assert problem.is_valid(earliest)
    assert limit.length(earliest) <= limit.length(found.order) + 1e-6
    assert abs(limit.critical_path - longest_path(problem, seconds)) < 1e-6


def longest_path(problem: OrderProblem, seconds: list[int]) -> float:
    """The critical path, worked out node by node."""
    ends: list[float] = []
    for op, before in enumerate(problem.before):
        ends.append(seconds[op] + max((ends[one] for one in before), default=0.0))
    return max(ends, default=0.0)
