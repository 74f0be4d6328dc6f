"""The app: shows the screens of a model, runs their analyses in a worker, and restores the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from textual import work
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from irscope.errors import IrscopeError
from irscope.ir.graph import paused_gc
from irscope.session import Model, model_without_graph
from irscope.tui.actions import SCREEN_QUESTIONS, actions_of, app_actions, bindings, key_text
from irscope.tui.analyses import ProgressTeller, answered, instruments_of
from irscope.tui.browse.filter import HELP as FILTER_HELP
from irscope.tui.browse.model import Browse
from irscope.tui.context import Context
from irscope.tui.screen import ModelScreen, pane_titles, screen_actions, screen_class
from irscope.tui.session import FIRST_SCREEN, Place, Request, Session, look_again, quiet_collector, set_aside
from irscope.tui.terminal import TerminalApp, question_lines
from irscope.tui.text import Line, Span, Symbols, error_lines
from irscope.tui.widgets.dialogs import TextDialog

if TYPE_CHECKING:
    from irscope.tui.memory.run import ShownRun

_NOT_IN_PALETTE = frozenset({"next_pane", "previous_pane", "stop", "commands"})
_LOOK_AT_FILE = 2.0
"""Seconds between checks whether the file has changed."""


def run_app(shown: Model | Sequence[ShownRun], other: str = "", step: Sequence[str] | None = None) -> None:
    """Show a model or runs until the user leaves; `other` is a file to compare a model with, `step` are the options of a training step."""
    if isinstance(shown, Model):
        shown.manager.cancelled.clear()
    try:
        with quiet_collector():
            IrscopeApp(shown, other=other, step=step).finish()
    finally:
        # Leaving cancels running analyses; the model stays usable for the caller.
        if isinstance(shown, Model):
            shown.manager.cancelled.clear()


def pane_of(widget: Widget) -> str:
    """Return the pane of the action table that a widget is."""
    return getattr(widget, "PANE", "") or widget.id or ""


class IrscopeApp(TerminalApp[None]):
    """irscope in the terminal."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("app", app_actions())
    PAUSE_GC_ON_SCROLL = True

    class Answered(Message):
        """The worker has a result, or its error."""

        def __init__(self, session: Session, request: Request, answer: object) -> None:
            super().__init__()
            self.session = session
            self.request = request
            self.answer = answer

    class Progressed(Message):
        """Progress of the worker."""

        def __init__(self, session: Session, text: str) -> None:
            super().__init__()
            self.session = session
            self.text = text

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, IrscopeApp.Progressed)

    class ReadAgain(Message):
        """The file was read again, or the error of that."""

        def __init__(self, answer: object) -> None:
            super().__init__()
            self.answer = answer

    def __init__(
        self,
        shown: Model | Sequence[ShownRun],
        symbols: Symbols | None = None,
        *,
        other: str = "",
        step: Sequence[str] | None = None,
    ) -> None:
        super().__init__(symbols)
        self.step = step
        self.session = self._session_of(shown)
        self.file_watch = FileWatch(self.session.program.path)
        self.other = other
        """A file to compare the model with from the start."""
        self._screens: dict[str, ModelScreen] = {}

    def _session_of(self, shown: Model | Sequence[ShownRun], context: Context | None = None) -> Session:
        if isinstance(shown, Model):
            session = Session(shown, self.symbols, context, self.step)
        else:
            from irscope.tui.memory.run import memories_of

            model = model_without_graph(shown[0].path, "recording")
            session = Session(model, self.symbols, context, runs=memories_of(shown, self.symbols))
        session.reopen = self._reopen
        session.start_worker = lambda: self._start_worker(session)
        session.open_place = self.open_place
        return session

    @property
    def browse(self) -> Browse:
        """Return the rows of the model that is shown."""
        return self.session.browse

    def on_mount(self) -> None:
        # A file of weights alone has nothing to browse, a run nothing but its memory.
        first = "memory" if self.session.runs else FIRST_SCREEN if self.session.program.has_graph else "params"
        self.push_screen(self._screen_of(first))
        # The screen is painted before the first analysis competes for the processor.
        self.call_after_refresh(self.session.start)
        if self.other:
            self.session.compare_with = self.other
            self.call_after_refresh(self.action_open_screen, "compare")
        self.set_interval(_LOOK_AT_FILE, self.watch_file)

    def on_unmount(self) -> None:
        self.session.queue.close()

    # -- screens -----------------------------------------------------------------------------------------------

    def _screen_of(self, name: str) -> ModelScreen:
        if name not in self._screens:
            screen = self._screens[name] = screen_class(name)(self.session)
            self.install_screen(screen, name)
        return self._screens[name]

    @property
    def model_screen(self) -> ModelScreen | None:
        """Return the screen over the model that is shown, below whatever window is open."""
        return next((screen for screen in reversed(self.screen_stack) if isinstance(screen, ModelScreen)), None)

    def action_open_screen(self, name: str) -> None:
        shown = self.model_screen
        if name not in (record.name for record in self.session.screens):
            self.notify("A run has no graph; `irscope tui MODEL RECORDING` lays it beside its model.", markup=False)
        elif shown is not None and shown is self.screen and name != shown.NAME:
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

    # -- the file ----------------------------------------------------------------------------------------------

    def watch_file(self) -> None:
        """Notify once when the file has changed on disk."""
        if self.file_watch.has_changed():
            self.notify("The file has changed; ctrl-r reads it again.", markup=False)

    def action_reload(self) -> None:
        if not self.session.program.path:
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
        self.post_message(self.ReadAgain(answered(read)))

    async def on_irscope_app_read_again(self, message: ReadAgain) -> None:
        answer = message.answer
        if isinstance(answer, Model | list):
            await self.show_model(answer)
            self.file_watch = FileWatch(self.session.program.path)
        elif isinstance(answer, IrscopeError):
            lines = error_lines(answer, self.symbols)[1:]
            self.push_screen(TextDialog("The file cannot be read again", lines))

    async def show_model(self, model: Model | Sequence[ShownRun]) -> None:
        """Show another model or other runs, or the same read again, in place of what is shown."""
        self.session.queue.close()
        before, self._screens = self._screens, {}
        self.session = self._session_of(model, self.session.context)
        self.session.manager.cancelled.clear()
        shown = self.model_screen
        first = FIRST_SCREEN if shown is None else shown.NAME
        # A window that was opened while the model was read is about the one before.
        while self.screen is not shown and len(self.screen_stack) > 1:
            await self.pop_screen()
        await self.switch_screen(screen_class(first)(self.session))
        for name, screen in before.items():
            self.uninstall_screen(name)
            await screen.remove()  # it was kept running, with all that it shows, as long as it was installed
        look_again()
        shown = self.model_screen
        if shown is not None:
            self._screens[first] = shown
            self.install_screen(shown, first)
        self.call_after_refresh(self.session.start)

    # -- questions ---------------------------------------------------------------------------------------------

    def _start_worker(self, session: Session) -> None:
        self.work_off(session)

    @work(thread=True, group="questions", exit_on_error=False)
    def work_off(self, session: Session) -> None:
        """Process queued requests; runs in a thread and only posts messages."""

        def tell(text: str) -> None:
            self.post_message(self.Progressed(session, text))

        with instruments_of(session.manager, ProgressTeller(tell)):
            while (request := session.queue.next()) is not None:
                with paused_gc():
                    answer = answered(request.answer)
                    session.put_away()
                    # Before the collector is on again: it would look through all that the answer has made, and hold up keys.
                    set_aside()
                self.post_message(self.Answered(session, request, answer))

    def on_irscope_app_answered(self, message: Answered) -> None:
        if message.session is not self.session:
            return
        answer: Any = message.answer
        if isinstance(answer, IrscopeError):
            message.request.fail(answer)
        else:
            message.request.take(answer)
        self.session.progress = ""
        shown = self.model_screen
        if shown is not None:
            shown.show_all()

    def on_irscope_app_progressed(self, message: Progressed) -> None:
        shown = self.model_screen
        if message.session is self.session and not self.session.queue.is_idle and shown is not None:
            self.session.progress = message.text
            shown.show_progress()

    # -- what keys ask for -------------------------------------------------------------------------------------

    @property
    def pane(self) -> str:
        """Return the pane that has the focus."""
        shown = self.model_screen
        if shown is None:
            return ""
        titles = pane_titles([shown.NAME])
        widget = self.focused
        while widget is not None and widget is not shown:
            pane = pane_of(widget)
            if pane in titles:
                return pane
            widget = cast("Any", widget.parent)
        return shown.NAME

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the command palette: what the focused pane, the screen and the app can do."""
        shown = self.model_screen
        if shown is None:
            return
        wanted = {"screen": shown, shown.NAME: shown, "app": self}
        if self.focused is not None:
            wanted[pane_of(self.focused)] = cast("Any", self.focused)
        for action in screen_actions([shown.NAME]):
            owner = wanted.get(action.pane)
            if owner is not None and action.name not in _NOT_IN_PALETTE:
                keys = ", ".join(map(key_text, action.keys))
                yield SystemCommand(action.label, f"{keys}   {action.help}", self._doing(owner, action.name))
        for record in self.session.screens:
            for question, key in SCREEN_QUESTIONS[record.name]:
                yield SystemCommand(question, f"{record.key}, then {key}   on {record.title}", self._asking(record.name, key))

    def _doing(self, owner: Any, name: str) -> Any:
        async def do() -> None:
            await self.run_action(name, owner)

        return do

    def _asking(self, name: str, key: str) -> Any:
        """Return what opens a screen and then does what a key does there."""

        async def do() -> None:
            self.action_open_screen(name)
            action = next(one for one in screen_actions([name]) if key in one.keys and one.pane in ("screen", name))
            # Once the screen is there, so that what the key says or opens stands over it.
            self.call_after_refresh(self.run_action, action.name, self._screen_of(name))

        return do

    def action_commands(self) -> None:
        self.action_command_palette()

    def action_help(self) -> None:
        shown = self.model_screen
        if shown is not None and shown is self.screen:
            self.push_screen(TextDialog("Keys", help_lines(shown.NAME, self.pane, self.symbols)))

    async def action_quit(self) -> None:
        self.session.queue.close()
        self.exit()

    async def action_stop(self) -> None:
        await self.action_quit()


# ----------------------------------------------------------------------------------------------------
# The text of the help window, made from the table of actions.


def help_lines(screen: str, pane: str, symbols: Symbols) -> list[Line]:
    """Return what a screen answers, then all keys, those of the focused pane first, the filter syntax and the signs."""
    titles, actions = pane_titles([screen]), screen_actions([screen])
    order = [pane, *(one for one in titles if one != pane)] if pane in titles else list(titles)
    lines: list[Line] = [(Span("Questions of this screen", "heading"),), *question_lines(SCREEN_QUESTIONS[screen]), ()]
    is_first = True
    for one in order:
        found = list(actions_of(one, actions))
        if not found:
            continue
        lines.append((Span(titles[one], "heading"),))
        for action in found:
            keys = ", ".join(map(key_text, action.keys))
            lines.append((Span(f"  {keys:<22}", "name"), Span(action.help)))
        lines.append(())
        if is_first:
            lines += [(Span("Questions and where their answers are", "heading"),), *question_lines(), ()]
            is_first = False
    lines.append((Span("Filter syntax; all words must match", "heading"),))
    lines.extend((Span(f"  {term:<22}", "name"), Span(text)) for term, text in FILTER_HELP)
    lines.append(())
    lines.append((Span("Signs", "heading"),))
    lines.extend((Span(f"  {sign:<22}", "name"), Span(text)) for sign, text in _signs(symbols))
    return lines


def _signs(symbols: Symbols) -> Iterator[tuple[str, str]]:
    yield symbols.unknown, "unknown, which is never counted as zero"
    yield symbols.waiting, "still being computed"
    yield f"{symbols.at_least} 1.20 G", "at least this much: some nodes below are unknown and not in the sum"
    yield symbols.glyphs.mark, "the step at which most bytes are alive"
    yield symbols.here, "the step of the selected row"
    yield "result bytes", "sizes of all results together; views of one storage count each time"
    yield "FLOPs", "a multiply-add is 2"


# ----------------------------------------------------------------------------------------------------
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
