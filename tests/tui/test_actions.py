"""The action table against what it promises: handlers, help, and no key that means two things."""

from __future__ import annotations

from collections import Counter

import pytest
from textual.binding import Binding

from irscope.tui.actions import ACTIONS, PANE_TITLES, SCREENS, Action, actions_of, app_actions, bindings
from irscope.tui.app import IrscopeApp
from irscope.tui.screen import ModelScreen, help_lines, pane_titles, screen_actions, screen_class
from irscope.tui.text import ASCII, UNICODE, text_of
from irscope.tui.widgets.dialogs import TextDialog
from irscope.tui.widgets.paint import DetailPane, PromptLine
from tests.tables import every
from tests.tui.panes import PANE_OWNERS

COMMON: dict[str, type] = {
    "detail": DetailPane,
    "prompt": PromptLine,
    "screen": ModelScreen,
    "app": IrscopeApp,
    "dialog": TextDialog,
    **PANE_OWNERS,
}
NAMES = [record.name for record in SCREENS]


def owner_of(pane: str) -> type:
    return COMMON[pane] if pane in COMMON else screen_class(pane)


@every("action", screen_actions([record.name for record in SCREENS]), ids=lambda action: f"{action.pane}.{action.name}")
def test_every_action_has_a_handler_a_label_and_help(action: Action) -> None:
    assert hasattr(owner_of(action.pane), f"action_{action.name.partition('(')[0]}")
    assert action.label
    assert action.help.endswith(".")
    assert action.keys


@pytest.mark.parametrize("name", NAMES)
def test_owners_bind_exactly_what_the_table_says(name: str) -> None:
    actions = screen_actions([name])
    for pane in pane_titles([name]):
        if not list(actions_of(pane, actions)):
            continue
        owner = owner_of(pane)
        assert bindings(pane, actions) == owner.BINDINGS  # type: ignore[attr-defined]
        assert all(isinstance(binding, Binding) for binding in bindings(pane, actions))


@pytest.mark.parametrize("name", NAMES)
def test_every_pane_with_actions_has_a_title(name: str) -> None:
    assert {action.pane for action in screen_actions([name])} <= pane_titles([name]).keys()


@pytest.mark.parametrize("name", NAMES)
def test_no_key_means_two_things_in_one_place(name: str) -> None:
    actions = screen_actions([name])
    for pane in pane_titles([name]):
        counts = Counter(key for action in actions_of(pane, actions) for key in action.keys)
        assert [key for key, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_pane_hides_a_key_of_the_screen_or_the_app(name: str) -> None:
    actions = screen_actions([name])
    around = {key for owner in (name, "screen", "app") for action in actions_of(owner, actions) for key in action.keys}
    for pane in pane_titles([name]):
        if pane not in (name, "screen", "app", "dialog", "prompt", "pick", "form"):
            clash = around & {key for action in actions_of(pane, actions) for key in action.keys}
            assert (pane, clash) == (pane, set())


@pytest.mark.parametrize("name", NAMES)
def test_the_keys_of_the_app_and_the_screen_differ(name: str) -> None:
    actions = screen_actions([name])
    counts = Counter(key for owner in (name, "screen", "app") for action in actions_of(owner, actions) for key in action.keys)
    assert [key for key, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_help_lists_everything_and_the_focused_pane_first_after_the_questions(name: str) -> None:
    titles, actions = pane_titles([name]), screen_actions([name])
    for pane in titles:
        lines = [text_of(line) for line in help_lines(name, pane, UNICODE)]
        assert lines[0] == "Questions of this screen"
        if list(actions_of(pane, actions)):
            assert lines[lines.index("") + 1] == titles[pane]
        for action in actions:
            assert any(line.endswith(action.help) for line in lines)


@pytest.mark.parametrize("name", NAMES)
def test_help_in_plain_ascii(name: str) -> None:
    assert all(text_of(line).isascii() for line in help_lines(name, "", ASCII))


def test_screens_have_numbers_as_keys_in_order() -> None:
    assert [record.key for record in SCREENS] == sorted({record.key for record in SCREENS})
    assert {record.action for record in SCREENS} <= set(app_actions())


def test_common_actions_stand_in_no_screen() -> None:
    own = [action for record in SCREENS for action in screen_class(record.name).ACTIONS]
    assert not set(own) & set(ACTIONS)
    assert {action.pane for action in ACTIONS} == PANE_TITLES.keys()
