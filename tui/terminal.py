"""What irscope's apps in a terminal have in common: looks by the size and the signs of the terminal, leaving, and ending after a fault."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from textual.app import App

from irscope.tui.actions import QUESTIONS
from irscope.tui.text import Line, Span, Symbols, symbols_for

R = TypeVar("R")

_LOOKS = ("textual-dark", "textual-light")


class TerminalApp(App[R]):
    """An app whose faults end it with the terminal restored, and are then raised for the command line to say in one line."""

    CSS_PATH = Path(__file__).with_name("irscope.tcss")
    TITLE = "irscope"

    def __init__(self, symbols: Symbols | None = None) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-tiny"), (16, "-short"), (32, "-tall")]
        self.symbols = symbols or symbols_for(getattr(sys.__stdout__, "encoding", None) or "utf-8", os.environ)
        self.set_class(not self.symbols.has_braille, "-ascii")

    def finish(self) -> R | None:
        """Run until the user leaves; raises the exception that ended the app, if one did."""
        result = self.run()
        if self._exception is not None:
            raise self._exception
        return result

    def _fatal_error(self) -> None:
        # Textual prints a page of traceback with local variables here, and the process ends with exit code 0.
        self._close_messages_no_wait()

    def action_look(self) -> None:
        self.theme = _LOOKS[self.theme == _LOOKS[0]]


def question_lines(questions: Sequence[tuple[str, str]] = QUESTIONS) -> list[Line]:
    """Return a line for each question with the keys that answer it."""
    return [(Span(f"  {keys:<22}", "name"), Span(text)) for text, keys in questions]
