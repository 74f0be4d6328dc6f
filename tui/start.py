"""What `irscope tui` shows without a file: recent files and samples to choose from, and why one cannot be opened."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer

from irscope.errors import IrscopeError
from irscope.session import Model
from irscope.tui.actions import ACTIONS, Action, actions_of, bindings, key_text
from irscope.tui.analyses import answered
from irscope.tui.help import question_lines
from irscope.tui.models.problem import error_lines
from irscope.tui.models.recent import files_table, known_files, note_opened
from irscope.tui.models.spans import Line, Span
from irscope.tui.models.symbols import Symbols, symbols_for
from irscope.tui.screens.dialog import TextDialog
from irscope.tui.widgets.lines import DetailPane
from irscope.tui.widgets.paint import Looks
from irscope.tui.widgets.prompt import Prompt
from irscope.tui.widgets.table import VirtualTable

START_ACTIONS: tuple[Action, ...] = (
    Action("start", "ask_path", ("o",), "Open a file", "Type the path of a model.", footer=True),
    Action("start", "help", ("question_mark",), "Help", "Show all keys.", footer=True),
    Action("start", "quit", ("q", "escape"), "Quit", "Leave irscope.", footer=True),
    Action("start", "stop", ("ctrl+c", "ctrl+q"), "Leave at once", "Leave irscope from wherever you are.", priority=True),
)
_WELCOME: tuple[Line, ...] = (
    (Span("irscope tells what a neural network costs before it runs.", "heading"),),
    (Span("Choose a file above with the arrow keys and enter, or press o and type a path."),),
    (Span("The samples are small networks to try things with."),),
    (Span("It reads .onnx, .pt2, TorchScript, checkpoints and .irs; nothing in a model is executed.", "faint"),),
    (),
    (Span("Once a model is open:", "heading"),),
    *question_lines(),
    (Span(f"  {'?':<22}", "name"), Span("shows this and all keys.")),
)


class _StartScreen(Looks, Screen[None]):
    """What the widgets of the start are painted on."""


class StartApp(App[Model]):
    """Choose a file; the app ends with the model that was read."""

    CSS_PATH = "irscope.tcss"
    TITLE = "irscope"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = bindings("start", START_ACTIONS)

    class Read(Message):
        """A model was read, or the error that stands for it."""

        def __init__(self, path: Path, answer: object) -> None:
            super().__init__()
            self.path = path
            self.answer = answer

    def __init__(self, read: Callable[[Path], Model], symbols: Symbols | None = None) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-tiny"), (16, "-short"), (32, "-tall")]
        self.read = read
        self.symbols = symbols or symbols_for(getattr(sys.__stdout__, "encoding", None) or "utf-8", os.environ)
        self.set_class(not self.symbols.has_braille, "-ascii")
        self.files = known_files()
        self.reading: Path | None = None

    def get_default_screen(self) -> Screen[None]:
        return _StartScreen()

    def compose(self) -> ComposeResult:
        with Vertical(id="files_pane", classes="pane") as pane:
            pane.border_title = Content("Recent files and samples")
            yield VirtualTable(files_table(self.files, self.symbols), id="files")
        yield DetailPane(_WELCOME, id="welcome", classes="pane")
        yield Prompt("the path of a model", id="path")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one("#files").focus()
        self.query_one("#welcome").border_title = Content("Welcome")

    # -- reading -----------------------------------------------------------------------------------------------

    def open(self, path: Path) -> None:
        """Read a file in the background."""
        if self.reading is None:
            self.reading = path
            self._say("Reading", [(Span(f"{self.symbols.clean(str(path))} {self.symbols.waiting}"),)])
            self._read(path)

    @work(thread=True, exit_on_error=False)
    def _read(self, path: Path) -> None:
        self.post_message(self.Read(path, answered(lambda: self.read(path))))

    def on_start_app_read(self, message: Read) -> None:
        self.reading = None
        if isinstance(message.answer, Model):
            note_opened(message.path)
            self.exit(message.answer)
        elif isinstance(message.answer, IrscopeError):
            self._say(f"{self.symbols.clean(message.path.name)} cannot be opened", error_lines(message.answer, self.symbols)[1:])

    def _say(self, title: str, lines: list[Line]) -> None:
        pane = self.query_one("#welcome", DetailPane)
        pane.border_title = Content(title)
        pane.show(lines, top=True)

    # -- what keys ask for -------------------------------------------------------------------------------------

    def on_virtual_table_opened(self, message: VirtualTable.Opened) -> None:
        self.open(self.files[message.row].path)

    def action_ask_path(self) -> None:
        self.query_one("#path", Prompt).open("")

    def on_prompt_closed(self, message: Prompt.Closed) -> None:
        message.prompt.display = False
        self.query_one("#files").focus()
        text = message.prompt.value.strip()
        if message.keep and text:
            self.open(Path(text).expanduser())

    def action_help(self) -> None:
        if isinstance(self.screen, TextDialog):
            return
        actions = (*START_ACTIONS, *actions_of("table", ACTIONS), *actions_of("prompt", ACTIONS))
        lines: list[Line] = [(Span(f"  {', '.join(map(key_text, one.keys)):<22}", "name"), Span(one.help)) for one in actions]
        self.push_screen(TextDialog("Keys", lines))

    async def action_quit(self) -> None:
        self.exit()

    async def action_stop(self) -> None:
        self.exit()


def choose(read: Callable[[Path], Model]) -> Model | None:
    """Let the user choose a file; None where nothing was chosen."""
    return StartApp(read).run()
