"""`irscope fit`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from irscope.cli.args import add_model_arguments, add_output_arguments, open_from, write_answer
from irscope.cli.run import report_diagnostics, strict_code
from irscope.errors import ExitCode, UsageError
from irscope.passes.memory.points import find_symbol
from irscope.report.printable import printable
from irscope.tools.fit import COUNTERS, Search, best_of, fit_document, frontier_document, unfit_lines


class Command:
    """Find the largest batch, or any other open size, at which a model fits into memory.

    The model needs a size that is open: exported with dynamic shapes, or opened with --input x=f32[batch,3,224,224].
    `batch` also means the one symbol that inputs have as their first axis, and `seq` the one they have as their second,
    whatever the exporter called them. Two symbols, as in --free batch,seq, give the largest batch for each of several sequences.

    What has to fit is what PyTorch's allocator reserves in the worse of the first two forward passes. A CUDA context takes
    some hundred MiB besides; without --memory it is taken off what the device has, with --memory it is not.

    Exit codes: 0 a size fits, 1 not even the smallest does, 2 usage, 3 the model cannot be read, 4 a pass failed.
    """

    examples = (
        ("irscope fit --memory 8GiB --bind length=128 model.onnx", "which is the largest batch that fits into 8 GiB?"),
        (
            "irscope fit --device rtx4090 --free length --bind batch=8 model.onnx",
            "which is the longest sequence that fits a card, at batch 8?",
        ),
        ("irscope fit --memory 8GiB --free batch,length model.onnx", "which batch fits for each of ever longer sequences?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--memory", metavar="SIZE", help="such as 24GiB, 80GB, 512MiB; default: what the device has besides a CUDA context"
        )
        parser.add_argument("--free", default="batch", metavar="SYMBOL[,SYMBOL]", help="the size to look for; default: batch")
        parser.add_argument(
            "--counter", choices=("auto", *COUNTERS), default="auto", help="what has to fit; default: reserved where it is known"
        )
        add_model_arguments(parser)
        add_output_arguments(parser, plots="the peak by size, with the memory that there is")

    def run(self, args: argparse.Namespace) -> int:
        free = [name.strip() for name in args.free.split(",") if name.strip()]
        model = open_from(args, open_sizes=free)
        report_diagnostics(model.diagnostics, args.verbose)
        search = Search(model, args.counter)
        memory = search.budget(args.memory)
        info = model.info()
        if len(free) == 1:
            worst = search.largest(memory, free[0], {})
            document = fit_document(worst, replace(info, assumed=worst.assumed), search)
        elif len(free) == 2:
            rows = search.frontier(memory, free, {})
            worst = best_of(rows)
            document = frontier_document(rows, free, find_symbol(model.program, free[1]), replace(info, assumed=rows[0].assumed))
        else:
            raise UsageError(f"--free takes one symbol or two, not {len(free)}", code="IRS337", hint="two are separated by a comma")
        if worst.fits or args.format == "json":
            write_answer(document, args)
        if worst.fits:
            return strict_code(args, [model])
        sys.stderr.write("".join(f"{printable(line)}\n" for line in unfit_lines(worst)))
        return ExitCode.FINDINGS
