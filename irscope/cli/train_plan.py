"""`irscope train-plan`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from irscope._version import __version__
from irscope.amounts import parse_memory
from irscope.cli.args import (
    add_amount,
    add_model_arguments,
    add_output_arguments,
    add_output_file,
    add_step_arguments,
    load_options,
    progress_from,
    selection,
    settings_from,
    step_from,
    write_answer,
)
from irscope.errors import UsageError
from irscope.files import write_stream, write_text
from irscope.passkit.instruments import Progress
from irscope.report.report import Document
from irscope.session import Model
from irscope.training import Trace

_PICTURES = ("memory", "categories", "idle", "batch", "recompute")  # those of tools.train, which takes long to import


class Command:
    """Predict a training step: memory step by step, by category and phase, and what the forward saves for the backward.

    MODEL is a name such as torchvision:resnet50, or ./train.py:build, a function that returns (module, inputs), and may add a loss
    (a function of what the module returns) and an optimizer (a function of the parameters). The script is executed; nothing is
    computed by the model, and no GPU is needed. Times are bounds by the roofline of the device. With --compile the step is what
    torch.compile makes of it.
    A script without a function, ./train.py, has its own loop: it runs as under `irscope simulate`, with the same report.
    """

    examples = (
        (
            "irscope train-plan torchvision:resnet50 --bind batch=32 --optimizer adamw",
            "what does a step of AdamW take, by phase and category?",
        ),
        ("irscope train-plan --compile ./vision.py:build", "what does a step take as torch.compile compiles it?"),
        ("irscope train-plan ./train.py:build --memory 24GiB", "which batch trains in 24 GiB, with and without recomputing?"),
        ("irscope train-plan ./train.py:build --budget 60% --plan-out plan.json", "what should be recomputed to need 60 % of the memory?"),
    )
    common = (
        "--memory",
        "--device",
        "--batches",
        "--optimizer",
        "--autocast",
        "--budget",
        "--lora",
        "--gradient-checkpointing",
        "--bind",
        "--format",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser, reading_budget=("--reading-budget",), memory=False)
        add_step_arguments(parser)
        shown = parser.add_argument_group("what is shown")
        shown.add_argument("--passes", default="training,activations{top=15}", help="default: %(default)s")
        add_output_file(parser, "--nodes-csv", within=shown, help="also write times and memory of every operator")
        add_output_file(parser, "--activations-csv", within=shown, help="also write the kept activations")
        add_amount(shown, "--link", default=55e9, help="bandwidth of the link for offloading activations, such as 64GB/s; default: 55GB/s")
        shown.add_argument("--picture", choices=_PICTURES, help="what --plot draws, default: memory; without --plot in the terminal")
        shown.add_argument("--batches", default="", metavar="LIST", help="sizes of the batch to compare, such as 4,8,16,32,64")
        shown.add_argument(
            "--memory", default="", metavar="SIZE", help="find the largest batch that fits, with and without recomputing, as in 24GiB"
        )
        saved = parser.add_argument_group("what to recompute")
        saved.add_argument("--budget", default="", metavar="SIZE", help="memory that the step may take, as 24GiB or 60%% of its peak")
        saved.add_argument("--curve", action="store_true", help="peak against extra time, for budgets from everything kept to the least")
        add_amount(saved, "--seconds", default=10, help="time to search for a plan; default: 10")
        saved.add_argument("--times", default="", metavar="RECORDING", help="times of operators as `irscope record --train` measured them")
        add_output_file(parser, "--plan-out", within=saved, help="with --budget: write the plan for irscope.apply_checkpoints as JSON")
        add_output_arguments(parser, plots="what --picture says")

    def run(self, args: argparse.Namespace) -> int:
        from irscope.cli.run import report_diagnostics, strict_code
        from irscope.tools.train import compiled_report, picture_lines, picture_title, step_panels, write_plan

        if is_loop(args.model):
            return _simulated(self, args)
        selection(args)
        if args.plan_out:
            _check_plan_file(args)
            args.no_cache = True  # the plan is for the live module, which nothing keeps
        if args.times and (args.batches or args.memory):
            raise UsageError("a recording is of one size of the batch", code="IRS386", hint="`--bind batch=8 --times RECORDING`")
        if (args.compile or args.compile_with) and (args.budget or args.curve or args.picture == "recompute"):
            from irscope.passes.training.checkpoint import decided_by_compiler

            raise decided_by_compiler(args.model)
        watching = progress_from(args)
        if args.batches or args.memory:
            document, models = _over_batches(args, watching)
        else:
            _take_device(args)
            models = {0: _with_times(args, step_from(args, watching=watching))}
            document = models[0].document(models[0].run(_with_checkpoint(args)))
            made = compiled_report(models[0])
            document = document if made is None else replace(document, reports=(*document.reports, made))
        for watcher in watching:
            watcher.ended()
        model = next(iter(models.values()))
        series = [series for report in document.reports for series in report.series] if args.batches or args.memory else []
        if args.plan_out:
            document = replace(document, reports=(write_plan(model, args.budget, args.plan_out, args.seconds), *document.reports))
        steps = {f"batch {batch}" if batch else "": model for batch, model in models.items()}
        picture = args.picture or "memory"
        write_answer(document, args, lambda: (step_panels(picture, steps, series, args.seconds), picture_title(picture, model)))
        _write_profiles(args, model)
        if args.picture and not args.plot and args.format == "text" and args.output is None:
            encoding = sys.stdout.encoding or "utf-8"
            write_stream(sys.stdout, (f"{line}\n" for line in picture_lines(args.picture, steps, series, args.seconds, encoding)))
        diagnostics = [diagnostic for report in document.reports for diagnostic in report.diagnostics]
        report_diagnostics([*model.diagnostics, *diagnostics], args.verbose)
        return strict_code(args, [*models.values()], document.reports)


def is_loop(model: str) -> bool:
    """Return whether a model is a script as a whole, whose own loop trains."""
    return model.endswith(".py") and Path(model).is_file()


def _simulated(command: Command, args: argparse.Namespace) -> int:
    """A script's own loop: what `irscope simulate` says of it."""
    from irscope.cli.simulate import Command as Simulate

    usual, simulated = argparse.ArgumentParser(), argparse.ArgumentParser()
    command.add_arguments(usual)
    Simulate().add_arguments(simulated)
    given, defaults = vars(args), vars(usual.parse_args([args.model]))
    found = vars(simulated.parse_args([args.model]))
    shared = found.keys() - {"link"}
    own = [name for name, value in defaults.items() if name not in shared and given[name] != value]
    if own:
        raise UsageError(
            f"{args.model} has a loop of its own, which says how it trains: --{own[0].replace('_', '-')} is about a captured step",
            code="IRS384",
            hint=f"leave it out, or {args.model}:build for a function that returns (module, inputs, loss, optimizer)",
        )
    more = {name: value for name, value in given.items() if name in shared or name not in defaults}
    return Simulate().run(argparse.Namespace(**{**found, **more}))


