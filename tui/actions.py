"""The screens of the UI and the actions of each. Key bindings, footer, command palette and help are all generated from these records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from textual.binding import Binding, BindingType

from irscope.immutable import immutable

# The actions of the UI. Key bindings, footer, command palette and help are all generated from these records.

KEYS_WIDTH: Final = 26
"""Columns of the keys in the help window: one more than `page down, ctrl-f, space` takes."""
PANE_TITLES: dict[str, str] = {
    "table": "Tables",
    "detail": "Details",
    "prompt": "While typing",
    "screen": "On every screen",
    "app": "Everywhere",
    "dialog": "In windows like this one",
}
"""Panes that every screen may have; a screen adds its own."""


@immutable
class Action:
    """One action: the method `action_<name>` of the pane's owner, its keys, and its texts."""

    pane: str
    name: str
    keys: tuple[str, ...]
    label: str
    """A word or two for the footer and the palette."""
    help: str
    footer: bool = False
    priority: bool = False
    """True where the keys work whatever has the focus."""


ACTIONS: tuple[Action, ...] = (
    Action("table", "cursor_up", ("up", "k"), "Up", "Select the row above."),
    Action("table", "cursor_down", ("down", "j"), "Down", "Select the row below."),
    Action("table", "page_up", ("pageup", "ctrl+b"), "Page up", "Go up by a page."),
    Action("table", "page_down", ("pagedown", "ctrl+f"), "Page down", "Go down by a page."),
    Action("table", "first", ("home",), "First", "Select the first row."),
    Action("table", "last", ("end",), "Last", "Select the last row."),
    Action("table", "open", ("enter",), "Open", "Go to the node of the row.", footer=True),
    Action("table", "sort(1)", ("s",), "Sort", "Sort by the next column.", footer=True),
    Action("table", "reverse", ("R",), "Reverse", "Turn the order round."),
    Action("detail", "scroll_up", ("up", "k"), "Up", "Scroll up."),
    Action("detail", "scroll_down", ("down", "j"), "Down", "Scroll down.", footer=True),
    Action("detail", "page_up", ("pageup", "ctrl+b"), "Page up", "Scroll up by a page."),
    Action("detail", "page_down", ("pagedown", "ctrl+f", "space"), "Page down", "Scroll down by a page."),
    Action("detail", "scroll_home", ("home",), "Top", "Scroll to the top."),
    Action("detail", "scroll_end", ("end",), "Bottom", "Scroll to the bottom."),
    Action("detail", "link(1)", ("right", "l"), "Next name", "Mark the next name that leads to another node."),
    Action("detail", "link(-1)", ("left", "h"), "Name before", "Mark the name before."),
    Action("detail", "follow", ("enter",), "Follow", "Go to the node that the marked name is of, else to the first."),
    Action("prompt", "keep", ("enter", "down"), "Take", "Accept the text and go back.", footer=True),
    Action("prompt", "drop", ("escape",), "Drop", "Go back; a filter is dropped, sizes stay as they were.", footer=True),
    Action("screen", "filter", ("slash",), "Filter", "Show only the rows that match what you type.", footer=True),
    Action("screen", "go_to", ("g",), "Go to", "Go to a node, a module or a step by its name or number."),
    Action("screen", "sizes", ("c",), "Sizes", "Set sizes, such as batch=8, or batch=8 l4 with a device; an empty line unsets them."),
    Action("screen", "device", ("D",), "Device", "Choose the device that memory and time are for, on all screens."),
    Action("screen", "lifetime", ("m",), "Lifetimes", "Choose when tensors are freed: as Python, ONNX Runtime or TorchScript does it."),
    Action("screen", "run", ("F",), "First run", "Show memory in the first run, in the steady ones, or in the one that needs more."),
    Action("screen", "back", ("escape",), "Back", "Leave the maximised pane, else drop the filter."),
    Action("screen", "zoom", ("z",), "Zoom", "Maximise the focused pane, or restore the others."),
    Action("screen", "copy", ("y",), "Copy", "Copy the command line that gives the same answers, the row or its name.", footer=True),
    Action("screen", "export", ("e",), "Export", "Write what this screen shows into a file."),
    Action("screen", "warnings", ("w",), "Warnings", "Show warnings and remarks about the model."),
    Action("screen", "went_back", ("left_square_bracket",), "Where I was", "Go back to where you were before."),
    Action("screen", "went_on", ("right_square_bracket",), "Forward", "Go forward again after going back."),
    Action("screen", "stop_work", ("ctrl+x",), "Stop work", "Stop what is being computed."),
    Action("screen", "next_pane", ("tab",), "Next pane", "Go to the next pane."),
    Action("screen", "previous_pane", ("shift+tab",), "Previous pane", "Go to the pane before."),
    Action("app", "commands", ("colon", "ctrl+p"), "Commands", "Search everything that can be done, and do it."),
    Action("app", "reload", ("ctrl+r",), "Read again", "Read the file again, with the same sizes and options."),
    Action("app", "look", ("t",), "Dark or light", "Change between dark and light."),
    Action("app", "help", ("question_mark",), "Help", "Show all keys.", footer=True),
    Action("app", "quit", ("q",), "Quit", "Leave irscope.", footer=True),
    Action("app", "suspend_process", ("ctrl+z",), "Suspend", "Put irscope into the background of the shell; fg brings it back."),
    Action("app", "stop", ("ctrl+c", "ctrl+q"), "Leave at once", "Leave irscope from wherever you are.", priority=True),
    Action("dialog", "close", ("escape", "q", "enter"), "Close", "Close this window.", footer=True),
    Action("dialog", "scroll_text(-1)", ("up", "k"), "Up", "Scroll up."),
    Action("dialog", "scroll_text(1)", ("down", "j"), "Down", "Scroll down."),
)
"""Actions of all screens; those of one screen are in its module."""

