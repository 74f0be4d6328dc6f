"""What must hold for every model: passes leave sound graphs, and answers do not depend on when symbols are bound."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from irscope.ir.bind import bind_program
from irscope.ir.dims import Dim, bind
from irscope.ir.parser import parse_program
from irscope.ir.printer import print_program
from irscope.ir.program import Program
from irscope.ir.types import TensorType, Type
from irscope.passes.cost.flops import Flops
from irscope.passes.graph.transforms import Annotate, DeadCode, Fold
from irscope.passes.liveness import Liveness
from irscope.passes.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.property.strategies import tensor_programs
from tests.property.symbolic_models import symbolic_models
from tests.tools.difference import difference

bindings = st.fixed_dictionaries({"batch": st.integers(1, 9), "length": st.integers(1, 9)})


def copy_of(program: Program) -> Program:
    """The same program, sharing nothing."""
    return parse_program(print_program(program))


def shapes_by_name(program: Program) -> dict[str, Type]:
    """Inferred types of the results by name."""
    found = Manager(program).get(Shapes())
    return {value.name or "": type_ for value, type_ in found.types.items()}


def bound(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    return bind(dim, sizes) if not isinstance(dim, int) else dim


@given(symbolic_models(), bindings)
def test_binding_and_inferring_commute(program: Program, sizes: dict[str, int]) -> None:
    early = copy_of(program)
    bind_program(early, sizes)
    known = shapes_by_name(early)
    for name, type_ in shapes_by_name(program).items():
        other = known[name]
        assert isinstance(type_, TensorType) and isinstance(other, TensorType)
        assert type_.shape is not None and other.shape is not None
        assert [bound(dim, sizes) for dim in type_.shape] == list(other.shape), f"{name} with {sizes}\n{print_program(program)}"
        assert type_.dtype is other.dtype


@given(symbolic_models(), bindings)
def test_cost_and_peak_are_formulas_of_the_bound_numbers(program: Program, sizes: dict[str, int]) -> None:
    early = copy_of(program)
    bind_program(early, sizes)
    late, now = Manager(program), Manager(early)
    formula, number = late.get(Flops()).total, now.get(Flops()).total
    assert bound(formula.flops, sizes) == number.flops
    assert formula.read is not None and formula.written is not None
    assert (bound(formula.read, sizes), bound(formula.written, sizes)) == (number.read, number.written)
    assert bound(late.get(Liveness()).peak, sizes) == now.get(Liveness()).peak


@given(symbolic_models())
def test_the_peak_is_at_least_the_lower_bound_and_at_most_everything(program: Program) -> None:
    bind_program(program, {"batch": 3, "length": 5})
    timeline = Manager(program).get(Liveness())
    total = sum(one.size for one in timeline.ranges if isinstance(one.size, int))
    assert isinstance(timeline.peak, int)
    assert timeline.peak <= total
    for step, alive in enumerate(timeline.alive):
        assert alive == sum(one.size for one in timeline.ranges if one.born <= step <= one.dies and isinstance(one.size, int))


@given(tensor_programs() | symbolic_models())
def test_transforms_leave_sound_graphs_with_the_same_outputs(program: Program) -> None:
    manager = Manager(program, verify_each=True)
    manager.apply(Annotate())
    before = [value.type for value in program.graph.outputs]
    for transform in (Fold(), DeadCode(), Annotate()):
        manager.apply(transform)
    assert [value.type for value in program.graph.outputs] == before


@given(tensor_programs() | symbolic_models())
def test_dead_code_is_gone_after_one_run(program: Program) -> None:
    manager = Manager(program)
    manager.apply(DeadCode())
    text = print_program(program)
    assert not manager.apply(DeadCode())
    assert print_program(program) == text


@given(symbolic_models())
def test_analyses_change_nothing(program: Program) -> None:
    before = copy_of(program)
    Manager(program).run("shapes,stats,params,flops,liveness,verify")
    assert difference(before, program) is None
