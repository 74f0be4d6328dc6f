"""`irscope sweep` and `compare-flops`: costs over sizes, and beside other counters."""

from __future__ import annotations

import argparse
import sys

from irscope.cli.args import add_model_arguments, add_output_arguments, models_from, open_from, write_answer
from irscope.cli.run import report_diagnostics, strict_code
from irscope.errors import ExitCode, UsageError
from irscope.ir.bind import over_option, typed
from irscope.passes.inference.shapes import Shapes, size_fixes
from irscope.passes.memory.curve import Sweep
from irscope.passes.memory.liveness import Liveness
from irscope.passes.memory.points import sizes_in
from irscope.session import Results
from irscope.tools.peers import PEERS, count_with, counters_document, find_peers


class SweepCommand:
    """Compute peak memory, FLOPs, bytes and time at many sizes, in one table from one analysis.

    The model needs sizes that are open: exported with dynamic shapes, or opened with --input x=f32[batch,3,224,224].
    --over batch=1,2,4,8 --over seq=128..1024..128 makes every combination. Curves over one symbol are drawn in the terminal,
    and in a file with --plot FILE.svg.
    """

    examples = (
        ("irscope sweep --over batch=1,8,64 --bind length=128 model.onnx", "how do memory, FLOPs and time grow with the batch?"),
        ("irscope sweep --over length=128..512..128 --over batch=1,8 model.onnx", "the same for every combination of two sizes?"),
        ("irscope sweep --over batch=1..64..21 --bind length=128 --plot c.svg model.onnx", "the curves as a picture?"),
    )
    common = ("--over", "--device", "--dtype", "--memory", "--bind", "--input", "--sort", "--format", "--output", "--plot")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--over", action="append", metavar="SYMBOL=SIZES", help="such as batch=1,2,4 or seq=128..1024..128; may be given again"
        )
        parser.add_argument("--dtype", default="", metavar="TYPE", help="element type that the least time is for, such as bf16")
        add_model_arguments(parser)
        add_output_arguments(parser, rows=0, plots="the curves over one symbol")

    def run(self, args: argparse.Namespace) -> int:
        if not args.over:
            model = open_from(args)
            first = next(iter(model.program.symbols.values()), None)
            fixes = [] if first is None else size_fixes(model.manager.get(Shapes()), model.manager.get(Liveness()).unsized)
            options = "" if first is None else typed(" ".join([over_option(model.program, first), *fixes]))
            hint = f"for example {options}" if options else "the model has no open size"
            raise UsageError("--over says which sizes to compute", hint=hint)
        sizes = sizes_in([",".join(args.over)])
        model = open_from(args, open_sizes=sizes)
        wanted = Sweep(over=",".join(args.over), dtype=args.dtype)
        [result] = model.manager.run([wanted])
        write_answer(model.document(Results([result], model.manager.settings)), args)
        report_diagnostics(model.diagnostics, args.verbose)
        return strict_code(args, [model], [result.report()])


class CompareFlopsCommand:
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
        for count in counted:
            report_diagnostics(count.model.diagnostics, args.verbose)
        if args.strict and not all(count.is_complete for count in counted):
            sys.stderr.write("irscope: error IRS405: --strict: a counter could not count the model\n")
            return ExitCode.PARTIAL
        return strict_code(args, [count.model for count in counted], [count.report for count in counted])
