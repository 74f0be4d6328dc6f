"""The page docs/commands.md, from the parsers of all commands: `make pages` writes it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from inspect import cleandoc

from irscope.cli.args import (
    DEVICE_OPTIONS,
    MODEL_OPTIONS,
    OUTPUT_OPTIONS,
    STEP_OPTIONS,
    add_model_arguments,
    add_output_arguments,
    add_step_arguments,
    group_of,
)
from irscope.cli.generate import HOW_OPTIONS, add_how_arguments
from irscope.cli.main import GROUPS, command_named, parser_of

_SHARED = (MODEL_OPTIONS, DEVICE_OPTIONS, OUTPUT_OPTIONS, STEP_OPTIONS, HOW_OPTIONS)
_FOR_ALL = ("-h", "-q", "--debug")
"""Every command has them; they are listed once."""


def commands_page() -> str:
    """Every command with its options; those that several commands share stand once, at the end."""
    shared = argparse.ArgumentParser(add_help=False)
    add_model_arguments(shared)
    add_step_arguments(shared)
    generating = argparse.ArgumentParser(add_help=False)  # --as of a step is another option
    add_how_arguments(generating)
    add_output_arguments(shared, plots="the curves of the reports")
    groups = (*shared._action_groups, group_of(generating, HOW_OPTIONS))
    once = {group.title or "": {action.dest: _row(action) for action in group._group_actions} for group in groups}
    lines = [
        "# Commands and options",
        "",
        "`irscope COMMAND --help` has examples, `--help all` says more. [The command line](cli.md) has the rules of all commands.",
        "",
    ]
    for question, commands in GROUPS.items():
        lines += [f"## {question}", ""]
        for name in commands:
            lines += [*_command(name, once), ""]
    lines += ["## Options of several commands", ""]
    lines += ["Every command has `-h`, `--help all`, `-q` (no progress) and `--debug` (the full traceback of an error).", ""]
    for title in _SHARED:
        lines += [f"### {title.capitalize()}", "", *_table(once[title].values()), ""]
    return "\n".join(lines)


def _command(name: str, once: Mapping[str, Mapping[str, tuple[str, str]]]) -> Iterator[str]:
    command = command_named(name)
    parser = parser_of(name, command)
    yield f"### irscope {name}"
    yield ""
    yield escaped(" ".join(cleandoc(command.__doc__ or "").split("\n\n")[0].split()))
    rows: list[tuple[str, str]] = []
    others: list[str] = []
    for group in parser._action_groups:
        known = once.get(group.title or "", {})
        for action in group._group_actions:
            if action.help is argparse.SUPPRESS or set(action.option_strings) & set(_FOR_ALL):
                continue
            if known.get(action.dest) != (row := _row(action)):
                rows.append(row)
            elif group.title in _SHARED and group.title not in others:
                others.append(group.title or "")
    if rows:
        yield ""
        yield from _table(rows)
    if others:
        yield ""
        links = [f"[{title}](#{title.replace(' ', '-')})" for title in others]
        yield f"Also: {', '.join(links)}."


def _table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "|option|meaning|"
    yield "|---|---|"
    for name, meaning in rows:
        yield f"|{name}|{meaning}|"


def _row(action: argparse.Action) -> tuple[str, str]:
    metavar = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
    value = "" if action.nargs == 0 else metavar or ("" if action.choices is None else "{" + ",".join(map(str, action.choices)) + "}")
    flags = ", ".join(action.option_strings)
    shown = f"{flags} {value or action.dest.upper()}" if flags and action.nargs != 0 else flags or value or action.dest
    text = argparse.HelpFormatter("irscope")._expand_help(action) if action.help else ""
    return f"`{shown.replace('|', chr(92) + '|')}`", escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    """Text as Markdown: what HTML and tables would take for their own stands for itself."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("__", "\\_\\_")
