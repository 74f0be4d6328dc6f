"""Everything the UI can be asked to do. Bindings, footer, command palette and help are made from this one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from textual.binding import Binding, BindingType

from irscope.tui.models.filter import HELP as FILTER_HELP
from irscope.tui.models.spans import Line, Span
from irscope.tui.models.symbols import Symbols

Pane: TypeAlias = Literal["app", "browse", "tree", "detail", "timeline", "prompt", "dialog"]

PANE_TITLES: dict[Pane, str] = {
    "tree": "Modules",
    "timeline": "Live bytes",
    "detail": "Details",
    "prompt": "While typing a filter or sizes",
    "browse": "On this screen",
    "app": "Everywhere",
    "dialog": "In windows like this one",
}


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do: the method `action_<name>` of what owns the pane, its keys, and what people read about it."""

    pane: Pane
    name: str
    keys: tuple[str, ...]
    label: str
    """A word or two for the footer and the palette."""
    help: str
    footer: bool = False
    priority: bool = False
    """Whether the keys work whatever has the focus."""


ACTIONS: tuple[Action, ...] = (
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
    Action("timeline", "step(-1)", ("left", "h"), "Step back", "Go to the step before."),
    Action("timeline", "step(1)", ("right", "l"), "Step on", "Go to the next step.", footer=True),
    Action("timeline", "step(-10)", ("shift+left", "H"), "10 back", "Go back by ten steps."),
    Action("timeline", "step(10)", ("shift+right", "L"), "10 on", "Go on by ten steps."),
    Action("timeline", "first", ("home",), "First step", "Go to the first step."),
    Action("timeline", "last", ("end",), "Last step", "Go to the last step."),
    Action("detail", "scroll_up", ("up", "k"), "Up", "Scroll up."),
    Action("detail", "scroll_down", ("down", "j"), "Down", "Scroll down.", footer=True),
    Action("detail", "page_up", ("pageup", "ctrl+b"), "Page up", "Scroll up by a page."),
    Action("detail", "page_down", ("pagedown", "ctrl+f", "space"), "Page down", "Scroll down by a page."),
    Action("detail", "scroll_home", ("home",), "Top", "Scroll to the top."),
    Action("detail", "scroll_end", ("end",), "Bottom", "Scroll to the bottom."),
    Action("prompt", "keep", ("enter", "down"), "Take", "Take what is typed and go back to the modules.", footer=True),
    Action("prompt", "drop", ("escape",), "Drop", "Go back; a filter is dropped, sizes stay as they were.", footer=True),
    Action("browse", "filter", ("slash",), "Filter", "Show only the nodes that match what you type.", footer=True),
    Action("browse", "sizes", ("c",), "Sizes", "Put in sizes for symbols, such as batch=8; nothing puts them out.", footer=True),
    Action("browse", "back", ("escape",), "Back", "Leave the maximised pane, else drop the filter."),
    Action("browse", "peak", ("p",), "Peak", "Go to the node at which most bytes are alive.", footer=True),
    Action("browse", "zoom", ("z",), "Zoom", "Let the focused pane fill the screen, or give the others their room back.", footer=True),
    Action("browse", "details", ("d",), "Details", "Hide or show the details."),
    Action("browse", "command", ("y",), "Command", "Show and copy the command line that gives the same answers.", footer=True),
    Action("browse", "warnings", ("w",), "Warnings", "Show what irscope has to remark about the model."),
    Action("browse", "next_pane", ("tab",), "Next pane", "Go to the next pane."),
    Action("browse", "previous_pane", ("shift+tab",), "Previous pane", "Go to the pane before."),
    Action("app", "help", ("question_mark",), "Help", "Show all keys.", footer=True),
    Action("app", "quit", ("q",), "Quit", "Leave irscope.", footer=True),
    Action("app", "stop", ("ctrl+c", "ctrl+q"), "Leave at once", "Leave irscope from wherever you are.", priority=True),
    Action("dialog", "close", ("escape", "q", "enter"), "Close", "Close this window.", footer=True),
    Action("dialog", "scroll_text(-1)", ("up", "k"), "Up", "Scroll up."),
    Action("dialog", "scroll_text(1)", ("down", "j"), "Down", "Scroll down."),
)

_KEY_NAMES = {
    "slash": "/",
    "question_mark": "?",
    "asterisk": "*",
    "minus": "-",
    "escape": "esc",
    "pageup": "page up",
    "pagedown": "page down",
    "ctrl+b": "ctrl-b",
    "ctrl+f": "ctrl-f",
    "ctrl+c": "ctrl-c",
    "ctrl+q": "ctrl-q",
    "shift+tab": "shift-tab",
    "shift+left": "shift-left",
    "shift+right": "shift-right",
}


def actions_of(pane: Pane) -> Iterator[Action]:
    """The actions of one pane, in the order of the table."""
    return (action for action in ACTIONS if action.pane == pane)


def bindings(pane: Pane) -> list[BindingType]:
    """The keys of a pane as Textual wants them."""
    return [
        Binding(
            ",".join(action.keys),
            action.name,
            action.label,
            show=action.footer,
            key_display=key_text(action.keys[0]),
            priority=action.priority,
        )
        for action in actions_of(pane)
    ]


def key_text(key: str) -> str:
    """A key as people call it."""
    return _KEY_NAMES.get(key, key)


def help_lines(pane: Pane, symbols: Symbols) -> list[Line]:
    """All keys, those of the focused pane first, then what a filter may say and what the signs mean."""
    order = [pane, *(one for one in PANE_TITLES if one != pane)]
    lines: list[Line] = []
    for one in order:
        lines.append((Span(PANE_TITLES[one], "heading"),))
        for action in actions_of(one):
            keys = ", ".join(map(key_text, action.keys))
            lines.append((Span(f"  {keys:<22}", "name"), Span(action.help)))
        lines.append(())
    lines.append((Span("What a filter may say; all words must match", "heading"),))
    lines.extend((Span(f"  {term:<22}", "name"), Span(text)) for term, text in FILTER_HELP)
    lines.append(())
    lines.append((Span("Signs", "heading"),))
    lines.extend((Span(f"  {sign:<22}", "name"), Span(text)) for sign, text in _signs(symbols))
    return lines


def _signs(symbols: Symbols) -> Iterator[tuple[str, str]]:
    yield symbols.unknown, "unknown: never a zero in disguise"
    yield symbols.waiting, "still being computed"
    yield f"{symbols.at_least} 1.20 G", "at least this much: some nodes below are unknown and not in the sum"
    yield symbols.glyphs.mark, "the step at which most bytes are alive"
    yield symbols.here, "the step of the selected row"
    yield "result bytes", "sizes of all results together; views of one storage count each time"
    yield "FLOPs", "a multiply-add is 2"
