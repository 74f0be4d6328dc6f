"""The step of training on the memory screen: the bytes of the training pass, its phases and its peak."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from textual.pilot import Pilot

from irscope.cli.main import main
from irscope.report.table import total
from irscope.report.values import Provenance, Quantity
from irscope.session import Model
from irscope.tui.analyses import result_of
from irscope.tui.app import IrscopeApp
from irscope.tui.browse.model import Browse
from irscope.tui.command import Source, run_command
from irscope.tui.memory.lives import measured
from irscope.tui.memory.views import StepStack, step_drawing
from irscope.tui.memory.whatif import OF_TRAINING, Base
from irscope.tui.text import ASCII, PARTS, UNICODE, Symbols, text_of
from tests.tui.driving import LARGE, SMALL, drive, driven, press, screen_text, start_headless
from tests.tui.models import TWO_LAYERS

pytestmark = pytest.mark.torch


@cache
def captured() -> Model:
    """A step of a small network."""
    import torch
    from torch import nn

    import irscope

    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10))
    return irscope.capture_training(net, torch.zeros(16, 32), optimizer="adamw")


def stack() -> StepStack:
    """Its chart."""
    made = step_drawing(result_of(captured().manager, "training")).stack
    assert isinstance(made, StepStack)
    return made


def test_the_chart_adds_up_to_what_the_pass_says() -> None:
    found = result_of(captured().manager, "training")
    made = stack()
    assert made.total.tolist() == found.total.tolist()
    assert made.peak == found.peak_step
    assert {name for name, part in made.parts.items() if part[made.peak]} >= {"parameters", "optimizer state"}


@pytest.mark.slow
def test_header_chart_and_table_have_the_peak_of_the_step() -> None:
    opened = captured()
    found = result_of(opened.manager, "training")
    peak, live = found.counter("allocated").value, result_of(opened.manager, "liveness")
    whole = measured(live)
    assert whole is not None
    assert live.footprint.peak.value == peak == whole.heights.max() == sum(part for part in whole.parts.values()).max()
    step = int(whole.heights.argmax())
    assert step == found.peak_step and sum(int(one.size) for one in whole.living(step)) == peak
    reports = [opened.manager.run(name)[0].report() for name in ("training", "liveness", "explain-peak")]
    assert {report.summary["device_peak_bytes"].value for report in reports} == {peak}  # type: ignore[attr-defined]  # a Quantity
    parts = [report.summary["device_peak"] for report in reports]
    assert parts[0] == parts[1] == parts[2]
    for report in reports[:2]:
        table = next(one for one in report.tables if one.title == "alive at the peak")
        assert total(table.cells("size")) in (peak, Quantity(peak, Provenance.MODELLED))


def test_a_step_of_the_chart_is_a_node_of_the_graph() -> None:
    nodes = list(captured().program.graph)
    trace = result_of(captured().manager, "training").trace
    assert [node.source for node in nodes] == [op.source for op in trace.in_step(trace.steady)]


def test_the_backward_of_a_module_and_the_update_of_its_parameters_are_in_it() -> None:
    nodes = list(captured().program.graph)
    trace = result_of(captured().manager, "training").trace
    ops = trace.in_step(trace.steady)
    assert [node.scope.module for node in nodes] == [op.scope.module for op in ops]
    inside = {op.phase for node, op in zip(nodes, ops, strict=True) if node.scope.path == "2"}
    assert {"forward", "backward"} <= inside
    assert not any("#" in node.scope.path for node in nodes), "calls are counted from the step's begin"


def test_the_card_of_a_node_says_its_phase_and_that_a_gradient_is_one() -> None:
    opened = captured()
    shown = Browse(opened.program, Source("m"), UNICODE)
    nodes, row_of = list(opened.program.graph), shown.outline.row_of
    trace = result_of(opened.manager, "training").trace
    gradients = [
        (row_of[node], piece)
        for node, op in zip(nodes, trace.in_step(trace.steady), strict=True)
        for _, piece in op.makes
        if piece.category == "gradient"
    ]
    assert gradients
    for row, piece in gradients:
        shown.selected = row
        lines = [text_of(line) for line in shown.detail()]
        assert lines[1] == "phase  backward"
        assert lines[2].startswith(f"makes  {piece.name if piece.name.startswith('gradient') else f'gradient {piece.name}'}")


def test_phases_follow_one_another() -> None:
    made = stack()
    runs = list(made.stretches())
    assert [phase for _, _, phase in runs] == ["forward", "backward", "optimizer"]
    assert [end for _, end, _ in runs[:-1]] == [first for first, _, _ in runs[1:]]
    assert runs[0][0] == 0
    assert runs[-1][1] == len(made)


def test_the_phases_are_written_below_the_axis_where_they_begin() -> None:
    made = stack()
    lines = made.lines(120, 20, 3, UNICODE)
    below, margin = text_of(lines[-1]), made.margin()
    for first, _, phase in made.stretches():
        at = margin + made.column_of(first, 120 - margin)
        assert below[at:].startswith(f"│ {phase[:5]}")


@pytest.mark.slow
def test_checkpointing_lowers_the_peak_of_a_step_for_time() -> None:
    import torch
    from torch import nn

    import irscope

    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))]
    opened = irscope.capture_training(nn.Sequential(*layers), torch.zeros(65536, 64), optimizer="sgd")
    live = result_of(opened.manager, "liveness")
    whole = measured(live)
    assert whole is not None
    base = Base(opened.manager, "auto", live.steps, whole.heights, bool(whole.modelled))
    found = [one for one in OF_TRAINING["checkpointing"](base) if one is not None]
    assert found
    for one in found:
        assert one.peak.value == one.heights.max() == base.peak - one.saves.value  # type: ignore[operator]  # numbers
        assert "saved activations" in one.what and "more time a step" in one.cost


def test_a_rule_goes_up_where_a_phase_begins_and_covers_no_bytes() -> None:
    made = StepStack({"kept": np.array([1.0, 4.0, 2.0, 1.0])}, ["forward", "backward", "backward", "optimizer"])
    margin = made.margin()
    lines = [text_of(line)[margin:] for line in made.lines(margin + 40, 12, None, UNICODE)]
    bars = lines[1:-2]
    assert [line[30] for line in bars] == ["│"] * 6 + ["▂"] + ["█"] * 2
    # The peak's own line goes through its bytes, in its first column.
    assert [line[10:12] for line in bars] == ["│█"] * 9
    assert [line[20] for line in bars] == [" "] * 4 + ["▄"] + ["█"] * 4


def test_the_title_names_the_peak_and_its_phase() -> None:
    found = result_of(captured().manager, "training")
    title = step_drawing(found).title
    op = found.trace.in_step(found.trace.steady)[found.peak_step]
    assert f"in the {op.phase}" in title
    assert f"at step {found.peak_step} of" in title


@pytest.mark.parametrize("symbols", [UNICODE, ASCII])
@pytest.mark.parametrize("size", [(12, 2), (40, 7), (80, 12), (200, 40)])
def test_lines_have_the_size_asked_for(size: tuple[int, int], symbols: Symbols) -> None:
    made = stack()
    made.zoom(20, 0.3)
    lines = made.lines(*size, 20, symbols)
    assert len(lines) == size[1]
    assert all(len(text_of(line)) <= size[0] for line in lines)
    assert all(text_of(line).isascii() for line in lines) or symbols is UNICODE


def test_fills_tell_all_categories_apart() -> None:
    for symbols in (UNICODE, ASCII):
        assert len(set(symbols.fills)) == len(symbols.fills) == len(PARTS) >= len(stack().parts)


@driven(TWO_LAYERS)
async def test_other_models_are_not_offered_a_step(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "2")
    drawings = app.session["memory"].drawings
    assert drawings.view == "steps"
    assert "training" not in drawings.offered(has_sizes=True)


@pytest.mark.slow
def test_the_memory_screen_begins_with_the_step_and_all_screens_open() -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "2", "p")
        memory = app.session["memory"]
        shown = screen_text(app)
        for text in ("Step of training", "peak", "█ activations ", "│ backward", "│ optimizer", "training step, AdamW · input f32[16,32]"):
            assert text in shown, text
        assert memory.step == result_of(app.session.manager, "training").peak_step
        await press(app, pilot, "n", "plus", "minus", "0", "space", "right", "space", "r")
        total = memory.drawings.drawing.stack.total.tolist()
        await press(app, pilot, "r", "o", "o")
        assert memory.drawings.drawing.stack.total.tolist() == total and "by tensor" in screen_text(app)
        assert "│ backward" in screen_text(app)
        await press(app, pilot, "o", "W")
        assert "nothing lowers this peak" in screen_text(app)
        await press(app, pilot, "escape")
        assert "Step of training" in screen_text(app)
        for number in range(len(memory.drawings.offered(has_sizes=False))):
            await press(app, pilot, "v", str(number + 1))
            assert "this is a bug" not in screen_text(app)
        assert "Step of training" in screen_text(app)
        await press(app, pilot, "v", "1")
        assert "Step of training" not in screen_text(app)
        for key in ("1", "3", "4", "5", "7", "y", "escape", "ctrl+r", "1", "down", "enter"):
            await press(app, pilot, key)
            assert "this is a bug" not in screen_text(app)
            assert "Traceback" not in screen_text(app)

    drive(captured(), steps)


def test_a_peak_with_modelled_workspaces_has_the_sign() -> None:
    import torch
    from torch import nn

    import irscope

    plain = step_drawing(result_of(captured().manager, "training"))
    assert "~" not in plain.text + plain.title
    net = nn.Sequential(nn.Conv2d(32, 8, 3), nn.Flatten())
    drawn = step_drawing(result_of(irscope.capture_training(net, torch.zeros(2, 32, 16, 16)).manager, "training"))
    assert drawn.text.count("~") == 3 and drawn.title.startswith("device peak ~")


@pytest.mark.slow
def test_a_step_that_was_opened_by_name_says_its_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n\n\ndef build(batch=8):\n    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()), "
        "(torch.zeros(batch, 4),)\n"
    )
    found = start_headless(monkeypatch)
    assert main(["tui", "--train", f"{script}:build", "--bind", "batch=3", "--optimizer", "adamw", "--no-cache"]) == 0
    opened, step = found[0]
    monkeypatch.undo()

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        for size in (SMALL, LARGE):
            await pilot.resize_terminal(*size)
            assert "training step, AdamW · batch=3 · " in screen_text(app), size
        await press(app, pilot, "c", *"batch=4", "enter")
        assert "a captured training step cannot be read again" in screen_text(app)

    drive(opened, steps)
    source = Source(opened.program.path, bind=opened.options.bind, step=step)
    assert "train-plan --optimizer adamw" in run_command(source, "training") and "--bind batch=3" in run_command(source, "training")
