"""What `irscope tui` shows without a file: recent files and samples to choose from, and why one cannot be opened."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
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

from irscope.errors import IrscopeError, OutputError
from irscope.files import config_folder, write_text
from irscope.recording import Recording
from irscope.report.units import Kind, humanise
from irscope.session import Model
from irscope.tui.actions import ACTIONS, Action, actions_of, bindings, key_text
from irscope.tui.analyses import answered
from irscope.tui.app import question_lines
from irscope.tui.rows import TableColumn, TableModel
from irscope.tui.text import Line, Span, Symbols, error_lines, symbols_for
from irscope.tui.widgets.dialogs import TextDialog
from irscope.tui.widgets.paint import DetailPane, Looks, Prompt
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


class PlainScreen(Looks, Screen[None]):
    """What widgets are painted on that belong to no model."""


class StartApp(App[Model | Recording]):
    """Choose a file; the app ends with the model or the recording that was read."""

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

    def __init__(self, read: Callable[[Path], Model | Recording], symbols: Symbols | None = None) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-tiny"), (16, "-short"), (32, "-tall")]
        self.read = read
        self.symbols = symbols or symbols_for(getattr(sys.__stdout__, "encoding", None) or "utf-8", os.environ)
        self.set_class(not self.symbols.has_braille, "-ascii")
        self.files = known_files()
        self.reading: Path | None = None

    def get_default_screen(self) -> Screen[None]:
        return PlainScreen()

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
        if isinstance(message.answer, Model | Recording):
            note_opened(message.path)
            self.exit(message.answer)
        elif isinstance(message.answer, IrscopeError):
            self._say(f"{self.symbols.clean(message.path.name)} cannot be opened", error_lines(message.answer, self.symbols)[1:])

    def _say(self, title: str, lines: list[Line]) -> None:
        pane = self.query_one("#welcome", DetailPane)
        pane.border_title = Content(title)
        pane.show(lines, top=True)

    # -- what keys ask for -------------------------------------------------------------------------------------

    def on_rows_view_opened(self, message: VirtualTable.Opened) -> None:
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


def choose(read: Callable[[Path], Model | Recording]) -> Model | Recording | None:
    """Let the user choose a file; None where nothing was chosen."""
    return StartApp(read).run()


# ----------------------------------------------------------------------------------------------------
# The files that were opened last, and the samples that come with irscope.

_MOST = 20
_SAMPLES = Path(__file__).parent / "samples"


@dataclass(frozen=True, slots=True)
class Known:
    """A file that can be opened."""

    path: Path
    kind: str
    """recent or sample."""
    size: int | None
    """None where the file is gone."""
    changed: float | None


def recent_file() -> Path:
    """Where the list is kept."""
    return config_folder() / "recent.json"


def read_recent(file: Path | None = None) -> list[Path]:
    """The paths, last first; a list that is missing or damaged is an empty one."""
    try:
        found = json.loads((file or recent_file()).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return [Path(one) for one in found if isinstance(one, str) and one][:_MOST] if isinstance(found, list) else []


def note_opened(path: Path, file: Path | None = None) -> None:
    """Put a path at the head of the list. Where it cannot be written, nothing is noted: this is only a convenience."""
    file = file or recent_file()
    full = Path(os.path.abspath(path))
    if full.is_relative_to(_SAMPLES):
        return
    paths = [full, *(one for one in read_recent(file) if one != full)][:_MOST]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, [json.dumps([str(one) for one in paths], indent=1), "\n"])
    except (OSError, UnicodeError, OutputError):
        return


def samples(folder: Path = _SAMPLES) -> list[Path]:
    """The models that come with irscope."""
    return sorted(folder.glob("*.irs"))


def known_files(file: Path | None = None) -> list[Known]:
    """Recent files, then samples."""
    return [_known_file(path, "recent") for path in read_recent(file)] + [_known_file(path, "sample") for path in samples()]


def _known_file(path: Path, kind: str) -> Known:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return Known(path, kind, None, None)
    return Known(path, kind, found.st_size, found.st_mtime)


def files_table(files: Sequence[Known], symbols: Symbols) -> TableModel:
    """The files as rows."""
    clean = symbols.clean

    def size(row: int) -> str:
        found = files[row].size
        return "gone" if found is None else humanise(found, Kind.BYTES)

    def changed(row: int) -> str:
        found = files[row].changed
        return "" if found is None else datetime.fromtimestamp(found).strftime("%Y-%m-%d %H:%M")

    def folder(row: int) -> str:
        return "comes with irscope" if files[row].kind == "sample" else clean(str(files[row].path.parent))

    columns = (
        TableColumn("file", 24, lambda row: clean(files[row].path.name), lambda: [one.path.name for one in files], grows=True, role="name"),
        TableColumn("", 6, lambda row: files[row].kind, role="faint", rank=1),
        TableColumn("size", 11, size, lambda: [one.size for one in files], right=True, rank=2),
        TableColumn("changed", 16, changed, lambda: [one.changed for one in files], rank=3),
        TableColumn("folder", 24, folder, grows=True, role="faint", rank=4),
    )
    return TableModel(columns, len(files), symbols, empty="No file was opened yet; o asks for one.")
