"""`irscope record`."""

from __future__ import annotations

import argparse
import importlib.util
import sys

from irscope.amounts import COUNT, SECONDS
from irscope.cli.args import add_input_arguments, add_output_file, amount_of, plot_from, settled_output
from irscope.cli.recordtarget import check_options, request_from
from irscope.cli.recordtext import failure_text, recording_panels, summary_lines
from irscope.errors import PassError, UsageError
from irscope.files import write_stream
from irscope.measure.record.process import record_in_process
from irscope.measure.record.request import ORT, TORCH, Options
from irscope.report.plot import write_plot
from irscope.report.printable import printable


class Command:
    """Run a model and write a recording of it: times and memory of every operator.

    This executes the model, in a process of its own; no other command of irscope does. MODEL is a .pt2, .onnx or TorchScript file, which
    needs --trust because its author decides what runs, or a name such as torchvision:resnet50, for which random weights are made.
    The recording is one JSON Lines file, explained in docs/recording.md; `irscope compare MODEL RECORDING` holds a prediction against it.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("model", metavar="MODEL", help="a .pt2, .onnx or TorchScript file, or a name such as torchvision:resnet50")
        add_output_file(parser, help="the recording; default: NAME.EXECUTOR.jsonl in this folder")
        add_output_file(parser, "--plot", help="also draw times by operator and bytes alive: .svg, .png or .pdf")
        parser.add_argument("--executor", choices=(TORCH, ORT), help="default: ort for .onnx files, else torch")
        parser.add_argument("--device", default="cpu", metavar="DEVICE", help="cpu or cuda; default: cpu")
        add_input_arguments(parser)
        parser.add_argument(
            "--values", default="", metavar="FILE", help="values of inputs by name, as numpy.savez writes them; default: random"
        )
        parser.add_argument("--repeats", type=amount_of(COUNT), default=20, metavar="N", help="timed runs of each kind; default: 20")
        parser.add_argument("--warmup", type=amount_of(COUNT), default=3, metavar="N", help="runs before those that are timed; default: 3")
        parser.add_argument(
            "--threads", type=amount_of(COUNT), default=0, metavar="N", help="CPU threads; default: what the executor takes"
        )
        parser.add_argument("--seed", type=amount_of(COUNT), default=0, metavar="N", help="for random inputs; default: 0")
        parser.add_argument("--timeout", type=amount_of(SECONDS), metavar="S", help="end the run after so many seconds")
        parser.add_argument("--no-optimize", action="store_true", help="ONNX Runtime runs the graph as it is in the file")
        parser.add_argument("--no-arena", action="store_true", help="ONNX Runtime without its arena and memory patterns")
        parser.add_argument("--trust", action="store_true", help="execute the file, which can run any code: only for sources you trust")
        parser.set_defaults(use_torch=False)
        parser.add_argument("-v", "--verbose", action="count", default=0, help="say on stderr what is done")

    def run(self, args: argparse.Namespace) -> int:
        options = Options(
            args.executor or "",
            args.device,
            args.repeats,
            args.warmup,
            args.threads,
            args.seed,
            not args.no_optimize,
            not args.no_arena,
            args.values,
        )
        check_options(options)
        picture = plot_from(args)
        request = request_from(args, options)
        if not args.output:
            settled_output(request.output, args.force)
        executor = {TORCH: "torch", ORT: "onnxruntime"}[request.options.executor]
        if importlib.util.find_spec(executor) is None:
            raise UsageError(
                f"{executor} is not installed, and it is what runs the model", code="IRS479", hint="`irscope doctor` tells how"
            )
        sys.stderr.write(f"irscope: running {printable(request.model.name)} with {executor} on {args.device}\n")
        found = record_in_process(request, args.timeout, bool(args.verbose))
        write_stream(sys.stdout, (f"{printable(line)}\n" for line in summary_lines(found)))
        if picture is not None:
            title = f"{found.header.model.name} on {found.header.device.name}, {found.header.executor}"
            write_plot(recording_panels(found), picture, title)
        if not found.complete:
            hint = f"{found.path} has what was recorded until then"
            raise PassError(failure_text(found), code="IRS480", where=found.header.model.name, hint=hint)
        return 0
