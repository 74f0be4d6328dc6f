"""The totals at the top of the screen."""

from __future__ import annotations

from textual.strip import Strip

from irscope.tui.models.browse import Browse
from irscope.tui.widgets.paint import Painted


class TotalsHeader(Painted):
    """Shows the totals of a browse model."""

    def __init__(self, browse: Browse, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.browse = browse

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        lines = self.browse.header(width, height)
        return self.strip(lines[y] if y < len(lines) else (), width)
