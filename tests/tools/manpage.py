"""The manual page, docs/irscope.1, from the parsers of all commands: `make pages` writes it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

from irscope._version import __version__
from irscope.cli.main import GROUPS, PURPOSE, command_named, parser_of

_CLI = Path(__file__).parents[2] / "docs" / "cli.md"
_ENVIRONMENT = {
    "IRSCOPE_HOME": "the folder for settings, calibrations and, in its folder cache, what irscope writes on its own",
    "IRSCOPE_CRASH_DIR": "the folder for crash reproducers",
    "IRSCOPE_NO_CACHE": "if set, nothing is kept of models that are named, and nothing that was kept is read, as with --no-cache",
    "IRSCOPE_DEBUG": "if set, errors come with their full traceback, as with --debug",
    "NO_COLOR": "if set, no colours",
    "COLUMNS": "the width that text is laid out for",
}
_FILES = {
    "irscope.toml, pyproject.toml": "what `irscope check` reads",
    "irscope-baseline.json": "what `irscope check --update` writes",
    "$XDG_CONFIG_HOME/irscope": "settings of `irscope config`, and calibrations",
    "$XDG_CACHE_HOME/irscope": "crash reproducers, and in its folder programs what is kept of models that are named",
}


def man_page() -> str:
    """The page in the man macros of roff."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    yield '.\\" From the parsers of all commands, by `make pages`.'
    yield f'.TH IRSCOPE 1 "" "irscope {__version__}" "User Commands"'
    yield ".SH NAME"
    yield "irscope \\- what does a neural network cost, and will it fit?"
    yield ".SH SYNOPSIS"
    yield ".B irscope\n.I MODEL\n.RI [ OPTIONS ]\n.br"
    yield ".B irscope\n.I COMMAND\n.RI [ OPTIONS ]\n.IR ..."
    yield ".SH DESCRIPTION"
    yield from _paragraphs("\n\n".join(PURPOSE))
    yield ".SH COMMANDS"
    for question, commands in GROUPS.items():
        yield f".SS {_quoted(question)}"
        for name, summary in commands.items():
            yield from _term(f"\\fB{_text(name)}\\fR", summary)
    for commands in GROUPS.values():
        for name in commands:
            yield from _command(name)
    yield ".SH EXIT STATUS"
    for code, meaning in re.findall(r"^\| (\d+) \| (.+) \|$", _CLI.read_text(encoding="utf-8"), re.M):
        yield from _term(f"\\fB{code}\\fR", meaning.replace("`", ""))
    yield ".SH ENVIRONMENT"
    for name, meaning in _ENVIRONMENT.items():
        yield from _term(f"\\fB{name}\\fR", meaning)
    yield ".SH FILES"
    for name, meaning in _FILES.items():
        yield from _term(f"\\fI{_text(name)}\\fR", meaning)


def _command(name: str) -> Iterator[str]:
    command = command_named(name)
    parser = parser_of(name, command)
    actions = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
    yield f".SH {_quoted(f'irscope {name}')}"
    places = " ".join(_place(action) for action in actions if not action.option_strings)
    yield f".B irscope {_text(name)}\n.RI [ OPTIONS ]" + (f"\n.I {_text(places)}" if places else "")
    yield from _paragraphs(cleandoc(command.__doc__ or ""))
    for action in actions:
        text = " ".join(((action.help or "") % {**vars(action), "prog": parser.prog}).split())
        metavar = _metavar(action)
        if not action.option_strings:
            yield from _term(f"\\fI{_text(metavar)}\\fR", text)
            continue
        value = f" \\fI{_text(metavar)}\\fR" if action.nargs != 0 else ""
        yield from _term(", ".join(f"\\fB{_text(flag)}\\fR{value}" for flag in action.option_strings), text)
    yield ".PP\nExamples:"
    for line, answer in command.examples:
        yield from _term(f"\\fB{_text(line)}\\fR", answer)


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def _place(action: argparse.Action) -> str:
    name = _metavar(action)
    many = {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ...", argparse.REMAINDER: "..."}
    return many.get(str(action.nargs), name)


def _term(term: str, text: str) -> Iterator[str]:
    yield f".TP\n{term}\n{_line(text)}"


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a docstring; what is indented stays as it is laid out."""
    for part in text.split("\n\n"):
        lines = part.strip("\n").splitlines()
        if not lines:
            continue
        indented = [line.startswith("    ") for line in lines]
        first = next((number for number, one in enumerate(indented) if one), len(lines))
        if first:
            yield ".PP"
            yield _line(" ".join(line.strip() for line in lines[:first]))
        if first < len(lines):
            yield ".PP\n.nf"
            yield from (_line(line) for line in lines[first:])
            yield ".fi"


def _line(text: str) -> str:
    """A line of text, which no macro is made of."""
    shown = _text(text)
    return f"\\&{shown}" if shown[:1] in (".", "'") else shown


def _text(text: str) -> str:
    return (
        text.replace("\\", "\\e")
        .replace("-", "\\-")
        .replace("'", "\\(aq")
        .replace("`", "\\(ga")
        .replace("^", "\\(ha")
        .replace("~", "\\(ti")
    )


def _quoted(text: str) -> str:
    return '"' + _text(text).replace('"', '""') + '"'
