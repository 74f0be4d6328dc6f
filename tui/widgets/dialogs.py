"""Windows over a screen: text, things to choose from, what can be copied, and where to export to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from irscope.errors import UsageError
from irscope.report.csvout import csv_lines
from irscope.report.jsonout import table_json
from irscope.report.table import Table
from irscope.tui.actions import bindings
from irscope.tui.text import Line, Span
from irscope.tui.widgets.paint import Looks, TextPane

if TYPE_CHECKING:
    from irscope.tui.screen import ModelScreen


# ----------------------------------------------------------------------------------------------------
# Windows over a screen that show text, or a few things to choose from.

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
            self.chosen(self.keys.index(event.character))

    def chosen(self, index: int) -> None:
        """A key of `keys` was pressed."""
        self.dismiss(index)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll_text(self, by: int) -> None:
        self.query_one(TextPane).scroll_relative(y=by, animate=False)


class ChoiceDialog(TextDialog):
    """Things to choose from, each by its key."""

    def __init__(self, title: str, choices: Sequence[str]) -> None:
        keys = _CHOICES[: len(choices)]
        lines: list[Line] = [(Span(f"  {key}  ", "mark"), Span(text)) for key, text in zip(keys, choices, strict=False)]
        if len(choices) > len(keys):
            lines.append((Span(f"  and {len(choices) - len(keys):,} more", "faint"),))
        super().__init__(title, lines, keys)


# ----------------------------------------------------------------------------------------------------
# The window of `y`: what can be copied from a screen.


class CopyDialog(TextDialog):
    """Texts with a number each; the first is on the clipboard already, the number copies another."""

    def __init__(self, texts: Sequence[tuple[str, str]]) -> None:
        self.texts = texts
        lines: list[Line] = []
        for number, (title, text) in enumerate(texts, start=1):
            lines += [(Span(f"{number}  ", "mark"), Span(title, "heading")), (Span(f"   {text}"),), ()]
        lines.append((Span("1 is copied to the clipboard, if this terminal lets programs do that; a number copies another.", "faint"),))
        super().__init__("On the command line", lines, "123456789"[: len(texts)])

    def chosen(self, index: int) -> None:
        self.app.copy_to_clipboard(self.texts[index][1])
        self.dismiss(None)


# ----------------------------------------------------------------------------------------------------
# The window of `e`: writes what a screen shows into a file.

_FORMS = (
    ("t", "txt", "text: the screen as it stands"),
    ("s", "svg", "SVG: a picture of the screen"),
    ("c", "csv", "CSV: all rows, not only those on the screen"),
    ("j", "json", "JSON: all rows with their types"),
)


class ExportDialog(TextDialog):
    """Asks for a form and writes a new file into the current folder."""

    def __init__(self, source: ModelScreen, table: Table | None) -> None:
        self.source = source
        self.held = table
        self.forms = [form for form in _FORMS if table is not None or form[1] in ("txt", "svg")]
        lines: list[Line] = [(Span(f"  {key}  ", "mark"), Span(text)) for key, _, text in self.forms]
        lines += [(), (Span("A new file is written into the folder in which irscope was started.", "faint"),)]
        super().__init__("Export", lines, "".join(key for key, _, _ in self.forms))

    def chosen(self, index: int) -> None:
        suffix = self.forms[index][1]
        self.dismiss(None)
        self.source.call_after_refresh(self._write, suffix)

    def _write(self, suffix: str) -> None:
        source = self.source
        name = source.session.program.path.replace("\\", "/").rpartition("/")[2] or "model"
        try:
            path = write_new(f"{name}-{source.NAME}", suffix, self._text(suffix))
        except UsageError as error:
            source.say(str(error))
        else:
            source.say(f"Written to {path}")

    def _text(self, suffix: str) -> str:
        if suffix == "svg":
            return self.source.app.export_screenshot(title="irscope")
        if suffix == "txt" or self.held is None:
            return self.source.screen_text()
        return table_text(self.held, suffix)


# ----------------------------------------------------------------------------------------------------
# What `e` writes: a table as CSV or JSON, in a file that was not there before.


def table_text(table: Table, form: str) -> str:
    """A table as CSV or JSON."""
    if form == "csv":
        return "".join(csv_lines(table))
    return json.dumps(table_json(table), indent=2, ensure_ascii=False) + "\n"


def write_new(stem: str, suffix: str, text: str, folder: Path | None = None) -> Path:
    """Write a text into a new file of the current folder; a number keeps what is there already."""
    folder = folder or Path()
    clean = "".join(character if character.isalnum() or character in "-_." else "-" for character in stem).strip(".-") or "irscope"
    for number in range(1, 1000):
        path = folder / f"{clean}{'' if number == 1 else f'-{number}'}.{suffix}"
        try:
            with path.open("x", encoding="utf-8", newline="") as file:
                file.write(text)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"cannot write {path}: {error.strerror or error}", hint="start irscope in a folder you may write to"
            ) from error
        return path
    raise UsageError(f"there are too many files called {clean}", hint="remove some of them")
