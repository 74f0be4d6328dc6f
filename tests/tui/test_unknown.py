"""The screens over what is unknown: files of weights without a graph, and tensors without a size."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from irscope.passes.memory.liveness import Liveness
from irscope.tools.card import card
from irscope.tui.app import IrscopeApp
from irscope.tui.browse.model import Browse
from irscope.tui.command import Source
from irscope.tui.memory.model import Memory
from irscope.tui.memory.views import card_verdict
from irscope.tui.text import UNICODE, text_of
from tests.tui.driving import SMALL, drive, press
from tests.tui.models import browse, model
from tests.tui.test_memory import memory

WEIGHTS = "irscope 1\ngraph @main {\n  param %w: f32[4,4]\n  return %w\n}\n"


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> Browse:
    made = browse(WEIGHTS)
    made.program.has_graph = False
    return made


def test_the_header_says_that_cost_and_memory_are_unknown(weights: Browse) -> None:
    text = " ".join(text_of(line) for line in weights.header(200))
    assert "no graph" in text and "16 parameters" in text and "? FLOPs" not in text.replace("FLOPs ?", "")
    assert "FLOPs ?" in text and "peak ?" in text and "0 FLOPs" not in text and "0 nodes" not in text


def test_an_empty_chart_says_why(weights: Browse) -> None:
    assert "no graph" in " ".join(text_of(line) for line in weights.timeline_lines(80, 5))


@pytest.mark.parametrize("step", [1, 2])
def test_a_tensor_of_unknown_size_has_a_row_where_it_is_alive(step: int) -> None:
    made = memory(
        "irscope 1\ngraph @main {\n  input %x: f32[4,64]\n  %i: ?[*] = tensor.nonzero(%x)\n  %m: ?[*] = acme.mystery(%i)\n"
        "  %n: ?[*] = acme.mystery(%m)\n  return %n\n}\n"
    )
    made.go_to(step)
    rows = [made.table.text(row) for row in range(len(made.table))]
    assert any(row.startswith("%m") and "?" in row for row in rows)
    made.go_to(0)
    texts = {made.table.columns[0].text(row): made.table.text(row) for row in range(len(made.table))}
    assert "≤4.00 KiB" in texts["%i"], "at most every element is not zero"
    assert made.uncounted == 3


CHOSEN = "irscope 1\ngraph @main {\n  input %x: f32[4,64]\n  %y: ?[*] = tensor.nonzero(%x)\n  return %y\n}\n"


def test_a_peak_between_limits_is_shown_as_such() -> None:
    """At most 256 places of two numbers of 8 bytes."""
    opened = model(CHOSEN)
    found = opened.manager.get(Liveness()).peak_limits()
    assert found == (0, 4096)
    verdict = card_verdict(card(opened, device="h200"))
    assert verdict.fits is True
    assert "at most 5.00 KiB" in verdict.text
    assert verdict.amount.startswith("at least") and "unknown" not in verdict.text


def test_nothing_is_said_to_be_alive() -> None:
    opened = model(WEIGHTS)
    opened.program.has_graph = False
    made = Memory(Browse(opened.program, Source("m.safetensors"), UNICODE))
    assert "Nothing" not in made.table.empty


def test_a_file_of_weights_opens_on_parameters() -> None:
    opened = model(WEIGHTS)
    opened.program.has_graph = False

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        assert app.model_screen is not None and app.model_screen.NAME == "params"
        await press(app, pilot, "1", "3")

    drive(opened, steps, size=SMALL)
