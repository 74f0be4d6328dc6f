"""The top of the screen: the screens there are, and the totals."""

from __future__ import annotations

from textual import events
from textual.strip import Strip

from irscope.report.printable import display_width
from irscope.tui.models.browse import Browse
from irscope.tui.models.spans import Line, Span
from irscope.tui.models.symbols import Symbols
from irscope.tui.screens.registry import SCREENS
from irscope.tui.widgets.paint import Painted


class ScreenTabs(Painted):
    """The screens with their keys; the one that is shown is in brackets."""

    def __init__(self, shown: str, symbols: Symbols, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown = shown
        self.symbols = symbols

    def tabs(self, width: int) -> list[tuple[str, Line]]:
        """Each screen with what stands for it; where the room is short, titles get shorter."""
        longest = max(len(record.title) for record in SCREENS)
        room = next((room for room in range(longest, 0, -1) if self._total(room) <= width), 1)
        return [(record.name, self._tab(record.key, record.title[:room], record.name == self.shown)) for record in SCREENS]

    def _total(self, room: int) -> int:
        return sum(len(record.title[:room]) + 4 for record in SCREENS) + 1

    def _tab(self, key: str, title: str, is_shown: bool) -> Line:
        if is_shown:
            return (Span("[", "mark"), Span(f"{key} {title}", "heading"), Span("]", "mark"))
        return (Span(" "), Span(key, "name"), Span(f" {title} ", "faint"))

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
    """Shows the totals of a browse model."""

    def __init__(self, browse: Browse, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.browse = browse

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        lines = self.browse.header(width, height)
        return self.strip(lines[y] if y < len(lines) else (), width)
