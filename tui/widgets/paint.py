"""From lines with roles to strips with styles; every widget that draws itself is painted here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from irscope.tui.models.spans import ROLES, Span


class Painted(Widget):
    """A widget whose text has roles; the style sheet gives each role a look as `.role--<name>`."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"role--{role}" for role in ROLES} | {"row--selected", "row--unfocused"}

    def strip(self, line: Iterable[Span], width: int, row_class: str = "") -> Strip:
        """A line in exactly `width` cells; `row_class` names a look for the whole row."""
        base = self.rich_style
        row = self.get_component_rich_style(row_class) if row_class else Style.null()
        segments = [Segment(text, self.get_component_rich_style(f"role--{role}") + row) for text, role in line if text]
        return Strip(segments).adjust_cell_length(width, base + row)
