"""What all screens over a model have in common: frame, prompts, and the actions that mean the same everywhere.

To add a screen:

1. Write `tui/NAME.py`, or a folder `tui/NAME/` where that is long, with a class `NAMEScreen(ModelScreen)`. It gives `NAME`, `FIRST` (the
   selector of the widget that has the focus first), `PANES` (titles of its own panes by the id of the widget), `ACTIONS` (an `Action` for
   each of its own keys; the pane of an action is the id of the widget that has the method `action_<name>`, or NAME for the screen itself),
   and `BINDINGS = bindings(NAME, ACTIONS)`. It yields its widgets in `panes()`, asks its questions in `asked()`, shows what is known
   in `show()`, and says what `y` and `e` take in `commands()`, `selected_text()` and `table()`.
2. Add one `ScreenRecord` to `SCREENS` in `actions.py`. Key, tab, palette and help come from it.

All logic belongs into a class beside the screen that knows nothing of Textual; the screen keeps it with `session.keep(NAME, make)`.
Questions go through `session.ask(key, answer, take, fail)`: `answer` runs in the worker's thread and may call passes
(`irscope.tui.analyses.result_of(manager, "liveness{model=ssa}")`), `take` and `fail` run on the UI's thread; afterwards `show()` is called.
What the numbers are for, `session.context`, is one for all screens: sizes, device, lifetimes and run. A screen asks anew in `asked()`
where what it has is not for `context.target` and `results.complete` (a number for every symbol) or `results.binding` (formulas stay where
no size was put in); work that would hold up keys for long goes through `session.apart`.
What a pass returns is shown as it is; its module is imported where it runs, or for its types alone, so that the first paint waits for no
pass.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget

from irscope.devices.catalogue import all_devices
from irscope.errors import Cancelled, UsageError
from irscope.files import create_text
from irscope.report.csvout import csv_lines
from irscope.report.jsonout import table_json
from irscope.report.printable import display_width
from irscope.report.table import Table
from irscope.tui.actions import (
    ACTIONS,
    KEYS_WIDTH,
    OF_MODELS,
    PANE_TITLES,
    SCREEN_QUESTIONS,
    Action,
    ScreenRecord,
    actions_of,
    app_actions,
    bindings,
    key_text,
    screen_record,
)
from irscope.tui.browse.filter import HELP as FILTER_HELP
from irscope.tui.context import LIFETIMES, RUNS, device_text
from irscope.tui.session import Place, Session
from irscope.tui.text import Line, Span, Symbols
from irscope.tui.widgets.dialogs import C, TextDialog, choose, keyed
from irscope.tui.widgets.paint import Helped, Keys, Painted, Prompt, question_lines

_FILTER, _SIZES, _GO_TO = "filter", "sizes", "go_to"
_AS_IT_RAN = "Memory is shown as it ran; lifetimes are those of the run."
_NOT_IN_PALETTE = frozenset({"next_pane", "previous_pane", "stop", "commands"})
_FORMS = (
    ("t", "txt", "text: the screen as it stands"),
    ("s", "svg", "SVG: a picture of the screen"),
    ("c", "csv", "CSV: all rows, not only those on the screen"),
    ("j", "json", "JSON: all rows with their types"),
)
"""File formats of `e`: the key, the suffix, and a description of the content."""


class ModelScreen(Helped):
    """A screen over a model. Above stands what a subclass gives."""

    NAME: ClassVar[str]
    FIRST: ClassVar[str]
    PANES: ClassVar[dict[str, str]] = {}
    ACTIONS: ClassVar[tuple[Action, ...]] = ()
    DECIDES: ClassVar[tuple[str, ...]] = ()
    """Actions that decide what the screen shows: their keys stand first in the line below."""
    FILTER_HINT: ClassVar[str] = "words; all of them must match"
    BINDINGS: ClassVar[list[BindingType]] = bindings("screen")

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.browse = session.browse
        self.symbols = session.symbols
        self._is_fresh = True

    def panes(self) -> ComposeResult:
        """Yield the widgets between header and footer."""
        yield from ()

    def asked(self) -> None:
        """Queue the requests of this screen; called whenever it comes to the front."""

    def show(self) -> None:
        """Refresh everything; called after results arrive, and when the screen comes to the front."""

    def set_filter(self, text: str) -> str:
        """Show only what matches; returns what is wrong with the text, if anything is. Called at every key."""
        return ""

    @property
    def filter_text(self) -> str:
        """Return the filter that holds."""
        return ""

    def commands(self) -> list[tuple[str, str]]:
        """Command lines that give what the screen shows, each after a title; the first is copied at once."""
        return []

    def selected_text(self) -> list[tuple[str, str]]:
        """Return the other texts that can be copied, each after a title: the row, its name."""
        return []

    def table(self) -> Table | None:
        """Return the table of the screen, for the export to CSV and JSON."""
        return None

    def focus_first(self) -> None:
        """Give the focus to the widget that has it first."""
        self.query_one(self.FIRST).focus()

    def compose(self) -> ComposeResult:
        yield ScreenTabs(self.NAME, self.session, id="tabs")
        yield TotalsHeader(self.session, id="totals")
        yield from self.panes()
        keys = Keys()
        keys.first, keys.hidden = self.DECIDES, self.without_meaning
        yield keys

    @property
    def without_meaning(self) -> Collection[str]:
        """Return the actions that do nothing on what is shown."""
        return OF_MODELS if self.session.runs else ()

    def prompts(self) -> ComposeResult:
        """Yield the input lines; a screen yields them where they are to appear."""
        names = " ".join(f"{name}=8" for name in self.session.sizes[:3])
        yield Prompt("Filter", self.FILTER_HINT, id=_FILTER)
        yield Prompt("Sizes", f"such as {names}, with a device where another one is meant: {names} l4", id=_SIZES)
        yield Prompt("Go to", "a name, a module or a step", id=_GO_TO)

    def on_mount(self) -> None:
        self.focus_first()
        self.show()

    def on_screen_resume(self) -> None:
        # A screen is painted before its requests compete for the processor.
        self.call_after_refresh(self.asked)
        if not self._is_fresh:
            self.show_all()
        self._is_fresh = False

    def show_all(self) -> None:
        """Bring the screen up to date, its frame included."""
        with self.app.batch_update():
            self.query_one(TotalsHeader).refresh()
            self.show()

    def show_progress(self) -> None:
        """Say how far the worker is."""

    def title_of(self, pane: str, text: str, *, progress: bool = False) -> None:
        """Set the title of a pane, with how far the worker is where that is wanted."""
        if progress and self.session.progress:
            text = f"{text}{self.symbols.glyphs.separator}{self.symbols.clean(self.session.progress)}"
        # As content, not as text: text would be read as markup, and names of a model may hold brackets.
        self.query_one(f"#{pane}").border_title = Content(text)

    def say(self, text: str) -> None:
        """Show the user a word that goes away by itself."""
        self.notify(self.symbols.clean(text), markup=False)

    def choose(self, title: str, choices: Sequence[C], text_of: Callable[[C], str], take: Callable[[C], None]) -> None:
        """Let the user choose one of some things."""
        choose(self.app, title, choices, text_of, take)

    def action_filter(self) -> None:
        self.query_one(f"#{_FILTER}", Prompt).open(self.filter_text)

    def action_sizes(self) -> None:
        if self.session.sizes:
            self.query_one(f"#{_SIZES}", Prompt).open(self.session.context.typed)
        else:
            self.say(self.session.runs[0].run.fixed if self.session.runs else "Every size is fixed in the file.")

    def action_device(self) -> None:
        self.choose("Device", all_devices(), device_text, lambda device: self._change(device=device.name))

    def action_lifetime(self) -> None:
        if self.session.runs:
            self.say(_AS_IT_RAN)
            return
        self.choose("When tensors are freed", list(LIFETIMES), LIFETIMES.__getitem__, lambda name: self._change(lifetime=name))

    def action_run(self) -> None:
        if self.session.runs:
            self.say(_AS_IT_RAN)
            return
        self.choose("Memory of which run", list(RUNS), RUNS.__getitem__, lambda name: self._change(run=name))

    def _change(self, **changed: Any) -> None:
        self.session.change(**changed)
        self.asked()
        self.show_all()

    def action_go_to(self) -> None:
        self.query_one(f"#{_GO_TO}", Prompt).open("")

    def on_prompt_typed(self, message: Prompt.Typed) -> None:
        if message.prompt.id == _FILTER:
            self._filter(message.prompt.value)

    def on_prompt_closed(self, message: Prompt.Closed) -> None:
        prompt, text = message.prompt, message.prompt.value
        problem = ""
        if prompt.id == _SIZES and message.keep:
            problem = self.set_sizes(text)
        elif prompt.id == _GO_TO and message.keep:
            problem = self.go_to(text)
        elif prompt.id == _FILTER and (not message.keep or self.set_filter(text)):
            self._filter("")
        prompt.mark(self.symbols.clean(problem))
        if problem:
            return
        prompt.display = False
        self.focus_first()
        self.show()

    def _filter(self, text: str) -> None:
        problem = self.set_filter(text)
        self.query_one(f"#{_FILTER}", Prompt).mark(self.symbols.clean(problem))
        self.show()

    def set_sizes(self, text: str) -> str:
        """Bind symbols on all screens, and take the device that is named beside them; returns an error message, if any."""
        words = text.replace(",", " ").split()
        device = next((one.name for one in all_devices() if one.name in words), "")
        if device:
            self._change(device=device)
            if words == [device]:
                return ""
        problem = self.session.set_sizes(" ".join(word for word in words if word != device))
        if not problem:
            self.query_one(TotalsHeader).refresh()
            self.call_after_refresh(self.asked)
        return problem

    def go_to(self, text: str) -> str:
        """Go to what a text names; returns what is wrong, if anything is."""
        row = self.session.find(text)
        if row is None:
            return f"there is no node, module or step {text.strip()!r}"
        self.show_row(row)
        return ""

    def show_row(self, row: int) -> None:
        """Show a row of the outline here, or where it can be shown."""
        self.session.jump(self.NAME, row)

    def open_node(self, row: int) -> None:
        """Show a row of the outline on the browse screen."""
        self.session.open_place(Place("browse", row), jump=True)

    def action_went_back(self) -> None:
        self._travel(self.session.history.back(), "There is nothing before this.")

    def action_went_on(self) -> None:
        self._travel(self.session.history.forward(), "There is nothing after this.")

    def _travel(self, place: Place | None, otherwise: str) -> None:
        if place is None:
            self.say(otherwise)
        else:
            self.session.open_place(place)

    def action_back(self) -> None:
        if self.maximized is not None:
            self.minimize()
        elif self.filter_text:
            self._filter("")

    def action_zoom(self) -> None:
        if self.maximized is not None:
            self.minimize()
            return
        pane: Widget | None = self.focused
        while pane is not None and not getattr(pane, "ALLOW_MAXIMIZE", None):
            pane = pane.parent if isinstance(pane.parent, Widget) else None
        if pane is not None and pane is not self:
            self.maximize(pane, container=False)

    def action_copy(self) -> None:
        clean = self.symbols.clean
        texts = [(title, clean(text)) for title, text in (*self.commands(), *self.selected_text())]
        if not texts:
            self.say("There is nothing to copy here.")
            return
        self.app.copy_to_clipboard(texts[0][1])
        lines: list[Line] = []
        for number, (title, text) in enumerate(texts, start=1):
            lines += [(Span(f"{number}  ", "mark"), Span(title, "heading")), (Span(f"   {text}"),), ()]
        lines.append((Span("1 is copied to the clipboard, if this terminal lets programs do that; a number copies another.", "faint"),))

        def copy(index: int | None) -> None:
            if index is not None:
                self.app.copy_to_clipboard(texts[index][1])

        self.app.push_screen(TextDialog("On the command line", lines, "123456789"[: len(texts)]), copy)

    def action_export(self) -> None:
        table = self.table()
        forms = [form for form in _FORMS if table is not None or form[1] in ("txt", "svg")]

        def write(index: int | None) -> None:
            if index is not None:
                self.call_after_refresh(self._export, forms[index][1], table)

        lines = [*keyed((key, text) for key, _, text in forms), ()]
        lines.append((Span("A new file is written into the folder in which irscope was started.", "faint"),))
        self.app.push_screen(TextDialog("Export", lines, "".join(key for key, _, _ in forms)), write)

    def _export(self, suffix: str, table: Table | None) -> None:
        if suffix == "svg":
            text = self.app.export_screenshot(title="irscope")
        else:
            text = self.screen_text() if suffix == "txt" or table is None else table_text(table, suffix)
        try:
            self.say(f"Written to {write_new(f'{self._stem}-{self.NAME}', suffix, text)}")
        except UsageError as error:
            self.say(str(error))

    @property
    def _stem(self) -> str:
        return self.session.program.path.replace("\\", "/").rpartition("/")[2] or "model"

    def screen_text(self) -> str:
        """Return the screen as text."""
        return "\n".join(strip.text.rstrip() for strip in self._compositor.render_strips()) + "\n"

    def action_warnings(self) -> None:
        self.app.push_screen(TextDialog("Remarks", self.browse.remark_lines()))

    def action_stop_work(self) -> None:
        if self.session.queue.is_idle:
            self.say("Nothing is being computed.")
        else:
            for request in self.session.queue.clear():
                request.fail(Cancelled("stopped on request", hint="ctrl-r reads the file again and starts over"))
            self.say("Stopped. What is not there yet stays unknown; ctrl-r starts over.")
            self.show_all()

    def action_next_pane(self) -> None:
        self.focus_next()

    def action_previous_pane(self) -> None:
        self.focus_previous()

    @property
    def pane(self) -> str:
        """Return the pane that has the focus."""
        titles = pane_titles([self.NAME])
        widget = self.app.focused
        while widget is not None and widget is not self:
            pane = pane_of(widget)
            if pane in titles:
                return pane
            widget = cast("Any", widget.parent)
        return self.NAME

    def system_commands(self) -> Iterator[SystemCommand]:
        """Yield what the focused pane, the screen and the app can do, and the questions that screens answer."""
        wanted = {"screen": self, self.NAME: self, "app": self.app}
        if self.app.focused is not None:
            wanted[pane_of(self.app.focused)] = cast("Any", self.app.focused)
        for action in screen_actions([self.NAME]):
            owner = wanted.get(action.pane)
            if owner is not None and action.name not in _NOT_IN_PALETTE:
                keys = ", ".join(map(key_text, action.keys))
                yield SystemCommand(action.label, f"{keys}   {action.help}", partial(self.app.run_action, action.name, owner))
        for record in self.session.screens:
            for question, key in SCREEN_QUESTIONS[record.name]:
                yield SystemCommand(question, f"{record.key}, then {key}   on {record.title}", partial(self._answer, record, key))

    async def _answer(self, record: ScreenRecord, key: str) -> None:
        """Open a screen and do what a key does there."""
        await self.app.run_action(record.action.name)
        action = next(one for one in screen_actions([record.name]) if key in one.keys and one.pane in ("screen", record.name))
        # Once the screen is there, so that what the key says or opens stands over it.
        self.app.call_after_refresh(lambda: self.app.run_action(action.name, self.app.screen))

    def help_lines(self) -> list[Line]:
        return help_lines(self.NAME, self.pane, self.symbols, self.without_meaning)


def named(lines: Sequence[tuple[str, str]]) -> list[Line]:
    """Titles with a text below each."""
    found: list[Line] = []
    for title, text in lines:
        found += [(Span(title, "heading"),), (Span(text),), ()]
    return found[:-1]


def pane_of(widget: Widget) -> str:
    """Return the pane of the action table that a widget is."""
    return getattr(widget, "PANE", "") or widget.id or ""


def screen_class(name: str) -> type[ModelScreen]:
    """Return the class of a screen, imported when it is first shown or asked for its keys."""
    module, _, cls = screen_record(name).place.partition(":")
    found: type[ModelScreen] = getattr(importlib.import_module(f"irscope.tui.{module}"), cls)
    return found


def screen_actions(names: Sequence[str]) -> tuple[Action, ...]:
    """Return the table of actions with those of these screens, most particular first."""
    own = [action for name in names for action in screen_class(name).ACTIONS]
    return (*own, *(action for action in ACTIONS if action.pane != "app"), *app_actions())


def pane_titles(names: Sequence[str]) -> dict[str, str]:
    """Return the panes of these screens and those that all screens have."""
    own = {pane: title for name in names for pane, title in screen_class(name).PANES.items()}
    return {**own, **PANE_TITLES}


def table_text(table: Table, form: str) -> str:
    """Return a table as CSV or JSON."""
    if form == "csv":
        return "".join(csv_lines(table))
    return json.dumps(table_json(table), indent=2, ensure_ascii=False) + "\n"


def write_new(stem: str, suffix: str, text: str) -> Path:
    """Write a text into a new file of the current folder; a number keeps what is there already."""
    clean = "".join(character if character.isalnum() or character in "-_." else "-" for character in stem).strip(".-") or "irscope"
    for number in range(1, 1000):
        path = Path(f"{clean}{'' if number == 1 else f'-{number}'}.{suffix}")
        try:
            create_text(path, text)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"cannot write {path}: {error.strerror or error}", hint="start irscope in a folder you may write to"
            ) from error
        return path
    raise UsageError(f"there are too many files called {clean}", hint="remove some of them")


# The top of the screen: the screens there are, and the totals.


class ScreenTabs(Painted):
    """The screens with their keys; the one that is shown is in brackets."""

    def __init__(self, shown: str, session: Session, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown = shown
        self.records = session.screens

    def tabs(self, width: int) -> list[tuple[str, Line]]:
        """Return each screen with what stands for it; where the room is short, one sign parts two of them, and then titles get shorter."""
        longest = max(len(record.title) for record in self.records)
        is_wide = self._total(longest, 4) <= width
        room = longest if is_wide else next((room for room in range(longest, 0, -1) if self._total(room, 3) <= width), 1)
        tabs: list[tuple[str, Line]] = []

        def sign(text: str) -> Span:
            return Span(text, "plain" if text == " " else "mark")

        before = " "
        for record in self.records:
            title, after = record.title[:room], " "
            if record.name == self.shown:
                before, after = "[", "]"
                middle = [Span(f"{record.key} {title}", "heading")]
            else:
                middle = [Span(record.key, "name"), Span(f" {title}", "faint")]
            is_closed = is_wide or record is self.records[-1]
            tabs.append((record.name, (sign(before), *middle, *([sign(after)] if is_closed else []))))
            before = " " if is_wide else after
        return tabs

    def _total(self, room: int, around: int) -> int:
        return sum(len(record.title[:room]) + around for record in self.records) + 1

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        return self.strip([span for _, tab in self.tabs(width) for span in tab] if y == 0 else (), width)

    def on_click(self, event: events.Click) -> None:
        at = 0
        for name, tab in self.tabs(self.size.width):
            at += sum(display_width(span.text) for span in tab)
            if event.x < at:
                self.app.call_later(self.app.run_action, f"app.open_screen('{name}')")
                return


class TotalsHeader(Painted):
    """Shows the verdict and the totals, and what they are for."""

    def __init__(self, session: Session, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.session = session

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        lines = self.session.header(width)
        return self.strip(lines[y] if y < len(lines) else (), width)


# The text of the help window, made from the table of actions.


def help_lines(screen: str, pane: str, symbols: Symbols, hidden: Collection[str] = ()) -> list[Line]:
    """Return what a screen answers, then all keys but those of some actions, the focused pane's first, the filter syntax and the signs."""
    titles, actions = pane_titles([screen]), [action for action in screen_actions([screen]) if action.name not in hidden]
    keys_there = {key_text(key) for action in actions if action.pane in ("screen", screen) for key in action.keys}
    order = [pane, *(one for one in titles if one != pane)] if pane in titles else list(titles)
    questions = [(text, key) for text, key in SCREEN_QUESTIONS[screen] if key_text(key) in keys_there]
    lines: list[Line] = [(Span("Questions of this screen", "heading"),), *question_lines(questions), ()]
    is_first = not hidden  # what is asked of a model
    for one in order:
        found = list(actions_of(one, actions))
        if not found:
            continue
        lines.append((Span(titles[one], "heading"),))
        for action in found:
            keys = ", ".join(map(key_text, action.keys))
            lines.append((Span(f"  {keys:<{KEYS_WIDTH}}", "name"), Span(action.help)))
        lines.append(())
        if is_first:
            lines += [(Span("Questions and where their answers are", "heading"),), *question_lines(), ()]
            is_first = False
    lines.append((Span("Filter syntax; all words must match", "heading"),))
    lines.extend((Span(f"  {term:<{KEYS_WIDTH}}", "name"), Span(text)) for term, text in FILTER_HELP)
    lines.append(())
    lines.append((Span("Signs", "heading"),))
    lines.extend((Span(f"  {sign:<{KEYS_WIDTH}}", "name"), Span(text)) for sign, text in _signs(symbols))
    return lines


def _signs(symbols: Symbols) -> Iterator[tuple[str, str]]:
    yield symbols.unknown, "unknown, which is never counted as zero"
    yield symbols.waiting, "still being computed"
    yield f"{symbols.at_least} 1.20 G", "at least this much: some nodes below are unknown and not in the sum"
    yield symbols.glyphs.mark, "the step at which most bytes are alive"
    yield symbols.here, "the step of the selected row"
    yield "result bytes", "sizes of all results together; views of one storage count each time"
    yield "FLOPs", "a multiply-add is 2"
