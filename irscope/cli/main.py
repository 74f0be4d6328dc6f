"""Entry point: find the command, build its parser, run it, and turn errors into one line and an exit code."""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol, cast

from irscope._version import __version__
from irscope.errors import ExitCode, IrscopeError, OutputError, UsageError
from irscope.files import write_stream

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_COLLECTED_AFTER = 100_000
"""New objects after which garbage is looked for."""
GROUPS: dict[str, dict[str, str]] = {
    "What does it cost?": {
        "run": "Print what a model is, whether it fits and what it costs on one screen; or run passes over it.",
        "sweep": "Compute memory, FLOPs, bytes and time at many sizes.",
        "compare-flops": "Compare FLOPs with those of other counters, and explain the difference.",
    },
    "Will it fit?": {
        "fit": "Find the largest batch, or other open size, that fits into memory.",
        "generate": "Predict what a language model takes to generate: loading, the prompt, and each token after it.",
    },
    "What is inside, and why?": {
        "tui": "Browse a model in the terminal.",
        "show": "Print a model in the text form, with inferred types.",
        "export": "Write a picture, a named, changed or reordered model, or memory for another viewer.",
    },
    "Will the training fit?": {
        "train-plan": "Predict the memory of a training step, and list what its forward saves for the backward.",
        "simulate": "Run a training program on simulated GPUs, as any rank of any world, and report its memory.",
    },
    "Is it right, and what changed?": {
        "compare": "Compare two models, or a model with a recording of a real run.",
        "check": "Check models against budgets and a baseline, for CI.",
        "audit": "Analyse every model of a hub, an archive or a store into a dataset, and answer questions about it.",
        "record": "Run a model and record times and memory of every operator.",
        "calibrate": "Measure this machine, so that irscope can predict for it.",
    },
    "For authors of compilers and passes": {
        "opt": "Run transforms over a graph as text, and print the resulting graph.",
        "passes": "List the passes, or explain one.",
        "ops": "List the operators irscope knows, or those of a model that it does not know.",
        "repro": "Run a crash reproducer again.",
    },
    "Catalogues and housekeeping": {
        "zoo": "List the models that can be named instead of a file.",
        "devices": "List the devices that predictions can be for, or explain one.",
        "mcp": "Serve card, fit, simulate, explain and compare to assistants, by the Model Context Protocol.",
        "config": "Set defaults for all runs, such as the device.",
        "cache": "List the cached programs of named models, or delete them.",
        "completion": "Print a script that completes commands, options and names in bash, zsh or fish.",
        "explain": "Explain a diagnostic or error code.",
        "doctor": "Check the installation.",
    },
}
"""Every command by the question that it answers, with the summary of its help; `command_named` finds its class."""
PURPOSE = (
    "What does this model cost, and will it fit? Reads .onnx, .pt2, TorchScript, checkpoints and .irs without running them,\n"
    "and models by name, such as torchvision:resnet50.",
    "irscope MODEL answers on one screen: what the model is, whether it fits, what it costs, what is not known.",
)
"""First lines of the help."""
COMMANDS: dict[str, str] = {name: summary for group in GROUPS.values() for name, summary in group.items()}
"""All of them."""
_SHARED: Final = {
    **{name.lower(): ("listings", name) for name in ("Devices", "Config", "Cache", "Zoo", "Ops")},
    **{name.lower(): ("textform", name) for name in ("Show", "Opt", "Repro")},
    "sweep": ("costs", "SweepCommand"),
    "compare-flops": ("costs", "CompareFlopsCommand"),
}
"""Module and class of small commands that share one; another command has a module of its name, with the class `Command`."""


class CommandType(Protocol):
    """Interface of a command's module; its docstring is its help."""

    examples: Sequence[tuple[str, str]]
    """Commands as they are typed, each with the question it answers: the first three stand on the first screen of the help, tests run
    them. A command with many options also has `common`: those that are used most, for the first screen."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class _Parser(argparse.ArgumentParser):
    """Reports mistakes as the rest of irscope does."""

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse says NoReturn and means it; so does raising
        unknown = re.match(r"unrecognized arguments: (--[A-Za-z][\w-]*)(?:=(\S+))?", message)
        meant = self._meant(unknown[1], unknown[2] or self._behind(unknown[1])) if unknown else ""
        raise UsageError(message, hint=f"did you mean {meant}?" if meant else f"`{self.prog} --help` shows what there is")

    def parse_args(self, args: Sequence[str], namespace: None = None) -> argparse.Namespace:  # type: ignore[override]  # as it is called
        self._typed = list(args)
        return super().parse_args(args)

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the first screen of the help, as `irscope COMMAND --help` does."""
        from irscope.cli.helptext import short_help

        write_stream(sys.stdout, [short_help(self.prog.removeprefix("irscope "))])

    def _behind(self, option: str) -> str:
        """Return what was typed behind an option, which may have been taken for something else."""
        place = self._typed.index(option) if option in self._typed else len(self._typed)
        return next(iter(self._typed[place + 1 : place + 2]), "")

    def _meant(self, option: str, value: str) -> str:
        """Return what an option that the command does not have stands for: a size of the model, or one that is spelt alike."""
        import difflib

        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        near = difflib.get_close_matches(option, known, n=1, cutoff=0.75)
        size = _SIZES.get(option.removeprefix("--"))
        if size and "--bind" in known:
            return f"`--bind {size}={value if value.isdecimal() else 8}`"
        return f"`{near[0]}`" if near else ""


