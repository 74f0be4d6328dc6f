"""The stacked timeline of the memory screen; its cursor is the step that all screens have selected."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from irscope.tui.actions import Action, bindings
from irscope.tui.models.memory import Memory
from irscope.tui.widgets.drawn import Drawn


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
