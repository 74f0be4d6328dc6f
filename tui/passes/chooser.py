"""Passes by the question that they answer, with a line on each: the list of the Reports screen, and the window in which one is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input

from irscope.tui.actions import Action, bindings
from irscope.tui.compiled import ITEM as COMPILED
from irscope.tui.rows import TableColumn, TableModel
from irscope.tui.text import Role, Symbols
from irscope.tui.widgets.dialogs import Window
from irscope.tui.widgets.table import VirtualTable

QUESTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Does it fit?": ("liveness", "cuda-memory", "ort-memory", "curve", "ranges", "plan", "xla-memory"),
    "What would lower the peak?": ("explain-peak", "advise", "checkpoint", "recompute", "schedule", "reorder"),
    "What does it cost?": ("roofline", "time", "flops", "bytes", "modules", "layers", "energy", "sweep", "fusion"),
    "What does training take?": ("training", "activations"),
    "What is in the weights?": ("params", "store-as", "prune-report", "quantize-error"),
    "What is in the graph?": ("stats", "arch", "shapes", "alias", "effects", "ort-order", "verify"),
    "What can be simplified?": ("cleanup", "canonicalize", "cse", "inline", "dce", "fold", "fold-batch-norm", "fixpoint", "annotate"),
    "Several at once": ("default",),
}
"""The passes that come with irscope, those that answer most directly first."""
OWN: Final = "Your own passes"
_ORDER = {name: (place, number) for place, names in enumerate(QUESTIONS.values()) for number, name in enumerate(names)}


def question_of(name: str) -> str:
    """Return the question that a pass answers; one with options answers that of the pass."""
    if name == COMPILED:
        return "What did the compiler change?"
    place = _ORDER.get(name.partition("{")[0])
    return OWN if place is None else list(QUESTIONS)[place[0]]


def in_order(names: Sequence[str]) -> list[int]:
    """Return the places of names in the order of the questions, one's own passes first."""
    return sorted(range(len(names)), key=lambda number: (_ORDER.get(names[number].partition("{")[0], (-1, 0)), number))


class PassRows:
    """Rows with a line for each question above the passes that answer it."""

    def __init__(
        self,
        passes: Sequence[tuple[str, str]],
        symbols: Symbols,
        *,
        empty: str,
        state: Callable[[int], str] | None = None,
        questions: Sequence[str] = (),
    ) -> None:
        """`passes` are names with what each does; `state` tells in a word what is known of one, in place of what it does.

        `questions` are those that rows which are no passes answer.
        """
        self.passes = passes
        self.places: list[int] = []
        """The place of each row's pass, -1 for a line with a question."""
        self._questions: list[str] = []
        before = ""
        for place in in_order([name for name, _ in passes]):
            question = (questions[place] if questions else "") or question_of(passes[place][0])
            if question != before:
                self.places.append(-1)
                self._questions.append(question)
                before = question
            self.places.append(place)
            self._questions.append(question)
        clean = symbols.clean

        def name(row: int) -> str:
            return clean(f"  {passes[self.places[row]][0]}" if self.places[row] >= 0 else self._questions[row])

        def role(row: int) -> Role:
            return "operator" if self.places[row] >= 0 else "heading"

        if state is None:
            more = TableColumn("what it does", 30, lambda row: clean(self.about(row)), grows=True, rank=1, is_sentence=True)
        else:
            known = state
            more = TableColumn("", 7, lambda row: known(self.places[row]) if self.places[row] >= 0 else "", role="faint")
        columns = (TableColumn("pass", 26, name, grows=state is not None, role=role), more)
        self.model = TableModel(columns, len(self.places), symbols, empty=empty)

    def about(self, row: int) -> str:
        """Return the description of the pass of a row."""
        return self.passes[self.places[row]][1] if self.places[row] >= 0 else ""

    def row_of(self, place: int) -> int:
        """Return the row of a pass."""
        return self.places.index(place)

    def filter(self, text: str) -> None:
        """Show only passes in whose name, line or question every word occurs, below their questions; a word after `!` must not."""
        words = text.lower().split()
        if not words:
            self.model.filter(None)
            return
        kept = np.zeros(len(self.places), dtype=np.bool_)
        heading = -1
        for row, place in enumerate(self.places):
            if place < 0:
                heading = row
                continue
            told = f"{self.passes[place][0]} {self.about(row)} {self._questions[row]}".lower()
            if all((word[1:] not in told) if word[:1] == "!" and len(word) > 1 else word in told for word in words):
                kept[row] = kept[heading] = True
        self.model.filter(kept)
        self.to_pass()

    def to_pass(self) -> None:
        """Put the cursor on the first pass where it is on a question."""
        row = self.model.selected
        if row is not None and self.places[row] < 0:
            self.model.move_to(self.model.index + 1)

    @property
    def question(self) -> str:
        """Return the question of the selected row; empty where there is none."""
        row = self.model.selected
        return "" if row is None else self._questions[row]

    @property
    def selected(self) -> int | None:
        """Return the place of the selected pass; None on a question."""
        row = self.model.selected
        return self.places[row] if row is not None and self.places[row] >= 0 else None


# The window in which a pass is chosen.

PICK_ACTIONS: tuple[Action, ...] = (
    Action("pick", "close", ("escape",), "Back", "Close the window; nothing is added."),
    Action("pick", "move(-1)", ("up",), "Up", "Select the pass above."),
    Action("pick", "move(1)", ("down",), "Down", "Select the pass below."),
)


class PickDialog(Window[str | None]):
    """A line to type into and the passes that fit; enter takes the selected one, or what was typed if that is more than a name."""

    PANE = "pick"
    BINDINGS: ClassVar[list[BindingType]] = bindings("pick", PICK_ACTIONS)

    def __init__(self, choices: Sequence[tuple[str, str]], symbols: Symbols, title: str = "Add a pass") -> None:
        super().__init__()
        self.choices = choices
        self.heading = title
        self.rows = PassRows(choices, symbols, empty="No pass is called so; ./file.py:Name takes one of your own.")
        self.model = self.rows.model
        self.rows.to_pass()

    def compose(self) -> ComposeResult:
        with Vertical(id="window") as window:
            window.border_title = Content(self.heading)
            window.border_subtitle = Content("type to filter, enter takes, esc closes")
            yield Input(placeholder="name, several with options, or ./file.py:Name{option=1}", compact=True, id="wanted")
            yield VirtualTable(self.model, id="choices")

    def on_mount(self) -> None:
        self.query_one(VirtualTable).can_focus = False
        self.query_one(Input).focus()

    def on_input_changed(self, message: Input.Changed) -> None:
        typed = message.value.strip()
        self.rows.filter(typed)
        named = [place for place, (name, _) in enumerate(self.choices) if name.startswith(typed)] if typed else []
        if named:
            self.model.select(self.rows.row_of(named[0]))
        self.query_one(VirtualTable).redraw()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        typed, place = message.value.strip(), self.rows.selected
        if any(sign in typed for sign in "{},()/") or (typed and place is None):
            self.dismiss(typed)
        elif place is not None:
            self.dismiss(self.choices[place][0])

    def on_rows_view_opened(self, message: VirtualTable.Opened) -> None:
        if self.rows.places[message.row] >= 0:
            self.dismiss(self.choices[self.rows.places[message.row]][0])

    def action_move(self, by: int) -> None:
        model = self.model
        model.move_to(model.index + by)
        if self.rows.selected is None:  # past a question
            model.move_to(model.index + by if 0 <= model.index + by < len(model) else model.index - by)
        self.query_one(VirtualTable).redraw()

    def action_close(self) -> None:
        self.dismiss(None)
