"""A pane that draws lines which a view model makes for its size: charts of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.geometry import Size
from textual.strip import Strip

from irscope.tui.models.spans import Line
from irscope.tui.widgets.paint import Painted


class Drawn(Painted):
    """Shows what a function makes of width and height; asks it again only after `redraw` or another size."""

    ALLOW_MAXIMIZE = True
    PANE: ClassVar[str] = ""

    def __init__(self, draw: Callable[[int, int], list[Line]], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.draw = draw
        self._drawn: tuple[Size, list[Line]] | None = None

    def redraw(self) -> None:
        """Draw again after what is drawn has changed."""
        self._drawn = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if self._drawn is None or self._drawn[0] != self.size:
            self._drawn = (self.size, self.draw(self.size.width, self.size.height))
        lines = self._drawn[1]
        return self.strip(lines[y] if y < len(lines) else (), self.size.width)
