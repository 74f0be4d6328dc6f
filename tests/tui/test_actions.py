"""The action table against what it promises: handlers, help, and no key that means two things."""

from __future__ import annotations

from collections import Counter

import pytest
from textual.binding import Binding

from irscope.tui.actions import ACTIONS, PANE_TITLES, Action, Pane, actions_of, bindings, help_lines
from irscope.tui.app import IrscopeApp
from irscope.tui.models.spans import text_of
from irscope.tui.models.symbols import ASCII, UNICODE
from irscope.tui.screens.browse import BrowseScreen
from irscope.tui.screens.dialog import TextDialog
from irscope.tui.widgets.lines import DetailPane
from irscope.tui.widgets.prompt import Prompt
from irscope.tui.widgets.timeline import TimelinePane
from irscope.tui.widgets.tree import OutlineTree

OWNERS: dict[Pane, type] = {
    "tree": OutlineTree,
    "timeline": TimelinePane,
    "detail": DetailPane,
    "prompt": Prompt,
    "browse": BrowseScreen,
    "app": IrscopeApp,
    "dialog": TextDialog,
}


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: f"{action.pane}.{action.name}")
def test_every_action_has_a_handler_a_label_and_help(action: Action) -> None:
    assert hasattr(OWNERS[action.pane], f"action_{action.name.partition('(')[0]}")
    assert action.label
    assert action.help.endswith(".")
    assert action.keys


@pytest.mark.parametrize("pane", PANE_TITLES)
def test_owners_bind_exactly_what_the_table_says(pane: Pane) -> None:
    owner = OWNERS[pane]
    assert bindings(pane) == owner.BINDINGS  # type: ignore[attr-defined]
    assert all(isinstance(binding, Binding) for binding in bindings(pane))


@pytest.mark.parametrize("pane", PANE_TITLES)
def test_no_key_means_two_things_in_one_place(pane: Pane) -> None:
    counts = Counter(key for action in actions_of(pane) for key in action.keys)
    assert [key for key, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("pane", ["tree", "timeline", "detail"])
def test_no_pane_hides_a_key_of_the_screen_or_the_app(pane: Pane) -> None:
    around = {key for owner in ("browse", "app") for action in actions_of(owner) for key in action.keys}  # type: ignore[arg-type]
    assert around.isdisjoint({key for action in actions_of(pane) for key in action.keys})


def test_the_keys_of_the_app_and_the_screen_differ() -> None:
    assert {key for action in actions_of("browse") for key in action.keys}.isdisjoint(
        {key for action in actions_of("app") for key in action.keys}
    )


@pytest.mark.parametrize("pane", PANE_TITLES)
def test_help_lists_everything_and_begins_with_the_focused_pane(pane: Pane) -> None:
    lines = [text_of(line) for line in help_lines(pane, UNICODE)]
    assert lines[0] == PANE_TITLES[pane]
    for action in ACTIONS:
        assert any(line.endswith(action.help) for line in lines)


def test_help_in_plain_ascii() -> None:
    assert all(text_of(line).isascii() for line in help_lines("tree", ASCII))
