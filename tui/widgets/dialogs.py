"""Windows over a screen that show text, or a few things to choose from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from irscope.tui.actions import bindings
from irscope.tui.text import Line, Span
from irscope.tui.widgets.paint import Looks, TextPane

_CHOICES = "123456789abdfghilmnoprstuvwxyz"
"""Keys that choose; those that move or close are left out."""


class TextDialog(Looks, ModalScreen[int | None]):
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
    """Things to choose from, each by its key."""

    def __init__(self, title: str, choices: Sequence[str]) -> None:
        keys = _CHOICES[: len(choices)]
        lines = keyed(zip(keys, choices, strict=False))
        if len(choices) > len(keys):
            lines.append((Span(f"  and {len(choices) - len(keys):,} more", "faint"),))
        super().__init__(title, lines, keys)


def keyed(choices: Iterable[tuple[str, str]]) -> list[Line]:
    """A line for each key with what it chooses."""
    return [(Span(f"  {key}  ", "mark"), Span(text)) for key, text in choices]
