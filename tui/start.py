"""What `irscope tui` shows first: a file while it is read, what is wrong with it, and a list of files to choose from.

It is on the screen before anything is read: this module imports little besides Textual, and reading imports the rest beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen

from irscope.errors import IrscopeError
from irscope.tui.actions import ACTIONS, Action, actions_of, bindings, key_text
from irscope.tui.terminal import TerminalApp, question_lines
from irscope.tui.text import Line, Span, Symbols, error_lines
from irscope.tui.widgets.dialogs import TextDialog
from irscope.tui.widgets.paint import DetailPane, Keys, Looks, Prompt

if TYPE_CHECKING:
    from irscope.tui.picker import Known

Tell: TypeAlias = Callable[[str, int, "int | None"], None]
"""Callback for progress of reading: the current activity, how much of it is done, and of how much where that is known."""
Read: TypeAlias = Callable[[Path, Tell], object]
"""Reads what a path means: a model or a recording. Runs in a thread."""
START_ACTIONS: tuple[Action, ...] = (
    Action("start", "ask_path", ("o",), "Open a file", "Type the path of a model.", footer=True),
    Action("start", "help", ("question_mark",), "Help", "Show all keys.", footer=True),
    Action("start", "cancel", ("escape",), "Cancel", "Stop reading; leave irscope where nothing is read.", footer=True),
    Action("start", "quit", ("q",), "Quit", "Leave irscope.", footer=True),
    Action("start", "suspend_process", ("ctrl+z",), "Suspend", "Put irscope into the background of the shell; fg brings it back."),
    Action("start", "stop", ("ctrl+c", "ctrl+q"), "Leave at once", "Leave irscope from wherever you are.", priority=True),
)
_REDRAW = 0.1
"""Seconds between two looks at how far reading is."""
_BAR = 40
_SLIDE = 8
"""Cells of a bar that says only that something is done."""


_WELCOME: tuple[Line, ...] = (
    (Span("irscope shows what a neural network costs before it runs.", "heading"),),
    (Span("Choose a file above with the arrow keys and enter, or press o and type a path."),),
    (Span("The samples are small networks to try things with."),),
    (Span("It reads .onnx, .pt2, TorchScript, checkpoints and .irs; nothing in a model is executed.", "faint"),),
    (),
    (Span("Once a model is open:", "heading"),),
    *question_lines(),
    (Span(f"  {'?':<22}", "name"), Span("shows this and all keys.")),
)


class PlainScreen(Looks, Screen[None]):
    """Screen for widgets that belong to no model."""


class StartApp(TerminalApp[object]):
    """Read a file, or choose one; the app ends with what was read, with an error, or with None."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = bindings("start", START_ACTIONS)

    class Done(Message):
        """A file was read, or the error that stands for it."""

        def __init__(self, path: Path, answer: object) -> None:
            super().__init__()
            self.path = path
            self.answer = answer

    class Offered(Message):
        """The files to choose from."""

        def __init__(self, files: Sequence[Known]) -> None:
            super().__init__()
            self.files = files

    def __init__(self, read: Read, symbols: Symbols | None = None, *, path: Path | None = None, folder: Path | None = None) -> None:
        """`path` is read at once; else the files of a folder are offered, or those that were opened last."""
        super().__init__(symbols)
        self.read = read
        self.path = path
        self.folder = folder
        self.files: Sequence[Known] = ()
        self.reading: Path | None = None
        self.failure: IrscopeError | None = None
        """Why the file that was named cannot be opened."""
        self.was_cancelled = False
        self.is_looking = False
        """True where the files to choose from are being looked for."""
        self._progress: tuple[str, int, int | None] = ("reading", 0, None)
        self._began = 0.0

    def get_default_screen(self) -> Screen[None]:
        return PlainScreen()

    def compose(self) -> ComposeResult:
        with Vertical(id="files_pane", classes="pane") as pane:
            pane.border_title = Content(
                "Recent files and samples" if self.folder is None else f"Models in {self.symbols.clean(str(self.folder))}"
            )
            pane.display = False
        yield DetailPane((), id="welcome", classes="pane")
        yield Prompt("Open", "the path of a model", id="path")
        yield Keys()

    def on_mount(self) -> None:
        self.set_interval(_REDRAW, self.show_progress)
        self.query_one("#welcome").focus()
        if self.path is not None:
            self.open(self.path)
        else:
            self._say("Looking for files", [(Span(self.symbols.waiting),)])
            self._offer()

    # -- files to choose from ----------------------------------------------------------------------------------

    def _offer(self) -> None:
        """Look for the files to choose from: beside the screen, as a folder may be large."""

        self.is_looking = True

        def look() -> None:
            from irscope.tui import picker

            try:
                self._post(self.Offered(picker.known_files() if self.folder is None else picker.files_in(self.folder)))
            except IrscopeError as error:  # such as damaged results of an audit
                self._post(self.Done(self.folder or Path(), error))

        self.call_after_refresh(self._beside, look)

    async def on_start_app_offered(self, message: Offered) -> None:
        from irscope.tui.picker import files_table
        from irscope.tui.widgets.table import VirtualTable

        self.is_looking, self.files = False, message.files
        pane = self.query_one("#files_pane")
        pane.display = True
        table = VirtualTable(files_table(self.files, self.symbols, self.folder), id="files")
        await pane.mount(table)
        table.focus()
        if self.reading is None and self.failure is None:
            self._say("Welcome", _WELCOME)

    def _beside(self, work: Callable[[], None]) -> None:
        # A daemon: leaving does not wait for a file that is being read.
        threading.Thread(target=work, daemon=True).start()

    def _post(self, message: Message) -> None:
        if self.is_running:
            self.post_message(message)

    @property
    def is_busy(self) -> bool:
        """Return whether something is being read or looked for."""
        return self.is_looking or self.reading is not None

    # -- reading -----------------------------------------------------------------------------------------------

    def open(self, path: Path) -> None:
        """Read a file in the background."""
        if self.reading is None:
            self.reading, self._began, self._progress = path, monotonic(), ("reading", 0, None)
            self.show_progress()
            # The screen is painted before reading competes for the processor.
            self.call_after_refresh(self._beside, lambda: self._read(path))

    def _read(self, path: Path) -> None:
        def tell(what: str, done: int, total: int | None) -> None:
            self._progress = (what, done, total)

        answer: object
        try:
            answer = self.read(path, tell)
        except IrscopeError as error:
            answer = error
        except BaseException as error:
            answer = IrscopeError(f"{type(error).__name__}: {error}", hint="this is a bug; please report it")
        self._post(self.Done(path, answer))

    def show_progress(self) -> None:
        """Show the progress of reading."""
        if self.reading is not None:
            what, done, total = self._progress
            taken = monotonic() - self._began
            share = f"{done / total:.0%}" if total else f"{done:,}" if done else ""
            bar = bar_text(done / total if total else None, taken, self.symbols)
            lines: list[Line] = [
                (Span(self.symbols.clean(str(self.reading)), "heading"),),
                (Span(bar, "bar"), Span(f"  {taken:.0f} s", "faint")),
                (Span(f"{self.symbols.clean(what)} {share}".rstrip()),),
                (),
                (Span("esc cancels", "faint"),),
            ]
            self._say("Reading", lines)

    def on_start_app_done(self, message: Done) -> None:
        if message.path != self.reading:
            return  # somebody has cancelled it
        self.reading = None
        if not isinstance(message.answer, IrscopeError):
            if message.path.exists():  # a model by name is in no folder
                from irscope.tui.picker import note_opened  # not at the top: it imports what reads models

                note_opened(message.path)
            self.exit(message.answer)
            return
        if message.path == self.path:
            self.failure = message.answer
        lines = [*error_lines(message.answer, self.symbols)[1:], (), (Span("o opens another file, q leaves.", "faint"),)]
        self._say(f"{self.symbols.clean(message.path.name)} cannot be opened", lines)
        if not self.files:
            self._offer()

    def _say(self, title: str, lines: Sequence[Line]) -> None:
        pane = self.query_one("#welcome", DetailPane)
        pane.border_title = Content(title)
        pane.show(lines, top=True)

    # -- what keys ask for -------------------------------------------------------------------------------------

    def on_rows_view_opened(self, message: Any) -> None:
        self.open(self.files[message.row].path)

    def action_ask_path(self) -> None:
        self.query_one("#path", Prompt).open("")

    def on_prompt_closed(self, message: Prompt.Closed) -> None:
        message.prompt.display = False
        (self.query("#files") or self.query("#welcome")).first().focus()
        text = message.prompt.value.strip()
        if message.keep and text:
            self.open(Path(text).expanduser())

    def action_help(self) -> None:
        if isinstance(self.screen, TextDialog):
            return
        actions = (*START_ACTIONS, *actions_of("table", ACTIONS), *actions_of("prompt", ACTIONS))
        lines: list[Line] = [(Span(f"  {', '.join(map(key_text, one.keys)):<22}", "name"), Span(one.help)) for one in actions]
        self.push_screen(TextDialog("Keys", lines))

    async def action_cancel(self) -> None:
        if self.reading is None or self.reading == self.path:
            self._leave()
        else:
            self.reading = None
            self._say("Welcome", _WELCOME)

    async def action_quit(self) -> None:
        self._leave()

    async def action_stop(self) -> None:
        self._leave()

    def _leave(self) -> None:
        self.was_cancelled = self.reading is not None
        self.exit(self.failure)


def bar_text(share: float | None, seconds: float, symbols: Symbols) -> str:
    """Return a bar as full as the share; where that is not known, a piece that moves along it."""
    full, empty = ("#", ".") if symbols.encoding == "ascii" else ("█", "░")
    if share is not None:
        filled = round(_BAR * min(max(share, 0.0), 1.0))
        return full * filled + empty * (_BAR - filled)
    start = int(seconds / _REDRAW) % (_BAR - _SLIDE)
    return empty * start + full * _SLIDE + empty * (_BAR - start - _SLIDE)


def opened(read: Read, path: Path | None = None, folder: Path | None = None) -> object:
    """Return what a user opens: the file of the path, or one that is chosen; None for nothing. Raises why the named file cannot be read."""
    app = StartApp(read, path=path, folder=folder)
    found = app.finish()
    if isinstance(found, IrscopeError):
        raise found
    if app.was_cancelled:
        raise KeyboardInterrupt
    return found
