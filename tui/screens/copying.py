"""The window of `y`: what can be copied from a screen."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.tui.models.spans import Line, Span
from irscope.tui.screens.dialog import TextDialog


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
