"""The graph: lines that can be followed, keys that walk along them, modules that open and close."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from irscope.report.printable import display_width
from irscope.tui.app import IrscopeApp
from irscope.tui.graph.canvas import Track, tracks_of
from irscope.tui.graph.model import GraphModel
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of
from irscope.tui.widgets.paint import DetailPane
from tests.tui.driving import HUGE, LARGE, SMALL, driven, press, screen_text, selected
from tests.tui.models import EMPTY, HOSTILE, NESTED, TWO_LAYERS, browse

BRANCHES = """irscope 1
graph @main {
  input %x: f32[4,64]
  param %w: f32[64,64]
  %a: f32[4,64] = nn.linear(%x, %w) @net/block0/left
  %b: f32[4,64] = nn.relu(%a) @net/block0
  %c: f32[4,64] = nn.linear(%x, %w) @net/block0/right
  %sum: f32[4,64] = math.add(%b, %c) @net/block0
  %d: f32[4,64] = nn.linear(%sum, %w) @net/block1/one
  %e: f32[4,64] = nn.linear(%d, %w) @net/block1/two
  %out: f32[4,64] = math.add(%e, %sum) @net/block1
  return %out
}
"""
"""Two branches that meet, then a residual around two nodes."""

column = st.integers(0, 30).map(lambda number: 2 * number)


@given(st.lists(st.builds(Track, column, column), max_size=12))
def test_lines_between_two_layers_do_not_run_over_one_another(lines: list[Track]) -> None:
    rows = tracks_of(lines)
    for line, row in zip(lines, rows, strict=True):
        assert (row < 0) == (line.begin == line.end)
        for other, its in zip(lines, rows, strict=True):
            if other.begin != line.begin and row == its >= 0:
                assert max(line) < min(other) or max(other) < min(line)


def test_what_begins_above_the_end_of_another_turns_before_it() -> None:
    assert tracks_of([Track(10, 2), Track(4, 10)]) == [0, 1]
    assert tracks_of([Track(4, 10), Track(10, 2)]) == [1, 0]
    assert tracks_of([Track(0, 8), Track(0, 4), Track(6, 6)]) == [0, 0, -1]


def shown(model: GraphModel, size: tuple[int, int] = (100, 40)) -> str:
    lines = model.lines(*size)
    assert len(lines) == size[1]
    assert all(display_width(text_of(line)) <= size[0] for line in lines)
    return "\n".join(text_of(line).rstrip() for line in lines)


def graph(text: str, row: int = 0, *, symbols: Symbols = UNICODE) -> GraphModel:
    made = GraphModel(browse(text, symbols=symbols))
    if not made.browse.is_empty:
        made.browse.reveal(row)
    made.follow()
    return made


def row_of(model: GraphModel, name: str) -> int:
    return next(row for row, item in enumerate(model.browse.outline.items) if getattr(item, "op", "") and item.name == name)


def test_around_a_node_stand_producers_above_and_consumers_below() -> None:
    made = graph(BRANCHES)
    made.browse.reveal(row_of(made, "sum"))
    made.follow()
    text = shown(made)
    order = [text.index(part) for part in ("(x)", "left]", "nn.relu b", "math.add sum", "one]")]
    assert order == sorted(order)
    assert "f32[4,64] " in text and "1.00 KiB" in text
    assert "block0" in text and "▌math.add sum]" in text
    lit = [line for line in made.lines(100, 40) if any(span.role == "mark" and "┃" in span.text for span in line)]
    assert lit, "what the node reads and makes is drawn heavy"


def test_lines_that_go_on_where_nothing_is_drawn_say_so() -> None:
    made = graph(BRANCHES)
    made.browse.reveal(row_of(made, "d"))
    made.follow()
    made.level(-1)
    text = shown(made)
    # At one hop neither what the sum reads is drawn, nor what reads out.
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if "math.add sum" in line)
    assert "┊ +2" in lines[at - 1], "left and right are not drawn"
    assert "nn.relu b" not in text and "(x)" not in text


def test_keys_walk_from_node_to_node_and_turn_at_branches() -> None:
    made = graph(BRANCHES)
    made.browse.reveal(row_of(made, "sum"))
    made.follow()
    shown(made)

    def name() -> str:
        return made.browse.outline.items[made.browse.selected].name

    assert made.walk(0, 1) and name() in ("d", "out")
    while name() != "out":
        assert made.walk(0, 1)
    assert made.walk(0, -1) and name() in ("e", "sum")
    made.is_whole = True
    made.take_whole(made.make_whole())
    made.browse.reveal(row_of(made, "a"))
    made.follow()
    shown(made)
    assert made.walk(1, 0) and name() == "c"
    assert made.walk(-1, 0) and name() == "a"
    assert made.walk(0, -1) and made.box is not None and made.box.name == "x"
    assert not made.walk(0, -1)


def test_hops() -> None:
    made = graph(BRANCHES)
    made.browse.reveal(row_of(made, "a"))
    made.follow()
    assert "2 hops" in made.title()
    assert shown(made) and "2 hops" not in made.title()  # a tall pane is filled
    made.level(1 - made.hops)
    sizes = []
    for _ in range(3):
        sizes.append(shown(made).count("["))
        made.level(1)
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
    assert "2 hops" in (made.level(-2) or made.title())


@pytest.mark.parametrize("symbols", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_the_whole_opens_and_closes_module_by_module(symbols: Symbols) -> None:
    made = graph(BRANCHES, symbols=symbols)
    made.is_whole = True
    made.take_whole(made.make_whole())
    made.revisit()
    for _ in range(4):
        made.level(-1)
    folded = shown(made)
    assert f"{symbols.collapsed} net" in folded and "block0" not in folded
    made.level(1)
    made.level(1)
    opened = shown(made)
    assert "math.add sum" in opened and folded != opened
    made.select(next(chip.box.number for chip in made.drawn.canvas.chips if chip.box.name == "b"))  # type: ignore[union-attr]
    assert made.toggle() == ""
    closed = shown(made)
    assert "nn.relu b" not in closed and "block0" in closed
    assert made.box is not None and made.box.name.endswith("block0")
    assert made.toggle() == ""
    assert "nn.relu b" in shown(made)
    assert ("#" if symbols is ASCII else "┃") in opened, "lines of the selected box are told apart without colour"
    if symbols is ASCII:
        assert opened.isascii() and folded.isascii()


@pytest.mark.parametrize("text", [EMPTY, HOSTILE, NESTED, TWO_LAYERS])
@pytest.mark.parametrize("size", [(10, 3), (60, 12), (150, 50)])
def test_any_model_is_drawn_in_any_size(text: str, size: tuple[int, int]) -> None:
    made = graph(text)
    for row in range(len(made.browse.outline)):
        made.browse.reveal(row)
        made.follow()
        assert all(character.isprintable() or character == "\n" for character in shown(made, size))
        for dx, dy in ((0, 1), (0, -1), (1, 0), (-1, 0)):
            made.walk(dx, dy)
        made.pan(3, -2)
    if not made.is_empty:
        made.is_whole = True
        made.take_whole(made.make_whole())
        for by in (1, 1, 1, -1, -1, -1):
            made.level(by)
            shown(made, size)


def test_a_large_drawing_that_is_left_is_made_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    made = graph(NESTED)
    made.is_whole = True
    made.take_whole(made.make_whole())
    made.level(1)
    before = shown(made)
    made.put_away()
    assert made.whole is not None
    monkeypatch.setattr("irscope.tui.graph.model.MOST_KEPT", 0)
    made.put_away()
    assert made.whole is None
    made.take_whole(made.make_whole())
    assert shown(made) == before


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, LARGE, HUGE], ids=["80x24", "120x40", "200x60"])
@driven(BRANCHES)
async def test_keys_and_mouse(app: IrscopeApp, pilot: Pilot[None], size: tuple[int, int]) -> None:
    await press(app, pilot, "g", *"sum", "enter", "8")
    assert "Around math.add %sum" in screen_text(app) and "block0" in screen_text(app)
    await press(app, pilot, "down")
    assert selected(app) in ("d", "out")
    await press(app, pilot, "up")
    assert selected(app) == "sum"
    await press(app, pilot, "up")
    chip = next(chip for chip in app.screen.model.drawn.canvas.chips if chip.box.name == "sum")  # type: ignore[attr-defined]
    model = app.screen.model  # type: ignore[attr-defined]
    await pilot.click("#graph-pane", offset=(chip.middle - model.left, chip.top - model.top))
    assert selected(app) == "sum"
    await press(app, pilot, "v")
    assert "Whole graph" in screen_text(app)
    await press(app, pilot, "v", "g", *"net/block1", "enter")
    assert "Around module net/block1" in screen_text(app)
    await press(app, pilot, "g", *"sum", "enter", "enter")
    assert app.screen.NAME == "browse" and selected(app) == "sum"  # type: ignore[attr-defined]
    # The card names the neighbours: keys and mouse follow them.
    await press(app, pilot, "tab", "right", "enter")
    assert selected(app) == "d"
    pane = app.screen.query_one("#detail", DetailPane)
    y, x, _, row = next(link for link in pane.links if app.browse.outline.items[link[3]].name == "sum")
    pane.scroll_to(y=y, animate=False, force=True, immediate=True)
    await pilot.pause()
    gutter = pane.content_region.offset - pane.region.offset
    await pilot.click(pane, offset=(x + gutter.x, y - pane.scroll_offset.y + gutter.y))
    assert app.browse.selected == row
