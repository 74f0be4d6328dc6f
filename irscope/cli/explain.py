"""`irscope explain`."""

from __future__ import annotations

import argparse
import sys
import textwrap

from irscope.codes import CODES
from irscope.errors import UsageError
from irscope.files import write_stream


class Command:
    """Explain a diagnostic or error code, or list them all."""

    examples = (
        ("irscope explain IRS205", "what does a code mean, and what can be done?"),
        ("irscope explain", "which codes are there?"),
        ("irscope explain irs100", "the same, typed by hand?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("code", nargs="?", help="such as IRS205; without one, all codes are listed")

    def run(self, args: argparse.Namespace) -> int:
        if args.code is None:
            write_stream(sys.stdout, (f"{code}  {doc.title}\n" for code, doc in CODES.items()))
            return 0
        doc = CODES.get(args.code.upper())
        if doc is None:
            raise UsageError(f"there is no code {args.code!r}", hint="`irscope explain` lists them")
        write_stream(sys.stdout, [f"{args.code.upper()}: {doc.title}\n\n{textwrap.fill(doc.text, 100)}\n"])
        return 0
