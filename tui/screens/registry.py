"""The screens of the app, in the order of their keys. A screen is imported when it is first shown or asked for its keys."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from irscope.tui.actions import ACTIONS, PANE_TITLES, Action

if TYPE_CHECKING:
    from irscope.tui.screens.base import ModelScreen


@dataclass(frozen=True, slots=True)
class ScreenRecord:
    """One screen: its key, what people read about it, and the class in the module of the same name."""

    name: str
    """The module below irscope.tui.screens."""
    key: str
    title: str
    help: str
    cls: str

    def load(self) -> type[ModelScreen]:
        """The class of the screen."""
        found: type[ModelScreen] = getattr(importlib.import_module(f"irscope.tui.screens.{self.name}"), self.cls)
        return found

    @property
    def action(self) -> Action:
        """The action of the app that shows this screen."""
        return Action("app", f"open_screen('{self.name}')", (self.key,), self.title, self.help)


SCREENS: tuple[ScreenRecord, ...] = (
    ScreenRecord("browse", "1", "Browse", "Show the modules and nodes of the model.", "BrowseScreen"),
    ScreenRecord("memory", "2", "Memory", "Show what is alive at each step, and why.", "MemoryScreen"),
    ScreenRecord("params", "3", "Parameters", "Show the weights, by size or by module, and their values.", "ParamsScreen"),
    ScreenRecord("cost", "4", "Cost", "Show the least time of modules and nodes on a device, and what binds them.", "CostScreen"),
    ScreenRecord("passes", "5", "Passes", "Run a pipeline step by step and see what each pass changed.", "PassesScreen"),
    ScreenRecord("compare", "6", "Compare", "Lay another model or a recording beside this one.", "CompareScreen"),
    ScreenRecord("reports", "7", "Reports", "Show the report of any pass, also of one of your own.", "ReportsScreen"),
)


def screen_record(name: str) -> ScreenRecord:
    """The record of a screen."""
    return next(record for record in SCREENS if record.name == name)


def app_actions() -> tuple[Action, ...]:
    """The actions of the app, with one for each screen."""
    return (*(record.action for record in SCREENS), *(action for action in ACTIONS if action.pane == "app"))


def screen_actions(names: Sequence[str]) -> tuple[Action, ...]:
    """The table of actions with those of these screens, most particular first."""
    own = [action for name in names for action in screen_record(name).load().ACTIONS]
    return (*own, *(action for action in ACTIONS if action.pane != "app"), *app_actions())


def pane_titles(names: Sequence[str]) -> dict[str, str]:
    """The panes of these screens and those that all screens have."""
    own = {pane: title for name in names for pane, title in screen_record(name).load().PANES.items()}
    return {**own, **PANE_TITLES}
