"""`irscope repro`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from irscope.budget import reading
from irscope.errors import UsageError
from irscope.files import write_stream
from irscope.frontends.load import check_sizes
from irscope.ir.parser import parse_program
from irscope.passes.graph.transforms import Annotate
from irscope.passkit.manager import Manager
from irscope.passkit.pipeline import script_in
from irscope.passkit.repro import read_reproducer
from irscope.report.printable import one_line


class Command:
    """Run a crash reproducer again.

    The file holds a graph without weights and the pass that failed on it. A reproducer may come from a stranger: a script that it names
    runs only with --trust, or when --passes names it.
    """

    examples = (
        ("irscope repro irscope-crash-4f2a.irs", "does the pass still fail on the graph that it failed on?"),
        ("irscope repro --passes verify,shapes irscope-crash-4f2a.irs", "do other passes fail on it?"),
        ("irscope repro --trust irscope-crash-4f2a.irs", "the same where the file names a script, which then runs?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", help="an irscope-crash-*.irs file")
        parser.add_argument("--passes", help="run this pipeline instead of the one in the file")
        parser.add_argument("--trust", action="store_true", help="run the script that the file names: only for sources you trust")

    def run(self, args: argparse.Namespace) -> int:
        found = read_reproducer(Path(args.file))
        pipeline = args.passes or found.pipeline
        if not (args.passes or args.trust) and (script := script_in(pipeline)):
            hint = "look at the script; --trust runs it, --passes names another"
            raise UsageError(f"the reproducer names a script to run, {script}", code="IRS482", where=args.file, hint=hint)
        sys.stderr.write(f"{one_line(f'running {pipeline}')}\n")
        with reading(args.file, len(found.text)):
            program = parse_program(found.text, path=args.file)
            check_sizes(program)
        Manager(program, annotate=Annotate()).run(pipeline)
        write_stream(sys.stdout, ["the passes ran without an error: not reproduced\n"])
        return 0
