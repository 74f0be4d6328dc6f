"""One line to type into, below the tree: a filter, or sizes for symbols."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Input

from irscope.tui.actions import bindings


class Prompt(Input):
    """An input that is shown while it is needed."""

    PANE: ClassVar[str] = "prompt"
    BINDINGS: ClassVar[list[BindingType]] = bindings("prompt")

    class Closed(Message):
        """Typing is over; `keep` says whether what was typed counts."""

        def __init__(self, prompt: Prompt, keep: bool) -> None:
            super().__init__()
            self.prompt = prompt
            self.keep = keep

    def __init__(self, placeholder: str, *, id: str | None = None) -> None:
        super().__init__(placeholder=placeholder, compact=True, select_on_focus=False, id=id)
        self.cursor_blink = False
        self.display = False

    def open(self, text: str) -> None:
        """Show the line with a text to start from."""
        with self.prevent(Input.Changed):
            self.value = text
        self.cursor_position = len(text)
        self.display = True
        self.focus()

    def mark(self, wrong: bool) -> None:
        """Show whether the text makes sense."""
        self.set_class(wrong, "-wrong")

    def action_keep(self) -> None:
        self.post_message(self.Closed(self, keep=True))

    def action_drop(self) -> None:
        self.post_message(self.Closed(self, keep=False))
