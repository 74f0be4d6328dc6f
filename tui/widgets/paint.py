"""Widgets that draw lines with roles: charts, scrolling text, and a line to type into."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import ActiveBinding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import var
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Label

from irscope.report.printable import display_width
from irscope.tui.actions import KEYS_WIDTH, QUESTIONS, bindings
from irscope.tui.text import ROLES, Line, Span, wrap

# From lines with roles to strips with styles; every widget that draws itself is painted here.

_PLAIN = Style.null()
_LINK = Style(underline=True)


class Looks(Widget):
    """A screen over which widgets are painted: the style sheet gives each role a look as `.role--<name>`, once for all of them."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"role--{role}" for role in ROLES} | {"row--selected", "row--unfocused"}


class Helped(Looks, Screen[None]):
    """A screen that says which keys it has."""

    def help_lines(self) -> list[Line]:
        """Return the text of the help window."""
        raise NotImplementedError


def question_lines(questions: Sequence[tuple[str, str]] = QUESTIONS) -> list[Line]:
    """Return a line for each question with the keys that answer it."""
    return [(Span(f"  {keys:<{KEYS_WIDTH}}", "name"), Span(text)) for text, keys in questions]


class Painted(Widget):
    """A widget whose text has roles."""

    def strip(self, line: Iterable[Span], width: int, row_class: str = "") -> Strip:
        """Return a line in exactly `width` cells; `row_class` names a look for the whole row."""
        look = self.screen.get_component_rich_style
        base = self.rich_style
        row = look(row_class, default=_PLAIN) if row_class else _PLAIN
        segments = []
        for text, role, to, behind in line:
            if text:
                style = look(f"role--{role}", default=_PLAIN) + row + (_PLAIN if to is None else _LINK)
                if behind is not None:
                    style += Style(bgcolor=look(f"role--{behind}", default=_PLAIN).color)
                segments.append(Segment(text, style))
        return Strip(segments).adjust_cell_length(width, base + row)


# A pane that draws lines which a view model makes for its size: charts of all kinds.


