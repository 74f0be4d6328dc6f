"""A scrolling pane of wrapped text: the details of the selection, and the text of dialogs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from irscope.tui.actions import bindings
from irscope.tui.models.spans import Line, wrap
from irscope.tui.widgets.paint import Painted

_INDENT = "    "


class TextPane(Painted, ScrollView, can_focus=True):
    """Shows lines, broken where they are wider than the pane."""

    def __init__(self, lines: Sequence[Line] = (), *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines = lines
        self._rows: list[Line] = []
        self._width = -1

    @property
    def lines(self) -> Sequence[Line]:
        """What the pane shows, not wrapped."""
        return self._lines

    def show(self, lines: Sequence[Line], *, top: bool = False) -> None:
        """Replace the lines; `top` scrolls back to the first."""
        self._lines = lines
        self._wrap()
        if top:
            self.scroll_to(y=0, animate=False, force=True, immediate=True)

    def _wrap(self) -> None:
        self._width = self.size.width
        self._rows = [row for line in self._lines for row in wrap(line, self._width, _INDENT)]
        self.virtual_size = Size(self._width, len(self._rows))
        self.refresh()

    def on_resize(self) -> None:
        if self.size.width != self._width:
            self._wrap()

    def render_line(self, y: int) -> Strip:
        index = y + self.scroll_offset.y
        return self.strip(self._rows[index] if index < len(self._rows) else (), self.size.width)


class DetailPane(TextPane):
    """The details of the selection."""

    ALLOW_MAXIMIZE = True
    PANE: ClassVar[str] = "detail"
    BINDINGS: ClassVar[list[BindingType]] = bindings("detail")
