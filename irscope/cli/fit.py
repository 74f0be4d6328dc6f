"""`irscope fit`."""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import replace

from irscope.cli.args import (
    add_amount,
    add_model_arguments,
    add_output_arguments,
    add_step_arguments,
    load_options,
    open_from,
    opened_for,
    progress_from,
    step_from,
    write_answer,
)
from irscope.cli.generate import add_how_arguments, how_from
from irscope.cli.run import report_diagnostics, strict_code
from irscope.devices import target_of
from irscope.errors import ExitCode, UsageError
from irscope.ir.program import GENERATES, TRAINS
from irscope.passes.memory.points import find_symbol
from irscope.report.printable import printable
from irscope.tools.config import device_for
from irscope.tools.fit import COUNTERS, Search, best_of, fit_document, frontier_document, room_of, unfit_lines
from irscope.tools.fit_generation import fit_generation
from irscope.tools.generate import How

_FLAGS = {"store_as": "--as", "samples": "--sample", "cache_options": "--cache-option"}
_FORWARD = "one forward without a cache; with --prompt and --new, or --free context, generating is what has to fit"
_ANY = ("base", "trust_remote_code")
"""Options that apply to models of any kind."""
_USUAL = How(cache_options=[])._asdict()


class Command:
    """Find the largest batch, or any other open size, at which a model fits into memory.

    The model needs a size that is open: exported with dynamic shapes, or opened with --input x=f32[batch,3,224,224].
    `batch` also means the one symbol that inputs have as their first axis, and `seq` the one they have as their second,
    whatever the exporter called them. Two symbols, as in --free batch,seq, give the largest batch for each of several sequences.

    With --prompt, --new or --cache, and for --free context or new, the model is a language model that generates: the longest context
    (prompt and new tokens together), the largest batch or the most new tokens; --free batch,context gives a context for each batch.

    With --optimizer, and where ./train.py:build returns an optimizer with its module, a training is what has to fit: forward, backward
    and the optimizer's step. A program with a loop of its own is run instead:
    `irscope simulate --fit batch=1..512 train.py --batch {batch}`.

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
        (
            "irscope fit transformers:llama --memory 24GiB --free context --new 256",
            "how long can prompt and answer of a language model be?",
        ),
        ("irscope fit torchvision:resnet50 --memory 24GiB --optimizer adamw", "which is the largest batch that trains in 24 GiB?"),
    )
    common = ("--memory", "--device", "--free", "--optimizer", "--prompt", "--new", "--batch", "--as", "--bind", "--format")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--memory",
            metavar="SIZE",
            help="memory to fit into, such as 24GiB, 80GB, 512MiB; default: the device's memory without a CUDA context",
        )
        parser.add_argument("--free", default="batch", metavar="SYMBOL[,SYMBOL]", help="the size to look for; default: batch")
        parser.add_argument(
            "--counter", choices=("auto", *COUNTERS), default="auto", help="what has to fit; default: reserved where it is known"
        )
        kind = parser.add_mutually_exclusive_group()
        kind.add_argument("--optimizer", default="", metavar="NAME", help="optimizer of a training step that has to fit, such as adamw")
        kind.add_argument("--inference", action="store_true", help="a forward alone, also where a function returns an optimizer")
        add_amount(parser, "--prompt", help="tokens of the prompt; of a language model that generates")
        add_amount(parser, "--new", help="tokens to generate after it; default with --prompt: 1")
        add_amount(parser, "--batch", help="prompts at once; default: 1")
        add_how_arguments(parser)
        add_model_arguments(parser, memory=False)
        add_output_arguments(parser, plots="the peak by size, with the memory that there is")

    def run(self, args: argparse.Namespace) -> int:
        free = [name.strip() for name in args.free.split(",") if name.strip()]
        how = how_from(args)
        if {"context", "new"} & {*free} or any(one is not None for one in (args.prompt, args.new)) or how.cache:
            return self._generating(args, free, how)
        said = ["--batch"] * (args.batch is not None)
        said += [_FLAGS.get(name, f"--{name}") for name, one in how._asdict().items() if name not in _ANY and one != _USUAL[name]]
        if said:
            hint = "`--prompt 4096` says that it does, `--bind batch=4` gives a size of another"
            raise UsageError(f"{said[0]} is for a model that generates", code="IRS337", hint=hint)
        if args.optimizer:
            return self._training(args, free)
        model = open_from(args, open_sizes=free)
        if TRAINS in model.program.metadata and not args.inference:
            return self._training(args, free)
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
        if GENERATES in model.program.metadata:
            document = replace(document, reports=tuple(replace(report, notes=(*report.notes, _FORWARD)) for report in document.reports))
        if worst.fits or args.format == "json":
            write_answer(document, args)
        if worst.fits:
            return strict_code(args, [model])
        sys.stderr.write("".join(f"{printable(line)}\n" for line in unfit_lines(worst)))
        return ExitCode.FINDINGS

    def _training(self, args: argparse.Namespace, free: list[str]) -> int:
        """Answer for a training step."""
        from irscope.tools.fit_runs import fit_training  # it imports all that plans steps

        if free != ["batch"] or args.counter not in ("auto", "reserved"):
            said = f"--counter {args.counter}" if free == ["batch"] else f"--free {','.join(free)}"
            raise UsageError(
                f"{said} is not for a training, which is captured at one batch after the other, and reserves memory",
                code="IRS337",
                where=args.model,
                hint="`--inference` asks about a forward alone",
            )
        step = argparse.ArgumentParser()
        add_step_arguments(step)
        of_step = vars(step.parse_args(["--optimizer", args.optimizer] if args.optimizer else []))
        made = argparse.Namespace(**{**of_step, **{name: variable for name, variable in vars(args).items() if name not in of_step}})
        watching = progress_from(args)
        target = target_of(opened_for(args))
        memory = room_of(args.memory, target)
        found, info = fit_training(lambda batch: step_from(made, batch, watching), memory, load_options(args).bind.get("batch", 4))
        for watcher in watching:
            watcher.ended()
        write_answer(found.document(info), args)
        return found.exit_code

    def _generating(self, args: argparse.Namespace, free: list[str], how: How) -> int:
        """Answer for a language model that generates."""
        watching = progress_from(args)
        fit = fit_generation(
            args.model,
            memory=args.memory,
            free=",".join(free),
            prompt=args.prompt,
            new=args.new,
            batch=args.batch,
            device=device_for(args.device),
            torch=args.torch,
            alloc_conf=args.alloc_conf,
            on_progress=functools.partial(watching[0].progress, None) if watching else None,
            **how._asdict(),
        )
        for watcher in watching:
            watcher.ended()
        write_answer(fit.document(), args)
        return ExitCode.OK if fit.fits else ExitCode.FINDINGS
