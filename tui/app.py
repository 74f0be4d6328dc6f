"""The app: opens the browse screen over a loaded model and leaves the terminal as it was."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from irscope.session import Model
from irscope.tui.actions import PANE_TITLES, Pane, actions_of, bindings, help_lines
from irscope.tui.models.browse import Browse
from irscope.tui.models.command import Source
from irscope.tui.models.symbols import Symbols, symbols_for
from irscope.tui.screens.browse import BrowseScreen
from irscope.tui.screens.dialog import TextDialog


def run_app(model: Model) -> None:
    """Show a model until the user leaves."""
    model.manager.cancelled.clear()
    try:
        IrscopeApp(model).run()
    finally:
        # Leaving stops what still runs; the model stays usable for whoever opened it.
        model.manager.cancelled.clear()


class IrscopeApp(App[None]):
    """irscope in the terminal."""

    CSS_PATH = "irscope.tcss"
    TITLE = "irscope"
    BINDINGS: ClassVar[list[BindingType]] = bindings("app")
    PAUSE_GC_ON_SCROLL = True

    def __init__(self, model: Model, symbols: Symbols | None = None) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-tiny"), (16, "-short"), (32, "-tall")]
        self.model = model
        if symbols is None:
            symbols = symbols_for(getattr(sys.__stdout__, "encoding", None) or "utf-8", os.environ)
        source = Source(model.program.path, model.options.inputs, model.options.bind, model.manager.settings)
        self.browse = Browse(model.program, source, symbols)
        self.browse.results.diagnostics.extend(model.diagnostics)

    def on_mount(self) -> None:
        self.push_screen(BrowseScreen(self.browse, self.model.manager))

    @property
    def pane(self) -> Pane:
        """The pane that has the focus."""
        focused = self.focused
        for pane in PANE_TITLES:
            if focused is not None and (focused.id == pane or (pane == "prompt" and focused.id in ("filter", "sizes"))):
                return pane
        return "tree"

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette: what the screen and the app can do."""
        for pane, target in (("browse", screen), ("app", self)):
            for action in actions_of(pane):  # type: ignore[arg-type]
                run = getattr(target, f"action_{action.name}", None)
                if run is not None and action.name not in ("next_pane", "previous_pane", "stop"):
                    yield SystemCommand(action.label, action.help, run)

    def action_help(self) -> None:
        if not isinstance(self.screen, TextDialog):
            self.push_screen(TextDialog("Keys", help_lines(self.pane, self.browse.symbols)))

    async def action_quit(self) -> None:
        self.model.manager.cancelled.set()
        self.exit()

    async def action_stop(self) -> None:
        await self.action_quit()
