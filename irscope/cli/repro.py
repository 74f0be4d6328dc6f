"""`irscope repro`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from irscope.files import write_stream
from irscope.ir.parser import parse_program
from irscope.passes.annotate import Annotate
from irscope.passkit.manager import Manager
from irscope.passkit.repro import read_reproducer


class Command:
    """Run a crash reproducer again.

    The file holds a graph without weights and the pass that failed on it. If it names a script, that script runs.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", help="an irscope-crash-*.irs file")
        parser.add_argument("--passes", help="run this pipeline instead of the one in the file")

    def run(self, args: argparse.Namespace) -> int:
        found = read_reproducer(Path(args.file))
        pipeline = args.passes or found.pipeline
        sys.stderr.write(f"running {pipeline}\n")
        Manager(parse_program(found.text, path=args.file), annotate=Annotate()).run(pipeline)
        write_stream(sys.stdout, ["the passes ran without an error: not reproduced\n"])
        return 0
