"""`irscope cache`."""

from __future__ import annotations

import argparse
import time

from irscope import diskcache
from irscope.cli.args import add_output_arguments, write_answer
from irscope.errors import ExitCode
from irscope.report.report import Document, Report
from irscope.report.table import Table


class Command:
    """List what is kept of models that were named, or delete it.

    irscope keeps the program of a name, such as torchvision:resnet50 or ./train.py:build, until a file that it was built from changes.
    When the cache is full, irscope deletes the least recently used models first. --no-cache or IRSCOPE_NO_CACHE=1 builds a model again.
    """

    examples = (
        ("irscope cache ls", "which models are kept, and how large are they?"),
        ("irscope cache ls --sort size --top 5", "which take the most room?"),
        ("irscope cache clear", "how do I delete them all?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("what", nargs="?", choices=("ls", "clear"), default="ls", help="list what is kept (default), or delete it")
        add_output_arguments(parser, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        write_answer(Document(reports=(_cleared() if args.what == "clear" else _listed(),)), args)
        return ExitCode.OK


def _cleared() -> Report:
    count, size = diskcache.clear()
    return Report("cache", headline=(f"{count} deleted",), summary={"entries": count, "bytes": size, "folder": str(diskcache.folder())})


def _listed() -> Report:
    found = diskcache.entries()
    rows = [(one.name, one.size, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.used))) for one in found]
    return Report(
        "cache",
        headline=(f"{len(found)} kept",),
        summary={
            "entries": len(found),
            "bytes": sum(one.size for one in found),
            "limit_bytes": diskcache.MOST_BYTES,
            "folder": str(diskcache.folder()),
        },
        tables=(Table.of(rows, ["name:text", "size:bytes", "used:text"], "kept"),),
    )
