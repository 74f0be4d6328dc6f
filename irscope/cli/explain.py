"""`irscope explain`."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path

from irscope.amounts import COUNT
from irscope.cli.args import add_amount, add_memory_argument, add_output_arguments, amount_of, selection, write_answer, write_json
from irscope.codes import CODES
from irscope.errors import ExitCode, UsageError
from irscope.files import write_stream

_CODE = re.compile(r"irs\d*", re.IGNORECASE)


class Command:
    """Explain a memory snapshot, or a diagnostic or error code.

    SNAPSHOT is a file of torch.cuda.memory._dump_snapshot, or a recording. The report lists memory in use at the peak, or where memory
    ran out, by category, module and line; reserved memory that is free, and the blocks that keep it; faults of the program, such as a
    loss kept with its graph; and the memory that the same requests need with other settings. With the script or model that made the
    snapshot, it also shows where the run departs from its prediction, and which settings save memory.

    Exit codes: 0 explained, 2 usage, 3 the file cannot be read.
    """

    examples = (
        ("irscope explain oom.pickle", "what held the memory when it ran out?"),
        ("irscope explain oom.pickle train.py", "where does the run leave its prediction, and which change would fit?"),
        ("irscope explain IRS205", "what does a code mean, and what can be done?"),
        ("irscope explain", "which codes are there?"),
    )
    common = ("--device", "--memory", "--torch", "--world", "--rank", "--of-device", "--no-try", "--format", "--output", "--plot")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("what", metavar="CODE|SNAPSHOT", nargs="?", help="such as IRS205, or a file; without one, all codes are listed")
        parser.add_argument(
            "target", metavar="SCRIPT|MODEL", nargs="?", default="", help="what made the snapshot: it is simulated, and compared"
        )
        parser.add_argument("arguments", metavar="ARGS", nargs="*", help="arguments of the script")
        parser.add_argument("--device", default="", help="device that SCRIPT or MODEL is simulated on; default: the snapshot's")
        add_memory_argument(parser)
        parser.add_argument("--torch", default="", metavar="VERSION", help="release whose rules hold; default: the snapshot's")
        add_amount(parser, "--world", help="ranks of the job that SCRIPT is one of, where torchrun starts it")
        parser.add_argument("--rank", type=amount_of(COUNT), default=0, metavar="R", help="the one that wrote the snapshot")
        add_amount(parser, "--of-device", help="the device of the snapshot; default: the one that did most")
        parser.add_argument("--no-try", action="store_true", help="simulate SCRIPT as it is alone, without settings that may help")
        add_output_arguments(parser, plots="memory over the history, by category")

    def run(self, args: argparse.Namespace) -> int:
        if args.what is None:
            write_stream(sys.stdout, (f"{code}  {doc.title}\n" for code, doc in CODES.items()))
            return ExitCode.OK
        if args.target == "" and (_CODE.fullmatch(args.what) or not Path(args.what).suffix) and not Path(args.what).is_file():
            return _explain_code(args.what)
        selection(args)
        from irscope.tools.explain import explain_file
        from irscope.tools.simulation import Options, world_of

        options = Options(device=args.device, torch=args.torch, world=world_of(args.world), rank=args.rank)
        explanation = explain_file(Path(args.what), args.target, args.arguments, options, device=args.of_device, tries=not args.no_try)
        if args.format == "json":
            write_json(explanation.to_json(), args)
        else:
            write_answer(explanation.document(), args)
        return ExitCode.OK


def _explain_code(text: str) -> int:
    doc = CODES.get(text.upper())
    if doc is None:
        hint = "`irscope explain` lists them; a snapshot is named by its path"
        raise UsageError(f"there is no code {text!r}, nor a file", hint=hint)
    write_stream(sys.stdout, [f"{text.upper()}: {doc.title}\n\n{textwrap.fill(doc.text, 100)}\n"])
    return ExitCode.OK
