"""From lines with roles to strips with styles; every widget that draws itself is painted here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from irscope.tui.models.spans import ROLES, Span

_PLAIN = Style.null()


class Looks(Widget):
    """A screen over which widgets are painted: the style sheet gives each role a look as `.role--<name>`, once for all of them."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"role--{role}" for role in ROLES} | {"row--selected", "row--unfocused"}


class Painted(Widget):
    """A widget whose text has roles."""

    def strip(self, line: Iterable[Span], width: int, row_class: str = "") -> Strip:
        """A line in exactly `width` cells; `row_class` names a look for the whole row."""
        look = self.screen.get_component_rich_style
        base = self.rich_style
        row = look(row_class, default=_PLAIN) if row_class else _PLAIN
        segments = [Segment(text, look(f"role--{role}", default=_PLAIN) + row) for text, role in line if text]
        return Strip(segments).adjust_cell_length(width, base + row)
