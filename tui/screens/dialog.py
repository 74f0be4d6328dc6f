"""A window with text over the screen: help, remarks, the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from irscope.tui.actions import bindings
from irscope.tui.models.spans import Line
from irscope.tui.widgets.lines import TextPane


class TextDialog(ModalScreen[None]):
    """Shows lines until it is closed."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog")

    def __init__(self, title: str, lines: Sequence[Line]) -> None:
        super().__init__()
        self.heading = title
        self.lines = lines

    def compose(self) -> ComposeResult:
        with Vertical(id="window") as window:
            window.border_title = Content(self.heading)
            window.border_subtitle = Content("esc closes")
            yield TextPane(self.lines, id="text")

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll_text(self, by: int) -> None:
        self.query_one(TextPane).scroll_relative(y=by, animate=False)
