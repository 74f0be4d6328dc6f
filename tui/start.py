"""What `irscope tui` shows first: a file while it is read, what is wrong with it, and a list of files to choose from.

It is on the screen before anything is read: this module imports little besides Textual, and reading imports the rest beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content

from irscope.errors import IrscopeError
from irscope.tui.actions import ACTIONS, Action, actions_of, bindings, key_text
from irscope.tui.text import Line, Span, Symbols, error_lines
from irscope.tui.widgets.paint import DetailPane, Helped, Keys, Prompt, question_lines

if TYPE_CHECKING:
    from irscope.session import Model
    from irscope.tui.memory.run import ShownRun
    from irscope.tui.picker import Known

Tell: TypeAlias = Callable[[str, int, "int | None"], None]
"""Callback for progress of reading: the current activity, how much of it is done, and of how much where that is known."""
Opened: TypeAlias = "tuple[Model | Sequence[ShownRun], str, Sequence[str] | None]"
"""What `IrscopeApp.show_model` takes."""
Read: TypeAlias = Callable[[Path, Tell], Opened]
"""Reads what a path means: a model or recordings. Runs in a thread."""
START_ACTIONS: tuple[Action, ...] = (
    Action("start", "ask_path", ("o",), "Open a file", "Type the path of a model.", footer=True),
    Action("start", "cancel", ("escape",), "Cancel", "Stop reading; leave irscope where nothing is read.", footer=True),
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


class StartScreen(Helped):
    """Reads a file, or offers some to choose from, and hands what was read to the app."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("start", START_ACTIONS)

    def __init__(self, read: Read, path: Path | None = None, folder: Path | None = None) -> None:
        """`path` is read at once; else the files of a folder are offered, or those that were opened last."""
        super().__init__()
        self.read = read
        self.path = path
        self.folder = folder
        self.files: Sequence[Known] = ()
        self.reading: Path | None = None
        self.is_looking = False
        """True where the files to choose from are being looked for."""
        self._refused: IrscopeError | None = None
        """Why the file that was named cannot be opened."""
        self._progress: tuple[str, int, int | None] = ("reading", 0, None)
        self._began = 0.0

    @property
    def failure(self) -> BaseException | None:
        """Return why nothing is shown: the file that was named cannot be opened, or the user stopped what was read."""
        return self._refused or (None if self.reading is None else KeyboardInterrupt())

    @property
    def symbols(self) -> Symbols:
        """Return the signs of the terminal."""
        found: Symbols = cast("Any", self.app).symbols
        return found

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

    def _offer(self) -> None:
        """Look for the files to choose from: beside the screen, as a folder may be large."""

        self.is_looking = True

        def look() -> None:
            from irscope.tui import picker

            try:
                self._later(self._offered, picker.known_files() if self.folder is None else picker.files_in(self.folder))
            except IrscopeError as error:  # such as damaged results of an audit
                self._later(self._failed, self.folder or Path(), error)

        self.call_after_refresh(self._beside, look)

    async def _offered(self, files: Sequence[Known]) -> None:
        from irscope.tui.picker import files_table
        from irscope.tui.widgets.table import VirtualTable

        self.is_looking, self.files = False, files
        pane = self.query_one("#files_pane")
        pane.display = True
        table = VirtualTable(files_table(self.files, self.symbols, self.folder), id="files")
        await pane.mount(table)
        table.focus()
        if self.reading is None and self._refused is None:
            self._say("Welcome", _WELCOME)

    def _beside(self, work: Callable[[], None]) -> None:
        # A daemon: leaving does not wait for a file that is being read.
        threading.Thread(target=work, daemon=True).start()

    def _later(self, take: Callable[..., Any], *found: Any) -> None:
        """Have what a thread has found taken by the screen."""
        if self.is_running:
            self.call_later(take, *found)

    @property
    def is_busy(self) -> bool:
        """Return whether something is being read or looked for."""
        return self.is_looking or self.reading is not None

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

        try:
            found = self.read(path, tell)
        except IrscopeError as error:
            self._later(self._failed, path, error)
        except BaseException as error:
            self._later(self._failed, path, IrscopeError(f"{type(error).__name__}: {error}", hint="this is a bug; please report it"))
        else:
            self._later(self._done, path, found)

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

    def _done(self, path: Path, found: Opened) -> None:
        if path != self.reading:
            return  # somebody has cancelled it
        self.reading = None
        if path.exists():  # a model by name is in no folder
            from irscope.tui.picker import note_opened  # not at the top: it imports what reads models

            note_opened(path)
        # The app's to do: this screen ends with it.
        self.app.call_later(cast("Any", self.app).show_model, *found)

    def _failed(self, path: Path, error: IrscopeError) -> None:
        if path not in (self.reading, self.folder):
            return
        self.reading, self.is_looking = None, False
        if path in (self.path, self.folder):
            self._refused = error
        lines = [*error_lines(error, self.symbols)[1:], (), (Span("o opens another file, q leaves.", "faint"),)]
        self._say(f"{self.symbols.clean(path.name)} cannot be opened", lines)
        if not self.files and path != self.folder:
            self._offer()

    def _say(self, title: str, lines: Sequence[Line]) -> None:
        pane = self.query_one("#welcome", DetailPane)
        pane.border_title = Content(title)
        pane.show(lines, top=True)

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

    def help_lines(self) -> list[Line]:
        everywhere = (one for one in actions_of("app", ACTIONS) if one.name not in ("commands", "reload"))
        actions = (*START_ACTIONS, *everywhere, *actions_of("table", ACTIONS), *actions_of("prompt", ACTIONS))
        return [(Span(f"  {', '.join(map(key_text, one.keys)):<22}", "name"), Span(one.help)) for one in actions]

    async def action_cancel(self) -> None:
        if self.reading is None or self.reading == self.path:
            await self.app.action_quit()
        else:
            self.reading = None
            self._say("Welcome", _WELCOME)


def bar_text(share: float | None, seconds: float, symbols: Symbols) -> str:
    """Return a bar as full as the share; where that is not known, a piece that moves along it."""
    full, empty = ("#", ".") if symbols.encoding == "ascii" else ("█", "░")
    if share is not None:
        filled = round(_BAR * min(max(share, 0.0), 1.0))
        return full * filled + empty * (_BAR - filled)
    start = int(seconds / _REDRAW) % (_BAR - _SLIDE)
    return empty * start + full * _SLIDE + empty * (_BAR - start - _SLIDE)
