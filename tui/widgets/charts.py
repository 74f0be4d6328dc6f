"""Charts with a cursor."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from irscope.tui.actions import Action, bindings
from irscope.tui.browse.model import Browse
from irscope.tui.memory.model import Memory
from irscope.tui.text import Line
from irscope.tui.widgets.paint import Drawn, Painted

# ----------------------------------------------------------------------------------------------------
# The bytes that are alive at each step, small enough to stay on the screen.


class TimelinePane(Painted, can_focus=True):
    """Shows the timeline of a browse model; its cursor is the selected step."""

    ALLOW_MAXIMIZE = True
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("timeline", "step(-1)", ("left", "h"), "Step back", "Go to the step before."),
        Action("timeline", "step(1)", ("right", "l"), "Step on", "Go to the next step.", footer=True),
        Action("timeline", "step(-10)", ("shift+left", "H"), "10 back", "Go back by ten steps."),
        Action("timeline", "step(10)", ("shift+right", "L"), "10 on", "Go on by ten steps."),
        Action("timeline", "first", ("home",), "First step", "Go to the first step."),
        Action("timeline", "last", ("end",), "Last step", "Go to the last step."),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("timeline", ACTIONS)

    class StepChosen(Message):
        """The cursor was moved to a step."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, browse: Browse, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.browse = browse
        self._drawn: tuple[Size, list[Line]] | None = None

    def redraw(self) -> None:
        """Draw again after the selection or the numbers have changed."""
        self._drawn = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if self._drawn is None or self._drawn[0] != self.size:
            self._drawn = (self.size, self.browse.timeline_lines(self.size.width, self.size.height))
        lines = self._drawn[1]
        return self.strip(lines[y] if y < len(lines) else (), self.size.width)

    def _choose(self, step: int) -> None:
        self.post_message(self.StepChosen(step))

    def action_step(self, by: int) -> None:
        self._choose((self.browse.step or 0) + by)

    def action_first(self) -> None:
        self._choose(0)

    def action_last(self) -> None:
        self._choose(len(self.browse.steps) - 1)

    def on_click(self, event: events.Click) -> None:
        timeline = self.browse.results.timeline
        if timeline is None or not len(timeline):
            return
        offset = event.get_content_offset(self)
        margin = timeline.margin(self.browse.symbols)
        if offset is not None and offset.x >= margin:
            self._choose(timeline.step_of(offset.x - margin, self.size.width - margin))


# ----------------------------------------------------------------------------------------------------
# The stacked timeline of the memory screen; its cursor is the step that all screens have selected.


class StackPane(Drawn, can_focus=True):
    """Shows the chart of a memory model and moves its cursor."""

    PANE = "stack"
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("stack", "step(-1)", ("left", "h"), "Step back", "Go to the step before."),
        Action("stack", "step(1)", ("right", "l"), "Step", "Go to the next step.", footer=True),
        Action("stack", "step(-10)", ("shift+left", "H"), "10 back", "Go back by ten steps."),
        Action("stack", "step(10)", ("shift+right", "L"), "10 on", "Go on by ten steps."),
        Action("stack", "step(-100)", ("ctrl+left", "pageup"), "100 back", "Go back by a hundred steps."),
        Action("stack", "step(100)", ("ctrl+right", "pagedown"), "100 on", "Go on by a hundred steps."),
        Action("stack", "first", ("home",), "First step", "Go to the first step."),
        Action("stack", "last", ("end",), "Last step", "Go to the last step."),
        Action("stack", "mark", ("space",), "A-B", "Begin a range of steps here, or forget the one there is.", footer=True),
        Action("stack", "open", ("enter",), "Open", "Show the node of the step on the first screen.", footer=True),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("stack", ACTIONS)

    class Moved(Message):
        """The cursor is on another step."""

    class Opened(Message):
        """Enter was pressed."""

    def __init__(self, memory: Memory, *, id: str | None = None) -> None:
        super().__init__(memory.chart_lines, id=id)
        self.memory = memory

    def _go_to(self, step: int) -> None:
        self.memory.go_to(step)
        self.post_message(self.Moved())

    def action_step(self, by: int) -> None:
        self._go_to(self.memory.step + by)

    def action_first(self) -> None:
        self._go_to(0)

    def action_last(self) -> None:
        self._go_to(len(self.memory.stack or ()) - 1)

    def action_mark(self) -> None:
        self.memory.toggle_mark()
        self.post_message(self.Moved())

    def action_open(self) -> None:
        self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        stack, offset = self.memory.shown, event.get_content_offset(self)
        if stack is not None and len(stack) and offset is not None and offset.x >= stack.margin():
            self._go_to(stack.step_of(offset.x - stack.margin(), self.size.width - stack.margin()))
