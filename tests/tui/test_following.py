"""From a node to those that read it and those that make its inputs, its card, the columns of the tree, and work that is stopped."""

from __future__ import annotations

import threading

import pytest
from textual.pilot import Pilot

from irscope.session import Model
from irscope.tui.app import IrscopeApp
from irscope.tui.browse.columns import BrowseColumn
from irscope.tui.text import text_of
from irscope.tui.widgets.dialogs import TextDialog
from tests.tui.driving import drive, driven, press, screen_text, selected, settle
from tests.tui.models import TWO_LAYERS, model
from tests.tui.test_filter import VIEWS


def card(app: IrscopeApp) -> str:
    return "\n".join(text_of(line) for line in app.browse.detail())


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_users_and_inputs_are_followed_and_history_leads_back(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "g", *"hidden", "enter", "u")
    assert selected(app) == "active"
    await press(app, pilot, "u", "u")
    assert selected(app) == "y"
    await press(app, pilot, "i")
    assert selected(app) == "back"
    await press(app, pilot, "left_square_bracket", "left_square_bracket")
    assert selected(app) == "back"


@driven(VIEWS.replace("nn.gelu(%w)", "math.add(%w, %a)").replace("f32[6] = math.add", "?[*] = math.add"))
async def test_one_of_several_users_is_chosen(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "g", *"a", "enter", "u")
    assert isinstance(app.screen, TextDialog)
    await press(app, pilot, "2")
    assert selected(app) == "b"


@pytest.mark.slow
def test_the_card_has_formula_storage_and_writers() -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "g", *"hidden", "enter")
        await pilot.pause(0.35)
        await settle(app, pilot)
        assert "= 2*x1*y0*y1 + y0*y1" in card(app)
        assert "sizes: " in card(app)

    drive(model(TWO_LAYERS), steps)

    async def sharing(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "g", *"v", "enter")
        assert "shares its storage with %a, %w" in card(app)
        assert "which is that of %a" in card(app)
        assert "written in place as %w" in card(app)

    drive(model(VIEWS), sharing)


@pytest.mark.parametrize(("number", "title", "share"), [(5, "known", "100.0%"), (6, "of FLOPs", "99.9%")])
@driven(TWO_LAYERS)
async def test_more_columns_for_the_tree(app: IrscopeApp, pilot: Pilot[None], number: int, title: str, share: str) -> None:
    await press(app, pilot, "o", str(number))
    assert title in screen_text(app)
    assert share in screen_text(app)


@driven(TWO_LAYERS)
async def test_a_column_of_a_report_can_be_chosen_again(app: IrscopeApp, pilot: Pilot[None]) -> None:
    app.session.report_columns.append(BrowseColumn("mine: made up", lambda source: None))
    await press(app, pilot, "o")
    assert "mine: made up" in screen_text(app)


@pytest.mark.slow
def test_stopped_work_is_not_said_to_run() -> None:
    opened = model(TWO_LAYERS)
    gate, entered = threading.Event(), threading.Event()
    get = opened.manager.get

    def slow_get(wanted: object) -> object:
        entered.set()
        gate.wait(20)
        opened.manager.check_cancelled()
        return get(wanted)  # type: ignore[call-overload]

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press_without_waiting(app, pilot)

    async def press_without_waiting(app: IrscopeApp, pilot: Pilot[None]) -> None:
        opened.manager.get = slow_get  # type: ignore[assignment]
        await pilot.press("2")
        app.model_screen.asked()  # type: ignore[union-attr]
        await pilot.press("m", "2", "3")
        await pilot.pause()
        entered.wait(20)
        await pilot.press("ctrl+x")
        gate.set()
        await settle(app, pilot)
        assert app.session.queue.is_idle
        assert "stopped on request" in screen_text(app)
        assert "computing" not in screen_text(app)

    drive(opened, steps)


def test_reading_values_ends_with_being_stopped() -> None:
    opened: Model = model(TWO_LAYERS)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "3", "V", "ctrl+x")
        assert not app.session["params"].is_reading

    drive(opened, steps)
