"""The app itself, driven by keys: what is selected, filtered, shown and copied; and lines as widgets draw them."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable
from typing import cast

import pytest
from textual.fuzzy import Matcher
from textual.pilot import Pilot
from textual.widgets import Input

from irscope.errors import PassError
from irscope.passkit.manager import Manager
from irscope.tui.actions import screen_record
from irscope.tui.app import IrscopeApp
from irscope.tui.browse.screen import BrowseScreen
from irscope.tui.results import Names
from irscope.tui.session import Request, Session
from irscope.tui.text import ASCII, UNICODE, text_of
from irscope.tui.widgets.charts import TimelinePane
from irscope.tui.widgets.dialogs import TextDialog
from irscope.tui.widgets.paint import DetailPane, TextPane
from irscope.tui.widgets.table import OutlineTree
from tests.tui.driving import LARGE, SMALL, drive, driven, press, screen_text, selected, settle
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS, model


async def nothing(app: IrscopeApp, pilot: Pilot[None]) -> None:
    """Just look."""


@pytest.mark.parametrize("size", [SMALL, LARGE, (200, 60)])
@driven(TWO_LAYERS)
async def test_the_screen_shows_tree_details_timeline_and_totals(app: IrscopeApp, pilot: Pilot[None], size: tuple[int, int]) -> None:
    shown = screen_text(app)
    for part in ("two.irs", "33,024 parameters", "264.45 KFLOPs", "block", "nn.linear", "f32[4,256]", "module block", "▼ peak", "Quit"):
        assert part in shown
    assert app.browse.results.finished


def test_the_first_paint_waits_for_no_analysis() -> None:
    opened = model(TWO_LAYERS)
    gate = threading.Event()
    get = opened.manager.get

    def slow_get(wanted: object) -> object:
        assert gate.wait(30)
        return get(wanted)  # type: ignore[call-overload]

    opened.manager.get = slow_get  # type: ignore[method-assign, assignment]

    async def run() -> None:
        app = IrscopeApp(opened, UNICODE)
        async with app.run_test(size=SMALL) as pilot:
            await pilot.pause()
            shown = screen_text(app)
            assert "nn.linear" in shown
            assert "FLOPs …" in shown
            gate.set()
            await settle(app, pilot)
            assert "264.45 KFLOPs" in screen_text(app)

    asyncio.run(run())


@pytest.mark.slow
@driven(TWO_LAYERS, size=SMALL)
async def test_moving_expanding_and_collapsing(app: IrscopeApp, pilot: Pilot[None]) -> None:
    assert selected(app) == "block"
    # fc1 is one row with its node.
    await pilot.press("down")
    assert selected(app) == "hidden"
    await pilot.press("j")
    assert selected(app) == "active"
    await pilot.press("left")
    assert selected(app) == "block"
    await pilot.press("left")
    assert len(app.browse.tree) == 2
    await pilot.press("right", "right")
    assert selected(app) == "hidden"
    await pilot.press("end")
    assert selected(app) == "y"
    await pilot.press("pageup")
    assert selected(app) == "block"
    await pilot.press("minus")
    assert len(app.browse.tree) == 2
    await pilot.press("asterisk")
    assert len(app.browse.tree) == 5
    await pilot.press("enter")
    assert len(app.browse.tree) == 2
    await pilot.press("home", "up", "up")
    assert selected(app) == "block"


@driven(TWO_LAYERS, size=SMALL)
async def test_collapsing_everything_selects_what_is_left(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await pilot.press("down", "down", "minus")
    assert selected(app) == "block"
    assert "module block" in text_of(app.screen.query_one(DetailPane).lines[0])


@driven(TWO_LAYERS, size=SMALL)
async def test_details_follow_the_selection(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await pilot.press("down")
    assert text_of(app.screen.query_one(DetailPane).lines[0]) == "nn.linear  %hidden"
    await pilot.press("d")
    assert not app.screen.query_one(DetailPane).display
    await pilot.press("d")
    assert app.screen.query_one(DetailPane).display


@pytest.mark.slow
@driven(TWO_LAYERS, size=SMALL)
async def test_filtering_as_one_types(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await pilot.press("slash", *"relu")
    assert app.browse.tree.matches == 1
    assert selected(app) == "active"
    await pilot.press("enter")
    assert isinstance(app.focused, OutlineTree)
    assert "filter relu: 1 node" in screen_text(app)
    await pilot.press("escape")
    assert app.browse.tree.matches is None
    await pilot.press("slash", *"linear", "escape")
    assert app.browse.tree.matches is None
    assert isinstance(app.focused, OutlineTree)


@driven(TWO_LAYERS, size=SMALL)
async def test_a_wrong_filter_is_explained(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "slash", *"mem>x")
    assert "is not an amount of memory" in screen_text(app)
    await pilot.press("enter")
    assert app.browse.tree.matches is None


@pytest.mark.slow
@driven(TWO_LAYERS, size=SMALL)
async def test_a_filter_that_matches_nothing_says_so(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await pilot.press("slash", *"zzz", "enter", "down", "up", "enter", "right", "left", "pagedown", "end")
    assert "Nothing matches the filter." in screen_text(app)


@pytest.mark.slow
@driven(SYMBOLIC, size=SMALL)
async def test_putting_in_sizes(app: IrscopeApp, pilot: Pilot[None]) -> None:
    assert "66.11 KFLOPs x batch" in screen_text(app)
    await pilot.press("c", *"batch=0", "enter")
    assert "cannot be 0" in screen_text(app)
    assert app.browse.results.binding.env == {}
    await pilot.press("backspace", "4", "enter")
    assert "264.45 KFLOPs" in screen_text(app)
    assert "two.irs · batch=4 · h200" in screen_text(app)


@driven(TWO_LAYERS, size=SMALL)
async def test_a_model_without_symbols_needs_no_sizes(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await pilot.press("c")
    assert not isinstance(app.focused, Input)


@driven(TWO_LAYERS, size=SMALL)
async def test_going_to_the_peak_and_along_the_timeline(app: IrscopeApp, pilot: Pilot[None]) -> None:
    timeline = app.browse.results.timeline
    assert timeline is not None
    await pilot.press("minus", "p")
    assert app.browse.step == timeline.peak
    app.screen.query_one(TimelinePane).focus()
    await pilot.press("home")
    assert selected(app) == "hidden"
    await pilot.press("right")
    assert selected(app) == "active"
    await pilot.press("L")
    assert selected(app) == "y"
    await pilot.press("shift+left", "left")
    assert selected(app) == "hidden"
    await pilot.press("end")
    assert selected(app) == "y"


@driven(TWO_LAYERS, size=SMALL)
async def test_clicks_select_rows_and_steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await pilot.click(OutlineTree, offset=(5, 2))
    assert selected(app) == "hidden"
    await pilot.click(OutlineTree, offset=(5, 0))
    assert selected(app) == "hidden"
    width = app.screen.query_one(TimelinePane).size.width
    await pilot.click(TimelinePane, offset=(width - 3, 3))
    assert selected(app) == "y"
    await press(app, pilot, "2")
    await pilot.hover("#stack", offset=(60, 10))
    assert re.search(r"step \d+: ~?[\d.]+ \w+, \w+ ~?[\d.]+ \w+ ", screen_text(app)), "the band under the pointer is named"
    await pilot.hover("#alive")
    assert "steps 0 to" in screen_text(app)


@pytest.mark.slow
@driven(FOREIGN, size=SMALL)
async def test_help_remarks_and_command_open_and_close(app: IrscopeApp, pilot: Pilot[None]) -> None:
    for key, title in (("question_mark", "Keys"), ("w", "Remarks"), ("y", "On the command line")):
        await pilot.press(key)
        dialog = app.screen
        assert isinstance(dialog, TextDialog)
        assert dialog.heading == title
        assert title in screen_text(app)
        await pilot.press("down", "up", "escape")
        assert isinstance(app.screen, BrowseScreen)


@driven(TWO_LAYERS, size=SMALL)
async def test_the_command_is_copied(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await pilot.press("y")
    assert app.clipboard == "irscope run 'some folder/two.irs' --passes params,flops,liveness"


@pytest.mark.slow
@driven(TWO_LAYERS, size=SMALL)
async def test_a_pane_can_fill_the_screen(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await pilot.press("z")
    assert app.screen.maximized is app.screen.query_one("#modules")
    await pilot.press("escape")
    assert app.screen.maximized is None
    for pane in (DetailPane, TimelinePane):
        await pilot.press("tab", "z")
        assert app.screen.maximized is app.screen.query_one(pane)
        await pilot.press("z")
        assert app.screen.maximized is None


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
def test_leaving_stops_the_analyses(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = model(TWO_LAYERS)
    stopped: list[str] = []

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        monkeypatch.setattr(opened.manager.cancelled, "set", lambda: stopped.append(key))
        await pilot.press(key)

    assert not drive(opened, steps, size=SMALL).is_running
    assert stopped


def test_ctrl_c_leaves_from_inside_a_prompt() -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", "q", "ctrl+c")

    assert drive(model(TWO_LAYERS), steps, size=SMALL).browse.filter_text == "q"


@driven(TWO_LAYERS, size=SMALL)
async def test_q_is_a_letter_while_typing(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await pilot.press("slash", "q", "question_mark")
    assert app.browse.filter_text == "q?"


@pytest.mark.slow
@pytest.mark.parametrize("text", [EMPTY, FOREIGN, HOSTILE, NESTED], ids=["empty", "foreign", "hostile", "nested"])
@driven(size=SMALL)
async def test_it_works_over_anything_at_any_size(app: IrscopeApp, pilot: Pilot[None], text: str) -> None:
    await pilot.press("down", "end", "left", "enter", "p", "z", "w", "escape", "z")
    for size in ((1, 1), (20, 5), LARGE, (79, 15), SMALL):
        await pilot.resize_terminal(*size)
        assert all(character.isprintable() or character == "\n" for character in screen_text(app))


@driven(TWO_LAYERS, symbols=ASCII, size=SMALL)
async def test_plain_ascii(app: IrscopeApp, pilot: Pilot[None]) -> None:
    tree, timeline = app.screen.query_one(OutlineTree), app.screen.query_one(TimelinePane)
    for widget in (tree, timeline, app.screen.query_one(DetailPane)):
        assert all(widget.render_line(y).text.isascii() for y in range(widget.size.height))


def test_without_colour_selection_and_focus_still_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        assert app.no_color
        assert "▌▾ block" in screen_text(app)
        assert "━" in screen_text(app)

    drive(model(TWO_LAYERS), steps, size=SMALL)


def test_a_pass_that_raises_leaves_the_rest_alone() -> None:
    opened = model(TWO_LAYERS)
    get = Manager.get

    def broken(wanted: object) -> object:
        if getattr(wanted, "name", "") == "flops":
            raise PassError("pass 'flops' failed: it broke", hint="reproduce it with: irscope repro x")
        return get(opened.manager, wanted)  # type: ignore[call-overload]

    opened.manager.get = broken  # type: ignore[method-assign, assignment]

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        shown = screen_text(app)
        assert "FLOPs ?" in shown
        assert "1 error (w)" in shown
        assert "▼ peak" in shown
        await pilot.press("w")
        assert "it broke" in screen_text(app)

    drive(opened, steps, size=SMALL)


@driven(TWO_LAYERS, size=SMALL)
async def test_stale_answers_change_nothing(app: IrscopeApp, pilot: Pilot[None]) -> None:
    names = app.browse.results.names
    old = Session(model(TWO_LAYERS), UNICODE)
    app.take_answer(old, Request("names", nothing_at_all, app.session._take, print), Names({}))  # type: ignore[arg-type]
    app.post_message(IrscopeApp.Progressed(old, "old progress"))
    await pilot.pause()
    assert app.browse.results.names is names
    assert "old progress" not in screen_text(app)


def nothing_at_all() -> None:
    """The answer to a question that nobody asked."""


def test_instruments_of_the_command_line_are_silent_and_come_back() -> None:
    opened = model(TWO_LAYERS)
    mine = object()
    opened.manager.instruments.append(mine)  # type: ignore[arg-type]  # any call on it would raise
    drive(opened, nothing)
    assert opened.manager.instruments == [mine]


@pytest.mark.slow
def test_only_visible_lines_are_drawn() -> None:
    lines = "\n".join(f"  %v{number + 1}: ?[*] = nn.relu(%v{number})" for number in range(3000))
    opened = model(f"irscope 1\ngraph @main {{\n  input %v0: f32[2]\n{lines}\n  return %v3000\n}}\n")

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        tree = app.screen.query_one(OutlineTree)
        assert tree.virtual_size.height == 3001
        assert not tree.children
        await pilot.press("end")
        drawn = [tree.render_line(y).text for y in range(tree.size.height)]
        assert drawn[0].startswith(" module / operator")
        assert "%v3000" in drawn[-1]
        assert drawn[-1].startswith("▌")
        assert len(tree._strips) < 100

    drive(opened, steps, size=SMALL)


@driven(HOSTILE, size=LARGE)
async def test_every_drawn_line_has_the_width_of_its_widget(app: IrscopeApp, pilot: Pilot[None]) -> None:
    for widget in (app.screen.query_one(OutlineTree), app.screen.query_one(TimelinePane), app.screen.query_one(TextPane)):
        for y in range(widget.size.height):
            assert widget.render_line(y).cell_length == widget.size.width


@driven(TWO_LAYERS, size=SMALL)
async def test_the_palette_offers_what_the_keys_do(app: IrscopeApp, pilot: Pilot[None]) -> None:
    titles = {command.title for command in app.get_system_commands(app.screen)}
    assert {"Filter", "Peak", "Copy", "Help", "Quit", "Browse", "Expand all"} <= titles
    helps = {command.title: command.help for command in app.get_system_commands(app.screen)}
    assert helps["Filter"].startswith("/   ") and helps["Peak"].startswith("p   "), "each says its keys"


ASKED = (
    ("does it fit", "Does it fit", "2", "Device"),
    ("what holds the peak", "What holds the peak", "2", "Alive at step"),
    ("why alive", "why is it alive", "2", "why alive"),
    ("find NaN", "Find NaN", "3", "Parameters"),
)
"""What is typed, what is offered first, the screen that answers, and what stands there."""


@driven(SYMBOLIC)
async def test_questions_are_found_and_answered_from_every_screen(app: IrscopeApp, pilot: Pilot[None]) -> None:
    for screen in "12345678":
        for typed, offered, answers, text in ASKED:
            await press(app, pilot, screen)
            matcher = Matcher(typed)
            best = max(app.get_system_commands(app.screen), key=lambda command: matcher.match(command.title))
            assert offered in best.title and best.help.startswith(f"{answers}, then ")
            await cast("Awaitable[None]", best.callback())
            await settle(app, pilot)
            shown = app.model_screen
            assert shown is not None and screen_record(shown.NAME).key == answers
            assert text in screen_text(app)
            if app.screen is not shown:
                await press(app, pilot, "escape")


@driven(TWO_LAYERS)
async def test_a_question_is_typed_after_a_colon(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "8", "colon")
    await pilot.press(*"holds")
    await pilot.pause(0.5)
    assert "What holds the peak" in screen_text(app)
