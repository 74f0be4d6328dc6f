"""What people come for, by the keys that docs/tui.md says, in at most six of them, at three sizes of the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from irscope.session import open_model
from irscope.tui.app import IrscopeApp
from irscope.tui.generation import run_of_generation
from irscope.tui.recording import run_of_recording
from irscope.tui.widgets.paint import Prompt
from tests.tui.driving import HUGE, LARGE, SMALL, drive, press, screen_text, selected
from tests.tui.models import TWO_LAYERS
from tests.tui.test_generation import generation
from tests.tui.test_params import odd_model
from tests.tui.test_recording import SIMULATED
from tests.unit.weights.test_differences import changed

SAMPLES = Path(__file__).parents[2] / "samples"
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE, HUGE])
FEW_SIZES = pytest.mark.parametrize("size", [SMALL, *(pytest.param(size, marks=pytest.mark.full) for size in (LARGE, HUGE))])


def first_lines(app: IrscopeApp, count: int = 10) -> str:
    """What is read first."""
    return "\n".join(screen_text(app).splitlines()[:count])


@pytest.mark.slow
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


@pytest.mark.slow
@FEW_SIZES
def test_the_peak_why_it_is_alive_batch_64_on_an_l4_what_saves_most_and_where_a_branch_goes(size: tuple[int, int]) -> None:
    """Keys: 2, p, and then tab, down, enter; c, batch=64, enter, D, l4, enter; 2, W; and 8, down."""

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "2", "p")
        memory = app.session["memory"]
        lines = screen_text(app).splitlines()
        step = memory.stack.peak
        assert f"device peak ~40.32 MiB at step {step}" in lines[2]
        assert any("Alive at step" in line and f"step {step} nn.batch_norm" in line for line in lines)
        largest, second = (next(line for line in lines if name in line) for name in ("cuBLAS workspace", "%relu "))
        assert "32.00 MiB" in largest and "kept from the first forward" in largest
        assert "3.06 MiB" in second and "held by" in second and "tagger.py:36" in second
        await press(app, pilot, "tab", "down", "enter")
        assert selected(app) == "relu"
        assert app.browse.outline.items[app.browse.selected].op == "nn.relu"
        # The card beside the tree is narrower, and breaks its lines elsewhere.
        assert "alive from step 1 to step 18" in screen_text(app) and "`wide`" in screen_text(app)
        await press(app, pilot, "c")
        app.screen.query_one("#sizes", Prompt).value = "batch=64"
        await press(app, pilot, "enter", "D", *"l4")
        assert "l4 22.03 GiB" in screen_text(app) and "type to filter" not in screen_text(app)
        await press(app, pilot, "enter")
        assert "batch=64 · l4 22.03 GiB" in first_lines(app) and "fits" in first_lines(app, 3)
        await press(app, pilot, "2", "W")
        found = memory.whatifs.table
        assert "half the width" in found.text(found.selected)
        assert found.text(found.selected).split("  ")[0][:14] in screen_text(app)
        await press(app, pilot, "escape", "8")
        graph = screen_text(app)
        await press(app, pilot, "down")
        assert "┊" in graph and screen_text(app) != graph and "[math.add add_1]" in screen_text(app)

    drive(open_model(SAMPLES / "tagger.irs"), steps, size=size)


@FEW_SIZES
def test_the_largest_batch_that_fits(size: tuple[int, int]) -> None:
    """Keys: 2, X."""

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "2", "X")
        assert f"the largest batch that fits: {app.session['memory'].largest.largest:,}" in first_lines(app)

    drive(open_model(SAMPLES / "mlp.irs"), steps, size=size)


@SIZES
def test_does_it_fit_on_an_l4_which_layer_is_slow_and_what_changed(size: tuple[int, int], tmp_path: Path) -> None:
    """Keys: D, l4, enter; 4; and 6, o, the file, enter."""
    (tmp_path / "last-week.irs").write_text(TWO_LAYERS.replace("nn.relu", "nn.gelu"))
    (tmp_path / "now.irs").write_text(TWO_LAYERS)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "D", *"l4", "enter")
        assert "l4 22.03 GiB" in first_lines(app, 2) and "fits" in first_lines(app, 3).splitlines()[2]
        await press(app, pilot, "4")
        lines = screen_text(app).splitlines()
        at = next(place for place, line in enumerate(lines) if "Cost by layer" in line)
        assert "roofline time" in lines[at] and "1.00 us" in lines[at + 2] and "25.0%" in lines[at + 2]
        await press(app, pilot, "6", "o")
        app.screen.query_one("#other", Prompt).value = str(tmp_path / "last-week.irs")
        await press(app, pilot, "enter")
        text = screen_text(app)
        assert "nodes that differ" in text and "gelu" in text and "relu" in text

    drive(open_model(tmp_path / "now.irs"), steps, size=size)


@SIZES
def test_where_the_bytes_of_the_cache_go_and_which_step_of_a_recording_is_worst(size: tuple[int, int]) -> None:
    """Keys: 7, down; and 7, down, with the peak in the header and marked on Memory."""

    async def cache(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "7", "down")
        text = screen_text(app)
        assert "the cache by layer, after the last token" in text and "2.00 MiB" in text and "grows" in text

    async def worst(app: IrscopeApp, pilot: Pilot[None]) -> None:
        assert "peak 35.00 MiB at event 3" in screen_text(app)
        await press(app, pilot, "7", "down")
        text = screen_text(app)
        assert "peak of each step" in text and any("2 to 3" in line and "40.00 MiB" in line for line in text.splitlines())

    drive([run_of_generation(generation())], cache, size=size)
    drive([run_of_recording(SIMULATED)], worst, size=size)