_SIZES = {
    **dict.fromkeys(("batch", "batch-size", "bs"), "batch"),
    **dict.fromkeys(("seq", "seq-len", "sequence-length", "length", "max-length"), "seq"),
}
"""Sizes that other programs have options for, by the name that --bind has."""
_NO_ROOM: Final = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG, errno.EROFS)
_ROOM_HINT: Final = "files of its own are written to the folder that TMPDIR names, and to IRSCOPE_HOME"
_MEANT = {"help": "--help", "version": "--version", "diff": "compare"}
"""Names that other programs give to commands."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    # Modules and graphs are millions of objects that stay: a collector that looks at them all again and again takes a tenth of the time.
    gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = bool(os.environ.get("IRSCOPE_DEBUG"))
    if arguments[:1] != ["simulate"]:  # whose arguments are for the most part those of another program
        end = _program_in(arguments)
        debug = debug or "--debug" in arguments[:end]
        arguments = [argument for argument in arguments[:end] if argument != "--debug"] + arguments[end:]
    _open_standard_streams()
    terminated: list[int] = []
    try:
        with _sigterm_as_interrupt(terminated):
            code = _dispatch(_meant(arguments))
        # What ends by itself once it is interrupted, with what it has so far, says so by its code.
        return ExitCode.TERMINATED if terminated and code == ExitCode.INTERRUPTED else code
    except IrscopeError as error:
        if debug:
            raise
        _complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        return _interrupted(terminated)
    except BrokenPipeError:
        # Whoever read the output has left, as `| head` does; nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # in __set_name__, of which Python 3.11 makes a RuntimeError
            return _interrupted(terminated)
        if debug or _debugs_simulation(arguments):
            raise
        if no_room := _no_room(error):
            _complain(no_room)
            return no_room.exit_code
        if isinstance(error, ModuleNotFoundError) and not (error.name or "irscope").startswith("irscope"):
            package = "pillow" if error.name == "PIL" else error.name
            lacking = UsageError(f"{error.name} is not installed", code="IRS195", hint=f"pip install {package}")
            _complain(lacking)
            return lacking.exit_code
        _complain(IrscopeError(f"{type(error).__name__}: {error}", hint="this is a bug; run again with --debug for the details"))
        return ExitCode.PASS


def _interrupted(terminated: list[int]) -> ExitCode:
    sys.stderr.write(f"irscope: {'terminated' if terminated else 'interrupted'}\n")
    return ExitCode.TERMINATED if terminated else ExitCode.INTERRUPTED


def _no_room(error: Exception) -> OutputError | None:
    """Return what to say where an error comes from a full disk, or where there is no place for temporary files."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return OutputError(f"cannot be written: {error.strerror}", where=str(error.filename or "a file"), hint=_ROOM_HINT)
    import tempfile

    try:
        tempfile.gettempdir()
    except FileNotFoundError:  # other packages stumble over it in ways of their own
        return OutputError("no folder for temporary files can be written to", hint=_ROOM_HINT)
    return None


def _debugs_simulation(arguments: Sequence[str]) -> bool:
    """Return whether --debug stands before the program that is simulated."""
    script = next((place for place, word in enumerate(arguments) if word == "-m" or os.path.isfile(word)), len(arguments))
    return arguments[:1] == ["simulate"] and "--debug" in arguments[:script]


