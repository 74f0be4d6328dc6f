"""`irscope compare`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from irscope.cli.args import (
    add_model_arguments,
    add_output_arguments,
    add_step_arguments,
    load_options,
    progress_from,
    selection,
    settings_from,
    step_from,
    step_words,
    write_answer,
)
from irscope.cli.run import report_diagnostics, strict_code
from irscope.cli.train_plan import is_loop
from irscope.devices.catalogue import DEFAULT_DEVICE
from irscope.errors import ExitCode, UsageError
from irscope.files import is_recording
from irscope.frontends.base import LoadOptions
from irscope.frontends.files.snapshot import is_snapshot
from irscope.recording import Recording, read_recording
from irscope.session import Model, open_model
from irscope.tools.compare import compare_models, compare_recording, open_for, run_comparison
from irscope.tools.compare.decides import DECISIVE_MEASURES, decide, decisive_document, decisive_measures
from irscope.tools.compare.document import Verdict, judge, parse_thresholds
from irscope.tools.compare.memory import MEMORY_MEASURES, compare_runs, is_memory_run, read_run
from irscope.tools.compare.model_report import MODEL_MEASURES, model_measures
from irscope.tools.compare.run_report import RUN_MEASURES, run_measures
from irscope.tools.compare.weights import read_values
from irscope.tools.config import chosen_device, configured_device, target_settings

_LIFETIMES = ("auto", "ssa", "eager", "jit", "ort", "xla")


class Command:
    """Compare two models, such as before and after an optimiser, or from two exporters; or a model with a recording of a real run.

    irscope matches nodes by the weights they read and by name, then along the data, then by order. It lists differences in shapes,
    element types, attributes, weights, FLOPs and live bytes, by node, by module and in total. For two checkpoints, or with --values,
    it also compares the values of weights; the largest changes come first.

    With --train both are training steps, eager or compiled: `--train --compile-b NAME NAME`; two documents that
    `irscope simulate --format json` wrote are compared likewise. Limits of --fail-on are then peak>5%, reserved>5%, time>5%.

    Two recordings, or memory snapshots that torch.cuda.memory._dump_snapshot or `irscope simulate -o run.pickle` wrote, are compared
    as runs: counters, the parts of the peak, and the first request that differs.

    --fail-on makes it a test: peak>5% fails where B needs more than 5 % above A, flops>0%, nodes>10, unmatched>0, changed>0, weights>0
    (weights that differ, values included).
    With a recording, limits are about how far the prediction is off, as a share of what was measured: peak>3%, delta>3%, reserved>3%,
    unmatched>0.

    Exit codes: 0 done, 1 a limit of --fail-on is passed, 2 usage, 3 a file cannot be read, 4 a pass failed,
    5 a limit cannot be judged because a number is not known.
    """

    examples = (
        ("irscope compare old.onnx new.onnx", "what did an optimiser, an exporter or a change make different?"),
        ("irscope compare --fail-on 'peak>5%,flops>0%' old.onnx new.onnx", "does it need more memory or FLOPs than before? (exit code 1)"),
        ("irscope compare --ort-level-b all model.onnx model.onnx", "what do the optimisations of ONNX Runtime change?"),
        ("irscope compare --compile-b ./vision.py:build ./vision.py:build", "what does torch.compile change?"),
        ("irscope compare --train --compile-b ./vision.py:build ./vision.py:build", "what does it change in a training step?"),
        ("irscope compare before.safetensors after.safetensors", "which weights changed, and how far?"),
        ("irscope compare model.pt2 run.jsonl", "how far is the prediction from a real run?"),
    )
    common = ("--bind", "--input", "--device", "--fail-on", "--train", "--all", "--values", "--lifetime", "--format", "--output")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser)
        parser.add_argument("other", metavar="OTHER", help="another model, or a recording of `irscope record`")
        parser.add_argument(
            "--input-b", action="append", default=[], metavar="NAME=TYPE", help="inputs of OTHER, where they are not those of MODEL"
        )
        parser.add_argument(
            "--bind-b", action="append", default=[], metavar="NAME=N,...", help="sizes of OTHER's symbols, where they are not MODEL's"
        )
        parser.add_argument(
            "--ort-level-b", choices=("off", "basic", "extended", "all"), default=None, help="the same of OTHER, where it is not MODEL's"
        )
        parser.add_argument("--compile-b", action="store_true", help="take OTHER as torch.compile compiles it, MODEL as it runs eagerly")
        parser.add_argument("--train", action="store_true", help="compare training steps, as `irscope train-plan` captures them")
        parser.add_argument(
            "--lifetime",
            choices=_LIFETIMES,
            default="auto",
            help="lifetime model, which says when tensors are freed; default: that of the file's own runtime",
        )
        parser.add_argument("--all", action="store_true", help="list what is equal, too")
        parser.add_argument(
            "--values",
            action="store_true",
            help="compare the values of weights too, which reads both files; of two checkpoints they are compared anyway",
        )
        parser.add_argument(
            "--fail-on", action="append", default=[], metavar="NAME>LIMIT,...", help="exit with 1 beyond a limit, such as peak>5%%"
        )
        add_step_arguments(parser)
        add_output_arguments(parser, plots="bytes alive and times by node")

    def run(self, args: argparse.Namespace) -> int:
        selection(args)
        paths = [Path(path) for path in (args.model, args.other)]
        recorded = [is_recording(path) for path in paths]
        if recorded.count(True) == 1 and (args.train or step_words(args)):
            # The recording itself says that it is of a step, and how that was made.
            model, other = (args.other, args.model) if recorded[0] else (args.model, args.other)
            if read_recording(Path(other)).is_step:
                return self._with_recording(model, other, args)
        if args.train or all(path.suffix == ".json" for path in paths):
            found = self._training(paths, args)
            if found is not None:
                return found
        if words := step_words(args):
            raise UsageError(
                f"{words[0]} is about a training step", code="IRS662", hint="with --train the steps of two models are compared"
            )
        if all(map(is_memory_run, paths)):
            limits = parse_thresholds(args.fail_on, MEMORY_MEASURES)
            runs = compare_runs(*map(read_run, paths))
            write_answer(runs.document(), args)
            return _exit_code(judge(limits, runs.measures()) if limits else None)
        snapshot = next((path for path in paths if is_snapshot(path)), None)
        if snapshot is not None:
            model = next(path for path in paths if path != snapshot)
            raise UsageError(
                f"{snapshot} is a snapshot, and the other file is a model",
                code="IRS662",
                hint=f"`irscope explain {snapshot} {model}` predicts it and says where they part",
            )
        if any(recorded):
            model, other = (args.other, args.model) if recorded[0] else (args.model, args.other)
            return self._with_recording(model, other, args)
        limits = parse_thresholds(args.fail_on, (*MODEL_MEASURES, *DECISIVE_MEASURES))
        options = load_options(args)
        # Not this machine's GPU: a limit of --fail-on is judged alike everywhere.
        chosen = chosen_device(configured_device(args.device) or DEFAULT_DEVICE)
        a = _open(args.model, replace(options, compile=False) if args.compile_b else options, args)
        b = _open(args.other, _options_of_b(args, options), args)
        for one in (a, b):
            one.manager.settings = target_settings(one.program, one.manager.settings, chosen)
        compared = compare_models(a, b, args.lifetime)
        if args.values or not compared.has_graph or any(limit.name == "weights" for limit in limits):
            read_values(compared)
        decision = decide(compared, chosen)
        document = decisive_document(compared, decision, everything=args.all)
        write_answer(document, args)
        report_diagnostics((*a.diagnostics, *b.diagnostics), args.verbose)
        return _exit_code(judge(limits, {**model_measures(compared), **decisive_measures(decision)}) if limits else None) or strict_code(
            args, [a, b]
        )

    def _training(self, paths: Sequence[Path], args: argparse.Namespace) -> int | None:
        """Compare steps of two models, or documents of `irscope simulate`; None where the files are something else."""
        from irscope.tools.compare.training import TRAINING_MEASURES, TrainingComparison, is_simulation, side_of_document, side_of_step

        if not args.train and not all(map(is_simulation, paths)):
            return None
        limits = parse_thresholds(args.fail_on, tuple(TRAINING_MEASURES))
        models: list[Model] = []
        if not args.train:
            sides = [side_of_document(path) for path in paths]
        else:
            models = [step_from(one, watching=progress_from(args)) for one in _both(args)]
            sides = [side_of_step(model) for model in models]
        compared = TrainingComparison(*sides)
        write_answer(compared.document(), args)
        report_diagnostics([said for model in models for said in model.diagnostics], args.verbose)
        return _exit_code(judge(limits, compared.measures()) if limits else None) or strict_code(args, models)

    def _with_recording(self, model: str, path: str, args: argparse.Namespace) -> int:
        limits = parse_thresholds(args.fail_on, RUN_MEASURES)
        recording = read_recording(Path(path))
        if recording.is_step:
            return self._with_step(model, recording, args)
        opened = open_for(Path(model), recording, load_options(args), settings_from(args), as_in_file=args.ort_level == "off")
        compared = compare_recording(opened, recording, args.lifetime)
        document = run_comparison(compared)
        write_answer(document, args)
        shown = args.format == "text" and args.output is None
        report_diagnostics((*opened.diagnostics, *(() if shown else compared.diagnostics)), args.verbose)
        return _exit_code(judge(limits, run_measures(compared)) if limits else None) or strict_code(args, [opened])

    def _with_step(self, model: str, recording: Recording, args: argparse.Namespace) -> int:
        """Compare a training step: of a model as `train-plan` captures it, of a script as `simulate` runs it."""
        from irscope.tools.compare.steps import compare_step, open_step_for, simulated_beside  # it imports torch

        if is_loop(model):
            limits = parse_thresholds(args.fail_on, MEMORY_MEASURES)
            runs = simulated_beside(Path(model), recording, args.device)
            write_answer(runs.document(), args)
            return _exit_code(judge(limits, runs.measures()) if limits else None)
        limits = parse_thresholds(args.fail_on, RUN_MEASURES)
        opened = open_step_for(model, recording, load_options(args), settings_from(args))
        compared = compare_step(opened, recording, is_chosen=bool(args.device))
        write_answer(compared.document(), args)
        report_diagnostics(opened.diagnostics, args.verbose)
        return _exit_code(judge(limits, compared.measures()) if limits else None) or strict_code(args, [opened])


def _open(path: str, options: LoadOptions, args: argparse.Namespace) -> Model:
    return open_model(Path(path), options, settings=settings_from(args), instruments=progress_from(args))


def _both(args: argparse.Namespace) -> tuple[argparse.Namespace, argparse.Namespace]:
    """Return the arguments for each of the models."""
    given = vars(args)
    a = {**given, "compile": False, "compile_with": ""} if args.compile_b else given
    b = {
        **given,
        "model": args.other,
        "input": args.input_b or args.input,
        "bind": args.bind_b or args.bind,
        "compile": args.compile or args.compile_b,
    }
    return argparse.Namespace(**a), argparse.Namespace(**b)


def _options_of_b(args: argparse.Namespace, options: LoadOptions) -> LoadOptions:
    """Return what was said about the first model, unless something else was said about the second."""
    own = load_options(argparse.Namespace(**{**vars(args), "input": args.input_b, "bind": args.bind_b}))
    level = args.ort_level_b or options.ort_level
    compiled = options.compile or args.compile_b
    return replace(options, inputs=own.inputs or options.inputs, bind=own.bind or options.bind, ort_level=level, compile=compiled)


def _exit_code(verdict: Verdict | None) -> int:
    if verdict is None:
        return ExitCode.OK
    for text in verdict.passed:
        sys.stderr.write(f"irscope: error IRS490: {text}\n")
    for text in verdict.unknown:
        sys.stderr.write(f"irscope: error IRS491: {text}\n")
    return ExitCode.FINDINGS if verdict.passed else ExitCode.PARTIAL if verdict.unknown else ExitCode.OK
