"""A table and a tree with columns, which draw the visible rows only, however many there are."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.cache import LRUCache
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from irscope.tui.actions import ACTIONS, Action, actions_of, bindings
from irscope.tui.browse.model import TreeTable
from irscope.tui.rows import Rows, TableModel
from irscope.tui.text import Span
from irscope.tui.widgets.paint import Painted

_HEADING = 1


class RowsPane(Vertical):
    """A table or tree with the lines to type into below it."""

    ALLOW_MAXIMIZE = True


class RowsView(Painted, ScrollView, can_focus=True):
    """Shows rows with columns and moves their cursor."""

    class Selected(Message):
        """The cursor is on another row."""

        def __init__(self, table: RowsView, row: int) -> None:
            super().__init__()
            self.table = table
            self.row = row

    class Opened(Selected):
        """Enter was pressed on a row."""

    def __init__(self, model: Rows, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.model = model
        self._version: object = None
        self._strips: LRUCache[tuple[int, int, bool, bool], Strip] = LRUCache(2048)

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

    def redraw(self, *, middle: bool = False) -> None:
        """Draw again after rows or their looks have changed; `middle` shows what is around the cursor where it was out of sight."""
        version = self.model.version
        if self._version is None or self._version != version:
            self._version = version
            self._strips.clear()
            self.model.refit()
        self.virtual_size = Size(self.size.width, len(self.model) + _HEADING)
        self.show_cursor(middle=middle)
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

    @property
    def page(self) -> int:
        """Rows that fit on the screen."""
        return max(1, self.size.height - _HEADING)

    def show_cursor(self, *, middle: bool = False) -> None:
        """Scroll as far as needed to see the cursor; `middle` shows what is around it too."""
        index, top = self.model.index, self.scroll_offset.y
        if not top <= index < top + self.page:
            target = index if index < top else index - self.page + 1
            self.scroll_to(y=index - self.page // 2 if middle else target, animate=False, force=True, immediate=True)

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

    def on_click(self, event: events.Click) -> None:
        index = event.y - _HEADING + self.scroll_offset.y
        if event.y < _HEADING:
            self.heading_clicked(event.x)
        elif index < len(self.model):
            opens = index == self.model.index
            self._move_to(index)
            if opens:
                self.action_open()

    def heading_clicked(self, x: int) -> None:
        """Handle a click on a title."""


class VirtualTable(RowsView):
    """Shows a table, which can be sorted."""

    ALLOW_MAXIMIZE = True
    PANE: ClassVar[str] = "table"
    ACTIONS: ClassVar[tuple[Action, ...]] = tuple(actions_of("table", ACTIONS))
    BINDINGS: ClassVar[list[BindingType]] = bindings("table")
    model: TableModel

    def set_model(self, model: TableModel) -> None:
        """Show another model."""
        if model is not self.model:
            self.model, self._version = model, None
        self.redraw()

    def action_sort(self, by: int) -> None:
        self.model.sort_next(by)
        self._move_to(0)
        self.redraw()

    def action_reverse(self) -> None:
        self.model.turn()
        self._move_to(0)
        self.redraw()

    def heading_clicked(self, x: int) -> None:
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


class OutlineTree(RowsView):
    """Shows the tree of the model and moves the selection of all screens."""

    ALLOW_MAXIMIZE = False
    """The pane around it is what fills the screen, with the lines to type into."""
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("tree", "cursor_up", ("up", "k"), "Up", "Select the row above."),
        Action("tree", "cursor_down", ("down", "j"), "Down", "Select the row below."),
        Action("tree", "page_up", ("pageup", "ctrl+b"), "Page up", "Go up by a page."),
        Action("tree", "page_down", ("pagedown", "ctrl+f"), "Page down", "Go down by a page."),
        Action("tree", "first", ("home",), "First", "Select the first row."),
        Action("tree", "last", ("end",), "Last", "Select the last row."),
        Action("tree", "expand", ("right", "l"), "Expand", "Show what is inside; once shown, go there."),
        Action("tree", "collapse", ("left", "h"), "Collapse", "Hide what is inside; once hidden, go to the module around."),
        Action("tree", "open", ("enter", "space"), "Open", "Expand or collapse the row.", footer=True),
        Action("tree", "expand_all", ("asterisk",), "Expand all", "Show everything."),
        Action("tree", "collapse_all", ("minus",), "Collapse all", "Show the top level only."),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("tree", ACTIONS)
    model: TreeTable

    def redraw(self, *, middle: bool = False) -> None:
        # Any answer may change what stands in the rows.
        self._version = None
        super().redraw(middle=middle)

    def _set_expanded(self, row: int, expanded: bool) -> None:
        self.model.tree.set_expanded(row, expanded)
        self.select(row)

    def select(self, row: int) -> None:
        """Select a row that is shown, and tell the screen."""
        self.redraw()
        self._move_to(self.model.tree.index(row))

    def action_expand(self) -> None:
        tree, row = self.model.tree, self.model.selected
        if row is None:
            return
        if tree.is_expanded(row) and not tree.is_folded(row):
            self._move_to(self.model.index + int(tree.outline.is_branch(row)))
        else:
            self._set_expanded(row, True)

    def action_collapse(self) -> None:
        tree, row = self.model.tree, self.model.selected
        if row is None:
            return
        above = tree.above(row)
        if tree.outline.is_branch(row) and tree.is_expanded(row):
            self._set_expanded(row, False)
        elif (leader := tree.fold(row)) is not None:
            self.select(leader)
        elif above >= 0:
            self.select(above)

    def action_open(self) -> None:
        row = self.model.selected
        if row is not None:
            self._set_expanded(row, not self.model.tree.is_expanded(row))

    def action_expand_all(self) -> None:
        self.model.tree.expand_all()
        self.redraw()

    def action_collapse_all(self) -> None:
        self.model.tree.collapse_all()
        self.redraw()
        self._move_to(self.model.index)
