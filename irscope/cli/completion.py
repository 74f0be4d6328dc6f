"""`irscope completion`: scripts that complete words of the command line in bash, zsh and fish.

A script holds all commands, options and fixed values, so that a shell asks nobody for them; names of passes, devices, operators and
codes, which packages and device files add to, come from `irscope completion --words`, which imports little.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from irscope.cli.main import COMMANDS, command_named, parser_of
from irscope.errors import ExitCode, UsageError
from irscope.files import write_stream
from irscope.immutable import immutable

SHELLS: Final = ("bash", "zsh", "fish")
SOURCES: Final = ("passes", "devices", "ops", "codes", "zoo")
"""Names that are looked up when they are wanted."""
_ANSWER: Final[Mapping[tuple[str, str], str | tuple[str, ...]]] = {
    ("record", "device"): ("cpu", "cuda"),
    ("config", "settings"): ("device=",),
    ("passes", "name"): "passes",
    ("devices", "name"): "devices",
    ("ops", "name"): "ops",
    ("explain", "what"): "codes",
    ("zoo", "what"): "zoo",
    ("completion", "shell"): SHELLS,
    ("simulate", "rank"): ("all",),
}
"""What stands for arguments of single commands: fixed words, or a source of names."""
_BY_NAME: Final[Mapping[str, str | tuple[str, ...]]] = {
    "device": "devices",
    "passes": "passes",
    "skip": "passes",
    "autocast": ("bf16", "f16"),
}
_FILES: Final = frozenset({"FILE", "PATH", "FOLDER", "MODEL", "OTHER", "SCRIPT"})
_LISTS: Final = frozenset({"passes", "skip"})
"""Values that are lists with commas."""


class Command:
    """Print a script that completes commands, options, values, names and files of irscope in a shell.

    bash:  irscope completion bash > ~/.local/share/bash-completion/completions/irscope
    zsh:   irscope completion zsh > ~/.zfunc/_irscope      (with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc)
    fish:  irscope completion fish > ~/.config/fish/completions/irscope.fish
    """

    examples = (
        ("irscope completion bash", "what does bash need to complete my commands?"),
        ("irscope completion zsh", "and zsh?"),
        ("irscope completion fish", "and fish?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", nargs="?", choices=SHELLS, help="bash, zsh or fish")
        parser.add_argument("--words", choices=SOURCES, help="print names that scripts complete, one a line")

    def run(self, args: argparse.Namespace) -> int:
        if args.words:
            chunks: Iterable[str] = (f"{word}\n" for word in words(args.words))
        elif args.shell:
            chunks = _SCRIPTS[args.shell](described())
        else:
            raise UsageError("which shell?", hint=f"one of {', '.join(SHELLS)}")
        write_stream(sys.stdout, chunks)
        return ExitCode.OK


def words(source: str) -> Iterable[str]:
    """The names of a source."""
    if source == "passes":
        from irscope.passkit.registry import default_registry

        return default_registry().names()
    if source == "devices":
        return _devices()
    if source == "codes":
        from irscope.codes import CODES

        return CODES
    if source == "zoo":
        from irscope.frontends.zoo.names import PACKAGES

        return PACKAGES
    from irscope.ops.registry import default_registry as operators

    return sorted(one.name for one in operators())


def _devices() -> Iterator[str]:
    from irscope.devices.catalogue import THIS_MACHINE, all_devices, find_device

    yield from (one.name for one in all_devices())
    for name in sorted(set(THIS_MACHINE.values())):
        try:
            find_device(name)
        except UsageError:  # `irscope calibrate` has not measured it
            continue
        yield name


# ----------------------------------------------------------------------------------------------------
# What there is to complete.


@immutable
class Argument:
    """An option, or an argument by its place, and what completes its value."""

    flags: tuple[str, ...]
    takes_value: bool
    words: tuple[str, ...] = ()
    source: str = ""
    is_file: bool = False
    is_list: bool = False
    help: str = ""


@immutable
class Described:
    """One command."""

    name: str
    summary: str
    options: tuple[Argument, ...]
    places: tuple[Argument, ...]
    """What stands by its place; the last one holds for all further words."""


def described() -> list[Described]:
    """All commands, from their parsers."""
    found: list[Described] = []
    for name, summary in COMMANDS.items():
        parser = parser_of(name, command_named(name))
        arguments = [_argument(name, action) for action in parser._actions if action.help is not argparse.SUPPRESS]
        found.append(
            Described(name, summary, tuple(one for one in arguments if one.flags), tuple(one for one in arguments if not one.flags))
        )
    return found


def _argument(command: str, action: argparse.Action) -> Argument:
    answer = _ANSWER.get((command, action.dest), _BY_NAME.get(action.dest, ()))
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    braces = re.fullmatch(r"\{(.+)\}", metavar)
    fixed: tuple[str, ...] = tuple(braces[1].split(",")) if braces else ()
    if action.choices is not None:
        fixed = tuple(map(str, action.choices))
    if not fixed and not isinstance(answer, str):
        fixed = answer
    takes = action.nargs != 0
    source = answer if isinstance(answer, str) and not fixed else ""
    is_file = takes and not fixed and not source and (metavar in _FILES or (not action.option_strings and not metavar))
    text = " ".join(((action.help or "") % {**vars(action), "prog": f"irscope {command}"}).split())
    return Argument(tuple(action.option_strings), takes, fixed if takes else (), source, is_file, action.dest in _LISTS, text)


# ----------------------------------------------------------------------------------------------------
# bash


def bash(commands: list[Described]) -> Iterator[str]:
    yield _BASH_HEAD.replace("COMMANDS", " ".join(one.name for one in commands))
    for one in commands:
        yield f"    {one.name})\n"
        yield f"      options={shlex.quote(' '.join(flag for option in one.options for flag in option.flags))}\n"
        yield '      case "$prev" in\n'
        for option in one.options:
            if option.takes_value:
                yield f"        {'|'.join(option.flags)}) {_bash_value(option)}; return ;;\n"
        yield "      esac\n"
        yield '      case "$place" in\n'
        for number, place in enumerate(one.places):
            yield f"        {number if number + 1 < len(one.places) else '*'}) {_bash_value(place, 'values')} ;;\n"
        yield "      esac\n      ;;\n"
    yield _BASH_TAIL


def _bash_value(one: Argument, way: str = "reply") -> str:
    if one.words:
        return f"_irscope_{way} {shlex.quote(' '.join(one.words))}"
    if one.source:
        return f'_irscope_{"list" if one.is_list else way} "$(irscope completion --words {one.source} 2>/dev/null)"'
    return f"_irscope_{'files' if one.is_file else 'nothing'}"


_BASH_HEAD = """\
# Completion of irscope for bash: irscope completion bash > ~/.local/share/bash-completion/completions/irscope
_irscope_reply() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_irscope_values() { values=$1; }
_irscope_nothing() { COMPREPLY=(); }
_irscope_files() { compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); }
_irscope_list() {
  # Names between commas: what stands before the last comma stays.
  local last=${cur##*,} head
  head=${cur%"$last"}
  compopt -o nospace 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -P "$head" -W "$1" -- "$last")
}
_irscope() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= options= values= place=0 number word
  # bash takes "=" for a word of its own: --device=h100 is three of them.
  if [[ $cur == "=" ]]; then cur=; elif [[ $prev == "=" ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
  local commands="COMMANDS"
  if (( COMP_CWORD == 1 )); then
    _irscope_files
    local files=("${COMPREPLY[@]}")
    _irscope_reply "$commands --help --version"
    COMPREPLY+=("${files[@]}")
    return
  fi
  command=${COMP_WORDS[1]}
  # A model alone is `irscope run MODEL`.
  [[ " $commands " == *" $command "* ]] || command=run
  for (( number = 2; number < COMP_CWORD; number++ )); do
    word=${COMP_WORDS[number]}
    [[ $word == -* || $word == "=" || ${COMP_WORDS[number-1]} == -* || ${COMP_WORDS[number-1]} == "=" ]] || place=$(( place + 1 ))
  done
  case "$command" in
"""
_BASH_TAIL = """\
  esac
  if [[ $cur == -* ]]; then _irscope_reply "$options"
  elif [[ -n $values ]]; then _irscope_reply "$values"
  fi
}
complete -o bashdefault -F _irscope irscope
"""


# ----------------------------------------------------------------------------------------------------
# zsh


def zsh(commands: list[Described]) -> Iterator[str]:
    yield _ZSH_HEAD
    for one in commands:
        yield f"    {_zsh_text(one.name, one.summary)}\n"
    yield _ZSH_MIDDLE
    for one in commands:
        yield f"    {one.name})\n      options=(\n"
        for option in one.options:
            yield from (f"        {_zsh_text(flag, option.help)}\n" for flag in option.flags)
        yield "      )\n"
        yield '      case "$previous" in\n'
        for option in one.options:
            if option.takes_value:
                yield f"        {'|'.join(option.flags)}) {_zsh_value(option)}; return ;;\n"
        yield "      esac\n"
        yield "      if [[ $PREFIX != -* ]]; then\n"
        yield '        case "$place" in\n'
        for number, place in enumerate(one.places):
            yield f"          {number if number + 1 < len(one.places) else '*'}) {_zsh_value(place)} ;;\n"
        yield "        esac\n      fi\n      ;;\n"
    yield _ZSH_TAIL


def _zsh_text(name: str, help_: str) -> str:
    """`name:what it is` for _describe, quoted."""
    return shlex.quote(f"{name}:{help_}" if help_ else name)


def _zsh_value(one: Argument) -> str:
    if one.words:
        return f"compadd -- {shlex.join(one.words)}"
    if one.source:
        look_up = f'compadd{" -q -S ," if one.is_list else ""} -- ${{(f)"$(irscope completion --words {one.source} 2>/dev/null)"}}'
        return f"compset -P '*,'; {look_up}" if one.is_list else look_up
    return "_files" if one.is_file else "_message 'a value'"


_ZSH_HEAD = """\
#compdef irscope
# Completion of irscope for zsh: irscope completion zsh > a folder of $fpath, as _irscope
_irscope() {
  local command previous word
  local -i place=0 number
  local -a commands options
  commands=(
"""
_ZSH_MIDDLE = """\
  )
  if (( CURRENT == 2 )); then
    _describe -t commands command commands
    _files
    return
  fi
  command=${words[2]}
  # A model alone is `irscope run MODEL`.
  (( ${commands[(I)${command}:*]} )) || command=run
  previous=${words[CURRENT-1]}
  if compset -P '--*='; then previous=${IPREFIX%=}; fi
  for (( number = 3; number < CURRENT; number++ )); do
    word=${words[number]}
    [[ $word == -* || ${words[number-1]} == -* ]] || (( place += 1 ))
  done
  case "$command" in
"""
_ZSH_TAIL = """\
  esac
  if [[ $PREFIX == -* ]]; then _describe -o -t options option options; fi
}
if [[ ${funcstack[1]} == _irscope ]]; then _irscope "$@"; else compdef _irscope irscope; fi
"""


# ----------------------------------------------------------------------------------------------------
# fish


def fish(commands: list[Described]) -> Iterator[str]:
    yield _FISH_HEAD
    for one in commands:
        yield f"complete -c irscope -n __irscope_first -a {one.name} -d {_fish_text(one.summary)}\n"
    known = " ".join(one.name for one in commands)
    yield "function __irscope_is\n    set -l words (commandline -opc)\n    test (count $words) -gt 1; or return 1\n"
    yield f"    if contains -- $words[2] {known}\n        test $words[2] = $argv[1]\n    else\n        test $argv[1] = run\n    end\nend\n"
    for one in commands:
        condition = f"-n '__irscope_is {one.name}'"
        for option in one.options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
            value = _fish_value(option) if option.takes_value else ""
            yield f"complete -c irscope {condition} {flags}{value} -d {_fish_text(option.help)}\n"
        for place in one.places:
            if not place.is_file:
                yield f"complete -c irscope {condition}{_fish_value(place)}\n"


def _fish_value(one: Argument) -> str:
    if one.words:
        return f" -x -a {_fish_text(' '.join(one.words))}"
    if one.source:
        function = "__irscope_list" if one.is_list else "irscope completion --words"
        return f" -x -a '({function} {one.source})'"
    return " -r -F" if one.is_file else " -x"


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_FISH_HEAD = """\
# Completion of irscope for fish: irscope completion fish > ~/.config/fish/completions/irscope.fish
function __irscope_first
    test (count (commandline -opc)) -eq 1
end
function __irscope_list
    # Names between commas: what stands before the last comma stays.
    set -l head (commandline -ct | string match -r '.*,' | string replace -r '^--[a-z-]+=' '')
    for name in (irscope completion --words $argv[1])
        echo "$head$name"
    end
end
"""

_SCRIPTS: Final[Mapping[str, Callable[[list[Described]], Iterator[str]]]] = {"bash": bash, "zsh": zsh, "fish": fish}
