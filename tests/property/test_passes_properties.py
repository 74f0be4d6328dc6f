"""What must hold for every model and every pass: sound graphs, options, answers that do not depend on when symbols are bound."""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from irscope.errors import IrscopeError
from irscope.ir.bind import bind_program
from irscope.ir.dims import Dim, bind
from irscope.ir.parser import parse_program
from irscope.ir.printer import print_program
from irscope.ir.program import Program
from irscope.ir.types import TensorType, Type
from irscope.passes import PASSES
from irscope.passes.cost.flops import Flops
from irscope.passes.graph.transforms import Annotate, DeadCode, Fold
from irscope.passes.inference.shapes import Shapes
from irscope.passes.memory.liveness import Liveness
from irscope.passkit.base import Pass
from irscope.passkit.manager import Manager
from irscope.passkit.options import option_types
from irscope.passkit.registry import default_registry
from irscope.session import Model, open_model
from tests.property.strategies import tensor_programs
from tests.property.symbolic_models import symbolic_models
from tests.tools.difference import difference

# What must hold for every model: passes leave sound graphs, and answers do not depend on when symbols are bound.

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


@pytest.mark.slow
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


# Every pass takes every value that its options' types admit: it answers, or says in one line why not.

ROOT = Path(__file__).parents[2]
MODELS = ("samples/mlp.irs", "samples/models/control_flow.onnx")
_SEARCHES = ("seconds", "most_seconds")
"""How long a pass may search: anything more would only take longer."""


def values(name: str, type_: Any) -> st.SearchStrategy[Any]:
    """Values of an option, odd ones included."""
    origin, arguments = get_origin(type_), get_args(type_)
    if name in _SEARCHES:
        return st.sampled_from([-1.0, 0.0, 0.01, float("nan")])
    if origin is Annotated:
        return values(name, arguments[0])
    if origin in (Union, types.UnionType):
        return st.one_of([values(name, argument) for argument in arguments])
    if origin is tuple:
        return st.lists(values(name, arguments[0]), max_size=3).map(tuple)
    if origin is Literal:
        return st.sampled_from(arguments)
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        return st.sampled_from(list(type_))
    return {
        bool: st.booleans(),
        int: st.sampled_from([-(2**70), -1, 0, 1, 2, 3, 64, 2**31, 2**70]),
        float: st.sampled_from([-1.0, 0.0, 0.5, 1.0, 1e300, float("inf"), float("nan")]),
        Pass: st.sampled_from([DeadCode(), Fold(), Shapes()]),
        str: st.sampled_from(["", "h200", "x", "batch", "0", "50%", "24GiB", "\x1b[2J", "=1+1", "a" * 5000, "1,2", "ümläut"]),
        type(None): st.none(),
        Path: st.just(Path("nowhere")),
    }[type_]


@pytest.fixture(scope="module")
def models() -> list[Model]:
    return [open_model(ROOT / name) for name in MODELS]


@pytest.mark.parametrize("name", sorted(PASSES))
def test_options_of_a_pass(name: str, models: list[Model]) -> None:
    cls = default_registry().find(name)
    options = {key: values(key, type_) for key, type_ in option_types(cls).items()}
    needed = {field.name for field in fields(cls) if field.default is MISSING and field.default_factory is MISSING}

    @settings(max_examples=8, suppress_health_check=list(HealthCheck))
    @given(chosen=st.fixed_dictionaries({key: options.pop(key) for key in needed}, optional=options), which=st.sampled_from([0, 1]))
    def check(chosen: dict[str, Any], which: int) -> None:
        code = ""
        try:
            models[which].document(models[which].run([cls(**chosen)]))
        except IrscopeError as error:
            code = error.code
        assert code != "IRS500", f"{name}{chosen}"

    check()
