"""`irscope tui`."""

from __future__ import annotations

import argparse
import importlib
import sys

from irscope.cli.args import add_model_arguments, open_from
from irscope.errors import UsageError


class Command:
    """Browse a model in the terminal: its nodes, live tensors, costs and parameters."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError("the UI needs a terminal", hint="`irscope run` prints the same answers")
        model = open_from(args)
        # By name: the UI is a layer above the command line, which only starts it.
        importlib.import_module("irscope.tui.app").run_app(model)
        return 0