def _open_standard_streams() -> None:
    """Give closed standard streams (`>&-`) a descriptor: the next file that is opened would take their numbers, and their output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number, which is this one. Writing an answer to it is an error that is said; complaints go nowhere.
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)


@contextmanager
def _sigterm_as_interrupt(came: list[int]) -> Iterator[None]:
    """Let SIGTERM clean up as Ctrl-C does, where this is the thread that gets signals; `came` keeps that it was SIGTERM."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    process = os.getpid()

    def terminate(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # one that a simulated program forked, as pools do: it ends as it would without irscope
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        came.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _meant(arguments: list[str]) -> list[str]:
    """Return the arguments with irscope's own word for a command that others call otherwise, unless a file has that name."""
    if not arguments or arguments[0] not in _MEANT or os.path.exists(arguments[0]):
        return arguments
    if arguments[0] == "help":
        topic = _MEANT.get(arguments[1], arguments[1]) if len(arguments) > 1 else "--help"
        if topic.startswith("IRS"):
            return ["explain", topic]
        if topic not in COMMANDS and not topic.startswith("-"):
            from irscope.passkit.registry import default_registry

            if topic in default_registry().names():
                return ["passes", topic]
        return [topic, "--help", *(word for word in arguments[2:] if word == "all")]
    return [_MEANT[arguments[0]], *arguments[1:]]


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        write_stream(sys.stdout, [overview()])
        return ExitCode.OK if arguments else ExitCode.USAGE
    if arguments[0] in ("-V", "--version"):
        write_stream(sys.stdout, [f"irscope {__version__}\n"])
        return ExitCode.OK
    if arguments[0] not in COMMANDS and _names_model(arguments):
        arguments = ["run", *arguments]
    name = arguments[0]
    if name not in COMMANDS:
        import difflib

        if name.startswith("-"):
            raise UsageError(f"{name}: no command or model", hint="options follow a command, or a model that exists")
        if near := difflib.get_close_matches(name, COMMANDS, n=1):
            raise UsageError(f"there is no command {name!r}", hint=f"did you mean {near[0]!r}?")
        from irscope.frontends.zoo.packages import not_found

        error = not_found(name)
        if isinstance(error, UsageError):  # a bare word
            hint = f"{error.hint}; `irscope --help` lists the commands"
            raise UsageError(f"{name!r} is not a command, and as a model: {error.message}", hint=hint)
        raise error
    if arguments[1:2] in (["-h"], ["--help"]) and arguments[2:] in ([], ["all"]):
        from irscope.cli.helptext import help_parser, short_help

        write_stream(sys.stdout, [help_parser(name).format_help() if arguments[2:] else short_help(name)])
        return ExitCode.OK
    command = command_named(name)
    parser = parser_of(name, command)
    end = _program_in(arguments)
    try:
        args = parser.parse_args(arguments[1:end])
    except SystemExit as stop:
        return int(stop.code or 0)
    args.command_line = arguments
    if end < len(arguments):
        args.arguments = arguments[end:]
    _settle(args)
    return command.run(args)


def _settle(args: argparse.Namespace) -> None:
    """Join options that say one thing together."""
    if getattr(args, "device_memory", ""):
        from irscope.devices.catalogue import with_memory
        from irscope.tools.config import chosen_device

        args.device = with_memory(chosen_device(args.device).name, args.device_memory)
    if "output_files" in args:
        from irscope.cli.args import settle_output_files

        settle_output_files(args)


def _program_in(arguments: Sequence[str]) -> int:
    """Return the index at which the arguments of a program begin that irscope runs or simulates: behind the first script, or behind -m and
    its module.
    """
    if arguments[:1] in (["record"], ["explain"]):
        for place, argument in enumerate(arguments[1:], 1):
            if argument == "-m" or (argument.endswith(".py") and not argument.startswith("-") and os.path.isfile(argument)):
                return place + 1 + (argument == "-m")
    return len(arguments)


def _names_model(arguments: Sequence[str]) -> bool:
    """Return whether a file that exists, a model's name or a pattern stands where a command would: `irscope MODEL` means `irscope run
    MODEL`.
    """
    from irscope.frontends.zoo.names import is_name, is_pattern

    candidates = arguments if arguments[0].startswith("-") else arguments[:1]
    if not arguments[0].startswith("-") and is_pattern(arguments[0]):
        return True
    return any(os.path.exists(candidate) or is_name(candidate) for candidate in candidates if not candidate.startswith("-"))


def command_named(name: str) -> CommandType:
    """Return the command of a name that COMMANDS has."""
    module, kind = _SHARED.get(name, (name.replace("-", "_"), "Command"))
    return cast("CommandType", getattr(importlib.import_module(f"irscope.cli.{module}"), kind)())


def parser_of(name: str, command: CommandType) -> argparse.ArgumentParser:
    """Return the parser of a command, which also writes its help."""
    from inspect import cleandoc  # which the commands have imported already, but `irscope --help` need not

    from irscope.cli.helptext import example_lines

    parser = _Parser(
        prog=f"irscope {name}",
        description=cleandoc(command.__doc__ or ""),
        epilog="\n".join(example_lines(command.examples)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing about progress")
    parser.add_argument("--debug", action="store_true", help="show the full traceback of an error")
    return parser


def overview() -> str:
    """Return the text of `irscope --help`."""
    width = max(map(len, COMMANDS))
    lines: list[str] = []
    for question, commands in GROUPS.items():
        lines += ["", question, *(f"  {name:{width}}  {summary}" for name, summary in commands.items())]
    return "\n".join(
        [
            "usage: irscope MODEL",
            "       irscope COMMAND ...",
            "",
            "\n\n".join(PURPOSE),
            *lines,
            "",
            "irscope COMMAND --help explains a command on one screen, --help all every option; --version prints the version.",
            "",
        ]
    )


def _complain(error: IrscopeError) -> None:
    from irscope.report.printable import one_line

    first, _, rest = str(error).partition("\n")
    lines = [f"irscope: error {error.code}: {first}", *rest.splitlines()]
    sys.stderr.write("".join(f"{one_line(line)}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
