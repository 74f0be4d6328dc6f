"""Every pass takes every value that its options' types admit: it answers, or says in one line why not."""

from __future__ import annotations

import enum
import types
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from irscope.errors import IrscopeError
from irscope.passes import PASSES
from irscope.passes.graph.transforms import DeadCode, Fold
from irscope.passes.shapes import Shapes
from irscope.passkit.base import Pass
from irscope.passkit.options import option_types
from irscope.passkit.registry import default_registry
from irscope.session import Model, open_model

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
        return st.one_of([values(name, one) for one in arguments])
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
    needed = {one.name for one in fields(cls) if one.default is MISSING and one.default_factory is MISSING}

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