QUESTIONS: Final = (
    ("What is my peak? It stands at the top of every screen; this goes there.", "p"),
    ("What is alive there, and why? The table below the chart, largest first.", "2, then p"),
    ("Which layer costs most? The first row below (model).", "4"),
    ("What happens at batch 32? All screens show it then.", "c, then batch=32"),
    ("Which weights are largest?", "3"),
)
"""Common questions, and the keys that answer them."""

SCREEN_QUESTIONS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "browse": (
        ("Where is a module or a node?", "g"),
        ("Who reads what this node makes?", "u"),
        ("What is alive at the peak, and which nodes lack a number? Other columns.", "o"),
    ),
    "memory": (
        ("Does it fit, and on another device? The second line of every screen says so.", "D"),
        ("What holds the peak, and why is it alive? The table below the chart.", "p"),
        ("What does another batch take?", "c"),
        ("Which batch is the largest that fits?", "X"),
        ("What would lower the peak, and by how much?", "W"),
        ("How does the peak grow with the batch?", "x"),
    ),
    "params": (
        ("Find NaN, infinite values, a matrix of zeros: the first rows.", "V"),
        ("Which module holds most?", "v"),
        ("Which weights changed against another checkpoint?", "o"),
    ),
    "cost": (
        ("Which modules, operators or nodes take most time? The first row.", "o"),
        ("How long does it take on another device?", "D"),
        ("How long does another batch take?", "c"),
    ),
    "passes": (("What does a pass change?", "a"), ("What does a pass do with other options?", "o")),
    "compare": (
        ("What changed against another model, or against a recording?", "o"),
        ("How far is the prediction from a real run?", "a"),
        ("Which values of the weights changed?", "W"),
        ("What is equal on both sides?", "f"),
    ),
    "reports": (("What else can be asked?", "a"), ("Where in the model are the numbers of this table?", "o")),
    "graph": (("Where does a branch lead to? The whole graph, folded by module.", "v"), ("Where is a module or a node?", "g")),
}
"""Questions that a screen answers, and the key of each."""

OF_MODELS: Final = frozenset(
    {"sizes", "lifetime", "run", "largest", "by_size", "grow(1)", "grow(-1)", "scale(2)", "scale(0.5)", "eager", "record", "values"}
)
"""Actions that only say why they do nothing where a run is shown without a model: no footer and no help names them there."""

_KEY_NAMES = {
    "slash": "/",
    "colon": ":",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "plus": "+",
    "equals_sign": "=",
    "question_mark": "?",
    "asterisk": "*",
    "minus": "-",
    "space": "space",
    "escape": "esc",
    "pageup": "page up",
    "pagedown": "page down",
}


def actions_of(pane: str, actions: Sequence[Action] = ACTIONS) -> Iterator[Action]:
    """Return the actions of one pane, in the order of the table."""
    return (action for action in actions if action.pane == pane)


def bindings(pane: str, actions: Sequence[Action] = ACTIONS) -> list[BindingType]:
    """Return the bindings of a pane for Textual."""
    return [
        Binding(
            ",".join(action.keys),
            action.name,
            action.label,
            show=action.footer,
            key_display=key_text(action.keys[0]),
            priority=action.priority,
        )
        for action in actions_of(pane, actions)
    ]


def key_text(key: str) -> str:
    """Return the display name of a key."""
    return _KEY_NAMES.get(key, key.replace("+", "-"))


# The screens of the app, in the order of their keys. A screen is imported when it is first shown or asked for its keys.


@immutable
class ScreenRecord:
    """One screen: its key, what people read about it, and where its class is."""

    name: str
    key: str
    title: str
    help: str
    place: str
    """Module below irscope.tui, and class; imported when the screen is first shown or asked for its keys."""
    shows_runs: bool = False
    """True where it has something to show of a run without a model."""

    @property
    def action(self) -> Action:
        """Return the action of the app that shows this screen."""
        return Action("app", f"open_screen('{self.name}')", (self.key,), self.title, self.help)


SCREENS: tuple[ScreenRecord, ...] = (
    ScreenRecord("browse", "1", "Browse", "Show the modules and nodes of the model.", "browse.screen:BrowseScreen"),
    ScreenRecord("memory", "2", "Memory", "Show what is alive at each step, and why.", "memory.screen:MemoryScreen", True),
    ScreenRecord("params", "3", "Parameters", "Show the weights, by size or by module, and their values.", "params:ParamsScreen"),
    ScreenRecord("cost", "4", "Cost", "Show the least time of modules and nodes on a device, and what binds them.", "cost:CostScreen"),
    ScreenRecord("passes", "5", "Passes", "Run a pipeline step by step and see what each pass changed.", "passes.screen:PassesScreen"),
    ScreenRecord("compare", "6", "Compare", "Lay another model or a recording beside this one.", "compare:CompareScreen", True),
    ScreenRecord("reports", "7", "Reports", "Show the report of any pass, also of one of your own.", "reports:ReportsScreen", True),
    ScreenRecord(
        "graph", "8", "Graph", "Show what is around the selected node, and the whole graph folded by module.", "graph.screen:GraphScreen"
    ),
)


def screen_record(name: str) -> ScreenRecord:
    """Return the record of a screen."""
    return next(record for record in SCREENS if record.name == name)


def app_actions() -> tuple[Action, ...]:
    """Return the actions of the app, with one for each screen."""
    return (*(record.action for record in SCREENS), *(action for action in ACTIONS if action.pane == "app"))
