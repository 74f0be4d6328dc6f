"""The text of `irscope COMMAND --help`, from a table instead of from the command: its module imports numpy and all that it runs.

`--help` is one screen: what the command answers, three examples and the options that are used most. `--help all` is the parser's own help,
with every option in its group. `make pages` writes the table; a test holds it equal to the parsers of the commands.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

Described: TypeAlias = dict[str, Any]
"""A parser as JSON: its texts, its examples, the options that are used most, the titles of its groups, and its arguments in order."""
TABLE: Final = Path(__file__).with_name("helptext.json")
MOST_OPTIONS: Final = 10
"""Options on the first screen of a help."""
_EXAMPLES: Final = 3
_SCREEN: Final = (80, 40)
"""Columns and lines of a screen that cannot be measured, such as a pipe; what is too long for the lines is left out."""
_CLAUSE: Final = 20
"""Columns of the shortest clause that may stand for a help that is too long for its line."""
_NAMES: Final = 24
"""Columns for the names of options."""


def described(name: str) -> Described:
    """Return the entry of a command."""
    entry: Described = json.loads(TABLE.read_text(encoding="utf-8"))[name]
    return entry


def example_lines(examples: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines that show examples, each with its question."""
    return ["examples:", *(f"  {line}\n      {answer}" for line, answer in examples)]


def help_parser(name: str) -> argparse.ArgumentParser:
    """Return a parser that prints the whole help of a command; it reads nothing."""
    entry = described(name)
    parser = argparse.ArgumentParser(
        prog=f"irscope {name}",
        description=entry["description"],
        epilog="\n".join(example_lines(entry["examples"])),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    own = {group.title: group for group in parser._action_groups}
    groups = [own.get(title) or parser.add_argument_group(title) for title in entry["groups"]]
    exclusive: dict[int, argparse._MutuallyExclusiveGroup] = {}
    for argument in entry["arguments"]:
        flags, group = argument.pop("flags"), groups[argument.pop("group")]
        into: argparse._ActionsContainer = group
        if (number := argument.pop("exclusive", None)) is not None:
            if number not in exclusive:
                exclusive[number] = group.add_mutually_exclusive_group()
            into = exclusive[number]
        if isinstance(argument.get("metavar"), list):
            argument["metavar"] = tuple(argument["metavar"])
        into.add_argument(*(flags or [argument.pop("dest")]), **argument)
    return parser


def short_help(name: str) -> str:
    """Return the first screen of a command's help: what it answers, three examples, the options that are used most."""
    entry = described(name)
    screen = shutil.get_terminal_size(_SCREEN)
    width, lines = screen.columns - 2, screen.lines - 1  # a line is the prompt's
    shown = [argument for argument in entry["arguments"] if argument.get("help") != argparse.SUPPRESS]
    places = [argument for argument in shown if not argument["flags"]]
    options = {flag: argument for argument in shown for flag in argument["flags"]}
    usage = " ".join([f"usage: irscope {name} [options]", *map(_place, places)])
    examples = "\n".join(example_lines(entry["examples"][:_EXAMPLES])).splitlines()
    most_used = [
        "arguments and most used options:" if places else "most used options:",
        *(_line_of(argument, width) for argument in (*places, *(options[flag] for flag in entry["common"]))),
    ]
    rest = f"`irscope {name} --help all` lists all {len({id(option) for option in options.values()})} options in groups."
    room = lines - len(examples) - len(most_used) - 6
    answer = list(_paragraphs(entry["description"], room, width))
    if len(answer) > room:  # 24 lines: examples without their questions
        brief = [usage, *answer, examples[0], *examples[1::2], *most_used]
        return "\n".join([*brief[: max(lines - 1, len(answer) + 5)], rest, ""])
    return "\n".join([usage, "", *answer, "", *examples, "", *most_used, "", rest, ""])


def _paragraphs(description: str, lines: int, width: int) -> Iterator[str]:
    """Yield the first paragraph, and as many of the next ones as leave the help on one screen; lines with columns stay as they are."""
    for number, paragraph in enumerate(description.split("\n\n")):
        own = paragraph.splitlines()
        text = ([""] if number else []) + (own if "  " in paragraph else textwrap.wrap(" ".join(own), width, break_on_hyphens=False))
        lines -= len(text)
        if number and (lines < 0 or paragraph.startswith("Exit codes")):
            return
        yield from text


def _place(argument: Described) -> str:
    name = str(argument.get("metavar", argument["dest"]))
    return {"?": f"[{name}]", "*": f"[{name} ...]", "...": f"[{name} ...]", "+": f"{name} ..."}.get(str(argument.get("nargs")), name)


def _line_of(argument: Described, width: int) -> str:
    """Return an argument in one line: its names, and the first clause of its help."""
    metavar = argument.get("metavar")
    choices = argument.get("choices") or (str(metavar).strip("{}").split(",") if str(metavar).startswith("{") else [])
    value = (
        ""
        if argument.get("action") == "store_true"
        else str(argument["dest"]).upper()
        if choices
        else metavar or str(argument["dest"]).upper()
    )
    names = ", ".join(argument["flags"]) + (f" {value}" if value else "") if argument["flags"] else str(metavar or argument["dest"])
    text = (
        ", ".join(choices)
        if str(metavar).startswith("{")
        else re.split(r"[;:] |, such as |, default ", str(argument.get("help", "")).replace("%%", "%"))[0]
    )
    lead = f"  {names:{_NAMES}}" + ("  " if len(names) >= _NAMES else "")
    room = max(width - len(lead), 20)
    clauses = [text[: comma.start()] for comma in re.finditer(r", (?!\d)", text) if _CLAUSE <= comma.start() <= room]
    return lead + (text if len(text) <= room else clauses[-1] if clauses else textwrap.shorten(text, room, placeholder=" ..."))


def describe(parser: argparse.ArgumentParser, examples: Sequence[tuple[str, str]], common: Sequence[str]) -> Described:
    """Return the entry of the table for a command's parser; `common` are the options that are used most, by default the first ones."""
    formatter = parser._get_formatter()
    groups = [group for group in parser._action_groups if group._group_actions]
    group_of = {id(action): number for number, group in enumerate(groups) for action in group._group_actions}
    exclusive = {id(action): number for number, group in enumerate(parser._mutually_exclusive_groups) for action in group._group_actions}
    arguments = []
    for action in parser._actions:
        argument: Described = {"flags": list(action.option_strings), "group": group_of[id(action)], "dest": action.dest}
        if action.nargs == 0:
            argument["action"] = "store_true"
        else:
            kept = {"nargs": action.nargs, "metavar": action.metavar, "choices": None if action.choices is None else list(action.choices)}
            argument |= {key: value for key, value in kept.items() if value is not None}
        if action.required and action.option_strings:
            argument["required"] = True
        if id(action) in exclusive:
            argument["exclusive"] = exclusive[id(action)]
        if action.help is not None:
            argument["help"] = action.help if action.help == argparse.SUPPRESS else formatter._expand_help(action).replace("%", "%%")
        arguments.append(argument)
    offered = [action.option_strings[-1] for action in parser._actions if action.option_strings and action.help != argparse.SUPPRESS]
    first = [flag for flag in offered if flag not in ("--help", "--quiet", "--debug")][:MOST_OPTIONS]
    return {
        "description": parser.description,
        "examples": [list(example) for example in examples],
        "common": list(common) or first,
        "groups": [group.title for group in groups],
        "arguments": arguments,
    }
