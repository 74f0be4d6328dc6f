"""`irscope tui`."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from irscope.cli.args import add_model_arguments, add_step_arguments, load_options, open_from, settings_from, step_from
from irscope.errors import UsageError
from irscope.recording import Recording, is_recording, read_recording
from irscope.session import Model, open_model


class Command:
    """Browse a model in the terminal: its nodes, live tensors, costs and parameters.

    Without MODEL it shows the files that were opened last and some samples to choose from. With OTHER, another model or a
    recording of a real run, it begins with the comparison of both. A recording alone, as `irscope simulate -o run.jsonl` or
    `irscope record` writes it, is shown without a model: the verdict, memory over the recorded step, and what is alive at its peak.
    With --train it shows a training step: MODEL is a name or a function in a script, as for train-plan, and the memory screen
    begins with the step by category.
    """

    examples = (
        ("irscope tui model.onnx", "what is inside, node by node, and what is alive when?"),
        ("irscope tui old.onnx new.onnx", "where do two models differ?"),
        ("irscope tui run.jsonl", "what did `irscope simulate -o run.jsonl train.py` find, and what is alive when?"),
        ("irscope tui --train torchvision:resnet50", "what does a training step keep for its backward?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser, optional=True)
        parser.add_argument(
            "other", metavar="OTHER", nargs="?", default="", help="another model, or a recording that `irscope record` wrote"
        )
        parser.add_argument("--train", action="store_true", help="show the training step of MODEL, a name or ./train.py:build")
        add_step_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            named = args.model or "MODEL"
            raise UsageError(
                "the UI needs a terminal", hint=f"`irscope run {named}` prints the same answers as text, `irscope show {named}` the graph"
            )
        # By name: the UI is a layer above the command line, which only starts it. Both before the model is read: importing
        # takes twice as long beside a large one, which the garbage collector then looks through.
        start = importlib.import_module("irscope.tui.start")
        app = importlib.import_module("irscope.tui.app")

        if args.train and args.model is None:
            raise UsageError("--train needs a model", hint="`irscope tui --train torchvision:resnet50`, or a function: ./train.py:build")
        if args.model is not None and is_recording(Path(args.model)):
            if args.train:
                raise UsageError(f"--train needs a model, and {args.model} is a recording", hint="`irscope tui RECORDING` shows it")
            args.model, args.other = args.other or args.model, args.model if args.other else ""

        def read(path: Path) -> Model | Recording:
            return read_recording(path) if is_recording(path) else open_model(path, load_options(args), settings=settings_from(args))

        if args.model is None:
            load_options(args)  # what is wrong with the arguments is said before there is a screen
            model = start.choose(read)
        elif not args.train and is_recording(Path(args.model)):
            model = read_recording(Path(args.model))
            start.note_opened(Path(args.model))
        elif args.train:
            model = step_from(args)
        else:
            model = open_from(args)
            if Path(args.model).exists():  # a model by name is in no folder
                start.note_opened(Path(args.model))
        if isinstance(model, Recording):
            importlib.import_module("irscope.tui.recording").run_recording(model)
        elif model is not None:
            app.run_app(model, args.other)
        return 0
