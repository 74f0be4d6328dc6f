"""What `irscope COMMAND --help` prints, from a table instead of from the command: its module imports numpy and all that it runs.

`make pages` writes the table; a test holds it equal to the parsers of the commands.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final, TypeAlias

Described: TypeAlias = dict[str, Any]
"""A parser as JSON: its texts, the titles of its groups, and its arguments in order."""
TABLE: Final = Path(__file__).with_name("helptext.json")


def help_parser(name: str) -> argparse.ArgumentParser:
    """A parser that prints the help of a command; it reads nothing."""
    described: Described = json.loads(TABLE.read_text(encoding="utf-8"))[name]
    parser = argparse.ArgumentParser(
        prog=f"irscope {name}",
        description=described["description"],
        epilog=described["epilog"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    own = {group.title: group for group in parser._action_groups}
    groups = [own.get(title) or parser.add_argument_group(title) for title in described["groups"]]
    exclusive: dict[int, argparse._MutuallyExclusiveGroup] = {}
    for argument in described["arguments"]:
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


def describe(parser: argparse.ArgumentParser) -> Described:
    """The entry of the table for a command's parser."""
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
    return {"description": parser.description, "epilog": parser.epilog, "groups": [group.title for group in groups], "arguments": arguments}
