"""`irscope tui`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from irscope.cli.args import (
    add_model_arguments,
    add_output_file,
    add_step_arguments,
    check_terminal,
    load_options,
    opened_for,
    progress_from,
    step_from,
    step_words,
)
from irscope.errors import LoadError, UsageError
from irscope.files import is_recording
from irscope.frontends.zoo.names import is_name
from irscope.passkit.instruments import Instrument, PassEvent

if TYPE_CHECKING:
    from irscope.recording import Recording
    from irscope.session import Model

_Opened: TypeAlias = "tuple[Model | Sequence[object], str, Sequence[str] | None]"
"""A model, or runs without one as the UI shows them; what to compare a model with; the options of a training step."""


class Command:
    """Browse a model in the terminal: its nodes, live tensors, costs and parameters.

    Without MODEL it lists recent files and samples to choose from; for a folder, the models in it. With OTHER, another model or a
    recording of a real run, it opens on the comparison of the two. A recording alone, as `irscope simulate -o
    run.jsonl` or `irscope record` writes it, is shown without a model: the verdict, memory over the recorded step, and what is alive at
    its peak. With --train it shows a training step: MODEL is a name or a function in a script, as for train-plan, and the memory screen
    begins with the step by category. Several recordings, such as those of ranks of one job, stand side by side. With --record the keys of
    --keys are pressed without a terminal, and a moving picture of the screens is written.
    """

    examples = (
        ("irscope tui model.onnx", "what is inside, node by node, and what is alive when?"),
        ("irscope tui old.onnx new.onnx", "where do two models differ?"),
        ("irscope tui run.jsonl", "what did `simulate -o run.jsonl train.py` find, and what is alive when?"),
        ("irscope tui --browser model.onnx", "how does it look in a web browser?"),
        ("irscope tui rank0.jsonl rank1.jsonl", "how do ranks of a job differ, and when?"),
        ('irscope tui --record tour.svg --keys "2 W enter" model.onnx', "how does one see what would lower the peak?"),
        ("irscope tui --train torchvision:resnet50", "what does a training step keep for its backward?"),
    )
    common = ("--device", "--bind", "--input", "--train", "--optimizer", "--as", "--compile", "--browser", "--record", "--keys")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser, optional=True)
        parser.add_argument("other", metavar="OTHER", nargs="?", default="", help="another model, or a recording of `irscope record`")
        parser.add_argument("more", metavar="MORE", nargs="*", help="further recordings beside the first two, such as other ranks of a job")
        parser.add_argument("--train", action="store_true", help="show the training step of MODEL, a name or ./train.py:build")
        parser.add_argument("--browser", action="store_true", help="serve the same in a web browser of this machine, by textual-serve")
        add_output_file(parser, "--record", help="write a moving picture, an SVG, of what the keys of --keys lead to")
        parser.add_argument("--keys", default="", help="keys that --record presses, such as \"2 c 'batch=64 l4' enter\"")
        add_step_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        if args.browser:
            load_options(args)
            _where(args)
            importlib.import_module("irscope.tui.browser").serve([word for word in sys.argv[2:] if word != "--browser"])
            return 0
        if args.record:
            return _record(args)
        if args.keys:
            raise UsageError("--keys are those of --record", hint='`irscope tui --record tour.svg --keys "2 W enter" MODEL`')
        named = args.model or "MODEL"
        if not os.environ.get("IRSCOPE_SERVED"):
            check_terminal(f"`irscope run {named}` prints the same answers as text, `irscope show {named}` the graph")
        if args.train and args.model is None:
            raise UsageError("--train needs a model", hint="`irscope tui --train torchvision:resnet50`, or a function: ./train.py:build")
        # What is wrong with the arguments is said before there is a screen.
        load_options(args)
        _check_more(args)
        path, folder = _where(args)
        # By name: the UI is a layer above the command line, which only starts it. It is on the screen before what reads models is imported.
        start = importlib.import_module("irscope.tui.start").StartScreen(partial(_read, args), path, folder)
        importlib.import_module("irscope.tui.app").run_app(start)
        return 0


def _record(args: argparse.Namespace) -> int:
    """Write the moving picture of a script of keys."""
    from irscope.files import write_text

    load_options(args)
    _check_more(args)
    path, _ = _where(args)
    if path is None:
        raise UsageError("--record needs a model or a recording", hint='`irscope tui --record tour.svg --keys "2 W enter" MODEL`')
    watching = progress_from(args)

    def tell(what: str, done: int, total: int | None) -> None:
        for one in watching:
            one.progress(None, done, total, what)

    what, other, step = _read(args, path, tell)
    write_text(Path(args.record), [importlib.import_module("irscope.tui.tour").moving_picture(what, args.keys, other, step)])
    return 0


def _check_more(args: argparse.Namespace) -> None:
    """Raise UsageError for more than two files that are not all recordings."""
    strange = [one for one in (args.model, args.other, *args.more) if args.more and not _is_run(Path(one))]
    if strange:
        raise UsageError(f"{strange[0]} is not a recording", hint="more than two files side by side are recordings, such as ranks of a job")


def _where(args: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """Return the file that is read at once, or the folder whose models are offered."""
    if args.model is None:
        return None, None
    path = Path(args.model)
    if args.train or is_name(args.model) or path.is_file():
        return path, None
    from irscope.frontends.load import path_of

    try:
        path_of(args.model)
    except LoadError:
        if not path.is_dir():
            raise
        return None, path
    return path, None


def _read(args: argparse.Namespace, path: Path, tell: Callable[[str, int, int | None], None]) -> _Opened:
    """Read a file, beside the screen that says how far that is."""
    from irscope.frontends.files.snapshot import is_snapshot
    from irscope.session import open_model

    is_named = args.model is not None and path == Path(args.model)
    other = args.other if is_named else ""
    if _is_run(path):
        if args.train and is_named:
            raise UsageError(f"--train needs a model, and {path} is a recording", hint="`irscope tui RECORDING` shows it")
        if not other or _is_run(Path(other)):
            return _shown_runs([path, *map(Path, (other, *args.more) if other else ())]), "", None
        if is_snapshot(path):
            return _shown_runs([path], other), "", None
        path, other = Path(other), str(path)
    if args.train and is_named:
        tell("capturing the step", 0, None)
        model = replace(step_from(args), options=load_options(args))
    else:
        model = open_model(path, load_options(args), settings=opened_for(args), instruments=[_Telling(tell)], reproducers=True)
    tell("opening the screens", 0, None)
    importlib.import_module("irscope.tui.screen")
    return model, other, step_words(args) if args.train and is_named else None


def _is_run(path: Path) -> bool:
    """Return whether a file is a recording or a memory snapshot."""
    from irscope.frontends.files.snapshot import is_snapshot

    return is_recording(path) or is_snapshot(path)


def _shown_runs(paths: Sequence[Path], target: str = "") -> list[object]:
    """Return runs as the UI shows them: what makes no sense in them is said before there is a screen. `target` is the script or the model
    that made a snapshot."""
    from irscope.recording import read_recording
    from irscope.tools.explain import explain_file
    from irscope.tools.explain.recorded import recording_of_history

    def recording(path: Path) -> Recording:
        if is_recording(path):
            return read_recording(path)
        explained = explain_file(path, target)
        return recording_of_history(explained.history, explained.report(), explained.verdict)

    return [importlib.import_module("irscope.tui.recording").run_of_recording(recording(path)) for path in paths]


class _Telling(Instrument):
    """Says how far reading is to the screen instead of to stderr."""

    def __init__(self, tell: Callable[[str, int, int | None], None]) -> None:
        self._tell = tell

    def progress(self, event: PassEvent | None, done: int, total: int | None, what: str) -> None:
        self._tell(what if event is None else f"{event.subject.name}: {what}", done, total)