class Drawn(Painted):
    """Shows what a function makes of width and height; asks it again only after `redraw` or another size."""

    ALLOW_MAXIMIZE = True
    PANE: ClassVar[str] = ""

    def __init__(self, draw: Callable[[int, int], list[Line]], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.draw = draw
        self._drawn: tuple[Size, list[Line]] | None = None

    def redraw(self) -> None:
        """Draw again after what is drawn has changed."""
        self._drawn = None
        self.refresh()

    def role_at(self, x: int, y: int) -> str:
        """Return the role of what is drawn in a cell."""
        line = self._drawn[1][y] if self._drawn is not None and 0 <= y < len(self._drawn[1]) else ()
        return next((role for text, role, _, _ in line if (x := x - display_width(text)) < 0), "")

    def render_line(self, y: int) -> Strip:
        if self._drawn is None or self._drawn[0] != self.size:
            self._drawn = (self.size, self.draw(self.size.width, self.size.height))
        lines = self._drawn[1]
        return self.strip(lines[y] if y < len(lines) else (), self.size.width)


# A scrolling pane of wrapped text: the details of the selection, and the text of dialogs.

_INDENT = "    "


class TextPane(Painted, ScrollView, can_focus=True):
    """Shows lines, broken where they are wider than the pane."""

    def __init__(self, lines: Sequence[Line] = (), *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines = lines
        self._rows: list[Line] = []
        self._width = -1

    @property
    def lines(self) -> Sequence[Line]:
        """Return the lines of the pane, not wrapped."""
        return self._lines

    def show(self, lines: Sequence[Line], *, top: bool = False) -> None:
        """Replace the lines; `top` scrolls back to the first."""
        self._lines = lines
        self._wrap()
        if top:
            self.scroll_to(y=0, animate=False, force=True, immediate=True)

    def _wrap(self) -> None:
        self._width = self.size.width
        self._rows = [row for line in self._lines for row in wrap(line, self._width, _INDENT)]
        self.virtual_size = Size(self._width, len(self._rows))
        self.refresh()

    def on_resize(self) -> None:
        if self.size.width != self._width:
            self._wrap()

    def looks_at(self, y: int) -> Line:
        """Return a row of the text."""
        return self._rows[y] if y < len(self._rows) else ()

    def render_line(self, y: int) -> Strip:
        return self.strip(self.looks_at(y + self.scroll_offset.y), self.size.width)


class DetailPane(TextPane):
    """The details of the selection; names in it may lead to other rows."""

    ALLOW_MAXIMIZE = True
    PANE: ClassVar[str] = "detail"
    BINDINGS: ClassVar[list[BindingType]] = bindings("detail")

    class Followed(Message):
        """A name was followed to the row of the outline that it leads to."""

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    _chosen = -1
    """The number of the name that is marked."""

    @property
    def links(self) -> list[tuple[int, int, int, int]]:
        """Names that lead somewhere: their row in the pane, where they begin and end in it, and the row of the outline."""
        found: list[tuple[int, int, int, int]] = []
        for y, row in enumerate(self._rows):
            at = 0
            for span in row:
                end = at + display_width(span.text)
                if span.to is not None:
                    found.append((y, at, end, span.to))
                at = end
        return found

    def show(self, lines: Sequence[Line], *, top: bool = False) -> None:
        self._chosen = -1 if top else self._chosen
        super().show(lines, top=top)

    def looks_at(self, y: int) -> Line:
        row = super().looks_at(y)
        links = self.links if self._chosen >= 0 and row else []
        if self._chosen >= len(links) or not links or links[self._chosen][0] != y:
            return row
        number = sum(1 for link in links[: self._chosen] if link[0] == y)
        places = [at for at, span in enumerate(row) if span.to is not None]
        return tuple(span._replace(role="selected") if at == places[number] else span for at, span in enumerate(row))

    def action_link(self, by: int) -> None:
        links = self.links
        if links:
            self._chosen = (self._chosen + by) % len(links) if self._chosen >= 0 else min(by, 0) % len(links)
            y = links[self._chosen][0]
            if not self.scroll_offset.y <= y < self.scroll_offset.y + self.size.height:
                self.scroll_to(y=y - self.size.height // 2, animate=False, force=True, immediate=True)
            self.refresh()

    def action_follow(self) -> None:
        links = self.links
        if links:
            self.post_message(self.Followed(links[max(self._chosen, 0) % len(links)][3]))

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is not None:
            y = offset.y + self.scroll_offset.y
            to = next((link[3] for link in self.links if link[0] == y and link[1] <= offset.x < link[2]), None)
            if to is not None:
                self.post_message(self.Followed(to))


_ALWAYS = frozenset({"help", "quit"})
"""Actions whose keys are there at any width."""
_KEY_LOOKS = ("key", "label", "off", "pointed")


class Keys(Widget):
    """The keys of where one is, as many as have room for all of their label; those for help and for leaving are always among them.

    Textual's own footer makes a widget for each key, all of them again whenever another widget is focused: a third of what it takes
    to show another screen. This is one widget, which draws them."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"keys--key", "keys--label", "keys--off", "keys--pointed"}
    DEFAULT_CSS = """
    Keys {
        dock: bottom; height: 1; color: $footer-foreground; background: $footer-background;
        .keys--key { color: $footer-key-foreground; background: $footer-key-background; text-style: bold; }
        .keys--label { color: $footer-description-foreground; background: $footer-description-background; }
        .keys--off { text-style: dim; }
        .keys--pointed { background: $block-hover-background; }
    }
    """
    first: Sequence[str] = ()
    """Actions whose keys stand before all others, also those that are in no other screen's line."""
    hidden: Collection[str] = ()
    """Actions that have no meaning here."""
    pointed: var[str] = var("")
    """The action whose key is below the mouse."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.refresh())

    def shown(self) -> list[tuple[int, ActiveBinding]]:
        """Return the keys that have room, each with the column where it begins."""
        of_actions: dict[str, ActiveBinding] = {}
        for active in sorted(
            self.screen.active_bindings.values(), key=lambda one: [*self.first, one.binding.action].index(one.binding.action)
        ):
            if (active.binding.show or active.binding.action in self.first) and active.binding.action not in self.hidden:
                of_actions.setdefault(active.binding.action, active)
        always = [active for action, active in of_actions.items() if action in _ALWAYS]
        end = self.size.width - sum(map(self._width, always))
        placed, column = [], 0
        for action, active in of_actions.items():
            width = self._width(active)
            if action not in _ALWAYS:
                if column + width >= end:
                    break
                placed.append((column, active))
                column += width
        for active in always:
            placed.append((end, active))
            end += self._width(active)
        return placed

    def _width(self, active: ActiveBinding) -> int:
        """Return the width of a key: its name and its label, a blank after each."""
        return display_width(f"{self.app.get_key_display(active.binding)} {active.binding.description} ")

    def _key_at(self, column: int) -> ActiveBinding | None:
        """Return the key that is drawn at a column; the blank after it belongs to no key."""
        return next((active for start, active in self.shown() if start <= column < start + self._width(active) - 1), None)

    def render_line(self, y: int) -> Strip:
        base, (key, label, off, pointed) = self.rich_style, (self.get_component_rich_style(f"keys--{name}") for name in _KEY_LOOKS)
        below_mouse = Style(bgcolor=pointed.bgcolor)
        segments: list[Segment] = []
        column = 0
        for start, active in self.shown():
            binding = active.binding
            more = (_PLAIN if active.enabled else off) + (below_mouse if binding.action == self.pointed else _PLAIN)
            segments.append(Segment(" " * (start - column), base))
            segments.append(Segment(self.app.get_key_display(binding), key + more))
            segments.append(Segment(f" {binding.description}", label + more))
            column = start + self._width(active) - 1
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def watch_pointed(self) -> None:
        self.refresh()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        active = self._key_at(event.x)
        self.pointed = "" if active is None else active.binding.action

    def on_leave(self) -> None:
        self.pointed = ""

    def on_mouse_down(self, event: events.MouseDown) -> None:
        active = self._key_at(event.x)
        if active is not None and active.enabled:
            self.app.simulate_key(active.binding.key)
        elif active is not None:
            self.app.bell()


# A line to type into, below the tree: a filter, or sizes for symbols.


class PromptLine(Input):
    """The line of a prompt that is typed into. It has the prompt's keys: an Input has a meaning of its own for some."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("prompt")

    def __init__(self, prompt: Prompt, placeholder: str) -> None:
        super().__init__(placeholder=placeholder, compact=True, select_on_focus=False)
        self.prompt = prompt
        self.cursor_blink = False

    def action_keep(self) -> None:
        self.prompt.action_keep()

    def action_drop(self) -> None:
        self.prompt.action_drop()


class Prompt(Vertical):
    """A labelled line to type into, shown while it is needed, with what is wrong with the text under it."""

    PANE: ClassVar[str] = "prompt"
    DEFAULT_CSS = """
    Prompt { height: auto; }
    Prompt Horizontal { height: 1; }
    Prompt .label { width: auto; padding: 0 1; text-style: bold; }
    Prompt Input { width: 1fr; }
    Prompt .problem { display: none; height: auto; padding: 0 1; }
    Prompt.-wrong .problem { display: block; }
    """

    class Closed(Message):
        """Typing is over; `keep` says whether what was typed counts."""

        def __init__(self, prompt: Prompt, keep: bool) -> None:
            super().__init__()
            self.prompt = prompt
            self.keep = keep

    class Typed(Message):
        """The text has changed."""

        def __init__(self, prompt: Prompt) -> None:
            super().__init__()
            self.prompt = prompt

    def __init__(self, label: str, placeholder: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.label = label
        self.line = PromptLine(self, placeholder)
        self.display = False

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(Content(self.label), classes="label")
            yield self.line
        yield Label("", classes="problem")

    @property
    def value(self) -> str:
        """Return the text as it stands."""
        return self.line.value

    @value.setter
    def value(self, text: str) -> None:
        self.line.value = text

    def open(self, text: str) -> None:
        """Show the line with a text that typing replaces."""
        with self.prevent(Input.Changed):
            self.value = text
        self.mark("")
        self.display = True
        self.line.focus()
        self.line.action_select_all()

    def mark(self, problem: str) -> None:
        """Show what is wrong with the text; empty where it makes sense."""
        self.set_class(bool(problem), "-wrong")
        self.query_one(".problem", Label).update(Content(problem))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(self))

    def action_keep(self) -> None:
        self.post_message(self.Closed(self, keep=True))

    def action_drop(self) -> None:
        self.post_message(self.Closed(self, keep=False))
