"""What must hold for the storages, lifetimes and peaks of every model."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from irscope.ir.bind import bind_program
from irscope.ir.program import EXPORTED, FORMAT_TRAITS, Program, Traits
from irscope.passes.alias import Alias
from irscope.passes.liveness import Liveness
from irscope.passes.order.effects import Effects
from irscope.passes.ranges import Ranges
from irscope.passkit.manager import Manager
from tests.property.strategies import tensor_programs
from tests.property.symbolic_models import symbolic_models

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
        assert all(a <= b for (a, _), (b, _) in pairwise(one.uses))
