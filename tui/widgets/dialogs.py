"""Windows over a screen that show text, or a few things to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from textual import events
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.command import CommandPalette
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from irscope.tui.actions import bindings
from irscope.tui.text import Line, Span
from irscope.tui.widgets.paint import Looks, TextPane

R = TypeVar("R")
C = TypeVar("C")

_DIGITS = "123456789"
_MOVES = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "home": -(1 << 30), "end": 1 << 30}
"""Keys that move the mark of a list, and by how many rows."""


class Window(Looks, ModalScreen[R]):
    """A window that closes itself alone: keys of the same read reach it once it has answered, is covered, or was closed by a reload."""

    def dismiss(self, result: R | None = None) -> AwaitComplete:
        """Close the window with `result`; Textual would close whatever is on top."""
        return super().dismiss(result) if self.app.screen_stack[-1:] == [self] else AwaitComplete()


class Palette(CommandPalette, Window[None]):
    """Textual's window of commands."""


class TextDialog(Window[int | None]):
    """Shows lines until it is closed; a key of `keys` closes it with its place among them."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog")

    def __init__(self, title: str, lines: Sequence[Line], keys: str = "") -> None:
        super().__init__()
        self.heading = title
        self.lines = lines
        self.keys = keys

    def compose(self) -> ComposeResult:
        with Vertical(id="window") as window:
            window.border_title = Content(self.heading)
            window.border_subtitle = Content("esc closes")
            yield TextPane(self.lines, id="text")

    def on_key(self, event: events.Key) -> None:
        # Keys that choose come before those that scroll or close.
        if event.character is not None and event.character in self.keys:
            event.stop()
            event.prevent_default()
            self.dismiss(self.keys.index(event.character))

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll_text(self, by: int) -> None:
        self.query_one(TextPane).scroll_relative(y=by, animate=False)


class ChoiceDialog(TextDialog):
    """A list to choose from: typing filters it, arrows move the mark, enter takes the marked row. Short lists have a digit for each row."""

    def __init__(self, title: str, choices: Sequence[str]) -> None:
        self.choices = choices
        self.typed = ""
        self.marked = 0
        self.has_digits = len(choices) <= len(_DIGITS)
        super().__init__(title, self._list_lines())

    def on_mount(self) -> None:
        self._show_typed()

    def matching(self) -> list[int]:
        """Return the choices that match the typed text: those whose first word it is, then those that begin with it, then the rest."""
        typed = self.typed.casefold()

        def rank(index: int) -> tuple[bool, bool, int]:
            text = self.choices[index].casefold()
            return text.split(" ")[0].rstrip(":") != typed, not text.startswith(typed), index

        words = typed.split()
        kept = [index for index, text in enumerate(self.choices) if all(word in text.casefold() for word in words)]
        return sorted(kept, key=rank) if typed else kept

    def on_key(self, event: events.Key) -> None:
        rows = self.matching()
        if event.key == "enter":
            if rows:
                self.dismiss(rows[self.marked])
        elif event.key in _MOVES:
            self.marked = max(0, min(self.marked + _MOVES[event.key], len(rows) - 1))
        elif event.key == "backspace":
            self.typed, self.marked = self.typed[:-1], 0
        elif event.is_printable and event.character is not None:
            if self.has_digits and not self.typed and event.character in _DIGITS[: len(self.choices)]:
                self.dismiss(int(event.character) - 1)
            self.typed, self.marked = self.typed + event.character, 0
        else:
            return
        event.stop()
        event.prevent_default()
        self._show_typed()

    def _show_typed(self) -> None:
        window, pane = self.query_one("#window"), self.query_one(TextPane)
        window.border_subtitle = Content(f"{self.typed or 'type to filter'} - enter takes, esc closes")
        pane.show(self._list_lines())
        top = pane.scroll_offset.y
        if not top <= self.marked < top + max(pane.size.height, 1):
            pane.scroll_to(y=max(0, self.marked - pane.size.height // 2), animate=False, force=True, immediate=True)

    def _list_lines(self) -> list[Line]:
        rows = self.matching()
        if not rows:
            return [(Span("  nothing here matches; backspace takes a letter back", "faint"),)]
        return [
            (
                Span(f"  {index + 1 if self.has_digits else ' '}  ", "mark"),
                Span(self.choices[index], "selected" if place == self.marked else "plain"),
            )
            for place, index in enumerate(rows)
        ]


def choose(app: App[Any], title: str, choices: Sequence[C], text_of: Callable[[C], str], take: Callable[[C], None]) -> None:
    """Let the user choose one of some things in a window."""

    def chosen(index: int | None) -> None:
        if index is not None:
            take(choices[index])

    app.push_screen(ChoiceDialog(title, [text_of(choice) for choice in choices]), chosen)


def keyed(choices: Iterable[tuple[str, str]]) -> list[Line]:
    """Return a line for each key with what it chooses."""
    return [(Span(f"  {key}  ", "mark"), Span(text)) for key, text in choices]
