"""`irscope compare-flops`."""

from __future__ import annotations

import argparse
import sys

from irscope.cli.args import add_model_arguments, add_output_arguments, models_from, write_answer
from irscope.cli.run import report_diagnostics, strict_code
from irscope.errors import ExitCode
from irscope.tools.peers import PEERS, count_with, counters_document, find_peers


class Command:
    """Compare irscope's FLOPs with those of other counters, and explain the difference operator by operator.

    Counters: torch (torch.utils.flop_counter) and fvcore count .pt2 and .pt files and models by name, onnx-tool counts .onnx files.
    Without --against, every counter that is installed and can read the model runs. irscope itself needs none of them.
    """

    examples = (
        ("irscope compare-flops model.pt2", "do other counters agree, and why not?"),
        ("irscope compare-flops --against torch model.pt2", "which operators does PyTorch's own counter leave out?"),
        ("irscope compare-flops --format csv model.pt2 model.pt", "the same for several models, as a table?"),
    )
    common = ("--against", "--input", "--bind", "--method", "--rows", "--sort", "--top", "--filter", "--format", "--output")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser, many=True)
        parser.add_argument("--against", default="", metavar="NAME,...", help=f"any of {', '.join(PEERS)}; default: those installed")
        add_output_arguments(parser, plots="what each counter counts")

    def run(self, args: argparse.Namespace) -> int:
        find_peers(args.against)
        counted = [count_with(model, args.against) for model in models_from(args, keep_calls=True)]
        document = counters_document(counted)
        write_answer(document, args)
        for one in counted:
            report_diagnostics(one.model.diagnostics, args.verbose)
        if args.strict and not all(one.is_complete for one in counted):
            sys.stderr.write("irscope: error IRS405: --strict: a counter could not count the model\n")
            return ExitCode.PARTIAL
        return strict_code(args, [one.model for one in counted], [one.report for one in counted])
