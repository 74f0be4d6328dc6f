"""A table that draws the visible rows only, however many there are."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.cache import LRUCache
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from irscope.tui.actions import ACTIONS, Action, actions_of, bindings
from irscope.tui.models.rows import TableModel
from irscope.tui.models.spans import Span
from irscope.tui.widgets.paint import Painted

_HEADING = 1


class VirtualTable(Painted, ScrollView, can_focus=True):
    """Shows a table model and moves its cursor."""

    ALLOW_MAXIMIZE = True
    PANE: ClassVar[str] = "table"
    ACTIONS: ClassVar[tuple[Action, ...]] = tuple(actions_of("table", ACTIONS))
    BINDINGS: ClassVar[list[BindingType]] = bindings("table")

    class Selected(Message):
        """The cursor is on another row."""

        def __init__(self, table: VirtualTable, row: int) -> None:
            super().__init__()
            self.table = table
            self.row = row

    class Opened(Message):
        """Enter was pressed on a row."""

        def __init__(self, table: VirtualTable, row: int) -> None:
            super().__init__()
            self.table = table
            self.row = row

    def __init__(self, model: TableModel, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.model = model
        self._version = -1
        self._strips: LRUCache[tuple[int, int, bool, bool], Strip] = LRUCache(2048)

    def set_model(self, model: TableModel) -> None:
        """Show another model."""
        if model is not self.model:
            self.model = model
            self._version = -1
        self.redraw()

    # -- drawing -----------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width, model = self.size.width, self.model
        if y < _HEADING:
            return self.strip(model.heading(width), width)
        index = y - _HEADING + self.scroll_offset.y
        if index >= len(model):
            empty = y == _HEADING and not len(model)
            return self.strip([Span(f" {model.empty}", "faint")] if empty else (), width)
        selected = index == model.index
        key = (index, width, selected, self.has_focus)
        strip = self._strips.get(key)
        if strip is None:
            look = ("row--selected" if self.has_focus else "row--unfocused") if selected else ""
            strip = self._strips[key] = self.strip(model.line(index, width, selected=selected), width, look)
        return strip

    def redraw(self) -> None:
        """Draw again after rows or their looks have changed."""
        if self._version != self.model.version:
            self._version = self.model.version
            self._strips.clear()
        self.virtual_size = Size(self.size.width, len(self.model) + _HEADING)
        self.show_cursor()
        self.refresh()

    def on_resize(self) -> None:
        self.redraw()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    # -- moving ------------------------------------------------------------------------------------------------

    @property
    def page(self) -> int:
        """Rows that fit on the screen."""
        return max(1, self.size.height - _HEADING)

    def show_cursor(self) -> None:
        """Scroll as far as needed to see the cursor."""
        index, top = self.model.index, self.scroll_offset.y
        if not top <= index < top + self.page:
            target = index if index < top else index - self.page + 1
            self.scroll_to(y=target, animate=False, force=True, immediate=True)

    def _move_to(self, index: int) -> None:
        self.model.move_to(index)
        self.show_cursor()
        self.refresh()
        row = self.model.selected
        if row is not None:
            self.post_message(self.Selected(self, row))

    def action_cursor_up(self) -> None:
        self._move_to(self.model.index - 1)

    def action_cursor_down(self) -> None:
        self._move_to(self.model.index + 1)

    def action_page_up(self) -> None:
        self._move_to(self.model.index - self.page)

    def action_page_down(self) -> None:
        self._move_to(self.model.index + self.page)

    def action_first(self) -> None:
        self._move_to(0)

    def action_last(self) -> None:
        self._move_to(len(self.model) - 1)

    def action_open(self) -> None:
        row = self.model.selected
        if row is not None:
            self.post_message(self.Opened(self, row))

    def action_sort(self, by: int) -> None:
        self.model.sort_next(by)
        self._move_to(0)
        self.redraw()

    def action_reverse(self) -> None:
        self.model.turn()
        self._move_to(0)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        index = event.y - _HEADING + self.scroll_offset.y
        if event.y < _HEADING:
            self._sort_at(event.x)
        elif index < len(self.model):
            opens = index == self.model.index
            self._move_to(index)
            if opens:
                self.action_open()

    def _sort_at(self, x: int) -> None:
        """Sort by the column whose title was clicked, the other way round at the second click."""
        end = 1
        for number, room in enumerate(self.model.widths(self.size.width)):
            end += room + 1 if room else 0
            if x < end:
                column = self.model.columns[number]
                if column.keys is not None:
                    again = self.model.sorted_by == number
                    self.model.sort(number, reverse=not self.model.reversed if again else column.right)
                    self._move_to(0)
                    self.redraw()
                return
