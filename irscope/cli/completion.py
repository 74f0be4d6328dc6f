"""`irscope completion`: scripts that complete words of the command line in bash, zsh and fish.

A script hands the words so far to `irscope completion SHELL --offers`, which answers from the table of the help: the first line says
whether files belong there too, and whether names may follow one another between commas; then comes what the shell may offer.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from irscope.cli.helptext import described
from irscope.cli.main import COMMANDS
from irscope.errors import ExitCode, UsageError
from irscope.files import write_stream
from irscope.immutable import immutable

_ANSWER: Final[Mapping[tuple[str, str], str | tuple[str, ...]]] = {
    ("record", "device"): ("cpu", "cuda"),
    ("config", "settings"): ("device=",),
    ("passes", "name"): "passes",
    ("devices", "name"): "devices",
    ("ops", "name"): "ops",
    ("explain", "what"): "codes",
    ("zoo", "what"): "zoo",
    ("simulate", "rank"): ("all",),
}
"""Candidates for arguments of single commands: fixed words, or a source of names."""
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

    bash   redirect it to ~/.local/share/bash-completion/completions/irscope
    zsh    to ~/.zfunc/_irscope; `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
    fish   to ~/.config/fish/completions/irscope.fish
    """

    examples = (
        ("irscope completion bash", "what does bash need to complete my commands?"),
        ("irscope completion zsh", "and zsh?"),
        ("irscope completion fish", "and fish?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", nargs="?", choices=_SCRIPTS, help="bash, zsh or fish")
        parser.add_argument("--offers", action="store_true", help="complete the last of the words on standard input, for the script")

    def run(self, args: argparse.Namespace) -> int:
        if not args.shell:
            raise UsageError("which shell?", hint=f"one of {', '.join(_SCRIPTS)}")
        typed = sys.stdin.read().splitlines() if args.offers else []
        write_stream(sys.stdout, _reply(args.shell, typed or [""]) if args.offers else [_SCRIPTS[args.shell]])
        return ExitCode.OK


def words(source: str) -> Iterable[str]:
    """Return the names of a source."""
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

    return sorted(operator.name for operator in operators())


def _devices() -> Iterator[str]:
    from irscope.devices.catalogue import THIS_MACHINE, all_devices, find_device

    yield from (profile.name for profile in all_devices())
    for name in sorted(set(THIS_MACHINE.values())):
        try:
            find_device(name)
        except UsageError:  # `irscope calibrate` has not measured it
            continue
        yield name


@immutable
class Offers:
    """Candidates at the cursor."""

    words: Mapping[str, str]
    """Each with what it is."""
    files: bool = False
    commas: bool = False
    """True where further words may follow after a comma."""
    lead: str = ""
    """The part of the completed word that stays, such as --passes=shapes,"""


def offers(typed: Sequence[str]) -> Offers:
    """Return what completes the last of the words behind `irscope`; bash takes `=` for a word of its own."""
    *before, last = typed
    if not before:
        return _starting_with(last, {**COMMANDS, "--help": "", "--version": ""}, files=True)
    # A model alone is `irscope run MODEL`.
    command = before[0] if before[0] in COMMANDS else "run"
    arguments = [one for one in described(command)["arguments"] if one.get("help") != argparse.SUPPRESS]
    options = {flag: argument for argument in arguments for flag in argument["flags"]}
    flag, equals, value = last.partition("=") if last.startswith("--") else (last, "", last)
    if last == "=" or (before[-1] == "=" and before[1:]):
        flag, equals, value = before[-1 if last == "=" else -2], "=", last.removeprefix("=")
    elif not equals:
        flag = before[-1]
    if flag in options and _takes_value(options[flag]):
        lead = last[: len(last) - len(value)].removeprefix("=")
        return _offered_values(command, options[flag], value, lead)
    if last.startswith("-"):
        return _starting_with(last, {flag: _help_text(option) for flag, option in options.items()})
    taken = sum(not (word[:1] in "-=" or behind[:1] in "-=") for behind, word in itertools.pairwise(before) if word)
    places = [argument for argument in arguments if not argument["flags"]]
    return _offered_values(command, places[min(taken, len(places) - 1)], last, "") if places else Offers({})


def _takes_value(argument: Mapping[str, Any]) -> bool:
    return argument.get("action") != "store_true"


def _help_text(argument: Mapping[str, Any]) -> str:
    return " ".join(str(argument.get("help", "")).replace("%%", "%").split())


def _starting_with(text: str, known: Mapping[str, str], *, files: bool = False) -> Offers:
    return Offers({word: help_ for word, help_ in known.items() if word.startswith(text)}, files)


def _offered_values(command: str, argument: Mapping[str, Any], text: str, lead: str) -> Offers:
    """Offer values of an option, or of an argument by its place: fixed words, names of a source, or files."""
    metavar = str(argument.get("metavar", ""))
    answer = _ANSWER.get((command, argument["dest"]), _BY_NAME.get(argument["dest"], ()))
    fixed = argument.get("choices") or (metavar[1:-1].split(",") if re.fullmatch(r"\{.+\}", metavar) else None)
    known: Iterable[str] = fixed or (words(answer) if isinstance(answer, str) else answer)
    if not fixed and not answer:
        return Offers({}, files=metavar in _FILES or not (argument["flags"] or metavar))
    is_list = argument["dest"] in _LISTS
    head, comma, part = text.rpartition(",") if is_list else ("", "", text)
    return Offers({word: "" for word in known if word.startswith(part)}, commas=is_list, lead=f"{lead}{head}{comma}")


def _reply(shell: str, typed: Sequence[str]) -> Iterator[str]:
    """Yield the answer to a script. zsh keeps by itself what stays of the word, bash what stands before `=`."""
    found = offers(typed)
    yield f"{'files' if found.files else ''} {'commas' if found.commas else ''}\n"
    lead = {"zsh": "", "bash": found.lead.rpartition("=")[2]}.get(shell, found.lead)
    for word, help_ in found.words.items():
        name = word.replace(":", r"\:") if shell == "zsh" else f"{lead}{word}"
        said = {"zsh": f":{help_}", "fish": f"\t{help_}"}.get(shell, "") if help_ else ""
        yield f"{name}{said}\n"


_SCRIPTS: Final = {
    "bash": """\
# Completion of irscope for bash: irscope completion bash > ~/.local/share/bash-completion/completions/irscope
_irscope() {
  local cur=${COMP_WORDS[COMP_CWORD]} kind
  mapfile -t COMPREPLY < <(printf '%s\\n' "${COMP_WORDS[@]:1:COMP_CWORD}" | irscope completion bash --offers 2>/dev/null)
  kind=${COMPREPLY[0]}
  COMPREPLY=("${COMPREPLY[@]:1}")
  if [[ $kind == *commas* ]]; then compopt -o nospace 2>/dev/null; fi
  if [[ $kind == *files* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "${cur#=}")
  fi
}
complete -o bashdefault -F _irscope irscope
""",
    "zsh": """\
#compdef irscope
# Completion of irscope for zsh: irscope completion zsh > a folder of $fpath, as _irscope
_irscope() {
  local kind
  local -a offers
  offers=("${(@f)$(print -rl -- "${(@)words[2,CURRENT-1]}" "$PREFIX" | irscope completion zsh --offers 2>/dev/null)}")
  kind=${offers[1]}
  shift offers
  compset -P '--*='
  if [[ $kind == *commas* ]]; then
    compset -P '*,'
    compadd -q -S , -- $offers
  elif (( $#offers )); then
    _describe -o -t words word offers
  fi
  if [[ $kind == *files* ]]; then _files; elif (( ! $#offers )); then _message 'a value'; fi
}
if [[ ${funcstack[1]} == _irscope ]]; then _irscope "$@"; else compdef _irscope irscope; fi
""",
    "fish": """\
# Completion of irscope for fish: irscope completion fish > ~/.config/fish/completions/irscope.fish
function __irscope_offers
    set -l typed (commandline -opc) (commandline -ct)
    set -l offers (printf '%s\\n' $typed[2..-1] | irscope completion fish --offers 2>/dev/null)
    string match -q '*files*' -- $offers[1]; and __fish_complete_path (commandline -ct)
    printf '%s\\n' $offers[2..-1]
end
complete -c irscope -f -a '(__irscope_offers)'
""",
}
