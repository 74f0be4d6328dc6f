"""`irscope train-plan`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from irscope.cli.args import add_model_arguments, add_output_arguments, add_output_file, add_step_arguments, plot_from
from irscope.errors import UsageError
from irscope.files import write_text
from irscope.report.options import RenderOptions

_PICTURES = ("memory", "categories", "idle", "batch", "recompute")  # those of trainpictures, which takes long to import


class Command:
    """Predict a training step: memory step by step, by category and phase, and what the forward saves for the backward.

    MODEL is a name such as torchvision:resnet50, or ./train.py:build, a function that returns (module, inputs), and may add a loss
    (a function of what the module returns) and an optimizer (a function of the parameters). The script is executed; nothing is
    computed by the model, and no GPU is needed. Times are bounds by the roofline of the device. A .pt2 file may hold forward and
    backward in one graph, as torch.export's joint export gives it.

    irscope train-plan torchvision:resnet50 --bind batch=32 --optimizer adamw
    irscope train-plan ./train.py:build --batches 4,8,16,32,64
    irscope train-plan torchvision:resnet152 --memory 24GiB
    irscope train-plan ./train.py:build --budget 60% --plan-out plan.json
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser, reading_budget=("--reading-budget",))
        add_step_arguments(parser)
        shown = parser.add_argument_group("what is shown")
        shown.add_argument("--passes", default="training,activations{top=15}", help="default: %(default)s")
        add_output_file(parser, "--nodes-csv", within=shown, help="also write times and memory of every operator")
        add_output_file(parser, "--activations-csv", within=shown, help="also write the kept activations")
        shown.add_argument("--link", type=float, default=55.0, metavar="GB/s", help="bandwidth of the link for offloading activations")
        add_output_file(parser, "--plot", within=shown, help="also draw: .svg needs nothing, .png and .pdf need matplotlib")
        shown.add_argument("--picture", choices=_PICTURES, help="what --plot draws, default: memory; without --plot in the terminal")
        shown.add_argument("--batches", default="", metavar="LIST", help="sizes of the batch to compare, such as 4,8,16,32,64")
        shown.add_argument(
            "--memory", default="", metavar="SIZE", help="find the largest batch that fits, with and without recomputing, as in 24GiB"
        )
        saved = parser.add_argument_group("what to recompute")
        saved.add_argument("--budget", default="", metavar="SIZE", help="memory that the step may take, as 24GiB or 60%% of its peak")
        saved.add_argument("--curve", action="store_true", help="peak against extra time, for budgets from everything kept to the least")
        saved.add_argument("--seconds", type=float, default=10, metavar="S", help="time to search for a plan; default: 10")
        add_output_file(parser, "--plan-out", within=saved, help="with --budget: write the plan for irscope.apply_checkpoints as JSON")
        add_output_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        from irscope.cli.run import report_diagnostics, strict_code
        from irscope.cli.trainbatches import swept
        from irscope.cli.training import opened
        from irscope.files import write_stream
        from irscope.report.renderers import write_document

        picture = plot_from(args)
        if args.plan_out:
            from irscope.cli.trainplanfile import check_plan_file

            check_plan_file(args)
        if args.batches or args.memory:
            _check_profiles(args)
            document, models, series = swept(args)
        else:
            models = {0: opened(args)}
            results = models[0].run(_with_checkpoint(args))
            document, series = models[0].document(results), ()
        model = next(iter(models.values()))
        if args.plan_out:
            from irscope.cli.trainplanfile import write_plan

            document = replace(document, reports=(*document.reports, write_plan(args, model)))
        options = RenderOptions.for_stream(sys.stdout, rows=args.rows) if args.output is None else RenderOptions(rows=args.rows)
        write_document(document, args.format, args.output, options)
        self._write_files(args, model)
        steps = {f"batch {batch}" if batch else "": one for batch, one in models.items()}
        if picture is not None:
            from irscope.cli.trainpictures import draw

            draw(args.picture or "memory", steps, series, picture, args.seconds)
        elif args.picture and args.format == "text" and args.output is None:
            from irscope.cli.trainpictures import dotted

            write_stream(sys.stdout, (f"{line}\n" for line in dotted(args.picture, steps, series, args.seconds, options.encoding)))
        found = [diagnostic for report in document.reports for diagnostic in report.diagnostics]
        report_diagnostics([*model.diagnostics, *found], args.verbose)
        return strict_code(args, [*models.values()], document.reports)

    def _write_files(self, args: argparse.Namespace, model: object) -> None:
        from irscope.cli.training import activation_lines, node_lines
        from irscope.session import Model

        assert isinstance(model, Model)
        for path, lines in ((args.nodes_csv, node_lines), (args.activations_csv, activation_lines)):
            if path:
                write_text(Path(path), [lines(model, args.link)])


def _check_profiles(args: argparse.Namespace) -> None:
    """Refuse options that need one size of the batch where several or none were given."""
    if args.nodes_csv or args.activations_csv:
        raise UsageError("the profiles of a step are of one size of the batch", code="IRS386", hint="`--bind batch=8 --nodes-csv FILE`")


def _with_checkpoint(args: argparse.Namespace) -> str:
    """The passes to run; with a budget or for the curve, the planning of checkpoints too."""
    if not (args.budget or args.curve):
        return str(args.passes)
    budget = f"budget={args.budget} " if args.budget else ""
    return f"{args.passes},checkpoint{{{budget}seconds={args.seconds:g}}}"
