"""Charts over steps with a cursor."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from irscope.tui.actions import Action, bindings
from irscope.tui.charts import StepChart
from irscope.tui.text import Line
from irscope.tui.widgets.paint import Drawn


def _moving(pane: str, noun: str = "step") -> tuple[Action, ...]:
    """Return the actions that move the cursor of a chart."""
    return (
        Action(pane, "step(-1)", ("left", "h"), "Step back", f"Go to the {noun} before."),
        Action(pane, "step(1)", ("right", "l"), "Step", f"Go to the next {noun}.", footer=True),
        Action(pane, "step(-10)", ("shift+left", "H"), "10 back", f"Go back by ten {noun}s."),
        Action(pane, "step(10)", ("shift+right", "L"), "10 on", f"Go on by ten {noun}s."),
        Action(pane, "first", ("home",), f"First {noun}", f"Go to the first {noun}."),
        Action(pane, "last", ("end",), f"Last {noun}", f"Go to the last {noun}."),
    )


class ChartPane(Drawn, can_focus=True):
    """Draws a chart over steps and moves its cursor."""

    class Moved(Message):
        """The cursor is on another step."""

    class Opened(Message):
        """Enter was pressed."""

    def __init__(
        self,
        draw: Callable[[int, int], list[Line]],
        chart: Callable[[], StepChart | None],
        step: Callable[[], int],
        go_to: Callable[[int], None],
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(draw, id=id)
        self.chart = chart
        self.step = step
        """Where the cursor is."""
        self._move = go_to

    def go_to(self, step: int) -> None:
        """Put the cursor on a step."""
        self._move(step)
        self.post_message(self.Moved())

    def action_step(self, by: int) -> None:
        self.go_to(self.step() + by)

    def action_first(self) -> None:
        self.go_to(0)

    def action_last(self) -> None:
        self.go_to(len(self.chart() or ()) - 1)

    def step_under(self, event: events.MouseEvent) -> int | None:
        """Return the step that is drawn under the pointer."""
        chart, offset = self.chart(), event.get_content_offset(self)
        if chart is None or not len(chart) or offset is None or offset.x < chart.margin():
            return None
        return chart.step_of(offset.x - chart.margin(), self.size.width - chart.margin())

    def on_click(self, event: events.Click) -> None:
        step = self.step_under(event)
        if step is not None:
            self.go_to(step)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        step, chart, offset = self.step_under(event), self.chart(), event.get_content_offset(self)
        if chart is not None:
            chart.pointed, before = "" if step is None or offset is None else chart.point_text(step, self.role_at(*offset)), chart.pointed
            if chart.pointed != before:
                self.redraw()

    def on_leave(self) -> None:
        chart = self.chart()
        if chart is not None and chart.pointed:
            chart.pointed = ""
            self.redraw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._zoom_under(event, 0.5)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._zoom_under(event, 2)

    def _zoom_under(self, event: events.MouseEvent, factor: float) -> None:
        """Show fewer steps or more: the step under the pointer stays where it is."""
        chart, step = self.chart(), self.step_under(event)
        if chart is not None and step is not None:
            chart.zoom(step, factor)
            event.stop()
            self.redraw()


class TimelinePane(ChartPane):
    """The bytes that are alive at each step, small enough to stay on the screen; the cursor is the selected step."""

    ACTIONS: ClassVar[tuple[Action, ...]] = _moving("timeline")
    BINDINGS: ClassVar[list[BindingType]] = bindings("timeline", ACTIONS)


class StackPane(ChartPane):
    """The stacked timeline of the Memory screen; its cursor is the step that all screens have selected."""

    PANE = "stack"
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        *_moving("stack")[:4],
        Action("stack", "step(-100)", ("ctrl+left", "pageup"), "100 back", "Go back by a hundred steps."),
        Action("stack", "step(100)", ("ctrl+right", "pagedown"), "100 on", "Go on by a hundred steps."),
        *_moving("stack")[4:],
        Action("stack", "mark", ("space",), "A-B", "Begin a range of steps here, or forget the one there is.", footer=True),
        Action("stack", "open", ("enter",), "Open", "Show the node of the step on the first screen.", footer=True),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("stack", ACTIONS)
    mark: Callable[[], None]
    """Begins a range of steps, or forgets it."""

    def action_mark(self) -> None:
        self.mark()
        self.post_message(self.Moved())

    def action_open(self) -> None:
        self.post_message(self.Opened())


class BothPane(ChartPane):
    """Both timelines of a comparison."""

    PANE = "both"
    ACTIONS: ClassVar[tuple[Action, ...]] = _moving("both", "place")
    BINDINGS: ClassVar[list[BindingType]] = bindings("both", ACTIONS)
