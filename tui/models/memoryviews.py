"""What the chart of the memory screen can show in place of live bytes by step, and what has been found for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from irscope.errors import IrscopeError
from irscope.tui.models.spans import Line, Span, cut_line, filled
from irscope.tui.models.stack import Stack
from irscope.tui.models.symbols import Symbols

View: TypeAlias = Literal["steps", "sizes", "allocator", "plan", "orders", "training"]
VIEWS: Mapping[View, str] = {
    "steps": "live bytes by step",
    "sizes": "the peak over sizes of the first symbol",
    "allocator": "addresses by step, as PyTorch's allocator gives them on a GPU",
    "plan": "addresses by step, planned for one arena",
    "orders": "live bytes as written and in the order that needs least memory",
    "training": "the step of training by category, with its phases",
}
TITLES: Mapping[View, str] = {
    "steps": "Memory",
    "sizes": "Peak by size",
    "allocator": "Addresses, PyTorch's allocator",
    "plan": "Addresses, planned arena",
    "orders": "Orders",
    "training": "Step of training",
}


@dataclass(frozen=True)
class Drawing:
    """A chart with a line that says what it means."""

    stack: Stack
    text: str = ""
    title: str = ""
    """What stands above it in place of what is alive at the cursor."""


@dataclass(frozen=True)
class Wanted:
    """What a drawing depends on."""

    view: View
    lifetime: str
    device: str
    env: tuple[tuple[str, int], ...]

    @property
    def key(self) -> str:
        """A name for the question."""
        return f"memory.{self.view}.{self.lifetime}.{self.device}.{self.env}"


class Drawings:
    """The drawing that is shown, or why there is none."""

    def __init__(self, symbols: Symbols, *, of_training: bool = False) -> None:
        self.symbols = symbols
        self.of_training = of_training
        self.view: View = "training" if of_training else "steps"
        self._asked: Wanted | None = None
        self._found: tuple[Wanted, Drawing | IrscopeError] | None = None

    def ask(self, wanted: Wanted) -> bool:
        """Whether this has to be asked for; it counts as asked then."""
        if self._asked == wanted:
            return False
        self._asked = wanted
        return True

    def take(self, wanted: Wanted, found: Drawing | IrscopeError) -> None:
        """Keep an answer, unless something else is wanted by now."""
        if wanted == self._asked:
            self._found = (wanted, found)

    def forget(self) -> None:
        """Ask again: what was being computed was stopped."""
        self._asked = None

    @property
    def drawing(self) -> Drawing | None:
        """What is to be drawn."""
        found = None if self._found is None or self._found[0] != self._asked else self._found[1]
        return found if isinstance(found, Drawing) else None

    def offered(self, *, has_sizes: bool) -> list[View]:
        """The views there are to choose from: sizes for a model that has symbols, a step for one that was captured in training."""
        absent = {"sizes": not has_sizes, "training": not self.of_training}
        return [view for view in VIEWS if not absent.get(view)]

    def followed(self, steps: Stack | None) -> Stack | None:
        """The chart whose peaks are gone to: that of a step of training where it is shown, else that of live bytes by step."""
        drawing = self.drawing if self.view == "training" else None
        return steps if drawing is None or steps is None or len(drawing.stack) != len(steps) else drawing.stack

    @property
    def title(self) -> str:
        """What the step of training says above its chart, where it is shown."""
        return self.symbols.clean(self.drawing.title) if self.view == "training" and self.drawing is not None else ""

    def lines(self, width: int, height: int, here: int | None, mark: int | None) -> list[Line]:
        """The chart, or a word on why there is none."""
        symbols = self.symbols
        found = None if self._found is None or self._found[0] != self._asked else self._found[1]
        if isinstance(found, IrscopeError):
            lines: list[Line] = [(Span(f"{symbols.unknown} {symbols.clean(found.message)}", "error"),)]
            lines += [(Span(symbols.clean(found.hint), "faint"),)] if found.hint else []
            return filled([cut_line(line, width, symbols) for line in lines], height)
        if found is None:
            return filled([(Span(f"computing {VIEWS[self.view]}", "faint"),)], height)
        stack = found.stack
        head = stack.legend_rows(width, symbols)[: 2 if height >= 10 else 1] if height >= 5 else []
        if found.text and height >= 8:
            head.append(cut_line((Span(symbols.clean(found.text)),), width, symbols))
        if not len(stack):
            return filled([*head, (Span("nothing to draw: the model has no steps", "faint"),)], height)
        if here is not None:
            stack.follow(here)
        return [*head, *stack.lines(width, height - len(head), here, symbols, mark)]
