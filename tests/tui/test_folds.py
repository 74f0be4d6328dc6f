"""Modules that are built alike stand in one row until somebody opens it."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from irscope.tui.app import IrscopeApp
from irscope.tui.browse.model import Browse
from irscope.tui.browse.outline import find_folds
from irscope.tui.text import ASCII, UNICODE, text_of
from tests.tui.driving import driven, press, screen_text
from tests.tui.models import EMPTY, NESTED, browse


def layers(count: int, odd: int = -1) -> str:
    """So many layers alike; one of them may be another."""
    lines = ["irscope 1", "graph @main {", "  input %x: f32[4,8]", "  param %w: f32[8,8]"]
    before = "%x"
    for number in range(count):
        op = "nn.gelu" if number == odd else "nn.relu"
        lines.append(f"  %a{number}: ?[*] = nn.linear({before}, %w) @net/layers/{number}/fc")
        lines.append(f"  %b{number}: ?[*] = {op}(%a{number}) @net/layers/{number}")
        before = f"%b{number}"
    return "\n".join([*lines, f"  return {before}", "}", ""])


def folded(text: str) -> Browse:
    """The model of a text with its modules folded."""
    shown = browse(text)
    assert shown.results.folds is not None
    shown.fold(shown.results.folds)
    return shown


def names(shown: Browse) -> list[str]:
    """The names of the rows that are shown."""
    return [shown.outline.items[row].name for row in shown.tree.visible.tolist()]


def test_alike_modules_are_found() -> None:
    folds = find_folds(browse(layers(12)).outline)
    assert folds.count.tolist() == [12]
    assert int(folds.leader[0]) == 2


def test_one_that_differs_ends_a_run() -> None:
    assert find_folds(browse(layers(9, odd=4)).outline).count.tolist() == [4, 4]
    assert find_folds(browse(layers(4, odd=2)).outline).count.tolist() == []


@pytest.mark.parametrize("text", [EMPTY, NESTED])
def test_models_without_such_modules_stay_as_they_are(text: str) -> None:
    shown = browse(text)
    before = shown.tree.visible.tolist()
    shown.fold(find_folds(shown.outline))
    assert shown.tree.visible.tolist() == before


def test_a_run_is_one_row_with_the_sum_of_its_modules() -> None:
    shown = folded(layers(12))
    assert names(shown) == ["net", "layers", "0"]
    line = text_of(shown.table.row_line(2, 100, selected=False))
    whole = text_of(shown.table.row_line(0, 100, selected=False))
    assert "0-11 × 12" in line
    assert line.split()[-2:] == whole.split()[-2:]
    assert "12 modules built alike" in "".join(text_of(line) for line in select(shown, 2).detail())


def select(shown: Browse, row: int) -> Browse:
    shown.select(row)
    return shown


def test_opening_shows_all_and_closing_brings_them_together() -> None:
    shown = folded(layers(5))
    shown.tree.toggle(2)
    assert names(shown) == ["net", "layers", "0", "1", "2", "3", "4"]
    assert shown.tree.fold(shown.tree.row(4)) == 2
    assert names(shown) == ["net", "layers", "0"]
    assert shown.tree.fold(0) is None


def test_expanding_and_collapsing_everything() -> None:
    shown = folded(layers(3))
    shown.tree.expand_all()
    # The module fc of each layer is one row with its node.
    assert len(shown.tree) == len(shown.outline) - 3
    shown.tree.collapse_all()
    assert names(shown) == ["net"]


def test_a_filter_looks_into_every_module() -> None:
    shown = folded(layers(6))
    shown.set_filter("op:linear")
    assert shown.tree.matches == 6
    assert len(shown.tree) == 2 + 6 * 2
    shown.set_filter("")
    # What is selected now is inside the first module, which therefore stays open.
    assert names(shown) == ["net", "layers", "0", "a0", "b0", "1", "2", "3", "4", "5"]


def test_going_into_a_module_opens_its_run() -> None:
    shown = folded(layers(6))
    shown.reveal(shown.outline.row_of[list(shown.program.graph)[7]])
    assert shown.tree.is_visible(shown.selected)
    assert "3" in names(shown)


@driven(layers(8), symbols=UNICODE)
async def test_keys_open_and_close_a_run(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "down", "down")
    assert "× 8" in screen_text(app)
    await press(app, pilot, "right")
    assert "× 8" not in screen_text(app)
    assert app.browse.row_name(app.browse.selected) == "net/layers/0"
    await press(app, pilot, "down", "left")
    assert "× 8" in screen_text(app)
    assert app.browse.row_name(app.browse.selected) == "net/layers/0"
    await press(app, pilot, "left")
    assert app.browse.row_name(app.browse.selected) == "net/layers"


def test_in_plain_ascii() -> None:
    shown = folded(layers(4))
    shown.table.symbols = ASCII
    assert text_of(shown.table.row_line(2, 80, selected=True)).isascii()
