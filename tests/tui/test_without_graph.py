"""The screens over a file of weights without a graph: what runs is unknown, not nothing."""

from __future__ import annotations

import pytest

from irscope.tui.models.browse import Browse
from irscope.tui.models.command import Source
from irscope.tui.models.memory import Memory
from irscope.tui.models.spans import text_of
from irscope.tui.models.symbols import UNICODE
from tests.tui.models import browse, model

WEIGHTS = "irscope 1\ngraph @main {\n  param %w: f32[4,4]\n  return %w\n}\n"


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> Browse:
    made = browse(WEIGHTS)
    made.program.has_graph = False
    return made


def test_the_header_says_that_cost_and_memory_are_unknown(weights: Browse) -> None:
    text = " ".join(text_of(line) for line in weights.header(200, 2))
    assert "no graph" in text and "16 parameters" in text and "? FLOPs" not in text.replace("FLOPs ?", "")
    assert "FLOPs ?" in text and "activation peak ?" in text and "0 FLOPs" not in text and "0 nodes" not in text


def test_an_empty_chart_says_why(weights: Browse) -> None:
    assert "no graph" in " ".join(text_of(line) for line in weights.timeline_lines(80, 5))


def test_nothing_is_said_to_be_alive() -> None:
    opened = model(WEIGHTS)
    opened.program.has_graph = False
    made = Memory(Browse(opened.program, Source("m.safetensors"), UNICODE))
    assert "Nothing" not in made.table.empty
