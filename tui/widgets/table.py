"""A table and a tree with columns, which draw the visible rows only, however many there are."""

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
from irscope.tui.browse.model import Browse, heading_line
from irscope.tui.rows import TableModel
from irscope.tui.text import Span
from irscope.tui.widgets.paint import Painted

# ----------------------------------------------------------------------------------------------------
# A table that draws the visible rows only, however many there are.

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


# ----------------------------------------------------------------------------------------------------
# The tree of modules and nodes: draws the visible lines only, however many rows there are.


class OutlineTree(Painted, ScrollView, can_focus=True):
    """Shows the tree of a browse model and moves its selection."""

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

    class Selected(Message):
        """Another row is selected."""

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    def __init__(self, browse: Browse, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.browse = browse
        self._strips: LRUCache[tuple[int, int, bool, bool], Strip] = LRUCache(2048)

    # -- drawing -----------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y < _HEADING:
            return self.strip(heading_line(width, self.browse.results, self.browse.symbols), width)
        index = y - _HEADING + self.scroll_offset.y
        tree = self.browse.tree
        if index >= len(tree):
            empty = y == _HEADING and not len(tree)
            return self.strip(self._nothing() if empty else (), width)
        row = tree.row(index)
        selected = row == self.browse.selected
        key = (row, width, selected, tree.is_expanded(row))
        strip = self._strips.get(key)
        if strip is None:
            line = self.browse.table.line(row, width, selected=selected, expanded=tree.is_expanded(row), alike=tree.alike(row))
            look = ("row--selected" if self.has_focus else "row--unfocused") if selected else ""
            strip = self._strips[key] = self.strip(line, width, look)
        return strip

    def _nothing(self) -> list[Span]:
        text = "This model has no nodes." if self.browse.is_empty else "Nothing matches the filter."
        return [Span(f" {text}", "faint")]

    def redraw(self) -> None:
        """Draw again after numbers, looks or rows have changed."""
        self._strips.clear()
        self.virtual_size = Size(self.size.width, len(self.browse.tree) + _HEADING)
        self.refresh()

    def on_resize(self) -> None:
        self.redraw()
        self.show_selection()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    # -- moving ------------------------------------------------------------------------------------------------

    @property
    def index(self) -> int:
        """Where the selected row is shown."""
        return self.browse.tree.index(self.browse.selected)

    @property
    def page(self) -> int:
        """Rows that fit on the screen."""
        return max(1, self.size.height - _HEADING)

    def show_selection(self, *, middle: bool = False) -> None:
        """Scroll as far as needed to see the selected row; `middle` shows what is around it too."""
        index, top = self.index, self.scroll_offset.y
        if top <= index < top + self.page:
            return
        target = index if index < top else index - self.page + 1
        self.scroll_to(y=index - self.page // 2 if middle else target, animate=False, force=True, immediate=True)

    def select(self, row: int) -> None:
        """Select a row that is shown, and tell the screen."""
        self.browse.select(row)
        self.show_selection()
        self.refresh()
        self.post_message(self.Selected(row))

    def _move_to(self, index: int) -> None:
        tree = self.browse.tree
        if len(tree):
            self.select(tree.row(min(max(index, 0), len(tree) - 1)))

    def _set_expanded(self, row: int, expanded: bool) -> None:
        self.browse.tree.set_expanded(row, expanded)
        self.redraw()
        self.select(row)

    def action_cursor_up(self) -> None:
        self._move_to(self.index - 1)

    def action_cursor_down(self) -> None:
        self._move_to(self.index + 1)

    def action_page_up(self) -> None:
        self._move_to(self.index - self.page)

    def action_page_down(self) -> None:
        self._move_to(self.index + self.page)

    def action_first(self) -> None:
        self._move_to(0)

    def action_last(self) -> None:
        self._move_to(len(self.browse.tree) - 1)

    def action_expand(self) -> None:
        tree, row = self.browse.tree, self.browse.selected
        if not len(tree):
            return
        if tree.is_expanded(row) and not tree.is_folded(row):
            self._move_to(self.index + int(self.browse.outline.is_branch(row)))
        else:
            self._set_expanded(row, True)

    def action_collapse(self) -> None:
        outline, row = self.browse.outline, self.browse.selected
        if not len(self.browse.tree):
            return
        tree = self.browse.tree
        if outline.is_branch(row) and tree.is_expanded(row):
            self._set_expanded(row, False)
        elif (leader := tree.fold(row)) is not None:
            self.redraw()
            self.select(leader)
        elif outline.parent[row] >= 0:
            self.select(int(outline.parent[row]))

    def action_open(self) -> None:
        if len(self.browse.tree):
            row = self.browse.selected
            self._set_expanded(row, not self.browse.tree.is_expanded(row))

    def action_expand_all(self) -> None:
        self.browse.tree.expand_all()
        self.redraw()
        self.show_selection()

    def action_collapse_all(self) -> None:
        self.browse.tree.collapse_all()
        self.redraw()
        self._move_to(self.index)

    def on_click(self, event: events.Click) -> None:
        index = event.y - _HEADING + self.scroll_offset.y
        if event.y < _HEADING or index >= len(self.browse.tree):
            return
        row = self.browse.tree.row(index)
        if row == self.browse.selected and self.browse.outline.is_branch(row):
            self.action_open()
        else:
            self.select(row)
