"""Windows in which a pass is chosen and its options are filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from irscope.passkit.base import Pass
from irscope.tui.actions import Action, bindings
from irscope.tui.models.passform import PassForm
from irscope.tui.models.rows import TableColumn, TableModel
from irscope.tui.models.symbols import Symbols
from irscope.tui.widgets.paint import Looks
from irscope.tui.widgets.table import VirtualTable

PICK_PANES = {"pick": "While choosing a pass", "form": "While filling in options"}
PICK_ACTIONS: tuple[Action, ...] = (
    Action("pick", "close", ("escape",), "Back", "Close the window; nothing is added."),
    Action("pick", "move(-1)", ("up",), "Up", "Select the pass above."),
    Action("pick", "move(1)", ("down",), "Down", "Select the pass below."),
    Action("form", "close", ("escape",), "Back", "Close the window; the options stay as they were."),
    Action("form", "next_field", ("down",), "Down", "Go to the next option."),
    Action("form", "previous_field", ("up",), "Up", "Go to the option before."),
)


class PickDialog(Looks, ModalScreen[str | None]):
    """A line to type into and the passes that fit; enter takes the selected one, or what was typed if that is more than a name."""

    PANE = "pick"
    BINDINGS: ClassVar[list[BindingType]] = bindings("pick", PICK_ACTIONS)

    def __init__(self, choices: Sequence[tuple[str, str]], symbols: Symbols) -> None:
        super().__init__()
        self.choices = choices
        columns = (
            TableColumn("pass", 16, lambda row: choices[row][0], role="operator"),
            TableColumn("what it does", 30, lambda row: choices[row][1], grows=True, rank=1),
        )
        empty = "No pass is called so; ./file.py:Name takes one of your own."
        self.model = TableModel(columns, len(choices), symbols, empty=empty)

    def compose(self) -> ComposeResult:
        with Vertical(id="window") as window:
            window.border_title = Content("Add a pass")
            window.border_subtitle = Content("enter adds, esc closes")
            yield Input(placeholder="name, several with options, or ./file.py:Name{option=1}", compact=True, id="wanted")
            yield VirtualTable(self.model, id="choices")

    def on_mount(self) -> None:
        self.query_one(VirtualTable).can_focus = False
        self.query_one(Input).focus()

    def on_input_changed(self, message: Input.Changed) -> None:
        words = message.value.lower().split()
        texts = [f"{name} {summary}".lower() for name, summary in self.choices]
        self.model.filter(np.array([all(word in text for word in words) for text in texts], dtype=np.bool_) if words else None)
        named = [row for row, (name, _) in enumerate(self.choices) if name.startswith(message.value.strip())]
        if words and named:
            self.model.select(named[0])
        self.query_one(VirtualTable).redraw()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        typed, row = message.value.strip(), self.model.selected
        if any(sign in typed for sign in "{},()/") or (typed and row is None):
            self.dismiss(typed)
        elif row is not None:
            self.dismiss(self.choices[row][0])

    def on_virtual_table_opened(self, message: VirtualTable.Opened) -> None:
        self.dismiss(self.choices[message.row][0])

    def action_move(self, by: int) -> None:
        self.model.move_to(self.model.index + by)
        self.query_one(VirtualTable).redraw()

    def action_close(self) -> None:
        self.dismiss(None)


class FormDialog(Looks, ModalScreen[Pass | None]):
    """One line for each option of a pass, checked at every key; enter takes them when they make sense."""

    PANE = "form"
    BINDINGS: ClassVar[list[BindingType]] = bindings("form", PICK_ACTIONS)

    def __init__(self, form: PassForm, symbols: Symbols) -> None:
        super().__init__()
        self.form = form
        self.symbols = symbols

    def compose(self) -> ComposeResult:
        with Vertical(id="window") as window:
            window.border_title = Content(f"{self.symbols.clean(self.form.cls.name)}, {self.form.kind}")
            window.border_subtitle = Content("enter takes these options, esc closes")
            yield Label(Content(self.symbols.clean(self.form.cls.summary())), id="about")
            with VerticalScroll(id="fields", can_focus=False):
                for field in self.form.fields:
                    default = "has to be given" if field.is_required else f"unless given: {field.default}"
                    yield Label(Content(f"{field.name}   {field.what}"), classes="field")
                    yield Input(self.form.text(field.name), placeholder=default, compact=True, name=field.name)
            yield Label("", id="preview")

    def on_mount(self) -> None:
        self.query(Input).first().focus()
        self._check()

    def on_input_changed(self, message: Input.Changed) -> None:
        self.form.set(message.input.name or "", message.value)
        self._check()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        if not self.form.problem:
            self.dismiss(self.form.made())

    def _check(self) -> None:
        problem = self.form.problem
        label = self.query_one("#preview", Label)
        label.set_class(bool(problem), "-wrong")
        label.update(Content(self.symbols.clean(problem or self.form.preview)))

    def action_next_field(self) -> None:
        self.focus_next(Input)

    def action_previous_field(self) -> None:
        self.focus_previous(Input)

    def action_close(self) -> None:
        self.dismiss(None)
