"""The app: begins with files to choose from or with a model, shows its screens, runs their analyses in a worker, and restores the terminal.

It is on the screen before anything is read: what a model needs is imported where one is shown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from textual import work
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.message import Message
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES

from irscope.errors import IrscopeError
from irscope.ir.graph import paused_gc
from irscope.tui.actions import app_actions, bindings
from irscope.tui.start import StartScreen
from irscope.tui.text import Symbols, error_lines, symbols_for
from irscope.tui.widgets.dialogs import Palette, TextDialog
from irscope.tui.widgets.paint import Helped

if TYPE_CHECKING:
    from irscope.session import Model
    from irscope.tui.browse.model import Browse
    from irscope.tui.memory.run import ShownRun
    from irscope.tui.screen import ModelScreen
    from irscope.tui.session import Place, Request, Session

_LOOKS = ("textual-dark", "textual-light")
_LOOK_AT_FILE = 2.0
"""Seconds between checks whether the file has changed."""
_NO_MODEL = "Choose a file first."


def run_app(shown: Sequence[ShownRun] | StartScreen) -> None:
    """Show runs, or what a user opens, until the user leaves; raises why the file that was named cannot be read."""
    failure = IrscopeApp(shown).finish()
    if failure is not None:
        raise failure


class IrscopeApp(App["BaseException"]):
    """irscope in the terminal. It ends with why the file that was named is not shown, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("app", app_actions())
    CSS_PATH = Path(__file__).with_name("irscope.tcss")
    TITLE = "irscope"
    PAUSE_GC_ON_SCROLL = True

    class Progressed(Message):
        """Progress of the worker."""

        def __init__(self, session: Session, text: str) -> None:
            super().__init__()
            self.session = session
            self.text = text

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, IrscopeApp.Progressed)

    def __init__(
        self,
        shown: Model | Sequence[ShownRun] | StartScreen,
        symbols: Symbols | None = None,
        *,
        other: str = "",
        step: Sequence[str] | None = None,
    ) -> None:
        """`other` is a file to compare a model with from the start, `step` are the options of a training step."""
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-tiny"), (16, "-short"), (32, "-tall")]
        self.symbols = symbols or symbols_for(getattr(sys.__stdout__, "encoding", None) or "utf-8", os.environ)
        self.set_class(not self.symbols.has_braille, "-ascii")
        if self.console.color_system in ("standard", "windows"):
            self.add_class("-sixteen")
            for name, accent in zip(_LOOKS, ("#ffff55", "#aa5500"), strict=True):
                self.register_theme(replace(BUILTIN_THEMES[name], accent=accent))
            self.stylesheet.set_variables(self.get_css_variables())
        self.start = shown if isinstance(shown, StartScreen) else None
        self._session: Session | None = None
        self._screens: dict[str, ModelScreen] = {}
        self._at_end: ExitStack | None = None
        """Ends what holds while a user looks at models; None in tests."""
        if not isinstance(shown, StartScreen):
            self._take(shown, other, step)

    def finish(self) -> BaseException | None:
        """Run until the user leaves; raises the exception that ended the app, if one did."""
        with ExitStack() as self._at_end:
            result = self.run()
        if self._exception is not None:
            raise self._exception
        return result

    def _handle_exception(self, error: Exception) -> None:
        # After a key that leaves, further keys of the same read look for screens that have been taken down.
        if not self._exit:
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        # Textual prints a page of traceback with local variables here, and the process ends with exit code 0.
        self._close_messages_no_wait()

    def _take(self, shown: Model | Sequence[ShownRun], other: str, step: Sequence[str] | None) -> None:
        """Make a session of a model or of runs; it goes on with the sizes and the device of the one before."""
        from irscope.session import Model, model_without_graph
        from irscope.tui.session import Session

        context = None if self._session is None else self._session.context
        if isinstance(shown, Model):
            session = Session(shown, self.symbols, context, step)
        else:
            from irscope.tui.memory.run import memories_of

            model = model_without_graph(shown[0].path, "recording")
            session = Session(model, self.symbols, context, runs=memories_of(shown, self.symbols))
        session.compare_with = other
        session.reopen = self._reopen
        session.start_worker = lambda: self._start_worker(session)
        session.open_place = self.open_place
        self._session = session
        self.file_watch = FileWatch(session.program.path)

    @property
    def session(self) -> Session:
        """Return the model or the runs that are shown."""
        assert self._session is not None, "nothing is shown yet"
        return self._session

    @property
    def browse(self) -> Browse:
        """Return the rows of the model that is shown."""
        return self.session.browse

    def on_mount(self) -> None:
        if self.start is not None:
            self.push_screen(self.start)
        else:
            self.push_screen(self._screen_of(self._first))
            self._begin()
        self.set_interval(_LOOK_AT_FILE, self.watch_file)

    def on_unmount(self) -> None:
        if self._session is not None:
            self._session.queue.close()

    @property
    def _first(self) -> str:
        """Return the screen that is shown first: a file of weights alone has nothing to browse, a run nothing but its memory."""
        return "memory" if self.session.runs else "browse" if self.session.program.has_graph else "params"

    def _begin(self) -> None:
        # The screen is painted before the first analysis competes for the processor.
        self.call_after_refresh(self.session.start)
        if self.session.compare_with:
            self.call_after_refresh(self.action_open_screen, "compare")

    def _screen_of(self, name: str) -> ModelScreen:
        if name not in self._screens:
            from irscope.tui.screen import screen_class

            screen = self._screens[name] = screen_class(name)(self.session)
            self.install_screen(screen, f"{name} {id(self.session)}")  # one of the model before is there until this is shown
        return self._screens[name]

    @property
    def model_screen(self) -> ModelScreen | None:
        """Return the screen over the model that is shown, below whatever window is open."""
        return next((screen for screen in self._screens.values() if screen in self.screen_stack), None)

    def action_open_screen(self, name: str) -> None:
        shown = self.model_screen
        if shown is None:
            self.notify(_NO_MODEL, markup=False)
        elif name not in (record.name for record in self.session.screens):
            self.notify("A run has no graph; `irscope tui MODEL RECORDING` lays it beside its model.", markup=False)
        elif shown is self.screen and name != shown.NAME:
            from irscope.tui.session import Place

            self.session.history.jump(Place(name, self.browse.selected))
            self.switch_screen(self._screen_of(name))

    def open_place(self, place: Place, *, jump: bool = False) -> None:
        """Show a place; `jump` makes it one that `back` leads away from."""
        if jump:
            self.session.jump(place.screen, place.row)
        elif not self.browse.is_empty:
            self.browse.reveal(place.row)
        shown = self.model_screen
        if shown is not None and shown is not self.screen:
            shown.show_all()  # below a window that a key of the same read has opened, which must not be switched in its place
        elif shown is None or place.screen != shown.NAME:
            self.switch_screen(self._screen_of(place.screen))
        else:
            shown.show_all()

    def watch_file(self) -> None:
        """Notify once when the file has changed on disk."""
        if self._session is not None and self.file_watch.has_changed():
            self.notify("The file has changed; ctrl-r reads it again.", markup=False)

    def action_reload(self) -> None:
        if self._session is None:
            self.notify(_NO_MODEL, markup=False)
        elif not self.session.program.path:
            self.notify("This model was not read from a file.", markup=False)
        elif self.session.runs:
            again = [run.run.again for run in self.session.runs]
            self._read_again(lambda: [read() for read in again if read is not None])
        elif self.session.program.training is not None:
            self.notify("A captured training step cannot be read again; start the UI again.", markup=False)
        else:
            self._read_again(self.session.model.read_again)

    def _reopen(self, bind: Mapping[str, int]) -> None:
        self.notify("Reading it again for these sizes.", markup=False)
        self._read_again(partial(self.session.model.bound_to, bind))

    @work(thread=True, exclusive=True, group="reload", exit_on_error=False)
    def _read_again(self, read: Callable[[], Model | Sequence[ShownRun]]) -> None:
        """Read the model again; runs in a thread and only posts a message."""
        from irscope.tui.analyses import answered

        answer = answered(read)
        if isinstance(answer, IrscopeError):
            lines = error_lines(answer, self.symbols)[1:]
            self.call_later(self.push_screen, TextDialog("The file cannot be read again", lines))
        else:
            self.call_later(self.show_model, answer)

    async def show_model(self, model: Model | Sequence[ShownRun], other: str = "", step: Sequence[str] | None = None) -> None:
        """Show a model or runs, or the same read again, in place of what is shown."""
        from irscope.tui.session import look_again, quiet_collector

        if self._session is not None:
            self._session.queue.close()
        elif self._at_end is not None:
            self._at_end.enter_context(quiet_collector())
        shown = self.model_screen
        before, self._screens = self._screens, {}
        self._take(model, other, step)
        self.session.manager.cancelled.clear()
        # A window that was opened while the model was read is about the one before.
        while len(self.screen_stack) > 2:
            await self.pop_screen()
        await self.switch_screen(self._screen_of(self._first if shown is None else shown.NAME))
        for screen in before.values():
            self.uninstall_screen(screen)
            await screen.remove()  # it was kept running, with all that it shows, as long as it was installed
        look_again()
        self._begin()

    def _start_worker(self, session: Session) -> None:
        self.work_off(session)

    @work(thread=True, group="questions", exit_on_error=False)
    def work_off(self, session: Session) -> None:
        """Process queued requests; runs in a thread and only posts messages."""
        from irscope.tui.analyses import ProgressTeller, answered, instruments_of
        from irscope.tui.session import set_aside

        def tell(text: str) -> None:
            self.post_message(self.Progressed(session, text))

        with instruments_of(session.manager, ProgressTeller(tell)):
            while (request := session.queue.next()) is not None:
                with paused_gc():
                    answer = answered(request.answer)
                    session.put_away()
                    # Before the collector is on again: it would look through all that the answer has made, and hold up keys.
                    set_aside()
                self.call_later(self.take_answer, session, request, answer)

    def take_answer(self, session: Session, request: Request, answer: object) -> None:
        """Take a result of the worker, or its error."""
        if session is not self.session:
            return
        if isinstance(answer, IrscopeError):
            request.fail(answer)
        else:
            request.take(answer)
        session.progress = ""
        shown = self.model_screen
        if shown is not None:
            shown.show_all()

    def on_irscope_app_progressed(self, message: Progressed) -> None:
        shown = self.model_screen
        if message.session is self.session and not self.session.queue.is_idle and shown is not None:
            self.session.progress = message.text
            shown.show_progress()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the command palette: what the focused pane, the screen and the app can do."""
        shown = self.model_screen
        return () if shown is None else shown.system_commands()

    def action_commands(self) -> None:
        if self.model_screen is None:
            self.notify(_NO_MODEL, markup=False)
        elif not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def action_help(self) -> None:
        if isinstance(self.screen, Helped):
            self.push_screen(TextDialog("Keys", self.screen.help_lines()))

    def action_look(self) -> None:
        self.theme = _LOOKS[self.theme == _LOOKS[0]]

    async def action_quit(self) -> None:
        self.exit(self.start.failure if self._session is None and self.start is not None else None)

    async def action_stop(self) -> None:
        await self.action_quit()


# Detects changes of the opened file on disk.

Stamp: TypeAlias = tuple[int, int] | None


class FileWatch:
    """Compares time and size of a file with those it had when it was read; each change is told once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = self._stamp()

    def has_changed(self) -> bool:
        """Return whether the file has changed since the last call. A file that is gone or being replaced counts when it is back."""
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return False
        self._seen = stamp
        return True

    def _stamp(self) -> Stamp:
        if not self._path:
            return None
        try:
            found = Path(self._path).stat()
        except (OSError, ValueError):
            return None
        return found.st_mtime_ns, found.st_size
