"""The graph screen: what is around the selected node, or the whole graph folded by module."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from irscope.report.table import Table
from irscope.tui.actions import Action, bindings
from irscope.tui.command import picture_command
from irscope.tui.graph.canvas import Canvas
from irscope.tui.graph.model import GraphModel
from irscope.tui.screen import ModelScreen
from irscope.tui.session import NOW, Session
from irscope.tui.widgets.paint import DetailPane, Drawn
from irscope.tui.widgets.table import RowsPane

_STEP_X, _STEP_Y = 8, 4
"""Columns and rows that one key moves the window by."""


class GraphPane(Drawn, can_focus=True):
    """The drawing: keys and mouse walk over it."""

    ALLOW_MAXIMIZE = False
    """The pane around it is what fills the screen, with the lines to type into."""
    PANE: ClassVar[str] = "graph-pane"
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("graph-pane", "walk(0, -1)", ("up", "k"), "Producer", "Go to what makes an input of the selected box: the nearest one."),
        Action("graph-pane", "walk(0, 1)", ("down", "j"), "Consumer", "Go to what reads a result of the selected box."),
        Action("graph-pane", "walk(-1, 0)", ("left", "h"), "Left", "Go to the next box at the left."),
        Action("graph-pane", "walk(1, 0)", ("right", "l"), "Right", "Go to the next box at the right."),
        Action("graph-pane", "open", ("enter",), "Open", "Open or close a module; show a node on Browse.", footer=True),
        Action("graph-pane", "fold", ("space",), "Fold", "Open a module, or close the one around a node.", footer=True),
        Action(
            "graph-pane",
            "level(1)",
            ("plus", "equals_sign"),
            "More",
            "One hop more; in the whole graph: one level of modules more.",
            footer=True,
        ),
        Action("graph-pane", "level(-1)", ("minus",), "Less", "One hop, or one level of modules, less."),
        Action("graph-pane", f"pan(-{_STEP_X}, 0)", ("H", "shift+left"), "Pan left", "Move what is seen to the left."),
        Action("graph-pane", f"pan({_STEP_X}, 0)", ("L", "shift+right"), "Pan right", "Move what is seen to the right."),
        Action("graph-pane", f"pan(0, -{_STEP_Y})", ("K", "shift+up", "pageup"), "Pan up", "Move what is seen up."),
        Action("graph-pane", f"pan(0, {_STEP_Y})", ("J", "shift+down", "pagedown"), "Pan down", "Move what is seen down."),
        Action("graph-pane", "centre", ("home",), "Centre", "Bring the selected box into the middle."),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("graph-pane", ACTIONS)

    def __init__(self, model: GraphModel, *, id: str | None = None) -> None:
        super().__init__(model.lines, id=id)
        self.model = model

    @property
    def owner(self) -> GraphScreen:
        assert isinstance(self.screen, GraphScreen)
        return self.screen

    def action_walk(self, dx: int, dy: int) -> None:
        if not self.model.walk(dx, dy):
            words = {(0, -1): "Nothing here makes an input of this.", (0, 1): "Nothing here reads a result of this."}
            self.owner.say(words.get((dx, dy), "There is nothing beside this."))
        self.owner.went()

    def action_open(self) -> None:
        box, row = self.model.box, None
        if box is not None and not box.is_group:
            row = self.model.row_at(box.number)
        if row is None:
            self.action_fold()
        else:
            self.owner.open_node(row)

    def action_fold(self) -> None:
        problem = self.model.toggle()
        if problem:
            self.owner.say(problem)
        self.owner.went()

    def action_level(self, by: int) -> None:
        problem = self.model.level(by)
        if problem:
            self.owner.say(problem)
        self.owner.went()

    def action_pan(self, dx: int, dy: int) -> None:
        self.model.pan(dx, dy)
        self.redraw()

    def action_centre(self) -> None:
        self.model.centre()
        self.redraw()

    def on_resize(self) -> None:
        self.model.resize(*self.size)
        self.owner.show_progress()

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        box = None if offset is None else self.model.at(offset.x, offset.y)
        if box is None:
            return
        if self.model.box is box:
            self.action_open()
        else:
            self.model.select(box.number)
            self.owner.went()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.action_pan(*((_STEP_X, 0) if event.shift else (0, _STEP_Y)))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.action_pan(*((-_STEP_X, 0) if event.shift else (0, -_STEP_Y)))


class GraphScreen(ModelScreen):
    """The graph itself."""

    NAME = "graph"
    FIRST = "#graph-pane"
    PANES: ClassVar[dict[str, str]] = {"graph": "On this screen", "graph-pane": "Graph"}
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        *GraphPane.ACTIONS,
        Action("graph", "whole", ("v",), "Whole", "Change between what is around the node and the whole graph.", footer=True),
        Action("graph", "details", ("d",), "Details", "Hide or show the details."),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("graph", ACTIONS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.model: GraphModel = session.keep(self.NAME, lambda: GraphModel(session.browse))
        self.model.later = self._later

    def panes(self) -> ComposeResult:
        with Container(id="graph-panes", classes="panes"):
            with RowsPane(id="graph-frame", classes="frame"):
                yield GraphPane(self.model, id="graph-pane")
                yield from self.prompts()
            yield DetailPane(id="detail")

    def show(self) -> None:
        self.model.follow()
        self.model.show_near()
        self.query_one(GraphPane).redraw()
        self.query_one("#detail", DetailPane).show(self.browse.detail())
        self.title_of("detail", "Details")
        self.show_progress()

    def on_detail_pane_followed(self, message: DetailPane.Followed) -> None:
        self.show_row(message.row)

    def show_progress(self) -> None:
        self.title_of("graph-frame", self.model.title(), progress=True)

    def went(self) -> None:
        """Note that the selection, or what is drawn, is another one."""
        self.session.moved(self.NAME)
        self.show()

    def asked(self) -> None:
        if self.model.is_whole and self.model.whole is None and not self.model.is_empty:
            self.session.ask("graph.whole", self.model.make_whole, self.model.take_whole, lambda error: self.say(str(error)), urgency=NOW)

    def on_screen_suspend(self) -> None:
        self.model.put_away()

    def _later(self, make: Callable[[], Canvas], take: Callable[[Canvas], None]) -> None:
        """Lay out in the worker's thread."""
        self.session.ask("graph.layout", make, take, lambda error: self.say(str(error)), urgency=NOW)

    def show_row(self, row: int) -> None:
        self.session.jump(self.NAME, row)
        self.show()

    def commands(self) -> list[tuple[str, str]]:
        node = self.session.selected_node
        around = "" if self.model.is_whole or node is None else node.name
        return [("The same as a picture:", picture_command(self.browse.bound_source, around, self.model.hops))]

    def selected_text(self) -> list[tuple[str, str]]:
        return [] if self.browse.is_empty else [("Its name:", self.browse.row_name(self.browse.selected))]

    def table(self) -> Table | None:
        return self.browse.export()

    def action_filter(self) -> None:
        # Of a drawing nothing is left out: what is typed leads there.
        self.action_go_to()

    def action_whole(self) -> None:
        self.model.is_whole = not self.model.is_whole
        self.asked()
        self.model.revisit()
        self.show()

    def action_details(self) -> None:
        detail = self.query_one("#detail", DetailPane)
        detail.display = not detail.display