def _over_batches(args: argparse.Namespace, watching: Sequence[Progress]) -> tuple[Document, Mapping[int, Model]]:
    """Return the step at several sizes of the batch; the size of the first does not stand for all."""
    from irscope.tools.train import read_batches, sweep_batches

    if args.nodes_csv or args.activations_csv:
        raise UsageError("the profiles of a step are of one size of the batch", code="IRS386", hint="`--bind batch=8 --nodes-csv FILE`")
    bind = load_options(args).bind
    batches = read_batches(args.batches) if args.batches else []
    memory = parse_memory(args.memory) if args.memory else None
    swept = sweep_batches(lambda batch: step_from(args, batch, watching), batches, memory, bind.get("batch", 4), args.seconds)
    return Document(__version__, replace(swept.model.info(), bind=dict(bind)), (swept.report,)), swept.models


def _take_device(args: argparse.Namespace) -> None:
    """Measured times are for the device that they were measured on, unless another is named."""
    if args.times and not args.device:
        from irscope.recording import read_recording
        from irscope.tools.compare.steps import device_settings

        args.device = device_settings(read_recording(Path(args.times)), settings_from(args)).device


def _with_times(args: argparse.Namespace, model: Model) -> Model:
    """Return the step, its operators with the times that were recorded."""
    if args.times:
        from irscope.recording import read_recording
        from irscope.tools.compare.steps import measured_seconds

        recording, trace = read_recording(Path(args.times)), model.program.training
        assert isinstance(trace, Trace)
        trace.measured = measured_seconds(trace.in_step(trace.steady), recording)
        trace.measured_on = recording.header.device.name
    return model


def _check_plan_file(args: argparse.Namespace) -> None:
    """Refuses before any work what could not be planned."""
    if not args.budget:
        raise UsageError("--plan-out writes the plan for a budget", code="IRS394", hint="`--budget 60%` or `--budget 24GiB`")
    if args.autocast:
        raise UsageError("plans for the live module are made without autocast", code="IRS394", hint="leave out --autocast or --plan-out")
    if args.batches or args.memory:
        raise UsageError("--plan-out is for one size of the batch", code="IRS394", hint="`--bind batch=64 --budget 24GiB --plan-out FILE`")


def _write_profiles(args: argparse.Namespace, model: Model) -> None:
    from irscope.tools.train import activation_lines, node_lines

    for path, lines in ((args.nodes_csv, node_lines), (args.activations_csv, activation_lines)):
        if path:
            write_text(Path(path), [lines(model, args.link / 1e9)])


def _with_checkpoint(args: argparse.Namespace) -> str:
    """Return the passes to run; with a budget or for the curve, first of all the planning of checkpoints, which is what was asked."""
    if not (args.budget or args.curve):
        return str(args.passes)
    budget = f"budget={args.budget} " if args.budget else ""
    return f"checkpoint{{{budget}seconds={args.seconds:g}}},{args.passes}"
