"""What people come for, by the keys that docs/tui.md says, in at most six of them, at three sizes of the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from irscope.session import open_model
from irscope.tui.app import IrscopeApp
from irscope.tui.widgets.paint import Prompt
from tests.tui.driving import HUGE, LARGE, SMALL, drive, press, screen_text
from tests.tui.test_params import odd_model
from tests.unit.weights.test_differences import changed

SAMPLES = Path(__file__).parents[2] / "samples"
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE, HUGE])


def first_lines(app: IrscopeApp, count: int = 10) -> str:
    """What is read first."""
    return "\n".join(screen_text(app).splitlines()[:count])


@SIZES
def test_which_layer_costs_most_time_and_what_differs_from_the_recording(size: tuple[int, int]) -> None:
    """Keys: 4; and 6, o, the file, enter."""

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "4")
        lines = first_lines(app).splitlines()
        at = next(place for place, line in enumerate(lines) if "Cost by layer" in line)
        cost = app.session["cost"]
        assert cost.groups is not None
        slowest = max(cost.groups, key=lambda group: group.seconds)
        assert slowest.name in lines[at + 2] and "%" in lines[at + 2]
        await press(app, pilot, "6", "o")
        app.screen.query_one("#other", Prompt).value = str(SAMPLES / "recordings" / "cnn_onnx.ort-cpu.jsonl")
        await press(app, pilot, "enter")
        assert "nodes off by more than 1%, most " in first_lines(app)

    drive(open_model(SAMPLES / "models" / "cnn.onnx"), steps, size=size)


@SIZES
def test_a_nan_is_found_and_the_weights_that_changed(size: tuple[int, int], tmp_path: Path) -> None:
    """Keys: 3, V; and 3, o, the file, enter."""
    (tmp_path / "two").mkdir()
    _, after = changed(tmp_path / "two")

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "3", "V")
        lines = first_lines(app).splitlines()
        assert any("1 NaN, 1 Inf, 1 all zero" in line for line in lines)
        assert any("bad " in line and "1 NaN" in line for line in lines)
        await press(app, pilot, "o")
        app.screen.query_one("#other", Prompt).value = after
        await press(app, pilot, "enter")
        assert "0 weights in both: " in first_lines(app) and "only in A" in first_lines(app)

    drive(odd_model(tmp_path), steps, size=size)
