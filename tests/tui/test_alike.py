"""Equal layers are one owner with the same name in charts by module, in costs, and in what is alive."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from irscope.report.names import fold_paths
from irscope.tui.app import IrscopeApp
from irscope.tui.recording import run_of_recording
from tests.tui import driving
from tests.tui.driving import LARGE, SMALL, driven, press, screen_text
from tests.tui.test_folds import layers
from tests.tui.test_recording import SIMULATED, event

LAYERS = 12


def test_numbered_modules_with_the_same_inside_have_one_name() -> None:
    names = [f"layers.{number}.{part}" for number in range(12) for part in ("attn", "mlp")]
    folded = fold_paths(dict.fromkeys(names, 1))
    assert set(folded.values()) == {"layers.0-11.attn", "layers.0-11.mlp"}
    # A block with something more in it is another one, and so is a module without others in it that holds something else.
    folded = fold_paths({"a/0/x": 1, "a/0/y": 1, "a/1/x": 1, "a/2/x": 1, "s/0": 5, "s/1": 6, "s/2": 5})
    assert folded["a/0/x"] == "a/0/x" and folded["a/1/x"] == folded["a/2/x"] == "a/1-2/x"
    assert set(fold_paths({f"model/layers.{number}/mlp": 1 for number in range(3)}).values()) == {"model/layers.0-2/mlp"}
    assert folded["s/0"] == folded["s/2"] == "s/0,2" and folded["s/1"] == "s/1"


@given(st.dictionaries(st.lists(st.sampled_from("ab0123"), min_size=1, max_size=5).map("/".join), st.integers(0, 2), max_size=30))
def test_folding_keeps_the_parts_that_are_no_numbers(paths: dict[str, int]) -> None:
    for path, name in fold_paths(paths).items():
        parts = zip(path.split("/"), name.split("/"), strict=True)
        assert all(one == other or one.isdecimal() for one, other in parts)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_recording_by_module_has_its_layers_as_one_owner(size: tuple[int, int]) -> None:
    events = tuple(
        event(4, 10 + 2 * number + at, scope=f"model.layers.{number}.{part}")
        for number in range(LAYERS)
        for at, part in enumerate(("attn", "mlp"))
    )
    run = run_of_recording(dataclasses.replace(SIMULATED, events=events))

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "o")
        stack = app.session.runs[0].stack
        assert stack is not None and {"model.layers.0-11.attn", "model.layers.0-11.mlp"} <= set(stack.parts)
        assert np.array_equal(stack.total, sum(stack.parts.values()))
        assert "layers.0-11.attn" in screen_text(app) and "other" not in stack.parts

    driving.drive([run], steps, size=size)


@driven(layers(LAYERS), size=LARGE)
async def test_costs_and_the_chart_of_a_model_have_its_layers_as_one_owner(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "4")
    cost = app.session["cost"]
    names = [group.name for group in cost.groups]
    assert "net/layers/0-11" in names and not any("layers/1/" in name or name.endswith("layers/3") for name in names)
    assert sum(group.count for group in cost.groups) == 2 * LAYERS
    assert sum(group.seconds for group in cost.groups) == pytest.approx(cost.found.times.total)
    assert "net/layers/0-11" in screen_text(app)
    await press(app, pilot, "2", "o")
    stack = app.session["memory"].stack
    assert any(name.startswith("net/layers/0-11") for name in stack.parts)
    assert not any("layers/3" in name for name in stack.parts)
